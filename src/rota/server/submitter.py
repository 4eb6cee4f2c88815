"""Submissions that arrive together share one commit; each is answered after it."""

from __future__ import annotations

import asyncio

from rota.model.errors import StoreError, StoreUnavailable
from rota.store.protocol import Receipt, Store, Submission

MOST_JOBS = 10_000


class Submitter:
    """While one commit is under way the next one gathers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Submission, asyncio.Future[Receipt]]] = []
        self._committing: asyncio.Task[None] | None = None

    async def submit(self, submission: Submission) -> Receipt:
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit())
        return await answer

    async def _commit(self) -> None:
        while self._waiting:
            # One turn of the loop: whatever has already arrived comes along.
            await asyncio.sleep(0)
            batch = self._next_batch()
            try:
                receipts = await self._store.submit([submission for submission, _ in batch])
            except Exception as error:
                await self._one_by_one(batch, error)
            else:
                for (_, answer), receipt in zip(batch, receipts, strict=True):
                    _answer(answer, receipt)

    def _next_batch(self) -> list[tuple[Submission, asyncio.Future[Receipt]]]:
        taken = jobs = 0
        while taken < len(self._waiting) and (taken == 0 or jobs + len(self._waiting[taken][0].jobs) <= MOST_JOBS):
            jobs += len(self._waiting[taken][0].jobs)
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _one_by_one(self, batch: list[tuple[Submission, asyncio.Future[Receipt]]], error: Exception) -> None:
        """What the store refuses for one must not be refused for its neighbours."""
        alone = len(batch) == 1 or isinstance(error, StoreUnavailable) or not isinstance(error, StoreError)
        for submission, answer in batch:
            if alone:
                _fail(answer, error)
                continue
            try:
                _answer(answer, (await self._store.submit([submission]))[0])
            except Exception as own_error:
                _fail(answer, own_error)


def _answer(answer: asyncio.Future[Receipt], receipt: Receipt) -> None:
    # Whoever asked may have hung up.
    if not answer.done():
        answer.set_result(receipt)


def _fail(answer: asyncio.Future[Receipt], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
