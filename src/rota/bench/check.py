"""The check that comes before any number: every job exactly once, on time, and nothing left over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import asyncpg
from msgspec import Struct

from rota.bench.stage import BenchFailed
from rota.bench.witness import CHECKSUM, Seen, checksum

_HISTORY = f"""
select
    count(*) as ended,
    (
        select count(*) from (select distinct job_id, fires_at, run from history where task_id = $1) d
    ) as different,
    count(*) filter (where state <> 'COMPLETED') as not_completed,
    count(*) filter (where attempt <> 1) as tried_again,
    {CHECKSUM}::text as checksum,
    min(created_at) as first_submitted_at,
    min(started_at) as first_started_at,
    max(finished_at) as last_finished_at
from history
where task_id = $1
"""


class Span(Struct, frozen=True):
    """When the first was submitted and started, and the last had ended, by the database's clock."""

    submitted_at: datetime
    started_at: datetime
    finished_at: datetime

    @property
    def whole(self) -> float:
        return (self.finished_at - self.submitted_at).total_seconds()

    @property
    def working(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()


async def check(dsn: str, seen: Sequence[Seen], *, expected: int, task_id: str, total: int | None = None) -> Span:
    """`total` is the checksum of the submitted ids, where they are known."""
    # Without the limits in time that a store's connections have: there may be millions to look at.
    connection = await asyncpg.connect(dsn, server_settings={"work_mem": "256MB", "jit": "off"})
    try:
        row = await connection.fetchrow(_HISTORY, task_id)
        left = await connection.fetchval("select count(*) from executions where task_id = $1", task_id)
    finally:
        await connection.close()
    assert row is not None
    for problem in _problems(row, left, seen, expected, total):
        raise BenchFailed(f"The run did not pass its own check, so there is no number: {problem}.")
    return Span(row["first_submitted_at"], row["first_started_at"], row["last_finished_at"])


def _problems(row: asyncpg.Record, left: int, seen: Sequence[Seen], expected: int, total: int | None) -> list[str]:
    early = [each for each in seen if each.started_at < each.due_at]
    found = {
        "nothing ran": expected == 0,
        f"{expected} were submitted and {row['ended']} have ended": row["ended"] != expected,
        f"{row['ended'] - row['different']} have ended twice": row["ended"] != row["different"],
        f"{row['not_completed']} have ended otherwise than COMPLETED": row["not_completed"] > 0,
        f"{row['tried_again']} needed more than one attempt": row["tried_again"] > 0,
        f"{left} are left over": left > 0,
        f"{expected} were submitted and {len(seen)} task bodies ran": len(seen) != expected,
        "some task bodies ran twice": len({(each.job_id, each.due_at) for each in seen}) != len(seen),
        "what has ended is not what was submitted": total is not None and int(row["checksum"]) != total,
        "what ran is not what has ended": int(row["checksum"]) != checksum([each.job_id for each in seen]),
        f"{len(early)} began before they were due": bool(early),
    }
    return [words for words, is_so in found.items() if is_so]
