from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.model.calendar import Calendar
from rota.model.execution import Claimed, Status
from rota.model.job import JobStatus, Pause
from rota.model.retry import Raised, Stopped
from rota.model.rules import Misfire, Overlap, splay
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, a_change, a_recurring_job, claim, ended, executions, submit

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
    change = a_change(seen, since=clock.moment, next_fires_at=later)

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

    changed = await store.change_recurring(a_change(seen, since=clock.moment, next_fires_at=None))

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
    values = [("schedule", "{}"), ("rules", "some day"), ("schedule", BAD_ZONE)]
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
    changed = await store.change_recurring(
        a_change(seen, since=clock.moment, next_fires_at=clock.moment + timedelta(seconds=1))
    )

    clock.advance(seconds=3)
    await planner.step()

    assert changed
    assert len(running) == 1
    assert await claim(store) == []


# Overlap


async def test_one_waits_for_its_turn(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.BUFFER_ONE))
    planner = Planner(store)
    clock.advance(minutes=1)
    await planner.step()
    [first] = await claim(store)
    for _ in range(3):
        clock.advance(minutes=1)
        await planner.step()
        assert await claim(store) == []
    [found] = await store.find_jobs([job.id])
    await store.finish([ended(first)])
    await planner.step()
    [second] = await claim(store)

    assert found.waiting == 1
    assert second.fires_at == first.fires_at + timedelta(minutes=1)
    skipped = [e for e in await executions(store) if e.status is Status.SKIPPED]
    assert [(e.skipped_because, e.skipped_count) for e in skipped] == [("overlap", 2)]


async def test_all_wait_and_run_in_their_order(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.BUFFER_ALL))
    planner = Planner(store)
    for _ in range(5):
        clock.advance(minutes=1)
        await planner.step()
    ran = []
    while claimed := await claim(store):
        assert len(claimed) == 1, "never two at once"
        ran += claimed
        await store.finish([ended(claimed[0])])
        await asyncio.gather(planner.step(), Planner(store).step())

    assert [c.fires_at for c in ran] == sorted(c.fires_at for c in ran)
    assert len(ran) == 5


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER])
async def test_the_new_one_starts_only_when_the_old_one_is_provably_over(
    store: PostgresStore, clock: FakeClock, overlap: Overlap
) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=overlap))
    planner = Planner(store)
    clock.advance(minutes=1)
    await planner.step()
    [old] = await claim(store)
    clock.advance(minutes=1)
    await planner.step()
    told = await store.renew(ALICE)

    assert await claim(store) == []
    assert told.cancelled == [old.key]
    assert told.terminated == ([old.key] if overlap is Overlap.TERMINATE_OTHER else [])
    await store.finish([ended(old, Stopped())])
    await planner.step()
    [new] = await claim(store)
    assert new.fires_at == old.fires_at + timedelta(minutes=1)
    assert {e.status for e in await executions(store)} == {Status.CANCELLED, Status.RUNNING}


async def test_what_nobody_runs_yet_is_replaced_at_once(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, overlap=Overlap.CANCEL_OTHER))
    planner = Planner(store)
    for _ in range(3):
        clock.advance(minutes=1)
        await planner.step()

    [only] = await claim(store)

    assert only.fires_at == clock.moment
    assert [e.status for e in await executions(store)] == [Status.RUNNING, Status.CANCELLED, Status.CANCELLED]


# Limits


async def test_a_job_ends_after_as_many_executions_as_it_may_have(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW, max_executions=7))
    planners = [Planner(store) for _ in range(3)]
    for _ in range(12):
        clock.advance(seconds=1)
        await asyncio.gather(*(planner.step() for planner in planners))

    assert len(await executions(store)) == 7
    [found] = await store.find_jobs([job.id])
    assert (found.status, found.next_fires_at) == (JobStatus.FINISHED, None)


async def test_what_is_withdrawn_does_not_count_as_executed(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("PT1S", clock.moment, overlap=Overlap.ALLOW, max_executions=3))
    planner = Planner(store)
    await planner.step()
    [planned] = await store.find_jobs([job.id])

    assert (planned.status, len(planned.planned)) == (JobStatus.FINISHED, 3)
    assert await store.pause(job.id, note=None, until=None)
    assert await store.resume(job.id, catch_up=False)
    clock.advance(seconds=30)
    await planner.step()
    clock.advance(seconds=30)

    # The first three seconds lay before the resume's next look, so all three come later.
    assert len([e for e in await executions(store) if e.status is not Status.SKIPPED]) == 3


