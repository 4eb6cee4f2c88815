"""`rota up` as a stranger meets it: start, second start, Ctrl-C, kill -9 of everything."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest

from rota.api import JobView
from rota.client import AsyncClient, ServerUnreachable
from tests.cluster.tasks import notes
from tests.support.ports import free_ports
from tests.support.processes import children_of, eventually, kill, rota

APP = "tests.cluster.tasks:app"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rota-up-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def client_of(folder: Path, port: int) -> AsyncClient:
    return AsyncClient(f"http://127.0.0.1:{port}", (folder / "admin.key").read_text().strip())


async def is_up(folder: Path, port: int) -> bool:
    """It answers, and a worker is there."""
    try:
        async with client_of(folder, port) as rota:
            return any(worker.state == "ALIVE" for worker in (await rota.workers()).workers)
    except Exception:
        return False


def family_of(pid: int) -> list[int]:
    children = children_of(pid)
    return children + [descendant for child in children for descendant in family_of(child)]


async def test_a_first_job_runs_and_ctrl_c_leaves_nothing_behind(folder: Path, port: int) -> None:
    with rota("up", "--data", str(folder), "--port", str(port)) as process:
        await eventually(lambda: is_up(folder, port))
        family = family_of(process.pid)
        async with client_of(folder, port) as client:
            job = await client.submit("echo", {"hello": "world"})
            done = await client.wait(job.id, timeout=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0

    assert done.last_execution is not None
    assert done.last_execution.result == {"hello": "world"}
    assert stat.S_IMODE((folder / "admin.key").stat().st_mode) == 0o600
    assert family, "there were processes to leave behind"
    assert not any(Path(f"/proc/{pid}").exists() for pid in family)


async def test_a_second_one_on_the_same_folder_is_refused_clearly(folder: Path, port: int) -> None:
    with rota("up", "--data", str(folder), "--port", str(port)):
        await eventually(lambda: is_up(folder, port))
        for arguments, words in (
            (["--port", "0"], f"{folder} is in use by process"),
            (["--port", str(port)], f"Cannot listen on 127.0.0.1:{port}"),
        ):
            second = subprocess.run(
                [sys.executable, "-m", "rota", "up", "--data", str(folder), *arguments],
                capture_output=True, text=True, check=False, timeout=60, env=os.environ | {"COLUMNS": "300"},
            )  # fmt: skip
            assert second.returncode == 1
            assert words in second.stderr
            assert "Traceback" not in second.stderr
        assert await is_up(folder, port)


async def test_after_kill_9_of_everything_every_acknowledged_job_runs(folder: Path, port: int, tmp_path: Path) -> None:
    file, sign = str(tmp_path / "notes"), str(tmp_path / "sign")
    with rota("up", APP, "--data", str(folder), "--port", str(port)) as process:
        await eventually(lambda: is_up(folder, port))
        acknowledged = []
        async with client_of(folder, port) as client:
            acknowledged.append(await client.submit("begin_and_wait_for", {"file": file, "text": "long", "sign": sign}))
            for n in range(20):
                bodies = [{"task_id": "note", "parameters": {"file": file, "text": f"{n}/{k}"}} for k in range(50)]
                acknowledged += await client.submit_many(bodies)
        for pid in [process.pid, *family_of(process.pid)]:
            with_pid = Path(f"/proc/{pid}")
            if with_pid.exists():
                os.kill(pid, signal.SIGKILL)
        kill(process)
    (tmp_path / "sign").touch()

    with rota("up", APP, "--data", str(folder), "--port", str(port)) as process:
        await eventually(lambda: is_up(folder, port))
        async with client_of(folder, port) as client:
            for job in acknowledged:
                assert (await client.wait(job.id, timeout=60)).status == "COMPLETED"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0

    seen = set(notes(tmp_path / "notes"))
    assert {f"{n}/{k}" for n in range(20) for k in range(50)} <= seen


async def test_when_postgresql_dies_it_is_started_again(folder: Path, port: int) -> None:
    with rota("up", "--data", str(folder), "--port", str(port)) as process:
        await eventually(lambda: is_up(folder, port))
        async with client_of(folder, port) as client:
            before = await client.submit("echo", at="2100-01-01T00:00:00Z")
            postmaster = int((folder / "pg" / "postmaster.pid").read_text().split()[0])
            os.kill(postmaster, signal.SIGKILL)

            after = await eventually(lambda: submitted(client))
            assert after is not None
            assert (await client.wait(after.id, timeout=60)).status == "COMPLETED"
            assert (await client.get(before.id)).status == "SCHEDULED"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


async def submitted(client: AsyncClient) -> JobView | None:
    """None while the database is still away."""
    with suppress(ServerUnreachable):
        return await client.submit("echo")
    return None


async def test_the_docs_and_health_need_no_key(folder: Path, port: int) -> None:
    with rota("up", "--data", str(folder), "--port", str(port)):
        await eventually(lambda: is_up(folder, port))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
                async with session.get(path) as response:
                    assert response.status == 200, path
            async with session.get("/openapi.json") as response:
                assert msgspec.json.decode(await response.read())["openapi"] == "3.1.0"
            async with session.get("/jobs") as response:
                assert response.status == 401
