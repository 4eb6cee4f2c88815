"""Gathers endings and finishes them in batches."""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import chain

import msgspec

from rota.model.errors import StoreError, StoreUnavailable
from rota.model.execution import Claimed, Ending, Verdict
from rota.model.retry import Outcome, Raised, ending_for
from rota.store.protocol import WorkSource
from rota.worker.scribe import Scribe

log = logging.getLogger(__name__)

BATCH = 1000
# Under load endings wait this long for company; the next batch forms while one is being written.
GATHER = 0.003
# Batches that are being written at a time: the database has more than one processor, and waits for its disk.
ABREAST = 2


class Reporter:
    def __init__(self, source: WorkSource, worker_id: str, scribe: Scribe) -> None:
        self._source = source
        self._scribe = scribe
        self._worker_id = worker_id
        self._waiting: list[tuple[Claimed, Outcome, float | None]] = []
        self._telling: list[list[tuple[Claimed, Outcome, float | None]]] = []
        self._something = asyncio.Event()
        self._closing = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    def knows(self, claimed: Claimed) -> bool:
        return any(each.key == claimed.key for each, _, _ in chain(self._waiting, *self._telling))

    def tell(self, claimed: Claimed, outcome: Outcome, started_at: float | None) -> None:
        self._waiting.append((claimed, outcome, started_at))
        self._something.set()

    async def run(self) -> None:
        """Until closed and everything is told."""
        await asyncio.gather(*(self._tell_on() for _ in range(ABREAST)))

    async def _tell_on(self) -> None:
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
        self._telling.append(batch)
        # First what they have logged: who sees that an attempt has ended finds all of it.
        if self._scribe.has_lines:
            await self._scribe.settle()
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
            await self._finish(endings)
        except StoreUnavailable as error:
            # It may have been applied or not; telling it again is safe.
            log.error("endings wait count=%d error=%s", len(batch), error)
            self._waiting = batch + self._waiting
            self._something.set()
            await asyncio.sleep(0.2)
        self._telling.remove(batch)

    async def _finish(self, endings: list[Ending]) -> None:
        try:
            refused = await self._source.finish(endings)
        except StoreUnavailable:
            raise
        except StoreError as error:
            refused = await self._one_by_one(endings, error)
        for ending in refused:
            log.warning("ending refused execution=%s attempt=%d", ending.key, ending.attempt)

    async def _one_by_one(self, endings: list[Ending], error: StoreError) -> list[Ending]:
        """What the store cannot keep of one ending must not keep the others back; that one fails for it."""
        if len(endings) > 1:
            for ending in endings:
                await self._finish([ending])
            return []
        log.error("ending cannot be stored execution=%s error=%s", endings[0].key, error)
        why = f"The ending cannot be stored: {error}"
        told = msgspec.structs.replace(
            endings[0], outcome=Raised(why, final=True), verdict=Verdict.FAILED, result=None, after=None, error=why
        )
        try:
            return await self._source.finish([told])
        except StoreUnavailable:
            raise
        except StoreError:
            # Nothing can be said of it here; it is given back by and by as something nobody knows of.
            return endings

    def close(self) -> None:
        """`run` returns once everything is told."""
        self._closing.set()
        self._something.set()
