from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from rota.model.errors import SchemaMismatch
from rota.model.query import JobFilter, Page
from rota.model.rules import Overlap
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrate, migrations
from tests.support.clock import FakeClock
from tests.support.database import given_server, in_database
from tests.support.jobs import claim

NUMBERS = [number for number, _ in migrations()]


def test_migrations_are_numbered_without_a_gap() -> None:
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS


@pytest.mark.skipif(given_server() is not None, reason="makes a database of its own")
async def test_two_nodes_that_start_at_once_migrate_once(server: str) -> None:
    connection = await asyncpg.connect(server)
    await connection.execute("create database fresh")
    try:
        applied = await asyncio.gather(*(migrate(in_database(server, "fresh")) for _ in range(4)))
    finally:
        await connection.execute("drop database fresh with (force)")
        await connection.close()

    assert sorted(applied) == [[], [], [], NUMBERS]


@pytest.mark.skipif(given_server() is not None, reason="makes a database of its own")
async def test_jobs_of_the_first_version_go_on(server: str, clock: FakeClock) -> None:
    connection = await asyncpg.connect(server)
    await connection.execute("create database older")
    older = in_database(server, "older")
    try:
        await _at_the_first_version(older)
        await migrate(older)
        store = await PostgresStore.open(older, clock=clock)
        await store.maintain(keep=timedelta(days=30))
        await Planner(store).step()
        claimed = await claim(store)
        [job] = (await store.jobs(JobFilter(), Page(10))).items
        await store.aclose()
    finally:
        await connection.execute("drop database older with (force)")
        await connection.close()

    assert job.rules is not None and job.rules.overlap is Overlap.ALLOW
    assert [c.task_id for c in claimed] == ["echo"]


async def _at_the_first_version(dsn: str) -> None:
    """With one recurring job whose firing is due."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("create table migrations (number integer primary key, applied_at timestamptz not null)")
    await connection.execute(migrations()[0][1])
    await connection.execute("insert into migrations values (1, now())")
    await connection.execute("insert into lanes (queue, task_id, priority, bucket) values ('default', 'echo', 0, 0)")
    await connection.execute(
        """
        insert into jobs (
            shard, id, user_id, task_id, queue, priority, lane, parameters, schedule, overlap, state, next_fires_at,
            created_at
        )
        values (
            0, '01a1df4d-725b-70f9-9f8f-9c7d9bf93200', 'ann', 'echo', 'default', 0, 1, '{}',
            '{"rhythm": {"type": "CRON", "expression": "* * * * *"}}', 'allow', 'ACTIVE', '2027-01-04T10:00:00Z',
            '2027-01-04T09:59:00Z'
        )
        """
    )
    await connection.close()


async def test_a_database_from_the_future_is_refused(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("insert into migrations values (9999, now())")
    try:
        with pytest.raises(SchemaMismatch, match="9999"):
            await migrate(dsn)
    finally:
        await connection.execute("delete from migrations where number = 9999")
        await connection.close()


async def test_partitions_are_there_ahead_of_time_and_go_when_old(store: PostgresStore, clock: FakeClock) -> None:
    keep = timedelta(days=30)
    before = await _partitions(store)
    made = await store.maintain(keep=keep)
    assert await store.maintain(keep=keep) == 0
    names = await _partitions(store)
    assert made == len(names - before)
    assert {"history_20270104", "history_20270107", "attempts_20270104", "logs_20270104"} <= names

    clock.advance(days=40)
    await store.maintain(keep=keep)

    assert not {"history_20270104", "attempts_20270107", "logs_20270105"} & await _partitions(store)


async def _partitions(store: PostgresStore) -> set[str]:
    return {row[0] for row in await store.db.fetch("select relname::text from pg_class where relkind = 'r'")}
