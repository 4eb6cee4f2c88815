"""How soon a job begins on an idle system.

    python -m bench.latency [--jobs 200] [--remote] [--json]

`immediate`: from the acknowledgement of a job to the start of its task body, by the database's clock.
`scheduled`: from the due instant to the start of the task body; jobs are submitted ahead of time, spread out, and one
that begins early fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from datetime import timedelta

import asyncpg
import uvloop
from bench.scene import a_scene, ended_once, submitted

from rota.store.postgres.engine import PostgresStore

LIMITS = {"immediate": 100.0, "scheduled": 50.0}


async def main(jobs: int, remote: bool, as_json: bool) -> int:
    async with a_scene(remote=remote) as store:
        immediate = await _immediate(store, jobs)
        await store.db.fetch("truncate history")
        scheduled = await _scheduled(store, jobs)
    numbers = {"immediate": _summary(immediate), "scheduled": _summary(scheduled)}
    if as_json:
        print(json.dumps({"workload": "latency", "jobs": jobs, **numbers}))
    else:
        for name, summary in numbers.items():
            print(name, " ".join(f"{key}={value:.1f} ms" for key, value in summary.items()))
    return 0 if all(summary["max"] <= LIMITS[name] for name, summary in numbers.items()) else 1


async def _immediate(store: PostgresStore, jobs: int) -> list[float]:
    """One at a time, with pauses that have nothing to do with anybody's polling."""
    ids, acknowledged = set(), {}
    for _ in range(jobs):
        [job_id] = await submitted(store, 1, batch=1)
        acknowledged[job_id] = await store.now()
        ids.add(job_id)
        await asyncio.sleep(random.uniform(0.0, 0.15))
    rows = await _ended(store, jobs)
    await ended_once(store, ids)
    return [(row["started_at"] - acknowledged[row["job_id"]]).total_seconds() * 1000 for row in rows]


async def _scheduled(store: PostgresStore, jobs: int) -> list[float]:
    ids, due = set(), await store.now() + timedelta(seconds=2)
    for _ in range(jobs):
        due += timedelta(milliseconds=random.randrange(1, 100))
        ids |= await submitted(store, 1, batch=1, at=due.replace(microsecond=due.microsecond // 1000 * 1000))
    rows = await _ended(store, jobs)
    await ended_once(store, ids)
    return [(row["started_at"] - row["due_at"]).total_seconds() * 1000 for row in rows]


async def _ended(store: PostgresStore, jobs: int) -> list[asyncpg.Record]:
    while len(rows := await store.db.look("select job_id, due_at, started_at from history")) < jobs:
        await asyncio.sleep(0.2)
    return rows


def _summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[int(len(ordered) * 0.99)],
        "max": ordered[-1],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--remote", action="store_true", help="the worker has no database, only a server")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.exit(uvloop.run(main(options.jobs, options.remote, options.json)))
