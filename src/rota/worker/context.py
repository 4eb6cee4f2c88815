"""What task code may know about the attempt it is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from rota.model.errors import Conflict
from rota.worker.grace import OVERTIME


@dataclass(slots=True)
class Context:
    """Given to a task whose function takes a parameter named `ctx`, and to any code below it by `rota.context()`.

    `fence` grows with every attempt of an execution: a database that remembers the highest it has seen can refuse a
    zombie's writes. `cancelled` turns true when the execution is to stop. `grace` is how many seconds the attempt has
    for cleaning up once it is cancelled or its time is over; then its process is killed.
    """

    execution_id: str
    job_id: str
    task_id: str
    user_id: str
    attempt: int
    fires_at: datetime
    fence: int
    cancelled: bool = False
    grace: float = OVERTIME


CURRENT: ContextVar[Context] = ContextVar("rota-context")


def context() -> Context:
    """The context of the attempt that this code runs in."""
    try:
        return CURRENT.get()
    except LookupError:
        raise Conflict("There is no context here: this code does not run in a task of a worker.") from None
