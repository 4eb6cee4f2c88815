"""The child processes of a supervisor: starting them, giving them work, telling what became of it."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from rota.model.definition import policy_of
from rota.model.errors import Invalid
from rota.model.execution import Claimed, ExecutionKey
from rota.model.retry import Crashed, HandedBack, Outcome, Raised, Stopped, TimedOut, timeout_of
from rota.worker.checkpointer import SUPERSEDED, Question
from rota.worker.child import TRUST
from rota.worker.grace import CANCEL_GRACE, NEIGHBOURS_GRACE, OVERTIME
from rota.worker.machine import confine, is_stopped, memory_of, set_free
from rota.worker.wire import Asked, Channel, Kept, Line, Orders, Reports, Start

log = logging.getLogger(__name__)

# Attempts in processes of their own: each costs an interpreter and its memory, and two for each processor keep it busy
# while one of them waits for something.
ALONE_AT_ONCE = 2 * (os.cpu_count() or 1)
# A child that somebody has stopped is given this long to go on.
FROZEN_FOR = 5.0
# Lone children that wait, born, for an isolated attempt: an interpreter takes a third of a second to be ready, and more
# with a large app.
READY = 2


class WorkerBroken(Invalid):
    """The app cannot be loaded; starting again would not help."""


class Attempt(Struct):
    """An attempt in a child. `over_at` is when the child is held to account for it, `verdict` what it is then."""

    claimed: Claimed
    starts_at: float
    over_at: float
    verdict: Outcome
    resources: dict[str, float]


class Listener(Protocol):
    """Hears what attempts say while they run, and how they ended."""

    def told(self, claimed: Claimed, outcome: Outcome, started_at: float | None) -> None: ...
    def asked(self, question: Question) -> None: ...
    def logged(self, claimed: Claimed, line: Line) -> None: ...
    def progressed(self, claimed: Claimed, fraction: float, note: str) -> None: ...


class ChildProcess:
    """The supervisor's view of one child."""

    def __init__(
        self, process: subprocess.Popen[bytes], listener: Listener, lost: Callable[[ChildProcess], None]
    ) -> None:
        self.process = process
        self.attempts: dict[int, Attempt] = {}
        self.tasks: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.isolated: list[str] = []
        self.condemned_at: float | None = None
        self.stopped_at: float | None = None
        self.is_retiring = False
        self.born_at = time.monotonic()
        self.idle = asyncio.Event()
        self._listener = listener
        self._told = listener.told
        self._lost = lost
        self._next_slot = 0
        self.channel: Channel | None = None

    def start(self, work: Iterable[tuple[Claimed, float]]) -> None:
        orders = []
        for claimed, starts_at in work:
            try:
                policy = policy_of(claimed.policy)
            except msgspec.MsgspecError as error:
                self._told(claimed, Raised(f"its policy cannot be read: {error}", final=True), None)
                continue
            slot = self._next_slot = self._next_slot + 1
            timeout, resources = timeout_of(claimed, policy), policy.needs.resources
            over_at = starts_at + timeout + OVERTIME
            self.attempts[slot] = Attempt(claimed, starts_at, over_at, TimedOut(timeout), resources)
            orders.append(
                Start(
                    slot,
                    claimed.task_id,
                    claimed.parameters,
                    timeout,
                    starts_at,
                    claimed.job_id,
                    claimed.fires_at,
                    claimed.run,
                    claimed.user_id,
                    claimed.attempt,
                    claimed.checkpoint,
                    policy.result_location,
                )
            )
        self._send(Orders(start=orders))
        self._look_idle()

    def cancel(self, keys: set[ExecutionKey], terminated: set[ExecutionKey]) -> None:
        now = time.monotonic()
        for attempt in self.attempts.values():
            if attempt.claimed.key in terminated:
                attempt.over_at = min(attempt.over_at, now + OVERTIME)
        # Each is told once: the store repeats itself until the attempt has ended, and cleaning up takes its time.
        slots = [
            slot
            for slot, attempt in self.attempts.items()
            if attempt.claimed.key in keys and not isinstance(attempt.verdict, Stopped)
        ]
        for slot in slots:
            attempt = self.attempts[slot]
            attempt.verdict = Stopped()
            attempt.over_at = min(attempt.over_at, now + CANCEL_GRACE)
        if slots:
            hurried = [slot for slot in slots if self.attempts[slot].claimed.key in terminated]
            self._send(Orders(cancel=slots, hurried=hurried))

    @property
    def begun(self) -> int:
        """How many attempts it was ever given."""
        return self._next_slot

    def drain(self) -> None:
        self._send(Orders(drain=True))

    def _send(self, orders: Orders) -> None:
        if self.channel is not None:
            self.channel.send(orders)

    def received(self, reports: Reports) -> None:
        if reports.tasks is not None and not self.tasks.done():
            self.isolated = reports.isolated
            self.tasks.set_result(reports.tasks)
        if reports.broken is not None and not self.tasks.done():
            self.tasks.set_exception(WorkerBroken(f"The app cannot be loaded: {reports.broken}"))
        for line in reports.lines:
            if (speaker := self.attempts.get(line.slot)) is not None:
                self._listener.logged(speaker.claimed, line)
        for progress in reports.progress:
            if (speaker := self.attempts.get(progress.slot)) is not None:
                self._listener.progressed(speaker.claimed, progress.fraction, progress.note)
        for asked in reports.asked:
            self._ask(asked)
        for report in reports.ended:
            attempt = self.attempts.pop(report.slot, None)
            if attempt is not None:
                self._told(attempt.claimed, report.outcome, report.started_at)
        self._look_idle()

    def _ask(self, asked: Asked) -> None:
        attempt = self.attempts.get(asked.slot)
        is_open, answer = partial(self._runs, asked.slot), partial(self._answer, asked.number)
        if attempt is None:
            answer(SUPERSEDED, True)
        else:
            self._listener.asked(Question(attempt.claimed, asked.value, is_open, answer))

    def _runs(self, slot: int) -> bool:
        return slot in self.attempts

    def _answer(self, number: int, problem: str | None, superseded: bool) -> None:
        self._send(Orders(kept=[Kept(number, problem, superseded)]))

    def is_overdue(self, now: float) -> bool:
        """Some attempt here should be over and is not; the process itself has to go."""
        return any(attempt.over_at <= now for attempt in self.attempts.values())

    def may_be_killed(self, now: float) -> bool:
        assert self.condemned_at is not None
        others = any(attempt.over_at > now for attempt in self.attempts.values())
        return not others or now >= self.condemned_at + NEIGHBOURS_GRACE

    def kill(self) -> None:
        """Ends the process; what it was killed for gets its verdict, the neighbours are handed back."""
        now = time.monotonic()
        self.process.kill()
        self.process.wait()
        for attempt in self._take_attempts():
            began = attempt.starts_at if attempt.starts_at <= now else None
            self._told(attempt.claimed, attempt.verdict if attempt.over_at <= now else HandedBack(), began)

    def gone(self) -> None:
        """The channel is closed: the process is dead, or as good as dead."""
        if not self.tasks.done():
            self.tasks.set_exception(WorkerBroken("The child process ended before it was ready."))
        now = time.monotonic()
        self.process.kill()
        code = self.process.wait()
        attempts = self._take_attempts()
        alone = sum(attempt.starts_at <= now for attempt in attempts) == 1
        for attempt in attempts:
            began = attempt.starts_at <= now
            outcome: Outcome = Crashed(f"the process ended with code {code}", alone) if began else HandedBack()
            self._told(attempt.claimed, outcome, attempt.starts_at if began else None)
        self._lost(self)

    def _take_attempts(self) -> list[Attempt]:
        attempts, self.attempts = list(self.attempts.values()), {}
        self._look_idle()
        return attempts

    def _look_idle(self) -> None:
        if self.attempts:
            self.idle.clear()
        else:
            self.idle.set()


