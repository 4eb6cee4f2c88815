"""Turns schedules into executions, a few seconds ahead of time."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from rota.model.policy import Plan, Unplanned, is_failing, plan_for
from rota.store.protocol import Store

log = logging.getLogger(__name__)
HORIZON = timedelta(seconds=5)
# What a long outage left is worked off in parts, with no pause in between; then others have their turn.
MOST_ROUNDS = 100


class Planner:
    """Any number may work at once: a plan counts only if the job is still as it was seen."""

    def __init__(self, store: Store, *, batch: int = 1000, horizon: timedelta = HORIZON) -> None:
        self._store = store
        self._batch = batch
        self._horizon = horizon

    async def step(self) -> int:
        await self._store.resume_due(horizon=self._horizon)
        done = 0
        for _ in range(MOST_ROUNDS):
            plans = await self._plans()
            done += await self._store.plan(plans) if plans else 0
            if not any(plan.is_partial for plan in plans):
                break
        return done + await self._store.release(limit=self._batch)

    async def _plans(self) -> list[Plan]:
        now, jobs = await self._store.unplanned(horizon=self._horizon, limit=self._batch)
        plans = []
        for job in jobs:
            # A thousand jobs after a long outage take a while to look at; others get their turn in between.
            await asyncio.sleep(0)
            if is_failing(job):
                await self._pause(job)
            elif plan := self._plan_for(job, now):
                plans.append(plan)
        return plans

    async def _pause(self, job: Unplanned) -> None:
        log.warning("job paused job=%s failed_in_a_row=%d", job.id, job.failed_in_a_row)
        note = f"It failed {job.failed_in_a_row} times in a row."
        await self._store.pause(job.id, note=note, until=None, revision=job.revision)

    def _plan_for(self, job: Unplanned, now: datetime) -> Plan | None:
        """One job that nobody can plan, say for want of its time zone here, must not keep the others waiting."""
        try:
            return plan_for(job, now=now, horizon=self._horizon)
        except Exception as error:
            log.error("job cannot be planned job=%s error=%s", job.id, error)
            return None
