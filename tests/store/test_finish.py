from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota.model.definition import Backoff
from rota.model.execution import Status, Verdict
from rota.model.query import ExecutionFilter, Page
from rota.model.retry import MAX_CRASHES, Crashed, Done, HandedBack, LeaseLapsed, Outcome, Raised, Stopped
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, a_job, a_worker, claim, ended, executions, submit


async def test_a_completed_execution_is_history(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)
    clock.advance(seconds=2)

    refused = await store.finish([ended(claimed, Done('{"sent":1}'))])

    [shown] = await executions(store)
    assert refused == []
    assert shown.status is Status.COMPLETED
    assert shown.result == '{"sent":1}'
    assert shown.worker_id == ALICE
    assert shown.finished_at == shown.started_at == clock.moment
    assert (await store.db.fetch("select count(*) from executions"))[0][0] == 0


async def test_started_at_is_told_as_a_duration(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)
    clock.advance(seconds=5)
    ending = ended(claimed)
    await store.finish(
        [type(ending)(**{f: getattr(ending, f) for f in ending.__struct_fields__} | {"started_ago": 2.0})]
    )

    [shown] = await executions(store)

    assert shown.started_at is not None
    assert (clock.moment - shown.started_at).total_seconds() == 2.0


async def test_a_late_ending_is_refused(store: PostgresStore) -> None:
    await a_worker(store)
    await submit(store, a_job())
    [first] = await claim(store, ALICE, lease_id=1)
    await store.give_back(ALICE, [1])
    [second] = await claim(store, BOB)
    before = await _rows(store)

    refused = await store.finish([ended(first)])

    assert [r.attempt for r in refused] == [1]
    assert await _rows(store) == before
    assert await store.finish([ended(second, worker_id=BOB)]) == []


async def test_the_right_attempt_with_another_lease_is_refused(store: PostgresStore) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)
    forged = type(claimed)(**{f: getattr(claimed, f) for f in claimed.__struct_fields__} | {"lease_id": 42})

    for outcome in (Done(), Raised("no"), HandedBack(), Stopped()):
        assert len(await store.finish([ended(forged, outcome)])) == 1

    assert await store.finish([ended(claimed)]) == []


@pytest.mark.parametrize("outcome", [Done("1"), Raised("boom"), Raised("boom", final=True), Stopped()])
async def test_an_ending_told_twice_is_accepted_twice_and_counts_once(store: PostgresStore, outcome: Outcome) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)
    await store.finish([ended(claimed, outcome)])
    after_first = await _rows(store)

    assert await store.finish([ended(claimed, outcome)]) == []
    assert await _rows(store) == after_first


async def test_a_failure_is_retried_after_its_backoff(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(max_retries=1, backoff=Backoff(initial=10, jitter=0)))
    [first] = await claim(store)

    await store.finish([ended(first, Raised("boom"))])

    [shown] = await executions(store)
    assert (shown.status, shown.failures, shown.error) == (Status.RETRYING, 1, "boom")
    clock.advance(seconds=9.9)
    assert await claim(store) == []
    clock.advance(seconds=0.2)
    [second] = await claim(store)
    assert (second.attempt, second.failures) == (2, 1)


async def test_the_last_failure_is_a_dead_letter(store: PostgresStore) -> None:
    await submit(store, a_job(max_retries=0))
    [only] = await claim(store)

    await store.finish([ended(only, Raised("boom"))])

    [shown] = await executions(store)
    assert (shown.status, shown.failures, shown.error) == (Status.FAILED, 1, "boom")
    [letter] = (await store.dead_letters(ExecutionFilter(), Page(10))).items
    assert letter.key == only.key
    [attempt] = await store.attempts(only.key)
    assert (attempt.attempt, attempt.verdict, attempt.error) == (1, Verdict.FAILED, "boom")


