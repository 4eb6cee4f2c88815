"""Calendars: named lists of days on which the jobs that refer to them do not fire."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from rota.model.errors import InvalidField, quoted
from rota.model.instants import EARLIEST, LATEST, parse_instant

MOST_DAYS = 1000
_DAY = timedelta(days=1)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# Where each begins and where it is over; of dates or of instants.
_Spans = tuple[list[date], list[date]]


class Calendar(Struct, frozen=True):
    """`days` as they were sent: `2027-12-25`, `2027-12-24/2027-12-26` (both ends belong to it, in the zone of the
    job), or `2027-12-24T12:00:00Z/2027-12-27T06:00:00Z` (up to, but without, the second instant)."""

    days: tuple[str, ...]

    def covers(self, moment: datetime, zone: str) -> bool:
        dates, instants = _blackouts(self.days)
        # What day it is there, not where its midnights are: clocks that are turned there repeat or skip them.
        return _within(dates, moment.astimezone(ZoneInfo(zone)).date()) or _within(instants, moment)


class NamedCalendar(Calendar, frozen=True, kw_only=True):
    """One that somebody has put under a name."""

    user_id: str
    name: str
    changed_at: datetime


def parse_calendar(days: list[str]) -> Calendar:
    if len(days) > MOST_DAYS:
        raise InvalidField("days", f"has {len(days)} entries; {MOST_DAYS} are kept at most")
    for place, text in enumerate(days):
        _span(text, f"days[{place}]")
    return Calendar(tuple(days))


def _span(text: str, field: str) -> tuple[date, date]:
    """Where an entry begins and where it is over: two dates, or two instants."""
    first, slash, last = text.partition("/")
    begins: date
    if _DATE.fullmatch(first) and (not slash or _DATE.fullmatch(last)):
        begins, ends = _date(first, field), _date(last if slash else first, field) + _DAY
    elif slash and not _DATE.fullmatch(first) and not _DATE.fullmatch(last):
        begins, ends = parse_instant(first, field), parse_instant(last, field)
    else:
        raise InvalidField(
            field, f"{quoted(text)} is not a date like 2027-12-25, two dates with a / between them, or two instants"
        )
    if ends <= begins:
        raise InvalidField(field, f"{quoted(text)} does not end after it begins")
    return begins, ends


def _date(text: str, field: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise InvalidField(field, f"{quoted(text)} is not a date: {error}") from None
    if not EARLIEST.date() <= day < LATEST.date():
        raise InvalidField(field, f"{quoted(text)} lies outside the years 1970 to 2199")
    return day


@lru_cache(maxsize=100)
def _blackouts(days: tuple[str, ...]) -> tuple[_Spans, _Spans]:
    spans = [_span(text, "days") for text in days]
    return (
        _merged(span for span in spans if not isinstance(span[0], datetime)),
        _merged(span for span in spans if isinstance(span[0], datetime)),
    )


def _merged(spans: Iterable[tuple[date, date]]) -> _Spans:
    """In order and without overlaps."""
    starts: list[date] = []
    ends: list[date] = []
    for begins, over in sorted(spans):
        if ends and begins <= ends[-1]:
            ends[-1] = max(ends[-1], over)
        else:
            starts.append(begins)
            ends.append(over)
    return starts, ends


def _within(spans: _Spans, moment: date) -> bool:
    starts, ends = spans
    place = bisect_right(starts, moment) - 1
    return place >= 0 and moment < ends[place]
