"""Work for remote workers: claim, renew, finish over plain HTTP. docs/worker-protocol.md tells the other side."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from rota.loop import pause
from rota.model.capacity import Capacity
from rota.model.definition import policy_of
from rota.model.errors import Conflict, InvalidField
from rota.model.execution import MOST_CHECKPOINT, Claimed, ExecutionKey, checkpoint_of
from rota.model.instants import print_instant
from rota.model.log import MOST_LINE, NewLine, cut, storable
from rota.model.progress import MOST_NOTE, NewProgress
from rota.model.retry import (
    Crashed,
    Done,
    HandedBack,
    Outcome,
    Raised,
    Stopped,
    TimedOut,
    TooLate,
    ending_for,
    timeout_of,
)
from rota.model.worker import LEASE, LOOKAHEAD, Handout, NewWorker, Wish
from rota.server.bodies import Name
from rota.server.http import MANY, Call, answer, packed_answer

POLL = 0.2
# Who found something asks again at once, and work seldom comes alone: at first the next look comes before any hint.
BUSY_FOR = 1.0
BUSY_POLL = 0.02
SIGNATURE = 16
MOST_ERROR = 8192
_Names = Annotated[list[Name], Meta(min_length=1, max_length=1000)]
_LeaseId = Annotated[int, Meta(ge=0, lt=2**62)]


class RegisterBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    tasks: _Names
    queues: _Names = msgspec.field(default_factory=lambda: ["default"])
    concurrency: Annotated[int, Meta(ge=1, le=100_000)] = 100
    host: Name = "remote"
    pid: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    resources: dict[str, float] = {}
    labels: Annotated[list[Name], Meta(max_length=100)] = []


class RegisterOut(Struct, frozen=True):
    """Not `registered`: that id was used before; make another."""

    registered: bool


class ClaimBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker makes its own id, fresh for each life, and a lease id per call, so that a lost answer can be undone."""

    worker_id: Name
    tasks: _Names
    queues: _Names = msgspec.field(default_factory=lambda: ["default"])
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    wait: Annotated[float, Meta(ge=0, le=20, description="How long to wait for work, in seconds.")] = 0.0
    lease_id: _LeaseId | None = None
    host: Name = "remote"
    capacity: Capacity = Capacity()


class ClaimedOut(Struct, frozen=True):
    id: str
    task_id: str
    user_id: str
    parameters: Any
    attempt: int
    fires_at: str
    due_in: float
    timeout: float
    last_checkpoint: Any
    start_within: float | None
    resources: dict[str, float]
    result_location: str | None
    priority: int
    # A process died under it before: let it run in one of its own.
    suspect: bool
    lease_id: int
    claim: str


class ClaimOut(Struct, frozen=True):
    """Begin each execution `due_in` seconds after the answer, not before. Stop what is `cancelled`, kill what is
    `terminated` too."""

    executions: list[ClaimedOut]
    cancelled: list[str]
    terminated: list[str]
    lease_seconds: float


class GiveBackBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    lease_ids: Annotated[list[_LeaseId], Meta(max_length=1000)]


class GiveBackOut(Struct, frozen=True):
    returned: int


class HeldBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    older_than: Annotated[float, Meta(ge=0, le=31_622_400, description="Seconds.")] = 60.0


class HeldOut(Struct, frozen=True):
    executions: list[ClaimedOut]


class RenewBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    leaving: bool = False


class RenewOut(Struct, frozen=True):
    """Not `alive` is final: stop everything and come back under a new id."""

    alive: bool
    cancelled: list[str]
    terminated: list[str]
    wish: Wish | None = None


class EndingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`claim` is the text that came with the execution."""

    claim: str
    outcome: Literal["completed", "failed", "timed_out", "cancelled", "crashed", "too_late", "released"]
    result: Any = None
    error: Annotated[str, Meta(max_length=MOST_ERROR)] = ""
    retry_after: Annotated[float, Meta(ge=0, le=31_622_400)] | None = None
    final: bool = False
    alone: Annotated[bool, Meta(description="Whether nothing else ran in the process that crashed.")] = True
    started_ago: Annotated[float, Meta(ge=0, le=31_622_400)] | None = None


class FinishBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    endings: Annotated[list[EndingBody], Meta(max_length=1000)]


class CheckpointIn(Struct, frozen=True, forbid_unknown_fields=True):
    """`claim` is the text that came with the execution, `value` JSON of up to 64 KiB for the next attempt."""

    claim: str
    value: Any


class CheckpointBody(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: Name
    checkpoints: Annotated[list[CheckpointIn], Meta(max_length=1000)]


class CheckpointOut(Struct, frozen=True):
    """The refused changed nothing: their lease was over."""

    refused: list[str]


class LineIn(Struct, frozen=True, forbid_unknown_fields=True):
    claim: str
    seq: Annotated[int, Meta(ge=0, lt=2**31)]
    ago: Annotated[float, Meta(ge=0, le=86_400)]
    text: Annotated[str, Meta(max_length=MOST_LINE)]


class ProgressIn(Struct, frozen=True, forbid_unknown_fields=True):
    claim: str
    fraction: Annotated[float, Meta(ge=0, le=1)]
    note: Annotated[str, Meta(max_length=MOST_NOTE)] = ""


class TellBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What attempts log, and how far they are; lines told twice are shown once."""

    worker_id: Name
    lines: Annotated[list[LineIn], Meta(max_length=1000)] = []
    progress: Annotated[list[ProgressIn], Meta(max_length=1000)] = []


