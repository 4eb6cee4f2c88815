from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.model.backfill import (
    BELOW_LIVE,
    LOOKED_AT,
    Portion,
    Reprocess,
    Runs,
    Unfilled,
    firings_between,
    is_wanted,
    new_backfill_id,
    next_firings,
    portion_of,
    wanted_of,
)
from rota.model.calendar import Calendar
from rota.model.definition import Definition
from rota.model.errors import InvalidField
from rota.model.execution import Status
from rota.model.job import new_job_id, shard_of
from rota.model.schedule import Recurring, parse_when

TEN = datetime(2027, 1, 4, 10, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = "0 * * * *"


def recurring(schedule: str, **window: Any) -> Recurring:
    when = parse_when(schedule, **window)
    assert isinstance(when, Recurring)
    return when.anchored(TEN)


def unfilled(schedule: str = HOURLY, **fields: Any) -> Unfilled:
    usual: dict[str, Any] = {
        "id": new_job_id(1),
        "job_id": new_job_id(1),
        "revision": 0,
        "definition": Definition(user_id="ann", task_id="echo", priority=9),
        "schedule": recurring(schedule),
        "cursor": TEN,
        "ends_at": TEN + 5 * HOUR,
        "reprocess": Reprocess.NONE,
        "room": 1,
    }
    return Unfilled(**usual | fields)


def portion(backfill: Unfilled, *runs: Runs) -> Portion:
    return portion_of(backfill, *next_firings(backfill), runs)


def ran(hours: int, status: Status | None = Status.COMPLETED, *, newest: int = 0, is_open: bool = False) -> Runs:
    return Runs(TEN + hours * HOUR, newest, is_open, status)


# Which firings


def test_both_ends_of_a_range_belong_to_it() -> None:
    firings = firings_between(recurring(HOURLY), None, start=TEN, end=TEN + 2 * HOUR)

    assert firings == [TEN, TEN + HOUR, TEN + 2 * HOUR]


def test_a_range_may_lie_before_the_job_was_made() -> None:
    assert len(firings_between(recurring(HOURLY), None, start=TEN - DAY, end=TEN)) == 25


def test_the_window_of_the_schedule_counts() -> None:
    schedule = recurring(HOURLY, start="2027-01-04T11:00:00Z", end="2027-01-04T12:00:00Z")

    assert firings_between(schedule, None, start=TEN - DAY, end=TEN + DAY) == [TEN + HOUR, TEN + 2 * HOUR]


def test_firings_on_days_of_the_calendar_are_left_out() -> None:
    calendar = Calendar(("2027-01-05",))

    firings = firings_between(recurring(HOURLY), calendar, start=TEN, end=TEN + 2 * DAY)

    assert len(firings) == 49 - 24
    assert datetime(2027, 1, 5, 12, tzinfo=UTC) not in firings


@pytest.mark.parametrize(
    ("schedule", "window", "words"),
    [
        ("0 0 * * FRI", {}, "the next one is at 2027-01-08T00:00:00.000Z"),
        ("PT1H", {"start": "2027-06-01T00:00:00Z"}, "the next one is at 2027-06-01T00:00:00.000Z"),
        (HOURLY, {"end": "2027-01-01T00:00:00Z"}, "it fires no more after that"),
    ],
)
def test_a_range_without_firings_is_refused_with_the_reason(schedule: str, window: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidField, match=words) as refused:
        firings_between(recurring(schedule, **window), None, start=TEN, end=TEN + HOUR)

    assert refused.value.field == "from"


def test_a_range_in_which_the_calendar_covers_everything_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidField, match="days of the job's calendar"):
        firings_between(recurring(HOURLY), Calendar(("2027-01-04",)), start=TEN, end=TEN + HOUR)


def test_a_range_with_too_many_firings_is_refused() -> None:
    second = timedelta(seconds=1)

    assert len(firings_between(recurring("PT1S"), None, start=TEN, end=TEN + 99_999 * second)) == 100_000
    with pytest.raises(InvalidField, match="more than 100,000 firings"):
        firings_between(recurring("PT1S"), None, start=TEN, end=TEN + 100_000 * second)


