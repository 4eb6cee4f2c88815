"""Numbered migrations, forward only, applied under a lock."""

from __future__ import annotations

from importlib.resources import files

import asyncpg

from rota.model.errors import SchemaMismatch, StoreError
from rota.store.postgres.database import check_address, errors_in_our_words

OLDEST_SERVER = 150000
# Any number will do, as long as it is ours alone.
_LOCK = 7_682_001_337


def migrations() -> list[tuple[int, str]]:
    folder = files(__package__).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), folder.joinpath(name).read_text()) for name in names]


async def migrate(dsn: str) -> list[int]:
    """Bring the database to this version of Rota; the numbers that were applied."""
    check_address(dsn)
    with errors_in_our_words():
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            return await _migrate(connection)
        finally:
            await connection.close()


async def _migrate(connection: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    version = await connection.fetchval("select current_setting('server_version_num')::int")
    if version < OLDEST_SERVER:
        raise StoreError(f"Rota needs PostgreSQL 15 or newer; this server is {version // 10000}.")
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists migrations (number integer primary key, applied_at timestamptz not null)"
        )
        applied = {row[0] for row in await connection.fetch("select number from migrations")}
        known = migrations()
        newer = applied - {number for number, _ in known}
        if newer:
            raise SchemaMismatch(f"The database has migration {max(newer)}, which this Rota does not know: upgrade it.")
        fresh = [(number, text) for number, text in known if number not in applied]
        for number, text in fresh:
            await connection.execute(text)
            await connection.execute("insert into migrations values ($1, now())", number)
    return [number for number, _ in fresh]
