"""Cron against cronsim, against croniter, and against its own definition spelled out with zoneinfo.

Where the other two read an expression differently, from us or from each other, the case is in DECIDED with the reason
for our reading, and the generators here leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import count, cycle, pairwise, product, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo
from zoneinfo._common import load_data

import pytest
from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.model.cron import Cron, DstFold, DstGap
from rota.model.errors import InvalidSchedule

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=300)
ZULU = ZoneInfo("UTC")

DECIDED = [
    # A range says where it ends. cronsim reads 5-5/20 as 5/20; croniter takes a range of one for the whole field.
    ("5-5/20 0 * * *", "UTC", "2026-01-01 00:05", "2026-01-02 00:05", {"cronsim", "croniter"}),
    ("0 0 * * 2-2", "UTC", "2026-01-01 00:00", "2026-01-06 00:00", {"croniter"}),
    # The week ends on Saturday. cronsim goes on to 7 and so to Sunday, which nobody counting from Wednesday means.
    ("0 0 * * 3/2", "UTC", "2026-01-02 00:00", "2026-01-07 00:00", {"cronsim"}),
    # Either day will do, the 13th as well; croniter looks for Fridays only as soon as there is a #.
    ("0 0 13 * 5#2", "UTC", "2026-01-10 00:00", "2026-01-13 00:00", {"croniter"}),
    # Vixie cron looks for a star in front: this week is restricted, to every day. croniter finds the star behind.
    ("0 0 1,*/2 * 0,*/1", "UTC", "2026-01-01 00:00", "2026-01-02 00:00", {"croniter"}),
    ("0 0 31 * 4-6,*", "UTC", "2026-01-01 00:00", "2026-01-02 00:00", {"croniter"}),
    # Vixie cron again: with a star in front of one of them both must match. croniter follows when asked to, and is.
    ("0 0 */2 * MON", "UTC", "2026-01-01 00:00", "2026-01-05 00:00", set()),
    # A month without a 31st has no weekday nearest to it, as in Quartz; croniter goes to the last of the month.
    ("0 0 31W * *", "UTC", "2026-02-01 00:00", "2026-03-31 00:00", {"cronsim", "croniter"}),
    # From here on zones: both skip what is in a gap when there is a star, and repeat all in a fold.
    # 02:30 is there at once when the clocks go from 02:00 to 02:30. cronsim steps by whole hours and passes it.
    ("30 * * * *", "Australia/Lord_Howe", "2026-10-04 01:30", "2026-10-04 02:30", {"cronsim"}),
    # That day had no 02:00, and who fires every hour waits for 03:00; croniter moves it to 02:30.
    ("0 * * * *", "Australia/Lord_Howe", "2026-10-04 01:00", "2026-10-04 03:00", {"croniter"}),
    # 01:40 came twice; croniter sees it once.
    ("*/20 * * * *", "Australia/Lord_Howe", "2026-04-05 01:40", "2026-04-05 01:40 again", {"croniter"}),
    # And 02:00, on the night that three hours came twice.
    ("0 */2 * * *", "Antarctica/Casey", "2018-03-11 02:00", "2018-03-11 02:00 again", {"croniter"}),
    # From 00:01 to 01:01: there was no 01:00, but a 01:20. cronsim passes it, croniter does not skip.
    ("*/20 1 * * *", "America/Goose_Bay", "2003-04-05 22:00", "2003-04-06 01:20", {"cronsim", "croniter"}),
    # There was no 23:59:59; croniter steps on by minutes and keeps the seconds.
    ("59 59 23 * * *", "America/Nuuk", "2026-03-28 12:00", "2026-03-29 23:59:59", {"croniter"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "zone", "since", "expected", "otherwise"), DECIDED)
def test_where_others_read_it_differently(text: str, zone: str, since: str, expected: str, otherwise: set[str]) -> None:
    moment = in_zone(since, zone)
    ours = Cron.parse(text).after(moment, ZoneInfo(zone), dst_gap=DstGap.SKIP, dst_fold=DstFold.BOTH)
    assert ours == in_zone(expected, zone).astimezone(UTC)
    # A row that is no longer true goes.
    theirs = {"cronsim": by_cronsim(text, moment), "croniter": by_croniter(text, moment)}
    assert {name for name, answer in theirs.items() if answer != ours} == otherwise


def in_zone(text: str, zone: str) -> datetime:
    local = datetime.fromisoformat(text.removesuffix(" again"))
    return local.replace(tzinfo=ZoneInfo(zone), fold=text.endswith(" again"))


def by_cronsim(text: str, moment: datetime) -> datetime | None:
    try:
        return next(CronSim(text, moment)).astimezone(UTC)
    except (CronSimError, StopIteration):
        return None


def by_croniter(text: str, moment: datetime) -> datetime | None:
    try:
        iterator = croniter(text, moment, second_at_beginning=True, implement_cron_bug=True)
        return iterator.get_next(datetime).astimezone(UTC)
    except CroniterError:
        return None


# What the three can all write: no wrap-around, no ?, no W, and nothing of the above.


def items(low: int, high: int) -> st.SearchStrategy[str]:
    values, steps = st.integers(low, high), st.integers(1, high - low + 1)
    ends = st.tuples(values, values).filter(lambda pair: pair[0] < pair[1])
    return st.one_of(
        values.map(str),
        ends.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        steps.map(lambda step: f"*/{step}"),
        st.builds(lambda pair, step: f"{pair[0]}-{pair[1]}/{step}", ends, steps),
    )


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.just("*") | st.lists(items(low, high), min_size=1, max_size=3).map(",".join)


days_of_week = field(0, 6) | st.sampled_from(["MON-FRI", "SAT,SUN", "TUE"])
special_days_of_week = st.builds("{}#{}".format, st.integers(0, 6), st.integers(1, 5)) | st.sampled_from(["5L", "0L"])
times = st.tuples(field(0, 59), field(0, 23)).map(" ".join) | st.tuples(field(0, 59), field(0, 59), field(0, 23)).map(
    " ".join
)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@EVERY_TIME_THE_SAME
@given(
    times,
    field(1, 31) | st.sampled_from(["L", "LW", "1,L"]),
    field(1, 12),
    days_of_week | special_days_of_week,
    moments,
)
def test_cronsim_agrees_in_utc(time: str, day: str, month: str, weekday: str, moment: datetime) -> None:
    text = f"{time} {day} {month} {weekday}"
    assert ours(text, moment) == by_cronsim(text, moment)


@EVERY_TIME_THE_SAME
@given(times, field(1, 31) | st.just("L"), field(1, 12), days_of_week, moments)
def test_croniter_agrees_in_utc(time: str, day: str, month: str, weekday: str, moment: datetime) -> None:
    assume("*" not in day[1:] + weekday[1:])
    text = f"{time} {day} {month} {weekday}"
    assert ours(text, moment) == by_croniter(text, moment)


@EVERY_TIME_THE_SAME
@given(times, field(1, 12), special_days_of_week, moments)
def test_croniter_agrees_about_the_nth_weekday(time: str, month: str, weekday: str, moment: datetime) -> None:
    reversed_l = f"L{weekday[0]}" if weekday.endswith("L") else weekday
    assert ours(f"{time} * {month} {weekday}", moment) == by_croniter(f"{time} * {month} {reversed_l}", moment)


@EVERY_TIME_THE_SAME
@given(times, st.integers(1, 28), moments)
def test_croniter_agrees_about_the_nearest_weekday(time: str, day: int, moment: datetime) -> None:
    assert ours(f"{time} {day}W * *", moment) == by_croniter(f"{time} {day}W * *", moment)


def ours(text: str, moment: datetime) -> datetime | None:
    try:
        return Cron.parse(text).after(moment, ZULU)
    except InvalidSchedule as refusal:
        assert "never fire" in refusal.problem
        return None


# Around the jumps of all zones.


class Jump(NamedTuple):
    at: int
    before: int
    after: int
    zone: ZoneInfo

    @property
    def whole_hours(self) -> bool:
        return (self.at + self.before) % 3600 == 0 and (self.after - self.before) % 3600 == 0

    @property
    def local_hour(self) -> int:
        """In which the clocks were turned."""
        return (self.at + min(self.before, self.after)) // 3600 % 24


@cache
def zones() -> list[ZoneInfo]:
    """One of each kind, the links left out."""
    kinds: dict[bytes, str] = {}
    for key in sorted(files("tzdata").joinpath("zones").read_text().split()):
        kinds.setdefault(zone_file(key).read_bytes(), key)
    return [ZoneInfo(key) for key in kinds.values()]


def zone_file(key: str) -> Traversable:
    return files("tzdata.zoneinfo").joinpath(*key.split("/"))


@cache
def jumps() -> list[Jump]:
    """All from 2000 to 2060, those that several zones share once."""
    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2061))
    found = {(jump.at, jump.before, jump.after): jump for zone in zones() for jump in jumps_of(zone, begin, end)}
    return [found[key] for key in sorted(found)]


def jumps_of(zone: ZoneInfo, begin: int, end: int) -> Iterator[Jump]:
    probes = ((instant, offset_at(instant, zone)) for instant in range(begin, end, 6 * 86_400))
    for (low, before), (high, after) in pairwise(probes):
        if before != after:
            yield Jump(first_instant(low, high, zone), before, after, zone)


def first_instant(low: int, high: int, zone: ZoneInfo) -> int:
    """Of the offset that holds at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if offset_at(middle, zone) == offset_at(high, zone) else (middle, high)
    return high


