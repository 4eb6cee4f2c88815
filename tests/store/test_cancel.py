from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.model.execution import Status
from rota.model.job import JobStatus
from rota.model.retry import Done, HandedBack, Raised, Stopped
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, a_job, a_recurring_job, a_worker, claim, ended, executions, submit


async def test_a_pending_execution_is_cancelled_at_once(store: PostgresStore) -> None:
    [job] = await submit(store, a_job())

    await store.cancel_jobs([job.id])

    assert await claim(store) == []
    [shown] = await executions(store)
    assert shown.status is Status.CANCELLED


async def test_a_running_one_is_told_with_the_next_claim_and_renewal(store: PostgresStore) -> None:
    await a_worker(store)
    [job] = await submit(store, a_job())
    [claimed] = await claim(store)

    await store.cancel_executions([claimed.key])

    assert (await store.renew(ALICE)).cancelled == [claimed.key]
    await store.finish([ended(claimed, Stopped())])
    [found] = await store.find_jobs([job.id])
    assert found.status is Status.CANCELLED
    assert (await store.renew(ALICE)).cancelled == []


async def test_completed_before_noticing_stays_completed(store: PostgresStore) -> None:
    [job] = await submit(store, a_job())
    [claimed] = await claim(store)
    await store.cancel_jobs([job.id])

    await store.finish([ended(claimed, Done())])

    assert [e.status for e in await executions(store)] == [Status.COMPLETED]


async def test_what_was_cancelled_while_running_is_not_tried_again(store: PostgresStore) -> None:
    jobs = await submit(store, a_job(), a_job())
    first, second = await claim(store)
    await store.cancel_jobs([job.id for job in jobs])

    refused = await store.finish([ended(first, Raised("boom")), ended(second, HandedBack())])

    assert refused == []
    assert [e.status for e in await executions(store)] == [Status.CANCELLED] * 2


async def test_a_cancelled_recurring_job_fires_no_more(store: PostgresStore, clock: FakeClock) -> None:
    [job] = await submit(store, a_recurring_job("* * * * *", clock.moment))

    await store.cancel_jobs([job.id])

    clock.advance(hours=1)
    assert (await store.unplanned(horizon=timedelta(minutes=5), limit=10))[1] == []
    [found] = await store.find_jobs([job.id])
    assert (found.status, found.next_fires_at) == (JobStatus.CANCELLED, None)


async def test_cancelling_what_has_ended_changes_nothing(store: PostgresStore) -> None:
    [job] = await submit(store, a_job())
    [claimed] = await claim(store)
    await store.finish([ended(claimed)])

    await store.cancel_jobs([job.id])
    await store.cancel_executions([claimed.key])

    assert [e.status for e in await executions(store)] == [Status.COMPLETED]


async def test_a_cancellation_is_not_lost_between_an_ending_and_the_next_try(store: PostgresStore) -> None:
    for _ in range(20):
        [job] = await submit(store, a_job())
        [claimed] = await claim(store)
        await asyncio.gather(store.finish([ended(claimed, Raised("again"))]), store.cancel_jobs([job.id]))
        [found] = await store.find_jobs([job.id])
        assert found.status is Status.CANCELLED


async def test_a_cancellation_is_not_lost_on_a_claim(store: PostgresStore) -> None:
    for _ in range(20):
        [job] = await submit(store, a_job())
        assert job.last_execution is not None
        key = job.last_execution.key
        claimed, _ = await asyncio.gather(claim(store), store.cancel_executions([key]))
        assert (await store.renew(ALICE)).cancelled == [c.key for c in claimed]
        await store.finish([ended(c, Stopped()) for c in claimed])
        [found] = await store.find_jobs([job.id])
        assert found.status is Status.CANCELLED


async def test_what_is_given_back_after_its_cancellation_ends(store: PostgresStore) -> None:
    [job] = await submit(store, a_job())
    await claim(store, lease_id=5)
    await store.cancel_jobs([job.id])

    await store.give_back(ALICE, [5])

    assert [e.status for e in await executions(store)] == [Status.CANCELLED]
