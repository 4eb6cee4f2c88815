"""A check that cannot fail is no check: each thing it looks for is made to happen here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rota.bench.check import check
from rota.bench.stage import BenchFailed
from rota.bench.witness import Seen, checksum
from rota.model.job import new_job_id
from rota.store.postgres.engine import PostgresStore

TASK = "bench"
DUE = datetime(2027, 1, 4, 10, tzinfo=UTC)
_ENDED = """
insert into history (
    shard, job_id, fires_at, run, state, due_at, started_at, finished_at, user_id, task_id, queue, priority, parameters,
    recurring, attempt, failures, created_at
)
values (0, $1, $2, 0, $3::ended_state, $2, $2, $2, 'u', $4, 'default', 5, '{}', false, $5, 0, $2)
"""


async def ended(store: PostgresStore, job_id: UUID, *, state: str = "COMPLETED", attempt: int = 1) -> None:
    await store.db.fetch(_ENDED, job_id, DUE, state, TASK, attempt)


def ran(job_id: UUID, *, late: float = 0.01) -> Seen:
    return Seen(job_id.bytes, DUE.timestamp(), DUE.timestamp() + late)


@pytest.fixture
async def ids(store: PostgresStore) -> list[UUID]:
    made = [new_job_id(1) for _ in range(3)]
    for job_id in made:
        await ended(store, job_id)
    return made


async def looked_at(dsn: str, seen: list[Seen], ids: list[UUID]) -> None:
    total = checksum([job_id.bytes for job_id in ids])
    await check(dsn, seen, expected=len(ids), task_id=TASK, total=total)


async def test_all_is_well(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    span = await check(dsn, [ran(job_id) for job_id in ids], expected=3, task_id=TASK)

    assert span.whole == span.working == 0.0
    await looked_at(dsn, [ran(job_id) for job_id in ids], ids)


async def test_one_is_missing(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="4 were submitted and 3 have ended"):
        await looked_at(dsn, [ran(job_id) for job_id in ids], [*ids, new_job_id(1)])


async def test_one_has_ended_twice(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    await ended(store, ids[0])

    with pytest.raises(BenchFailed, match="1 have ended twice"):
        await check(dsn, [ran(job_id) for job_id in ids], expected=4, task_id=TASK)


@pytest.mark.parametrize(
    ("state", "attempt", "words"),
    [("FAILED", 1, "otherwise than COMPLETED"), ("COMPLETED", 2, "more than one attempt")],
)
async def test_one_did_not_go_well(
    dsn: str, store: PostgresStore, ids: list[UUID], state: str, attempt: int, words: str
) -> None:
    await ended(store, more := new_job_id(1), state=state, attempt=attempt)

    with pytest.raises(BenchFailed, match=words):
        await looked_at(dsn, [ran(job_id) for job_id in [*ids, more]], [*ids, more])


async def test_one_did_not_run_though_it_ended(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="2 task bodies ran"):
        await looked_at(dsn, [ran(job_id) for job_id in ids[1:]], ids)


async def test_one_ran_twice_and_another_not_at_all(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="ran twice"):
        await looked_at(dsn, [ran(ids[0]), ran(ids[0]), ran(ids[1])], ids)


async def test_another_than_was_submitted(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="not what was submitted"):
        await looked_at(dsn, [ran(job_id) for job_id in ids], [*ids[1:], new_job_id(1)])


async def test_another_ran_than_has_ended(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="what ran is not what has ended"):
        await looked_at(dsn, [ran(job_id) for job_id in [*ids[1:], new_job_id(1)]], ids)


async def test_one_began_early(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    with pytest.raises(BenchFailed, match="1 began before"):
        await looked_at(dsn, [ran(ids[0], late=-0.001), *map(ran, ids[1:])], ids)


async def test_one_is_left_over(dsn: str, store: PostgresStore, ids: list[UUID]) -> None:
    await store.db.fetch(
        "insert into executions (shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, "
        "parameters, recurring, exclusive, created_at) "
        "values (0, $1, $2, 0, 1, $2, 'u', $3, 'default', 5, '{}', false, false, $2)",
        new_job_id(1), DUE + timedelta(days=1), TASK,
    )  # fmt: skip

    with pytest.raises(BenchFailed, match="1 are left over"):
        await looked_at(dsn, [ran(job_id) for job_id in ids], ids)
