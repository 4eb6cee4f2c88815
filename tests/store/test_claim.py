from __future__ import annotations

import asyncio
from collections import Counter

from rota.model.execution import Status
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, a_job, a_worker, claim, ended, executions, submit


async def test_a_due_execution_is_claimed_once(store: PostgresStore) -> None:
    [job] = await submit(store, a_job(parameters='{"x":1}'))

    [claimed] = await claim(store)

    assert claimed.job_id == job.id
    assert claimed.attempt == 1
    assert claimed.parameters == '{"x":1}'
    assert await claim(store) == []


async def test_what_is_not_due_is_not_claimed(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job(at=clock.advance(seconds=60)))
    clock.advance(seconds=-60)

    assert await claim(store) == []
    clock.advance(seconds=60)
    assert len(await claim(store)) == 1


async def test_lookahead_hands_out_early_and_says_how_early(store: PostgresStore, clock: FakeClock) -> None:
    due = clock.advance(milliseconds=200)
    await submit(store, a_job(at=due))
    clock.advance(milliseconds=-200)

    [claimed] = await claim(store, lookahead=0.25)

    assert claimed.due_in == 0.2
    [shown] = await executions(store)
    assert shown.status is Status.SCHEDULED
    assert shown.started_at is None


async def test_a_task_the_worker_does_not_have_is_left_alone(store: PostgresStore) -> None:
    await submit(store, a_job("bake"), a_job("echo"))

    claimed = await claim(store, tasks=["echo"])

    assert [c.task_id for c in claimed] == ["echo"]


async def test_priority_is_a_head_start_of_five_seconds_a_step(store: PostgresStore, clock: FakeClock) -> None:
    old = a_job(at=clock.moment, parameters='"old"')
    clock.advance(seconds=6)
    urgent = a_job(at=clock.moment, priority=2, parameters='"urgent"')
    slightly = a_job(at=clock.moment, priority=1, parameters='"slightly"')
    await submit(store, old, urgent, slightly)

    order = [c.parameters for _ in range(3) for c in await claim(store, limit=1)]

    assert order == ['"urgent"', '"old"', '"slightly"']


async def test_higher_priority_fills_the_whole_claim_first(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(a_job(at=clock.moment) for _ in range(50)))
    await submit(store, *(a_job(at=clock.moment, priority=9) for _ in range(20)))

    claimed = await claim(store, limit=20)

    assert [c.priority for c in claimed] == [9] * 20


async def test_one_users_flood_does_not_keep_others_waiting(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, *(a_job(user_id="flood", at=clock.moment) for _ in range(200)))
    clock.advance(seconds=60)
    await submit(store, *(a_job(user_id="ann", at=clock.moment) for _ in range(5)))

    users = Counter(c.user_id for c in await claim(store, limit=20))

    assert users["ann"] == 5


async def test_claimers_at_the_same_time_never_share(store: PostgresStore) -> None:
    await submit(store, *(a_job(user_id=f"u{n % 7}", priority=n % 3) for n in range(1000)))

    async def drain(worker_id: str) -> list[object]:
        mine: list[object] = []
        while batch := await claim(store, worker_id, limit=50):
            mine += [c.key for c in batch]
        return mine

    drained = await asyncio.gather(*(drain(f"w-{n}") for n in range(6)))
    keys = [key for keys in drained for key in keys]
    # A claimer that met only locked rows stops early, so a last look takes the rest.
    keys += await drain("w-last")
    assert len(keys) == len(set(keys)) == 1000


async def test_a_claim_whose_answer_was_lost_is_given_back(store: PostgresStore) -> None:
    await a_worker(store)
    await submit(store, a_job(), a_job())
    await claim(store, limit=1, lease_id=1)
    lost = await claim(store, limit=1, lease_id=2)

    assert await store.give_back(ALICE, [2]) == 1

    [again] = await claim(store)
    assert again.key == lost[0].key
    assert again.attempt == 2
    assert await store.give_back(ALICE, [2]) == 0


async def test_work_spread_over_shards_is_all_found(store: PostgresStore) -> None:
    await store.db.fetch("update cluster set shards = 4")
    jobs = [a_job(shards=4) for _ in range(100)]
    await submit(store, *jobs)

    claimed = await claim(store, limit=1000)

    assert {c.job_id for c in claimed} == {job.id for job in jobs}
    assert len({c.job_id.int & 0xFF for c in claimed}) == 4
    assert await store.finish([ended(c) for c in claimed]) == []
    assert {e.status for e in await executions(store)} == {Status.COMPLETED}


async def test_two_workers_share_the_attempt_count(store: PostgresStore) -> None:
    await a_worker(store, ALICE)
    await submit(store, a_job())
    await claim(store, ALICE, lease_id=1)
    await store.give_back(ALICE, [1])

    [second] = await claim(store, BOB)

    assert second.attempt == 2
