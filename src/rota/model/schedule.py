"""When a job fires: once, or again and again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec import Struct

from rota.model.cron import Cron, DstFold, DstGap
from rota.model.errors import InvalidField, InvalidSchedule, quoted
from rota.model.instants import (
    LATEST,
    looks_like_instant,
    parse_duration,
    parse_instant,
    print_duration,
    print_instant,
    whole_milliseconds,
)
from rota.model.rrule import Rule

SHORTEST_INTERVAL = timedelta(seconds=1)
_JUST_BEFORE = timedelta(microseconds=1)
_When = TypeVar("_When")
_REPEATING = re.compile(r"R(\d{0,9})/", re.ASCII | re.IGNORECASE)


class Every(Struct, frozen=True, tag="INTERVAL"):
    """Every so much elapsed time, counted from `anchor` (set when the job is accepted), `times` often or for ever."""

    interval: timedelta
    anchor: datetime | None = None
    times: int | None = None

    def after(self, moment: datetime) -> datetime | None:
        assert self.anchor is not None, "an interval is anchored before it is asked"
        nth = 0 if moment < self.anchor else (moment - self.anchor) // self.interval + 1
        return None if self.times is not None and nth >= self.times else self.anchor + nth * self.interval

    def count(self, after: datetime, until: datetime) -> int:
        assert self.anchor is not None, "an interval is anchored before it is asked"
        most = self.times or sys.maxsize
        first, last = (min(most, max(0, (at - self.anchor) // self.interval + 1)) for at in (after, until))
        return max(0, last - first)


class ByCron(Struct, frozen=True, tag="CRON"):
    """`dst_fold` None is the first of two, or elapsed time for a pattern that covers every hour: see docs/cron.md."""

    expression: str
    time_zone: str = "UTC"
    dialect: str = "unix"
    dst_gap: DstGap = DstGap.SHIFT
    dst_fold: DstFold | None = None

    def after(self, moment: datetime) -> datetime | None:
        zone = ZoneInfo(self.time_zone)
        return parsed(self.expression, self.dialect).after(moment, zone, dst_gap=self.dst_gap, dst_fold=self.dst_fold)

    def firings(self, after: datetime) -> Iterator[datetime]:
        cron, zone = parsed(self.expression, self.dialect), ZoneInfo(self.time_zone)
        return cron.firings(after, zone, dst_gap=self.dst_gap, dst_fold=self.dst_fold)

    def count(self, after: datetime, until: datetime) -> int:
        cron, zone = parsed(self.expression, self.dialect), ZoneInfo(self.time_zone)
        return cron.count(after, until, zone, dst_gap=self.dst_gap, dst_fold=self.dst_fold)


class ByRule(Struct, frozen=True, tag="RRULE"):
    """A recurrence rule of RFC 5545, as text; its DTSTART is set when the job is accepted, unless it has one."""

    text: str
    time_zone: str = "UTC"

    def after(self, moment: datetime) -> datetime | None:
        return ruled(self.text, self.time_zone).after(moment)


class Recurring(Struct, frozen=True):
    """A rhythm within a window; both ends of the window are part of it."""

    rhythm: Every | ByCron | ByRule
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def after(self, moment: datetime) -> datetime | None:
        """The first firing strictly after `moment`."""
        if self.starts_at is not None and moment < self.starts_at:
            moment = self.starts_at - _JUST_BEFORE
        try:
            fires_at = self.rhythm.after(moment)
        except OverflowError:
            return None
        if fires_at is None or fires_at >= LATEST or (self.ends_at is not None and fires_at > self.ends_at):
            return None
        return fires_at

    def firings(self, after: datetime) -> Iterator[datetime]:
        """The firings strictly after a moment, as `after` would tell them one by one."""
        if isinstance(self.rhythm, ByCron):
            begin = after if self.starts_at is None else max(after, self.starts_at - _JUST_BEFORE)
            end = LATEST - _JUST_BEFORE if self.ends_at is None else self.ends_at
            yield from takewhile(end.__ge__, self.rhythm.firings(begin))
            return
        fires_at = self.after(after)
        while fires_at is not None:
            yield fires_at
            fires_at = self.after(fires_at)

    def count(self, after: datetime, until: datetime) -> int | None:
        """How many lie between two firings, the first not counted; None where one would have to go through them."""
        return None if isinstance(self.rhythm, ByRule) else self.rhythm.count(after, until)

    @property
    def zone(self) -> str:
        """By whose clocks a day is a day."""
        match self.rhythm:
            case ByCron(time_zone=zone):
                return zone
            case ByRule(text, zone):
                return ruled(text, zone).zone.key
            case _:
                return "UTC"

    def anchored(self, now: datetime) -> Recurring:
        """An interval or a rule counts from the start of its window, or from its acceptance."""
        anchor = self.starts_at or whole_milliseconds(now)
        match self.rhythm:
            case Every(anchor=None):
                rhythm: Every | ByRule = msgspec.structs.replace(self.rhythm, anchor=anchor)
            case ByRule(text, zone):
                rhythm = ByRule(ruled(text, zone).anchored(anchor).text, zone)
            case _:
                return self
        return msgspec.structs.replace(self, rhythm=rhythm)


@lru_cache(maxsize=100_000)
def parsed(expression: str, dialect: str) -> Cron:
    return Cron.parse(expression, dialect=dialect)


@lru_cache(maxsize=10_000)
def ruled(text: str, time_zone: str) -> Rule:
    return Rule.parse(text, time_zone)


class ScheduleText(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A schedule as it is sent and answered. `time_zone` goes with cron and RRULE, the last three with cron alone."""

    type: str
    expression: str | None = None
    time_zone: str | None = None
    dialect: Literal["unix", "quartz"] | None = None
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None


