"""Pausing, resuming and the ledger, as a user meets them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.support.clock import FakeClock
from tests.support.jobs import claim, ended

HOURLY = "0 * * * *"


async def a_day(store: PostgresStore, clock: FakeClock, *, hours: int) -> None:
    planner = Planner(store)
    for _ in range(hours):
        clock.advance(hours=1)
        await planner.step()
        await store.finish([ended(c) for c in await claim(store)])


async def lines(caller: Caller, job: Any, **query: object) -> list[tuple[str, str]]:
    found = (await caller.get(f"/jobs/{job['id']}/ledger", **query)).ok()
    return [(line["fires_at"][11:16], line["because"] or line["verdict"]) for line in found["lines"]]


async def test_a_job_is_paused_with_a_note_and_resumed(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule=HOURLY)

    paused = (await ann.post(f"/jobs/{job['id']}/pause", {"note": "moving", "until": "2027-01-04T20:30:00Z"})).ok()
    listed = await ann.all("/jobs", status="paused")
    resumed = (await ann.post(f"/jobs/{job['id']}/resume", {})).ok()

    assert (paused["status"], paused["next_fires_at"]) == ("PAUSED", None)
    assert paused["paused"] == {
        "since": "2027-01-04T10:00:00.000Z",
        "until": "2027-01-04T20:30:00.000Z",
        "note": "moving",
    }
    assert [found["id"] for found in listed] == [job["id"]]
    assert (resumed["status"], resumed["paused"]) == ("ACTIVE", None)
    assert resumed["next_fires_at"] == job["next_fires_at"]


async def test_pausing_twice_changes_the_note_and_the_end(ann: Caller) -> None:
    job = await ann.submit(schedule=HOURLY)
    await ann.post(f"/jobs/{job['id']}/pause", {"note": "one"})

    paused = (await ann.post(f"/jobs/{job['id']}/pause", {"note": "two"})).ok()

    assert paused["paused"] == {"since": "2027-01-04T10:00:00.000Z", "until": None, "note": "two"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"until": "2027-01-04T09:59:59Z"}, "until"),
        ({"until": "tomorrow"}, "until"),
        ({"note": "\0"}, "note"),
        ({"note": "x" * 1001}, "note"),
        ({"why": "?"}, "why"),
    ],
)
async def test_a_pause_that_cannot_be_is_refused_and_nothing_is_paused(
    ann: Caller, body: dict[str, str], field: str
) -> None:
    job = await ann.submit(schedule=HOURLY)

    (await ann.post(f"/jobs/{job['id']}/pause", body)).refused(422, field)
    assert (await ann.get(f"/jobs/{job['id']}")).ok() == job


async def test_what_cannot_be_paused_or_resumed_says_why(ann: Caller) -> None:
    once = await ann.submit()
    active = await ann.submit(schedule=HOURLY)
    cancelled = await ann.submit(schedule=HOURLY)
    await ann.delete(f"/jobs/{cancelled['id']}")

    assert "runs once" in (await ann.post(f"/jobs/{once['id']}/pause", {})).refused(409)
    assert "runs once" in (await ann.post(f"/jobs/{once['id']}/resume", {})).refused(409)
    assert "not PAUSED" in (await ann.post(f"/jobs/{active['id']}/resume", {})).refused(409)
    assert "CANCELLED" in (await ann.post(f"/jobs/{cancelled['id']}/pause", {})).refused(409)


async def test_anothers_job_is_unknown(ann: Caller, bob: Caller) -> None:
    job = await ann.submit(schedule=HOURLY)

    for verb in ("pause", "resume"):
        (await bob.post(f"/jobs/{job['id']}/{verb}", {})).refused(404)
    (await bob.get(f"/jobs/{job['id']}/ledger")).refused(404)


async def test_a_paused_job_is_rescheduled_and_stays_paused(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule=HOURLY)
    await ann.post(f"/jobs/{job['id']}/pause", {})
    clock.advance(hours=3)

    changed = (await ann.patch(f"/jobs/{job['id']}", {"schedule": "30 * * * *"})).ok()
    await ann.post(f"/jobs/{job['id']}/resume", {})
    await a_day(store, clock, hours=2)

    assert changed["status"] == "PAUSED"
    assert await lines(ann, job) == [
        ("11:00", "paused"),
        ("12:00", "paused"),
        ("13:00", "paused"),
        ("13:30", "COMPLETED"),
        ("14:30", "COMPLETED"),
    ]


# The ledger


async def test_the_ledger_proves_every_firing_page_by_page(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule=HOURLY)
    await a_day(store, clock, hours=5)
    path = f"/jobs/{job['id']}/ledger"

    first = (await ann.get(path, limit=3)).ok()
    second = (await ann.get(path, limit=3, page_token=first["next_page_token"])).ok()

    assert [line["fires_at"][11:16] for line in first["lines"] + second["lines"]] == [
        "11:00",
        "12:00",
        "13:00",
        "14:00",
        "15:00",
    ]
    assert second["next_page_token"] is None
    assert first["counts"] == {"COMPLETED": 3}
    assert first["complete"] is True
    line = first["lines"][0]
    assert line["execution_id"] == f"1799060400000-{job['id']}"
    assert line["started_at"] and line["finished_at"]
    assert (line["scheduled"], line["error"]) == (True, None)


async def test_the_ledger_looks_ahead_and_says_what_nobody_has_seen_to(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule=HOURLY)
    await a_day(store, clock, hours=1)
    clock.advance(hours=1, minutes=1)

    found = (await ann.get(f"/jobs/{job['id']}/ledger", to="2027-01-04T13:00:00Z")).ok()
    further = (await ann.get(f"/jobs/{job['id']}/ledger", to="2028-01-04T13:00:00Z", limit=3)).ok()

    assert further["lines"] == found["lines"], "a week back from now, however far ahead one looks"
    assert [line["verdict"] for line in found["lines"]] == ["COMPLETED", "UNSETTLED", "EXPECTED"]
    assert found["complete"] is False


async def test_the_ledger_of_a_job_that_runs_once_has_one_line(ann: Caller, clock: FakeClock) -> None:
    job = await ann.submit()

    assert await lines(ann, job) == [("10:00", "QUEUED")]
    assert await lines(ann, job, to="2027-01-04T09:00:00Z") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"from": "2027-01-05T00:00:00Z", "to": "2027-01-04T00:00:00Z"}, "to"),
        ({"limit": "0"}, "limit"),
        ({"page_token": "nonsense"}, "page_token"),
        ({"since": "2027-01-05T00:00:00Z"}, "since"),
    ],
)
async def test_what_is_asked_wrongly_is_refused(ann: Caller, query: dict[str, str], field: str) -> None:
    job = await ann.submit(schedule=HOURLY)

    (await ann.get(f"/jobs/{job['id']}/ledger", **query)).refused(422, field)


async def test_a_dense_job_is_told_a_page_at_a_time_however_long_ago(ann: Caller, clock: FakeClock) -> None:
    """A page costs what is on it, not what lies before or after."""
    job = await ann.submit(schedule="* * * * * *")
    clock.advance(days=365)

    found = (await ann.get(f"/jobs/{job['id']}/ledger", **{"from": "2027-01-04T00:00:00Z"}, limit=1000)).ok()

    assert len(found["lines"]) == 1000
    assert found["lines"][-1]["fires_at"] == "2027-01-04T10:16:40.000Z"