class TellOut(Struct, frozen=True):
    kept: int


class FinishOut(Struct, frozen=True):
    """The refused changed nothing: their lease was over."""

    refused: list[str]


_register = msgspec.json.Decoder(RegisterBody)
_claim = msgspec.json.Decoder(ClaimBody)
_give_back = msgspec.json.Decoder(GiveBackBody)
_held = msgspec.json.Decoder(HeldBody)
_renew = msgspec.json.Decoder(RenewBody)
_finish = msgspec.json.Decoder(FinishBody)
_checkpoint = msgspec.json.Decoder(CheckpointBody)
_tell = msgspec.json.Decoder(TellBody)
_token = msgspec.msgpack.Decoder(Claimed)


async def register(call: Call) -> Response:
    body, _ = await call.body(_register)
    worker = NewWorker(
        id=body.worker_id,
        host=body.host,
        pid=body.pid,
        queues=body.queues,
        tasks=body.tasks,
        concurrency=body.concurrency,
        resources=body.resources,
        labels=body.labels,
    )
    return answer(RegisterOut(await call.store.register(worker)))


async def claim(call: Call) -> Response:
    body, _ = await call.body(_claim)
    handout = await _claim_within(call, body)
    secret = await call.services.claim_secret()
    executions = [_claimed_out(claimed, secret) for claimed in handout.executions]
    out = ClaimOut(executions, _texts(handout.cancelled), _texts(handout.terminated), LEASE.total_seconds())
    return packed_answer(call.request, out)


async def _make_known(call: Call, body: ClaimBody) -> None:
    worker = NewWorker(
        id=body.worker_id, host=body.host, pid=0, queues=body.queues, tasks=body.tasks, concurrency=body.limit
    )
    if not await call.store.register(worker) and not (await call.store.renew(body.worker_id)).alive:
        raise Conflict(f"Worker {body.worker_id!r} was declared dead or has left; come back under a new id.")


