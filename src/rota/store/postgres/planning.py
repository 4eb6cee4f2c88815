"""The scheduler's side of the store: plans, partitions, retention."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec

from rota.model.errors import StoreError
from rota.model.job import shard_of
from rota.model.policy import Plan, Unplanned
from rota.model.rules import Overlap, rules_of
from rota.store.postgres.database import Database, tried_again
from rota.store.postgres.gates import SQL as GATES
from rota.store.postgres.jobs import SQL as JOBS
from rota.store.postgres.jobs import stop_jobs
from rota.store.postgres.queries import Queries
from rota.store.postgres.rows import calendar_in, schedule_of
from rota.store.postgres.wake import Wake

log = logging.getLogger(__name__)
SQL = Queries("planning.sql")


class Planning:
    db: Database
    wake: Wake

    async def unplanned(self, *, horizon: timedelta, limit: int) -> tuple[datetime, list[Unplanned]]:
        now: datetime | None = None
        found: list[Unplanned] = []
        for shard in range(await self.db.shards()):
            rows = await self.db.fetch(SQL.unplanned, shard, horizon, limit - len(found), self.db.time)
            found += [job for row in rows if (job := _unplanned(row)) is not None]
            now = rows[0]["now"] if rows and now is None else now
        return now or await self.db.now(), found

    async def plan(self, plans: Sequence[Plan]) -> int:
        written = 0
        for shard in {shard_of(plan.job.id) for plan in plans}:
            written += await self._plan(shard, [plan for plan in plans if shard_of(plan.job.id) == shard])
        return written

    async def _plan(self, shard: int, plans: list[Plan]) -> int:
        # In key order, so that two planners with the same jobs cannot wait for each other.
        plans.sort(key=lambda plan: plan.job.id)
        plain = [plan for plan in plans if not plan.replaces]
        written: int = (await self.db.fetch(SQL.plan, shard, *_columns(plain), self.db.time))[0][0] if plain else 0
        for plan in plans:
            written += await self._replace(shard, plan) if plan.replaces else 0
        return written

    @tried_again
    async def _replace(self, shard: int, plan: Plan) -> int:
        """What is open is asked to stop, and ends at once if nobody holds it; the new one waits for that."""
        at_once = plan.job.rules.overlap is Overlap.TERMINATE_OTHER
        try:
            async with self.db.transaction() as connection:
                # The job first, as everybody does who changes both.
                await connection.fetch(JOBS.hold_state, shard, plan.job.id)
                await stop_jobs(connection, shard, [plan.job.id], self.db.time, terminate=at_once)
                [row] = await connection.fetch(SQL.plan, shard, *_columns([plan]), self.db.time)
                if not row[0]:
                    raise _Outdated
        except _Outdated:
            return 0
        return 1

    async def release(self, *, limit: int) -> int:
        released = 0
        for shard in range(await self.db.shards()):
            jobs = [row[0] for row in await self.db.fetch(SQL.waiting_jobs, shard)]
            for place in range(0, len(jobs), limit):
                released += await self._release(shard, jobs[place : place + limit])
        if released:
            self.wake.others()
        return released

    async def _release(self, shard: int, job_ids: list[UUID]) -> int:
        try:
            return len(await self.db.fetch(SQL.release, shard, job_ids, self.db.time))
        except StoreError as error:
            # A manual run of one of them came in between; the others have their turn with the next step.
            if isinstance(error.__cause__, asyncpg.UniqueViolationError):
                return 0
            raise

    async def resume_due(self, *, horizon: timedelta) -> int:
        shards = range(await self.db.shards())
        return sum([len(await self.db.fetch(SQL.resume_due, shard, horizon, self.db.time)) for shard in shards])

    async def maintain(self, *, keep: timedelta) -> int:
        now = await self.db.now()
        days = [(now + timedelta(days=ahead)).date() for ahead in range(4)]
        names = await self.db.fetch(SQL.partitions)
        done = 0
        for parent, column in (("history", "finished_at"), ("attempts", "ended_at"), ("logs", "at")):
            there = {row["name"] for row in names}
            wanted = {f"{parent}_{day:%Y%m%d}": day for day in days}
            for name in wanted.keys() - there:
                done += await self._add_partition(parent, name, wanted[name])
            oldest = f"{parent}_{now - keep:%Y%m%d}"
            for name in there:
                if name.startswith(f"{parent}_2") and name < oldest:
                    done += await self._drop_partition(name)
            await self.db.fetch(f"delete from {parent}_default where {column} < $1", now - keep)
        await self.db.fetch(SQL.forget_names, self.db.time)
        await self.db.fetch(SQL.forget_revisions, self.db.time, keep)
        await self.db.fetch(GATES.forget, self.db.time)
        await self.db.fetch(SQL.forget_backfills, self.db.time, keep)
        await self.db.fetch(SQL.forget_progress)
        await self.db.fetch(SQL.forget_workers, self.db.time, list(range(await self.db.shards())))
        return done

    async def _add_partition(self, parent: str, name: str, day: date) -> int:
        """Made apart and then attached: attaching locks the parent less than making it there."""
        try:
            async with self.db.transaction() as connection:
                await connection.execute("set local lock_timeout = '1s'")
                await connection.execute(f"select pg_advisory_xact_lock(hashtext('{name}'))")
                if await connection.fetchval("select to_regclass($1)", name):
                    return 0
                await connection.execute(f"create table {name} (like {parent} including defaults)")
                bounds = f"from ('{day}') to ('{day + timedelta(days=1)}')"
                await connection.execute(f"alter table {parent} attach partition {name} for values {bounds}")
        except StoreError as error:
            # Rows of that day may already lie in the default partition; they are served from there.
            if isinstance(error.__cause__, asyncpg.CheckViolationError | asyncpg.LockNotAvailableError):
                log.warning("partition not made name=%s error=%s", name, error)
                return 0
            raise
        return 1

    async def _drop_partition(self, name: str) -> int:
        """Not at any price: whoever waits for this lock keeps every ending waiting behind it."""
        try:
            async with self.db.transaction() as connection:
                await connection.execute("set local lock_timeout = '200ms'")
                await connection.execute(f"drop table if exists {name}")
        except StoreError as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                log.warning("partition not dropped yet name=%s", name)
                return 0
            raise
        return 1


def _unplanned(row: asyncpg.Record) -> Unplanned | None:
    """None for a job that this version cannot read: it must not keep the others waiting."""
    try:
        schedule, rules = schedule_of(row["schedule"]), rules_of(row["rules"])
        calendar = calendar_in(row)
    except (msgspec.MsgspecError, ValueError) as error:
        log.error("job cannot be read job=%s error=%s", row["id"], error)
        return None
    return Unplanned(
        id=row["id"],
        revision=row["revision"],
        next_fires_at=row["next_fires_at"],
        schedule=schedule,
        rules=rules,
        has_open=row["has_open"],
        waiting=row["waiting"],
        fired=row["fired"],
        failed_in_a_row=row["failed_in_a_row"],
        paused_through=row["paused_through"],
        calendar=calendar,
    )


def _columns(plans: list[Plan]) -> tuple[list[object], ...]:
    return (
        [plan.job.id for plan in plans],
        [plan.job.revision for plan in plans],
        [plan.job.next_fires_at for plan in plans],
        [plan.next_fires_at for plan in plans],
        [_flags(plan) for plan in plans],
        [",".join(f"{f.fires_at.isoformat()}|{f.due_at.isoformat()}" for f in plan.firings) for plan in plans],
        [msgspec.json.encode(plan.skips).decode() if plan.skips else "[]" for plan in plans],
    )


def _flags(plan: Plan) -> str:
    flags = {"f": plan.finishes, "w": plan.waits, "l": plan.leads, "t": plan.trails}
    return "".join(flag for flag, is_set in flags.items() if is_set)


class _Outdated(Exception):
    """The plan was made from what is no longer so; rolls the transaction back."""
