"""What a schedule is going to do: its next firings, what to know about them, what a change makes of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, pairwise
from math import ceil
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from rota.model.cron import Cron, DstFold, DstGap
from rota.model.describe import describe, describe_interval, in_words, listed
from rota.model.describe_rule import describe as describe_rule
from rota.model.instants import LATEST, print_instant
from rota.model.schedule import ByCron, ByRule, Every, Recurring, parsed, ruled

# Far enough to meet every change of the clocks in a year, also for who looks a few days after one.
AHEAD: Final = timedelta(days=396)
# The changes of a zone's clocks cost a quarter of a millisecond a half-year when they are first asked for.
CENTURY: Final = timedelta(days=36_525)
# So many firings are looked at to find the shortest time between two.
SAMPLE: Final = 100
# So many local times of one night are named.
NAMED: Final = 4
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_ZULU: Final = ZoneInfo("UTC")


class Timetable(Protocol):
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


def clock_of(schedule: Timetable) -> Clock | None:
    """The clocks that a schedule goes by; None when it goes by elapsed time."""
    match schedule:
        case Clock():
            return schedule
        case Recurring(rhythm=ByCron(expression, time_zone, dialect, dst_gap, dst_fold)):
            return Clock(parsed(expression, dialect), ZoneInfo(time_zone), dst_gap, dst_fold)
        case _:
            return None


def sentence(schedule: Timetable) -> str:
    clock = clock_of(schedule)
    match schedule:
        case _ if clock is not None:
            return describe(clock.cron, clock.zone.key)
        case Recurring(rhythm=Every(interval)):
            return describe_interval(interval)
        case Recurring(rhythm=ByRule(text, zone)):
            return describe_rule(ruled(text, zone))
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


def preview(schedule: Timetable, *, after: datetime, count: int) -> list[Firing]:
    clock, zone = clock_of(schedule), ZoneInfo(zone_of(schedule))
    return [_firing(at, clock, zone) for at in islice(firings(schedule, after), count)]


def firings(schedule: Timetable, after: datetime) -> Iterator[datetime]:
    """From the first one on, for a century."""
    first = moment = schedule.after(after)
    while first is not None and moment is not None and moment - first <= CENTURY:
        yield moment
        moment = schedule.after(moment)


def fires_at(schedule: Timetable, instant: datetime) -> bool:
    return schedule.after(instant - timedelta(microseconds=1)) == instant


def zone_of(schedule: Timetable) -> str:
    """By whose clocks the firings are told."""
    match schedule:
        case Clock(zone=zone):
            return zone.key
        case Recurring():
            return schedule.zone
        case _:
            return "UTC"


def _firing(at: datetime, clock: Clock | None, zone: ZoneInfo) -> Firing:
    local = at.astimezone(zone)
    return Firing(at, local.isoformat(), _note(local, clock) if clock else None)


def _note(local: datetime, clock: Clock) -> str | None:
    if not clock.shows(local.replace(tzinfo=UTC, fold=0)):
        return "shifted out of the DST gap"
    if local.utcoffset() == local.replace(fold=1 - local.fold).utcoffset():
        return None
    return f"the {'second' if local.fold else 'first'} of two {_wall(local)}"


# Warnings


def lint(schedule: Timetable, *, after: datetime, ahead: timedelta = AHEAD) -> list[str]:
    """What whoever wrote the schedule may not have meant, a sentence each."""
    first = schedule.after(after)
    if first is None:
        return [f"It never fires after {print_instant(after)}"]
    return [*_rare(first, after, ahead), *_dense(schedule, after), *_clock_changes(schedule, first, after, ahead)]


def _rare(first: datetime, after: datetime, ahead: timedelta) -> Iterator[str]:
    if first > after + ahead:
        yield f"It does not fire within the next {ahead.days} days; the first firing is at {print_instant(first)}"


def _dense(schedule: Timetable, after: datetime) -> Iterator[str]:
    shortest = shortest_gap(schedule, after)
    if shortest is not None and shortest <= _SECOND:
        yield "It fires as often as every second"


def shortest_gap(schedule: Timetable, after: datetime) -> timedelta | None:
    """The least time between two of the next firings; None when there are not two."""
    return min((b - a for a, b in pairwise(islice(firings(schedule, after), SAMPLE))), default=None)


def too_slow(took: Sequence[timedelta], gap: timedelta | None) -> str | None:
    """Says so when runs, going by the 95th percentile of past ones, last longer than the time between firings."""
    if not took or gap is None:
        return None
    usual = sorted(took)[ceil(len(took) * 0.95) - 1]
    if usual <= gap:
        return None
    runs = f"{len(took)} completed runs" if len(took) > 1 else "completed run"
    return (
        f"Going by the last {runs} it takes up to {in_words(usual)} (95th percentile), "
        f"and the shortest time between firings is {in_words(gap)}"
    )


# When the clocks change


@dataclass(frozen=True, slots=True)
class Jump:
    """The clocks of a zone go from one offset to another."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The local times, as if they were UTC, that are skipped or repeated."""
        early, late = sorted((self.before, self.after))
        return self.at + early, self.at + late


