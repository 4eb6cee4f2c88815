"""Backfills: past firings run a few at a time, beside the live ones and behind them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from rota.model.backfill import (
    BELOW_LIVE,
    LOOKED_AT,
    Backfill,
    BackfillState,
    NewBackfill,
    Reprocess,
    firings_between,
    new_backfill_id,
    next_firings,
    portion_of,
)
from rota.model.calendar import Calendar
from rota.model.execution import Claimed, ExecutionKey, Status
from rota.model.job import Job, JobStatus, bucket_of
from rota.model.retry import HandedBack, Raised, Stopped
from rota.model.rules import Overlap
from rota.model.schedule import Recurring, parse_when
from rota.scheduler.backfiller import Backfiller
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, a_change, a_job, a_recurring_job, a_worker, claim, ended, executions, submit
from tests.support.processes import eventually

EVERY_MINUTE = "* * * * *"
MINUTE = timedelta(minutes=1)
FAILED = Raised("no", final=True)


async def a_backfill(
    store: PostgresStore,
    job: Job,
    end: datetime,
    *,
    minutes: int = 5,
    max_parallel: int = 1,
    reprocess: Reprocess = Reprocess.NONE,
    calendar: Calendar | None = None,
) -> Backfill:
    """Of the last so many minutes before `end`, without it."""
    assert job.schedule is not None
    start, end = end - minutes * MINUTE, end - timedelta(milliseconds=1)
    firings = firings_between(job.schedule, calendar, start=start, end=end)
    backfill = await store.create_backfill(
        NewBackfill(
            id=new_backfill_id(job.id),
            job_id=job.id,
            starts_at=start,
            ends_at=end,
            first_fires_at=firings[0],
            max_parallel=max_parallel,
            reprocess=reprocess,
            total=len(firings),
        )
    )
    assert backfill is not None
    return backfill


async def found(store: PostgresStore, backfill_id: UUID) -> Backfill:
    backfill = await store.find_backfill(backfill_id)
    assert backfill is not None
    return backfill


async def worked_off(store: PostgresStore, backfill_id: UUID, *, outcome: Any = None) -> list[Claimed]:
    """By one backfiller and one worker, until it has ended; what was claimed, in that order."""
    backfiller = Backfiller(store)
    claimed: list[Claimed] = []
    for _ in range(1000):
        await backfiller.step()
        backfill = await found(store, backfill_id)
        if backfill.state is not BackfillState.RUNNING:
            return claimed
        work = await claim(store)
        assert len(work) <= backfill.max_parallel
        await store.finish([ended(each, outcome) for each in work])
        claimed += work
    raise AssertionError("it does not end")


async def open_now(store: PostgresStore) -> list[ExecutionKey]:
    return [e.key for e in await executions(store) if e.is_open]


def numbers(backfill: Backfill) -> tuple[int, int, int, int]:
    return backfill.total, backfill.made, backfill.passed_over, backfill.open


# Working off


async def test_one_after_the_other_in_the_order_of_time(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)
    backfiller = Backfiller(store)

    for _ in range(3):
        await backfiller.step()
        assert len(await open_now(store)) == 1, "never two at once"
    claimed = await worked_off(store, backfill.id)

    assert [c.fires_at for c in claimed] == [clock.moment - n * MINUTE for n in (5, 4, 3, 2, 1)]
    assert {c.run for c in claimed} == {1}
    over = await found(store, backfill.id)
    assert (over.state, over.ended_at, numbers(over)) == (BackfillState.COMPLETED, clock.moment, (5, 5, 0, 0))


async def test_what_runs_holds_up_what_follows(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await a_backfill(store, job, clock.moment)
    backfiller = Backfiller(store)
    await backfiller.step()
    [claimed] = await claim(store)

    assert await backfiller.step() == 0
    await store.finish([ended(claimed, Raised("later"))])
    assert await backfiller.step() == 0, "it will be tried again, so it is still open"
    clock.advance(minutes=1)
    [again] = await claim(store)
    await store.finish([ended(again)])

    assert await backfiller.step() == 1


async def test_up_to_so_many_at_once(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, minutes=10, max_parallel=3)
    backfiller = Backfiller(store)

    assert await backfiller.step() == 3
    assert await backfiller.step() == 0
    first, second, _ = await claim(store)
    await store.finish([ended(first), ended(second, FAILED)])

    assert numbers(await found(store, backfill.id)) == (10, 3, 0, 1)
    assert await backfiller.step() == 2
    assert len(await open_now(store)) == 3


async def test_many_backfillers_at_once_make_each_firing_once(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, minutes=60, max_parallel=4)
    backfillers = [Backfiller(store) for _ in range(4)]
    claimed: list[Claimed] = []
    while (await found(store, backfill.id)).state is BackfillState.RUNNING:
        await asyncio.gather(*(backfiller.step() for backfiller in backfillers))
        assert len(await open_now(store)) <= 4
        work = await claim(store)
        await asyncio.gather(store.finish([ended(each) for each in work]), *(b.step() for b in backfillers))
        claimed += work

    assert [c.fires_at for c in sorted(claimed, key=lambda c: c.key)] == [
        clock.moment - n * MINUTE for n in range(60, 0, -1)
    ]
    assert {c.run for c in claimed} == {1}
    assert numbers(await found(store, backfill.id)) == (60, 60, 0, 0)


async def test_a_portion_made_from_what_is_no_longer_so_changes_nothing(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)
    [seen] = await store.unfilled(limit=10)
    portion = portion_of(seen, *next_firings(seen), [])
    [now] = await store.find_jobs([job.id])
    await store.change_recurring(a_change(now, since=clock.moment, next_fires_at=now.cursor))

    assert not await store.fill(portion), "the job was changed"

    [seen] = await store.unfilled(limit=10)
    portion = portion_of(seen, *next_firings(seen), [])
    assert await store.fill(portion)
    assert not await store.fill(portion), "the cursor has moved"
    assert numbers(await found(store, backfill.id)) == (5, 1, 0, 1)


@pytest.mark.parametrize("has_ended", [False, True])
async def test_of_two_over_the_same_range_each_sees_what_the_other_made(
    store: PostgresStore, clock: FakeClock, has_ended: bool
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await a_backfill(store, job, clock.moment)
    await a_backfill(store, job, clock.moment)
    portions = [portion_of(seen, *next_firings(seen), []) for seen in await store.unfilled(limit=10)]

    assert await store.fill(portions[0])
    if has_ended:
        await store.finish([ended(each) for each in await claim(store)])

    assert not await store.fill(portions[1]), "that run of that firing is taken"
    await Backfiller(store).step()
    keys = [e.key for e in await executions(store)]
    assert len({key.fires_at for key in keys}) == len(keys)


async def test_it_comes_to_its_end_also_over_long_stretches_that_ran(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("PT1M", clock.moment, overlap=Overlap.ALLOW))
    clock.advance(minutes=1)
    await Planner(store).step()
    await store.finish([ended(each) for each in await claim(store)])
    await store.db.fetch(_RAN, job.id, clock.moment + MINUTE, 2 * LOOKED_AT)
    clock.advance(minutes=2 * LOOKED_AT + 1)
    await store.db.fetch("update jobs set next_fires_at = $1", clock.moment)
    backfill = await a_backfill(store, job, clock.moment, minutes=2 * LOOKED_AT + 1)
    backfiller = Backfiller(store)

    assert [await backfiller.step() for _ in range(4)] == [LOOKED_AT, LOOKED_AT, 1, 0]
    over = await found(store, backfill.id)
    assert (over.state, numbers(over)) == (BackfillState.COMPLETED, (401, 0, 401, 0))


_RAN = """
insert into history (
    shard, job_id, fires_at, run, state, due_at, finished_at, user_id, task_id, queue, priority, parameters, recurring,
    attempt, failures, created_at
)
select 0, $1, at, 0, 'COMPLETED', at, at, 'ann', 'echo', 'default', 0, '{}', true, 1, 0, at
from generate_series($2::timestamptz, $2::timestamptz + ($3 - 1) * interval '1 minute', interval '1 minute') as t (at)
"""


async def test_it_has_not_ended_while_something_of_it_is_open(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, max_parallel=2)
    backfiller = Backfiller(store)
    await backfiller.step()
    quick, slow = await claim(store)
    await store.finish([ended(quick)])
    await store.db.fetch(_RAN, job.id, clock.moment - 3 * MINUTE, 3)

    assert await backfiller.step() == 3, "the rest is passed over"
    assert await backfiller.step() == 0
    assert (await found(store, backfill.id)).state is BackfillState.RUNNING

    await store.finish([ended(slow)])
    await backfiller.step()
    assert (await found(store, backfill.id)).state is BackfillState.COMPLETED


async def test_when_nothing_is_to_be_done_nothing_is_done(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfiller = Backfiller(store)

    assert await backfiller.step() == 0
    backfill = await a_backfill(store, job, clock.moment, minutes=1)
    await worked_off(store, backfill.id)
    assert await store.unfilled(limit=10) == []
    assert await backfiller.step() == 0


async def test_one_that_cannot_be_read_does_not_keep_the_others_waiting(store: PostgresStore, clock: FakeClock) -> None:
    jobs = await submit(store, *(a_recurring_job(EVERY_MINUTE, clock.moment) for _ in range(3)))
    for job in jobs:
        await a_backfill(store, job, clock.moment)
    for job, schedule in zip(jobs, ("{}", BAD_ZONE), strict=False):
        await store.db.fetch("update jobs set schedule = $2 where id = $1", job.id, schedule)

    assert await Backfiller(store).step() == 1


BAD_ZONE = '{"rhythm": {"type": "CRON", "expression": "* * * * *", "time_zone": "Mars/Olympus"}}'


async def test_other_shards_have_backfills_too(store: PostgresStore, clock: FakeClock) -> None:
    await store.db.fetch("update cluster set shards = 3")
    new = a_recurring_job(EVERY_MINUTE, clock.moment)
    new = msgspec.structs.replace(new, id=UUID(int=new.id.int | 2))
    [job] = await submit(store, new)
    backfill = await a_backfill(store, job, clock.moment)

    claimed = await worked_off(store, backfill.id)

    assert len(claimed) == 5
    assert [each.id for each in await store.backfills(job.id)] == [backfill.id]


# What runs again


async def some_runs(store: PostgresStore, clock: FakeClock) -> tuple[Job, dict[str, datetime]]:
    """A job with one firing each that completed, failed, was cancelled, is open, and then two that were skipped."""
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)
    fired: dict[str, datetime] = {}
    for name, outcome in (("completed", None), ("failed", FAILED), ("cancelled", Stopped()), ("open", None)):
        clock.advance(minutes=1)
        await planner.step()
        [claimed] = await claim(store)
        fired[name] = claimed.fires_at
        if name != "open":
            await store.finish([ended(claimed, outcome)])
    clock.advance(minutes=2)
    await planner.step()
    fired |= {"skipped": clock.moment - MINUTE, "skipped too": clock.moment}
    return job, fired


@pytest.mark.parametrize(
    ("reprocess", "made"),
    [
        (Reprocess.NONE, {"skipped", "skipped too"}),
        (Reprocess.FAILED, {"skipped", "skipped too", "failed", "cancelled"}),
        (Reprocess.ALL, {"skipped", "skipped too", "failed", "cancelled", "completed", "open"}),
    ],
)
async def test_what_is_made_is_what_reprocess_says(
    store: PostgresStore, clock: FakeClock, reprocess: Reprocess, made: set[str]
) -> None:
    job, fired = await some_runs(store, clock)
    backfill = await a_backfill(store, job, clock.moment + MINUTE, minutes=6, max_parallel=10, reprocess=reprocess)

    claimed = await worked_off(store, backfill.id)

    assert {name for name, at in fired.items() if at in {c.fires_at for c in claimed}} == made
    assert {c.run for c in claimed} == {1}
    assert numbers(await found(store, backfill.id)) == (6, len(made), 6 - len(made), 0)


async def test_the_newest_run_counts(store: PostgresStore, clock: FakeClock) -> None:
    job, fired = await some_runs(store, clock)
    first = await a_backfill(store, job, clock.moment + MINUTE, minutes=6, max_parallel=10, reprocess=Reprocess.FAILED)
    await worked_off(store, first.id)

    second = await a_backfill(store, job, clock.moment + MINUTE, minutes=6, max_parallel=10, reprocess=Reprocess.FAILED)
    assert await worked_off(store, second.id) == [], "all of them have completed meanwhile"

    third = await a_backfill(store, job, clock.moment + MINUTE, minutes=6, max_parallel=10, reprocess=Reprocess.ALL)
    runs = {c.fires_at: c.run for c in await worked_off(store, third.id)}
    assert (runs[fired["failed"]], runs[fired["skipped"]], runs[fired["completed"]]) == (2, 2, 1)


async def test_what_failed_in_a_backfill_does_not_stop_it(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)

    claimed = await worked_off(store, backfill.id, outcome=FAILED)

    assert len(claimed) == 5
    assert (await found(store, backfill.id)).state is BackfillState.COMPLETED


async def test_days_of_the_calendar_are_not_made_up_for(store: PostgresStore, clock: FakeClock) -> None:
    calendar = Calendar(("2027-01-04T09:56:00Z/2027-01-04T09:58:00Z",))
    await store.put_calendar("ann", "maintenance", calendar)
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, calendar="maintenance"))
    backfill = await a_backfill(store, job, clock.moment, calendar=calendar)

    claimed = await worked_off(store, backfill.id)

    assert [c.fires_at.minute for c in claimed] == [55, 58, 59]
    assert numbers(await found(store, backfill.id)) == (3, 3, 0, 0)


# Beside the live firings


async def test_the_live_firings_go_on_and_none_is_skipped_because_of_it(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.SKIP))
    await a_backfill(store, job, clock.moment, minutes=60, max_parallel=2)
    planner, backfiller = Planner(store), Backfiller(store)
    await backfiller.step()
    slow = await claim(store)

    for _ in range(3):
        clock.advance(minutes=1)
        await planner.step()
        await backfiller.step()
        [live] = await claim(store)
        assert (live.fires_at, live.run) == (clock.moment, 0)
        await store.finish([ended(live)])

    assert len(slow) == 2
    assert [e for e in await executions(store) if e.status is Status.SKIPPED] == []


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER, Overlap.BUFFER_ALL])
async def test_live_firings_neither_stop_it_nor_wait_for_it(
    store: PostgresStore, clock: FakeClock, overlap: Overlap
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=overlap))
    await a_backfill(store, job, clock.moment)
    await Backfiller(store).step()
    [slow] = await claim(store)

    clock.advance(minutes=1)
    await Planner(store).step()

    assert [c.run for c in await claim(store)] == [0]
    assert (await store.renew(ALICE)).cancelled == []
    assert await store.finish([ended(slow)]) == []


async def test_a_firing_that_is_due_is_the_planners_until_it_has_settled_it(
    store: PostgresStore, clock: FakeClock
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    clock.advance(minutes=1)
    backfill = await a_backfill(store, job, clock.moment + MINUTE, minutes=1)
    backfiller = Backfiller(store)

    assert await backfiller.step() == 0
    await Planner(store).step()
    assert await backfiller.step() == 1

    assert [key.run for key in await open_now(store)] == [0]
    assert numbers(await found(store, backfill.id)) == (1, 0, 1, 0)


async def test_a_job_that_is_paused_is_backfilled_all_the_same(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await store.pause(job.id, note=None, until=None)
    clock.advance(minutes=5)
    backfill = await a_backfill(store, job, clock.moment, minutes=3)

    assert len(await worked_off(store, backfill.id)) == 3


@pytest.mark.parametrize("user_id", ["ann", "bob"])
async def test_live_work_is_claimed_before_it_whoever_it_belongs_to(
    store: PostgresStore, clock: FakeClock, user_id: str
) -> None:
    assert bucket_of("ann") != bucket_of("bob"), "they take turns otherwise"
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await a_backfill(store, job, clock.moment, minutes=60, max_parallel=50)
    await Backfiller(store).step()
    clock.advance(minutes=30)
    await submit(store, *(a_job(user_id=user_id) for _ in range(10)))

    first = await claim(store, limit=10)
    then = await claim(store, limit=10)

    assert {c.priority for c in first} == {0}
    assert {c.priority for c in then} == {BELOW_LIVE}


async def test_after_more_than_an_hour_it_has_its_turn(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await a_backfill(store, job, clock.moment)
    await Backfiller(store).step()
    clock.advance(hours=1.5)
    await submit(store, *(a_job() for _ in range(5)))

    [claimed] = await claim(store, limit=1)

    assert claimed.priority == BELOW_LIVE


# Cancelling


async def test_a_cancelled_one_ends_what_is_pending_and_asks_what_runs(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, minutes=10, max_parallel=3)
    await Backfiller(store).step()
    [running] = await claim(store, limit=1)

    assert await store.cancel_backfill(backfill.id)

    assert (await store.renew(ALICE)).cancelled == [running.key]
    assert await open_now(store) == [running.key]
    assert await Backfiller(store).step() == 0
    await store.finish([ended(running, HandedBack())])
    assert [e.status for e in await executions(store)] == [Status.CANCELLED] * 3
    over = await found(store, backfill.id)
    assert (over.state, over.ended_at, numbers(over)) == (BackfillState.CANCELLED, clock.moment, (10, 3, 0, 0))
    assert not await store.cancel_backfill(backfill.id)


async def test_what_has_ended_cannot_be_cancelled(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)
    await worked_off(store, backfill.id)

    assert not await store.cancel_backfill(backfill.id)
    assert (await found(store, backfill.id)).state is BackfillState.COMPLETED


async def test_cancelling_one_execution_lets_the_next_come(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)
    await Backfiller(store).step()
    [key] = await open_now(store)
    await store.cancel_executions([key])

    claimed = await worked_off(store, backfill.id)

    assert len(claimed) == 4
    assert (await found(store, backfill.id)).state is BackfillState.COMPLETED


async def test_a_cancelled_job_has_no_backfills_any_more(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, max_parallel=2)
    await Backfiller(store).step()

    await store.cancel_jobs([job.id])

    assert await Backfiller(store).step() == 0
    assert await claim(store) == []
    assert (await found(store, backfill.id)).state is BackfillState.CANCELLED
    with pytest.raises(AssertionError):
        await a_backfill(store, job, clock.moment)


async def test_a_job_cancelled_while_it_is_backfilled_leaves_nothing_open(
    store: PostgresStore, clock: FakeClock
) -> None:
    for _ in range(10):
        [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
        backfill = await a_backfill(store, job, clock.moment, minutes=60, max_parallel=5)
        backfillers = [Backfiller(store).step() for _ in range(3)]
        await asyncio.gather(*backfillers, store.cancel_jobs([job.id]), Backfiller(store).step())

        assert await open_now(store) == []
        assert (await found(store, backfill.id)).state is BackfillState.CANCELLED


async def test_a_cancellation_waits_for_whoever_is_making_more(store: PostgresStore, clock: FakeClock) -> None:
    """The portion is being written when the job is cancelled: its executions are found all the same."""
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment)
    async with store.db.transaction() as connection:
        await connection.execute("select from backfills where id = $1 for update", backfill.id)
        cancelling = asyncio.create_task(store.cancel_jobs([job.id]))
        await eventually(lambda: store.db.look("select 1 from pg_locks where not granted"))
        await connection.execute(_MAKE, job.id, backfill.id, clock.moment)
    await cancelling

    assert [e.status for e in await executions(store)] == [Status.CANCELLED]


_MAKE = """
insert into executions (
    shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, recurring, exclusive,
    created_at, backfill_id
)
values (0, $1, $3, 1, 1, $3, 'ann', 'echo', 'default', -1000, '{}', true, false, $3, $2)
"""


# A job that is changed meanwhile


async def test_a_schedule_changed_meanwhile_holds_for_what_is_left(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    backfill = await a_backfill(store, job, clock.moment, minutes=10)
    await Backfiller(store).step()
    [claimed] = await claim(store)
    await store.finish([ended(claimed)])
    [seen] = await store.find_jobs([job.id])
    every_fourth = parse_when("*/4 * * * *")
    assert isinstance(every_fourth, Recurring)
    change = a_change(seen, since=clock.moment, next_fires_at=every_fourth.after(clock.moment))
    definition = msgspec.structs.replace(seen.definition, queue="default", parameters='{"new":true}', task_id="noop")
    assert await store.change_recurring(msgspec.structs.replace(change, schedule=every_fourth, definition=definition))

    rest = await worked_off(store, backfill.id)

    assert claimed.fires_at.minute == 50
    assert [(c.fires_at.minute, c.task_id, c.parameters) for c in rest] == [
        (52, "noop", '{"new":true}'),
        (56, "noop", '{"new":true}'),
    ]
    assert (await found(store, backfill.id)).state is BackfillState.COMPLETED


async def test_backfills_are_listed_newest_first(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    made = []
    for _ in range(3):
        clock.advance(seconds=1)
        made.append(await a_backfill(store, job, clock.moment))

    assert await store.backfills(job.id) == made[::-1]


async def test_a_redriven_letter_of_a_backfill_does_not_stand_in_the_way(
    store: PostgresStore, clock: FakeClock
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, auto_pause_after=1))
    backfill = await a_backfill(store, job, clock.moment)
    claimed = await worked_off(store, backfill.id, outcome=FAILED)

    await store.redrive([c.key for c in claimed])
    clock.advance(minutes=1)
    await Planner(store).step()

    [seen] = await store.find_jobs([job.id])
    assert (seen.status, seen.has_open) == (JobStatus.ACTIVE, True), "nor do its failures pause the job"
    assert [e.status for e in await executions(store) if e.run == 0] == [Status.QUEUED]
