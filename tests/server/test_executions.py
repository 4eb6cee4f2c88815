"""One execution with its tries, its cancellation, the dead letters and the workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.model.keys import Scope
from rota.model.retry import Crashed, Done, HandedBack, LeaseLapsed, Outcome, Raised, Stopped
from rota.scheduler.janitor import Janitor
from rota.scheduler.planner import Planner
from rota.scheduler.reaper import Reaper
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.server.conftest import NewCaller
from tests.support.clock import FakeClock
from tests.support.jobs import ALICE, BOB, a_worker, claim, ended

BROKEN = Raised("ValueError: no", final=True)


async def end_all(store: PostgresStore, outcome: Outcome | None = None, *, worker_id: str = ALICE) -> None:
    claimed = await claim(store, worker_id)
    assert await store.finish([ended(each, outcome, worker_id=worker_id) for each in claimed]) == []


async def detail(caller: Caller, execution_id: str) -> Any:
    return (await caller.get(f"/executions/{execution_id}")).ok()


async def a_dead_letter(caller: Caller, store: PostgresStore, **fields: object) -> str:
    job = await caller.submit(**fields)  # type: ignore[arg-type]
    await end_all(store, BROKEN)
    letter: str = job["last_execution"]["id"]
    return letter


async def test_an_execution_tells_its_whole_life(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="2027-01-04T10:00:10.5Z", backoff={"initial": 60, "jitter": 0})
    execution_id = job["last_execution"]["id"]
    assert execution_id == f"1799056810500-{job['id']}"

    clock.advance(seconds=10, milliseconds=500)
    [first] = await claim(store)
    clock.advance(seconds=2)
    running = await detail(ann, execution_id)
    assert (running["execution"]["status"], running["execution"]["worker_id"]) == ("RUNNING", ALICE)
    assert running["execution"]["started_at"] == "2027-01-04T10:00:10.500Z"

    await store.finish([ended(first, Raised("ValueError: no"))])
    waiting = await detail(ann, execution_id)
    assert (waiting["execution"]["status"], waiting["execution"]["error"]) == ("RETRYING", "ValueError: no")
    assert waiting["execution"]["due_at"] == "2027-01-04T10:01:12.500Z"
    assert waiting["execution"]["started_at"] is None

    clock.advance(seconds=60)
    await end_all(store, Done('{"ok":true}'), worker_id=BOB)
    done = await detail(ann, execution_id)
    assert done["execution"] == job["last_execution"] | {
        "status": "COMPLETED",
        "due_at": "2027-01-04T10:01:12.500Z",
        "started_at": "2027-01-04T10:01:12.500Z",
        "finished_at": "2027-01-04T10:01:12.500Z",
        "attempt": 2,
        "failures": 1,
        "worker_id": BOB,
        "result": {"ok": True},
    }
    assert done["attempts"] == [
        {
            "attempt": 1,
            "worker_id": ALICE,
            "verdict": "RETRY",
            "error": "ValueError: no",
            "started_at": "2027-01-04T10:00:12.500Z",
            "ended_at": "2027-01-04T10:00:12.500Z",
        }
    ]


async def test_every_try_is_told_in_its_order(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit()
    outcomes: list[Outcome] = [HandedBack(), Crashed("signal 9"), LeaseLapsed(), Raised("no"), BROKEN]
    for outcome in outcomes:
        await end_all(store, outcome)
        clock.advance(hours=1)

    told = await detail(ann, job["last_execution"]["id"])

    assert [attempt["attempt"] for attempt in told["attempts"]] == [1, 2, 3, 4, 5]
    assert [attempt["verdict"] for attempt in told["attempts"]] == ["RELEASE", "RETRY", "RETRY", "RETRY", "FAILED"]
    assert told["attempts"][1]["error"] == "Crashed: signal 9"
    assert told["execution"]["status"] == "FAILED"
    assert (told["execution"]["attempt"], told["execution"]["failures"]) == (5, 2)


@pytest.mark.parametrize("result", ["null", '"text"', "0", "[1,2]", '{"nested":{"a":null}}', "false"])
async def test_a_result_comes_back_as_it_was_given(ann: Caller, store: PostgresStore, result: str) -> None:
    job = await ann.submit()
    await end_all(store, Done(result))

    answer = await ann.get(f"/executions/{job['last_execution']['id']}")

    assert f'"result":{result},'.encode() in answer.content


async def test_a_held_execution_is_scheduled_until_its_instant(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="2027-01-04T10:00:00.200Z")
    await claim(store, lookahead=0.25)

    held = (await detail(ann, job["last_execution"]["id"]))["execution"]
    clock.advance(milliseconds=200)
    running = (await detail(ann, job["last_execution"]["id"]))["execution"]

    assert (held["status"], held["started_at"]) == ("SCHEDULED", None)
    assert (running["status"], running["started_at"]) == ("RUNNING", "2027-01-04T10:00:00.200Z")


async def test_ids_that_name_nothing_are_not_found(ann: Caller) -> None:
    job = await ann.submit()
    job_id = job["id"]
    for name in (
        job_id,
        f"1-{job_id}",
        f"{job['last_execution']['id']}-1",
        f"-1-{job_id}",
        f"999999999999999-{job_id}",
        f"-999999999999999-{job_id}",
        f"1799056800000-{job_id}-999999999",
        f"1799056800000-{job_id}-9999999999",
        "x",
        "1799056800000-00000000-0000-0000-0000-0000000000ff",
    ):
        assert (await ann.get(f"/executions/{name}")).refused(404)
        assert (await ann.post(f"/executions/{name}/cancel")).refused(404)


# Cancelling one


async def test_one_firing_is_cancelled_and_the_job_goes_on(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit(schedule="PT1M")
    clock.advance(seconds=57)
    await Planner(store).step()
    [planned] = await ann.all("/executions")

    cancelled = (await ann.post(f"/executions/{planned['id']}/cancel")).ok()

    assert cancelled["status"] == "CANCELLED"
    assert cancelled["finished_at"] == "2027-01-04T10:00:57.000Z"
    clock.advance(seconds=63)
    await Planner(store).step()
    [next_one] = await claim(store)
    assert (str(next_one.job_id), next_one.fires_at) == (job["id"], clock.moment)


async def test_a_running_execution_is_asked_to_stop(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    await a_worker(store)
    [claimed] = await claim(store)

    asked = (await ann.post(f"/executions/{claimed.key}/cancel")).ok()

    assert (asked["status"], asked["cancel_requested"]) == ("RUNNING", True)
    assert (await store.renew(ALICE)).cancelled == [claimed.key]
    await store.finish([ended(claimed, Stopped())])
    assert (await ann.get(f"/jobs/{job['id']}")).ok()["status"] == "CANCELLED"


async def test_what_was_asked_to_stop_is_not_tried_again(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    await ann.submit()
    [claimed] = await claim(store)
    await ann.post(f"/executions/{claimed.key}/cancel")

    await store.finish([ended(claimed, Raised("no"))])

    assert (await detail(ann, str(claimed.key)))["execution"]["status"] == "CANCELLED"


async def test_only_what_is_open_is_cancelled(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    done = await ann.submit()
    await end_all(store)
    failed = await a_dead_letter(ann, store)
    await ann.submit(schedule="PT1M")
    clock.advance(minutes=3)
    await Planner(store).step()
    [skipped] = await ann.all("/executions", status="SKIPPED")

    for execution_id in (done["last_execution"]["id"], failed, skipped["id"]):
        before = await detail(ann, execution_id)
        assert before["execution"]["status"] in (await ann.post(f"/executions/{execution_id}/cancel")).refused(409)
        assert await detail(ann, execution_id) == before


async def test_to_cancel_twice_changes_nothing(ann: Caller) -> None:
    execution = (await ann.submit())["last_execution"]["id"]
    first = (await ann.post(f"/executions/{execution}/cancel")).ok()

    assert (await ann.post(f"/executions/{execution}/cancel")).ok() == first


# Dead letters


async def test_a_dead_letter_says_what_went_wrong(ann: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit("echo", parameters={"a": 1}, max_retries=1, backoff={"initial": 1})
    await end_all(store, Raised("first"))
    assert await ann.all("/dead-letters") == []
    clock.advance(seconds=5)
    await end_all(store, Raised("second"))

    [letter] = await ann.all("/dead-letters")

    assert letter["id"] == job["last_execution"]["id"]
    assert (letter["status"], letter["error"], letter["failures"], letter["attempt"]) == ("FAILED", "second", 2, 2)
    assert letter["parameters"] == {"a": 1}
    assert letter["finished_at"] == "2027-01-04T10:00:05.000Z"


async def test_dead_letters_can_be_narrowed(
    ann: Caller, bob: Caller, admin: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    hers = await a_dead_letter(ann, store)
    clock.advance(hours=1)
    his = await a_dead_letter(bob, store, task_id="noop")

    async def found(caller: Caller, **query: object) -> list[str]:
        return [letter["id"] for letter in await caller.all("/dead-letters", **query)]

    assert await found(ann) == [hers]
    assert await found(admin) == [his, hers]
    assert await found(admin, user_id="bob") == await found(admin, task_id="noop") == [his]
    assert await found(admin, end_time="2027-01-04T10:30:00Z") == [hers]
    assert await found(admin, start_time="2027-01-04T10:30:00Z") == [his]


async def test_a_dead_letter_named_runs_again(ann: Caller, store: PostgresStore) -> None:
    letter = await a_dead_letter(ann, store)
    other = await a_dead_letter(ann, store)

    answer = (await ann.post("/dead-letters/redrive", {"executions": [letter]})).ok()

    assert answer == {"redriven": [f"{letter}-1"], "refused": []}
    assert [left["id"] for left in await ann.all("/dead-letters")] == [other]
    again = (await detail(ann, f"{letter}-1"))["execution"]
    assert (again["run"], again["status"], again["failures"]) == (1, "QUEUED", 0)
    assert (await detail(ann, letter))["execution"]["status"] == "FAILED", "what has ended never changes"
    await end_all(store)
    assert (await detail(ann, f"{letter}-1"))["execution"]["status"] == "COMPLETED"


async def test_dead_letters_that_match_run_again(ann: Caller, bob: Caller, admin: Caller, store: PostgresStore) -> None:
    baked = [await a_dead_letter(ann, store, task_id="noop") for _ in range(2)]
    echoed = await a_dead_letter(ann, store)
    his = await a_dead_letter(bob, store)

    async def redriven(caller: Caller, **body: object) -> set[str]:
        return set((await caller.post("/dead-letters/redrive", body)).ok()["redriven"])

    assert await redriven(ann, task_id="noop") == {f"{letter}-1" for letter in baked}
    assert await redriven(ann) == {f"{echoed}-1"}, "everything means everything of one's own"
    assert await redriven(admin, user_id="bob") == {f"{his}-1"}
    assert await redriven(admin) == set()


async def test_a_dead_letter_twice_named_runs_once(ann: Caller, store: PostgresStore) -> None:
    letter = await a_dead_letter(ann, store)

    answer = (await ann.post("/dead-letters/redrive", {"executions": [letter, letter]})).ok()

    assert answer["redriven"] == [f"{letter}-1"]
    assert len(await claim(store)) == 1


async def test_a_dead_letter_redriven_by_many_at_once_runs_once(ann: Caller, store: PostgresStore) -> None:
    letter = await a_dead_letter(ann, store)

    bodies: list[dict[str, object]] = [{"executions": [letter]}, {}, {"task_id": "echo"}] * 3
    answers = await asyncio.gather(*(ann.post("/dead-letters/redrive", body) for body in bodies))

    assert [again for answer in answers for again in answer.ok()["redriven"]] == [f"{letter}-1"]
    assert len(await claim(store)) == 1


async def test_what_is_no_dead_letter_is_refused_with_a_reason(ann: Caller, store: PostgresStore) -> None:
    done = (await ann.submit())["last_execution"]["id"]
    await end_all(store)

    answer = (await ann.post("/dead-letters/redrive", {"executions": [done]})).ok()

    assert answer["redriven"] == []
    assert [refusal["id"] for refusal in answer["refused"]] == [done]
    assert answer["refused"][0]["reason"]


async def test_letters_of_a_job_that_must_not_overlap_go_one_by_one(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    job = await ann.submit(schedule="PT1M")
    for _ in range(2):
        clock.advance(minutes=1)
        await Planner(store).step()
        await end_all(store, BROKEN)
    letters = [letter["id"] for letter in await ann.all("/dead-letters")]
    assert len(letters) == 2

    answer = (await ann.post("/dead-letters/redrive", {"executions": letters})).ok()

    assert len(answer["redriven"]) == len(answer["refused"]) == 1
    assert "overlap" in answer["refused"][0]["reason"]
    assert [str(each.job_id) for each in await claim(store)] == [job["id"]]


async def test_a_letter_that_is_not_known_stops_the_whole_redrive(ann: Caller, store: PostgresStore) -> None:
    letter = await a_dead_letter(ann, store)
    unknown = f"1-{letter[14:]}"

    assert unknown in (await ann.post("/dead-letters/redrive", {"executions": [letter, unknown]})).refused(404)
    assert (await ann.post("/dead-letters/redrive", {"executions": [letter, "x"]})).status == 422
    assert [left["id"] for left in await ann.all("/dead-letters")] == [letter]


async def test_names_and_a_filter_are_not_mixed(ann: Caller, store: PostgresStore) -> None:
    letter = await a_dead_letter(ann, store)

    answer = await ann.post("/dead-letters/redrive", {"executions": [letter], "task_id": "noop"})

    assert answer.status == 422, "either ids or a filter; the filter was silently left aside"


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_dead_letter_outlives_the_history_of_its_execution(
    ann: Caller, store: PostgresStore, clock: FakeClock, by_name: bool
) -> None:
    letter = await a_dead_letter(ann, store)
    clock.advance(days=40)
    await Janitor(store, keep=timedelta(days=30)).step()
    assert [left["id"] for left in await ann.all("/dead-letters")] == [letter]

    answer = await ann.post("/dead-letters/redrive", {"executions": [letter]} if by_name else {})

    assert len(answer.ok()["redriven"]) == 1
    assert len(await claim(store)) == 1


# Workers


async def test_workers_tell_how_they_are(
    ann: Caller, worker: Caller, store: PostgresStore, clock: FakeClock, caller: NewCaller
) -> None:
    await ann.submit()
    await a_worker(store, ALICE)
    await a_worker(store, BOB)
    await a_worker(store, "w-carl")
    await claim(store, ALICE)
    await store.retire("w-carl")
    clock.advance(seconds=10)
    await store.renew(ALICE)
    clock.advance(seconds=10)
    await Reaper(store, hold_off=0).step()

    workers = {each["id"]: each for each in (await worker.get("/workers")).ok()["workers"]}

    assert {name: each["state"] for name, each in workers.items()} == {
        ALICE: "ALIVE",
        BOB: "DEAD",
        "w-carl": "STOPPED",
    }
    assert workers[ALICE] == {
        "id": ALICE,
        "state": "ALIVE",
        "host": "here",
        "pid": 1,
        "queues": ["default"],
        "tasks": ["echo", "noop", "send_email"],
        "concurrency": 100,
        "running": 1,
        "started_at": "2027-01-04T10:00:00.000Z",
        "renewed_at": "2027-01-04T10:00:10.000Z",
        "ended_at": None,
        "resources": {},
        "labels": [],
        "wish": None,
    }
    assert workers[BOB]["ended_at"] == "2027-01-04T10:00:20.000Z"
    assert (await (await caller("carl", Scope.READ)).get("/workers")).refused(403)


# What an operator wants of a worker


async def test_a_worker_is_told_to_pause_to_go_on_and_to_drain(admin: Caller, store: PostgresStore) -> None:
    await a_worker(store)

    for verb, wish in (("pause", "pause"), ("resume", None), ("drain", "drain")):
        shown = (await admin.post(f"/workers/{ALICE}/{verb}")).ok()
        assert shown["wish"] == wish
        assert (await store.renew(ALICE)).wish == wish
    await store.retire(ALICE)
    assert "STOPPED" in (await admin.post(f"/workers/{ALICE}/pause")).refused(409)
    (await admin.post("/workers/nobody/pause")).refused(404)


async def test_only_an_admin_tells_workers_what_to_do(ann: Caller, worker: Caller, store: PostgresStore) -> None:
    await a_worker(store)

    for caller in (ann, worker):
        (await caller.post(f"/workers/{ALICE}/drain")).refused(403)
