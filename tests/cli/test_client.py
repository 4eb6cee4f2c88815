"""The Python client against a real server: what it sends, what it gives back, and what it does about lost answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import rota
from rota import AsyncClient, Client, RequestRefused, ServerUnreachable, job_body
from rota.cli.nodes import bind
from rota.model.errors import RotaError
from rota.model.keys import Scope
from rota.model.retry import Done, Outcome, Raised
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import USER, a_rota_server
from tests.support.clock import FakeClock
from tests.support.jobs import a_worker, claim, ended

FEBRUARY = datetime(2027, 2, 1, tzinfo=UTC)


@pytest.fixture
async def url(store: PostgresStore) -> AsyncIterator[str]:
    async with a_rota_server(store) as address:
        yield address


@pytest.fixture
async def key(store: PostgresStore) -> str:
    _, secret = await store.create_key("ann", [*USER, Scope.WORK])
    return secret


@pytest.fixture
async def client(url: str, key: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, key) as opened:
        yield opened


async def end_all(store: PostgresStore, outcome: Outcome | None = None) -> None:
    claimed = await claim(store)
    assert await store.finish([ended(each, outcome) for each in claimed]) == []


# Submitting


async def test_a_job_is_submitted_and_found(client: AsyncClient) -> None:
    job = await client.submit("echo", {"to": ["you"]}, priority=3, timeout="PT5M")

    assert (job.user_id, job.task_id, job.status) == ("ann", "echo", "QUEUED")
    assert (job.parameters, job.priority, job.timeout) == ({"to": ["you"]}, 3, 300.0)
    assert await client.get(job.id) == job


async def test_when_is_said_in_one_of_four_ways(client: AsyncClient) -> None:
    berlin = FEBRUARY.astimezone(timezone(timedelta(hours=1)))

    now = await client.submit("echo")
    at = [await client.submit("echo", at=when) for when in (FEBRUARY, berlin, "2027-02-01T00:00:00Z")]
    every = await client.submit("echo", every="PT15M", overlap="allow")
    cron = await client.submit("echo", cron="0 9 * * MON-FRI", tz="Asia/Tokyo")

    assert now.next_fires_at == "2027-01-04T10:00:00.000Z"
    assert {job.next_fires_at for job in at} == {"2027-02-01T00:00:00.000Z"}
    assert (every.schedule.type, every.schedule.expression) == ("INTERVAL", "PT15M")
    assert (every.status, every.overlap) == ("ACTIVE", "allow")
    assert cron.next_fires_at == "2027-01-05T00:00:00.000Z"
    with pytest.raises(ValueError, match="exclude each other"):
        await client.submit("echo", at=FEBRUARY, every="PT1M")


async def test_a_task_of_ones_own_brings_its_options(client: AsyncClient) -> None:
    app = rota.App()

    @app.task("bake", priority=5, max_retries=9)
    def bake(bread: str) -> str:
        return bread

    job = await client.submit(bake, {"bread": "rye"}, priority=7)

    assert (job.task_id, job.priority, job.max_retries) == ("bake", 7, 9)


async def test_many_jobs_go_together_or_not_at_all(client: AsyncClient) -> None:
    jobs = await client.submit_many(job_body("echo", {"n": n}, priority=n) for n in range(5))
    assert [job.parameters["n"] for job in jobs] == [0, 1, 2, 3, 4]

    with pytest.raises(RequestRefused) as refusal:
        await client.submit_many([job_body("echo"), job_body("echo", cron="soon")])

    assert (refusal.value.status, refusal.value.field) == (422, "jobs[1].schedule")
    assert len((await client.list()).jobs) == 5


async def test_a_key_of_ones_own_makes_one_job(client: AsyncClient) -> None:
    first = await client.submit("echo", {"n": 1}, idempotency_key="order-7")

    assert (await client.submit("echo", {"n": 1}, idempotency_key="order-7")).id == first.id
    with pytest.raises(RequestRefused) as refusal:
        await client.submit("echo", {"n": 2}, idempotency_key="order-7")
    assert (refusal.value.status, refusal.value.field) == (422, "Idempotency-Key")


# Looking


async def test_pages_lead_to_each_other(client: AsyncClient) -> None:
    jobs = await client.submit_many([job_body("echo")] * 5)
    met, token = [], None
    while True:
        page = await client.list(limit=2, page_token=token, task_id="echo", status="queued")
        met += page.jobs
        token = page.next_page_token
        if token is None:
            break

    assert sorted(job.id for job in met) == sorted(job.id for job in jobs)


async def test_a_list_can_be_narrowed_by_datetimes(client: AsyncClient) -> None:
    job = await client.submit("echo", at=FEBRUARY)
    await client.submit("echo")

    window: dict[str, Any] = {"start_time": FEBRUARY, "end_time": FEBRUARY + timedelta(hours=1)}

    assert [each.id for each in (await client.list(**window)).jobs] == [job.id]
    assert [each.job_id for each in (await client.executions(**window)).executions] == [job.id]


async def test_executions_tell_their_tries(client: AsyncClient, store: PostgresStore) -> None:
    job = await client.submit("echo")
    await end_all(store, Raised("ValueError: no"))

    [execution] = (await client.executions(job_id=job.id)).executions
    detail = await client.execution(execution.id)

    assert detail.execution == execution
    assert [(attempt.verdict, attempt.error) for attempt in detail.attempts] == [("RETRY", "ValueError: no")]


async def test_workers_are_listed(client: AsyncClient, store: PostgresStore) -> None:
    await a_worker(store)

    [worker] = (await client.workers()).workers

    assert (worker.id, worker.state) == ("w-alice", "ALIVE")


# Changing


async def test_a_job_is_rescheduled_and_edited(client: AsyncClient) -> None:
    once = await client.submit("echo")
    recurring = await client.submit("echo", cron="0 9 * * *", tz="Asia/Tokyo")

    assert (await client.reschedule(once.id, at=FEBRUARY)).next_fires_at == "2027-02-01T00:00:00.000Z"
    assert (await client.reschedule(once.id, priority=8, parameters={"a": 1})).parameters == {"a": 1}
    moved = await client.reschedule(recurring.id, tz="UTC")
    assert (moved.schedule.expression, moved.schedule.time_zone) == ("0 9 * * *", "UTC")
    assert (await client.reschedule(recurring.id, every="PT1H")).schedule.type == "INTERVAL"


async def test_a_job_and_an_execution_are_cancelled(client: AsyncClient) -> None:
    job, other = await client.submit("echo"), await client.submit("echo")
    assert other.last_execution

    assert (await client.cancel(job.id)).status == "CANCELLED"
    assert (await client.cancel_execution(other.last_execution.id)).status == "CANCELLED"


async def test_a_job_runs_once_more(client: AsyncClient, store: PostgresStore) -> None:
    job = await client.submit("echo")
    await end_all(store)

    execution = await client.run(job.id)

    assert (execution.job_id, execution.run, execution.status) == (job.id, 1, "QUEUED")


async def test_dead_letters_run_again_by_name_or_by_filter(client: AsyncClient, store: PostgresStore) -> None:
    await client.submit_many([job_body("echo"), job_body("noop"), job_body("noop")])
    await end_all(store, Raised("no", final=True))
    [echo] = (await client.dead_letters(task_id="echo")).executions

    assert (await client.redrive([echo.id])).redriven == [f"{echo.id}-1"]
    assert len((await client.redrive(task_id="noop")).redriven) == 2
    assert (await client.redrive()).redriven == []
    assert (await client.redrive([])).redriven == []


# Waiting


async def test_waiting_ends_with_the_job(client: AsyncClient, store: PostgresStore) -> None:
    job = await client.submit("echo")
    waiting = asyncio.create_task(client.wait(job.id, timeout=60))

    await end_all(store, Done('{"ok":true}'))

    done = await waiting
    assert done.status == "COMPLETED"
    assert done.last_execution
    assert done.last_execution.result == {"ok": True}


async def test_waiting_for_what_has_ended_is_over_at_once(client: AsyncClient, store: PostgresStore) -> None:
    failed, cancelled = await client.submit("echo"), await client.submit("echo", at=FEBRUARY)
    await end_all(store, Raised("no", final=True))
    await client.cancel(cancelled.id)

    assert (await client.wait(failed.id, timeout=0)).status == "FAILED"
    assert (await client.wait(cancelled.id, timeout=0)).status == "CANCELLED"


async def test_waiting_longer_than_one_has_time_for_is_an_error(client: AsyncClient) -> None:
    job = await client.submit("echo")

    with pytest.raises(TimeoutError, match="QUEUED"):
        await client.wait(job.id, timeout=0.01)


# When it does not work


async def test_a_refusal_tells_status_and_field(client: AsyncClient) -> None:
    with pytest.raises(RequestRefused, match="priority") as refusal:
        await client.submit("echo", priority=10)
    assert (refusal.value.status, refusal.value.field) == (422, "priority")

    with pytest.raises(RequestRefused) as refusal:
        await client.submit("echo", at=datetime(2027, 2, 1))
    assert "offset" in str(refusal.value)

    with pytest.raises(RequestRefused) as refusal:
        await client.list(user_id="bob")
    assert (refusal.value.status, refusal.value.field) == (403, None)

    job = await client.submit("echo")
    await client.cancel(job.id)
    with pytest.raises(RequestRefused) as refusal:
        await client.reschedule(job.id, priority=1)
    assert refusal.value.status == 409


@pytest.mark.parametrize("job_id", ["01900000-0000-7000-8000-000000000000", "x", "a/b", "x?limit=1", "x#y", "ключ", ""])
async def test_an_id_that_names_nothing_is_not_found(client: AsyncClient, job_id: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        await client.get(job_id)

    assert refusal.value.status == 404


async def test_a_wrong_key_is_refused(url: str) -> None:
    async with AsyncClient(url, "rota_wrong") as stranger:
        with pytest.raises(RequestRefused) as refusal:
            await stranger.list()
    assert refusal.value.status == 401


def nobodys_address() -> str:
    with bind("127.0.0.1", 0) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_where_nobody_answers_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.TRIES", 2)
    address = nobodys_address()
    async with AsyncClient(address, "rota_x") as client:
        with pytest.raises(ServerUnreachable, match=address):
            await client.cancel("x")
        with pytest.raises(ServerUnreachable, match=address):
            await client.submit("echo")


async def test_a_server_without_its_database_is_unreachable_too(dsn: str, key: str) -> None:
    store = await PostgresStore.open(dsn)
    async with a_rota_server(store) as url, AsyncClient(url, key) as client:
        await store.aclose()

        with pytest.raises(ServerUnreachable):
            await client.cancel("01900000-0000-7000-8000-000000000000")


async def test_what_is_no_rota_server_is_told_apart() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()
        await writer.wait_closed()

    greeter = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with greeter, AsyncClient(f"http://127.0.0.1:{greeter.sockets[0].getsockname()[1]}", "rota_x") as client:
        with pytest.raises(RotaError):
            await client.cancel("x")


@dataclass
class Proxy:
    url: str
    answers_to_lose: int
    requests: int = 0


@asynccontextmanager
async def a_proxy(url: str, *, answers_to_lose: int) -> AsyncIterator[Proxy]:
    """Passes everything on, but hangs up where the first answers should come."""
    upstream = urlsplit(url)
    handlers: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            proxy.requests += any(piece.startswith(method) for method in (b"POST", b"GET", b"PATCH", b"DELETE"))
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(upstream.hostname, upstream.port)
        asking = asyncio.create_task(pass_on(reader, to_server))
        while piece := await from_server.read(65536):
            if proxy.answers_to_lose:
                proxy.answers_to_lose -= 1
                break
            writer.write(piece)
            await writer.drain()
        asking.cancel()
        to_server.close()
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(serve(reader, writer))
        handlers.add(handler)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy = Proxy(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", answers_to_lose)
    async with listening:
        yield proxy
    await asyncio.gather(*handlers)


async def test_a_submission_whose_answer_was_lost_is_one_job(url: str, key: str, client: AsyncClient) -> None:
    async with a_proxy(url, answers_to_lose=2) as proxy, AsyncClient(proxy.url, key) as cut_off:
        job = await cut_off.submit("echo", {"n": 1})

    assert proxy.requests == 3
    assert [each.id for each in (await client.list()).jobs] == [job.id]


async def test_a_batch_whose_answer_was_lost_is_stored_once(url: str, key: str, client: AsyncClient) -> None:
    async with a_proxy(url, answers_to_lose=1) as proxy, AsyncClient(proxy.url, key) as cut_off:
        jobs = await cut_off.submit_many([job_body("echo", {"n": n}) for n in range(3)])

    assert proxy.requests == 2
    assert {job.id for job in (await client.list()).jobs} == {job.id for job in jobs}


async def test_two_submissions_with_the_same_body_are_two_jobs(client: AsyncClient) -> None:
    assert (await client.submit("echo")).id != (await client.submit("echo")).id


async def test_a_look_whose_answer_was_lost_is_repeated(url: str, key: str, client: AsyncClient) -> None:
    job = await client.submit("echo")
    async with a_proxy(url, answers_to_lose=1) as proxy, AsyncClient(proxy.url, key) as cut_off:
        assert await cut_off.get(job.id) == await client.get(job.id)


async def test_what_is_not_safe_to_repeat_is_sent_once(
    url: str, key: str, client: AsyncClient, store: PostgresStore
) -> None:
    job = await client.submit("echo")
    await end_all(store)
    async with a_proxy(url, answers_to_lose=1) as proxy, AsyncClient(proxy.url, key) as cut_off:
        with pytest.raises(ServerUnreachable):
            await cut_off.run(job.id)

    assert proxy.requests == 1
    assert [each.run for each in (await client.executions()).executions] == [1, 0]


# Where the server is


async def test_the_server_and_its_key_are_found_in_the_environment(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", f"{url}/")
    monkeypatch.setenv("ROTA_API_KEY", key)

    async with AsyncClient() as client:
        assert (await client.submit("echo")).user_id == "ann"


async def test_the_server_and_its_key_are_found_in_the_data_folder(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ROTA_URL", "ROTA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROTA_DATA", str(tmp_path))
    (tmp_path / "url").write_text(url + "\n")
    (tmp_path / "admin.key").write_text(key + "\n")

    async with AsyncClient() as client:
        assert (await client.submit("echo")).user_id == "ann"


# The synchronous front


async def test_the_synchronous_client_does_the_same(url: str, key: str, store: PostgresStore, clock: FakeClock) -> None:
    def all_of_it() -> None:
        with Client(url, key) as client:
            job = client.submit("echo", {"n": 1}, at=FEBRUARY)
            assert client.get(job.id) == job
            assert client.list(status="scheduled").jobs == [job]
            assert client.reschedule(job.id, at="2027-03-01T00:00:00Z").next_fires_at == "2027-03-01T00:00:00.000Z"
            assert client.run(job.id).status == "QUEUED"
            assert client.cancel(job.id).status == "CANCELLED"
            assert client.wait(job.id, timeout=0).status == "CANCELLED"
            [batched] = client.submit_many([job_body("echo")])
            assert batched.last_execution
            assert client.cancel_execution(batched.last_execution.id).status == "CANCELLED"
            assert len(client.executions(job_id=job.id).executions) == 1
            assert client.execution(batched.last_execution.id).attempts == []
            assert client.dead_letters().executions == []
            assert client.redrive().redriven == []
            assert client.workers().workers == []
            with pytest.raises(RequestRefused) as refusal:
                client.get("x")
            assert refusal.value.status == 404
            with pytest.raises(TimeoutError):
                client.wait(client.submit("echo").id, timeout=0)

    await asyncio.to_thread(all_of_it)

    assert "rota-client" not in [thread.name for thread in threading.enumerate()]


async def test_every_call_of_the_asynchronous_client_has_its_synchronous_twin() -> None:
    calls = [name for name, call in vars(AsyncClient).items() if callable(call) and not name.startswith("_")]

    missing = [name for name in calls if name != "aclose" and not hasattr(Client, name)]

    assert missing == []
    for name in calls:
        if name != "aclose":
            assert getattr(Client, name).__doc__ == getattr(AsyncClient, name).__doc__


async def test_the_synchronous_client_is_unreachable_in_the_same_words() -> None:
    def ask() -> None:
        with Client(nobodys_address(), "rota_x") as client, pytest.raises(ServerUnreachable):
            client.cancel("x")

    await asyncio.to_thread(ask)
