"""PATCH, DELETE and /run: a job is rescheduled, edited, cancelled, run once more."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota.model.execution import ExecutionKey, Status
from rota.model.job import Job
from rota.model.retry import Raised
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import USER, Caller, a_caller, a_rota_server
from tests.support.clock import FakeClock
from tests.support.jobs import a_worker, claim, ended, executions

FEBRUARY = "2027-02-01T00:00:00Z"


async def patched(caller: Caller, job: Any, **changes: object) -> Any:
    return (await caller.patch(f"/jobs/{job['id']}", changes)).ok()


async def looked_at(caller: Caller, job: Any) -> Any:
    return (await caller.get(f"/jobs/{job['id']}")).ok()


async def finish_all(store: PostgresStore, outcome: Raised | None = None) -> int:
    claimed = await claim(store)
    assert await store.finish([ended(each, outcome) for each in claimed]) == []
    return len(claimed)


# One-shot jobs


async def test_a_pending_job_is_rescheduled(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule=FEBRUARY)

    changed = await patched(ann, job, schedule="2027-01-04T10:05:00Z")

    assert changed["id"] == job["id"]
    assert changed["next_fires_at"] == "2027-01-04T10:05:00.000Z"
    assert changed == await looked_at(ann, job)
    assert len(await ann.all("/executions")) == 1
    assert await claim(store) == []
    clock.advance(minutes=5)
    assert len(await claim(store)) == 1


async def test_every_way_to_say_when_reschedules_a_job(ann: Caller) -> None:
    job = await ann.submit(schedule=FEBRUARY)
    date = {"type": "DATE", "expression": "2027-03-01T00:00:00Z"}

    assert (await patched(ann, job, schedule=date))["next_fires_at"] == "2027-03-01T00:00:00.000Z"
    assert (await patched(ann, job, execution_start_time=FEBRUARY))["next_fires_at"] == "2027-02-01T00:00:00.000Z"
    now = await patched(ann, job, schedule="now")
    assert (now["status"], now["next_fires_at"]) == ("QUEUED", "2027-01-04T10:00:00.000Z")


async def test_only_what_is_named_changes(ann: Caller) -> None:
    job = await ann.submit("bake", schedule=FEBRUARY, priority=3, queue="slow", timeout=5, parameters={"a": 1})

    assert await patched(ann, job) == job
    changed = await patched(ann, job, priority=8, parameters={"b": 2})

    execution = job["last_execution"] | {"priority": 8, "parameters": {"b": 2}}
    assert changed == job | {"priority": 8, "parameters": {"b": 2}, "last_execution": execution}


async def test_everything_but_the_task_and_the_owner_can_be_changed(ann: Caller) -> None:
    job = await ann.submit(schedule=FEBRUARY)
    backoff = {"initial": 5.0, "factor": 1.5, "cap": 50.0, "jitter": 0.0}

    changed = await patched(
        ann, job, priority=9, queue="slow", max_retries=0, backoff=backoff, timeout="PT1M", parameters={}
    )

    assert changed == await looked_at(ann, job)
    assert changed["backoff"] == backoff
    assert (changed["queue"], changed["max_retries"], changed["timeout"]) == ("slow", 0, 60.0)
    for field in ("task_id", "user_id", "scheduler", "status", "id"):
        assert (await ann.patch(f"/jobs/{job['id']}", {field: "x"})).refused(422, field)


@pytest.mark.parametrize("schedule", [FEBRUARY, "PT1H"])
async def test_where_the_result_goes_can_be_changed_and_removed(ann: Caller, schedule: str) -> None:
    job = await ann.submit(schedule=schedule, result_location="reports")

    assert (await patched(ann, job, result_location="archive/x"))["result_location"] == "archive/x"
    assert (await patched(ann, job, priority=1))["result_location"] == "archive/x"
    assert (await ann.patch(f"/jobs/{job['id']}", {"result_location": "../x"})).refused(422, "result_location")
    assert (await patched(ann, job, result_location=None))["result_location"] is None
    assert (await looked_at(ann, job))["result_location"] is None


async def test_a_changed_queue_is_where_it_is_claimed_from(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()

    await patched(ann, job, queue="elsewhere")

    assert await claim(store) == []


async def test_a_waiting_retry_can_be_moved_and_keeps_its_past(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(backoff={"initial": 600})
    await finish_all(store, Raised("ValueError: no"))

    changed = await patched(ann, job, schedule="2027-01-04T10:01:00Z")

    assert changed["status"] == "RETRYING"
    detail = (await ann.get(f"/executions/{changed['last_execution']['id']}")).ok()
    assert detail["execution"]["failures"] == 1
    assert [attempt["error"] for attempt in detail["attempts"]] == ["ValueError: no"]


async def test_a_job_that_was_redriven_and_moved_back_in_time_is_still_itself(
    ann: Caller, store: PostgresStore
) -> None:
    job = await ann.submit()
    await finish_all(store, Raised("no", final=True))
    (await ann.post("/dead-letters/redrive", {})).ok()

    changed = await patched(ann, job, schedule="2027-01-01T00:00:00Z")

    assert changed["status"] == "QUEUED", "it waits to run again, whatever its first run did"
    assert [row["status"] for row in await ann.all("/jobs")] == ["QUEUED"]


async def test_what_runs_or_has_ended_cannot_be_changed(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    path = f"/jobs/{job['id']}"

    await claim(store)
    assert "RUNNING" in (await ann.patch(path, {"schedule": FEBRUARY})).refused(409)

    done = await ann.submit()
    await finish_all(store)
    assert "COMPLETED" in (await ann.patch(f"/jobs/{done['id']}", {"priority": 1})).refused(409)
    cancelled = await ann.submit()
    await ann.delete(f"/jobs/{cancelled['id']}")
    assert "CANCELLED" in (await ann.patch(f"/jobs/{cancelled['id']}", {"priority": 1})).refused(409)


async def test_a_job_stays_one_shot_or_recurring(ann: Caller) -> None:
    once = await ann.submit(schedule=FEBRUARY)
    recurring = await ann.submit(schedule="PT1H")

    assert (await ann.patch(f"/jobs/{once['id']}", {"schedule": "PT1H"})).refused(422, "schedule")
    assert (await ann.patch(f"/jobs/{once['id']}", {"overlap": "allow"})).refused(422, "overlap")
    assert (await ann.patch(f"/jobs/{recurring['id']}", {"schedule": FEBRUARY})).refused(422, "schedule")
    assert (await ann.patch(f"/jobs/{recurring['id']}", {"schedule": "now"})).refused(422, "schedule")
    assert await looked_at(ann, once) == once
    assert await looked_at(ann, recurring) == recurring


async def test_a_change_that_cannot_be_changes_nothing(ann: Caller) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"schedule": "soon"}, "schedule"),
        ({"schedule": None}, "schedule"),
        ({"schedule": {"type": "CRON"}}, "schedule"),
        ({"priority": None}, "priority"),
        ({"priority": 10}, "priority"),
        ({"parameters": {"a": "\0"}}, "parameters.a"),
        ({"timeout": -1}, "timeout"),
        ({"backoff": {"cap": 0}}, "backoff.cap"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"execution_start_time": "soon"}, "execution_start_time"),
        ({"priority": 5, "colour": "red"}, "colour"),
    ]
    for job in (await ann.submit(schedule=FEBRUARY), await ann.submit(schedule="0 10 * * *")):
        for changes, field in wrong:
            assert (await ann.patch(f"/jobs/{job['id']}", changes)).refused(422, field)
        assert await looked_at(ann, job) == job


async def test_a_one_shot_job_cannot_be_moved_beyond_the_end_that_comes_with_it(ann: Caller) -> None:
    job = await ann.submit(schedule=FEBRUARY)

    moved = {"schedule": "2027-03-01T00:00:00Z", "execution_end_time": "2027-02-15T00:00:00Z"}

    assert (await ann.patch(f"/jobs/{job['id']}", moved)).refused(422, "schedule")


# Recurring jobs


async def test_a_recurring_job_gets_another_rhythm(ann: Caller) -> None:
    job = await ann.submit(schedule="0 10 * * *")

    changed = await patched(ann, job, schedule="PT10M")

    assert changed["schedule"] == {"type": "INTERVAL", "expression": "PT10M"}
    assert changed["next_fires_at"] == "2027-01-04T10:10:00.000Z"
    assert changed["id"] == job["id"]
    assert changed["created_at"] == job["created_at"]


async def test_a_time_zone_can_be_changed_by_itself(ann: Caller) -> None:
    job = await ann.submit(schedule="0 12 * * *")

    changed = await patched(ann, job, time_zone="Asia/Tokyo")

    assert changed["schedule"] == {"type": "CRON", "expression": "0 12 * * *", "time_zone": "Asia/Tokyo"}
    assert changed["next_fires_at"] == "2027-01-05T03:00:00.000Z"


async def test_another_cron_expression_stays_in_its_time_zone(ann: Caller) -> None:
    job = await ann.submit(schedule="0 12 * * *", time_zone="Asia/Tokyo")

    changed = await patched(ann, job, schedule="0 13 * * *")

    assert changed["schedule"]["time_zone"] == "Asia/Tokyo", "only what is named changes"


async def test_other_changes_leave_the_rhythm_of_an_interval(ann: Caller, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1H")
    clock.advance(minutes=20)

    changed = await patched(ann, job, priority=4, parameters={"a": 1}, overlap="allow")

    assert changed["next_fires_at"] == job["next_fires_at"]
    assert (changed["priority"], changed["parameters"], changed["overlap"]) == (4, {"a": 1}, "allow")


async def test_the_window_of_a_recurring_job_can_be_moved_and_lifted(ann: Caller) -> None:
    job = await ann.submit(schedule="0 12 * * *")

    changed = await patched(ann, job, execution_start_time=FEBRUARY, execution_end_time="2027-02-02T00:00:00Z")
    assert changed["next_fires_at"] == "2027-02-01T12:00:00.000Z"
    assert changed["execution_end_time"] == "2027-02-02T00:00:00.000Z"

    lifted = await patched(ann, job, execution_start_time=None, execution_end_time=None)
    assert lifted == job


async def test_a_window_without_a_firing_is_refused(ann: Caller) -> None:
    job = await ann.submit(schedule="0 12 * * *", execution_start_time=FEBRUARY)

    answer = await ann.patch(f"/jobs/{job['id']}", {"execution_end_time": "2027-01-15T00:00:00Z"})

    assert answer.status == 422
    assert await looked_at(ann, job) == job


async def test_what_was_planned_by_the_old_schedule_is_withdrawn(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(seconds=57)
    await Planner(store).step()
    assert len(await ann.all("/executions")) == 1

    changed = await patched(ann, job, schedule="PT1H")

    assert changed["next_fires_at"] == "2027-01-04T11:00:57.000Z"
    assert await ann.all("/executions") == []


async def test_work_begun_goes_on_as_it_was(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1M", parameters={"old": True})
    clock.advance(minutes=1)
    await Planner(store).step()
    [claimed] = await claim(store)

    await patched(ann, job, schedule="PT1H", parameters={"new": True})

    assert await store.finish([ended(claimed)]) == []
    [done] = await ann.all("/executions")
    assert (done["status"], done["parameters"]) == ("COMPLETED", {"old": True})


async def test_a_change_loses_no_firing_that_is_due_already(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(seconds=57)
    await Planner(store).step()
    clock.advance(seconds=5)

    await patched(ann, job, priority=5)
    await Planner(store).step()

    fired = [row["fires_at"] for row in await ann.all("/executions")]
    assert "2027-01-04T10:01:00.000Z" in fired, "due, and yet it neither ran nor does a row say why not"


async def test_a_change_loses_no_firing_that_nobody_has_planned_yet(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(minutes=3, seconds=30)

    await patched(ann, job, priority=5)
    await Planner(store).step()

    rows = await ann.all("/executions")
    counted = sum(row["skipped"]["count"] if row["skipped"] else 1 for row in rows)
    assert counted == 3, "the planner was away for three firings; each ran or a row says why not"


async def test_a_change_and_the_planner_at_once_fire_once(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    """Whoever comes first: each instant of the new schedule has one execution, and nothing of the old is left."""
    jobs = [await ann.submit(schedule="PT5S") for _ in range(8)]
    clock.advance(seconds=4)
    planners = [Planner(store) for _ in range(3)]

    await asyncio.gather(
        *(planner.step() for planner in planners),
        *(patched(ann, job, schedule="2-59/7 * * * *") for job in jobs),
        *(planner.step() for planner in planners),
    )
    clock.moment = clock.moment.replace(minute=2, second=0)
    await Planner(store).step()

    fired = Counter((str(e.job_id), e.fires_at) for e in await executions(store))
    assert fired == {(job["id"], clock.moment): 1 for job in jobs}


async def test_changes_at_once_all_count(ann: Caller) -> None:
    job = await ann.submit(schedule="PT1H")

    await asyncio.gather(
        patched(ann, job, priority=7),
        patched(ann, job, queue="slow"),
        patched(ann, job, parameters={"a": 1}),
        patched(ann, job, overlap="allow"),
    )

    changed = await looked_at(ann, job)
    assert (changed["priority"], changed["queue"]) == (7, "slow")
    assert (changed["parameters"], changed["overlap"]) == ({"a": 1}, "allow")


# Cancelling


async def test_a_pending_job_is_cancelled_at_once(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()

    cancelled = (await ann.delete(f"/jobs/{job['id']}")).ok()

    assert cancelled["status"] == "CANCELLED"
    assert cancelled["next_fires_at"] is None
    assert await claim(store) == []
    assert (await ann.delete(f"/jobs/{job['id']}")).ok() == cancelled, "to cancel again changes nothing"


async def test_a_running_job_is_asked_to_stop(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    await a_worker(store)
    [claimed] = await claim(store)

    asked = (await ann.delete(f"/jobs/{job['id']}")).ok()

    assert asked["status"] == "RUNNING"
    assert asked["last_execution"]["cancel_requested"] is True
    assert (await store.renew("w-alice")).cancelled == [claimed.key]


async def test_a_cancelled_recurring_job_fires_no_more(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(seconds=57)
    await Planner(store).step()

    cancelled = (await ann.delete(f"/jobs/{job['id']}")).ok()

    clock.advance(hours=1)
    await Planner(store).step()
    assert (cancelled["status"], cancelled["next_fires_at"]) == ("CANCELLED", None)
    assert {e.status for e in await executions(store)} == {Status.CANCELLED}
    assert "CANCELLED" in (await ann.patch(f"/jobs/{job['id']}", {"priority": 1})).refused(409)
    assert "CANCELLED" in (await ann.post(f"/jobs/{job['id']}/run")).refused(409)


async def test_what_has_ended_cannot_be_cancelled(ann: Caller, store: PostgresStore) -> None:
    done = await ann.submit()
    await finish_all(store)
    failed = await ann.submit()
    await finish_all(store, Raised("no", final=True))

    assert "COMPLETED" in (await ann.delete(f"/jobs/{done['id']}")).refused(409)
    assert "FAILED" in (await ann.delete(f"/jobs/{failed['id']}")).refused(409)


async def test_the_last_firing_of_a_job_can_be_cancelled_while_it_waits(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M", execution_end_time="2027-01-04T10:01:00Z")
    clock.advance(seconds=57)
    await Planner(store).step()

    answer = await ann.delete(f"/jobs/{job['id']}")

    clock.advance(seconds=3)
    assert answer.status == 200, f"nothing has run yet, and there is no stopping it: {answer.json}"
    assert await claim(store) == []


async def test_a_cancellation_and_a_claim_at_once_agree(ann: Caller, store: PostgresStore) -> None:
    jobs = [await ann.submit() for _ in range(10)]

    claiming = asyncio.create_task(claim(store, limit=5))
    answers = await asyncio.gather(*(ann.delete(f"/jobs/{job['id']}") for job in jobs))

    claimed = {str(each.job_id) for each in await claiming}
    for answer in answers:
        job = answer.ok()
        assert (job["status"], job["last_execution"]["cancel_requested"]) == (
            ("RUNNING", True) if job["id"] in claimed else ("CANCELLED", False)
        )


# Once more


async def test_a_finished_job_runs_again_as_the_next_run(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit(parameters={"a": 1})
    await finish_all(store)

    execution = (await ann.post(f"/jobs/{job['id']}/run")).ok(201)

    assert (execution["job_id"], execution["run"], execution["status"]) == (job["id"], 1, "QUEUED")
    assert execution["parameters"] == {"a": 1}
    assert (await ann.get(f"/executions/{execution['id']}")).ok()["execution"] == execution
    assert await finish_all(store) == 1
    assert (await ann.post(f"/jobs/{job['id']}/run")).ok(201)["run"] == 2


async def test_a_scheduled_job_runs_now_instead_of_later(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit(schedule=FEBRUARY)

    execution = (await ann.post(f"/jobs/{job['id']}/run")).ok(201)

    assert execution["status"] == "QUEUED"
    assert execution["due_at"] == "2027-01-04T10:00:00.000Z"
    assert await finish_all(store) == 1
    assert len(await ann.all("/executions")) == 1


async def test_a_failed_job_that_runs_again_leaves_the_dead_letters(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    await finish_all(store, Raised("no", final=True))

    (await ann.post(f"/jobs/{job['id']}/run")).ok(201)

    assert await ann.all("/dead-letters") == []


async def test_a_recurring_job_runs_once_more_beside_its_schedule(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")

    execution = (await ann.post(f"/jobs/{job['id']}/run")).ok(201)

    assert execution["status"] == "QUEUED"
    assert execution["run"] == 1
    assert await finish_all(store) == 1
    clock.advance(minutes=1)
    await Planner(store).step()
    assert [row["fires_at"] for row in await ann.all("/executions", status="PENDING")] == ["2027-01-04T10:01:00.000Z"]


@pytest.mark.parametrize("schedule", [None, "PT1M"])
async def test_a_job_does_not_run_beside_itself(
    ann: Caller, store: PostgresStore, clock: FakeClock, schedule: str | None
) -> None:
    job = await ann.submit(schedule=schedule)
    clock.advance(minutes=1)
    await Planner(store).step()
    assert len(await claim(store)) == 1

    assert "running" in (await ann.post(f"/jobs/{job['id']}/run")).refused(409)


async def test_a_job_that_may_overlap_runs_beside_itself(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1M", overlap="allow")
    clock.advance(minutes=1)
    await Planner(store).step()
    await claim(store)

    runs = [(await ann.post(f"/jobs/{job['id']}/run")).ok(201)["run"] for _ in range(2)]

    assert len(await claim(store)) == 2
    assert len(set(runs)) == 2


async def test_asked_to_run_many_times_at_once_it_runs_once(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit(schedule="PT1H")

    answers = await asyncio.gather(*(ann.post(f"/jobs/{job['id']}/run") for _ in range(10)))

    assert {answer.status for answer in answers} <= {201, 409}
    assert len(await claim(store)) == 1


class LateRunner(PostgresStore):
    """Somebody cancels the job between the look at it and its run."""

    async def run_now(self, job: Job) -> ExecutionKey | None:
        await self.cancel_jobs([job.id])
        return await super().run_now(job)


@pytest.mark.parametrize("schedule", [FEBRUARY, "PT1H"])
async def test_a_job_cancelled_at_the_same_moment_does_not_run(dsn: str, clock: FakeClock, schedule: str) -> None:
    async with AsyncExitStack() as stack:
        store = await LateRunner.open(dsn, clock=clock)
        stack.push_async_callback(store.aclose)
        _, secret = await store.create_key("ann", USER)
        url = await stack.enter_async_context(a_rota_server(store))
        ann = await stack.enter_async_context(a_caller(url, secret))
        job = await ann.submit(schedule=schedule)

        assert (await ann.post(f"/jobs/{job['id']}/run")).refused(409)

        assert await claim(store) == []


async def test_a_change_and_a_claim_at_once_never_both_win(ann: Caller, store: PostgresStore) -> None:
    jobs = [await ann.submit() for _ in range(10)]

    claiming = asyncio.create_task(claim(store, limit=5))
    answers = await asyncio.gather(*(ann.patch(f"/jobs/{job['id']}", {"schedule": FEBRUARY}) for job in jobs))

    claimed = {str(each.job_id) for each in await claiming}
    moved = {job["id"] for job, answer in zip(jobs, answers, strict=True) if answer.status == 200}
    assert claimed.isdisjoint(moved)
    assert claimed | moved == {job["id"] for job in jobs}
