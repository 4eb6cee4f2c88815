"""Who may do what: no key, a wrong key, a key without the scope, a key of somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from rota.model.keys import Scope
from rota.model.retry import Raised
from rota.scheduler.planner import Planner
from rota.server.app import ENDPOINTS
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Answer, Caller, a_caller, a_rota_server
from tests.server.conftest import NewCaller
from tests.support.clock import FakeClock
from tests.support.jobs import claim, ended, executions

NO_JOB = str(UUID("01900000-0000-7000-8000-000000000000"))
NO_EXECUTION = f"1799056800000-{NO_JOB}"


def addresses() -> list[tuple[str, str, Scope | None]]:
    """Method, path and scope of every endpoint, with ids that name nothing."""
    return [
        (e.method, e.path.replace("{id}", NO_EXECUTION if "executions/{id}" in e.path else NO_JOB), e.scope)
        for e in ENDPOINTS
    ]


async def call(caller: Caller, method: str, path: str, **headers: str) -> Answer:
    return await caller.send(method, path, None if method in ("GET", "DELETE") else b"{}", **headers)


async def test_without_a_key_there_is_nothing_but_health(nobody: Caller) -> None:
    for method, path, scope in addresses():
        answer = await call(nobody, method, path)
        if scope is None:
            assert answer.status == 200
        else:
            assert "Authorization" in answer.refused(401)
            assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_key_that_is_not_ours_opens_nothing(nobody: Caller, store: PostgresStore) -> None:
    _, secret = await store.create_key("ann", [Scope.ADMIN])
    for header in (
        "Bearer rota_unknown",
        f"Bearer {secret}x",
        f"Bearer {secret[:-1]}",
        f"Bearer {secret.upper()}",
        f"Basic {secret}",
        f"Bearer{secret}",
        secret,
        "Bearer",
        "Bearer ",
        "",
        "Bearer rota_" + "x" * 5000,
        "Bearer rota_ключ",
    ):
        answer = await nobody.send("GET", "/jobs", Authorization=header)
        assert answer.refused(401), header
        assert secret not in answer.content.decode()


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER  {} "])
async def test_the_word_bearer_is_taken_in_any_case(nobody: Caller, store: PostgresStore, form: str) -> None:
    _, secret = await store.create_key("ann", [Scope.READ])

    assert (await nobody.send("GET", "/jobs", Authorization=form.format(secret))).status == 200


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT, Scope.WORK])
async def test_a_key_opens_what_its_scope_is_for_and_nothing_else(caller: NewCaller, scope: Scope) -> None:
    holder = await caller("carl", scope)
    for method, path, needed in addresses():
        answer = await call(holder, method, path)
        if needed in (None, scope):
            assert answer.status not in (401, 403), path
        else:
            detail = answer.refused(403)
            assert f"`{needed}`" in detail
            assert f"`{scope}`" in detail


async def test_admin_opens_everything(admin: Caller) -> None:
    for method, path, _ in addresses():
        assert (await call(admin, method, path)).status not in (401, 403), path


async def test_a_key_without_scopes_opens_nothing(nobody: Caller, store: PostgresStore) -> None:
    _, secret = await store.create_key("ann", [])

    assert (await nobody.send("GET", "/jobs", Authorization=f"Bearer {secret}")).refused(403)


async def test_a_revoked_key_opens_nothing(store: PostgresStore) -> None:
    key, secret = await store.create_key("ann", [Scope.READ])
    await store.revoke_key(key.id)

    async with a_rota_server(store) as url, a_caller(url, secret) as ann:
        assert "revoked" in (await ann.get("/jobs")).refused(401)


async def test_a_server_forgets_a_key_soon_after_it_was_revoked(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.server.auth.REMEMBERED", 0.0)
    key, secret = await store.create_key("ann", [Scope.READ])

    async with a_rota_server(store) as url, a_caller(url, secret) as ann:
        (await ann.get("/jobs")).ok()
        await store.revoke_key(key.id)
        assert (await ann.get("/jobs")).refused(401)


async def test_only_the_hash_of_a_key_is_stored(store: PostgresStore) -> None:
    _, secret = await store.create_key("ann", [Scope.READ])

    [row] = await store.db.fetch("select k::text as everything from api_keys k")

    assert secret.startswith("rota_")
    assert secret not in row["everything"]
    assert secret.removeprefix("rota_").encode().hex() not in row["everything"]


# Whose


async def test_the_user_comes_from_the_key(ann: Caller, bob: Caller) -> None:
    assert (await ann.submit())["user_id"] == "ann"
    assert (await bob.submit(user_id="bob"))["user_id"] == "bob"
    assert (await bob.submit(scheduler="bob"))["user_id"] == "bob"


@pytest.mark.parametrize("name", ["user_id", "scheduler"])
async def test_only_admin_submits_for_somebody_else(ann: Caller, admin: Caller, name: str) -> None:
    assert name in (await ann.post("/jobs", {"task_id": "echo", name: "bob"})).refused(403)
    assert await admin.all("/jobs") == []

    job = await admin.submit(**{name: "bob"})
    assert job["user_id"] == "bob"
    assert (await ann.get(f"/jobs/{job['id']}")).refused(404)


async def test_only_admin_asks_for_somebody_elses(ann: Caller, bob: Caller, admin: Caller) -> None:
    job = await bob.submit()
    for path in ("/jobs", "/executions", "/dead-letters"):
        assert "user_id" in (await ann.get(path, user_id="bob")).refused(403)
        assert "user_id" in (await ann.get(path, user_id="")).refused(403)
        assert await ann.all(path) == await ann.all(path, user_id="ann") == []
    assert (await ann.post("/dead-letters/redrive", {"user_id": "bob"})).refused(403)

    assert [each["id"] for each in await admin.all("/jobs", user_id="bob")] == [job["id"]]


async def test_everybody_sees_only_their_own(ann: Caller, bob: Caller, admin: Caller) -> None:
    hers, his = await ann.submit(), await bob.submit(schedule="PT1H")

    assert [job["id"] for job in await ann.all("/jobs")] == [hers["id"]]
    assert [job["id"] for job in await bob.all("/jobs")] == [his["id"]]
    assert {job["id"] for job in await admin.all("/jobs")} == {hers["id"], his["id"]}
    assert await ann.all("/executions", job_id=his["id"]) == []
    assert await ann.all("/jobs", task_id="echo", status="ACTIVE") == []


@pytest.fixture
async def his(bob: Caller, store: PostgresStore, clock: FakeClock) -> AsyncIterator[list[tuple[str, str]]]:
    """Jobs of bob in every shape, each with its execution: pending, running, ended, dead, recurring."""
    done = await bob.submit()
    [claimed] = await claim(store)
    await store.finish([ended(claimed)])
    dead = await bob.submit()
    [claimed] = await claim(store)
    await store.finish([ended(claimed, Raised("no", final=True))])
    running = await bob.submit()
    await claim(store)
    pending = await bob.submit(schedule="2027-02-01T00:00:00Z")
    recurring = await bob.submit(schedule="PT1M")
    clock.advance(minutes=1)
    await Planner(store).step()
    [firing] = await bob.all(f"/jobs/{recurring['id']}/executions")
    once = [(job["id"], job["last_execution"]["id"]) for job in (done, dead, running, pending)]
    yield [*once, (recurring["id"], firing["id"])]


def without(answer: Answer, name: str) -> tuple[int, dict[str, str], bytes]:
    """All that can be told from an answer, but for the name that was asked for."""
    return answer.status, dict(answer.headers), answer.content.replace(name.encode(), b"?")


async def test_somebody_elses_job_is_as_unknown_as_one_that_never_was(
    ann: Caller, his: list[tuple[str, str]], store: PostgresStore
) -> None:
    before = await executions(store)
    verbs: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("PATCH", "", {"priority": 9}),
        ("PATCH", "", {"schedule": "now"}),
        ("PATCH", "", {"overlap": "allow"}),
        ("DELETE", "", None),
        ("POST", "/run", None),
        ("GET", "/executions", None),
        ("GET", "/executions?status=FAILED", None),
    ]
    for job_id, _ in his:
        for method, tail, body in verbs:
            content = None if body is None else str(body).replace("'", '"').encode()
            hidden = await ann.send(method, f"/jobs/{job_id}{tail}", content)
            unknown = await ann.send(method, f"/jobs/{NO_JOB}{tail}", content)
            assert hidden.refused(404)
            assert without(hidden, job_id) == without(unknown, NO_JOB)
    assert await executions(store) == before


async def test_somebody_elses_execution_is_as_unknown_as_one_that_never_was(
    ann: Caller, his: list[tuple[str, str]], store: PostgresStore
) -> None:
    before = await executions(store)
    for _, execution_id in his:
        unknown_id = execution_id[:14] + NO_JOB
        for method, tail in (("GET", ""), ("POST", "/cancel")):
            hidden = await ann.send(method, f"/executions/{execution_id}{tail}")
            unknown = await ann.send(method, f"/executions/{unknown_id}{tail}")
            assert hidden.refused(404)
            assert without(hidden, execution_id) == without(unknown, unknown_id)
        hidden = await ann.post("/dead-letters/redrive", {"executions": [execution_id]})
        unknown = await ann.post("/dead-letters/redrive", {"executions": [unknown_id]})
        assert hidden.refused(404)
        assert without(hidden, execution_id) == without(unknown, unknown_id)
    assert await executions(store) == before


async def test_to_redrive_everything_leaves_somebody_elses_alone(
    ann: Caller, bob: Caller, his: list[tuple[str, str]]
) -> None:
    assert (await ann.post("/dead-letters/redrive", {})).ok() == {"redriven": [], "refused": []}

    assert [letter["id"] for letter in await bob.all("/dead-letters")] == [his[1][1]]


async def test_admin_may_touch_what_is_somebody_elses(admin: Caller, bob: Caller) -> None:
    job = await bob.submit(schedule="2027-02-01T00:00:00Z")

    assert (await admin.patch(f"/jobs/{job['id']}", {"priority": 9})).ok()["user_id"] == "bob"
    assert (await admin.delete(f"/jobs/{job['id']}")).ok()["status"] == "CANCELLED"


# Health


async def test_readiness_is_the_databases_and_liveness_is_not(dsn: str) -> None:
    async with AsyncExitStack() as stack:
        store = await PostgresStore.open(dsn)
        _, secret = await store.create_key("ann", [Scope.READ])
        url = await stack.enter_async_context(a_rota_server(store))
        nobody = await stack.enter_async_context(a_caller(url, None))
        ann = await stack.enter_async_context(a_caller(url, secret))
        assert (await nobody.get("/readyz")).ok() == {"status": "ready"}

        await store.aclose()

        away = await nobody.get("/readyz")
        assert away.refused(503)
        assert away.headers["Retry-After"] == "1"
        assert (await ann.get("/jobs")).refused(503)
        assert (await nobody.get("/healthz")).ok() == {"status": "ok"}
