"""A list is one order over three places: what waits, what is held and what has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from rota.model.execution import Execution, Status
from rota.model.job import Job
from rota.model.query import ExecutionFilter, JobFilter, Page, Position
from rota.model.retry import Raised
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import a_job, claim, ended, submit

LIMIT = 7


@pytest.fixture
async def jobs(store: PostgresStore, clock: FakeClock) -> list[Job]:
    """Of ann and bob by turns, the newest first: 20 are still to come, 10 wait, 20 are held, 10 are done."""
    start = clock.moment
    new = [a_job(user_id="ann" if n % 2 else "bob", at=start + timedelta(seconds=n)) for n in range(60)]
    made = await submit(store, *new)
    clock.advance(seconds=39)
    await store.finish([ended(claimed) for claimed in await claim(store, limit=10)])
    await claim(store, limit=20)
    return made[::-1]


async def _walk(store: PostgresStore, where: JobFilter) -> AsyncIterator[list[Job]]:
    after: Position | None = None
    while True:
        page = await store.jobs(where, Page(LIMIT, after))
        yield list(page.items)
        if page.next is None:
            return
        after = page.next


@pytest.mark.parametrize("user_id", [None, "ann"])
async def test_every_job_stands_in_it_once_and_in_order(
    store: PostgresStore, jobs: list[Job], user_id: str | None
) -> None:
    pages = [page async for page in _walk(store, JobFilter(user_id=user_id))]

    mine = [job.id for job in jobs if user_id in (None, job.definition.user_id)]
    assert [job.id for page in pages for job in page] == mine
    assert all(len(page) == LIMIT for page in pages[:-1])


async def test_a_walk_meets_what_is_claimed_and_ends_under_its_feet_once(
    store: PostgresStore, clock: FakeClock, jobs: list[Job]
) -> None:
    met = []
    async for page in _walk(store, JobFilter()):
        met += [job.id for job in page]
        clock.advance(seconds=3)
        claimed = await claim(store, limit=4)
        await store.finish([ended(each) for each in claimed[:2]])

    assert met == [job.id for job in jobs]


@pytest.mark.parametrize(
    ("status", "count"), [(Status.SCHEDULED, 20), (Status.QUEUED, 10), (Status.RUNNING, 20), (Status.COMPLETED, 10)]
)
async def test_of_one_status(store: PostgresStore, jobs: list[Job], status: Status, count: int) -> None:
    found = await store.executions(ExecutionFilter(statuses=frozenset({status})), Page(100))

    assert [execution.status for execution in found.items] == [status] * count


async def test_a_job_that_runs_again_is_listed_by_that_run(store: PostgresStore) -> None:
    [job] = await submit(store, a_job(max_retries=0))
    [claimed] = await claim(store)
    await store.finish([ended(claimed, Raised("ValueError: no"))])
    await store.redrive([claimed.key])

    for status in (Status.QUEUED, Status.RUNNING):
        found = await store.jobs(JobFilter(), Page(10))
        assert [(each.id, _last(each).run, _last(each).status) for each in found.items] == [(job.id, 1, status)]
        await claim(store)


async def test_it_reads_little_more_than_a_page_however_much_waits(store: PostgresStore, clock: FakeClock) -> None:
    """A flood of somebody else's, and what is held of it."""
    await submit(store, *(a_job(user_id="ann") for _ in range(3)))
    times = [clock.moment + timedelta(milliseconds=n) for n in range(5000)]
    await submit(store, *(a_job(user_id="bob", at=at) for at in times))
    clock.advance(seconds=5)
    await claim(store, limit=100)
    await store.db.fetch("vacuum analyze executions")

    for where in (JobFilter(user_id="ann"), JobFilter(user_id="bob"), JobFilter()):
        assert await _rows_read(store, where) < 100 + 3 * (LIMIT + 1)


async def _rows_read(store: PostgresStore, where: JobFilter) -> float:
    """Of the open table, by one list."""
    look, plans = store.db.look, []

    async def explained(query: str, *arguments: Any) -> Any:
        plans.append(await look(f"explain (analyze, timing off, format json) {query}", *arguments))
        return await look(query, *arguments)

    store.db.look = explained  # type: ignore[method-assign]
    await store.jobs(where, Page(LIMIT))
    store.db.look = look  # type: ignore[method-assign]
    return max(_read(plan) for plan in plans)


def _read(plan: list[Any]) -> float:
    def counted(node: dict[str, Any]) -> float:
        below: float = sum(counted(child) for child in node.get("Plans", []))
        if node.get("Relation Name") != "executions":
            return below
        return below + float(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))

    [[text]] = plan
    return counted(json.loads(text)[0]["Plan"])


def _last(job: Job) -> Execution:
    assert job.last_execution is not None
    return job.last_execution
