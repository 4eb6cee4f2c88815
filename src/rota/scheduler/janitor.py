"""Keeps the tables in shape: partitions ahead of time, old days dropped, expired names forgotten."""

from __future__ import annotations

from datetime import timedelta

from rota.model.ledger import HISTORY_KEPT
from rota.store.protocol import Store


class Janitor:
    def __init__(self, store: Store, *, keep: timedelta = HISTORY_KEPT) -> None:
        self._store = store
        self._keep = keep

    async def step(self) -> int:
        return await self._store.maintain(keep=self._keep)
