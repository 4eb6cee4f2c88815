"""The Python client: asynchronous, and a thin synchronous front over the same thing."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import msgspec
from yarl import URL

from rota.api import (
    BackfillPreview,
    BackfillsView,
    BackfillView,
    CalendarsView,
    CalendarView,
    ExecutionDetail,
    ExecutionsView,
    ExecutionView,
    JobsView,
    JobView,
    LedgerView,
    LogsView,
    RedriveView,
    WorkersView,
    WorkerView,
)
from rota.model.errors import RotaError
from rota.settings import ServerAddress, Settings

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "SKIPPED", "FINISHED"})
# A submission carries an idempotency key, so trying again is safe while the server or its database is away.
TRIES = 6
# Whoever waits for a job waits so long for a server that is away: databases change their primary in less.
LONGEST_AWAY = 60.0
_P = ParamSpec("_P")
_R = TypeVar("_R")
_View = TypeVar("_View")


class RequestRefused(RotaError):
    """The server said no: `status` is HTTP's, `field` names what was wrong if it was one field."""

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field


class ServerUnreachable(RotaError):
    """Nobody answers there, or only to say that the database is away."""


class NamedTask(Protocol):
    """What `@app.task` makes of a function."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> dict[str, Any]: ...


class AsyncClient:
    """`async with AsyncClient() as rota: await rota.submit("send_email", {"to": "…"}, cron="0 10 * * *")`"""

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        found = Settings.read().server()
        server = ServerAddress((url or found.url).rstrip("/"), api_key or found.api_key).checked()
        self._url, self._api_key = server.url, server.api_key
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def submit(
        self,
        /,
        task: str | NamedTask,
        parameters: dict[str, Any] | None = None,
        *,
        at: datetime | str | None = None,
        every: str | None = None,
        cron: str | None = None,
        rrule: str | None = None,
        tz: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> JobView:
        """One job: now, `at` an instant, `every` ISO 8601 duration, or by `cron` or `rrule` in the zone `tz`."""
        body = job_body(task, parameters, at=at, every=every, cron=cron, rrule=rrule, tz=tz, **options)
        return await self._send("POST", "/jobs", JobView, body=body, key=idempotency_key or str(uuid4()))

    async def submit_many(self, jobs: Iterable[dict[str, Any]], *, idempotency_key: str | None = None) -> list[JobView]:
        """Up to 10,000 jobs as `job_body` makes them, all or none of them."""
        body = {"jobs": list(jobs)}
        key = idempotency_key or str(uuid4())
        return (await self._send("POST", "/jobs/batch", JobsView, body=body, key=key)).jobs

    async def get(self, job_id: str) -> JobView:
        return await self._send("GET", _named("/jobs", job_id), JobView)

    async def list(self, /, *, limit: int = 50, page_token: str | None = None, **where: Any) -> JobsView:
        """A page of jobs; its `next_page_token` leads to the next."""
        return await self._send("GET", "/jobs", JobsView, query=where | {"limit": limit, "page_token": page_token})

    async def executions(self, /, *, limit: int = 50, page_token: str | None = None, **where: Any) -> ExecutionsView:
        query = where | {"limit": limit, "page_token": page_token}
        return await self._send("GET", "/executions", ExecutionsView, query=query)

    async def execution(self, execution_id: str) -> ExecutionDetail:
        return await self._send("GET", _named("/executions", execution_id), ExecutionDetail)

    async def logs(
        self, execution_id: str, *, attempt: int | None = None, after: str | None = None, limit: int = 1000
    ) -> LogsView:
        """What its attempts have logged, or one of them; its `next` leads to what comes after."""
        query = {"attempt": attempt, "after": after, "limit": limit}
        return await self._send("GET", _named("/executions", execution_id, "/logs"), LogsView, query=query)

    async def cancel(self, job_id: str) -> JobView:
        return await self._send("DELETE", _named("/jobs", job_id), JobView)

    async def cancel_execution(self, execution_id: str) -> ExecutionView:
        return await self._send("POST", _named("/executions", execution_id, "/cancel"), ExecutionView)

    async def reschedule(
        self,
        /,
        job_id: str,
        *,
        at: datetime | str | None = None,
        every: str | None = None,
        cron: str | None = None,
        rrule: str | None = None,
        tz: str | None = None,
        **changes: Any,
    ) -> JobView:
        """Another schedule, or other parameters, priority and so on: only what is named changes."""
        body = changes | schedule_body(at=at, every=every, cron=cron, rrule=rrule, tz=tz)
        return await self._send("PATCH", _named("/jobs", job_id), JobView, body=body)

    async def pause(self, job_id: str, *, note: str | None = None, until: datetime | str | None = None) -> JobView:
        """It fires nothing until it is resumed, or until then."""
        body = {"note": note, "until": None if until is None else _text(until)}
        return await self._send("POST", _named("/jobs", job_id, "/pause"), JobView, body=body)

    async def resume(self, job_id: str, *, catch_up: bool = False) -> JobView:
        body = {"catch_up": catch_up}
        return await self._send("POST", _named("/jobs", job_id, "/resume"), JobView, body=body)

    async def ledger(
        self,
        /,
        job_id: str,
        *,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> LedgerView:
        """Every firing expected between `start` (a week ago) and `end` (now), and what became of it."""
        query = {"from": start, "to": end, "limit": limit, "page_token": page_token}
        return await self._send("GET", _named("/jobs", job_id, "/ledger"), LedgerView, query=query)

    async def run(self, job_id: str) -> ExecutionView:
        return await self._send("POST", _named("/jobs", job_id, "/run"), ExecutionView)

    async def dead_letters(self, /, *, limit: int = 50, page_token: str | None = None, **where: Any) -> ExecutionsView:
        query = where | {"limit": limit, "page_token": page_token}
        return await self._send("GET", "/dead-letters", ExecutionsView, query=query)

    async def redrive(self, /, execution_ids: Iterable[str] | None = None, **where: Any) -> RedriveView:
        """These dead letters, or all that match."""
        body = where if execution_ids is None else {"executions": [*execution_ids]}
        return await self._send("POST", "/dead-letters/redrive", RedriveView, body=body)

    async def calendars(self, *, user_id: str | None = None) -> CalendarsView:
        return await self._send("GET", "/calendars", CalendarsView, query={"user_id": user_id})

    async def calendar(self, name: str, *, user_id: str | None = None) -> CalendarView:
        return await self._send("GET", _named("/calendars", name), CalendarView, query={"user_id": user_id})

    async def put_calendar(self, name: str, days: Iterable[str], *, user_id: str | None = None) -> CalendarView:
        """Days like `2027-12-25` or `2027-12-24/2027-12-26`; they replace those of a calendar of that name."""
        path, query = _named("/calendars", name), {"user_id": user_id}
        return await self._send("PUT", path, CalendarView, body={"days": [*days]}, query=query)

    async def delete_calendar(self, name: str, *, user_id: str | None = None) -> CalendarView:
        """What it was; refused while jobs refer to it."""
        return await self._send("DELETE", _named("/calendars", name), CalendarView, query={"user_id": user_id})

    async def backfill(
        self,
        job_id: str,
        start: datetime | str,
        end: datetime | str,
        *,
        max_parallel: int = 1,
        reprocess: str = "none",
    ) -> BackfillView:
        """Run the firings from `start` to `end`, both included, that never ran; `reprocess` also `failed` or `all`."""
        body = _backfill_body(start, end, max_parallel=max_parallel, reprocess=reprocess)
        return await self._send("POST", _named("/jobs", job_id, "/backfills"), BackfillView, body=body)

    async def preview_backfill(
        self,
        job_id: str,
        start: datetime | str,
        end: datetime | str,
        *,
        max_parallel: int = 1,
        reprocess: str = "none",
    ) -> BackfillPreview:
        """What `backfill` would do with the same; nothing is stored."""
        body = _backfill_body(start, end, max_parallel=max_parallel, reprocess=reprocess, dry_run=True)
        return await self._send("POST", _named("/jobs", job_id, "/backfills"), BackfillPreview, body=body)

    async def backfills(self, job_id: str) -> BackfillsView:
        return await self._send("GET", _named("/jobs", job_id, "/backfills"), BackfillsView)

    async def find_backfill(self, backfill_id: str) -> BackfillView:
        return await self._send("GET", _named("/backfills", backfill_id), BackfillView)

    async def cancel_backfill(self, backfill_id: str) -> BackfillView:
        return await self._send("DELETE", _named("/backfills", backfill_id), BackfillView)

    async def workers(self) -> WorkersView:
        return await self._send("GET", "/workers", WorkersView)

    async def tell_worker(self, worker_id: str, wish: str) -> WorkerView:
        """`pause`, `resume` or `drain`."""
        return await self._send("POST", _named("/workers", worker_id, f"/{wish}"), WorkerView)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:
        """The job once it has ended; TimeoutError if that takes longer. A server or database that is away for a while
        is waited for too."""
        deadline = None if timeout is None else time.monotonic() + timeout
        away_since: float | None = None
        pause = 0.02
        while True:
            try:
                if (job := await self.get(job_id)).status in ENDED:
                    return job
                away_since = None
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"The job is still {job.status}.")
            except ServerUnreachable:
                away_since = away_since or time.monotonic()
                if time.monotonic() >= min(deadline or float("inf"), away_since + LONGEST_AWAY):
                    raise
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.3)

    async def _send(
        self,
        method: str,
        path: str,
        view: type[_View],
        *,
        body: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> _View:
        # Without a key only reading is safe to repeat, and whoever reads can soon ask again.
        tries = TRIES if key is not None else 4 if method == "GET" else 1
        for turn in range(tries):
            try:
                return await self._once(method, path, view, body, query, key)
            except ServerUnreachable:
                if turn == tries - 1:
                    raise
                await asyncio.sleep(0.1 * 2**turn)
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: str,
        path: str,
        view: type[_View],
        body: dict[str, Any] | None,
        query: dict[str, Any] | None,
        key: str | None,
    ) -> _View:
        headers = {"Idempotency-Key": key} if key else {}
        params = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        payload = None if body is None else msgspec.json.encode(body)
        try:
            async with self._opened().request(
                method, URL(path, encoded=True), data=payload, params=params, headers=headers
            ) as response:
                content = await response.read()
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
            raise ServerUnreachable(
                f"There is no Rota server at {self._url}: {error or type(error).__name__}"
            ) from None
        if response.status >= 400:
            raise _refusal(response.status, content)
        try:
            return msgspec.json.decode(content, type=view)
        except msgspec.MsgspecError:
            raise ServerUnreachable(f"What answers at {self._url} is not a Rota server of this version.") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._api_key:
                headers["Authorization"] = f"Bearer {self._api_key}"
            timeout = aiohttp.ClientTimeout(total=60, connect=5)
            self._session = aiohttp.ClientSession(self._url, headers=headers, timeout=timeout)
        return self._session


def job_body(
    task: str | NamedTask,
    parameters: dict[str, Any] | None = None,
    *,
    at: datetime | str | None = None,
    every: str | None = None,
    cron: str | None = None,
    rrule: str | None = None,
    tz: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A job as the API takes it; a task's own options hold unless others are given."""
    name, defaults = (task, {}) if isinstance(task, str) else (task.name, task.options)
    schedule = schedule_body(at=at, every=every, cron=cron, rrule=rrule, tz=tz)
    return defaults | options | schedule | {"task_id": name, "parameters": parameters or {}}


