"""A worker with real children and no database: only a server, and a line to it that may be cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from rota.model.errors import Conflict, Forbidden, StoreError, StoreUnavailable, Unauthenticated
from rota.model.execution import Claimed, Execution, Status
from rota.model.keys import Scope
from rota.model.retry import Crashed, Done, HandedBack, Outcome, Raised, Stopped, TimedOut
from rota.model.worker import LOOKAHEAD, NewWorker
from rota.store.postgres.engine import PostgresStore
from rota.worker.remote import RemoteSource
from rota.worker.supervisor import Supervisor, WorkerSettings
from tests.cluster.tasks import notes
from tests.server.calls import a_rota_server
from tests.support.cutting import a_cutting_proxy
from tests.support.jobs import a_job, ended, executions, submit
from tests.support.processes import eventually

APP = "tests.cluster.tasks:app"
ME = NewWorker(id="w-me", host="here", pid=1, queues=["default"], tasks=["echo", "noop"], concurrency=10)


@pytest.fixture
async def url(live: PostgresStore) -> AsyncIterator[str]:
    async with a_rota_server(live) as address:
        yield address


@pytest.fixture
async def key(live: PostgresStore) -> str:
    return (await live.create_key("machine", [Scope.WORK]))[1]


@pytest.fixture
async def source(url: str, key: str) -> AsyncIterator[RemoteSource]:
    async with RemoteSource(url, key) as remote:
        yield remote


@asynccontextmanager
async def a_remote_worker(source: RemoteSource, **settings: object) -> AsyncIterator[Supervisor]:
    stop = asyncio.Event()
    supervisor = Supervisor(source, source.woken, WorkerSettings(app=APP, children=1, **settings))  # type: ignore[arg-type]
    running = asyncio.create_task(supervisor.run(stop))
    try:
        await asyncio.wait([asyncio.create_task(supervisor.ready.wait()), running], return_when="FIRST_COMPLETED")
        yield supervisor
    finally:
        stop.set()
        await running


async def claimed(source: RemoteSource, lease_id: int = 1, *, worker_id: str = ME.id, limit: int = 10) -> list[Claimed]:
    handout = await source.claim(
        worker_id, queues=ME.queues, tasks=ME.tasks, limit=limit, lookahead=LOOKAHEAD, lease_id=lease_id
    )
    return handout.executions


async def all_ended(store: PostgresStore, count: int) -> list[Execution]:
    found = [e for e in await executions(store) if not e.is_open]
    return found if len(found) == count else []


def notes_to(tmp_path: Path, text: str, **more: object) -> str:
    return msgspec.json.encode({"file": str(tmp_path / "notes"), "text": text} | more).decode()


# A whole worker


async def test_jobs_run_and_their_results_and_errors_are_told(
    live: PostgresStore, source: RemoteSource, tmp_path: Path
) -> None:
    (tmp_path / "sign").touch()
    waiting = notes_to(tmp_path, "two", sign=str(tmp_path / "sign"))
    async with a_remote_worker(source):
        await submit(
            live,
            a_job("note", parameters=notes_to(tmp_path, "one")),
            a_job("begin_and_wait_for", parameters=waiting),
            a_job("note", parameters='{"wrong": 1}', max_retries=0),
            a_job("block", parameters=notes_to(tmp_path, "three", seconds=60), max_retries=0, timeout=0.2),
            a_job("crash", parameters=msgspec.json.encode({"file": str(tmp_path / "crashes")}).decode()),
        )
        after = await eventually(lambda: all_ended(live, 5))

    [noted, waited] = [e for e in after if e.status is Status.COMPLETED]
    assert {noted.result, waited.result} == {None, '"two"'}
    errors = sorted((e.error or "") for e in after if e.status is Status.FAILED)
    assert [error.split(":")[0].split(" ")[0] for error in errors] == ["Crashed", "TimedOut", "Traceback"]
    # A suspect of a crash may be a neighbour's victim first; alone, three are the end of it.
    assert len(notes(tmp_path / "crashes")) in (3, 4)


async def test_a_cancelled_job_is_stopped(live: PostgresStore, source: RemoteSource, tmp_path: Path) -> None:
    async with a_remote_worker(source):
        waiting = notes_to(tmp_path, "it", sign=str(tmp_path / "never"))
        [job] = await submit(live, a_job("begin_and_wait_for", parameters=waiting))

        async def began() -> bool:
            return len(notes(tmp_path / "notes")) == 1

        await eventually(began)
        await live.cancel_jobs([job.id])
        [after] = await eventually(lambda: all_ended(live, 1))

    assert after.status is Status.CANCELLED


async def test_answers_that_were_lost_lose_nothing_and_double_nothing(
    live: PostgresStore, url: str, key: str, tmp_path: Path
) -> None:
    async with a_cutting_proxy(url) as proxy, RemoteSource(proxy.url, key) as source, a_remote_worker(source):
        proxy.cut.update({"claim": 3, "finish": 3, "renew": 1, "give-back": 1})
        for n in range(50):
            await submit(live, a_job("note", parameters=notes_to(tmp_path, str(n))))

        async def told() -> bool:
            return proxy.cut["claim"] == proxy.cut["finish"] == 0

        await eventually(told)
        after = await eventually(lambda: all_ended(live, 50))

    assert {e.status for e in after} == {Status.COMPLETED}
    assert {e.failures for e in after} == {0}
    assert max(e.attempt for e in after) > 1, "a claim was lost and given back"
    assert sorted(notes(tmp_path / "notes"), key=int) == [str(n) for n in range(50)]


async def test_a_worker_that_was_declared_dead_comes_back_under_a_new_id(
    live: PostgresStore, source: RemoteSource, tmp_path: Path
) -> None:
    async with a_remote_worker(source):
        [before] = await live.workers()
        await live.db.fetch("update workers set state = 'DEAD', ended_at = now()")

        async def reborn() -> bool:
            return any(w.state == "ALIVE" and w.id != before.id for w in await live.workers())

        await eventually(reborn)
        await submit(live, a_job("note", parameters=notes_to(tmp_path, "after")))
        await eventually(lambda: all_ended(live, 1))

    assert notes(tmp_path / "notes") == ["after"]


async def test_a_worker_that_waits_for_work_ends_at_once(live: PostgresStore, source: RemoteSource) -> None:
    async with a_remote_worker(source):
        began = time.monotonic()

    # The claim would have waited for 20 s.
    assert time.monotonic() - began < 5
    assert {w.state for w in await live.workers()} == {"STOPPED"}


async def test_a_job_begins_as_soon_as_with_a_database(
    live: PostgresStore, source: RemoteSource, tmp_path: Path
) -> None:
    async with a_remote_worker(source):
        for n in range(10):
            await submit(live, a_job("note", parameters=notes_to(tmp_path, str(n))))
            await asyncio.sleep(0.25)
        after = await eventually(lambda: all_ended(live, 10))

    took = sorted((e.started_at - e.due_at).total_seconds() for e in after if e.started_at)
    # No waiting for a poll of 200 ms in it; the bound is wide because machines are busy.
    assert took[len(took) // 2] < 0.15


async def test_a_key_that_is_revoked_is_the_end_of_it(
    live: PostgresStore, source: RemoteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.server.auth.REMEMBERED", 0.0)
    assert await source.register(ME)
    [revoked] = await live.keys()
    await live.revoke_key(revoked.id)

    with pytest.raises(Unauthenticated, match="ROTA_API_KEY"):
        await source.renew(ME.id)
    assert isinstance(source.refused.result(), Unauthenticated)


async def test_a_wrong_key_is_said_at_once(live: PostgresStore, url: str) -> None:
    _, reader = await live.create_key("ann", [Scope.READ])
    for secret, error in (("rota_wrong", Unauthenticated), (reader, Forbidden)):
        async with RemoteSource(url, secret) as source:
            worker = Supervisor(source, source.woken, WorkerSettings(app=APP, children=1))
            with pytest.raises(error, match="scope `work`"):
                await worker.run(asyncio.Event())


# The promises of a source


OUTCOMES: list[tuple[Outcome, Status]] = [
    (Done(None), Status.COMPLETED),
    (Done('{"a":[1,null,"два"]}'), Status.COMPLETED),
    (Raised("no" * 8192), Status.RETRYING),
    (Raised("no", after=float("inf")), Status.RETRYING),
    (Raised("no", final=True), Status.FAILED),
    (TimedOut(3.0), Status.RETRYING),
    (Stopped(), Status.CANCELLED),
    (Crashed("code 9"), Status.RETRYING),
    (Crashed("code 9", alone=False), Status.RETRYING),
    (HandedBack(), Status.QUEUED),
    (HandedBack(5.0), Status.SCHEDULED),
]


@pytest.mark.parametrize(("outcome", "status"), OUTCOMES)
async def test_an_ending_counts_once_and_a_stale_one_changes_nothing(
    live: PostgresStore, source: RemoteSource, outcome: Outcome, status: Status
) -> None:
    await submit(live, a_job())
    await source.register(ME)
    [work] = await claimed(source)
    text = dict(source._texts)
    ending = ended(work, outcome, worker_id=ME.id)

    assert await source.finish([ending]) == []
    [after] = await executions(live)
    source._texts.update(text)
    assert await source.finish([ending]) == [], "told twice is as good as told once"
    source._texts.update(text)
    other = ended(work, Done() if status is Status.CANCELLED else Stopped(), worker_id=ME.id)
    assert await source.finish([other]) == [other]

    assert after.status is status
    assert [after] == await executions(live)


async def test_a_claim_is_what_the_store_would_have_given(live: PostgresStore, source: RemoteSource) -> None:
    await submit(live, a_job(parameters='{"a": 1.50}', priority=3, timeout=7.5))
    await source.register(ME)

    [work] = await claimed(source, lease_id=2**62 - 1)

    [stored] = await live.held(ME.id, older_than=LOOKAHEAD * 0)
    same = {name: getattr(stored, name) for name in ("key", "attempt", "task_id", "user_id", "priority", "lease_id")}
    assert {name: getattr(work, name) for name in same} == same
    assert msgspec.json.decode(work.parameters) == {"a": 1.5}
    assert work.policy == stored.policy
    [held] = await source.held(ME.id, older_than=LOOKAHEAD * 0)
    assert msgspec.structs.replace(held, due_in=work.due_in) == work
    assert await source.give_back(ME.id, [*range(1500), 2**62 - 1]) == 1
    assert (await executions(live))[0].status is Status.QUEUED


async def test_what_is_lost_and_what_is_refused(live: PostgresStore, source: RemoteSource, url: str, key: str) -> None:
    assert await source.register(ME)
    assert not await source.register(ME)
    assert (await source.renew(ME.id)).alive
    await source.retire(ME.id)
    assert not (await source.renew(ME.id)).alive
    assert await claimed(source) == [], "nothing for the dead, as from the store"

    async with RemoteSource("http://127.0.0.1:9", key) as nowhere:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await nowhere.renew(ME.id)
    async with RemoteSource(f"{url}/elsewhere", key) as elsewhere:
        with pytest.raises(StoreError, match="404") as refusal:
            await elsewhere.renew(ME.id)
    assert not isinstance(refusal.value, StoreUnavailable | Conflict)
