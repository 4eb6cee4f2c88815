"""What a schedule is going to do: its next firings, what to know about them, what a change makes of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice, pairwise
from math import ceil
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from rota.model.cron import Cron, DstFold, DstGap
from rota.model.describe import describe, describe_interval, in_words, listed
from rota.model.instants import LATEST, print_instant
from rota.model.schedule import ByCron, Every, Recurring

# Far enough to meet every change of the clocks in a year, also for who looks a few days after one.
AHEAD: Final = timedelta(days=396)
# So many firings are looked at to find the shortest time between two.
SAMPLE: Final = 100
# So many local times of one night are named.
NAMED: Final = 4
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_ZULU: Final = ZoneInfo("UTC")


class Schedule(Protocol):
    """All that is asked of a schedule: the first firing strictly after a moment, None when there is none."""

    def after(self, moment: datetime) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Once:
    at: datetime

    def after(self, moment: datetime) -> datetime | None:
        return self.at if moment < self.at else None


@dataclass(frozen=True, slots=True)
class Clock:
    """A cron expression by the clocks of a zone."""

    cron: Cron
    zone: ZoneInfo
    dst_gap: DstGap = DstGap.SHIFT
    dst_fold: DstFold | None = None

    def after(self, moment: datetime) -> datetime | None:
        fires_at = self.cron.after(moment, self.zone, dst_gap=self.dst_gap, dst_fold=self.dst_fold)
        return fires_at if fires_at is not None and fires_at < LATEST else None

    @property
    def follows_elapsed_time(self) -> bool:
        return self.dst_fold is None and self.cron.pattern.every_hour

    def shows(self, local: datetime) -> bool:
        """Whether the fields allow this local time, which is given as if it were UTC."""
        return self.cron.after(local - _SECOND, _ZULU) == local

    def shown(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """The local times from `begin` to before `end` that the fields allow, all of them as if they were UTC."""
        local = self.cron.after(begin - _SECOND, _ZULU)
        while local is not None and local < end:
            yield local
            local = self.cron.after(local, _ZULU)


def clock_of(schedule: Schedule) -> Clock | None:
    """The clocks that a schedule goes by; None when it goes by elapsed time."""
    match schedule:
        case Clock():
            return schedule
        case Recurring(rhythm=ByCron(expression, time_zone)):
            return Clock(Cron.parse(expression), ZoneInfo(time_zone))
        case _:
            return None


def sentence(schedule: Schedule) -> str:
    clock = clock_of(schedule)
    match schedule:
        case _ if clock is not None:
            return describe(clock.cron, clock.zone.key)
        case Recurring(rhythm=Every(interval)):
            return describe_interval(interval)
        case Once(at):
            return f"Once, at {print_instant(at)}"
        case _:
            return "By a rule of its own"


@dataclass(frozen=True, slots=True)
class Firing:
    """`local` is the wall clock in the zone of the schedule, ISO 8601 with its offset."""

    at: datetime
    local: str
    note: str | None = None


def preview(schedule: Schedule, *, after: datetime, count: int) -> list[Firing]:
    clock = clock_of(schedule)
    return [_firing(at, clock) for at in islice(firings(schedule, after), count)]


def firings(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    moment = schedule.after(after)
    while moment is not None:
        yield moment
        moment = schedule.after(moment)


def fires_at(schedule: Schedule, instant: datetime) -> bool:
    return schedule.after(instant - timedelta(microseconds=1)) == instant


def _firing(at: datetime, clock: Clock | None) -> Firing:
    local = at.astimezone(clock.zone if clock else UTC)
    return Firing(at, local.isoformat(), _note(local, clock) if clock else None)


def _note(local: datetime, clock: Clock) -> str | None:
    if not clock.shows(local.replace(tzinfo=UTC, fold=0)):
        return "moved out of the hour that the clocks skip"
    if local.utcoffset() == local.replace(fold=1 - local.fold).utcoffset():
        return None
    return f"the {'second' if local.fold else 'first'} of two times {_wall(local)}"


# Warnings


def lint(schedule: Schedule, *, after: datetime, ahead: timedelta = AHEAD) -> list[str]:
    """What whoever wrote the schedule may not have meant, a sentence each."""
    first = schedule.after(after)
    if first is None:
        return [f"It never fires after {print_instant(after)}"]
    return [*_rare(first, after, ahead), *_dense(schedule, after), *_clock_changes(schedule, first, after, ahead)]


def _rare(first: datetime, after: datetime, ahead: timedelta) -> Iterator[str]:
    if first > after + ahead:
        yield f"It does not fire within the next {ahead.days} days; the first firing is at {print_instant(first)}"


def _dense(schedule: Schedule, after: datetime) -> Iterator[str]:
    shortest = shortest_gap(schedule, after)
    if shortest is not None and shortest <= _SECOND:
        yield "It fires as often as every second, which is as often as a schedule can"


def shortest_gap(schedule: Schedule, after: datetime) -> timedelta | None:
    """The least time between two of the next firings; None when there are not two."""
    return min((b - a for a, b in pairwise(islice(firings(schedule, after), SAMPLE))), default=None)


def too_slow(took: Sequence[timedelta], gap: timedelta | None) -> str | None:
    """Says so when runs, going by the 95th percentile of past ones, last longer than the time between firings."""
    if not took or gap is None:
        return None
    usual = sorted(took)[ceil(len(took) * 0.95) - 1]
    if usual <= gap:
        return None
    return (
        f"Going by the last {len(took)} completed runs it takes up to {in_words(usual)} (95th percentile), "
        f"and the shortest time between firings is {in_words(gap)}"
    )


def _clock_changes(schedule: Schedule, first: datetime, after: datetime, ahead: timedelta) -> Iterator[str]:
    clock = clock_of(schedule)
    if clock is None or clock.follows_elapsed_time:
        return
    # From a day before the first firing, which itself may have been moved.
    for jump in _jumps(clock.zone, max(first - _DAY, after), first + ahead):
        yield from _gap(schedule, clock, jump) if jump.forward else _fold(schedule, clock, jump)


@dataclass(frozen=True, slots=True)
class _Jump:
    """The clocks of a zone change, from one offset to another."""

    at: datetime
    before: timedelta
    behind: timedelta
