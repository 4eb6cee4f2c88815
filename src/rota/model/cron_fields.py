"""The text of a cron expression, read into tables of what it allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from operator import and_, or_
from typing import Final, Literal, NoReturn, get_args

from rota.model.errors import InvalidSchedule

Dialect = Literal["unix", "quartz"]
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)

# (days in the month, weekday of its first with Sunday 0) to a bitmask in which bit 15 is the 15th.
DayRule = Callable[[int, int], int]

LONGEST_TEXT: Final = 1_000
MONTH_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 JAN *",
    "@annually": "0 0 1 JAN *",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """What an expression allows. `seconds[s]` is the first allowed second from s on, 60 when there is none; the
    minutes, hours and months likewise."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    # The hours, minutes and seconds once more, as bitmasks, and how many times of day they make: to count with.
    times: tuple[int, int, int]
    times_a_day: int
    months: tuple[int, ...]
    # Ascending; None is every year there is.
    years: tuple[int, ...] | None
    # One bitmask for each of the 28 shapes a month can have, see `month_shape`.
    days: tuple[int, ...]
    every_day: bool
    every_hour: bool


def dialect_named(name: str) -> Dialect:
    known = next((dialect for dialect in DIALECTS if dialect == name), None)
    if known is None:
        _refuse(f"there is no cron dialect {_clip(name)!r}; write unix or quartz")
    return known


def read(text: str, dialect: Dialect) -> Pattern:
    """Raises InvalidSchedule where the text is no cron expression, or is one that never fires."""
    second, minute, hour, day_of_month, month, day_of_week, year = _split(text)
    seconds, minutes, hours = _values(SECOND, second), _values(MINUTE, minute), _values(HOUR, hour)
    months = _values(MONTH, month)
    years = None if year == "*" else tuple(sorted(_values(YEAR, year)))
    days = _days(day_of_month, day_of_week, WEEKDAYS[dialect])
    if not _ever_fires(years, months, days):
        _refuse_never(day_of_month, day_of_week, month, year)
    return Pattern(
        seconds=_next_table(seconds, 60),
        minutes=_next_table(minutes, 60),
        hours=_next_table(hours, 24),
        times=(_mask(hours), _mask(minutes), _mask(seconds)),
        times_a_day=len(hours) * len(minutes) * len(seconds),
        months=_next_table(months, 13),
        years=years,
        days=days,
        every_day=years is None and len(months) == 12 and days == _EVERY_DAY,
        every_hour=len(hours) == 24,
    )


