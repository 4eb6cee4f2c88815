"""Submitting over HTTP to a whole `rota up` on the same machine, keys and fsync on.

    python -m bench.over_http [--seconds 5] [--connections 32] [--json]

The jobs name a task that no worker has, so that accepting is all that happens; the run counts what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import uvloop

ONE = {"task_id": "nobody", "parameters": {"a": 1}}
BATCH = 1000


async def main(seconds: float, connections: int, as_json: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    server = subprocess.Popen(
        [sys.executable, "-m", "rota", "up", "--data", str(folder), "--port", "0"],
        stdout=subprocess.PIPE, env=os.environ, start_new_session=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None and b"Rota is up" in server.stdout.readline()
        headers = {"Authorization": f"Bearer {(folder / 'admin.key').read_text().strip()}"}
        async with aiohttp.ClientSession((folder / "url").read_text().strip(), headers=headers) as session:
            taken = await _send(session, "/jobs", json.dumps(ONE).encode(), seconds, connections)
            batches = await _send(session, "/jobs/batch", json.dumps({"jobs": [ONE] * BATCH}).encode(), seconds, 2)
            await _all_stored(session, len(taken) + BATCH * len(batches))
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
    numbers = {
        "workload": "http",
        "single_per_s": round(len(taken) / seconds),
        "single_p50_ms": round(taken[len(taken) // 2] * 1000, 1),
        "single_p99_ms": round(taken[int(len(taken) * 0.99)] * 1000, 1),
        "batched_jobs_per_s": round(BATCH * len(batches) / seconds),
    }
    print(json.dumps(numbers) if as_json else " ".join(f"{name}={value}" for name, value in numbers.items()))


async def _send(
    session: aiohttp.ClientSession, path: str, body: bytes, seconds: float, connections: int
) -> list[float]:
    """How long each request took, sorted."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def one_after_the_other() -> None:
        while (began := time.perf_counter()) < end:
            async with session.post(path, data=body) as response:
                assert response.status == 201, response.status
                await response.read()
            taken.append(time.perf_counter() - began)

    await asyncio.gather(*(one_after_the_other() for _ in range(connections)))
    return sorted(taken)


async def _all_stored(session: aiohttp.ClientSession, expected: int) -> None:
    """Walks every page: what was acknowledged is there, each job once."""
    seen: set[str] = set()
    token = ""
    while True:
        async with session.get(f"/jobs?limit=1000{token}") as response:
            page = await response.json()
        seen |= {job["id"] for job in page["jobs"]}
        if not page["next_page_token"]:
            break
        token = f"&page_token={page['next_page_token']}"
    assert len(seen) == expected, f"{len(seen)} stored, {expected} acknowledged"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    uvloop.run(main(options.seconds, options.connections, options.json))
