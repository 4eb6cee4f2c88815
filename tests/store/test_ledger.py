"""Every firing is accounted for exactly once, whatever happens to planners, schedules, pauses and workers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import msgspec
import pytest

from rota.model.execution import Status
from rota.model.job import Job, JobStatus
from rota.model.ledger import Line, Reading, ledger
from rota.model.retry import Raised
from rota.model.rules import Misfire, Overlap, Rules
from rota.model.schedule import Recurring, parse_when
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import RecurringChange
from tests.support.clock import FakeClock
from tests.support.jobs import a_recurring_job, claim, ended, submit

MOST = 100_000
REPLACING = [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER]
BESIDE = [overlap for overlap in Overlap if overlap not in REPLACING]
NOT_ALL = [Misfire.LATEST, Misfire.SKIP]


async def ledger_of(store: PostgresStore, job_id: UUID, start: datetime, end: datetime) -> list[Line]:
    """The ledger, after a look at the rows themselves: each firing has one row of its own, or is in one of skips."""
    accounts = await store.accounts(job_id, start=start, end=end, limit=MOST)
    assert accounts is not None
    lines = list(ledger(accounts, start=start, end=end))
    own = Counter(run.fires_at for run in accounts.runs if run.run == 0)
    spans = [(skip.fires_at, skip.skipped_to or skip.fires_at, skip.skipped_count) for skip in accounts.skips]
    for line in lines:
        if line.scheduled and line.because not in ("window", "dst_gap", "cancelled"):
            rows = own[line.fires_at] + sum(first <= line.fires_at <= last for first, last, _ in spans)
            is_open = line.verdict in (Reading.EXPECTED, Reading.UNSETTLED) or (
                line.because == "paused" and accounts.cursor is not None and line.fires_at >= accounts.cursor
            )
            assert rows == (0 if is_open else 1), line
    scheduled = [line.fires_at for line in lines if line.scheduled]
    for first, last, count in spans:
        if first >= start:
            assert sum(first <= fires_at <= last for fires_at in scheduled) == count
    return lines


def verdicts(lines: list[Line]) -> Counter[str]:
    return Counter(f"{line.verdict} {line.because}" if line.because else str(line.verdict) for line in lines)


async def work_off(store: PostgresStore, planner: Planner, *, ends: bool = True) -> int:
    """Plan, run and end until nothing is left to do at this moment."""
    done = 0
    while await planner.step() + len(claimed := await claim(store)):
        done += len(claimed)
        if ends:
            await store.finish([ended(c) for c in claimed])
    return done


# A day without planners


@pytest.mark.parametrize(("misfire", "overlap"), [*product(Misfire, BESIDE), *product(NOT_ALL, REPLACING)])
@pytest.mark.parametrize("schedule", ["* * * * *", "PT7M", "*/20 * * * * *"])
async def test_after_a_day_without_planners_every_firing_is_accounted_for(
    store: PostgresStore, clock: FakeClock, schedule: str, misfire: Misfire, overlap: Overlap
) -> None:
    start = clock.moment
    [job] = await submit(store, a_recurring_job(schedule, start, overlap=overlap, misfire=misfire))
    planner = Planner(store)
    clock.advance(minutes=30)
    await work_off(store, planner)

    clock.advance(days=1)
    # The planners that come back are many, and each sees a part.
    await asyncio.gather(*(Planner(store, batch=1).step() for _ in range(3)))
    caught_up = await work_off(store, planner)
    clock.advance(minutes=10)
    caught_up += await work_off(store, planner)

    lines = await ledger_of(store, job.id, start, clock.moment)
    counted = verdicts(lines)
    assert counted.keys() <= {"COMPLETED", "SKIPPED misfire", "QUEUED", "SCHEDULED"}, counted
    assert counted["SKIPPED misfire"] > 0
    if misfire is Misfire.ALL:
        assert caught_up + counted["QUEUED"] + counted["SCHEDULED"] >= 100
    assert sum(counted.values()) == len(expected(job, start, clock.moment))


def expected(job: Job, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    assert job.schedule is not None
    fires_at = job.schedule.after(start)
    while fires_at is not None and fires_at <= end:
        found.append(fires_at)
        fires_at = job.schedule.after(fires_at)
    return found


async def test_a_days_outage_of_a_job_per_second_costs_a_row_or_two(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("* * * * * *", clock.moment))
    start = clock.moment
    clock.advance(days=1)

    await Planner(store).step()

    rows = await store.db.fetch("select skipped_count from history where state = 'SKIPPED'")
    assert len(rows) <= 2
    assert sum(row[0] for row in rows) == 86_399
    accounts = await store.accounts(job.id, start=start, end=clock.moment, limit=MOST)
    assert accounts is not None
    assert verdicts(list(ledger(accounts, start=start, end=clock.moment))) == {"SKIPPED misfire": 86_399, "QUEUED": 1}


# Everything at once


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_the_ledger_adds_up(store: PostgresStore, clock: FakeClock, seed: int) -> None:
    """Planners side by side and away for a while, workers slow and failing, schedules changed, pauses, manual runs."""
    chance = random.Random(seed)
    start = clock.moment
    rules = _any_rules(chance)
    [job] = await submit(store, a_recurring_job(chance.choice(SCHEDULES), start, **rules))
    planners = [Planner(store, batch=chance.choice([1, 1000])) for _ in range(3)]
    for _ in range(60):
        clock.advance(seconds=chance.choice([1, 3, 10, 60, 300, 4000]))
        for _ in range(chance.randrange(4)):
            await chance.choice(DEEDS)(store, clock, job.id, chance)
        if chance.random() < 0.8:
            await asyncio.gather(*(planner.step() for planner in planners), _a_change(store, clock, job.id, chance))
        claimed = await claim(store, limit=chance.choice([1, 5, 100]))
        outcomes = [Raised("no", final=True) if chance.random() < 0.3 else None for _ in claimed]
        told = [ended(c, outcome) for c, outcome in zip(claimed, outcomes, strict=True)]
        await store.finish([ending for ending in told if chance.random() < 0.8])

        lines = await ledger_of(store, job.id, start, clock.moment)
        assert not [line for line in lines if line.verdict in (Reading.MISSING, Reading.FORGOTTEN)]
    [found] = await store.find_jobs([job.id])
    if found.status is JobStatus.ACTIVE:
        while await planners[0].step():
            pass
        lines = await ledger_of(store, job.id, start, clock.moment)
        assert not [line for line in lines if line.verdict is Reading.UNSETTLED]


SCHEDULES = ["* * * * *", "*/7 * * * * *", "PT13S", "*/5 9-17 * * *", "PT1H"]


def _any_rules(chance: random.Random) -> dict[str, Any]:
    overlap = chance.choice(list(Overlap))
    misfires = NOT_ALL if overlap in REPLACING else list(Misfire)
    return {
        "overlap": overlap,
        "misfire": chance.choice(misfires),
        "misfire_window": chance.choice([None, timedelta(minutes=2)]),
        "jitter": chance.choice([None, timedelta(seconds=5)]),
        "max_executions": chance.choice([None, None, 40]),
        "auto_pause_after": chance.choice([None, 2]),
    }


async def _a_change(store: PostgresStore, clock: FakeClock, job_id: UUID, chance: random.Random) -> None:
    """As the server makes it, racing the planners that are at work; lost races are just lost."""
    if chance.random() < 0.8:
        return
    [seen] = await store.find_jobs([job_id])
    if seen.status not in (JobStatus.ACTIVE, JobStatus.PAUSED) or seen.cursor is None or seen.cursor <= clock.moment:
        return
    schedule = parse_when(chance.choice(SCHEDULES))
    assert isinstance(schedule, Recurring) and seen.rules is not None
    since = max(clock.moment, seen.begun_at) if seen.begun_at else clock.moment
    anchored = schedule.anchored(clock.moment)
    rules = msgspec.structs.replace(Rules(**_any_rules(chance)), max_executions=seen.rules.max_executions)
    await store.change_recurring(
        RecurringChange(
            id=seen.id,
            revision=seen.revision,
            seen_next=seen.cursor,
            withdraws=[fires_at for fires_at in seen.planned if fires_at > since],
            definition=seen.definition,
            schedule=anchored,
            rules=rules,
            since=since,
            next_fires_at=anchored.after(since),
        )
    )


async def _pause(store: PostgresStore, clock: FakeClock, job_id: UUID, chance: random.Random) -> None:
    until = chance.choice([None, clock.moment + timedelta(seconds=chance.randrange(1, 600))])
    await store.pause(job_id, note="for the test", until=until)


async def _resume(store: PostgresStore, clock: FakeClock, job_id: UUID, chance: random.Random) -> None:
    await store.resume(job_id, catch_up=chance.random() < 0.5)


async def _run(store: PostgresStore, clock: FakeClock, job_id: UUID, chance: random.Random) -> None:
    # Not at an instant of the schedule: it would be told as that firing's run.
    clock.advance(milliseconds=chance.randrange(1, 999))
    [seen] = await store.find_jobs([job_id])
    await store.run_now(seen)


async def _cancel_one(store: PostgresStore, clock: FakeClock, job_id: UUID, chance: random.Random) -> None:
    [seen] = await store.find_jobs([job_id])
    if seen.last_execution is not None:
        await store.cancel_executions([seen.last_execution.key])


DEEDS = [_pause, _resume, _resume, _run, _cancel_one]


# Reasons that no row tells


async def test_the_window_the_clocks_and_the_end_of_a_job_take_firings_away(
    store: PostgresStore, clock: FakeClock
) -> None:
    """Berlin's clocks go from 02:00 to 03:00 on 2027-03-28; the window opens a day before."""
    clock.moment = clock.moment.replace(month=3, day=26, hour=0)
    start = clock.moment
    recurring = parse_when("30 2 * * *", time_zone="Europe/Berlin", start="2027-03-27T00:00:00Z")
    assert isinstance(recurring, Recurring)
    rhythm = msgspec.structs.replace(recurring.rhythm, dst_gap="skip")
    schedule = msgspec.structs.replace(recurring, rhythm=rhythm)
    job = msgspec.structs.replace(
        a_recurring_job("30 2 * * *", start), recurring=schedule, fires_at=schedule.after(start)
    )
    await submit(store, job)
    planner = Planner(store)
    while clock.moment < start + timedelta(days=4):
        clock.advance(hours=1)
        await work_off(store, planner)
    await store.cancel_jobs([job.id])

    lines = await ledger_of(store, job.id, start, start + timedelta(days=6))

    told = [(f"{line.fires_at:%m-%dT%H:%M}", line.because or str(line.verdict)) for line in lines]
    assert told == [
        ("03-26T01:30", "window"),
        ("03-27T01:30", "COMPLETED"),
        ("03-28T01:30", "dst_gap"),
        ("03-29T00:30", "COMPLETED"),
        ("03-30T00:30", "cancelled"),
        ("03-31T00:30", "cancelled"),
    ]


