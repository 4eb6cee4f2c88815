"""Checkpoints of real attempts in real children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.model.execution import Status
from rota.store.postgres.engine import PostgresStore
from tests.cluster.tasks import notes
from tests.support.context import a_context
from tests.support.flaky import flaky
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import eventually
from tests.worker.test_supervisor import a_supervisor, ended


def parameters(**given: Any) -> str:
    return msgspec.json.encode(given).decode()


@pytest.mark.parametrize("task", ["count_to", "count_to_in_a_thread"])
async def test_after_a_crash_the_next_attempt_goes_on_from_the_checkpoint(
    live: PostgresStore, tmp_path: Path, task: str
) -> None:
    file = tmp_path / "notes"
    async with a_supervisor(live, live):
        await submit(live, a_job(task, parameters=parameters(file=str(file), last=5, crash_at=3)))
        await eventually(lambda: ended(live, 1))

    [done] = await executions(live)
    assert (done.status, done.result) == (Status.COMPLETED, "4")
    assert notes(file) == ["1 by 1", "2 by 1", "3 by 1", "4 by 2", "5 by 2"]


async def test_while_the_store_is_away_it_waits_and_then_it_is_kept_once(live: PostgresStore, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    source, faults = flaky(live)
    faults.before["checkpoint"] = 2
    faults.after["checkpoint"] = 1
    async with a_supervisor(source, live):
        await submit(live, a_job("count_to", parameters=parameters(file=str(file), last=2, crash_at=0)))
        await eventually(lambda: ended(live, 1))

    assert faults.calls["checkpoint"] == 5
    assert notes(file) == ["1 by 1", "2 by 1"]


async def test_who_has_lost_the_execution_hears_it_at_the_checkpoint(live: PostgresStore, tmp_path: Path) -> None:
    file, sign = tmp_path / "notes", tmp_path / "sign"
    async with a_supervisor(live, live):
        await submit(live, a_job("checkpoint_after", parameters=parameters(file=str(file), sign=str(sign))))

        async def began() -> bool:
            return notes(file) == ["began"]

        async def told() -> bool:
            return "superseded" in notes(file)

        await eventually(began)
        await live.db.fetch("update executions set attempt = attempt + 1, lease_id = 1, worker_id = 'w-other'")
        sign.touch()
        await eventually(told)

    assert (await live.db.fetch("select checkpoint from executions"))[0][0] is None


async def test_a_thread_that_outlives_its_attempt_does_not_wait_for_ever(live: PostgresStore, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with a_supervisor(live, live):
        await submit(live, a_job("checkpoint_too_late", parameters=parameters(file=str(file))))

        async def told() -> bool:
            return notes(file) == ["superseded"]

        await eventually(told)


@pytest.mark.parametrize("value", [object(), {1j: 2}, "\ud800", "x" * 65_535, "ü" * 32_768])
async def test_what_cannot_be_kept_is_refused_at_once(value: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot be kept as JSON|65536 are kept at most"):
        a_context().checkpoint(value)


async def test_a_task_that_is_called_by_hand_may_say_what_it_likes() -> None:
    await a_context().checkpoint("x" * 65_534)