async def _claim_within(call: Call, body: ClaimBody) -> Handout:
    """Looks again at every hint and every now and then, until there is something or the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body.wait
    wake = asyncio.Event()
    known = False
    lease_id = secrets.randbits(62) if body.lease_id is None else body.lease_id
    with call.services.hints.listening(wake):
        while True:
            wake.clear()
            handout = await call.store.claim(
                body.worker_id,
                queues=body.queues,
                tasks=body.tasks,
                limit=body.limit,
                lookahead=LOOKAHEAD,
                lease_id=lease_id,
                capacity=body.capacity,
            )
            if await call.request.is_disconnected():
                # Nobody hears the answer, so what it brings is given back at once.
                await call.store.give_back(body.worker_id, [lease_id])
                return Handout([], [])
            if handout.executions:
                return handout
            if not known:
                # Only the living find something, so only who found nothing is looked at.
                await _make_known(call, body)
                known = True
                continue
            left = deadline - loop.time()
            if handout.cancelled or left <= 0 or call.services.hints.closed:
                return handout
            poll = BUSY_POLL if left > body.wait - BUSY_FOR else POLL
            await pause(min(poll, left), wake)


def _claimed_out(claimed: Claimed, secret: bytes) -> ClaimedOut:
    policy = policy_of(claimed.policy)
    return ClaimedOut(
        id=str(claimed.key),
        task_id=claimed.task_id,
        user_id=claimed.user_id,
        parameters=msgspec.Raw(claimed.parameters.encode()),
        attempt=claimed.attempt,
        fires_at=print_instant(claimed.fires_at),
        due_in=max(0.0, claimed.due_in),
        timeout=timeout_of(claimed, policy),
        last_checkpoint=None if claimed.checkpoint is None else msgspec.Raw(claimed.checkpoint.encode()),
        start_within=claimed.start_within,
        resources=policy.needs.resources,
        result_location=policy.result_location,
        priority=claimed.priority,
        suspect=claimed.crashes > 0,
        lease_id=claimed.lease_id,
        claim=_claim_text(claimed, secret),
    )


def _claim_text(claimed: Claimed, secret: bytes) -> str:
    """All that the ending needs, signed, so that nobody has to look it up: the worker sends it back as it is."""
    slim = msgspec.msgpack.encode(msgspec.structs.replace(claimed, parameters="", checkpoint=None))
    return base64.urlsafe_b64encode(_signature(slim, secret) + slim).decode()


def _claim_in(text: str, field: str, secret: bytes) -> Claimed:
    try:
        signed = base64.urlsafe_b64decode(text.encode("ascii"))
    except (binascii.Error, ValueError):
        signed = b""
    signature, slim = signed[:SIGNATURE], signed[SIGNATURE:]
    if not hmac.compare_digest(signature, _signature(slim, secret)):
        raise InvalidField(field, "is not the text that came with an execution")
    return _token.decode(slim)


def _signature(slim: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, slim, "sha256")[:SIGNATURE]


async def give_back(call: Call) -> Response:
    body, _ = await call.body(_give_back)
    return answer(GiveBackOut(await call.store.give_back(body.worker_id, body.lease_ids)))


async def held(call: Call) -> Response:
    body, _ = await call.body(_held)
    claims = await call.store.held(body.worker_id, older_than=timedelta(seconds=body.older_than))
    secret = await call.services.claim_secret()
    return packed_answer(call.request, HeldOut([_claimed_out(claimed, secret) for claimed in claims]))


async def renew(call: Call) -> Response:
    body, _ = await call.body(_renew)
    if body.leaving:
        await call.store.retire(body.worker_id)
        return answer(RenewOut(False, [], []))
    renewal = await call.store.renew(body.worker_id)
    return answer(RenewOut(renewal.alive, _texts(renewal.cancelled), _texts(renewal.terminated), renewal.wish))


async def tell(call: Call) -> Response:
    body, _ = await call.body(_tell, MANY)
    secret = await call.services.claim_secret()
    lines = [
        NewLine(*_attempt(told.claim, f"lines[{n}].claim", secret), told.seq, told.ago, cut(told.text))
        for n, told in enumerate(body.lines)
    ]
    progress = [
        NewProgress(*_attempt(told.claim, f"progress[{n}].claim", secret), told.fraction, storable(told.note))
        for n, told in enumerate(body.progress)
    ]
    if lines:
        await call.store.keep_logs(lines)
    if progress:
        await call.store.note_progress(progress)
    return answer(TellOut(len(lines) + len(progress)))


def _attempt(claim: str, field: str, secret: bytes) -> tuple[UUID, datetime, int, int]:
    claimed = _claim_in(claim, field, secret)
    return claimed.job_id, claimed.fires_at, claimed.run, claimed.attempt


async def checkpoint(call: Call) -> Response:
    body, _ = await call.body(_checkpoint, MANY)
    secret = await call.services.claim_secret()
    claims = [_claim_in(told.claim, f"checkpoints[{n}].claim", secret) for n, told in enumerate(body.checkpoints)]
    values = [_checkpoint_value(told.value, f"checkpoints[{n}].value") for n, told in enumerate(body.checkpoints)]
    checkpoints = [checkpoint_of(claimed, value) for claimed, value in zip(claims, values, strict=True)]
    return answer(CheckpointOut([str(refused.key) for refused in await call.store.checkpoint(checkpoints)]))


def _checkpoint_value(value: Any, field: str) -> str:
    text = msgspec.json.encode(value)
    if len(text) > MOST_CHECKPOINT:
        raise InvalidField(field, f"has {len(text)} bytes of JSON; {MOST_CHECKPOINT} are kept at most")
    return text.decode()


async def finish(call: Call) -> Response:
    body, _ = await call.body(_finish, MANY)
    secret = await call.services.claim_secret()
    claims = [_claim_in(ending.claim, f"endings[{place}].claim", secret) for place, ending in enumerate(body.endings)]
    endings = [
        ending_for(claimed, _outcome(told, claimed, place), worker_id=body.worker_id, started_ago=told.started_ago)
        for place, (told, claimed) in enumerate(zip(body.endings, claims, strict=True))
    ]
    return answer(FinishOut([str(ending.key) for ending in await call.store.finish(endings)]))


def _outcome(ending: EndingBody, claimed: Claimed, place: int) -> Outcome:
    if "\0" in ending.error:
        raise InvalidField(f"endings[{place}].error", "contains a NUL character; remove it")
    match ending.outcome:
        case "completed":
            return Done(None if ending.result is None else msgspec.json.encode(ending.result).decode())
        case "failed":
            return Raised(ending.error, ending.retry_after, ending.final)
        case "timed_out":
            return TimedOut(policy_of(claimed.policy).timeout)
        case "cancelled":
            return Stopped()
        case "crashed":
            return Crashed(ending.error, ending.alone)
        case "too_late":
            return TooLate()
        case "released":
            return HandedBack(ending.retry_after)


def _texts(keys: list[ExecutionKey]) -> list[str]:
    return [str(key) for key in keys]
