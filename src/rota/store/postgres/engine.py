"""The store on PostgreSQL, put together from its sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from rota.store.postgres.backfills import Backfills
from rota.store.postgres.calendars import Calendars
from rota.store.postgres.database import Database
from rota.store.postgres.fronts import Front
from rota.store.postgres.gates import Gates
from rota.store.postgres.jobs import Jobs
from rota.store.postgres.keys import Keys
from rota.store.postgres.planning import Planning
from rota.store.postgres.reading import Reading
from rota.store.postgres.wake import Wake
from rota.store.postgres.work import Work


class PostgresStore(Jobs, Work, Planning, Backfills, Reading, Calendars, Keys, Gates):
    def __init__(self, db: Database, wake: Wake) -> None:
        self.db = db
        self.wake = wake
        self._lanes = {}
        self._fronts = defaultdict(Front)

    @classmethod
    async def open(cls, dsn: str, *, clock: Callable[[], datetime] | None = None) -> PostgresStore:
        return cls(await Database.open(dsn, clock=clock), Wake(dsn))

    def woken(self, callback: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return self.wake.woken(callback)

    async def aclose(self) -> None:
        await self.wake.aclose()
        await self.db.aclose()
