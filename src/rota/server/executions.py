"""Executions, dead letters and workers over HTTP."""

from __future__ import annotations

from uuid import UUID

import msgspec
from starlette.responses import Response

from rota.api import ExecutionDetail, ExecutionsView, LogsView, RedriveView, RefusedView, WorkersView
from rota.model.errors import Conflict, InvalidField, NotFound, quoted
from rota.model.execution import Execution, ExecutionKey, Status, statuses_named
from rota.model.log import LogPosition
from rota.model.query import ExecutionFilter, Page, Slice, print_token
from rota.model.worker import Wish
from rota.server.answers import attempt_view, execution_view, log_line_view, worker_view
from rota.server.bodies import RedriveBody
from rota.server.http import Call, answer
from rota.server.jobs import instant_in, job_of, page_in

LIST = ("worker_id", "user_id", "status", "job_id", "task_id", "start_time", "end_time", "limit", "page_token")
LOGS = ("attempt", "after", "limit")
OF_JOB = ("status", "start_time", "end_time", "limit", "page_token")
LETTERS = ("user_id", "task_id", "start_time", "end_time", "limit", "page_token")
REDRIVEN_AT_ONCE = 1000
_redrive = msgspec.json.Decoder(RedriveBody)


async def list_all(call: Call) -> Response:
    asked = call.query()
    job_id = _uuid(asked["job_id"]) if "job_id" in asked else None
    return _answer(await call.store.executions(_filter(call, asked, job_id), page_in(asked)))


async def list_of_job(call: Call) -> Response:
    asked = call.query()
    job = await job_of(call)
    return _answer(await call.store.executions(_filter(call, asked, job.id), page_in(asked)))


def _filter(call: Call, asked: dict[str, str], job_id: UUID | None) -> ExecutionFilter:
    return ExecutionFilter(
        user_id=call.user_asked_for(asked.get("user_id")),
        statuses=_statuses(asked["status"]) if "status" in asked else None,
        job_id=job_id,
        task_id=asked.get("task_id"),
        worker_id=asked.get("worker_id"),
        start=instant_in(asked, "start_time"),
        end=instant_in(asked, "end_time"),
    )


def _statuses(word: str) -> frozenset[Status]:
    statuses = statuses_named(word)
    if not statuses:
        raise InvalidField("status", f"{quoted(word)} is not a status; there are {', '.join([*Status, 'PENDING'])}")
    return statuses


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidField("job_id", "is not a job id; they are UUIDs") from None


def _answer(found: Slice[Execution]) -> Response:
    token = print_token(found.next) if found.next else None
    return answer(ExecutionsView([execution_view(execution) for execution in found.items], token))


async def look(call: Call) -> Response:
    execution = await _execution_of(call)
    attempts = await call.store.attempts(execution.key)
    return answer(ExecutionDetail(execution_view(execution), [attempt_view(attempt) for attempt in attempts]))


async def logs(call: Call) -> Response:
    asked = call.query()
    limit = page_in(asked).limit
    after = LogPosition.parse(asked["after"]) if "after" in asked else LogPosition()
    attempt = _attempt(asked["attempt"]) if "attempt" in asked else None
    execution = await _execution_of(call)
    # One more than asked for tells whether there is a next page.
    found = await call.store.logs(execution.key, attempt=attempt, after=after, limit=limit + 1)
    lines = found[:limit]
    more = str(lines[-1].position) if len(found) > limit else None
    return answer(LogsView([log_line_view(line) for line in lines], more))


def _attempt(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidField("attempt", "must be a whole number")
    return int(text)


async def _execution_of(call: Call) -> Execution:
    text = call.request.path_params["id"]
    try:
        key = ExecutionKey.parse(text)
    except InvalidField:
        raise NotFound("execution", text) from None
    for execution in await call.store.find_executions([key]):
        if call.may_see(execution.definition.user_id):
            return execution
    raise NotFound("execution", text)


async def cancel(call: Call) -> Response:
    execution = await _execution_of(call)
    if not execution.is_open and execution.status is not Status.CANCELLED:
        raise Conflict(f"The execution is {execution.status} and cannot be cancelled any more.")
    await call.store.cancel_executions([execution.key])
    return answer(execution_view(await _execution_of(call)))


async def dead_letters(call: Call) -> Response:
    asked = call.query()
    return _answer(await call.store.dead_letters(_filter(call, asked, None), page_in(asked)))


async def redrive(call: Call) -> Response:
    body, _ = await call.body(_redrive)
    if body.executions is not None and (body.user_id is not None or body.task_id is not None):
        raise InvalidField("executions", "names what to redrive; leave out the filter, or the names")
    keys = await (_named(call, body.executions) if body.executions is not None else _matching(call, body))
    again, refused = await call.store.redrive(keys)
    refusals = [RefusedView(str(refusal.key), refusal.reason) for refusal in refused]
    return answer(RedriveView([str(key) for key in again], refusals))


async def _named(call: Call, ids: list[str]) -> list[ExecutionKey]:
    """Only one's own: another's letter is as unknown as one that never was."""
    keys = [ExecutionKey.parse(text) for text in ids]
    found = [*await call.store.find_letters(keys), *await call.store.find_executions(keys)]
    mine = {execution.key for execution in found if call.may_see(execution.definition.user_id)}
    for key in keys:
        if key not in mine:
            raise NotFound("dead letter", str(key))
    return keys


async def _matching(call: Call, body: RedriveBody) -> list[ExecutionKey]:
    """The newest thousand that match; call again for the rest."""
    where = ExecutionFilter(user_id=call.user_asked_for(body.user_id), task_id=body.task_id)
    found = await call.store.dead_letters(where, Page(REDRIVEN_AT_ONCE))
    return [letter.key for letter in found.items]


async def pause_worker(call: Call) -> Response:
    return await _wish(call, Wish.PAUSE)


async def resume_worker(call: Call) -> Response:
    return await _wish(call, None)


async def drain_worker(call: Call) -> Response:
    return await _wish(call, Wish.DRAIN)


async def _wish(call: Call, wish: Wish | None) -> Response:
    """Told to it with its next renewal, within three seconds."""
    worker_id = call.request.path_params["id"]
    known = {worker.id: worker for worker in await call.store.workers()}
    if worker_id not in known:
        raise NotFound("worker", worker_id)
    if not await call.store.wish(worker_id, wish):
        raise Conflict(f"The worker is {known[worker_id].state}; only one that is ALIVE can be told anything.")
    return answer(worker_view(msgspec.structs.replace(known[worker_id], wish=wish)))


async def workers(call: Call) -> Response:
    return answer(WorkersView([worker_view(worker) for worker in await call.store.workers()]))
