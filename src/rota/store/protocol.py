"""What the store promises.

Batch first: every method takes and returns lists, one call is one transaction, one is a list of one.
No policy inside: no cron, no backoff; where it has to be decided under a lock (what fits a worker, who passes a gate)
the store asks the model. Time is the database's; what crosses the seam are durations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from rota.model.backfill import Backfill, NewBackfill, Portion, Runs, Unfilled
from rota.model.calendar import Calendar, NamedCalendar
from rota.model.capacity import Capacity
from rota.model.definition import Definition
from rota.model.execution import Attempt, Checkpoint, Claimed, Ending, Execution, ExecutionKey, Lapsed
from rota.model.job import IdempotencyKey, Job, NewJob, accepted_job
from rota.model.keys import ApiKey, Principal, Scope
from rota.model.ledger import Accounts
from rota.model.log import LogLine, LogPosition, NewLine
from rota.model.policy import Plan, Unplanned
from rota.model.progress import NewProgress
from rota.model.query import ExecutionFilter, JobFilter, Page, Slice
from rota.model.rules import Rules
from rota.model.schedule import Recurring
from rota.model.worker import Handout, NewWorker, Renewal, Wish, Worker


class Submission(Struct, frozen=True):
    """Jobs that are stored together or not at all, under one idempotency key or none. A unique job comes alone."""

    jobs: list[NewJob]
    key: IdempotencyKey | None = None


class Accepted(Struct, frozen=True):
    """Stored and durable, as of then."""

    submitted: list[NewJob]
    at: datetime

    @property
    def jobs(self) -> list[Job]:
        return [accepted_job(job, self.at) for job in self.submitted]


class Replayed(Struct, frozen=True):
    """The same was submitted under this key before; these are the jobs of then."""

    job_ids: list[UUID]


class KeyReused(Struct, frozen=True):
    """The key stands for something else; nothing was stored."""


class Taken(Struct, frozen=True):
    """The unique key is taken by this job; nothing was stored."""

    job_id: UUID
    rejected: bool


Receipt = Accepted | Replayed | KeyReused | Taken


class CalendarInUse(Struct, frozen=True):
    """So many jobs refer to it; it is still there."""

    jobs: int


class RecurringChange(Struct, frozen=True, kw_only=True):
    """A recurring job's next definition, made from the revision and cursor that were seen.

    The schedule accounts for what fires after `since`; what was planned beyond that is withdrawn.
    """

    id: UUID
    revision: int
    seen_next: datetime | None
    withdraws: list[datetime]
    definition: Definition
    schedule: Recurring
    rules: Rules
    since: datetime
    next_fires_at: datetime | None


class OneShotChange(Struct, frozen=True, kw_only=True):
    """A pending one-shot job's next definition; `fires_at` None leaves its time."""

    key: ExecutionKey
    definition: Definition
    fires_at: datetime | None


class Refusal(Struct, frozen=True):
    key: ExecutionKey
    reason: str