def jumps(zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[Jump]:
    """zoneinfo knows when the clocks change and has no way to say so; no two changes are within two days."""

    def offset(seconds: int) -> timedelta | None:
        return (begin + timedelta(seconds=seconds)).astimezone(zone).utcoffset()

    stride = 2 * 86_400
    while begin < end:
        before = offset(0)
        if offset(stride) != before:
            later = bisect_left(range(stride), True, key=lambda seconds: offset(seconds) != before)
            after = offset(later)
            begin += timedelta(seconds=later)
            assert before is not None and after is not None
            yield Jump(begin, before, after)
        else:
            begin += timedelta(seconds=stride)


def _clock_changes(schedule: Timetable, first: datetime, after: datetime, ahead: timedelta) -> Iterator[str]:
    clock = clock_of(schedule)
    if clock is None or clock.follows_elapsed_time:
        return
    # From a day before the first firing, which itself may have been moved.
    begin = max(first - _DAY, after).replace(microsecond=0)
    for jump in jumps(clock.zone, begin, first + ahead):
        tell = _lost if jump.is_gap else _doubled
        times = islice(clock.shown(*jump.span), NAMED + 1)
        concerned = [local for local in times if _concerns(schedule, _instants(local, clock, jump), jump)]
        for _, night in groupby(concerned, key=datetime.date):
            yield tell([*night], clock, jump)


def _instants(local: datetime, clock: Clock, jump: Jump) -> tuple[datetime, ...]:
    """When a local time fires that is skipped or repeated."""
    match clock.dst_gap if jump.is_gap else clock.dst_fold or DstFold.FIRST:
        case DstGap.SHIFT | DstFold.FIRST:
            return (local - jump.before,)
        case DstGap.AT_TRANSITION:
            return (jump.at,)
        case DstGap.SKIP:
            return ()
        case DstFold.SECOND:
            return (local - jump.after,)
        case DstFold.BOTH:
            return local - jump.before, local - jump.after


def _concerns(schedule: Timetable, instants: tuple[datetime, ...], jump: Jump) -> bool:
    """Not what lies outside the window of the schedule, for one."""
    return all(fires_at(schedule, at) for at in instants) if instants else schedule.after(jump.at) is not None


def _lost(night: list[datetime], clock: Clock, jump: Jump) -> str:
    they_fire, do = ("they fire", "do") if len(night) > 1 else ("it fires", "does")
    what = f"{_walls(night)} {do} not exist on {night[0]:%Y-%m-%d} in {clock.zone.key}"
    moved = [at + jump.after for local in night for at in _instants(local, clock, jump)]
    if not moved:
        return f"{what} and {do} not fire"
    same_day = moved[0].date() == night[0].date()
    return f"{what}; {they_fire} at {_walls(moved)}" + ("" if same_day else f" on {moved[0]:%Y-%m-%d}")


def _doubled(night: list[datetime], clock: Clock, jump: Jump) -> str:
    they_fire, come, at, on = (
        ("they fire", "come", "from", " on") if len(night) > 1 else ("it fires", "comes", "at", "")
    )
    which = {DstFold.FIRST: "the first time", DstFold.SECOND: "the second time", DstFold.BOTH: "both times"}
    used = which[clock.dst_fold or DstFold.FIRST]
    instants = listed(map(print_instant, _instants(night[0], clock, jump)))
    what = f"{_walls(night)} {come} twice on {night[0]:%Y-%m-%d} in {clock.zone.key}"
    return f"{what}; {they_fire} {used}, {at} {instants}{on}"


def _walls(times: list[datetime]) -> str:
    named = [*dict.fromkeys(_wall(local) for local in times)]
    return listed([*named[: NAMED - 1], "more"] if len(named) > NAMED else named)


def _wall(local: datetime) -> str:
    return f"{local:%H:%M:%S}".removesuffix(":00")


# Differences


@dataclass(frozen=True, slots=True)
class Difference:
    """Firings that only the new schedule has, only the old one, and both."""

    added: list[datetime]
    removed: list[datetime]
    same: list[datetime]


def difference(old: Timetable, new: Timetable, *, after: datetime, count: int) -> Difference:
    """Of the next `count` firings of each; whether the other fires then too is asked of it, however far ahead."""
    ours, theirs = (list(islice(firings(schedule, after), count)) for schedule in (new, old))
    added = [instant for instant in ours if not fires_at(old, instant)]
    removed = [instant for instant in theirs if not fires_at(new, instant)]
    return Difference(added, removed, sorted({*ours, *theirs}.difference(added, removed)))
