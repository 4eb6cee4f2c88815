"""What happens when features meet: a change and a gate, a redrive and a backfill, a pause and a cancellation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import msgspec
import pytest

from rota.model.backfill import Reprocess
from rota.model.capacity import Needs, fits
from rota.model.definition import Gate
from rota.model.execution import Claimed, ExecutionKey, Status
from rota.model.job import Job, NewJob, OnConflict, Unique, shard_of
from rota.model.policy import Unplanned
from rota.model.query import ExecutionFilter, Page, Position, print_token
from rota.model.retry import HandedBack, Raised, ending_for
from rota.model.rules import Overlap
from rota.scheduler.backfiller import Backfiller
from rota.scheduler.planner import Planner
from rota.scheduler.reaper import Reaper
from rota.server.bodies import ConcurrencyBody, JobBody, definition_of
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.planning import SQL as PLANNING
from rota.store.protocol import Accepted, OneShotChange, Submission, Taken
from tests.server.calls import Caller
from tests.server.test_calendars import WAITING
from tests.store.test_backfill import a_backfill
from tests.store.test_limits import gated, passes, unique, with_policy
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, a_change, a_job, a_recurring_job, claim, ended, executions, submit
from tests.support.processes import eventually

EVERY_MINUTE = "* * * * *"
FAILED = Raised("no", final=True)


@pytest.fixture
async def other(dsn: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    """Another node on the same database."""
    opened = await PostgresStore.open(dsn, clock=clock)
    yield opened
    await opened.aclose()


async def found(store: PostgresStore, job_id: UUID) -> Job:
    [job] = await store.find_jobs([job_id])
    return job


async def status_of(caller: Caller, job: Any) -> str:
    status: str = (await caller.get(f"/jobs/{job['id']}")).ok()["status"]
    return status


async def minutes_pass(store: PostgresStore, clock: FakeClock, minutes: int) -> None:
    """All that comes in them passes its gate, if it has one, and is done at once."""
    planner = Planner(store)
    for _ in range(minutes):
        clock.advance(minutes=1)
        await planner.step()
        await passes(store)
        await store.finish([ended(claimed) for claimed in await claim(store)])


async def a_firing(store: PostgresStore, clock: FakeClock) -> None:
    clock.advance(minutes=1)
    await Planner(store).step()


async def change_overlap(store: PostgresStore, clock: FakeClock, job_id: UUID, overlap: Overlap) -> None:
    seen = await found(store, job_id)
    assert seen.schedule is not None
    next_fires_at = seen.schedule.after(clock.moment)
    assert await store.change_recurring(
        a_change(seen, since=clock.moment, next_fires_at=next_fires_at, overlap=overlap)
    )


async def change_pending(store: PostgresStore, job: Job, *, at: datetime | None = None, priority: int = 0) -> None:
    """A job that runs once and was not begun."""
    assert job.last_execution is not None
    definition = msgspec.structs.replace(job.definition, priority=priority)
    assert await store.change_one_shot(OneShotChange(key=job.last_execution.key, definition=definition, fires_at=at))


async def blocked_or_done(store: PostgresStore, task: asyncio.Task[Any]) -> None:
    """Until somebody's lock is in its way, or it went on without."""

    async def settled() -> bool:
        return task.done() or bool(await store.db.look(WAITING))

    await eventually(settled)


# Resources


def test_a_tiny_amount_of_a_resource_is_computed() -> None:
    assert fits({"cpu": 1e-320}, {"cpu": 4.0}) > 0


async def test_one_job_cannot_stop_all_claims(ann: Caller, store: PostgresStore) -> None:
    (await ann.post("/jobs", {"task_id": "echo", "resources": {"cpu": 1e-320}})).refused(422, "resources.cpu")
    # Stored by a version that let it in.
    await submit(store, a_job(needs=Needs({"cpu": 1e-320})))

    await submit(store, a_job())

    assert len(await claim(store)) >= 1


# Unique keys


async def test_two_submissions_with_one_unique_key_in_one_commit(store: PostgresStore) -> None:
    receipts = await store.submit([Submission([unique()]), Submission([unique()])])

    assert Counter(type(receipt) for receipt in receipts) == {Accepted: 1, Taken: 1}


async def test_the_janitor_does_not_forget_a_key_just_taken(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, unique())
    await store.finish([ended(claimed) for claimed in await claim(store)])
    clock.advance(days=2)
    new = unique()
    [lane] = await store._lanes_of([new.definition])
    async with store.db.transaction() as connection:
        assert await store._settle_unique(connection, Submission([new])) is None
        janitor = asyncio.create_task(store.db.fetch(PLANNING.forget_names, clock.moment))
        await blocked_or_done(store, janitor)
        await store._store(connection, [new], {new.id: lane})
    await janitor

    [receipt] = await store.submit([Submission([unique()])])

    assert isinstance(receipt, Taken), "two jobs have the key"


