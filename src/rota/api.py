"""The JSON that the API answers with, as the server makes it and the client reads it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rota.model.definition import Backoff
from rota.model.schedule import ScheduleText


class SkippedView(Struct, frozen=True):
    """Consecutive firings that were skipped for one reason share one row."""

    because: str
    first: str
    last: str
    count: int


class ExecutionView(Struct, frozen=True):
    id: str
    job_id: str
    run: int
    user_id: str
    task_id: str
    queue: str
    priority: int
    status: str
    fires_at: str
    due_at: str
    started_at: str | None
    finished_at: str | None
    attempt: int
    failures: int
    worker_id: str | None
    cancel_requested: bool
    error: str | None
    result: Any
    parameters: Any
    skipped: SkippedView | None
    created_at: str


class AttemptView(Struct, frozen=True):
    attempt: int
    worker_id: str
    verdict: str
    error: str | None
    started_at: str | None
    ended_at: str


class ExecutionDetail(Struct, frozen=True):
    execution: ExecutionView
    attempts: list[AttemptView]


class JobView(Struct, frozen=True):
    id: str
    user_id: str
    task_id: str
    schedule: ScheduleText
    execution_start_time: str | None
    execution_end_time: str | None
    parameters: Any
    priority: int
    queue: str
    max_retries: int
    backoff: Backoff
    timeout: float
    overlap: str | None
    status: str
    next_fires_at: str | None
    last_execution: ExecutionView | None
    created_at: str


class JobsView(Struct, frozen=True):
    jobs: list[JobView]
    next_page_token: str | None = None


class ExecutionsView(Struct, frozen=True):
    executions: list[ExecutionView]
    next_page_token: str | None = None


class RefusedView(Struct, frozen=True):
    id: str
    reason: str


class RedriveView(Struct, frozen=True):
    redriven: list[str]
    refused: list[RefusedView]


class WorkerView(Struct, frozen=True):
    id: str
    state: str
    host: str
    pid: int
    queues: list[str]
    tasks: list[str]
    concurrency: int
    running: int
    started_at: str
    renewed_at: str
    ended_at: str | None


class WorkersView(Struct, frozen=True):
    workers: list[WorkerView]


class HealthView(Struct, frozen=True):
    status: str
