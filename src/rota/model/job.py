"""A job: a task, parameters, a schedule and a policy, owned by a user."""

from __future__ import annotations

import os
import time
from datetime import datetime
from enum import StrEnum
from uuid import UUID
from zlib import crc32

from msgspec import Struct

from rota.model.definition import Definition
from rota.model.execution import Execution, Status
from rota.model.schedule import Recurring

BUCKETS = 16


class JobStatus(StrEnum):
    """The statuses of recurring jobs; a one-shot job reads as its execution does."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"


class Overlap(StrEnum):
    """What happens to a firing while the one before it is still open."""

    SKIP = "skip"
    ALLOW = "allow"


class IdempotencyKey(Struct, frozen=True):
    name: str
    digest: bytes


class NewJob(Struct, frozen=True, kw_only=True):
    """A job on its way in. `fires_at` is the first firing; None means now, by the database's clock."""

    id: UUID
    definition: Definition
    fires_at: datetime | None = None
    recurring: Recurring | None = None
    overlap: Overlap = Overlap.SKIP


class Job(Struct, frozen=True, kw_only=True):
    """A job as people see it. `schedule` is None for a one-shot job: its execution says when.

    The last five are what a change is made from: the revision and cursor seen, the firings planned and not begun, the
    newest one begun, and whether anything of it is open.
    """

    id: UUID
    definition: Definition
    status: Status | JobStatus
    schedule: Recurring | None
    overlap: Overlap | None
    next_fires_at: datetime | None
    last_execution: Execution | None
    created_at: datetime
    revision: int = 0
    cursor: datetime | None = None
    planned: list[datetime] = []
    begun_at: datetime | None = None
    has_open: bool = False


def one_shot_job(execution: Execution) -> Job:
    """A one-shot job reads as its latest execution does."""
    return Job(
        id=execution.job_id,
        definition=execution.definition,
        status=execution.status,
        schedule=None,
        overlap=None,
        next_fires_at=execution.due_at if execution.is_pending else None,
        last_execution=execution,
        created_at=execution.created_at,
    )


def new_job_id(shards: int) -> UUID:
    """A UUIDv7 whose last byte is the shard."""
    noise = bytearray(os.urandom(16))
    noise[0:6] = (time.time_ns() // 1_000_000).to_bytes(6, "big")
    noise[6] = noise[6] & 0x0F | 0x70
    noise[8] = noise[8] & 0x3F | 0x80
    noise[15] %= shards
    return UUID(bytes=bytes(noise))


def shard_of(job_id: UUID) -> int:
    return job_id.int & 0xFF


def bucket_of(user_id: str) -> int:
    return crc32(user_id.encode()) % BUCKETS
