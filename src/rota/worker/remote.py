"""Work from a Rota server: what the store promises a worker, over HTTP (docs/worker-protocol.md)."""

from __future__ import annotations

import asyncio
import io
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar, assert_never

import aiohttp
import msgspec
from msgspec import Struct

from rota.model.capacity import Capacity, needs_in
from rota.model.definition import Policy, policy_text
from rota.model.errors import Conflict, Forbidden, RotaError, StoreError, StoreUnavailable, Unauthenticated
from rota.model.execution import Checkpoint, Claimed, Ending, ExecutionKey
from rota.model.log import NewLine
from rota.model.progress import NewProgress
from rota.model.retry import (
    LONGEST_WAIT,
    SUSPECT,
    Crashed,
    Done,
    HandedBack,
    LeaseLapsed,
    Outcome,
    Raised,
    Stopped,
    TimedOut,
    TooLate,
)
from rota.model.worker import Handout, NewWorker, Renewal, Wish

# How long a claim waits for work at the server.
WAIT = 20.0
# How long an answer may take, beyond any such waiting.
ANSWER = 15.0
CONNECT = 5.0
# Shorter than servers and proxies keep an idle connection, so that none is closed under a request.
KEEP_ALIVE = 4.0
# Below this, packing takes longer than sending.
WORTH_PACKING = 1024
GZIP = 31
MOST_ERROR = 8192
MOST_LEASES = 1000
MOST_LINES = 1000
# Said by something between us and the server; a Rota server says neither.
PASSING = frozenset({408, 429})
KEY_NEEDED = "A worker takes its key from ROTA_API_KEY; it needs the scope `work`."
_Answer = TypeVar("_Answer")


class _Execution(Struct, frozen=True):
    id: str
    task_id: str
    user_id: str
    parameters: msgspec.Raw
    attempt: int
    fires_at: datetime
    due_in: float
    timeout: float
    start_within: float | None
    resources: dict[str, float]
    result_location: str | None
    last_checkpoint: msgspec.Raw
    priority: int
    suspect: bool
    lease_id: int
    claim: str


class _Registered(Struct, frozen=True):
    registered: bool


class _Claims(Struct, frozen=True):
    executions: list[_Execution]
    cancelled: list[str] = []
    terminated: list[str] = []


class _Returned(Struct, frozen=True):
    returned: int


class _Renewed(Struct, frozen=True):
    alive: bool
    cancelled: list[str]
    terminated: list[str]
    wish: str | None = None


class _Finished(Struct, frozen=True):
    refused: list[str]


class _Told(Struct, frozen=True):
    kept: int


