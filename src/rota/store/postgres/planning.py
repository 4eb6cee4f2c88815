"""The scheduler's side of the store: plans, partitions, retention."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import asyncpg
import msgspec

from rota.model.errors import StoreError
from rota.model.job import Overlap, shard_of
from rota.model.policy import Plan, Unplanned
from rota.model.schedule import Recurring
from rota.store.postgres.database import Database
from rota.store.postgres.queries import Queries

log = logging.getLogger(__name__)
SQL = Queries("planning.sql")
_schedule = msgspec.json.Decoder(Recurring).decode


class Planning:
    db: Database

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
        skips = [plan.skip for plan in plans]
        rows = await self.db.fetch(
            SQL.plan,
            shard,
            [plan.job.id for plan in plans],
            [plan.job.revision for plan in plans],
            [plan.job.next_fires_at for plan in plans],
            [plan.next_fires_at for plan in plans],
            [",".join(fires_at.isoformat() for fires_at in plan.firings) for plan in plans],
            [skip.first if skip else None for skip in skips],
            [skip.last if skip else None for skip in skips],
            [skip.count if skip else None for skip in skips],
            [skip.because if skip else None for skip in skips],
            self.db.time,
        )
        written: int = rows[0][0]
        return written

    async def maintain(self, *, keep: timedelta) -> int:
        now = await self.db.now()
        days = [(now + timedelta(days=ahead)).date() for ahead in range(4)]
        names = await self.db.fetch(SQL.partitions)
        done = 0
        for parent, column in (("history", "finished_at"), ("attempts", "ended_at")):
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
        schedule, overlap = _schedule(row["schedule"]), Overlap(row["overlap"])
    except (msgspec.MsgspecError, ValueError) as error:
        log.error("job cannot be read job=%s error=%s", row["id"], error)
        return None
    return Unplanned(
        id=row["id"],
        revision=row["revision"],
        next_fires_at=row["next_fires_at"],
        schedule=schedule,
        overlap=overlap,
        has_open=row["has_open"],
    )
