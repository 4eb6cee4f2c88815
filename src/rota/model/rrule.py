"""When a recurrence rule of RFC 5545 fires next.

The days of a rule are one int with a bit for every day up to the year 2200: BY parts meet by `&`, and the next day is
the next bit. So the cost depends neither on how long ago a rule started nor on how rarely it fires.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import IntEnum
from functools import cache, lru_cache, reduce
from itertools import groupby, islice, pairwise, takewhile
from math import gcd
from operator import and_, attrgetter, or_
from typing import Final, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

from rota.model.errors import InvalidSchedule, quoted
from rota.model.instants import EARLIEST, LATEST

LONGEST_TEXT: Final = 2_000
HIGHEST_COUNT: Final = 10_000
HIGHEST_INTERVAL: Final = 10_000_000
# In one period of the rule.
MOST_TIMES: Final = 1_440
# Ten years, after which steps meet the times of day anew.
LONGEST_CYCLE: Final = 3_653
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class Frequency(IntEnum):
    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


class Written(NamedTuple):
    """A local time as written, in a zone of its own or, without one, in the zone of the rule."""

    local: datetime
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class By:
    """The BY parts, each ascending, () where it is not given; a day is (ordinal or 0, weekday from Monday 0)."""

    months: tuple[int, ...] = ()
    week_numbers: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    days: tuple[tuple[int, int], ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def only_days(self) -> By:
        return replace(self, hours=(), minutes=(), seconds=(), positions=())


@dataclass(frozen=True, slots=True)
class Rule:
    """DTSTART, RRULE and EXDATE. Daily and slower rules fire at local times: one in a gap moves on by the gap, one that
    comes twice fires the first time. Faster ones step through elapsed time, and their BY parts look at the local one.
    What is not given comes from DTSTART, which itself fires only where it matches."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: Written | None = None
    week_start: int = 0
    by: By = By()
    start: Written | None = None
    exceptions: tuple[Written, ...] = ()
    # Of the job: the zone of the rule, unless DTSTART has one.
    time_zone: str = "UTC"
    _plan: _Plan | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, time_zone: str = "UTC") -> Rule:
        """Raises InvalidSchedule where the text is no rule, or one that never fires."""
        return _read(text, time_zone)._planned()

    @property
    def zone(self) -> ZoneInfo:
        return _zone((self.start and self.start.zone) or self.time_zone)

    @property
    def completed(self) -> By:
        """The BY parts, with what DTSTART adds to them."""
        by, frequency, start = self.by, self.frequency, self.start and self.start.local
        if start is None:
            return by
        if not (by.week_numbers or by.year_days or by.month_days or by.days):
            if frequency is Frequency.YEARLY:
                by = replace(by, months=by.months or (start.month,), month_days=(start.day,))
            elif frequency is Frequency.MONTHLY:
                by = replace(by, month_days=(start.day,))
            elif frequency is Frequency.WEEKLY:
                by = replace(by, days=((0, start.weekday()),))
        return replace(
            by,
            hours=by.hours or ((start.hour,) if frequency < Frequency.HOURLY else ()),
            minutes=by.minutes or ((start.minute,) if frequency < Frequency.MINUTELY else ()),
            seconds=by.seconds or ((start.second,) if frequency < Frequency.SECONDLY else ()),
        )

    @property
    def text(self) -> str:
        """Reads as an equal rule again."""
        lines = [f"DTSTART{_printed([self.start])}"] if self.start else []
        by_zone = groupby(self.exceptions, key=attrgetter("zone"))
        lines += [f"RRULE:{_print_parts(self)}", *(f"EXDATE{_printed([*moments])}" for _, moments in by_zone)]
        return "\n".join(lines)

    def anchored(self, start: datetime) -> Rule:
        """With `start`, to the second and in the zone of the job, for a DTSTART where there is none."""
        if self.start:
            return self
        local = start.astimezone(self.zone).replace(microsecond=0, tzinfo=None, fold=0)
        return replace(self, start=Written(local))._planned()

    def after(self, moment: datetime) -> datetime | None:
        """The first firing strictly after `moment`, in UTC; None when there is none before the year 2200."""
        assert self._plan is not None, "a rule is anchored before it is asked"
        instant = self._plan.first_from(_seconds(moment - _EPOCH) + 1)
        return None if instant is None else _EPOCH + timedelta(0, instant)

    def _planned(self) -> Rule:
        _check_length(self.text)
        if not _days_allowed(self.by.only_days, self.frequency, self.week_start):
            parts = ";".join(_print_by(self.by.only_days))
            _refuse(f"{parts} never comes, so this would never fire; write a day that does")
        if not self.start:
            return self
        plan = _plan_of(self, self.start)
        if plan.first_from(0) is None:
            _refuse("never fires from its DTSTART to the year 2200; check DTSTART, UNTIL, EXDATE and the BY parts")
        return replace(self, _plan=plan)


