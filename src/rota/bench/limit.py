"""The ceiling: the statements of a job's life on the same server, with no other Python around them.

One process stores batches whose values were made before; here one connection claims while another finishes.
`python -m rota.bench.limit LANE BATCHES` is the former: it stores a batch for each line that it reads.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import uvloop

from rota.bench.stage import BenchFailed, Stage
from rota.loop import repeat
from rota.model.definition import Definition
from rota.model.job import new_job_id
from rota.model.worker import NewWorker
from rota.store.postgres.database import HOT
from rota.store.postgres.fronts import EVERYTHING
from rota.store.postgres.jobs import SQL as JOBS
from rota.store.postgres.work import CLAIM
from rota.store.postgres.work import SQL as WORK

NAME = "limit"
BATCH = 1000
# Batches that are open at a time: enough for nobody to wait, too few for the table to grow.
WINDOW = 10
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def limit(stage: Stage, count: int) -> dict[str, Any]:
    """Jobs a second through submit, claim and finish at the same time, and what each costs by itself."""
    definition = Definition(user_id=NAME, task_id=NAME)
    [lane] = await stage.store._lanes_of([definition])
    # A new one each time: who has retired does not claim again.
    worker_id = f"{NAME}-{secrets.token_hex(4)}"
    worker = NewWorker(id=worker_id, host="localhost", pid=0, queues=["default"], tasks=[NAME], concurrency=BATCH)
    await stage.store.register(worker)
    over = asyncio.Event()

    async def renew() -> int:
        await stage.store.renew(worker_id)
        return 0

    renewing = asyncio.create_task(repeat(renew, every=2.0, stop=over))
    connections = [await asyncpg.connect(stage.dsn, server_settings=HOT | {"jit": "off"}) for _ in range(2)]
    try:
        alone = await _alone(connections[0], worker_id, lane, max(1, count // BATCH // 4))
        rate = await _together(stage.dsn, connections, worker_id, lane, max(1, count // BATCH))
        left = (await stage.store.db.look("select count(*) from executions where user_id = $1", NAME))[0][0]
        if left:
            raise BenchFailed(f"The ceiling cannot be measured: {left} of its rows were not finished.")
        return {"limit_rate": round(rate), "limit_alone_us": alone}
    finally:
        over.set()
        await renewing
        await stage.store.retire(worker_id)
        for connection in connections:
            await connection.close()


async def _alone(connection: Connection, worker_id: str, lane: int, batches: int) -> dict[str, float]:
    """Microseconds for a job in each statement, with nothing else going on."""
    ids = [_ids() for _ in range(batches)]
    began = time.perf_counter()
    for batch in ids:
        await _store(connection, batch, lane)
    stored = time.perf_counter()
    claimed = [await _claim(connection, worker_id, lease) for lease in range(1, batches + 1)]
    taken = time.perf_counter()
    for rows in claimed:
        await _finish(connection, rows)
    ended = time.perf_counter()
    spans = {"submit": stored - began, "claim": taken - stored, "finish": ended - taken}
    return {name: round(span / batches / BATCH * 1e6, 1) for name, span in spans.items()}


async def _together(dsn: str, connections: Sequence[Connection], worker_id: str, lane: int, batches: int) -> float:
    storing = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rota.bench.limit", str(lane), str(batches), env=os.environ | {"ROTA_DATABASE_URL": dsn},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert storing.stdin is not None and storing.stdout is not None
    asked = storing.stdin
    try:
        await storing.stdout.readline()
        claimed: asyncio.Queue[list[asyncpg.Record]] = asyncio.Queue()
        wanted = 0

        def ask(upto: int) -> None:
            nonlocal wanted
            more = min(upto, batches) - wanted
            # Who has stored the last batch is gone: nothing more is said to it, not even nothing.
            if more > 0:
                wanted += more
                asked.write(b"\n" * more)

        async def claim() -> None:
            taken, lease = 0, 0
            while taken < batches * BATCH:
                lease += 1
                if rows := await _claim(connections[0], worker_id, lease):
                    taken += len(rows)
                    claimed.put_nowait(rows)
                elif storing.returncode:
                    raise BenchFailed("The ceiling cannot be measured: the process that stores its rows died.")
                else:
                    await asyncio.sleep(0.001)

        async def finish() -> None:
            ended = 0
            while ended < batches * BATCH:
                rows = await claimed.get()
                await _finish(connections[1], rows)
                ended += len(rows)
                ask(ended // BATCH + WINDOW)

        began = time.perf_counter()
        ask(WINDOW)
        await asyncio.gather(claim(), finish())
        return batches * BATCH / (time.perf_counter() - began)
    finally:
        asked.close()
        await storing.wait()


def _ids() -> list[UUID]:
    return [new_job_id(1) for _ in range(BATCH)]


async def _store(connection: Connection, ids: list[UUID], lane: int) -> None:
    names, nothing = [NAME] * BATCH, [None] * BATCH
    await connection.fetch(
        JOBS.submit_one_shots, 0, ids, nothing, [lane] * BATCH, names, names, ["default"] * BATCH, [5] * BATCH,
        ["{}"] * BATCH, nothing, None,
    )  # fmt: skip


async def _claim(connection: Connection, worker_id: str, lease: int) -> list[asyncpg.Record]:
    return await connection.fetch(
        CLAIM, 0, worker_id, ["default"], [NAME], BATCH, timedelta(0), lease, None, EVERYTHING
    )


async def _finish(connection: Connection, rows: list[asyncpg.Record]) -> None:
    count = len(rows)
    zeros, nothing = [0] * count, [None] * count
    await connection.fetch(
        WORK.finish, 0, [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows],
        [row[3] for row in rows], [row["lease_id"] for row in rows], ["COMPLETED"] * count, zeros, zeros, zeros,
        nothing, nothing, nothing, [0.0] * count, None,
    )  # fmt: skip


async def _store_on_demand(dsn: str, lane: int, batches: int) -> None:
    connection = await asyncpg.connect(dsn, server_settings=HOT | {"jit": "off"})
    ids = [_ids() for _ in range(batches)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    for batch in ids:
        if not await reader.read(1):
            break
        await _store(connection, batch, lane)
    await connection.close()


if __name__ == "__main__":
    uvloop.run(_store_on_demand(os.environ["ROTA_DATABASE_URL"], int(sys.argv[1]), int(sys.argv[2])))
