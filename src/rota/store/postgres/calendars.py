"""Calendars in the store, by their users and names."""

from __future__ import annotations

import asyncpg
import msgspec

from rota.model.calendar import Calendar, NamedCalendar
from rota.store.postgres.database import Database, tried_again
from rota.store.postgres.queries import Queries
from rota.store.postgres.rows import days_of
from rota.store.protocol import CalendarInUse

SQL = Queries("calendars.sql")


class Calendars:
    db: Database

    async def put_calendar(self, user_id: str, name: str, calendar: Calendar) -> NamedCalendar:
        days = msgspec.json.encode(calendar.days).decode()
        return _calendar((await self.db.fetch(SQL.put, user_id, name, days, self.db.time))[0])

    async def calendars(self, user_id: str | None) -> list[NamedCalendar]:
        return [_calendar(row) for row in await self.db.look(SQL.all, user_id)]

    async def find_calendar(self, user_id: str, name: str) -> NamedCalendar | None:
        rows = await self.db.look(SQL.find, user_id, name)
        return _calendar(rows[0]) if rows else None

    @tried_again
    async def delete_calendar(self, user_id: str, name: str) -> NamedCalendar | CalendarInUse | None:
        async with self.db.transaction() as connection:
            held = await connection.fetch(SQL.hold, user_id, name)
            if not held:
                return None
            # Counted once it is held: a statement of its own sees the jobs whose submission it waited for.
            if jobs := await connection.fetchval(SQL.users, user_id, name):
                return CalendarInUse(jobs)
            await connection.execute(SQL.delete, user_id, name)
        return _calendar(held[0])


def _calendar(row: asyncpg.Record) -> NamedCalendar:
    return NamedCalendar(days_of(row["days"]), user_id=row["user_id"], name=row["name"], changed_at=row["changed_at"])
