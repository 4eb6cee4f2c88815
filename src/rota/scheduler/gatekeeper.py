"""Lets executions through the gates of their keys: so many at once, so many in a time."""

from __future__ import annotations

from rota.store.protocol import Store


class Gatekeeper:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def step(self) -> int:
        return await self._store.let_through()