def parse_when(
    schedule: str | ScheduleText | None,
    *,
    start: str | None = None,
    end: str | None = None,
    time_zone: str | None = None,
) -> Recurring | datetime | None:
    """What was asked for: a recurring schedule, an instant, or None for now."""
    starts_at = parse_instant(start, "execution_start_time") if start is not None else None
    ends_at = parse_instant(end, "execution_end_time") if end is not None else None
    if starts_at and ends_at and ends_at < starts_at:
        raise InvalidField("execution_end_time", "lies before execution_start_time")
    match _rhythm_of(schedule, time_zone):
        case Every() | ByCron() | ByRule() as rhythm:
            return Recurring(rhythm, starts_at, ends_at)
        case once:
            fires_at = once or starts_at
            if fires_at and starts_at and fires_at < starts_at:
                raise InvalidSchedule("schedule", f"{print_instant(fires_at)} lies before execution_start_time")
            if fires_at and ends_at and fires_at > ends_at:
                raise InvalidSchedule("schedule", f"{print_instant(fires_at)} lies after execution_end_time")
            return fires_at


def _rhythm_of(schedule: str | ScheduleText | None, time_zone: str | None) -> Every | ByCron | ByRule | datetime | None:
    text = ScheduleText("NOW") if schedule is None else typed(schedule)
    text = msgspec.structs.replace(text, time_zone=text.time_zone or time_zone)
    expression = (text.expression or "").strip()
    match text.type.upper():
        case "NOW":
            if expression:
                raise InvalidSchedule("schedule", "NOW takes no expression; leave it out")
            return _plain(text, None)
        case "DATE":
            return _plain(text, parse_instant(expression, "schedule"))
        case "INTERVAL":
            return _plain(text, _every(expression))
        case "CRON":
            return _by_cron(text, expression)
        case "RRULE":
            return _by_rule(text, expression)
        case kind:
            raise InvalidSchedule("schedule.type", f"{quoted(kind)} is not one of CRON, DATE, INTERVAL, NOW, RRULE")