async def test_jitter_is_seen_in_when_it_is_due(store: PostgresStore, clock: FakeClock) -> None:
    jitter = timedelta(seconds=30)
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, jitter=jitter))
    clock.advance(seconds=57)
    await Planner(store).step()

    [planned] = await executions(store)

    assert planned.fires_at == clock.moment + timedelta(seconds=3)
    assert planned.due_at == planned.fires_at + splay(job.id, planned.fires_at, jitter) > planned.fires_at


async def test_nothing_fires_on_a_day_of_its_calendar(store: PostgresStore, clock: FakeClock) -> None:
    await store.put_calendar("ann", "lunch", Calendar(("2027-01-04T12:00:00Z/2027-01-04T13:00:00Z",)))
    await submit(store, a_recurring_job("*/30 * * * *", clock.moment, calendar="lunch"))
    planner = Planner(store)
    for _ in range(8):
        clock.advance(minutes=30)
        await planner.step()
        await store.finish([ended(c) for c in await claim(store)])

    shown = [(f"{e.fires_at:%H:%M}", e.skipped_because or e.status) for e in reversed(await executions(store))]
    assert shown == [
        ("10:30", "COMPLETED"),
        ("11:00", "COMPLETED"),
        ("11:30", "COMPLETED"),
        ("12:00", "calendar"),
        ("13:00", "COMPLETED"),
        ("13:30", "COMPLETED"),
        ("14:00", "COMPLETED"),
    ]


# Pauses


async def test_a_pause_withdraws_what_lies_ahead_and_skips_what_falls_due(
    store: PostgresStore, clock: FakeClock
) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)
    clock.advance(seconds=57)
    await planner.step()

    assert await store.pause(job.id, note="moving house", until=None)
    clock.advance(minutes=5)
    await planner.step()
    assert await executions(store) == []
    [paused] = await store.find_jobs([job.id])
    assert await store.resume(job.id, catch_up=False)
    assert not await store.resume(job.id, catch_up=False), "it is not paused any more"
    await planner.step()
    clock.advance(seconds=3)
    await planner.step()

    assert paused.pause == Pause(clock.moment - timedelta(minutes=5, seconds=3), None, "moving house")
    assert (paused.status, paused.next_fires_at) == (JobStatus.PAUSED, None)
    shown = await executions(store)
    assert [(e.status, e.skipped_because, e.skipped_count) for e in shown] == [
        (Status.QUEUED, None, None),
        (Status.SKIPPED, "paused", 5),
    ]


async def test_a_pause_may_be_caught_up_with(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, misfire=Misfire.ALL))
    await store.pause(job.id, note=None, until=None)
    clock.advance(minutes=5)
    await store.resume(job.id, catch_up=True)
    planner = Planner(store)
    await planner.step()
    ran = 0
    while claimed := await claim(store):
        ran += len(claimed)
        await store.finish([ended(c) for c in claimed])
        await planner.step()

    assert ran == 5


async def test_a_pause_ends_by_itself(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    planner = Planner(store)
    await store.pause(job.id, note=None, until=clock.moment + timedelta(minutes=3))
    for _ in range(18):
        clock.advance(seconds=10)
        await planner.step()

    [claimed] = await claim(store)
    assert claimed.fires_at == clock.moment, "the firing at that very instant is not paused any more"
    [skipped] = [e for e in await executions(store) if e.status is Status.SKIPPED]
    assert (skipped.skipped_because, skipped.skipped_count) == ("paused", 2)


async def test_who_fails_again_and_again_is_paused_and_may_try_again(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment, auto_pause_after=3))
    planner = Planner(store)
    tried = 0
    for _ in range(6):
        clock.advance(minutes=1)
        await planner.step()
        claimed = await claim(store)
        tried += len(claimed)
        await store.finish([ended(c, Raised("no", final=True)) for c in claimed])
    [found] = await store.find_jobs([job.id])
    await store.resume(job.id, catch_up=False)
    clock.advance(minutes=1)
    await planner.step()

    assert tried == 3
    assert found.status is JobStatus.PAUSED
    assert found.pause is not None and found.pause.note == "It failed 3 times in a row."
    assert len(await claim(store)) == 1, "failures from before the pause do not count any more"


async def test_a_paused_job_runs_when_asked_to(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job(EVERY_MINUTE, clock.moment))
    await store.pause(job.id, note=None, until=None)
    [paused] = await store.find_jobs([job.id])

    assert await store.run_now(paused) is not None
    assert len(await claim(store)) == 1
    [still] = await store.find_jobs([job.id])
    assert still.status is JobStatus.PAUSED
