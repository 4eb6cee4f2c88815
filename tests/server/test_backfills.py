"""/jobs/{id}/backfills and /backfills/{id}: past firings of a recurring job run."""

from __future__ import annotations

from typing import Any

import pytest

from rota.model.keys import Scope
from rota.scheduler.backfiller import Backfiller
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.server.conftest import NewCaller
from tests.server.test_openapi import misfit
from tests.support.clock import FakeClock
from tests.support.jobs import claim, ended

# The clock stands at 2027-01-04T10:00:00Z, a Monday.
RANGE = {"from": "2027-01-04T04:30:00Z", "to": "2027-01-04T09:00:00Z"}
NO_ID = "01900000-0000-7000-8000-000000000000"


async def hourly(caller: Caller, **fields: Any) -> Any:
    return await caller.submit(schedule="0 * * * *", **fields)


async def started(caller: Caller, job: Any, **fields: object) -> Any:
    return (await caller.post(f"/jobs/{job['id']}/backfills", RANGE | fields)).ok(201)


async def looked_at(caller: Caller, backfill: Any) -> Any:
    return (await caller.get(f"/backfills/{backfill['id']}")).ok()


async def worked_off(store: PostgresStore) -> None:
    for _ in range(100):
        settled = await Backfiller(store).step()
        claimed = await claim(store)
        await store.finish([ended(each) for each in claimed])
        if not claimed and not settled:
            return


async def test_a_backfill_is_started_watched_and_ends(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await hourly(ann)

    answer = await ann.post(f"/jobs/{job['id']}/backfills", RANGE | {"max_parallel": 2})

    backfill = answer.ok(201)
    assert answer.headers["Location"] == f"/backfills/{backfill['id']}"
    assert backfill == {
        "id": backfill["id"],
        "job_id": job["id"],
        "state": "RUNNING",
        "from": "2027-01-04T04:30:00.000Z",
        "to": "2027-01-04T09:00:00.000Z",
        "max_parallel": 2,
        "reprocess": "none",
        "total": 5,
        "made": 0,
        "passed_over": 0,
        "open": 0,
        "created_at": "2027-01-04T10:00:00.000Z",
        "ended_at": None,
    }
    await Backfiller(store).step()
    assert await looked_at(ann, backfill) == backfill | {"made": 2, "open": 2}
    await worked_off(store)
    over = await looked_at(ann, backfill)
    assert over == backfill | {"state": "COMPLETED", "made": 5, "ended_at": "2027-01-04T10:00:00.000Z"}
    assert (await ann.get(f"/jobs/{job['id']}/backfills")).ok() == {"backfills": [over]}


async def test_its_executions_are_the_jobs_and_stand_in_its_ledger(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await hourly(ann, priority=5, parameters={"a": 1})
    await started(ann, job)
    await worked_off(store)

    runs = await ann.all(f"/jobs/{job['id']}/executions")

    assert [run["fires_at"] for run in runs] == [f"2027-01-04T0{hour}:00:00.000Z" for hour in (9, 8, 7, 6, 5)]
    assert {(run["run"], run["priority"], run["status"]) for run in runs} == {(1, -1000, "COMPLETED")}
    assert (await ann.get(f"/executions/{runs[0]['id']}")).ok()["execution"]["parameters"] == {"a": 1}
    assert (await ann.get(f"/jobs/{job['id']}")).ok()["priority"] == 5


async def test_a_dry_run_tells_what_would_be_made_and_stores_nothing(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await hourly(ann)
    for _ in range(8):
        clock.advance(hours=1)
        await Planner(store).step()
        await store.finish([ended(each) for each in await claim(store)])
    asked = {"from": "2027-01-04T00:00:00Z", "to": "2027-01-04T12:00:00Z", "dry_run": True}

    preview = (await ann.post(f"/jobs/{job['id']}/backfills", asked)).ok(200)

    assert preview == {
        "job_id": job["id"],
        "from": "2027-01-04T00:00:00.000Z",
        "to": "2027-01-04T12:00:00.000Z",
        "max_parallel": 1,
        "reprocess": "none",
        "total": 13,
        "would_make": 11,
        "passed_over": 2,
        "first": [f"2027-01-04T0{hour}:00:00.000Z" for hour in range(5)],
        "last": [f"2027-01-04T{hour:02}:00:00.000Z" for hour in range(6, 11)],
    }
    everything = (await ann.post(f"/jobs/{job['id']}/backfills", asked | {"reprocess": "all"})).ok(200)
    assert (everything["would_make"], everything["passed_over"]) == (13, 0)
    assert (await ann.get(f"/jobs/{job['id']}/backfills")).ok() == {"backfills": []}
    assert await Backfiller(store).step() == 0


async def test_a_dry_run_and_a_real_one_agree(ann: Caller, store: PostgresStore) -> None:
    job = await hourly(ann)
    await started(ann, job, to="2027-01-04T06:00:00Z")
    await worked_off(store)

    preview = (await ann.post(f"/jobs/{job['id']}/backfills", RANGE | {"dry_run": True})).ok(200)
    backfill = await started(ann, job)
    await worked_off(store)

    over = await looked_at(ann, backfill)
    assert (preview["would_make"], preview["passed_over"]) == (over["made"], over["passed_over"]) == (3, 2)


async def test_answers_are_as_the_document_says(ann: Caller, nobody: Caller) -> None:
    document = (await nobody.get("/openapi.json")).ok()
    job = await hourly(ann)
    responses = document["paths"]["/jobs/{id}/backfills"]["post"]["responses"]

    for status, dry_run in (("200", True), ("201", False)):
        answer = (await ann.post(f"/jobs/{job['id']}/backfills", RANGE | {"dry_run": dry_run})).ok(int(status))
        schema = responses[status]["content"]["application/json"]["schema"]
        assert misfit(document, schema, answer) is None


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"from": "yesterday"}, "from", "ISO 8601"),
        ({"to": "2027-01-04T09:00:00"}, "to", "offset"),
        ({"to": "2027-01-04T10:00:00.001Z"}, "to", "future"),
        ({"to": "2027-01-04T04:00:00Z"}, "to", "before"),
        ({"from": "2027-01-04T08:01:00Z", "to": "2027-01-04T08:59:00Z"}, "from", "the next one is at 2027-01-04T09"),
        ({"from": "1970-01-01T00:00:00Z"}, "from", "more than 100,000"),
        ({"max_parallel": 0}, "max_parallel", "1"),
        ({"max_parallel": 101}, "max_parallel", "100"),
        ({"max_parallel": "2"}, "max_parallel", "int"),
        ({"reprocess": "some"}, "reprocess", "some"),
        ({"dry_run": "yes"}, "dry_run", "bool"),
        ({"since": "x"}, "since", "not a field"),
    ],
)
async def test_bad_input_names_its_field(ann: Caller, fields: dict[str, Any], field: str, words: str) -> None:
    job = await hourly(ann)

    for dry_run in (False, True):
        answer = await ann.post(f"/jobs/{job['id']}/backfills", RANGE | {"dry_run": dry_run} | fields)
        assert words in answer.refused(422, field)


