"""When a cron expression fires next, in the local time of a zone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from itertools import takewhile
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
_SECOND: Final = timedelta(seconds=1)
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
                    return _EPOCH + instant * _SECOND
                at = stretch.end
            elif local is None:
                return None
            elif local - stretch.offset < stretch.end:
                return _EPOCH + (local - stretch.offset) * _SECOND
            else:
                # No zone is a whole day from UTC, so nothing fires between here and a day before `local`.
                at = max(stretch.end, local - _DAY)
        return None

    def firings(
        self, after: datetime, zone: ZoneInfo, *, dst_gap: DstGap = DstGap.SHIFT, dst_fold: DstFold | None = None
    ) -> Iterator[datetime]:
        """All firings after a moment, each what `after` says about the one before."""
        first = self.after(after, zone, dst_gap=dst_gap, dst_fold=dst_fold)
        while first is not None:
            for firing in self._calm_run(first, zone):
                yield firing
            first = self.after(firing, zone, dst_gap=dst_gap, dst_fold=dst_fold)

    def count(
        self,
        after: datetime,
        until: datetime,
        zone: ZoneInfo,
        *,
        dst_gap: DstGap = DstGap.SHIFT,
        dst_fold: DstFold | None = None,
    ) -> int:
        """How many firings come after one moment and until another, that one included; without going through them."""
        policy, total = self._policy(dst_gap, dst_fold), 0
        at, end = ((moment - _EPOCH) // _SECOND + 1 for moment in (after, until))
        at, end = max(at, _EARLIEST), min(end, _LATEST + 1)
        while at < end:
            stretch = _stretch_at(zone, at)
            total += self._count_within(stretch, at, min(stretch.end, end), *policy)
            at = stretch.end
            if at < end and stretch.phase is _CALM:
                # On to the next, as in `after`: what is rare is not looked for in every stretch.
                local = self._local_from(at + stretch.offset)
                at = end if local is None else max(at, local - _DAY)
        return total

    def _calm_run(self, first: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """A firing and those that follow while no clock changes; it alone when one is changing."""
        yield first
        at = (first - _EPOCH) // _SECOND
        stretch = _stretch_at(zone, at)
        if stretch.phase is not _CALM:
            return
        local_epoch, local_end = _EPOCH - stretch.offset * _SECOND, stretch.end + stretch.offset
        for local in self._locals_after(at + stretch.offset):
            if local >= local_end:
                return
            yield local_epoch + local * _SECOND

    def _locals_after(self, local: int) -> Iterator[int]:
        """All that the fields allow after `local`, which they allow as well."""
        hours, minutes, seconds = self.pattern.hours, self.pattern.minutes, self.pattern.seconds
        day: int | None = local // _DAY
        hour, minute, second = local // 3600 % 24, local // 60 % 60, seconds[local % 60 + 1]
        while day is not None:
            while hour < 24:
                begin = day * _DAY + hour * 3600
                while minute < 60:
                    while second < 60:
                        yield begin + minute * 60 + second
                        second = seconds[second + 1]
                    minute, second = minutes[minute + 1], seconds[0]
                hour, minute = hours[hour + 1], minutes[0]
            day, hour = self._day_from(day + 1), hours[0]

    def _count_within(self, stretch: _Stretch, at: int, end: int, gap: DstGap, fold: DstFold) -> int:
        if (stretch.phase, fold) in _PASSED_OVER:
            return 0
        if stretch.phase is _Phase.AFTER_GAP and gap is not DstGap.SKIP:
            return self._count_after_gap(replace(stretch, end=end), at, gap, fold)
        return self._count_locals(max(at + stretch.offset, _EARLIEST), min(end + stretch.offset, _LATEST + 1))

    def _count_after_gap(self, stretch: _Stretch, at: int, gap: DstGap, fold: DstFold) -> int:
        """One by one, because what comes out of the gap may meet what is there anyway."""
        total = 0
        while (
            instant := self._near_transition(at, self._local_from(at + stretch.offset), stretch, gap, fold)
        ) is not None:
            total, at = total + 1, instant + 1
        return total

    def _count_locals(self, begin: int, end: int) -> int:
        """How many local times the fields allow from `begin` to before `end`."""
        if begin >= end:
            return 0
        days = self._count_days(begin // _DAY, end // _DAY)
        return days * self.pattern.times_a_day + self._count_since_midnight(end) - self._count_since_midnight(begin)

    def _count_days(self, begin: int, end: int) -> int:
        if self.pattern.every_day or begin == end:
            return end - begin
        months = takewhile(lambda month: month[0] < end, self._months_from(begin))
        return sum(_below(min(end - before, 32), days) for before, days in months)

    def _count_since_midnight(self, local: int) -> int:
        if self._day_from(local // _DAY) != local // _DAY:
            return 0
        later = self._later_that_day(local)
        if later is None:
            return self.pattern.times_a_day
        hours, minutes, seconds = self.pattern.times
        before = _below(later // 3600 % 24, hours) * minutes.bit_count() + _below(later // 60 % 60, minutes)
        return before * seconds.bit_count() + _below(later % 60, seconds)

    def _policy(self, gap: DstGap, fold: DstFold | None) -> tuple[DstGap, DstFold]:
        if fold is not None:
            return gap, fold
        # Who wrote "every five minutes" means elapsed time, whatever the clocks do.
        return (DstGap.SKIP, DstFold.BOTH) if self.pattern.every_hour else (gap, DstFold.FIRST)

    def _near_transition(self, at: int, local: int | None, stretch: _Stretch, gap: DstGap, fold: DstFold) -> int | None:
        if (stretch.phase, fold) in _PASSED_OVER:
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
        # At both ends of time UTC has days that datetime lacks in the zone.
        if self.pattern.every_day and _EARLIEST <= later <= _LATEST:
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
        for before, days in self._months_from(ordinal - _EPOCH_ORDINAL):
            if days:
                return before + (days & -days).bit_length() - 1
        return None

    def _months_from(self, day: int) -> Iterator[tuple[int, int]]:
        """The allowed months, each as the day before its first and the bitmask of its allowed days from `day` on."""
        ordinal = day + _EPOCH_ORDINAL
        start = date.fromordinal(ordinal)
        years, months, days = self.pattern.years, self.pattern.months, self.pattern.days
        for year in range(start.year, MAXYEAR + 1) if years is None else years[bisect_left(years, start.year) :]:
            month = months[start.month] if year == start.year else months[1]
            while month <= 12:
                first = date(year, month, 1).toordinal()
                allowed = days[month_shape(year, month, first % 7)]
                yield first - 1 - _EPOCH_ORDINAL, allowed >> start.day << start.day if first < ordinal else allowed
                month = months[month + 1]


def _below(value: int, mask: int) -> int:
    """How many bits of the mask stand for less."""
    return (mask & ((1 << value) - 1)).bit_count()


class _Phase(Enum):
    CALM = "every local time comes once"
    FIRST_PASS = "every local time will come again"
    SECOND_PASS = "every local time has been before"
    AFTER_GAP = "as long after the gap as the gap is wide"


_CALM: Final = _Phase.CALM
_PASSED_OVER: Final = ((_Phase.FIRST_PASS, DstFold.SECOND), (_Phase.SECOND_PASS, DstFold.FIRST))


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


def _stretch_at(zone: ZoneInfo, at: int) -> _Stretch:
    return next(stretch for stretch in _stretches(zone, at >> _CHUNK_BITS) if at < stretch.end)


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
    offset = (_EPOCH + at * _SECOND).astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset else 0
