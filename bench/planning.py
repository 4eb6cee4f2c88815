"""What a step of the planner costs with a million recurring jobs stored, and with ten thousand.

    python -m bench.planning [--jobs 1000000] [--firings 1000] [--json]

Jobs fire once a day at seconds spread over it, but for those under test, which fire together: a step of the planner
has to find them among all the others, plan them and write their executions. Real PostgreSQL with fsync; the clock is
moved by hand, so that every step has exactly so much to do. Then all planners are away for a day, and jobs that fire
every second have to be accounted for: rows and milliseconds per job. The run checks itself: each firing planned or
counted once, nothing else touched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import uvloop
from bench.scene import NOOP

from rota.model.job import NewJob, new_job_id
from rota.model.ledger import HISTORY_KEPT
from rota.model.schedule import ByCron, Recurring
from rota.scheduler.planner import Planner
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrate
from rota.store.protocol import Submission

START = datetime(2027, 1, 4, 10, tzinfo=UTC)
FEW = 10_000
ROUNDS = 9
MINUTE = timedelta(minutes=1)
BATCH = 5000


class Hand:
    """A clock moved by hand."""

    moment = START

    def __call__(self) -> datetime:
        return self.moment


async def main(jobs: int, firings: int, as_json: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    postgres = EmbeddedPostgres(folder)
    clock = Hand()
    try:
        dsn = await asyncio.to_thread(postgres.start)
        await migrate(dsn)
        store = await PostgresStore.open(dsn, clock=clock)
        await store.maintain(keep=HISTORY_KEPT)
        await _store_jobs(store, firings, "* * * * *")
        few = await _measure(store, clock, firings, stored=FEW)
        many = await _measure(store, clock, firings, stored=jobs)
        outage = await _outage(store, clock, firings)
        await store.aclose()
    finally:
        await asyncio.to_thread(postgres.stop)
        shutil.rmtree(folder, ignore_errors=True)
    _tell({"workload": "planning", "firings": firings, "few": few, "many": many, "outage": outage}, as_json)


async def _measure(store: PostgresStore, clock: Hand, firings: int, *, stored: int) -> dict[str, float]:
    """A step with so many firings, and a step with none, in milliseconds."""
    there = (await store.db.look("select count(*) from jobs"))[0][0]
    await _store_jobs(store, stored - there, None)
    await store.db.fetch("vacuum analyze jobs")
    planner = Planner(store)
    busy, idle = [], []
    for _ in range(ROUNDS):
        clock.moment += MINUTE
        await _clear(store)
        took, planned = await _step(planner)
        assert planned == firings, f"{planned} of {firings} were planned"
        busy.append(took)
        rows = await store.db.look("select count(*), count(distinct job_id), min(fires_at) from executions")
        assert tuple(rows[0]) == (firings, firings, clock.moment)
        await _clear(store)
        took, planned = await _step(planner)
        assert planned == 0
        idle.append(took)
    # The first one warms caches and prepared statements.
    return {
        "stored": stored,
        "step_ms": round(statistics.median(busy[1:]), 1),
        "step_max_ms": round(max(busy[1:]), 1),
        "idle_ms": round(statistics.median(idle[1:]), 2),
    }


async def _outage(store: PostgresStore, clock: Hand, jobs: int) -> dict[str, float]:
    """A day without planners, for jobs that fire every second."""
    await store.db.fetch("delete from executions")
    await store.db.fetch("update jobs set state = 'CANCELLED'")
    await store.db.fetch("vacuum jobs")
    began_at = clock.moment
    await _store_jobs(store, jobs, "* * * * * *", began_at)
    clock.moment += timedelta(days=1)
    planner = Planner(store)
    began = time.perf_counter()
    while await planner.step():
        pass
    took = (time.perf_counter() - began) * 1000
    skipped, rows = (
        await store.db.look(
            "select sum(skipped_count), count(*) from history where state = 'SKIPPED' and created_at > $1", began_at
        )
    )[0]
    assert skipped == jobs * 86_399, "all but the newest of each were missed"
    assert (await store.db.look("select count(*) from executions"))[0][0] == jobs
    return {"jobs": jobs, "missed": skipped, "ms_per_job": round(took / jobs, 2), "rows_per_job": rows / jobs}


async def _step(planner: Planner) -> tuple[float, int]:
    began = time.perf_counter()
    planned = await planner.step()
    return (time.perf_counter() - began) * 1000, planned


async def _clear(store: PostgresStore) -> None:
    """As if all had been run."""
    await store.db.fetch("delete from executions")


async def _store_jobs(store: PostgresStore, count: int, expression: str | None, since: datetime = START) -> None:
    """Without an expression each fires daily at a second of its own, none within hours of the measuring."""
    for begin in range(0, count, BATCH):
        batch = [_a_job(n, expression, since) for n in range(begin, min(count, begin + BATCH))]
        await store.submit([Submission(batch)])
        if sys.stderr.isatty():
            print(f"\rstored {begin + len(batch)} of {count}", end="", file=sys.stderr)


def _a_job(number: int, expression: str | None, since: datetime) -> NewJob:
    # From 14:00 to 09:00 of the next day.
    of_day = (14 * 3600 + number * 7919 % (19 * 3600)) % 86_400
    daily = f"{of_day % 60} {of_day // 60 % 60} {of_day // 3600} * * *"
    schedule = Recurring(ByCron(expression or daily))
    return NewJob(
        id=new_job_id(1),
        definition=msgspec.structs.replace(NOOP, user_id=f"user-{number % 1000}"),
        recurring=schedule,
        fires_at=schedule.after(since),
        since=since,
    )


def _tell(numbers: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(numbers))
        return
    print(f"{'stored':>10} {'step of ' + str(numbers['firings']):>14} {'max':>8} {'idle step':>10}")
    for kind in ("few", "many"):
        row = numbers[kind]
        assert isinstance(row, dict)
        print(f"{row['stored']:>10} {row['step_ms']:>11} ms {row['step_max_ms']:>5} ms {row['idle_ms']:>7} ms")
    away = numbers["outage"]
    assert isinstance(away, dict)
    print(
        f"a day away, {away['jobs']} jobs per second: {away['missed']} firings accounted for in "
        f"{away['rows_per_job']:.2f} rows and {away['ms_per_job']} ms per job"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--firings", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.exit(uvloop.run(main(options.jobs, options.firings, options.json)))
