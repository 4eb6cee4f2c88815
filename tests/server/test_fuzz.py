"""Whatever is sent, the answer is an answer: never a 500, and every refusal says why."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.calls import PROBLEM, Answer, Caller

EVERY_TIME_THE_SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    # One server for all examples: what earlier ones have stored is part of the fun.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NO_JOB = "01900000-0000-7000-8000-000000000000"
BODIES = {"PATCH": b"{}", "PUT": b'{"days": []}'}

nasty_numbers = st.sampled_from(
    [
        0,
        -1,
        1,
        9,
        10,
        2**31,
        2**53 + 1,
        2**62,
        2**63,
        -(2**63) - 1,
        10**30,
        1e308,
        -1e-308,
        1.5,
        float("nan"),
        float("inf"),
    ]
)
nasty_texts = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "a\0b",
        "\n",
        "x\n",
        "\ud800",
        "\udfff",
        "\U0001f600",
        "x" * 201,
        "null",
        "now",
        "NOW",
        "*",
        "-1",
        "0",
    ]
)
whens = st.sampled_from(
    [
        "now",
        "0 10 * * *",
        "* * * * *",
        "0 0 29 2 *",
        "0 0 30 2 *",
        "@daily",
        "*/0 * * * *",
        "0 0 L * ?",
        "60 * * * *",
        "PT1S",
        "PT0S",
        "PT1M",
        "P1D",
        "P1Y",
        "P999999999D",
        "PT0.001S",
        "P",
        "2027-02-01T00:00:00Z",
        "2027-02-01T00:00:00",
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2199-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "2027-02-30T00:00:00Z",
        "2027-W05-1T00:00:00Z",
        "2027-01-04T10:00:00.0000001Z",
        "20270104T100000Z",
        "2027-01-04T24:00:00Z",
    ]
)
texts = st.one_of(nasty_texts, st.text(max_size=20))
numbers = st.one_of(nasty_numbers, st.integers(), st.floats())
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, whens)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)
schedules = st.one_of(
    whens,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["CRON", "DATE", "INTERVAL", "NOW", "cron", "MOON"])},
        optional={
            "expression": st.one_of(whens, values),
            "time_zone": st.sampled_from(["UTC", "Asia/Tokyo", "", "../x"]),
        },
    ),
)
durations = st.one_of(numbers, st.sampled_from(["PT1S", "PT5M", "PT0S", "P367D", "soon"]))
backoffs = st.fixed_dictionaries(
    {}, optional={"initial": durations, "factor": numbers, "cap": durations, "jitter": numbers}
)
when_fields: dict[str, st.SearchStrategy[Any]] = {
    "schedule": schedules,
    "execution_start_time": whens,
    "execution_end_time": whens,
    "time_zone": st.sampled_from(["UTC", "Europe/Berlin", "Factory", "posixrules", "utc", "\0", "", "/etc/passwd"]),
}
how_fields: dict[str, st.SearchStrategy[Any]] = {
    "parameters": st.dictionaries(texts, values, max_size=3),
    "priority": st.integers(-1, 10),
    "queue": texts,
    "max_retries": st.sampled_from([0, 3, 1000, 1001, -1]),
    "backoff": backoffs,
    "timeout": durations,
    "overlap": st.sampled_from(["skip", "allow", "SKIP", ""]),
}


def nearly(fields: dict[str, st.SearchStrategy[Any]], **required: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A body with the fields it should have, of which one may be of the wrong kind, missing or one too many."""
    fitting = st.fixed_dictionaries(required, optional=fields)
    wrong = st.dictionaries(st.sampled_from([*required, *fields, "unknown"]), values, max_size=1)
    missing = st.sets(st.sampled_from([*required]), max_size=1) if required else st.just(set[str]())
    return st.builds(
        lambda body, other, without: {k: v for k, v in (body | other).items() if k not in without or k in other},
        fitting,
        wrong,
        missing,
    )


