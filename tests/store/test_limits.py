"""Limits: not to begin later, not to be tried later, so many at once, so many in a time, only one of a kind."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota.model.definition import Gate
from rota.model.execution import ExecutionKey, Status
from rota.model.gate import AtGate, let_through
from rota.model.job import IdempotencyKey, NewJob, OnConflict, Unique
from rota.model.retry import HandedBack, Raised, TooLate
from rota.model.rules import Overlap
from rota.scheduler.planner import Planner
from rota.scheduler.reaper import Reaper
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Accepted, OneShotChange, Replayed, Submission, Taken
from tests.support.clock import FakeClock
from tests.support.jobs import a_job, a_recurring_job, claim, ended, executions, submit

SECOND = timedelta(seconds=1)


# start_by


async def test_what_nobody_began_in_time_is_skipped(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(start_by=60.0), a_job(start_by=600.0), a_job())
    clock.advance(seconds=61)

    assert await Reaper(store).step() == 1
    assert await Reaper(store).step() == 0

    [skipped] = [e for e in await executions(store) if e.status is Status.SKIPPED]
    assert (skipped.skipped_because, skipped.skipped_count) == ("start_by", 1)
    assert len(await claim(store)) == 2


async def test_whoever_claims_it_is_told_how_long_it_may_wait(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(start_by=60.0, deadline=90.0))
    clock.advance(seconds=20)

    [claimed] = await claim(store)

    assert (claimed.start_within, claimed.deadline_in) == (40.0, 70.0)
    await store.finish([ended(claimed, TooLate())])
    [found] = await executions(store)
    assert (found.status, found.skipped_because) == (Status.SKIPPED, "start_by")


async def test_what_has_begun_once_is_tried_again_after_its_start_by(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(start_by=60.0))
    [first] = await claim(store)
    await store.finish([ended(first, Raised("no", after=100.0))])
    clock.advance(seconds=101)

    assert await Reaper(store).step() == 0
    [second] = await claim(store)
    assert (second.attempt, second.start_within) == (2, None)


async def test_each_firing_has_a_start_by_of_its_own(store: PostgresStore, clock: FakeClock) -> None:
    job = a_recurring_job("* * * * *", clock.moment, overlap=Overlap.ALLOW)
    await submit(store, with_policy(job, start_by=90.0))
    planner = Planner(store)
    for _ in range(3):
        clock.advance(minutes=1)
        await planner.step()
    await Reaper(store).step()

    statuses = Counter(e.status for e in await executions(store))
    assert statuses == {Status.SKIPPED: 1, Status.QUEUED: 2}


def with_policy(job: NewJob, **policy: Any) -> NewJob:
    definition = msgspec.structs.replace(
        job.definition, policy=msgspec.structs.replace(job.definition.policy, **policy)
    )
    return msgspec.structs.replace(job, definition=definition)


# deadline


async def test_no_try_begins_after_the_deadline(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(deadline=60.0, max_retries=100))
    [first] = await claim(store)
    await store.finish([ended(first, Raised("first", after=30.0))])
    clock.advance(seconds=31)
    [second] = await claim(store)

    again = ended(second, Raised("second", after=30.0))
    assert await store.finish([again]) == []
    assert await store.finish([again]) == [], "told twice it is accepted twice"

    [found] = await executions(store)
    assert found.status is Status.FAILED
    assert found.error is not None
    assert found.error.startswith("DeadlineExceeded") and found.error.endswith("second")
    assert len(await store.find_letters([found.key])) == 1


async def test_what_waits_past_its_deadline_has_failed(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(deadline=60.0))
    [claimed] = await claim(store)
    await store.finish([ended(claimed, HandedBack())])
    clock.advance(seconds=61)

    await Reaper(store).step()

    [found] = await executions(store)
    assert (found.status, found.error) == (Status.FAILED, "DeadlineExceeded: it was not done in time.")
    again, _ = await store.redrive([found.key])
    assert len(again) == 1
    [redriven] = await claim(store)
    assert redriven.deadline_in == 60.0, "it has a new one"


# Gates


def gated(*, key: str = "ann/it", at: datetime | None = None, priority: int = 0, **gate: Any) -> NewJob:
    return a_job(at=at, priority=priority, gate=Gate(key, **gate))


async def passes(store: PostgresStore) -> int:
    passed = 0
    while more := await store.let_through():
        passed += more
    return passed


async def test_so_many_at_once_across_everything(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(gated(concurrency=2) for _ in range(5)), gated(key="ann/other", concurrency=1), a_job())

    assert len(await claim(store)) == 1, "who has no key passes no gate"
    assert await passes(store) == 3
    running = await claim(store)
    assert len(running) == 3
    assert await passes(store) == 0
    await store.finish([ended(c) for c in running])
    assert await passes(store) == 2
    assert len(await claim(store)) == 2


async def test_who_is_to_be_tried_again_gives_up_its_place(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, gated(concurrency=1), gated(concurrency=1))
    await passes(store)
    [first] = await claim(store)
    await store.finish([ended(first, Raised("no", after=3600.0))])

    assert await passes(store) == 1
    [second] = await claim(store)
    assert second.key != first.key
    clock.advance(hours=2)
    assert await passes(store) == 0
    await store.finish([ended(second)])
    assert await passes(store) == 1
    [again] = await claim(store)
    assert again.key == first.key


async def test_what_is_not_due_does_not_wait_in_front(store: PostgresStore, clock: FakeClock) -> None:
    later = clock.moment + timedelta(hours=1)
    await submit(store, gated(concurrency=1, at=later), gated(concurrency=1))

    assert await passes(store) == 1
    [claimed] = await claim(store)
    assert claimed.fires_at == clock.moment


async def test_priority_counts_at_a_gate_too(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, gated(concurrency=1))
    clock.advance(seconds=1)
    await submit(store, gated(concurrency=1, priority=9))

    await passes(store)

    [claimed] = await claim(store)
    assert claimed.priority == 9


async def test_many_gatekeepers_let_no_more_through(store: PostgresStore, clock: FakeClock) -> None:
    await store.db.fetch("update cluster set shards = 4")
    store.db._shards_until = 0.0
    jobs = [a_job(gate=Gate("ann/it", concurrency=3), shards=4) for _ in range(40)]
    await submit(store, *jobs)
    ran = 0
    while ran < 40:
        await asyncio.gather(*(store.let_through() for _ in range(4)))
        claimed = await claim(store)
        assert 1 <= len(claimed) <= 3
        ran += len(claimed)
        await store.finish([ended(c) for c in claimed])


async def test_a_gate_that_counts_in_time_spreads_the_starts(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(gated(rate=10, per=1.0) for _ in range(100)))
    began = []
    for _ in range(60):
        await store.let_through()
        began.append(len(await claim(store)))
        clock.advance(seconds=0.1)

    assert sum(began) <= 6 * 10 + 4
    assert all(sum(began[n : n + 10]) <= 10 + 4 for n in range(50))
    assert sum(began) >= 55


async def test_a_job_that_must_not_overlap_has_its_turn_first_and_then_its_gate(
    store: PostgresStore, clock: FakeClock
) -> None:
    job = a_recurring_job("* * * * *", clock.moment, overlap=Overlap.BUFFER_ALL)
    await submit(store, with_policy(job, gate=Gate("ann/it", concurrency=1)))
    planner = Planner(store)
    for _ in range(3):
        clock.advance(minutes=1)
        await planner.step()
        await passes(store)
    ran = []
    while claimed := await claim(store):
        ran += claimed
        await store.finish([ended(c) for c in claimed])
        await planner.step()
        await passes(store)

    assert [c.fires_at for c in ran] == sorted(c.fires_at for c in ran)
    assert len(ran) == 3


async def test_a_change_does_not_open_the_gate(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, gated(concurrency=1))
    await passes(store)
    [job] = await submit(store, gated(concurrency=1))
    [waiting] = [e for e in await executions(store) if e.job_id == job.id]

    changed = await store.change_one_shot(OneShotChange(key=waiting.key, definition=waiting.definition, fires_at=None))

    assert changed
    assert len(await claim(store)) == 1


async def test_cancelling_what_waits_at_a_gate_ends_it(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, gated(concurrency=1))

    await store.cancel_jobs([job.id])

    assert [e.status for e in await executions(store)] == [Status.CANCELLED]
    assert await passes(store) == 0


def test_each_asks_for_its_own_limit() -> None:
    now = datetime.fromisoformat("2027-01-04T10:00:00Z")
    keys = [ExecutionKey(a_job().id, now, 0) for _ in range(3)]
    waiting = [AtGate(keys[0], Gate("k", 3)), AtGate(keys[1], Gate("k", 2)), AtGate(keys[2], Gate("k", 3))]

    assert let_through(waiting, under_way=1, next_at=None, now=now) == (keys[:1], None)


# Only one of a kind


def unique(on_conflict: OnConflict = OnConflict.REJECT, *, while_active: bool = True, user_id: str = "ann") -> NewJob:
    return msgspec.structs.replace(a_job(user_id=user_id), unique=Unique("report", while_active, on_conflict))


async def offered(store: PostgresStore, job: NewJob, key: IdempotencyKey | None = None) -> Any:
    [receipt] = await store.submit([Submission([job], key)])
    return receipt


async def test_only_one_is_there_until_it_has_ended(store: PostgresStore, clock: FakeClock) -> None:
    first = unique()
    assert isinstance(await offered(store, first), Accepted)

    assert await offered(store, unique()) == Taken(first.id, True)
    assert await offered(store, unique(OnConflict.RETURN_EXISTING)) == Taken(first.id, False)
    assert isinstance(await offered(store, unique(user_id="bob")), Accepted), "another's key is another key"
    claimed = [c for c in await claim(store) if c.user_id == "ann"]
    assert await offered(store, unique()) == Taken(first.id, True)
    await store.finish([ended(c) for c in claimed])
    assert isinstance(await offered(store, unique()), Accepted)


async def test_while_pending_ends_when_it_begins(store: PostgresStore, clock: FakeClock) -> None:
    await offered(store, unique(while_active=False))
    assert isinstance(await offered(store, unique(while_active=False)), Taken)
    await claim(store)

    assert isinstance(await offered(store, unique(while_active=False)), Accepted)


async def test_the_new_one_may_replace_the_old_one(store: PostgresStore, clock: FakeClock) -> None:
    old, new = unique(), unique(OnConflict.REPLACE)
    await offered(store, old)

    assert isinstance(await offered(store, new), Accepted)

    statuses = {e.job_id: e.status for e in await executions(store)}
    assert statuses == {old.id: Status.CANCELLED, new.id: Status.QUEUED}


async def test_of_many_at_once_one_is_stored(store: PostgresStore, clock: FakeClock) -> None:
    for _ in range(5):
        jobs = [unique() for _ in range(8)]
        receipts = await asyncio.gather(*(offered(store, job) for job in jobs))
        assert Counter(type(receipt).__name__ for receipt in receipts) == {"Accepted": 1, "Taken": 7}
        [claimed] = await claim(store)
        await store.finish([ended(claimed)])


async def test_who_was_refused_may_ask_again_with_the_same_idempotency_key(
    store: PostgresStore, clock: FakeClock
) -> None:
    key = IdempotencyKey("k", b"digest")
    await offered(store, unique())
    assert isinstance(await offered(store, unique(), key), Taken)
    [claimed] = await claim(store)
    await store.finish([ended(claimed)])
    again = unique()

    assert isinstance(await offered(store, again, key), Accepted)
    assert await offered(store, unique(), key) == Replayed([again.id])


async def test_a_unique_key_outlives_the_day_as_long_as_its_job_waits(store: PostgresStore, clock: FakeClock) -> None:
    await offered(store, msgspec.structs.replace(unique(), fires_at=clock.moment + timedelta(days=10)))
    clock.advance(days=5)
    await store.maintain(keep=timedelta(days=30))

    assert isinstance(await offered(store, unique()), Taken)


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED"])
async def test_a_recurring_job_keeps_its_key_until_it_is_over(
    store: PostgresStore, clock: FakeClock, state: str
) -> None:
    job = msgspec.structs.replace(a_recurring_job("0 * * * *", clock.moment), unique=Unique("report"))
    await offered(store, job)
    if state == "PAUSED":
        await store.pause(job.id, note=None, until=None)

    assert isinstance(await offered(store, unique()), Taken)
    await store.cancel_jobs([job.id])
    assert isinstance(await offered(store, unique()), Accepted)
