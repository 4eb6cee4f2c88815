"""kill -9, SIGSTOP and SIGTERM of real workers."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec

from rota.model.execution import Execution, Status
from rota.store.postgres.engine import PostgresStore
from tests.cluster.tasks import notes
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import a_rota, children_of, eventually, kill

APP = "tests.cluster.tasks:app"


def waiting_job(tmp_path: Path, text: str = "job") -> str:
    return msgspec.json.encode({"file": str(tmp_path / "notes"), "text": text, "sign": str(tmp_path / "sign")}).decode()


async def running(store: PostgresStore, count: int = 1) -> list[Execution]:
    found = [e for e in await executions(store) if e.status is Status.RUNNING]
    return found if len(found) == count else []


async def begun(tmp_path: Path, count: int) -> bool:
    return sum("began" in line for line in notes(tmp_path / "notes")) == count


async def all_ended(store: PostgresStore) -> list[Execution]:
    found = await executions(store)
    return found if found and all(not e.is_open for e in found) else []


async def test_a_killed_workers_job_runs_again_within_20_seconds(dsn: str, live: PostgresStore, tmp_path: Path) -> None:
    async with a_rota("worker", APP, "--database", dsn) as first:
        await submit(live, a_job("begin_and_wait_for", parameters=waiting_job(tmp_path), max_retries=0))
        await eventually(lambda: begun(tmp_path, 1))
        [before] = await running(live)
        family = children_of(first.pid)
        kill(first)
        killed_at = time.monotonic()

        async with a_rota("worker", APP, "--database", dsn):
            await eventually(lambda: begun(tmp_path, 2))
            took = time.monotonic() - killed_at
            (tmp_path / "sign").touch()
            [after] = await eventually(lambda: all_ended(live))

    assert took < 20
    assert (after.status, after.attempt, after.failures) == (Status.COMPLETED, 2, 0)
    assert after.worker_id != before.worker_id
    assert len(family) == 2
    assert all(not Path(f"/proc/{pid}").exists() for pid in family), "children die with their supervisor"


async def test_a_frozen_workers_late_ending_is_refused(dsn: str, live: PostgresStore, tmp_path: Path) -> None:
    async with a_rota("worker", APP, "--database", dsn) as frozen:
        await submit(live, a_job("begin_and_wait_for", parameters=waiting_job(tmp_path), max_retries=0))
        await eventually(lambda: begun(tmp_path, 1))
        [before] = await running(live)
        frozen.send_signal(signal.SIGSTOP)

        async with a_rota("worker", APP, "--database", dsn) as second:
            # The child was not frozen: it ends itself when its supervisor has been silent for too long, so that the
            # second attempt never runs beside the first.
            await eventually(lambda: begun(tmp_path, 2))
            [taken_over] = await running(live)
            frozen.send_signal(signal.SIGCONT)
            await eventually(lambda: came_back(live, before.worker_id))
            still = await running(live)
            (tmp_path / "sign").touch()
            [after] = await eventually(lambda: all_ended(live))
            kill(second)

    assert [e.key for e in still] == [taken_over.key]
    assert still[0].worker_id == taken_over.worker_id != before.worker_id
    assert (after.status, after.attempt, after.worker_id) == (Status.COMPLETED, 2, taken_over.worker_id)
    assert sum("ended" in line for line in notes(tmp_path / "notes")) == 1


async def came_back(store: PostgresStore, dead: str | None) -> bool:
    """The frozen process has learnt of its death: its old id is DEAD, and three lives have been registered."""
    workers = await store.workers()
    return len(workers) == 3 and any(w.id == dead and w.state == "DEAD" for w in workers)


async def test_a_draining_worker_finishes_what_runs_and_hands_back_the_rest(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    async with a_rota("worker", APP, "--database", dsn, "--concurrency", "2", "--drain", "20") as worker:
        await submit(live, *(a_job("begin_and_wait_for", parameters=waiting_job(tmp_path)) for _ in range(2)))
        await eventually(lambda: begun(tmp_path, 2))
        more = [a_job("begin_and_wait_for", parameters=waiting_job(tmp_path)) for _ in range(20)]
        await submit(live, *more)
        worker.send_signal(signal.SIGTERM)
        (tmp_path / "sign").touch()
        assert worker.wait(30) == 0

    found = await executions(live)
    assert len(found) == 22
    assert {e.status for e in found} == {Status.COMPLETED, Status.QUEUED}
    assert sum(e.status is Status.COMPLETED for e in found) == sum("ended" in n for n in notes(tmp_path / "notes"))
    assert all(e.failures == 0 for e in found)
    assert {w.state for w in await live.workers()} == {"STOPPED"}


async def test_what_does_not_end_within_the_drain_is_handed_back_without_using_up_a_try(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    async with a_rota("worker", APP, "--database", dsn, "--drain", "0.2") as worker:
        await submit(live, a_job("begin_and_wait_for", parameters=waiting_job(tmp_path), max_retries=0))
        await eventually(lambda: begun(tmp_path, 1))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0

    [handed_back] = await executions(live)
    assert (handed_back.status, handed_back.attempt, handed_back.failures) == (Status.QUEUED, 1, 0)


async def test_a_task_that_kills_its_child_ends_in_the_dead_letters(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    file = msgspec.json.encode({"file": str(tmp_path / "notes")}).decode()
    async with a_rota("worker", APP, "--database", dsn):
        await submit(live, a_job("crash", parameters=file))
        [after] = await eventually(lambda: all_ended(live))

    assert after.status is Status.FAILED
    assert notes(tmp_path / "notes") == ["crashed"] * 3
    assert after.error is not None
    assert after.error.startswith("Crashed")


async def test_a_sync_task_over_its_time_is_ended_by_killing_its_child(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    blocking = msgspec.json.encode({"file": str(tmp_path / "notes"), "text": "b", "seconds": 60}).decode()
    async with a_rota("worker", APP, "--database", dsn):
        await submit(live, a_job("block", parameters=blocking, max_retries=0, timeout=0.2))
        [after] = await eventually(lambda: all_ended(live))

    assert after.status is Status.FAILED
    assert after.error is not None
    assert after.error.startswith("TimedOut")
    assert notes(tmp_path / "notes") == ["b began"]


async def test_a_running_job_is_cancelled(dsn: str, live: PostgresStore, tmp_path: Path) -> None:
    async with a_rota("worker", APP, "--database", dsn):
        [job] = await submit(live, a_job("begin_and_wait_for", parameters=waiting_job(tmp_path)))
        await eventually(lambda: begun(tmp_path, 1))
        await live.cancel_jobs([job.id])
        [after] = await eventually(lambda: all_ended(live))

    assert after.status is Status.CANCELLED


async def test_a_crash_hurts_only_the_job_that_crashes(dsn: str, live: PostgresStore, tmp_path: Path) -> None:
    file = msgspec.json.encode({"file": str(tmp_path / "notes")}).decode()
    async with a_rota("worker", APP, "--database", dsn, "--children", "1"):
        innocent = [a_job("begin_and_wait_for", parameters=waiting_job(tmp_path)) for _ in range(4)]
        await submit(live, *innocent)
        await eventually(lambda: begun(tmp_path, 4))
        guilty = a_job("crash", parameters=file)
        await submit(live, guilty)
        # Each suspect runs again alone, so it is the sign that lets them end one after the other.
        (tmp_path / "sign").touch()
        after = await eventually(lambda: all_ended(live))

    by_job = {e.job_id: e for e in after}
    assert by_job.pop(guilty.id).status is Status.FAILED
    assert {e.status for e in by_job.values()} == {Status.COMPLETED}
    assert len(by_job) == 4
