"""Workloads that put load on a worker: throughput, drain, steady, burst."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rota.bench.check import Span, check
from rota.bench.figures import summary
from rota.bench.producer import Plan, Told
from rota.bench.stage import TASK, BenchFailed, Stage, Tell
from rota.bench.usage import Used, between
from rota.bench.witness import Seen, forget, seen_in

Report = dict[str, Any]
# Open at a time in `throughput`.
WINDOW = 10_000
# How long before it is due a job of `steady` is submitted.
AHEAD = 3.0
# Jobs that are stored in a second, at the least, where a due instant has to be chosen before they are.
STORED_PER_S = 8_000


async def throughput(
    stage: Stage, tell: Tell, *, seconds: float, over_http: bool = False, remote: bool = False
) -> Report:
    """As many no-op jobs as go through from submit to finish, for so many seconds."""
    await stage.start_worker(remote=remote)
    return await sustained(stage, tell, seconds=seconds, over_http=over_http)


async def sustained(
    stage: Stage, tell: Tell, *, seconds: float, over_http: bool = False, task_id: str = TASK
) -> Report:
    """`task_id` tells this measurement from others on the same stage."""
    forget(stage.folder)
    before, began = stage.used(), time.monotonic()
    url = stage.url if over_http else None
    plan = a_plan(stage, task_id, seconds=seconds, window=WINDOW, folder=str(stage.folder), url=url)
    told = await stage.produce(plan, lambda n: tell(f"{n:,} submitted", (time.monotonic() - began) / seconds))
    await stage.until_done(told.submitted, task_id=task_id)
    used = between(before, stage.used())
    seen, span = await checked(stage, tell, told, task_id)
    numbers = {"jobs": len(seen), "seconds": round(span.whole, 2), "rate": round(len(seen) / span.whole)}
    return numbers | cost(used, told)


async def drain(stage: Stage, tell: Tell, *, jobs: int) -> Report:
    """So many jobs stored beforehand, then a worker is started."""
    told = await stage.produce(a_plan(stage, count=jobs), lambda n: tell("storing", n / jobs))
    before = stage.used()
    await stage.start_worker()
    await stage.until_done(jobs, lambda ran: tell("draining", ran / jobs))
    used = between(before, stage.used())
    _, span = await checked(stage, tell, told)
    return {"jobs": jobs, "seconds": round(span.working, 2), "rate": round(jobs / span.working)} | cost(used, told)


async def steady(stage: Stage, tell: Tell, *, rate: float, seconds: float) -> Report:
    """Due times spread evenly, so many a second; each job is submitted a few seconds before."""
    await stage.start_worker()
    starts_at = time.time() + AHEAD + 1.0
    before = stage.used()
    plan = a_plan(stage, rate=rate, seconds=seconds, starts_at=starts_at, ahead=AHEAD)
    sizes: list[Report] = []
    measuring = asyncio.create_task(_measure_by_minute(stage, starts_at, sizes))
    told = await stage.produce(plan, lambda n: tell(f"{n:,} submitted", n / rate / seconds))
    await stage.until_done(told.submitted)
    measuring.cancel()
    used = between(before, stage.used())
    seen, _ = await checked(stage, tell, told)
    minutes = _by_minute(seen, starts_at, sizes)
    return {"jobs": len(seen), "seconds": seconds, "rate": rate, "minutes": minutes} | lateness(seen) | cost(used, told)


_SIZES = (
    "select round(pg_table_size('executions') / 1e6, 1)::float8, round(pg_indexes_size('executions') / 1e6, 1)::float8"
)


async def _measure_by_minute(stage: Stage, starts_at: float, sizes: list[Report]) -> None:
    """What a long run must not let grow: the open table, its indexes, and the memory of our processes."""
    while True:
        await asyncio.sleep(60 - (time.time() - starts_at) % 60)
        [[table, indexes]] = await stage.store.db.look(_SIZES)
        memory = {role: used.resident_mb for role, used in stage.used().items() if role != "postgres"}
        sizes.append({"open_table_mb": table, "open_indexes_mb": indexes, "resident_mb": memory})


def _by_minute(seen: list[Seen], starts_at: float, sizes: list[Report]) -> list[Report]:
    """Of each whole minute: how many began, how late they were, and how large everything was at its end."""
    late: dict[int, list[float]] = {}
    for each in seen:
        late.setdefault(int((each.started_at - starts_at) // 60), []).append(each.late_ms)
    return [
        {"rate": round(len(late.get(n, [])) / 60)} | summary(late.get(n, [])) | size for n, size in enumerate(sizes)
    ]


async def burst(stage: Stage, tell: Tell, *, jobs: int) -> Report:
    """So many jobs due at one instant: `max_ms` is when the last has begun."""
    await stage.start_worker()
    at = float(int(time.time() + 6 + jobs / STORED_PER_S))
    told = await stage.produce(a_plan(stage, count=jobs, at=at), lambda n: tell("storing", n / jobs))
    if time.time() >= at:
        raise BenchFailed("The instant came before all jobs were stored; this machine is too slow or too busy.")
    before = stage.used()
    await stage.until_done(jobs, lambda ran: tell("waiting for the instant", ran / jobs))
    used = between(before, stage.used())
    seen, _ = await checked(stage, tell, told)
    took = max(each.started_at for each in seen) - at
    return {"jobs": jobs, "seconds": round(took, 2), "rate": round(jobs / took)} | lateness(seen) | cost(used, told)


def a_plan(stage: Stage, task_id: str = TASK, **how: Any) -> Plan:
    return Plan(dsn=stage.dsn, task_id=task_id, user_ids=list(stage.setup.user_ids), **how)


async def checked(stage: Stage, tell: Tell, told: Told, task_id: str = TASK) -> tuple[list[Seen], Span]:
    tell("checking", None)
    seen = seen_in(stage.folder)
    return seen, await check(stage.dsn, seen, expected=told.submitted, total=told.checksum, task_id=task_id)


def lateness(seen: list[Seen]) -> Report:
    begin = min(each.due_at for each in seen)
    points = [(each.due_at - begin, each.late_ms) for each in seen]
    return summary([late for _, late in points]) | {"points": points}


def cost(used: dict[str, Used], told: Told) -> Report:
    used = used | {"producer": Used(told.cpu_s, told.memory_mb, 1)}
    per_job = {role: round(each.cpu_s / told.submitted * 1e6, 1) for role, each in used.items()}
    return {"processes": used, "cpu_us_per_job": per_job}
