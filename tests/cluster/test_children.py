"""Children of a real worker: blocked, frozen, worn out; and workers that take turns under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from rota.model.execution import Status
from rota.store.postgres.engine import PostgresStore
from rota.worker.children import Span
from tests.cluster.tasks import notes
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import children_of, eventually, rota
from tests.worker.test_supervisor import a_supervisor, ended, notes_to

APP = "tests.cluster.tasks:app"


async def test_a_task_that_holds_the_interpreter_costs_no_lease_and_its_neighbours_go_on(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    """For longer than the lease; in the other child work goes on meanwhile."""
    with rota("worker", APP, "--children", "2", "--database", dsn):
        await eventually(lambda: _alive(live, 1))
        await submit(live, a_job("hold_interpreter", parameters=json.dumps({"seconds": 17})))
        await eventually(lambda: _running(live))
        began = time.monotonic()
        ran = 0
        while time.monotonic() - began < 16:
            await submit(live, *(a_job("note", parameters=notes_to(tmp_path, str(n))) for n in range(10)))
            await eventually(partial(_at_least, live, ran + 5))
            ran = len(notes(tmp_path / "notes"))
            await asyncio.sleep(0.3)
        await eventually(lambda: _held(live))

    [held] = await executions(live, task_id="hold_interpreter")
    assert (held.status, held.attempt) == (Status.COMPLETED, 1)
    assert ran > 50


async def _at_least(store: PostgresStore, count: int) -> bool:
    return sum(not e.is_open for e in await executions(store)) >= count


async def _held(store: PostgresStore) -> bool:
    return not any(e.is_open for e in await executions(store, task_id="hold_interpreter"))


async def _running(store: PostgresStore) -> bool:
    return any(e.status is Status.RUNNING for e in await executions(store))


async def _alive(store: PostgresStore, count: int) -> bool:
    return sum(worker.state == "ALIVE" for worker in await store.workers()) >= count


@pytest.mark.parametrize("stroke", [signal.SIGSTOP, signal.SIGKILL])
async def test_what_a_frozen_or_killed_child_held_runs_again(
    dsn: str, live: PostgresStore, tmp_path: Path, stroke: signal.Signals
) -> None:
    """One ending, no try of the job's own is used up; a frozen child is killed before anybody could wake it."""
    sign = tmp_path / "sign"
    parameters = {"file": str(tmp_path / "notes"), "text": "it", "sign": str(sign)}
    with rota("worker", APP, "--children", "1", "--database", dsn) as worker:
        await submit(live, a_job("begin_and_wait_for", parameters=json.dumps(parameters)))
        await eventually(lambda: _noted(tmp_path, 1))
        [child] = children_of(worker.pid)
        os.kill(child, stroke)
        await eventually(lambda: _noted(tmp_path, 2))
        sign.touch()
        await eventually(lambda: ended(live, 1))

    [execution] = await executions(live)
    assert (execution.status, execution.failures) == (Status.COMPLETED, 0)
    assert [line.split()[1] for line in notes(tmp_path / "notes")] == ["began", "began", "ended"]


async def _noted(tmp_path: Path, count: int) -> bool:
    return len(notes(tmp_path / "notes")) >= count


async def test_a_worn_child_makes_way_and_nothing_is_lost(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live, span=Span(attempts=20), concurrency=5):
        await submit(live, *(a_job("note_pid", parameters=notes_to(tmp_path, str(n))) for n in range(200)))
        await eventually(lambda: ended(live, 200))

    pids = {line.split()[1] for line in notes(tmp_path / "notes")}
    assert len(pids) > 1
    assert all(e.attempt == 1 and e.status is Status.COMPLETED for e in await executions(live))


async def test_twenty_rolling_restarts_under_load_cost_nothing(dsn: str, live: PostgresStore, tmp_path: Path) -> None:
    """No execution fails, no try is used up, no lease is waited out."""
    sent = 0
    old = rota("worker", APP, "--children", "1", "--concurrency", "20", "--database", dsn)
    process = old.__enter__()
    try:
        await eventually(lambda: _alive(live, 1))
        for turn in range(20):
            await submit(live, *(a_job("nap", parameters=json.dumps({"seconds": 0.3})) for _ in range(20)))
            sent += 20
            new = rota("worker", APP, "--children", "1", "--concurrency", "20", "--database", dsn)
            next_process = new.__enter__()
            await eventually(partial(_ever, live, turn + 2))
            process.terminate()
            await eventually(partial(_over, process))
            old.__exit__(None, None, None)
            old, process = new, next_process
        await eventually(lambda: ended(live, sent))
    finally:
        old.__exit__(None, None, None)

    found = await executions(live)
    assert {e.status for e in found} == {Status.COMPLETED}
    assert all(e.failures == 0 for e in found)
    lapsed = await live.db.look("select count(*) from attempts where verdict <> 'RELEASE'")
    assert lapsed[0][0] == 0
    assert not any(worker.state == "DEAD" for worker in await live.workers())


async def _ever(store: PostgresStore, count: int) -> bool:
    return len(await store.workers()) >= count


async def _over(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None
