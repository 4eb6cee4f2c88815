"""Submit → done for no-op jobs on the embedded store: real PostgreSQL with fsync, a real worker process.

    python -m bench.lifecycle [--jobs 50000] [--concurrency 1000] [--remote] [--json]

The run checks itself before it prints a number: every job exactly once in history, COMPLETED, none begun early,
nothing left over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import uvloop
from bench.scene import a_scene, ended_once, submitted

from rota.store.postgres.engine import PostgresStore

BATCH = 1000


async def main(jobs: int, concurrency: int, remote: bool, as_json: bool) -> None:
    async with a_scene("--concurrency", str(concurrency), remote=remote) as store:
        began = time.perf_counter()
        ids = await submitted(store, jobs, batch=BATCH)
        stored = time.perf_counter()
        await _until_empty(store)
        done = time.perf_counter()
        await ended_once(store, ids)
    numbers = {
        "workload": "lifecycle",
        "jobs": jobs,
        "submitted_per_s": round(jobs / (stored - began)),
        "done_per_s": round(jobs / (done - began)),
    }
    if as_json:
        print(json.dumps(numbers))
    else:
        print(f"{jobs} jobs: submitted at {numbers['submitted_per_s']}/s, done at {numbers['done_per_s']}/s")


async def _until_empty(store: PostgresStore) -> None:
    while (await store.db.look("select exists (select from executions)"))[0][0]:
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--remote", action="store_true", help="the worker has no database, only a server")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.exit(uvloop.run(main(options.jobs, options.concurrency, options.remote, options.json)))