def typed(schedule: str | ScheduleText) -> ScheduleText:
    """A schedule of one line, told by its looks."""
    if isinstance(schedule, ScheduleText):
        return schedule
    text = schedule.strip()
    if text.lower() == "now":
        return ScheduleText("NOW")
    if looks_like_instant(text):
        return ScheduleText("DATE", text)
    if text[:1] in ("P", "p") or _REPEATING.match(text):
        return ScheduleText("INTERVAL", text)
    if "FREQ=" in text.upper():
        return ScheduleText("RRULE", text)
    return ScheduleText("CRON", text)


def _by_cron(text: ScheduleText, expression: str) -> ByCron:
    rhythm = ByCron(
        expression,
        known_zone(text.time_zone or "UTC"),
        text.dialect or "unix",
        text.dst_gap or DstGap.SHIFT,
        text.dst_fold,
    )
    parsed(rhythm.expression, rhythm.dialect)
    return rhythm


def _by_rule(text: ScheduleText, expression: str) -> ByRule:
    """As it was written: what is not said, like DTSTART, is told in the answer when the job is accepted."""
    _no_cron_rules(text)
    rhythm = ByRule(expression, known_zone(text.time_zone or "UTC"))
    return ByRule(ruled(rhythm.text, rhythm.time_zone).text, rhythm.time_zone)


def _every(text: str) -> Every:
    """`PT15M`, or `R5/2027-01-01T00:00:00Z/PT1H`: five times from then on."""
    if not (repeating := _REPEATING.match(text)):
        return Every(_interval(text))
    start, slash, interval = text[repeating.end() :].partition("/")
    if not slash:
        raise InvalidSchedule(
            "schedule", f"{quoted(text)} is not R[n]/start/interval, like R5/2027-01-01T00:00:00Z/PT1H"
        )
    times = int(repeating[1]) if repeating[1] else None
    if times == 0:
        raise InvalidSchedule("schedule", f"{quoted(text)} never fires; write R for ever, or R1 and more")
    return Every(_interval(interval), parse_instant(start, "schedule"), times)


def _interval(text: str) -> timedelta:
    interval = timedelta(milliseconds=parse_duration(text, "schedule") // timedelta(milliseconds=1))
    if interval < SHORTEST_INTERVAL:
        raise InvalidSchedule("schedule", f"{quoted(text)} is shorter than the shortest interval, PT1S")
    return interval


def _plain(text: ScheduleText, when: _When) -> _When:
    """What takes neither a zone nor the things that go with cron expressions."""
    if text.time_zone is not None:
        raise InvalidField("time_zone", "goes with cron and RRULE only; an instant carries its own offset")
    _no_cron_rules(text)
    return when


def _no_cron_rules(text: ScheduleText) -> None:
    for field in ("dialect", "dst_gap", "dst_fold"):
        if getattr(text, field) is not None:
            raise InvalidField(f"schedule.{field}", "goes with cron expressions only; leave it out")


def known_zone(name: str) -> str:
    if name not in _zones():
        raise InvalidField("time_zone", f"{quoted(name)} is not an IANA time zone; write it like Europe/Berlin")
    return name


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def schedule_text(recurring: Recurring) -> ScheduleText:
    """As it was sent; what is as usual is left out."""
    match recurring.rhythm:
        case ByCron(expression, zone, dialect, dst_gap, dst_fold):
            return ScheduleText(
                "CRON",
                expression,
                zone,
                "quartz" if dialect == "quartz" else None,
                None if dst_gap is DstGap.SHIFT else dst_gap,
                dst_fold,
            )
        case ByRule(text, zone):
            return ScheduleText("RRULE", text, zone)
        case Every(interval, anchor, times) if anchor is not None and times is not None:
            return ScheduleText("INTERVAL", f"R{times}/{print_instant(anchor)}/{print_duration(interval)}")
        case Every(interval):
            return ScheduleText("INTERVAL", print_duration(interval))
