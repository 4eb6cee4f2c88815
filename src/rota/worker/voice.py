"""What an attempt says while it runs, on its way from task code to the supervisor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from rota.model.errors import Conflict, StoreError, Superseded
from rota.worker.transcript import Transcript
from rota.worker.wire import Asked, Kept, Line, Progressed, Reports

# How long lines wait for company.
GATHER_LINES = 0.1
# How often it is told how far attempts are.
BETWEEN_PROGRESS = 0.5


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
        # Re-entrant: the garbage collector may run somebody's __del__ under it, and that may print.
        self.lock = threading.RLock()
        self._lines: list[Line] = []
        self._lines_sent_at = 0.0
        self._progress: dict[int, Progressed] = {}
        self._progress_sent_at = 0.0
        self._asked: list[Asked] = []
        self._answers: dict[int, concurrent.futures.Future[None]] = {}
        self._number = 0
        self._is_forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """A process that a task has forked has no loop and no supervisor; its lock may be held by nobody who lives."""
        self.lock = threading.RLock()
        self._is_forked = True

    def add_line(self, slot: int, seq: int, text: str) -> None:
        """Under the lock, so that lines of one attempt go out in the order of their numbers."""
        if self._is_forked:
            return
        self._lines.append(Line(slot, seq, time.monotonic(), text))
        if len(self._lines) == 1:
            self._loop.call_soon_threadsafe(self._flush_lines_soon)

    def _flush_lines_soon(self) -> None:
        self._loop.call_later(max(0.0, self._lines_sent_at + GATHER_LINES - time.monotonic()), self._flush_lines)

    def _flush_lines(self) -> None:
        if self._lines:
            self._send(Reports(lines=self.take_lines()))

    def take_lines(self) -> list[Line]:
        """What has been said and not been sent; whoever takes it sends it."""
        if not self._lines:
            return []
        with self.lock:
            lines, self._lines = self._lines, []
        self._lines_sent_at = time.monotonic()
        return lines

    def show_progress(self, progress: Progressed) -> None:
        """Under the lock."""
        if self._is_forked:
            return
        self._progress[progress.slot] = progress
        if len(self._progress) == 1:
            self._loop.call_soon_threadsafe(self._flush_progress_soon)

    def _flush_progress_soon(self) -> None:
        wait = self._progress_sent_at + BETWEEN_PROGRESS - time.monotonic()
        self._loop.call_later(max(0.0, wait), self._flush_progress)

    def _flush_progress(self) -> None:
        with self.lock:
            progress, self._progress = self._progress, {}
        if progress:
            self._progress_sent_at = time.monotonic()
            self._send(Reports(progress=list(progress.values())))

    def checkpoint(self, slot: int, value: str) -> Awaitable[None]:
        if self._is_forked:
            raise Conflict("Only the process of the task itself keeps checkpoints, not one that it has forked.")
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
            self._loop.call_soon(self._flush_asked)
        self._number += 1
        self._answers[self._number] = answer
        self._asked.append(Asked(slot, self._number, value))

    def _flush_asked(self) -> None:
        asked, self._asked = self._asked, []
        self._send(Reports(lines=self.take_lines(), asked=asked))

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
    """Of one attempt. What is said after its end is heard by nobody."""

    __slots__ = ("_is_over", "_outbox", "_slot", "_transcript")

    def __init__(self, outbox: Outbox, slot: int) -> None:
        self._outbox = outbox
        self._slot = slot
        self._is_over = False
        # Most attempts log nothing, and should pay nothing for it.
        self._transcript: Transcript | None = None

    def checkpoint(self, value: str) -> Awaitable[None]:
        return self._outbox.checkpoint(self._slot, value)

    def progress(self, fraction: float, note: str) -> None:
        with self._outbox.lock:
            if not self._is_over:
                self._outbox.show_progress(Progressed(self._slot, fraction, note))

    def log(self, text: str) -> None:
        self._add(lambda transcript: transcript.entry(text))

    def write(self, stream: str, text: str) -> None:
        """What came on a standard stream, in pieces of any size."""
        self._add(lambda transcript: transcript.piece(stream, text))

    def _add(self, lines_of: Callable[[Transcript], list[tuple[int, str]]]) -> None:
        with self._outbox.lock:
            if self._is_over:
                return
            self._transcript = self._transcript or Transcript()
            for seq, line in lines_of(self._transcript):
                self._outbox.add_line(self._slot, seq, line)

    def end(self) -> None:
        if self._transcript is not None:
            self._add(Transcript.rest)
        self._is_over = True
