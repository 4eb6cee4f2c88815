"""The HTTP server: the table of its endpoints, and the way a request takes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rota.api import (
    BackfillPreview,
    BackfillsView,
    BackfillView,
    CalendarsView,
    CalendarView,
    ExecutionDetail,
    ExecutionsView,
    ExecutionView,
    HealthView,
    JobsView,
    JobView,
    LedgerView,
    LogsView,
    RedriveView,
    WorkersView,
    WorkerView,
)
from rota.model.errors import InvalidField, RotaError, StoreError, StoreUnavailable, Unauthenticated
from rota.model.keys import Principal, Scope
from rota.server import backfills, calendars, executions, jobs, ledger, schedules, work
from rota.server.auth import Authenticator
from rota.server.bodies import BatchBody, JobBody, JobPatch, PauseBody, RedriveBody, ResumeBody
from rota.server.docs import docs_page
from rota.server.hints import Hints
from rota.server.http import Call, Endpoint, Handler, answer
from rota.server.openapi import openapi
from rota.server.problems import Problem, problem_of
from rota.server.submitter import Submitter
from rota.store.protocol import Store

log = logging.getLogger(__name__)
KEY = ("Idempotency-Key",)


async def healthy(call: Call) -> Response:
    return answer(HealthView("ok"))


async def ready(call: Call) -> Response:
    await call.store.now()
    return answer(HealthView("ready"))


def _get(path: str, handler: Handler, summary: str, answer: type, scope: Scope | None, *query: str) -> Endpoint:
    return Endpoint(method="GET", path=path, handler=handler, summary=summary, answer=answer, scope=scope, query=query)


def _do(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    answer: type,
    scope: Scope,
    *,
    body: type | None = None,
    status: int = 200,
    query: tuple[str, ...] = (),
    headers: tuple[str, ...] = (),
    dry: type | None = None,
) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        answer=answer,
        scope=scope,
        body=body,
        status=status,
        query=query,
        headers=headers,
        dry=dry,
    )


ENDPOINTS = [
    _do("POST", "/jobs", jobs.create, "Submit a job", JobView, Scope.SUBMIT, body=JobBody, status=201, headers=KEY),
    _do("POST", "/jobs/batch", jobs.create_many, "Submit up to 10,000 jobs, all or nothing", JobsView, Scope.SUBMIT,
        body=BatchBody, status=201, headers=KEY),
    _get("/jobs", jobs.list_all, "List jobs, newest firing first", JobsView, Scope.READ, *jobs.LIST),
    _get("/jobs/{id}", jobs.look, "One job", JobView, Scope.READ),
    _do("PATCH", "/jobs/{id}", jobs.change, "Reschedule or edit a job", JobView, Scope.SUBMIT, body=JobPatch),
    _do("DELETE", "/jobs/{id}", jobs.cancel, "Cancel a job", JobView, Scope.SUBMIT),
    _do("POST", "/jobs/{id}/run", jobs.run, "Run a job now, once more", ExecutionView, Scope.SUBMIT, status=201),
    _do("POST", "/jobs/{id}/pause", jobs.pause, "Pause a recurring job", JobView, Scope.SUBMIT, body=PauseBody),
    _do("POST", "/jobs/{id}/resume", jobs.resume, "Resume a paused job", JobView, Scope.SUBMIT, body=ResumeBody),
    _get("/jobs/{id}/ledger", ledger.look, "Every expected firing and what became of it", LedgerView, Scope.READ,
         *ledger.QUERY),
    _get("/jobs/{id}/executions", executions.list_of_job, "Executions of one job", ExecutionsView, Scope.READ,
         *executions.OF_JOB),
    _do("POST", "/jobs/{id}/backfills", backfills.create, "Run past firings of a recurring job", BackfillView,
        Scope.SUBMIT, body=backfills.BackfillBody, status=201, dry=BackfillPreview),
    _get("/jobs/{id}/backfills", backfills.list_of_job, "Backfills of one job", BackfillsView, Scope.READ),
    _get("/backfills/{id}", backfills.look, "One backfill", BackfillView, Scope.READ),
    _do("DELETE", "/backfills/{id}", backfills.cancel, "Cancel a backfill", BackfillView, Scope.SUBMIT),
    _get("/executions", executions.list_all, "List executions", ExecutionsView, Scope.READ, *executions.LIST),
    _get("/executions/{id}", executions.look, "One execution with its attempts", ExecutionDetail, Scope.READ),
    _get("/executions/{id}/logs", executions.logs, "What its attempts have logged", LogsView, Scope.READ,
         *executions.LOGS),
    _do("POST", "/executions/{id}/cancel", executions.cancel, "Cancel one execution", ExecutionView, Scope.SUBMIT),
    _get("/dead-letters", executions.dead_letters, "Executions that failed for good", ExecutionsView, Scope.READ,
         *executions.LETTERS),
    _do("POST", "/dead-letters/redrive", executions.redrive, "Run dead letters again", RedriveView, Scope.SUBMIT,
        body=RedriveBody),
    _do("POST", "/schedules/preview", schedules.preview, "What a schedule would do", schedules.PreviewView, Scope.READ,
        body=schedules.PreviewBody),
    _get("/calendars", calendars.list_all, "List calendars", CalendarsView, Scope.READ, *calendars.QUERY),
    _get("/calendars/{name}", calendars.look, "One calendar", CalendarView, Scope.READ, *calendars.QUERY),
    _do("PUT", "/calendars/{name}", calendars.put, "Make or replace a calendar", CalendarView, Scope.SUBMIT,
        body=calendars.CalendarBody, query=calendars.QUERY),
    _do("DELETE", "/calendars/{name}", calendars.delete, "Delete a calendar", CalendarView, Scope.SUBMIT,
        query=calendars.QUERY),
    _get("/workers", executions.workers, "The workers", WorkersView, Scope.WORK),
    _do("POST", "/workers/{id}/pause", executions.pause_worker, "A worker claims nothing for now", WorkerView,
        Scope.ADMIN),
    _do("POST", "/workers/{id}/resume", executions.resume_worker, "A paused worker goes on", WorkerView, Scope.ADMIN),
    _do("POST", "/workers/{id}/drain", executions.drain_worker, "A worker ends when what runs has ended", WorkerView,
        Scope.ADMIN),
    _do("POST", "/work/register", work.register, "Make a worker known", work.RegisterOut, Scope.WORK,
        body=work.RegisterBody),
    _do("POST", "/work/claim", work.claim, "Claim work (for workers)", work.ClaimOut, Scope.WORK, body=work.ClaimBody),
    _do("POST", "/work/give-back", work.give_back, "Give back claims whose answers were lost", work.GiveBackOut,
        Scope.WORK, body=work.GiveBackBody),
    _do("POST", "/work/held", work.held, "What a worker is believed to hold", work.HeldOut, Scope.WORK,
        body=work.HeldBody),
    _do("POST", "/work/renew", work.renew, "Renew a worker's lease", work.RenewOut, Scope.WORK, body=work.RenewBody),
    _do("POST", "/work/checkpoint", work.checkpoint, "Keep where attempts have got to", work.CheckpointOut, Scope.WORK,
        body=work.CheckpointBody),
    _do("POST", "/work/tell", work.tell, "What attempts log, and how far they are", work.TellOut, Scope.WORK,
        body=work.TellBody),
    _do("POST", "/work/finish", work.finish, "End attempts", work.FinishOut, Scope.WORK, body=work.FinishBody),
    _get("/healthz", healthy, "The process is up", HealthView, None),
    _get("/readyz", ready, "The store answers", HealthView, None),
]  # fmt: skip


class Services:
    """What handlers share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret: bytes | None = None
        self.submitter = Submitter(store)
        self.hints = Hints()

    async def claim_secret(self) -> bytes:
        if self._secret is None:
            self._secret = await self._store.secret()
        return self._secret


