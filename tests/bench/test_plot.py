"""The picture of a run: a small page of its own that tells the right numbers, whatever the run was like."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from rota.bench.plot import lateness_svg

SVG = "{http://www.w3.org/2000/svg}"
Points = Sequence[tuple[float, float]]


def texts(points: Points, kind: str | None = None) -> list[str]:
    found = ElementTree.fromstring(lateness_svg("a run", points)).iter(f"{SVG}text")
    return ["".join(text.itertext()) for text in found if kind is None or kind in text.get("class", "").split()]


def bars(points: Points) -> list[str]:
    """What each says when it is pointed at."""
    root = ElementTree.fromstring(lateness_svg("a run", points))
    return [rect.findtext(f"{SVG}title", "") for rect in root.iter(f"{SVG}rect") if rect.get("class") == "bar"]


def lines(points: Points) -> dict[str, str]:
    root = ElementTree.fromstring(lateness_svg("a run", points))
    paths = {path.get("class", ""): path.get("d", "") for path in root.iter(f"{SVG}path")}
    return {name.removeprefix("line "): path for name, path in paths.items() if name.startswith("line ")}


def a_run(count: int, seconds: float = 60) -> list[tuple[float, float]]:
    chance = random.Random(count)
    return [(chance.uniform(0, seconds), chance.lognormvariate(1.1, 0.5)) for _ in range(count)]


def test_a_title_and_notes_are_text_whatever_is_in_them() -> None:
    root = ElementTree.fromstring(lateness_svg('<b> & \x00"x"', [(0, 1)], notes=["a < b", "</svg>"]))
    written = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert root.findtext(f"{SVG}title") == '<b> &  "x"'
    assert written[:3] == ['<b> &  "x"', "a < b", "</svg>"]


def test_nothing_is_fetched_and_nothing_runs() -> None:
    svg = lateness_svg("a run", a_run(1000))
    assert not re.search(r"<script|href|url\(|@import", svg)
    assert "prefers-color-scheme: dark" in svg


def test_a_run_without_jobs_says_so() -> None:
    assert texts([]) == ["a run", "No jobs were measured"]


def test_one_job_is_all_of_its_percentiles() -> None:
    assert texts([(12.3, 4.2)], "label") == ["max 4.2 ms", "p99.9 4.2 ms", "p99 4.2 ms", "p50 4.2 ms"]
    assert bars([(12.3, 4.2)]) == ["3.98 ms to 6.31 ms: 1 job, 100 %"]


def test_jobs_that_are_all_as_late_make_one_bar_and_level_lines() -> None:
    points = [(n / 100, 3.0) for n in range(6000)]
    assert [bar.split(": ")[1] for bar in bars(points)] == ["6,000 jobs, 100 %"]
    for line in lines(points).values():
        assert len(set(re.findall(r"(?:V|M\S+ )([\d.]+)", line))) == 1


def test_the_marks_are_at_the_nearest_ranks() -> None:
    points = [(n / 100, n / 10) for n in range(1, 10_001)]
    random.Random(1).shuffle(points)
    assert texts(points, "label") == ["max 1 s", "p99.9 999 ms", "p99 990 ms", "p50 500 ms"]


def test_every_job_is_in_one_bar_and_a_bar_has_its_lower_edge() -> None:
    assert bars([(0, late) for late in (-5, 0, 0.099, 0.1, 1, 1.5, 100)]) == [
        "less than 0.1 ms: 3 jobs, 42.9 %",
        "0.1 ms to 0.158 ms: 1 job, 14.3 %",
        "1 ms to 1.58 ms: 2 jobs, 28.6 %",
        "100 ms to 158 ms: 1 job, 14.3 %",
    ]


def test_a_bar_of_one_in_many_jobs_is_not_none() -> None:
    points = [*((n / 1000, 3.0) for n in range(299_999)), (1, 80.0)]
    assert bars(points)[-1] == "63.1 ms to 100 ms: 1 job, 0.000333 %"


def test_jobs_that_were_early_are_drawn_at_the_foot() -> None:
    points = [(n / 10, -3.0) for n in range(100)]
    assert "≤ 0.1 ms" in texts(points, "end")
    assert texts(points, "label")[0] == "max -3 ms"


def test_a_line_breaks_where_no_jobs_were_due() -> None:
    points = [point for point in a_run(50_000) if not 20 < point[0] < 30]
    assert [line.count("M") for line in lines(points).values()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        (0.7, ["0 s", "0.1 s", "0.2 s"]),
        (8, ["0 s", "1 s", "2 s"]),
        (60, ["0 s", "5 s", "10 s"]),
        (314, ["0 s", "50 s", "100 s"]),
        (7200, ["0 s", "1,000 s", "2,000 s"]),
    ],
)
def test_ticks_of_time_are_round(seconds: float, ticks: list[str]) -> None:
    assert texts(a_run(3000, seconds), "middle")[:3] == ticks


def test_ticks_of_lateness_are_round() -> None:
    points = [(n / 10, 1.5 if n % 2 else 30) for n in range(1000)]
    assert texts(points, "end")[:6] == ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]
    assert texts(points, "middle")[-8:-1] == ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"]


@pytest.mark.parametrize("lateness", [(0.15, 0.2), (3.0, 3.1), (0.001, 1e7)])
def test_there_are_ticks_however_near_or_far_the_lateness_of_jobs(lateness: tuple[float, float]) -> None:
    points = [(n / 10, lateness[n % 2]) for n in range(1000)]
    assert len([text for text in texts(points, "end") if text.endswith("s")]) >= 2
    assert len([text for text in texts(points, "middle") if text.endswith("ms")]) >= 1


@pytest.mark.parametrize("count", [40, 500_000])
def test_a_page_is_small_however_many_jobs_it_is_about(count: int) -> None:
    assert len(lateness_svg("a run", a_run(count)).encode()) < 40_000
