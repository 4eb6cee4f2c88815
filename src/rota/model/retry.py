"""What becomes of an execution when one of its attempts is over. Pure: no clock, no chance."""

from __future__ import annotations

from typing import assert_never
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from rota.model.definition import Policy, policy_of
from rota.model.execution import Claimed, Ending, Verdict

# Crashes of a process that an attempt had for itself: a poison job shows itself fast.
MAX_CRASHES = 3
# Whoever shared a process that crashed is a suspect (1 in the counter) and runs alone from then on; only crashes alone
# are counted on from there.
SUSPECT = 1
# Lost workers say more about the machines than about the job, but not for ever.
MAX_LAPSES = 20
LONGEST_WAIT = 366 * 86_400.0


# How an attempt went, as its worker or the reaper saw it.


class Done(Struct, frozen=True, tag=True, array_like=True):
    result: str | None = None


class Raised(Struct, frozen=True, tag=True, array_like=True):
    """The task failed. `after` is its own wish for the next try, `final` that there be none."""

    error: str
    after: float | None = None
    final: bool = False


class TimedOut(Struct, frozen=True, tag=True, array_like=True):
    seconds: float


class Stopped(Struct, frozen=True, tag=True, array_like=True):
    """Its cancellation was asked for and has been carried out."""


class Crashed(Struct, frozen=True, tag=True, array_like=True):
    """The process it ran in died; `alone` if nobody else was running there."""

    detail: str
    alone: bool = True


class TooLate(Struct, frozen=True, tag=True, array_like=True):
    """It was not to begin any more when it came."""


class LeaseLapsed(Struct, frozen=True, tag=True, array_like=True):
    """Its worker was declared dead."""


class HandedBack(Struct, frozen=True, tag=True, array_like=True):
    """Not its fault: the worker drained, or the attempt shared a process that had to be killed."""

    after: float | None = None


Outcome = Done | Raised | TimedOut | Stopped | Crashed | TooLate | LeaseLapsed | HandedBack


def ending_for(claimed: Claimed, outcome: Outcome, *, worker_id: str, started_ago: float | None = None) -> Ending:
    """The one rule for every way an attempt can go."""
    ending = Ending(
        job_id=claimed.job_id,
        fires_at=claimed.fires_at,
        run=claimed.run,
        attempt=claimed.attempt,
        lease_id=claimed.lease_id,
        worker_id=worker_id,
        outcome=outcome,
        verdict=Verdict.COMPLETED,
        failures=claimed.failures,
        crashes=claimed.crashes,
        lapses=claimed.lapses,
        result=outcome.result if isinstance(outcome, Done) else None,
        started_ago=started_ago,
    )
    match outcome:
        case Done():
            return ending
        case Raised(error, after, final):
            return _failed(ending, claimed, error, after=after, final=final)
        case TimedOut(seconds):
            return _failed(ending, claimed, f"TimedOut: the attempt took longer than {seconds:g} s")
        case Stopped():
            return replace(ending, verdict=Verdict.CANCELLED)
        case Crashed(detail, alone):
            crashes = max(SUSPECT, claimed.crashes) + alone
            verdict = Verdict.FAILED if crashes >= SUSPECT + MAX_CRASHES else Verdict.RETRY
            return replace(ending, verdict=verdict, crashes=crashes, error=f"Crashed: {detail}")
        case TooLate():
            return replace(ending, verdict=Verdict.SKIPPED)
        case LeaseLapsed():
            lapses = claimed.lapses + 1
            verdict = Verdict.FAILED if lapses >= MAX_LAPSES else Verdict.RETRY
            return replace(ending, verdict=verdict, lapses=lapses, error=f"LeaseLapsed: worker {worker_id} was lost")
        case HandedBack(after):
            return replace(ending, verdict=Verdict.RELEASE, after=after)
        case _:
            assert_never(outcome)


def _failed(ending: Ending, claimed: Claimed, error: str, *, after: float | None = None, final: bool = False) -> Ending:
    policy = policy_of(claimed.policy)
    failures = claimed.failures + 1
    if final or failures > policy.max_retries:
        return replace(ending, verdict=Verdict.FAILED, failures=failures, error=error)
    wait = policy.backoff.delay(failures, luck_of(claimed)) if after is None else min(after, LONGEST_WAIT)
    return replace(ending, verdict=Verdict.RETRY, failures=failures, after=wait, error=error)


def timeout_of(claimed: Claimed, policy: Policy) -> float:
    """How long this attempt may take: its deadline cuts the last one short."""
    if claimed.deadline_in is None:
        return policy.timeout
    return max(0.001, min(policy.timeout, claimed.deadline_in - max(0.0, claimed.due_in)))


def luck_of(claimed: Claimed) -> float:
    """The same for the same attempt, different for its neighbours: chance without a dice."""
    return crc32(f"{claimed.key}/{claimed.attempt}".encode()) / 2**32
