"""Keeps the worker's lease, and knows when it can no longer be trusted."""

from __future__ import annotations

import asyncio
import logging

from rota.loop import uptime
from rota.model.errors import StoreUnavailable
from rota.model.worker import RENEWAL, TRUST, Wish
from rota.store.protocol import WorkSource
from rota.worker.children import Children

log = logging.getLogger(__name__)


class Keeper:
    """`lost` is set for good when the worker is declared dead or has been silent for too long, `drained` when its
    operator wants it to end."""

    def __init__(self, source: WorkSource, worker_id: str, children: Children) -> None:
        self._source = source
        self._worker_id = worker_id
        self._children = children
        self.lost = asyncio.Event()
        self.drained = asyncio.Event()
        self.is_paused = False
        self._trusted_until = float("inf")

    def trust_from(self, sent: float) -> None:
        # Counted from the sending: the answer may have taken its time.
        self._trusted_until = sent + TRUST.total_seconds()
        self._children.trust_until(self._trusted_until)

    async def renew(self) -> int:
        """A step: another lease for everything the worker holds, and word of what to stop."""
        sent = uptime()
        try:
            async with asyncio.timeout(RENEWAL.total_seconds()):
                renewal = await self._source.renew(self._worker_id)
        except TimeoutError:
            raise StoreUnavailable("The renewal was not answered in time.") from None
        if renewal.alive:
            self.trust_from(sent)
            self._children.cancel(renewal.cancelled, renewal.terminated)
            self.is_paused = renewal.wish is Wish.PAUSE
            if renewal.wish is Wish.DRAIN:
                self.drained.set()
        else:
            log.warning("declared dead worker=%s", self._worker_id)
            self.lost.set()
        return 0

    async def watch(self) -> int:
        """A step: past its trust the worker stops by itself, before anyone may take over."""
        if uptime() >= self._trusted_until and not self.lost.is_set():
            log.warning("lease not renewed in time worker=%s", self._worker_id)
            self.lost.set()
        return await self._children.watch()
