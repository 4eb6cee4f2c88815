"""Connections to PostgreSQL, and its errors in our words."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, ParamSpec, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from rota.model.errors import SchemaMismatch, StoreError, StoreUnavailable

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

_AWAY = (asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError, OSError, TimeoutError)
# SQLSTATE classes that mean "this cannot be": bad data, broken constraints, a wrong password, no such database, a
# statement that does not fit the schema.
# Whatever else goes wrong (no memory, no disk, no lock, shutting down) may be over by the next try.
_REFUSALS = ("22", "23", "28", "3D", "42")
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

# The hot statements say how they reach their rows (see sql/work.sql); on a fresh table the planner would know better.
# The generic plan from the first call on: one made for a thousand rows that it can count reads the table to join them.
HOT = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
_EVERYWHERE = {"jit": "off", "timezone": "UTC", "application_name": "rota"}
_PATIENCE = 30.0
TURNS = 6
_P = ParamSpec("_P")
_R = TypeVar("_R")


class TryAgain(StoreUnavailable):
    """A deadlock or serialization failure: nothing happened, the same may well succeed now."""


def tried_again(method: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """Repeats a whole transaction that the database rolled back in favour of another one."""

    @functools.wraps(method)
    async def patient(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for turn in range(TURNS):
            try:
                return await method(*args, **kwargs)
            except TryAgain:
                # Not in step with whom we met.
                await asyncio.sleep(random.uniform(0, 0.01 * 2**turn))
        return await method(*args, **kwargs)

    return patient


class _Session(asyncpg.Connection):
    """Nothing of ours outlives its transaction, so there is nothing to tidy up between two of them."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    """Three pools, so that neither readers nor a slow batch can keep a worker from renewing."""

    def __init__(
        self,
        *,
        work: asyncpg.Pool[asyncpg.Record],
        read: asyncpg.Pool[asyncpg.Record],
        renew: asyncpg.Pool[asyncpg.Record],
        clock: Callable[[], datetime] | None,
    ) -> None:
        self._work = work
        self._read = read
        self._renew = renew
        self._clock = clock
        self._shards = 1
        self._shards_until = 0.0

    @classmethod
    async def open(cls, dsn: str, *, clock: Callable[[], datetime] | None = None) -> Database:
        async def pool(size: int, patience: float, **settings: str) -> asyncpg.Pool[asyncpg.Record]:
            return await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=size,
                command_timeout=patience,
                timeout=10,
                server_settings=_EVERYWHERE | settings,
                connection_class=_Session,
            )

        check_address(dsn)
        with errors_in_our_words():
            return cls(
                work=await pool(8, _PATIENCE, **HOT),
                read=await pool(8, _PATIENCE),
                # A silent connection must not cost the lease: there is time for several tries.
                renew=await pool(2, 2.0, **HOT),
                clock=clock,
            )

    @property
    def time(self) -> datetime | None:
        """None lets the database say what time it is; only tests have a clock of their own."""
        return self._clock() if self._clock else None

    async def now(self) -> datetime:
        moment: datetime = (await self.fetch("select coalesce($1::timestamptz, now())", self.time))[0][0]
        return moment

    async def shards(self) -> int:
        """Asked again every few seconds: the number may grow under us."""
        if time.monotonic() >= self._shards_until:
            self._shards = (await self.fetch("select shards from cluster"))[0][0]
            self._shards_until = time.monotonic() + 5.0
        return self._shards

    @tried_again
    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """One statement, one transaction."""
        with errors_in_our_words():
            return await self._work.fetch(query, *arguments)

    async def look(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        with errors_in_our_words():
            return await self._read.fetch(query, *arguments)

    async def renew(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        with errors_in_our_words():
            return await self._renew.fetch(query, *arguments)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        with errors_in_our_words():
            async with self._work.acquire() as connection, connection.transaction():
                yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """Several looks at one and the same moment."""
        with errors_in_our_words():
            async with (
                self._read.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield connection

    async def aclose(self) -> None:
        for pool in (self._work, self._read, self._renew):
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()


def check_address(dsn: str) -> None:
    """The driver's words for a malformed address would say a part of the password."""
    hosts = urlsplit(dsn).netloc.rpartition("@")[2] if dsn.startswith(("postgres://", "postgresql://")) else None
    try:
        for host in (hosts or "").split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:
        hosts = None
    if hosts is None:
        raise StoreError(
            "The address of the database cannot be read; write it like postgresql://user:password@host:5432/name, "
            "with signs such as / @ : % in the password as %2F %40 %3A %25."
        )


class errors_in_our_words:
    """No driver exception leaves the store."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _AGAIN):
            raise TryAgain("The database asks to try again.") from error
        if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError):
            raise SchemaMismatch("The database has not the tables of this Rota; run `rota migrate` first.") from error
        if _is_refusal(error):
            raise StoreError(f"The database refused: {error}") from error
        if isinstance(error, (asyncpg.PostgresError, *_AWAY)):
            raise StoreUnavailable(f"The database is not available: {error or type(error).__name__}") from error


def _is_refusal(error: BaseException | None) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in _REFUSALS
    # The driver's own "this value does not fit its parameter".
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
