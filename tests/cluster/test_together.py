"""Two of everything on one database."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from rota.client import AsyncClient, job_body
from rota.model.execution import Execution, Status
from rota.model.job import NewJob
from rota.model.keys import Scope
from rota.model.query import ExecutionFilter, Page
from rota.model.rules import Overlap
from rota.store.postgres.engine import PostgresStore
from tests.cluster.tasks import notes
from tests.support.jobs import a_recurring_job, submit
from tests.support.ports import free_ports
from tests.support.processes import a_rota, eventually

APP = "tests.cluster.tasks:app"
JOBS = 2000


async def test_two_servers_schedulers_and_workers_lose_nothing_and_double_nothing(
    dsn: str, live: PostgresStore, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    _, secret = await live.create_key("ann", [Scope.SUBMIT, Scope.READ])
    ports = free_ports(2)
    async with AsyncExitStack() as parts:
        for port in ports:
            await parts.enter_async_context(a_rota("server", "--database", dsn, "--port", str(port)))
            await parts.enter_async_context(a_rota("scheduler", "--database", dsn))
            await parts.enter_async_context(a_rota("worker", APP, "--database", dsn))
        servers = [AsyncClient(f"http://127.0.0.1:{port}", secret) for port in ports]
        for port, server in zip(ports, servers, strict=True):
            await parts.enter_async_context(server)
            await eventually(partial(is_ready, port))
        recurring = [
            recurring_note(file, await live.now(), n, Overlap(o)) for n in range(10) for o in ("skip", "allow")
        ]
        await submit(live, *recurring)
        bodies = [job_body("note", {"file": str(file), "text": f"job {n}"}) for n in range(JOBS)]
        answers = await asyncio.gather(
            *(servers[n % 2].submit_many(bodies[n * 100 : n * 100 + 100]) for n in range(JOBS // 100))
        )
        # The recurring jobs have a window of five seconds, so they end by themselves.
        await eventually(lambda: everything_ended(live))

    seen = Counter(notes(file))
    assert len({job.id for batch in answers for job in batch}) == JOBS
    assert all(seen[f"job {n}"] == 1 for n in range(JOBS))
    ended = [e for e in await all_executions(live) if e.recurring]
    for job in recurring:
        mine = [e for e in ended if e.job_id == job.id]
        accounted = sum(e.skipped_count or 1 for e in mine)
        assert accounted == 5, "every firing of the window ran, or a row says why not"
        assert len({e.fires_at for e in mine}) == len(mine)
    ran = sum(e.status is Status.COMPLETED for e in ended)
    assert sum(count for text, count in seen.items() if text.startswith("recurring")) == ran
    assert all(e.status is Status.COMPLETED for e in ended if e.job_id in {j.id for j in recurring[1::2]})


def recurring_note(file: Path, now: datetime, number: int, overlap: Overlap) -> NewJob:
    start, end = ((now + timedelta(seconds=seconds)).isoformat() for seconds in (1, 5))
    job = a_recurring_job("PT1S", now, overlap=overlap, start=start, end=end)
    parameters = msgspec.json.encode({"file": str(file), "text": f"recurring {number} {overlap}"}).decode()
    definition = msgspec.structs.replace(job.definition, task_id="note", parameters=parameters)
    return msgspec.structs.replace(job, definition=definition)


async def is_ready(port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def everything_ended(store: PostgresStore) -> bool:
    open_rows = (await store.db.look("select count(*) from executions"))[0][0]
    active = (await store.db.look("select count(*) from jobs where state = 'ACTIVE'"))[0][0]
    return bool(open_rows == 0 and active == 0)


async def all_executions(store: PostgresStore) -> list[Execution]:
    found: list[Execution] = []
    page = Page(1000)
    while True:
        part = await store.executions(ExecutionFilter(), page)
        found += part.items
        if part.next is None:
            return found
        page = Page(1000, part.next)