def offset_at(instant: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def test_jumps_are_few_and_small_enough_for_the_search() -> None:
    for zone in zones():
        with zone_file(zone.key).open("rb") as file:
            indices, instants, offsets, *_ = load_data(file)
        held = [offsets[0], *(offsets[index] for index in indices)]
        jumps = [
            (at, after - before)
            for at, (before, after) in zip(instants, pairwise(held), strict=True)
            if before != after
        ]
        assert all(abs(width) <= 86_400 for _, width in jumps)
        assert all(later - earlier > 4 * 86_400 for (earlier, _), (later, _) in pairwise(jumps)), zone


def test_around_every_jump_it_is_as_defined() -> None:
    policies = list(product(DstGap, [*DstFold, None]))
    for number, jump in enumerate(jumps()):
        gap, fold = policies[number % len(policies)]
        minutes = sorted({0, number * 7 % 60})
        hours = sorted({(jump.local_hour + n) % 24 for n in (-1, 0, 1)}) if number % 13 else range(24)
        text = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
        assert around(jump, text, gap, fold) == defined(jump, list(product(hours, minutes)), gap, fold), (jump, text)


def test_around_every_jump_iterating_is_asking() -> None:
    policies = product(DstGap, [*DstFold, None])
    texts = ["*/10 * * * *", "5/25 */2 * * *", "*/15 {0},{1} * * *", "30 {0} * * *", "*/20 7 {1} * * *"]
    for jump, ((gap, fold), text) in zip(jumps(), cycle(product(policies, texts)), strict=False):
        text = text.format(jump.local_hour, (jump.local_hour + 1) % 24)
        assert iterated(jump, text, gap, fold) == around(jump, text, gap, fold), (jump, text)


def test_around_every_jump_counting_is_iterating() -> None:
    policies = product(DstGap, [*DstFold, None])
    texts = ["7/10 * * * *", "5/25 */2 * * *", "*/15 {0},{1} * * *", "30 {0} * * *", "* {0} * * *"]
    for jump, ((gap, fold), text) in zip(jumps(), cycle(product(policies, texts)), strict=False):
        cron = Cron.parse(text.format(jump.local_hour, (jump.local_hour + 1) % 24))
        begin, end = window(jump)
        middle = begin + timedelta(hours=30, minutes=jump.at // 3600 % 100 - 50)
        found = iterated(jump, cron.text, gap, fold)
        counts = [cron.count(*ends, jump.zone, dst_gap=gap, dst_fold=fold) for ends in ((begin, middle), (middle, end))]
        assert counts == [sum(at <= middle for at in found), sum(at > middle for at in found)], (jump, cron.text)


def window(jump: Jump) -> tuple[datetime, datetime]:
    middle = datetime.fromtimestamp(jump.at, UTC)
    return middle - timedelta(hours=30), middle + timedelta(hours=30)


def around(jump: Jump, text: str, gap: DstGap, fold: DstFold | None) -> list[datetime]:
    moment, end = window(jump)
    cron, found = Cron.parse(text), []
    while (firing := cron.after(moment, jump.zone, dst_gap=gap, dst_fold=fold)) and firing <= end:
        found.append(firing)
        moment = firing
    return found


def iterated(jump: Jump, text: str, gap: DstGap, fold: DstFold | None) -> list[datetime]:
    begin, end = window(jump)
    firings = Cron.parse(text).firings(begin, jump.zone, dst_gap=gap, dst_fold=fold)
    return list(takewhile(end.__ge__, firings))


def defined(jump: Jump, times: list[tuple[int, int]], gap: DstGap, fold: DstFold | None) -> list[datetime]:
    """Every local time there could be, each taken to its instants by zoneinfo, in order and without doubles."""
    if fold is None:
        gap, fold = (DstGap.SKIP, DstFold.BOTH) if len({hour for hour, _ in times}) == 24 else (gap, DstFold.FIRST)
    begin, end = window(jump)
    days = [begin.date() + timedelta(days=n) for n in range(-2, 5)]
    local_times = [datetime(day.year, day.month, day.day, *time) for day, time in product(days, times)]
    instants = {instant for local in local_times for instant in instants_of(local, jump, gap, fold)}
    return sorted(instant for instant in instants if begin < instant <= end)


def instants_of(local: datetime, jump: Jump, gap: DstGap, fold: DstFold) -> list[datetime]:
    first = local.replace(tzinfo=jump.zone, fold=0).astimezone(UTC)
    second = local.replace(tzinfo=jump.zone, fold=1).astimezone(UTC)
    if first < second:
        return {DstFold.FIRST: [first], DstFold.SECOND: [second], DstFold.BOTH: [first, second]}[fold]
    if first > second:
        transition = datetime.fromtimestamp(jump.at, UTC)
        return {DstGap.SHIFT: [first], DstGap.SKIP: [], DstGap.AT_TRANSITION: [transition]}[gap]
    return [first]


near_times = st.tuples(
    st.sampled_from(["0", "30", "15,45", "59", "*", "*/15", "*/20", "7-37/10"]),
    st.sampled_from(["*", "*/2", "*/3", "{0}", "{0},{1}", "{0},{2}", "{1}", "{0}-{2}", "{2}"]),
).map(" ".join)
jump_numbers = st.integers(0, 2**16)


@EVERY_TIME_THE_SAME
@given(jump_numbers, near_times)
def test_cronsim_agrees_around_jumps_of_whole_hours(number: int, time: str) -> None:
    jump, text = nearby(number, time)
    begin, end = window(jump)
    fixed_time = "*" not in time
    gap, fold = (DstGap.AT_TRANSITION, DstFold.FIRST) if fixed_time else (DstGap.SKIP, DstFold.BOTH)
    theirs = (moment.astimezone(UTC) for moment in CronSim(text, begin.astimezone(jump.zone)))
    assert around(jump, text, gap, fold) == list(takewhile(lambda moment: moment <= end, theirs))


@EVERY_TIME_THE_SAME
@given(jump_numbers, near_times)
def test_croniter_agrees_around_jumps_of_whole_hours(number: int, time: str) -> None:
    jump, text = nearby(number, time)
    assume(jump.after - jump.before >= -3600)
    begin, end = window(jump)
    gap = DstGap.SKIP if time.endswith(" *") else DstGap.AT_TRANSITION
    iterator = croniter(text, begin.astimezone(jump.zone))
    theirs = (iterator.get_next(datetime).astimezone(UTC) for _ in count())
    assert around(jump, text, gap, DstFold.BOTH) == list(takewhile(lambda moment: moment <= end, theirs))


def nearby(number: int, time: str) -> tuple[Jump, str]:
    jump = jumps()[number % len(jumps())]
    assume(jump.whole_hours)
    hours = [min(jump.local_hour, 21) + n for n in (0, 1, 2)]
    return jump, f"{time.format(*hours)} * * *"
