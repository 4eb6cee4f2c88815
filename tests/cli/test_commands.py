"""The `rota` command as a person or a script uses it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

from rota.cli.nodes import bind, serving
from rota.model.keys import Scope
from rota.model.log import NewLine
from rota.model.retry import Raised
from rota.scheduler.planner import Planner
from rota.server.app import create_app
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import a_worker, claim, ended
from tests.support.processes import eventually


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    def __init__(self, **environment: str) -> None:
        self._environment = os.environ | {"COLUMNS": "200"} | environment

    async def __call__(self, *arguments: str) -> Result:
        def run() -> Result:
            done = subprocess.run(
                [sys.executable, "-m", "rota", *arguments],
                capture_output=True, text=True, check=False, env=self._environment, timeout=120,
            )  # fmt: skip
            assert "Traceback" not in done.stderr, done.stderr
            return Result(done.returncode, done.stdout, done.stderr)

        return await asyncio.to_thread(run)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-u", "-m", "rota", *arguments]
        return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=self._environment)


@pytest.fixture
async def rota(store: PostgresStore, dsn: str) -> AsyncIterator[Shell]:
    _, secret = await store.create_key("admin", [Scope.ADMIN])
    async with AsyncExitStack() as stack:
        listener = bind("127.0.0.1", 0)
        await stack.enter_async_context(serving(create_app(store), listener))
        port = listener.getsockname()[1]
        yield Shell(ROTA_URL=f"http://127.0.0.1:{port}", ROTA_API_KEY=secret, ROTA_DATABASE_URL=dsn)


async def test_a_job_is_submitted_found_moved_and_cancelled(rota: Shell) -> None:
    submitted = await rota("submit", "echo", "-p", "n=1", "-p", "text=hello", "--at", "2027-02-01T00:00:00Z", "--json")
    job_id = submitted.json["id"]
    assert submitted.json["parameters"] == {"n": 1, "text": "hello"}

    assert job_id in (await rota("jobs")).out
    assert (await rota("jobs", "--status", "scheduled", "--json")).json["jobs"][0]["id"] == job_id
    moved = await rota("reschedule", job_id, "--at", "2027-03-01T00:00:00Z", "--json")
    assert moved.json["next_fires_at"] == "2027-03-01T00:00:00.000Z"
    assert "CANCELLED" in (await rota("cancel", job_id)).out
    assert (await rota("job", job_id, "--json")).json["status"] == "CANCELLED"


async def test_a_recurring_job_by_cron_and_zone(rota: Shell) -> None:
    done = await rota("submit", "echo", "--cron", "30 10 * * FRI", "--tz", "Europe/Berlin", "--priority", "3", "--json")

    assert done.json["schedule"] == {"type": "CRON", "expression": "30 10 * * FRI", "time_zone": "Europe/Berlin"}
    assert done.json["next_fires_at"] == "2027-01-08T09:30:00.000Z"
    assert (await rota("run", done.json["id"], "--json")).json["run"] == 1


async def test_dead_letters_are_listed_and_redriven(rota: Shell, store: PostgresStore) -> None:
    await rota("submit", "echo", "--max-retries", "0")
    [claimed] = await claim(store)
    await store.finish([ended(claimed, Raised("ValueError: no"))])

    assert "ValueError: no" in (await rota("dead-letters")).out
    assert "ValueError: no" in (await rota("execution", str(claimed.key))).out
    assert (await rota("dead-letters", "redrive")).code == 2
    assert (await rota("dead-letters", "redrive", "--all", "--json")).json["redriven"] == [f"{claimed.key}-1"]
    assert "No dead letters." in (await rota("dead-letters")).out


async def test_what_an_execution_logs_is_shown_and_followed_to_its_end(rota: Shell, store: PostgresStore) -> None:
    await rota("submit", "echo")
    [claimed] = await claim(store)
    texts = [f"line [{n}]" for n in range(1, 1203)]
    await store.keep_logs(
        [NewLine(*claimed.key, attempt=1, seq=n, ago=0, text=text) for n, text in enumerate(texts, 1)]
    )
    shown = await rota("logs", str(claimed.key))
    following = asyncio.create_task(rota("logs", str(claimed.key), "-f", "--json"))
    await store.keep_logs([NewLine(*claimed.key, attempt=1, seq=9999, ago=0, text="the last")])
    await store.finish([ended(claimed)])

    assert shown.out.splitlines()[0] == "2027-01-04 10:00:00Z #1 line [1]"
    assert [line.split(" #1 ")[1] for line in shown.out.splitlines()] == texts
    assert [json.loads(line)["text"] for line in (await following).out.splitlines()] == [*texts, "the last"]
    assert len((await rota("logs", str(claimed.key), "--json")).json["lines"]) == 1203
    assert (await rota("logs", str(claimed.key), "--attempt", "2")).out == ""
    assert (await rota("logs", "nope")).code == 1


async def test_ctrl_c_ends_the_following_cleanly(rota: Shell, store: PostgresStore) -> None:
    await rota("submit", "echo")
    [claimed] = await claim(store)
    await store.keep_logs([NewLine(*claimed.key, attempt=1, seq=1, ago=0, text="here")])
    following = await rota.start("logs", str(claimed.key), "-f")
    assert following.stdout is not None and b"here" in await following.stdout.readline()

    following.send_signal(signal.SIGINT)
    _, err = await following.communicate()

    assert (following.returncode, err) == (0, b"")


async def test_waiting_tells_by_its_exit_code_how_it_went(rota: Shell, store: PostgresStore) -> None:
    for outcome, code in ((None, 0), (Raised("no", final=True), 1)):
        waiting = asyncio.create_task(rota("submit", "echo", "--wait"))
        claimed = await eventually(lambda: claim(store))
        await store.finish([ended(claimed[0], outcome)])
        assert (await waiting).code == code


async def test_workers_and_keys(rota: Shell, store: PostgresStore) -> None:
    await a_worker(store, "w-alice")
    assert "w-alice" in (await rota("workers")).out

    made = await rota("keys", "create", "--user", "ann", "--scope", "read", "--json")
    listed = (await rota("keys", "list", "--json")).json["keys"]
    assert made.json["key"].startswith("rota_")
    assert {key["user_id"] for key in listed} == {"admin", "ann"}
    assert made.json["key"] not in json.dumps(listed)
    assert (await rota("keys", "revoke", made.json["id"])).code == 0
    assert (await rota("keys", "revoke", made.json["id"])).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["submit", "echo", "--cron", "0 0 30 2 *"], 2, "never"),
        (["submit", "echo", "--at", "tomorrow"], 2, "ISO 8601"),
        (["submit", "echo", "-p", "nonsense"], 2, "key=value"),
        (["submit", "echo", "--at", "2027-01-01T00:00:00Z", "--cron", "* * * * *"], 2, "exclude each other"),
        (["jobs", "--status", "happy"], 2, "is not a status"),
        (["job", "nope"], 1, "no job"),
        (["cancel", "01900000-0000-7000-8000-000000000000"], 1, "no job"),
        (["reschedule", "x"], 2, "say what is to change"),
        (["nonsense"], 2, "No such command"),
    ],
)
async def test_what_is_wrong_is_said_in_a_sentence(rota: Shell, arguments: list[str], code: int, words: str) -> None:
    done = await rota(*arguments)

    assert (done.code, words in done.err) == (code, True), done


async def test_what_users_write_is_shown_as_it_is(rota: Shell) -> None:
    done = await rota("submit", "[/evil]", "-p", "x=[null,true]", "-p", "y=see [red]here[/red]")

    assert '{"x":[null,true],"y":"see [red]here[/red]"}' in done.out
    assert "[/evil]" in (await rota("jobs")).out


async def test_waiting_for_what_never_ends_is_refused(rota: Shell) -> None:
    done = await rota("submit", "echo", "--cron", "@daily", "--wait")

    assert (done.code, "runs once" in done.err) == (2, True)


@pytest.mark.parametrize("app", ["tests.no_such_module:app", ":app", "tasks.py", "tests.cluster.tasks:nothing"])
async def test_an_app_that_cannot_be_loaded_is_one_sentence(rota: Shell, app: str) -> None:
    done = await rota("worker", app)

    assert (done.code, "The app cannot be loaded: APP:" in done.err) == (2, True), done


async def test_an_address_that_is_none_is_told() -> None:
    for environment in ({"ROTA_URL": "127.0.0.1:7070"}, {"ROTA_API_KEY": "ü"}):
        done = await Shell(**environment)("jobs")
        assert (done.code, next(iter(environment)) in done.err) == (2, True), done


async def test_nobody_there_is_told_apart() -> None:
    away = Shell(ROTA_URL="http://127.0.0.1:1", ROTA_API_KEY="rota_x")

    assert (await away("jobs")).code == 3
    no_folder = await away("keys", "list", "--data", "/nonexistent/rota-data")
    assert (no_folder.code, "rota up" in no_folder.err) == (3, True)


@pytest.mark.parametrize("address", ["postgres://u:s3cret/x@h/db", "postgresql://u:s3cret@h:99999/db", "u:s3cret@h"])
async def test_a_malformed_address_is_refused_without_its_password(address: str) -> None:
    for command in (["keys", "list"], ["migrate"], ["scheduler"]):
        result = await Shell()(*command, "--database", address)

        assert result.code == 1
        assert "address of the database" in result.err
        assert "s3cret" not in result.err + result.out


async def test_a_login_in_the_address_of_the_server_is_refused() -> None:
    result = await Shell(ROTA_URL="http://ann:s3cret@127.0.0.1:1", ROTA_API_KEY="rota_x")("jobs")

    assert result.code == 2
    assert "ROTA_API_KEY" in result.err
    assert "s3cret" not in result.err


async def test_a_job_is_paused_resumed_and_accounted_for(rota: Shell, store: PostgresStore, clock: FakeClock) -> None:
    job = (await rota("submit", "echo", "--cron", "0 * * * *", "--overlap", "buffer_one", "--json")).json
    paused = await rota("pause", job["id"], "--note", "moving [house]")
    resumed = (await rota("resume", job["id"], "--json")).json
    clock.advance(hours=2)
    await Planner(store).step()

    ledger = await rota("ledger", job["id"])

    assert "PAUSED" in paused.out and "moving [house]" in paused.out
    assert "overlap buffer_one" in paused.out
    assert resumed["status"] == "ACTIVE"
    assert "SKIPPED" in ledger.out and "misfire" in ledger.out
    assert "2 firings: 1 SKIPPED, 1 QUEUED; every firing is accounted for." in ledger.out
