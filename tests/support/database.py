"""One PostgreSQL for the session, one empty database for each test.

With ROTA_TEST_DATABASE_URL the same tests run against that server, on one database that is emptied in between.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import asyncpg

from rota.store import embedded
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.migrate import migrate

TEMPLATE = "rota_template"


def given_server() -> str | None:
    return os.environ.get("ROTA_TEST_DATABASE_URL")


@contextmanager
def a_server() -> Iterator[str]:
    given = given_server()
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="rota-tests-"))
    postgres = EmbeddedPostgres(folder)
    try:
        # Hundreds of databases are made here, and none of them has to survive a power cut.
        with patch.dict(embedded.SETTINGS, fsync="off", full_page_writes="off"):
            dsn = postgres.start()
        yield dsn
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def a_database(server: str) -> AsyncIterator[str]:
    if given_server():
        await migrate(server)
        await _empty(server)
        yield server
        return
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(server)
    try:
        if not await connection.fetchval("select 1 from pg_database where datname = $1", TEMPLATE):
            await connection.execute(f"create database {TEMPLATE}")
            await migrate(in_database(server, TEMPLATE))
        await connection.execute(f"create database {name} template {TEMPLATE} strategy file_copy")
        yield in_database(server, name)
        await connection.execute(f"drop database {name} with (force)")
    finally:
        await connection.close()


def in_database(server: str, name: str) -> str:
    """The same server, another database: `postgresql://…/rota?host=…`."""
    return server.replace("/rota?", f"/{name}?")


async def _empty(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        tables = (
            "executions, jobs, history, attempts, dead_letters, names, lanes, workers, api_keys, calendars, revisions,"
            " backfills, logs, progress"
        )
        await connection.execute(f"truncate {tables} restart identity")
        await connection.execute("update cluster set shards = 1")
    finally:
        await connection.close()
