"""Shows how far attempts are: of each the newest word, and only if it can be had cheaply."""

from __future__ import annotations

from rota.model.execution import Claimed, ExecutionKey
from rota.model.progress import NewProgress
from rota.store.protocol import WorkSource


class Gauge:
    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._newest: dict[ExecutionKey, NewProgress] = {}

    def show(self, claimed: Claimed, fraction: float, note: str) -> None:
        self._newest[claimed.key] = NewProgress(*claimed.key, attempt=claimed.attempt, fraction=fraction, note=note)

    def forget(self, claimed: Claimed) -> None:
        self._newest.pop(claimed.key, None)

    async def step(self) -> int:
        """What the store does not take is lost; the next word comes soon."""
        newest, self._newest = self._newest, {}
        if newest:
            await self._source.note_progress(list(newest.values()))
        return 0
