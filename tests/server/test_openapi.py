"""/openapi.json and /docs: true of every endpoint, and of what the endpoints really answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from rota.model.log import NewLine
from rota.model.retry import Raised
from rota.scheduler.planner import Planner
from rota.server.app import ENDPOINTS
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Answer, Caller
from tests.support.clock import FakeClock
from tests.support.jobs import a_worker, claim, ended

# The API as issue 2 asks for it.
PROMISED = {
    ("post", "/jobs"): set(),
    ("post", "/jobs/batch"): set(),
    ("post", "/schedules/preview"): set(),
    ("get", "/jobs"): {"user_id", "status", "task_id", "start_time", "end_time", "limit", "page_token"},
    ("get", "/jobs/{id}"): {"id"},
    ("patch", "/jobs/{id}"): {"id"},
    ("delete", "/jobs/{id}"): {"id"},
    ("post", "/jobs/{id}/run"): {"id"},
    ("get", "/jobs/{id}/executions"): {"id", "status", "start_time", "end_time", "limit", "page_token"},
    ("get", "/executions"): {
        "worker_id", "user_id", "status", "job_id", "task_id", "start_time", "end_time", "limit", "page_token",
    },
    ("get", "/executions/{id}"): {"id"},
    ("get", "/executions/{id}/logs"): {"id", "attempt", "after", "limit"},
    ("post", "/executions/{id}/cancel"): {"id"},
    ("get", "/dead-letters"): {"user_id", "task_id", "start_time", "end_time", "limit", "page_token"},
    ("post", "/dead-letters/redrive"): set(),
    ("get", "/calendars"): {"user_id"},
    ("put", "/calendars/{name}"): {"name", "user_id"},
    ("get", "/calendars/{name}"): {"name", "user_id"},
    ("delete", "/calendars/{name}"): {"name", "user_id"},
    ("get", "/workers"): set(),
    ("get", "/healthz"): set(),
    ("get", "/readyz"): set(),
    ("post", "/work/register"): set(),
    ("post", "/work/claim"): set(),
    ("post", "/work/give-back"): set(),
    ("post", "/work/held"): set(),
    ("post", "/work/renew"): set(),
    ("post", "/work/checkpoint"): set(),
    ("post", "/work/finish"): set(),
}  # fmt: skip
KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@pytest.fixture
async def document(nobody: Caller) -> Any:
    return (await nobody.get("/openapi.json")).ok()


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def refs(part: Any) -> Iterator[str]:
    match part:
        case {"$ref": str(ref)}:
            yield ref
        case dict():
            for inner in part.values():
                yield from refs(inner)
        case list():
            for inner in part:
                yield from refs(inner)


def resolved(document: Any, ref: str) -> Any:
    part = document
    for step in ref.removeprefix("#/").split("/"):
        part = part[step]
    return part


def misfit(document: Any, schema: Any, value: Any, place: str = "$") -> str | None:
    """Why the value does not fit the schema: kinds, required and known fields, items and constants."""
    if "$ref" in schema:
        return misfit(document, resolved(document, schema["$ref"]), value, place)
    if "anyOf" in schema:
        reasons = [misfit(document, each, value, place) for each in schema["anyOf"]]
        return None if None in reasons else "; ".join(filter(None, reasons))
    if "enum" in schema and value not in schema["enum"]:
        return f"{place}: {value!r} is none of {schema['enum']}"
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"{place}: {value!r} is no {kind}"
    if isinstance(value, list):
        items = schema.get("items", {})
        return next(filter(None, (misfit(document, items, each, f"{place}[]") for each in value)), None)
    if isinstance(value, dict) and "properties" in schema:
        return fields_misfit(document, schema, value, place)
    return None


def fields_misfit(document: Any, schema: Any, value: dict[str, Any], place: str) -> str | None:
    if missing := set(schema.get("required", [])) - value.keys():
        return f"{place}: {missing} missing"
    if unknown := value.keys() - schema["properties"].keys():
        return f"{place}: {unknown} not in the document"
    reasons = (misfit(document, schema["properties"][name], each, f"{place}.{name}") for name, each in value.items())
    return next(filter(None, reasons), None)


async def test_the_document_has_every_endpoint_with_its_parameters(document: Any) -> None:
    described = {
        (method, path): {each["name"] for each in operation["parameters"] if each["in"] != "header"}
        for method, path, operation in operations(document)
    }

    assert document["openapi"].startswith("3.1.")
    assert document["info"]["title"]
    assert document["info"]["version"]
    assert {each: described.get(each) for each in PROMISED} == PROMISED
    assert described == {
        (each.method.lower(), each.path): {*each.query, *re.findall(r"{(\w+)}", each.path)} for each in ENDPOINTS
    }


async def test_every_operation_is_complete(document: Any) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))

    for method, path, operation in operations(document):
        assert operation["summary"]
        in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        for parameter in operation["parameters"]:
            assert parameter["schema"]
            assert parameter["description"]
            assert parameter["required"] is (parameter["in"] == "path")
        assert "application/problem+json" in operation["responses"]["default"]["content"]
        assert any(code.startswith("2") for code in operation["responses"])
        open_to_all = path in ("/healthz", "/readyz")
        assert ("security" in operation) is not open_to_all, (method, path)
    for path in ("/jobs", "/jobs/batch"):
        headers = [each["name"] for each in document["paths"][path]["post"]["parameters"] if each["in"] == "header"]
        assert headers == ["Idempotency-Key"]


async def test_every_reference_leads_somewhere(document: Any) -> None:
    found = set(refs(document))

    assert len(found) > 10
    for ref in found:
        assert ref.startswith("#/components/schemas/")
        assert resolved(document, ref), ref
    named = {ref.rsplit("/", 1)[1] for ref in found}
    assert named == document["components"]["schemas"].keys(), "and nothing is there in vain"


async def test_what_a_job_may_say_is_described(document: Any) -> None:
    schemas = document["components"]["schemas"]

    job = schemas["JobBody"]
    assert job["required"] == ["task_id"]
    assert job["additionalProperties"] is False
    assert {"schedule", "parameters", "scheduler", "execution_start_time", "execution_end_time"} <= job[
        "properties"
    ].keys()
    assert job["properties"]["priority"]["maximum"] == 9
    assert schemas["BatchBody"]["properties"]["jobs"]["maxItems"] == 10_000


async def test_what_is_answered_is_what_is_described(
    document: Any, admin: Caller, store: PostgresStore, clock: FakeClock
) -> None:
    """Jobs and executions in many states, and every endpoint's real answer held against its schema."""
    seen: set[tuple[str, str]] = set()

    def fits(method: str, path: str, answer: Answer) -> Any:
        responses = document["paths"][path][method]["responses"]
        described = responses.get(str(answer.status), responses["default"])
        media = answer.headers["Content-Type"]
        assert misfit(document, described["content"][media]["schema"], answer.json) is None, (method, path)
        assert (answer.status < 400) == (str(answer.status) in responses), "a success that is not described"
        seen.add((method, path))
        return answer.json

    once = fits(
        "post", "/jobs", await admin.post("/jobs", {"task_id": "echo", "parameters": {"a": [1]}}, Idempotency_Key="k")
    )
    fits("post", "/jobs", await admin.post("/jobs", {"task_id": "echo", "parameters": {"a": [1]}}, Idempotency_Key="k"))
    batch = [{"task_id": "echo", "schedule": when} for when in ("PT1M", "0 10 * * *", "2027-02-01T00:00:00Z", None)]
    preview = {"schedule": "30 2 * * *", "time_zone": "Europe/Berlin", "count": 2}
    fits("post", "/schedules/preview", await admin.post("/schedules/preview", preview))
    recurring, cron, later, now = fits("post", "/jobs/batch", await admin.post("/jobs/batch", {"jobs": batch}))["jobs"]
    await a_worker(store)
    claimed = await claim(store)
    await store.keep_logs([NewLine(*each.key, attempt=1, seq=n, ago=0, text="x") for each in claimed for n in (1, 2)])
    await store.finish([ended(claimed[0], Raised("no", final=True)), ended(claimed[1])])
    await admin.submit(backoff={"initial": 60})
    await store.finish([ended(each, Raised("later")) for each in await claim(store)])
    clock.advance(minutes=5)
    await Planner(store).step()

    fits("get", "/jobs", await admin.get("/jobs", limit=2))
    fits("get", "/jobs", await admin.get("/jobs"))
    fits("get", "/jobs/{id}", await admin.get(f"/jobs/{recurring['id']}"))
    fits("patch", "/jobs/{id}", await admin.patch(f"/jobs/{cron['id']}", {"time_zone": "Asia/Tokyo"}))
    fits("delete", "/jobs/{id}", await admin.delete(f"/jobs/{later['id']}"))
    fits("post", "/jobs/{id}/run", await admin.post(f"/jobs/{cron['id']}/run"))
    fits("get", "/jobs/{id}/executions", await admin.get(f"/jobs/{recurring['id']}/executions"))
    fits("get", "/executions", await admin.get("/executions"))
    fits("get", "/dead-letters", await admin.get("/dead-letters"))
    for execution in (once["last_execution"], now["last_execution"]):
        fits("get", "/executions/{id}/logs", await admin.get(f"/executions/{execution['id']}/logs", limit=1))
        fits("get", "/executions/{id}", await admin.get(f"/executions/{execution['id']}"))
    fits("post", "/dead-letters/redrive", await admin.post("/dead-letters/redrive", {}))
    known = {"worker_id": "remote", "tasks": ["echo"]}
    fits("post", "/work/register", await admin.post("/work/register", known))
    running = fits("post", "/work/claim", await admin.post("/work/claim", {"worker_id": "remote", "tasks": ["echo"]}))
    fits("post", "/executions/{id}/cancel", await admin.post(f"/executions/{running['executions'][0]['id']}/cancel"))
    fits("post", "/work/held", await admin.post("/work/held", {"worker_id": "remote", "older_than": 0}))
    lost = {"worker_id": "remote", "lease_ids": [1]}
    fits("post", "/work/give-back", await admin.post("/work/give-back", lost))
    fits("post", "/work/renew", await admin.post("/work/renew", {"worker_id": "remote"}))
    marks = [{"claim": each["claim"], "value": {"page": 1}} for each in running["executions"]]
    fits(
        "post", "/work/checkpoint", await admin.post("/work/checkpoint", {"worker_id": "remote", "checkpoints": marks})
    )
    endings = [{"claim": each["claim"], "outcome": "completed", "result": {"a": 1}} for each in running["executions"]]
    fits("post", "/work/finish", await admin.post("/work/finish", {"worker_id": "remote", "endings": endings}))
    fits("put", "/calendars/{name}", await admin.send("PUT", "/calendars/x", b'{"days": ["2027-12-25"]}'))
    fits("get", "/calendars", await admin.get("/calendars"))
    fits("get", "/calendars/{name}", await admin.get("/calendars/x"))
    fits("delete", "/calendars/{name}", await admin.delete("/calendars/x"))
    fits("get", "/workers", await admin.get("/workers"))
    fits("get", "/healthz", await admin.get("/healthz"))
    fits("get", "/readyz", await admin.get("/readyz"))
    fits("get", "/executions", await admin.get("/executions"))
    assert seen == PROMISED.keys()

    fits("post", "/jobs", await admin.post("/jobs", {}))
    fits("get", "/jobs/{id}", await admin.get("/jobs/x"))
    fits("get", "/executions", await admin.get("/executions", limit=0))


async def test_the_human_page_tells_of_every_endpoint(nobody: Caller) -> None:
    answer = await nobody.send("GET", "/docs")

    page = answer.content.decode()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    for endpoint in ENDPOINTS:
        assert re.search(rf"\b{endpoint.method}\s+{re.escape(endpoint.path)}\s", text), endpoint.path
        assert endpoint.summary in text
        for parameter in (*endpoint.query, *endpoint.headers):
            assert parameter in text
    assert "application/problem+json" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page), "nothing is fetched from elsewhere"


async def test_the_human_page_tells_nothing_of_our_python(nobody: Caller) -> None:
    page = (await nobody.send("GET", "/docs")).content.decode()

    for inside in ("msgspec", "UnsetType", "NoneType", "Annotated[", "&lt;class", "rota."):
        assert inside not in page, inside