def month_shape(year: int, month: int, first_weekday: int) -> int:
    """Which entry of `Pattern.days` describes this month."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return (MONTH_LENGTHS[month] + leap - 28) * 7 + first_weekday


def _split(text: str) -> list[str]:
    if len(text) > LONGEST_TEXT:
        _refuse(f"is {len(text):,} characters long; write at most {LONGEST_TEXT:,}")
    if not text.isascii():
        _refuse("has characters outside ASCII; write digits 0-9, letters A-Z and * ? , - / # + only")
    words = text.upper().split()
    if len(words) == 1 and words[0].startswith("@"):
        words = _macro(words[0]).split()
    if not 5 <= len(words) <= 7:
        _refuse(
            f"has {len(words)} fields; write 5 (minute, hour, day of month, month, day of week), "
            "6 (a second before them) or 7 (also a year after them)"
        )
    if len(words) == 5:
        words.insert(0, "0")
    if len(words) == 6:
        words.append("*")
    return words


def _macro(word: str) -> str:
    expansion = MACROS.get(word.lower())
    if expansion is None:
        _refuse(f"{_clip(word)} is no macro of ours; write one of {' '.join(MACROS)}, or the fields themselves")
    return expansion


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    # As people write them; `shift` takes them to the numbers we compute with.
    written: range
    hint: str
    names: tuple[str, ...] = ()
    shift: int = 0
    wraps: bool = True

    @property
    def low(self) -> int:
        return self.written.start + self.shift

    @property
    def count(self) -> int:
        # A week has seven days, although Sunday is written both 0 and 7.
        return len(self.names) or len(self.written)

    def refuse(self, what: str) -> NoReturn:
        _refuse(f"{self.name}: {what}; write {self.hint}")

    def value(self, text: str) -> int:
        if text in self.names:
            return self.low + self.names.index(text)
        if not text:
            self.refuse("a value is missing")
        if not text.isdecimal():
            self.refuse(f"{_clip(text)!r} is not understood")
        number = int(text)
        if number not in self.written:
            self.refuse(f"{_clip(text)} is outside {self.written.start}-{self.written[-1]}")
        return number + self.shift

    def step(self, text: str) -> int:
        if not text.isdecimal():
            self.refuse(f"the step {_clip(text)!r} is not a number")
        step = int(text)
        if not 1 <= step <= self.count:
            # */90 in the minutes would fire on the hour, and never means that.
            _refuse(f"{self.name}: the step {_clip(text)} is not possible; write a step from 1 to {self.count}")
        return step


_MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SIXTY: Final = "a number from 0 to 59, a range like 10-20, a list like 0,30 or a step like */15"

SECOND: Final = Field("second", range(60), _SIXTY)
MINUTE: Final = Field("minute", range(60), _SIXTY)
HOUR: Final = Field("hour", range(24), "a number from 0 to 23, a range like 9-17, a list like 8,20 or a step like */2")
DAY: Final = Field("day of month", range(1, 32), "a number from 1 to 31, a range like 1-7, L, L-3, LW, 15W or ?")
MONTH: Final = Field(
    "month", range(1, 13), "a number from 1 to 12, a name JAN to DEC or a range like NOV-FEB", _MONTH_NAMES
)
WEEKDAYS: Final[dict[Dialect, Field]] = {
    "unix": Field(
        "day of week",
        range(8),
        "a number from 0 to 7 (Sunday is 0 and 7), a name SUN to SAT, a range like MON-FRI, FRI#2, FRI#L, 5L or ?",
        _WEEKDAY_NAMES,
    ),
    "quartz": Field(
        "day of week",
        range(1, 8),
        "a number from 1 to 7 (Sunday is 1), a name SUN to SAT, a range like MON-FRI, FRI#2, FRI#L, 6L or ?",
        _WEEKDAY_NAMES,
        shift=-1,
    ),
}
YEAR: Final = Field("year", range(1970, 2200), "a year from 1970 to 2199, a range like 2026-2030 or *", wraps=False)


def _values(field: Field, text: str) -> set[int]:
    if text == "?":
        _refuse(f"{field.name}: ? only stands for a day of month or a day of week; write *")
    return {value for item in text.split(",") for value in _item(field, item)}


def _item(field: Field, item: str) -> Iterator[int]:
    """The values of `*`, `5`, `5-9` or any of them with a step; ranges may run past the end of the field."""
    span, has_step, step_text = item.partition("/")
    step = field.step(step_text) if has_step else 1
    start, end = _ends(field, span, open_ended=bool(has_step))
    if start > end and not field.wraps:
        field.refuse(f"{_clip(span)} runs backwards")
    if start > end:
        end += field.count
    low, count = field.low, field.count
    return (low + (value - low) % count for value in range(start, end + 1, step))


def _ends(field: Field, span: str, *, open_ended: bool) -> tuple[int, int]:
    last = field.low + field.count - 1
    if span == "*":
        return field.low, last
    start, is_range, end = span.partition("-")
    if is_range:
        return field.value(start), field.value(end)
    return field.value(start), last if open_ended else field.value(start)


_FROM_LAST: Final = re.compile(r"L(?:-([0-9]+))?(W?)")
_NEAREST: Final = re.compile(r"([0-9]+)W")


def _days(day_of_month: str, day_of_week: str, weekday: Field) -> tuple[int, ...]:
    of_month = _any_of([_day_of_month(item) for item in _spelled_out(day_of_month)])
    of_week = _any_of([_day_of_week(weekday, item) for item in _spelled_out(day_of_week.removeprefix("+"))])
    combine = and_ if _both_must_match(day_of_month, day_of_week) else or_
    return tuple(combine(of_month(length, first), of_week(length, first)) for length, first in _MONTH_SHAPES)


def _spelled_out(text: str) -> list[str]:
    return ["*"] if text == "?" else text.split(",")


def _both_must_match(day_of_month: str, day_of_week: str) -> bool:
    # Vixie cron looks at the first character only, so */2 counts as unrestricted too: see docs/cron.md.
    return day_of_month.startswith(("*", "?")) or day_of_week.startswith(("*", "?", "+"))


def _day_of_month(item: str) -> DayRule:
    if counted := _FROM_LAST.fullmatch(item):
        before, weekday = counted.groups()
        if before and not 1 <= int(before) <= 30:
            _refuse(f"{DAY.name}: {_clip(item)} is in no month; write L, or L-1 to L-30")
        return _one_day(lambda length: length - int(before or 0), to_weekday=bool(weekday))
    if nearest := _NEAREST.fullmatch(item):
        day = DAY.value(nearest[1])
        return _one_day(lambda length: day, to_weekday=True)
    return _these_days(_mask(_item(DAY, item)))


def _day_of_week(field: Field, item: str) -> DayRule:
    if item == "L":
        _refuse(f"{field.name}: L alone does not say which day; write FRI#L for the last Friday, or SAT for Saturdays")
    name, has_nth, nth = item.partition("#")
    if not has_nth and item.endswith("L"):
        name, has_nth, nth = item[:-1], "#", "L"
    if not has_nth:
        return _weekdays(set(_item(field, item)))
    weekday = field.value(name) % 7
    if nth == "L":
        return _nth_weekday(weekday, lambda length: length - 6)
    if nth not in ("1", "2", "3", "4", "5"):
        _refuse(f"{field.name}: {_clip(item)} is in no month; write FRI#1 to FRI#5, or FRI#L for the last Friday")
    earliest = int(nth) * 7 - 6
    return _nth_weekday(weekday, lambda length: earliest)


def _any_of(rules: list[DayRule]) -> DayRule:
    def days(length: int, first: int) -> int:
        mask = 0
        for rule in rules:
            mask |= rule(length, first)
        return mask

    return days if len(rules) > 1 else rules[0]


def _these_days(mask: int) -> DayRule:
    return lambda length, first: mask & _all_of(length)


def _one_day(day_in: Callable[[int], int], *, to_weekday: bool) -> DayRule:
    def days(length: int, first: int) -> int:
        day = day_in(length)
        if not 1 <= day <= length:
            return 0
        return 1 << (_nearest_weekday(day, length, first) if to_weekday else day)

    return days


def _nearest_weekday(day: int, length: int, first: int) -> int:
    """Monday to Friday, in the same month whatever the distance."""
    match (first + day - 1) % 7:
        case 6:
            return day - 1 if day > 1 else day + 2
        case 0:
            return day + 1 if day < length else day - 2
        case _:
            return day


def _weekdays(weekdays: set[int]) -> DayRule:
    def days(length: int, first: int) -> int:
        mask = 0
        for weekday in weekdays:
            mask |= _EVERY_SEVENTH << (weekday - first) % 7
        return mask & _all_of(length)

    return days


def _nth_weekday(weekday: int, earliest: Callable[[int], int]) -> DayRule:
    """The `weekday` among the seven days from `earliest` on, where the month has it."""

    def days(length: int, first: int) -> int:
        start = earliest(length)
        day = start + (weekday - first - start + 1) % 7
        return 1 << day if day <= length else 0

    return days


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def _all_of(length: int) -> int:
    return (2 << length) - 2


def _next_table(values: set[int], none: int) -> tuple[int, ...]:
    table = [none] * (none + 1)
    for index in range(none - 1, -1, -1):
        table[index] = index if index in values else table[index + 1]
    return tuple(table)


_EVERY_SEVENTH: Final = _mask(range(1, 32, 7))
_MONTH_SHAPES: Final = tuple((length, first) for length in range(28, 32) for first in range(7))
_EVERY_DAY: Final = tuple(_all_of(length) for length, _ in _MONTH_SHAPES)


def _ever_fires(years: tuple[int, ...] | None, months: set[int], days: tuple[int, ...]) -> bool:
    # The calendar repeats after 400 years.
    months_there_are = ((year, month) for year in years or range(2000, 2400) for month in months)
    return any(days[month_shape(y, m, date(y, m, 1).toordinal() % 7)] for y, m in months_there_are)


def _refuse_never(day_of_month: str, day_of_week: str, month: str, year: str) -> NoReturn:
    asked = {"day of month": day_of_month, "day of week": day_of_week}
    asked = {name: _clip(text) for name, text in asked.items() if text not in ("*", "?")}
    wanted = (" on " if _both_must_match(day_of_month, day_of_week) else " or ").join(asked.values())
    where = ("any month" if month == "*" else f"month {_clip(month)}") + ("" if year == "*" else f" of {_clip(year)}")
    _refuse(
        f"{' and '.join(asked)}: {wanted} never comes in {where}, so this would never fire; "
        "write a day that does, like L for the last of the month"
    )


def _clip(text: str) -> str:
    return text if len(text) <= 24 else text[:21] + "..."


def _refuse(problem: str) -> NoReturn:
    raise InvalidSchedule("schedule", problem)