NOBODY = Principal("", frozenset())


def create_app(store: Store) -> Starlette:
    authenticator = Authenticator(store)
    services = Services(store)

    def route(path: str, endpoints: list[Endpoint]) -> Route:
        by_method = {endpoint.method: endpoint for endpoint in endpoints}

        async def handle(request: Request) -> Response:
            endpoint = by_method["GET" if request.method == "HEAD" else request.method]
            principal = NOBODY
            if endpoint.scope is not None:
                principal = await authenticator.principal(request.headers.get("authorization"), endpoint.scope)
            _only_known(request, endpoint)
            return await endpoint.handler(Call(request, principal, store, services))

        return Route(path, _guarded(handle), methods=list(by_method))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with store.woken(services.hints.tell):
            yield

    paths: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, []).append(endpoint)
    document = msgspec.json.encode(openapi(ENDPOINTS))
    app = Starlette(
        routes=[
            *(route(path, endpoints) for path, endpoints in paths.items()),
            Route("/openapi.json", lambda _: Response(document, media_type="application/json")),
            Route("/docs", lambda request: HTMLResponse(docs_page(ENDPOINTS, str(request.base_url)))),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _plain},
    )
    app.state.hints = services.hints
    return app


def _only_known(request: Request, endpoint: Endpoint) -> None:
    for name in request.query_params:
        if name not in endpoint.query:
            known = f"there are {', '.join(endpoint.query)}" if endpoint.query else "there are none"
            raise InvalidField(name[:80], f"is not a parameter of this address; {known}")


def _guarded(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Every error leaves as a problem; what we did not foresee as one without details."""

    async def guarded(request: Request) -> Response:
        try:
            return await handle(request)
        except RotaError as error:
            if isinstance(error, StoreError):
                log.error("request failed method=%s path=%s error=%s", request.method, request.url.path, error)
            return _problem(problem_of(error), error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.url.path)
            return _problem(Problem("Something went wrong here", 500, "It is our fault, and it has been logged."))

    return guarded


def _problem(problem: Problem, error: Exception | None = None) -> Response:
    headers = {}
    if isinstance(error, StoreUnavailable):
        headers["Retry-After"] = "1"
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode(problem)
    return Response(body, problem.status, headers, media_type="application/problem+json")


async def _plain(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = {404: "There is nothing at this address; see /docs.", 405: "This address does not take that method."}
    problem = Problem(error.detail, error.status_code, hint.get(error.status_code, error.detail))
    return Response(
        msgspec.json.encode(problem), problem.status, error.headers or {}, media_type="application/problem+json"
    )
