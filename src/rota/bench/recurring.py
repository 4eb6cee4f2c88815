"""The workload of recurring jobs: very many stored, so many of them firing every second."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from rota.bench.check import check
from rota.bench.load import STORED_PER_S, Report, lateness
from rota.bench.stage import TASK, USER, BenchFailed, Stage, Tell
from rota.bench.usage import between
from rota.bench.witness import seen_in
from rota.model.definition import Definition
from rota.model.job import NewJob, new_job_id
from rota.model.schedule import ByCron, Recurring
from rota.store.protocol import Submission

BATCH = 5000
USERS = 1000


async def recurring(stage: Stage, tell: Tell, *, jobs: int, rate: int, seconds: int) -> Report:
    """Of the jobs, 60 times `rate` fire once a minute, each at a second of its own; the others rest until tomorrow."""
    if jobs < 60 * rate:
        raise BenchFailed(f"{rate} firings a second need {60 * rate} jobs that fire once a minute; --jobs is less.")
    begins = datetime.fromtimestamp(math.ceil(time.time() + 15 + jobs / STORED_PER_S), UTC)
    ends = begins + timedelta(seconds=seconds) - timedelta(milliseconds=1)
    await _store(stage, tell, jobs, rate, begins, ends)
    if time.time() > begins.timestamp() - 6:
        raise BenchFailed("The first firing came before all jobs were stored; this machine is too slow or too busy.")
    await stage.start_worker()
    tell("waiting for the first firing", None)
    await asyncio.sleep(begins.timestamp() - time.time())
    before, expected = stage.used(), rate * seconds
    await stage.until_done(expected, lambda ran: tell(f"{ran:,} fired", ran / expected))
    used = between(before, stage.used())
    tell("checking", None)
    seen = seen_in(stage.folder)
    await check(stage.dsn, seen, expected=expected, task_id=TASK)
    per_job = {role: round(each.cpu_s / expected * 1e6, 1) for role, each in used.items()}
    numbers = {"stored": jobs, "jobs": expected, "seconds": seconds, "rate": rate}
    return numbers | lateness(seen) | {"processes": used, "cpu_us_per_job": per_job}


async def _store(stage: Stage, tell: Tell, jobs: int, rate: int, begins: datetime, ends: datetime) -> None:
    made = _jobs(jobs, rate, begins, ends)
    for begin in range(0, jobs, BATCH):
        batch = list(islice(made, BATCH))
        await stage.store.submit([Submission(batch)])
        tell("storing", (begin + len(batch)) / jobs)
    await stage.store.db.fetch("vacuum analyze jobs")


def _jobs(jobs: int, rate: int, begins: datetime, ends: datetime) -> Iterator[NewJob]:
    since = begins - timedelta(milliseconds=1)
    # Half a day away, so that none of them fires while we measure.
    resting_hour = (begins.hour + 12) % 24
    for number in range(jobs):
        second = number % 60
        is_busy = number < 60 * rate
        expression = f"{second} * * * * *" if is_busy else f"{second} {number // 60 % 60} {resting_hour} * * *"
        schedule = Recurring(ByCron(expression), ends_at=ends if is_busy else None)
        yield NewJob(
            id=new_job_id(1),
            definition=Definition(user_id=f"{USER}-{number % USERS}", task_id=TASK),
            recurring=schedule,
            fires_at=schedule.after(since),
            since=since,
        )
