"""The workload of the API: how fast jobs are accepted, and how fast they are found among millions that have ended."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self
from urllib.parse import urlsplit

import msgspec

from rota.bench.figures import summary
from rota.bench.load import Report
from rota.bench.stage import USER, BenchFailed, Stage, Tell
from rota.bench.usage import between

BATCH = 1000
PACE = 1000.0
READS = 3000
READERS = 4
USERS = 1000
CHUNK = 250_000
# Nobody has this task, so that accepting is all that happens.
JOB = {"task_id": "accepted", "parameters": {"a": 1}}
_FILL = """
insert into history (
    shard, job_id, fires_at, run, state, due_at, started_at, finished_at, user_id, task_id, queue, priority, parameters,
    recurring, attempt, failures, worker_id, lease_id, created_at
)
select
    0,
    (
        lpad(to_hex(n), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 13) || '00'
    )::uuid,
    f.at, 0, (case when n % 50 = 0 then 'FAILED' else 'COMPLETED' end)::ended_state, f.at, f.at, now(),
    $3 || '-' || n % $4, 'found', 'default', 0, '{}', false, 1, 0, 'w-bench', n, f.at
from generate_series($1::int, $2::int - 1) n
cross join lateral (
    select date_trunc('milliseconds', now()) - interval '30 days' + n * interval '200 milliseconds' as at
) f
"""


async def http(stage: Stage, tell: Tell, *, seconds: float, connections: int, rows: int) -> Report:
    """`rate` is that of jobs accepted in batches, `p50_ms` and so on those of single jobs at 1,000 a second."""
    headers = f"Host: bench\r\nAuthorization: Bearer {stage.key}\r\n"
    one, many = _post("/jobs", JOB, headers), _post("/jobs/batch", {"jobs": [JOB] * BATCH}, headers)
    before = stage.used()
    tell("single jobs, as fast as they go", None)
    single = await _flat_out(stage.url, one, seconds, connections)
    tell(f"single jobs, {PACE:g} a second", None)
    paced = await _paced(stage.url, one, seconds, connections)
    tell(f"batches of {BATCH}", None)
    batches = await _flat_out(stage.url, many, seconds, 2)
    used = between(before, stage.used())
    await _all_stored(stage, len(single) + len(paced) + BATCH * len(batches))
    await _fill(stage, tell, rows)
    tell("reading", None)
    ids = [row[0] for row in await stage.store.db.look(f"select job_id from history limit {READS} offset {rows // 2}")]
    random.shuffle(ids)
    found = await _each(stage.url, [_get(f"/jobs/{job_id}", headers) for job_id in ids])
    pages = [f"/jobs?user_id={USER}-{n}&status={status}" for n in range(USERS) for status in ("COMPLETED", "FAILED")]
    listed = await _each(stage.url, [_get(page, headers) for page in random.choices(pages, k=READS)])
    return {
        "rate": round(BATCH * len(batches) / seconds),
        **summary(paced),
        "single_per_s": round(len(single) / seconds),
        "single_flat_out": summary(single),
        "paced_at": PACE,
        "rows": rows,
        "job_by_id": summary(found),
        "list_by_user_and_status": summary(listed),
        "connections": connections,
        "processes": used,
    }


class _Connection:
    """HTTP/1.1 with as little Python as possible: the load should not be what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, request: bytes) -> float:
        """Milliseconds until the whole answer was there."""
        began = time.perf_counter()
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if not head.startswith(b"http/1.1 2"):
            raise BenchFailed(f"The server refused: {body.decode()[:500]}")
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        self._writer.close()


def _post(path: str, body: object, headers: str) -> bytes:
    content = msgspec.json.encode(body)
    return f"POST {path} HTTP/1.1\r\n{headers}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _get(path: str, headers: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode()


async def _flat_out(url: str, request: bytes, seconds: float, connections: int) -> list[float]:
    ends = time.perf_counter() + seconds

    async def one(connection: _Connection) -> list[float]:
        took = []
        while time.perf_counter() < ends:
            took.append(await connection.ask(request))
        return took

    return await _on_each(url, connections, one)


async def _paced(url: str, request: bytes, seconds: float, connections: int) -> list[float]:
    """Counted from when each request should have been sent: one that waits for a free connection is late too."""
    began, numbers = time.perf_counter(), iter(range(int(seconds * PACE)))

    async def one(connection: _Connection) -> list[float]:
        took = []
        for number in numbers:
            due = began + number / PACE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await connection.ask(request)
            took.append((time.perf_counter() - due) * 1000)
        return took

    return await _on_each(url, connections, one)


async def _each(url: str, requests: Sequence[bytes]) -> list[float]:
    left = iter(requests)

    async def one(connection: _Connection) -> list[float]:
        return [await connection.ask(request) for request in left]

    return await _on_each(url, READERS, one)


async def _on_each(url: str, connections: int, one: Callable[[_Connection], Awaitable[list[float]]]) -> list[float]:
    opened = [await _Connection.open(url) for _ in range(connections)]
    try:
        return [took for each in await asyncio.gather(*map(one, opened)) for took in each]
    finally:
        for connection in opened:
            connection.close()


async def _all_stored(stage: Stage, accepted: int) -> None:
    [[stored]] = await stage.store.db.look("select count(*) from executions")
    if stored != accepted:
        raise BenchFailed(f"The run did not pass its own check: {accepted} were accepted and {stored} are stored.")


async def _fill(stage: Stage, tell: Tell, rows: int) -> None:
    for first in range(0, rows, CHUNK):
        last = min(rows, first + CHUNK)
        tell(f"filling the history with {rows:,} rows", last / rows)
        await stage.store.db.fetch(_FILL, first, last, USER, USERS)
    await stage.store.db.fetch("vacuum analyze history")