@pytest.mark.parametrize(
    ("runs", "wanted_by"),
    [
        (None, {"none", "failed", "all"}),
        (ran(0), {"all"}),
        (ran(0, Status.FAILED), {"failed", "all"}),
        (ran(0, Status.CANCELLED), {"failed", "all"}),
        (ran(0, None, is_open=True), {"all"}),
        (ran(0, Status.FAILED, newest=1, is_open=True), {"all"}),
    ],
)
def test_what_runs_again(runs: Runs | None, wanted_by: set[str]) -> None:
    assert {reprocess.value for reprocess in Reprocess if is_wanted(runs, reprocess)} == wanted_by


def test_a_preview_tells_what_is_wanted() -> None:
    firings = [TEN, TEN + HOUR, TEN + 2 * HOUR]

    assert wanted_of(firings, [ran(0), ran(2, Status.FAILED)], Reprocess.FAILED) == firings[1:]


# Portions


def test_a_portion_has_as_many_as_there_is_room_for() -> None:
    made = portion(unfilled(room=2))

    assert [key.fires_at for key in made.keys] == [TEN, TEN + HOUR]
    assert (made.passed_over, made.cursor, made.settled) == (0, TEN + 2 * HOUR, 2)


def test_what_is_not_wanted_is_passed_over() -> None:
    made = portion(unfilled(), ran(0), ran(1), ran(3))

    assert [key.fires_at for key in made.keys] == [TEN + 2 * HOUR]
    assert (made.passed_over, made.cursor) == (3, TEN + 4 * HOUR)


def test_at_the_end_of_the_range_there_is_no_cursor() -> None:
    made = portion(unfilled(room=100), ran(5))

    assert (len(made.keys), made.passed_over, made.cursor) == (5, 1, None)
    assert not made.changes_nothing


def test_a_run_is_the_next_free_one_and_never_the_planners() -> None:
    made = portion(unfilled(reprocess=Reprocess.ALL, room=3), ran(0), ran(1, Status.FAILED, newest=4))

    assert [key.run for key in made.keys] == [1, 5, 1]


def test_it_comes_below_live_work_and_is_otherwise_as_the_job_is() -> None:
    backfill = unfilled()

    assert portion(backfill).definition == Definition(user_id="ann", task_id="echo", priority=BELOW_LIVE)


def test_a_step_looks_at_so_many_firings_and_no_more() -> None:
    backfill = unfilled("PT1S", ends_at=TEN + DAY)
    firings, following = next_firings(backfill)

    assert len(firings) == LOOKED_AT
    assert following == TEN + timedelta(seconds=LOOKED_AT)
    made = portion_of(backfill, firings, following, [Runs(f, 0, False, Status.COMPLETED) for f in firings])
    assert (made.keys, made.passed_over, made.cursor) == ([], LOOKED_AT, following)


def test_days_of_the_calendar_are_walked_past_in_steps_too() -> None:
    backfill = unfilled("PT1S", ends_at=TEN + DAY, calendar=Calendar(("2027-01-04",)))
    firings, following = next_firings(backfill)

    assert (firings, following) == ([], TEN + timedelta(seconds=LOOKED_AT))
    assert not portion_of(backfill, firings, following, []).changes_nothing


def test_what_the_planner_has_not_settled_yet_is_waited_for() -> None:
    waiting = portion(unfilled(room=9, unsettled_from=TEN + HOUR))
    assert (len(waiting.keys), waiting.cursor) == (1, TEN + HOUR)

    nothing = portion(unfilled(room=9, unsettled_from=TEN))
    assert nothing.changes_nothing


def test_the_cursor_need_not_be_a_firing_of_the_schedule_of_now() -> None:
    made = portion(unfilled("30 * * * *", room=2))

    assert [key.fires_at for key in made.keys] == [TEN + 0.5 * HOUR, TEN + 1.5 * HOUR]


def test_one_without_a_cursor_has_only_to_be_ended() -> None:
    made = portion(unfilled(cursor=None))

    assert (made.keys, made.passed_over, made.cursor) == ([], 0, None)
    assert not made.changes_nothing


def test_its_id_has_the_shard_of_its_job() -> None:
    job_ids = [new_job_id(256) for _ in range(20)]
    ids = [new_backfill_id(job_id) for job_id in job_ids]

    assert [shard_of(each) for each in ids] == [shard_of(each) for each in job_ids]
    assert len(set(ids)) == 20
    assert {each.version for each in ids} == {7}
