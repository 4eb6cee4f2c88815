from __future__ import annotations

from datetime import timedelta

from rota.model.execution import Status
from rota.scheduler.reaper import Reaper
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, a_job, a_worker, claim, ended, executions, submit


async def test_renewal_keeps_every_claim(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    await submit(store, a_job())
    await claim(store)
    for _ in range(10):
        clock.advance(seconds=10)
        assert (await store.renew(ALICE)).alive
        await Reaper(store, hold_off=0).step()

    [shown] = await executions(store)
    assert (shown.status, shown.worker_id) == (Status.RUNNING, ALICE)


async def test_a_lapsed_workers_execution_goes_to_another(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store, ALICE)
    await submit(store, a_job(max_retries=0))
    [first] = await claim(store, ALICE)
    clock.advance(seconds=15.1)

    assert await Reaper(store, hold_off=0).step() == 1

    [second] = await claim(store, BOB)
    assert (second.attempt, second.lapses, second.failures) == (2, 1, 0)
    assert len(await store.finish([ended(first)])) == 1
    assert await store.finish([ended(second, worker_id=BOB)]) == []
    [lapse] = await store.attempts(first.key)
    assert lapse.error == f"LeaseLapsed: worker {ALICE} was lost"


async def test_death_is_final(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    clock.advance(seconds=15.1)
    await Reaper(store, hold_off=0).step()

    assert not (await store.renew(ALICE)).alive
    clock.advance(seconds=-10)
    assert not (await store.renew(ALICE)).alive


async def test_the_dead_claim_nothing(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    await submit(store, a_job())
    clock.advance(seconds=16)
    await Reaper(store, hold_off=0).step()

    assert await claim(store, ALICE) == []
    assert len(await claim(store, BOB)) == 1


async def test_a_claim_that_lands_after_its_workers_death_is_taken_back(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    await submit(store, a_job())
    clock.advance(seconds=16)
    reaper = Reaper(store, hold_off=0)
    await reaper.step()
    # As a claim does that began before the verdict and committed after it.
    await claim(store, BOB)
    await store.db.fetch("update executions set worker_id = $1", ALICE)

    assert await reaper.step() == 1


async def test_a_reaper_that_has_just_begun_holds_off_for_one_lease(store: PostgresStore, clock: FakeClock) -> None:
    await a_worker(store)
    await submit(store, a_job())
    await claim(store)
    clock.advance(seconds=60)

    assert await Reaper(store).step() == 0
    assert (await store.renew(ALICE)).alive


async def test_a_retired_worker_may_not_renew(store: PostgresStore) -> None:
    await a_worker(store)
    await store.retire(ALICE)

    assert not (await store.renew(ALICE)).alive
    [worker] = await store.workers()
    assert worker.state == "STOPPED"


async def test_strangers_claim_nothing(store: PostgresStore) -> None:
    await submit(store, a_job())

    handout = await store.claim(
        "w-stranger", queues=["default"], tasks=["echo"], limit=1, lookahead=timedelta(0), lease_id=1
    )

    assert handout.executions == []


async def test_what_a_dead_worker_holds_is_never_forgotten(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job())
    await claim(store)
    clock.advance(seconds=16)
    await store.bury()
    clock.advance(days=10)
    await store.maintain(keep=timedelta(days=30))

    assert await Reaper(store, hold_off=0).step() == 1
    await store.maintain(keep=timedelta(days=30))
    assert await store.workers() == []


async def test_a_worker_can_ask_what_it_is_believed_to_hold(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(), a_job())
    [old] = await claim(store, limit=1)
    clock.advance(seconds=61)
    await claim(store, limit=1)

    held = await store.held(ALICE, older_than=timedelta(seconds=60))

    assert [h.key for h in held] == [old.key]
    assert await store.finish([ended(held[0])]) == []
