"""A recurrence rule as an English sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, product

from rota.model.describe import FEW, MANY, MONTHS, NTH, WEEK, listed
from rota.model.rrule import By, Frequency, Rule, Written

_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")


def describe(rule: Rule) -> str:
    """`Every 2 weeks on Monday and Friday at 09:00 (America/New_York), 10 times`."""
    by, unit = rule.completed, _UNITS[rule.frequency]
    every = f"Every {unit}" if rule.interval == 1 else f"Every {rule.interval:,} {unit}s"
    times = _at_times(by) if rule.frequency <= Frequency.DAILY else _within_the_day(rule)
    picked = f", only {listed(_nth(number) for number in by.positions)} of each {unit}" if by.positions else ""
    return f"{every}{_on_days(by, rule.frequency)}{times}{picked} ({rule.zone.key}){''.join(_limits(rule))}"


def _on_days(by: By, frequency: Frequency) -> str:
    months = listed(_spans(by.months, lambda month: MONTHS[month - 1]))
    within = months or ("the year" if frequency is Frequency.YEARLY else "the month")
    choices = [
        f"{listed(_numbered(by.year_days, lambda number: _nth(number, 'day')))} of the year" if by.year_days else "",
        f"{listed(_numbered(by.month_days, _date))} of {months or 'the month'}" if by.month_days else "",
        _weekdays(by.days, within),
    ]
    weeks = listed(_numbered(by.week_numbers, lambda number: _nth(number, "week")))
    days = " if it falls on ".join(choice for choice in choices if choice)
    told = by.month_days or any(ordinal for ordinal, _ in by.days)
    return "".join(
        [
            f" in {weeks} of the year" if weeks else "",
            f" on {days}" if days else "",
            f" {'from' if 'through' in months else 'in'} {months}" if months and not told else "",
        ]
    )


def _weekdays(days: tuple[tuple[int, int], ...], month: str) -> str:
    plain = _spans((day for ordinal, day in days if not ordinal), WEEK.__getitem__)
    numbered = [f"{_nth(ordinal)} {WEEK[day]}" for ordinal, day in days if ordinal]
    return listed([*plain, *numbered]) + (f" of {month}" if numbered else "")


def _at_times(by: By) -> str:
    clocks = [f"{h:02}:{m:02}" + (f":{s:02}" if s else "") for h, m, s in product(by.hours, by.minutes, by.seconds)]
    if len(clocks) > MANY:
        return f" at {len(clocks):,} times from {clocks[0]} to {clocks[-1]}"
    return f" at {listed(clocks)}" if clocks else ""


def _within_the_day(rule: Rule) -> str:
    given = (("second", rule.by.seconds), ("minute", rule.by.minutes), ("hour", rule.by.hours))
    told = [
        (unit, f"{unit}{'s' if len(numbers) > 1 else ''} {listed(_spans(numbers))}")
        for unit, numbers in given
        if numbers
    ]
    if not told:
        return ""
    # What is finer than the frequency says when, what is not says where.
    when = "at" if _UNITS.index(told[0][0]) > rule.frequency else "during"
    return f" {when} {' of '.join(words for _, words in told)}"


def _limits(rule: Rule) -> Iterator[str]:
    if rule.count is not None:
        yield ", once" if rule.count == 1 else f", {rule.count:,} times"
    if rule.until:
        yield f", until {_moment(rule.until).replace(' 23:59:59', ' ends')}"
    if rule.exceptions:
        few = len(rule.exceptions) <= FEW
        yield f", except {listed(map(_moment, rule.exceptions)) if few else f'{len(rule.exceptions)} times'}"


def _moment(written: Written) -> str:
    clock = f"{written.local:%Y-%m-%d %H:%M:%S}".removesuffix(":00")
    return clock + (f" {written.zone}" if written.zone else "")


def _spans(numbers: Iterable[int], label: Callable[[int], str] = str) -> list[str]:
    """Three in a row are told as a range."""
    texts: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda place: place[1] - place[0]):
        labels = [label(number) for _, number in run]
        texts += [f"{labels[0]} through {labels[-1]}"] if len(labels) > 2 else labels
    return texts


def _numbered(numbers: tuple[int, ...], label: Callable[[int], str]) -> list[str]:
    """Those that count from the end come last, the very last of all."""
    return _spans([number for number in numbers if number > 0], label) + [label(n) for n in numbers if n < 0]


def _date(number: int) -> str:
    return f"the {_ordinal(number)}" if number > 0 else _nth(number, "day")


def _nth(number: int, noun: str = "") -> str:
    """`the first week`, `the 20th`, `the last`, `the second last day`."""
    nth = NTH.get(str(abs(number)), _ordinal(abs(number)))
    place = nth if number > 0 else "last" if number == -1 else f"{nth} last"
    return f"the {place} {noun}".rstrip()


def _ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
