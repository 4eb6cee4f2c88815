"""Instants and durations: read as ISO 8601 writes them, refused where it would be guessing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.model.errors import InvalidField
from rota.model.instants import (
    EARLIEST,
    LATEST,
    looks_like_instant,
    parse_duration,
    parse_instant,
    print_duration,
    print_instant,
    whole_milliseconds,
)

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
MILLISECOND = timedelta(milliseconds=1)

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# A day from either end, so that no offset leads out of the years we take.
local_times = st.datetimes(datetime(1970, 1, 2), datetime(2199, 12, 30), timezones=offsets)
stored_instants = st.integers(0, (LATEST - EARLIEST) // MILLISECOND - 1).map(lambda n: EARLIEST + n * MILLISECOND)
whole_durations = st.integers(0, timedelta(days=36525) // MILLISECOND).map(lambda n: n * MILLISECOND)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Instants


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2027-01-31T10:30:00Z", "2027-01-31 10:30"),
        ("2027-01-31t10:30:00z", "2027-01-31 10:30"),
        ("2027-01-31 10:30:00Z", "2027-01-31 10:30"),
        ("2027-01-31T10:30Z", "2027-01-31 10:30"),
        ("20270131T103000Z", "2027-01-31 10:30"),
        ("2027-01-31T10:30:00+00:00", "2027-01-31 10:30"),
        ("2027-01-31T10:30:00-00:00", "2027-01-31 10:30"),
        ("2027-01-31T10:30:00+02:00", "2027-01-31 08:30"),
        ("2027-01-31T10:30:00+0530", "2027-01-31 05:00"),
        ("2027-01-31T20:30:00-05", "2027-02-01 01:30"),
        ("2027-01-31T10:30:00.25Z", "2027-01-31 10:30:00.250"),
        ("2027-01-31T10:30:00,25Z", "2027-01-31 10:30:00.250"),
        ("2027-01-31T10:30:00.123456789Z", "2027-01-31 10:30:00.123"),
        ("1970-01-01T00:00:00Z", "1970-01-01 00:00"),
        ("1969-12-31T23:00:00-01:00", "1970-01-01 00:00"),
        ("2199-12-31T23:59:59.999999Z", "2199-12-31 23:59:59.999"),
        ("2028-02-29T00:00:00Z", "2028-02-29 00:00"),
    ],
)
def test_an_instant_is_read_as_it_is_written(text: str, moment: str) -> None:
    assert parse_instant(text, "start") == utc(moment)


@EVERY_TIME_THE_SAME
@given(local_times)
def test_any_offset_leads_to_the_same_instant_in_whole_milliseconds(moment: datetime) -> None:
    parsed = parse_instant(moment.isoformat(), "start")

    assert parsed.tzinfo is UTC
    assert timedelta(0) <= moment - parsed < MILLISECOND
    assert parsed.microsecond % 1000 == 0


@EVERY_TIME_THE_SAME
@given(stored_instants)
def test_an_instant_we_print_is_read_back(moment: datetime) -> None:
    assert parse_instant(print_instant(moment), "start") == moment


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("1970-01-01 00:00", "1970-01-01T00:00:00.000Z"),
        ("2027-01-31 10:30:05.007", "2027-01-31T10:30:05.007Z"),
        ("2027-01-31 10:30:05.999999", "2027-01-31T10:30:05.999Z"),
    ],
)
def test_an_instant_is_printed_in_utc_with_milliseconds(moment: str, text: str) -> None:
    assert print_instant(utc(moment)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2027-01-31T10:30:00", "add Z for UTC or an offset like +02:00"),
        ("2027-01-31 10:30", "add Z for UTC or an offset like +02:00"),
        ("", "write it like 2027-01-31T10:30:00Z"),
        ("now", "write it like 2027-01-31T10:30:00Z"),
        ("tomorrow", "write it like 2027-01-31T10:30:00Z"),
        ("2027-01-31", "write it like 2027-01-31T10:30:00Z"),
        ("10:30:00Z", "write it like 2027-01-31T10:30:00Z"),
        ("1801391400", "write it like 2027-01-31T10:30:00Z"),
        ("2027-W05-1T10:30:00Z", "write it like 2027-01-31T10:30:00Z"),
        ("12027-01-31T10:30:00Z", "write it like 2027-01-31T10:30:00Z"),
        ("٢٠٢٧-01-31T10:30:00Z", "write it like 2027-01-31T10:30:00Z"),
        ("２０２７-01-31T10:30:00Z", "write it like 2027-01-31T10:30:00Z"),
        ("2027-01-31T10:30:00." + "0" * 20 + "Z", "write it like 2027-01-31T10:30:00Z"),
        ("2027-01-31T1٠:30:00Z", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00ZZ", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00 CET", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00xZ", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00 +02:00", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00Z\0", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00\0Z", "is not an ISO 8601 instant"),
        ("2027-01-31T10:30:00+24:00", "is not an ISO 8601 instant"),
        ("2027-02-30T10:30:00Z", "is not an ISO 8601 instant"),
        ("2027-13-01T10:30:00Z", "is not an ISO 8601 instant"),
        ("2027-01-31T25:00:00Z", "is not an ISO 8601 instant"),
        ("2027-01-31T23:59:60Z", "is not an ISO 8601 instant"),
        ("1969-12-31T23:59:59.999Z", "outside the years 1970 to 2199"),
        ("1970-01-01T00:00:00+01:00", "outside the years 1970 to 2199"),
        ("2200-01-01T00:00:00Z", "outside the years 1970 to 2199"),
        ("9999-12-31T23:59:59Z", "outside the years 1970 to 2199"),
        ("9999-12-31T23:59:59-10:00", "outside the calendar"),
        ("0001-01-01T00:00:00+14:00", "outside the calendar"),
    ],
)
def test_what_is_no_instant_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_instant(text, "start")

    assert refusal.value.field == "start"
    assert problem in refusal.value.problem
    assert repr(text) in refusal.value.problem


@EVERY_TIME_THE_SAME
@given(st.text() | st.from_regex(r"\d{4}-\d{2}-\d{2}T.{2,25}", fullmatch=True))
@example("2027-01-31T10:30:00\ud800Z")
@example("2027-01-31T10:30:00\0Z")
@example("0000-01-31T10:30:00Z")
def test_any_text_is_an_instant_of_our_years_or_refused(text: str) -> None:
    try:
        moment = parse_instant(text, "start")
    except InvalidField:
        return
    assert looks_like_instant(text)
    assert EARLIEST <= moment < LATEST


@EVERY_TIME_THE_SAME
@given(st.datetimes(timezones=st.just(UTC)))
def test_whole_milliseconds_never_lie_later(moment: datetime) -> None:
    assert timedelta(0) <= moment - whole_milliseconds(moment) < MILLISECOND


# Durations


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT15M", timedelta(minutes=15)),
        ("pt15m", timedelta(minutes=15)),
        ("PT1H30M", timedelta(hours=1, minutes=30)),
        ("P1D", timedelta(days=1)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("P2W", timedelta(weeks=2)),
        ("PT90M", timedelta(minutes=90)),
        ("PT0S", timedelta(0)),
        ("PT1.5S", timedelta(seconds=1.5)),
        ("PT1,5S", timedelta(seconds=1.5)),
        ("PT0.000001S", timedelta(microseconds=1)),
        ("P999999999D", timedelta(days=999999999)),
    ],
)
def test_a_duration_is_read_as_it_is_written(text: str, duration: timedelta) -> None:
    assert parse_duration(text, "schedule") == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(seconds=90), "PT1M30S"),
        (timedelta(minutes=15), "PT15M"),
        (timedelta(days=1), "PT24H"),
        (timedelta(milliseconds=1001), "PT1.001S"),
        (timedelta(hours=1, milliseconds=59_999), "PT1H59.999S"),
    ],
)
def test_a_duration_is_printed_without_what_is_zero(duration: timedelta, text: str) -> None:
    assert print_duration(duration) == text


@EVERY_TIME_THE_SAME
@given(whole_durations)
def test_a_duration_of_whole_milliseconds_we_print_is_read_back(duration: timedelta) -> None:
    assert parse_duration(print_duration(duration), "schedule") == duration


@pytest.mark.parametrize("text", ["P99999999D", "P999999999D"])
def test_the_longest_durations_we_take_we_print_so_that_we_take_them_again(text: str) -> None:
    duration = parse_duration(text, "schedule")

    assert parse_duration(print_duration(duration), "schedule") == duration


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("P1Y", "use a cron expression"),
        ("P1M", "use a cron expression"),
        ("p1y2m10dt2h30m", "use a cron expression"),
        ("P1YT1S", "use a cron expression"),
        ("", "write it like PT15M, PT1H30M or P1D"),
        ("P", "write it like PT15M, PT1H30M or P1D"),
        ("PT", "write it like PT15M, PT1H30M or P1D"),
        ("15M", "write it like PT15M, PT1H30M or P1D"),
        ("PT15", "write it like PT15M, PT1H30M or P1D"),
        ("PT15M ", "write it like PT15M, PT1H30M or P1D"),
        ("PT15M\n", "write it like PT15M, PT1H30M or P1D"),
        ("PT1M1H", "write it like PT15M, PT1H30M or P1D"),
        ("P1.5D", "write it like PT15M, PT1H30M or P1D"),
        ("P1H", "write it like PT15M, PT1H30M or P1D"),
        ("PT1.S", "write it like PT15M, PT1H30M or P1D"),
        ("PT0.1234567S", "write it like PT15M, PT1H30M or P1D"),
        ("-PT15M", "write it like PT15M, PT1H30M or P1D"),
        ("PT-15M", "write it like PT15M, PT1H30M or P1D"),
        ("PT1e3S", "write it like PT15M, PT1H30M or P1D"),
        ("PT١٥M", "write it like PT15M, PT1H30M or P1D"),
        ("PT１５M", "write it like PT15M, PT1H30M or P1D"),
        ("PT" + "9" * 10 + "S", "write it like PT15M, PT1H30M or P1D"),
        pytest.param("PT" + "9" * 100_000 + "S", "write it like PT15M, PT1H30M or P1D", id="huge"),
        ("P999999999W", "is too long"),
        ("P999999999DT24H", "is too long"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_duration(text, "schedule")

    assert refusal.value.field == "schedule"
    assert problem in refusal.value.problem


def test_letters_that_only_become_ascii_in_upper_case_are_refused() -> None:
    with pytest.raises(InvalidField):
        parse_duration("pt1ſ", "schedule")


@settings(EVERY_TIME_THE_SAME, max_examples=50)
@given(st.text() | st.from_regex(r"(?i)P(\d+[WDYM])*(T(\d+([.,]\d+)?[HMS])*)?", fullmatch=True))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        duration = parse_duration(text, "schedule")
    except InvalidField:
        return
    assert duration >= timedelta(0)
