from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.model.execution import Claimed, Status
from rota.model.job import JobStatus, Overlap
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import a_change, a_recurring_job, claim, ended, executions, submit

EVERY_MINUTE = "* * * * *"


async def test_a_firing_is_planned_once_and_ahead_of_time(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)

    assert await planner.step() == 0
    clock.advance(seconds=56)
    assert await planner.step() == 1
    assert await planner.step() == 0

    [planned] = await executions(store)
    assert planned.status is Status.SCHEDULED
    assert planned.fires_at == planned.due_at == clock.moment + timedelta(seconds=4)


async def test_the_next_one_is_offered_when_the_last_has_ended(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job("PT1S", clock.moment))
    planner = Planner(store)
    for _ in range(10):
        clock.advance(seconds=1)
        await planner.step()
        [claimed] = await claim(store)
        await store.finish([ended(claimed)])

    assert {e.status for e in await executions(store)} == {Status.COMPLETED}
    assert len(await executions(store)) == 10


async def test_while_one_is_open_the_others_are_skipped_and_counted(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)
    clock.advance(minutes=1)
    await planner.step()
    [claimed] = await claim(store)

    clock.advance(minutes=3)
    await planner.step()
    await store.finish([ended(claimed)])
    clock.advance(minutes=1)
    await planner.step()

    shown = await executions(store)
    assert [e.status for e in shown] == [Status.QUEUED, Status.SKIPPED, Status.COMPLETED]
    assert (shown[1].skipped_because, shown[1].skipped_count) == ("overlap", 3)


async def test_consecutive_skips_share_one_row(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)
    claimed: list[Claimed] = []
    for _ in range(6):
        clock.advance(minutes=1)
        await planner.step()
        claimed += await claim(store)

    await store.finish([ended(c) for c in claimed])
    clock.advance(minutes=1)
    await planner.step()
    [again] = await claim(store)
    clock.advance(minutes=1)
    await planner.step()

    skipped = [e for e in await executions(store) if e.status is Status.SKIPPED]
    assert [(e.skipped_count, e.skipped_because) for e in skipped] == [(1, "overlap"), (5, "overlap")]
    assert skipped[1].skipped_to == again.fires_at - timedelta(minutes=1)


async def test_a_row_of_skips_grows_for_a_day_at_most(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job("PT1H", clock.moment))
    planner = Planner(store)
    clock.advance(hours=1)
    await planner.step()
    await claim(store)
    for _ in range(60):
        clock.advance(hours=1)
        await planner.step()

    counts = [e.skipped_count for e in await executions(store) if e.status is Status.SKIPPED]

    assert sum(count or 0 for count in counts) == 60
    assert len(counts) == 3


async def test_allow_lets_them_overlap(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW))
    planner = Planner(store)

    await planner.step()
    clock.advance(seconds=5)

    assert len(await claim(store)) == 5


async def test_after_an_outage_the_newest_runs_and_the_rest_is_accounted_for(
    store: PostgresStore, clock: FakeClock
) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    clock.advance(days=1)

    await Planner(store).step()

    runs, skipped = await executions(store)
    assert (runs.status, runs.fires_at) == (Status.QUEUED, clock.moment)
    assert (skipped.skipped_because, skipped.skipped_count) == ("misfire", 1439)
    assert skipped.skipped_to == clock.moment - timedelta(minutes=1)


async def test_many_planners_at_once_fire_everything_once(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW) for _ in range(50)))
    planners = [Planner(store, batch=20) for _ in range(4)]
    for _ in range(5):
        clock.advance(seconds=1)
        while any(await asyncio.gather(*(planner.step() for planner in planners))):
            pass

    claimed = await claim(store, limit=1000)

    assert len(claimed) == len({c.key for c in claimed}) == 50 * 5


async def test_a_window_ends_the_job(store: PostgresStore, clock: FakeClock) -> None:
    end = (clock.moment + timedelta(minutes=2)).isoformat()
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, end=end))
    planner = Planner(store)
    for _ in range(4):
        clock.advance(minutes=1)
        await planner.step()
        for claimed in await claim(store):
            await store.finish([ended(claimed)])

    assert len(await executions(store)) == 2
    [found] = await store.find_jobs([job.id])
    assert (found.status, found.next_fires_at) == (JobStatus.FINISHED, None)


async def test_what_is_planned_is_what_fires_next(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    clock.advance(seconds=57)
    await Planner(store).step()

    [found] = await store.find_jobs([job.id])

    assert found.next_fires_at == job.next_fires_at
    assert found.cursor == clock.moment + timedelta(seconds=63)
    assert found.planned == [job.next_fires_at]


async def test_a_change_withdraws_what_was_planned(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    clock.advance(seconds=57)
    await Planner(store).step()
    [seen] = await store.find_jobs([job.id])
    later = clock.moment + timedelta(hours=1)
    change = a_change(seen, next_fires_at=later)

    assert await store.change_recurring(change)
    assert not await store.change_recurring(change), "it was made from an older revision"

    assert await executions(store) == []
    [found] = await store.find_jobs([job.id])
    assert found.next_fires_at == later


async def test_a_change_that_races_a_planner_is_told_to_look_again(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    [seen] = await store.find_jobs([job.id])
    clock.advance(seconds=57)
    await Planner(store).step()

    changed = await store.change_recurring(a_change(seen, next_fires_at=None))

    assert not changed
    assert len(await executions(store)) == 1


async def test_a_manual_run_takes_the_place_of_what_was_planned(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    clock.advance(seconds=57)
    planner = Planner(store)
    await planner.step()
    [seen] = await store.find_jobs([job.id])

    key = await store.run_now(seen)

    assert key is not None
    assert key.run == 1
    [claimed] = await claim(store)
    assert claimed.key == key
    [busy] = await store.find_jobs([job.id])
    assert await store.run_now(busy) is None, "one is running"
    await store.finish([ended(claimed)])
    await planner.step()
    clock.advance(seconds=3)
    [on_time] = await claim(store)
    assert (on_time.fires_at, on_time.run) == (job.next_fires_at, 0)


async def test_a_job_that_cannot_be_read_does_not_keep_the_others_waiting(
    store: PostgresStore, clock: FakeClock
) -> None:
    broken = await submit(store, *(a_recurring_job("PT1S", clock.moment) for _ in range(3)))
    await submit(store, a_recurring_job("PT2S", clock.moment))
    values = [("schedule", "{}"), ("overlap", "some day"), ("schedule", BAD_ZONE)]
    for job, (column, value) in zip(broken, values, strict=True):
        await store.db.fetch(f"update jobs set {column} = $2 where id = $1", job.id, value)
    clock.advance(seconds=2)

    assert await Planner(store).step() == 1


BAD_ZONE = '{"rhythm": {"type": "CRON", "expression": "* * * * *", "time_zone": "Mars/Olympus"}}'


async def test_a_job_that_allowed_overlap_waits_for_what_is_still_open(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW))
    planner = Planner(store)
    clock.advance(seconds=1)
    await planner.step()
    running = await claim(store)
    [seen] = await store.find_jobs([job.id])
    changed = await store.change_recurring(a_change(seen, next_fires_at=clock.moment + timedelta(seconds=1)))

    clock.advance(seconds=3)
    await planner.step()

    assert changed
    assert len(running) == 1
    assert await claim(store) == []
