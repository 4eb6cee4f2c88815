"""A context for tasks that are called without a worker."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.worker.context import Context


def a_context() -> Context:
    return Context(
        execution_id="1799060400000-job",
        job_id="job",
        task_id="task",
        user_id="ann",
        attempt=3,
        fires_at=datetime(2027, 1, 4, 11, tzinfo=UTC),
        fence=3,
    )
