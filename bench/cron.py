"""How long the next firing takes, in microseconds, beside cronsim and croniter: `python -m bench.cron`.

"Asked" is a fresh question about a moment: `Cron.after`, and `get_next` of croniter; cronsim has no such question and
reads the expression again. "Iterated" is the next one of an iterator that is under way: `Cron.firings`, and what the
other two are made for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice, product, repeat
from statistics import median
from time import perf_counter
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from rota.model.cron import Cron

ROUNDS: Final = 25
ZONES: Final = [ZoneInfo("UTC"), ZoneInfo("America/New_York")]
START: Final = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
EXPRESSIONS: Final = [
    ("* * * * *", START, 100),
    ("*/15 * * * *", START, 100),
    ("*/10 * * * * *", START, 100),
    ("0 9 * * MON-FRI", START, 100),
    ("30 2 * * *", START, 100),
    ("0 0 1 * *", START, 100),
    ("0 0 L * *", START, 100),
    ("0 0 1 1 *", START, 40),
    ("0 0 13 * FRI#2", START, 100),
    # A single step over 2100, which has no leap day.
    ("0 0 29 2 ?", datetime(2096, 3, 1, tzinfo=UTC), 1),
]

Run = Callable[[], None]
# Reads the expression; what it returns is measured.
Contestant = Callable[[str, list[datetime], ZoneInfo], Run]


def main() -> None:
    print(f"{'expression':18}{'zone':18}{'':10}{'rota':>8}{'cronsim':>18}{'croniter':>18}")
    for zone, (text, start, steps) in product(ZONES, EXPRESSIONS):
        moments = [start, *islice(Cron.parse(text).firings(start, zone), steps - 1)]
        for how, contestants in (
            ("asked", (rota_asked, cronsim_asked, croniter_asked)),
            ("iterated", (rota_iterated, cronsim_iterated, croniter_iterated)),
        ):
            ours, *theirs = microseconds_each(contestants, text, moments, zone)
            beside = "".join(f"{other:10.2f} {other / ours:6.1f}x" for other in theirs)
            print(f"{text:18}{zone.key:18}{how:10}{ours:8.2f}{beside}")


def rota_asked(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    after = Cron.parse(text).after

    def ask() -> None:
        for moment in moments:
            after(moment, zone)

    return ask


def cronsim_asked(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    theirs, local = in_their_words(text, moments, zone)

    def ask() -> None:
        for moment in local:
            next(CronSim(theirs, moment))

    return ask


def croniter_asked(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    theirs, local = in_their_words(text, moments, zone)
    get_next = croniter(theirs, second_at_beginning=True).get_next

    def ask() -> None:
        for moment in local:
            get_next(datetime, moment)

    return ask


def rota_iterated(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    return stepping(Cron.parse(text).firings(moments[0], zone).__next__, len(moments))


def cronsim_iterated(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    theirs, local = in_their_words(text, moments, zone)
    return stepping(CronSim(theirs, local[0]).__next__, len(local))


def croniter_iterated(text: str, moments: list[datetime], zone: ZoneInfo) -> Run:
    theirs, local = in_their_words(text, moments, zone)
    return stepping(croniter(theirs, local[0], datetime, second_at_beginning=True).__next__, len(local))


def stepping(step: Callable[[], object], steps: int) -> Run:
    def run() -> None:
        for _ in repeat(None, steps):
            step()

    return run


def in_their_words(text: str, moments: list[datetime], zone: ZoneInfo) -> tuple[str, list[datetime]]:
    # cronsim has a short cut for the UTC of datetime and none for the one of zoneinfo: it gets what suits it.
    return text.replace("?", "*"), [moment.astimezone(UTC if zone.key == "UTC" else zone) for moment in moments]


def microseconds_each(
    contestants: tuple[Contestant, ...], text: str, moments: list[datetime], zone: ZoneInfo
) -> list[float]:
    """In turns, so that a busy machine is busy for all of them."""
    steps = len(moments)
    rounds = [
        [seconds_of(contestant(text, moments, zone)) for contestant in contestants]
        for _ in range(ROUNDS if steps > 1 else 20 * ROUNDS)
    ]
    # The median of single steps, because one of them is too short to trust its minimum.
    typical = min if steps > 1 else median
    return [typical(times) / steps * 1e6 for times in zip(*rounds, strict=True)]


def seconds_of(run: Run) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


if __name__ == "__main__":
    main()
