"""Submits the jobs of a benchmark, in a process of its own as an application would; its plan comes by stdin."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from msgspec import Struct

from rota.bench.witness import checksum, count_in
from rota.loop import settle
from rota.model.definition import Definition
from rota.model.job import NewJob, new_job_id
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Accepted, Submission

BATCH = 1000
# How many batches are under way at once: one is built while another is stored.
ABREAST = 2
# How often we tell how far we are.
TOLD_EVERY = 0.1


class Plan(Struct, frozen=True):
    """Exactly one of `count`, `seconds` and `rate` + `seconds` says when it ends.

    - `count`: that many, due at `at` or now.
    - `seconds`: as many as the workers take, with at most `window` open at a time; `folder` has what has run.
    - `rate`: so many a second, each submitted `ahead` seconds before it is due.
    """

    dsn: str
    task_id: str
    user_ids: list[str]
    url: str | None = None
    count: int | None = None
    at: float | None = None
    seconds: float = 0.0
    window: int = 0
    folder: str = ""
    rate: float = 0.0
    starts_at: float = 0.0
    ahead: float = 0.0


class Told(Struct, frozen=True):
    submitted: int
    checksum: int = 0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    is_over: bool = False


class Producer:
    def __init__(self, plan: Plan, submit: Callable[[list[NewJob]], Awaitable[list[bytes]]]) -> None:
        self._plan = plan
        self._submit = submit
        users = [Definition(user_id=user, task_id=plan.task_id) for user in plan.user_ids]
        self._definitions = itertools.cycle(users)
        self.ids: list[bytes] = []
        self._told_at = 0.0

    async def run(self) -> None:
        if self._plan.rate:
            await self._paced()
        elif self._plan.count is not None:
            await self._abreast(self._batches(self._plan.count))
        else:
            await self._held()

    def _jobs(self, dues: Sequence[datetime | None]) -> list[NewJob]:
        return [NewJob(id=new_job_id(1), definition=next(self._definitions), fires_at=due) for due in dues]

    def _batches(self, count: int) -> Iterator[list[NewJob]]:
        due = None if self._plan.at is None else _instant(self._plan.at)
        for begin in range(0, count, BATCH):
            yield self._jobs([due] * min(BATCH, count - begin))

    async def _abreast(self, batches: Iterator[list[NewJob]]) -> None:
        async def one_after_another() -> None:
            for batch in batches:
                await self._send(batch)

        await asyncio.gather(*(one_after_another() for _ in range(ABREAST)))

    async def _held(self) -> None:
        """Never more open than the window, so that what is measured goes on and on and does not pile up."""
        ends, asked, folder = time.monotonic() + self._plan.seconds, 0, Path(self._plan.folder)

        async def one_after_another() -> None:
            nonlocal asked
            while time.monotonic() < ends:
                if asked + BATCH - count_in(folder) > self._plan.window:
                    await asyncio.sleep(0.005)
                    continue
                asked += BATCH
                await self._send(self._jobs([None] * BATCH))

        await asyncio.gather(*(one_after_another() for _ in range(ABREAST)))

    async def _paced(self) -> None:
        rate, sent, total = self._plan.rate, 0, int(self._plan.rate * self._plan.seconds)
        step = max(0.02, BATCH / 2 / rate)
        while sent < total:
            until = min(total, int((time.time() + self._plan.ahead + step - self._plan.starts_at) * rate))
            while sent < until:
                end = min(until, sent + BATCH)
                await self._send(self._jobs([_instant(self._plan.starts_at + k / rate) for k in range(sent, end)]))
                sent = end
            await asyncio.sleep(step)
        # Adding up millions of ids takes the processor from those that are still to start.
        await asyncio.sleep(self._plan.ahead)

    async def _send(self, jobs: list[NewJob]) -> None:
        self.ids += await self._submit(jobs)
        if time.monotonic() - self._told_at >= TOLD_EVERY:
            self._told_at = time.monotonic()
            _say(Told(len(self.ids)))


def _instant(seconds: float) -> datetime:
    """Of whole milliseconds, as all due times."""
    return datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC)


def _say(told: Told) -> None:
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    sys.stdout.flush()


def _to_store(store: PostgresStore) -> Callable[[list[NewJob]], Awaitable[list[bytes]]]:
    async def submit(jobs: list[NewJob]) -> list[bytes]:
        [receipt] = await store.submit([Submission(jobs)])
        assert isinstance(receipt, Accepted)
        return [job.id.bytes for job in jobs]

    return submit


def _to_server(session: aiohttp.ClientSession) -> Callable[[list[NewJob]], Awaitable[list[bytes]]]:
    """Ids are the server's to give; its answer names them."""
    decode = msgspec.json.Decoder(_Answer).decode

    async def submit(jobs: list[NewJob]) -> list[bytes]:
        body = msgspec.json.encode({"jobs": [_body(job) for job in jobs]})
        async with session.post("/jobs/batch", data=body) as answer:
            answer.raise_for_status()
            return [bytes.fromhex(job.id.replace("-", "")) for job in decode(await answer.read()).jobs]

    return submit


class _Named(Struct):
    id: str


class _Answer(Struct):
    jobs: list[_Named]


def _body(job: NewJob) -> dict[str, object]:
    definition = job.definition
    body: dict[str, object] = {"task_id": definition.task_id, "user_id": definition.user_id}
    return body if job.fires_at is None else body | {"schedule": job.fires_at.isoformat()}


async def main(plan: Plan) -> None:
    async with AsyncExitStack() as stack:
        store = await PostgresStore.open(plan.dsn)
        stack.push_async_callback(store.aclose)
        submit = _to_store(store)
        if plan.url is not None:
            headers = {"Authorization": f"Bearer {os.environ['ROTA_API_KEY']}"}
            submit = _to_server(await stack.enter_async_context(aiohttp.ClientSession(plan.url, headers=headers)))
        settle()
        producer = Producer(plan, submit)
        cpu = time.process_time()
        await producer.run()
        cpu_s = round(time.process_time() - cpu, 2)
        memory_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        _say(Told(len(producer.ids), checksum(producer.ids), cpu_s, memory_mb, is_over=True))


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)))