class RemoteSource:
    """A WorkSource. Counters and rules stay at the server: a claim is sent back as the signed text it came with, beside
    the outcome, and what follows from that is not ours to say."""

    def __init__(self, url: str, api_key: str) -> None:
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._session: aiohttp.ClientSession | None = None
        self._wake: Callable[[], None] = _nobody
        self._worker_id = ""
        # The claims held, by their lease and by their attempt.
        self._texts: dict[tuple[ExecutionKey, int], str] = {}
        self._by_attempt: dict[tuple[ExecutionKey, int], str] = {}
        # Why the server will have nothing to do with this key; trying again would not help.
        self.refused: asyncio.Future[RotaError] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def woken(self, callback: Callable[[], None]) -> AsyncIterator[None]:
        """The waiting claim is the hint: after one that waited in vain the next is sent at once."""
        self._wake = callback
        try:
            yield
        finally:
            self._wake = _nobody

    async def register(self, worker: NewWorker) -> bool:
        self._texts.clear()
        self._by_attempt.clear()
        self._worker_id = worker.id
        body = {
            "worker_id": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "queues": worker.queues,
            "tasks": worker.tasks,
            "concurrency": worker.concurrency,
            "resources": worker.resources,
            "labels": worker.labels,
        }
        return (await self._post("register", body, _Registered)).registered

    async def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Sequence[str],
        limit: int,
        lookahead: timedelta,
        lease_id: int,
        capacity: Capacity = Capacity(),  # noqa: B008 - frozen
        patience: float | None = None,
    ) -> Handout:
        """Waits for work where there is none. How far to look ahead is the server's to say."""
        body = {
            "worker_id": worker_id,
            "queues": queues,
            "tasks": tasks,
            "limit": limit,
            "wait": (wait := WAIT if patience is None else patience),
            "lease_id": lease_id,
            "capacity": capacity,
        }
        asked = time.monotonic()
        try:
            claims = await self._post("claim", body, _Claims, waiting=wait)
        except Conflict:
            # Declared dead. As from the store there is nothing for the dead; the next renewal says so.
            return Handout([], [])
        if not claims.executions and wait and time.monotonic() - asked >= wait / 2:
            self._wake()
        work = [self._claimed(each) for each in claims.executions]
        return Handout(work, _keys(claims.cancelled), _keys(claims.terminated))

    async def give_back(self, worker_id: str, lease_ids: Sequence[int]) -> int:
        returned = 0
        for begin in range(0, len(lease_ids), MOST_LEASES):
            body = {"worker_id": worker_id, "lease_ids": lease_ids[begin : begin + MOST_LEASES]}
            returned += (await self._post("give-back", body, _Returned)).returned
        return returned

    async def held(self, worker_id: str, *, older_than: timedelta) -> list[Claimed]:
        body = {"worker_id": worker_id, "older_than": older_than.total_seconds()}
        return [self._claimed(each) for each in (await self._post("held", body, _Claims)).executions]

    async def renew(self, worker_id: str) -> Renewal:
        renewed = await self._post("renew", {"worker_id": worker_id}, _Renewed)
        wish = Wish(renewed.wish) if renewed.wish else None
        return Renewal(renewed.alive, _keys(renewed.cancelled), _keys(renewed.terminated), wish)

    async def finish(self, endings: Sequence[Ending]) -> list[Ending]:
        if not endings:
            return []
        told = [_ending(ending, self._texts[ending.key, ending.lease_id]) for ending in endings]
        body = {"worker_id": endings[0].worker_id, "endings": told}
        refused = set((await self._post("finish", body, _Finished)).refused)
        for ending in endings:
            self._texts.pop((ending.key, ending.lease_id), None)
            self._by_attempt.pop((ending.key, ending.attempt), None)
        return [ending for ending in endings if str(ending.key) in refused] if refused else []

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        texts = [self._texts.get((each.key, each.lease_id)) for each in checkpoints]
        told = [
            {"claim": text, "value": msgspec.Raw(each.value.encode())}
            for each, text in zip(checkpoints, texts, strict=True)
            if text is not None
        ]
        body = {"worker_id": self._worker_id, "checkpoints": told}
        refused = set((await self._post("checkpoint", body, _Finished)).refused) if told else set()
        # One whose claim we hold no longer has ended, and is refused as the store would refuse it.
        return [each for each, text in zip(checkpoints, texts, strict=True) if text is None or str(each.key) in refused]

    async def keep_logs(self, lines: Sequence[NewLine]) -> None:
        told = [
            {"claim": text, "seq": line.seq, "ago": max(0.0, line.ago), "text": line.text}
            for line in lines
            if (text := self._claim_of(line))
        ]
        for begin in range(0, len(told), MOST_LINES):
            body = {"worker_id": self._worker_id, "lines": told[begin : begin + MOST_LINES]}
            await self._post("tell", body, _Told)

    async def note_progress(self, progress: Sequence[NewProgress]) -> None:
        told = [
            {"claim": text, "fraction": each.fraction, "note": each.note}
            for each in progress
            if (text := self._claim_of(each))
        ]
        await self._post("tell", {"worker_id": self._worker_id, "progress": told}, _Told)

    def _claim_of(self, told: NewLine | NewProgress) -> str | None:
        """What is told of an attempt goes with its claim; one that has ended needs to be told no more."""
        return self._by_attempt.get((ExecutionKey(told.job_id, told.fires_at, told.run), told.attempt))

    async def retire(self, worker_id: str) -> None:
        await self._post("renew", {"worker_id": worker_id, "leaving": True}, _Renewed)

    def _claimed(self, execution: _Execution) -> Claimed:
        key = ExecutionKey.parse(execution.id)
        self._texts[key, execution.lease_id] = execution.claim
        self._by_attempt[key, execution.attempt] = execution.claim
        return Claimed(
            job_id=key.job_id,
            fires_at=key.fires_at,
            run=key.run,
            attempt=execution.attempt,
            failures=0,
            crashes=SUSPECT if execution.suspect else 0,
            lapses=0,
            task_id=execution.task_id,
            user_id=execution.user_id,
            parameters=bytes(execution.parameters).decode(),
            policy=policy_text(
                Policy(
                    timeout=execution.timeout,
                    needs=needs_in(execution.resources),
                    result_location=execution.result_location,
                )
            ),
            priority=execution.priority,
            due_in=execution.due_in,
            lease_id=execution.lease_id,
            start_within=execution.start_within,
            checkpoint=None if (left := bytes(execution.last_checkpoint).decode()) == "null" else left,
        )

    async def _post(self, verb: str, body: dict[str, Any], kind: type[_Answer], *, waiting: float = 0.0) -> _Answer:
        content, headers = msgspec.json.encode(body), {}
        if len(content) >= WORTH_PACKING:
            content, headers = zlib.compress(content, 1, GZIP), {"Content-Encoding": "gzip"}
        try:
            async with self._opened().post(
                f"{self._url}/work/{verb}",
                data=io.BytesIO(content),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=waiting + ANSWER, connect=CONNECT),
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise StoreUnavailable(f"The server at {self._url} does not answer: {why}") from None
        if response.status != 200:
            raise self._refusal(response, answer)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError:
            raise StoreError(f"What answers at {self._url} is not a Rota server of this version.") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._api_key}", "Content-Type": "application/json"}
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self._session

    def _refusal(self, response: aiohttp.ClientResponse, answer: bytes) -> RotaError:
        status, detail = response.status, _detail(response, answer)
        said = f"The server at {self._url} answered {status}: {detail or 'it does not say why.'}"
        if status in (401, 403):
            return self._refuse((Unauthenticated if status == 401 else Forbidden)(f"{said} {KEY_NEEDED}"))
        if status == 409:
            return Conflict(said)
        if status in PASSING or (status >= 500 and not (status == 500 and detail)):
            return StoreUnavailable(said)
        # About what was sent, or at an address that is none of ours: the same again would get the same answer.
        return StoreError(said)

    def _refuse(self, error: RotaError) -> RotaError:
        if not self.refused.done():
            self.refused.set_result(error)
        return error


