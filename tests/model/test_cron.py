"""What cron expressions mean, as tables to read; then what holds for all of them."""

from __future__ import annotations

import calendar
import gc
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rota.model.cron import Cron, DstFold, DstGap
from rota.model.errors import InvalidSchedule

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=300)
ZULU = ZoneInfo("UTC")


NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
HAVANA = ZoneInfo("America/Havana")
APIA = ZoneInfo("Pacific/Apia")
KWAJALEIN = ZoneInfo("Pacific/Kwajalein")
MONROVIA = ZoneInfo("Africa/Monrovia")


def firings(
    text: str,
    since: str,
    zone: ZoneInfo = ZULU,
    *,
    dialect: str = "unix",
    gap: DstGap = DstGap.SHIFT,
    fold: DstFold | None = None,
) -> list[datetime]:
    """The next four at most, in local time."""
    cron, found = Cron.parse(text, dialect=dialect), [datetime.fromisoformat(since).replace(tzinfo=zone)]
    while len(found) < 5 and (moment := cron.after(found[-1], zone, dst_gap=gap, dst_fold=fold)):
        found.append(moment.astimezone(zone))
    return found[1:]


def shown(moments: list[datetime], form: str) -> str:
    return ", ".join(f"{moment:{form}}" for moment in moments)


