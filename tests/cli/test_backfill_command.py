"""`rota backfill`, and the same through the Python client."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rota import Client, RequestRefused
from rota.model.backfill import Backfill
from rota.scheduler.backfiller import Backfiller
from rota.store.postgres.engine import PostgresStore
from tests.cli.test_commands import Shell, rota
from tests.server.calls import USER, a_rota_server
from tests.support.clock import FakeClock
from tests.support.jobs import claim, ended
from tests.support.processes import eventually

__all__ = ["rota"]
# The clock stands at 2027-01-04T10:00:00Z.
RANGE = ("--from", "2027-01-04T05:00:00Z", "--to", "2027-01-04T09:00:00Z")


async def hourly(rota: Shell) -> str:
    job_id: str = (await rota("submit", "echo", "--cron", "0 * * * *", "--json")).json["id"]
    return job_id


async def worked_off(store: PostgresStore, until: asyncio.Task[Any]) -> None:
    async def is_over() -> bool:
        await Backfiller(store).step()
        await store.finish([ended(each) for each in await claim(store)])
        return until.done()

    await eventually(is_over)


async def test_a_backfill_is_started_shown_listed_and_cancelled(rota: Shell, store: PostgresStore) -> None:
    job_id = await hourly(rota)
    assert "No backfills." in (await rota("backfill", "list", job_id)).out

    made = (await rota("backfill", "start", job_id, *RANGE, "--max-parallel", "2", "--json")).json
    await Backfiller(store).step()

    shown = (await rota("backfill", "show", made["id"], "--json")).json
    assert shown == made | {"made": 2, "open": 2}
    assert "0 of 5" in (await rota("backfill", "show", made["id"])).out
    assert (await rota("backfill", "list", job_id, "--json")).json == {"backfills": [shown]}
    assert made["id"] in (await rota("backfill", "list", job_id)).out
    assert "CANCELLED" in (await rota("backfill", "cancel", made["id"])).out
    assert (await rota("backfill", "cancel", made["id"], "--json")).json["state"] == "CANCELLED"


async def test_a_dry_run_starts_nothing(rota: Shell) -> None:
    job_id = await hourly(rota)

    told = await rota("backfill", "start", job_id, *RANGE, "--dry-run")

    assert "5 of 5 firings" in told.out
    assert "2027-01-04 09:00:00Z" in told.out
    preview = (await rota("backfill", "start", job_id, *RANGE, "--dry-run", "--reprocess", "all", "--json")).json
    assert (preview["reprocess"], preview["would_make"]) == ("all", 5)
    assert (await rota("backfill", "list", job_id, "--json")).json == {"backfills": []}


async def test_waiting_shows_how_far_it_is(rota: Shell, store: PostgresStore) -> None:
    job_id = await hourly(rota)

    waiting = asyncio.create_task(rota("backfill", "start", job_id, *RANGE, "--wait", "--json"))
    await worked_off(store, until=waiting)

    done = await waiting
    assert (done.code, done.json["state"], done.json["made"]) == (0, "COMPLETED", 5)
    assert "5/5" in done.err


async def test_waiting_for_one_that_is_cancelled_fails(rota: Shell, store: PostgresStore) -> None:
    job_id = await hourly(rota)
    waiting = asyncio.create_task(rota("backfill", "start", job_id, *RANGE, "--wait"))
    [backfill] = await eventually(lambda: store.unfilled(limit=1))

    await store.cancel_backfill(backfill.id)

    assert (await waiting).code == 1


async def test_ctrl_c_leaves_it_running_and_says_so(
    rota: Shell, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()
    find = store.find_backfill

    async def find_and_tell(backfill_id: UUID) -> Backfill | None:
        waits.set()
        return await find(backfill_id)

    monkeypatch.setattr(store, "find_backfill", find_and_tell)
    job_id = await hourly(rota)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rota", "backfill", "start", job_id, *RANGE, "--wait",
        env=rota._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await asyncio.wait_for(waits.wait(), 60)
    [backfill] = await store.unfilled(limit=1)

    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()

    assert process.returncode == 130
    assert f"rota backfill show {backfill.id}" in err.decode()
    assert [each.id for each in await store.unfilled(limit=1)] == [backfill.id]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--from", "yesterday", "--to", "2027-01-04T09:00:00Z"], 2, "ISO 8601"),
        (["--from", "2027-01-04T09:10:00Z", "--to", "2027-01-04T09:50:00Z"], 2, "no firing"),
        ([*RANGE, "--max-parallel", "101"], 2, "100"),
        ([*RANGE, "--reprocess", "some"], 2, "none"),
        ([*RANGE, "--dry-run", "--wait"], 2, "--dry-run"),
        (["--from", "2027-01-04T05:00:00Z"], 2, "--to"),
    ],
)
async def test_what_was_asked_wrongly(rota: Shell, arguments: list[str], code: int, words: str) -> None:
    refused = await rota("backfill", "start", await hourly(rota), *arguments)

    assert (refused.code, words in refused.err) == (code, True), refused.err


async def test_the_client_has_it_all(store: PostgresStore, clock: FakeClock) -> None:
    _, secret = await store.create_key("ann", USER)
    start, end = clock.moment - timedelta(hours=2), clock.moment.isoformat()

    def talk(url: str) -> None:
        with Client(url, secret) as client:
            job = client.submit("echo", cron="0 * * * *")
            preview = client.preview_backfill(job.id, start, end)
            assert (preview.total, preview.would_make, preview.first) == (3, 3, preview.last)
            made = client.backfill(job.id, start, end, max_parallel=3, reprocess="failed")
            assert (made.total, made.start, made.reprocess) == (3, "2027-01-04T08:00:00.000Z", "failed")
            assert client.find_backfill(made.id) == made
            assert client.backfills(job.id).backfills == [made]
            assert client.cancel_backfill(made.id).state == "CANCELLED"
            with pytest.raises(RequestRefused) as refused:
                client.find_backfill("nonsense")
            assert refused.value.status == 404

    async with a_rota_server(store) as url:
        await asyncio.to_thread(talk, url)