def _nobody() -> None:
    pass


def _keys(texts: list[str]) -> list[ExecutionKey]:
    return [ExecutionKey.parse(text) for text in texts]


def _ending(ending: Ending, claim: str) -> dict[str, object]:
    told = {"claim": claim} | _outcome(ending.outcome)
    if ending.started_ago is not None:
        told["started_ago"] = max(0.0, ending.started_ago)
    return told


def _outcome(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Done(result):
            return {"outcome": "completed"} | ({"result": msgspec.Raw(result.encode())} if result else {})
        case Raised(error, after, final):
            wish = None if after is None else min(after, LONGEST_WAIT)
            return {"outcome": "failed", "error": error[-MOST_ERROR:], "retry_after": wish, "final": final}
        case TimedOut():
            return {"outcome": "timed_out"}
        case Stopped():
            return {"outcome": "cancelled"}
        case Crashed(detail, alone):
            return {"outcome": "crashed", "error": detail[-MOST_ERROR:], "alone": alone}
        case HandedBack(after):
            return {"outcome": "released", "retry_after": after}
        case TooLate():
            return {"outcome": "too_late"}
        case LeaseLapsed():
            raise ValueError("a lapsed lease is the reaper's word")
        case _:
            assert_never(outcome)


def _detail(response: aiohttp.ClientResponse, answer: bytes) -> str:
    """What a Rota server says of it; nothing where something else answers."""
    if response.content_type != "application/problem+json":
        return ""
    try:
        return str(msgspec.json.decode(answer, type=dict[str, Any]).get("detail", ""))
    except msgspec.MsgspecError:
        return ""