# The text


class _Numbers(NamedTuple):
    field: str
    allowed: range
    from_the_end: bool = False


_NUMBERS: Final = {
    "BYMONTH": _Numbers("months", range(1, 13)),
    "BYWEEKNO": _Numbers("week_numbers", range(1, 54), from_the_end=True),
    "BYYEARDAY": _Numbers("year_days", range(1, 367), from_the_end=True),
    "BYMONTHDAY": _Numbers("month_days", range(1, 32), from_the_end=True),
    "BYHOUR": _Numbers("hours", range(24)),
    "BYMINUTE": _Numbers("minutes", range(60)),
    "BYSECOND": _Numbers("seconds", range(60)),
    "BYSETPOS": _Numbers("positions", range(1, 367), from_the_end=True),
}
_PARTS: Final = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)
# As RFC 5545 has it.
_NOT_WITH: Final = {
    "BYWEEKNO": set(Frequency) - {Frequency.YEARLY},
    "BYYEARDAY": {Frequency.MONTHLY, Frequency.WEEKLY, Frequency.DAILY},
    "BYMONTHDAY": {Frequency.WEEKLY},
}
_TIME: Final = re.compile(r"\d{8}(?:T\d{6}Z?)?", re.ASCII)
_DAY_OF_WEEK: Final = re.compile(rf"([+-]?\d{{1,2}})?({'|'.join(WEEKDAYS)})", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)


def _read(text: str, time_zone: str) -> Rule:
    _check_length(text)
    if not text.isascii():
        _refuse(
            "has characters outside ASCII; write it like DTSTART:20270131T093000Z and RRULE:FREQ=WEEKLY;BYDAY=MO,FR"
        )
    starts: list[Written] = []
    rules: list[str] = []
    exceptions: set[Written] = set()
    for line in text.strip().replace("\r\n", "\n").split("\n"):
        head, value = line.split(":", 1) if ":" in line else ("RRULE", line)
        name, _, parameter = head.partition(";")
        match name.upper():
            case "DTSTART":
                starts.append(_moment("DTSTART", value, parameter))
            case "RRULE" if not parameter:
                rules.append(value)
            case "EXDATE":
                exceptions.update(_moment("EXDATE", item, parameter) for item in value.split(","))
            case _:
                _refuse(f"{quoted(line)} is not understood; write lines of DTSTART, RRULE and EXDATE only")
    if len(starts) > 1 or len(rules) != 1:
        _refuse(
            f"has {len(starts)} DTSTART and {len(rules)} RRULE; write one RRULE, on one line, and one DTSTART or none"
        )
    return replace(
        _read_parts(rules[0]),
        start=starts[0] if starts else None,
        exceptions=tuple(sorted(exceptions, key=lambda moment: (moment.zone or "", moment.local))),
        time_zone=_zone(time_zone).key,
    )