class WorkSource(Protocol):
    """What a worker needs. The store is one; a Rota server behind HTTP is another."""

    async def register(self, worker: NewWorker) -> bool:
        """False when that id was ever used: ids are not used twice."""

    async def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Sequence[str],
        limit: int,
        lookahead: timedelta,
        lease_id: int,
        capacity: Capacity = Capacity(),  # noqa: B008 - frozen
        patience: float | None = None,
    ) -> Handout:
        """Give each due execution to exactly one worker, also those due within `lookahead`, and only what fits into it.

        Where a source can wait for work it does, for up to `patience` seconds or as long as it likes.
        The caller makes the lease id, so that a claim whose answer was lost can be given back by it.
        """

    async def give_back(self, worker_id: str, lease_ids: Sequence[int]) -> int:
        """Make what was claimed under these leases pending again; how many there were."""

    async def held(self, worker_id: str, *, older_than: timedelta) -> list[Claimed]:
        """What the store believes the worker has held for longer than that."""

    async def renew(self, worker_id: str) -> Renewal:
        """Keep every claim of the worker for another lease, unless it was declared dead before."""

    async def finish(self, endings: Sequence[Ending]) -> list[Ending]:
        """Apply each ending whose (attempt, lease) still holds. Returns the refused: they changed nothing.

        Safe to repeat: an ending that was applied before is not refused.
        """

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Keep each whose (attempt, lease) still holds, for the next one. Returns the refused: they changed nothing.

        Of several of one attempt the last counts. Safe to repeat.
        """

    async def keep_logs(self, lines: Sequence[NewLine]) -> None:
        """Lines of attempts, whoever holds the execution by now. Told twice they are shown once."""

    async def note_progress(self, progress: Sequence[NewProgress]) -> None:
        """Shown as long as that very attempt runs; may be lost at any time."""

    async def retire(self, worker_id: str) -> None:
        """The worker has nothing left and is gone for good."""


class Store(WorkSource, Protocol):
    # jobs come in and change
    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]: ...
    async def replay(self, user_id: str, key: IdempotencyKey) -> list[UUID] | None:
        """The jobs that this key and digest stand for already."""

    async def shards(self) -> int: ...
    async def secret(self) -> bytes:
        """Known to every server of this database and to nobody else."""

    async def change_recurring(self, change: RecurringChange) -> bool:
        """False when the job or its planned executions have changed since they were seen: look again."""

    async def change_one_shot(self, change: OneShotChange) -> bool:
        """False when it is no longer pending."""

    async def cancel_jobs(self, job_ids: Sequence[UUID]) -> None:
        """Nothing of these jobs starts any more: pending executions end, running ones are asked to."""

    async def cancel_executions(self, keys: Sequence[ExecutionKey]) -> None: ...

    async def pause(
        self, job_id: UUID, *, note: str | None, until: datetime | None, revision: int | None = None
    ) -> bool:
        """Nothing fires any more; what was planned ahead is withdrawn.

        False when it is neither active nor paused, or no longer of the revision that was seen.
        """

    async def resume(self, job_id: UUID, *, catch_up: bool) -> bool:
        """What fell due meanwhile is skipped, or counts as missed. False when it was not paused."""

    async def run_now(self, job: Job) -> ExecutionKey | None:
        """One more execution, due at once. None when one is running and the job allows no overlap."""

    async def redrive(self, keys: Sequence[ExecutionKey]) -> tuple[list[ExecutionKey], list[Refusal]]:
        """Dead letters run again, as the next run of their firing."""

    # time passes
    async def now(self) -> datetime: ...
    async def unplanned(self, *, horizon: timedelta, limit: int) -> tuple[datetime, list[Unplanned]]:
        """Recurring jobs whose next firing lies within the horizon and could be settled, earliest first."""

    async def plan(self, plans: Sequence[Plan]) -> int:
        """Write what was planned for each job whose (revision, cursor) is still as seen; how many were."""

    async def resume_due(self, *, horizon: timedelta) -> int:
        """End the pauses whose time is over."""

    async def release(self, *, limit: int) -> int:
        """Let go of what waited for its turn, one of each job that has nothing else open."""

    async def let_through(self) -> int:
        """Let executions pass the gates of their keys, as many as those allow."""

    async def bury(self) -> list[str]:
        """Declare dead the workers whose lease has run out. Final."""

    async def expire(self, *, limit: int) -> int:
        """End what nobody holds and may not begin, or not be tried, any more; how many there were."""

    async def expired(self, *, limit: int) -> list[Lapsed]: ...
    async def maintain(self, *, keep: timedelta) -> int:
        """Partitions for the days to come, none for days long gone; expired names go too."""

    # people look
    async def find_jobs(self, job_ids: Sequence[UUID]) -> list[Job]: ...
    async def jobs(self, where: JobFilter, page: Page) -> Slice[Job]: ...
    async def accounts(self, job_id: UUID, *, start: datetime, end: datetime, limit: int) -> Accounts | None:
        """What is known of a recurring job's firings in that time, in one snapshot; at most `limit` rows of it."""

    async def find_executions(self, keys: Sequence[ExecutionKey]) -> list[Execution]: ...
    async def executions(self, where: ExecutionFilter, page: Page) -> Slice[Execution]: ...
    async def find_letters(self, keys: Sequence[ExecutionKey]) -> list[Execution]: ...
    async def attempts(self, key: ExecutionKey) -> list[Attempt]: ...
    async def logs(self, key: ExecutionKey, *, attempt: int | None, after: LogPosition, limit: int) -> list[LogLine]:
        """What the attempts of an execution have logged, or one of them, in order."""

    async def dead_letters(self, where: ExecutionFilter, page: Page) -> Slice[Execution]: ...
    async def workers(self) -> list[Worker]: ...
    async def wish(self, worker_id: str, wish: Wish | None) -> bool:
        """Told to it with its next renewal; False when it is not alive."""

    # calendars
    async def put_calendar(self, user_id: str, name: str, calendar: Calendar) -> NamedCalendar:
        """New, or in place of the one of that name; firings that are planned already stay."""

    async def calendars(self, user_id: str | None) -> list[NamedCalendar]: ...
    async def find_calendar(self, user_id: str, name: str) -> NamedCalendar | None: ...
    async def delete_calendar(self, user_id: str, name: str) -> NamedCalendar | CalendarInUse | None:
        """What it was; None when there was none. Refused while a job that may still fire refers to it."""

    # backfills
    async def create_backfill(self, new: NewBackfill) -> Backfill | None:
        """None when its job is CANCELLED by now."""

    async def find_backfill(self, backfill_id: UUID) -> Backfill | None: ...
    async def backfills(self, job_id: UUID) -> list[Backfill]:
        """Those of a job, newest first; a hundred at most."""

    async def cancel_backfill(self, backfill_id: UUID) -> bool:
        """Nothing more is made, and what it has open ends as when cancelled. False when it has ended already."""

    async def unfilled(self, *, limit: int) -> list[Unfilled]:
        """Running backfills that may make more, or that only have to be ended; oldest first."""

    async def runs(self, job_id: UUID, *, start: datetime, end: datetime) -> list[Runs]:
        """Of each firing in that time, both ends included, that has executions other than skips."""

    async def fill(self, portion: Portion) -> bool:
        """Write a portion, and end what has nothing left to make and nothing open. False, and nothing has changed,
        when the backfill, its job or one of the firings is no longer as it was seen."""

    # keys
    async def create_key(self, user_id: str, scopes: Sequence[Scope]) -> tuple[ApiKey, str]: ...
    async def keys(self) -> list[ApiKey]: ...
    async def revoke_key(self, key_id: str) -> bool: ...
    async def principal(self, hash: bytes) -> Principal | None: ...

    # waking: a hint, polling is the truth
    def woken(self, callback: Callable[[], None]) -> AbstractAsyncContextManager[None]: ...
    async def aclose(self) -> None: ...
