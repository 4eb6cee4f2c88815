"""/work: a worker that has no database, only HTTP."""

from __future__ import annotations

import asyncio
import base64
import gzip
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from rota.model.keys import Scope
from rota.scheduler.reaper import Reaper
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller, a_caller, a_rota_server
from tests.server.conftest import NewCaller
from tests.support.clock import FakeClock
from tests.support.jobs import executions

ME = "remote-1"


async def claimed(worker: Caller, worker_id: str = ME, **fields: object) -> list[Any]:
    body = {"worker_id": worker_id, "tasks": ["echo", "noop"]} | fields
    found: list[Any] = (await worker.post("/work/claim", body)).ok()["executions"]
    return found


async def finished(worker: Caller, *endings: dict[str, object], worker_id: str = ME) -> list[str]:
    body = {"worker_id": worker_id, "endings": endings}
    refused: list[str] = (await worker.post("/work/finish", body)).ok()["refused"]
    return refused


async def given_back(worker: Caller, *lease_ids: int, worker_id: str = ME) -> int:
    body = {"worker_id": worker_id, "lease_ids": lease_ids}
    returned: int = (await worker.post("/work/give-back", body)).ok()["returned"]
    return returned


def ending(work: Any, outcome: str = "completed", **fields: object) -> dict[str, object]:
    return {"claim": work["claim"], "outcome": outcome} | fields


async def status_of(caller: Caller, job: Any) -> str:
    status: str = (await caller.get(f"/jobs/{job['id']}")).ok()["status"]
    return status


# Claim


async def test_a_claim_brings_all_that_is_needed_to_run_it(ann: Caller, worker: Caller) -> None:
    job = await ann.submit(parameters={"to": ["you", None, 1.5]}, timeout=30)

    answer = (await worker.post("/work/claim", {"worker_id": ME, "tasks": ["echo"], "lease_id": 71})).ok()

    [work] = answer["executions"]
    assert answer["lease_seconds"] == 15
    assert answer["cancelled"] == []
    assert work.pop("claim")
    assert work == {
        "id": job["last_execution"]["id"],
        "task_id": "echo",
        "user_id": "ann",
        "parameters": {"to": ["you", None, 1.5]},
        "attempt": 1,
        "fires_at": "2027-01-04T10:00:00.000Z",
        "due_in": 0.0,
        "timeout": 30.0,
        "last_checkpoint": None,
        "start_within": None,
        "resources": {},
        "result_location": None,
        "priority": 0,
        "suspect": False,
        "lease_id": 71,
    }
    assert await claimed(worker) == []


async def test_a_claim_a_moment_ahead_says_how_long_to_wait(ann: Caller, worker: Caller) -> None:
    await ann.submit(schedule="2027-01-04T10:00:00.200Z")

    [work] = await claimed(worker)

    assert work["due_in"] == pytest.approx(0.2)


async def test_what_is_overdue_is_due_now(ann: Caller, worker: Caller, clock: FakeClock) -> None:
    await ann.submit()
    clock.advance(hours=1)

    [work] = await claimed(worker)

    assert work["due_in"] == 0.0


async def test_a_worker_gets_only_its_tasks_its_queues_and_its_limit(ann: Caller, worker: Caller) -> None:
    for _ in range(3):
        await ann.submit("echo")
    await ann.submit("bake")
    slow = await ann.submit("echo", queue="slow")

    assert len(await claimed(worker, limit=2)) == 2
    assert len(await claimed(worker)) == 1
    assert [work["id"] for work in await claimed(worker, queues=["slow"])] == [slow["last_execution"]["id"]]


async def test_workers_at_once_never_share(ann: Caller, worker: Caller) -> None:
    (await ann.post("/jobs/batch", {"jobs": [{"task_id": "echo"}] * 60})).ok(201)

    taken = await asyncio.gather(*(claimed(worker, f"remote-{n}", limit=20) for n in range(6)))
    # A claimer that met only locked rows goes away early, so a last one takes the rest.
    works = [work["id"] for works in [*taken, await claimed(worker)] for work in works]

    assert len(works) == len(set(works)) == 60


async def until_the_server_listens(store: PostgresStore) -> None:
    listening = """
        select from pg_stat_activity
        where datname = current_database() and query ilike 'listen%' and state = 'idle'
    """
    while not await store.db.fetch(listening):
        pass


