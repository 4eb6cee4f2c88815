"""Passes one node's hints of new work to everyone here who waits for some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Hints:
    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()
        self.closed = False

    @contextmanager
    def listening(self, wake: asyncio.Event) -> Iterator[None]:
        self._waiting.add(wake)
        try:
            yield
        finally:
            self._waiting.discard(wake)

    def tell(self) -> None:
        for wake in self._waiting:
            wake.set()

    def close(self) -> None:
        """The server is about to end: nobody is to wait here any longer."""
        self.closed = True
        self.tell()
