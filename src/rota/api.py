"""The JSON that the API answers with, as the server makes it and the client reads it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from rota.model.definition import Backoff
from rota.model.schedule import ScheduleText


class SkippedView(Struct, frozen=True):
    """Consecutive firings that were skipped for one reason share one row."""

    because: str
    first: str
    last: str
    count: int


class ProgressView(Struct, frozen=True):
    """By the attempt's own word, a second old or so."""

    fraction: float
    note: str
    at: str


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
    progress: ProgressView | None
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


class LogLineView(Struct, frozen=True):
    attempt: int
    seq: int
    at: str
    text: str


class LogsView(Struct, frozen=True):
    """`next` is the place to go on after, null when there is no more for now."""

    lines: list[LogLineView]
    next: str | None


class MisfireView(Struct, frozen=True):
    policy: str
    window: float | None


class ConcurrencyView(Struct, frozen=True):
    key: str
    limit: int


class RateView(Struct, frozen=True):
    key: str
    limit: int
    per: float


class PauseView(Struct, frozen=True):
    since: str
    until: str | None
    note: str | None


class LineView(Struct, frozen=True):
    """One expected firing and what became of it; `scheduled` is false for a run asked for by hand."""

    fires_at: str
    verdict: str
    because: str | None
    scheduled: bool
    execution_id: str | None
    started_at: str | None
    finished_at: str | None
    error: str | None


class LedgerView(Struct, frozen=True):
    """`counts` of the verdicts on this page; `complete` if every firing on it is accounted for."""

    lines: list[LineView]
    counts: dict[str, int]
    complete: bool
    next_page_token: str | None = None


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
    start_by: float | None
    deadline: float | None
    concurrency: ConcurrencyView | None
    rate: RateView | None
    resources: dict[str, float]
    labels: list[str]
    result_location: str | None
    overlap: str | None
    misfire: MisfireView | None
    jitter: float | None
    calendar: str | None
    max_executions: int | None
    auto_pause_after: int | None
    paused: PauseView | None
    waiting: int
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


class CalendarView(Struct, frozen=True):
    name: str
    user_id: str
    days: list[str]
    changed_at: str


class CalendarsView(Struct, frozen=True):
    calendars: list[CalendarView]


class BackfillView(Struct, frozen=True, kw_only=True):
    """Of `total` firings so many were made, of which so many are open, and so many passed over."""

    id: str
    job_id: str
    state: str
    start: str = field(name="from")
    end: str = field(name="to")
    max_parallel: int
    reprocess: str
    total: int
    made: int
    passed_over: int
    open: int
    created_at: str
    ended_at: str | None


class BackfillsView(Struct, frozen=True):
    backfills: list[BackfillView]


class BackfillPreview(Struct, frozen=True, kw_only=True):
    """What a backfill would do. `first` and `last` are the ends of what it would make."""

    job_id: str
    start: str = field(name="from")
    end: str = field(name="to")
    max_parallel: int
    reprocess: str
    total: int
    would_make: int
    passed_over: int
    first: list[str]
    last: list[str]


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
    resources: dict[str, float]
    labels: list[str]
    wish: str | None
    started_at: str
    renewed_at: str
    ended_at: str | None


class WorkersView(Struct, frozen=True):
    workers: list[WorkerView]


class HealthView(Struct, frozen=True):
    status: str
