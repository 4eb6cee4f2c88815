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
from rota.model.instants import whole_milliseconds
from rota.model.rules import Rules
from rota.model.schedule import Recurring

BUCKETS = 16


class JobStatus(StrEnum):
    """The statuses of recurring jobs; a one-shot job reads as its execution does."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"


class Pause(Struct, frozen=True):
    """Since when a job fires nothing, until when if that was said, and why."""

    since: datetime
    until: datetime | None = None
    note: str | None = None


class IdempotencyKey(Struct, frozen=True):
    name: str
    digest: bytes


class OnConflict(StrEnum):
    """What a submission does whose unique key is taken."""

    REJECT = "reject"
    RETURN_EXISTING = "return_existing"
    REPLACE = "replace"


class Unique(Struct, frozen=True):
    """Only one job of a user has this key while it is pending, or (`while_active`) pending or running."""

    key: str
    while_active: bool = True
    on_conflict: OnConflict = OnConflict.REJECT


class NewJob(Struct, frozen=True, kw_only=True):
    """A job on its way in. `fires_at` is the first firing; None means now, by the database's clock.

    A recurring one accounts for every firing after `since`.
    """

    id: UUID
    definition: Definition
    fires_at: datetime | None = None
    recurring: Recurring | None = None
    rules: Rules = Rules()
    since: datetime | None = None
    unique: Unique | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A job as people see it. `schedule` and `rules` are None for a one-shot job: its execution says when.

    Those from `revision` on are what a change is made from: the revision and cursor seen, the firings planned and not
    begun, the newest one begun, whether anything of it is open, how many wait, how many it has fired.
    """

    id: UUID
    definition: Definition
    status: Status | JobStatus
    schedule: Recurring | None
    rules: Rules | None
    next_fires_at: datetime | None
    last_execution: Execution | None
    created_at: datetime
    pause: Pause | None = None
    revision: int = 0
    cursor: datetime | None = None
    planned: list[datetime] = []
    begun_at: datetime | None = None
    has_open: bool = False
    waiting: int = 0
    fired: int = 0
    paused_through: datetime | None = None


def one_shot_job(execution: Execution) -> Job:
    """A one-shot job reads as its latest execution does."""
    return Job(
        id=execution.job_id,
        definition=execution.definition,
        status=execution.status,
        schedule=None,
        rules=None,
        next_fires_at=execution.due_at if execution.is_pending else None,
        last_execution=execution,
        created_at=execution.created_at,
    )


def accepted_job(job: NewJob, accepted_at: datetime) -> Job:
    """A job as it reads once it is stored."""
    if job.recurring is not None:
        return Job(
            id=job.id,
            definition=job.definition,
            status=JobStatus.ACTIVE,
            schedule=job.recurring,
            rules=job.rules,
            next_fires_at=job.fires_at,
            last_execution=None,
            created_at=accepted_at,
        )
    fires_at = job.fires_at or whole_milliseconds(accepted_at)
    execution = Execution(
        job_id=job.id,
        fires_at=fires_at,
        run=0,
        status=Status.SCHEDULED if fires_at > accepted_at else Status.QUEUED,
        due_at=fires_at,
        definition=job.definition,
        recurring=False,
        created_at=accepted_at,
    )
    return one_shot_job(execution)


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
