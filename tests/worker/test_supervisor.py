"""A worker with real children on a store that loses calls and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from rota.model.execution import Status
from rota.model.rules import Overlap
from rota.model.worker import Wish
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import WorkSource
from rota.worker.children import WorkerBroken
from rota.worker.supervisor import Supervisor, WorkerSettings
from tests.cluster.tasks import notes
from tests.support.flaky import flaky
from tests.support.jobs import a_job, a_recurring_job, executions, submit
from tests.support.processes import eventually

APP = "tests.cluster.tasks:app"


@asynccontextmanager
async def a_supervisor(
    source: WorkSource, store: PostgresStore, app: str = APP, **settings: object
) -> AsyncIterator[Supervisor]:
    stop = asyncio.Event()
    supervisor = Supervisor(source, store.woken, WorkerSettings(app=app, children=1, **settings))  # type: ignore[arg-type]
    running = asyncio.create_task(supervisor.run(stop))
    try:
        await asyncio.wait([asyncio.create_task(supervisor.ready.wait()), running], return_when="FIRST_COMPLETED")
        yield supervisor
    finally:
        stop.set()
        await running


async def ended(store: PostgresStore, count: int) -> bool:
    return sum(not e.is_open for e in await executions(store)) == count


def notes_to(tmp_path: Path, text: str) -> str:
    return msgspec.json.encode({"file": str(tmp_path / "notes"), "text": text}).decode()


async def test_a_lost_claim_is_given_back_and_runs_once(live: PostgresStore, tmp_path: Path) -> None:
    source, faults = flaky(live)
    faults.after["claim"] = 3
    async with a_supervisor(source, live):
        await submit(live, *(a_job("note", parameters=notes_to(tmp_path, str(n))) for n in range(50)))
        await eventually(lambda: ended(live, 50))

    assert faults.after["claim"] == 0
    assert sorted(notes(tmp_path / "notes"), key=int) == [str(n) for n in range(50)]
    assert {e.status for e in await executions(live)} == {Status.COMPLETED}


async def test_endings_whose_answer_was_lost_are_told_again(live: PostgresStore, tmp_path: Path) -> None:
    source, faults = flaky(live)
    faults.after["finish"] = 2
    faults.before["finish"] = 1
    async with a_supervisor(source, live):
        await submit(live, *(a_job("note", parameters=notes_to(tmp_path, str(n))) for n in range(20)))
        await eventually(lambda: ended(live, 20))

    assert faults.after["finish"] == faults.before["finish"] == 0
    assert len(notes(tmp_path / "notes")) == 20
    assert all(e.attempt == 1 for e in await executions(live))


async def test_a_worker_that_was_declared_dead_comes_back_under_a_new_id(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live):
        [before] = await live.workers()
        await live.db.fetch("update workers set state = 'DEAD', ended_at = now()")

        async def reborn() -> bool:
            return any(w.state == "ALIVE" and w.id != before.id for w in await live.workers())

        await eventually(reborn)
        await submit(live, a_job("note", parameters=notes_to(tmp_path, "after")))
        await eventually(lambda: ended(live, 1))

    assert notes(tmp_path / "notes") == ["after"]


async def test_concurrency_is_never_exceeded(live: PostgresStore, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    waiting = msgspec.json.encode({"file": str(tmp_path / "notes"), "text": "x", "sign": str(sign)}).decode()
    async with a_supervisor(live, live, concurrency=3):
        await submit(live, *(a_job("begin_and_wait_for", parameters=waiting) for _ in range(9)))

        async def three_began() -> bool:
            return len(notes(tmp_path / "notes")) >= 3

        await eventually(three_began)
        held = [e for e in await executions(live) if e.worker_id is not None]
        sign.touch()
        await eventually(lambda: ended(live, 9))

    assert len(held) == 3


async def test_an_app_that_cannot_be_loaded_says_why(live: PostgresStore) -> None:
    broken = Supervisor(live, live.woken, WorkerSettings(app="tests.no_such_module:app", children=1))

    with pytest.raises(WorkerBroken, match="no module"):
        await broken.run(asyncio.Event())


async def test_what_is_replaced_is_killed_and_only_then_does_the_new_one_start(
    live: PostgresStore, tmp_path: Path
) -> None:
    """A thread cannot be stopped: terminate_other takes its process away, long before the task would have ended."""
    now = await live.now()
    job = a_recurring_job("PT1S", now, overlap=Overlap.TERMINATE_OTHER, max_executions=2)
    parameters = msgspec.json.encode({"file": str(tmp_path / "notes"), "text": "it", "seconds": 3600}).decode()
    definition = msgspec.structs.replace(job.definition, task_id="block", parameters=parameters)
    planner = Planner(live)

    async def both_began() -> bool:
        await planner.step()
        return len(notes(tmp_path / "notes")) == 2

    async with a_supervisor(live, live, drain=0.0):
        await submit(live, msgspec.structs.replace(job, definition=definition))
        await eventually(both_began)
        [new, old] = await executions(live)

    assert notes(tmp_path / "notes") == ["it began", "it began"]
    assert old.status is Status.CANCELLED
    assert old.finished_at is not None and new.started_at is not None
    assert old.finished_at <= new.started_at


async def test_a_paused_worker_claims_nothing_and_a_drained_one_ends(live: PostgresStore, tmp_path: Path) -> None:
    stop = asyncio.Event()
    supervisor = Supervisor(live, live.woken, WorkerSettings(app=APP, children=1))
    running = asyncio.create_task(supervisor.run(stop))
    await supervisor.ready.wait()
    [worker] = await live.workers()
    await live.wish(worker.id, Wish.PAUSE)
    await _renewed(live)
    await submit(live, a_job("note", parameters=notes_to(tmp_path, "late")))
    await asyncio.sleep(0.5)
    assert notes(tmp_path / "notes") == []

    await live.wish(worker.id, None)
    await eventually(lambda: ended(live, 1))
    await live.wish(worker.id, Wish.DRAIN)
    await asyncio.wait_for(running, 30)

    assert [w.state for w in await live.workers()] == ["STOPPED"]


async def _renewed(store: PostgresStore) -> None:
    """Since now, so that the worker knows what is wished."""
    before = await store.now()

    async def since() -> bool:
        return all(worker.renewed_at > before for worker in await store.workers())

    await eventually(since)
    await asyncio.sleep(0.3)


async def test_the_ready_file_is_there_while_claims_succeed(live: PostgresStore, tmp_path: Path) -> None:
    file = tmp_path / "ready"

    async def is_there() -> bool:
        return file.exists()

    async with a_supervisor(live, live, ready_file=file):
        await eventually(is_there)

    assert not file.exists()
