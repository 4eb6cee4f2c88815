"""What becomes of an execution when an attempt is over: every outcome, every counter, every wait."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.definition import DEFAULT, Backoff, Policy, policy_of, policy_text
from rota.model.execution import Claimed, Ending, Verdict
from rota.model.retry import (
    MAX_CRASHES,
    MAX_LAPSES,
    SUSPECT,
    Crashed,
    Done,
    HandedBack,
    LeaseLapsed,
    Outcome,
    Raised,
    Stopped,
    TimedOut,
    ending_for,
    luck_of,
)

EVERY_TIME_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)
CENTURY = timedelta(days=36525).total_seconds()
FAILURES: list[Outcome] = [Raised("no"), TimedOut(2.0)]
OUTCOMES: list[Outcome] = [Done("1"), *FAILURES, Stopped(), Crashed("signal 9"), LeaseLapsed(), HandedBack()]

backoffs = st.builds(
    Backoff,
    initial=st.floats(0, 1e4, width=16),
    factor=st.floats(1, 1000, width=16),
    cap=st.floats(0, 1e4, width=16),
    jitter=st.floats(0, 1, width=16),
)
failure_counts = st.integers(1, 200) | st.integers(1, 10**30)
lucks = st.floats(0, 1, exclude_max=True)


def an_attempt(
    *,
    attempt: int = 1,
    failures: int = 0,
    crashes: int = 0,
    lapses: int = 0,
    policy: Policy = DEFAULT,
    job_id: int = 7,
    fires_at: datetime = datetime(2027, 1, 4, 10, tzinfo=UTC),
) -> Claimed:
    return Claimed(
        job_id=UUID(int=job_id),
        fires_at=fires_at,
        run=0,
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        lapses=lapses,
        task_id="echo",
        user_id="ann",
        parameters="{}",
        policy=policy_text(policy),
        priority=0,
        due_in=0.0,
        lease_id=99,
    )


def after(claimed: Claimed, outcome: Outcome) -> Ending:
    return ending_for(claimed, outcome, worker_id="w-alice", started_ago=1.5)


def tried_again(claimed: Claimed, ending: Ending) -> Claimed:
    return msgspec.structs.replace(
        claimed,
        attempt=claimed.attempt + 1,
        failures=ending.failures,
        crashes=ending.crashes,
        lapses=ending.lapses,
    )


def until_it_ends(claimed: Claimed, outcome: Outcome) -> list[Verdict]:
    """The verdicts when every attempt goes the same way."""
    verdicts: list[Verdict] = []
    while not verdicts or verdicts[-1] is Verdict.RETRY:
        ending = after(claimed, outcome)
        verdicts.append(ending.verdict)
        claimed = tried_again(claimed, ending)
    return verdicts


# Waiting


@EVERY_TIME_THE_SAME
@given(backoffs, failure_counts, failure_counts, lucks)
def test_waiting_only_grows_with_failures(backoff: Backoff, one: int, other: int, luck: float) -> None:
    fewer, more = sorted((one, other))

    assert backoff.delay(fewer, luck) <= backoff.delay(more, luck)


@EVERY_TIME_THE_SAME
@given(backoffs, failure_counts, lucks)
def test_waiting_is_never_negative_and_never_beyond_the_cap(backoff: Backoff, failures: int, luck: float) -> None:
    assert 0 <= backoff.delay(failures, luck) <= backoff.cap


@EVERY_TIME_THE_SAME
@given(backoffs, failure_counts, lucks)
def test_jitter_only_takes_off_and_no_more_than_its_share(backoff: Backoff, failures: int, luck: float) -> None:
    full = backoff.delay(failures, 0)

    assert full * (1 - backoff.jitter) <= backoff.delay(failures, luck) <= full


@EVERY_TIME_THE_SAME
@given(backoffs)
def test_the_first_wait_is_the_initial_one(backoff: Backoff) -> None:
    assert backoff.delay(1, 0) == min(backoff.initial, backoff.cap)


def test_waiting_doubles_from_a_second_to_an_hour_by_default() -> None:
    waits = [Backoff().delay(failures, 0) for failures in (1, 2, 3, 12, 13, 10**9)]

    assert waits == [1, 2, 4, 2048, 3600, 3600]


@pytest.mark.parametrize("factor", [65536.0, 1e10, 1e300])
def test_however_steep_the_growth_the_cap_holds(factor: float) -> None:
    assert Backoff(factor=factor).delay(100, 0) == 3600


@EVERY_TIME_THE_SAME
@given(st.integers(1, 2**31), st.integers(0, 2**128 - 1))
def test_luck_is_the_same_for_the_same_attempt_and_within_bounds(attempt: int, job_id: int) -> None:
    luck = luck_of(an_attempt(attempt=attempt, job_id=job_id))

    assert luck == luck_of(an_attempt(attempt=attempt, job_id=job_id))
    assert 0 <= luck < 1


def test_luck_spreads_the_herd() -> None:
    lucks_of_neighbours = [luck_of(an_attempt(job_id=job_id)) for job_id in range(1000)]

    in_each_tenth = Counter(math.floor(luck * 10) for luck in lucks_of_neighbours)
    assert all(50 < in_each_tenth[tenth] < 200 for tenth in range(10))


def test_luck_differs_from_try_to_try() -> None:
    assert len({luck_of(an_attempt(attempt=attempt)) for attempt in range(1, 101)}) == 100


# Endings


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_ending_says_which_attempt_it_ends(outcome: Outcome) -> None:
    claimed = an_attempt(attempt=4)

    ending = after(claimed, outcome)

    assert (ending.key, ending.attempt, ending.lease_id) == (claimed.key, 4, 99)
    assert (ending.worker_id, ending.started_ago) == ("w-alice", 1.5)


@pytest.mark.parametrize(
    ("outcome", "verdict", "counters"),
    [
        (Done("1"), Verdict.COMPLETED, (1, 1, 1)),
        (Raised("no"), Verdict.RETRY, (2, 1, 1)),
        (TimedOut(2.0), Verdict.RETRY, (2, 1, 1)),
        (Stopped(), Verdict.CANCELLED, (1, 1, 1)),
        (Crashed("signal 9"), Verdict.RETRY, (1, 2, 1)),
        (LeaseLapsed(), Verdict.RETRY, (1, 1, 2)),
        (HandedBack(), Verdict.RELEASE, (1, 1, 1)),
    ],
)
def test_each_outcome_moves_its_own_counter_only(
    outcome: Outcome, verdict: Verdict, counters: tuple[int, int, int]
) -> None:
    ending = after(an_attempt(failures=1, crashes=1, lapses=1), outcome)

    assert ending.verdict is verdict
    assert (ending.failures, ending.crashes, ending.lapses) == counters


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Done("1"), None),
        (Raised("no such customer"), "no such customer"),
        (TimedOut(2.0), "TimedOut: the attempt took longer than 2 s"),
        (TimedOut(0.25), "TimedOut: the attempt took longer than 0.25 s"),
        (Stopped(), None),
        (Crashed("signal 9"), "Crashed: signal 9"),
        (LeaseLapsed(), "LeaseLapsed: worker w-alice was lost"),
        (HandedBack(), None),
    ],
)
def test_an_ending_says_what_went_wrong(outcome: Outcome, error: str | None) -> None:
    assert after(an_attempt(), outcome).error == error


@pytest.mark.parametrize("result", [None, "null", '{"sent":3}'])
def test_a_result_is_passed_through_as_it_is(result: str | None) -> None:
    assert after(an_attempt(), Done(result)).result == result


def test_success_counts_also_when_the_retries_are_used_up() -> None:
    assert after(an_attempt(failures=3, crashes=2, lapses=19), Done()).verdict is Verdict.COMPLETED


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("max_retries", [0, 1, 3, 25])
def test_there_are_exactly_as_many_retries_as_were_asked_for(failure: Outcome, max_retries: int) -> None:
    verdicts = until_it_ends(an_attempt(policy=Policy(max_retries=max_retries)), failure)

    assert verdicts == [Verdict.RETRY] * max_retries + [Verdict.FAILED]


@pytest.mark.parametrize(("outcome", "limit"), [(Crashed("signal 11"), MAX_CRASHES), (LeaseLapsed(), MAX_LAPSES)])
@pytest.mark.parametrize("max_retries", [0, 1000])
def test_crashes_and_lost_workers_have_limits_of_their_own(outcome: Outcome, limit: int, max_retries: int) -> None:
    verdicts = until_it_ends(an_attempt(policy=Policy(max_retries=max_retries)), outcome)

    assert verdicts == [Verdict.RETRY] * (limit - 1) + [Verdict.FAILED]


@pytest.mark.parametrize("outcome", [Crashed("signal 9"), LeaseLapsed(), HandedBack()])
def test_what_is_not_the_tasks_fault_is_tried_again_at_once(outcome: Outcome) -> None:
    assert after(an_attempt(failures=2), outcome).after is None


@EVERY_TIME_THE_SAME
@given(st.lists(st.sampled_from([*FAILURES, Crashed("signal 9"), LeaseLapsed(), HandedBack()]), max_size=60))
def test_whatever_happens_the_counters_say_what_happened(story: list[Outcome]) -> None:
    claimed = an_attempt(policy=Policy(max_retries=5))
    happened: Counter[str] = Counter()
    for outcome in story:
        ending = after(claimed, outcome)
        happened[type(outcome).__name__] += 1
        failures = happened["Raised"] + happened["TimedOut"]

        crashes = happened["Crashed"]
        assert (ending.failures, ending.crashes, ending.lapses) == (
            failures,
            SUSPECT + crashes if crashes else 0,
            happened["LeaseLapsed"],
        )
        if ending.verdict is Verdict.FAILED:
            assert failures == 6 or crashes == MAX_CRASHES or ending.lapses == MAX_LAPSES
            return
        assert failures <= 5 and crashes < MAX_CRASHES and ending.lapses < MAX_LAPSES
        claimed = tried_again(claimed, ending)


@EVERY_TIME_THE_SAME
@given(backoffs, st.integers(0, 50), st.integers(1, 1000))
def test_a_retry_waits_as_the_policy_says(backoff: Backoff, failures: int, attempt: int) -> None:
    claimed = an_attempt(attempt=attempt, failures=failures, policy=Policy(max_retries=100, backoff=backoff))

    assert after(claimed, Raised("no")).after == backoff.delay(failures + 1, luck_of(claimed))


@pytest.mark.parametrize("wish", [0.0, 0.001, 7.0, 86400.0])
def test_the_tasks_own_wish_wins_over_the_backoff(wish: float) -> None:
    claimed = an_attempt(policy=Policy(backoff=Backoff(initial=60, cap=60)))

    ending = after(claimed, Raised("later", after=wish))

    assert (ending.verdict, ending.after, ending.failures) == (Verdict.RETRY, wish, 1)


def test_a_wish_for_later_does_not_lengthen_the_retries() -> None:
    ending = after(an_attempt(failures=3), Raised("later", after=7.0))

    assert (ending.verdict, ending.after, ending.failures) == (Verdict.FAILED, None, 4)


@pytest.mark.parametrize("wish", [math.inf, 1e300, 1e12])
def test_a_wish_that_leads_out_of_the_calendar_is_brought_back_into_it(wish: float) -> None:
    ending = after(an_attempt(), Raised("later", after=wish))

    assert ending.after is not None
    assert 0 <= ending.after <= CENTURY


@pytest.mark.parametrize("wish", [None, 7.0])
def test_a_final_failure_is_not_tried_again(wish: float | None) -> None:
    ending = after(an_attempt(policy=Policy(max_retries=25)), Raised("never", after=wish, final=True))

    assert (ending.verdict, ending.after, ending.failures) == (Verdict.FAILED, None, 1)


def test_the_policy_of_the_execution_counts() -> None:
    patient = Policy(max_retries=1, backoff=Backoff(initial=30, jitter=0))

    ending = after(an_attempt(policy=patient), Raised("no"))

    assert ending.after == 30


# The policy as stored


@EVERY_TIME_THE_SAME
@given(st.builds(Policy, max_retries=st.integers(0, 1000), backoff=backoffs, timeout=st.floats(0.001, 1e6)))
def test_a_policy_reads_as_it_was_written(policy: Policy) -> None:
    assert policy_of(policy_text(policy)) == policy


def test_the_default_policy_takes_no_room() -> None:
    assert policy_text(Policy()) is None


def test_a_crash_in_company_only_makes_suspects() -> None:
    claimed = an_attempt()
    for _ in range(10):
        ending = after(claimed, Crashed("signal 9", alone=False))
        assert (ending.verdict, ending.crashes) == (Verdict.RETRY, SUSPECT)
        claimed = tried_again(claimed, ending)
