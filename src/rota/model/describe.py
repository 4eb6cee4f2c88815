"""A cron expression as an English sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise, product
from typing import Final

from rota.model.cron import Cron
from rota.model.cron_fields import MACROS, WEEKDAYS, Dialect, Pattern, read

# So many times are listed one by one even where a rule could be told, and so many where there is none.
FEW: Final = 4
MANY: Final = 8
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEK: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NTH: Final = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth", "L": "last"}


def describe(cron: Cron, time_zone: str | None = None) -> str:
    """Expressions that fire at different times get different sentences."""
    pattern, years = cron.pattern, _years(cron.pattern)
    months = _months(pattern)
    if years and months.isalpha() and years.isdecimal():
        months, years = f"{months} {years}", ""
    time, days = _time(pattern), _days(cron, months)
    if not days and time.startswith("At ") and not _hours(pattern).is_all:
        time += " every day"
    ending = (f" {_in(months)}" if months and not days else "") + (f", {_in(years)}" if years else "")
    return time + days + ending + (f" ({time_zone})" if time_zone else "")


def describe_interval(interval: timedelta) -> str:
    words = in_words(interval)
    return f"Every {words if ' and ' in words else words.removeprefix('1 ')}"


def in_words(duration: timedelta) -> str:
    """`1 hour and 30 minutes`."""
    minutes, seconds = divmod(duration.total_seconds(), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute"), (round(seconds, 3), "second")]
    return listed(_counted(f"{number:,.12g}", unit) for number, unit in parts if number) or "0 seconds"


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = [*words] or [""]
    return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that a field allows, ascending, out of `count` from `low` on, and how they are told."""

    unit: str
    numbers: tuple[int, ...]
    low: int
    count: int
    label: Callable[[int], str] = str

    @property
    def is_all(self) -> bool:
        return len(self.numbers) == self.count

    @property
    def order(self) -> tuple[int, ...]:
        """As a range would name them, which may run past the end of the field."""
        if self._step_of(self.numbers):
            return self.numbers
        widest = max(range(len(self.numbers)), key=self._break_after)
        return self.numbers[widest + 1 :] + self.numbers[: widest + 1]

    @property
    def step(self) -> int:
        """From each to the next; 0 when that differs."""
        return self._step_of(self.order)

    @property
    def is_regular(self) -> bool:
        """Evenly spread, also from the last over the end of the field to the first."""
        return self.numbers[0] == self.low and self.step * len(self.numbers) == self.count

    def every(self) -> str:
        return f"Every {self.unit}" if self.step == 1 else f"Every {self.step} {self.unit}s"

    def every_or_at(self) -> str:
        """`Every 5 minutes`, `Every minute from 10 through 20`, `At 5 and 20 minutes`."""
        if self.is_regular:
            return self.every()
        if self._is_series:
            return f"{self.every()} from {self.order[0]} through {self.order[-1]}"
        return f"At {_counted(listed(self.spans()), self.unit)}"

    def named(self) -> str:
        """`every 2nd hour`, `hour 9`, `hours 9 through 17`."""
        return self.rule() or f"{self.unit}{'s' if len(self.numbers) > 1 else ''} {listed(self.spans())}"

    def rule(self) -> str | None:
        """`every 2nd hour`, `every 2nd hour from 1 through 9`."""
        if self.is_all:
            return f"every {self.unit}"
        first, last, step = self.order[0], self.order[-1], self.step
        nth = f"every {_ordinal(step)} {self.unit}"
        to_the_end = first == self.low and last + step >= self.low + self.count
        if step > 1 and to_the_end and (len(self.numbers) > FEW or (self.is_regular and len(self.numbers) > 2)):
            return nth
        return f"{nth} from {self.label(first)} through {self.label(last)}" if step > 1 and self._is_series else None

    def spans(self) -> list[str]:
        """Three in a row are told as a range."""
        return [text for run in self._runs() for text in self._span(run)]

    @property
    def _is_series(self) -> bool:
        return len(self.numbers) > (2 if self.step == 1 else FEW) and self.step > 0

    def _step_of(self, order: tuple[int, ...]) -> int:
        steps = {(after - before) % self.count for before, after in pairwise(order)}
        return steps.pop() if len(steps) == 1 else 0

    def _break_after(self, place: int) -> int:
        return (self.numbers[(place + 1) % len(self.numbers)] - self.numbers[place]) % self.count

    def _span(self, run: list[int]) -> list[str]:
        labels = [self.label(number) for number in run]
        return [f"{labels[0]} through {labels[-1]}"] if len(run) > 2 else labels

    def _runs(self) -> list[list[int]]:
        runs: list[list[int]] = []
        for number in self.numbers:
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        first, last = runs[0], runs[-1]
        wraps = len(runs) > 1 and first[0] == self.low and last[-1] == self.low + self.count - 1
        return [*runs[1:-1], last + first] if wraps and len(first) + len(last) > 2 else runs


