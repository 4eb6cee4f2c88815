"""Isolated tasks: one process per attempt, a few at once, and nobody else's trouble."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.client import job_body
from rota.model.capacity import Needs
from rota.model.execution import Status
from rota.store.postgres.engine import PostgresStore
from rota.worker import children
from rota.worker.children import READY
from tests.cluster.tasks import notes
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import children_of, eventually
from tests.worker.isolated_tasks import alone
from tests.worker.test_supervisor import a_supervisor, ended

APP = "tests.worker.isolated_tasks:app"


def parameters(tmp_path: Path, **more: Any) -> str:
    return msgspec.json.encode({"file": str(tmp_path / "notes")} | more).decode()


async def lines(tmp_path: Path, count: int) -> list[str]:
    async def written() -> list[str]:
        found = notes(tmp_path / "notes")
        return found if len(found) >= count else []

    return await eventually(written)


def worker_children() -> list[int]:
    def is_one(pid: int) -> bool:
        command = Path(f"/proc/{pid}/cmdline")
        return command.exists() and b"rota.worker.child" in command.read_bytes()

    return [pid for pid in children_of(os.getpid()) if is_one(pid)]


def test_isolation_is_no_option_of_the_jobs() -> None:
    assert alone.isolated
    assert job_body(alone) == {"task_id": "alone", "parameters": {}, "max_retries": 1}


async def test_each_attempt_has_a_process_of_its_own(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live, APP):
        await submit(live, *(a_job("alone", parameters=parameters(tmp_path, text=str(n))) for n in range(6)))
        await eventually(lambda: ended(live, 6))

    after = await executions(live)
    assert {e.status for e in after} == {Status.COMPLETED}
    assert len({e.result for e in after}) == 6


async def test_a_few_run_at_once_and_the_rest_is_in_nobodys_way(
    live: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "ALONE_AT_ONCE", 2)
    waiting = parameters(tmp_path, text="it", sign=str(tmp_path / "sign"))
    async with a_supervisor(live, live, APP, concurrency=10):
        await submit(live, *(a_job("alone", parameters=waiting) for _ in range(20)))
        began = await lines(tmp_path, 2)
        await submit(live, a_job("note", parameters=parameters(tmp_path, text="beside")))
        await lines(tmp_path, 3)
        held = [e for e in await executions(live) if e.is_open and e.worker_id is not None]
        still = notes(tmp_path / "notes")
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 21))

    assert len(began) == 2
    assert (len(still), still[-1]) == (3, "beside")
    assert len(held) == 4
    assert {e.status for e in await executions(live)} == {Status.COMPLETED}


async def test_a_crash_alone_hurts_nobody_else(live: PostgresStore, tmp_path: Path) -> None:
    waiting = parameters(tmp_path, text="it", sign=str(tmp_path / "sign"))
    async with a_supervisor(live, live, APP):
        await submit(live, a_job("begin_and_wait_for", parameters=waiting), a_job("alone", parameters=waiting))
        await lines(tmp_path, 2)
        [guilty] = await submit(live, a_job("crash_alone", parameters=parameters(tmp_path)))
        await eventually(lambda: ended(live, 1))
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 3))

    by_job = {e.job_id: e for e in await executions(live)}
    assert by_job.pop(guilty.id).status is Status.FAILED
    assert {(e.status, e.attempt) for e in by_job.values()} == {(Status.COMPLETED, 1)}
    assert notes(tmp_path / "notes").count("crashed") == 3


async def test_a_thread_that_never_ends_is_ended_with_its_process(live: PostgresStore, tmp_path: Path) -> None:
    """And the neighbour that shares nothing with it goes on."""
    sign = str(tmp_path / "sign")
    async with a_supervisor(live, live, APP):
        forever = a_job("alone", parameters=parameters(tmp_path, text="a", sign="/no"), timeout=0.2, max_retries=0)
        neighbour = a_job("begin_and_wait_for", parameters=parameters(tmp_path, text="b", sign=sign))
        await submit(live, forever, neighbour)
        await eventually(lambda: ended(live, 1))
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 2))

    by_job = {e.job_id: e for e in await executions(live)}
    assert by_job[forever.id].status is Status.FAILED and (by_job[forever.id].error or "").startswith("TimedOut")
    assert (by_job[neighbour.id].status, by_job[neighbour.id].attempt) == (Status.COMPLETED, 1)


async def test_one_that_waits_for_its_turn_can_be_cancelled(
    live: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "ALONE_AT_ONCE", 1)
    sign = str(tmp_path / "sign")
    async with a_supervisor(live, live, APP):
        await submit(live, a_job("alone", parameters=parameters(tmp_path, text="first", sign=sign)))
        await lines(tmp_path, 1)
        [waiting] = await submit(live, a_job("alone", parameters=parameters(tmp_path, text="second")))

        async def is_held() -> bool:
            return sum(e.worker_id is not None for e in await executions(live)) == 2

        await eventually(is_held)
        await live.cancel_jobs([waiting.id])
        await eventually(lambda: ended(live, 1))
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 2))

    by_job = {e.job_id: e for e in await executions(live)}
    assert by_job[waiting.id].status is Status.CANCELLED
    assert not any(line.startswith("second") for line in notes(tmp_path / "notes"))


async def test_the_stock_of_processes_is_small_and_goes_with_the_worker(live: PostgresStore) -> None:
    async def stocked() -> bool:
        return len(worker_children()) >= 1 + READY

    async with a_supervisor(live, live, APP):
        await eventually(stocked)
        stock = len(worker_children()) - 1

    assert stock == READY
    assert worker_children() == []


async def test_a_drained_worker_hands_back_what_waits(
    live: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "ALONE_AT_ONCE", 1)
    waiting = parameters(tmp_path, text="it", sign=str(tmp_path / "sign"))
    async with a_supervisor(live, live, APP, drain=0.1):
        await submit(live, *(a_job("alone", parameters=waiting) for _ in range(3)))
        await lines(tmp_path, 1)

    assert [(e.worker_id, e.is_open) for e in await executions(live)] == [(None, True)] * 3


async def test_a_command_of_a_real_child_may_clean_up_when_it_is_cancelled(
    live: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child ignores SIGTERM; its commands must not inherit that."""
    monkeypatch.setenv("ROTA_COMMANDS_ALLOW", "sh")
    script = f"trap 'echo cleaned >> {tmp_path}/notes; exit 0' TERM; echo began >> {tmp_path}/notes; sleep 600 & wait"
    async with a_supervisor(live, live, APP):
        argv = msgspec.json.encode({"argv": ["sh", "-c", script]}).decode()
        [job] = await submit(live, a_job("command", parameters=argv))
        await lines(tmp_path, 1)
        asked = time.monotonic()
        await live.cancel_jobs([job.id])
        await eventually(lambda: ended(live, 1))

    assert notes(tmp_path / "notes") == ["began", "cleaned"]
    assert time.monotonic() - asked < 30
    assert [e.status for e in await executions(live)] == [Status.CANCELLED]


async def test_an_attempt_gets_no_more_memory_than_it_said_it_takes(live: PostgresStore) -> None:
    def hoards(mebibytes: int) -> str:
        return msgspec.json.encode({"mebibytes": mebibytes}).decode()

    needs = Needs({"memory_mb": 400.0})
    async with a_supervisor(live, live, app=APP):
        await submit(
            live,
            a_job("hoard", parameters=hoards(50), needs=needs, max_retries=0),
            a_job("hoard", parameters=hoards(800), needs=needs, max_retries=0),
            a_job("hoard", parameters=hoards(800), max_retries=0),
        )
        await eventually(lambda: ended(live, 3))

    found = {(e.definition.parameters, bool(e.definition.policy.needs.resources)): e for e in await executions(live)}
    assert found[hoards(50), True].status is Status.COMPLETED
    assert found[hoards(800), False].status is Status.COMPLETED
    assert found[hoards(800), True].status is Status.FAILED
    assert "MemoryError" in (found[hoards(800), True].error or "")