def _read_parts(text: str) -> Rule:
    given: dict[str, str] = {}
    for part in text.upper().split(";"):
        name, _, value = part.partition("=")
        if name not in _PARTS or not value:
            _refuse(f"{quoted(part)} is not understood; write {'=..., '.join(_PARTS)}=..., with ; between them")
        if name in given:
            _refuse(f"{name} is there twice; write it once, with commas between its values")
        given[name] = value
    if given.get("FREQ") not in Frequency.__members__:
        _refuse(f"has no FREQ that there is; write FREQ= and one of {', '.join(Frequency.__members__)}")
    frequency = Frequency[given["FREQ"]]
    _check_together(given, frequency)
    return Rule(
        frequency,
        interval=_integer("INTERVAL", given.get("INTERVAL", "1"), range(1, HIGHEST_INTERVAL + 1)),
        count=_integer("COUNT", given["COUNT"], range(1, HIGHEST_COUNT + 1)) if "COUNT" in given else None,
        until=_moment("UNTIL", given["UNTIL"]) if "UNTIL" in given else None,
        week_start=_day_of_week("WKST", given.get("WKST", "MO"))[1],
        by=By(days=_days_of_week(given, frequency), **_all_numbers(given)),
    )


def _check_together(given: dict[str, str], frequency: Frequency) -> None:
    for name, frequencies in _NOT_WITH.items():
        if name in given and frequency in frequencies:
            fitting = ", ".join(each.name for each in Frequency if each not in frequencies)
            _refuse(f"{name} does not go with FREQ={frequency.name}; leave it out, or write FREQ as one of {fitting}")
    if "BYSETPOS" in given and not any(name.startswith("BY") for name in given if name != "BYSETPOS"):
        _refuse("BYSETPOS picks from what other BY parts allow; write one of those too")
    if "COUNT" in given and "UNTIL" in given:
        _refuse("has both COUNT and UNTIL; write one of them")


def _all_numbers(given: dict[str, str]) -> dict[str, tuple[int, ...]]:
    return {
        part.field: tuple(sorted({_integer(name, item, part.allowed, part.from_the_end) for item in items}))
        for name, part in _NUMBERS.items()
        if (items := given[name].split(",") if name in given else [])
    }


def _integer(name: str, text: str, allowed: range, from_the_end: bool = False) -> int:
    number = int(text) if _INTEGER.fullmatch(text) else allowed.stop
    if number not in allowed and not (from_the_end and -number in allowed):
        low, high = allowed[0], allowed[-1]
        negative = f", or from -{low} to -{high} to count from the end" if from_the_end else ""
        _refuse(f"{name}: {quoted(text)} is not possible; write numbers from {low} to {high:,}{negative}")
    return number


def _days_of_week(given: dict[str, str], frequency: Frequency) -> tuple[tuple[int, int], ...]:
    days = {_day_of_week("BYDAY", item) for item in given["BYDAY"].split(",")} if "BYDAY" in given else set()
    if any(ordinal for ordinal, _ in days) and (frequency > Frequency.MONTHLY or "BYWEEKNO" in given):
        _refuse("BYDAY: days with a number, like 1MO, go with FREQ=MONTHLY or YEARLY only, and not with BYWEEKNO")
    return tuple(sorted(days))


def _day_of_week(name: str, text: str) -> tuple[int, int]:
    found = _DAY_OF_WEEK.fullmatch(text)
    if not found or (found[1] and (name == "WKST" or not 1 <= abs(int(found[1])) <= 53)):
        numbered = "" if name == "WKST" else ", or with a number from 1 to 53 or -1 to -53, like 1MO and -1FR"
        _refuse(f"{name}: {quoted(text)} is not a day of the week; write {', '.join(WEEKDAYS)}{numbered}")
    return int(found[1] or 0), WEEKDAYS.index(found[2])