# The time of day


def _time(pattern: Pattern) -> str:
    seconds, minutes, hours = _seconds(pattern), _minutes(pattern), _hours(pattern)
    numbers = hours.numbers, minutes.numbers, seconds.numbers
    how_many = len(numbers[0]) * len(numbers[1]) * len(numbers[2])
    once_an_hour = len(minutes.numbers) == len(seconds.numbers) == 1 and not hours.is_all
    if numbers[1:] == ((0,), (0,)) and hours.is_regular and how_many > 2:
        return hours.every()
    if once_an_hour and how_many > FEW and hours.step:
        first, last = (_clock(hour, minutes.numbers[0], seconds.numbers[0]) for hour in hours.order[:: how_many - 1])
        return f"{hours.every()} from {first} through {last}"
    if how_many <= (MANY if once_an_hour else FEW):
        return f"At {listed(_clock(*time) for time in product(*numbers))}"
    if seconds.numbers != (0,):
        return _time_to_the_second(seconds, minutes, hours)
    if minutes.is_regular and hours.is_all:
        return minutes.every()
    return f"{minutes.every_or_at()} past {hours.named()}"


def _time_to_the_second(seconds: _Values, minutes: _Values, hours: _Values) -> str:
    where = minutes.named() if hours.is_all and minutes.is_all else f"{minutes.named()} of {hours.named()}"
    if not seconds.is_regular:
        return f"{seconds.every_or_at()} past {where}"
    if not minutes.is_all:
        return f"{seconds.every()} during {where}"
    return seconds.every() if hours.is_all else f"{seconds.every()} during {hours.named()}"


def _seconds(pattern: Pattern) -> _Values:
    return _Values("second", _allowed(pattern.seconds, range(60)), 0, 60)


def _minutes(pattern: Pattern) -> _Values:
    return _Values("minute", _allowed(pattern.minutes, range(60)), 0, 60)


def _hours(pattern: Pattern) -> _Values:
    return _Values("hour", _allowed(pattern.hours, range(24)), 0, 24)


