"""How our processes run: a step again and again until told to stop, the only `while` of the background duties."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger(__name__)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def settle(*, cycles_after: int = 50_000) -> None:
    """Once a process has loaded what it needs: batches leave no cycles behind, so there is little to look for."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(cycles_after, 20, 20)


def uptime() -> float:
    """Seconds that go on while the machine sleeps, as a lease does; the same in all processes of the machine."""
    return time.clock_gettime(_CLOCK)


async def repeat(
    step: Callable[[], Awaitable[int]],
    *,
    every: float,
    stop: asyncio.Event,
    full: int = 1,
    wake: asyncio.Event | None = None,
    name: str = "",
) -> None:
    """At once again after a full batch, else after `every` seconds or so, or when woken. Errors are waited out."""
    while not stop.is_set():
        if wake is not None:
            wake.clear()
        try:
            done = await step()
        except Exception as error:
            log.error("step failed duty=%s error=%s: %s", name, type(error).__name__, error)
            done = 0
        if done < full:
            await pause(every * random.uniform(0.9, 1.1), stop, wake)


async def pause(seconds: float, *events: asyncio.Event | None) -> None:
    """Until the time is over or one of the events has come."""
    waits = [asyncio.ensure_future(event.wait()) for event in events if event is not None]
    try:
        await asyncio.wait(
            waits, timeout=None if seconds == float("inf") else seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for wait in waits:
            wait.cancel()
            with suppress(asyncio.CancelledError):
                await wait
