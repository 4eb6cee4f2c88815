"""Keeps the tables in shape: partitions ahead of time, old days dropped, expired names forgotten."""

from __future__ import annotations

from datetime import timedelta

from rota.store.protocol import Store

KEEP = timedelta(days=30)


class Janitor:
    def __init__(self, store: Store, *, keep: timedelta = KEEP) -> None:
        self._store = store
        self._keep = keep

    async def step(self) -> int:
        return await self._store.maintain(keep=self._keep)
