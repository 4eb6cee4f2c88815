"""Turns schedules into executions, a few seconds ahead of time."""

from __future__ import annotations

from datetime import timedelta

from rota.model.policy import plan_for
from rota.store.protocol import Store

HORIZON = timedelta(seconds=5)


class Planner:
    """Any number may work at once: a plan counts only if the job is still as it was seen."""

    def __init__(self, store: Store, *, batch: int = 1000, horizon: timedelta = HORIZON) -> None:
        self._store = store
        self._batch = batch
        self._horizon = horizon

    async def step(self) -> int:
        now, jobs = await self._store.unplanned(horizon=self._horizon, limit=self._batch)
        plans = [plan for job in jobs if (plan := plan_for(job, now=now, horizon=self._horizon))]
        return await self._store.plan(plans)
