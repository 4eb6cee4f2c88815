"""When a cron expression fires next, in the local time of a zone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from rota.model.cron_fields import Dialect, Pattern, dialect_named, month_shape, read


class DstGap(StrEnum):
    """What becomes of a local time that the clocks jump over."""

    SHIFT = "shift"
    SKIP = "skip"
    AT_TRANSITION = "at_transition"


class DstFold(StrEnum):
    """Which occurrence counts of a local time that comes twice."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


_DAY: Final = 86_400
# Instants are whole seconds since this day, and a local time is an instant plus the offset of its zone, so that the
# search is arithmetic on ints. Near to today, because CPython is quickest with ints below 2**30.
_EPOCH: Final = datetime(2020, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_LAST_ORDINAL: Final = date.max.toordinal()
_EARLIEST: Final = (1 - _EPOCH_ORDINAL) * _DAY
_LATEST: Final = (_LAST_ORDINAL + 1 - _EPOCH_ORDINAL) * _DAY - 1


@dataclass(frozen=True, slots=True)
class Cron:
    text: str
    dialect: Dialect
    pattern: Pattern = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, *, dialect: str = "unix") -> Cron:
        """Raises InvalidSchedule where the text is no cron expression, or is one that never fires."""
        known = dialect_named(dialect)
        return cls(text, known, read(text, known))

    def after(
        self, moment: datetime, zone: ZoneInfo, *, dst_gap: DstGap = DstGap.SHIFT, dst_fold: DstFold | None = None
    ) -> datetime | None:
        """The first firing strictly after `moment`, in UTC; None when there is none ever again."""
        since = moment - _EPOCH
        at = since.days * _DAY + since.seconds + 1
        if at < _EARLIEST:
            at = _EARLIEST
        while at <= _LATEST:
            for stretch in _stretches(zone, at >> _CHUNK_BITS):
                if at < stretch.end:
                    break
            local = self._local_from(at + stretch.offset)
            if stretch.phase is not _CALM:
                instant = self._near_transition(at, local, stretch, *self._policy(dst_gap, dst_fold))
                if instant is not None:
                    return _EPOCH + timedelta(0, instant)
                at = stretch.end
            elif local is None:
                return None
            elif local - stretch.offset < stretch.end:
                return _EPOCH + timedelta(0, local - stretch.offset)
            else:
                # No zone is a whole day from UTC, so nothing fires between here and a day before `local`.
                at = max(stretch.end, local - _DAY)
        return None

    def _policy(self, gap: DstGap, fold: DstFold | None) -> tuple[DstGap, DstFold]:
        if fold is not None:
            return gap, fold
        # Who wrote "every five minutes" means elapsed time, whatever the clocks do.
        return (DstGap.SKIP, DstFold.BOTH) if self.pattern.every_hour else (gap, DstFold.FIRST)

    def _near_transition(self, at: int, local: int | None, stretch: _Stretch, gap: DstGap, fold: DstFold) -> int | None:
        if stretch.phase is _Phase.FIRST_PASS and fold is DstFold.SECOND:
            return None
        if stretch.phase is _Phase.SECOND_PASS and fold is DstFold.FIRST:
            return None
        instants = [] if local is None else [local - stretch.offset]
        if stretch.phase is _Phase.AFTER_GAP:
            instants += self._out_of_gap(at, stretch, gap)
        return min((instant for instant in instants if instant < stretch.end), default=None)

    def _out_of_gap(self, at: int, stretch: _Stretch, gap: DstGap) -> Iterator[int]:
        """Where the first local time inside the gap goes that is still to come at `at`."""
        lost = self._local_from(at + stretch.before)
        if lost is None or lost >= stretch.begin + stretch.offset:
            return
        if gap is DstGap.SHIFT:
            yield lost - stretch.before
        elif gap is DstGap.AT_TRANSITION and at == stretch.begin:
            yield at

    def _local_from(self, local: int) -> int | None:
        """The first local time at or after `local` that the fields allow."""
        later = self._later_that_day(local)
        if later is None:
            return self._opening(self._day_from(local // _DAY + 1))
        if self.pattern.every_day:
            return later
        day = self._day_from(local // _DAY)
        return later if day == local // _DAY else self._opening(day)

    def _opening(self, day: int | None) -> int | None:
        """The first allowed time of an allowed day."""
        if day is None:
            return None
        pattern = self.pattern
        return day * _DAY + pattern.hours[0] * 3600 + pattern.minutes[0] * 60 + pattern.seconds[0]

    def _later_that_day(self, local: int) -> int | None:
        """The first allowed time of day at or after `local`, as a local time, if the same day still has one."""
        pattern = self.pattern
        minutes = local // 60
        second, minute, hour = local % 60, minutes % 60, minutes // 60 % 24
        allowed_hour = pattern.hours[hour]
        if allowed_hour == hour:
            allowed_minute = pattern.minutes[minute]
            if allowed_minute == minute:
                allowed_second = pattern.seconds[second]
                if allowed_second < 60:
                    return local + allowed_second - second
                allowed_minute = pattern.minutes[minute + 1]
            if allowed_minute < 60:
                return local + (allowed_minute - minute) * 60 + pattern.seconds[0] - second
            allowed_hour = pattern.hours[hour + 1]
        if allowed_hour < 24:
            first = pattern.minutes[0] * 60 + pattern.seconds[0]
            return local + (allowed_hour - hour) * 3600 - minute * 60 - second + first
        return None

    def _day_from(self, day: int) -> int | None:
        """The first allowed day at or after `day`, counted from the epoch."""
        ordinal = max(day + _EPOCH_ORDINAL, 1)
        if ordinal > _LAST_ORDINAL:
            return None
        if self.pattern.every_day:
            return ordinal - _EPOCH_ORDINAL
        start = date.fromordinal(ordinal)
        for year, month in self._months_from(start.year, start.month):
            first = date(year, month, 1).toordinal()
            days = self.pattern.days[month_shape(year, month, first % 7)]
            if first < ordinal:
                days = days >> start.day << start.day
            if days:
                lowest = (days & -days).bit_length() - 1
                return first + lowest - 1 - _EPOCH_ORDINAL
        return None

    def _months_from(self, year: int, month: int) -> Iterator[tuple[int, int]]:
        years, months = self.pattern.years, self.pattern.months
        for allowed_year in range(year, MAXYEAR + 1) if years is None else years[bisect_left(years, year) :]:
            allowed = months[month] if allowed_year == year else months[1]
            while allowed <= 12:
                yield allowed_year, allowed
                allowed = months[allowed + 1]


class _Phase(Enum):
    CALM = "every local time comes once"
    FIRST_PASS = "every local time will come again"
    SECOND_PASS = "every local time has been before"
    AFTER_GAP = "as long after the gap as the gap is wide"


_CALM: Final = _Phase.CALM


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Instants from `begin` to before `end` that share an offset and a phase; `before` is the offset until `begin`."""

    begin: int
    end: int
    offset: int
    phase: _Phase
    before: int


# Half a year: one transition in most zones, so few stretches to walk past and few chunks to keep.
_CHUNK_BITS: Final = 24
# Twice the widest jump there is (a day, over the date line), and well below the shortest time there is between two
# jumps (a week, in Gaza): the stretches around two jumps never meet, and no jump hides between two probes.
_MARGIN: Final = 2 * _DAY


@lru_cache(maxsize=4096)
def _stretches(zone: ZoneInfo, chunk: int) -> tuple[_Stretch, ...]:
    """What covers the chunk: the first may begin before it, none ends after it."""
    fixed = zone.utcoffset(None)
    if fixed is not None:
        offset = int(fixed.total_seconds())
        return (_Stretch(_EARLIEST, _LATEST + 1, offset, _CALM, offset),)
    begin, end = chunk << _CHUNK_BITS, min((chunk + 1) << _CHUNK_BITS, _LATEST + 1)
    clipped = [replace(s, end=min(s.end, end)) for s in _around_jumps(zone, begin - _MARGIN, end + _MARGIN)]
    return tuple(stretch for stretch in clipped if stretch.begin < stretch.end)


def _around_jumps(zone: ZoneInfo, begin: int, end: int) -> Iterator[_Stretch]:
    offset = _offset_at(zone, begin)
    for jump in _jumps(zone, begin, end):
        before, offset = offset, _offset_at(zone, jump)
        width = abs(offset - before)
        if offset > before:
            yield _Stretch(begin, jump, before, _CALM, before)
            yield _Stretch(jump, jump + width, offset, _Phase.AFTER_GAP, before)
        else:
            yield _Stretch(begin, jump - width, before, _CALM, before)
            yield _Stretch(jump - width, jump, before, _Phase.FIRST_PASS, before)
            yield _Stretch(jump, jump + width, offset, _Phase.SECOND_PASS, before)
        begin = jump + width
    yield _Stretch(begin, end, offset, _CALM, offset)


def _jumps(zone: ZoneInfo, begin: int, end: int) -> Iterator[int]:
    """The instants at which the offset becomes another one; zoneinfo knows them and has no way to say so."""
    offset = _offset_at(zone, begin)
    while begin < end:
        probe = min(begin + _MARGIN, end)
        if _offset_at(zone, probe) == offset:
            begin = probe
            continue
        begin = bisect_left(range(begin, probe), True, key=lambda at: _offset_at(zone, at) != offset) + begin
        offset = _offset_at(zone, begin)
        yield begin


def _offset_at(zone: ZoneInfo, at: int) -> int:
    # A day inside the years that datetime has, so that the local time is one of them.
    at = min(max(at, _EARLIEST + _DAY), _LATEST - _DAY)
    offset = (_EPOCH + timedelta(0, at)).astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset else 0