NUMBERS = [
    # minutes and hours
    ("* * * * *", "2026-01-01 00:00", "2026-01-01 00:01, 2026-01-01 00:02, 2026-01-01 00:03, 2026-01-01 00:04"),
    ("*/15 * * * *", "2026-01-01 00:20", "2026-01-01 00:30, 2026-01-01 00:45, 2026-01-01 01:00, 2026-01-01 01:15"),
    ("5/15 * * * *", "2026-01-01 00:20", "2026-01-01 00:35, 2026-01-01 00:50, 2026-01-01 01:05, 2026-01-01 01:20"),
    ("5-50/20 * * * *", "2026-01-01 00:20", "2026-01-01 00:25, 2026-01-01 00:45, 2026-01-01 01:05, 2026-01-01 01:25"),
    ("0,30 9,17 * * *", "2026-01-01 09:10", "2026-01-01 09:30, 2026-01-01 17:00, 2026-01-01 17:30, 2026-01-02 09:00"),
    ("05 04 * * *", "2026-01-01 00:00", "2026-01-01 04:05, 2026-01-02 04:05, 2026-01-03 04:05, 2026-01-04 04:05"),
    ("*/60 */24 * * *", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-05 00:00"),
    ("5-5/2 0 * * *", "2026-01-01 00:00", "2026-01-01 00:05, 2026-01-02 00:05, 2026-01-03 00:05, 2026-01-04 00:05"),
    # ranges that run past the end
    ("0 22-2/2 * * *", "2026-01-01 00:00", "2026-01-01 02:00, 2026-01-01 22:00, 2026-01-02 00:00, 2026-01-02 02:00"),
    ("58-1 7 * * *", "2026-01-01 07:00", "2026-01-01 07:01, 2026-01-01 07:58, 2026-01-01 07:59, 2026-01-02 07:00"),
    ("0 0 1 NOV-FEB *", "2026-01-15 00:00", "2026-02-01 00:00, 2026-11-01 00:00, 2026-12-01 00:00, 2027-01-01 00:00"),
    ("0 0 30-1 * *", "2026-02-02 00:00", "2026-03-01 00:00, 2026-03-30 00:00, 2026-03-31 00:00, 2026-04-01 00:00"),
    ("0 0 * * FRI-MON", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-05 00:00"),
    # seconds and years
    ("5/30 0 0 1 1 ? 2026", "2026-01-01 00:00", "2026-01-01 00:00:05, 2026-01-01 00:00:35"),
    ("59 59 23 31 12 ? 2026,2028", "2026-01-01 00:00", "2026-12-31 23:59:59, 2028-12-31 23:59:59"),
    ("0 0 0 1 1 ? 2027-2029/2", "2026-06-01 00:00", "2027-01-01 00:00, 2029-01-01 00:00"),
    ("0 0 0 1 1 ? 1970", "2026-06-01 00:00", ""),
    ("0 0 0 1 1 ? *", "2199-06-01 00:00", "2200-01-01 00:00, 2201-01-01 00:00, 2202-01-01 00:00, 2203-01-01 00:00"),
    # macros
    ("@hourly", "2026-01-01 00:20", "2026-01-01 01:00, 2026-01-01 02:00, 2026-01-01 03:00, 2026-01-01 04:00"),
    ("@daily", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-05 00:00"),
    ("@midnight", "2026-01-01 00:00", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-05 00:00"),
    ("@Weekly", "2026-01-01 00:00", "2026-01-04 00:00, 2026-01-11 00:00, 2026-01-18 00:00, 2026-01-25 00:00"),
    ("@monthly", "2026-01-01 00:00", "2026-02-01 00:00, 2026-03-01 00:00, 2026-04-01 00:00, 2026-05-01 00:00"),
    ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00, 2028-01-01 00:00, 2029-01-01 00:00, 2030-01-01 00:00"),
    ("@ANNUALLY", "2026-01-01 00:00", "2027-01-01 00:00, 2028-01-01 00:00, 2029-01-01 00:00, 2030-01-01 00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "since", "expected"), NUMBERS)
def test_numbers_steps_ranges_and_macros(text: str, since: str, expected: str) -> None:
    assert shown(firings(text, since), "%Y-%m-%d %H:%M:%S").replace(":00,", ",").removesuffix(":00") == expected


DAYS = [
    # Sunday is 0 and 7; ranges may end in either
    ("? * 0", "2026-01-01", "Sun 2026-01-04, Sun 2026-01-11, Sun 2026-01-18, Sun 2026-01-25"),
    ("? * 7", "2026-01-01", "Sun 2026-01-04, Sun 2026-01-11, Sun 2026-01-18, Sun 2026-01-25"),
    ("? * 5-7", "2026-01-01", "Fri 2026-01-02, Sat 2026-01-03, Sun 2026-01-04, Fri 2026-01-09"),
    ("? * 6-0", "2026-01-01", "Sat 2026-01-03, Sun 2026-01-04, Sat 2026-01-10, Sun 2026-01-11"),
    ("? * 7-1", "2026-01-01", "Sun 2026-01-04, Mon 2026-01-05, Sun 2026-01-11, Mon 2026-01-12"),
    ("? * 0-7", "2026-01-01", "Fri 2026-01-02, Sat 2026-01-03, Sun 2026-01-04, Mon 2026-01-05"),
    ("? * sun-sun", "2026-01-01", "Sun 2026-01-04, Sun 2026-01-11, Sun 2026-01-18, Sun 2026-01-25"),
    ("? * Mon/2", "2026-01-01", "Fri 2026-01-02, Mon 2026-01-05, Wed 2026-01-07, Fri 2026-01-09"),
    ("? * 1-7/2", "2026-01-01", "Fri 2026-01-02, Sun 2026-01-04, Mon 2026-01-05, Wed 2026-01-07"),
    # both days restricted: either will do
    ("13 * FRI", "2026-01-01", "Fri 2026-01-02, Fri 2026-01-09, Tue 2026-01-13, Fri 2026-01-16"),
    ("13 * FRI#2", "2026-02-14", "Fri 2026-03-13, Fri 2026-04-10, Mon 2026-04-13, Fri 2026-05-08"),
    ("1-31 * MON", "2026-01-01", "Fri 2026-01-02, Sat 2026-01-03, Sun 2026-01-04, Mon 2026-01-05"),
    # one of them with a star in front, or a plus: both must
    ("*/2 * MON", "2026-01-01", "Mon 2026-01-05, Mon 2026-01-19, Mon 2026-02-09, Mon 2026-02-23"),
    ("8-14 * */5", "2026-01-01", "Fri 2026-01-09, Sun 2026-01-11, Sun 2026-02-08, Fri 2026-02-13"),
    ("13 * +FRI", "2026-01-01", "Fri 2026-02-13, Fri 2026-03-13, Fri 2026-11-13, Fri 2027-08-13"),
    ("13 * ?", "2026-01-01", "Tue 2026-01-13, Fri 2026-02-13, Fri 2026-03-13, Mon 2026-04-13"),
    ("? * ?", "2026-01-01", "Fri 2026-01-02, Sat 2026-01-03, Sun 2026-01-04, Mon 2026-01-05"),
    # L: the last day, or a few before it
    ("L * ?", "2028-01-01", "Mon 2028-01-31, Tue 2028-02-29, Fri 2028-03-31, Sun 2028-04-30"),
    ("L-3 * ?", "2026-01-01", "Wed 2026-01-28, Wed 2026-02-25, Sat 2026-03-28, Mon 2026-04-27"),
    ("L-30 * ?", "2026-01-02", "Sun 2026-03-01, Fri 2026-05-01, Wed 2026-07-01, Sat 2026-08-01"),
    ("15,L * ?", "2026-01-01", "Thu 2026-01-15, Sat 2026-01-31, Sun 2026-02-15, Sat 2026-02-28"),
    # W: the weekday nearest to it in the same month
    ("15W * ?", "2026-02-01", "Mon 2026-02-16, Mon 2026-03-16, Wed 2026-04-15, Fri 2026-05-15"),
    ("14W * ?", "2026-02-01", "Fri 2026-02-13, Fri 2026-03-13, Tue 2026-04-14, Thu 2026-05-14"),
    ("1W 8 ?", "2026-01-01", "Mon 2026-08-03, Mon 2027-08-02, Tue 2028-08-01, Wed 2029-08-01"),
    ("31W * ?", "2026-01-01", "Fri 2026-01-30, Tue 2026-03-31, Fri 2026-05-29, Fri 2026-07-31"),
    ("LW * ?", "2026-01-01", "Fri 2026-01-30, Fri 2026-02-27, Tue 2026-03-31, Thu 2026-04-30"),
    ("L-1W * ?", "2026-01-01", "Fri 2026-01-30, Fri 2026-02-27, Mon 2026-03-30, Wed 2026-04-29"),
    ("1w,15W * ?", "2026-08-01", "Mon 2026-08-03, Fri 2026-08-14, Tue 2026-09-01, Tue 2026-09-15"),
    # #: the nth such weekday; L: the last one
    ("? * FRI#2", "2026-01-01", "Fri 2026-01-09, Fri 2026-02-13, Fri 2026-03-13, Fri 2026-04-10"),
    ("? * 5#2", "2026-01-01", "Fri 2026-01-09, Fri 2026-02-13, Fri 2026-03-13, Fri 2026-04-10"),
    ("? * 0#1,7#2", "2026-01-01", "Sun 2026-01-04, Sun 2026-01-11, Sun 2026-02-01, Sun 2026-02-08"),
    ("? * MON#5", "2026-01-01", "Mon 2026-03-30, Mon 2026-06-29, Mon 2026-08-31, Mon 2026-11-30"),
    ("? * 5L", "2026-01-01", "Fri 2026-01-30, Fri 2026-02-27, Fri 2026-03-27, Fri 2026-04-24"),
    ("? * friL", "2026-01-01", "Fri 2026-01-30, Fri 2026-02-27, Fri 2026-03-27, Fri 2026-04-24"),
    ("? * FRI#L", "2026-01-01", "Fri 2026-01-30, Fri 2026-02-27, Fri 2026-03-27, Fri 2026-04-24"),
    ("? * MON,FRI#L", "2026-01-20", "Mon 2026-01-26, Fri 2026-01-30, Mon 2026-02-02, Mon 2026-02-09"),
    # leap days, also over a century without one
    ("29 2 ?", "2026-01-01", "Tue 2028-02-29, Sun 2032-02-29, Fri 2036-02-29, Wed 2040-02-29"),
    ("29 2 ?", "2096-03-01", "Fri 2104-02-29, Wed 2108-02-29, Mon 2112-02-29, Sat 2116-02-29"),
    ("*/28 2 TUE#5", "2060-01-01", "Tue 2084-02-29, Tue 2124-02-29, Tue 2152-02-29, Tue 2180-02-29"),
    ("? 2 MON#5", "2026-01-01", "Mon 2044-02-29, Mon 2072-02-29, Mon 2112-02-29, Mon 2140-02-29"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "since", "expected"), DAYS)
def test_days(text: str, since: str, expected: str) -> None:
    assert shown(firings(f"0 0 {text}", since), "%a %Y-%m-%d") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("? * 1", "Sun 2026-01-04, Sun 2026-01-11, Sun 2026-01-18, Sun 2026-01-25"),
        ("? * 2-6", "Fri 2026-01-02, Mon 2026-01-05, Tue 2026-01-06, Wed 2026-01-07"),
        ("? * 7-2", "Sat 2026-01-03, Sun 2026-01-04, Mon 2026-01-05, Sat 2026-01-10"),
        ("? * 6#2", "Fri 2026-01-09, Fri 2026-02-13, Fri 2026-03-13, Fri 2026-04-10"),
        ("? * 6L", "Fri 2026-01-30, Fri 2026-02-27, Fri 2026-03-27, Fri 2026-04-24"),
        ("? * MON-FRI", "Fri 2026-01-02, Mon 2026-01-05, Tue 2026-01-06, Wed 2026-01-07"),
    ],
)
def test_quartz_counts_weekdays_from_one(text: str, expected: str) -> None:
    assert shown(firings(f"0 0 {text}", "2026-01-01", dialect="quartz"), "%a %Y-%m-%d") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 12 * * ?", "2026-01-01 12:00, 2026-01-02 12:00, 2026-01-03 12:00, 2026-01-04 12:00"),
        ("0 0 8 * * ?", "2026-01-01 08:00, 2026-01-02 08:00, 2026-01-03 08:00, 2026-01-04 08:00"),
        ("0 0 12 1 * ?", "2026-01-01 12:00, 2026-02-01 12:00, 2026-03-01 12:00, 2026-04-01 12:00"),
        ("0 0 9-17 * * ?", "2026-01-01 09:00, 2026-01-01 10:00, 2026-01-01 11:00, 2026-01-01 12:00"),
        ("0 0/30 * * * ?", "2026-01-01 00:30, 2026-01-01 01:00, 2026-01-01 01:30, 2026-01-01 02:00"),
        ("0 0 10 ? * MON-FRI", "2026-01-01 10:00, 2026-01-02 10:00, 2026-01-05 10:00, 2026-01-06 10:00"),
    ],
)
@pytest.mark.parametrize("dialect", ["unix", "quartz"])
def test_the_examples_of_the_cron_guide(text: str, expected: str, dialect: str) -> None:
    assert shown(firings(text, "2026-01-01 00:00", dialect=dialect), "%Y-%m-%d %H:%M") == expected


SHIFT, SKIP, AT_TRANSITION = DstGap.SHIFT, DstGap.SKIP, DstGap.AT_TRANSITION
FIRST, SECOND, BOTH = DstFold.FIRST, DstFold.SECOND, DstFold.BOTH

GAPS = [
    # New York: 02:00 is 03:00 on 8 March 2026
    ("30 2 * * *", NEW_YORK, "2026-03-07 12:00", SHIFT, "08 03:30, 09 02:30, 10 02:30, 11 02:30"),
    ("30 2 * * *", NEW_YORK, "2026-03-07 12:00", SKIP, "09 02:30, 10 02:30, 11 02:30, 12 02:30"),
    ("30 2 * * *", NEW_YORK, "2026-03-07 12:00", AT_TRANSITION, "08 03:00, 09 02:30, 10 02:30, 11 02:30"),
    # a shifted firing and a regular one at the same instant are one
    ("30 2,3 * * *", NEW_YORK, "2026-03-07 12:00", SHIFT, "08 03:30, 09 02:30, 09 03:30, 10 02:30"),
    ("0 2,3 * * *", NEW_YORK, "2026-03-07 12:00", AT_TRANSITION, "08 03:00, 09 02:00, 09 03:00, 10 02:00"),
    # and otherwise they interleave
    ("45 2 * * *", NEW_YORK, "2026-03-07 12:00", SHIFT, "08 03:45, 09 02:45, 10 02:45, 11 02:45"),
    ("15,45 2 * * *", NEW_YORK, "2026-03-07 12:00", SHIFT, "08 03:15, 08 03:45, 09 02:15, 09 02:45"),
    ("*/40 2,3 * * *", NEW_YORK, "2026-03-07 12:00", SHIFT, "08 03:00, 08 03:40, 09 02:00, 09 02:40"),
    ("20 2-3 * * *", NEW_YORK, "2026-03-07 12:00", AT_TRANSITION, "08 03:00, 08 03:20, 09 02:20, 09 03:20"),
    # every hour follows elapsed time, whatever is said about gaps
    ("30 * * * *", NEW_YORK, "2026-03-08 01:00", SHIFT, "08 01:30, 08 03:30, 08 04:30, 08 05:30"),
    ("30 * * * *", NEW_YORK, "2026-03-08 01:00", AT_TRANSITION, "08 01:30, 08 03:30, 08 04:30, 08 05:30"),
    ("0 0-23 * * *", NEW_YORK, "2026-03-08 01:00", SHIFT, "08 03:00, 08 04:00, 08 05:00, 08 06:00"),
    # only the night of the gap is asked for
    ("0 30 2 8 3 ? 2026", NEW_YORK, "2026-01-01 00:00", SHIFT, "08 03:30"),
    ("0 30 2 8 3 ? 2026", NEW_YORK, "2026-01-01 00:00", SKIP, ""),
    # Lord Howe: half an hour, 02:00 is 02:30
    ("15 2 * * *", LORD_HOWE, "2026-10-03 12:00", SHIFT, "04 02:45, 05 02:15, 06 02:15, 07 02:15"),
    ("15 2 * * *", LORD_HOWE, "2026-10-03 12:00", AT_TRANSITION, "04 02:30, 05 02:15, 06 02:15, 07 02:15"),
    ("15,45 2 * * *", LORD_HOWE, "2026-10-03 12:00", SHIFT, "04 02:45, 05 02:15, 05 02:45, 06 02:15"),
    ("15 * * * *", LORD_HOWE, "2026-10-04 01:00", SHIFT, "04 01:15, 04 03:15, 04 04:15, 04 05:15"),
    # Sao Paulo: the day had no midnight
    ("0 0 * * *", SAO_PAULO, "2018-11-03 12:00", SHIFT, "04 01:00, 05 00:00, 06 00:00, 07 00:00"),
    ("0 0 * * *", SAO_PAULO, "2018-11-03 12:00", SKIP, "05 00:00, 06 00:00, 07 00:00, 08 00:00"),
    ("30 0 4 * ?", SAO_PAULO, "2018-11-03 12:00", AT_TRANSITION, "04 01:00, 04 00:30, 04 00:30, 04 00:30"),
    # Samoa: 30 December 2011 was left out
    ("0 12 30 * ?", APIA, "2011-12-01 00:00", SHIFT, "31 12:00, 30 12:00, 30 12:00, 30 12:00"),
    ("0 12 30 * ?", APIA, "2011-12-01 00:00", SKIP, "30 12:00, 30 12:00, 30 12:00, 30 12:00"),
    ("0 12 30 * ?", APIA, "2011-12-01 00:00", AT_TRANSITION, "31 00:00, 30 12:00, 30 12:00, 30 12:00"),
    ("0 12 * * *", APIA, "2011-12-29 00:00", SHIFT, "29 12:00, 31 12:00, 01 12:00, 02 12:00"),
    ("0 * * * *", APIA, "2011-12-29 22:00", SHIFT, "29 23:00, 31 00:00, 31 01:00, 31 02:00"),
    # Monrovia: 44 minutes and 30 seconds, from midnight on 7 January 1972
    ("20 0 * * *", MONROVIA, "1972-01-06 00:00", SHIFT, "06 00:20, 07 01:04:30, 08 00:20, 09 00:20"),
    ("20 0 * * *", MONROVIA, "1972-01-06 00:00", AT_TRANSITION, "06 00:20, 07 00:44:30, 08 00:20, 09 00:20"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "zone", "since", "gap", "expected"), GAPS)
def test_a_time_the_clocks_jump_over(text: str, zone: ZoneInfo, since: str, gap: DstGap, expected: str) -> None:
    assert (
        shown(firings(text, since, zone, gap=gap), "%d %H:%M:%S").replace(":00,", ",").removesuffix(":00") == expected
    )


FOLDS = [
    # New York: 02:00 is 01:00 again on 1 November 2026
    ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", None, "01 01:30-0400, 02 01:30-0500, 03 01:30-0500"),
    ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", FIRST, "01 01:30-0400, 02 01:30-0500, 03 01:30-0500"),
    ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", SECOND, "01 01:30-0500, 02 01:30-0500, 03 01:30-0500"),
    ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", BOTH, "01 01:30-0400, 01 01:30-0500, 02 01:30-0500"),
    ("0,30 1 * * *", NEW_YORK, "2026-10-31 12:00", BOTH, "01 01:00-0400, 01 01:30-0400, 01 01:00-0500"),
    ("0 2 * * *", NEW_YORK, "2026-10-31 12:00", BOTH, "01 02:00-0500, 02 02:00-0500, 03 02:00-0500"),
    # every hour follows elapsed time, unless told otherwise
    ("30 * * * *", NEW_YORK, "2026-11-01 00:40", None, "01 01:30-0400, 01 01:30-0500, 01 02:30-0500"),
    ("30 * * * *", NEW_YORK, "2026-11-01 00:40", FIRST, "01 01:30-0400, 01 02:30-0500, 01 03:30-0500"),
    ("30 * * * *", NEW_YORK, "2026-11-01 00:40", SECOND, "01 01:30-0500, 01 02:30-0500, 01 03:30-0500"),
    ("30 */2 * * *", NEW_YORK, "2026-11-01 00:40", None, "01 02:30-0500, 01 04:30-0500, 01 06:30-0500"),
    # only that hour is asked for, and the first one is over
    ("0 30 1 1 11 ? 2026", NEW_YORK, "2026-11-01 01:40", FIRST, ""),
    ("0 30 1 1 11 ? 2026", NEW_YORK, "2026-11-01 01:40", BOTH, "01 01:30-0500"),
    ("0 30 1 1 11 ? 2026", NEW_YORK, "2026-11-01 01:40", SECOND, "01 01:30-0500"),
    # Lord Howe: 02:00 is 01:30 again
    ("45 1 * * *", LORD_HOWE, "2026-04-04 12:00", BOTH, "05 01:45+1100, 05 01:45+1030, 06 01:45+1030"),
    ("45 1 * * *", LORD_HOWE, "2026-04-04 12:00", SECOND, "05 01:45+1030, 06 01:45+1030, 07 01:45+1030"),
    ("*/20 * * * *", LORD_HOWE, "2026-04-05 01:20", None, "05 01:40+1100, 05 01:40+1030, 05 02:00+1030"),
    # Havana: 01:00 is midnight again, so the day begins twice
    ("0 0 * * *", HAVANA, "2026-10-31 12:00", None, "01 00:00-0400, 02 00:00-0500, 03 00:00-0500"),
    ("0 0 * * *", HAVANA, "2026-10-31 12:00", BOTH, "01 00:00-0400, 01 00:00-0500, 02 00:00-0500"),
    # Sao Paulo: midnight was 23:00 the day before, so the day ended twice
    ("30 23 17 * ?", SAO_PAULO, "2018-02-01 00:00", BOTH, "17 23:30-0200, 17 23:30-0300, 17 23:30-0300"),
    ("30 23 17 * ?", SAO_PAULO, "2018-02-01 00:00", None, "17 23:30-0200, 17 23:30-0300, 17 23:30-0300"),
    ("30 23 17 * ?", SAO_PAULO, "2018-02-01 00:00", SECOND, "17 23:30-0300, 17 23:30-0300, 17 23:30-0300"),
    # New York got its zone on 18 November 1883: at 12:03:58 it was noon again
    ("1 12 * * *", NEW_YORK, "1883-11-18 00:00", BOTH, "18 12:01-045602, 18 12:01-0500, 19 12:01-0500"),
    # Kwajalein was on the wrong side of the date line: 23 hours came twice
    ("0 12 * * *", KWAJALEIN, "1969-09-29 13:00", BOTH, "30 12:00+1100, 30 12:00-1200, 01 12:00-1200"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "zone", "since", "fold", "expected"), FOLDS)
def test_a_time_that_comes_twice(text: str, zone: ZoneInfo, since: str, fold: DstFold | None, expected: str) -> None:
    assert shown(firings(text, since, zone, fold=fold)[:3], "%d %H:%M%z") == expected


COUNTS = [
    # a day without the planner: what fell due at the last moment is missed as well, what it has seen before is not
    ("* * * * * *", ZULU, "2026-05-04 03:02:01", "2026-05-05 03:02:00", SHIFT, None, 86_399),
    ("* * * * * *", ZULU, "2026-05-04 03:02:01", "2026-05-05 03:02:01", SHIFT, None, 86_400),
    ("* * * * * *", ZULU, "2026-05-04 03:02:01.5", "2026-05-05 03:02:01.4", SHIFT, None, 86_400),
    ("0 9 * * MON-FRI", ZULU, "2026-05-04 09:00", "2026-05-08 09:00", SHIFT, None, 4),
    ("0 0 L * *", ZULU, "2026-01-01", "2028-03-01", SHIFT, None, 26),
    ("0 0 0 29 2 ? 2028-2100", ZULU, "2026-01-01", "2199-01-01", SHIFT, None, 18),
    # New York: a day of 23 hours, and one of 25
    ("* * * * * *", NEW_YORK, "2026-03-08", "2026-03-09", SHIFT, None, 82_800),
    ("* * * * * *", NEW_YORK, "2026-11-01", "2026-11-02", SHIFT, None, 90_000),
    ("* * * * * *", NEW_YORK, "2026-11-01", "2026-11-02", SHIFT, FIRST, 86_400),
    ("* * * * * *", NEW_YORK, "2026-11-01", "2026-11-02", SHIFT, SECOND, 86_400),
    # what the clocks jump over is moved, also to where something fires anyway; or left out; or is one
    ("* 0-2 * * *", NEW_YORK, "2026-03-08 01:00", "2026-03-09", SHIFT, None, 59 + 60 + 1),
    ("*/20 2,3 * * *", NEW_YORK, "2026-03-08 01:00", "2026-03-08 12:00", SHIFT, None, 3),
    ("*/20 2 * * *", NEW_YORK, "2026-03-08 01:00", "2026-03-08 12:00", SKIP, None, 0),
    ("*/20 2 * * *", NEW_YORK, "2026-03-08 01:00", "2026-03-08 12:00", AT_TRANSITION, None, 1),
    # Lord Howe: half an hour
    ("* * * * *", LORD_HOWE, "2026-10-04", "2026-10-05", SHIFT, None, 1_410),
    ("* * * * *", LORD_HOWE, "2026-04-05", "2026-04-06", SHIFT, None, 1_470),
    # Samoa: the whole of a day
    ("* * * * *", APIA, "2011-12-29", "2012-01-01", SHIFT, None, 2_880),
    ("0 12 * * *", APIA, "2011-12-29", "2012-01-01", SHIFT, None, 2),
    ("0 12 30 * *", APIA, "2011-12-29", "2012-01-01", SHIFT, None, 1),
    # nothing between them
    ("* * * * * *", NEW_YORK, "2026-05-04 03:02:01", "2026-05-04 03:02:01", SHIFT, None, 0),
    ("* * * * * *", NEW_YORK, "2026-05-04 03:02:01.1", "2026-05-04 03:02:01.9", SHIFT, None, 0),
    ("* * * * * *", NEW_YORK, "2026-05-04 03:02:01", "2026-05-04 03:02:00", SHIFT, None, 0),
    ("* * * * * *", NEW_YORK, "2026-05-04 03:02:01", "2020-01-01", SHIFT, None, 0),
    ("0 0 0 1 1 ? 1970", NEW_YORK, "2026-05-04", "2199-01-01", SHIFT, None, 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "zone", "after", "until", "gap", "fold", "expected"), COUNTS)
def test_how_often_it_fires_from_then_till_then(
    text: str, zone: ZoneInfo, after: str, until: str, gap: DstGap, fold: DstFold | None, expected: int
) -> None:
    begin, end = (datetime.fromisoformat(local).replace(tzinfo=zone).astimezone(UTC) for local in (after, until))
    assert Cron.parse(text).count(begin, end, zone, dst_gap=gap, dst_fold=fold) == expected


REFUSED = [
    ("", "has 0 fields"),
    ("* * * *", "has 4 fields; write 5"),
    ("* * * * * * * *", "has 8 fields"),
    ("60 * * * *", "minute: 60 is outside 0-59; write a number from 0 to 59"),
    ("60 * * * * *", "second: 60 is outside 0-59"),
    ("* 24 * * *", "hour: 24 is outside 0-23"),
    ("* * 0 * *", "day of month: 0 is outside 1-31"),
    ("* * 32W * *", "day of month: 32 is outside 1-31"),
    ("* * * 13 *", "month: 13 is outside 1-12"),
    ("* * * * 8", "day of week: 8 is outside 0-7"),
    ("0 0 0 1 1 ? 1969", "year: 1969 is outside 1970-2199"),
    ("0 0 0 1 1 ? 2030-2026", "year: 2030-2026 runs backwards"),
    ("MON * * * *", "minute: 'MON' is not understood"),
    ("* * * SUN *", "month: 'SUN' is not understood"),
    ("* * * * MONDAY", "day of week: 'MONDAY' is not understood; write a number from 0 to 7 (Sunday is 0"),
    ("H * * * *", "minute: 'H' is not understood"),
    ("1,,2 * * * *", "minute: a value is missing"),
    ("1- * * * *", "minute: a value is missing"),
    ("-1 * * * *", "minute: a value is missing"),
    ("1-2-3 * * * *", "minute: '2-3' is not understood"),
    ("*-5 * * * *", "minute: '*' is not understood"),
    ("*/0 * * * *", "minute: the step 0 is not possible; write a step from 1 to 60"),
    ("*/90 * * * *", "minute: the step 90 is not possible; write a step from 1 to 60"),
    ("*/x * * * *", "minute: the step 'X' is not a number"),
    ("*/5/5 * * * *", "minute: the step '5/5' is not a number"),
    ("* * +1 * MON", "day of month: '+1' is not understood"),
    ("* * 1 * MON,+TUE", "day of week: '+TUE' is not understood"),
    ("? * * * *", "minute: ? only stands for a day of month or a day of week; write *"),
    ("* * ?/2 * *", "day of month: '?' is not understood"),
    ("* * 1,? * *", "day of month: '?' is not understood"),
    ("* * L-0 * *", "day of month: L-0 is in no month; write L, or L-1 to L-30"),
    ("* * L-31 * *", "day of month: L-31 is in no month"),
    ("* * 1-5W * *", "day of month: '5W' is not understood"),
    ("* * W * *", "day of month: 'W' is not understood; write a number from 1 to 31, a range like 1-7, L,"),
    ("* * * * L", "day of week: L alone does not say which day; write FRI#L for the last Friday, or SAT for Saturdays"),
    ("* * * * 15W", "day of week: '15W' is not understood"),
    ("* * * * FRI#0", "day of week: FRI#0 is in no month; write FRI#1 to FRI#5"),
    ("* * * * FRI#6", "day of week: FRI#6 is in no month"),
    ("* * * * 1-5#2", "day of week: '1-5' is not understood"),
    ("@reboot", "@REBOOT is no macro of ours; write one of @hourly"),
    ("@daily @daily", "has 2 fields"),
    ("٣ * * * *", "has characters outside ASCII"),
    ("０ * * * *", "has characters outside ASCII"),
    ("* * * * * " * 101, "is 1,010 characters long; write at most 1,000"),
    # never
    ("0 0 30 2 *", "day of month: 30 never comes in month 2, so this would never fire; write a day that does, like L"),
    ("0 0 31 4,6,9,11 ?", "day of month: 31 never comes in month 4,6,9,11"),
    ("0 0 31W FEB ?", "day of month: 31W never comes in month FEB"),
    ("0 0 L-30 2 ?", "day of month: L-30 never comes in month 2"),
    ("0 0 0 29 2 ? 2026-2027", "day of month: 29 never comes in month 2 of 2026-2027"),
    ("0 0 0 ? 2 MON#5 2026", "day of week: MON#5 never comes in month 2 of 2026"),
    ("0 0 0 */29 2 SAT 2026", "day of month and day of week: */29 on SAT never comes in month 2 of 2026"),
    ("0 0 0 30 2 SAT#5 2026", "day of month and day of week: 30 or SAT#5 never comes in month 2 of 2026"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_what_cannot_be_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        Cron.parse(text)
    assert refusal.value.field == "schedule"
    assert refusal.value.problem.startswith(problem)


def test_the_quartz_dialect_has_no_day_zero() -> None:
    with pytest.raises(
        InvalidSchedule, match=re.escape("day of week: 0 is outside 1-7; write a number from 1 to 7 (Sunday is 1)")
    ):
        Cron.parse("* * * * 0", dialect="quartz")


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="no cron dialect 'jenkins'; write unix or quartz"):
        Cron.parse("* * * * *", dialect="jenkins")


def test_expressions_are_values() -> None:
    daily = Cron.parse("@daily")
    assert daily == Cron.parse("@daily")
    assert daily != Cron.parse("@daily", dialect="quartz")
    assert pickle.loads(pickle.dumps(daily)) == daily
    assert repr(daily) == "Cron(text='@daily', dialect='unix')"


def test_a_fraction_of_a_second_counts() -> None:
    daily = Cron.parse("@daily")
    just_before = datetime(2026, 1, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    assert daily.after(just_before, ZULU) == datetime(2026, 1, 2, tzinfo=UTC)
    assert daily.after(just_before + timedelta(microseconds=2), ZULU) == datetime(2026, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York", "Etc/GMT+12"])
@pytest.mark.parametrize("text", ["* * * * *", "@yearly", "0 0 29 2 ?"])
def test_time_has_two_ends(text: str, zone: str) -> None:
    first = Cron.parse(text).after(datetime.min.replace(tzinfo=ZoneInfo("Etc/GMT-14")), ZoneInfo(zone))
    assert first is not None
    assert first.year <= 4
    assert Cron.parse(text).after(datetime.max.replace(tzinfo=ZoneInfo("Etc/GMT+12")), ZoneInfo(zone)) is None
    assert Cron.parse(text).after(datetime.max.replace(tzinfo=UTC), ZoneInfo(zone)) is None


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT-14"])
def test_it_never_fires_in_the_year_10000(zone: str) -> None:
    for moment in (datetime(9999, 12, 31, 9, 59, tzinfo=UTC), datetime(9999, 12, 31, 10, 0, 30, tzinfo=UTC)):
        assert Cron.parse("* * * * *").after(moment, ZoneInfo(zone)) is None


def test_it_never_fires_in_the_year_0() -> None:
    first = Cron.parse("* * * * *").after(datetime.min.replace(tzinfo=UTC), ZoneInfo("Etc/GMT+12"))
    assert first == datetime(1, 1, 1, 12, tzinfo=UTC)


# From here on: what holds for every expression.

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def allows(text: str, local: datetime) -> bool:
    """The grammar again, as a question about one local time: slow, and nothing like the real thing."""
    fields = text.split()
    fields = ["0", *fields] if len(fields) == 5 else fields
    year = fields[6] if len(fields) == 7 else "*"
    return (
        _any(fields[0], local.second, 0, 59)
        and _any(fields[1], local.minute, 0, 59)
        and _any(fields[2], local.hour, 0, 23)
        and allows_day(fields[3], fields[4], fields[5], local.date())
        and _any(year, local.year, 1970, 2199)
    )


def allows_day(day_of_month: str, month: str, day_of_week: str, day: date) -> bool:
    if not _any(month, day.month, 1, 12, MONTHS):
        return False
    in_month = any(_is_day_of_month(item, day) for item in day_of_month.split(","))
    in_week = any(_is_day_of_week(item, day) for item in day_of_week.split(","))
    starred = day_of_month[0] in "*?" or day_of_week[0] in "*?"
    return (in_month and in_week) if starred else (in_month or in_week)


def _is_day_of_month(item: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if not item.endswith("W") and not item.startswith("L"):
        return _any(item.replace("?", "*"), day.day, 1, 31)
    target = last - int(item.strip("LW-") or 0) if item.startswith("L") else int(item[:-1])
    if not item.endswith("W"):
        return day.day == target
    weekdays = [d for d in range(1, last + 1) if date(day.year, day.month, d).weekday() < 5]
    return 1 <= target <= last and day.day == min(weekdays, key=lambda d: abs(d - target))


def _is_day_of_week(item: str, day: date) -> bool:
    weekday = (day.weekday() + 1) % 7
    name, _, nth = item.partition("#")
    if item.endswith("L"):
        name, nth = item.removesuffix("L").removesuffix("#"), "L"
    if not _any(name.replace("?", "*"), weekday, 0, 6, WEEKDAYS):
        return False
    if nth == "L":
        return (day + timedelta(days=7)).month != day.month
    return not nth or (day.day - 1) // 7 + 1 == int(nth)


def _any(text: str, value: int, low: int, high: int, names: tuple[str, ...] = ()) -> bool:
    return any(_is(item, value, low, high, names) for item in text.split(","))


def _is(item: str, value: int, low: int, high: int, names: tuple[str, ...]) -> bool:
    span, _, step = item.partition("/")
    start, _, end = span.partition("-")
    first = low if start == "*" else _number(start, low, names)
    last = _number(end, low, names) if end else high if step or start == "*" else first
    size = high - low + 1
    along = (value - first) % size
    return along <= (last - first) % size and along % int(step or 1) == 0


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    return names.index(text) + low if text in names else int(text)


def items(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    values = st.integers(low, high).map(str)
    if names:
        values |= st.sampled_from(names)
    steps = st.integers(1, high - low + 1)
    return st.one_of(
        st.just("*"),
        values,
        st.builds("{}-{}".format, values, values),
        st.builds("*/{}".format, steps),
        st.builds("{}/{}".format, values, steps),
        st.builds("{}-{}/{}".format, values, values, steps),
    )


def listed(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(item, min_size=1, max_size=3).map(",".join)


numbered_weekdays = st.integers(0, 6).map(str) | st.sampled_from(WEEKDAYS)
days_of_month = st.just("?") | listed(
    items(1, 31) | st.sampled_from(["L", "LW", "L-3", "L-27", "L-3W"]) | st.builds("{}W".format, st.integers(1, 31))
)
days_of_week = st.just("?") | listed(
    items(0, 6, WEEKDAYS)
    | st.builds("{}#{}".format, numbered_weekdays, st.sampled_from("12345L"))
    | st.builds("{}L".format, numbered_weekdays)
)
five_fields = st.tuples(
    listed(items(0, 59)), listed(items(0, 23)), days_of_month, listed(items(1, 12, MONTHS)), days_of_week
).map(" ".join)
expressions = five_fields | st.builds("{} {}".format, listed(items(0, 59)), five_fields)
moments = st.datetimes(datetime(1950, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC))
zones = st.sampled_from([ZULU, NEW_YORK, LORD_HOWE, SAO_PAULO, HAVANA, APIA, KWAJALEIN, MONROVIA])
gaps = st.sampled_from(DstGap)
folds = st.none() | st.sampled_from(DstFold)


def parsed(text: str) -> Cron:
    try:
        return Cron.parse(text)
    except InvalidSchedule as refusal:
        assert "never fire" in refusal.problem
        reject()


@EVERY_TIME_THE_SAME
@given(expressions, moments)
def test_it_fires_when_the_fields_allow_it(text: str, moment: datetime) -> None:
    firing = parsed(text).after(moment, ZULU)
    assert firing is not None
    assert firing > moment
    assert firing.tzinfo is UTC
    assert allows(text, firing)


@EVERY_TIME_THE_SAME
@given(expressions, moments, st.lists(st.integers(1, 999), min_size=10, max_size=10))
def test_it_misses_none(text: str, moment: datetime, permille: list[int]) -> None:
    firing = parsed(text).after(moment, ZULU)
    assert firing is not None
    between = [(moment + (firing - moment) * p / 1_000).replace(microsecond=0) for p in permille]
    assert not any(allows(text, other) for other in between if moment < other < firing)
    *_, day_of_month, month, day_of_week = text.split()
    skipped = [moment.date() + timedelta(days=n + 1) for n in range(min((firing.date() - moment.date()).days - 1, 800))]
    assert not any(allows_day(day_of_month, month, day_of_week, day) for day in skipped)


@EVERY_TIME_THE_SAME
@given(expressions, moments, st.timedeltas(timedelta(0), timedelta(days=3)), zones, gaps, folds)
def test_asking_later_never_gives_an_earlier_answer(
    text: str, moment: datetime, wait: timedelta, zone: ZoneInfo, gap: DstGap, fold: DstFold | None
) -> None:
    cron = parsed(text)
    firing = cron.after(moment, zone, dst_gap=gap, dst_fold=fold)
    later = cron.after(moment + wait, zone, dst_gap=gap, dst_fold=fold)
    assert firing is not None
    assert later is not None
    assert moment < firing <= later
    assert moment + wait < later
    assert firing == later or firing <= moment + wait


@EVERY_TIME_THE_SAME
@given(
    expressions, moments, st.sampled_from([ZoneInfo("Asia/Tokyo"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Etc/GMT+12")])
)
def test_without_transitions_a_zone_is_a_shift(text: str, moment: datetime, zone: ZoneInfo) -> None:
    moment = max(moment, datetime(1987, 1, 1, tzinfo=UTC))
    offset = moment.astimezone(zone).utcoffset()
    shifted = parsed(text).after(moment + (offset or timedelta(0)), ZULU)
    assert shifted is not None
    assert parsed(text).after(moment, zone) == shifted - (offset or timedelta(0))


@EVERY_TIME_THE_SAME
@given(expressions, moments, zones, gaps, folds)
def test_iterating_is_asking_again_and_again(
    text: str, moment: datetime, zone: ZoneInfo, gap: DstGap, fold: DstFold | None
) -> None:
    cron = parsed(text)
    iterated = cron.firings(moment, zone, dst_gap=gap, dst_fold=fold)
    assert list(islice(iterated, 50)) == list(islice(asked(cron, moment, zone, gap, fold), 50))


@pytest.mark.parametrize("zone", [ZULU, NEW_YORK, LORD_HOWE, SAO_PAULO, HAVANA, APIA], ids=str)
@pytest.mark.parametrize(("text", "gap", "fold"), [("7/20 * * * *", SHIFT, None), ("*/30 */2 * * *", SHIFT, BOTH)])
def test_iterating_is_asking_all_through_the_years(
    text: str, gap: DstGap, fold: DstFold | None, zone: ZoneInfo
) -> None:
    cron, moment, end = Cron.parse(text), datetime(2010, 12, 1, tzinfo=UTC), datetime(2012, 12, 1, tzinfo=UTC)
    iterated = takewhile(end.__gt__, cron.firings(moment, zone, dst_gap=gap, dst_fold=fold))
    assert list(iterated) == list(takewhile(end.__gt__, asked(cron, moment, zone, gap, fold)))


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York", "Etc/GMT+12", "Etc/GMT-14"])
@pytest.mark.parametrize("text", ["* * * * *", "0 */7 * * *", "0 0 L * *", "0 0 0 1 1 ? 2026"])
def test_iterating_is_asking_at_both_ends_of_time(text: str, zone: str) -> None:
    cron = Cron.parse(text)
    for moment in (datetime.min.replace(tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)):
        iterated = cron.firings(moment, ZoneInfo(zone))
        assert list(islice(iterated, 5_000)) == list(islice(asked(cron, moment, ZoneInfo(zone)), 5_000))


years = st.sampled_from(["*", "2011/2", "2010-2012", "2026,2028"])
all_expressions = expressions | st.builds("{} {} {}".format, listed(items(0, 59)), five_fields, years)
# Changes of the clocks, and at last a moment at which the search goes from one half-year to the next.
turns = st.sampled_from(
    [
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 11, 1, 6, tzinfo=UTC),
        datetime(2026, 4, 4, 15, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
        datetime(2018, 11, 4, 3, tzinfo=UTC),
        datetime(2011, 12, 30, 10, tzinfo=UTC),
        datetime(1972, 1, 7, tzinfo=UTC),
        datetime(2026, 5, 19, 4, 3, 12, tzinfo=UTC),
    ]
)
waits = st.one_of(
    *(st.timedeltas(timedelta(0), timedelta(**{unit: 3})) for unit in ("seconds", "hours", "days")),
    st.timedeltas(timedelta(0), timedelta(days=400)),
)
starts = moments | st.builds(lambda turn, wait: turn - wait, turns, waits)


@settings(EVERY_TIME_THE_SAME, max_examples=500)
@given(all_expressions, starts, waits, zones, gaps, folds)
def test_counting_is_iterating(
    text: str, after: datetime, wait: timedelta, zone: ZoneInfo, gap: DstGap, fold: DstFold | None
) -> None:
    cron, until, most = parsed(text), after + wait, 2_000
    iterated = takewhile(until.__ge__, cron.firings(after, zone, dst_gap=gap, dst_fold=fold))
    found = list(islice(iterated, most))
    until = until if len(found) < most else found[-1]
    assert cron.count(after, until, zone, dst_gap=gap, dst_fold=fold) == len(found)


@EVERY_TIME_THE_SAME
@given(all_expressions, starts, waits, waits, zones, gaps, folds)
def test_counts_add_up(
    text: str,
    after: datetime,
    wait: timedelta,
    longer: timedelta,
    zone: ZoneInfo,
    gap: DstGap,
    fold: DstFold | None,
) -> None:
    cron, between, until = parsed(text), after + wait, after + wait + longer

    def count(begin: datetime, end: datetime) -> int:
        return cron.count(begin, end, zone, dst_gap=gap, dst_fold=fold)

    assert count(after, until) == count(after, between) + count(between, until)
    assert count(until, after) == 0


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York", "Etc/GMT+12", "Etc/GMT-14"])
@pytest.mark.parametrize("text", ["* * * * *", "0 */7 * * *", "0 0 L * *", "0 0 1 1 *"])
def test_counting_is_iterating_at_both_ends_of_time(text: str, zone: str) -> None:
    cron, days = Cron.parse(text), timedelta(days=3)
    for after in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC) - days):
        iterated = takewhile((after + days).__ge__, cron.firings(after, ZoneInfo(zone)))
        assert cron.count(after, after + days, ZoneInfo(zone)) == len(list(iterated))


@pytest.mark.parametrize(("zone", "missing"), [("UTC", 0), ("Etc/GMT+12", 12), ("Etc/GMT-14", 14)])
def test_all_hours_there_are_can_be_counted(zone: str, missing: int) -> None:
    begin, end = (
        datetime.min.replace(tzinfo=ZoneInfo("Etc/GMT-14")),
        datetime.max.replace(tzinfo=ZoneInfo("Etc/GMT+12")),
    )
    assert Cron.parse("@hourly").count(begin, end, ZoneInfo(zone)) == 24 * date.max.toordinal() - missing


@pytest.mark.parametrize("text", ["* * * * * *", "* * 9-17 * * MON-FRI", "0 0 29 2 ?"])
@pytest.mark.parametrize("zone", [ZULU, NEW_YORK], ids=str)
def test_counting_takes_no_longer_for_many(text: str, zone: ZoneInfo) -> None:
    cron, after = Cron.parse(text), datetime(2026, 5, 4, tzinfo=UTC)
    assert seconds_of(lambda: cron.count(after, after.replace(year=2036), zone)) < 0.1


def asked(
    cron: Cron, moment: datetime, zone: ZoneInfo, gap: DstGap = SHIFT, fold: DstFold | None = None
) -> Iterator[datetime]:
    firing = cron.after(moment, zone, dst_gap=gap, dst_fold=fold)
    while firing is not None:
        yield firing
        firing = cron.after(firing, zone, dst_gap=gap, dst_fold=fold)


cron_like = st.text(alphabet="0123456789*/,-?LW#@ JANFRISUdaily", max_size=60)
fields_like = st.lists(st.text(alphabet="0123456789*/,-?LW#FRI", min_size=1, max_size=8), min_size=5, max_size=7)


@settings(EVERY_TIME_THE_SAME, max_examples=1_000)
@given(st.text() | cron_like | fields_like.map(" ".join), st.sampled_from(["unix", "quartz"]), moments, zones)
def test_any_text_is_answered_or_refused_at_once(text: str, dialect: str, moment: datetime, zone: ZoneInfo) -> None:
    def ask() -> None:
        try:
            Cron.parse(text, dialect=dialect).after(moment, zone)
        except InvalidSchedule as refusal:
            assert refusal.field == "schedule"
            assert len(refusal.problem) < 300

    assert seconds_of(ask) < 0.1


def seconds_of(ask: Callable[[], object]) -> float:
    """Of computing, not of waiting for a core; without the collector, which has all of hypothesis to walk through."""
    gc.disable()
    try:
        begin = process_time()
        ask()
        return process_time() - begin
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "text",
    [
        "* * " + ",".join(["15W"] * 240) + " * *",
        "* * * * " + ",".join(["5#5"] * 240),
        "*/1," * 200 + "* * * * *",
        "0 0 0 L-28 2 ? " + ",".join(str(year) for year in range(2001, 2160) if year % 4),
        "0" * 900 + "5 * * * *",
        "* * * * *" + " " * 991,
        "," * 1_000,
        "/" * 996 + " * * * *",
        "9" * 1_000_000,
    ],
)
def test_the_worst_texts_are_answered_or_refused_at_once(text: str) -> None:
    def ask() -> None:
        try:
            Cron.parse(text).after(datetime(2026, 1, 1, tzinfo=UTC), NEW_YORK)
        except InvalidSchedule as refusal:
            assert len(refusal.problem) < 300

    assert seconds_of(ask) < 0.1


@pytest.mark.parametrize(
    "text", ["0 0 29 2 ?", "0 0 */28 2 TUE#5", "0 0 13 * FRI#2", "0 0 0 29 2 ? 2196", "0 0 0 1 1 ? 1970"]
)
@pytest.mark.parametrize("year", [1, 1582, 2026, 2096, 9000, 9996])
def test_the_rarest_firings_are_found_at_once(text: str, year: int) -> None:
    cron, moment = Cron.parse(text), datetime(year, 3, 1, tzinfo=UTC)
    assert seconds_of(lambda: cron.after(moment, NEW_YORK)) < 0.1
    assert seconds_of(lambda: next(cron.firings(moment, NEW_YORK), None)) < 0.1
