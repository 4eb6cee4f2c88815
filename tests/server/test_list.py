"""GET /jobs, /executions and /dead-letters: what is asked for, a page at a time, while the world goes on."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest

from rota.model.retry import Raised
from rota.scheduler.planner import Planner
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, claim, ended

BROKEN = Raised("ValueError: no", final=True)


def ids(rows: list[Any]) -> list[str]:
    return [row["id"] for row in rows]


async def finish_all(store: PostgresStore, outcome: Raised | None = None, *, limit: int = 100) -> int:
    """A worker comes by and ends whatever is due."""
    claimed = await claim(store, limit=limit)
    await store.finish([ended(each, outcome) for each in claimed])
    return len(claimed)


async def one_of_each(ann: Caller, store: PostgresStore, clock: FakeClock) -> dict[str, str]:
    """A one-shot job in every status, and its status by its id."""
    jobs = {"COMPLETED": await ann.submit()}
    await finish_all(store)
    jobs["FAILED"] = await ann.submit()
    await finish_all(store, BROKEN)
    jobs["RETRYING"] = await ann.submit(backoff={"initial": 600})
    await finish_all(store, Raised("later"))
    jobs["RUNNING"] = await ann.submit()
    await claim(store)
    jobs["CANCELLED"] = await ann.submit()
    await ann.delete(f"/jobs/{jobs['CANCELLED']['id']}")
    jobs["SCHEDULED"] = await ann.submit(schedule="2027-02-01T00:00:00Z")
    jobs["QUEUED"] = await ann.submit()
    return {job["id"]: status for status, job in jobs.items()}


@pytest.mark.parametrize("path", ["/jobs", "/executions"])
async def test_every_status_finds_its_own_in_any_case(
    ann: Caller, store: PostgresStore, clock: FakeClock, path: str
) -> None:
    statuses = await one_of_each(ann, store, clock)

    async def found(word: str) -> dict[str, str]:
        rows = await ann.all(path, status=word)
        return {row.get("job_id", row["id"]): row["status"] for row in rows}

    assert {row.get("job_id", row["id"]): row["status"] for row in await ann.all(path)} == statuses
    for status in statuses.values():
        expected = {job: own for job, own in statuses.items() if own == status}
        assert await found(status) == await found(status.lower()) == await found(status.title()) == expected
    pending = {job: own for job, own in statuses.items() if own in ("SCHEDULED", "QUEUED", "RETRYING")}
    assert await found("PENDING") == await found("pending") == pending
    assert await found("ERRORED") == await found("Errored") == await found("FAILED")
    assert await found("SKIPPED") == {}


async def test_recurring_jobs_have_statuses_of_their_own(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    active = await ann.submit(schedule="PT1H")
    cancelled = await ann.submit(schedule="PT1H")
    await ann.delete(f"/jobs/{cancelled['id']}")
    finished = await ann.submit(schedule="PT1M", execution_end_time="2027-01-04T10:01:00Z")
    once = await ann.submit()
    await ann.delete(f"/jobs/{once['id']}")
    clock.advance(minutes=2)
    await Planner(store).step()
    await finish_all(store)

    assert ids(await ann.all("/jobs", status="active")) == [active["id"]]
    assert ids(await ann.all("/jobs", status="FINISHED")) == [finished["id"]]
    assert set(ids(await ann.all("/jobs", status="Cancelled"))) == {cancelled["id"], once["id"]}
    assert await ann.all("/jobs", status="PAUSED") == []
    assert await ann.all("/jobs", status="COMPLETED") == [], "an execution of a recurring job is not a job"


async def test_a_firing_that_was_skipped_is_listed_with_its_reason(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(minutes=5)
    await Planner(store).step()

    [skipped] = await ann.all("/executions", status="skipped")

    assert skipped["job_id"] == job["id"]
    assert skipped["skipped"] == {
        "because": "misfire",
        "first": "2027-01-04T10:01:00.000Z",
        "last": "2027-01-04T10:04:00.000Z",
        "count": 4,
    }


async def test_lists_can_be_narrowed_to_a_task(ann: Caller) -> None:
    once = await ann.submit("bake")
    recurring = await ann.submit("bake", schedule="PT1H")
    await ann.submit("echo")
    await ann.submit("echo", schedule="PT1H")

    assert set(ids(await ann.all("/jobs", task_id="bake"))) == {once["id"], recurring["id"]}
    assert ids(await ann.all("/executions", task_id="bake")) == [once["last_execution"]["id"]]
    assert await ann.all("/jobs", task_id="Bake") == []


async def test_lists_can_be_narrowed_to_a_user(admin: Caller, ann: Caller, bob: Caller) -> None:
    hers = await ann.submit()
    his = await bob.submit(schedule="PT1H")

    assert ids(await ann.all("/jobs", user_id="ann")) == [hers["id"]]
    assert ids(await admin.all("/jobs", user_id="bob")) == [his["id"]]
    assert ids(await admin.all("/executions", user_id="ann")) == [hers["last_execution"]["id"]]
    assert await admin.all("/executions", user_id="nobody") == []
    assert set(ids(await admin.all("/jobs"))) == {hers["id"], his["id"]}


@pytest.mark.parametrize("path", ["/jobs", "/executions"])
async def test_lists_can_be_narrowed_to_a_time_with_both_ends(ann: Caller, path: str) -> None:
    instants = [f"2027-02-0{day}T00:00:00.000Z" for day in range(1, 6)]
    for instant in instants:
        await ann.submit(schedule=instant)

    async def fires(**query: str) -> list[str]:
        return sorted(row.get("fires_at") or row["next_fires_at"] for row in await ann.all(path, **query))

    assert await fires(start_time="2027-02-02T00:00:00Z", end_time="2027-02-04T00:00:00Z") == instants[1:4]
    assert await fires(start_time="2027-02-04T02:00:00+02:00") == instants[3:]
    assert await fires(end_time="2027-02-01T00:00:00Z") == instants[:1]
    assert await fires(start_time="2027-03-01T00:00:00Z") == []


async def test_a_plus_that_became_a_space_on_its_way_is_still_an_offset(ann: Caller) -> None:
    job = await ann.submit(schedule="2027-02-01T00:00:00Z")

    answer = await ann.send("GET", "/jobs?start_time=2027-02-01T02:00:00+02:00&end_time=2027-02-01T02:00:00+02:00")

    assert ids(answer.ok()["jobs"]) == [job["id"]]


async def test_a_recurring_job_is_listed_for_a_time_in_which_it_fires(ann: Caller) -> None:
    daily = await ann.submit(schedule="0 12 * * *")

    for day in ("04", "05", "20"):
        window = {"start_time": f"2027-01-{day}T11:00:00Z", "end_time": f"2027-01-{day}T13:00:00Z"}
        assert ids(await ann.all("/jobs", **window)) == [daily["id"]]


async def test_executions_can_be_narrowed_to_a_job_and_to_a_worker(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    one, other = await ann.submit(), await ann.submit()
    [first] = await claim(store, ALICE, limit=1)
    [second] = await claim(store, BOB, limit=1)
    await store.finish([ended(second, worker_id=BOB)])

    assert ids(await ann.all("/executions", worker_id=ALICE)) == [str(first.key)]
    assert ids(await ann.all("/executions", worker_id=BOB)) == [str(second.key)]
    assert ids(await ann.all("/executions", job_id=one["id"])) == [one["last_execution"]["id"]]
    assert ids(await ann.all(f"/jobs/{other['id']}/executions")) == [other["last_execution"]["id"]]
    assert await ann.all("/executions", job_id=one["id"], worker_id="w-carl") == []


async def test_a_jobs_own_executions_can_be_narrowed_and_paged(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M", overlap="allow")
    for _ in range(5):
        clock.advance(minutes=1)
        await Planner(store).step()
        await finish_all(store)
    await ann.submit()

    path = f"/jobs/{job['id']}/executions"
    fires = [row["fires_at"] for row in await ann.all(path, status="COMPLETED")]

    assert fires == [f"2027-01-04T10:0{minute}:00.000Z" for minute in (5, 4, 3, 2, 1)]
    assert len(await ann.all(path, start_time="2027-01-04T10:02:00Z", end_time="2027-01-04T10:03:00Z")) == 2
    assert [row["fires_at"] for row in await walk(ann, path, limit=2)] == fires


async def test_a_job_shows_its_newest_execution(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(minutes=1)
    await Planner(store).step()
    await finish_all(store)
    clock.advance(seconds=58)
    await Planner(store).step()

    [shown] = await ann.all("/jobs")

    assert shown["id"] == job["id"]
    assert shown["last_execution"]["fires_at"] == "2027-01-04T10:01:00.000Z"
    assert shown["last_execution"]["status"] == "COMPLETED"
    assert shown["next_fires_at"] == "2027-01-04T10:02:00.000Z", "planned, and so it is what fires next"


async def test_what_waits_has_not_started(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    await ann.submit()
    await ann.submit(schedule="2027-02-01T00:00:00Z")
    clock.advance(seconds=30)

    assert [row["started_at"] for row in await ann.all("/executions")] == [None, None]


async def test_a_one_shot_job_that_ran_again_is_listed_once(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    await finish_all(store, BROKEN)
    [letter] = await ann.all("/dead-letters")
    (await ann.post("/dead-letters/redrive", {"executions": [letter["id"]]})).ok()

    [listed] = await ann.all("/jobs")
    assert (listed["id"], listed["status"]) == (job["id"], "QUEUED")
    assert await ann.all("/jobs", status="FAILED") == [], "it failed once, but it is not failed"
    assert [row["run"] for row in await ann.all("/executions")] == [1, 0]

    await finish_all(store)
    [listed] = await ann.all("/jobs")
    assert listed["status"] == "COMPLETED"


# Pages


async def walk(
    caller: Caller, path: str, *, between: Callable[[], Awaitable[object]] | None = None, **query: object
) -> list[Any]:
    """Every row of every page, in the order met."""
    rows: list[Any] = []
    while True:
        page = (await caller.get(path, **query)).ok()
        token = page.pop("next_page_token")
        [met] = page.values()
        assert len(met) <= int(str(query.get("limit", 50)))
        rows += met
        if token is None:
            return rows
        query["page_token"] = token
        if between:
            await between()


async def a_mixed_crowd(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    """Open and ended, one-shot and recurring, past and future, and many at the same instant."""
    for n in range(4):
        await ann.submit(schedule="PT1M", overlap="allow", parameters={"n": n})
        await ann.submit(schedule=f"2027-02-0{n + 1}T00:00:00Z")
        batch = [{"task_id": "echo"} for _ in range(6)]
        (await ann.post("/jobs/batch", {"jobs": batch})).ok(201)
        clock.advance(minutes=1)
        await Planner(store).step()
        await finish_all(store, BROKEN if n == 2 else None, limit=5)


@asynccontextmanager
async def others_at_work(ann: Caller, store: PostgresStore, clock: FakeClock) -> AsyncIterator[None]:
    """Others submit, plan, claim, finish, fail, cancel, redrive and run again for as long as this lasts."""
    over = asyncio.Event()

    async def again_and_again(act: Callable[[], Awaitable[object]]) -> None:
        while not over.is_set():
            await act()

    async def submit() -> None:
        clock.advance(milliseconds=1)
        await ann.submit()
        await ann.submit(schedule="2027-02-02T00:00:00Z")
        await ann.submit(schedule="PT1M")

    async def work() -> None:
        await finish_all(store, limit=2)
        await finish_all(store, BROKEN, limit=1)
        await Planner(store).step()

    async def cancel() -> None:
        for row in (await ann.get("/executions", status="SCHEDULED", limit=1)).ok()["executions"]:
            await ann.delete(f"/jobs/{row['job_id']}")

    async def redrive() -> None:
        await ann.post("/dead-letters/redrive", {})
        for row in (await ann.get("/jobs", status="COMPLETED", limit=2)).ok()["jobs"]:
            await ann.post(f"/jobs/{row['id']}/run")

    async with asyncio.TaskGroup() as others:
        for act in (submit, work, cancel, redrive):
            others.create_task(again_and_again(act))
        yield
        over.set()


@pytest.mark.parametrize("path", ["/jobs", "/executions"])
async def test_a_walk_while_others_write_meets_every_earlier_row_exactly_once(
    ann: Caller, store: PostgresStore, clock: FakeClock, path: str
) -> None:
    await a_mixed_crowd(ann, store, clock)
    earlier = set(ids(await ann.all(path, limit=1000)))
    assert len(earlier) > 30

    async with others_at_work(ann, store, clock):
        met = Counter(ids(await walk(ann, path, limit=3)))

    assert {row: met[row] for row in earlier} == dict.fromkeys(earlier, 1)
    assert set(met.values()) == {1}


async def test_pages_of_any_size_are_one_list_newest_first(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    await a_mixed_crowd(ann, store, clock)

    for path in ("/jobs", "/executions"):
        whole = await ann.all(path, limit=1000)
        for limit in (2, 7, 1000):
            assert await walk(ann, path, limit=limit) == whole
    assert [row["fires_at"] for row in whole] == sorted((row["fires_at"] for row in whole), reverse=True)

    narrowed: list[dict[str, Any]] = [
        {"status": "COMPLETED"},
        {"status": "pending", "end_time": "2027-01-04T10:30:00Z"},
    ]
    for query in narrowed:
        assert ids(await walk(ann, "/executions", limit=2, **query)) == ids(
            await ann.all("/executions", limit=1000, **query)
        )


@pytest.mark.parametrize("moves_to", ["2027-01-01T00:00:00Z", "2027-03-01T00:00:00Z"])
async def test_a_walk_meets_the_others_once_although_one_is_rescheduled_meanwhile(ann: Caller, moves_to: str) -> None:
    """The one that moves comes under its new time, as docs/api.md says."""
    jobs = [await ann.submit(schedule=f"2027-02-0{day}T00:00:00Z") for day in range(1, 6)]
    moving = jobs[4] if moves_to < "2027-02" else jobs[0]

    async def reschedule() -> None:
        (await ann.patch(f"/jobs/{moving['id']}", {"schedule": moves_to})).ok()

    met = Counter(ids(await walk(ann, "/jobs", between=reschedule, limit=2)))

    met.pop(moving["id"], None)
    assert met == dict.fromkeys(ids([job for job in jobs if job is not moving]), 1)


async def test_a_walk_over_dead_letters_meets_each_of_them_once(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    for _ in range(3):
        await ann.submit()
    recurring = await ann.submit(schedule="PT1M", overlap="allow")
    for _ in range(3):
        clock.advance(minutes=1)
        await Planner(store).step()
    # All in one batch of endings, and so all at one instant.
    assert await finish_all(store, BROKEN) == 6
    whole = ids(await ann.all("/dead-letters"))
    assert len(whole) == 6
    assert sum(recurring["id"] in letter for letter in whole) == 3

    for limit in (1, 2, 4):
        assert ids(await walk(ann, "/dead-letters", limit=limit)) == whole


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


@pytest.mark.parametrize("path", ["/jobs", "/executions", "/dead-letters"])
async def test_a_token_we_did_not_give_is_refused(ann: Caller, path: str) -> None:
    job_id = UUID(int=7)
    forged = [
        "", "nonsense", "e30", "====", "ключ", "a" * 5000, token(), token(1), token("now", job_id, 0),
        token(10**30, job_id, 0), token(-(10**30), job_id, 0), token(0, "not-an-id", 0), token(0, job_id, None),
        token(0, job_id, 2**31), token(0, job_id, -(2**40)), token(0, job_id, 2**70), token(2**62, job_id, 0),
    ]  # fmt: skip
    for each in forged:
        assert (await ann.get(path, page_token=each)).refused(422, "page_token")


@pytest.mark.parametrize("path", ["/jobs", "/executions", "/dead-letters"])
async def test_parameters_that_make_no_sense_are_refused(ann: Caller, path: str) -> None:
    wrong = [
        ("limit", "0"), ("limit", "1001"), ("limit", "-1"), ("limit", "many"), ("limit", ""), ("limit", "1.0"),
        ("limit", "٣"), ("limit", "9" * 5000), ("start_time", "yesterday"), ("start_time", "2027-01-04T10:00:00"),
        ("end_time", "2027-13-01T00:00:00Z"), ("end_time", "9999-12-31T23:59:59Z"), ("end_time", ""),
        ("colour", "red"), ("Limit", "1"),
    ]  # fmt: skip
    for name, value in wrong:
        assert (await ann.get(path, **{name: value})).refused(422, name)
    assert (await ann.send("GET", f"{path}?limit=1&limit=2")).refused(422, "limit")


async def test_a_status_or_a_job_that_cannot_be_is_refused(ann: Caller) -> None:
    for word in ("DONE", "", "RUNNING,FAILED", "активный"):
        assert "COMPLETED" in (await ann.get("/jobs", status=word)).refused(422, "status")
        assert "COMPLETED" in (await ann.get("/executions", status=word)).refused(422, "status")
    assert (await ann.get("/executions", status="ACTIVE")).refused(422, "status")
    assert (await ann.get("/executions", job_id="12")).refused(422, "job_id")
    assert (await ann.get("/dead-letters", status="FAILED")).refused(422, "status")
    assert (await ann.get("/jobs", worker_id="w")).refused(422, "worker_id")