async def test_a_waiting_claim_is_woken_by_new_work(
    ann: Caller, worker: Caller, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks again before the hint comes; without it the claim would come back empty after 20 s.
    monkeypatch.setattr("rota.server.work.POLL", 3600.0)
    monkeypatch.setattr("rota.server.work.BUSY_FOR", 0.0)
    looked = asyncio.Event()
    claim = store.claim

    async def claim_and_tell(*args: Any, **kwargs: Any) -> Any:
        handout = await claim(*args, **kwargs)
        looked.set()
        return handout

    monkeypatch.setattr(store, "claim", claim_and_tell)
    await until_the_server_listens(store)
    waiting = asyncio.create_task(claimed(worker, wait=20))
    await looked.wait()

    job = await ann.submit()

    assert [work["id"] for work in await waiting] == [job["last_execution"]["id"]]


async def test_nothing_is_handed_to_somebody_who_hung_up(
    ann: Caller, worker: Caller, caller: NewCaller, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.server.work.POLL", 3600.0)
    monkeypatch.setattr("rota.server.work.BUSY_FOR", 0.0)
    looked, hinted = asyncio.Event(), asyncio.Event()
    claim = store.claim

    async def claim_and_tell(*args: Any, **kwargs: Any) -> Any:
        handout = await claim(*args, **kwargs)
        looked.set()
        return handout

    monkeypatch.setattr(store, "claim", claim_and_tell)
    gone = await caller("machine", Scope.WORK)
    await until_the_server_listens(store)
    waiting = asyncio.create_task(claimed(gone, "gone", wait=20))
    await looked.wait()
    waiting.cancel()
    await gone.session.close()

    submitted: set[str] = set()
    found: set[str] = set()
    async with store.woken(hinted.set):
        while not hinted.is_set():
            submitted.add((await ann.submit())["last_execution"]["id"])

    # Nobody waits for a lease to run out: the clock stands still.
    async with asyncio.timeout(10):
        while found != submitted:
            found |= {work["id"] for work in await claimed(worker)}


async def test_a_claim_that_waits_in_vain_comes_back_empty(worker: Caller) -> None:
    assert await claimed(worker, wait=0.01) == []


async def test_a_worker_that_claims_is_known_and_alive(worker: Caller, clock: FakeClock) -> None:
    await claimed(worker, host="far-away", limit=7)
    clock.advance(seconds=5)
    await claimed(worker)

    [known] = (await worker.get("/workers")).ok()["workers"]

    assert (known["id"], known["host"], known["state"]) == (ME, "far-away", "ALIVE")
    assert (known["tasks"], known["queues"], known["concurrency"]) == (["echo", "noop"], ["default"], 7)
    assert known["renewed_at"] == "2027-01-04T10:00:05.000Z"


async def test_a_claim_whose_answer_was_lost_is_given_back(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [lost] = await claimed(worker, lease_id=71)

    assert await given_back(worker, 70, 71, 72) == 1
    [again] = await claimed(worker, lease_id=72)

    assert (again["id"], again["attempt"]) == (lost["id"], 2)
    assert await finished(worker, ending(lost)) == [lost["id"]], "what was given back is no longer held"
    assert await finished(worker, ending(again)) == []


async def test_nobody_gives_back_what_another_holds(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [held] = await claimed(worker, lease_id=71)

    assert await given_back(worker, 71, worker_id="remote-2") == 0
    assert await claimed(worker, "remote-2") == []
    assert await finished(worker, ending(held)) == []


async def test_a_worker_introduces_itself_once(worker: Caller) -> None:
    body = {"worker_id": ME, "tasks": ["echo"], "queues": ["slow"], "concurrency": 7, "host": "far", "pid": 42}

    assert (await worker.post("/work/register", body)).ok() == {"registered": True}
    assert (await worker.post("/work/register", body)).ok() == {"registered": False}

    [known] = (await worker.get("/workers")).ok()["workers"]
    assert (known["host"], known["pid"], known["queues"], known["concurrency"]) == ("far", 42, ["slow"], 7)


async def test_a_worker_can_ask_what_it_is_believed_to_hold(ann: Caller, worker: Caller, clock: FakeClock) -> None:
    await ann.submit(parameters={"a": 1})
    [work] = await claimed(worker, lease_id=71)

    async def held(worker_id: str = ME) -> list[Any]:
        found: list[Any] = (await worker.post("/work/held", {"worker_id": worker_id})).ok()["executions"]
        return found

    assert await held() == []
    clock.advance(seconds=61)
    [strange] = await held()
    assert (strange["id"], strange["lease_id"], strange["parameters"]) == (work["id"], 71, {"a": 1})
    assert await held("remote-2") == []
    assert await finished(worker, ending(strange, "released")) == []
    assert await held() == []


async def test_a_poison_job_fails_after_three_crashes_alone_whatever_its_worker_says(
    ann: Caller, worker: Caller
) -> None:
    job = await ann.submit(max_retries=1000)
    suspicions = []
    while works := await claimed(worker):
        suspicions.append(works[0]["suspect"])
        assert await finished(worker, ending(works[0], "crashed", error="code -9")) == []

    assert suspicions == [False, True, True]
    last = (await ann.get(f"/jobs/{job['id']}")).ok()["last_execution"]
    assert (last["status"], last["error"]) == ("FAILED", "Crashed: code -9")


# Packed


async def test_bodies_and_answers_may_be_packed(ann: Caller, worker: Caller) -> None:
    (await ann.post("/jobs/batch", {"jobs": [{"task_id": "echo"}] * 20})).ok(201)
    body = msgspec.json.encode({"worker_id": ME, "tasks": ["echo"], "limit": 10})
    plain = await worker.send("POST", "/work/claim", body, Accept_Encoding="identity")
    packed = await worker.send("POST", "/work/claim", gzip.compress(body), Content_Encoding="gzip")

    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert [len(each.ok()["executions"]) for each in (plain, packed)] == [10, 10]
    empty = await worker.send("POST", "/work/claim", body)
    assert "Content-Encoding" not in empty.headers, "what is small is sent as it is"


async def test_what_swells_too_far_is_refused(worker: Caller) -> None:
    bomb = gzip.compress(b" " * (200 * 1024 * 1024))

    assert "unpacks" in (await worker.send("POST", "/work/finish", bomb, Content_Encoding="gzip")).refused(413)


async def test_what_is_not_packed_as_it_says_is_refused(worker: Caller) -> None:
    good = gzip.compress(msgspec.json.encode({"worker_id": ME}))
    for body in (b"{}", b"", good[:-1], good + good, good + b"x"):
        assert (await worker.send("POST", "/work/renew", body, Content_Encoding="gzip")).refused(400)
    assert (await worker.send("POST", "/work/renew", good, Content_Encoding="br")).refused(422, "Content-Encoding")
    assert (await worker.send("POST", "/work/renew", good, Content_Encoding="GZIP")).ok()["alive"] is False


# Renew


async def test_a_renewal_keeps_a_worker_alive(
    ann: Caller, worker: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    await ann.submit()
    [work] = await claimed(worker)
    for _ in range(3):
        clock.advance(seconds=10)
        assert (await worker.post("/work/renew", {"worker_id": ME})).ok() == {
            "alive": True,
            "cancelled": [],
            "terminated": [],
            "wish": None,
        }
        await Reaper(store, hold_off=0).step()

    assert await finished(worker, ending(work)) == []


async def test_a_renewal_and_a_claim_tell_what_to_stop(ann: Caller, worker: Caller) -> None:
    job = await ann.submit()
    [work] = await claimed(worker)
    await ann.delete(f"/jobs/{job['id']}")

    renewed = (await worker.post("/work/renew", {"worker_id": ME})).ok()
    told = (await worker.post("/work/claim", {"worker_id": ME, "tasks": ["echo"], "wait": 20})).ok()

    assert renewed == {"alive": True, "cancelled": [work["id"]], "terminated": [], "wish": None}
    assert told["cancelled"] == [work["id"]]
    assert await finished(worker, ending(work, "cancelled")) == []
    assert await status_of(ann, job) == "CANCELLED"


async def test_a_worker_that_is_not_known_is_not_alive(worker: Caller) -> None:
    assert (await worker.post("/work/renew", {"worker_id": "never-seen"})).ok() == {
        "alive": False,
        "cancelled": [],
        "terminated": [],
        "wish": None,
    }


async def test_death_is_final(ann: Caller, worker: Caller, store: PostgresStore, clock: FakeClock) -> None:
    job = await ann.submit()
    [work] = await claimed(worker)
    clock.advance(seconds=16)
    await Reaper(store, hold_off=0).step()

    assert (await worker.post("/work/renew", {"worker_id": ME})).ok()["alive"] is False
    refusal = await worker.post("/work/claim", {"worker_id": ME, "tasks": ["echo"]})
    assert "new id" in refusal.refused(409)
    assert await finished(worker, ending(work)) == [work["id"]]
    assert await status_of(ann, job) == "RETRYING"
    clock.advance(hours=1)
    [again] = await claimed(worker, "remote-1b")
    assert (again["id"], again["attempt"]) == (work["id"], 2)


async def test_a_worker_that_left_comes_back_under_another_name_only(worker: Caller) -> None:
    await claimed(worker)

    assert (await worker.post("/work/renew", {"worker_id": ME, "leaving": True})).ok()["alive"] is False

    [gone] = (await worker.get("/workers")).ok()["workers"]
    assert gone["state"] == "STOPPED"
    assert (await worker.post("/work/claim", {"worker_id": ME, "tasks": ["echo"]})).refused(409)


# Finish


async def test_a_result_reaches_the_user(ann: Caller, worker: Caller, clock: FakeClock) -> None:
    job = await ann.submit()
    [work] = await claimed(worker)
    clock.advance(seconds=3)

    assert await finished(worker, ending(work, result={"sum": [1, None, "два"]}, started_ago=2.5)) == []

    done = (await ann.get(f"/jobs/{job['id']}")).ok()["last_execution"]
    assert (done["status"], done["result"]) == ("COMPLETED", {"sum": [1, None, "два"]})
    assert (done["worker_id"], done["started_at"]) == (ME, "2027-01-04T10:00:00.500Z")


@pytest.mark.parametrize(
    ("outcome", "fields", "status", "failures"),
    [
        ("completed", {}, "COMPLETED", 0),
        ("failed", {"error": "ValueError: no"}, "RETRYING", 1),
        ("failed", {"error": "ValueError: no", "final": True}, "FAILED", 1),
        ("timed_out", {}, "RETRYING", 1),
        ("cancelled", {}, "CANCELLED", 0),
        ("crashed", {"error": "code -9"}, "RETRYING", 0),
        ("crashed", {"error": "code -9", "alone": False}, "RETRYING", 0),
        ("released", {}, "QUEUED", 0),
        ("released", {"retry_after": 5}, "SCHEDULED", 0),
    ],
)
async def test_every_outcome_has_its_end(
    ann: Caller, worker: Caller, outcome: str, fields: dict[str, object], status: str, failures: int
) -> None:
    job = await ann.submit()
    [work] = await claimed(worker)

    assert await finished(worker, ending(work, outcome, **fields)) == []

    seen = (await ann.get(f"/jobs/{job['id']}")).ok()["last_execution"]
    assert (seen["status"], seen["failures"]) == (status, failures)
    assert await finished(worker, ending(work, outcome, **fields)) == [], "told twice is as good as told once"
    assert (await ann.get(f"/jobs/{job['id']}")).ok()["last_execution"] == seen


async def test_a_task_may_say_when_it_wants_to_be_tried_again(ann: Caller, worker: Caller) -> None:
    job = await ann.submit()
    [work] = await claimed(worker)

    await finished(worker, ending(work, "failed", error="busy", retry_after=90))

    assert (await ann.get(f"/jobs/{job['id']}")).ok()["next_fires_at"] == "2027-01-04T10:01:30.000Z"


async def test_a_stale_word_changes_nothing(ann: Caller, worker: Caller) -> None:
    job = await ann.submit()
    [stale] = await claimed(worker)
    await finished(worker, ending(stale, "released"))
    [fresh] = await claimed(worker, "remote-2")
    before = (await ann.get(f"/jobs/{job['id']}")).ok()

    for outcome in ("completed", "failed", "cancelled", "timed_out"):
        assert await finished(worker, ending(stale, outcome)) == [stale["id"]]

    assert (await ann.get(f"/jobs/{job['id']}")).ok() == before
    assert await finished(worker, ending(fresh), worker_id="remote-2") == []
    assert await status_of(ann, job) == "COMPLETED"
    assert await finished(worker, ending(fresh, "failed"), worker_id="remote-2") == [fresh["id"]]


async def test_many_endings_are_one_request_and_only_the_stale_are_refused(ann: Caller, worker: Caller) -> None:
    (await ann.post("/jobs/batch", {"jobs": [{"task_id": "echo"}] * 10})).ok(201)
    works = await claimed(worker)
    await finished(worker, *(ending(work) for work in works[:3]))

    outcomes = ["failed"] * 3 + ["completed"] * 7
    refused = await finished(worker, *(ending(work, o) for work, o in zip(works, outcomes, strict=True)))

    assert sorted(refused) == sorted(work["id"] for work in works[:3])
    assert len(await ann.all("/executions", status="COMPLETED")) == 10


async def test_of_two_endings_in_one_request_one_counts_and_the_other_is_refused(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [work] = await claimed(worker)

    refused = await finished(worker, ending(work), ending(work, "failed", error="no", final=True))

    assert refused == [work["id"]], "both were told that they counted"


# Checkpoints


async def checkpointed(worker: Caller, *told: tuple[Any, object]) -> list[str]:
    checkpoints = [{"claim": work["claim"], "value": value} for work, value in told]
    refused: list[str] = (await worker.post("/work/checkpoint", {"worker_id": ME, "checkpoints": checkpoints})).ok()[
        "refused"
    ]
    return refused


async def test_the_next_attempt_is_told_where_the_last_one_has_got_to(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [work] = await claimed(worker)

    assert await checkpointed(worker, (work, {"page": [7, None]})) == []

    await finished(worker, ending(work, "released"))
    [again] = await claimed(worker, "remote-2")
    assert again["last_checkpoint"] == {"page": [7, None]}
    assert len(again["claim"]) == len(work["claim"]), "what comes back with every call stays small"
    assert await checkpointed(worker, (work, "stale"), (again, "fresh")) == [work["id"]]


async def test_a_checkpoint_that_cannot_be_kept_is_refused_by_its_field(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [work] = await claimed(worker)
    good = {"claim": work["claim"], "value": 1}
    for wrong, field in (
        ({"claim": "x", "value": 1}, "checkpoints[1].claim"),
        ({"claim": work["claim"]}, "checkpoints[1].value"),
        ({"claim": work["claim"], "value": "x" * 65_535}, "checkpoints[1].value"),
    ):
        body = {"worker_id": ME, "checkpoints": [good, wrong]}
        assert (await worker.post("/work/checkpoint", body)).refused(422, field)

    await finished(worker, ending(work, "released"))
    assert (await claimed(worker))[0]["last_checkpoint"] is None, "all of a request or nothing"


# What is not as it should be


def forgeries(claim: str) -> list[str]:
    """What is not quite the claim: each byte of it changed, less of it, more of it."""
    true = base64.urlsafe_b64decode(claim)
    changed = [true[:n] + bytes([true[n] ^ 1]) + true[n + 1 :] for n in range(len(true))]
    false = [*changed, true[:-1], true[1:], true + b"\0", b"\0" * 16, b"\x80", b""]
    return [base64.urlsafe_b64encode(each).decode() for each in false]


@pytest.mark.parametrize("outcome", ["completed", "failed", "timed_out", "cancelled", "released"])
async def test_a_claim_that_was_not_given_is_refused(
    ann: Caller, worker: Caller, store: PostgresStore, outcome: str
) -> None:
    await ann.submit(max_retries=7)
    await ann.submit()
    one, other = await claimed(worker)
    before = await executions(store)

    for text in ("x", "ключ", "a" * 4000, *forgeries(one["claim"])):
        body = {"worker_id": ME, "endings": [ending(other), {"claim": text, "outcome": outcome}]}
        assert (await worker.post("/work/finish", body)).refused(422, "endings[1].claim"), text

    assert await executions(store) == before, "all of a request or nothing"
    assert await finished(worker, ending(one, outcome), ending(other)) == []


async def test_a_claim_holds_at_every_server(
    ann: Caller, worker: Caller, store: PostgresStore, dsn: str, clock: FakeClock
) -> None:
    await ann.submit()
    [work] = await claimed(worker)
    _, secret = await store.create_key("machine", [Scope.WORK])
    async with AsyncExitStack() as stack:
        other_store = await PostgresStore.open(dsn, clock=clock)
        stack.push_async_callback(other_store.aclose)
        url = await stack.enter_async_context(a_rota_server(other_store))
        elsewhere = await stack.enter_async_context(a_caller(url, secret))

        assert await finished(elsewhere, ending(work)) == []
        assert await finished(elsewhere, ending(work, "failed")) == [work["id"]]


RESULTS = [b"1" + b"0" * 30, b'"a\\u0000b"', b'{"a":' * 100 + b"1.5" + b"}" * 100, b'"\xf0\x9f\x98\x80"', b"-0.0"]


@pytest.mark.parametrize("result", RESULTS)
async def test_a_result_comes_back_as_it_was_told(ann: Caller, worker: Caller, result: bytes) -> None:
    await ann.submit()
    [work] = await claimed(worker)
    body = msgspec.json.encode({"worker_id": ME, "endings": [ending(work, result=msgspec.Raw(result))]})
    assert (await worker.send("POST", "/work/finish", body)).ok() == {"refused": []}

    answer = await ann.get(f"/executions/{work['id']}")

    assert b'"result":%s,' % result in answer.content


async def test_results_and_errors_that_cannot_be_kept_are_refused(ann: Caller, worker: Caller) -> None:
    await ann.submit()
    [work] = await claimed(worker)
    for result in (b"1e999", b"NaN", b"[" * 2000 + b"]" * 2000, b'"\\ud800"', b'"\xff"', b"9" * 5000):
        body = msgspec.json.encode({"worker_id": ME, "endings": [ending(work, result=msgspec.Raw(result))]})
        answer = await worker.send("POST", "/work/finish", body)
        assert 400 <= answer.status < 500, result[:50]
        assert answer.json["detail"]
    for error in ("a\0b", "x" * 8193):
        refused = {"worker_id": ME, "endings": [ending(work, "failed", error=error)]}
        assert (await worker.post("/work/finish", refused)).refused(422, "endings[0].error")

    assert await finished(worker, ending(work, result="kept")) == []


async def test_a_request_that_cannot_be_is_refused_by_its_field(worker: Caller) -> None:
    good: dict[str, object] = {"worker_id": ME, "tasks": ["echo"]}
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("claim", {"tasks": ["echo"]}, "worker_id"),
        ("claim", {"worker_id": ME}, "tasks"),
        ("claim", good | {"worker_id": "a\0b"}, "worker_id"),
        ("claim", good | {"tasks": []}, "tasks"),
        ("claim", good | {"tasks": ["echo", "a\0b"]}, "tasks[1]"),
        ("claim", good | {"queues": []}, "queues"),
        ("claim", good | {"limit": 0}, "limit"),
        ("claim", good | {"limit": 1001}, "limit"),
        ("claim", good | {"wait": 21}, "wait"),
        ("claim", good | {"wait": -1}, "wait"),
        ("claim", good | {"lease_id": -1}, "lease_id"),
        ("claim", good | {"lease_id": 2**62}, "lease_id"),
        ("claim", good | {"shoe_size": 43}, "shoe_size"),
        ("register", {"worker_id": ME}, "tasks"),
        ("register", good | {"concurrency": 0}, "concurrency"),
        ("register", good | {"pid": 2**31}, "pid"),
        ("give-back", {"worker_id": ME}, "lease_ids"),
        ("give-back", {"worker_id": ME, "lease_ids": [-1]}, "lease_ids[0]"),
        ("give-back", {"worker_id": ME, "lease_ids": list(range(1001))}, "lease_ids"),
        ("held", {"worker_id": ME, "older_than": -1}, "older_than"),
        ("renew", {}, "worker_id"),
        ("renew", {"worker_id": ""}, "worker_id"),
        ("renew", {"worker_id": ME, "leaving": "yes"}, "leaving"),
        ("finish", {"worker_id": ME}, "endings"),
        ("finish", {"worker_id": ME, "endings": [{"claim": "x", "outcome": "exploded"}]}, "endings[0].outcome"),
        ("finish", {"worker_id": ME, "endings": [{"outcome": "completed"}]}, "endings[0].claim"),
        ("finish", {"worker_id": ME, "endings": [{"claim": "x", "outcome": "released"}] * 1001}, "endings"),
    ]
    for path, body, field in wrong:
        assert (await worker.post(f"/work/{path}", body)).refused(422, field)
    assert (await worker.get("/workers")).ok()["workers"] == []
