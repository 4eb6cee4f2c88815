"""The ledger of a job: every firing that its schedules asked for, and what became of it.

What was to be expected is computed from the schedule of now and those of the past, what became of it is read from rows:
made from different things, the one can prove the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import merge

from msgspec import Struct
from msgspec.structs import replace

from rota.model.cron import DstGap
from rota.model.execution import Execution, Status
from rota.model.job import JobStatus
from rota.model.policy import PAUSED
from rota.model.preview import clock_of, jumps
from rota.model.schedule import Recurring

WINDOW = "window"
DST_GAP = "dst_gap"
CANCELLED = "cancelled"
# How long what has ended is known. A row of skips may have begun a day before the last firing it stands for.
HISTORY_KEPT = timedelta(days=30)
_SURELY_KEPT = HISTORY_KEPT - timedelta(days=2)
_JUST_BEFORE = timedelta(microseconds=1)


class Reading(StrEnum):
    """What the ledger says of a firing that has no execution to speak for it."""

    EXPECTED = "EXPECTED"  # yet to come
    UNSETTLED = "UNSETTLED"  # due, and no planner has seen to it yet
    FORGOTTEN = "FORGOTTEN"  # from before the history that is kept
    MISSING = "MISSING"  # should not be: nothing accounts for it


class Revision(Struct, frozen=True):
    """A schedule that accounts for the firings after `since`, up to `until` or to this day."""

    since: datetime
    until: datetime | None
    schedule: Recurring


class Accounts(Struct, frozen=True, kw_only=True):
    """What is known of a job's firings in some time: its revisions, the newest run of each firing, rows of skips."""

    status: JobStatus
    cursor: datetime | None
    revisions: list[Revision]
    runs: list[Execution]
    skips: list[Execution]
    now: datetime


class Line(Struct, frozen=True):
    """One firing. `scheduled` is False for a run that somebody asked for at a time of its own."""

    fires_at: datetime
    verdict: Status | Reading
    because: str | None = None
    execution: Execution | None = None
    scheduled: bool = True


def ledger(accounts: Accounts, *, start: datetime, end: datetime) -> Iterator[Line]:
    """In the order of time, both ends included."""
    extra = iter(accounts.runs)
    run = next(extra, None)
    covered = [skip.fires_at for skip in accounts.skips]
    for fires_at, because, revision in _expected(accounts.revisions, start, end):
        while run is not None and run.fires_at < fires_at:
            yield _ran(run, scheduled=False)
            run = next(extra, None)
        if run is not None and run.fires_at == fires_at:
            yield _ran(run)
            run = next(extra, None)
            continue
        place = bisect_right(covered, fires_at) - 1
        skip = accounts.skips[place] if place >= 0 else None
        if because is not None:
            yield Line(fires_at, Status.SKIPPED, because)
        elif skip is not None and fires_at <= (skip.skipped_to or skip.fires_at):
            yield Line(fires_at, Status.SKIPPED, skip.skipped_because)
        elif revision.until is None and accounts.cursor is not None and fires_at >= accounts.cursor:
            if accounts.status is JobStatus.FINISHED:
                break
            yield _beyond_the_cursor(fires_at, accounts)
        else:
            forgotten = fires_at < accounts.now - _SURELY_KEPT
            yield Line(fires_at, Reading.FORGOTTEN if forgotten else Reading.MISSING)
    while run is not None:
        yield _ran(run, scheduled=False)
        run = next(extra, None)


def _ran(run: Execution, *, scheduled: bool = True) -> Line:
    return Line(run.fires_at, run.status, None, run, scheduled)


def _beyond_the_cursor(fires_at: datetime, accounts: Accounts) -> Line:
    if accounts.status is JobStatus.CANCELLED:
        return Line(fires_at, Status.SKIPPED, CANCELLED)
    if fires_at > accounts.now:
        return Line(fires_at, Reading.EXPECTED)
    if accounts.status is JobStatus.PAUSED:
        return Line(fires_at, Status.SKIPPED, PAUSED)
    return Line(fires_at, Reading.UNSETTLED)


def _expected(
    revisions: list[Revision], start: datetime, end: datetime
) -> Iterator[tuple[datetime, str | None, Revision]]:
    """The firings of each schedule in its time, also those that its window or the clocks took away."""
    for revision in revisions:
        begin = max(revision.since, start - _JUST_BEFORE)
        until = end if revision.until is None else min(revision.until, end)
        both = merge(_firings(revision.schedule, begin, until), _lost(revision.schedule, begin, until))
        yield from ((fires_at, because or None, revision) for fires_at, because in both)


def _firings(schedule: Recurring, begin: datetime, until: datetime) -> Iterator[tuple[datetime, str]]:
    rhythm = replace(schedule, starts_at=None, ends_at=None)
    fires_at = rhythm.after(begin)
    while fires_at is not None and fires_at <= until:
        early = schedule.starts_at is not None and fires_at < schedule.starts_at
        late = schedule.ends_at is not None and fires_at > schedule.ends_at
        yield fires_at, WINDOW if early or late else ""
        fires_at = rhythm.after(fires_at)


def _lost(schedule: Recurring, begin: datetime, until: datetime) -> Iterator[tuple[datetime, str]]:
    """Local times that did not exist, with the instant they would have been at by the clocks of before."""
    clock = clock_of(schedule)
    if clock is None or clock.dst_gap is not DstGap.SKIP or clock.follows_elapsed_time:
        return
    for jump in jumps(clock.zone, begin.replace(microsecond=0), until):
        for local in clock.shown(*jump.span) if jump.is_gap else ():
            if begin < local - jump.before <= until:
                yield local - jump.before, DST_GAP
