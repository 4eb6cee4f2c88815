"""What names an execution: public ids, words for statuses, tokens of pages."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.model.errors import InvalidField
from rota.model.execution import EPOCH, PENDING, ExecutionKey, Status, statuses_named
from rota.model.query import Position, parse_token, print_token

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
MILLISECOND = timedelta(milliseconds=1)
JOB = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
MOST_RUNS = 999_999_999

any_moment = st.datetimes(timezones=st.just(UTC))
keys = st.builds(
    ExecutionKey,
    st.uuids(),
    any_moment.map(lambda moment: EPOCH + (moment - EPOCH) // MILLISECOND * MILLISECOND),
    st.integers(0, 3) | st.integers(0, MOST_RUNS),
)
positions = st.builds(Position, any_moment, st.uuids(), st.integers(0, 2**31 - 1))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def a_token(content: str | bytes) -> str:
    """A forged one: ours in form, whatever its content."""
    return base64.urlsafe_b64encode(content if isinstance(content, bytes) else content.encode()).decode().rstrip("=")


# Public ids


@EVERY_TIME_THE_SAME
@given(keys)
@example(ExecutionKey(JOB, datetime(1, 1, 1, tzinfo=UTC), 0))
@example(ExecutionKey(JOB, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), MOST_RUNS))
@example(ExecutionKey(JOB, EPOCH, 0))
@example(ExecutionKey(JOB, EPOCH - MILLISECOND, 1))
def test_an_id_says_all_of_the_key(key: ExecutionKey) -> None:
    assert ExecutionKey.parse(str(key)) == key


@EVERY_TIME_THE_SAME
@given(keys, keys)
def test_different_keys_have_different_ids(one: ExecutionKey, other: ExecutionKey) -> None:
    assert (one == other) == (str(one) == str(other))


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (0, "1794736800000-01890a5d-ac96-774b-bcce-b302099a8057"),
        (2, "1794736800000-01890a5d-ac96-774b-bcce-b302099a8057-2"),
    ],
)
def test_a_scheduled_run_needs_no_number_and_later_ones_have_it(run: int, text: str) -> None:
    assert str(ExecutionKey(JOB, datetime(2026, 11, 15, 10, tzinfo=UTC), run)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "1794736800000",
        f"{JOB}",
        f"-{JOB}",
        f"1794736800000-{JOB}-",
        f"1794736800000-{JOB}-x",
        f"1794736800000-{JOB}--1",
        f"1794736800000-{JOB}-1-1",
        f"1794736800000-{JOB}\n",
        f" 1794736800000-{JOB}",
        f"1794736800000.5-{JOB}",
        f"+1794736800000-{JOB}",
        f"1_000-{JOB}",
        f"1794736800000-{JOB.hex}",
        f"1794736800000-{{{JOB}}}",
        f"1794736800000-{str(JOB)[:-1]}",
        f"1794736800000-{str(JOB)[:-1]}g",
        f"{10**15}-{JOB}",
        f"1794736800000-{JOB}-{10**9}",
        pytest.param(f"{'9' * 100_000}-{JOB}", id="huge"),
    ],
)
def test_what_is_no_id_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        ExecutionKey.parse(text)

    assert refusal.value.field == "execution_id"
    assert "they look like 1794736800000-<job id>" in refusal.value.problem


@pytest.mark.parametrize("milliseconds", [10**15 - 1, -(10**15) + 1, 253_402_300_800_000])
def test_an_id_of_a_time_that_no_calendar_has_is_refused(milliseconds: int) -> None:
    with pytest.raises(InvalidField, match=r"execution_id: .* outside the calendar"):
        ExecutionKey.parse(f"{milliseconds}-{JOB}")


@pytest.mark.parametrize("text", [f"١٧٩-{JOB}", f"1794736800000-{JOB}-٣"])
def test_digits_of_other_scripts_are_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        ExecutionKey.parse(text)


@settings(EVERY_TIME_THE_SAME, max_examples=50)
@given(st.text() | st.from_regex(r"-?\d{1,16}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d{1,10})?", fullmatch=True))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    try:
        key = ExecutionKey.parse(text)
    except InvalidField:
        return
    assert ExecutionKey.parse(str(key)) == key


# Statuses


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("written", [str.upper, str.lower, str.title])
def test_a_status_is_known_in_any_case(status: Status, written: type[str]) -> None:
    assert statuses_named(written(status.value)) == {status}


@pytest.mark.parametrize("word", ["PENDING", "pending", "Pending"])
def test_pending_is_three_statuses(word: str) -> None:
    assert statuses_named(word) == {Status.SCHEDULED, Status.QUEUED, Status.RETRYING} == PENDING


@pytest.mark.parametrize("word", ["ERRORED", "errored", "Errored", "errorred"])
def test_errored_is_failed(word: str) -> None:
    assert statuses_named(word) == {Status.FAILED}


@pytest.mark.parametrize("word", ["", "done", "pending ", "FAILED,COMPLETED", "__members__", "name"])
def test_other_words_stand_for_nothing(word: str) -> None:
    assert statuses_named(word) == frozenset()


# Page tokens


@EVERY_TIME_THE_SAME
@given(positions)
@example(Position(datetime.max.replace(tzinfo=UTC), JOB, 2**31 - 1))
@example(Position(datetime.min.replace(tzinfo=UTC), JOB, 0))
def test_a_token_says_all_of_the_position(position: Position) -> None:
    assert parse_token(print_token(position)) == position


@EVERY_TIME_THE_SAME
@given(positions)
def test_a_token_needs_no_escaping_in_a_url(position: Position) -> None:
    assert print_token(position).replace("-", "").replace("_", "").isalnum()
    assert print_token(position).isascii()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "=",
        "é",
        "\ud800",
        pytest.param("A" * 100_000, id="huge"),
        a_token(""),
        a_token("null"),
        a_token("[]"),
        a_token(f'[0,"{JOB}"]'),
        a_token(f'[0,"{JOB}",0,0]'),
        a_token(f'[0.5,"{JOB}",0]'),
        a_token(f'["0","{JOB}",0]'),
        a_token('[0,"not a uuid",0]'),
        a_token(f'[{10**18},"{JOB}",0]'),
        a_token(f'[{-(10**40)},"{JOB}",0]'),
        a_token(f'[0,"{JOB}",0]')[:-2],
        pytest.param(a_token("[" * 100_000), id="deep"),
        a_token(b"\xff\xfe"),
    ],
)
def test_what_is_no_token_of_ours_is_refused_with_a_way_out(token: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_token(token)

    assert refusal.value.field == "page_token"
    assert "leave it out to begin at the first page" in refusal.value.problem


@pytest.mark.parametrize("run", [2**31, 10**30, -(2**31) - 1])
def test_a_run_that_no_column_holds_is_refused(run: int) -> None:
    with pytest.raises(InvalidField):
        parse_token(a_token(f'[0,"{JOB}",{run}]'))


@EVERY_TIME_THE_SAME
@given(st.text() | st.text("ABCDwxyz0189-_="))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    try:
        position = parse_token(text)
    except InvalidField:
        return
    assert parse_token(print_token(position)) == position


@EVERY_TIME_THE_SAME
@given(
    json_values.map(msgspec.json.encode)
    | st.tuples(st.integers(), st.uuids(), st.integers(0, 2**31 - 1)).map(msgspec.json.encode)
    | st.binary()
)
def test_whatever_a_forger_puts_into_a_token_is_a_position_or_refused(content: bytes) -> None:
    try:
        position = parse_token(a_token(content))
    except InvalidField:
        return
    assert parse_token(print_token(position)) == position
