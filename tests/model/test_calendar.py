"""Calendars: which moments their days cover by the clocks of a zone, and what is no day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.model.calendar import MOST_DAYS, Calendar, parse_calendar
from rota.model.errors import InvalidField

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=200)
ZONES = ["UTC", "Europe/Berlin", "America/Nuuk", "America/St_Johns", "Pacific/Apia", "Pacific/Kiritimati"]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def covered(days: list[str], moment: str, zone: str = "UTC") -> bool:
    return parse_calendar(days).covers(utc(moment), zone)


# Dates


@pytest.mark.parametrize(
    ("moment", "is_covered"),
    [
        ("2027-12-24 23:59:59.999", False),
        ("2027-12-25 00:00", True),
        ("2027-12-25 23:59:59.999", True),
        ("2027-12-26 00:00", False),
    ],
)
def test_a_date_is_a_day_from_midnight_to_midnight(moment: str, is_covered: bool) -> None:
    assert covered(["2027-12-25"], moment) is is_covered


@pytest.mark.parametrize(
    ("moment", "is_covered"),
    [
        ("2027-12-23 23:59:59.999", False),
        ("2027-12-24 00:00", True),
        ("2027-12-25 12:00", True),
        ("2027-12-26 23:59:59.999", True),
        ("2027-12-27 00:00", False),
    ],
)
def test_both_ends_of_a_range_of_dates_belong_to_it(moment: str, is_covered: bool) -> None:
    assert covered(["2027-12-24/2027-12-26"], moment) is is_covered


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("Asia/Tokyo", "2027-12-24 15:00", "2027-12-25 14:59:59.999"),
        ("America/New_York", "2027-12-25 05:00", "2027-12-26 04:59:59.999"),
        ("Pacific/Kiritimati", "2027-12-24 10:00", "2027-12-25 09:59:59.999"),
        ("Asia/Kathmandu", "2027-12-24 18:15", "2027-12-25 18:14:59.999"),
    ],
)
def test_a_date_is_a_day_by_the_clocks_of_the_zone(zone: str, first: str, last: str) -> None:
    assert boundaries("2027-12-25", zone, first, last) == (False, True, True, False)


@pytest.mark.parametrize(
    ("day", "zone", "first", "last"),
    [
        ("2027-03-28", "Europe/Berlin", "2027-03-27 23:00", "2027-03-28 21:59:59.999"),
        ("2027-10-31", "Europe/Berlin", "2027-10-30 22:00", "2027-10-31 22:59:59.999"),
        # There is no midnight: the day begins at 01:00.
        ("2027-04-30", "Africa/Cairo", "2027-04-29 22:00", "2027-04-30 20:59:59.999"),
        # The clocks go from midnight back to 23:00: the day before has its last hour twice.
        ("2027-10-28", "Africa/Cairo", "2027-10-27 21:00", "2027-10-28 21:59:59.999"),
        # Midnight comes twice, an hour apart.
        ("2027-11-07", "America/Havana", "2027-11-07 04:00", "2027-11-08 04:59:59.999"),
        # From Saturday 23:00 straight to Sunday.
        ("2027-03-27", "America/Nuuk", "2027-03-27 02:00", "2027-03-28 00:59:59.999"),
    ],
)
def test_a_day_on_which_the_clocks_change_is_that_day(day: str, zone: str, first: str, last: str) -> None:
    assert boundaries(day, zone, first, last) == (False, True, True, False)


def boundaries(day: str, zone: str, first: str, last: str) -> tuple[bool, ...]:
    """Whether the day covers the millisecond before its first, both, and the one after its last."""
    calendar, one = parse_calendar([day]), timedelta(milliseconds=1)
    moments = (utc(first) - one, utc(first), utc(last), utc(last) + one)
    return tuple(calendar.covers(moment, zone) for moment in moments)


def test_a_day_that_the_clocks_return_to_goes_on() -> None:
    """In Newfoundland they went from 00:01 back to 23:01 of the day before."""
    day, following = ["2006-10-28"], ["2006-10-29"]

    assert covered(following, "2006-10-29 02:30:30", "America/St_Johns")
    assert covered(day, "2006-10-29 03:00", "America/St_Johns")
    assert not covered(following, "2006-10-29 03:00", "America/St_Johns")


def test_a_day_that_a_zone_never_had_covers_nothing() -> None:
    around = [utc("2011-12-30 10:00") + timedelta(minutes=minutes) for minutes in range(-120, 121)]
    calendar = parse_calendar(["2011-12-30"])

    assert not any(calendar.covers(moment, "Pacific/Apia") for moment in around)


# Instants


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize(
    ("moment", "is_covered"),
    [
        ("2027-12-24 11:59:59.999", False),
        ("2027-12-24 12:00", True),
        ("2027-12-27 05:59:59.999", True),
        ("2027-12-27 06:00", False),
    ],
)
def test_instants_cover_up_to_the_second_whatever_the_zone(moment: str, is_covered: bool, zone: str) -> None:
    assert covered(["2027-12-24T12:00:00Z/2027-12-27T06:00:00Z"], moment, zone) is is_covered
    assert covered(["2027-12-24T13:00:00+01:00/2027-12-27 05:00-01:00"], moment, zone) is is_covered


# Together

days_of_2027 = st.dates(date(2027, 1, 1), date(2027, 12, 31))
moments_of_2027 = st.datetimes(datetime(2026, 12, 31), datetime(2028, 1, 1), timezones=st.just(UTC))
short = st.timedeltas(timedelta(seconds=1), timedelta(days=60))
entries = st.one_of(
    days_of_2027.map(str),
    st.builds(lambda day, more: f"{day}/{day + timedelta(days=more)}", days_of_2027, st.integers(0, 60)),
    st.builds(
        lambda at, more: f"{at.isoformat()}/{(at + more).isoformat()}",
        moments_of_2027.map(lambda at: at.replace(microsecond=0)),
        short,
    ),
)


def naively(entry: str, moment: datetime, zone: str) -> bool:
    first, _, last = entry.partition("/")
    if "T" in first:
        # Instants are kept in whole milliseconds.
        end = datetime.fromisoformat(last)
        return datetime.fromisoformat(first) <= moment < end.replace(microsecond=end.microsecond // 1000 * 1000)
    return first <= str(moment.astimezone(ZoneInfo(zone)).date()) <= (last or first)


@EVERY_TIME_THE_SAME
@given(st.lists(entries, max_size=12), st.lists(moments_of_2027, min_size=1, max_size=10), st.sampled_from(ZONES))
@example(["2027-03-01/2027-03-09", "2027-03-02", "2027-03-03/2027-03-04"], [utc("2027-03-08")], "UTC")
def test_what_one_entry_covers_the_calendar_covers(days: list[str], moments: list[datetime], zone: str) -> None:
    calendar = parse_calendar(days)

    for moment in moments:
        assert calendar.covers(moment, zone) is any(naively(entry, moment, zone) for entry in days)


def test_a_calendar_without_days_covers_nothing() -> None:
    assert parse_calendar([]) == Calendar(())
    assert not covered([], "2027-12-25")


def test_days_are_kept_as_they_were_sent() -> None:
    days = ["2027-12-26", "2027-12-24/2027-12-24", "2027-12-26", "20271224T12Z/2027-12-24 13:00:00.5+00:00"]

    assert parse_calendar(days).days == tuple(days)


def test_the_first_and_the_last_day_we_take() -> None:
    for days in (["1970-01-01", "2199-12-31"], ["1970-01-01/2199-12-31"]):
        assert covered(days, "1970-01-01 00:00")
        assert covered(days, "2199-12-31 23:59:59.999")


# What is none


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("", "is not a date like 2027-12-25"),
        ("christmas", "is not a date like 2027-12-25"),
        ("2027-12-25 ", "is not a date like 2027-12-25"),
        ("2027-12-25\0", "is not a date like 2027-12-25"),
        ("2027-12-25\n", "is not a date like 2027-12-25"),
        ("20271225", "is not a date like 2027-12-25"),
        ("2027-W51-6", "is not a date like 2027-12-25"),
        ("12-25", "is not a date like 2027-12-25"),
        ("２０２７-12-25", "is not a date like 2027-12-25"),
        ("2027-12-25T00:00:00Z", "is not a date like 2027-12-25"),
        ("2027-12-25/", "is not a date like 2027-12-25"),
        ("/2027-12-25", "is not a date like 2027-12-25"),
        ("2027-12-25/P1D", "is not a date like 2027-12-25"),
        ("2027-12-24/2027-12-25/2027-12-26", "is not a date like 2027-12-25"),
        ("2027-12-24/2027-12-25T00:00:00Z", "is not a date like 2027-12-25"),
        ("2027-12-24T00:00:00Z/2027-12-25", "is not a date like 2027-12-25"),
        ("2027-02-29", "is not a date: day is out of range"),
        ("2027-12-24/2027-12-32", "is not a date: day is out of range"),
        ("0000-01-01", "is not a date: year 0"),
        ("1969-12-31", "outside the years 1970 to 2199"),
        ("2200-01-01", "outside the years 1970 to 2199"),
        ("2027-12-25/9999-12-31", "outside the years 1970 to 2199"),
        ("2027-12-26/2027-12-25", "does not end after it begins"),
        ("2027-12-26T00:00:00Z/2027-12-25T00:00:00Z", "does not end after it begins"),
        ("2027-12-25T00:00:00Z/2027-12-25T00:00:00Z", "does not end after it begins"),
        ("2027-12-25T00:00:00Z/2027-12-25T00:30:00+01:00", "does not end after it begins"),
        ("2027-12-25T00:00:00/2027-12-26T00:00:00", "has no offset"),
        ("2027-12-25T00:00:00Z/PT1H", "is not an ISO 8601 instant"),
        ("/", "is not an ISO 8601 instant"),
    ],
)
def test_what_is_no_day_is_refused_by_its_place(entry: str, problem: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_calendar(["2027-12-24", entry])

    assert refusal.value.field == "days[1]"
    assert problem in refusal.value.problem


def test_too_many_days_are_refused() -> None:
    assert len(parse_calendar(["2027-12-25"] * MOST_DAYS).days) == MOST_DAYS
    with pytest.raises(InvalidField, match=r"^days: has 1001 entries"):
        parse_calendar(["2027-12-25"] * (MOST_DAYS + 1))


@EVERY_TIME_THE_SAME
@given(st.text() | st.from_regex(r"\d{4}-\d{2}-\d{2}(T.{2,9})?(/\d{4}-\d{2}-\d{2}(T.{2,9})?)?", fullmatch=True))
@example("2027-12-25T00:00:00\ud800Z/2027-12-26T00:00:00Z")
def test_any_text_is_a_day_or_refused(text: str) -> None:
    try:
        calendar = parse_calendar([text])
    except InvalidField:
        return
    assert calendar.covers(utc("2027-12-25"), "Europe/Berlin") in (True, False)
