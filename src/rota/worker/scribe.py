"""Keeps what attempts log, in batches. Lines may be lost when the store is away; endings do not wait for it."""

from __future__ import annotations

import asyncio
import logging
import time

from rota.model.errors import StoreError, StoreUnavailable
from rota.model.execution import Claimed
from rota.model.log import NewLine
from rota.store.protocol import WorkSource
from rota.worker.wire import Line

log = logging.getLogger(__name__)

BATCH = 2000
# Characters that wait for the store at most; what comes beyond is lost.
MOST_WAITING = 16 * 1024 * 1024
# So long an ending waits for its lines; when it was in vain, the next ones do not wait for a while.
PATIENCE = 1.0
SULK = 5.0


class Scribe:
    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._waiting: list[tuple[Claimed, Line]] = []
        self._size = 0
        self._lost = 0
        self._writing = asyncio.Lock()
        self._sulks_until = 0.0

    def take_down(self, claimed: Claimed, line: Line) -> None:
        if self._size + len(line.text) > MOST_WAITING:
            self._lost += 1
            return
        self._size += len(line.text)
        self._waiting.append((claimed, line))

    @property
    def has_lines(self) -> bool:
        return bool(self._waiting)

    async def step(self) -> int:
        async with self._writing:
            batch = self._waiting[:BATCH]
            if not batch:
                return 0
            try:
                await self._source.keep_logs(_new_lines(batch))
            except StoreUnavailable:
                raise
            except StoreError as error:
                log.error("lines cannot be stored count=%d error=%s", len(batch), error)
            del self._waiting[: len(batch)]
            self._size -= sum(len(line.text) for _, line in batch)
            if self._lost:
                log.error("lines lost count=%d", self._lost)
                self._lost = 0
        return len(batch)

    async def settle(self) -> None:
        """Afterwards what was said so far is stored, unless the store does not take it just now."""
        if time.monotonic() < self._sulks_until:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                for _ in range(0, len(self._waiting), BATCH):
                    await self.step()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("endings go ahead of their lines error=%s", error or type(error).__name__)
            self._sulks_until = time.monotonic() + SULK


def _new_lines(batch: list[tuple[Claimed, Line]]) -> list[NewLine]:
    now = time.monotonic()
    return [
        NewLine(*claimed.key, attempt=claimed.attempt, seq=line.seq, ago=max(0.0, now - line.at), text=line.text)
        for claimed, line in batch
    ]
