"""The stage for a benchmark: an embedded PostgreSQL with fsync on, a worker process, and the check of the result."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID

from rota.model.definition import Definition
from rota.model.job import NewJob, new_job_id
from rota.model.keys import Scope
from rota.model.ledger import HISTORY_KEPT
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrate
from rota.store.protocol import Accepted, Submission

NOOP = Definition(user_id="bench", task_id="noop")


@asynccontextmanager
async def a_scene(*worker_options: str, remote: bool = False) -> AsyncIterator[PostgresStore]:
    """`remote` puts a server between the worker and the database."""
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    postgres = EmbeddedPostgres(folder)
    try:
        dsn = await asyncio.to_thread(postgres.start)
        await migrate(dsn)
        store = await PostgresStore.open(dsn)
        await store.maintain(keep=HISTORY_KEPT)
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert (await store.db.look(f"show {setting}"))[0][0] == "on", setting
        processes = AsyncExitStack()
        if remote:
            worker_options += ("--server", await processes.enter_async_context(_a_server(dsn)))
            _, key = await store.create_key("bench", [Scope.WORK])
            environment = {"ROTA_API_KEY": key, "ROTA_DATABASE_URL": "", "ROTA_DIE_WITH_PARENT": "1"}
        else:
            environment = {"ROTA_DATABASE_URL": dsn, "ROTA_DIE_WITH_PARENT": "1"}
        worker = _rota("worker", *worker_options, **environment)
        try:
            while not any(w.state == "ALIVE" for w in await store.workers()):
                assert worker.poll() is None, "the worker did not start"
                await asyncio.sleep(0.02)
            yield store
        finally:
            worker.terminate()
            worker.wait(60)
            await processes.aclose()
            await store.aclose()
    finally:
        await asyncio.to_thread(postgres.stop)
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _a_server(dsn: str) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server = _rota("server", "--port", port, ROTA_DATABASE_URL=dsn)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _rota(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "rota", *arguments], env=os.environ | environment, start_new_session=True
    )


async def submitted(store: PostgresStore, count: int, *, batch: int, at: datetime | None = None) -> set[UUID]:
    """That many no-op jobs, in batches; each batch is acknowledged before the next is sent."""
    ids: set[UUID] = set()
    for begin in range(0, count, batch):
        jobs = [NewJob(id=new_job_id(1), definition=NOOP, fires_at=at) for _ in range(min(batch, count - begin))]
        [receipt] = await store.submit([Submission(jobs)])
        assert isinstance(receipt, Accepted)
        ids |= {job.id for job in jobs}
    return ids


async def ended_once(store: PostgresStore, ids: set[UUID]) -> None:
    """Every job exactly once in history, completed, none begun before it was due, and nothing left over."""
    rows = await store.db.look("select job_id, state::text, attempt, started_at >= due_at as in_time from history")
    assert len(rows) == len(ids), f"{len(rows)} ended, {len(ids)} were submitted"
    assert {row["job_id"] for row in rows} == ids
    assert all(row["state"] == "COMPLETED" and row["attempt"] == 1 for row in rows)
    assert all(row["in_time"] for row in rows), "something began early"
    assert (await store.db.look("select count(*) from executions"))[0][0] == 0
