"""Instants and durations as ISO 8601 writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rota.model.errors import InvalidField, quoted

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,11})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)
_INSTANT = re.compile(r"\d{4}-?\d{2}-?\d{2}[Tt ].{2,25}", re.ASCII)
# Python itself takes any one character before an offset, and a NUL behind it.
_WRITTEN = re.compile(r"[\d-]+[T ][\d:.,]+(?:Z|[+-][\d:]+)?", re.ASCII)


def parse_instant(text: str, field: str) -> datetime:
    """An aware UTC datetime in whole milliseconds; an instant without an offset is refused, not guessed."""
    if not looks_like_instant(text) or not _WRITTEN.fullmatch(text.upper()):
        raise InvalidField(field, f"{quoted(text)} is not an ISO 8601 instant; write it like 2027-01-31T10:30:00Z")
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise InvalidField(field, f"{quoted(text)} is not an ISO 8601 instant: {error}") from None
    if moment.tzinfo is None:
        raise InvalidField(field, f"{quoted(text)} has no offset; add Z for UTC or an offset like +02:00")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise InvalidField(field, f"{quoted(text)} lies outside the calendar") from None
    if not EARLIEST <= moment < LATEST:
        raise InvalidField(field, f"{quoted(text)} lies outside the years 1970 to 2199")
    return whole_milliseconds(moment)


def looks_like_instant(text: str) -> bool:
    return _INSTANT.fullmatch(text) is not None


def whole_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def parse_duration(text: str, field: str) -> timedelta:
    match = _DURATION.fullmatch(text.upper()) if text.isascii() else None
    if not match or not any(match.groups()):
        hint = "years and months have no fixed length, use a cron expression" if _has_calendar_parts(text) else ""
        problem = hint or "write it like PT15M, PT1H30M or P1D"
        raise InvalidField(field, f"{quoted(text)} is not an ISO 8601 duration; {problem}")
    parts = {unit: float((value or "0").replace(",", ".")) for unit, value in match.groupdict().items()}
    try:
        return timedelta(**parts)
    except OverflowError:
        raise InvalidField(field, f"{quoted(text)} is too long") from None


def _has_calendar_parts(text: str) -> bool:
    return re.match(r"P[^T]*\d[YM]", text.upper()) is not None


def print_instant(moment: datetime) -> str:
    """UTC with milliseconds, the form of every instant we answer with."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def print_duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(hours, "H"), (minutes, "M"), (round(seconds, 6), "S")]
    return "PT" + (
        "".join(f"{value:g}{unit}" if unit == "S" else f"{value:.0f}{unit}" for value, unit in parts if value) or "0S"
    )
