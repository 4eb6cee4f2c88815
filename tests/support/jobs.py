"""Jobs, workers and endings in domain words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.model.definition import Definition, Policy
from rota.model.execution import Claimed, Ending, Execution
from rota.model.job import IdempotencyKey, Job, NewJob, new_job_id
from rota.model.query import ExecutionFilter, Page
from rota.model.retry import Done, Outcome, ending_for
from rota.model.rules import Rules
from rota.model.schedule import Recurring, parse_when
from rota.model.worker import NewWorker
from rota.store.protocol import Accepted, RecurringChange, Store, Submission

ALICE = "w-alice"
BOB = "w-bob"
TASKS = ["echo", "noop", "send_email"]


def a_job(
    task_id: str = "echo",
    *,
    user_id: str = "ann",
    priority: int = 0,
    at: datetime | None = None,
    shards: int = 1,
    parameters: str = "{}",
    **policy: Any,
) -> NewJob:
    definition = Definition(
        user_id=user_id, task_id=task_id, priority=priority, parameters=parameters, policy=Policy(**policy)
    )
    return NewJob(id=new_job_id(shards), definition=definition, fires_at=at)


def a_recurring_job(
    schedule: str,
    now: datetime,
    *,
    user_id: str = "ann",
    start: str | None = None,
    end: str | None = None,
    **rules: Any,
) -> NewJob:
    recurring = parse_when(schedule, start=start, end=end)
    assert isinstance(recurring, Recurring)
    recurring = recurring.anchored(now)
    return NewJob(
        id=new_job_id(1),
        definition=Definition(user_id=user_id, task_id="echo"),
        recurring=recurring,
        fires_at=recurring.after(now),
        rules=Rules(**rules),
        since=now,
    )


def a_change(seen: Job, *, since: datetime, next_fires_at: datetime | None, **rules: Any) -> RecurringChange:
    """Of when a job fires next, made from what was seen of it."""
    assert seen.schedule is not None
    return RecurringChange(
        id=seen.id,
        revision=seen.revision,
        seen_next=seen.cursor,
        withdraws=seen.planned,
        definition=seen.definition,
        schedule=seen.schedule,
        rules=Rules(**rules),
        since=since,
        next_fires_at=next_fires_at,
    )


async def submit(store: Store, *jobs: NewJob, key: IdempotencyKey | None = None) -> list[Job]:
    [receipt] = await store.submit([Submission(list(jobs), key)])
    assert isinstance(receipt, Accepted)
    return receipt.jobs


async def a_worker(store: Store, worker_id: str = ALICE) -> str:
    await store.register(NewWorker(id=worker_id, host="here", pid=1, queues=["default"], tasks=TASKS, concurrency=100))
    return worker_id


async def claim(
    store: Store,
    worker_id: str = ALICE,
    *,
    limit: int = 100,
    tasks: Sequence[str] = TASKS,
    lookahead: float = 0,
    lease_id: int | None = None,
) -> list[Claimed]:
    """As a registered worker; who was declared dead stays so."""
    await a_worker(store, worker_id)
    handout = await store.claim(
        worker_id,
        queues=["default"],
        tasks=tasks,
        limit=limit,
        lookahead=timedelta(seconds=lookahead),
        lease_id=random.getrandbits(62) if lease_id is None else lease_id,
    )
    return handout.executions


def ended(claimed: Claimed, outcome: Outcome | None = None, *, worker_id: str = ALICE) -> Ending:
    return ending_for(claimed, outcome or Done(), worker_id=worker_id, started_ago=0.0)


async def executions(store: Store, **where: Any) -> list[Execution]:
    return (await store.executions(ExecutionFilter(**where), Page(1000))).items
