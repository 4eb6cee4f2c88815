"""The hot statements reach their rows by key or by the ready index, whatever the planner knows of the tables."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from rota.store.postgres import backfills, gates, jobs, planning, work
from rota.store.postgres.database import HOT

HOT_STATEMENTS = {
    "claim": work.CLAIM,
    "queued_in_need": work.SQL.queued_in_need,
    "claim_in_need": work.CLAIM_IN_NEED,
    "finish": work.SQL.finish,
    "give_back": work.SQL.give_back,
    "cancelled_of": work.SQL.cancelled_of,
    "expired": work.SQL.expired,
    "submit_one_shots": jobs.SQL.submit_one_shots,
    "submit_recurring": jobs.SQL.submit_recurring,
    "ask_jobs_to_stop": jobs.SQL.ask_jobs_to_stop,
    "ask_execution_to_stop": jobs.SQL.ask_execution_to_stop,
    "open_of_jobs": jobs.SQL.open_of_jobs,
    "still_held": work.SQL.still_held,
    "held": work.SQL.held,
    "checkpoint": work.SQL.checkpoint,
    "keep_logs": work.SQL.keep_logs,
    "note_progress": work.SQL.note_progress,
    "end_pending": jobs.SQL.end_pending,
    "unplanned": planning.SQL.unplanned,
    "plan": planning.SQL.plan,
    "expire": work.SQL.expire,
    "waiting_gates": gates.SQL.waiting_gates,
    "under_way": gates.SQL.under_way,
    "at_gates": gates.SQL.at_gates,
    "passed": gates.SQL.passed,
    "waiting_jobs": planning.SQL.waiting_jobs,
    "release": planning.SQL.release,
    "unfilled": backfills.SQL.unfilled,
    "runs": backfills.SQL.runs,
    "fill": backfills.SQL.fill,
    "ask_to_stop": backfills.SQL.ask_to_stop,
    "change_recurring": jobs.SQL.change_recurring,
}
SHARDED = ("executions", "jobs", "history", "attempts", "dead_letters", "logs", "progress")
# Which index may be used for which table; `None` is a look-up by ctid.
ALLOWED: dict[str, dict[str, set[str | None]]] = {
    "claim": {"executions": {"executions_ready", None}},
    "queued_in_need": {"executions": {"executions_ready"}},
    "claim_in_need": {"executions": {"executions_ready", None}},
    "finish": {"executions": {"executions_pkey", None}},
    "give_back": {"executions": {"executions_held"}},
    "cancelled_of": {"executions": {"executions_cancelling"}},
    "expired": {"executions": {"executions_held"}},
    "submit_one_shots": {},
    "submit_recurring": {},
    "ask_jobs_to_stop": {"executions": {"executions_pkey"}},
    "ask_execution_to_stop": {"executions": {"executions_pkey"}},
    "open_of_jobs": {"executions": {"executions_pkey"}},
    "still_held": {"executions": {"executions_pkey"}},
    "held": {"executions": {"executions_held"}},
    "checkpoint": {"executions": {"executions_pkey", None}},
    "keep_logs": {},
    "note_progress": {},
    "end_pending": {"executions": {"executions_pkey", None}},
    "unplanned": {"jobs": {"jobs_unplanned"}, "executions": {"executions_pkey", "executions_waiting"}},
    "plan": {"jobs": {"jobs_pkey", None}},
    "expire": {"executions": {"executions_expiring", None}},
    "waiting_gates": {"executions": {"executions_gated"}},
    "under_way": {"executions": {"executions_passed"}},
    "at_gates": {"executions": {"executions_gated"}},
    "passed": {"executions": {"executions_pkey", None}},
    "waiting_jobs": {"executions": {"executions_waiting"}},
    "release": {"executions": {"executions_waiting", "executions_pkey", None}},
    "unfilled": {"executions": {"executions_backfill"}, "jobs": {"jobs_pkey"}},
    "runs": {"executions": {"executions_pkey"}},
    "fill": {"executions": {"executions_backfill"}, "jobs": {"jobs_pkey"}},
    "ask_to_stop": {"executions": {"executions_backfill"}},
    "change_recurring": {"jobs": {"jobs_pkey", None}},
}


@pytest.mark.parametrize("name", HOT_STATEMENTS)
def test_every_hot_statement_names_its_shard_wherever_it_touches_a_sharded_table(name: str) -> None:
    """Every use of a sharded table has its `shard = $1`, or inserts into the column `shard`."""
    text = re.sub(r"--.*", "", HOT_STATEMENTS[name])
    uses = re.findall(rf"\b(?:from|join|update|into)\s+({'|'.join(SHARDED)})\b", text)
    shards = re.findall(r"\bshard = \$1|\bshard, \w*id\b", text)

    assert uses, "a statement without a sharded table is not hot"
    assert len(shards) >= len(uses)


@pytest.fixture(params=["empty", "small", "filled", "filled and analysed", "drained and vacuumed"])
async def connection(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    opened = await asyncpg.connect(dsn, server_settings=HOT)
    rows = {"empty": 0, "small": 20}.get(request.param, 20_000)
    await opened.execute(_FILL_LANES)
    await opened.execute(_FILL_EXECUTIONS, rows)
    await opened.execute(_FILL_JOBS, rows)
    await opened.execute(_FILL_WORKERS)
    if request.param == "filled and analysed":
        await opened.execute("analyze")
    if request.param == "drained and vacuumed":
        # How a queue looks every quiet night, and what its statements are planned on for the next morning.
        await opened.execute("delete from executions; delete from jobs")
        await opened.execute("vacuum analyze executions")
        await opened.execute("vacuum analyze jobs")
        # Lanes stay: only what stands in them is gone.
        await opened.execute("analyze lanes")
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", HOT_STATEMENTS)
async def test_its_plan_uses_keys_only(connection: Any, name: str) -> None:
    for scan in _scans(await _plan(connection, HOT_STATEMENTS[name])):
        table = scan["Relation Name"]
        if table in SHARDED:
            assert scan["Node Type"] in ("Index Scan", "Index Only Scan", "Tid Scan"), scan
            assert scan.get("Index Name") in ALLOWED[name].get(table, set()), scan
            assert "Index Cond" in scan or "TID Cond" in scan, scan
            # All rows of a shard are no key.
            assert scan.get("Index Cond") != "(shard = '0'::smallint)", scan


async def test_the_foremost_at_a_gate_are_found_without_going_through_all_that_wait(connection: Any) -> None:
    [scan] = [scan for scan in _scans(await _plan(connection, gates.SQL.at_gates)) if "Relation Name" in scan]

    assert "(priority >= 0)" in scan["Index Cond"], "or it looks at a million to find that no backfill waits"


@pytest.mark.parametrize("name", ["claim", "unplanned", "expired"])
async def test_nothing_is_sorted_that_a_limit_has_not_bounded(connection: Any, name: str) -> None:
    for node in _nodes(await _plan(connection, HOT_STATEMENTS[name])):
        if node["Node Type"] == "Sort":
            below = [n["Node Type"] for n in _nodes(node)]
            scans = [n for n in _nodes(node) if n.get("Relation Name") in SHARDED]
            assert not scans or "Limit" in below, node


async def _plan(connection: Any, statement: str) -> dict[str, Any]:
    """The plan of the very first call on a connection, with a list of a thousand where there is one."""
    count = max(int(number) for number in re.findall(r"\$(\d+)", statement))
    values = ["0", *["null"] * (count - 1)]
    for number in re.findall(r"cardinality\(\$(\d+)::uuid", statement):
        values[int(number) - 1] = "array_fill(null::uuid, array[1000])"
    await connection.execute(f"prepare hot as {statement}")
    try:
        [row] = await connection.fetch(f"explain (format json) execute hot ({', '.join(values)})")
    finally:
        await connection.execute("deallocate hot")
    plan: dict[str, Any] = json.loads(row[0])[0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in _nodes(plan) if node["Node Type"].endswith("Scan") and "Relation Name" in node]


_FILL_LANES = """
insert into lanes (queue, task_id, priority, bucket)
select 'default', 'task' || n, 0, bucket from generate_series(1, 200) n, generate_series(0, 15) bucket
"""
_FILL_EXECUTIONS = """
insert into executions (
    shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, recurring, exclusive,
    worker_id, lease_id, attempt, created_at
)
select
    0, gen_random_uuid(), now(), 0, 1 + n % 20, now(), 'ann', 'task', 'default', 0, '{}', n % 5 = 0, n % 5 = 0,
    case when n % 3 = 0 then 'w' || n % 4 end, n % 100, 1, now()
from generate_series(1, $1) n
"""
_FILL_JOBS = """
insert into jobs (
    shard, id, user_id, task_id, queue, priority, lane, parameters, schedule, rules, overlap, state, next_fires_at,
    since, watched_from, created_at
)
select
    0, gen_random_uuid(), 'ann', 'task', 'default', 0, 1, '{}', '{}', '{}', 'skip', 'ACTIVE',
    now() + n * interval '1 s', now(), now(), now()
from generate_series(1, $1) n
"""
_FILL_WORKERS = """
insert into workers (id, host, pid, queues, tasks, concurrency, state, started_at, renewed_at, lease)
select 'w' || n, 'here', n, '{}', '{}', 1, 'ALIVE', now(), now(), '15 s' from generate_series(0, 3) n
"""
