"""When looking from the beginning of a lane is slow, claims begin where the last one stood and find the rest later."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from rota.model.definition import Definition
from rota.model.execution import Claimed
from rota.model.job import NewJob, new_job_id
from rota.model.worker import NewWorker
from rota.store.postgres import fronts
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Submission
from tests.support.clock import FakeClock

WORKER = NewWorker(id="w-1", host="h", pid=1, queues=["default"], tasks=["echo"], concurrency=10)


async def submit(store: PostgresStore, *, user: str = "ann", ago: float = 0.0) -> UUID:
    due = (await store.now()) - timedelta(seconds=ago)
    job = NewJob(id=new_job_id(1), definition=Definition(user_id=user, task_id="echo"), fires_at=due)
    await store.submit([Submission([job])])
    return job.id


async def claim(store: PostgresStore) -> set[UUID]:
    taken = await store.claim("w-1", queues=["default"], tasks=["echo"], limit=10, lookahead=timedelta(0), lease_id=1)
    return {each.job_id for each in taken.executions}


@pytest.fixture
async def slow(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """Every look is slow, and is followed by a long rest."""
    monkeypatch.setattr(fronts, "SLOW", -1.0)
    monkeypatch.setattr(fronts, "SLOW_PER_ROW", 0.0)
    monkeypatch.setattr(fronts, "REST", 1e9)
    monkeypatch.setattr(fronts, "LONGEST_REST", 1e9)
    await store.register(WORKER)
    return store


async def test_what_comes_after_is_claimed_as_ever(slow: PostgresStore, clock: FakeClock) -> None:
    for _ in range(3):
        job_id = await submit(slow)
        assert await claim(slow) == {job_id}
        clock.advance(seconds=10)


async def test_what_comes_a_moment_before_is_seen(slow: PostgresStore) -> None:
    await submit(slow)
    await claim(slow)

    late = await submit(slow, ago=0.2)

    assert await claim(slow) == {late}


async def test_what_comes_long_before_is_found_by_the_next_look_from_the_beginning(slow: PostgresStore) -> None:
    await submit(slow)
    await claim(slow)
    before = await submit(slow, ago=60)
    assert await claim(slow) == set()

    slow._fronts[0]._rests_until = 0.0

    assert await claim(slow) == {before}


async def test_a_look_that_took_too_long_to_be_answered_is_not_tried_again_at_once(
    slow: PostgresStore, clock: FakeClock
) -> None:
    await submit(slow)
    await claim(slow)
    slow._fronts[0]._rests_until = 0.0

    slow._fronts[0].gave_up(30.0)

    await submit(slow, ago=60)
    assert await claim(slow) == set()
    clock.advance(seconds=1)
    newer = await submit(slow)
    assert await claim(slow) == {newer}


async def test_each_lane_has_its_own(slow: PostgresStore) -> None:
    """Somebody with a long backlog and somebody without."""
    await submit(slow, user="ann")
    await claim(slow)

    other = await submit(slow, user="bob", ago=60)

    assert await claim(slow) == {other}


async def test_as_long_as_looks_are_quick_everything_is_looked_at(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "SLOW", 1e9)
    await store.register(WORKER)
    await submit(store)
    await claim(store)

    before = await submit(store, ago=3600)

    assert await claim(store) == {before}


def test_what_is_tried_again_says_nothing_of_where_the_lane_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "SLOW", -1.0)
    monkeypatch.setattr(fronts, "REST", 1e9)
    monkeypatch.setattr(fronts, "LONGEST_REST", 1e9)
    front, clock = fronts.Front(), FakeClock()
    again = Claimed(new_job_id(1), clock(), 0, 2, 1, 0, 0, "echo", "ann", "{}", None, 0, 0.0, 1, lane=7)

    front.seen([again], 1.0, everything=True)

    assert front.floors() == fronts.EVERYTHING