jobs = nearly(
    when_fields | how_fields | {"user_id": texts, "scheduler": texts}, task_id=st.one_of(st.just("echo"), texts)
)
patches = nearly(when_fields | how_fields)
names = st.one_of(st.just("remote"), texts)
claims = nearly(
    {
        "queues": st.lists(names, max_size=3),
        "limit": st.sampled_from([1, 100, 1000, 0, 1001]),
        "wait": st.sampled_from([0, 0.001, -1, 20.1, "x"]),
        "lease_id": numbers,
        "give_back": st.lists(numbers, max_size=3),
        "host": names,
    },
    worker_id=names,
    tasks=st.lists(st.one_of(st.just("echo"), texts), max_size=3),
)
raw = st.one_of(values.map(json.dumps), st.text(max_size=30)).map(lambda text: text.encode("utf-8", "surrogatepass"))
anything = st.one_of(raw, st.binary(max_size=60))


def sent(body: object) -> bytes:
    """As JSON, and with what JSON does not have: NaN, Infinity and lone surrogates."""
    return json.dumps(body).encode()


def is_an_answer(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status < 400:
        return
    problem = answer.json
    assert answer.headers["Content-Type"] == PROBLEM
    assert problem["status"] == answer.status
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem.get("field", ""), str)


@pytest.fixture
async def places(admin: Caller) -> list[tuple[str, str]]:
    """Every endpoint that takes a body."""
    once = await admin.submit(schedule="2027-02-01T00:00:00Z")
    recurring = await admin.submit(schedule="PT1H")
    return [
        ("POST", "/jobs"),
        ("POST", "/jobs/batch"),
        ("PATCH", f"/jobs/{once['id']}"),
        ("PATCH", f"/jobs/{recurring['id']}"),
        ("PATCH", f"/jobs/{NO_JOB}"),
        ("POST", f"/jobs/{recurring['id']}/run"),
        ("POST", f"/executions/{once['last_execution']['id']}/cancel"),
        ("POST", "/dead-letters/redrive"),
        ("POST", "/work/claim"),
        ("POST", "/work/renew"),
        ("POST", "/work/finish"),
        ("POST", "/schedules/preview"),
    ]


@EVERY_TIME_THE_SAME
@given(place=st.integers(0, 11), body=anything)
async def test_any_body_anywhere_is_answered(
    admin: Caller, places: list[tuple[str, str]], place: int, body: bytes
) -> None:
    is_an_answer(await admin.send(*places[place], body))


@EVERY_TIME_THE_SAME
@given(body=jobs, key=st.one_of(st.none(), st.sampled_from(["a", "b", "é", "x" * 255, "x" * 256])))
async def test_any_job_is_answered(admin: Caller, body: object, key: str | None) -> None:
    headers = {} if key is None else {"Idempotency_Key": key}
    answer = await admin.send("POST", "/jobs", sent(body), **headers)

    is_an_answer(answer)
    if answer.status in (200, 201):
        (await admin.get(f"/jobs/{answer.json['id']}")).ok()


@EVERY_TIME_THE_SAME
@given(
    body=nearly(
        {name: when_fields[name] for name in ("execution_start_time", "execution_end_time", "time_zone")}
        | {"count": numbers, "after": whens, "job_id": st.one_of(st.just(NO_JOB), texts)},
        schedule=schedules,
    )
)
async def test_any_preview_is_answered(admin: Caller, body: object) -> None:
    is_an_answer(await admin.send("POST", "/schedules/preview", sent(body)))


@EVERY_TIME_THE_SAME
@given(bodies=st.lists(jobs, max_size=4))
async def test_any_batch_is_answered(admin: Caller, bodies: list[object]) -> None:
    is_an_answer(await admin.send("POST", "/jobs/batch", sent({"jobs": bodies})))


@EVERY_TIME_THE_SAME
@given(place=st.sampled_from([2, 3]), body=patches)
async def test_any_change_is_answered(admin: Caller, places: list[tuple[str, str]], place: int, body: object) -> None:
    answer = await admin.send(*places[place], sent(body))

    is_an_answer(answer)
    job = (await admin.get(places[place][1])).ok()
    if answer.status == 200:
        assert answer.json == job


@EVERY_TIME_THE_SAME
@given(
    body=nearly(
        {
            "executions": st.lists(st.one_of(texts, st.just(f"0-{NO_JOB}"), st.just(f"-1-{NO_JOB}-9")), max_size=3),
            "user_id": texts,
            "task_id": texts,
        }
    )
)
async def test_any_redrive_is_answered(admin: Caller, body: object) -> None:
    is_an_answer(await admin.send("POST", "/dead-letters/redrive", sent(body)))


