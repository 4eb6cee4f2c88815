from __future__ import annotations

import pytest

from rota.model.log import MOST_LINE, MOST_LOG
from rota.worker.transcript import FULL, Transcript


def test_lines_are_numbered_across_all_ways_of_speaking() -> None:
    log = Transcript()

    said = [*log.entry("one\ntwo"), *log.piece("stdout", "three\nfo"), *log.piece("stderr", "x\n")]
    said += [*log.piece("stdout", "ur\n\nfi"), *log.rest(), *log.rest()]

    assert said == [(1, "one\ntwo"), (2, "three"), (3, "x"), (4, "four"), (5, ""), (6, "fi")]


@pytest.mark.parametrize("letter", ["x", "ü", "😀", "\0", "\ud800"])
def test_a_long_line_is_cut(letter: str) -> None:
    for text in (letter * MOST_LINE * 3, letter * (MOST_LINE + 1)):
        [(_, line)] = Transcript().entry(text)
        assert line.endswith("…")
        assert MOST_LINE - 8 < len(line.encode()) <= MOST_LINE
        assert "\0" not in line


def test_the_longest_line_is_kept_whole() -> None:
    assert Transcript().entry("x" * MOST_LINE) == [(1, "x" * MOST_LINE)]


def test_a_line_that_does_not_end_costs_no_more_than_is_kept_of_it() -> None:
    log = Transcript()
    for _ in range(1000):
        assert log.piece("stdout", "x" * 1000) == []

    [(_, line), (_, after)] = log.piece("stdout", "\nnext\n")

    assert len(line.encode()) == MOST_LINE
    assert after == "next"


def test_what_is_too_much_is_dropped_and_one_line_says_so() -> None:
    log = Transcript()
    said = [numbered for n in range(2 * MOST_LOG // 1024) for numbered in log.piece("stdout", f"{n:1024}\n")]
    said += [*log.entry("more"), *log.piece("stdout", "more"), *log.rest()]

    assert [text for _, text in said][-2:] == [f"{MOST_LOG // 1024 - 1:1024}", FULL]
    assert [seq for seq, _ in said] == list(range(1, len(said) + 1))
    assert sum(len(text) for _, text in said[:-1]) == MOST_LOG