async def test_unique_keys_of_two_nodes_do_not_wait_for_each_other(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A deadlock is not tried again here, so that it shows.
    monkeypatch.setattr("rota.store.postgres.database.TURNS", 0)
    keys = [f"k{n}" for n in range(30)]

    for _ in range(5):
        here, there = await asyncio.gather(holders(store, keys), holders(other, keys[::-1]))
        assert here == there

    assert {execution.job_id for execution in await executions(store)} == set(here.values())
    assert len(set(here.values())) == len(keys)


async def holders(node: PostgresStore, keys: list[str]) -> dict[str, UUID]:
    """Who has these keys, after a job for each was submitted to that node in one call."""
    receipts = await node.submit([Submission([or_existing(key)]) for key in keys])
    holding = {}
    for key, receipt in zip(keys, receipts, strict=True):
        assert isinstance(receipt, Accepted | Taken)
        holding[key] = receipt.job_id if isinstance(receipt, Taken) else receipt.jobs[0].id
    return holding


def or_existing(key: str) -> NewJob:
    return msgspec.structs.replace(a_job(), unique=Unique(key, True, OnConflict.RETURN_EXISTING))


# Gates


async def test_changing_a_job_at_its_gate_leaves_it_there(store: PostgresStore) -> None:
    await submit(store, gated(concurrency=1))
    await passes(store)
    assert len(await claim(store)) == 1
    [job] = await submit(store, gated(concurrency=1))

    await change_pending(store, job, priority=5)

    assert await claim(store) == [], "two run behind a gate for one"


async def test_a_job_put_off_does_not_hold_a_place(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, gated(concurrency=1))
    await passes(store)

    await change_pending(store, job, at=clock.moment + timedelta(days=1))

    await submit(store, gated(concurrency=1))
    assert await passes(store) == 1, "a job of tomorrow holds the only place"


async def test_live_work_passes_the_gate_before_a_backfill(store: PostgresStore, clock: FakeClock) -> None:
    recurring = a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.ALLOW)
    [job] = await submit(store, with_policy(recurring, gate=Gate("ann/it", concurrency=1)))
    await minutes_pass(store, clock, 120)
    await submit(store, gated(concurrency=1))
    await passes(store)
    [holder] = await claim(store)
    await a_backfill(store, job, clock.moment, minutes=110, max_parallel=100, reprocess=Reprocess.ALL)
    await Backfiller(store).step()
    clock.advance(seconds=1)
    await submit(store, gated(concurrency=1))

    await store.finish([ended(holder)])
    await passes(store)

    [claimed] = await claim(store)
    assert claimed.priority == 0, "a backfill went first"


def test_gates_of_two_users_are_two() -> None:
    def gate_of(user_id: str, key: str) -> Gate | None:
        return definition_of(JobBody(task_id="t", concurrency=ConcurrencyBody(key)), user_id, None).policy.gate

    one, another = gate_of("a", "b/c"), gate_of("a/b", "c")
    assert one is not None and another is not None
    assert one.key != another.key


async def test_no_more_at_once_while_the_number_of_shards_grows(store: PostgresStore, other: PostgresStore) -> None:
    # The one node remembers it for some seconds, the other one has not asked yet.
    assert await store.shards() == 1
    await other.db.fetch("update cluster set shards = 2")
    two_shards = (a_job(gate=Gate("ann/it", concurrency=1), shards=2) for _ in count())
    await submit(other, next(job for job in two_shards if shard_of(job.id) == 1))
    await passes(other)

    await submit(store, gated(concurrency=1))

    assert await passes(store) == 0, "two have passed a gate for one"


async def test_a_policy_of_a_newer_version_does_not_close_all_gates(store: PostgresStore) -> None:
    await submit(store, gated(concurrency=1), gated(key="ann/other", concurrency=1))
    await store.db.fetch(
        """
        update executions
        set policy = replace(policy, '"concurrency":1', '"concurrency":"auto"')
        where gate = 'ann/it'
        """
    )

    assert await passes(store) == 1


async def test_a_rate_of_five_thousand(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(gated(rate=5000, per=1.0) for _ in range(3000)))

    passed = 0
    for _ in range(5):
        clock.advance(seconds=0.1)
        passed += await store.let_through()

    assert passed >= 2000