async def test_a_redriven_letter_is_the_next_run_of_its_firing(store: PostgresStore) -> None:
    [job] = await submit(store, a_job(max_retries=0))
    [only] = await claim(store)
    await store.finish([ended(only, Raised("boom"))])

    again, refused = await store.redrive([only.key, only.key._replace(run=7)])

    assert again == [only.key._replace(run=1)]
    assert [r.key.run for r in refused] == [7]
    assert (await store.dead_letters(ExecutionFilter(), Page(10))).items == []
    [claimed] = await claim(store)
    assert (claimed.run, claimed.attempt, claimed.failures) == (1, 1, 0)
    await store.finish([ended(claimed)])
    assert [e.status for e in await executions(store)] == [Status.COMPLETED, Status.FAILED]
    [found] = await store.find_jobs([job.id])
    assert found.status is Status.COMPLETED


async def test_a_drained_attempt_uses_up_nothing(store: PostgresStore) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)

    await store.finish([ended(claimed, HandedBack())])

    [again] = await claim(store)
    assert (again.attempt, again.failures, again.crashes, again.lapses) == (2, 0, 0, 0)


async def test_crashes_have_a_limit_of_their_own(store: PostgresStore) -> None:
    await submit(store, a_job(max_retries=0))
    for _ in range(MAX_CRASHES):
        [claimed] = await claim(store)
        await store.finish([ended(claimed, Crashed("exit code 9"))])

    [shown] = await executions(store)
    assert (shown.status, shown.failures) == (Status.FAILED, 0)


async def test_a_lapse_is_retried_at_once_and_kept_apart_from_failures(store: PostgresStore) -> None:
    await submit(store, a_job(max_retries=0))
    [claimed] = await claim(store)

    await store.finish([ended(claimed, LeaseLapsed())])

    [again] = await claim(store)
    assert (again.failures, again.lapses) == (0, 1)


async def test_many_endings_of_all_kinds_in_one_call(store: PostgresStore) -> None:
    await submit(store, *(a_job(max_retries=0) for _ in range(100)))
    claimed = await claim(store, limit=100)
    outcomes: list[Outcome] = [Done(), Raised("x"), HandedBack(), Stopped()]

    refused = await store.finish([ended(c, outcomes[n % 4]) for n, c in enumerate(claimed)])

    assert refused == []
    statuses = [e.status for e in await executions(store)]
    assert {s: statuses.count(s) for s in set(statuses)} == {
        Status.COMPLETED: 25, Status.FAILED: 25, Status.QUEUED: 25, Status.CANCELLED: 25,
    }  # fmt: skip


async def test_endings_of_two_attempts_of_one_execution_travel_together(store: PostgresStore) -> None:
    await submit(store, a_job())
    [first] = await claim(store)
    told = ended(first, HandedBack())
    await store.finish([told])
    [second] = await claim(store)

    refused = await store.finish([told, ended(second)])

    assert [r.attempt for r in refused] in ([], [1])
    assert [e.status for e in await executions(store)] == [Status.COMPLETED]


async def test_of_two_different_endings_of_one_attempt_the_first_counts(store: PostgresStore) -> None:
    await submit(store, a_job())
    [claimed] = await claim(store)

    refused = await store.finish([ended(claimed, Done("1")), ended(claimed, Raised("no", final=True))])

    assert [r.verdict for r in refused] == [Verdict.FAILED]
    assert [e.status for e in await executions(store)] == [Status.COMPLETED]


async def test_an_ending_is_not_refused_because_others_touch_its_row(store: PostgresStore) -> None:
    jobs = await submit(store, *(a_job() for _ in range(30)))
    claimed = await claim(store)

    async def fidget() -> None:
        for _ in range(5):
            await store.cancel_executions([c.key for c in claimed])
            await store.cancel_jobs([job.id for job in jobs])

    *_, refused = await asyncio.gather(*(fidget() for _ in range(4)), store.finish([ended(c) for c in claimed]))

    assert refused == []
    assert (await store.db.fetch("select count(*) from executions"))[0][0] == 0


async def _rows(store: PostgresStore) -> list[list[asyncpg.Record]]:
    """Every byte that an ending could touch."""
    tables = ("executions", "history", "attempts", "dead_letters")
    return [await store.db.fetch(f"select * from {table} order by job_id, run") for table in tables]
