"""Works off backfills: makes the executions of past firings, never more at once than each may have open."""

from __future__ import annotations

import asyncio
import logging

from rota.model.backfill import Portion, Unfilled, next_firings, portion_of
from rota.store.protocol import Store

log = logging.getLogger(__name__)


class Backfiller:
    """Any number may work at once: a portion counts only if its backfill is still as it was seen."""

    def __init__(self, store: Store, *, batch: int = 1000) -> None:
        self._store = store
        self._batch = batch

    async def step(self) -> int:
        """How many firings were decided about."""
        settled = 0
        for backfill in await self._store.unfilled(limit=self._batch):
            # A hundred backfills are a lot of cron; others get their turn in between.
            await asyncio.sleep(0)
            portion = await self._portion(backfill)
            if portion is not None and not portion.changes_nothing and await self._store.fill(portion):
                settled += portion.settled
        return settled

    async def _portion(self, backfill: Unfilled) -> Portion | None:
        """One that nobody can work off, say for want of its time zone here, must not keep the others waiting."""
        try:
            firings, following = next_firings(backfill)
        except Exception as error:
            log.error("backfill cannot be worked off backfill=%s error=%s", backfill.id, error)
            return None
        runs = await self._store.runs(backfill.job_id, start=firings[0], end=firings[-1]) if firings else []
        return portion_of(backfill, firings, following, runs)
