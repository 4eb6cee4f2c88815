"""How long attempts may take: one timer for all that run on a loop. One for each would cost more than a small task."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self


class Limits:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._running: set[Limit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = float("inf")

    def within(self, seconds: float) -> Limit:
        """For a `with`: whatever runs in it longer than that is cancelled, and a TimeoutError comes out of it."""
        return Limit(self, seconds)

    def add(self, limit: Limit) -> None:
        self._running.add(limit)
        if limit.over_at < self._looks_at:
            self._look_at(limit.over_at)

    def discard(self, limit: Limit) -> None:
        self._running.discard(limit)

    def _look_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = moment
        self._timer = self.loop.call_later(max(0.0, moment - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._looks_at = None, float("inf")
        now = time.monotonic()
        for limit in [limit for limit in self._running if limit.over_at <= now]:
            self._running.discard(limit)
            limit.expire()
        if self._running:
            self._look_at(min(limit.over_at for limit in self._running))


class Limit:
    """Of one attempt. Cancellation that somebody else has asked for is theirs to answer, as with `asyncio.timeout`."""

    __slots__ = ("_cancelling", "_limits", "_seconds", "_task", "expired", "over_at")

    def __init__(self, limits: Limits, seconds: float) -> None:
        self._limits = limits
        self._seconds = seconds
        self.expired = False

    def __enter__(self) -> Self:
        # Which loop runs is asked of the system each time, so it is told here.
        task = asyncio.current_task(self._limits.loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self.over_at = time.monotonic() + self._seconds
        self._limits.add(self)
        return self

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._limits.discard(self)
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
