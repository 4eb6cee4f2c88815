"""Planning: every firing happens or is accounted for, exactly once, whatever the clock and the workers do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.model import policy
from rota.model.calendar import Calendar
from rota.model.policy import (
    CALENDAR,
    GRACE,
    MISFIRE,
    MOST_BUFFERED,
    MOST_CAUGHT_UP,
    MOST_FIRINGS,
    MOST_MISSED,
    OVERLAP,
    PACE,
    PAUSED,
    Firing,
    Plan,
    Skip,
    Unplanned,
    is_failing,
    plan_for,
)
from rota.model.rules import Misfire, Overlap, Rules
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
rules_of_all_kinds = st.builds(
    lambda overlap, misfire, window, jitter, most: Rules(
        overlap=overlap,
        misfire=Misfire.LATEST if overlap.endswith("_other") and misfire is Misfire.ALL else misfire,
        misfire_window=window,
        jitter=jitter,
        max_executions=most,
    ),
    overlaps,
    st.sampled_from(Misfire),
    st.none() | st.integers(10, 4000).map(lambda seconds: seconds * SECOND),
    st.none() | st.integers(1, 90).map(lambda seconds: seconds * SECOND),
    st.none() | st.integers(1, 30),
)
calendars = st.none() | st.sampled_from(
    [
        Calendar(("2027-03-28",)),
        Calendar(("2027-03-27T22:10:00Z/2027-03-27T22:30:00Z", "2027-03-27T22:31:00Z/2027-03-27T22:45:00Z")),
    ]
)
EXCLUSIVE = [overlap for overlap in Overlap if overlap not in (Overlap.ALLOW, Overlap.BUFFER_ALL)]
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
    waiting = draw(st.sampled_from([0, 1, MOST_BUFFERED - 1, MOST_BUFFERED]))
    job = Unplanned(
        id=UUID(int=7),
        revision=0,
        next_fires_at=cursor,
        schedule=schedule,
        rules=draw(rules_of_all_kinds),
        has_open=waiting > 0 or draw(st.booleans()),
        waiting=waiting,
        fired=draw(st.integers(0, 30)),
        paused_through=draw(st.none() | st.integers(0, 7200).map(lambda seconds: START + seconds * SECOND)),
        calendar=draw(calendars),
    )
    return job, now, horizon


def a_job(
    schedule: Recurring, cursor: datetime, overlap: Overlap = Overlap.SKIP, *, has_open: bool = False, **rules: Any
) -> Unplanned:
    return Unplanned(
        id=UUID(int=7),
        revision=0,
        next_fires_at=cursor,
        schedule=schedule,
        rules=Rules(overlap=overlap, **rules),
        has_open=has_open,
    )


def every_second(overlap: Overlap = Overlap.SKIP, *, has_open: bool = False, **rules: Any) -> Unplanned:
    return a_job(Recurring(Every(SECOND, START)), START, overlap, has_open=has_open, **rules)


def fired_by(plan: Plan | None) -> list[datetime]:
    return [firing.fires_at for firing in plan.firings] if plan else []


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
    skipped = [fires_at for skip in plan.skips for fires_at in skipped_by(plan.job.schedule, skip)]
    return sorted(fired_by(plan) + skipped)


def work_off(job: Unplanned, *, now: datetime, horizon: timedelta = HORIZON) -> list[Plan]:
    """Plans until there is nothing left to do, as steps of the planner would; what was fired is open from then on."""
    plans: list[Plan] = []
    while job.next_fires_at <= now + horizon and (plan := plan_for(job, now=now, horizon=horizon)):
        plans.append(plan)
        if plan.finishes or plan.next_fires_at is None:
            break
        assert plan.next_fires_at > job.next_fires_at
        job = msgspec.structs.replace(
            job,
            next_fires_at=plan.next_fires_at,
            has_open=job.has_open or bool(plan.firings),
            fired=job.fired + len(plan.firings),
            waiting=job.waiting + (len(plan.firings) if plan.waits else 0),
        )
    return plans


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MOST_MISSED", 50)
    monkeypatch.setattr(policy, "MOST_FIRINGS", 3)
    monkeypatch.setattr(policy, "MOST_CAUGHT_UP", 5)
    monkeypatch.setattr(policy, "MOST_UNDECIDED", 8)


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

    if plan and plan.next_fires_at and (plan.firings or plan.skips):
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
        assert all(fires_at <= now + horizon for fires_at in fired_by(plan))
        assert all(skip.last <= now for skip in plan.skips)


@EVERY_TIME_THE_SAME
@given(situations())
def test_what_must_not_overlap_runs_alone_or_waits(situation: tuple[Unplanned, datetime, timedelta]) -> None:
    job, now, horizon = situation
    assume(job.rules.overlap is not Overlap.ALLOW)

    plan = plan_for(job, now=now, horizon=horizon)

    if plan and plan.firings and not plan.waits:
        assert not job.has_open and len(plan.firings) == 1
    if plan and plan.replaces:
        assert job.rules.replaces and plan.waits and len(plan.firings) == 1


@EVERY_TIME_THE_SAME
@given(situations())
def test_what_is_missed_runs_as_the_rules_say(situation: tuple[Unplanned, datetime, timedelta]) -> None:
    job, now, horizon = situation
    rules = job.rules

    fired = [fires_at for fires_at in fired_by(plan_for(job, now=now, horizon=horizon)) if now - fires_at > GRACE]

    assert len(fired) <= {Misfire.LATEST: 1, Misfire.ALL: MOST_CAUGHT_UP, Misfire.SKIP: 1000}[rules.misfire]
    assert all(rules.misfire_window is None or now - fires_at <= rules.misfire_window for fires_at in fired)
    assert rules.misfire is not Misfire.SKIP or rules.misfire_window or not fired


@EVERY_TIME_THE_SAME
@given(situations())
def test_nothing_fires_in_a_pause_or_on_a_barred_day_or_more_often_than_allowed(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation

    plan = plan_for(job, now=now, horizon=horizon)

    for fires_at in fired_by(plan):
        assert not (job.calendar and job.calendar.covers(fires_at, job.schedule.zone))
        assert not (job.paused_through and fires_at < job.paused_through)
    if plan and job.rules.max_executions is not None:
        assert len(plan.firings) <= max(0, job.rules.max_executions - job.fired)
        assert plan.finishes or job.fired + len(plan.firings) < job.rules.max_executions


@EVERY_TIME_THE_SAME
@given(situations())
def test_jitter_puts_a_start_off_but_never_past_the_next_firing(
    situation: tuple[Unplanned, datetime, timedelta],
) -> None:
    job, now, horizon = situation
    assume(job.rules.jitter is not None and job.rules.misfire is not Misfire.ALL)
    assert job.rules.jitter is not None

    plan = plan_for(job, now=now, horizon=horizon)

    for firing in plan.firings if plan else []:
        following = job.schedule.after(firing.fires_at)
        assert firing.fires_at <= firing.due_at < firing.fires_at + job.rules.jitter
        assert following is None or firing.due_at < following


@EVERY_TIME_THE_SAME
@given(
    schedules,
    rules_of_all_kinds,
    calendars,
    horizons,
    st.lists(st.tuples(st.integers(0, 30) | st.integers(0, 1800), st.booleans()), min_size=1, max_size=25),
)
def test_step_by_step_time_is_covered_without_gaps_and_without_doubles(
    schedule: Recurring,
    rules: Rules,
    calendar: Calendar | None,
    horizon: timedelta,
    steps: list[tuple[int, bool]],
) -> None:
    rules = msgspec.structs.replace(rules, max_executions=None)
    cursor = first = schedule.after(START)
    now = START
    settled: list[datetime] = []
    for seconds, has_open in steps:
        now += seconds * SECOND
        if cursor is None or cursor > now + horizon:
            continue
        job = msgspec.structs.replace(a_job(schedule, cursor), rules=rules, has_open=has_open, calendar=calendar)
        for plan in work_off(job, now=now, horizon=horizon):
            settled += settled_by(plan)
            cursor = plan.next_fires_at

        assert cursor is None or cursor > now

    assert settled == ([] if first is None else firings_from(schedule, first, before=cursor))


# One by one


def test_a_firing_is_planned_ahead_of_time() -> None:
    job = a_job(Recurring(ByCron("* * * * *")), START + MINUTE)

    plan = plan_for(job, now=START + 57 * SECOND, horizon=HORIZON)

    on_time = Firing(START + MINUTE, START + MINUTE)
    assert plan == Plan(job=job, firings=[on_time], skips=[], next_fires_at=START + 2 * MINUTE)


def test_the_horizon_itself_is_within_it() -> None:
    plan = plan_for(every_second(Overlap.ALLOW), now=START - SECOND, horizon=SECOND)

    assert fired_by(plan) == [START]


def test_what_may_overlap_fills_the_horizon() -> None:
    plan = plan_for(every_second(Overlap.ALLOW, has_open=True), now=START - SECOND, horizon=HORIZON)

    assert plan and fired_by(plan) == moments(0, 1, 2, 3, 4)
    assert plan.next_fires_at == START + 5 * SECOND


def test_while_one_is_open_nothing_is_decided_ahead_of_time() -> None:
    assert plan_for(every_second(has_open=True), now=START - SECOND, horizon=HORIZON) is None


def test_what_comes_due_while_one_is_open_is_skipped_because_of_it() -> None:
    plan = plan_for(every_second(has_open=True), now=START + 2 * SECOND, horizon=HORIZON)

    assert plan and (plan.firings, plan.next_fires_at) == ([], START + 3 * SECOND)
    assert plan.skips == [Skip(START, START + 2 * SECOND, 3, OVERLAP)]


@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_of_what_nobody_planned_in_time_the_newest_runs_and_the_rest_is_a_misfire(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START + 3 * SECOND, horizon=timedelta(0))

    assert plan and (fired_by(plan), plan.next_fires_at) == ([START + 3 * SECOND], START + 4 * SECOND)
    assert plan.skips == [Skip(START, START + 2 * SECOND, 3, MISFIRE)]


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.BUFFER_ALL])
def test_a_planner_that_stumbles_for_a_moment_misses_nothing_that_may_run_beside_or_after(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START + 3 * SECOND, horizon=timedelta(0))

    assert plan and (fired_by(plan), plan.skips) == (moments(0, 1, 2, 3), [])
    assert plan.waits == (overlap is Overlap.BUFFER_ALL)


@pytest.mark.parametrize("overlap", Overlap)
def test_one_that_is_late_alone_runs_and_nothing_is_skipped(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START, horizon=timedelta(0))

    assert plan and (fired_by(plan), plan.skips) == ([START], [])
    assert not plan.waits


def test_all_that_was_missed_runs_up_to_a_limit_and_at_a_pace() -> None:
    job = every_second(Overlap.ALLOW, misfire=Misfire.ALL)
    now = START + timedelta(hours=1)

    plans = work_off(job, now=now, horizon=timedelta(0))

    missed = [firing for plan in plans for firing in plan.firings if now - firing.fires_at > GRACE]
    fresh = [firing for plan in plans for firing in plan.firings if now - firing.fires_at <= GRACE]
    assert len(missed) == MOST_CAUGHT_UP
    assert [firing.due_at for firing in missed] == [now + place * PACE for place in range(MOST_CAUGHT_UP)]
    assert sum(skip.count for plan in plans for skip in plan.skips) == 3601 - len(missed) - len(fresh)
    assert {skip.because for plan in plans for skip in plan.skips} == {MISFIRE}


@pytest.mark.parametrize("has_open", [False, True])
def test_all_that_was_missed_waits_its_turn_where_nothing_may_overlap(has_open: bool) -> None:
    job = a_job(Recurring(Every(MINUTE, START)), START, has_open=has_open, misfire=Misfire.ALL)

    plan = plan_for(job, now=START + 4.5 * MINUTE, horizon=HORIZON)

    assert plan and plan.waits
    assert fired_by(plan) == [START + n * MINUTE for n in range(5)]
    assert plan.skips == []


@pytest.mark.parametrize("misfire", [Misfire.LATEST, Misfire.ALL])
def test_nothing_runs_that_is_later_than_the_window(misfire: Misfire) -> None:
    job = a_job(Recurring(Every(MINUTE, START), ends_at=START + 5 * MINUTE), START, misfire=misfire)
    strict = msgspec.structs.replace(job, rules=Rules(misfire=misfire, misfire_window=90 * SECOND))

    assert fired_by(plan_for(job, now=START + 8 * MINUTE, horizon=HORIZON))
    assert fired_by(plan_for(strict, now=START + 8 * MINUTE, horizon=HORIZON)) == []
    assert fired_by(plan_for(strict, now=START + 6 * MINUTE, horizon=HORIZON)) == [START + 5 * MINUTE]


def test_nothing_that_was_missed_runs_if_so_wished() -> None:
    job = a_job(Recurring(Every(MINUTE, START)), START, misfire=Misfire.SKIP)

    late = plan_for(job, now=START + 3.5 * MINUTE, horizon=timedelta(0))
    in_time = plan_for(job, now=START + GRACE, horizon=timedelta(0))

    assert late and late.skips == [Skip(START, START + 3 * MINUTE, 4, MISFIRE)]
    assert fired_by(late) == []
    assert fired_by(in_time) == [START]


def test_one_waits_and_the_others_are_skipped() -> None:
    job = every_second(Overlap.BUFFER_ONE, has_open=True)

    first = plan_for(job, now=START, horizon=HORIZON)
    second = plan_for(msgspec.structs.replace(job, waiting=1), now=START, horizon=HORIZON)

    assert first and (fired_by(first), first.waits, first.skips) == ([START], True, [])
    assert second and (second.firings, second.skips) == ([], [Skip(START, START, 1, OVERLAP)])


def test_all_wait_as_long_as_there_is_room() -> None:
    job = msgspec.structs.replace(every_second(Overlap.BUFFER_ALL, has_open=True), waiting=MOST_BUFFERED - 2)

    plan = plan_for(job, now=START + 4 * SECOND, horizon=HORIZON)

    assert plan and (fired_by(plan), plan.waits) == (moments(0, 1), True)
    assert plan.skips == [Skip(START + 2 * SECOND, START + 4 * SECOND, 3, OVERLAP)]


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER])
def test_the_new_one_takes_the_place_of_the_old_one(overlap: Overlap) -> None:
    busy = plan_for(every_second(overlap, has_open=True), now=START, horizon=HORIZON)
    free = plan_for(every_second(overlap), now=START, horizon=HORIZON)

    assert busy and (fired_by(busy), busy.waits, busy.replaces) == ([START], True, True)
    assert free and (fired_by(free), free.waits, free.replaces) == ([START], False, False)


def test_the_last_execution_that_is_allowed_ends_the_job() -> None:
    job = msgspec.structs.replace(every_second(Overlap.ALLOW, max_executions=5), fired=2)

    plan = plan_for(job, now=START - SECOND, horizon=HORIZON)

    assert plan and plan.finishes
    assert fired_by(plan) == moments(0, 1, 2)
    assert plan.next_fires_at == START + 3 * SECOND, "what would come next is known, and never comes"


def test_neighbours_with_one_reason_share_a_skip() -> None:
    """Per minute: paused until :02, a barred quarter of an hour from :04, the newest runs."""
    job = msgspec.structs.replace(
        a_job(Recurring(Every(MINUTE, START)), START),
        paused_through=START + 2 * MINUTE,
        calendar=Calendar(("2027-03-27T22:04:00Z/2027-03-27T22:19:00Z",)),
    )

    plan = plan_for(job, now=START + 30.5 * MINUTE, horizon=HORIZON)

    assert plan and fired_by(plan) == [START + 30 * MINUTE]
    assert [(skip.count, skip.because) for skip in plan.skips] == [
        (2, PAUSED),
        (2, MISFIRE),
        (15, CALENDAR),
        (11, MISFIRE),
    ]
    assert plan.leads and not plan.trails


def test_what_is_planned_ahead_ends_at_a_barred_day() -> None:
    job = msgspec.structs.replace(
        every_second(Overlap.ALLOW), calendar=Calendar(("2027-03-27T22:00:02Z/2027-03-27T22:00:03Z",))
    )

    plan = plan_for(job, now=START - SECOND, horizon=HORIZON)

    assert plan and fired_by(plan) == moments(0, 1)
    assert plan.next_fires_at == START + 2 * SECOND


def test_who_fails_too_often_in_a_row_is_failing() -> None:
    job = every_second(auto_pause_after=3)

    assert not is_failing(msgspec.structs.replace(job, failed_in_a_row=2))
    assert is_failing(msgspec.structs.replace(job, failed_in_a_row=3))
    assert not is_failing(msgspec.structs.replace(every_second(), failed_in_a_row=1000))


@pytest.mark.parametrize("overlap", Overlap)
def test_the_last_firing_of_a_window_ends_the_job(overlap: Overlap) -> None:
    schedule = Recurring(Every(SECOND, START), ends_at=START)

    plan = plan_for(a_job(schedule, START, overlap), now=START, horizon=HORIZON)

    assert plan and (fired_by(plan), plan.next_fires_at, plan.finishes) == ([START], None, True)


def test_a_window_that_closes_while_one_is_open_ends_the_job_and_says_what_was_skipped() -> None:
    schedule = Recurring(Every(SECOND, START), ends_at=START + SECOND)

    plan = plan_for(a_job(schedule, START, has_open=True), now=START + MINUTE, horizon=HORIZON)

    assert plan and (plan.firings, plan.next_fires_at) == ([], None)
    assert plan.skips == [Skip(START, START + SECOND, 2, OVERLAP)]


# Long outages and dense schedules


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("has_open", [False, True])
@pytest.mark.parametrize("rhythm", [Every(SECOND, START), ByCron("* * * * * *", "Europe/Berlin")])
def test_after_a_month_away_most_is_settled_at_once_and_without_going_through_it(
    rhythm: Every | ByCron, overlap: Overlap, has_open: bool
) -> None:
    now = START + timedelta(days=30)

    plans = work_off(a_job(Recurring(rhythm), START, overlap, has_open=has_open), now=now)

    assert len(plans) <= 3
    assert sum(skip.count for skip in plans[0].skips) == (plans[1].job.next_fires_at - START) // SECOND > 2_500_000
    skipped = sum(skip.count for plan in plans for skip in plan.skips)
    fired = [fires_at for plan in plans for fires_at in fired_by(plan) if fires_at <= now]
    assert skipped + len(fired) == 30 * 86_400 + 1


@EVERY_TIME_THE_SAME
@given(schedules, st.integers(6, 600), st.none() | st.integers(0, 600), calendars)
def test_counting_in_bulk_says_what_going_through_would(
    schedule: Recurring, minutes: int, pause: int | None, calendar: Calendar | None
) -> None:
    first = schedule.after(START)
    assume(first is not None)
    assert first is not None
    paused_through = None if pause is None else START + pause * MINUTE
    job = msgspec.structs.replace(a_job(schedule, first), paused_through=paused_through, calendar=calendar)

    plans = work_off(job, now=START + minutes * MINUTE)

    settled = [fires_at for plan in plans for fires_at in settled_by(plan)]
    assert settled == (firings_from(schedule, first, before=plans[-1].next_fires_at) if plans else [])


def test_a_wide_horizon_is_filled_in_small_steps() -> None:
    plan = plan_for(every_second(Overlap.ALLOW), now=START - SECOND, horizon=timedelta(days=1))

    assert plan and len(plan.firings) == MOST_FIRINGS
    assert plan.next_fires_at == START + MOST_FIRINGS * SECOND


@pytest.mark.parametrize("overlap", Overlap)
def test_after_a_long_outage_a_step_settles_all_up_to_its_cursor(overlap: Overlap) -> None:
    plan = plan_for(every_second(overlap), now=START + 2 * MOST_MISSED * SECOND, horizon=HORIZON)

    assert plan and plan.next_fires_at
    assert len(plan.firings) + sum(skip.count for skip in plan.skips) == (plan.next_fires_at - START) // SECOND


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
@pytest.mark.parametrize("overlap", EXCLUSIVE)
@pytest.mark.parametrize("seconds", OUTAGES)
def test_after_an_outage_of_any_length_the_newest_that_was_missed_runs(seconds: int, overlap: Overlap) -> None:
    plans = work_off(every_second(overlap), now=START + seconds * SECOND)

    late = [fires_at for plan in plans for fires_at in fired_by(plan) if fires_at <= START + seconds * SECOND]
    assert late == [START + seconds * SECOND]


@pytest.mark.usefixtures("small_steps")
def test_a_dense_horizon_is_filled_in_order_over_several_steps() -> None:
    plans = work_off(every_second(Overlap.ALLOW), now=START - SECOND, horizon=timedelta(seconds=10))

    assert [len(plan.firings) for plan in plans] == [3, 3, 3, 1]
    assert all(later.job.next_fires_at == earlier.next_fires_at for earlier, later in pairwise(plans))
    assert [fires_at for plan in plans for fires_at in fired_by(plan)] == moments(*range(10))
