"""What recurrence rules mean, as tables to read; then what holds for all of them, with dateutil and zoneinfo."""

from __future__ import annotations

import pickle
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo
from zoneinfo._common import load_data

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.model import rrule
from rota.model.describe_rule import describe
from rota.model.errors import InvalidSchedule
from rota.model.rrule import Frequency, Rule, Written

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=200)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def firings(rule: Rule, since: datetime = LONG_AGO) -> Iterator[datetime]:
    moment = rule.after(since)
    while moment:
        yield moment
        moment = rule.after(moment)


def shown(moments: list[datetime], form: str) -> str:
    return ", ".join(f"{moment:{form}}" for moment in moments)


# The examples of RFC 5545, 3.8.5.3, which are in New York and, but for the last ones, at nine: when they start, the
# first four, and how many there are in all.

EXAMPLES = [
    ("19970902", "FREQ=DAILY;COUNT=10", "1997-09-02, 1997-09-03, 1997-09-04, 1997-09-05", 10),
    ("19970902", "FREQ=DAILY;UNTIL=19971224T000000Z", "1997-09-02, 1997-09-03, 1997-09-04, 1997-09-05", 113),
    ("19970902", "FREQ=DAILY;INTERVAL=2", "1997-09-02, 1997-09-04, 1997-09-06, 1997-09-08", None),
    ("19970902", "FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02, 1997-09-12, 1997-09-22, 1997-10-02", 5),
    ("19980101", "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "1998-01-01, 1998-01-02, 1998-01-03, 1998-01-04", 93),
    ("19980101", "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
     "1998-01-01, 1998-01-02, 1998-01-03, 1998-01-04", 93),
    ("19970902", "FREQ=WEEKLY;COUNT=10", "1997-09-02, 1997-09-09, 1997-09-16, 1997-09-23", 10),
    ("19970902", "FREQ=WEEKLY;UNTIL=19971224T000000Z", "1997-09-02, 1997-09-09, 1997-09-16, 1997-09-23", 17),
    ("19970902", "FREQ=WEEKLY;INTERVAL=2;WKST=SU", "1997-09-02, 1997-09-16, 1997-09-30, 1997-10-14", None),
    ("19970902", "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
     "1997-09-02, 1997-09-04, 1997-09-09, 1997-09-11", 10),
    ("19970901", "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
     "1997-09-01, 1997-09-03, 1997-09-05, 1997-09-15", 25),
    ("19970902", "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
     "1997-09-02, 1997-09-04, 1997-09-16, 1997-09-18", 8),
    ("19970905", "FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "1997-09-05, 1997-10-03, 1997-11-07, 1997-12-05", 10),
    ("19970905", "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", "1997-09-05, 1997-10-03, 1997-11-07, 1997-12-05", 4),
    ("19970907", "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
     "1997-09-07, 1997-09-28, 1997-11-02, 1997-11-30", 10),
    ("19970922", "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "1997-09-22, 1997-10-20, 1997-11-17, 1997-12-22", 6),
    ("19970928", "FREQ=MONTHLY;BYMONTHDAY=-3", "1997-09-28, 1997-10-29, 1997-11-28, 1997-12-29", None),
    ("19970902", "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15", "1997-09-02, 1997-09-15, 1997-10-02, 1997-10-15", 10),
    ("19970930", "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "1997-09-30, 1997-10-01, 1997-10-31, 1997-11-01", 10),
    ("19970910", "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
     "1997-09-10, 1997-09-11, 1997-09-12, 1997-09-13", 10),
    ("19970902", "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU", "1997-09-02, 1997-09-09, 1997-09-16, 1997-09-23", None),
    ("19970610", "FREQ=YEARLY;COUNT=10;BYMONTH=6,7", "1997-06-10, 1997-07-10, 1998-06-10, 1998-07-10", 10),
    ("19970310", "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3", "1997-03-10, 1999-01-10, 1999-02-10, 1999-03-10", 10),
    ("19970101", "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
     "1997-01-01, 1997-04-10, 1997-07-19, 2000-01-01", 10),
    ("19970519", "FREQ=YEARLY;BYDAY=20MO", "1997-05-19, 1998-05-18, 1999-05-17, 2000-05-15", None),
    ("19970512", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997-05-12, 1998-05-11, 1999-05-17, 2000-05-15", None),
    ("19970313", "FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "1997-03-13, 1997-03-20, 1997-03-27, 1998-03-05", None),
    ("19970605", "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8", "1997-06-05, 1997-06-12, 1997-06-19, 1997-06-26", None),
    ("19970902", "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "1998-02-13, 1998-03-13, 1998-11-13, 1999-08-13", None),
    ("19970913", "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
     "1997-09-13, 1997-10-11, 1997-11-08, 1997-12-13", None),
    ("19961105", "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
     "1996-11-05, 2000-11-07, 2004-11-02, 2008-11-04", None),
    ("19970904", "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997-09-04, 1997-10-07, 1997-11-06", 3),
    ("19970929", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
     "1997-09-29, 1997-10-30, 1997-11-27, 1997-12-30", None),
    ("19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
     "1997-08-05, 1997-08-10, 1997-08-19, 1997-08-24", 4),
    ("19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
     "1997-08-05, 1997-08-17, 1997-08-19, 1997-08-31", 4),
    ("20070115", "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5", "2007-01-15, 2007-01-30, 2007-02-15, 2007-03-15", 5),
    # The RFC has a 15:00 too, but 17:00 UTC is 13:00 there.
    ("19970902", "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000Z", "09:00, 12:00", 2),
    ("19970902", "FREQ=MINUTELY;INTERVAL=15;COUNT=6", "09:00, 09:15, 09:30, 09:45", 6),
    ("19970902", "FREQ=MINUTELY;INTERVAL=90;COUNT=4", "09:00, 10:30, 12:00, 13:30", 4),
    ("19970902", "FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", "09:00, 09:20, 09:40, 10:00", None),
    ("19970902", "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", "09:00, 09:20, 09:40, 10:00", None),
]  # fmt: skip


@pytest.mark.parametrize(("day", "text", "expected", "in_all"), EXAMPLES)
def test_the_examples_of_the_rfc(day: str, text: str, expected: str, in_all: int | None) -> None:
    rule = Rule.parse(f"DTSTART;TZID=America/New_York:{day}T090000\nRRULE:{text}")
    local = [moment.astimezone(rule.zone) for moment in islice(firings(rule), 200)]
    assert shown(local[:4], "%Y-%m-%d" if "-" in expected else "%H:%M") == expected
    assert in_all is None or len(local) == in_all
    assert "-" not in expected or {f"{moment:%H:%M:%S}" for moment in local} == {"09:00:00"}


# What the clocks do to it. The firings are local, with the offset from UTC.

CLOCKS = [
    # A local time in the gap moves on by the gap, on that day only.
    ("Europe/Berlin", "20260328T023000", "FREQ=DAILY", "28 02:30+0100, 29 03:30+0200, 30 02:30+0200, 31 02:30+0200"),
    ("America/New_York", "20260307T023000", "FREQ=DAILY", "07 02:30-0500, 08 03:30-0400, 09 02:30-0400, 10 02:30-0400"),
    ("America/New_York", "20250309T023000", "FREQ=YEARLY",
     "09 03:30-0400, 09 02:30-0400, 09 02:30-0500, 09 02:30-0500"),
    # There it may come after a later one, and two that meet are one.
    ("Europe/Berlin", "20260329T000000", "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=0,30",
     "29 03:00+0200, 29 03:30+0200, 30 02:00+0200, 30 02:30+0200"),
    ("Europe/Berlin", "20260329T000000", "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=15;BYSETPOS=1",
     "29 03:15+0200, 30 02:15+0200, 31 02:15+0200, 01 02:15+0200"),
    # Nothing of before DTSTART moves behind it.
    ("Europe/Berlin", "20260329T031000", "FREQ=DAILY;BYHOUR=2;BYMINUTE=15",
     "30 02:15+0200, 31 02:15+0200, 01 02:15+0200, 02 02:15+0200"),
    # A gap of half an hour, and one of a whole day.
    ("Australia/Lord_Howe", "20261003T021500", "FREQ=DAILY",
     "03 02:15+1030, 04 02:45+1100, 05 02:15+1100, 06 02:15+1100"),
    ("Pacific/Apia", "20111229T120000", "FREQ=DAILY", "29 12:00-1000, 31 12:00+1400, 01 12:00+1400, 02 12:00+1400"),
    # A local time that comes twice fires the first time.
    ("Europe/Berlin", "20261024T023000", "FREQ=DAILY", "24 02:30+0200, 25 02:30+0200, 26 02:30+0100, 27 02:30+0100"),
    ("America/New_York", "20261101T000000", "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,30",
     "01 01:00-0400, 01 01:30-0400, 01 02:00-0500, 01 02:30-0500"),
    # Faster than daily is elapsed time.
    ("Europe/Berlin", "20260329T003000", "FREQ=HOURLY", "29 00:30+0100, 29 01:30+0100, 29 03:30+0200, 29 04:30+0200"),
    ("Europe/Berlin", "20261025T013000", "FREQ=HOURLY", "25 01:30+0200, 25 02:30+0200, 25 02:30+0100, 25 03:30+0100"),
    ("Europe/Berlin", "20260327T090000", "FREQ=HOURLY;INTERVAL=24",
     "27 09:00+0100, 28 09:00+0100, 29 10:00+0200, 30 10:00+0200"),
    ("America/New_York", "20261101T003000", "FREQ=MINUTELY;INTERVAL=45",
     "01 00:30-0400, 01 01:15-0400, 01 01:00-0500, 01 01:45-0500"),
    ("Australia/Lord_Howe", "20261004T011500", "FREQ=HOURLY",
     "04 01:15+1030, 04 02:45+1100, 04 03:45+1100, 04 04:45+1100"),
    # And its BY parts look at the local time: two o'clock is not there, or there twice.
    ("Europe/Berlin", "20260328T000000", "FREQ=HOURLY;BYHOUR=2,4",
     "28 02:00+0100, 28 04:00+0100, 29 04:00+0200, 30 02:00+0200"),
    ("Europe/Berlin", "20261025T000000", "FREQ=HOURLY;BYHOUR=2",
     "25 02:00+0200, 25 02:00+0100, 26 02:00+0100, 27 02:00+0100"),
    ("Europe/Berlin", "20260328T050000", "FREQ=HOURLY;INTERVAL=24;BYHOUR=6",
     "29 06:00+0200, 30 06:00+0200, 31 06:00+0200, 01 06:00+0200"),
    ("Australia/Lord_Howe", "20261004T011500", "FREQ=HOURLY;BYMINUTE=15",
     "04 01:15+1030, 04 03:15+1100, 04 04:15+1100, 04 05:15+1100"),
    ("Asia/Kolkata", "20260101T091500", "FREQ=HOURLY;BYMINUTE=0,30",
     "01 09:30+0530, 01 10:00+0530, 01 10:30+0530, 01 11:00+0530"),
]  # fmt: skip


@pytest.mark.parametrize("piece", [rrule._CHUNK, 900])
@pytest.mark.parametrize(("zone", "start", "text", "expected"), CLOCKS)
def test_when_the_clocks_change(
    monkeypatch: pytest.MonkeyPatch, zone: str, start: str, text: str, expected: str, piece: int
) -> None:
    # In pieces so small that the jump is in one and what it does in the next.
    monkeypatch.setattr(rrule, "_CHUNK", piece)
    forget_everything()
    rule = Rule.parse(f"DTSTART:{start}\n{text};COUNT=4", zone)
    assert shown([moment.astimezone(rule.zone) for moment in firings(rule)], "%d %H:%M%z") == expected
    forget_everything()


def forget_everything() -> None:
    for cached in vars(rrule).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


# What ends, begins and breaks a rule, in UTC.

BOUNDS = [
    # DTSTART fires only where it matches.
    ("DTSTART:20270105T090000Z\nFREQ=WEEKLY;BYDAY=FR", "08 09:00, 15 09:00, 22 09:00, 29 09:00"),
    ("DTSTART:20270105T090000Z\nFREQ=DAILY;BYHOUR=8,10", "05 10:00, 06 08:00, 06 10:00, 07 08:00"),
    # A day that a month does not have is no firing, and does not count.
    ("DTSTART:20270131T090000Z\nFREQ=MONTHLY;COUNT=3", "31 09:00, 31 09:00, 31 09:00"),
    # UNTIL is part of it; a day is all of that day.
    ("DTSTART:20270105T090000Z\nFREQ=DAILY;UNTIL=20270107T090000Z", "05 09:00, 06 09:00, 07 09:00"),
    ("DTSTART:20270105T090000Z\nFREQ=DAILY;UNTIL=20270107T085959", "05 09:00, 06 09:00"),
    ("DTSTART:20270105T090000Z\nFREQ=DAILY;UNTIL=20270107", "05 09:00, 06 09:00, 07 09:00"),
    ("DTSTART;TZID=Asia/Tokyo:20270105T090000\nFREQ=DAILY;UNTIL=20270106", "05 00:00, 06 00:00"),
    ("DTSTART;TZID=Asia/Tokyo:20270105T090000\nFREQ=HOURLY;UNTIL=20270105T103000", "05 00:00, 05 01:00"),
    # What is excepted counts.
    ("DTSTART:20270105T090000Z\nRRULE:FREQ=DAILY;COUNT=4\nEXDATE:20270105T090000Z,20270107T090000Z",
     "06 09:00, 08 09:00"),
    ("DTSTART;TZID=Asia/Tokyo:20270105T090000\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20270106T090000", "05 00:00, 07 00:00"),
    ("DTSTART:20270105T090000Z\nRRULE:FREQ=HOURLY;COUNT=3\nEXDATE;TZID=Asia/Tokyo:20270105T190000",
     "05 09:00, 05 11:00"),
    ("DTSTART:20270105T090000Z\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20270105T090001Z", "05 09:00, 06 09:00"),
    # However it is written.
    ("dtstart:20270105t090000z\r\nrrule:freq=daily;count=2;byhour=9,10\r\nexdate:20270105t090000z\r\n", "05 10:00"),
    ("RRULE:COUNT=2;BYDAY=MO;FREQ=WEEKLY\nDTSTART:20270105T090000Z", "11 09:00, 18 09:00"),
    # Weeks as ISO has them: 2027 begins in the 53rd of the year before, and 2030 ends in the first of the next.
    ("DTSTART:20270101T090000Z\nFREQ=YEARLY;BYWEEKNO=53;COUNT=4", "01 09:00, 02 09:00, 03 09:00, 27 09:00"),
    ("DTSTART:20301228T090000Z\nFREQ=YEARLY;BYWEEKNO=1;COUNT=3", "30 09:00, 31 09:00, 01 09:00"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BOUNDS)
def test_where_a_rule_begins_and_ends(text: str, expected: str) -> None:
    assert shown([*islice(firings(Rule.parse(text)), 4)], "%d %H:%M") == expected


def test_a_start_of_its_own_has_its_own_zone() -> None:
    assert Rule.parse("FREQ=DAILY", "Europe/Berlin").start is None
    for text, zone, written in [
        ("DTSTART:20270701T090000", "Europe/Berlin", None),
        ("DTSTART:20270701T090000Z", "UTC", "UTC"),
        ("DTSTART;TZID=Asia/Tokyo:20270701T090000", "Asia/Tokyo", "Asia/Tokyo"),
    ]:
        rule = Rule.parse(f"{text}\nFREQ=DAILY", "Europe/Berlin")
        assert rule.start == Written(datetime(2027, 7, 1, 9), written)
        assert rule.after(LONG_AGO) == datetime(2027, 7, 1, 9, tzinfo=ZoneInfo(zone))


def test_a_rule_without_a_start_is_given_one() -> None:
    rule = Rule.parse("FREQ=DAILY;COUNT=2", "Asia/Tokyo").anchored(datetime(2027, 1, 5, 20, 0, 7, 999_999, tzinfo=UTC))
    assert rule.text == "DTSTART:20270106T050007\nRRULE:FREQ=DAILY;COUNT=2"
    assert shown([*firings(rule)], "%d %H:%M:%S") == "05 20:00:07, 06 20:00:07"
    assert rule.anchored(datetime(2030, 1, 1, tzinfo=UTC)) is rule
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_nothing_fires_from_the_year_2200_on() -> None:
    rule = Rule.parse("DTSTART:20270101T000000Z\nFREQ=HOURLY;INTERVAL=12")
    assert rule.after(datetime(2199, 12, 31, tzinfo=UTC)) == datetime(2199, 12, 31, 12, tzinfo=UTC)
    assert rule.after(datetime(2199, 12, 31, 12, tzinfo=UTC)) is None
    weekly = Rule.parse("DTSTART:20270101T000000Z\nFREQ=WEEKLY;BYDAY=MO,TU,FR;BYSETPOS=-2")
    assert weekly.after(datetime(2199, 12, 30, tzinfo=UTC)) == datetime(2199, 12, 31, tzinfo=UTC)
    until = Rule.parse("DTSTART:21991201T000000\nFREQ=HOURLY;UNTIL=21991231", "America/New_York")
    assert until.after(datetime(2199, 12, 31, 23, tzinfo=UTC)) is None
    assert rule.after(datetime.max.replace(tzinfo=UTC)) is None
    assert rule.after(datetime.min.replace(tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


# What is refused, and what is said then.

START = "DTSTART:20270101T090000Z\n"
ALL_HOURS, SIXTY = ",".join(map(str, range(24))), ",".join(map(str, range(60)))
REFUSED = [
    ("", "has 1 DTSTART and 0 RRULE"),
    ("hello", "'HELLO' is not understood; write FREQ=..., INTERVAL=..., "),
    ("FREQ=DAILY;", "'' is not understood"),
    ("FREQ=DAILY;BYEASTER=0", "'BYEASTER=0' is not understood"),
    ("FREQ=DAILY;COUNT=", "'COUNT=' is not understood"),
    ("FREQ=DAILY;COUNT=2;COUNT=3", "COUNT is there twice"),
    ("INTERVAL=2", "has no FREQ"),
    ("FREQ=FORTNIGHTLY", "has no FREQ that there is; write FREQ= and one of YEARLY"),
    ("FREQ=DAILY;COUNT=2;UNTIL=20280101", "has both COUNT and UNTIL"),
    ("FREQ=DAILY;COUNT=0", "COUNT: '0' is not possible; write numbers from 1 to 10,000"),
    ("FREQ=DAILY;COUNT=10001", "COUNT: '10001' is not possible"),
    ("FREQ=DAILY;INTERVAL=0", "INTERVAL: '0' is not possible"),
    ("FREQ=DAILY;INTERVAL=" + "9" * 1500, "is not possible; write numbers from 1 to 10,000,000"),
    ("FREQ=DAILY;BYHOUR=24", "BYHOUR: '24' is not possible; write numbers from 0 to 23"),
    ("FREQ=DAILY;BYHOUR=-1", "BYHOUR: '-1' is not possible"),
    ("FREQ=DAILY;BYHOUR=9,,10", "BYHOUR: '' is not possible"),
    ("FREQ=DAILY;BYHOUR=9 ", None),
    ("FREQ=DAILY;BYHOUR= 9", "BYHOUR: ' 9' is not possible"),
    # A leap second is on no clock of ours.
    ("FREQ=DAILY;BYSECOND=60", "BYSECOND: '60' is not possible; write numbers from 0 to 59"),
    ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY: '0' is not possible; write numbers from 1 to 31, or from -1 to -31"),
    ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY does not go with FREQ=WEEKLY"),
    ("FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY does not go with FREQ=MONTHLY"),
    ("FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO does not go with FREQ=MONTHLY; leave it out, or write FREQ as one of YEARLY"),
    ("FREQ=WEEKLY;BYDAY=1MO", "days with a number, like 1MO, go with FREQ=MONTHLY or YEARLY only"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=1MO", "not with BYWEEKNO"),
    ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY: '0MO' is not a day of the week"),
    ("FREQ=YEARLY;BYDAY=54MO", "BYDAY: '54MO' is not a day of the week"),
    ("FREQ=WEEKLY;BYDAY=MON", "BYDAY: 'MON' is not a day of the week; write MO, TU, WE"),
    ("FREQ=WEEKLY;WKST=1MO", "WKST: '1MO' is not a day of the week"),
    ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS picks from what other BY parts allow"),
    ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL: 'TOMORROW' is not a time"),
    ("FREQ=DAILY;UNTIL=20270229", "UNTIL: '20270229' is not in the calendar: day is out of range for month"),
    ("FREQ=DAILY;UNTIL=22000101", "UNTIL: '22000101' lies outside the years 1970 to 2199"),
    ("RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY", "has 1 DTSTART and 2 RRULE"),
    ("RRULE:FREQ=DAILY;\n COUNT=2", "write one RRULE, on one line"),
    ("DTSTART:20270101T090000Z\nFREQ=DAILY", "has 2 DTSTART and 1 RRULE"),
    ("RRULE:FREQ=DAILY\nRDATE:20270101T090000Z", "'RDATE:20270101T090000Z' is not understood; write lines of DTSTART"),
    ("RRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "'EXRULE:FREQ=WEEKLY' is not understood"),
    ("RRULE;X=1:FREQ=DAILY", "'RRULE;X=1:FREQ=DAILY' is not understood"),
    ("RRULE:FREQ=DAILY\nEXDATE;VALUE=DATE:20270101", "EXDATE: '20270101' is not a time; write it like 20270131T093000"),
    ("RRULE:FREQ=DAILY\nEXDATE;TZID=Mars/Olympus:20270101T090000", "'Mars/Olympus' is not an IANA time zone"),
    ("RRULE:FREQ=DAILY\nEXDATE;TZID=Asia/Tokyo:20270101T090000Z", "'TZID=Asia/Tokyo' is not understood"),
    ("RRULE:FREQ=DAILY\nEXDATE;TZID=../../etc/passwd:20270101T090000", "is not an IANA time zone"),
    ("FREQ=DAILY;BYHOUR=٩", "has characters outside ASCII"),
    ("FREQ=DAILY" + ";" * 2000, "is 2,035 characters long, DTSTART included; write at most 2,000"),
    (f"FREQ=DAILY;BYHOUR={ALL_HOURS};BYMINUTE={SIXTY};BYSECOND=0,30",
     "has 2,880 times in BYHOUR, BYMINUTE and BYSECOND"),
    ("FREQ=SECONDLY;INTERVAL=86399;BYHOUR=3",
     "INTERVAL=86399 meets the BY parts in the same way only every 86,399 days"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_what_is_refused(text: str, problem: str | None) -> None:
    if problem is None:
        Rule.parse(START + text)
        return
    with pytest.raises(InvalidSchedule) as refusal:
        Rule.parse(START + text)
    assert refusal.value.field == "schedule"
    assert problem in refusal.value.problem


NEVER = [
    "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=YEARLY;BYMONTH=4;BYMONTHDAY=31",
    "FREQ=MONTHLY;BYDAY=6MO",
    "FREQ=MONTHLY;BYDAY=1FR;BYMONTHDAY=13",
    "FREQ=YEARLY;BYWEEKNO=10;BYMONTH=7;BYDAY=MO",
    "FREQ=HOURLY;BYYEARDAY=1;BYMONTH=12",
]
NEVER_FROM_THEN = [
    "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",
    "FREQ=YEARLY;UNTIL=20261231",
    "RRULE:FREQ=DAILY;COUNT=1\nEXDATE:20270101T090000Z",
    "FREQ=MONTHLY;BYMONTHDAY=1,2;BYSETPOS=3",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYSETPOS=2",
    "FREQ=DAILY;BYHOUR=1,2;BYSETPOS=-3",
    "FREQ=HOURLY;INTERVAL=24;BYHOUR=5",
    "FREQ=HOURLY;INTERVAL=168;BYDAY=SA",
    "FREQ=HOURLY;INTERVAL=21;BYHOUR=9;BYDAY=MO,TU,WE,TH,SA,SU",
    "FREQ=MINUTELY;INTERVAL=7;BYMINUTE=3;BYHOUR=9;BYMONTHDAY=1;BYMONTH=1;UNTIL=20270101T100000",
    "FREQ=SECONDLY;INTERVAL=60;BYSECOND=30",
]


@pytest.mark.parametrize("text", NEVER)
def test_what_never_fires_is_refused_at_once(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="never fire"):
        Rule.parse(text)


@pytest.mark.parametrize("text", NEVER_FROM_THEN)
def test_what_never_fires_from_its_start_on_is_refused_with_it(text: str) -> None:
    rule = Rule.parse(text)
    with pytest.raises(InvalidSchedule, match="never fire"):
        rule.anchored(datetime(2027, 1, 1, 9, tzinfo=UTC))


# Where dateutil reads a rule differently, and so what the generators below leave out.

DECIDED = [
    # BYDAY is a list to choose from. dateutil wants a day that is a Monday or Tuesday and the first Monday as well.
    ("20270101T090000", "FREQ=MONTHLY;BYDAY=MO,TU,1MO", "2027-01-04, 2027-01-05, 2027-01-11, 2027-01-12"),
    # The second of the week is Wednesday, also in the week that begins on a Tuesday; dateutil cuts it there.
    ("20270105T090000", "FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2", "2027-01-06, 2027-01-13, 2027-01-20, 2027-01-27"),
    # All of that day; dateutil ends as it begins.
    ("20270101T090000", "FREQ=DAILY;UNTIL=20270102", "2027-01-01, 2027-01-02"),
    # 2022 began in week 52 of 2021. dateutil takes it for week 53 as the length of 2022 would have it.
    ("20220101T090000", "FREQ=YEARLY;BYWEEKNO=52;COUNT=3", "2022-01-01, 2022-01-02, 2022-12-26"),
    # The last day of 2029 is in the first week of 2030, which is the 52nd from its end; dateutil forgets that.
    ("20291231T090000", "FREQ=YEARLY;BYWEEKNO=-52;COUNT=2", "2029-12-31, 2030-01-01"),
]


@pytest.mark.parametrize(("start", "text", "expected"), DECIDED)
def test_where_dateutil_reads_it_differently(start: str, text: str, expected: str) -> None:
    rule = Rule.parse(f"DTSTART:{start}Z\n{text}")
    assert shown([*islice(firings(rule), 4)], "%Y-%m-%d") == expected
    # A row that is no longer true goes.
    assert shown([*islice(by_dateutil(text, datetime.fromisoformat(start)), 4)], "%Y-%m-%d") != expected


def by_dateutil(text: str, start: datetime) -> Iterator[datetime]:
    return takewhile(lambda moment: moment.year < 2200, rrulestr(text, dtstart=start))


DAYS_OF_WEEK = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def some(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=5, unique=True).map(lambda n: ",".join(map(str, n)))


def from_both_ends(high: int) -> st.SearchStrategy[str]:
    numbers = st.integers(-high, high).filter(bool)
    return st.lists(numbers, min_size=1, max_size=5, unique=True).map(lambda n: ",".join(map(str, n)))


weekdays = st.lists(st.sampled_from(DAYS_OF_WEEK), min_size=1, unique=True).map(",".join)
numbered_weekdays = st.lists(
    st.builds("{}{}".format, st.integers(-5, 5).filter(bool), st.sampled_from(DAYS_OF_WEEK)), min_size=1, max_size=3
).map(",".join)
intervals = st.sampled_from(["2", "3", "5", "6", "7", "10", "12", "15", "24", "30", "60", "90", "1000"])


@st.composite
def rules(draw: st.DrawFn, frequency: Frequency) -> str:
    slow = frequency <= Frequency.MONTHLY
    parts = {
        "INTERVAL": intervals,
        "WKST": st.sampled_from(DAYS_OF_WEEK),
        "BYMONTH": some(1, 12),
        "BYDAY": weekdays | numbered_weekdays if slow else weekdays,
        "BYHOUR": some(0, 23),
        "BYMINUTE": some(0, 59),
        "BYSECOND": some(0, 59),
    }
    if frequency is Frequency.YEARLY:
        parts["BYWEEKNO"] = some(1, 51)
    if frequency is Frequency.YEARLY or frequency > Frequency.DAILY:
        parts["BYYEARDAY"] = from_both_ends(366)
    if frequency is not Frequency.WEEKLY:
        parts["BYMONTHDAY"] = from_both_ends(31)
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), max_size=4, unique=True))
    text = ";".join([f"FREQ={frequency.name}", *(f"{name}={draw(parts[name])}" for name in chosen)])
    assume(not ("BYWEEKNO" in chosen and any(digit in text.partition("BYDAY=")[2].split(";")[0] for digit in "12345")))
    if frequency is not Frequency.WEEKLY and "BY" in text and draw(st.integers(0, 3)) == 0:
        text += f";BYSETPOS={draw(from_both_ends(4))}"
    return text + draw(st.sampled_from(["", "", f";COUNT={draw(st.integers(1, 12))}"]))


starts = st.datetimes(datetime(1990, 1, 1), datetime(2035, 1, 1)).map(lambda start: start.replace(microsecond=0))
# How far dateutil, which walks, has to follow.
WALKS = {0: 36_500, 1: 7_300, 2: 3_650, 3: 3_650, 4: 60, 5: 7, 6: 1}


def written(text: str, start: datetime) -> str:
    return f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{text}"


def parsed(text: str, zone: str = "UTC") -> Rule:
    """Without what never fires, of which dateutil would be told to say when."""
    try:
        return Rule.parse(text, zone)
    except InvalidSchedule as refusal:
        assert "never fire" in refusal.problem
        assume(False)
        raise


@pytest.mark.parametrize("frequency", Frequency)
def test_dateutil_agrees_in_utc(frequency: Frequency) -> None:
    @EVERY_TIME_THE_SAME
    @given(rules(frequency), starts)
    def agrees(text: str, start: datetime) -> None:
        rule = parsed(written(text, start))
        end = start.replace(tzinfo=UTC) + timedelta(days=WALKS[frequency])
        ours = [moment.replace(tzinfo=None) for moment in takewhile(lambda m: m < end, islice(firings(rule), 10))]
        assume(ours)
        assert ours == list(islice(by_dateutil(text, start), len(ours)))

    agrees()


def test_the_last_of_a_count_is_that_of_dateutil() -> None:
    start = datetime(2026, 1, 31, 9)
    for text in ["FREQ=MONTHLY;COUNT=100", "FREQ=WEEKLY;BYDAY=TU,SU;INTERVAL=3;COUNT=500", "FREQ=HOURLY;COUNT=10000"]:
        assert [*firings(Rule.parse(written(text, start)))][-1].replace(tzinfo=None) == [*by_dateutil(text, start)][-1]


# In zones: what is defined, spelled out with zoneinfo.

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Gaza",
]
zones = st.sampled_from(ZONES)


@EVERY_TIME_THE_SAME
@given(st.sampled_from([*Frequency][:4]).flatmap(rules), starts, zones)
def test_slow_rules_fire_at_the_local_times_of_dateutil(text: str, start: datetime, zone: str) -> None:
    # Two local times that meet after a gap count once with us, and twice there.
    text = text.partition(";COUNT=")[0]
    rule = parsed(written(text, start), zone)
    local = takewhile(lambda moment: moment < start + timedelta(days=3_650), by_dateutil(text, start))
    instants = {moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for moment in islice(local, 40)}
    # The last of them could come after one that is cut off.
    expected = sorted(instants)[:-3]
    assert list(islice(firings(rule), len(expected))) == expected


hours_of_jumps = st.sampled_from(["", ";BYHOUR=0,1,2,3", ";BYHOUR=2", ";BYHOUR=1,3,22"])
days_of_jumps = st.sampled_from(["", ";BYDAY=SA,SU", ";BYMONTH=3,4,10,11", ";BYMONTHDAY=-1,1"])
steps_of_time = st.sampled_from([("HOURLY", 3600), ("MINUTELY", 60)])


@EVERY_TIME_THE_SAME
@given(steps_of_time, st.integers(1, 100), hours_of_jumps, days_of_jumps, starts, zones)
def test_fast_rules_step_through_elapsed_time(
    step: tuple[str, int], interval: int, hours: str, days: str, start: datetime, zone: str
) -> None:
    frequency, seconds = step
    rule = parsed(written(f"FREQ={frequency};INTERVAL={interval}{hours}{days}", start), zone)
    begin = start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    steps = (begin + number * timedelta(seconds=seconds * interval) for number in range(2_000))
    expected = [moment for moment in steps if matches(rule, moment.astimezone(rule.zone))]
    assert list(islice(firings(rule), len(expected))) == expected


def matches(rule: Rule, local: datetime) -> bool:
    by = rule.by
    last_of_month = (local + timedelta(days=1)).day == 1
    return (
        (not by.hours or local.hour in by.hours)
        and (not by.days or (0, local.weekday()) in by.days)
        and (not by.months or local.month in by.months)
        and (not by.month_days or local.day in by.month_days or last_of_month)
    )


@EVERY_TIME_THE_SAME
@given(st.sampled_from([*Frequency]).flatmap(rules), starts, zones, st.floats(0, 1), st.floats(0, 1))
def test_from_anywhere_it_is_as_from_the_start(text: str, start: datetime, zone: str, near: float, far: float) -> None:
    rule = parsed(written(text, start), zone)
    first, *_ = walked = list(islice(firings(rule), 200))
    moment = first - SECOND + near * (walked[-1] - first)
    assert rule.after(moment) == walked[bisect_right(walked, moment)]
    assert rule.after(walked[-1] - SECOND) == walked[-1]
    distant = rule.after(first + far * (datetime(2199, 1, 1, tzinfo=UTC) - first))
    assert distant is None or rule.after(distant - SECOND) == distant


def test_the_jumps_of_all_zones_are_where_they_are_looked_for() -> None:
    names = files("tzdata").joinpath("zones").read_text().split()
    for name in names:
        with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
            indices, instants, offsets, *_ = load_data(file)
        held = pairwise([offsets[0], *(offsets[index] for index in indices)])
        jumps = [
            at for at, (before, after) in zip(instants, held, strict=True) if before != after and at > -86_400 * 730
        ]
        assert all(later - earlier > rrule._PROBE for earlier, later in pairwise(jumps)), name
        assert all(jump % rrule._GRAIN == 0 for jump in jumps), name


# What it costs, in calls and returns of functions, which unlike time are the same on every machine: about ten to a
# microsecond.

NEW_YORK_1970 = "DTSTART;TZID=America/New_York:19700101T090000\n"
ORDINARY = [
    "FREQ=YEARLY",
    "FREQ=MONTHLY;BYDAY=-1FR",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR",
    "FREQ=DAILY;BYHOUR=9,17",
    "FREQ=HOURLY",
    "FREQ=MINUTELY;INTERVAL=15;BYHOUR=9,10,11,12;BYDAY=MO,TU,WE,TH,FR",
    "FREQ=SECONDLY;INTERVAL=10",
    "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=29",
]
COSTLY = [
    *NEVER,
    *NEVER_FROM_THEN,
    "FREQ=DAILY;COUNT=10000",
    "FREQ=HOURLY;INTERVAL=24;COUNT=10000",
    "FREQ=HOURLY;INTERVAL=25;BYDAY=MO,TU,WE,TH,FR;COUNT=10000",
    "FREQ=HOURLY;INTERVAL=10000000",
    "FREQ=MINUTELY;INTERVAL=1439;BYHOUR=3;COUNT=10000",
    "FREQ=MINUTELY;INTERVAL=7;BYMINUTE=3;COUNT=10000",
    "FREQ=SECONDLY;INTERVAL=2;BYHOUR=3;BYMINUTE=3;BYSECOND=4;COUNT=10000",
    "FREQ=SECONDLY;INTERVAL=3607;BYHOUR=3;BYMINUTE=7;BYSECOND=9;BYMONTH=2;BYMONTHDAY=29",
    "FREQ=SECONDLY;INTERVAL=3653;BYHOUR=3;BYMINUTE=1;BYSECOND=1;COUNT=10000",
    "FREQ=WEEKLY;INTERVAL=50;BYMONTH=2;BYDAY=MO;BYSETPOS=1",
    "FREQ=WEEKLY;INTERVAL=2;BYMONTH=2;BYDAY=MO,TU;BYSETPOS=2",
    "FREQ=MONTHLY;BYMONTHDAY=5;BYHOUR=1,2,3,4,5,6;BYSETPOS=" + ",".join(map(str, range(31, 366))),
    "FREQ=YEARLY;BYYEARDAY=" + ",".join(map(str, range(1, 367))),
    "FREQ=MONTHLY;BYDAY=" + ",".join(f"{ordinal}MO" for ordinal in range(-53, 54) if ordinal),
    f"FREQ=DAILY;BYHOUR={ALL_HOURS};BYMINUTE={SIXTY};COUNT=10000",
    f"FREQ=HOURLY;BYMINUTE={SIXTY};BYSECOND=1,2,3;UNTIL=20200101",
    "RRULE:FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=-1\nEXDATE:"
    + ",".join(f"{year}1231T090000" for year in range(1970, 2085)),
]


MOST_STEPS = 300_000


def steps(act: Callable[[], object]) -> int:
    taken = 0

    def counted(*_: object) -> None:
        nonlocal taken
        taken += 1

    sys.setprofile(counted)
    try:
        act()
    except InvalidSchedule:
        pass
    finally:
        sys.setprofile(None)
    return taken


@pytest.mark.parametrize("text", ORDINARY)
def test_the_next_firing_costs_little_however_long_ago_a_rule_started(text: str) -> None:
    rule, moment = Rule.parse(NEW_YORK_1970 + text), datetime(2180, 2, 29, 17, tzinfo=UTC)
    rule.after(moment)
    assert steps(lambda: rule.after(moment)) < 300


@pytest.mark.parametrize("text", COSTLY)
def test_no_rule_costs_much(text: str) -> None:
    forget_everything()
    assert steps(lambda: Rule.parse(NEW_YORK_1970 + text)) < MOST_STEPS
    try:
        rule = Rule.parse(NEW_YORK_1970 + text)
    except InvalidSchedule:
        return
    assert steps(lambda: rule.after(datetime(2030, 1, 1, tzinfo=UTC))) < MOST_STEPS


words = st.sampled_from(
    [
        *[
            "DTSTART",
            "EXDATE",
            "RRULE",
            "TZID=",
            ":",
            ";",
            "=",
            ",",
            "\n",
            "\r\n",
            "Europe/Berlin",
            "20270101",
            "T090000",
        ],
        *["FREQ=", "INTERVAL=", "COUNT=", "UNTIL=", "BYDAY=", "BYHOUR=", "BYSETPOS=", "BYMONTHDAY=", "BYWEEKNO=", "MO"],
        *[
            "SECONDLY",
            "HOURLY",
            "WEEKLY",
            "MONTHLY",
            "YEARLY",
            "1",
            "-1",
            "0",
            "5",
            "31",
            "366",
            "9999999",
            "Z",
            "-1FR",
        ],
    ]
)
texts = st.text(max_size=60) | st.lists(words, max_size=20).map("".join)
places = st.tuples(st.integers(0, 100), st.integers(0, 3), st.text(max_size=3) | words)


@EVERY_TIME_THE_SAME
@given(texts)
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    assert steps(lambda: Rule.parse(text).anchored(datetime(2027, 1, 1, tzinfo=UTC))) < MOST_STEPS


@EVERY_TIME_THE_SAME
@given(st.sampled_from([*Frequency]).flatmap(rules), starts, places)
def test_a_mangled_rule_is_a_rule_or_refused(text: str, start: datetime, place: tuple[int, int, str]) -> None:
    at, cut, put = place
    whole = written(text, start)
    assert steps(lambda: Rule.parse(whole[:at] + put + whole[at + cut :], "Europe/Berlin")) < MOST_STEPS


exceptions = st.lists(
    st.builds(
        "EXDATE{}".format,
        st.tuples(
            st.sampled_from([":{}", ":{}Z", ";TZID=Asia/Tokyo:{}", ":20270101T000000,{}"]),
            starts.map(lambda moment: f"{moment:%Y%m%dT%H%M%S}"),
        ).map(lambda pair: pair[0].format(pair[1])),
    ),
    max_size=3,
)


@EVERY_TIME_THE_SAME
@given(st.sampled_from([*Frequency]).flatmap(rules), starts, zones, exceptions)
def test_the_text_of_a_rule_reads_as_the_same_rule(text: str, start: datetime, zone: str, excepted: list[str]) -> None:
    rule = parsed("\n".join([written(text, start), *excepted]), zone)
    again = Rule.parse(rule.text, zone)
    assert again == rule and again.text == rule.text
    assert list(islice(firings(again), 3)) == list(islice(firings(rule), 3))


def test_a_rule_that_its_start_makes_too_long_is_refused_with_it() -> None:
    hours = ",".join(["9"] * 990)
    assert Rule.parse(f"FREQ=DAILY;BYHOUR={hours}").text == "RRULE:FREQ=DAILY;BYHOUR=9"
    dates = ",".join(f"{year}0101T090000" for year in range(1970, 2093))
    rule = Rule.parse(f"RRULE:FREQ=DAILY\nEXDATE:{dates}")
    with pytest.raises(InvalidSchedule, match="characters long, DTSTART included"):
        rule.anchored(datetime(2027, 1, 1, tzinfo=UTC))


# What is said about it.

SENTENCES = [
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;COUNT=10",
     "Every 2 weeks on Monday and Friday at 09:00 (Asia/Tokyo), 10 times"),
    ("FREQ=DAILY", "Every day at 09:00 (Asia/Tokyo)"),
    ("FREQ=DAILY;BYHOUR=9,17;UNTIL=20271231", "Every day at 09:00 and 17:00 (Asia/Tokyo), until 2027-12-31 ends"),
    ("FREQ=DAILY;UNTIL=20271231T120000Z", "Every day at 09:00 (Asia/Tokyo), until 2027-12-31 12:00 UTC"),
    ("FREQ=DAILY;BYMONTH=6,7,8", "Every day from June through August at 09:00 (Asia/Tokyo)"),
    ("FREQ=DAILY;BYHOUR=9,10,11,12;BYMINUTE=0,15,30,45", "Every day at 16 times from 09:00 to 12:45 (Asia/Tokyo)"),
    ("RRULE:FREQ=DAILY\nEXDATE:20270105T090000", "Every day at 09:00 (Asia/Tokyo), except 2027-01-05 09:00"),
    ("FREQ=WEEKLY", "Every week on Monday at 09:00 (Asia/Tokyo)"),
    ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "Every week on Monday through Friday at 09:00 (Asia/Tokyo)"),
    ("FREQ=WEEKLY;BYDAY=MO;BYMONTH=1", "Every week on Monday in January at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY", "Every month on the 4th of the month at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY;BYMONTHDAY=1,15,-1",
     "Every month on the 1st, the 15th and the last day of the month at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY;BYDAY=-1FR", "Every month on the last Friday of the month at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY;BYDAY=1MO,-2FR",
     "Every month on the second last Friday and the first Monday of the month at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
     "Every month on the 13th of the month if it falls on Friday at 09:00 (Asia/Tokyo)"),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
     "Every month on Monday through Friday at 09:00, only the last of each month (Asia/Tokyo)"),
    ("FREQ=YEARLY", "Every year on the 4th of January at 09:00 (Asia/Tokyo)"),
    ("FREQ=YEARLY;BYDAY=1MO;BYMONTH=9", "Every year on the first Monday of September at 09:00 (Asia/Tokyo)"),
    ("FREQ=YEARLY;BYDAY=20MO", "Every year on the 20th Monday of the year at 09:00 (Asia/Tokyo)"),
    ("FREQ=YEARLY;BYYEARDAY=100,-1", "Every year on the 100th day and the last day of the year at 09:00 (Asia/Tokyo)"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "Every year in the 20th week of the year on Monday at 09:00 (Asia/Tokyo)"),
    ("FREQ=HOURLY;INTERVAL=3", "Every 3 hours (Asia/Tokyo)"),
    ("FREQ=HOURLY;BYMINUTE=0,30;BYHOUR=9,10,11,12",
     "Every hour at minutes 0 and 30 of hours 9 through 12 (Asia/Tokyo)"),
    ("FREQ=MINUTELY;INTERVAL=15;BYHOUR=9,10,11;BYDAY=MO,TU,WE,TH,FR",
     "Every 15 minutes on Monday through Friday during hours 9 through 11 (Asia/Tokyo)"),
    ("FREQ=SECONDLY;INTERVAL=1000;COUNT=1", "Every 1,000 seconds (Asia/Tokyo), once"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), SENTENCES)
def test_a_rule_in_words(text: str, sentence: str) -> None:
    assert describe(Rule.parse(f"DTSTART;TZID=Asia/Tokyo:20270104T090000\n{text}")) == sentence


def test_what_only_a_start_would_tell_is_left_out() -> None:
    assert describe(Rule.parse("FREQ=WEEKLY;BYDAY=MO", "Europe/Berlin")) == "Every week on Monday (Europe/Berlin)"
    assert describe(Rule.parse("FREQ=MONTHLY")) == "Every month (UTC)"


@EVERY_TIME_THE_SAME
@given(st.sampled_from([*Frequency]).flatmap(rules), starts)
def test_every_rule_has_a_sentence(text: str, start: datetime) -> None:
    assert describe(parsed(written(text, start))).startswith("Every ")
