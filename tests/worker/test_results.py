"""Results that go to a location: real files, and a bucket of a small server on the loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings

from rota.model.errors import InvalidField
from rota.model.execution import Status
from rota.model.location import checked_location
from rota.model.retry import Done, Outcome, Raised, Stopped, TimedOut
from rota.settings import ResultSettings
from rota.store.postgres.engine import PostgresStore
from rota.worker.children import WorkerBroken
from rota.worker.executor import MOST_RESULT, execute
from rota.worker.results import Locations
from rota.worker.supervisor import Supervisor, WorkerSettings
from rota.worker.tasks import App
from tests.model.test_location import ANYTHING_BELOW
from tests.support.context import EXECUTION, JOB, a_context
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import eventually
from tests.worker.test_supervisor import a_supervisor, ended

LONG = 60.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "var" / "reports"


@pytest.fixture
def locations(folder: Path) -> Locations:
    return Locations({"reports": folder.as_uri()})


async def result_of(
    value: Any, locations: Locations, threads: ThreadPoolExecutor, wish: str | None = "reports", timeout: float = LONG
) -> Outcome:
    task = App().task("task")(lambda: value)
    return await execute(task, "{}", timeout, threads, a_context(), result_location=wish, locations=locations)


def kept_at(place: str, size: int, kind: str = "application/json") -> Done:
    kept = {"result_location": place, "bytes": size, "content_type": kind}
    return Done(msgspec.json.encode(kept).decode())


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# Files


async def test_a_result_is_written_where_the_job_wants_it(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    outcome = await result_of({"sent": 3}, locations, threads, "reports/{fires_at}/{attempt}.json")

    assert outcome == kept_at("reports/20270104T110000Z/3.json", 10)
    assert files(folder) == {"20270104T110000Z/3.json": b'{"sent":3}'}


async def test_without_a_path_it_goes_by_job_and_execution(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    assert await result_of(None, locations, threads) == kept_at(f"reports/{JOB}/{EXECUTION}.json", 4)
    assert files(folder) == {f"{JOB}/{EXECUTION}.json": b"null"}


async def test_a_result_of_any_size_is_written(folder: Path, locations: Locations, threads: ThreadPoolExecutor) -> None:
    large = "x" * (20 * 1024 * 1024)

    outcome = await result_of(large, locations, threads, "reports/large")

    assert outcome == kept_at("reports/large", len(large) + 2)
    assert files(folder) == {"large": f'"{large}"'.encode()}


async def test_a_large_result_without_a_location_says_what_to_do(
    locations: Locations, threads: ThreadPoolExecutor
) -> None:
    outcome = await result_of("x" * MOST_RESULT, locations, threads, None)

    assert isinstance(outcome, Raised) and outcome.final and "Give the job a result_location" in outcome.error


@pytest.mark.parametrize("value", [b"\0\xff", bytearray(b"\0\xff"), memoryview(b"\0-\xff")[::2]])
async def test_bytes_are_written_as_they_are(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor, value: Any
) -> None:
    outcome = await result_of(value, locations, threads, "reports/raw")

    assert outcome == kept_at("reports/raw", 2, "application/octet-stream")
    assert files(folder) == {"raw": b"\0\xff"}


async def test_a_later_attempt_replaces_what_an_earlier_one_wrote(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    await result_of("the first and longer one", locations, threads, "reports/x")
    await result_of("second", locations, threads, "reports/x")

    assert files(folder) == {"x": b'"second"'}


async def test_what_json_does_not_have_is_a_final_failure_and_nothing_is_written(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    outcome = await result_of(object(), locations, threads)

    assert isinstance(outcome, Raised) and outcome.final
    assert files(folder) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(wish=ANYTHING_BELOW)
@example(wish="reports/a/b")
@example(wish="reports/a")
def test_nothing_is_ever_written_outside(tmp_path: Path, folder: Path, wish: str) -> None:
    """What the check lets through is a file below the folder to the store too, under that very name."""
    with ThreadPoolExecutor(1) as threads:
        outcome = asyncio.run(result_of(1, Locations({"reports": folder.as_uri()}), threads, wish))

    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    if isinstance(outcome, Done):
        place = msgspec.json.decode(outcome.result or "")["result_location"]
        assert written == [folder / place.removeprefix("reports/")]
        # With its folders: to the next example one of them may be the name of a file.
        shutil.rmtree(folder)
    else:
        assert written == []
        with pytest.raises(InvalidField):
            checked_location(wish)


# Places that there are not


@pytest.mark.parametrize(
    ("wish", "reason"), [("archive/x", "knows no result location 'archive'"), ("reports/../x", "result_location: ")]
)
async def test_a_place_that_cannot_be_is_known_before_the_task_begins(
    locations: Locations, threads: ThreadPoolExecutor, wish: str, reason: str
) -> None:
    calls: list[str] = []
    task = App().task("task")(lambda: calls.append("began"))

    outcome = await execute(task, "{}", LONG, threads, a_context(), result_location=wish, locations=locations)

    assert isinstance(outcome, Raised) and outcome.final and reason in outcome.error
    assert calls == []


@pytest.mark.parametrize("link", ["folder", "file"])
async def test_a_link_below_a_location_does_not_lead_out_of_it(
    tmp_path: Path, folder: Path, locations: Locations, threads: ThreadPoolExecutor, link: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (folder / "a").mkdir(parents=True)
    if link == "folder":
        (folder / "a" / "b").symlink_to(outside)
    else:
        (folder / "a" / "b").mkdir()
        (folder / "a" / "b" / "x").symlink_to(outside / "x")

    outcome = await result_of("ours", locations, threads, "reports/a/b/x")

    assert isinstance(outcome, Raised) and outcome.final and "leads out of it" in outcome.error
    assert files(outside) == {"x": b"theirs"}


async def test_a_link_that_leads_to_itself_is_no_place(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    folder.mkdir(parents=True)
    (folder / "a").symlink_to(folder / "a")

    outcome = await result_of("ours", locations, threads, "reports/a/x")

    assert isinstance(outcome, Raised)


async def test_however_its_url_is_spelt_a_folder_is_not_left(
    tmp_path: Path, folder: Path, threads: ThreadPoolExecutor
) -> None:
    folder.mkdir(parents=True)
    (folder / "up").symlink_to(tmp_path)
    shouted = Locations({"reports": folder.as_uri().replace("file", "FILE")})

    outcome = await result_of(1, shouted, threads, "reports/up/x")

    assert isinstance(outcome, Raised) and "leads out of it" in outcome.error


async def test_the_location_itself_may_be_a_link(tmp_path: Path, folder: Path, threads: ThreadPoolExecutor) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    linked = Locations({"reports": (tmp_path / "link").as_uri()})

    assert await result_of(1, linked, threads, "reports/x") == kept_at("reports/x", 1)
    assert files(folder) == {"x": b"1"}


async def test_a_result_that_cannot_be_written_is_worth_a_retry(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    folder.mkdir(parents=True)
    (folder / "a").write_text("not a folder")

    outcome = await result_of(1, locations, threads, "reports/a/x")

    assert isinstance(outcome, Raised) and not outcome.final
    assert outcome.error.startswith("the result could not be written to reports/a/x: ")


async def test_a_location_that_cannot_be_opened_is_worth_a_retry(folder: Path, threads: ThreadPoolExecutor) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("not a folder")

    outcome = await result_of(1, Locations({"reports": folder.as_uri()}), threads)

    assert isinstance(outcome, Raised) and not outcome.final
    assert outcome.error.startswith("the result location 'reports' cannot be opened: ")


# A bucket


class Bucket:
    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.refuses = False
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def put(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.set()
        await self.answers.wait()
        if self.refuses:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        self.objects[request.path] = body, request.headers["Content-Type"]
        return web.Response(headers={"ETag": '"1"'})


@pytest.fixture
async def bucket(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    bucket = Bucket()
    async with a_site(bucket) as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "us")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield bucket


@asynccontextmanager
async def a_site(bucket: Bucket) -> AsyncIterator[str]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_put("/{key:.*}", bucket.put)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        bucket.answers.set()
        await runner.cleanup()


@pytest.fixture
def archive(bucket: Bucket) -> Locations:
    return Locations({"archive": "s3://things/kept"})


async def test_a_result_goes_to_a_bucket_below_its_prefix(
    bucket: Bucket, archive: Locations, threads: ThreadPoolExecutor
) -> None:
    assert await result_of([1], archive, threads, "archive/a b/x.json") == kept_at("archive/a b/x.json", 3)
    assert await result_of(b"\0", archive, threads, "archive/raw") == kept_at(
        "archive/raw", 1, "application/octet-stream"
    )
    assert bucket.objects == {
        "/things/kept/a b/x.json": (b"[1]", "application/json"),
        "/things/kept/raw": (b"\0", "application/octet-stream"),
    }


async def test_a_bucket_that_refuses_is_worth_a_retry(
    bucket: Bucket, archive: Locations, threads: ThreadPoolExecutor
) -> None:
    bucket.refuses = True

    outcome = await result_of(1, archive, threads, "archive/x")

    assert isinstance(outcome, Raised) and not outcome.final
    assert outcome.error.startswith("the result could not be written to archive/x: ")
    assert "secret" not in outcome.error


async def test_an_upload_counts_within_the_time_of_its_attempt(
    bucket: Bucket, archive: Locations, threads: ThreadPoolExecutor
) -> None:
    bucket.answers.clear()

    assert await result_of(1, archive, threads, "archive/x", timeout=0.5) == TimedOut(0.5)
    assert bucket.asked.is_set()


async def test_an_upload_is_stopped_when_asked(bucket: Bucket, archive: Locations, threads: ThreadPoolExecutor) -> None:
    bucket.answers.clear()
    attempt = asyncio.create_task(result_of(1, archive, threads, "archive/x"))
    await bucket.asked.wait()

    attempt.cancel()

    assert await attempt == Stopped()


async def test_what_came_too_late_is_not_uploaded(
    bucket: Bucket, archive: Locations, threads: ThreadPoolExecutor
) -> None:
    @App().task("clings")
    async def clings() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in the end"
        return "in time"

    outcome = await execute(clings, "{}", 0.3, threads, a_context(), result_location="archive/x", locations=archive)

    assert outcome == TimedOut(0.3)
    assert not bucket.asked.is_set()


# What the operator says


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", {}),
        ("reports=file:///var/rota", {"reports": "file:///var/rota"}),
        (" a=s3://b/p , b-1=gs://c,", {"a": "s3://b/p", "b-1": "gs://c"}),
        ("x=abfss://c@account.dfs.core.windows.net/p", {"x": "abfss://c@account.dfs.core.windows.net/p"}),
    ],
)
def test_the_operator_names_locations(monkeypatch: pytest.MonkeyPatch, text: str, named: dict[str, str]) -> None:
    monkeypatch.setenv("ROTA_RESULT_LOCATIONS", text)

    assert ResultSettings.read().locations == named


@pytest.mark.parametrize(
    "text",
    [
        "reports",
        "=file:///x",
        "Reports=file:///x",
        "a/b=file:///x",
        "reports=/var/rota",
        "reports=file://var/rota",
        "reports=file:///",
        "reports=file:x",
        "reports=http://example.org/x",
        "reports=memory:///",
        "reports=s3:///x",
        "reports=s3://b/x?y=1",
        "a=file:///x,a=file:///y",
    ],
)
def test_what_is_no_location_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ROTA_RESULT_LOCATIONS", text)

    with pytest.raises(InvalidField, match="ROTA_RESULT_LOCATIONS: "):
        ResultSettings.read()


# A worker


async def test_a_worker_writes_results_to_their_locations(
    live: PostgresStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RESULT_LOCATIONS", f"reports={folder.as_uri()}")
    async with a_supervisor(live, live):
        [job] = await submit(live, a_job("echo", parameters='{"a":1}', result_location="reports/{job_id}-{attempt}"))
        [lost] = await submit(live, a_job("echo", result_location="archive/x"))
        [plain] = await submit(live, a_job("echo", parameters='{"a":1}'))
        await eventually(lambda: ended(live, 3))

    by_job = {e.job_id: e for e in await executions(live)}
    assert files(folder) == {f"{job.id}-1": b'{"a":1}'}
    assert Done(by_job[job.id].result) == kept_at(f"reports/{job.id}-1", 7)
    assert by_job[plain.id].result == '{"a":1}'
    assert (by_job[lost.id].status, by_job[lost.id].attempt) == (Status.FAILED, 1)
    assert "knows no result location 'archive'" in (by_job[lost.id].error or "")


async def test_a_worker_with_locations_that_cannot_be_says_so(
    live: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RESULT_LOCATIONS", "reports=/var/rota")
    broken = Supervisor(live, live.woken, WorkerSettings(children=1))

    with pytest.raises(WorkerBroken, match="ROTA_RESULT_LOCATIONS"):
        await broken.run(asyncio.Event())


async def test_an_unfinished_file_is_never_seen(
    folder: Path, locations: Locations, threads: ThreadPoolExecutor
) -> None:
    """Whoever has opened the old file reads the old result to its end."""
    await result_of("old", locations, threads, "reports/x")
    reader = os.open(folder / "x", os.O_RDONLY)

    await result_of("new", locations, threads, "reports/x")

    try:
        assert os.read(reader, 100) == b'"old"'
    finally:
        os.close(reader)
