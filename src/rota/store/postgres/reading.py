"""People look: lists over what is open and what has ended, one page at a time.

A page is keyed on (fires_at, job_id, run), which never changes when an execution ends, and one statement reads open and
ended rows in one snapshot: a walk meets every row that was there when it began exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import product
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from msgspec.structs import replace

from rota.model.execution import Attempt, Execution, ExecutionKey, Status, Verdict
from rota.model.job import Job, JobStatus, Pause, one_shot_job, shard_of
from rota.model.ledger import Accounts, Revision
from rota.model.log import LogLine, LogPosition
from rota.model.progress import Progress
from rota.model.query import ExecutionFilter, JobFilter, Page, Position, Slice
from rota.model.rules import rules_of
from rota.model.worker import Wish, Worker, WorkerState
from rota.store.postgres.database import Database
from rota.store.postgres.queries import Queries
from rota.store.postgres.rows import definition_in, schedule_of

SQL = Queries("reading.sql")
_OPEN = frozenset({Status.SCHEDULED, Status.QUEUED, Status.RETRYING, Status.RUNNING})
_ENDED = [Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.SKIPPED]
# One rule for what an open execution reads as, shown and asked for.
_OPEN_ROWS = SQL.open.format(status=SQL.open_status, source="executions")
_LATEST = SQL.latest_executions.format(open=_OPEN_ROWS, ended=SQL.ended)
_FIND_LETTERS = SQL.find_letters.format(letters=SQL.dead_letters)
_LEDGER_RUNS = SQL.ledger_runs.format(open=_OPEN_ROWS, ended=SQL.ended)
_LEDGER_SKIPS = SQL.ledger_skips.format(ended=SQL.ended)
_FIND = SQL.find_executions.format(open=_OPEN_ROWS, ended=SQL.ended)
_IS_NEWEST = f"not exists ({SQL.newer_run})"
# As the listing indexes have it.
_LISTED_BY = "(e.fires_at at time zone 'UTC')"
_Item = TypeVar("_Item")


class Reading:
    db: Database

    async def find_jobs(self, job_ids: Sequence[UUID]) -> list[Job]:
        """In the order asked; those that do not exist are left out."""
        found: dict[UUID, Job] = {}
        for shard in {shard_of(job_id) for job_id in job_ids}:
            mine = [job_id for job_id in job_ids if shard_of(job_id) == shard]
            rows = await self.db.look(SQL.recurring_jobs, shard, mine, self.db.time)
            last = await self._latest(shard, mine)
            found |= {row["id"]: _recurring_job(row, last.get(row["id"])) for row in rows}
            found |= {job_id: one_shot_job(run) for job_id, run in last.items() if not run.recurring}
        return [found[job_id] for job_id in job_ids if job_id in found]

    async def _latest(self, shard: int, job_ids: Sequence[UUID]) -> dict[UUID, Execution]:
        rows = await self.db.look(_LATEST, shard, job_ids, self.db.time)
        return {run.job_id: run for run in await self._with_progress(map(_execution, rows))}

    async def _with_progress(self, executions: Iterable[Execution]) -> list[Execution]:
        """Those that run with how far they are; only for them is it looked up."""
        found = list(executions)
        running = [e for e in found if e.status is Status.RUNNING]
        progress: dict[ExecutionKey, Progress] = {}
        for shard in {shard_of(e.job_id) for e in running}:
            mine = [(*e.key, e.attempt) for e in running if shard_of(e.job_id) == shard]
            columns = [list(column) for column in zip(*mine, strict=True)]
            rows = await self.db.look(SQL.progress, shard, *columns)
            progress |= {ExecutionKey(*row[:3]): Progress(*row[3:]) for row in rows}
        return [replace(e, progress=progress[e.key]) if e.key in progress else e for e in found]

    async def jobs(self, where: JobFilter, page: Page) -> Slice[Job]:
        rows = await _Listing(where.statuses, page).jobs(self.db, where)
        listed = rows[: page.limit]
        recurring = {job.id: job for job in await self.find_jobs([row["job_id"] for row in listed if row["is_job"]])}
        runs = await self._with_progress(_execution(row) for row in listed if not row["is_job"])
        one_shots = {run.key: one_shot_job(run) for run in runs}
        jobs = [
            recurring[row["job_id"]]
            if row["is_job"]
            else one_shots[ExecutionKey(row["job_id"], row["fires_at"], row["run"])]
            for row in listed
        ]
        return _slice(jobs, rows, page)

    async def accounts(self, job_id: UUID, *, start: datetime, end: datetime, limit: int) -> Accounts | None:
        asked = shard_of(job_id), job_id
        async with self.db.snapshot() as connection:
            jobs = await connection.fetch(SQL.ledger_job, *asked, self.db.time)
            if not jobs:
                return None
            past = await connection.fetch(SQL.ledger_revisions, *asked, start, end)
            runs = await connection.fetch(_LEDGER_RUNS, *asked, start, end, limit, self.db.time)
            skips = await connection.fetch(_LEDGER_SKIPS, *asked, start, end, limit)
        [job] = jobs
        revisions = [Revision(row["since"], row["until"], schedule_of(row["schedule"])) for row in past]
        return Accounts(
            status=JobStatus(job["state"]),
            cursor=job["cursor"],
            revisions=[*revisions, Revision(job["since"], None, schedule_of(job["schedule"]))],
            runs=[_execution(row) for row in runs],
            skips=[_execution(row) for row in skips],
            now=job["now"],
        )

    async def find_executions(self, keys: Sequence[ExecutionKey]) -> list[Execution]:
        return await self._find(_FIND, keys, self.db.time)

    async def find_letters(self, keys: Sequence[ExecutionKey]) -> list[Execution]:
        return await self._find(_FIND_LETTERS, keys)

    async def _find(self, query: str, keys: Sequence[ExecutionKey], *more: object) -> list[Execution]:
        found: dict[ExecutionKey, Execution] = {}
        for shard in {shard_of(key.job_id) for key in keys}:
            columns = zip(*(key for key in keys if shard_of(key.job_id) == shard), strict=True)
            rows = await self.db.look(query, shard, *(list(column) for column in columns), *more)
            found |= {execution.key: execution for execution in await self._with_progress(map(_execution, rows))}
        return [found[key] for key in keys if key in found]

    async def executions(self, where: ExecutionFilter, page: Page) -> Slice[Execution]:
        rows = await _Listing(where.statuses, page).executions(self.db, where)
        return _slice(await self._with_progress(map(_execution, rows[: page.limit])), rows, page)

    async def attempts(self, key: ExecutionKey) -> list[Attempt]:
        rows = await self.db.look(SQL.attempts, shard_of(key.job_id), *key)
        return [
            Attempt(
                key=key,
                attempt=row["attempt"],
                worker_id=row["worker_id"],
                verdict=Verdict(row["verdict"]),
                error=row["error"],
                started_at=row["started_at"],
                ended_at=row["ended_at"],
            )
            for row in rows
        ]

    async def logs(self, key: ExecutionKey, *, attempt: int | None, after: LogPosition, limit: int) -> list[LogLine]:
        rows = await self.db.look(SQL.logs, shard_of(key.job_id), *key, *after, attempt, limit)
        return [LogLine(*row) for row in rows]

    async def dead_letters(self, where: ExecutionFilter, page: Page) -> Slice[Execution]:
        rows = await _Listing(None, page).dead_letters(self.db, where)
        return _slice([_execution(row) for row in rows[: page.limit]], rows, page)

    async def workers(self) -> list[Worker]:
        rows = await self.db.look(SQL.workers, list(range(await self.db.shards())))
        return [_worker(row) for row in rows]


class _Listing:
    """Builds one list statement from fixed fragments with bound values."""

    def __init__(self, statuses: frozenset[Status] | None, page: Page) -> None:
        self._statuses = statuses
        self._page = page
        self._values: list[Any] = []

    async def executions(self, db: Database, where: ExecutionFilter) -> list[asyncpg.Record]:
        filters = self._common(where.user_id, where.task_id, where)
        if where.worker_id is not None:
            filters.append(f"e.worker_id = {self._bind(where.worker_id)}")
        if where.job_id is not None:
            shard = self._bind(shard_of(where.job_id))
            filters.append(f"e.shard = {shard}::smallint and e.job_id = {self._bind(where.job_id)}::uuid")
        return await self._fetch(db, self._open_and_ended(filters, [False, True]))

    async def jobs(self, db: Database, where: JobFilter) -> list[asyncpg.Record]:
        # Asking for statuses of executions alone leaves recurring jobs out, and the other way round.
        one_shots = [] if where.statuses == frozenset() else self._one_shots(where)
        recurring = [] if where.job_statuses == frozenset() else [self._recurring(where)]
        return await self._fetch(db, [*one_shots, *recurring])

    def _one_shots(self, where: JobFilter) -> list[str]:
        # A job that ran again is listed by its newest run only.
        return self._open_and_ended(self._common(where.user_id, where.task_id, where), [False], _IS_NEWEST)

    async def dead_letters(self, db: Database, where: ExecutionFilter) -> list[asyncpg.Record]:
        filters = self._common(where.user_id, where.task_id, where)
        return await self._fetch(db, [f"({SQL.dead_letters} where {self._all(filters)} {self._order()})"])

    def _common(self, user_id: str | None, task_id: str | None, where: JobFilter | ExecutionFilter) -> list[str]:
        filters = []
        if user_id is not None:
            filters.append(f"e.user_id = {self._bind(user_id)}")
        if task_id is not None:
            filters.append(f"e.task_id = {self._bind(task_id)}")
        if where.start is not None:
            filters.append(f"{_LISTED_BY} >= {self._bind(where.start)}::timestamptz at time zone 'UTC'")
        if where.end is not None:
            filters.append(f"{_LISTED_BY} <= {self._bind(where.end)}::timestamptz at time zone 'UTC'")
        if self._page.after is not None:
            # The first says it so that the index understands, the second exactly.
            filters.append(f"{_LISTED_BY} <= {self._bind(self._page.after.at)}::timestamptz at time zone 'UTC'")
            filters.append(f"(e.fires_at, e.job_id, e.run) < {self._position(self._page.after)}")
        return filters

    def _open_and_ended(self, filters: list[str], recurring: list[bool], lastly: str = "true") -> list[str]:
        """Only where the statuses asked for can be: a list of what has ended does not walk past what is open."""
        asked, parts = self._statuses, []
        if asked is None or asked & _OPEN:
            parts += self._open(filters, recurring, lastly)
        if asked is None or asked & frozenset(_ENDED):
            parts.append(self._ended([*filters, lastly], recurring))
        return parts

    def _open(self, filters: list[str], recurring: list[bool], lastly: str) -> list[str]:
        if self._statuses is not None:
            filters = [*filters, f"({SQL.open_status}) = any({self._bind([s.value for s in self._statuses])}::text[])"]
        kinds = f"{self._bind(recurring)}::boolean[]"
        # What is held is few rows and has no index by time: sorted, and then looked at until the page is full.
        held = self._all(["e.worker_id is not null", f"e.recurring = any({kinds})", *filters])
        order = "order by e.fires_at desc, e.job_id desc, e.run desc"
        source = f"(select * from executions e where {held} {order} offset 0)"
        rows = SQL.open.format(status=SQL.open_status, source=source)
        parts = [f"({rows} where {lastly} {order} limit {self._limit()})"]
        if self._statuses != frozenset({Status.RUNNING}):
            # One short ordered scan per part of the index, merged: no part is read further than the page needs.
            waiting = self._all(["e.worker_id is null", "e.recurring = part.recurring", *filters, lastly])
            part = f"{_OPEN_ROWS} where {waiting} {self._order()}"
            parts.append(f"(select e.* from unnest({kinds}) as part (recurring), lateral ({part}) e)")
        return parts

    def _ended(self, filters: list[str], recurring: list[bool]) -> str:
        states = [s.value for s in _ENDED if self._statuses is None or s in self._statuses]
        pairs = list(product(recurring, states))
        parts = f"unnest({self._bind([p[0] for p in pairs])}::boolean[], {self._bind([p[1] for p in pairs])}::text[])"
        same = "e.recurring = part.recurring and e.state = part.state::ended_state"
        part = f"{SQL.ended} where {same} and {self._all(filters)} {self._order()}"
        return f"(select e.* from {parts} as part (recurring, state), lateral ({part}) e)"

    def _recurring(self, where: JobFilter) -> str:
        states = [s.value for s in JobStatus if where.job_statuses is None or s in where.job_statuses]
        filters = ["e.state = part.state::job_state"]
        if where.user_id is not None:
            filters.append(f"e.user_id = {self._bind(where.user_id)}")
        if where.task_id is not None:
            filters.append(f"e.task_id = {self._bind(where.task_id)}")
        # A recurring job belongs to a time in which it may fire, or might have.
        if where.start is not None:
            ends_at = "(e.schedule::jsonb ->> 'ends_at')::timestamptz"
            filters.append(f"coalesce({ends_at} >= {self._bind(where.start)}::timestamptz, true)")
        if where.end is not None:
            starts_at = "coalesce((e.schedule::jsonb ->> 'starts_at')::timestamptz, e.created_at)"
            filters.append(f"{starts_at} <= {self._bind(where.end)}::timestamptz")
        if self._page.after is not None:
            filters.append(f"e.created_at <= {self._bind(self._page.after.at)}::timestamptz")
            filters.append(f"(e.created_at, e.id, 0) < {self._position(self._page.after)}")
        part = (
            f"{SQL.listed_jobs} where {self._all(filters)} order by e.created_at desc, e.id desc limit {self._limit()}"
        )
        return f"(select e.* from unnest({self._bind(states)}::text[]) as part (state), lateral ({part}) e)"

    async def _fetch(self, db: Database, parts: list[str]) -> list[asyncpg.Record]:
        if not parts:
            return []
        everything = " union all ".join(parts)
        order = "order by listed_at desc, job_id desc, run desc"
        query = f"{SQL.clock} select e.* from ({everything}) e {order} limit {self._limit()}"
        return await db.look(query.replace("$now", self._bind(db.time)), *self._values)

    def _position(self, position: Position) -> str:
        at, job_id, run = (self._bind(value) for value in position)
        return f"({at}::timestamptz, {job_id}::uuid, {run}::int)"

    def _order(self) -> str:
        return f"order by {_LISTED_BY} desc, e.job_id desc, e.run desc limit {self._limit()}"

    def _limit(self) -> str:
        # One more than asked for tells whether there is a next page.
        return f"{self._bind(self._page.limit + 1)}::bigint"

    @staticmethod
    def _all(filters: list[str]) -> str:
        return " and ".join(filters) or "true"

    def _bind(self, value: object) -> str:
        self._values.append(value)
        return f"${len(self._values)}"


def _slice(items: list[_Item], rows: list[asyncpg.Record], page: Page) -> Slice[_Item]:
    if len(rows) <= page.limit:
        return Slice(items, None)
    last = rows[page.limit - 1]
    return Slice(items, Position(last["listed_at"], last["job_id"], last["run"]))


def _execution(row: asyncpg.Record) -> Execution:
    return Execution(
        job_id=row["job_id"],
        fires_at=row["fires_at"],
        run=row["run"],
        definition=definition_in(row),
        recurring=row["recurring"],
        status=Status(row["status"]),
        due_at=row["due_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        attempt=row["attempt"],
        failures=row["failures"],
        worker_id=row["worker_id"],
        cancel_requested=row["cancel_requested"],
        error=row["error"],
        result=row["result"],
        skipped_because=row["skipped_because"],
        skipped_to=row["skipped_to"],
        skipped_count=row["skipped_count"],
    )


def _recurring_job(row: asyncpg.Record, last: Execution | None) -> Job:
    return Job(
        id=row["id"],
        definition=definition_in(row),
        status=JobStatus(row["state"]),
        schedule=schedule_of(row["schedule"]),
        rules=rules_of(row["rules"]),
        next_fires_at=row["next_fires_at"],
        last_execution=last,
        created_at=row["created_at"],
        revision=row["revision"],
        cursor=row["cursor"],
        planned=row["planned"],
        begun_at=row["begun_at"],
        has_open=row["has_open"],
        waiting=row["waiting"],
        fired=row["fired"],
        paused_through=row["paused_through"],
        pause=Pause(row["paused_at"], row["paused_until"], row["pause_note"]) if row["paused_at"] else None,
    )


def _worker(row: asyncpg.Record) -> Worker:
    return Worker(
        id=row["id"],
        host=row["host"],
        pid=row["pid"],
        queues=row["queues"],
        tasks=row["tasks"],
        concurrency=row["concurrency"],
        state=WorkerState(row["state"]),
        started_at=row["started_at"],
        renewed_at=row["renewed_at"],
        ended_at=row["ended_at"],
        running=row["running"],
        resources=msgspec.json.decode(row["resources"], type=dict[str, float]),
        labels=row["labels"],
        wish=Wish(row["wish"]) if row["wish"] else None,
    )
