"""How a database and the cluster on it are: only what is, no judgement."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs
from uuid import UUID

from msgspec import Struct

from rota.model.errors import SchemaMismatch
from rota.model.keys import Principal
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrations
from rota.store.postgres.queries import Queries

SQL = Queries("doctor.sql")
MOST_LETTERS = 1000
_HOST = r"(?:[\w.%-]*|\[[\da-fA-F:.%]+\])(?::\d+)?"
_DSN = re.compile(
    rf"postgres(?:ql)?://(?:[^/?#]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?:/(?P<name>[^@/?#]*))?(?:\?(?P<query>[^@#]*))?",
    re.ASCII,
)


class LiveWorker(Struct, frozen=True):
    id: str
    host: str
    silent: timedelta
    lease: timedelta


class Overdue(Struct, frozen=True):
    job_id: UUID
    late: timedelta


class Cluster(Struct, frozen=True, kw_only=True):
    """What the tables tell; of dead letters one more than MOST_LETTERS stands for any more."""

    workers: list[LiveWorker]
    overdue: Overdue | None
    dead_letters: int
    missing_partitions: list[str]
    bearer: Principal | None


class Health(Struct, frozen=True, kw_only=True):
    """`ahead` is the database's clock before ours; without our migrations the cluster is not looked at."""

    version: str
    number: int
    ahead: timedelta
    off: list[str]
    applied: int
    lacking: list[int]
    unknown: list[int]
    cluster: Cluster | None


def place_of(dsn: str) -> str | None:
    """Which database it is and where; None where a part of a password could be taken for that."""
    named = _DSN.fullmatch(dsn)
    if named is None:
        return None
    [host] = parse_qs(named["query"] or "").get("host", ["the default host"])[:1]
    return f"{named['name'] or 'the default database'} at {named['hosts'] or host}"


async def examine(store: PostgresStore, *, key: bytes) -> Health:
    """`key` is the hash of the key whose bearer is asked for."""
    [server] = await store.db.look(SQL.server)
    known, applied = {number for number, _ in migrations()}, await _applied(store)
    return Health(
        version=server["version"],
        number=server["number"],
        ahead=await _ahead(store),
        off=[name for name in ("fsync", "synchronous_commit", "full_page_writes") if server[name] == "off"],
        applied=len(applied),
        lacking=sorted(known - applied),
        unknown=sorted(applied - known),
        cluster=await _cluster(store, key) if known == applied else None,
    )


async def _applied(store: PostgresStore) -> set[int]:
    try:
        return {row["number"] for row in await store.db.look(SQL.migrations)}
    except SchemaMismatch:
        return set()


async def _ahead(store: PostgresStore) -> timedelta:
    """On a connection that is there already, so that the way takes next to no time."""
    asked_at = datetime.now(UTC)
    [(theirs,)] = await store.db.look(SQL.clock)
    ahead: timedelta = theirs - (asked_at + (datetime.now(UTC) - asked_at) / 2)
    return ahead


async def _cluster(store: PostgresStore, key: bytes) -> Cluster:
    workers = await store.db.look(SQL.workers)
    overdue = await store.db.look(SQL.overdue)
    [(letters,)] = await store.db.look(SQL.dead_letters, MOST_LETTERS + 1)
    partitions = await store.db.look(SQL.missing_partitions)
    return Cluster(
        workers=[LiveWorker(w["id"], w["host"], w["silent"], w["lease"]) for w in workers],
        overdue=Overdue(overdue[0]["id"], overdue[0]["late"]) if overdue else None,
        dead_letters=letters,
        missing_partitions=[row["name"] for row in partitions],
        bearer=await store.principal(key),
    )
