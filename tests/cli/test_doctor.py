"""`rota doctor`: what is wrong is seen, told with what to do, and nothing secret is told."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from starlette.applications import Starlette

from rota.cli.doctor import State, time_zones
from rota.cli.nodes import bind, prepare, serving
from rota.cli.up import ensure_admin_key
from rota.model.keys import Scope
from rota.model.retry import Raised
from rota.model.tzversion import PACKAGE, ZoneSource, package_version
from rota.server.app import create_app
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrations
from tests.cli.test_commands import Shell
from tests.support.database import a_database, given_server, in_database
from tests.support.jobs import a_job, a_recurring_job, a_worker, claim, ended, submit

NOBODY = "http://127.0.0.1:1"
own_database = pytest.mark.skipif(given_server() is not None, reason="changes its database for good")


class Doctor:
    """Asks in a folder that `rota up` left, with nobody at its address."""

    def __init__(self, data: Path) -> None:
        self.data = data
        (data / "url").write_text(NOBODY)

    async def __call__(self, *arguments: str, **environment: str) -> dict[str, Any]:
        done = await Shell(ROTA_DATA=str(self.data), **environment)("doctor", "--json", *arguments)
        checks = {check["name"]: check for check in done.json["checks"]}
        problems = [check for check in checks.values() if check["state"] == "problem"]
        assert (done.json["ok"], done.code) == ((False, 1) if problems else (True, 0))
        assert all((check["advice"] is None) == (check["state"] == "ok") for check in checks.values())
        return checks


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    return Doctor(tmp_path)


@asynccontextmanager
async def at_an_address(app: Starlette) -> AsyncIterator[str]:
    listener = bind("127.0.0.1", 0)
    async with serving(app, listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def run(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_without_server_and_database_it_warns_and_says_what_to_do(doctor: Doctor) -> None:
    checks = await doctor()
    assert {name: check["state"] for name, check in checks.items() if name != "time zones"} == {
        "versions": "ok", "server": "warning", "database": "warning",
    }  # fmt: skip

    read = await Shell(ROTA_DATA=str(doctor.data))("doctor")
    assert (read.code, read.err) == (0, "")
    assert "warning  database" in read.out
    assert "→ `rota up` starts one; --database names another." in read.out


async def test_what_was_configured_and_is_not_there_is_a_problem(doctor: Doctor) -> None:
    by_environment = await doctor(ROTA_URL=NOBODY, ROTA_DATABASE_URL="postgres://u@127.0.0.1:1/db")
    assert by_environment["server"]["state"] == by_environment["database"]["state"] == "problem"
    assert "127.0.0.1:1" in by_environment["database"]["detail"]

    by_option = await doctor("--database", "postgres://u@127.0.0.1:1/db")
    assert (by_option["server"]["state"], by_option["database"]["state"]) == ("warning", "problem")


@pytest.mark.parametrize(
    "address",
    [
        "postgres://u:s3cret@127.0.0.1:1/db",
        "postgres://u:a@s3cret@127.0.0.1:1/db",
        "postgres://u@127.0.0.1:1/db?password=s3cret",
        "postgres://u:s3cret/x@127.0.0.1:1/db",
        "postgres://u:s3cret#x@127.0.0.1:1/db",
        "postgres://u:s3cret?x@127.0.0.1:1/db",
        "postgres://u:a?s3cret@127.0.0.1:1/db",
        "postgres://u:a/s3cret@127.0.0.1:1/db",
        "postgres://u:s3cret@127.0.0.1:99999/db",
        "postgres://u:s3cret",
        "host=127.0.0.1 password=s3cret",
    ],
)
async def test_a_password_is_never_shown(doctor: Doctor, address: str) -> None:
    done = await Shell(ROTA_DATA=str(doctor.data), ROTA_DATABASE_URL=address)("doctor")

    assert done.code == 1
    assert "s3cret" not in done.out + done.err


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rota-doctor-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


async def test_a_cluster_in_its_folder_is_well(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder)
    try:
        dsn = postgres.start()
        await prepare(dsn)
        store = await PostgresStore.open(dsn)
        try:
            async with at_an_address(create_app(store)) as url:
                doctor = Doctor(folder)
                (folder / "url").write_text(url)
                await ensure_admin_key(store, folder / "admin.key")
                await a_worker(store, "w-alice")
                checks = await doctor()
        finally:
            await store.aclose()
    finally:
        postgres.stop()

    assert {name for name, check in checks.items() if check["state"] != "ok"} <= {"time zones"}
    assert checks["key"]["detail"] == "accepted: admin (admin)"
    assert checks["migrations"]["detail"] == f"all {len(migrations())} applied"
    assert "1 alive: w-alice on here renewed" in checks["workers"]["detail"]
    assert {"server", "database", "clock", "durability", "planner", "dead letters", "partitions"} <= checks.keys()


async def test_the_key_is_tried(doctor: Doctor, live: PostgresStore, dsn: str) -> None:
    _, secret = await live.create_key("bob", [Scope.SUBMIT])
    async with at_an_address(create_app(live)) as url:
        states = [
            (await doctor(ROTA_URL=url + "/", **more))["key"]
            for more in (
                {},
                {"ROTA_API_KEY": "rota_unknown"},
                {"ROTA_API_KEY": "ü"},
                {"ROTA_API_KEY": secret},
                {"ROTA_API_KEY": secret, "ROTA_DATABASE_URL": dsn},
            )
        ]

    assert [check["state"] for check in states] == ["warning", "problem", "problem", "ok", "ok"]
    assert "this one has `submit`" in states[3]["detail"]
    assert states[4]["detail"] == "accepted: bob (submit)"


@own_database
async def test_a_server_and_a_database_of_two_clusters(doctor: Doctor, live: PostgresStore, server: str) -> None:
    _, secret = await live.create_key("bob", [Scope.READ])
    async with at_an_address(create_app(live)) as url, a_database(server) as other:
        checks = await doctor(ROTA_URL=url, ROTA_API_KEY=secret, ROTA_DATABASE_URL=other)

    assert checks["key"]["state"] == "warning"
    assert "not of one cluster" in checks["key"]["detail"]


async def test_a_server_without_its_database_and_what_is_no_server(doctor: Doctor) -> None:
    away = await PostgresStore.open("postgres://u@127.0.0.1:1/db")
    try:
        async with at_an_address(create_app(away)) as url:
            not_ready = (await doctor(ROTA_URL=url))["server"]
    finally:
        await away.aclose()
    async with at_an_address(Starlette()) as url:
        another = (await doctor(ROTA_URL=url))["server"]
    none = (await doctor(ROTA_URL="127.0.0.1:7070"))["server"]
    login = (await doctor(ROTA_URL="http://ann:s3cret@127.0.0.1:7070"))["server"]

    assert (not_ready["state"], "database is away" in not_ready["detail"]) == ("problem", True)
    assert (another["state"], "not a Rota server" in another["detail"]) == ("problem", True)
    assert (none["state"], none["detail"]) == ("problem", "ROTA_URL is no address")
    assert (login["state"], "s3cret" in str(login)) == ("problem", False)


@own_database
async def test_migrations_that_are_missing_or_from_the_future(doctor: Doctor, dsn: str, server: str) -> None:
    await run(dsn, "insert into migrations values (9999, now())")
    newer = await doctor("--database", dsn)
    await run(dsn, "delete from migrations where number in (1, 9999)")
    older = await doctor("--database", dsn)
    empty = await doctor("--database", in_database(server, "postgres"))

    assert [checks["migrations"]["state"] for checks in (newer, older, empty)] == ["problem"] * 3
    assert "9999 is applied, which Rota" in newer["migrations"]["detail"]
    assert older["migrations"]["detail"] == "1 is not applied"
    assert empty["migrations"]["advice"] == "Run `rota migrate`."
    assert not {"workers", "planner", "dead letters", "partitions"} & (newer.keys() | older.keys() | empty.keys())


@own_database
async def test_a_clock_that_is_off_and_commits_that_may_be_lost(doctor: Doctor, dsn: str) -> None:
    name = dsn.partition("?")[0].rpartition("/")[2]
    slower = "select pg_catalog.clock_timestamp() - interval '5 s'"
    await run(
        dsn,
        f"create function clock_timestamp() returns timestamptz language sql as $$ {slower} $$",
        f"alter database {name} set search_path = public, pg_catalog",
        f"alter database {name} set synchronous_commit = off",
    )

    checks = await doctor("--database", dsn)

    assert checks["clock"]["state"] == "warning"
    assert checks["clock"]["detail"].endswith("s ahead of the database's")
    assert checks["durability"]["state"] == "problem"
    # The tests' own server gives up the other two as well.
    assert checks["durability"]["detail"] == "fsync, synchronous_commit, full_page_writes are off"


async def test_workers_that_are_not_there_or_silent(doctor: Doctor, live: PostgresStore, dsn: str) -> None:
    nobody = (await doctor("--database", dsn))["workers"]
    await a_worker(live, "w-alice")
    await a_worker(live, "w-bob")
    alive = (await doctor("--database", dsn))["workers"]
    await run(dsn, "update workers set renewed_at = now() - interval '5 minutes' where id = 'w-bob'")
    silent = (await doctor("--database", dsn))["workers"]

    assert [check["state"] for check in (nobody, alive, silent)] == ["warning", "ok", "warning"]
    assert alive["detail"].startswith("2 alive: ")
    assert "w-bob on here renewed 5 min ago" in silent["detail"]
    assert silent["detail"].endswith("; w-bob is past the lease")


async def test_a_recurring_job_that_nobody_plans(doctor: Doctor, live: PostgresStore, dsn: str) -> None:
    [job] = await submit(live, a_recurring_job("PT1H", await live.now()))
    planned = (await doctor("--database", dsn))["planner"]
    await run(dsn, "update jobs set next_fires_at = now() - interval '3 minutes'")
    late = (await doctor("--database", dsn))["planner"]
    await run(dsn, "update jobs set state = 'PAUSED'")
    paused = (await doctor("--database", dsn))["planner"]

    assert [check["state"] for check in (planned, late, paused)] == ["ok", "warning", "ok"]
    assert late["detail"] == f"job {job.id} is overdue by 3 min"
    assert "Is a scheduler running?" in late["advice"]


async def test_dead_letters_are_counted_up_to_a_bound(doctor: Doctor, live: PostgresStore, dsn: str) -> None:
    await submit(live, a_job(max_retries=0))
    [claimed] = await claim(live)
    await live.finish([ended(claimed, Raised("no"))])
    one = (await doctor("--database", dsn))["dead letters"]
    another = "(jsonb_populate_record(d, jsonb_build_object('run', n))).*"
    await run(dsn, f"insert into dead_letters select {another} from dead_letters d, generate_series(1, 1500) n")
    many = (await doctor("--database", dsn))["dead letters"]

    assert (one["state"], one["detail"]) == ("warning", "1")
    assert many["detail"] == "more than 1000"


@own_database
async def test_days_without_a_partition(doctor: Doctor, dsn: str) -> None:
    missing = (await doctor("--database", dsn))["partitions"]
    await prepare(dsn)
    made = (await doctor("--database", dsn))["partitions"]

    assert (missing["state"], made["state"]) == ("warning", "ok")
    assert missing["detail"].count("history_") == missing["detail"].count("attempts_") == 2


async def test_the_time_zones_are_those_that_are_really_read(doctor: Doctor, tmp_path: Path) -> None:
    package = (await doctor(PYTHONTZPATH=""))["time zones"]
    system = tmp_path / "zoneinfo"
    (system / "Europe").mkdir(parents=True)
    (system / "Europe" / "Berlin").write_bytes(b"TZif")
    silent = (await doctor(PYTHONTZPATH=str(system)))["time zones"]
    (system / "+VERSION").write_text("2019c\n")
    macos = (await doctor(PYTHONTZPATH=str(system)))["time zones"]
    (system / "tzdata.zi").write_text("# version 2020a\n# This zic input file is in the public domain.\n")
    linux = (await doctor(PYTHONTZPATH=str(system)))["time zones"]

    assert package["detail"].startswith(f"{package_version()} from the tzdata package")
    assert f"unknown version from {system} (zones: 1" in silent["detail"]
    assert f"2019c from {system} (zones: 1" in macos["detail"]
    assert f"2020a from {system} (zones: 1" in linux["detail"]
    assert {check["state"] for check in (silent, macos, linux)} == {"warning"}
    assert package_version() in linux["advice"]


@pytest.mark.parametrize(
    ("version", "state"),
    [("2025b", State.OK), ("2024b", State.WARNING), ("2023d", State.WARNING), (None, State.WARNING)],
)
def test_time_zones_of_more_than_a_year_and_a_half_ago(version: str | None, state: State) -> None:
    check = time_zones([ZoneSource(PACKAGE, version, 600)], datetime(2026, 6, 1, tzinfo=UTC))

    assert (check.state, (version or "unknown") in check.detail) == (state, True)
