"""What real attempts in real children log, as it is kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.model.execution import ExecutionKey, Status
from rota.model.log import LogLine, LogPosition
from rota.store.postgres.engine import PostgresStore
from tests.support.flaky import flaky
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import eventually
from tests.worker.test_supervisor import a_supervisor, ended


def parameters(**given: Any) -> str:
    return msgspec.json.encode(given).decode()


async def log_of(store: PostgresStore, key: ExecutionKey) -> list[LogLine]:
    return await store.logs(key, attempt=None, after=LogPosition(), limit=10_000)


async def test_concurrent_tasks_are_taken_down_apart_completely_and_in_order(live: PostgresStore) -> None:
    async with a_supervisor(live, live):
        jobs = [a_job("speak", parameters=parameters(name=f"n{n}", lines=20)) for n in range(8)]
        jobs += [a_job("speak_in_a_thread", parameters=parameters(name=f"t{n}", lines=20)) for n in range(8)]
        await submit(live, *jobs)

        async def first_seen_ended() -> bool:
            """All of a log is there whenever its execution is seen to have ended."""
            seen = [e for e in await executions(live) if not e.is_open]
            for each in seen:
                name = msgspec.json.decode(each.definition.parameters)["name"]
                lines = await log_of(live, each.key)
                assert [line.text for line in lines] == expected(name)
                assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
            return len(seen) == 16

        await eventually(first_seen_ended)

    assert {e.status for e in await executions(live)} == {Status.COMPLETED}


def expected(name: str) -> list[str]:
    if name.startswith("t"):
        lines = [line for n in range(20) for line in (f"{name} {n} print", f"WARNING root: {name} {n} logging")]
        return [*lines, f"{name} rest"]
    lines = [
        line
        for n in range(20)
        for line in (
            f"{name} {n} way=ctx",
            f"{name} {n} print",
            f"INFO theirs: {name} {n} logging",
            f"{name} {n} stderr",
        )
    ]
    return [*lines, f"{name} thread", f"{name} rest"]


async def test_every_attempt_has_its_own_lines_and_the_terminal_all_of_them(
    live: PostgresStore, capfd: pytest.CaptureFixture[str]
) -> None:
    async with a_supervisor(live, live):
        await submit(live, a_job("say_and_fail", max_retries=1))
        await eventually(lambda: ended(live, 1))

    [done] = await executions(live)
    lines = await log_of(live, done.key)
    assert [(line.attempt, line.seq, line.text) for line in lines] == [(1, 1, "attempt 1"), (2, 1, "attempt 2")]
    assert capfd.readouterr().out.splitlines() == ["attempt 1", "attempt 2"]
    # Both are told as durations, and on the way of either some milliseconds pass.
    assert done.started_at is not None and abs(lines[-1].at - done.started_at) < timedelta(seconds=1)


async def test_a_process_that_a_task_forks_disturbs_nobody(live: PostgresStore) -> None:
    async with a_supervisor(live, live):
        await submit(live, a_job("fork"))
        await eventually(lambda: ended(live, 1))

    [done] = await executions(live)
    assert done.result == "7"
    assert [line.text for line in await log_of(live, done.key)] == ["before", "after"]


async def test_a_running_attempt_can_be_listened_to(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live):
        await submit(live, a_job("say_and_wait_for", parameters=parameters(sign=str(tmp_path / "sign"))))

        async def heard() -> list[str]:
            return [line.text for each in await executions(live) for line in await log_of(live, each.key)]

        assert await eventually(heard) == ["waiting"]
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 1))
        assert await heard() == ["waiting", "seen"]


async def test_a_store_that_takes_no_lines_holds_up_no_ending(live: PostgresStore) -> None:
    source, faults = flaky(live)
    faults.before["keep_logs"] = 1_000_000
    async with a_supervisor(source, live):
        await submit(live, *(a_job("speak", parameters=parameters(name="n", lines=1)) for _ in range(20)))
        await eventually(lambda: ended(live, 20), within=10)
        faults.before["keep_logs"] = 0

        async def kept_after_all() -> bool:
            logs = [await log_of(live, each.key) for each in await executions(live)]
            return all(len(lines) == 6 for lines in logs)

        await eventually(kept_after_all)


async def test_lines_whose_answer_was_lost_are_shown_once(live: PostgresStore) -> None:
    source, faults = flaky(live)
    faults.after["keep_logs"] = 1
    async with a_supervisor(source, live):
        await submit(live, a_job("speak", parameters=parameters(name="n", lines=1)))
        await eventually(lambda: ended(live, 1))

        async def told_twice() -> bool:
            return faults.calls["keep_logs"] >= 2

        await eventually(told_twice)

    [done] = await executions(live)
    assert len(await log_of(live, done.key)) == 6


async def test_who_says_nothing_costs_nothing(live: PostgresStore) -> None:
    source, faults = flaky(live)
    async with a_supervisor(source, live):
        await submit(live, *(a_job("noop") for _ in range(100)))
        await eventually(lambda: ended(live, 100))

    assert faults.calls["finish"] > 0
    assert faults.calls["keep_logs"] == faults.calls["checkpoint"] == faults.calls["note_progress"] == 0


async def test_how_far_a_running_attempt_is_can_be_seen(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live):
        await submit(live, a_job("say_and_wait_for", parameters=parameters(sign=str(tmp_path / "sign"))))

        async def seen() -> list[tuple[float, str]]:
            return [(e.progress.fraction, e.progress.note) for e in await executions(live) if e.progress]

        assert await eventually(seen) == [(0.25, "waiting")]
        (tmp_path / "sign").touch()
        await eventually(lambda: ended(live, 1))
        assert await seen() == []
