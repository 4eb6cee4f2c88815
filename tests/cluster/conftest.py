from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.scheduler.janitor import KEEP
from rota.store.postgres.engine import PostgresStore


@pytest.fixture
async def live(dsn: str) -> AsyncIterator[PostgresStore]:
    """The store on the database's own clock, as the processes have it."""
    opened = await PostgresStore.open(dsn)
    await opened.maintain(keep=KEEP)
    yield opened
    await opened.aclose()