# start_by and deadline


async def test_changing_a_retrying_job_does_not_skip_it(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(start_by=60, max_retries=5)
    [first] = await claim(store)
    await store.finish([ended(first, Raised("no", after=100.0))])
    clock.advance(seconds=70)

    (await ann.patch(f"/jobs/{job['id']}", {"priority": 5})).ok()

    clock.advance(seconds=40)
    [second] = await claim(store)
    assert second.start_within is None, "its worker will tell TooLate and it will be SKIPPED"


async def test_changing_a_redriven_job_does_not_fail_it(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(deadline=60, max_retries=0)
    [claimed] = await claim(store)
    await store.finish([ended(claimed, FAILED)])
    clock.advance(hours=1)
    await store.redrive([claimed.key])

    (await ann.patch(f"/jobs/{job['id']}", {"priority": 5})).ok()
    await Reaper(store).step()

    assert await status_of(ann, job) == "QUEUED"


async def test_what_was_handed_back_unbegun_keeps_its_start_by(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(start_by=60.0))
    [claimed] = await claim(store)
    await store.finish([ending_for(claimed, HandedBack(), worker_id=ALICE)])
    clock.advance(hours=1)

    assert await Reaper(store).step() == 1

    [skipped] = await executions(store)
    assert (skipped.status, skipped.skipped_because) == (Status.SKIPPED, "start_by")
    assert await claim(store) == [], "begins an hour late"


async def test_jitter_beyond_start_by_is_refused(ann: Caller) -> None:
    body = {"task_id": "echo", "schedule": "0 * * * *", "jitter": "PT30M", "start_by": 60}

    (await ann.post("/jobs", body)).refused(422, "start_by")


# Overlap


async def test_a_manual_run_beside_what_was_allowed_before(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("0 * * * *", clock.moment, overlap=Overlap.ALLOW))
    clock.advance(hours=1)
    await Planner(store).step()
    assert len(await claim(store)) == 1
    clock.advance(minutes=1)
    await change_overlap(store, clock, job.id, Overlap.SKIP)

    await store.run_now(await found(store, job.id))

    assert await claim(store) == [], "two of one job run at once, and its overlap is skip"


async def test_what_waits_has_its_turn_when_the_job_allows_overlap(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.BUFFER_ALL))
    for _ in range(3):
        await a_firing(store, clock)
    running = await claim(store)
    clock.advance(seconds=30)

    await change_overlap(store, clock, job.id, Overlap.ALLOW)
    for _ in range(60):
        clock.advance(seconds=30)
        await Planner(store).step()
        running += await claim(store)
        # Longer than from one firing to the next, so that there is always something open.
        over = [claimed for claimed in running if clock.moment - claimed.fires_at >= timedelta(seconds=90)]
        await store.finish([ended(claimed) for claimed in over])
        running = [claimed for claimed in running if claimed not in over]

    waiting = await store.db.fetch("select from executions where waits")
    assert waiting == [], "half an hour later they still wait"


# Redriving


async def test_redriving_a_letter_that_waited_does_not_overlap(store: PostgresStore, clock: FakeClock) -> None:
    job = a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.BUFFER_ALL)
    await submit(store, with_policy(job, deadline=90.0))
    await a_firing(store, clock)
    assert len(await claim(store)) == 1
    await a_firing(store, clock)
    clock.advance(seconds=91)
    await Reaper(store).step()
    [letter] = (await store.dead_letters(ExecutionFilter(), Page(10))).items

    await store.redrive([letter.key])

    assert await claim(store) == [], "two of one job run at once"


async def failed_and_filled(store: PostgresStore, clock: FakeClock, overlap: Overlap) -> Claimed:
    """A run that failed, and whose firing a backfill is to run again."""
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=overlap))
    await a_firing(store, clock)
    [claimed] = await claim(store)
    await store.finish([ended(claimed, FAILED)])
    clock.advance(seconds=5)
    await a_backfill(store, job, clock.moment, minutes=1, reprocess=Reprocess.FAILED)
    await Backfiller(store).step()
    return claimed


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.ALLOW])
async def test_redriving_what_a_backfill_runs(store: PostgresStore, clock: FakeClock, overlap: Overlap) -> None:
    failed = await failed_and_filled(store, clock, overlap)

    again, refused = await store.redrive([failed.key])

    assert len(again) + len(refused) == 1


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.ALLOW])
async def test_redriving_two_letters_of_one_firing(store: PostgresStore, clock: FakeClock, overlap: Overlap) -> None:
    first = await failed_and_filled(store, clock, overlap)
    [second] = await claim(store)
    assert second.fires_at == first.fires_at
    await store.finish([ended(second, FAILED)])

    again, refused = await store.redrive([first.key, second.key])

    assert len(set(again)) + len(refused) == 2