def schedule_body(
    *, at: datetime | str | None, every: str | None, cron: str | None, rrule: str | None, tz: str | None
) -> dict[str, Any]:
    kinds = (("DATE", at), ("INTERVAL", every), ("CRON", cron), ("RRULE", rrule))
    given = [(kind, text) for kind, text in kinds if text is not None]
    if len(given) > 1:
        raise ValueError("at, every, cron and rrule exclude each other")
    body: dict[str, Any] = {} if tz is None else {"time_zone": tz}
    for kind, text in given:
        expression = text.isoformat() if isinstance(text, datetime) else text
        body["schedule"] = {"type": kind, "expression": expression}
    return body


def _backfill_body(start: datetime | str, end: datetime | str, **options: Any) -> dict[str, Any]:
    return {"from": _text(start), "to": _text(end)} | options


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _named(collection: str, name: str, verb: str = "") -> str:
    """The address of one thing; whatever was given as its id stays one part of the path."""
    if not name:
        raise RequestRefused(404, f"There is nothing without an id in {collection}.")
    return f"{collection}/{quote(name, safe='')}{verb}"


def _refusal(status: int, content: bytes) -> RotaError:
    try:
        problem = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = {}
    detail = str(problem.get("detail") or f"The server answered {status}.")
    if status == 503:
        return ServerUnreachable(detail)
    if status == 401:
        detail += " The client takes it from ROTA_API_KEY, or from the admin.key that `rota up` leaves in its folder."
    return RequestRefused(status, detail, problem.get("field"))


