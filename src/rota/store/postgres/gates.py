"""Gates in the store: executions with a key wait at theirs until it lets them through."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from datetime import datetime
from typing import NamedTuple

import asyncpg
import msgspec

from rota.model.definition import Gate, policy_of
from rota.model.execution import ExecutionKey
from rota.model.gate import AtGate, let_through
from rota.model.job import shard_of
from rota.store.postgres.database import Connection, Database, tried_again
from rota.store.postgres.queries import Queries
from rota.store.postgres.wake import Wake

log = logging.getLogger(__name__)
SQL = Queries("gates.sql")
# So many at each gate and in each shard are looked at; the others have time.
FOREMOST = 500


class _Ranked(NamedTuple):
    rank: datetime
    at_gate: AtGate


class Gates:
    db: Database
    wake: Wake

    async def let_through(self) -> int:
        waiting = {shard: await self._waiting(shard) for shard in range(await self.db.shards())}
        passed = await self._let_through(waiting) if any(waiting.values()) else 0
        if passed:
            self.wake.others()
        return passed

    async def _waiting(self, shard: int) -> list[str]:
        return [row[0] for row in await self.db.fetch(SQL.waiting_gates, shard)]

    @tried_again
    async def _let_through(self, waiting: dict[int, list[str]]) -> int:
        gates = sorted({gate for there in waiting.values() for gate in there})
        async with self.db.transaction() as connection:
            [lock] = await connection.fetch(SQL.lock, self.db.time)
            if not lock["ours"]:
                return 0
            # The number of shards may just have grown.
            under_way, foremost = await _look(connection, list(range(lock["shards"])), gates, lock["now"])
            rates = {row["gate"]: row["next_at"] for row in await connection.fetch(SQL.rates, gates)}
            passed: list[ExecutionKey] = []
            counted: dict[str, datetime] = {}
            for gate, those in foremost.items():
                through, next_at = let_through(
                    [each.at_gate for each in sorted(those, key=lambda each: (each.rank, each.at_gate.key))],
                    under_way=under_way[gate],
                    next_at=rates.get(gate),
                    now=lock["now"],
                )
                passed += through
                if through and next_at is not None:
                    counted[gate] = next_at
            for shard in range(lock["shards"]):
                mine = sorted(key for key in passed if shard_of(key.job_id) == shard)
                if mine:
                    columns = [list(column) for column in zip(*mine, strict=True)]
                    await connection.execute(SQL.passed, shard, *columns, lock["now"])
            if counted:
                await connection.execute(SQL.remember, list(counted), list(counted.values()))
        return len(passed)


async def _look(
    connection: Connection, shards: list[int], gates: list[str], now: datetime
) -> tuple[Counter[str], dict[str, list[_Ranked]]]:
    """How many are under way behind each gate, and who is foremost before it, in all shards."""
    under_way: Counter[str] = Counter()
    foremost: defaultdict[str, list[_Ranked]] = defaultdict(list)
    for shard in shards:
        under_way.update({row["gate"]: row["count"] for row in await connection.fetch(SQL.under_way, shard, gates)})
        for row in await connection.fetch(SQL.at_gates, shard, gates, now, FOREMOST):
            if gate := _gate(row):
                foremost[row["gate"]].append(_Ranked(row["rank"], AtGate(ExecutionKey(*row[:3]), gate)))
    return under_way, foremost


def _gate(row: asyncpg.Record) -> Gate | None:
    """None if this version cannot read it: it must not close the gate for the others."""
    try:
        return policy_of(row["policy"]).gate
    except msgspec.MsgspecError as error:
        log.error("policy cannot be read job=%s error=%s", row["job_id"], error)
        return None
