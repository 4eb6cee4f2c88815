"""What an attempt says while it runs, on its way from task code to the supervisor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from rota.model.errors import StoreError, Superseded
from rota.worker.wire import Asked, Kept, Reports


class _Kept:
    """What a thread gets that has waited already: awaiting it does nothing."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


KEPT = _Kept()


class Outbox:
    """Of one child: gathers what its attempts say. Made on the loop; threads may speak too."""

    def __init__(self, send: Callable[[Reports], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked: list[Asked] = []
        self._answers: dict[int, concurrent.futures.Future[None]] = {}
        self._number = 0

    def checkpoint(self, slot: int, value: str) -> Awaitable[None]:
        answer: concurrent.futures.Future[None] = concurrent.futures.Future()
        if threading.get_ident() == self._thread:
            self._ask(slot, value, answer)
            return asyncio.wrap_future(answer, loop=self._loop)
        self._loop.call_soon_threadsafe(self._ask, slot, value, answer)
        answer.result()
        return KEPT

    def _ask(self, slot: int, value: str, answer: concurrent.futures.Future[None]) -> None:
        """Whatever is asked in one turn of the loop travels together."""
        if not self._asked:
            self._loop.call_soon(self._flush)
        self._number += 1
        self._answers[self._number] = answer
        self._asked.append(Asked(slot, self._number, value))

    def _flush(self) -> None:
        asked, self._asked = self._asked, []
        self._send(Reports(asked=asked))

    def answered(self, kept: Kept) -> None:
        answer = self._answers.pop(kept.number)
        # False if the attempt was cancelled while it waited.
        if not answer.set_running_or_notify_cancel():
            return
        if kept.problem is None:
            answer.set_result(None)
        else:
            answer.set_exception((Superseded if kept.superseded else StoreError)(kept.problem))


class Voice:
    """Of one attempt."""

    __slots__ = ("_outbox", "_slot")

    def __init__(self, outbox: Outbox, slot: int) -> None:
        self._outbox = outbox
        self._slot = slot

    def checkpoint(self, value: str) -> Awaitable[None]:
        return self._outbox.checkpoint(self._slot, value)
