"""The user's side of the store: jobs come in and change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rota.model.capacity import needs_text
from rota.model.definition import Definition, policy_text
from rota.model.errors import StoreError
from rota.model.execution import ExecutionKey
from rota.model.job import IdempotencyKey, Job, JobStatus, NewJob, OnConflict, bucket_of, shard_of
from rota.model.rules import Overlap, rules_text
from rota.store.postgres.database import TURNS, Connection, Database, tried_again
from rota.store.postgres.queries import Queries
from rota.store.postgres.wake import Wake
from rota.store.protocol import (
    Accepted,
    KeyReused,
    OneShotChange,
    Receipt,
    RecurringChange,
    Refusal,
    Replayed,
    Submission,
    Taken,
)

SQL = Queries("jobs.sql")
KEY_LIFE = timedelta(hours=24)
_STILL_OPEN = "another execution of its job is open, and the job allows no overlap"
_NO_LETTER = "there is no such dead letter"
_LaneKey = tuple[str, str, int, int, str]
_T = TypeVar("_T", NewJob, ExecutionKey)


class Jobs:
    db: Database
    wake: Wake
    _lanes: dict[_LaneKey, int]

    async def shards(self) -> int:
        return await self.db.shards()

    async def now(self) -> datetime:
        return await self.db.now()

    async def secret(self) -> bytes:
        found: bytes = (await self.db.fetch("select secret from cluster"))[0][0]
        return found

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        jobs = [job for submission in submissions for job in submission.jobs]
        lanes = await self._lanes_of([job.definition for job in jobs])
        receipts = await self._submit(submissions, dict(zip((job.id for job in jobs), lanes, strict=True)))
        if any(job.fires_at is None for job in jobs):
            self.wake.others()
        return receipts

    @tried_again
    async def _submit(self, submissions: Sequence[Submission], lanes: dict[UUID, int]) -> list[Receipt]:
        keyed = any(submission.key for submission in submissions)
        async with self.db.transaction() as connection:
            settled = await _settle_names(connection, submissions, self.db.time) if keyed else {}
            unique = {index: s for index, s in enumerate(submissions) if index not in settled and s.jobs[0].unique}
            # All keys of the call first, in one order, so that two nodes cannot wait for each other.
            for job in sorted((s.jobs[0] for s in unique.values()), key=_unique_key):
                await self._holder(connection, job)
            for index, submission in unique.items():
                # Each is stored before the next one is judged, which may want to know whether it is there.
                if taken := await self._settle_unique(connection, submission):
                    settled[index] = taken
                else:
                    await self._store(connection, submission.jobs, lanes)
            plain = [s for index, s in enumerate(submissions) if index not in settled and index not in unique]
            accepted_at = await self._store(connection, [job for s in plain for job in s.jobs], lanes)
        return [
            settled[index] if index in settled else Accepted(submission.jobs, accepted_at)
            for index, submission in enumerate(submissions)
        ]

    async def _holder(self, connection: Connection, job: NewJob) -> UUID:
        """Whose its unique key is; held until the transaction ends."""
        holder: UUID = await connection.fetchval(SQL.hold_unique, *_unique_key(job), job.id, KEY_LIFE, self.db.time)
        return holder

    async def _settle_unique(self, connection: Connection, submission: Submission) -> Taken | None:
        """None when its unique key is its own now."""
        [job] = submission.jobs
        assert job.unique is not None
        other = await self._holder(connection, job)
        if other == job.id:
            return None
        # A look of its own: what the last holder stored while we waited is seen only now.
        is_there = await connection.fetchval(SQL.still_unique, shard_of(other), other, job.unique.while_active)
        if is_there and job.unique.on_conflict is not OnConflict.REPLACE:
            if submission.key is not None:
                # It stands for nothing: the same may be asked again.
                await connection.execute(SQL.forget_name, job.definition.user_id, submission.key.name)
            return Taken(other, job.unique.on_conflict is OnConflict.REJECT)
        await connection.execute(SQL.take_unique, *_unique_key(job), job.id, KEY_LIFE, self.db.time)
        if is_there:
            await self._cancel(connection, shard_of(other), [other])
        return None

    async def replay(self, user_id: str, key: IdempotencyKey) -> list[UUID] | None:
        rows = await self.db.fetch(SQL.names_taken, [user_id], [key.name])
        return list(rows[0]["job_ids"]) if rows and rows[0]["digest"] == key.digest else None

    async def _store(self, connection: Connection, jobs: list[NewJob], lanes: dict[UUID, int]) -> datetime:
        for shard, batch in _by_shard([job for job in jobs if job.recurring is None]):
            await connection.fetch(
                SQL.submit_one_shots,
                shard,
                [job.id for job in batch],
                [job.fires_at for job in batch],
                [lanes[job.id] for job in batch],
                *_columns(job.definition for job in batch),
                self.db.time,
            )
        for shard, batch in _by_shard([job for job in jobs if job.recurring is not None]):
            users, tasks, queues, priorities, parameters, policies = _columns(job.definition for job in batch)
            await connection.execute(
                SQL.submit_recurring,
                shard,
                [job.id for job in batch],
                users,
                tasks,
                queues,
                priorities,
                [lanes[job.id] for job in batch],
                parameters,
                policies,
                [msgspec.json.encode(job.recurring).decode() for job in batch],
                [rules_text(job.rules) for job in batch],
                [job.rules.overlap.value for job in batch],
                [job.rules.calendar for job in batch],
                [job.rules.auto_pause_after for job in batch],
                [job.since for job in batch],
                [job.fires_at for job in batch],
                self.db.time,
            )
        # now() is the transaction's time: the same instant that was stored with every row above.
        accepted_at: datetime = await connection.fetchval("select coalesce($1::timestamptz, now())", self.db.time)
        return accepted_at

    async def _lanes_of(self, definitions: Sequence[Definition]) -> list[int]:
        keys = [_lane_key(definition) for definition in definitions]
        missing = {key for key in keys if key not in self._lanes}
        if missing:
            columns = [list(column) for column in zip(*missing, strict=True)]
            await self.db.fetch(SQL.intern_lanes, *columns)
            for row in await self.db.fetch(SQL.lanes_of, *columns):
                self._lanes[(row["queue"], row["task_id"], row["priority"], row["bucket"], row["needs"])] = row["id"]
        return [self._lanes[key] for key in keys]

    @tried_again
    async def change_recurring(self, change: RecurringChange) -> bool:
        [lane] = await self._lanes_of([change.definition])
        shard = shard_of(change.id)
        try:
            async with self.db.transaction() as connection:
                changed = await connection.fetch(
                    SQL.change_recurring,
                    shard,
                    change.id,
                    change.revision,
                    change.seen_next,
                    *_fields(change.definition, lane),
                    msgspec.json.encode(change.schedule).decode(),
                    rules_text(change.rules),
                    change.rules.overlap.value,
                    change.rules.calendar,
                    change.rules.auto_pause_after,
                    change.since,
                    change.next_fires_at,
                )
                withdrawn = {row[0] for row in await connection.fetch(SQL.withdraw, shard, change.id, change.since)}
                if not changed or withdrawn != set(change.withdraws):
                    raise _Outdated
                await connection.execute(SQL.unfire, shard, change.id, len(withdrawn))
                if change.rules.overlap is Overlap.ALLOW:
                    await connection.execute(SQL.release_all, shard, change.id)
        except _Outdated:
            return False
        return True

    async def change_one_shot(self, change: OneShotChange) -> bool:
        [lane] = await self._lanes_of([change.definition])
        rows = await self.db.fetch(
            SQL.change_one_shot,
            shard_of(change.key.job_id),
            *change.key,
            *_fields(change.definition, lane),
            change.fires_at,
        )
        return bool(rows)

    @tried_again
    async def cancel_jobs(self, job_ids: Sequence[UUID]) -> None:
        for shard in {shard_of(job_id) for job_id in job_ids}:
            mine = [job_id for job_id in job_ids if shard_of(job_id) == shard]
            async with self.db.transaction() as connection:
                await self._cancel(connection, shard, mine)

    async def _cancel(self, connection: Connection, shard: int, job_ids: list[UUID]) -> None:
        await connection.execute(SQL.cancel_recurring, shard, job_ids)
        # Before what is open is looked at: a backfill that is making more is waited for here.
        await connection.execute(SQL.cancel_backfills, shard, job_ids, self.db.time)
        await stop_jobs(connection, shard, job_ids, self.db.time, backfills=True)

    @tried_again
    async def cancel_executions(self, keys: Sequence[ExecutionKey]) -> None:
        for shard, mine in _by_shard(keys):
            async with self.db.transaction() as connection:
                for key in sorted(mine):
                    await connection.execute(SQL.ask_execution_to_stop, shard, *key)
                await connection.execute(SQL.end_pending, shard, *_key_columns(mine), self.db.time)

    @tried_again
    async def pause(
        self, job_id: UUID, *, note: str | None, until: datetime | None, revision: int | None = None
    ) -> bool:
        shard = shard_of(job_id)
        async with self.db.transaction() as connection:
            held = await connection.fetch(SQL.hold_state, shard, job_id)
            if not held or held[0]["state"] == JobStatus.CANCELLED:
                return False
            if revision is not None and held[0]["revision"] != revision:
                return False
            withdrawn = await self._withdraw(connection, shard, job_id)
            if held[0]["state"] == JobStatus.FINISHED and not withdrawn:
                return False
            cursor = min([*withdrawn, *([held[0]["next_fires_at"]] if held[0]["next_fires_at"] else [])])
            await connection.execute(SQL.pause, shard, job_id, self.db.time, until, note, cursor, len(withdrawn))
        return True

    async def _withdraw(self, connection: Connection, shard: int, job_id: UUID) -> list[datetime]:
        """What was planned ahead and comes after everything that was begun, or cancelled, ahead of its time."""
        begun_at = await connection.fetchval(SQL.begun_ahead, shard, job_id, self.db.time)
        return [row["fires_at"] for row in await connection.fetch(SQL.withdraw, shard, job_id, begun_at)]

    async def resume(self, job_id: UUID, *, catch_up: bool) -> bool:
        return bool(await self.db.fetch(SQL.resume, shard_of(job_id), job_id, catch_up, self.db.time))

    async def run_now(self, job: Job) -> ExecutionKey | None:
        key = await (self._run_recurring(job) if job.schedule else self._run_one_shot(job))
        self.wake.others()
        return key

    @tried_again
    async def _run_recurring(self, job: Job) -> ExecutionKey | None:
        shard = shard_of(job.id)
        try:
            async with self.db.transaction() as connection:
                if not await connection.fetch(SQL.hold_job, shard, job.id):
                    raise _Outdated
                if job.rules is not None and job.rules.overlap is not Overlap.ALLOW:
                    withdrawn = await self._withdraw(connection, shard, job.id)
                    if withdrawn:
                        await connection.execute(SQL.rewind, shard, job.id, min(withdrawn), len(withdrawn))
                return await self._run_again(connection, job, fires_at=None)
        except _Outdated:
            return None

    @tried_again
    async def _run_one_shot(self, job: Job) -> ExecutionKey | None:
        last = job.last_execution
        assert last is not None, "a one-shot job is its execution"
        if last.is_open:
            made_due = await self.db.fetch(SQL.make_due, shard_of(job.id), *last.key, self.db.time)
            return last.key if made_due else None
        try:
            async with self.db.transaction() as connection:
                await connection.execute(SQL.forget_letters, shard_of(job.id), job.id)
                return await self._run_again(connection, job, fires_at=last.fires_at)
        except _Outdated:
            return None

    async def _run_again(self, connection: Connection, job: Job, *, fires_at: datetime | None) -> ExecutionKey:
        [lane] = await self._lanes_of([job.definition])
        definition = job.definition
        rows = await connection.fetch(
            SQL.run_again,
            shard_of(job.id),
            job.id,
            fires_at,
            lane,
            definition.user_id,
            definition.task_id,
            definition.queue,
            definition.priority,
            definition.parameters,
            policy_text(definition.policy),
            job.schedule is not None,
            job.rules is not None and job.rules.overlap is not Overlap.ALLOW,
            self.db.time,
        )
        if not rows:
            raise _Outdated
        return ExecutionKey(job.id, *rows[0])

    async def redrive(self, keys: Sequence[ExecutionKey]) -> tuple[list[ExecutionKey], list[Refusal]]:
        again: dict[ExecutionKey, ExecutionKey] = {}
        remaining: set[ExecutionKey] = set()
        for shard, mine in _by_shard(keys):
            for turn in range(TURNS):
                try:
                    redriven, left = await self._redrive(shard, mine)
                except StoreError as error:
                    # Another one of a job was let go at the same moment; the next look sees it.
                    if turn == TURNS - 1 or not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                        raise
                    continue
                again |= redriven
                remaining |= left
                break
        self.wake.others()
        refused = [Refusal(key, _STILL_OPEN if key in remaining else _NO_LETTER) for key in keys if key not in again]
        return list(again.values()), refused

    @tried_again
    async def _redrive(
        self, shard: int, keys: list[ExecutionKey]
    ) -> tuple[dict[ExecutionKey, ExecutionKey], set[ExecutionKey]]:
        """The new key of each letter that runs again, and the letters of these jobs that are left."""
        job_ids = [key.job_id for key in keys]
        async with self.db.transaction() as connection:
            await connection.execute(SQL.hold_jobs_of_letters, shard, job_ids)
            rows = await connection.fetch(SQL.redrive, shard, *_key_columns(keys), self.db.time)
            left = await connection.fetch(SQL.letters_left, shard, job_ids)
        old = [ExecutionKey(row["job_id"], row["fires_at"], row["old_run"]) for row in rows]
        again = {key: key._replace(run=row["run"]) for key, row in zip(old, rows, strict=True)}
        return again, {ExecutionKey(*row) for row in left}


async def stop_jobs(
    connection: Connection,
    shard: int,
    job_ids: list[UUID],
    time: datetime | None,
    *,
    terminate: bool = False,
    backfills: bool = False,
) -> None:
    """What is open of these jobs is asked to stop; what nobody holds ends here."""
    await connection.execute(SQL.ask_jobs_to_stop, shard, job_ids, terminate, not backfills)
    keys = await connection.fetch(SQL.open_of_jobs, shard, job_ids)
    await connection.execute(SQL.end_pending, shard, *_key_columns(keys), time)


async def end_cancelled(
    connection: Connection, shard: int, rows: Sequence[asyncpg.Record], time: datetime | None
) -> None:
    """Of rows that are pending again, those whose cancellation was asked for meanwhile end here."""
    asked = [row for row in rows if row["cancel_requested"]]
    if asked:
        await connection.execute(SQL.end_pending, shard, *_key_columns(asked), time)


def _unique_key(job: NewJob) -> tuple[str, str]:
    assert job.unique is not None
    return job.definition.user_id, job.unique.key


class _Outdated(Exception):
    """What the change was made from is no longer so; rolls the transaction back."""


async def _settle_names(
    connection: Connection, submissions: Sequence[Submission], time: datetime | None
) -> dict[int, Receipt]:
    """The submissions that are not new, by their place. Of two with one key in one call the first counts."""
    keyed = [(i, s, s.jobs[0].definition.user_id, s.key) for i, s in enumerate(submissions) if s.key]
    first = {(user, key.name): (i, s, key) for i, s, user, key in reversed(keyed)}
    taken = await connection.fetch(
        SQL.take_names,
        [user for user, _ in first],
        [name for _, name in first],
        [",".join(str(job.id) for job in s.jobs) for _, s, _ in first.values()],
        [key.digest for _, _, key in first.values()],
        KEY_LIFE,
        time,
    )
    new = {(row["user_id"], row["name"]) for row in taken}
    winners = {first[name][0] for name in new}
    known = await connection.fetch(SQL.names_taken, [user for _, _, user, _ in keyed], [k.name for *_, k in keyed])
    by_name = {(row["user_id"], row["name"]): row for row in known}
    settled: dict[int, Receipt] = {}
    for index, _, user, key in keyed:
        if index not in winners:
            row = by_name[(user, key.name)]
            settled[index] = Replayed(list(row["job_ids"])) if row["digest"] == key.digest else KeyReused()
    return settled


def _lane_key(definition: Definition) -> _LaneKey:
    d = definition
    return d.queue, d.task_id, d.priority, bucket_of(d.user_id), needs_text(d.policy.needs)


def _columns(definitions: Iterable[Definition]) -> tuple[list[object], ...]:
    rows = [(d.user_id, d.task_id, d.queue, d.priority, d.parameters, policy_text(d.policy)) for d in definitions]
    return tuple(list(column) for column in zip(*rows, strict=True))


def _fields(definition: Definition, lane: int) -> tuple[object, ...]:
    d = definition
    return d.task_id, d.queue, d.priority, lane, d.parameters, policy_text(d.policy)


def _key_columns(keys: Iterable[ExecutionKey | asyncpg.Record]) -> tuple[list[object], list[object], list[object]]:
    rows = list(keys)
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _by_shard(items: Iterable[_T]) -> Iterable[tuple[int, list[_T]]]:
    batches: defaultdict[int, list[_T]] = defaultdict(list)
    for item in items:
        batches[shard_of(item.id if isinstance(item, NewJob) else item.job_id)].append(item)
    return batches.items()
