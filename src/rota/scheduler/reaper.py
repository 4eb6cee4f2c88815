"""Ends the attempts of workers declared dead, and what has waited past its time."""

from __future__ import annotations

import logging

from rota.loop import uptime
from rota.model.errors import StoreUnavailable
from rota.model.retry import LeaseLapsed, ending_for
from rota.model.worker import LEASE
from rota.store.protocol import Store

log = logging.getLogger(__name__)


class Reaper:
    def __init__(self, store: Store, *, batch: int = 500, hold_off: float = LEASE.total_seconds()) -> None:
        self._store = store
        self._batch = batch
        # Whoever has just come, or was cut off, cannot tell dead workers from workers cut off as well.
        self._hold_off = hold_off
        self._judges_from = uptime() + hold_off

    async def step(self) -> int:
        try:
            return await self._step()
        except StoreUnavailable:
            self._judges_from = uptime() + self._hold_off
            raise

    async def _step(self) -> int:
        if uptime() >= self._judges_from:
            for worker_id in await self._store.bury():
                log.warning("worker declared dead worker=%s", worker_id)
        lapsed = await self._store.expired(limit=self._batch)
        endings = [ending_for(e.claimed, LeaseLapsed(), worker_id=e.worker_id) for e in lapsed]
        refused = await self._store.finish(endings)
        return len(lapsed) - len(refused) + await self._store.expire(limit=self._batch)