class Span(Struct, frozen=True):
    """How much a child may see before another takes its place: attempts, seconds of life, MiB of memory."""

    attempts: int | None = None
    age: float | None = None
    memory: float | None = None

    def is_over(self, child: ChildProcess, now: float) -> bool:
        return (
            (self.attempts is not None and child.begun >= self.attempts)
            or (self.age is not None and now - child.born_at >= self.age)
            or (self.memory is not None and memory_of(child.process.pid) >= self.memory)
        )


class Children:
    def __init__(
        self,
        app: str | None,
        count: int,
        listener: Listener,
        *,
        concurrency: int,
        span: Span = Span(),  # noqa: B008 - frozen
    ) -> None:
        self._app = app
        self._count = count
        self._listener = listener
        self._told = listener.told
        self._alone_at_once = min(concurrency, ALONE_AT_ONCE)
        self._span = span
        self._succession: asyncio.Task[None] | None = None
        self.isolated: frozenset[str] = frozenset()
        self._all: list[ChildProcess] = []
        self._unborn: list[ChildProcess] = []
        self._closing = False
        self._births: set[asyncio.Task[None]] = set()
        # Suspects of a crash and isolated tasks wait here for their turn; each runs in a child made for it.
        self._lone: deque[tuple[Claimed, float]] = deque()
        self._alone: list[ChildProcess] = []
        self._isolating = 0
        self._ready: deque[ChildProcess] = deque()
        self._stocking = False
        self._trust_file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the children live
        self._trust_file.truncate(TRUST.size)
        self._trust = mmap.mmap(self._trust_file.fileno(), TRUST.size)
        self.trust_until(float("inf"))

    def trust_until(self, moment: float) -> None:
        """Children end themselves after this monotonic time unless it is moved on."""
        if self._closing:
            return
        TRUST.pack_into(self._trust, 0, moment)

    async def open(self) -> list[str]:
        """Starts the children; the tasks they know."""
        self._all = [await self._spawn() for _ in range(self._count)]
        self._unborn.clear()
        tasks = (await asyncio.gather(*(child.tasks for child in self._all)))[0]
        self.isolated = frozenset(self._all[0].isolated)
        self._stock()
        return tasks

    async def _spawn(self) -> ChildProcess:
        ours, theirs = socket.socketpair()
        trust = self._trust_file.fileno()
        command = [sys.executable, "-m", "rota.worker.child", str(theirs.fileno()), str(trust)]
        # From this very thread: a child dies with the thread that made it.
        process = subprocess.Popen(  # noqa: ASYNC220
            [*command, self._app] if self._app else command,
            pass_fds=(theirs.fileno(), trust),
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        theirs.close()
        child = ChildProcess(process, self._listener, self._replace)
        self._unborn.append(child)
        loop = asyncio.get_running_loop()
        _, child.channel = await loop.create_connection(lambda: Channel(Reports, child.received, child.gone), sock=ours)
        return child

    def _replace(self, child: ChildProcess) -> None:
        for others in (self._ready, self._unborn):
            if child in others:
                others.remove(child)
        if child not in self._all:
            return
        self._all.remove(child)
        if not self._closing:
            log.warning("child ended pid=%d code=%s", child.process.pid, child.process.returncode)
            self._in_background(self._respawn())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._births.add(birth := asyncio.create_task(work))
        birth.add_done_callback(self._births.discard)

    async def _respawn(self) -> None:
        # A child that dies at once must not become a busy loop of births.
        delay = 0.2
        while not self._closing:
            await asyncio.sleep(delay)
            delay = min(5.0, delay * 2)
            try:
                self._all.append(await self._born())
                return
            except Exception as error:
                log.error("child cannot start error=%s", error)

    async def _born(self) -> ChildProcess:
        child = await self._spawn()
        await child.tasks
        if child not in self._unborn:
            raise WorkerBroken("The child process ended as soon as it was ready.")
        self._unborn.remove(child)
        return child

    @property
    def able(self) -> list[ChildProcess]:
        """Those that may be given work."""
        return [child for child in self._all if child.condemned_at is None and not child.is_retiring]

    @property
    def running(self) -> int:
        return sum(len(child.attempts) for child in self._everyone) + len(self._lone)

    @property
    def lone_room(self) -> int:
        """How many isolated attempts are worth claiming: those that can begin, and as many again that wait here."""
        return 2 * self._alone_at_once - self._isolating - len(self._lone)

    @property
    def taken(self) -> list[dict[str, float]]:
        """The resources of what is here: they come back when the attempt is over, however it ends."""
        running = [attempt.resources for child in self._everyone for attempt in child.attempts.values()]
        return [*filter(None, running), *(_resources_of(claimed) for claimed, _ in self._lone)]

    @property
    def _everyone(self) -> list[ChildProcess]:
        return [*self._all, *self._alone, *self._ready]

    def knows(self, claimed: Claimed) -> bool:
        attempts = (attempt.claimed for child in self._everyone for attempt in child.attempts.values())
        return claimed.lease_id in {each.lease_id for each in attempts if each.key == claimed.key} or any(
            each.key == claimed.key for each, _ in self._lone
        )

    def start(self, work: Sequence[tuple[Claimed, float]]) -> None:
        """Spread over the children, the least busy first; suspects and isolated ones in children of their own."""
        able = sorted(self.able, key=lambda child: len(child.attempts))
        together = [each for each in work if not self._runs_alone(each[0])]
        for turn, child in enumerate(able):
            child.start(together[turn :: len(able)])
        for claimed, _ in together if not able else ():
            self._told(claimed, HandedBack(), None)
        self._lone += [each for each in work if self._runs_alone(each[0])]
        self._isolate()

    def _runs_alone(self, claimed: Claimed) -> bool:
        return claimed.crashes > 0 or claimed.task_id in self.isolated

    def _isolate(self) -> None:
        """Someone for each that waits, as many as may run at once."""
        unborn = self._isolating - len(self._alone)
        while not self._closing and unborn < len(self._lone) and self._isolating < self._alone_at_once:
            self._isolating += 1
            unborn += 1
            self._in_background(self._isolate_one())

    async def _isolate_one(self) -> None:
        """One attempt in a child made for it, and gone with it."""
        try:
            child = self._ready.popleft() if self._ready else await self._born()
            self._alone.append(child)
            self._stock()
            # While the child was born the worker may have begun to drain.
            if self._lone:
                claimed, starts_at = self._lone.popleft()
                if resources := _resources_of(claimed):
                    confine(child.process.pid, resources)
                child.start([(claimed, max(starts_at, time.monotonic()))])
                await child.idle.wait()
            self._retire(child)
        except Exception as error:
            log.error("child cannot start error=%s", error)
            self._hand_back_lone(after=5.0)
        finally:
            self._isolating -= 1
            self._isolate()

    def _stock(self) -> None:
        if self.isolated and not self._stocking and not self._closing:
            self._stocking = True
            self._in_background(self._restock())

    async def _restock(self) -> None:
        """Until enough wait; whoever cannot be born now is tried again when one is needed."""
        try:
            while not self._closing and len(self._ready) < min(READY, self._alone_at_once):
                self._ready.append(await self._born())
        except Exception as error:
            log.error("child cannot start error=%s", error)
        finally:
            self._stocking = False

    def _retire(self, child: ChildProcess) -> None:
        child.kill()
        if child in self._alone:
            self._alone.remove(child)
            set_free(child.process.pid)
        if child.channel is not None:
            child.channel.close()

    def _hand_back_lone(self, after: float | None = None) -> None:
        while self._lone:
            claimed, _ = self._lone.popleft()
            self._told(claimed, HandedBack(after), None)

    def cancel(self, keys: Iterable[ExecutionKey], terminated: Iterable[ExecutionKey] = ()) -> None:
        """Tells them to stop; who does not within the grace period, or at once if terminated, is killed."""
        wanted, hurried = set(keys), set(terminated)
        for child in self._everyone if wanted else ():
            child.cancel(wanted, hurried)
        stopped = [each for each in self._lone if each[0].key in wanted]
        for each in stopped:
            self._lone.remove(each)
            self._told(each[0], HandedBack(), None)

    def drain(self) -> None:
        self._hand_back_lone()
        for child in self._everyone:
            child.drain()

    async def watch(self) -> int:
        """A step: condemns children with something overdue, kills the condemned when their time has come."""
        now = time.monotonic()
        for child in self._everyone:
            if child.condemned_at is None and child.is_overdue(now):
                child.condemned_at = now
                child.drain()
            if child.condemned_at is not None and child.may_be_killed(now):
                child.kill()
            self._watch_stopped(child, now)
        self._recycle(now)
        return 0

    def _watch_stopped(self, child: ChildProcess, now: float) -> None:
        """One that was frozen cannot be told from a busy one by its silence, but the system knows."""
        if not is_stopped(child.process.pid):
            child.stopped_at = None
        elif child.stopped_at is None:
            child.stopped_at = now
        elif now - child.stopped_at >= FROZEN_FOR:
            log.warning("child is stopped and is killed pid=%d", child.process.pid)
            child.kill()

    def _recycle(self, now: float) -> None:
        """One at a time: its successor is born first, then it gets no more work, and goes when it has none left."""
        for child in [child for child in self._all if child.is_retiring and not child.attempts]:
            self._all.remove(child)
            self._retire(child)
        if self._succession is None or self._succession.done():
            worn = next((child for child in self.able if self._span.is_over(child, now)), None)
            if worn is not None:
                self._succession = asyncio.create_task(self._succeed(worn))

    async def _succeed(self, worn: ChildProcess) -> None:
        try:
            self._all.append(await self._born())
            worn.is_retiring = True
        except Exception as error:
            log.error("child cannot start error=%s", error)

    def kill(self) -> None:
        self._closing = True
        self._hand_back_lone()
        for birth in [*self._births, *([self._succession] if self._succession else [])]:
            birth.cancel()
        for child in [*self._everyone, *self._unborn]:
            self._retire(child)
        for children in (self._all, self._ready, self._unborn):
            children.clear()
        self._trust.close()
        self._trust_file.close()


def _resources_of(claimed: Claimed) -> dict[str, float]:
    """None where the policy cannot be read: such an attempt fails as soon as it is to start."""
    try:
        return policy_of(claimed.policy).needs.resources
    except msgspec.MsgspecError:
        return {}
