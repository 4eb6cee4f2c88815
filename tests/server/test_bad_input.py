"""What nobody should send: it is refused with a reason, nothing is stored, and nothing breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota.model.errors import StoreError
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import PROBLEM, USER, Answer, Caller, a_caller, a_rota_server
from tests.support.clock import FakeClock

MEBIBYTE = 1024 * 1024
NOT_JSON = [
    b"",
    b" ",
    b"task_id=echo",
    b"{",
    b'{"task_id": "echo"',
    b'{"task_id": "echo"}}',
    b"{'task_id': 'echo'}",
    b'{"task_id": "echo",}',
    b'{"task_id": NaN}',
    b'{"task_id": "echo", "parameters": {"x": NaN}}',
    b'{"task_id": "echo", "parameters": {"x": Infinity}}',
    b'{"task_id": "echo", "parameters": {"x": -Infinity}}',
    b'{"task_id": "echo", "parameters": {"x": "\\ud800"}}',
    b'{"task_id": "echo", "parameters": {"x": "\\udc00\\ud800"}}',
    b'{"task_id": "echo", "parameters": {"\\ud800": 1}}',
    b'{"task_id": "\\ud800"}',
    b'{"task_id": "echo", "parameters": {"x": "\xff"}}',
    b'{"task_id": "echo", "parameters": {"x": "\xed\xa0\x80"}}',
    b'{"task_id": "echo", "parameters": {"x": "\xc0\x80"}}',
    b'{"task_id": "\xff"}',
    b'\xef\xbb\xbf{"task_id": "echo"}',
    b'{"task_id": "echo", "parameters": {"x": "a\x00b"}}',
    b'{"task_id": "echo", "parameters": {"x": 01}}',
    b'{"task_id": "echo", "parameters": ' + b'{"x":' * 5000 + b"1" + b"}" * 5000 + b"}",
    b'{"task_id": "echo", "parameters": {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
]
CANNOT_BE = [
    (b"null", "body"),
    (b"[]", "body"),
    (b'"echo"', "body"),
    (b"7", "body"),
    (b'{"task_id": 7}', "task_id"),
    (b'{"task_id": null}', "task_id"),
    (b'{"task_id": ""}', "task_id"),
    (b'{"task_id": "a\\u0000b"}', "task_id"),
    (b'{"task_id": "a\\nb"}', "task_id"),
    (b'{"task_id": "echo\\n"}', "task_id"),
    (b'{"task_id": "echo", "queue": "slow\\n"}', "queue"),
    (b'{"task_id": "echo", "scheduler": "a\\u0000b"}', "scheduler"),
    (b'{"task_id": "echo", "scheduler": "a\\nb"}', "scheduler"),
    (b'{"task_id": "echo", "scheduler": "' + b"x" * 201 + b'"}', "scheduler"),
    (b'{"task_id": "echo", "user_id": "a\\u0007b"}', "user_id"),
    (b'{"task_id": "echo", "schedule": "0 10 * * *\\u0000"}', "schedule"),
    (b'{"task_id": "echo", "schedule": "now\\u0000"}', "schedule"),
    (b'{"task_id": "echo", "schedule": 7}', "schedule"),
    (b'{"task_id": "echo", "schedule": []}', "schedule"),
    (b'{"task_id": "echo", "schedule": {"type": 7}}', "schedule.type"),
    (b'{"task_id": "echo", "time_zone": "\\u0000", "schedule": "0 10 * * *"}', "time_zone"),
    (b'{"task_id": "echo", "time_zone": "../../etc/passwd", "schedule": "0 10 * * *"}', "time_zone"),
    (b'{"task_id": "echo", "execution_start_time": 1794736800}', "execution_start_time"),
    (b'{"task_id": "echo", "execution_start_time": "0000-00-00T00:00:00Z"}', "execution_start_time"),
    (b'{"task_id": "echo", "execution_start_time": "0001-01-01T00:00:00+14:00"}', "execution_start_time"),
    (b'{"task_id": "echo", "execution_end_time": "9999-12-31T23:59:59-14:00"}', "execution_end_time"),
    (b'{"task_id": "echo", "parameters": "x"}', "parameters"),
    (b'{"task_id": "echo", "parameters": {"x": "\\u0000"}}', "parameters.x"),
    (b'{"task_id": "echo", "parameters": {"a": {"b": [1, "\\u0000"]}}}', "parameters.a.b[1]"),
    (b'{"task_id": "echo", "parameters": {"\\u0000": 1}}', "parameters"),
    (b'{"task_id": "echo", "parameters": {"x": 9223372036854775808}}', "parameters.x"),
    (b'{"task_id": "echo", "parameters": {"x": -9223372036854775809}}', "parameters.x"),
    (b'{"task_id": "echo", "parameters": {"x": 1' + b"0" * 400 + b"}}", "parameters.x"),
    (b'{"task_id": "echo", "parameters": {"x": ' + b"[" * 65 + b"]" * 65 + b"}}", "parameters"),
    (b'{"task_id": "echo", "priority": 1e400}', "priority"),
    (b'{"task_id": "echo", "priority": 9' + b"9" * 5000 + b"}", "priority"),
    (b'{"task_id": "echo", "priority": true}', "priority"),
    (b'{"task_id": "echo", "max_retries": 1e2}', None),
    (b'{"task_id": "echo", "max_retries": 99999999999999999999}', "max_retries"),
    (b'{"task_id": "echo", "timeout": 1e308}', "timeout"),
    (b'{"task_id": "echo", "timeout": -0.0}', "timeout"),
    (b'{"task_id": "echo", "timeout": "PT999999999H"}', "timeout"),
    (b'{"task_id": "echo", "timeout": null}', "timeout"),
    (b'{"task_id": "echo", "timeout": true}', "timeout"),
    (b'{"task_id": "echo", "backoff": null}', "backoff"),
    (b'{"task_id": "echo", "backoff": {"factor": 1e308}}', "backoff.factor"),
    (b'{"task_id": "echo", "overlap": "SKIP"}', "overlap"),
    (b'{"task_id": "echo", "Task_Id": "x"}', "Task_Id"),
    (b'{"task_id": "echo", "": 1}', None),
    (b'{"task_id": "echo", "a`b\\nc": 1}', None),
]  # fmt: skip


def a_reason(answer: Answer) -> Any:
    """The problem that says why: one of ours, complete, and the caller's fault."""
    assert 400 <= answer.status < 500, answer
    assert answer.headers["Content-Type"] == PROBLEM
    problem = answer.json
    assert problem["status"] == answer.status
    assert problem["title"]
    assert problem["detail"]
    return problem