async def test_manual_runs_are_told_apart_and_old_schedules_are_remembered(
    store: PostgresStore, clock: FakeClock
) -> None:
    start = clock.moment
    [job] = await submit(store, a_recurring_job("0 * * * *", start))
    planner = Planner(store)
    clock.advance(minutes=61)
    await work_off(store, planner)
    [seen] = await store.find_jobs([job.id])
    await store.run_now(seen)
    await work_off(store, planner)
    await _to_half_past(store, clock, job.id)
    clock.advance(minutes=40)
    await work_off(store, planner)

    lines = await ledger_of(store, job.id, start, clock.moment + timedelta(hours=1))

    told = [(f"{line.fires_at:%H:%M}", line.verdict, line.scheduled) for line in lines]
    assert told == [
        ("11:00", Status.COMPLETED, True),
        ("11:01", Status.COMPLETED, False),
        ("11:30", Status.COMPLETED, True),
        ("12:30", Reading.EXPECTED, True),
    ]


async def _to_half_past(store: PostgresStore, clock: FakeClock, job_id: UUID) -> None:
    [seen] = await store.find_jobs([job_id])
    schedule = parse_when("30 * * * *")
    assert isinstance(schedule, Recurring)
    change = RecurringChange(
        id=job_id,
        revision=seen.revision,
        seen_next=seen.cursor,
        withdraws=[],
        definition=seen.definition,
        schedule=schedule,
        rules=Rules(),
        since=clock.moment,
        next_fires_at=schedule.after(clock.moment),
    )
    assert await store.change_recurring(change)


async def test_what_is_older_than_the_history_is_forgotten_not_missing(store: PostgresStore, clock: FakeClock) -> None:
    start = clock.moment
    [job] = await submit(store, a_recurring_job("0 * * * *", start))
    clock.advance(minutes=61)
    await work_off(store, Planner(store))
    await store.db.fetch("delete from history")

    [fresh] = await _verdicts(store, job.id, start, clock.moment)
    clock.advance(days=60)
    [old] = await _verdicts(store, job.id, start, start + timedelta(minutes=61))

    assert (fresh, old) == (Reading.MISSING, Reading.FORGOTTEN)


async def _verdicts(store: PostgresStore, job_id: UUID, start: datetime, end: datetime) -> list[str]:
    accounts = await store.accounts(job_id, start=start, end=end, limit=MOST)
    assert accounts is not None
    return [line.verdict for line in ledger(accounts, start=start, end=end)]
