"""Backfills in the store: people start, see and cancel them, the scheduler works them off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from rota.model.backfill import Backfill, BackfillState, NewBackfill, Portion, Reprocess, Runs, Unfilled
from rota.model.definition import Definition, policy_text
from rota.model.errors import StoreError
from rota.model.execution import Status
from rota.model.job import shard_of
from rota.store.postgres.database import Database, tried_again
from rota.store.postgres.jobs import end_cancelled
from rota.store.postgres.queries import Queries
from rota.store.postgres.rows import calendar_in, definition_in, schedule_of
from rota.store.postgres.wake import Wake

log = logging.getLogger(__name__)
SQL = Queries("backfills.sql")
MOST_LISTED = 100
_FIND = SQL.find.format(shown=SQL.shown)
_OF_JOB = SQL.of_job.format(shown=SQL.shown)


class Backfills:
    db: Database
    wake: Wake
    _lanes_of: Callable[[Sequence[Definition]], Coroutine[Any, Any, list[int]]]

    async def create_backfill(self, new: NewBackfill) -> Backfill | None:
        rows = await self.db.fetch(
            SQL.create,
            shard_of(new.job_id),
            new.id,
            new.job_id,
            new.starts_at,
            new.ends_at,
            new.max_parallel,
            new.reprocess.value,
            new.first_fires_at,
            new.total,
            self.db.time,
        )
        return _backfill(rows[0]) if rows else None

    async def find_backfill(self, backfill_id: UUID) -> Backfill | None:
        rows = await self.db.look(_FIND, shard_of(backfill_id), backfill_id)
        return _backfill(rows[0]) if rows else None

    async def backfills(self, job_id: UUID) -> list[Backfill]:
        return [_backfill(row) for row in await self.db.look(_OF_JOB, shard_of(job_id), job_id, MOST_LISTED)]

    @tried_again
    async def cancel_backfill(self, backfill_id: UUID) -> bool:
        shard = shard_of(backfill_id)
        async with self.db.transaction() as connection:
            if not await connection.fetch(SQL.cancel, shard, backfill_id, self.db.time):
                return False
            # From here on nobody makes more, so this sees all of them.
            rows = await connection.fetch(SQL.ask_to_stop, shard, backfill_id)
            await end_cancelled(connection, shard, rows, self.db.time)
        return True

    async def unfilled(self, *, limit: int) -> list[Unfilled]:
        found: list[Unfilled] = []
        for shard in range(await self.db.shards()):
            rows = await self.db.fetch(SQL.unfilled, shard, limit - len(found))
            found += [backfill for row in rows if (backfill := _unfilled(row)) is not None]
        return found

    async def runs(self, job_id: UUID, *, start: datetime, end: datetime) -> list[Runs]:
        rows = await self.db.fetch(SQL.runs, shard_of(job_id), job_id, start, end)
        return [
            Runs(row["fires_at"], row["newest"], row["is_open"], Status(row["ended_as"]) if row["ended_as"] else None)
            for row in rows
        ]

    async def fill(self, portion: Portion) -> bool:
        [lane] = await self._lanes_of([portion.definition])
        try:
            await self._fill(portion, lane)
        except _Outdated:
            return False
        except StoreError as error:
            # Another made the same run of the same firing at the same time.
            if isinstance(error.__cause__, asyncpg.UniqueViolationError):
                return False
            raise
        if portion.keys:
            self.wake.others()
        return True

    @tried_again
    async def _fill(self, portion: Portion, lane: int) -> None:
        backfill, definition = portion.backfill, portion.definition
        async with self.db.transaction() as connection:
            [row] = await connection.fetch(
                SQL.fill,
                shard_of(backfill.id),
                backfill.id,
                backfill.cursor,
                backfill.revision,
                portion.cursor,
                [key.fires_at for key in portion.keys],
                [key.run for key in portion.keys],
                portion.passed_over,
                lane,
                definition.user_id,
                definition.task_id,
                definition.queue,
                definition.priority,
                definition.parameters,
                policy_text(definition.policy),
                self.db.time,
            )
            if not row["won"] or row["made"] < len(portion.keys):
                raise _Outdated


class _Outdated(Exception):
    """The portion was made from what is no longer so; rolls the transaction back."""


def _backfill(row: asyncpg.Record) -> Backfill:
    return Backfill(
        id=row["id"],
        job_id=row["job_id"],
        user_id=row["user_id"],
        state=BackfillState(row["state"]),
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        max_parallel=row["max_parallel"],
        reprocess=Reprocess(row["reprocess"]),
        total=row["total"],
        made=row["made"],
        passed_over=row["passed_over"],
        open=row["open"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )


def _unfilled(row: asyncpg.Record) -> Unfilled | None:
    """None if this version cannot read its job: it must not keep the others waiting."""
    try:
        return Unfilled(
            id=row["id"],
            job_id=row["job_id"],
            revision=row["revision"],
            definition=definition_in(row),
            schedule=schedule_of(row["schedule"]),
            calendar=calendar_in(row),
            unsettled_from=row["unsettled_from"],
            cursor=row["next_fires_at"],
            ends_at=row["ends_at"],
            reprocess=Reprocess(row["reprocess"]),
            room=row["room"],
        )
    except (msgspec.MsgspecError, ValueError) as error:
        log.error("backfill cannot be read backfill=%s error=%s", row["id"], error)
        return None