@pytest.mark.parametrize("missing", ["from", "to"])
async def test_both_ends_are_required(ann: Caller, missing: str) -> None:
    job = await hourly(ann)
    body = {name: value for name, value in RANGE.items() if name != missing}

    assert "missing" in (await ann.post(f"/jobs/{job['id']}/backfills", body)).refused(422, missing)


async def test_the_present_moment_is_not_the_future(ann: Caller) -> None:
    assert (await started(ann, await hourly(ann), to="2027-01-04T10:00:00Z"))["total"] == 6


async def test_days_of_the_calendar_do_not_count(ann: Caller) -> None:
    days = b'{"days": ["2027-01-04T05:30:00Z/2027-01-04T08:30:00Z"]}'
    (await ann.send("PUT", "/calendars/maintenance", days)).ok()
    job = await hourly(ann, calendar="maintenance")

    assert (await started(ann, job))["total"] == 2
    refused = await ann.post(
        f"/jobs/{job['id']}/backfills", RANGE | {"from": "2027-01-04T08:00:00Z"} | {"to": "2027-01-04T08:10:00Z"}
    )
    assert "calendar" in refused.refused(422, "from")


async def test_only_a_recurring_job_that_is_not_cancelled_has_backfills(ann: Caller) -> None:
    once = await ann.submit()
    assert "runs once" in (await ann.post(f"/jobs/{once['id']}/backfills", RANGE)).refused(409)

    job = await hourly(ann)
    (await ann.delete(f"/jobs/{job['id']}")).ok()
    assert "CANCELLED" in (await ann.post(f"/jobs/{job['id']}/backfills", RANGE)).refused(409)


async def test_a_backfill_is_cancelled_once_and_for_all(ann: Caller, store: PostgresStore) -> None:
    backfill = await started(ann, await hourly(ann))
    await Backfiller(store).step()

    cancelled = (await ann.delete(f"/backfills/{backfill['id']}")).ok()

    assert (cancelled["state"], cancelled["open"], cancelled["made"]) == ("CANCELLED", 0, 1)
    assert cancelled["ended_at"] is not None
    assert (await ann.delete(f"/backfills/{backfill['id']}")).ok() == cancelled
    assert await claim(store) == []
    assert await Backfiller(store).step() == 0


async def test_what_has_completed_cannot_be_cancelled(ann: Caller, store: PostgresStore) -> None:
    backfill = await started(ann, await hourly(ann))
    await worked_off(store)

    assert "COMPLETED" in (await ann.delete(f"/backfills/{backfill['id']}")).refused(409)


async def test_cancelling_the_job_cancels_its_backfills(ann: Caller, store: PostgresStore) -> None:
    job = await hourly(ann)
    backfill = await started(ann, job)
    await Backfiller(store).step()

    (await ann.delete(f"/jobs/{job['id']}")).ok()

    assert (await looked_at(ann, backfill))["state"] == "CANCELLED"
    assert await claim(store) == []


async def test_somebody_elses_is_as_unknown_as_one_that_never_was(ann: Caller, bob: Caller, admin: Caller) -> None:
    job = await hourly(ann)
    backfill = await started(ann, job)

    (await bob.post(f"/jobs/{job['id']}/backfills", RANGE)).refused(404)
    (await bob.get(f"/jobs/{job['id']}/backfills")).refused(404)
    for path in (f"/backfills/{backfill['id']}", f"/backfills/{NO_ID}", "/backfills/nonsense"):
        (await bob.get(path)).refused(404)
        (await bob.delete(path)).refused(404)
    assert await looked_at(admin, backfill) == backfill


async def test_whoever_may_only_read_starts_and_cancels_none(ann: Caller, caller: NewCaller) -> None:
    job = await hourly(ann)
    backfill = await started(ann, job)
    reader = await caller("ann", Scope.READ)

    assert await looked_at(reader, backfill) == backfill
    (await reader.post(f"/jobs/{job['id']}/backfills", RANGE)).refused(403)
    (await reader.delete(f"/backfills/{backfill['id']}")).refused(403)