def _moment(name: str, text: str, parameter: str = "") -> Written:
    """`20270131T093000`, with Z for UTC; UNTIL may be a day, and means all of it."""
    written, (key, _, zone) = text.upper(), parameter.partition("=")
    if not _TIME.fullmatch(written) or not ("T" in written or name == "UNTIL"):
        _refuse(f"{name}: {quoted(text)} is not a time; write it like 20270131T093000, or 20270131T093000Z for UTC")
    try:
        local = datetime.fromisoformat(written).replace(tzinfo=None)
    except ValueError as error:
        _refuse(f"{name}: {quoted(text)} is not in the calendar: {error}")
    if not EARLIEST <= local.replace(tzinfo=UTC) < LATEST:
        _refuse(f"{name}: {quoted(text)} lies outside the years 1970 to 2199")
    if parameter and (key.upper() != "TZID" or written.endswith("Z")):
        _refuse(f"{name}: {quoted(parameter)} is not understood; write TZID=Europe/Berlin, or Z after the time")
    if "T" not in written:
        local = datetime.combine(local, time(23, 59, 59))
    return Written(local, "UTC" if written.endswith("Z") else _zone(zone).key if parameter else None)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        _refuse(f"{quoted(name)} is not an IANA time zone; write it like Europe/Berlin")


def _print_parts(rule: Rule) -> str:
    parts = {
        "FREQ": rule.frequency.name,
        "INTERVAL": rule.interval if rule.interval > 1 else None,
        "COUNT": rule.count,
        "UNTIL": rule.until and _printed([rule.until])[1:],
        "WKST": WEEKDAYS[rule.week_start] if rule.week_start else None,
    }
    return ";".join([*(f"{name}={value}" for name, value in parts.items() if value), *_print_by(rule.by)])


def _print_by(by: By) -> Iterator[str]:
    if by.days:
        yield "BYDAY=" + ",".join(f"{ordinal or ''}{WEEKDAYS[weekday]}" for ordinal, weekday in by.days)
    for name, part in _NUMBERS.items():
        if numbers := getattr(by, part.field):
            yield f"{name}={','.join(map(str, numbers))}"


def _printed(moments: list[Written]) -> str:
    """What comes after the name: `;TZID=Europe/Berlin:20270131T093000`."""
    zone = moments[0].zone
    times = ",".join(f"{moment.local:%Y%m%dT%H%M%S}{'Z' if zone == 'UTC' else ''}" for moment in moments)
    return f":{times}" if zone in (None, "UTC") else f";TZID={zone}:{times}"


def _check_length(text: str) -> None:
    if len(text) > LONGEST_TEXT:
        _refuse(f"is {len(text):,} characters long, DTSTART included; write at most {LONGEST_TEXT:,}")


def _refuse(problem: str) -> NoReturn:
    raise InvalidSchedule("schedule", problem)


# From a rule to its firings. Instants and local times are whole seconds since the epoch, UTC or on the wall.


class _Plan(NamedTuple):
    begin: int
    last: int
    excluded: frozenset[int]
    clock: _WallClock | _Elapsed

    def first_from(self, at: int) -> int | None:
        if at > self.last:
            return None
        instants = takewhile(self.last.__ge__, self.clock.instants_from(max(at, self.begin)))
        return next((instant for instant in instants if instant not in self.excluded), None)


def _plan_of(rule: Rule, start: Written) -> _Plan:
    if not EARLIEST <= start.local.replace(tzinfo=UTC) < LATEST:
        _refuse(f"would start at {start.local}, outside the years 1970 to 2199; write a DTSTART within them")
    clock = (_wall_clock if rule.frequency <= Frequency.DAILY else _elapsed)(rule, start, rule.completed)
    begin, last = _instant(start, rule.zone), _LATEST - 1
    if rule.until:
        last = min(last, _instant(rule.until, rule.zone))
    if rule.count:
        last = next(islice(clock.instants_from(begin), rule.count - 1, None), last)
    return _Plan(begin, last, frozenset(_instant(exception, rule.zone) for exception in rule.exceptions), clock)


