"""Schedules as people write them, what is refused, and when what was taken fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.model.cron import DstFold, DstGap
from rota.model.errors import InvalidField
from rota.model.instants import LATEST
from rota.model.schedule import ByCron, Every, Recurring, ScheduleText, parse_when, schedule_text

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
JUST_BEFORE = timedelta(microseconds=1)

moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
intervals = st.integers(1000, 10**9).map(lambda milliseconds: timedelta(milliseconds=milliseconds))


def recurring(schedule: str | ScheduleText, **window: str) -> Recurring:
    found = parse_when(schedule, **window)
    assert isinstance(found, Recurring)
    return found


def firings(schedule: Recurring, since: datetime, most: int = 5) -> list[datetime]:
    found = [since]
    while len(found) <= most and (fires_at := schedule.after(found[-1])):
        found.append(fires_at)
    return found[1:]


# What people write


@pytest.mark.parametrize(
    ("schedule", "rhythm"),
    [
        ("0 9 * * MON-FRI", ByCron("0 9 * * MON-FRI")),
        ("  0 9 * * *  ", ByCron("0 9 * * *")),
        ("*/10 * * * * *", ByCron("*/10 * * * * *")),
        ("@daily", ByCron("@daily")),
        ("PT15M", Every(timedelta(minutes=15))),
        ("pt15m", Every(timedelta(minutes=15))),
        ("P1DT12H", Every(timedelta(hours=36))),
        ("PT1S", Every(SECOND)),
        ("PT1.5S", Every(1.5 * SECOND)),
        ("PT1.0009S", Every(SECOND)),
        (ScheduleText("CRON", "0 9 * * *"), ByCron("0 9 * * *")),
        (ScheduleText("cron", " 0 9 * * * "), ByCron("0 9 * * *")),
        (ScheduleText("Cron", "0 9 * * *", "Europe/Berlin"), ByCron("0 9 * * *", "Europe/Berlin")),
        (ScheduleText("INTERVAL", "PT1H"), Every(HOUR)),
        (ScheduleText("interval", "pt1h"), Every(HOUR)),
    ],
)
def test_again_and_again_can_be_written_as(schedule: str | ScheduleText, rhythm: Every | ByCron) -> None:
    assert parse_when(schedule) == Recurring(rhythm)


@pytest.mark.parametrize(
    "schedule",
    [
        "2027-01-31T12:00:00Z",
        " 2027-01-31t12:00:00z ",
        "2027-01-31T14:00:00+02:00",
        "2027-01-31 07:00:00-05:00",
        "20270131T120000Z",
        ScheduleText("DATE", "2027-01-31T12:00:00Z"),
        ScheduleText("date", "2027-01-31T14:00:00+02:00"),
    ],
)
def test_once_can_be_written_as(schedule: str | ScheduleText) -> None:
    assert parse_when(schedule) == NOON


@pytest.mark.parametrize("schedule", [None, "now", "NOW", " Now ", ScheduleText("NOW"), ScheduleText("now", "")])
def test_now_can_be_written_as(schedule: str | ScheduleText | None) -> None:
    assert parse_when(schedule) is None


@pytest.mark.parametrize("schedule", [None, "now", ScheduleText("NOW")])
def test_a_start_alone_means_once_at_that_instant(schedule: str | ScheduleText | None) -> None:
    assert parse_when(schedule, start="2027-01-31T14:00:00+02:00") == NOON


@pytest.mark.parametrize("schedule", ["0 9 * * *", ScheduleText("CRON", "0 9 * * *")])
def test_a_zone_beside_the_schedule_is_the_zone_of_the_cron_expression(schedule: str | ScheduleText) -> None:
    assert parse_when(schedule, time_zone="Europe/Berlin") == Recurring(ByCron("0 9 * * *", "Europe/Berlin"))


def test_the_zone_inside_the_schedule_wins() -> None:
    schedule = ScheduleText("CRON", "0 9 * * *", "Europe/Berlin")

    assert parse_when(schedule, time_zone="Asia/Tokyo") == Recurring(ByCron("0 9 * * *", "Europe/Berlin"))


def test_a_window_is_read_with_the_schedule() -> None:
    window = recurring("PT1H", start="2027-01-31T12:00:00Z", end="2027-02-01T01:00:00+01:00")

    assert window == Recurring(Every(HOUR), NOON, NOON + 12 * HOUR)


def test_a_window_may_be_a_single_instant() -> None:
    window = recurring("PT1H", start="2027-01-31T12:00:00Z", end="2027-01-31T12:00:00Z")

    assert firings(window.anchored(NOON - HOUR), NOON - HOUR) == [NOON]


def test_an_instant_may_be_the_end_of_its_window() -> None:
    assert parse_when("2027-01-31T12:00:00Z", end="2027-01-31T12:00:00Z") == NOON


# What is refused


@pytest.mark.parametrize(
    ("schedule", "field", "advice"),
    [
        ("", "schedule", "write 5"),
        ("tomorrow", "schedule", "write 5"),
        ("0 9 * *", "schedule", "write 5"),
        ("0 0 30 2 *", "schedule", "write a day that does"),
        ("61 * * * *", "schedule", "0 to 59"),
        ("2027-01-31", "schedule", "write"),
        ("2027-01-31T12:00:00", "schedule", "add Z for UTC"),
        ("2027-02-30T12:00:00Z", "schedule", "is not an ISO 8601 instant"),
        ("1969-01-01T00:00:00Z", "schedule", "the years 1970 to 2199"),
        ("2200-01-01T00:00:00Z", "schedule", "the years 1970 to 2199"),
        ("P1M", "schedule", "use a cron expression"),
        ("P1Y", "schedule", "use a cron expression"),
        ("PT", "schedule", "write it like PT15M"),
        ("PT0S", "schedule", "the shortest interval, PT1S"),
        ("PT0.999S", "schedule", "the shortest interval, PT1S"),
        ("PT٣S", "schedule", "write it like PT15M"),
        ("P999999999W", "schedule", "is too long"),
        (ScheduleText("WEEKLY", "MON"), "schedule.type", "one of CRON, DATE, INTERVAL, NOW"),
        (ScheduleText(""), "schedule.type", "one of CRON, DATE, INTERVAL, NOW"),
        (ScheduleText("CRON"), "schedule", "write 5"),
        (ScheduleText("DATE"), "schedule", "write it like 2027-01-31T10:30:00Z"),
        (ScheduleText("INTERVAL"), "schedule", "write it like PT15M"),
        (ScheduleText("DATE", "PT1H"), "schedule", "write it like 2027-01-31T10:30:00Z"),
        (ScheduleText("INTERVAL", "0 9 * * *"), "schedule", "write it like PT15M"),
        (ScheduleText("CRON", "2027-01-31T12:00:00Z"), "schedule", "write 5"),
        (ScheduleText("CRON", "0 9 * * *", "Mars/Base"), "time_zone", "write it like Europe/Berlin"),
        (ScheduleText("CRON", "0 9 * * *", "europe/berlin"), "time_zone", "write it like Europe/Berlin"),
        (ScheduleText("CRON", "0 9 * * *", "../../etc/passwd"), "time_zone", "write it like Europe/Berlin"),
        (ScheduleText("CRON", "0 9 * * *", "+02:00"), "time_zone", "write it like Europe/Berlin"),
        (ScheduleText("INTERVAL", "PT1H", "Europe/Berlin"), "time_zone", "goes with cron and RRULE only"),
    ],
)
def test_a_schedule_nobody_can_follow_is_refused_with_advice(
    schedule: str | ScheduleText, field: str, advice: str
) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_when(schedule)

    assert refusal.value.field == field
    assert advice in refusal.value.problem


@pytest.mark.parametrize("schedule", [None, "now", "PT1H", "2027-01-31T12:00:00Z", ScheduleText("NOW")])
def test_a_zone_without_a_cron_expression_is_refused(schedule: str | ScheduleText | None) -> None:
    with pytest.raises(InvalidField, match="time_zone: goes with cron and RRULE only"):
        parse_when(schedule, time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("window", "field", "advice"),
    [
        ({"start": "soon"}, "execution_start_time", "write it like 2027-01-31T10:30:00Z"),
        ({"start": ""}, "execution_start_time", "write it like 2027-01-31T10:30:00Z"),
        ({"start": "2027-01-31T12:00:00"}, "execution_start_time", "add Z for UTC"),
        ({"end": "2027-01-31"}, "execution_end_time", "write it like 2027-01-31T10:30:00Z"),
        ({"end": "2027-01-31T12:00:00"}, "execution_end_time", "add Z for UTC"),
        (
            {"start": "2027-01-31T12:00:00Z", "end": "2027-01-31T11:59:59.999Z"},
            "execution_end_time",
            "lies before execution_start_time",
        ),
    ],
)
@pytest.mark.parametrize("schedule", [None, "PT1H", "0 9 * * *"])
def test_a_window_that_cannot_be_is_refused_by_the_name_it_was_sent_under(
    schedule: str | None, window: dict[str, str], field: str, advice: str
) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_when(schedule, **window)

    assert refusal.value.field == field
    assert advice in refusal.value.problem


def test_an_instant_after_the_end_of_its_window_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"schedule: 2027-01-31T12:00:00\.000Z lies after execution_end_time"):
        parse_when("2027-01-31T12:00:00Z", end="2027-01-31T11:59:59Z")


def test_an_instant_before_the_start_of_its_window_is_refused() -> None:
    with pytest.raises(InvalidField, match="lies before execution_start_time"):
        parse_when("2027-01-31T12:00:00Z", start="2027-01-31T12:00:01Z")


def test_now_with_an_expression_is_refused() -> None:
    with pytest.raises(InvalidField):
        parse_when(ScheduleText("NOW", "0 9 * * *"))


@EVERY_TIME_THE_SAME
@given(
    st.text() | st.builds(ScheduleText, st.sampled_from(["CRON", "DATE", "INTERVAL", "NOW"]) | st.text(), st.text()),
    st.none() | st.text() | st.just("2027-01-31T12:00:00Z"),
    st.none() | st.text(),
)
def test_whatever_is_sent_is_taken_or_refused_by_field(
    schedule: str | ScheduleText, start: str | None, time_zone: str | None
) -> None:
    try:
        parse_when(schedule, start=start, time_zone=time_zone)
    except InvalidField as refusal:
        assert refusal.field in {"schedule", "schedule.type", "execution_start_time", "time_zone"}
        assert refusal.problem


# When it fires


@EVERY_TIME_THE_SAME
@given(moments, intervals, moments)
def test_an_interval_fires_at_the_anchor_and_at_whole_intervals_after_it(
    anchor: datetime, interval: timedelta, moment: datetime
) -> None:
    fires_at = Every(interval, anchor).after(moment)

    assert fires_at is not None and fires_at > moment and fires_at >= anchor
    assert (fires_at - anchor) % interval == timedelta(0)
    assert fires_at == anchor or fires_at - interval <= moment


def test_an_interval_counts_elapsed_time_also_over_a_change_of_clocks() -> None:
    before_the_change = datetime(2027, 3, 27, 12, tzinfo=UTC)

    assert Every(24 * HOUR, before_the_change).after(before_the_change) == before_the_change + 24 * HOUR


def test_a_cron_expression_follows_the_clocks_of_its_zone() -> None:
    daily = Recurring(ByCron("0 9 * * *", "Europe/Berlin"))

    shown = [f"{fires_at:%d %H:%M}" for fires_at in firings(daily, datetime(2027, 3, 26, 12, tzinfo=UTC), most=3)]

    assert shown == ["27 08:00", "28 07:00", "29 07:00"]


@EVERY_TIME_THE_SAME
@given(moments, intervals)
def test_an_interval_without_a_start_counts_from_its_acceptance(now: datetime, interval: timedelta) -> None:
    anchored = Recurring(Every(interval)).anchored(now)

    first = anchored.after(now)

    assert first is not None
    assert now + interval - timedelta(milliseconds=1) < first <= now + interval
    assert first.microsecond % 1000 == 0


@EVERY_TIME_THE_SAME
@given(moments, moments, intervals)
def test_an_interval_with_a_start_counts_from_there(now: datetime, starts_at: datetime, interval: timedelta) -> None:
    first = Recurring(Every(interval), starts_at).anchored(now).after(now)

    assert first is not None
    assert (first - starts_at) % interval == timedelta(0)
    assert first == starts_at if now < starts_at else now < first <= now + interval


def test_an_anchor_once_set_stays() -> None:
    anchored = Recurring(Every(HOUR)).anchored(NOON)

    assert anchored.anchored(NOON + 5 * SECOND) == anchored


def test_a_cron_expression_needs_no_anchor() -> None:
    by_cron = recurring("0 9 * * *")

    assert by_cron.anchored(NOON) is by_cron


@pytest.mark.parametrize("schedule", ["0 * * * *", "PT1H"])
def test_both_ends_of_a_window_are_part_of_it(schedule: str) -> None:
    window = recurring(schedule, start="2027-01-31T12:00:00Z", end="2027-01-31T14:00:00Z").anchored(NOON - HOUR)

    assert firings(window, NOON - 24 * HOUR) == [NOON, NOON + HOUR, NOON + 2 * HOUR]


def test_just_outside_of_a_window_nothing_fires() -> None:
    window = recurring("0 * * * *", start="2027-01-31T12:00:00.001Z", end="2027-01-31T13:59:59.999Z")

    assert firings(window, NOON - HOUR) == [NOON + HOUR]


@EVERY_TIME_THE_SAME
@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "PT7M", "PT1H"]),
    moments,
    st.integers(0, 10**8),
    st.integers(-(10**8), 2 * 10**8),
)
def test_a_window_only_takes_away_what_lies_outside(text: str, start: datetime, length: int, asked: int) -> None:
    open_ended = recurring(text).anchored(start - timedelta(days=3000))
    ends_at = start + timedelta(milliseconds=length)
    windowed = msgspec.structs.replace(open_ended, starts_at=start, ends_at=ends_at)
    moment = start + timedelta(milliseconds=asked)

    inside = open_ended.after(max(moment, start - JUST_BEFORE))

    assert windowed.after(moment) == (inside if inside is not None and inside <= ends_at else None)


@EVERY_TIME_THE_SAME
@given(st.sampled_from(["* * * * *", "0 0 29 2 *", "*/20 * * * * *", "PT17S"]), moments, moments)
def test_the_next_firing_is_strictly_later_and_there_is_none_in_between(
    text: str, one: datetime, other: datetime
) -> None:
    schedule = recurring(text).anchored(datetime(2019, 1, 1, tzinfo=UTC))
    earlier, later = sorted((one, other))
    fires_at = schedule.after(earlier)
    assume(fires_at is not None)
    assert fires_at is not None

    assert fires_at > earlier
    assert schedule.after(min(later, fires_at - JUST_BEFORE)) == fires_at


@pytest.mark.parametrize("text", ["P999999999D", "P99999D"])
def test_an_interval_that_leads_out_of_the_calendar_fires_at_its_start_only(text: str) -> None:
    once = recurring(text, start="2027-01-31T12:00:00Z").anchored(NOON - HOUR)

    assert firings(once, NOON - HOUR) == [NOON]


@pytest.mark.parametrize("text", ["* * * * *", "PT1S"])
def test_nothing_fires_after_the_last_year_we_take(text: str) -> None:
    schedule = recurring(text).anchored(NOON)

    assert schedule.after(LATEST - SECOND) is None


# As it is answered


@pytest.mark.parametrize(
    ("schedule", "answer"),
    [
        ("0 9 * * *", ScheduleText("CRON", "0 9 * * *", "UTC")),
        (ScheduleText("cron", "@daily", "Asia/Tokyo"), ScheduleText("CRON", "@daily", "Asia/Tokyo")),
        ("P1D", ScheduleText("INTERVAL", "PT24H")),
        ("pt90s", ScheduleText("INTERVAL", "PT1M30S")),
    ],
)
def test_a_schedule_is_answered_in_one_form(schedule: str | ScheduleText, answer: ScheduleText) -> None:
    assert schedule_text(recurring(schedule)) == answer


@EVERY_TIME_THE_SAME
@given(intervals.map(Every) | st.builds(ByCron, st.just("0 9 * * *"), st.sampled_from(["UTC", "Europe/Berlin"])))
def test_what_is_answered_can_be_sent_again(rhythm: Every | ByCron) -> None:
    schedule = Recurring(rhythm)

    assert parse_when(schedule_text(schedule)) == schedule


@EVERY_TIME_THE_SAME
@given(st.builds(Recurring, st.builds(Every, intervals, moments), st.none() | moments, st.none() | moments))
def test_a_schedule_reads_as_it_was_stored(schedule: Recurring) -> None:
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Recurring) == schedule


# The rules for the clocks, and repeating intervals


def next_firings(schedule: Recurring, after: str, count: int) -> list[str]:
    found: list[str] = []
    moment: datetime | None = datetime.fromisoformat(after)
    while len(found) < count and moment is not None:
        moment = schedule.after(moment)
        found += [] if moment is None else [moment.strftime("%m-%dT%H:%M")]
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["03-13T07:30", "03-14T07:30", "03-15T06:30"]),
        ({"dst_gap": DstGap.SKIP}, ["03-13T07:30", "03-15T06:30", "03-16T06:30"]),
        ({"dst_gap": DstGap.AT_TRANSITION}, ["03-13T07:30", "03-14T07:00", "03-15T06:30"]),
    ],
)
def test_a_time_that_does_not_exist_follows_the_jobs_rule(options: dict[str, DstGap], expected: list[str]) -> None:
    """02:30 in New York, where the clocks go from 02:00 to 03:00 on 14 March 2027."""
    schedule = recurring(ScheduleText("CRON", "30 2 * * *", "America/New_York", **options))  # type: ignore[arg-type]

    assert next_firings(schedule, "2027-03-12T12:00+00:00", 3) == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (None, ["11-06T05:30", "11-07T05:30", "11-08T06:30"]),
        (DstFold.SECOND, ["11-06T05:30", "11-07T06:30", "11-08T06:30"]),
        (DstFold.BOTH, ["11-06T05:30", "11-07T05:30", "11-07T06:30"]),
    ],
)
def test_a_time_that_comes_twice_follows_the_jobs_rule(fold: DstFold | None, expected: list[str]) -> None:
    schedule = recurring(ScheduleText("CRON", "30 1 * * *", "America/New_York", dst_fold=fold))

    assert next_firings(schedule, "2027-11-05T12:00+00:00", 3) == expected


def test_quartz_counts_the_days_of_the_week_from_sunday_as_one() -> None:
    quartz = recurring(ScheduleText("CRON", "0 0 10 ? * 6", dialect="quartz"))
    unix = recurring("0 10 * * 5")

    assert next_firings(quartz, "2027-01-01T00:00+00:00", 5) == next_firings(unix, "2027-01-01T00:00+00:00", 5)


def test_a_repeating_interval_fires_so_often_from_its_start_on() -> None:
    schedule = recurring("R3/2027-01-01T00:00:00Z/PT1H")

    assert next_firings(schedule, "2026-01-01T00:00+00:00", 9) == ["01-01T00:00", "01-01T01:00", "01-01T02:00"]
    assert next_firings(schedule, "2027-01-01T01:30+00:00", 9) == ["01-01T02:00"]
    assert next_firings(recurring("R/2027-01-01T00:00:00Z/P1D"), "2027-01-05T00:00+00:00", 2) == [
        "01-06T00:00",
        "01-07T00:00",
    ]


@pytest.mark.parametrize(
    "text",
    [
        ScheduleText("CRON", "30 2 * * *", "Europe/Berlin", "quartz", DstGap.SKIP, DstFold.BOTH),
        "R3/2027-01-01T00:00:00Z/PT1H",
    ],
)
def test_what_is_answered_with_all_its_options_can_be_sent_again(text: str | ScheduleText) -> None:
    schedule = recurring(text)

    assert recurring(schedule_text(schedule)) == schedule


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        (ScheduleText("INTERVAL", "PT1H", dialect="quartz"), "schedule.dialect"),
        (ScheduleText("DATE", "2027-01-31T12:00:00Z", dst_gap=DstGap.SKIP), "schedule.dst_gap"),
        (ScheduleText("NOW", dst_fold=DstFold.BOTH), "schedule.dst_fold"),
        ("R0/2027-01-01T00:00:00Z/PT1H", "schedule"),
        ("R5/PT1H", "schedule"),
        ("R5/2027-01-01T00:00:00/PT1H", "schedule"),
        ("R5/2027-01-01T00:00:00Z/PT0.5S", "schedule"),
        ("R99999999999/2027-01-01T00:00:00Z/PT1H", "schedule"),
    ],
)
def test_what_does_not_go_together_is_refused(schedule: str | ScheduleText, field: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_when(schedule)

    assert refusal.value.field == field


# Recurrence rules

WEEKLY = "FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0"


def test_a_rule_is_told_by_its_looks_and_fires_in_its_zone() -> None:
    schedule = parse_when(WEEKLY, time_zone="Europe/Berlin")
    assert isinstance(schedule, Recurring)
    monday = datetime(2027, 1, 4, 8, tzinfo=UTC)

    anchored = schedule.anchored(datetime(2027, 1, 1, 12, 30, 15, 999_000, tzinfo=UTC))

    assert anchored.after(monday - timedelta(seconds=1)) == monday
    assert anchored.zone == "Europe/Berlin"
    assert schedule_text(anchored) == ScheduleText("RRULE", f"DTSTART:20270101T133015\nRRULE:{WEEKLY}", "Europe/Berlin")
    assert parse_when(schedule_text(anchored)) == anchored


def test_a_rule_that_says_when_it_starts_is_not_anchored_anew() -> None:
    schedule = parse_when("DTSTART:20270101T090000Z\nRRULE:FREQ=DAILY;COUNT=2")
    assert isinstance(schedule, Recurring)

    anchored = schedule.anchored(datetime(2027, 6, 1, tzinfo=UTC))

    assert anchored == schedule
    assert [*anchored.firings(datetime(2026, 1, 1, tzinfo=UTC))] == [
        datetime(2027, 1, 1, 9, tzinfo=UTC),
        datetime(2027, 1, 2, 9, tzinfo=UTC),
    ]


def test_the_window_of_a_rule_is_where_it_counts_from() -> None:
    schedule = parse_when("FREQ=HOURLY;INTERVAL=5", start="2027-01-01T07:00:00Z", end="2027-01-01T18:00:00Z")
    assert isinstance(schedule, Recurring)

    firings = schedule.anchored(datetime(2026, 1, 1, tzinfo=UTC)).firings(datetime(2026, 1, 1, tzinfo=UTC))

    assert [fires_at.hour for fires_at in firings] == [7, 12, 17]


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "schedule"),
        ("FREQ=SOMETIMES", "schedule"),
        (ScheduleText("RRULE", "FREQ=DAILY", dialect="quartz"), "schedule.dialect"),
        (ScheduleText("RRULE", "FREQ=DAILY", "Mars/Olympus"), "time_zone"),
        (ScheduleText("RRULE"), "schedule"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(schedule: str | ScheduleText, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse_when(schedule)

    assert refused.value.field == field


# Firings in a row, and how many there are


@pytest.mark.parametrize("text", ["*/7 * * * *", "PT13M", "R40/2027-03-27T22:00:00Z/PT1H", "FREQ=MINUTELY;INTERVAL=11"])
def test_in_a_row_they_are_what_they_are_one_by_one(text: str) -> None:
    start = datetime(2027, 3, 27, 21, tzinfo=UTC)
    schedule = parse_when(text, start="2027-03-27T22:05:00Z", end="2027-03-29T05:00:00Z")
    assert isinstance(schedule, Recurring)
    schedule = schedule.anchored(start)
    one_by_one = []
    fires_at = schedule.after(start)
    while fires_at is not None:
        one_by_one.append(fires_at)
        fires_at = schedule.after(fires_at)

    assert [*schedule.firings(start)] == one_by_one
    for end in one_by_one[:3] + one_by_one[-3:]:
        assert schedule.count(one_by_one[0], end) in (None, one_by_one.index(end))
