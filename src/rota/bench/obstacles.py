"""Workloads that measure throughput with something in its way: depth, crowd, snapshot."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from msgspec.structs import replace

from rota.bench.load import WINDOW, Report, a_plan, checked, cost, sustained
from rota.bench.stage import USER, BenchFailed, Stage, Tell
from rota.bench.usage import between
from rota.bench.witness import FLOOD, TASKS
from rota.model.capacity import Needs
from rota.model.definition import Definition, Gate, Policy, policy_text
from rota.model.job import BUCKETS, bucket_of

FEW = 10_000
CHUNK = 250_000
IN_THE_WAY = "in-the-way"
# What stands in the way has ids as wide and as ordered as those of real jobs.
_FILL = """
insert into executions (
    shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy, recurring,
    exclusive, created_at, gate
)
select
    0,
    (
        lpad(to_hex(n), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 13) || '00'
    )::uuid,
    f.at, 0, $3, f.at, $4, $5, $6, 0, '{}', $7, false, false, now(), $8
from generate_series($1::int, $2::int - 1) n
cross join lateral (
    select date_trunc('milliseconds', now()) + $9::interval + n * interval '1 millisecond' as at
) f
"""


async def depth(stage: Stage, tell: Tell, *, pending: int, seconds: float) -> Report:
    """Throughput with so many future executions stored in the same lane, against the same with 10,000."""
    await stage.start_worker()
    await _fill(stage, tell, _future(stage, TASKS[1]), 0, FEW, after=timedelta(days=1), named=IN_THE_WAY)
    few = await sustained(stage, tell, seconds=seconds, task_id=TASKS[1])
    await _fill(stage, tell, _future(stage, TASKS[2]), FEW, pending, after=timedelta(days=1), named=IN_THE_WAY)
    many = await sustained(stage, tell, seconds=seconds, task_id=TASKS[2])
    [[left]] = await stage.store.db.look("select count(*) from executions")
    if left != pending:
        raise BenchFailed(f"{pending} future executions were stored and {left} are left.")
    return many | {"pending": pending, "rate_alone": few["rate"], "of_alone": round(many["rate"] / few["rate"], 3)}


def _future(stage: Stage, task_id: str) -> Definition:
    """In the very lane that is measured."""
    return Definition(user_id=stage.setup.user_ids[0], task_id=task_id)


async def crowd(stage: Stage, tell: Tell, *, executions: int, seconds: float) -> Report:
    """Throughput of ordinary work while so many due executions stand in its way, each kind against the same without."""
    # Ordinary work is many people's; whoever floods has a bucket to himself.
    flooder = next(name for n in range(1000) if bucket_of(name := f"flooder-{n}") == 0)
    users = [name for n in range(1000) if bucket_of(name := f"{USER}-{n}") != 0][: 2 * BUCKETS]
    stage.setup = replace(stage.setup, user_ids=tuple(users))
    await stage.start_worker()
    gate = Gate(key="in the way", concurrency=1)
    kinds = {
        "one user's flood": Definition(user_id=flooder, task_id=FLOOD),
        "a limit that is reached": Definition(user_id=flooder, task_id="endless", policy=Policy(gate=gate)),
        "a task that nobody has": Definition(user_id=flooder, task_id="unknown"),
        "a resource that is not there": Definition(
            user_id=flooder, task_id=FLOOD, policy=Policy(needs=Needs(resources={"gpu": 1.0}))
        ),
        "a queue that nobody serves": Definition(user_id=flooder, task_id=FLOOD, queue="unserved"),
    }
    cases, task_ids = {}, iter(TASKS)
    for kind, definition in kinds.items():
        # Right before it, since machines have their moods.
        alone = await sustained(stage, tell, seconds=seconds, task_id=next(task_ids))
        await _fill(stage, tell, definition, 0, executions, after=timedelta(hours=-1))
        case = await sustained(stage, tell, seconds=seconds, task_id=next(task_ids))
        cases[kind] = {
            "rate": case["rate"],
            "rate_alone": alone["rate"],
            "of_alone": round(case["rate"] / alone["rate"], 3),
        }
        tell("clearing up", None)
        await _clear(stage)
    worst = min(cases.values(), key=lambda case: case["of_alone"])
    return case | worst | {"executions": executions, "cases": cases}


async def snapshot(stage: Stage, tell: Tell, *, held: float) -> Report:
    """Throughput before, while and after another connection holds a transaction open."""
    lead, trail = 15.0, 25.0
    await stage.start_worker()
    seconds = lead + held + trail
    before, began = stage.used(), time.monotonic()
    plan = a_plan(stage, seconds=seconds, window=WINDOW, folder=str(stage.folder))
    producing = asyncio.create_task(
        stage.produce(plan, lambda n: tell(f"{n:,} submitted", (time.monotonic() - began) / seconds))
    )
    await asyncio.sleep(lead)
    async with _open_transaction(stage.dsn):
        begun_at = time.time()
        await asyncio.sleep(held)
    ended_at = time.time()
    told = await producing
    await stage.until_done(told.submitted)
    used = between(before, stage.used())
    seen, _ = await checked(stage, tell, told)
    starts = sorted(each.started_at for each in seen)

    def rate(begin: float, end: float) -> float:
        return (bisect_left(starts, end) - bisect_left(starts, begin)) / (end - begin)

    alone, during = rate(begun_at - 10, begun_at), rate(begun_at, ended_at)
    # What was kept from being cleaned up is cleaned up now; after ten seconds that has to be over.
    after = rate(ended_at + 10, ended_at + 15)
    return {
        "jobs": len(seen),
        "held_s": held,
        "rate": round(during),
        "rate_before": round(alone),
        "rate_after": round(after),
        "of_before": round(during / alone, 3),
        "after_of_before": round(after / alone, 3),
        "by_second": [round(rate(begun_at - 10 + n, begun_at - 9 + n)) for n in range(int(held) + 30)],
    } | cost(used, told)


@asynccontextmanager
async def _open_transaction(dsn: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch("select count(*) from lanes")
            yield
    finally:
        await connection.close()


async def _fill(
    stage: Stage,
    tell: Tell,
    definition: Definition,
    begin: int,
    end: int,
    *,
    after: timedelta,
    named: str | None = None,
) -> None:
    """`named` gives them the name of another task than that of their lane, to tell them from what is measured there."""
    [lane] = await stage.store._lanes_of([definition])
    gate = definition.policy.gate
    for first in range(begin, end, CHUNK):
        last = min(end, first + CHUNK)
        tell(f"putting {end:,} in the way", last / end)
        await stage.store.db.fetch(
            _FILL, first, last, lane if gate is None else -lane, definition.user_id, named or definition.task_id,
            definition.queue, policy_text(definition.policy), None if gate is None else gate.key, after,
        )  # fmt: skip
    await stage.store.db.fetch("vacuum analyze executions")


async def _clear(stage: Stage) -> None:
    """What runs of it at the moment ends by itself."""
    await stage.store.db.fetch("delete from executions where worker_id is null")
    while (await stage.store.db.look("select exists (select from executions)"))[0][0]:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await stage.store.db.fetch("vacuum analyze executions")