@dataclass(frozen=True, slots=True)
class _WallClock:
    """Fires at all `times` of `days`, or at those that are in one of `positions` within their period."""

    zone: ZoneInfo
    days: int
    times: tuple[int, ...]
    # The first days of the periods.
    periods: Sequence[int]
    positions: tuple[int, ...]
    # In local time.
    begin: int

    def instants_from(self, at: int) -> Iterator[int]:
        while at < _LATEST:
            begin, end, offset, before = _regime(self.zone, at)
            # After the clocks went back, local times come for the second time.
            at = max(at, begin + before - offset)
            # After they jumped, what they jumped over is still to come, by the offset from before.
            calm = min(end, max(at, begin + offset - before))
            lost = {local - before for local in self._locals(at + before, calm + before)}
            yield from sorted(lost.union(local - offset for local in self._locals(at + offset, calm + offset)))
            for local in self._locals(calm + offset, end + offset):
                yield local - offset
            # No zone is a whole day from UTC.
            at = max(end, next(self._locals(end + min(offset, before), _LATEST), _LATEST + _DAY) - _DAY)

    def _locals(self, begin: int, end: int) -> Iterator[int]:
        return takewhile(end.__gt__, self._locals_from(max(begin, self.begin))) if begin < end else iter(())

    def _locals_from(self, local: int) -> Iterator[int]:
        if self.positions:
            yield from (picked for picked in self._picked_from(local // _DAY) if picked >= local)
            return
        for day in _ones(self.days, local // _DAY):
            for second in self.times[bisect_left(self.times, local - day * _DAY) :]:
                yield day * _DAY + second

    def _picked_from(self, day: int) -> Iterator[int]:
        smallest, many = min(map(abs, self.positions)), len(self.times)
        number = bisect_right(self.periods, day)
        while number < len(self.periods):
            first, end = self.periods[number - 1], self.periods[number]
            days = self.days >> first & (1 << end - first) - 1
            number += 1
            if not days:
                number = max(number, bisect_right(self.periods, next(_ones(self.days, end), _DAYS)))
            # Counted first, because a rule may have thousands of periods in which nothing has such a position.
            elif days.bit_count() * many >= smallest:
                numbers = [number for number, flag in enumerate(f"{days:b}"[::-1], first) if flag == "1"]
                for place in _places(self.positions, len(numbers) * many):
                    yield numbers[place // many] * _DAY + self.times[place % many]


def _wall_clock(rule: Rule, start: Written, by: By) -> _WallClock:
    frequency, positions, times = rule.frequency, by.positions, _times(by.hours, by.minutes, by.seconds)
    if frequency is Frequency.DAILY and positions:
        times, positions = _picked(times, positions), ()
    if frequency is Frequency.WEEKLY and positions:
        _check_positions(positions, len(by.days) * len(times))
    begin = _since_epoch(start.local)
    day, years = begin // _DAY, start.local.year - _EPOCH.year
    week = day - (day - rule.week_start) % 7
    phase, periods = {
        Frequency.YEARLY: (years % rule.interval, _YEARS.bounds),
        Frequency.MONTHLY: ((years * 12 + start.local.month - 1) % rule.interval, _MONTHS.bounds),
        Frequency.WEEKLY: (week % (rule.interval * 7), range(week % 7, _DAYS + 7, 7)),
        Frequency.DAILY: (day % rule.interval, ()),
    }[frequency]
    days = _days(by.only_days, frequency, rule.week_start, rule.interval, phase)
    return _WallClock(rule.zone, days, times, periods, positions, begin)


@dataclass(frozen=True, slots=True)
class _Elapsed:
    """Fires at all `times` of every `step`th unit of so many seconds, where its local time is on one of `days` and one
    of `allowed`, a flag for each unit of a day."""

    zone: ZoneInfo
    days: int
    allowed: bytes
    filtered: bool
    unit: int
    step: int
    times: tuple[int, ...]
    # The local unit of DTSTART, and the offset then.
    first: int
    offset: int

    def instants_from(self, at: int) -> Iterator[int]:
        while at < _LATEST:
            _, end, offset, _ = _regime(self.zone, at)
            for unit in self._units(at, end, offset):
                for second in self.times:
                    if at <= unit * self.unit + second - offset < end:
                        yield unit * self.unit + second - offset
            # No zone is a whole day from UTC.
            at = max(end, (next(_ones(self.days, (end + offset) // _DAY - 1), _DAYS + 1) - 1) * _DAY)

    def _units(self, begin: int, end: int, offset: int) -> Iterable[int]:
        """Those that have one of these instants, and are in step."""
        first, end = (begin + offset) // self.unit, (end + offset - 1) // self.unit + 1
        phase = (self.first + (offset - self.offset) // self.unit) % self.step
        if self.filtered:
            return self._allowed_units(first, end, phase)
        return range(first + (phase - first) % self.step, end, self.step)

    def _allowed_units(self, begin: int, end: int, phase: int) -> Iterator[int]:
        step, units = self.step, len(self.allowed)
        for day in _ones(self.days & _days_met(self.allowed, step, phase), begin // units):
            first = day * units + (phase - day * units) % step
            flags = _in_step(self.allowed, step, first - day * units)
            place = flags.find(1, max(0, -((first - begin) // step)))
            while place >= 0 and first + place * step < end:
                yield first + place * step
                place = flags.find(1, place + 1)
            if (day + 1) * units >= end:
                return


def _elapsed(rule: Rule, start: Written, by: By) -> _Elapsed:
    unit, step = {Frequency.HOURLY: 3600, Frequency.MINUTELY: 60, Frequency.SECONDLY: 1}[rule.frequency], rule.interval
    if unit == 3600 and not rule.by.minutes:
        # Who names no minutes means elapsed hours, also where the clocks jump by half of one.
        unit, step, by = 60, step * 60, replace(by, minutes=())
    times = _times((0,), by.minutes if unit == 3600 else (0,), by.seconds if unit > 1 else (0,))
    times = _picked(times, by.positions) if by.positions else times
    days = _days_allowed(by.only_days, rule.frequency, rule.week_start)
    allowed = _units_allowed(unit, by.hours, by.minutes, by.seconds)
    filtered, cycle = days is not _ALL or 0 in allowed, step // gcd(step, len(allowed))
    if filtered and cycle > LONGEST_CYCLE:
        _refuse(
            f"INTERVAL={rule.interval} meets the BY parts in the same way only every {cycle:,} days; "
            "write an INTERVAL that goes into a day more evenly, or leave the BY parts out"
        )
    begin = _instant(start, rule.zone)
    offset = _regime(rule.zone, begin).offset
    return _Elapsed(rule.zone, days, allowed, filtered, unit, step, times, (begin + offset) // unit, offset)


def _times(hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> tuple[int, ...]:
    many = len(hours) * len(minutes) * len(seconds)
    if many > MOST_TIMES:
        _refuse(f"has {many:,} times in BYHOUR, BYMINUTE and BYSECOND; write at most {MOST_TIMES:,}, or a faster FREQ")
    return tuple(hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds)


def _picked(times: tuple[int, ...], positions: tuple[int, ...]) -> tuple[int, ...]:
    _check_positions(positions, len(times))
    return tuple(times[place] for place in _places(positions, len(times)))


def _check_positions(positions: tuple[int, ...], most: int) -> None:
    if not _places(positions, most):
        _refuse(f"BYSETPOS has no position up to {most:,}, and a period has no more, so this would never fire")


def _places(positions: tuple[int, ...], many: int) -> list[int]:
    """Of so many, from 0 on and in order."""
    places = {position - 1 if position > 0 else many + position for position in positions}
    return sorted(place for place in places if 0 <= place < many)


# The units of a day


@lru_cache(maxsize=256)
def _units_allowed(unit: int, hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> bytes:
    minute = _flags(60, seconds, b"\1") if unit == 1 else b"\1"
    hour = _flags(60, minutes, minute) if unit < 3600 else b"\1"
    return _flags(24, hours, hour)


def _flags(many: int, allowed: tuple[int, ...], flags: bytes) -> bytes:
    return b"".join(flags if not allowed or each in allowed else bytes(len(flags)) for each in range(many))


@lru_cache(maxsize=256)
def _in_step(allowed: bytes, step: int, first: int) -> bytes:
    return allowed[first::step]


@lru_cache(maxsize=256)
def _days_met(allowed: bytes, step: int, phase: int) -> int:
    """The days with an allowed unit that leaves `phase` when it is divided by `step`."""
    units = len(allowed)
    cycle = step // gcd(step, units)
    met = "".join("01"[1 in allowed[(phase - day * units) % step :: step]] for day in range(cycle))
    return _bits(met * (_DAYS // cycle + 1))


# The days of the calendar, a bit for each since the epoch, which is a Monday. There is a year more than is needed on
# both sides, so that no period is cut off.

_DAY: Final = 86_400
_EPOCH: Final = datetime(1968, 1, 1, tzinfo=UTC)
_UNIX: Final = (EARLIEST - _EPOCH).days * _DAY
_LATEST: Final = (LATEST - _EPOCH).days * _DAY
_DAYS: Final = _LATEST // _DAY + 365
_ALL: Final = (1 << _DAYS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Stretches of days, each from one bound up to the next."""

    bounds: tuple[int, ...]
    shortest: int
    longest: int


def _spans(firsts: Iterable[date]) -> _Spans:
    bounds = tuple(first.toordinal() - _EPOCH.toordinal() for first in firsts)
    lengths = {end - first for first, end in pairwise(bounds)}
    return _Spans(bounds, min(lengths), max(lengths))


_MONTHS: Final = _spans(date(_EPOCH.year + month // 12, month % 12 + 1, 1) for month in range(233 * 12 + 1))
_YEARS: Final = _spans(date(_EPOCH.year + year, 1, 1) for year in range(234))


@cache
def _week_years(week_start: int) -> _Spans:
    """Each from the first week on that has four days or more of the year."""
    fourths = (date(_EPOCH.year + year, 1, 4) for year in range(1, 236))
    return _spans(fourth - timedelta((fourth.weekday() - week_start) % 7) for fourth in fourths)


@lru_cache(maxsize=1024)
def _days(by: By, frequency: Frequency, week_start: int, interval: int, phase: int) -> int:
    """Those that the BY parts allow, in every `interval`th period."""
    allowed = _days_allowed(by, frequency, week_start)
    match frequency:
        case Frequency.YEARLY:
            return allowed & _every(_YEARS, interval, phase)
        case Frequency.MONTHLY:
            return allowed & _every(_MONTHS, interval, phase)
        case Frequency.WEEKLY:
            return allowed & _repeated("1111111", interval * 7, phase)
        case _:
            return allowed & _repeated("1", interval, phase)


@lru_cache(maxsize=1024)
def _days_allowed(by: By, frequency: Frequency, week_start: int) -> int:
    # 1MO is the first of the month, unless the rule is about years and names no months.
    within = _YEARS if frequency is Frequency.YEARLY and not by.months else _MONTHS
    choices = [
        [_every(_MONTHS, 12, month - 1) for month in by.months],
        [_seven(_week_years(week_start), number) for number in by.week_numbers],
        [_numbered(_YEARS, number) for number in by.year_days],
        [_numbered(_MONTHS, number) for number in by.month_days],
        [_repeated("1", 7, day) & (_seven(within, ordinal) if ordinal else _ALL) for ordinal, day in by.days],
    ]
    return reduce(and_, (reduce(or_, choice) for choice in choices if choice), _ALL)


@lru_cache(maxsize=512)
def _seven(spans: _Spans, number: int) -> int:
    """The first seven days of every span, or the second seven, or the last."""
    last = number * 7 if number > 0 else number * 7 + 6
    return reduce(or_, (_numbered(spans, day) for day in range(last - 6, last + 1)))


def _numbered(spans: _Spans, number: int) -> int:
    """The day with this number, counted from the end when negative, of every span that has it."""
    if abs(number) > spans.longest:
        return 0
    edges = _edges(spans, max(abs(number), spans.shortest), last=number < 0)
    return edges << number - 1 if number > 0 else edges >> -number - 1


@cache
def _edges(spans: _Spans, length: int, *, last: bool) -> int:
    """The first days, or the last, of the spans that are so long or longer."""
    flags = ["0"] * spans.bounds[-1]
    for first, end in pairwise(spans.bounds):
        if end - first >= length:
            flags[end - 1 if last else first] = "1"
    return _bits("".join(flags))


@lru_cache(maxsize=512)
def _every(spans: _Spans, interval: int, phase: int) -> int:
    """All days of every `interval`th span."""
    lengths = (end - first for first, end in pairwise(spans.bounds))
    return _bits("".join("01"[number % interval == phase] * length for number, length in enumerate(lengths)))


@lru_cache(maxsize=512)
def _repeated(flags: str, period: int, phase: int) -> int:
    return _bits(flags.ljust(min(period, _DAYS), "0") * (_DAYS // period + 1)) << phase & _ALL


def _bits(flags: str) -> int:
    return int(flags[::-1], 2)


_WINDOW: Final = 512


def _ones(bits: int, start: int) -> Iterator[int]:
    """The places from `start` on that have a 1."""
    rest = bits >> start
    while rest:
        if not rest & (1 << _WINDOW) - 1:
            zeros = (rest & -rest).bit_length() - 1
            start, rest = start + zeros, rest >> zeros
        # As text, in which the next one is found soonest.
        flags = f"{rest & (1 << _WINDOW) - 1:b}"[::-1]
        place = flags.find("1")
        while place >= 0:
            yield start + place
            place = flags.find("1", place + 1)
        start, rest = start + _WINDOW, rest >> _WINDOW


# The offsets of a zone


class _Regime(NamedTuple):
    """Instants from `begin` to before `end` that share an offset; `before` is the one until `begin`."""

    begin: int
    end: int
    offset: int
    before: int


_CHUNK: Final = 3_000 * _DAY
# Longer than any jump, and shorter than the time between any two, so that none hides between two probes.
_PROBE: Final = 6 * _DAY
# All jumps since 1968 are at a whole or a half minute.
_GRAIN: Final = 30


def _regime(zone: ZoneInfo, at: int) -> _Regime:
    regimes = _regimes(zone, at // _CHUNK)
    return regimes[bisect_right(regimes, at, key=attrgetter("begin")) - 1]


@lru_cache(maxsize=4096)
def _regimes(zone: ZoneInfo, chunk: int) -> tuple[_Regime, ...]:
    """What covers the chunk, and a little before it, where a jump may be that still matters."""
    begin, end = chunk * _CHUNK - _PROBE, (chunk + 1) * _CHUNK
    bounds = [begin, *(jump for jump in _jumps(zone, begin, end) if jump < end), end]
    offsets = [_seconds(_offset(zone, bound) or timedelta()) for bound in bounds]
    return tuple(map(_Regime, bounds, bounds[1:], offsets, [offsets[0], *offsets]))


def _jumps(zone: ZoneInfo, begin: int, end: int) -> Iterator[int]:
    """The instants at which the offset becomes another one; zoneinfo knows them and has no way to say so."""
    if zone.utcoffset(None) is not None:
        return
    # The quickest way to an offset, which matters where a rule that never fires looks at all there are.
    utc = (_EPOCH + timedelta(0, begin)).replace(tzinfo=zone)
    offset = zone.fromutc(utc) - utc
    for at in range(begin, end, _PROBE):
        utc += timedelta(0, _PROBE)
        held = zone.fromutc(utc) - utc
        if held != offset:
            grains = range(at, at + _PROBE, _GRAIN)
            yield at + _GRAIN * bisect_left(grains, True, key=lambda grain: _offset(zone, grain) != offset)
            offset = held


def _offset(zone: ZoneInfo, at: int) -> timedelta | None:
    return datetime.fromtimestamp(at - _UNIX, zone).utcoffset()


def _instant(written: Written, zone: ZoneInfo) -> int:
    aware = written.local.replace(tzinfo=_zone(written.zone) if written.zone else zone)
    return _since_epoch(aware.astimezone(UTC))


def _since_epoch(moment: datetime) -> int:
    """Of UTC, or of whatever the clock on the wall says."""
    return _seconds(moment.replace(tzinfo=UTC) - _EPOCH)


def _seconds(duration: timedelta) -> int:
    return duration.days * _DAY + duration.seconds
