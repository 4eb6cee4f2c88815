"""examples/worker.mjs: the protocol in another language, where node is present."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rota.model.definition import Backoff
from rota.model.execution import Execution, Status
from rota.model.keys import Scope
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import a_rota_server
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import eventually, kill

WORKER = Path(__file__).parents[2] / "examples" / "worker.mjs"
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on the PATH")


@pytest.fixture
async def url(live: PostgresStore) -> AsyncIterator[str]:
    async with a_rota_server(live) as address:
        yield address


@pytest.fixture
async def node(live: PostgresStore, url: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    _, key = await live.create_key("machine", [Scope.WORK])
    with a_node_worker(url, key) as process:
        await eventually(lambda: alive(live, 1))
        yield process


@contextmanager
def a_node_worker(url: str, key: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["node", str(WORKER)], env=os.environ | {"ROTA_URL": url, "ROTA_API_KEY": key})
    try:
        yield process
    finally:
        kill(process)


def a_nap(seconds: float) -> str:
    return msgspec.json.encode({"seconds": seconds}).decode()


async def alive(store: PostgresStore, count: int) -> bool:
    return sum(w.state == "ALIVE" for w in await store.workers()) == count


async def running(store: PostgresStore, count: int) -> list[Execution]:
    found = [e for e in await executions(store) if e.status is Status.RUNNING]
    return found if len(found) == count else []


async def all_ended(store: PostgresStore, count: int) -> list[Execution]:
    found = [e for e in await executions(store) if not e.is_open]
    return found if len(found) == count else []


async def test_it_runs_jobs_on_time_and_tells_how_they_went(live: PostgresStore, node: subprocess.Popen[bytes]) -> None:
    soon = await live.now() + timedelta(seconds=1)
    sums = [a_job("add", parameters=f'{{"a": {n}, "b": 1}}') for n in range(300)]
    later = a_job("add", parameters='{"a": 1, "b": 1}', at=soon.replace(microsecond=0))
    slow = a_job("nap", parameters=a_nap(60), timeout=0.2, max_retries=0)
    failing = a_job("fail", parameters='{"reason": "no such luck"}', max_retries=1, backoff=Backoff(initial=0.01))
    await submit(live, *sums, later, slow, failing)

    after = {e.job_id: e for e in await eventually(lambda: all_ended(live, 303))}

    assert [after[job.id].result for job in sums] == [str(n + 1) for n in range(300)]
    assert {e.attempt for e in after.values() if e.job_id != failing.id} == {1}
    begun = after[later.id].started_at
    assert begun is not None
    assert begun >= after[later.id].due_at
    assert (after[slow.id].error or "").startswith("TimedOut")
    assert (after[failing.id].status, after[failing.id].failures) == (Status.FAILED, 2)
    assert "Error: no such luck" in (after[failing.id].error or "")


async def test_a_running_job_is_cancelled(live: PostgresStore, node: subprocess.Popen[bytes]) -> None:
    [job] = await submit(live, a_job("nap", parameters=a_nap(600)))
    await eventually(lambda: running(live, 1))

    await live.cancel_jobs([job.id])

    [after] = await eventually(lambda: all_ended(live, 1))
    assert after.status is Status.CANCELLED


async def test_declared_dead_it_stops_and_comes_back_under_a_new_id(
    live: PostgresStore, node: subprocess.Popen[bytes]
) -> None:
    await submit(live, a_job("nap", parameters=a_nap(600)))
    [before] = await eventually(lambda: running(live, 1))
    await live.db.fetch("update workers set state = 'DEAD', ended_at = now()")

    await eventually(lambda: alive(live, 1))

    [still] = await running(live, 1)
    assert still.attempt == before.attempt, "its ending was refused, and the reaper has not come by"
    [sum_] = await submit(live, a_job("add", parameters='{"a": 1, "b": 2}'))
    [after] = await eventually(lambda: all_ended(live, 1))
    assert (after.job_id, after.result) == (sum_.id, "3")


async def test_on_sigterm_what_runs_may_end_and_it_says_goodbye(
    live: PostgresStore, node: subprocess.Popen[bytes]
) -> None:
    [nap] = await submit(live, a_job("nap", parameters=a_nap(2.0)))
    await eventually(lambda: running(live, 1))
    # It claims one after the other, so once this is done it has begun that.
    await submit(live, a_job("add", parameters='{"a": 1, "b": 2}'))
    await eventually(lambda: all_ended(live, 1))

    node.send_signal(signal.SIGTERM)
    await eventually(lambda: ended(node))
    [after] = [e for e in await executions(live) if e.job_id == nap.id]

    assert (after.status, after.result) == (Status.COMPLETED, '"rested"')
    assert node.returncode == 0
    assert {w.state for w in await live.workers()} == {"STOPPED"}


async def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


async def test_a_wrong_key_ends_it(url: str) -> None:
    with a_node_worker(url, "rota_wrong") as process:
        await eventually(lambda: ended(process))
    assert process.returncode == 1
