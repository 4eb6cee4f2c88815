"""POST /schedules/preview: what a schedule would do, and what it would change for a job."""

from __future__ import annotations

from typing import Any

import pytest

from rota.model.keys import Scope
from rota.model.retry import Done, ending_for
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.server.conftest import NewCaller
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, a_worker, claim, ended

PATH = "/schedules/preview"


async def previewed(caller: Caller, schedule: object, **fields: object) -> Any:
    return (await caller.post(PATH, {"schedule": schedule} | fields)).ok()


async def test_a_schedule_is_previewed_from_now_on(ann: Caller) -> None:
    found = await previewed(ann, "30 2 * * *", time_zone="America/New_York", count=2)

    at, later = "2027-01-05T07:30:00.000Z", "2027-01-06T07:30:00.000Z"
    assert found == {
        "firings": [
            {"at": at, "local": "2027-01-05T02:30:00-05:00", "note": None, "due_at": at},
            {"at": later, "local": "2027-01-06T02:30:00-05:00", "note": None, "due_at": later},
        ],
        "description": "At 02:30 every day (America/New_York)",
        "warnings": ["02:30 does not exist on 2027-03-14 in America/New_York; it fires at 03:30"],
        "difference": None,
    }


async def test_every_way_to_say_when_is_previewed(ann: Caller) -> None:
    typed = {"type": "CRON", "expression": "0 12 * * *", "time_zone": "Europe/Berlin"}

    assert (await previewed(ann, typed, count=1))["firings"][0]["local"] == "2027-01-04T12:00:00+01:00"
    assert (await previewed(ann, "PT15M"))["firings"][9]["at"] == "2027-01-04T12:30:00.000Z"
    assert len((await previewed(ann, "2027-02-01T00:00:00Z"))["firings"]) == 1
    window = {"execution_start_time": "2027-02-01T00:00:00Z", "execution_end_time": "2027-02-03T00:00:00Z"}
    assert len((await previewed(ann, "@daily", **window))["firings"]) == 3


async def test_after_says_from_when_on(ann: Caller) -> None:
    found = await previewed(ann, "@daily", after="2030-01-01T12:00:00Z", count=1)

    assert found["firings"][0]["at"] == "2030-01-02T00:00:00.000Z"


async def test_the_difference_to_a_jobs_schedule(ann: Caller) -> None:
    job = await ann.submit(schedule="0 12,18 * * *")

    found = await previewed(ann, "0 6,12 * * *", job_id=job["id"], count=2)

    assert found["difference"] == {
        "added": ["2027-01-05T06:00:00.000Z"],
        "removed": ["2027-01-04T18:00:00.000Z"],
        "same": ["2027-01-04T12:00:00.000Z"],
    }


async def test_the_difference_to_a_one_shot_job(ann: Caller) -> None:
    job = await ann.submit(schedule="2027-02-01T00:00:00Z")

    found = await previewed(ann, "2027-03-01T00:00:00Z", job_id=job["id"])

    assert found["difference"] == {
        "added": ["2027-03-01T00:00:00.000Z"],
        "removed": ["2027-02-01T00:00:00.000Z"],
        "same": [],
    }


async def test_runs_that_take_longer_than_the_new_interval(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1H")
    clock.advance(hours=1)
    await Planner(store).step()
    await a_worker(store)
    [run] = await claim(store)
    assert await store.finish([ending_for(run, Done(), worker_id=ALICE, started_ago=90.0)]) == []

    slow = await previewed(ann, "* * * * *", job_id=job["id"])
    fine = await previewed(ann, "*/2 * * * *", job_id=job["id"])

    assert slow["warnings"] == [
        "Going by the last completed run it takes up to 1 minute and 30 seconds (95th percentile), "
        "and the shortest time between firings is 1 minute"
    ]
    assert fine["warnings"] == []


async def test_somebody_elses_job_is_not_found(ann: Caller, bob: Caller, admin: Caller) -> None:
    job = await ann.submit(schedule="@daily")
    body = {"schedule": "@hourly", "job_id": job["id"]}

    (await bob.post(PATH, body)).refused(404)
    (await bob.post(PATH, body | {"job_id": "01890000-0000-7000-8000-000000000000"})).refused(404)
    (await admin.post(PATH, body)).ok()


async def test_reading_is_enough_and_needed(caller: NewCaller, worker: Caller, nobody: Caller) -> None:
    reader = await caller("carl", Scope.READ)

    (await reader.post(PATH, {"schedule": "@daily"})).ok()
    (await worker.post(PATH, {"schedule": "@daily"})).refused(403)
    (await nobody.post(PATH, {"schedule": "@daily"})).refused(401)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "schedule"),
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"schedule": "now"}, "schedule"),
        ({"schedule": "@daily", "count": 0}, "count"),
        ({"schedule": "@daily", "count": 1001}, "count"),
        ({"schedule": "@daily", "after": "yesterday"}, "after"),
        ({"schedule": "@daily", "time_zone": "Nowhere"}, "time_zone"),
        ({"schedule": "@daily", "job_id": "x"}, "job_id"),
        ({"schedule": "@daily", "more": 1}, "more"),
    ],
)
async def test_what_cannot_be_is_refused(ann: Caller, body: dict[str, object], field: str) -> None:
    (await ann.post(PATH, body)).refused(422, field)


async def test_a_preview_of_a_jobs_jitter_and_calendar_is_exact(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    await ann.put("/calendars/lunch", {"days": ["2027-01-04T12:00:00Z/2027-01-04T13:00:00Z"]})
    job = await ann.submit(schedule="0 * * * *", jitter="PT10M", calendar="lunch")
    planner = Planner(store)

    found = await previewed(ann, "0 * * * *", job_id=job["id"], count=3)
    for _ in range(3):
        clock.advance(hours=1)
        await planner.step()
        clock.advance(minutes=10)
        await store.finish([ended(c) for c in await claim(store)])
        clock.advance(minutes=-10)

    ran = {e["fires_at"]: e["due_at"] for e in await ann.all("/executions", status="completed")}
    notes = [firing["note"] for firing in found["firings"]]
    assert notes == [None, "skipped: a day of the calendar lunch", None]
    assert ran == {firing["at"]: firing["due_at"] for firing in found["firings"] if firing["note"] is None}
    assert all(firing["due_at"] > firing["at"] for firing in found["firings"])


async def test_a_calendar_nobody_has_is_refused(ann: Caller) -> None:
    (await ann.post(PATH, {"schedule": "PT1H", "calendar": "unheard-of"})).refused(422, "calendar")
