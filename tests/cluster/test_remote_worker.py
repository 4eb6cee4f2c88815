"""`rota worker --server`: real workers without a database, real servers that die and come back."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from rota.model.execution import Execution, Status
from rota.model.keys import Scope
from rota.store.postgres.engine import PostgresStore
from tests.cluster.tasks import notes
from tests.support.jobs import a_job, executions, submit
from tests.support.ports import free_ports
from tests.support.processes import a_rota, eventually, kill

APP = "tests.cluster.tasks:app"
# Nobody listens there: a worker that looked for a database would end at once.
NOWHERE = "postgres://nobody@127.0.0.1:9/nowhere"


@pytest.fixture
async def key(live: PostgresStore) -> str:
    return (await live.create_key("machine", [Scope.WORK]))[1]


@asynccontextmanager
async def a_server(dsn: str, port: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    async with a_rota("server", "--database", dsn, "--port", str(port)) as process:
        yield process


@asynccontextmanager
async def a_remote_worker(port: int, key: str, *options: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    url = f"http://127.0.0.1:{port}"
    async with a_rota("worker", APP, "--server", url, *options, ROTA_API_KEY=key, ROTA_DATABASE_URL=NOWHERE) as process:
        yield process


def job_text(tmp_path: Path, text: str, **more: str) -> str:
    return msgspec.json.encode({"file": str(tmp_path / "notes"), "text": text} | more).decode()


async def begun(tmp_path: Path, count: int) -> bool:
    return sum("began" in line for line in notes(tmp_path / "notes")) == count


async def all_ended(store: PostgresStore, count: int) -> list[Execution]:
    found = [e for e in await executions(store) if not e.is_open]
    return found if len(found) == count else []


async def some_noted(tmp_path: Path, count: int) -> bool:
    return len(notes(tmp_path / "notes")) >= count


async def alive(store: PostgresStore) -> bool:
    return any(w.state == "ALIVE" for w in await store.workers())


async def test_a_killed_remote_workers_job_runs_again(dsn: str, live: PostgresStore, key: str, tmp_path: Path) -> None:
    [port] = free_ports(1)
    parameters = job_text(tmp_path, "it", sign=str(tmp_path / "sign"))
    async with a_server(dsn, port), a_remote_worker(port, key) as first:
        await submit(live, a_job("begin_and_wait_for", parameters=parameters, max_retries=0))
        await eventually(lambda: begun(tmp_path, 1))
        kill(first)
        async with a_remote_worker(port, key):
            await eventually(lambda: begun(tmp_path, 2))
            (tmp_path / "sign").touch()
            [after] = await eventually(lambda: all_ended(live, 1))

    assert (after.status, after.attempt, after.failures) == (Status.COMPLETED, 2, 0)


async def test_a_server_that_dies_and_comes_back_loses_nothing_and_doubles_nothing(
    dsn: str, live: PostgresStore, key: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)

    async def submit_some(numbers: range) -> None:
        for n in numbers:
            await submit(live, a_job("note", parameters=job_text(tmp_path, str(n))))
            await asyncio.sleep(0.005)

    async with a_remote_worker(port, key) as worker:
        for begin in (0, 100):
            async with a_server(dsn, port) as server:
                await eventually(lambda: alive(live))
                sending = asyncio.create_task(submit_some(range(begin, begin + 100)))
                # In the middle of things.
                await eventually(functools.partial(some_noted, tmp_path, begin + 10))
                kill(server)
                await sending
        async with a_server(dsn, port):
            after = await eventually(lambda: all_ended(live, 200))
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0

    assert {e.status for e in after} == {Status.COMPLETED}
    assert {e.failures for e in after} == {0}
    assert sorted(notes(tmp_path / "notes"), key=int) == [str(n) for n in range(200)]
    assert len(await live.workers()) == 1, "it kept its lease over the outages"


async def test_a_remote_worker_drains_on_sigterm_and_waits_for_no_claim(
    dsn: str, live: PostgresStore, key: str, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    parameters = job_text(tmp_path, "it", sign=str(tmp_path / "sign"))
    async with a_server(dsn, port), a_remote_worker(port, key) as worker:
        await submit(live, a_job("begin_and_wait_for", parameters=parameters))
        await eventually(lambda: begun(tmp_path, 1))
        worker.send_signal(signal.SIGTERM)
        asked_at = time.monotonic()
        (tmp_path / "sign").touch()
        assert worker.wait(30) == 0
        took = time.monotonic() - asked_at

    [after] = await executions(live)
    assert after.status is Status.COMPLETED
    assert {w.state for w in await live.workers()} == {"STOPPED"}
    assert took < 10, "a claim waits for 20 s"


async def test_a_server_ends_at_once_although_a_worker_waits_there_for_work(
    dsn: str, live: PostgresStore, key: str
) -> None:
    [port] = free_ports(1)
    async with a_server(dsn, port) as server, a_remote_worker(port, key):
        await eventually(lambda: alive(live))
        server.send_signal(signal.SIGTERM)
        asked_at = time.monotonic()
        assert server.wait(30) == 0

    # Uvicorn would have waited for 5 s and then cancelled the claim.
    assert time.monotonic() - asked_at < 4


async def test_a_key_that_may_not_work_ends_the_worker_with_a_sentence(dsn: str, live: PostgresStore) -> None:
    [port] = free_ports(1)
    _, reader = await live.create_key("ann", [Scope.READ])
    async with a_server(dsn, port):
        url = f"http://127.0.0.1:{port}"

        async def said(**env: str) -> tuple[int, str]:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rota", "worker", "--server", url, "--children", "1",
                env=env, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, err = await worker.communicate()
            return worker.returncode or 0, " ".join(err.decode().split())

        for secret in ("rota_wrong", reader):
            code, err = await said(**(os.environ | {"ROTA_DATABASE_URL": NOWHERE, "ROTA_API_KEY": secret}))
            assert code == 1
            assert "scope `work`" in err
            assert "Traceback" not in err