async def test_redriving_while_one_is_released(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.BUFFER_ALL))
    await a_firing(store, clock)
    [claimed] = await claim(store)
    await a_firing(store, clock)
    await store.finish([ended(claimed, FAILED)])

    async with store.db.transaction() as connection:
        await connection.fetch(PLANNING.release, 0, [job.id], clock.moment)
        redriving = asyncio.create_task(store.redrive([claimed.key]))
        await blocked_or_done(store, redriving)
    _, refused = await redriving

    assert [refusal.key for refusal in refused] == [claimed.key]


# The ledger


async def test_a_firing_with_many_runs_does_not_make_the_next_ones_missing(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule=EVERY_MINUTE)
    seen = await found(store, UUID(job["id"]))
    await minutes_pass(store, clock, 30)
    await a_backfill(store, seen, clock.moment, minutes=30, max_parallel=100, reprocess=Reprocess.ALL)
    for _ in range(3):
        await Backfiller(store).step()
        await store.finish([ended(claimed) for claimed in await claim(store)])

    ledger = (await ann.get(f"/jobs/{job['id']}/ledger", limit=30)).ok()

    assert ledger["counts"] == {"COMPLETED": 30}


async def test_a_finished_job_that_may_go_on_has_nothing_missing(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule=EVERY_MINUTE, max_executions=2)
    await minutes_pass(store, clock, 10)
    assert await status_of(ann, job) == "FINISHED"

    (await ann.patch(f"/jobs/{job['id']}", {"max_executions": 5})).ok()

    ledger = (await ann.get(f"/jobs/{job['id']}/ledger")).ok()
    assert "MISSING" not in ledger["counts"]


async def test_a_token_at_the_end_of_time(ann: Caller) -> None:
    job = await ann.submit(schedule=EVERY_MINUTE)
    token = print_token(Position(datetime.max.replace(tzinfo=UTC), UUID(job["id"]), 0))

    answer = await ann.get(f"/jobs/{job['id']}/ledger", page_token=token)

    assert answer.status < 500


# Pauses


async def test_a_cancelled_firing_ahead_does_not_come_back_with_a_pause(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW))
    await Planner(store).step()
    cancelled = (await found(store, job.id)).planned[1]
    await store.cancel_executions([ExecutionKey(job.id, cancelled, 0)])

    await store.pause(job.id, note=None, until=None)
    await store.resume(job.id, catch_up=False)
    await Planner(store).step()

    clock.advance(seconds=6)
    assert cancelled not in [claimed.fires_at for claimed in await claim(store)], "it was cancelled, and runs"


async def test_auto_pause_does_not_overrule_a_users_pause(
    store: PostgresStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, auto_pause_after=1))
    await a_firing(store, clock)
    await store.finish([ended(claimed, FAILED) for claimed in await claim(store)])
    clock.advance(seconds=58)
    look = store.unplanned

    async def paused_meanwhile(*, horizon: timedelta, limit: int) -> tuple[datetime, list[Unplanned]]:
        seen = await look(horizon=horizon, limit=limit)
        await store.pause(job.id, note="mine", until=clock.moment + timedelta(hours=1))
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(store, "unplanned", paused_meanwhile)
        await Planner(store).step()
    clock.advance(hours=2)
    await Planner(store).step()

    pause = (await found(store, job.id)).pause
    assert pause is None or pause.note == "mine"


async def test_a_job_with_a_calendar_paused_for_a_week_can_be_changed(ann: Caller, clock: FakeClock) -> None:
    (await ann.put("/calendars/c", {"days": ["2027-12-25"]})).ok()
    job = await ann.submit(schedule=EVERY_MINUTE, calendar="c")
    (await ann.post(f"/jobs/{job['id']}/pause", {})).ok()
    clock.advance(days=7)

    (await ann.patch(f"/jobs/{job['id']}", {"priority": 5})).ok()


async def test_a_job_with_an_rrule_paused_for_a_week_can_be_changed(ann: Caller, clock: FakeClock) -> None:
    job = await ann.submit(schedule="RRULE:FREQ=MINUTELY")
    (await ann.post(f"/jobs/{job['id']}/pause", {})).ok()
    clock.advance(days=7)

    (await ann.patch(f"/jobs/{job['id']}", {"priority": 5})).ok()
