"""A hint to idle workers that there is something to claim. Polling stays the truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg

CHANNEL = "rota_work"
# A notification takes a database-wide lock at commit, so there is at most one per node in this time.
BETWEEN = 0.1


class Wake:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._sender: asyncpg.Connection[asyncpg.Record] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._again = False

    def others(self) -> None:
        """Returns at once; the first call is sent at once too, those that follow share the next."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        else:
            self._again = True

    async def _send(self) -> None:
        again = True
        while again:
            self._again = False
            # Losing a hint costs one poll interval, so nobody hears of it.
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                if self._sender is None or self._sender.is_closed():
                    self._sender = await asyncpg.connect(self._dsn, timeout=5, command_timeout=5)
                await self._sender.execute(f"notify {CHANNEL}")
            await asyncio.sleep(BETWEEN)
            again = self._again

    @asynccontextmanager
    async def woken(self, callback: Callable[[], None]) -> AsyncIterator[None]:
        listening = asyncio.create_task(self._listen(callback))
        try:
            yield
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    async def _listen(self, callback: Callable[[], None]) -> None:
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self._hear_until_lost(callback)
            await asyncio.sleep(1)

    async def _hear_until_lost(self, callback: Callable[[], None]) -> None:
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._dsn, timeout=5)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, lambda *_: callback())
            await lost.wait()
        finally:
            connection.terminate()

    async def aclose(self) -> None:
        if self._sending:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        if self._sender:
            self._sender.terminate()
