"""A context for tasks that are called without a worker."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from rota.model.execution import ExecutionKey
from rota.worker.context import Context

JOB = "01a1df4d-725b-70f9-9f8f-9c7d9bf93200"
EXECUTION = f"1799060400000-{JOB}"


def a_context() -> Context:
    return Context(
        key=ExecutionKey(UUID(JOB), datetime(2027, 1, 4, 11, tzinfo=UTC), 0),
        task_id="task",
        user_id="ann",
        attempt=3,
        fence=3,
    )
