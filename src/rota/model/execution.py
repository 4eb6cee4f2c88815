"""An execution: one firing of a job, from pending to its ending."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from msgspec import Struct

from rota.model.definition import Definition
from rota.model.errors import InvalidField
from rota.model.progress import Progress

if TYPE_CHECKING:
    from rota.model.retry import Outcome

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Bytes of JSON.
MOST_CHECKPOINT = 64 * 1024
_MILLISECOND = timedelta(milliseconds=1)
_PUBLIC_ID = re.compile(
    r"(-?\d{1,15})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-(\d{1,9}))?", re.ASCII
)


class Status(StrEnum):
    """What people read. The first three are readings of PENDING."""

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    RETRYING = "RETRYING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


PENDING = frozenset({Status.SCHEDULED, Status.QUEUED, Status.RETRYING})
_OTHER_NAMES = {"PENDING": PENDING, "ERRORED": frozenset({Status.FAILED}), "ERRORRED": frozenset({Status.FAILED})}


def statuses_named(word: str) -> frozenset[Status]:
    """The statuses a word stands for, in any case: `pending` is three of them, `errored` is FAILED."""
    upper = word.upper()
    if upper in _OTHER_NAMES:
        return _OTHER_NAMES[upper]
    if upper in Status.__members__:
        return frozenset({Status(upper)})
    return frozenset()


class ExecutionKey(NamedTuple):
    """`fires_at` is whole milliseconds, so that the public id says all of it."""

    job_id: UUID
    fires_at: datetime
    run: int

    def __str__(self) -> str:
        name = f"{(self.fires_at - EPOCH) // _MILLISECOND}-{self.job_id}"
        return f"{name}-{self.run}" if self.run else name

    @classmethod
    def parse(cls, text: str) -> ExecutionKey:
        match = _PUBLIC_ID.fullmatch(text)
        if not match:
            raise InvalidField("execution_id", "is not an execution id; they look like 1794736800000-<job id>[-<run>]")
        try:
            fires_at = EPOCH + int(match[1]) * _MILLISECOND
        except OverflowError:
            raise InvalidField("execution_id", "names a time outside the calendar") from None
        return cls(UUID(match[2]), fires_at, int(match[3] or 0))


class Claimed(Struct, frozen=True):
    """An execution in a worker's hands: all that is needed to run it, and the fence (attempt, lease_id).

    The last two are seconds from the claim on: not to begin later than that, not to be tried later than that.
    """

    job_id: UUID
    fires_at: datetime
    run: int
    attempt: int
    failures: int
    crashes: int
    lapses: int
    task_id: str
    user_id: str
    parameters: str
    policy: str | None
    priority: int
    due_in: float
    lease_id: int
    start_within: float | None = None
    deadline_in: float | None = None
    # What the attempts before this one have left, as JSON; only a claim brings it.
    checkpoint: str | None = None
    lane: int = 0

    @property
    def key(self) -> ExecutionKey:
        return ExecutionKey(self.job_id, self.fires_at, self.run)


class Lapsed(Struct, frozen=True):
    """An execution whose worker is dead."""

    claimed: Claimed
    worker_id: str


class Verdict(StrEnum):
    """How an attempt ends for its execution."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    RETRY = "RETRY"
    RELEASE = "RELEASE"


class Ending(Struct, frozen=True, kw_only=True):
    """The end of one attempt: how it went, and what follows from that by `ending_for`.

    Counters are the new values; `after` counts from the moment it is stored.
    """

    job_id: UUID
    fires_at: datetime
    run: int
    attempt: int
    lease_id: int
    worker_id: str
    outcome: Outcome
    verdict: Verdict
    failures: int = 0
    crashes: int = 0
    lapses: int = 0
    after: float | None = None
    error: str | None = None
    result: str | None = None
    started_ago: float | None = None

    @property
    def key(self) -> ExecutionKey:
        return ExecutionKey(self.job_id, self.fires_at, self.run)


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Where an attempt has got to, as JSON for the one after it."""

    job_id: UUID
    fires_at: datetime
    run: int
    attempt: int
    lease_id: int
    value: str

    @property
    def key(self) -> ExecutionKey:
        return ExecutionKey(self.job_id, self.fires_at, self.run)


def checkpoint_of(claimed: Claimed, value: str) -> Checkpoint:
    return Checkpoint(
        job_id=claimed.job_id,
        fires_at=claimed.fires_at,
        run=claimed.run,
        attempt=claimed.attempt,
        lease_id=claimed.lease_id,
        value=value,
    )


class Execution(Struct, frozen=True, kw_only=True):
    """An execution as people see it."""

    job_id: UUID
    fires_at: datetime
    run: int
    definition: Definition
    recurring: bool
    status: Status
    due_at: datetime
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    failures: int = 0
    worker_id: str | None = None
    cancel_requested: bool = False
    error: str | None = None
    result: str | None = None
    skipped_because: str | None = None
    skipped_to: datetime | None = None
    skipped_count: int | None = None
    progress: Progress | None = None

    @property
    def key(self) -> ExecutionKey:
        return ExecutionKey(self.job_id, self.fires_at, self.run)

    @property
    def is_pending(self) -> bool:
        return self.status in PENDING

    @property
    def is_open(self) -> bool:
        return self.is_pending or self.status is Status.RUNNING


class Attempt(Struct, frozen=True, kw_only=True):
    """A try that did not end its execution well."""

    key: ExecutionKey
    attempt: int
    worker_id: str
    verdict: Verdict
    error: str | None
    started_at: datetime | None
    ended_at: datetime
