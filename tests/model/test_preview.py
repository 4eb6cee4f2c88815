"""What a schedule is going to do: firings with their wall clock, warnings, differences."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import process_time
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.model import cron
from rota.model.cron import Cron, DstFold, DstGap
from rota.model.errors import InvalidSchedule
from rota.model.preview import (
    Clock,
    Firing,
    Once,
    Timetable,
    difference,
    lint,
    preview,
    sentence,
    shortest_gap,
    too_slow,
)
from rota.model.schedule import Recurring, parse_when

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
NOW = datetime(2027, 1, 4, 10, tzinfo=UTC)
NEW_YORK = "America/New_York"


def recurring(text: str, zone: str | None = None, **window: str) -> Recurring:
    schedule = parse_when(text, time_zone=zone, **window)
    assert isinstance(schedule, Recurring)
    return schedule.anchored(NOW)


def clock(text: str, zone: str = NEW_YORK, *, gap: DstGap = DstGap.SHIFT, fold: DstFold | None = None) -> Clock:
    return Clock(Cron.parse(text), ZoneInfo(zone), gap, fold)


def ahead(schedule: Timetable, after: str, count: int = 3) -> list[tuple[str, str, str | None]]:
    found = preview(schedule, after=datetime.fromisoformat(after), count=count)
    return [(f"{firing.at:%d %H:%M}", firing.local, firing.note) for firing in found]


# Firings


def test_firings_are_told_in_utc_and_by_the_wall_clock() -> None:
    assert ahead(recurring("30 10 * * FRI", "Europe/Berlin"), "2027-03-20T00:00Z") == [
        ("26 09:30", "2027-03-26T10:30:00+01:00", None),
        ("02 08:30", "2027-04-02T10:30:00+02:00", None),
        ("09 08:30", "2027-04-09T10:30:00+02:00", None),
    ]


def test_a_firing_out_of_a_gap_is_noted() -> None:
    assert ahead(recurring("30 2 * * *", NEW_YORK), "2027-03-13T12:00Z", 2) == [
        ("14 07:30", "2027-03-14T03:30:00-04:00", "shifted out of the DST gap"),
        ("15 06:30", "2027-03-15T02:30:00-04:00", None),
    ]


def test_which_of_two_equal_local_times_is_noted() -> None:
    assert ahead(recurring("30 1,2 * * *", NEW_YORK), "2027-11-07T04:00Z", 2) == [
        ("07 05:30", "2027-11-07T01:30:00-04:00", "the first of two 01:30"),
        ("07 07:30", "2027-11-07T02:30:00-05:00", None),
    ]
    assert ahead(recurring("30 * * * *", NEW_YORK), "2027-11-07T05:00Z", 2) == [
        ("07 05:30", "2027-11-07T01:30:00-04:00", "the first of two 01:30"),
        ("07 06:30", "2027-11-07T01:30:00-05:00", "the second of two 01:30"),
    ]


def test_an_interval_is_told_in_utc() -> None:
    assert ahead(recurring("PT15M"), "2027-01-04T10:00Z", 2) == [
        ("04 10:15", "2027-01-04T10:15:00+00:00", None),
        ("04 10:30", "2027-01-04T10:30:00+00:00", None),
    ]


def test_a_window_ends_a_preview() -> None:
    schedule = recurring("0 0 * * *", start="2027-02-01T00:00Z", end="2027-02-02T00:00Z")

    assert [day for day, _, _ in ahead(schedule, "2027-01-01T00:00Z")] == ["01 00:00", "02 00:00"]


def test_once_is_a_schedule_too() -> None:
    once = Once(NOW)

    assert ahead(once, "2027-01-01T00:00Z") == [("04 10:00", "2027-01-04T10:00:00+00:00", None)]
    assert ahead(once, "2027-01-04T10:00Z") == []


def test_every_schedule_has_a_sentence() -> None:
    assert sentence(recurring("30 10 * * FRI", "Europe/Berlin")) == "At 10:30 on Friday (Europe/Berlin)"
    assert sentence(Clock(Cron.parse("0 0 10 ? * 6", dialect="quartz"), ZoneInfo("UTC"))) == "At 10:00 on Friday (UTC)"
    assert sentence(recurring("PT15M")) == "Every 15 minutes"
    assert sentence(Once(NOW)) == "Once, at 2027-01-04T10:00:00.000Z"


# Warnings

SHIFT, SKIP, AT_TRANSITION = DstGap.SHIFT, DstGap.SKIP, DstGap.AT_TRANSITION
FIRST, SECOND, BOTH = DstFold.FIRST, DstFold.SECOND, DstFold.BOTH
GAP = "on 2027-03-14 in America/New_York"
FOLD = "on 2027-11-07 in America/New_York"


@pytest.mark.parametrize(
    ("text", "gap", "warning"),
    [
        ("30 2 * * *", SHIFT, f"02:30 does not exist {GAP}; it fires at 03:30"),
        ("30 2 * * *", AT_TRANSITION, f"02:30 does not exist {GAP}; it fires at 03:00"),
        ("30 2 * * *", SKIP, f"02:30 does not exist {GAP} and does not fire"),
        ("0 0,30 2 * * SUN", SHIFT, f"02:00 and 02:30 do not exist {GAP}; they fire at 03:00 and 03:30"),
        ("0,30 2 * * *", AT_TRANSITION, f"02:00 and 02:30 do not exist {GAP}; they fire at 03:00"),
        ("0,30 2 * * *", SKIP, f"02:00 and 02:30 do not exist {GAP} and do not fire"),
        ("15 30 2 * * *", SHIFT, f"02:30:15 does not exist {GAP}; it fires at 03:30:15"),
        (
            "*/5 2 * * *",
            SHIFT,
            f"02:00, 02:05, 02:10 and more do not exist {GAP}; they fire at 03:00, 03:05, 03:10 and more",
        ),
    ],
)
def test_a_time_that_does_not_exist(text: str, gap: DstGap, warning: str) -> None:
    assert lint(clock(text, gap=gap), after=NOW) == [warning]


@pytest.mark.parametrize(
    ("text", "fold", "warning"),
    [
        ("30 1 * * *", None, f"01:30 comes twice {FOLD}; it fires the first time, at 2027-11-07T05:30:00.000Z"),
        ("30 1 * * *", FIRST, f"01:30 comes twice {FOLD}; it fires the first time, at 2027-11-07T05:30:00.000Z"),
        ("30 1 * * *", SECOND, f"01:30 comes twice {FOLD}; it fires the second time, at 2027-11-07T06:30:00.000Z"),
        (
            "30 1 * * *",
            BOTH,
            f"01:30 comes twice {FOLD}; it fires both times, at 2027-11-07T05:30:00.000Z and 2027-11-07T06:30:00.000Z",
        ),
        (
            "*/30 1 * * *",
            None,
            f"01:00 and 01:30 come twice {FOLD}; they fire the first time, from 2027-11-07T05:00:00.000Z on",
        ),
    ],
)
def test_a_time_that_comes_twice(text: str, fold: DstFold | None, warning: str) -> None:
    assert lint(clock(text, fold=fold), after=NOW) == [warning]


def test_odd_gaps_and_folds() -> None:
    before_samoa_jumped = datetime(2011, 6, 1, tzinfo=UTC)
    before_brazil_changed = datetime(2018, 6, 1, tzinfo=UTC)

    assert lint(clock("15 2 * * *", "Australia/Lord_Howe"), after=NOW) == [
        "02:15 does not exist on 2027-10-03 in Australia/Lord_Howe; it fires at 02:45"
    ]
    assert lint(clock("0 12 30 * ?", "Pacific/Apia"), after=before_samoa_jumped) == [
        "12:00 does not exist on 2011-12-30 in Pacific/Apia; it fires at 12:00 on 2011-12-31"
    ]
    assert lint(clock("30 23,0 * * *", "America/Sao_Paulo"), after=before_brazil_changed) == [
        "00:30 does not exist on 2018-11-04 in America/Sao_Paulo; it fires at 01:30",
        "23:30 comes twice on 2019-02-16 in America/Sao_Paulo; it fires the first time, at 2019-02-17T01:30:00.000Z",
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        recurring("0 0 * * *"),
        recurring("30 2 * * *"),
        recurring("30 10 * * *", NEW_YORK),
        recurring("30 2 * * MON", NEW_YORK),
        recurring("*/5 * * * *", NEW_YORK),
        recurring("30 * * * *", NEW_YORK),
        recurring("30 2 * * *", NEW_YORK, start="2027-05-01T00:00Z", end="2027-10-01T00:00Z"),
        recurring("0 0 * * *", "Asia/Tokyo"),
        recurring("PT2S"),
        Once(NOW + timedelta(days=1)),
    ],
)
def test_what_is_fine_is_not_warned_of(schedule: Timetable) -> None:
    assert lint(schedule, after=NOW) == []


def test_every_second_is_very_often() -> None:
    assert lint(recurring("* * * * * *"), after=NOW) == ["It fires as often as every second"]
    assert lint(recurring("10,11 0 0 1 * *"), after=NOW) == ["It fires as often as every second"]
    assert lint(recurring("PT1S"), after=NOW) == ["It fires as often as every second"]


def test_what_is_over_never_fires() -> None:
    never = ["It never fires after 2027-01-04T10:00:00.000Z"]

    assert lint(recurring("0 0 0 1 1 ? 2026"), after=NOW) == never
    assert lint(recurring("0 0 * * *", end="2027-01-01T00:00Z"), after=NOW) == never
    assert lint(Once(NOW), after=NOW) == never


def test_a_first_firing_far_away_is_told() -> None:
    assert lint(recurring("0 0 29 2 ?"), after=NOW) == [
        "It does not fire within the next 396 days; the first firing is at 2028-02-29T00:00:00.000Z"
    ]


def test_runs_that_take_longer_than_the_time_between_firings() -> None:
    minute = shortest_gap(recurring("*/2,*/3 * * * *"), NOW)
    slow = [timedelta(seconds=seconds) for seconds in range(10, 110)]

    assert minute == timedelta(minutes=1)
    assert too_slow(slow, minute) == (
        "Going by the last 100 completed runs it takes up to 1 minute and 44 seconds (95th percentile), "
        "and the shortest time between firings is 1 minute"
    )
    assert too_slow([timedelta(seconds=61)], minute) is not None
    assert too_slow([timedelta(seconds=60)], minute) is None
    assert too_slow([timedelta(seconds=5)] * 99 + [timedelta(hours=1)], minute) is None
    assert too_slow([], minute) is None
    assert too_slow(slow, shortest_gap(Once(NOW), NOW - timedelta(days=1))) is None


# Differences


def days(moments: list[datetime]) -> str:
    return ", ".join(f"{moment:%d %H}" for moment in moments)


def test_a_difference_tells_what_comes_goes_and_stays() -> None:
    found = difference(recurring("0 12,18 * * *"), recurring("0 6,12 * * *"), after=NOW, count=4)

    assert days(found.added) == "05 06, 06 06"
    assert days(found.removed) == "04 18, 05 18"
    assert days(found.same) == "04 12, 05 12"


def test_a_firing_is_not_new_because_the_old_schedule_is_denser() -> None:
    found = difference(recurring("0 * * * *"), recurring("0 0 * * *"), after=NOW, count=2)

    assert found.added == []
    assert days(found.removed) == "04 11, 04 12"
    assert days(found.same) == "05 00, 06 00"


def test_another_zone_is_another_schedule() -> None:
    found = difference(recurring("0 12 * * *"), recurring("0 12 * * *", "Europe/Berlin"), after=NOW, count=2)

    assert (days(found.added), days(found.removed), found.same) == ("04 11, 05 11", "04 12, 05 12", [])


def test_the_same_schedule_makes_no_difference() -> None:
    found = difference(recurring("PT15M"), recurring("PT15M"), after=NOW, count=3)

    assert (found.added, found.removed, len(found.same)) == ([], [], 3)


# What holds for all

zones = st.sampled_from(sorted(available_timezones()))
WITH_THE_DAY_AFTER = re.compile(r"(\d\d:\d\d) does not exist on .* it fires at \1 on ")
moments = st.datetimes(datetime(1980, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@EVERY_TIME_THE_SAME
@given(zones, moments, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
@example("Pacific/Kanton", datetime(1994, 2, 1, tzinfo=UTC), 0, 0)
def test_every_moved_or_doubled_firing_of_a_year_is_warned_of(
    zone: str, moment: datetime, hour: int, minute: int
) -> None:
    schedule = clock(f"{minute} {hour} * * *", zone)
    warnings = lint(schedule, after=moment)
    odd = [firing for firing in preview(schedule, after=moment, count=365) if firing.note]
    assert [firing for firing in odd if not any(told(firing, warning) for warning in warnings)] == []
    next_year = f"{moment + timedelta(days=360):%Y-%m-%d}"
    this_year = [warning for warning in warnings if warning.split(" on ")[1][:10] < next_year]
    # Where a whole day does not exist its firing is that of the day after, which is not odd.
    assert len([warning for warning in this_year if not WITH_THE_DAY_AFTER.match(warning)]) <= len(odd)


def test_the_firing_of_a_day_that_does_not_exist_is_that_of_the_day_after() -> None:
    """Kanton went over the date line and had no last day of 1994."""
    schedule, moment = clock("0 5 * * *", "Pacific/Kanton"), datetime(1994, 12, 29, tzinfo=UTC)

    assert [firing.note for firing in preview(schedule, after=moment, count=4)] == [None] * 4
    [warning] = lint(schedule, after=moment)
    assert WITH_THE_DAY_AFTER.match(warning)


def told(firing: Firing, warning: str) -> bool:
    date = datetime.fromisoformat(firing.local).date()
    if firing.note != "shifted out of the DST gap":
        return f"comes twice on {date}" in warning
    # What a jump of a whole day moves lands on the next date.
    return any(f"does not exist on {day}" in warning for day in (date, date - timedelta(days=1)))


@EVERY_TIME_THE_SAME
@given(
    st.lists(st.text(alphabet="0123456789*/,-?LW#", min_size=1, max_size=6), min_size=5, max_size=7).map(" ".join)
    | st.sampled_from(["* * * * * *", "0 0 29 2 ?", "59 59 23 31 12 ?", "* 2 L-30 * +5L", "*/7 1-2 * * 1,3"]),
    zones,
    moments,
)
def test_any_expression_is_previewed_at_once(text: str, zone: str, moment: datetime) -> None:
    try:
        schedule = Clock(Cron.parse(text), ZoneInfo(zone))
    except InvalidSchedule:
        return
    assert seconds_of(lambda: preview(schedule, after=moment, count=10)) < 0.1
    assert seconds_of(lambda: lint(schedule, after=moment)) < 0.1
    assert seconds_of(lambda: sentence(schedule)) < 0.1


@pytest.mark.parametrize("text", ["0 0 1 */3 ?", "0 0 29 2 ?", "* * 1-2 * * ?", "0 0 13 * +FRI", "0 0 */28 2 TUE#5"])
def test_a_thousand_firings_of_an_unknown_zone_are_found_at_once(text: str) -> None:
    schedule = recurring(text, "Asia/Gaza")

    def first_time(ask: Callable[[], object]) -> float:
        cron._stretches.cache_clear()
        return seconds_of(ask)

    # The best of three: the others have met a busy machine.
    assert min(first_time(lambda: preview(schedule, after=NOW, count=1000)) for _ in range(3)) < 0.1
    assert min(first_time(lambda: lint(schedule, after=NOW)) for _ in range(3)) < 0.1


def seconds_of(ask: Callable[[], object]) -> float:
    """Of computing, not of waiting for a core; without the collector, which has all of hypothesis to walk through."""
    gc.disable()
    try:
        begin = process_time()
        ask()
        return process_time() - begin
    finally:
        gc.enable()
