"""/calendars: every user's own, by name; replaced as a whole, and not deleted while a job refers to one."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest

from rota.store.postgres.calendars import SQL
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Answer, Caller
from tests.server.test_keys import without
from tests.support.clock import FakeClock
from tests.support.processes import eventually

DAYS = ["2027-12-25", "2027-12-24/2027-12-26", "2027-12-24T12:00:00Z/2027-12-27T06:00:00Z"]

WAITING = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def put(caller: Caller, name: str, days: object, **query: str) -> Answer:
    return await send(caller, "PUT", name, msgspec.json.encode({"days": days}), **query)


async def send(caller: Caller, method: str, name: str, content: bytes | None = None, **query: str) -> Answer:
    asked = "&".join(f"{key}={quote(value)}" for key, value in query.items())
    return await caller.send(method, f"/calendars/{quote(name, safe='')}?{asked}", content)


async def names(caller: Caller, **query: str) -> list[tuple[str, str]]:
    found = (await caller.get("/calendars", **query)).ok()["calendars"]
    return [(each["user_id"], each["name"]) for each in found]


async def a_job_with(caller: Caller, calendar: str) -> Any:
    return await caller.submit(schedule="0 10 * * *", calendar=calendar)


# Made, found, replaced


async def test_a_calendar_is_put_and_found(ann: Caller) -> None:
    made = (await put(ann, "holidays", DAYS)).ok()

    assert made == {"name": "holidays", "user_id": "ann", "days": DAYS, "changed_at": "2027-01-04T10:00:00.000Z"}
    assert (await send(ann, "GET", "holidays")).ok() == made
    assert (await ann.get("/calendars")).ok() == {"calendars": [made]}


async def test_a_calendar_is_replaced_as_a_whole(ann: Caller, clock: FakeClock) -> None:
    await put(ann, "holidays", DAYS)
    clock.advance(minutes=1)

    replaced = (await put(ann, "holidays", ["2028-01-01"])).ok()

    assert (replaced["days"], replaced["changed_at"]) == (["2028-01-01"], "2027-01-04T10:01:00.000Z")
    assert (await send(ann, "GET", "holidays")).ok() == replaced
    assert (await put(ann, "holidays", [])).ok()["days"] == []


async def test_calendars_are_listed_by_name(ann: Caller) -> None:
    assert await names(ann) == []
    for name in ("b", "a", "c"):
        (await put(ann, name, DAYS)).ok()

    assert await names(ann) == [("ann", "a"), ("ann", "b"), ("ann", "c")]


@pytest.mark.parametrize(
    "name", ["x" * 100, "ü" * 100, "bank holidays (2027)", "%", "a?b#c&d=e+f", "'; --", "\U0001f600"]
)
async def test_what_is_printable_is_a_name(ann: Caller, name: str) -> None:
    assert (await put(ann, name, DAYS)).ok()["name"] == name
    assert (await send(ann, "GET", name)).ok()["name"] == name
    assert (await send(ann, "DELETE", name)).ok()["name"] == name


# Whose


async def test_anothers_calendar_is_as_unknown_as_one_that_never_was(ann: Caller, bob: Caller) -> None:
    (await put(bob, "bobs", DAYS)).ok()

    for method in ("GET", "DELETE"):
        hidden, unknown = await send(ann, method, "bobs"), await send(ann, method, "none")
        assert hidden.refused(404) == "There is no calendar 'bobs' that this key may see."
        assert without(hidden, "bobs") == without(unknown, "none")
    assert await names(ann) == []
    assert await names(bob) == [("bob", "bobs")]


async def test_two_users_may_use_one_name(ann: Caller, bob: Caller) -> None:
    await put(ann, "holidays", ["2027-12-25"])
    await put(bob, "holidays", ["2027-12-26"])

    assert (await send(ann, "DELETE", "holidays")).ok()["days"] == ["2027-12-25"]
    assert (await send(bob, "GET", "holidays")).ok()["days"] == ["2027-12-26"]


async def test_admin_sees_all_and_names_whose(admin: Caller, ann: Caller, bob: Caller) -> None:
    await put(ann, "hers", DAYS)
    await put(bob, "bobs", DAYS)

    assert await names(admin) == [("ann", "hers"), ("bob", "bobs")]
    assert await names(admin, user_id="bob") == [("bob", "bobs")]
    assert (await send(admin, "GET", "hers")).refused(404)
    assert (await send(admin, "GET", "hers", user_id="ann")).ok()["user_id"] == "ann"
    assert (await put(admin, "hers", [], user_id="ann")).ok()["user_id"] == "ann"
    assert (await send(admin, "DELETE", "hers", user_id="ann")).ok()["days"] == []
    assert (await put(admin, "own", DAYS)).ok()["user_id"] == "root"


async def test_only_admin_names_another_user(ann: Caller, bob: Caller) -> None:
    await put(bob, "bobs", DAYS)

    assert "user_id" in (await ann.get("/calendars", user_id="bob")).refused(403)
    for answer in (
        await put(ann, "bobs", [], user_id="bob"),
        await send(ann, "GET", "bobs", user_id="bob"),
        await send(ann, "DELETE", "bobs", user_id="bob"),
    ):
        assert "user_id" in answer.refused(403)
    assert (await put(ann, "hers", [], user_id="ann")).ok()["user_id"] == "ann"
    assert (await send(bob, "GET", "bobs")).ok()["days"] == DAYS


# What cannot be


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"{}", "days"),
        (b'{"days": null}', "days"),
        (b'{"days": "2027-12-25"}', "days"),
        (b'{"days": ["2027-12-25", 7]}', "days[1]"),
        (b'{"days": ["2027-12-25", "2027-12-26", "2027-12-27", "2027-12-32"]}', "days[3]"),
        (b'{"days": ["2027-12-25", "2027-12-26/2027-12-25"]}', "days[1]"),
        (b'{"days": ["2027-12-25\\u0000"]}', "days[0]"),
        (b'{"days": ["2027-12-25T00:00Z/2027-12-26T00:00Z\\u0000"]}', "days[0]"),
        (b'{"days": [' + b", ".join([b'"2027-12-25"'] * 1001) + b"]}", "days"),
        (b'{"days": [], "name": "other"}', "name"),
        (b"[]", "body"),
    ],
)
async def test_what_is_no_calendar_is_refused_by_its_field(ann: Caller, content: bytes, field: str) -> None:
    assert (await send(ann, "PUT", "holidays", content)).refused(422, field)
    assert await names(ann) == []


async def test_what_is_not_json_is_refused(ann: Caller) -> None:
    for content in (b"", b"{", b'{"days": ["\xff"]}', b'{"days": ["\\ud800"]}'):
        assert (await send(ann, "PUT", "holidays", content)).refused(400)


@pytest.mark.parametrize("name", ["\0", "a\0b", "a\nb", "a\n", "\x7f", "x" * 101])
async def test_a_name_that_cannot_be_is_refused_and_unknown(ann: Caller, name: str) -> None:
    assert (await put(ann, name, DAYS)).refused(422, "name")
    assert (await send(ann, "GET", name)).refused(404)
    assert (await send(ann, "DELETE", name)).refused(404)


async def test_a_name_has_no_slash(ann: Caller) -> None:
    assert (await put(ann, "a/b", DAYS)).status == 404


@pytest.mark.parametrize("user_id", ["", "a\nb", "a\0b", "x" * 201])
async def test_a_user_that_cannot_be_is_refused(admin: Caller, user_id: str) -> None:
    assert (await put(admin, "holidays", DAYS, user_id=user_id)).refused(422, "user_id")


# Deleted


async def test_a_calendar_is_deleted(ann: Caller) -> None:
    made = (await put(ann, "holidays", DAYS)).ok()

    assert (await send(ann, "DELETE", "holidays")).ok() == made
    assert (await send(ann, "GET", "holidays")).refused(404)
    assert (await send(ann, "DELETE", "holidays")).refused(404)


async def test_a_calendar_in_use_is_not_deleted(ann: Caller, bob: Caller) -> None:
    await put(ann, "holidays", DAYS)
    await put(bob, "holidays", DAYS)
    jobs = [await a_job_with(ann, "holidays") for _ in range(2)]
    (await ann.post(f"/jobs/{jobs[1]['id']}/pause", {})).ok()

    assert "2 jobs refer" in (await send(ann, "DELETE", "holidays")).refused(409)
    (await ann.delete(f"/jobs/{jobs[0]['id']}")).ok()
    assert "1 job refers" in (await send(ann, "DELETE", "holidays")).refused(409)
    assert (await send(ann, "GET", "holidays")).ok()["days"] == DAYS
    (await ann.delete(f"/jobs/{jobs[1]['id']}")).ok()
    assert (await send(ann, "DELETE", "holidays")).ok()
    assert (await send(bob, "DELETE", "holidays")).ok()


async def test_a_calendar_waits_for_who_is_about_to_refer_to_it(ann: Caller, store: PostgresStore, dsn: str) -> None:
    """A submission holds the calendar with `for key share` until its job is there."""
    await put(ann, "holidays", DAYS)
    job = await a_job_with(ann, "holidays")
    await ann.delete(f"/jobs/{job['id']}")
    submitting = await asyncpg.connect(dsn)
    try:
        async with submitting.transaction():
            await submitting.execute("select from calendars where name = 'holidays' for key share")
            deleting = asyncio.create_task(send(ann, "DELETE", "holidays"))
            await eventually(lambda: store.db.look(WAITING))
            assert (await put(ann, "holidays", [])).status == 200, "to change it disturbs nobody"
            await submitting.execute("update jobs set state = 'ACTIVE'")
        assert "1 job refers" in (await deleting).refused(409)
    finally:
        await submitting.close()


async def test_who_uses_a_calendar_is_found_by_its_index(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("set enable_seqscan = off")
        query = SQL.users.replace("$1", "'ann'").replace("$2", "'holidays'")
        plan = await connection.fetch(f"explain {query}")
    finally:
        await connection.close()

    assert "jobs_calendar" in str(plan)
