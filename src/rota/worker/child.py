"""A child process: runs user code, and nothing else does. `python -m rota.worker.child FD TRUST_FD [APP]`."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import uvloop

from rota.loop import settle, uptime
from rota.model.errors import RotaError
from rota.model.execution import ExecutionKey
from rota.model.retry import HandedBack, Outcome
from rota.settings import ResultSettings
from rota.worker.builtin import builtin
from rota.worker.capture import capture
from rota.worker.context import Context
from rota.worker.executor import execute, printable
from rota.worker.grace import CANCEL_GRACE, OVERTIME
from rota.worker.limits import Limits
from rota.worker.results import Locations
from rota.worker.tasks import App, load_app
from rota.worker.voice import Outbox, Voice
from rota.worker.wire import Channel, Orders, Report, Reports, Start

THREADS = 1000
TRUST = struct.Struct("d")


class Child:
    def __init__(self, app: App, locations: Locations) -> None:
        self._app = app
        self._locations = locations
        self._threads = ThreadPoolExecutor(THREADS)
        self._waiting: dict[int, asyncio.TimerHandle] = {}
        self._running: dict[int, tuple[asyncio.Task[None], Context]] = {}
        self._ended: list[Report] = []
        self.gone = asyncio.Event()

    async def run(self, end: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = Limits()
        _, channel = await self._loop.create_connection(lambda: Channel(Orders, self._obey, self.gone.set), sock=end)
        self._channel = channel
        self._outbox = Outbox(channel.send)
        isolated = [task.name for task in self._app.tasks.values() if task.isolated]
        channel.send(Reports(tasks=sorted(self._app.tasks), isolated=isolated))
        await self.gone.wait()

    def _obey(self, orders: Orders) -> None:
        now = time.monotonic()
        for start in orders.start:
            if start.at <= now:
                self._begin(start)
            else:
                self._waiting[start.slot] = self._loop.call_later(start.at - now, self._begin_waiting, start)
        for slot in orders.cancel:
            self._cancel(slot, OVERTIME if slot in orders.hurried else CANCEL_GRACE)
        for kept in orders.kept:
            self._outbox.answered(kept)
        if orders.drain:
            for slot in list(self._waiting):
                self._hand_back(slot)

    def _begin_waiting(self, start: Start) -> None:
        # Timers have the loop's resolution and may come a hair early; nothing starts before its instant.
        early = start.at - time.monotonic()
        if early > 0:
            self._waiting[start.slot] = self._loop.call_later(early, self._begin_waiting, start)
            return
        del self._waiting[start.slot]
        self._begin(start)

    def _begin(self, start: Start) -> None:
        context = Context(
            key=ExecutionKey(start.job_id, start.fires_at, start.run),
            task_id=start.task_id,
            user_id=start.user_id,
            attempt=start.attempt,
            fence=start.attempt,
            last_checkpoint=None if start.checkpoint is None else msgspec.json.decode(start.checkpoint),
            _voice=(voice := Voice(self._outbox, start.slot)),
        )
        self._running[start.slot] = self._loop.create_task(self._execute(start, context, voice)), context

    async def _execute(self, start: Start, context: Context, voice: Voice) -> None:
        started_at = time.monotonic()
        task = self._app.tasks.get(start.task_id)
        outcome = await execute(
            task,
            start.parameters,
            start.timeout,
            self._threads,
            context,
            result_location=start.result_location,
            locations=self._locations,
            limits=self._limits,
        )
        voice.end()
        del self._running[start.slot]
        self._tell(start.slot, outcome, started_at)

    def _cancel(self, slot: int, grace: float) -> None:
        if slot in self._waiting:
            self._hand_back(slot)
        elif slot in self._running:
            task, context = self._running[slot]
            context.cancelled = True
            context.grace = grace
            task.cancel()

    def _hand_back(self, slot: int) -> None:
        self._waiting.pop(slot).cancel()
        self._tell(slot, HandedBack(), None)

    def _tell(self, slot: int, outcome: Outcome, started_at: float | None) -> None:
        """Whatever ends in one turn of the loop travels together."""
        if not self._ended:
            self._loop.call_soon(self._flush)
        self._ended.append(Report(slot, outcome, started_at))

    def _flush(self) -> None:
        # With all they have said: it is to be kept before they are known to have ended.
        self._channel.send(Reports(ended=self._ended, lines=self._outbox.take_lines()))
        self._ended = []


def watch_trust(fd: int) -> None:
    """Ends the process when the supervisor has gone silent past its lease: somebody else may run our work by then."""
    trust = mmap.mmap(fd, TRUST.size, prot=mmap.PROT_READ)

    def watch() -> None:
        forever = threading.Event()
        while True:
            (until,) = TRUST.unpack_from(trust)
            left = until - uptime()
            if left <= 0:
                os._exit(70)
            forever.wait(min(left, 1.0))

    threading.Thread(target=watch, name="rota-trust", daemon=True).start()


def die_with_parent() -> None:
    """The closed socket tells a child that listens; this reaches one that does not. Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    # Signals meant for the whole terminal group are the supervisor's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()
    end = socket.socket(fileno=int(sys.argv[1]))
    # Passed on to us; not to what tasks start.
    end.set_inheritable(False)
    os.set_inheritable(int(sys.argv[2]), False)
    watch_trust(int(sys.argv[2]))
    app = App()
    try:
        locations = Locations(ResultSettings.read().locations)
        if len(sys.argv) > 3:
            app.include(load_app(sys.argv[3]))
    except BaseException as error:
        _say_broken(end, error)
        return
    app.include(builtin)
    capture()
    # Less bold than elsewhere: what tasks leave behind may be large.
    settle(cycles_after=10_000)
    uvloop.run(Child(app, locations).run(end))
    # Threads of tasks may still be running; the supervisor is gone and their work is not ours any more.
    os._exit(0)


def _say_broken(end: socket.socket, error: BaseException) -> None:
    async def say() -> None:
        loop = asyncio.get_running_loop()
        transport, channel = await loop.create_connection(lambda: Channel(Orders, print, lambda: None), sock=end)
        words = printable(error) if isinstance(error, RotaError) else f"{type(error).__name__}: {printable(error)}"
        channel.send(Reports(broken=words))
        transport.close()

    asyncio.run(say())


if __name__ == "__main__":
    main()
