"""Idempotency-Key: whoever lost an answer sends the same again and gets the first job."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota.scheduler.janitor import Janitor
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import USER, Answer, Caller, a_caller, a_rota_server
from tests.support.clock import FakeClock
from tests.support.jobs import claim, ended

ECHO: dict[str, Any] = {"task_id": "echo", "parameters": {"n": 1}}
DAILY: dict[str, Any] = {"task_id": "echo", "schedule": "0 10 * * *"}


async def sent(caller: Caller, body: object, key: str = "k1", path: str = "/jobs") -> Answer:
    return await caller.post(path, body, Idempotency_Key=key)


@pytest.mark.parametrize("body", [ECHO, DAILY])
async def test_the_same_body_gives_the_first_job_again(ann: Caller, body: dict[str, Any]) -> None:
    first = (await sent(ann, body)).ok(201)

    again = (await sent(ann, body)).ok(200)

    assert again["id"] == first["id"]
    assert len(await ann.all("/jobs")) == 1


async def test_the_order_of_fields_and_white_space_do_not_matter(ann: Caller) -> None:
    first = await ann.send("POST", "/jobs", b'{"task_id":"echo","parameters":{"a":1,"b":2}}', Idempotency_Key="k")

    again = await ann.send(
        "POST", "/jobs", b' {"parameters": {"b": 2, "a": 1}, "task_id": "echo"} ', Idempotency_Key="k"
    )

    assert again.ok(200)["id"] == first.ok(201)["id"]


async def test_another_body_is_refused_and_nothing_is_stored(ann: Caller) -> None:
    first = (await sent(ann, ECHO)).ok(201)

    for other in (ECHO | {"parameters": {"n": 2}}, ECHO | {"priority": 1}, DAILY):
        assert (await sent(ann, other)).refused(422, "Idempotency-Key")

    assert [job["id"] for job in await ann.all("/jobs")] == [first["id"]]


async def test_the_first_job_is_shown_as_it_is_by_now(ann: Caller, store: PostgresStore) -> None:
    first = (await sent(ann, ECHO)).ok(201)
    [claimed] = await claim(store)
    await store.finish([ended(claimed)])

    again = (await sent(ann, ECHO)).ok(200)

    assert again["id"] == first["id"]
    assert again["status"] == "COMPLETED"


async def test_many_at_once_make_one_job(ann: Caller) -> None:
    answers = await asyncio.gather(*(sent(ann, ECHO) for _ in range(20)))

    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert len(await ann.all("/jobs")) == 1


async def test_of_many_bodies_at_once_under_one_key_one_is_stored(ann: Caller) -> None:
    answers = await asyncio.gather(*(sent(ann, ECHO | {"parameters": {"n": n}}) for n in range(20)))

    assert sorted(answer.status for answer in answers) == [201] + [422] * 19
    assert len(await ann.all("/jobs")) == 1


async def test_two_servers_at_once_make_one_job(ann: Caller, store: PostgresStore, dsn: str, clock: FakeClock) -> None:
    _, secret = await store.create_key("ann", USER)
    async with AsyncExitStack() as stack:
        other_store = await PostgresStore.open(dsn, clock=clock)
        stack.push_async_callback(other_store.aclose)
        other_url = await stack.enter_async_context(a_rota_server(other_store))
        elsewhere = await stack.enter_async_context(a_caller(other_url, secret))

        answers = await asyncio.gather(*(sent(server, ECHO, key) for key in "abcdefgh" for server in (ann, elsewhere)))

    by_pair = [answers[n : n + 2] for n in range(0, len(answers), 2)]
    assert [sorted(answer.status for answer in pair) for pair in by_pair] == [[200, 201]] * 8
    assert all(len({answer.json["id"] for answer in pair}) == 1 for pair in by_pair)
    assert len(await ann.all("/jobs")) == 8


async def test_a_batch_sent_again_gives_its_jobs_in_their_order(ann: Caller) -> None:
    batch = {"jobs": [ECHO, DAILY, ECHO | {"parameters": {"n": 2}}]}
    first = (await sent(ann, batch, path="/jobs/batch")).ok(201)

    again = (await sent(ann, batch, path="/jobs/batch")).ok(200)

    assert [job["id"] for job in again["jobs"]] == [job["id"] for job in first["jobs"]]
    assert len(await ann.all("/jobs")) == 3


async def test_batches_at_once_are_stored_once(ann: Caller) -> None:
    batch = {"jobs": [ECHO | {"parameters": {"n": n}} for n in range(10)]}

    answers = await asyncio.gather(*(sent(ann, batch, path="/jobs/batch") for _ in range(5)))

    assert sorted(answer.status for answer in answers) == [200] * 4 + [201]
    assert len(await ann.all("/jobs")) == 10


async def test_one_key_is_not_for_a_job_and_a_batch(ann: Caller) -> None:
    (await sent(ann, ECHO)).ok(201)

    assert (await sent(ann, {"jobs": [ECHO]}, path="/jobs/batch")).refused(422, "Idempotency-Key")


async def test_every_user_has_keys_of_their_own(ann: Caller, bob: Caller) -> None:
    hers = (await sent(ann, ECHO)).ok(201)

    his = (await sent(bob, ECHO)).ok(201)

    assert his["id"] != hers["id"]
    assert his["user_id"] == "bob"


async def test_a_key_is_free_again_after_a_day(ann: Caller, clock: FakeClock) -> None:
    first = (await sent(ann, ECHO)).ok(201)
    clock.advance(hours=23, minutes=59)
    assert (await sent(ann, ECHO)).ok(200)["id"] == first["id"]

    clock.advance(minutes=1)

    second = (await sent(ann, ECHO | {"priority": 3})).ok(201)
    assert second["id"] != first["id"]
    assert (await sent(ann, ECHO | {"priority": 3})).ok(200)["id"] == second["id"]


async def test_the_janitor_forgets_only_keys_that_have_expired(
    ann: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    await sent(ann, ECHO, "old")
    clock.advance(hours=12)
    young = (await sent(ann, ECHO, "young")).ok(201)
    clock.advance(hours=13)

    await Janitor(store).step()

    assert (await sent(ann, ECHO, "young")).ok(200)["id"] == young["id"]
    assert (await sent(ann, ECHO, "old")).status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"schedule": "*/10 * * * *", "execution_end_time": "2027-01-04T11:00:00Z"},
        {"schedule": "PT10M", "execution_end_time": "2027-01-04T11:00:00Z"},
        {"execution_start_time": "2027-01-04T10:30:00Z", "execution_end_time": "2027-01-04T11:00:00Z"},
    ],
)
async def test_a_late_repetition_gives_the_first_job_although_its_window_is_over(
    ann: Caller, clock: FakeClock, body: dict[str, Any]
) -> None:
    first = (await sent(ann, {"task_id": "echo"} | body)).ok(201)
    clock.advance(hours=2)

    again = (await sent(ann, {"task_id": "echo"} | body)).ok(200)

    assert again["id"] == first["id"]


async def test_a_refused_submission_does_not_use_up_its_key(ann: Caller) -> None:
    assert (await sent(ann, ECHO | {"schedule": "soon"})).refused(422, "schedule")

    assert (await sent(ann, ECHO)).status == 201


async def test_without_a_key_every_submission_is_a_job(ann: Caller) -> None:
    assert await ann.submit() != await ann.submit()

    assert len(await ann.all("/jobs")) == 2


async def test_a_key_has_1_to_255_printable_characters(ann: Caller) -> None:
    for key in ("", "x" * 256, "tab\tin it", "no\xa0break"):
        assert (await sent(ann, ECHO, key)).refused(422, "Idempotency-Key")
    assert await ann.all("/jobs") == []

    for key in ("x" * 255, "clé", "\"quoted\" 'n' \\slashed"):
        assert (await sent(ann, ECHO, key)).status == 201
        assert (await sent(ann, ECHO, key)).status == 200
