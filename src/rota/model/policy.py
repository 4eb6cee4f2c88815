"""What the planner is to do about a recurring job: pure rules over its schedule, its cursor and the time."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from rota.model.job import Overlap
from rota.model.schedule import Recurring

OVERLAP = "overlap"
MISFIRE = "misfire"
# No single step makes or counts more than this of one job; what is left is for the next step.
MOST_FIRINGS = 1000
MOST_MISSED = 10_000


class Unplanned(Struct, frozen=True, kw_only=True):
    """A recurring job whose cursor lies within the horizon, as the planner sees it."""

    id: UUID
    revision: int
    next_fires_at: datetime
    schedule: Recurring
    overlap: Overlap
    has_open: bool


class Skip(Struct, frozen=True):
    """Consecutive firings that did not happen, for one reason."""

    first: datetime
    last: datetime
    count: int
    because: str


class Plan(Struct, frozen=True, kw_only=True):
    """What to write for one job if its (revision, cursor) are still what was seen."""

    job: Unplanned
    firings: list[datetime]
    skip: Skip | None
    next_fires_at: datetime | None


def plan_for(job: Unplanned, *, now: datetime, horizon: timedelta) -> Plan | None:
    """None when there is nothing to do yet."""
    missed, ahead, cursor = _look(job, now, now + horizon)
    if missed.count == MOST_MISSED and cursor is not None and cursor <= now:
        part = Skip(missed.first, missed.last, missed.count, MISFIRE)
        return Plan(job=job, firings=[], skip=part, next_fires_at=cursor)
    if job.overlap is Overlap.ALLOW:
        skip, due = _late(missed)
        return Plan(job=job, firings=due + ahead, skip=skip, next_fires_at=cursor)
    if job.has_open:
        # The next one may yet find the way free, so only what is already due is settled.
        if not missed.count:
            return None
        overlapped = Skip(missed.first, missed.last, missed.count, OVERLAP)
        return Plan(job=job, firings=[], skip=overlapped, next_fires_at=ahead[0] if ahead else cursor)
    skip, due = _late(missed)
    if due:
        return Plan(job=job, firings=due[-1:], skip=skip, next_fires_at=ahead[0] if ahead else cursor)
    return Plan(job=job, firings=ahead[:1], skip=skip, next_fires_at=ahead[1] if ahead[1:] else cursor)


class _Missed(Struct):
    """Firings between the cursor and now: a day of seconds is counted, not kept."""

    first: datetime
    last: datetime
    before_last: datetime
    count: int


def _look(job: Unplanned, now: datetime, until: datetime) -> tuple[_Missed, list[datetime], datetime | None]:
    """The firings already due, those within the horizon, and the first beyond both."""
    missed = _Missed(job.next_fires_at, job.next_fires_at, job.next_fires_at, 0)
    ahead: list[datetime] = []
    fires_at: datetime | None = job.next_fires_at
    while fires_at is not None and fires_at <= now and missed.count < MOST_MISSED:
        missed.before_last, missed.last = missed.last, fires_at
        missed.count += 1
        fires_at = job.schedule.after(fires_at)
    while fires_at is not None and now < fires_at <= until and len(ahead) < MOST_FIRINGS:
        ahead.append(fires_at)
        fires_at = job.schedule.after(fires_at)
    return missed, ahead, fires_at


def _late(missed: _Missed) -> tuple[Skip | None, list[datetime]]:
    """Of what was missed the newest runs; the rest is accounted for."""
    if missed.count == 0:
        return None, []
    rest = Skip(missed.first, missed.before_last, missed.count - 1, MISFIRE) if missed.count > 1 else None
    return rest, [missed.last]
