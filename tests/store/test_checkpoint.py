"""A checkpoint is fenced as an ending is, and the next attempt goes on from it."""

from __future__ import annotations

import asyncio

import pytest

from rota.model.definition import Backoff
from rota.model.execution import Claimed, checkpoint_of
from rota.model.retry import Crashed, HandedBack, LeaseLapsed, Outcome, Raised
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, a_job, a_worker, claim, ended, submit

AT_ONCE = Backoff(initial=0, jitter=0)


async def kept(store: PostgresStore, claimed: Claimed, value: str) -> bool:
    return await store.checkpoint([checkpoint_of(claimed, value)]) == []


@pytest.mark.parametrize("outcome", [Raised("no"), Crashed("exit 9"), LeaseLapsed(), HandedBack()])
async def test_the_next_attempt_goes_on_from_it(store: PostgresStore, outcome: Outcome) -> None:
    await submit(store, a_job(backoff=AT_ONCE))
    [first] = await claim(store)
    assert first.checkpoint is None
    assert await kept(store, first, '{"page":1}')
    assert await kept(store, first, '{"page":2}')

    await store.finish([ended(first, outcome)])

    [second] = await claim(store)
    assert second.checkpoint == '{"page":2}'


async def test_it_outlives_a_claim_that_was_given_back(store: PostgresStore) -> None:
    await a_worker(store)
    await submit(store, a_job())
    [first] = await claim(store, lease_id=1)
    await kept(store, first, "1")
    await store.give_back(ALICE, [1])

    [second] = await claim(store, BOB)

    assert second.checkpoint == "1"


async def test_a_stale_attempt_is_refused_and_changes_nothing(store: PostgresStore) -> None:
    await submit(store, a_job())
    [stale] = await claim(store)
    await kept(store, stale, '"old"')
    await store.finish([ended(stale, HandedBack())])
    assert not await kept(store, stale, '"zombie"'), "nobody holds it"
    [fresh] = await claim(store, BOB)

    assert not await kept(store, stale, '"zombie"'), "somebody else holds it"

    assert fresh.checkpoint == '"old"'
    assert await kept(store, fresh, '"new"')
    await store.finish([ended(fresh, worker_id=BOB)])
    assert not await kept(store, fresh, '"late"'), "it has ended"


async def test_of_many_only_the_stale_are_refused_and_the_last_of_one_attempt_counts(store: PostgresStore) -> None:
    await submit(store, *(a_job(backoff=AT_ONCE) for _ in range(10)))
    claimed = await claim(store)
    await store.finish([ended(each) for each in claimed[:3]])

    told = [checkpoint_of(each, f'"{turn}"') for turn in (1, 2) for each in claimed]
    refused = await store.checkpoint(told)

    assert {(r.key, r.value) for r in refused} == {(c.key, f'"{turn}"') for c in claimed[:3] for turn in (1, 2)}
    await store.finish([ended(each, Raised("no")) for each in claimed[3:]])
    assert [each.checkpoint for each in await claim(store)] == ['"2"'] * 7


async def test_a_redriven_letter_goes_on_from_it_and_a_run_by_hand_starts_afresh(store: PostgresStore) -> None:
    [job] = await submit(store, a_job(max_retries=0))
    [only] = await claim(store)
    await kept(store, only, "7")
    await store.finish([ended(only, Raised("no"))])

    await store.redrive([only.key])
    [redriven] = await claim(store)
    await store.finish([ended(redriven, Raised("no"))])
    [seen] = await store.find_jobs([job.id])
    await store.run_now(seen)
    [by_hand] = await claim(store)

    assert (redriven.run, redriven.checkpoint) == (1, "7")
    assert (by_hand.run, by_hand.checkpoint) == (2, None)


async def test_a_checkpoint_that_meets_a_cancellation_is_kept(store: PostgresStore, clock: FakeClock) -> None:
    """The row changes under the hands of the one that waited for it; its fence holds all the same."""
    await submit(store, *(a_job() for _ in range(50)))
    claimed = await claim(store)

    refused, _ = await asyncio.gather(
        store.checkpoint([checkpoint_of(each, "1") for each in claimed]),
        store.cancel_executions([each.key for each in claimed]),
    )

    assert refused == []
