"""Gathers endings and finishes them in batches."""

from __future__ import annotations

import asyncio
import logging
import time

from rota.model.errors import StoreUnavailable
from rota.model.execution import Claimed
from rota.model.retry import Outcome, ending_for
from rota.store.protocol import WorkSource

log = logging.getLogger(__name__)

BATCH = 1000
# Under load endings wait this long for company; the next batch forms while one is being written.
GATHER = 0.003


class Reporter:
    def __init__(self, source: WorkSource, worker_id: str) -> None:
        self._source = source
        self._worker_id = worker_id
        self._waiting: list[tuple[Claimed, Outcome, float | None]] = []
        self._something = asyncio.Event()
        self._closing = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    def tell(self, claimed: Claimed, outcome: Outcome, started_at: float | None) -> None:
        self._waiting.append((claimed, outcome, started_at))
        self._something.set()

    async def run(self) -> None:
        """Until closed and everything is told."""
        while not (self._closing.is_set() and not self._waiting):
            await self._something.wait()
            if len(self._waiting) < BATCH and not self._closing.is_set():
                await asyncio.sleep(GATHER)
            await self._flush()

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        if not self._waiting and not self._closing.is_set():
            self._something.clear()
        if not batch:
            return
        now = time.monotonic()
        endings = [
            ending_for(
                claimed,
                outcome,
                worker_id=self._worker_id,
                started_ago=None if started_at is None else now - started_at,
            )
            for claimed, outcome, started_at in batch
        ]
        try:
            for refused in await self._source.finish(endings):
                log.warning("ending refused execution=%s attempt=%d", refused.key, refused.attempt)
        except StoreUnavailable as error:
            # It may have been applied or not; telling it again is safe.
            log.error("endings wait count=%d error=%s", len(batch), error)
            self._waiting = batch + self._waiting
            self._something.set()
            await asyncio.sleep(0.2)

    def close(self) -> None:
        """`run` returns once everything is told."""
        self._closing.set()
        self._something.set()
