"""The worker's side of the store: claim, renew, finish."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rota.model.capacity import Capacity, Queued, less, needs_of, shares
from rota.model.definition import policy_of
from rota.model.errors import StoreUnavailable
from rota.model.execution import Checkpoint, Claimed, Ending, ExecutionKey, Lapsed
from rota.model.job import shard_of
from rota.model.log import NewLine
from rota.model.progress import NewProgress
from rota.model.worker import LEASE, Handout, NewWorker, Renewal, Wish
from rota.store.postgres.database import Database, tried_again
from rota.store.postgres.fronts import EVERYTHING, Front
from rota.store.postgres.jobs import end_cancelled
from rota.store.postgres.queries import Queries

SQL = Queries("work.sql")
CLAIM = SQL.claim.format(take=SQL.take)
CLAIM_IN_NEED = SQL.claim_in_need.format(take=SQL.take)
_Fence = tuple[UUID, datetime, int, int, int]
_Fenced = TypeVar("_Fenced", Ending, Checkpoint)
TOO_LATE = "DeadlineExceeded: it was not done in time."
# How often a row that keeps changing under our hands is looked at again.
PATIENCE = 20


class _Asked(NamedTuple):
    """Of a claim, as its statement wants it."""

    worker_id: str
    queues: Sequence[str]
    tasks: Sequence[str]
    limit: int
    lookahead: timedelta
    lease_id: int


class Work:
    db: Database
    _fronts: defaultdict[int, Front]
    _needs = False
    _needs_until = 0.0

    async def register(self, worker: NewWorker) -> bool:
        rows = await self.db.renew(
            SQL.register,
            worker.id,
            worker.host,
            worker.pid,
            worker.queues,
            worker.tasks,
            worker.concurrency,
            msgspec.json.encode(worker.resources).decode(),
            worker.labels,
            LEASE,
            self.db.time,
        )
        return bool(rows)

    async def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Sequence[str],
        limit: int,
        lookahead: timedelta,
        lease_id: int,
        capacity: Capacity = Capacity(),  # noqa: B008 - frozen
        patience: float | None = None,
    ) -> Handout:
        claimed: list[Claimed] = []
        shards = list(range(await self.db.shards()))
        random.shuffle(shards)
        if await self._somebody_needs_something():
            # Not more than half of the room, or they might leave none to what needs nothing.
            for shard in shards:
                asked = _Asked(worker_id, queues, tasks, (limit + 1) // 2 - len(claimed), lookahead, lease_id)
                claimed += await self._claim_in_need(shard, asked, _beside(capacity, claimed))
        for shard in shards:
            if len(claimed) < limit:
                asked = _Asked(worker_id, queues, tasks, limit - len(claimed), lookahead, lease_id)
                claimed += await self._claim(shard, asked)
        return Handout(claimed, *await self._stops(worker_id))

    async def _claim(self, shard: int, asked: _Asked) -> list[Claimed]:
        front = self._fronts[shard]
        floors, began = front.floors(), time.monotonic()
        try:
            rows = await self.db.fetch(CLAIM, shard, *asked, self.db.time, floors)
        except StoreUnavailable:
            front.gave_up(time.monotonic() - began)
            raise
        claimed = [Claimed(*row) for row in rows]
        front.seen(claimed, time.monotonic() - began, everything=floors == EVERYTHING)
        return claimed

    async def _claim_in_need(self, shard: int, asked: _Asked, capacity: Capacity) -> list[Claimed]:
        """Of what asks for resources or labels, as much as fits."""
        worker_id, queues, tasks, limit, lookahead, lease_id = asked
        if limit <= 0:
            return []
        rows = await self.db.fetch(SQL.queued_in_need, shard, worker_id, queues, tasks, limit, lookahead, self.db.time)
        queued = [Queued(row["id"], needs_of(row["needs"]), row["count"], row["waited"]) for row in rows]
        taken = shares(queued, capacity, room=limit)
        if not taken:
            return []
        lanes, counts = list(taken), list(taken.values())
        rows = await self.db.fetch(
            CLAIM_IN_NEED, shard, worker_id, lanes, counts, limit, lookahead, lease_id, self.db.time
        )
        return [Claimed(*row) for row in rows]

    async def _somebody_needs_something(self) -> bool:
        """Asked again every second: most never need anything, and their claims should not pay for the others."""
        if time.monotonic() >= self._needs_until:
            self._needs = (await self.db.fetch(SQL.lanes_in_need))[0]["there"]
            self._needs_until = time.monotonic() + 1.0
        return self._needs

    @tried_again
    async def give_back(self, worker_id: str, lease_ids: Sequence[int]) -> int:
        returned = 0
        for shard in range(await self.db.shards()):
            async with self.db.transaction() as connection:
                rows = await connection.fetch(SQL.give_back, shard, worker_id, lease_ids)
                await end_cancelled(connection, shard, rows, self.db.time)
            returned += len(rows)
        return returned

    async def held(self, worker_id: str, *, older_than: timedelta) -> list[Claimed]:
        claimed: list[Claimed] = []
        for shard in range(await self.db.shards()):
            rows = await self.db.fetch(SQL.held, shard, worker_id, older_than, self.db.time)
            claimed += [Claimed(*row) for row in rows]
        return claimed

    async def renew(self, worker_id: str) -> Renewal:
        alive = await self.db.renew(SQL.renew, worker_id, self.db.time)
        wish = Wish(alive[0]["wish"]) if alive and alive[0]["wish"] else None
        return Renewal(bool(alive), *await self._stops(worker_id), wish)

    async def wish(self, worker_id: str, wish: Wish | None) -> bool:
        return bool(await self.db.renew(SQL.wish, worker_id, wish))

    async def _stops(self, worker_id: str) -> tuple[list[ExecutionKey], list[ExecutionKey]]:
        """What this worker should stop, and what of it at once."""
        rows: list[asyncpg.Record] = []
        for shard in range(await self.db.shards()):
            rows += await self.db.renew(SQL.cancelled_of, shard, worker_id)
        return (
            [ExecutionKey(*row[:3]) for row in rows],
            [ExecutionKey(*row[:3]) for row in rows if row["terminate"]],
        )

    async def finish(self, endings: Sequence[Ending]) -> list[Ending]:
        first, refused = _first_words(endings)
        for shard, batch in by_shard(first):
            refused += await self._finish(shard, batch)
        return refused

    async def _finish(self, shard: int, batch: list[Ending]) -> list[Ending]:
        left = await self._settle(shard, batch, self._end)
        return await self._not_told_before(shard, left) if left else []

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        # Of several of one attempt the last counts, and all go its way.
        newest = {_fence_of(checkpoint): checkpoint for checkpoint in checkpoints}
        refused: set[_Fence] = set()
        for shard, batch in by_shard(newest.values()):
            refused |= {_fence_of(checkpoint) for checkpoint in await self._settle(shard, batch, self._mark)}
        return [checkpoint for checkpoint in checkpoints if _fence_of(checkpoint) in refused]

    async def _settle(
        self, shard: int, batch: list[_Fenced], apply: Callable[[int, list[_Fenced]], Awaitable[list[_Fenced]]]
    ) -> list[_Fenced]:
        """Those whose fence does not hold."""
        # In key order, so that a worker and a reaper with the same rows cannot wait for each other.
        batch.sort(key=lambda fenced: (fenced.job_id.bytes, fenced.fires_at, fenced.run))
        left = await apply(shard, batch)
        for _ in range(PATIENCE):
            # A row that somebody changed while we waited for it, say a cancellation, is seen only by a new look.
            if not left or not await self.db.fetch(SQL.still_held, shard, *_fence(left)):
                break
            left = await apply(shard, left)
        return left

    async def _mark(self, shard: int, batch: list[Checkpoint]) -> list[Checkpoint]:
        """Those that were not accepted."""
        values = [checkpoint.value for checkpoint in batch]
        return _without(batch, await self.db.fetch(SQL.checkpoint, shard, *_fence(batch), values))

    async def _end(self, shard: int, batch: list[Ending]) -> list[Ending]:
        """Those that were not accepted."""
        [[ended]] = await self.db.fetch(
            SQL.finish,
            shard,
            *_fence(batch),
            [ending.verdict for ending in batch],
            [ending.failures for ending in batch],
            [ending.crashes for ending in batch],
            [ending.lapses for ending in batch],
            [ending.after for ending in batch],
            [ending.error for ending in batch],
            [ending.result for ending in batch],
            [ending.started_ago for ending in batch],
            self.db.time,
        )
        if len(ended) == len(batch):
            return []
        accepted = set(ended)
        return [ending for number, ending in enumerate(batch, start=1) if number not in accepted]

    async def _not_told_before(self, shard: int, left: list[Ending]) -> list[Ending]:
        verdicts = [ending.verdict.value for ending in left]
        errors = [ending.error for ending in left]
        return _without(left, await self.db.look(SQL.told_before, shard, *_fence(left), verdicts, errors))

    async def keep_logs(self, lines: Sequence[NewLine]) -> None:
        for shard in {shard_of(line.job_id) for line in lines}:
            mine = [line for line in lines if shard_of(line.job_id) == shard]
            columns = zip(*map(msgspec.structs.astuple, mine), strict=True)
            await self.db.fetch(SQL.keep_logs, shard, *(list(column) for column in columns), self.db.time)

    async def note_progress(self, progress: Sequence[NewProgress]) -> None:
        for shard in {shard_of(each.job_id) for each in progress}:
            # In key order, so that two who write the same rows cannot wait for each other.
            mine = sorted(msgspec.structs.astuple(each) for each in progress if shard_of(each.job_id) == shard)
            columns = [list(column) for column in zip(*mine, strict=True)]
            await self.db.fetch(SQL.note_progress, shard, *columns, self.db.time)

    async def retire(self, worker_id: str) -> None:
        await self.db.renew(SQL.retire, worker_id, self.db.time)

    async def bury(self) -> list[str]:
        return [row["id"] for row in await self.db.renew(SQL.bury, self.db.time)]

    async def expire(self, *, limit: int) -> int:
        ended = 0
        for shard in range(await self.db.shards()):
            ended += (await self.db.fetch(SQL.expire, shard, limit, self.db.time, TOO_LATE))[0][0]
        return ended

    async def expired(self, *, limit: int) -> list[Lapsed]:
        lapsed: list[Lapsed] = []
        for shard in range(await self.db.shards()):
            rows = await self.db.fetch(SQL.expired, shard, limit - len(lapsed))
            lapsed += [Lapsed(Claimed(*row[:-1]), row["worker_id"]) for row in rows]
        return lapsed


def _beside(capacity: Capacity, claimed: Sequence[Claimed]) -> Capacity:
    taken = [policy_of(each.policy).needs.resources for each in claimed]
    return msgspec.structs.replace(capacity, free=less(capacity.free, taken))


def by_shard(told: Iterable[_Fenced]) -> Iterable[tuple[int, list[_Fenced]]]:
    batches: defaultdict[int, list[_Fenced]] = defaultdict(list)
    for each in told:
        batches[shard_of(each.job_id)].append(each)
    return batches.items()


def _first_words(endings: Sequence[Ending]) -> tuple[Sequence[Ending], list[Ending]]:
    """An attempt ends once: of two different endings in one call the first counts, and the other is refused."""
    if len({ending.job_id for ending in endings}) == len(endings):
        return endings, []
    first: dict[_Fence, Ending] = {}
    refused = [ending for ending in endings if first.setdefault(_fence_of(ending), ending) != ending]
    return list(first.values()), refused


def _fence(told: Sequence[Ending] | Sequence[Checkpoint]) -> tuple[list[object], ...]:
    return (
        [each.job_id for each in told],
        [each.fires_at for each in told],
        [each.run for each in told],
        [each.attempt for each in told],
        [each.lease_id for each in told],
    )


def _fence_of(told: Ending | Checkpoint) -> _Fence:
    return told.job_id, told.fires_at, told.run, told.attempt, told.lease_id


def _without(told: list[_Fenced], rows: Sequence[asyncpg.Record]) -> list[_Fenced]:
    fences = {tuple(row) for row in rows}
    return [each for each in told if _fence_of(each) not in fences]
