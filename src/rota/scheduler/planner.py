"""Turns schedules into executions, a few seconds ahead of time."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from rota.model.policy import Plan, Unplanned, plan_for
from rota.store.protocol import Store

log = logging.getLogger(__name__)
HORIZON = timedelta(seconds=5)


class Planner:
    """Any number may work at once: a plan counts only if the job is still as it was seen."""

    def __init__(self, store: Store, *, batch: int = 1000, horizon: timedelta = HORIZON) -> None:
        self._store = store
        self._batch = batch
        self._horizon = horizon

    async def step(self) -> int:
        now, jobs = await self._store.unplanned(horizon=self._horizon, limit=self._batch)
        plans = []
        for job in jobs:
            # A long outage is counted firing by firing; others get their turn in between.
            await asyncio.sleep(0)
            if plan := self._plan_for(job, now):
                plans.append(plan)
        return await self._store.plan(plans) if plans else 0

    def _plan_for(self, job: Unplanned, now: datetime) -> Plan | None:
        """One job that nobody can plan, say for want of its time zone here, must not keep the others waiting."""
        try:
            return plan_for(job, now=now, horizon=self._horizon)
        except Exception as error:
            log.error("job cannot be planned job=%s error=%s", job.id, error)
            return None