@EVERY_TIME_THE_SAME
@given(body=claims)
async def test_any_claim_is_answered(admin: Caller, body: object) -> None:
    await admin.submit()

    is_an_answer(await admin.send("POST", "/work/claim", sent(body)))


@pytest.fixture
async def claim(admin: Caller) -> bytes:
    await admin.submit()
    [work] = (await admin.post("/work/claim", {"worker_id": "remote", "tasks": ["echo"]})).ok()["executions"]
    return base64.urlsafe_b64decode(work["claim"])


@EVERY_TIME_THE_SAME
@given(
    ending=nearly(
        {
            "result": values,
            "error": texts,
            "retry_after": numbers,
            "final": st.booleans(),
            "started_ago": numbers,
        },
        outcome=st.sampled_from(["completed", "failed", "timed_out", "cancelled", "released", "lost"]),
    ),
    falsify=st.one_of(
        st.just(lambda true: true),
        st.builds(
            lambda at, n: lambda true: true[:at] + bytes([n]) + true[at + 1 :], st.integers(0, 200), st.integers(0, 255)
        ),
        st.binary(max_size=40).map(lambda tail: lambda true: true[:16] + tail),
        st.binary(max_size=40).map(lambda false: lambda _: false),
    ),
)
async def test_any_ending_is_answered(
    admin: Caller, claim: bytes, ending: dict[str, object], falsify: Callable[[bytes], bytes]
) -> None:
    text = base64.urlsafe_b64encode(falsify(claim)).decode()
    body = {"worker_id": "remote", "endings": [{"claim": text} | ending]}

    is_an_answer(await admin.send("POST", "/work/finish", sent(body)))


@EVERY_TIME_THE_SAME
@given(
    path=st.sampled_from(["/jobs", "/executions", "/dead-letters", "/workers", f"/jobs/{NO_JOB}/executions"]),
    query=st.lists(
        st.tuples(
            st.one_of(
                st.sampled_from(
                    [
                        "user_id",
                        "status",
                        "task_id",
                        "worker_id",
                        "job_id",
                        "start_time",
                        "end_time",
                        "limit",
                        "page_token",
                    ]
                ),
                texts,
            ),
            st.one_of(
                texts,
                whens,
                st.integers().map(str),
                st.sampled_from(["PENDING", "failed", "ACTIVE", NO_JOB, "1000"]),
                st.tuples(st.integers(), st.just(NO_JOB), st.integers()).map(
                    lambda parts: base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")
                ),
            ),
        ),
        max_size=3,
    ),
)
async def test_any_query_is_answered(admin: Caller, path: str, query: list[tuple[str, str]]) -> None:
    text = "&".join(f"{escaped(name)}={escaped(value)}" for name, value in query)

    is_an_answer(await admin.send("GET", f"{path}?{text}"))


@EVERY_TIME_THE_SAME
@given(
    place=st.sampled_from(
        [
            ("GET", "/jobs/{}"),
            ("PATCH", "/jobs/{}"),
            ("DELETE", "/jobs/{}"),
            ("POST", "/jobs/{}/run"),
            ("GET", "/jobs/{}/executions"),
            ("GET", "/executions/{}"),
            ("POST", "/executions/{}/cancel"),
            ("GET", "/calendars/{}"),
            ("PUT", "/calendars/{}"),
            ("DELETE", "/calendars/{}"),
        ]
    ),
    name=st.one_of(
        texts.filter(bool),
        st.uuids().map(str),
        st.builds("{}-{}".format, st.integers(), st.uuids()),
        st.builds("{}-{}-{}".format, st.integers(-(10**15), 10**15), st.uuids(), st.integers(0, 10**10)),
    ),
)
async def test_any_name_in_a_path_is_answered(admin: Caller, place: tuple[str, str], name: str) -> None:
    method, path = place

    answer = await admin.send(method, path.format(escaped(name)), BODIES.get(method))

    is_an_answer(answer)


def escaped(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")
