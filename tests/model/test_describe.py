"""What the sentence for a cron expression says, as a table to read; then what holds for all of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.cron import Cron
from rota.model.cron_fields import Pattern
from rota.model.describe import describe, describe_interval
from rota.model.errors import InvalidSchedule

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=500)


SENTENCES = [
    # minutes
    ("* * * * *", "Every minute"),
    ("*/15 * * * *", "Every 15 minutes"),
    ("0,30 * * * *", "Every 30 minutes"),
    ("0 * * * *", "Every hour"),
    ("30 * * * *", "At 30 minutes past every hour"),
    ("1 * * * *", "At 1 minute past every hour"),
    ("5,20,50 * * * *", "At 5, 20 and 50 minutes past every hour"),
    ("5/15 * * * *", "At 5, 20, 35 and 50 minutes past every hour"),
    ("*/7 * * * *", "Every 7 minutes from 0 through 56 past every hour"),
    ("10-20 * * * *", "Every minute from 10 through 20 past every hour"),
    ("50-10/5 * * * *", "Every 5 minutes from 50 through 10 past every hour"),
    ("0-3,30 * * * *", "At 0 through 3 and 30 minutes past every hour"),
    # hours
    ("30 10 * * *", "At 10:30 every day"),
    ("0 0,12 * * *", "At 00:00 and 12:00 every day"),
    ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day"),
    ("0 */2 * * *", "Every 2 hours"),
    ("0 */6 * * *", "Every 6 hours"),
    ("30 */2 * * *", "Every 2 hours from 00:30 through 22:30"),
    ("0 1/2 * * *", "Every 2 hours from 01:00 through 23:00"),
    ("0 */5 * * *", "Every 5 hours from 00:00 through 20:00"),
    ("0 9-17 * * *", "Every hour from 09:00 through 17:00"),
    ("30 22-2 * * *", "Every hour from 22:30 through 02:30"),
    ("0 8,9,12,17,20 * * *", "At 08:00, 09:00, 12:00, 17:00 and 20:00 every day"),
    ("0 1-5,9-14 * * *", "At 0 minutes past hours 1 through 5 and 9 through 14 every day"),
    ("* 9-17 * * MON-FRI", "Every minute past hours 9 through 17, Monday through Friday"),
    ("*/15 */2 * * *", "Every 15 minutes past every 2nd hour"),
    ("*/20 8 * * *", "At 08:00, 08:20 and 08:40 every day"),
    ("* 8 * * *", "Every minute past hour 8"),
    # seconds
    ("* * * * * *", "Every second"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("15 * * * * *", "At 15 seconds past every minute"),
    ("15 30 10 * * *", "At 10:30:15 every day"),
    ("15 30 9-17 * * *", "Every hour from 09:30:15 through 17:30:15"),
    ("*/10 */15 * * * *", "Every 10 seconds during every 15th minute of every hour"),
    ("*/10 * 9-17 * * *", "Every 10 seconds during hours 9 through 17"),
    ("7/7 */5 8,20 * * *", "Every 7 seconds from 7 through 56 past every 5th minute of hours 8 and 20"),
    ("0 0 8 * * ?", "At 08:00 every day"),
    # days of the month
    ("0 0 1 * *", "At 00:00 on the 1st"),
    ("0 0 1,15 * *", "At 00:00 on the 1st and the 15th"),
    ("0 0 1-7 * *", "At 00:00 on the 1st through the 7th"),
    ("0 0 28-3 * *", "At 00:00 on the 28th through the 3rd"),
    ("0 0 */2 * *", "At 00:00 on every 2nd day of the month"),
    ("0 0 2/3 * *", "At 00:00 on every 3rd day from the 2nd through the 29th of the month"),
    ("0 0 L * *", "At 00:00 on the last day of the month"),
    ("0 0 L-1 * ?", "At 00:00 on the day before the last of the month"),
    ("0 0 L-3 * ?", "At 00:00 on the day 3 days before the last of the month"),
    ("0 0 15,L * ?", "At 00:00 on the 15th and the last day of the month"),
    ("0 0 LW * ?", "At 00:00 on the last weekday of the month"),
    ("0 0 1W * ?", "At 00:00 on the first weekday of the month"),
    ("0 0 15W * ?", "At 00:00 on the weekday nearest to the 15th of the month"),
    ("0 0 L-3W * ?", "At 00:00 on the weekday nearest to the day 3 days before the last of the month"),
    # days of the week
    ("30 10 * * FRI", "At 10:30 on Friday"),
    ("30 10 * * 0", "At 10:30 on Sunday"),
    ("30 10 * * MON,WED,FRI", "At 10:30 on Monday, Wednesday and Friday"),
    ("30 10 * * 1-5", "At 10:30, Monday through Friday"),
    ("30 10 * * FRI-MON", "At 10:30, Friday through Monday"),
    ("30 10 * * 6,7", "At 10:30 on Saturday and Sunday"),
    ("0 0 ? * FRI#2", "At 00:00 on the second Friday of the month"),
    ("0 0 ? * 5L", "At 00:00 on the last Friday of the month"),
    ("0 0 ? * MON,FRI#L", "At 00:00 on Monday and the last Friday of the month"),
    ("0 0 ? * 7#1,SUN#3", "At 00:00 on the first Sunday and the third Sunday of the month"),
    # both: either will do, or both must match
    ("0 0 13 * FRI", "At 00:00 on the 13th and on Friday"),
    ("0 0 13 * +FRI", "At 00:00 on the 13th if it falls on Friday"),
    ("0 0 */2 * MON", "At 00:00 on every 2nd day of the month if it falls on Monday"),
    ("0 0 1-7 * +MON-FRI", "At 00:00 on the 1st through the 7th if it falls on Monday through Friday"),
    ("0 0 13 5 FRI", "At 00:00 on the 13th and on Friday, in May"),
    # months and years
    ("0 0 1 1 *", "At 00:00 on the 1st of January"),
    ("0 0 1 */2 *", "At 00:00 on the 1st of every 2nd month"),
    ("0 0 1 1,4,7,10 *", "At 00:00 on the 1st of every 3rd month"),
    ("0 0 L 2 *", "At 00:00 on the last day of February"),
    ("0 0 ? 5 FRI#2", "At 00:00 on the second Friday of May"),
    ("0 0 ? 5 MON,FRI#2", "At 00:00 on Monday and the second Friday of the month, in May"),
    ("30 10 * 5 1-5", "At 10:30, Monday through Friday in May"),
    ("0 0 * NOV-FEB *", "At 00:00 every day from November through February"),
    ("* * * 1,7 *", "Every minute in January and July"),
    ("0 30 10 8 3 ? 2026", "At 10:30 on the 8th of March 2026"),
    ("0 0 0 1 1 ? 2026-2030", "At 00:00 on the 1st of January, from 2026 through 2030"),
    ("0 0 0 ? * FRI 2026,2028", "At 00:00 on Friday, in 2026 and 2028"),
    ("0 0 0 ? * FRI 2026/2", "At 00:00 on Friday, in every 2nd year from 2026 through 2198"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), SENTENCES)
def test_sentences(text: str, sentence: str) -> None:
    assert describe(Cron.parse(text)) == sentence


def test_what_differs_in_the_table_differs_in_its_sentence() -> None:
    assert len({sentence for _, sentence in SENTENCES}) == len(SENTENCES)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("@hourly", "0 * * * *"),
        ("@weekly", "0 0 * * SUN"),
        (" @Yearly ", "0 0 1 jan ?"),
        ("0,15,30,45 * * * *", "*/15 * * * *"),
        ("0 0 ? * friL", "0 0 * * 5#L"),
        ("0 0 1-31 * MON", "0 0 * * *"),
        ("0 0 015W * ?", "0 0 15W * ?"),
        ("0 0 L,L * ?", "0 0 L * ?"),
        ("0 0 ? * 1-6,7", "0 0 * * *"),
    ],
)
def test_another_spelling_is_the_same_sentence(text: str, other: str) -> None:
    assert describe(Cron.parse(text)) == describe(Cron.parse(other))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0 0 10 ? * 2-6", "At 10:00, Monday through Friday"),
        ("0 0 10 ? * 1", "At 10:00 on Sunday"),
        ("0 0 10 ? * 6#2", "At 10:00 on the second Friday of the month"),
        ("0 0 10 ? * 6L", "At 10:00 on the last Friday of the month"),
        ("0 0 10 13 * +6", "At 10:00 on the 13th if it falls on Friday"),
    ],
)
def test_quartz_counts_weekdays_from_one(text: str, sentence: str) -> None:
    assert describe(Cron.parse(text, dialect="quartz")) == sentence


def test_the_zone_is_named() -> None:
    assert describe(Cron.parse("30 10 * * FRI"), "Europe/Berlin") == "At 10:30 on Friday (Europe/Berlin)"


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        (timedelta(minutes=15), "Every 15 minutes"),
        (timedelta(hours=1), "Every hour"),
        (timedelta(days=1), "Every day"),
        (timedelta(hours=1, minutes=30), "Every 1 hour and 30 minutes"),
        (timedelta(seconds=1.5), "Every 1.5 seconds"),
        (timedelta(days=1000), "Every 1,000 days"),
    ],
)
def test_intervals(interval: timedelta, sentence: str) -> None:
    assert describe_interval(interval) == sentence


SIXTY = ["*", "0", "30", "*/5", "*/7", "0,30", "10-20", "50-5", "3-50/9", "1,2,4,8"]
HOURS = ["*", "0", "9", "9,17", "*/2", "1/2", "9-17", "22-3", "1-4,8,20", "*/12", "0-23/5"]
DATES = ["*", "?", "1", "1,15", "*/2", "2/7", "L", "L-3", "LW", "15W", "L-3W", "1-7", "28-3", "1-31", "13,LW"]
WEEKDAYS = ["*", "?", "FRI", "1-5", "SAT,SUN", "*/2", "FRI#2", "5L", "FRI#L", "MON,FRI#2", "+FRI", "+1-5", "6-1"]
MONTHS = ["*", "1", "*/2", "2/2", "NOV-FEB", "1,7", "*/5", "5"]
YEARS = ["*", "2028", "2026-2030", "2026/2", "2027,2029"]

fields = st.tuples(*map(st.sampled_from, (SIXTY, SIXTY, HOURS, DATES, MONTHS, WEEKDAYS, YEARS)))
numbers = st.text(alphabet="0123456789*/,-", min_size=1, max_size=7)
dates = st.text(alphabet="0123456789*/,-?LW", min_size=1, max_size=7)
weekdays = st.text(alphabet="01234567*/,-?L#+", min_size=1, max_size=6) | st.sampled_from(WEEKDAYS)
anything = st.tuples(numbers, numbers, dates, numbers, weekdays) | st.tuples(
    st.just("0"), st.just("0"), dates, st.just("*"), weekdays
)


def parsed(text: str, dialect: str) -> Cron | None:
    try:
        return Cron.parse(text, dialect=dialect)
    except InvalidSchedule:
        return None


@EVERY_TIME_THE_SAME
@given(fields | anything, st.sampled_from(["unix", "quartz"]))
def test_whatever_parses_has_a_sentence(words: tuple[str, ...], dialect: str) -> None:
    cron = parsed(" ".join(words), dialect)
    if cron is not None:
        sentence = describe(cron)
        assert sentence[0] in "AE"
        assert sentence == " ".join(sentence.split())


@pytest.mark.parametrize(
    "texts",
    [
        [f"{second} {minute} {hour} * * *" for second, minute, hour in product(SIXTY, SIXTY, HOURS)],
        [f"0 0 {date} {month} {weekday}" for date, month, weekday in product(DATES, ["*", "5"], WEEKDAYS)],
        [f"0 0 0 {date} {month} ? {year}" for date, month, year in product(DATES, MONTHS, YEARS)],
    ],
    ids=["times", "days", "years"],
)
def test_expressions_of_one_sentence_fire_alike(texts: list[str]) -> None:
    found: dict[str, tuple[str, Pattern]] = {}
    for text in texts:
        cron = parsed(text, "unix")
        if cron is not None:
            other, pattern = found.setdefault(describe(cron), (text, cron.pattern))
            assert cron.pattern == pattern, f"{text} and {other}: {describe(cron)}"
