"""Claims as much as there is room for, a moment ahead of its time."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from rota.loop import pause
from rota.model.capacity import Capacity, less
from rota.model.execution import Claimed
from rota.model.retry import HandedBack, TooLate
from rota.model.worker import LOOKAHEAD, Handout, NewWorker
from rota.store.protocol import WorkSource
from rota.worker.children import Children
from rota.worker.reporter import BATCH, Reporter

log = logging.getLogger(__name__)

# A claim whose answer was lost may still commit: its lease is given back again and again for this long.
LOST_FOR = 60.0
# After a claim that found less than there was room for: work gathers, and one statement takes more of it.
BREATH = 0.005
MOST = 1000
# A claim may wait for work; when the worker ends, only an answer that is on its way is waited for.
ON_ITS_WAY = 0.1
# How long a claim may wait for work where another waits for its turn.
TURN = 0.5
STRANGE_AFTER = timedelta(seconds=60)
# Work seldom comes alone: for a while after some was found the next look comes sooner than any hint could.
BUSY_FOR = 1.0
BUSY_POLL = 0.02


class Claimer:
    def __init__(
        self,
        source: WorkSource,
        worker: NewWorker,
        children: Children,
        reporter: Reporter,
        is_paused: Callable[[], bool] = lambda: False,
        ready_file: Path | None = None,
    ) -> None:
        self._source = source
        self._worker = worker
        self._children = children
        self._reporter = reporter
        self._is_paused = is_paused
        self._ready_file = ready_file
        self._marked_at = 0.0
        self._lost: dict[int, float] = {}
        self._busy_until = 0.0
        self.freed = asyncio.Event()
        self.ended = asyncio.Event()

    async def step(self) -> int:
        """Waits for room first, so that nothing is taken that cannot be run. 0 means: nothing to do for now."""
        room = await self._room()
        if room <= 0 or self.ended.is_set():
            return 1
        await self.give_back_lost()
        if self._is_paused():
            return 0
        asked = min(room, MOST)
        if taken := await self._claim(asked):
            self._busy_until = time.monotonic() + BUSY_FOR
            if taken < asked:
                await asyncio.sleep(BREATH)
            return 1
        if time.monotonic() < self._busy_until:
            await pause(BUSY_POLL, self.ended)
            return 1
        return 0

    async def _room(self) -> int:
        self.freed.clear()
        room = self._free()
        if room <= self._worker.concurrency // 4:
            await pause(BREATH if room > 0 else 0.25, self.freed)
            room = self._free()
        return room

    def _free(self) -> int:
        # What cannot be told is not added to (the database is slow or away), nor what nobody could run.
        if self._reporter.backlog >= 4 * BATCH or not self._children.able:
            return 0
        return self._worker.concurrency - self._children.running

    async def _claim(self, limit: int) -> int:
        """Isolated tasks by themselves: what could only wait here is left to others, and in nobody's way."""
        isolated = self._children.isolated
        together = [task for task in self._worker.tasks if task not in isolated]
        alone = min(limit, self._children.lone_room) if isolated else 0
        taken = await self._take(sorted(isolated), alone) if alone > 0 else 0
        return taken + (await self._take(together, limit - taken) if limit > taken else 0)

    async def _take(self, tasks: Sequence[str], limit: int) -> int:
        lease_id = secrets.randbits(62)
        sent = time.monotonic()
        try:
            handout = await self._handout(tasks, limit, lease_id)
        except BaseException:
            self._lose(lease_id)
            raise
        now = time.monotonic()
        self._mark_ready(now)
        # The answer came later than it was computed, so counting from here is never early.
        work = sorted(handout.executions, key=lambda c: c.due_in - 5 * c.priority)
        if self.ended.is_set() or self._is_paused():
            for claimed in work:
                self._reporter.tell(claimed, HandedBack(), None)
        elif work:
            starts = [(claimed, now + max(0.0, claimed.due_in)) for claimed in work]
            for claimed, at in starts:
                if _is_late(claimed, at - sent):
                    self._reporter.tell(claimed, TooLate(), None)
            self._children.start([(claimed, at) for claimed, at in starts if not _is_late(claimed, at - sent)])
        self._children.cancel(handout.cancelled, handout.terminated)
        return len(work)

    def _capacity(self) -> Capacity:
        total = self._worker.resources
        return Capacity(total, less(total, self._children.taken), tuple(self._worker.labels))

    async def _handout(self, tasks: Sequence[str], limit: int, lease_id: int) -> Handout:
        asking = asyncio.create_task(
            self._source.claim(
                self._worker.id,
                queues=self._worker.queues,
                tasks=tasks,
                limit=limit,
                lookahead=LOOKAHEAD,
                lease_id=lease_id,
                capacity=self._capacity(),
                patience=self._patience(tasks),
            )
        )
        ending = asyncio.create_task(self.ended.wait())
        try:
            await asyncio.wait([asking, ending], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await asyncio.wait([asking], timeout=ON_ITS_WAY)
            if asking.done():
                return asking.result()
            self._lose(lease_id)
            return Handout([], [])
        finally:
            asking.cancel()
            ending.cancel()

    def _patience(self, tasks: Sequence[str]) -> float | None:
        """Where there are isolated tasks two claims take turns, and neither may wait long for itself."""
        isolated = self._children.isolated
        return None if not isolated else 0.0 if isolated.issuperset(tasks) else TURN

    def _mark_ready(self, now: float) -> None:
        """Whoever asks whether the worker is well looks at how old the file is."""
        if self._ready_file is not None and now >= self._marked_at + 1.0:
            self._marked_at = now
            self._ready_file.touch()

    def _lose(self, lease_id: int) -> None:
        self._lost[lease_id] = time.monotonic() + LOST_FOR

    async def reconcile(self) -> int:
        """A step: what the store believes we hold and nobody here knows of is given back. The last of the nets."""
        held = await self._source.held(self._worker.id, older_than=STRANGE_AFTER)
        strange = [c for c in held if not self._children.knows(c) and not self._reporter.knows(c)]
        for claimed in strange:
            log.error("held but unknown execution=%s attempt=%d", claimed.key, claimed.attempt)
            self._reporter.tell(claimed, HandedBack(), None)
        return 0

    async def give_back_lost(self) -> None:
        if self._lost:
            await self._source.give_back(self._worker.id, list(self._lost))
            now = time.monotonic()
            self._lost = {lease_id: until for lease_id, until in self._lost.items() if until > now}


def _is_late(claimed: Claimed, after: float) -> bool:
    """Counted from when we asked: the answer may have taken its time."""
    return claimed.start_within is not None and claimed.start_within < after