async def nothing_is_stored(store: PostgresStore) -> bool:
    tables = ("executions", "jobs", "history", "names", "dead_letters")
    counts = ", ".join(f"(select count(*) from {table})" for table in tables)
    return set((await store.db.fetch(f"select {counts}"))[0]) == {0}


async def test_what_is_not_json_is_refused(ann: Caller, store: PostgresStore) -> None:
    for body in NOT_JSON:
        assert (await ann.send("POST", "/jobs", body)).refused(400), body[:80]
        batch = b'{"jobs": [{"task_id": "echo"}, ' + body + b"]}"
        a_reason(await ann.send("POST", "/jobs/batch", batch))

    assert await nothing_is_stored(store)


async def test_what_is_json_but_no_job_is_refused_by_its_field(admin: Caller, store: PostgresStore) -> None:
    otherwise = []
    for body, field in CANNOT_BE:
        answer = await admin.send("POST", "/jobs", body)
        named = field if field is None else answer.json.get("field")
        if (answer.status, named) != (422, field):
            otherwise.append((body[:80], answer.status, named))

    assert otherwise == []
    assert await nothing_is_stored(store)


async def test_no_endpoint_takes_what_is_not_json(admin: Caller, store: PostgresStore) -> None:
    job = await admin.submit(schedule="2027-02-01T00:00:00Z")
    for method, path in (
        ("PATCH", f"/jobs/{job['id']}"),
        ("POST", "/dead-letters/redrive"),
        ("POST", "/work/claim"),
        ("POST", "/work/renew"),
        ("POST", "/work/finish"),
    ):
        for body in (b"", b"{", b"NaN", b"\xff", b'{"\\ud800": 1}'):
            assert (await admin.send(method, path, body)).refused(400), (path, body[:20])
        for body in (b"null", b"[]", b'"x"', b"1e400"):
            assert (await admin.send(method, path, body)).refused(422, "body"), (path, body)

    assert (await admin.get(f"/jobs/{job['id']}")).ok() == job


@pytest.mark.parametrize("field", ["user_id", "task_id"])
async def test_a_filter_for_dead_letters_that_cannot_be_stored_is_refused(admin: Caller, field: str) -> None:
    assert (await admin.post("/dead-letters/redrive", {field: "a\0b"})).refused(422, field)


async def test_dead_letters_are_named_by_ids(ann: Caller) -> None:
    wrong: list[object] = [["\0"], ["x"], ["1-2-3"], [7], [None], "x", {}]
    for ids in wrong:
        a_reason(await ann.post("/dead-letters/redrive", {"executions": ids}))
    too_many = ["1-00000000-0000-0000-0000-000000000000"] * 1001
    assert (await ann.post("/dead-letters/redrive", {"executions": too_many})).refused(422, "executions")


# Too much


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/jobs", MEBIBYTE),
        ("/jobs/batch", 16 * MEBIBYTE),
        ("/dead-letters/redrive", MEBIBYTE),
        ("/work/claim", MEBIBYTE),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
async def test_too_large_a_body_is_refused(
    admin: Caller, store: PostgresStore, path: str, most: int, declared: bool
) -> None:
    job = b'{"task_id": "echo", "parameters": {"x": "' + b"x" * most + b'"}}'
    body = b'{"jobs": [' + job + b"]}" if path == "/jobs/batch" else job

    answer = await admin.send("POST", path, body if declared else pieces(body))

    assert str(most) in answer.refused(413)
    assert await nothing_is_stored(store)


