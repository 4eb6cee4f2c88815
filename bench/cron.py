"""How long the next firing takes, beside cronsim and croniter: `python -m bench.cron`.

"Asked" is a fresh question about a moment, as a scheduler has it; the other two read the expression again for that.
"Iterated" is the next one of an iterator that is already there, the best they can do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from rota.model.cron import Cron

ROUNDS: Final = 15
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


def main() -> None:
    print(f"{'':36}{'µs each':>9}{'cronsim takes':>22}{'croniter takes':>22}")
    print(f"{'expression':18}{'zone':18}{'rota':>9}{'asked':>11}{'iterated':>11}{'asked':>11}{'iterated':>11}")
    for zone in (ZoneInfo("UTC"), ZoneInfo("America/New_York")):
        for text, start, steps in EXPRESSIONS:
            moments = firings(text, start, zone, steps)
            ours = rota(text, moments, zone)
            theirs = [
                measure(text, moments, zone) / ours
                for measure in (cronsim_asked, cronsim_iterated, croniter_asked, croniter_iterated)
            ]
            print(f"{text:18}{zone.key:18}{ours * 1e6:9.2f}" + "".join(f"{ratio:10.1f}x" for ratio in theirs))


def firings(text: str, start: datetime, zone: ZoneInfo, steps: int) -> list[datetime]:
    moments, cron = [start], Cron.parse(text)
    while len(moments) < steps and (firing := cron.after(moments[-1], zone)):
        moments.append(firing)
    return moments


def rota(text: str, moments: list[datetime], zone: ZoneInfo) -> float:
    after = Cron.parse(text).after

    def ask() -> None:
        for moment in moments:
            after(moment, zone)

    return seconds_each(lambda: ask, len(moments))


def cronsim_asked(text: str, moments: list[datetime], zone: ZoneInfo) -> float:
    theirs, local = in_their_words(text, moments, zone)

    def ask() -> None:
        for moment in local:
            next(CronSim(theirs, moment))

    return seconds_each(lambda: ask, len(local))


def cronsim_iterated(text: str, moments: list[datetime], zone: ZoneInfo) -> float:
    theirs, local = in_their_words(text, moments, zone)
    return seconds_each(lambda: stepping(CronSim(theirs, local[0]).__next__, len(local)), len(local))


def croniter_asked(text: str, moments: list[datetime], zone: ZoneInfo) -> float:
    theirs, local = in_their_words(text, moments, zone)

    def ask() -> None:
        for moment in local:
            croniter(theirs, moment, second_at_beginning=True).get_next(datetime)

    return seconds_each(lambda: ask, len(local))


def croniter_iterated(text: str, moments: list[datetime], zone: ZoneInfo) -> float:
    theirs, local = in_their_words(text, moments, zone)

    def start() -> Callable[[], None]:
        iterator = croniter(theirs, local[0], second_at_beginning=True)
        return stepping(lambda: iterator.get_next(datetime), len(local))

    return seconds_each(start, len(local))


def in_their_words(text: str, moments: list[datetime], zone: ZoneInfo) -> tuple[str, list[datetime]]:
    # cronsim has a short cut for the UTC of datetime and none for the one of zoneinfo: it gets what suits it.
    return text.replace("?", "*"), [moment.astimezone(UTC if zone.key == "UTC" else zone) for moment in moments]


def stepping(step: Callable[[], object], steps: int) -> Callable[[], None]:
    def run() -> None:
        for _ in repeat(None, steps):
            step()

    return run


def seconds_each(start: Callable[[], Callable[[], None]], steps: int) -> float:
    def once() -> float:
        run = start()
        begin = perf_counter()
        run()
        return perf_counter() - begin

    # The median of single steps, because one of them is too short to trust its minimum.
    times = [once() for _ in range(ROUNDS if steps > 1 else 20 * ROUNDS)]
    return (min(times) if steps > 1 else median(times)) / steps


if __name__ == "__main__":
    main()
