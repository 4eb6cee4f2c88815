"""When a job fires: once, or again and again."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec import Struct

from rota.model.cron import Cron
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

SHORTEST_INTERVAL = timedelta(seconds=1)
_JUST_BEFORE = timedelta(microseconds=1)
_When = TypeVar("_When")


class Every(Struct, frozen=True, tag="INTERVAL"):
    """Every so much elapsed time, counted from `anchor` (set when the job is accepted)."""

    interval: timedelta
    anchor: datetime | None = None

    def after(self, moment: datetime) -> datetime | None:
        assert self.anchor is not None, "an interval is anchored before it is asked"
        if moment < self.anchor:
            return self.anchor
        return self.anchor + ((moment - self.anchor) // self.interval + 1) * self.interval


class ByCron(Struct, frozen=True, tag="CRON"):
    expression: str
    time_zone: str = "UTC"

    def after(self, moment: datetime) -> datetime | None:
        return _parsed(self.expression).after(moment, ZoneInfo(self.time_zone))


class Recurring(Struct, frozen=True):
    """A rhythm within a window; both ends of the window are part of it."""

    rhythm: Every | ByCron
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

    def anchored(self, now: datetime) -> Recurring:
        """An interval counts from the start of its window, or from its acceptance."""
        if isinstance(self.rhythm, ByCron) or self.rhythm.anchor is not None:
            return self
        anchor = self.starts_at or whole_milliseconds(now)
        return msgspec.structs.replace(self, rhythm=Every(self.rhythm.interval, anchor))


@lru_cache(maxsize=100_000)
def _parsed(expression: str) -> Cron:
    return Cron.parse(expression)


class ScheduleText(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule as it is sent and answered."""

    type: str
    expression: str | None = None
    time_zone: str | None = None


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
        case Every() | ByCron() as rhythm:
            return Recurring(rhythm, starts_at, ends_at)
        case once:
            fires_at = once or starts_at
            if fires_at and starts_at and fires_at < starts_at:
                raise InvalidSchedule("schedule", f"{print_instant(fires_at)} lies before execution_start_time")
            if fires_at and ends_at and fires_at > ends_at:
                raise InvalidSchedule("schedule", f"{print_instant(fires_at)} lies after execution_end_time")
            return fires_at


def _rhythm_of(schedule: str | ScheduleText | None, time_zone: str | None) -> Every | ByCron | datetime | None:
    match schedule:
        case None:
            return _without_zone(time_zone, None)
        case str():
            return _guess(schedule.strip(), time_zone)
        case ScheduleText(kind, expression, own_zone):
            return _typed(kind.upper(), (expression or "").strip(), own_zone or time_zone)


def _guess(text: str, time_zone: str | None) -> Every | ByCron | datetime | None:
    if text.lower() == "now":
        return _typed("NOW", "", time_zone)
    if looks_like_instant(text):
        return _typed("DATE", text, time_zone)
    if text[:1] in ("P", "p"):
        return _typed("INTERVAL", text, time_zone)
    return _typed("CRON", text, time_zone)


def _typed(kind: str, expression: str, time_zone: str | None) -> Every | ByCron | datetime | None:
    match kind:
        case "NOW":
            if expression:
                raise InvalidSchedule("schedule", "NOW takes no expression; leave it out")
            return _without_zone(time_zone, None)
        case "DATE":
            return _without_zone(time_zone, parse_instant(expression, "schedule"))
        case "INTERVAL":
            return _without_zone(time_zone, _every(expression))
        case "CRON":
            _parsed(expression)
            return ByCron(expression, known_zone(time_zone or "UTC"))
        case _:
            raise InvalidSchedule("schedule.type", f"{quoted(kind)} is not one of CRON, DATE, INTERVAL, NOW")


def _every(text: str) -> Every:
    interval = parse_duration(text, "schedule")
    interval = timedelta(milliseconds=interval // timedelta(milliseconds=1))
    if interval < SHORTEST_INTERVAL:
        raise InvalidSchedule("schedule", f"{quoted(text)} is shorter than the shortest interval, PT1S")
    return Every(interval)


def _without_zone(time_zone: str | None, when: _When) -> _When:
    if time_zone is not None:
        raise InvalidField("time_zone", "goes with cron expressions only; an instant carries its own offset")
    return when


def known_zone(name: str) -> str:
    if name not in _zones():
        raise InvalidField("time_zone", f"{quoted(name)} is not an IANA time zone; write it like Europe/Berlin")
    return name


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def schedule_text(recurring: Recurring) -> ScheduleText:
    match recurring.rhythm:
        case ByCron(expression, zone):
            return ScheduleText("CRON", expression, zone)
        case Every(interval):
            return ScheduleText("INTERVAL", print_duration(interval))