async def test_a_batch_of_many_large_jobs_is_taken_up_to_its_limit(ann: Caller) -> None:
    job = b'{"task_id": "echo", "parameters": {"x": "' + b"x" * (MEBIBYTE // 2) + b'"}}'

    answer = await ann.send("POST", "/jobs/batch", b'{"jobs": [' + b",".join([job] * 4) + b"]}")

    assert len(answer.ok(201)["jobs"]) == 4


@pytest.mark.parametrize(
    "schedule",
    [
        ",".join(["0"] * 200_000) + " * * * *",
        "*/1" * 100_000,
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "P" + "9" * 500_000 + "D",
        "2027-01-01T" + "0" * 500_000,
        " " * 900_000,
    ],
    ids=["long list", "long step", "30 February", "no such day", "long duration", "long instant", "blanks"],
)
async def test_a_schedule_that_would_take_for_ever_is_settled_at_once(ann: Caller, schedule: str) -> None:
    answer = await asyncio.wait_for(ann.post("/jobs", {"task_id": "echo", "schedule": schedule}), 2)

    assert answer.refused(422, "schedule")
    assert len(answer.content) < 10_000, "a refusal does not send everything back"


# Where there is nothing


async def test_addresses_and_methods_that_do_not_exist_are_told_as_problems(ann: Caller) -> None:
    for method, path, status in (
        ("GET", "/", 404),
        ("GET", "/nothing/here", 404),
        ("GET", "/jobs/x/y", 404),
        ("POST", "/job", 404),
        ("GET", "/jobs/not-an-id", 404),
        ("GET", "/jobs/%00", 404),
        ("GET", "/jobs/%ff%fe", 404),
        ("GET", "/jobs/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/jobs/" + "9" * 5000, 404),
        ("GET", "/executions/%00", 404),
        ("GET", "/executions/1-%F0%9F%98%80", 404),
        ("GET", "/jobs/batch", 404),
        ("PUT", "/jobs", 405),
        ("DELETE", "/jobs", 405),
        ("PATCH", "/executions", 405),
        ("GET", "/jobs/x/run", 405),
        ("POST", "/healthz", 405),
        ("GET", "/work/claim", 405),
        ("GET", "/dead-letters/redrive", 405),
        ("OPTIONS", "/jobs", 405),
        ("POST", "/openapi.json", 405),
    ):
        answer = await ann.send(method, path)
        assert answer.status == status, (method, path, answer)
        assert a_reason(answer)["status"] == status
        if status == 405:
            assert answer.headers["Allow"]


async def test_query_strings_that_cannot_be_are_refused(admin: Caller) -> None:
    for query in (
        "unknown=1",
        "=1",
        "user_id=%00",
        "user_id=a%00b",
        "task_id=%00",
        "page_token=%00",
        "page_token=%ff",
        "limit=%00",
        "status=%00",
        "status=%ff%fe",
        "start_time=%00",
        "start_time=" + "9" * 5000,
        "limit=1&limit=1",
        "%00=%00",
        "a[]=1",
    ):
        for path in ("/jobs", "/executions", "/dead-letters", "/workers"):
            a_reason(await admin.send("GET", f"{path}?{query}"))


async def test_text_that_is_not_unicode_finds_nothing_and_breaks_nothing(admin: Caller) -> None:
    for query in ("task_id=%ff", "user_id=%ed%a0%80", "task_id=%F0%9F%98%80", "user_id="):
        for path in ("/jobs", "/executions", "/dead-letters"):
            assert (await admin.send("GET", f"{path}?{query}")).status == 200


async def test_the_head_of_an_answer_can_be_asked_for(ann: Caller) -> None:
    answer = await ann.send("HEAD", "/jobs")

    assert answer.status == 200
    assert answer.content == b""


async def test_no_content_type_is_asked_for(ann: Caller) -> None:
    answer = await ann.send("POST", "/jobs", b'{"task_id": "echo"}', Content_Type="application/x-www-form-urlencoded")

    assert answer.status == 201


class BrokenStore(PostgresStore):
    async def find_jobs(self, job_ids: object) -> Any:
        raise StoreError("The database refused: DETAIL: Failing row contains (42, secret)")

    async def shards(self) -> int:
        raise ZeroDivisionError("secret")


async def test_what_went_wrong_inside_stays_inside_and_in_the_log(
    dsn: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        store = await BrokenStore.open(dsn, clock=clock)
        stack.push_async_callback(store.aclose)
        _, secret = await store.create_key("ann", USER)
        url = await stack.enter_async_context(a_rota_server(store))
        ann = await stack.enter_async_context(a_caller(url, secret))

        for answer in (
            await ann.post("/jobs", {"task_id": "echo"}),
            await ann.get("/jobs/01900000-0000-7000-8000-000000000000"),
        ):
            assert "secret" not in answer.refused(500)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "path=/jobs/01900000" in caplog.text
