"""A worker: a process that claims executions and holds them by one renewed lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from rota.model.execution import Claimed, ExecutionKey

LEASE = timedelta(seconds=15)
RENEWAL = timedelta(seconds=3)
# Counted from the sending of the last acknowledged renewal: the worker stops before anyone may take over.
TRUST = timedelta(seconds=13)
LOOKAHEAD = timedelta(milliseconds=250)


class WorkerState(StrEnum):
    ALIVE = "ALIVE"
    DEAD = "DEAD"
    STOPPED = "STOPPED"


class Wish(StrEnum):
    """What an operator wants of a worker: to claim nothing for now, or to end when what runs has ended."""

    PAUSE = "pause"
    DRAIN = "drain"


class NewWorker(Struct, frozen=True, kw_only=True):
    """A fresh id per life: the dead never come back under their old name."""

    id: str
    host: str
    pid: int
    queues: list[str]
    tasks: list[str]
    concurrency: int
    resources: dict[str, float] = {}
    labels: list[str] = []


class Worker(NewWorker, frozen=True, kw_only=True):
    state: WorkerState
    started_at: datetime
    renewed_at: datetime
    ended_at: datetime | None
    running: int
    wish: Wish | None = None


class Handout(Struct, frozen=True):
    """What a claim brings: work, and word of what the worker should stop; what is `terminated` it need not wait for."""

    executions: list[Claimed]
    cancelled: list[ExecutionKey]
    terminated: list[ExecutionKey] = []


class Renewal(Struct, frozen=True):
    """`alive` is False once the worker was declared dead; it never turns true again."""

    alive: bool
    cancelled: list[ExecutionKey]
    terminated: list[ExecutionKey] = []
    wish: Wish | None = None
