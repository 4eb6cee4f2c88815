"""From the model to what the API answers."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from rota.api import (
    AttemptView,
    ConcurrencyView,
    ExecutionView,
    JobView,
    LineView,
    LogLineView,
    MisfireView,
    PauseView,
    ProgressView,
    RateView,
    SkippedView,
    WorkerView,
)
from rota.model.definition import Definition, Gate
from rota.model.execution import Attempt, Execution
from rota.model.instants import print_instant
from rota.model.job import Job, Pause
from rota.model.ledger import Line
from rota.model.log import LogLine
from rota.model.progress import Progress
from rota.model.rules import Rules
from rota.model.schedule import ScheduleText, schedule_text
from rota.model.worker import Worker


def job_view(job: Job) -> JobView:
    d = job.definition
    schedule = job.schedule
    starts_at = schedule.starts_at if schedule else None
    ends_at = schedule.ends_at if schedule else None
    rules = job.rules or Rules()
    return JobView(
        id=str(job.id),
        user_id=d.user_id,
        task_id=d.task_id,
        schedule=schedule_text(schedule) if schedule else _once(job),
        execution_start_time=print_instant(starts_at) if starts_at else None,
        execution_end_time=print_instant(ends_at) if ends_at else None,
        parameters=msgspec.Raw(d.parameters.encode()),
        priority=d.priority,
        queue=d.queue,
        max_retries=d.policy.max_retries,
        backoff=d.policy.backoff,
        timeout=d.policy.timeout,
        start_by=d.policy.start_by,
        deadline=d.policy.deadline,
        concurrency=_concurrency(d),
        rate=_rate(d),
        resources=d.policy.needs.resources,
        labels=list(d.policy.needs.labels),
        result_location=d.policy.result_location,
        overlap=rules.overlap.value if job.rules else None,
        misfire=MisfireView(rules.misfire.value, _seconds(rules.misfire_window)) if job.rules else None,
        jitter=_seconds(rules.jitter),
        calendar=rules.calendar,
        max_executions=rules.max_executions,
        auto_pause_after=rules.auto_pause_after,
        paused=_pause(job.pause) if job.pause else None,
        waiting=job.waiting,
        status=job.status.value,
        next_fires_at=_instant(job.next_fires_at),
        last_execution=execution_view(job.last_execution) if job.last_execution else None,
        created_at=print_instant(job.created_at),
    )


def _concurrency(d: Definition) -> ConcurrencyView | None:
    gate = d.policy.gate
    return ConcurrencyView(_key(gate), gate.concurrency) if gate and gate.concurrency else None


def _rate(d: Definition) -> RateView | None:
    gate = d.policy.gate
    return RateView(_key(gate), gate.rate, gate.per) if gate and gate.rate else None


def _key(gate: Gate) -> str:
    """As it was sent: gates are a user's own, so their keys have the user in front."""
    return msgspec.json.decode(gate.key, type=tuple[str, str])[1]


def _pause(pause: Pause) -> PauseView:
    return PauseView(print_instant(pause.since), _instant(pause.until), pause.note)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _once(job: Job) -> ScheduleText:
    assert job.last_execution is not None, "a one-shot job is its execution"
    return ScheduleText("DATE", print_instant(job.last_execution.fires_at))


def execution_view(e: Execution) -> ExecutionView:
    d = e.definition
    return ExecutionView(
        id=str(e.key),
        job_id=str(e.job_id),
        run=e.run,
        user_id=d.user_id,
        task_id=d.task_id,
        queue=d.queue,
        priority=d.priority,
        status=e.status.value,
        fires_at=print_instant(e.fires_at),
        due_at=print_instant(e.due_at),
        started_at=_instant(e.started_at),
        finished_at=_instant(e.finished_at),
        attempt=e.attempt,
        failures=e.failures,
        worker_id=e.worker_id,
        cancel_requested=e.cancel_requested,
        error=e.error,
        result=msgspec.Raw(e.result.encode()) if e.result is not None else None,
        parameters=msgspec.Raw(d.parameters.encode()),
        skipped=_skipped(e),
        progress=_progress(e.progress) if e.progress else None,
        created_at=print_instant(e.created_at),
    )


def _progress(progress: Progress) -> ProgressView:
    return ProgressView(progress.fraction, progress.note, print_instant(progress.at))


def _skipped(e: Execution) -> SkippedView | None:
    if e.skipped_because is None:
        return None
    last = e.skipped_to or e.fires_at
    return SkippedView(e.skipped_because, print_instant(e.fires_at), print_instant(last), e.skipped_count or 1)


def line_view(line: Line) -> LineView:
    run = line.execution
    return LineView(
        fires_at=print_instant(line.fires_at),
        verdict=line.verdict.value,
        because=line.because,
        scheduled=line.scheduled,
        execution_id=str(run.key) if run else None,
        started_at=_instant(run.started_at) if run else None,
        finished_at=_instant(run.finished_at) if run else None,
        error=run.error if run else None,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        worker_id=attempt.worker_id,
        verdict=attempt.verdict.value,
        error=attempt.error,
        started_at=_instant(attempt.started_at),
        ended_at=print_instant(attempt.ended_at),
    )


def log_line_view(line: LogLine) -> LogLineView:
    return LogLineView(line.attempt, line.seq, print_instant(line.at), line.text)


def worker_view(worker: Worker) -> WorkerView:
    return WorkerView(
        id=worker.id,
        state=worker.state.value,
        host=worker.host,
        pid=worker.pid,
        queues=worker.queues,
        tasks=worker.tasks,
        concurrency=worker.concurrency,
        running=worker.running,
        resources=worker.resources,
        labels=worker.labels,
        wish=worker.wish,
        started_at=print_instant(worker.started_at),
        renewed_at=print_instant(worker.renewed_at),
        ended_at=_instant(worker.ended_at),
    )


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else print_instant(moment)
