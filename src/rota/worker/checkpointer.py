"""Stores checkpoints in batches, and answers each once it is durable or never will be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from rota.model.errors import StoreError, StoreUnavailable
from rota.model.execution import Claimed, checkpoint_of
from rota.store.protocol import WorkSource

# Each has up to 64 KiB.
BATCH = 100
SUPERSEDED = "This attempt no longer holds its execution; another one has taken its place, or it was ended."


class Question(Struct, frozen=True):
    """A checkpoint that an attempt waits for. `answer` takes what is wrong, and whether it is the fence."""

    claimed: Claimed
    value: str
    is_open: Callable[[], bool]
    answer: Callable[[str | None, bool], None]


class Checkpointer:
    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._waiting: list[Question] = []
        self.something = asyncio.Event()

    def ask(self, question: Question) -> None:
        self._waiting.append(question)
        self.something.set()

    async def step(self) -> int:
        """While the store is away the questions stay, as long as their attempts do."""
        for question in self._waiting:
            if not question.is_open():
                # Whoever still waits there does so for nothing.
                question.answer(SUPERSEDED, True)
        self._waiting = [question for question in self._waiting if question.is_open()]
        batch = self._waiting[:BATCH]
        if batch:
            await self._store(batch)
            self._waiting = self._waiting[len(batch) :]
        return len(batch)

    async def _store(self, batch: list[Question]) -> None:
        checkpoints = [checkpoint_of(question.claimed, question.value) for question in batch]
        try:
            refused = await self._source.checkpoint(checkpoints)
        except StoreUnavailable:
            raise
        except StoreError as error:
            await self._one_by_one(batch, error)
            return
        for question, checkpoint in zip(batch, checkpoints, strict=True):
            stale = checkpoint in refused
            question.answer(SUPERSEDED if stale else None, stale)

    async def _one_by_one(self, batch: list[Question], error: StoreError) -> None:
        """What the store cannot keep of one must not keep the others back."""
        if len(batch) == 1:
            batch[0].answer(f"The checkpoint cannot be stored: {error}", False)
            return
        for question in batch:
            await self._store([question])
