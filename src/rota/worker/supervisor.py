"""A worker: a supervisor and its children. The supervisor never runs user code."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from msgspec import Struct

from rota.loop import pause, repeat, uptime
from rota.model.errors import StoreError, StoreUnavailable
from rota.model.execution import Claimed
from rota.model.retry import Outcome
from rota.model.worker import RENEWAL, NewWorker
from rota.store.protocol import WorkSource
from rota.worker.checkpointer import Checkpointer, Question
from rota.worker.children import Children, Span
from rota.worker.claimer import Claimer
from rota.worker.gauge import Gauge
from rota.worker.keeper import Keeper
from rota.worker.machine import machine
from rota.worker.reporter import Reporter
from rota.worker.scribe import Scribe
from rota.worker.wire import Line

log = logging.getLogger(__name__)

# Being woken is a hint, so this alone keeps the promise of two seconds.
POLL = 0.2
# How long a worker that ends tries to tell what it knows; what it cannot tell is taken back from it later.
LAST_WORDS = 10.0
CHILDREN = max(1, min(os.cpu_count() or 1, 8))
Woken = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]


class WorkerSettings(Struct, frozen=True):
    """What a worker is told at the command line."""

    app: str | None = None
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    children: int = CHILDREN
    drain: float = 30.0
    resources: dict[str, float] = {}
    labels: tuple[str, ...] = ()
    span: Span = Span()
    ready_file: Path | None = None


class Supervisor:
    def __init__(self, source: WorkSource, woken: Woken, settings: WorkerSettings) -> None:
        self._source = source
        self._woken = woken
        self._settings = settings
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Life after life: a worker that was declared dead comes back under a new id."""
        is_drained = False
        while not stop.is_set() and not is_drained:
            is_drained = await _Life(self._source, self._woken, self._settings).live(stop, self.ready)


class _Life:
    """From one registration to the end of that worker id."""

    def __init__(self, source: WorkSource, woken: Woken, settings: WorkerSettings) -> None:
        self._source = source
        self._woken = woken
        self._settings = settings
        self._id = f"w-{secrets.token_hex(5)}"
        self._scribe = Scribe(source)
        self._reporter = Reporter(source, self._id, self._scribe)
        self._children = Children(
            settings.app, settings.children, self, concurrency=settings.concurrency, span=settings.span
        )
        self._checkpointer = Checkpointer(source)
        self._gauge = Gauge(source)
        self._claimer: Claimer | None = None

    def told(self, claimed: Claimed, outcome: Outcome, started_at: float | None) -> None:
        self._gauge.forget(claimed)
        self._reporter.tell(claimed, outcome, started_at)
        if self._claimer is not None:
            self._claimer.freed.set()

    def asked(self, question: Question) -> None:
        self._checkpointer.ask(question)

    def logged(self, claimed: Claimed, line: Line) -> None:
        self._scribe.take_down(claimed, line)

    def progressed(self, claimed: Claimed, fraction: float, note: str) -> None:
        self._gauge.show(claimed, fraction, note)

    async def live(self, stop: asyncio.Event, ready: asyncio.Event) -> bool:
        """True when its operator wanted it to end."""
        keeper = Keeper(self._source, self._id, self._children)
        try:
            worker = self._introduce(await self._children.open())
            if not await self._register(worker, keeper, stop):
                return False
            log.info("worker ready worker=%s tasks=%s", self._id, ",".join(worker.tasks))
            ready.set()
            await self._work(worker, keeper, stop)
            return keeper.drained.is_set()
        finally:
            self._children.kill()
            if self._settings.ready_file is not None:
                self._settings.ready_file.unlink(missing_ok=True)

    def _introduce(self, tasks: list[str]) -> NewWorker:
        return NewWorker(
            id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self._settings.queues),
            tasks=tasks,
            concurrency=self._settings.concurrency,
            resources=machine() | self._settings.resources,
            labels=list(self._settings.labels),
        )

    async def _register(self, worker: NewWorker, keeper: Keeper, stop: asyncio.Event) -> bool:
        while not stop.is_set():
            keeper.trust_from(uptime())
            try:
                return await self._source.register(worker)
            except StoreUnavailable as error:
                log.error("cannot register error=%s", error)
                await pause(1.0, stop)
        return False

    async def _work(self, worker: NewWorker, keeper: Keeper, stop: asyncio.Event) -> None:
        claimer = self._claimer = Claimer(
            self._source, worker, self._children, self._reporter, lambda: keeper.is_paused, self._settings.ready_file
        )
        over = asyncio.Event()
        wake = asyncio.Event()
        async with self._woken(wake.set), asyncio.TaskGroup() as duties:
            telling = duties.create_task(self._reporter.run())
            duties.create_task(repeat(keeper.renew, every=RENEWAL.total_seconds(), stop=over, name="keeper"))
            duties.create_task(repeat(keeper.watch, every=0.25, stop=over, name="watch"))
            marks = self._checkpointer
            duties.create_task(repeat(marks.step, every=0.2, stop=over, wake=marks.something, name="checkpointer"))
            duties.create_task(repeat(self._scribe.step, every=0.1, stop=over, name="scribe"))
            duties.create_task(repeat(self._gauge.step, every=1.0, stop=over, name="gauge"))
            duties.create_task(repeat(claimer.reconcile, every=30.0, stop=over, name="reconcile"))
            claiming = duties.create_task(_claim(claimer, (stop, keeper.lost, keeper.drained), wake))
            await claiming
            if not keeper.lost.is_set():
                await self._drain(claimer, keeper)
            self._children.kill()
            self._reporter.close()
            await asyncio.wait([telling], timeout=LAST_WORDS)
            over.set()
            telling.cancel()
        with suppress(StoreUnavailable):
            await self._source.retire(self._id)

    async def _drain(self, claimer: Claimer, keeper: Keeper) -> None:
        """What has begun may end; what has not is handed back, as is what does not end in time."""
        log.info("worker draining worker=%s running=%d", self._id, self._children.running)
        self._children.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain
        with suppress(StoreError):
            await claimer.give_back_lost()
        while self._children.running and (left := deadline - loop.time()) > 0 and not keeper.lost.is_set():
            claimer.freed.clear()
            await pause(left, claimer.freed, keeper.lost)


async def _claim(claimer: Claimer, ends: Sequence[asyncio.Event], wake: asyncio.Event) -> None:
    """Until the worker is to stop, or to drain, or has lost its lease."""

    async def end() -> None:
        await pause(float("inf"), *ends)
        claimer.ended.set()
        claimer.freed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(end())
        tasks.create_task(repeat(claimer.step, every=POLL, stop=claimer.ended, wake=wake, name="claimer"))