def _at_once(
    method: Callable[Concatenate[AsyncClient, _P], Awaitable[_R]],
) -> Callable[Concatenate[Client, _P], _R]:
    def call(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self.run_on_loop(method(self.asynchronous, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class Client:
    """The same, synchronous: every call is one of `AsyncClient`'s, run on a loop in a thread of its own."""

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rota-client", daemon=True)
        self._thread.start()
        self.asynchronous = AsyncClient(url, api_key)

    def run_on_loop(self, awaitable: Awaitable[_R]) -> _R:
        async def run() -> _R:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result()
        except BaseException:
            # A Ctrl-C ends the waiting here; the other thread should hear of it.
            future.cancel()
            raise

    submit = _at_once(AsyncClient.submit)
    submit_many = _at_once(AsyncClient.submit_many)
    get = _at_once(AsyncClient.get)
    list = _at_once(AsyncClient.list)
    executions = _at_once(AsyncClient.executions)
    execution = _at_once(AsyncClient.execution)
    logs = _at_once(AsyncClient.logs)
    cancel = _at_once(AsyncClient.cancel)
    cancel_execution = _at_once(AsyncClient.cancel_execution)
    reschedule = _at_once(AsyncClient.reschedule)
    pause = _at_once(AsyncClient.pause)
    resume = _at_once(AsyncClient.resume)
    ledger = _at_once(AsyncClient.ledger)
    run = _at_once(AsyncClient.run)
    dead_letters = _at_once(AsyncClient.dead_letters)
    redrive = _at_once(AsyncClient.redrive)
    calendars = _at_once(AsyncClient.calendars)
    calendar = _at_once(AsyncClient.calendar)
    put_calendar = _at_once(AsyncClient.put_calendar)
    delete_calendar = _at_once(AsyncClient.delete_calendar)
    backfill = _at_once(AsyncClient.backfill)
    preview_backfill = _at_once(AsyncClient.preview_backfill)
    backfills = _at_once(AsyncClient.backfills)
    find_backfill = _at_once(AsyncClient.find_backfill)
    cancel_backfill = _at_once(AsyncClient.cancel_backfill)
    workers = _at_once(AsyncClient.workers)
    tell_worker = _at_once(AsyncClient.tell_worker)
    wait = _at_once(AsyncClient.wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.run_on_loop(self.asynchronous.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