def _clock(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


# The days


def _days(cron: Cron, months: str) -> str:
    """` on the 13th and on Friday`; nothing when it is every day."""
    of_month, of_week = _day_fields(cron.text)
    by_date = read(f"0 0 {of_month} * ?", cron.dialect).days
    by_weekday = read(f"0 0 ? * {of_week}", cron.dialect).days
    days = cron.pattern.days
    # How the two fields go together is seen in what came of them, so the rules for that stand in one place only.
    if days == _EVERY_DAY:
        return ""
    if days == by_date:
        return f" on {_dates(of_month, cron.dialect, months)}"
    if days == by_weekday:
        glue = ", " if _is_range(_weekdays(of_week, cron.dialect)) else " on "
        return glue + _weekdays(of_week, cron.dialect, months)
    if days == tuple(date | weekday for date, weekday in zip(by_date, by_weekday, strict=True)):
        both = f" on {_dates(of_month, cron.dialect)} and on {_weekdays(of_week, cron.dialect)}"
        return f"{both}, {_in(months)}" if months else both
    return f" on {_dates(of_month, cron.dialect, months)} if it falls on {_weekdays(of_week, cron.dialect)}"


_EVERY_DAY: Final = read("0 0 ? * ?", "unix").days


def _day_fields(text: str) -> tuple[str, str]:
    words = MACROS.get(text.strip().lower(), text).upper().split()
    of_month, of_week = (words[2], words[4]) if len(words) == 5 else (words[3], words[5])
    return of_month, of_week.removeprefix("+")


_DATE_RULE: Final = re.compile(r"(?:L(?:-0*(?P<before>[0-9]+))?|0*(?P<day>[0-9]+)(?=W))(?P<weekday>W?)")
_WEEKDAY_RULE: Final = re.compile(r"(?P<name>[A-Z]{3}|[0-9]+)(?:#(?P<nth>[1-5L])|L)")


def _dates(text: str, dialect: Dialect, months: str = "") -> str:
    plain, rules = _parted(text, _DATE_RULE)
    dates = [_date_by_rule(rule) for rule in rules]
    series = None
    if plain:
        mask = read(f"0 0 {plain} * ?", dialect).days[-1]
        numbers = _Values("day", tuple(day for day in range(1, 32) if mask >> day & 1), 1, 31, _the)
        series = numbers.rule()
        dates = ([series] if series else numbers.spans()) + dates
    text = listed(dict.fromkeys(dates))
    return f"{text} of {months or 'the month'}" if months or rules or series else text


def _date_by_rule(rule: str) -> str:
    found = _DATE_RULE.fullmatch(rule)
    assert found is not None
    before, day, weekday = found["before"], found["day"], found["weekday"]
    if day is not None:
        return "the first weekday" if day == "1" else f"the weekday nearest to {_the(int(day))}"
    if before is None:
        return f"the last {'weekday' if weekday else 'day'}"
    date = "the day before the last" if before == "1" else f"the day {before} days before the last"
    return f"the weekday nearest to {date}" if weekday else date


def _weekdays(text: str, dialect: Dialect, months: str = "") -> str:
    plain, rules = _parted(text, _WEEKDAY_RULE)
    weekdays = [_weekday_by_rule(rule, dialect) for rule in rules]
    if plain:
        # The first seven days of a month that begins with a Monday.
        mask = read(f"0 0 ? * {plain}", dialect).days[1]
        numbers = tuple(day for day in range(7) if mask >> day + 1 & 1)
        weekdays = _Values("day", numbers, 0, 7, WEEK.__getitem__).spans() + weekdays
    text = listed(dict.fromkeys(weekdays))
    if plain and rules:
        return f"{text} of the month" + (f", {_in(months)}" if months else "")
    if rules:
        return f"{text} of {months or 'the month'}"
    return f"{text} {_in(months)}" if months else text


def _weekday_by_rule(rule: str, dialect: Dialect) -> str:
    found = _WEEKDAY_RULE.fullmatch(rule)
    assert found is not None
    weekday = WEEK[(WEEKDAYS[dialect].value(found["name"]) - 1) % 7]
    return f"the {NTH[found['nth'] or 'L']} {weekday}"


def _parted(text: str, rule: re.Pattern[str]) -> tuple[str, list[str]]:
    """Plain numbers and ranges, which the parser turns into days, and what has a rule of its own."""
    items = text.split(",")
    rules = [item for item in items if rule.fullmatch(item)]
    return ",".join(item for item in items if item not in rules), rules


# The months and the years


def _months(pattern: Pattern) -> str:
    months = _Values("month", _allowed(pattern.months, range(1, 13)), 1, 12, lambda month: MONTHS[month - 1])
    return "" if months.is_all else months.rule() or listed(months.spans())


def _years(pattern: Pattern) -> str:
    if pattern.years is None:
        return ""
    # Years do not come round: with so many after them there is no wrapping.
    years = _Values("year", pattern.years, 0, 1_000_000)
    return years.rule() or listed(years.spans())


# Words


def _in(months: str) -> str:
    return f"{'from' if _is_range(months) else 'in'} {months}"


def _is_range(text: str) -> bool:
    return re.fullmatch(r"\w+ through \w+", text) is not None


def _allowed(table: Sequence[int], candidates: range) -> tuple[int, ...]:
    return tuple(value for value in candidates if table[value] == value)


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit}{'' if number == '1' else 's'}"


def _the(number: int) -> str:
    return f"the {_ordinal(number)}"


def _ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
