"""What several sides of the store read from rows."""

from __future__ import annotations

import asyncpg
import msgspec

from rota.model.calendar import Calendar
from rota.model.definition import Definition, policy_of
from rota.model.schedule import Recurring

schedule_of = msgspec.json.Decoder(Recurring).decode
days_of = msgspec.json.Decoder(tuple[str, ...]).decode


def definition_in(row: asyncpg.Record) -> Definition:
    return Definition(
        user_id=row["user_id"],
        task_id=row["task_id"],
        queue=row["queue"],
        priority=row["priority"],
        parameters=row["parameters"],
        policy=policy_of(row["policy"]),
    )


def calendar_in(row: asyncpg.Record) -> Calendar | None:
    return Calendar(days_of(row["days"])) if row["days"] else None
