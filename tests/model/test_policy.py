"""Planning: every firing happens or is accounted for, exactly once, whatever the clock and the workers do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.model import policy
from rota.model.job import Overlap
from rota.model.policy import MISFIRE, MOST_FIRINGS, MOST_MISSED, OVERLAP, Plan, Skip, Unplanned, plan_for
from rota.model.schedule import ByCron, Every, Recurring

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
START = datetime(2027, 3, 27, 22, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HORIZON = timedelta(seconds=5)

CRONS = [
    ByCron("* * * * *"),
    ByCron("*/10 * * * * *"),
    ByCron("*/7 3-5 * * *"),
    ByCron("30 2 * * *", "Europe/Berlin"),
    ByCron("*/20 * * * *", "Europe/Berlin"),
]
intervals = st.builds(lambda seconds: Every(seconds * SECOND, START), st.integers(1, 600))
schedules = st.builds(
    lambda rhythm, minutes: Recurring(rhythm, ends_at=None if minutes is None else START + minutes * MINUTE),
    intervals | st.sampled_from(CRONS),
    st.none() | st.integers(0, 600),
)
overlaps = st.sampled_from(Overlap)
horizons = st.integers(0, 60).map(lambda seconds: seconds * SECOND)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Unplanned, datetime, timedelta]:
    """A job whose cursor lies within the horizon, as the store hands them out."""
    schedule = draw(schedules)
    cursor = schedule.after(START + draw(st.integers(-1, 3600)) * SECOND)
    assume(cursor is not None)
    assert cursor is not None
    horizon = draw(horizons)
    now = cursor - horizon + draw(st.integers(0, 120) | st.integers(0, 7200)) * SECOND
    return a_job(schedule, cursor, draw(overlaps), has_open=draw(st.booleans())), now, horizon


def a_job(
    schedule: Recurring, cursor: datetime, overlap: Overlap = Overlap.SKIP, *, has_open: bool = False
) -> Unplanned:
    return Unplanned(
        id=UUID(int=7), revision=0, next_fires_at=cursor, schedule=schedule, overlap=overlap, has_open=has_open
    )


def every_second(overlap: Overlap = Overlap.SKIP, *, has_open: bool = False) -> Unplanned:
    return a_job(Recurring(Every(SECOND, START)), START, overlap, has_open=has_open)


def moments(*seconds: int) -> list[datetime]:
    return [START + second * SECOND for second in seconds]


def firings_from(schedule: Recurring, first: datetime, *, before: datetime | None) -> list[datetime]:
    """All there are, one by one: the plain way that plans are held against."""
    found: list[datetime] = []
    fires_at = schedule.after(first - timedelta(microseconds=1))
    while fires_at is not None and (before is None or fires_at < before):
        found.append(fires_at)
        fires_at = schedule.after(fires_at)
    return found


def skipped_by(schedule: Recurring, skip: Skip) -> list[datetime]:
    skipped = firings_from(schedule, skip.first, before=skip.last + timedelta(microseconds=1))
    assert (skipped[0], skipped[-1], len(skipped)) == (skip.first, skip.last, skip.count)
    return skipped


def settled_by(plan: Plan) -> list[datetime]:
    """The firings a plan makes and those it counts as skipped, sorted; one that is both comes twice."""
    skipped = skipped_by(plan.job.schedule, plan.skip) if plan.skip else []
    return sorted(plan.firings + skipped)


def work_off(job: Unplanned, *, now: datetime, horizon: timedelta = HORIZON) -> list[Plan]:
    """Plans until there is nothing left to do, as steps of the planner would; what was fired is open from then on."""
    plans: list[Plan] = []
    while job.next_fires_at <= now + horizon and (plan := plan_for(job, now=now, horizon=horizon)):
        plans.append(plan)
        if plan.next_fires_at is None:
            break
        assert plan.next_fires_at > job.next_fires_at
        job = msgspec.structs.replace(
            job, next_fires_at=plan.next_fires_at, has_open=job.has_open or bool(plan.firings)
        )
    return plans


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MOST_MISSED", 50)
    monkeypatch.setattr(policy, "MOST_FIRINGS", 3)


# What holds for every plan


@EVERY_TIME_THE_SAME
@given(situations())
def test_up_to_the_new_cursor_every_firing_is_settled_exactly_once(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation

    plan = plan_for(job, now=now, horizon=horizon)

    if plan:
        assert settled_by(plan) == firings_from(job.schedule, job.next_fires_at, before=plan.next_fires_at)
    else:
        assert job.next_fires_at > now


@EVERY_TIME_THE_SAME
@given(situations())
def test_the_new_cursor_is_a_firing_after_the_old_one_or_the_end(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation

    plan = plan_for(job, now=now, horizon=horizon)

    if plan and plan.next_fires_at:
        assert plan.next_fires_at > job.next_fires_at
        assert job.schedule.after(plan.next_fires_at - timedelta(microseconds=1)) == plan.next_fires_at


@EVERY_TIME_THE_SAME
@given(situations())
def test_nothing_is_planned_beyond_the_horizon_nor_skipped_before_its_time(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation

    plan = plan_for(job, now=now, horizon=horizon)

    if plan:
        assert all(fires_at <= now + horizon for fires_at in plan.firings)
        assert plan.skip is None or plan.skip.last <= now


@EVERY_TIME_THE_SAME
@given(situations())
def test_what_must_not_overlap_gets_one_firing_and_none_while_one_is_open(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation
    assume(job.overlap is Overlap.SKIP)

    plan = plan_for(job, now=now, horizon=horizon)

    assert len(plan.firings if plan else []) <= (0 if job.has_open else 1)


@EVERY_TIME_THE_SAME
@given(situations())
def test_at_most_one_late_firing_runs_and_it_is_the_newest(situation: tuple[Unplanned, datetime, timedelta]) -> None:
    job, now, horizon = situation

    plan = plan_for(job, now=now, horizon=horizon)

    due = firings_from(job.schedule, job.next_fires_at, before=now + timedelta(microseconds=1))
    late = [fires_at for fires_at in plan.firings if fires_at <= now] if plan else []
    assert late == ([] if job.overlap is Overlap.SKIP and job.has_open else due[-1:])


@EVERY_TIME_THE_SAME
@given(
    schedules,
    overlaps,
    horizons,
    st.lists(st.tuples(st.integers(0, 30) | st.integers(0, 1800), st.booleans()), min_size=1, max_size=25),
)
def test_step_by_step_time_is_covered_without_gaps_and_without_doubles(
    schedule: Recurring, overlap: Overlap, horizon: timedelta, steps: list[tuple[int, bool]]
) -> None:
    cursor = first = schedule.after(START)
    now = START
    settled: list[datetime] = []
    for seconds, has_open in steps:
        now += seconds * SECOND
        if cursor is None or cursor > now + horizon:
            continue
        for plan in work_off(a_job(schedule, cursor, overlap, has_open=has_open), now=now, horizon=horizon):
            settled += settled_by(plan)
            cursor = plan.next_fires_at

        assert cursor is None or cursor > now

    assert settled == ([] if first is None else firings_from(schedule, first, before=cursor))


# One by one


def test_a_firing_is_planned_ahead_of_time() -> None:
    job = a_job(Recurring(ByCron("* * * * *")), START + MINUTE)

    plan = plan_for(job, now=START + 57 * SECOND, horizon=HORIZON)

    assert plan == Plan(job=job, firings=[START + MINUTE], skip=None, next_fires_at=START + 2 * MINUTE)


def test_the_horizon_itself_is_within_it() -> None:
    plan = plan_for(every_second(Overlap.ALLOW), now=START - SECOND, horizon=SECOND)

    assert plan and plan.firings == [START]


def test_what_may_overlap_fills_the_horizon() -> None:
    plan = plan_for(every_second(Overlap.ALLOW, has_open=True), now=START - SECOND, horizon=HORIZON)

    assert plan and plan.firings == moments(0, 1, 2, 3, 4)
    assert plan.next_fires_at == START + 5 * SECOND


def test_while_one_is_open_nothing_is_decided_ahead_of_time() -> None:
    assert plan_for(every_second(has_open=True), now=START - SECOND, horizon=HORIZON) is None


def test_what_comes_due_while_one_is_open_is_skipped_because_of_it() -> None:
    plan = plan_for(every_second(has_open=True), now=START + 2 * SECOND, horizon=HORIZON)

    assert plan and (plan.firings, plan.next_fires_at) == ([], START + 3 * SECOND)
    assert plan.skip == Skip(START, START + 2 * SECOND, 3, OVERLAP)


@pytest.mark.parametrize("overlap", Overlap)
def test_of_what_nobody_planned_in_time_the_newest_runs_and_the_rest_is_a_misfire(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START + 3 * SECOND, horizon=timedelta(0))

    assert plan and (plan.firings, plan.next_fires_at) == ([START + 3 * SECOND], START + 4 * SECOND)
    assert plan.skip == Skip(START, START + 2 * SECOND, 3, MISFIRE)


@pytest.mark.parametrize("overlap", Overlap)
def test_one_that_is_late_alone_runs_and_nothing_is_skipped(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START, horizon=timedelta(0))

    assert plan and (plan.firings, plan.skip) == ([START], None)


@pytest.mark.parametrize("overlap", Overlap)
def test_the_last_firing_of_a_window_ends_the_job(overlap: Overlap) -> None:
    schedule = Recurring(Every(SECOND, START), ends_at=START)

    plan = plan_for(a_job(schedule, START, overlap), now=START, horizon=HORIZON)

    assert plan and (plan.firings, plan.next_fires_at) == ([START], None)


def test_a_window_that_closes_while_one_is_open_ends_the_job_and_says_what_was_skipped() -> None:
    schedule = Recurring(Every(SECOND, START), ends_at=START + SECOND)

    plan = plan_for(a_job(schedule, START, has_open=True), now=START + MINUTE, horizon=HORIZON)

    assert plan and (plan.firings, plan.next_fires_at) == ([], None)
    assert plan.skip == Skip(START, START + SECOND, 2, OVERLAP)


# Long outages and dense schedules


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("has_open", [False, True])
def test_after_a_month_away_one_step_stays_small(overlap: Overlap, has_open: bool) -> None:
    plan = plan_for(every_second(overlap, has_open=has_open), now=START + timedelta(days=30), horizon=HORIZON)

    assert plan
    assert len(plan.firings) <= MOST_FIRINGS + 1
    assert (plan.skip.count if plan.skip else 0) <= MOST_MISSED


def test_a_wide_horizon_is_filled_in_small_steps() -> None:
    plan = plan_for(every_second(Overlap.ALLOW), now=START - SECOND, horizon=timedelta(days=1))

    assert plan and len(plan.firings) == MOST_FIRINGS
    assert plan.next_fires_at == START + MOST_FIRINGS * SECOND


@pytest.mark.parametrize("overlap", Overlap)
def test_after_a_long_outage_a_step_settles_all_up_to_its_cursor(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START + 2 * MOST_MISSED * SECOND, horizon=HORIZON)

    assert plan and plan.next_fires_at
    assert len(plan.firings) + (plan.skip.count if plan.skip else 0) == (plan.next_fires_at - START) // SECOND


# In seconds, around the limit of `small_steps` and far beyond it.
OUTAGES = (0, 48, 49, 1000)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("overlap", "has_open"), [(Overlap.ALLOW, False), (Overlap.SKIP, False), (Overlap.SKIP, True)])
@pytest.mark.parametrize("seconds", OUTAGES)
def test_an_outage_of_any_length_is_worked_off_without_gaps(seconds: int, overlap: Overlap, has_open: bool) -> None:
    job = every_second(overlap, has_open=has_open)

    plans = work_off(job, now=START + seconds * SECOND)

    settled = [fires_at for plan in plans for fires_at in settled_by(plan)]
    assert settled == firings_from(job.schedule, START, before=plans[-1].next_fires_at)
    assert settled[-1] >= START + seconds * SECOND


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("seconds", OUTAGES)
def test_after_an_outage_of_any_length_the_newest_that_was_missed_runs(seconds: int, overlap: Overlap) -> None:
    plans = work_off(every_second(overlap), now=START + seconds * SECOND)

    late = [fires_at for plan in plans for fires_at in plan.firings if fires_at <= START + seconds * SECOND]
    assert late == [START + seconds * SECOND]


@pytest.mark.usefixtures("small_steps")
def test_a_dense_horizon_is_filled_in_order_over_several_steps() -> None:
    plans = work_off(every_second(Overlap.ALLOW), now=START - SECOND, horizon=timedelta(seconds=10))

    assert [len(plan.firings) for plan in plans] == [3, 3, 3, 1]
    assert all(later.job.next_fires_at == earlier.next_fires_at for earlier, later in pairwise(plans))
    assert [fires_at for plan in plans for fires_at in plan.firings] == moments(*range(10))
