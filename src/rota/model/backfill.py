"""A backfill: firings of a range of the past that run now, a few at a time. Which of them, and in what portions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from uuid import UUID

import msgspec
from msgspec import Struct

from rota.model.calendar import Calendar
from rota.model.definition import Definition
from rota.model.errors import InvalidField
from rota.model.execution import ExecutionKey, Status
from rota.model.instants import print_instant
from rota.model.job import new_job_id, shard_of
from rota.model.schedule import Recurring

# A priority step is a head start of five seconds: live work goes first, unless what a backfill has made is overdue by
# more than an hour.
BELOW_LIVE = -1000
MOST_FIRINGS = 100_000
MOST_PARALLEL = 100
# No step looks at more firings of one backfill than this.
LOOKED_AT = 200
_JUST_BEFORE = timedelta(microseconds=1)


class Reprocess(StrEnum):
    """Which firings run again: none that ever ran, those whose newest run failed or was cancelled, all."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"


class BackfillState(StrEnum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"


class NewBackfill(Struct, frozen=True, kw_only=True):
    """A backfill on its way in; both ends of its range belong to it."""

    id: UUID
    job_id: UUID
    starts_at: datetime
    ends_at: datetime
    first_fires_at: datetime
    max_parallel: int
    reprocess: Reprocess
    total: int


class Backfill(Struct, frozen=True, kw_only=True):
    """A backfill as people see it. Of `total` firings some were made, some passed over, the others are yet to come."""

    id: UUID
    job_id: UUID
    user_id: str
    state: BackfillState
    starts_at: datetime
    ends_at: datetime
    max_parallel: int
    reprocess: Reprocess
    total: int
    made: int
    passed_over: int
    open: int
    created_at: datetime
    ended_at: datetime | None


class Runs(Struct, frozen=True):
    """What is known of the executions of one firing, skips aside: the newest run, and how it ended."""

    fires_at: datetime
    newest: int
    is_open: bool
    ended_as: Status | None


class Unfilled(Struct, frozen=True, kw_only=True):
    """A running backfill with room for more, and its job as it is now.

    The firings from `unsettled_from` on are still the planner's. Without a cursor it has only to be ended.
    """

    id: UUID
    job_id: UUID
    revision: int
    definition: Definition
    schedule: Recurring
    calendar: Calendar | None = None
    unsettled_from: datetime | None = None
    cursor: datetime | None
    ends_at: datetime
    reprocess: Reprocess
    room: int


class Portion(Struct, frozen=True):
    """What to write for a backfill if its cursor, and the revision of its job, are still what was seen."""

    backfill: Unfilled
    keys: list[ExecutionKey]
    passed_over: int
    cursor: datetime | None

    @property
    def definition(self) -> Definition:
        return msgspec.structs.replace(self.backfill.definition, priority=BELOW_LIVE)

    @property
    def settled(self) -> int:
        return len(self.keys) + self.passed_over

    @property
    def changes_nothing(self) -> bool:
        return self.cursor is not None and self.cursor == self.backfill.cursor


def new_backfill_id(job_id: UUID) -> UUID:
    """It has the shard of its job."""
    return UUID(int=new_job_id(1).int | shard_of(job_id))


def firings_between(
    schedule: Recurring, calendar: Calendar | None, *, start: datetime, end: datetime
) -> list[datetime]:
    """Those that a backfill of this range is about, both ends included; refused if there are none, or too many."""
    found = list(islice(_from(schedule, start, end), MOST_FIRINGS + 1))
    if len(found) > MOST_FIRINGS:
        raise InvalidField("from", f"more than {MOST_FIRINGS:,} firings lie between it and `to`; take a shorter range")
    if not found:
        raise InvalidField("from", f"the job's schedule has no firing between it and `to`; {_next(schedule, start)}")
    free = [fires_at for fires_at in found if not _is_barred(schedule, calendar, fires_at)]
    if not free:
        raise InvalidField("from", f"all firings between it and `to` ({len(found)}) fall on days of the job's calendar")
    return free


def _next(schedule: Recurring, start: datetime) -> str:
    following = schedule.after(start)
    return f"the next one is at {print_instant(following)}" if following else "it fires no more after that"


def _from(schedule: Recurring, start: datetime, end: datetime) -> Iterator[datetime]:
    fires_at = schedule.after(start - _JUST_BEFORE)
    while fires_at is not None and fires_at <= end:
        yield fires_at
        fires_at = schedule.after(fires_at)


def _is_barred(schedule: Recurring, calendar: Calendar | None, fires_at: datetime) -> bool:
    return calendar is not None and calendar.covers(fires_at, schedule.zone)


def is_wanted(runs: Runs | None, reprocess: Reprocess) -> bool:
    if runs is None or reprocess is Reprocess.ALL:
        return True
    if runs.is_open or reprocess is Reprocess.NONE:
        return False
    return runs.ended_as in (Status.FAILED, Status.CANCELLED)


def wanted_of(firings: Iterable[datetime], runs: Iterable[Runs], reprocess: Reprocess) -> list[datetime]:
    by_firing = {each.fires_at: each for each in runs}
    return [fires_at for fires_at in firings if is_wanted(by_firing.get(fires_at), reprocess)]


def next_firings(backfill: Unfilled, *, most: int = LOOKED_AT) -> tuple[list[datetime], datetime | None]:
    """The next that are to be decided about, and the firing that follows them: None at the end of the range."""
    if backfill.cursor is None:
        return [], None
    found: list[datetime] = []
    # By the schedule of now, which may know nothing of the cursor.
    for place, fires_at in enumerate(_from(backfill.schedule, backfill.cursor, backfill.ends_at)):
        if place == most or (backfill.unsettled_from is not None and fires_at >= backfill.unsettled_from):
            return found, fires_at
        if not _is_barred(backfill.schedule, backfill.calendar, fires_at):
            found.append(fires_at)
    return found, None


def portion_of(
    backfill: Unfilled, firings: list[datetime], following: datetime | None, runs: Iterable[Runs]
) -> Portion:
    """As many as there is room for; what is not wanted before the next one is passed over."""
    by_firing = {each.fires_at: each for each in runs}
    keys: list[ExecutionKey] = []
    passed_over = 0
    for fires_at in firings:
        known = by_firing.get(fires_at)
        if not is_wanted(known, backfill.reprocess):
            passed_over += 1
        elif len(keys) == backfill.room:
            return Portion(backfill, keys, passed_over, fires_at)
        else:
            # Run 0 is the planner's, also where it has skipped the firing.
            keys.append(ExecutionKey(backfill.job_id, fires_at, 1 + (known.newest if known else 0)))
    return Portion(backfill, keys, passed_over, following)
