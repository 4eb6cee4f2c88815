from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from rota.model.ledger import HISTORY_KEPT
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.database import a_database, a_server

# A shell that runs the tests in the background lets them ignore Ctrl-C, and every process they start would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with a_server() as dsn:
        yield dsn


@pytest.fixture
async def dsn(server: str) -> AsyncIterator[str]:
    async with a_database(server) as database:
        yield database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(dsn: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(dsn, clock=clock)
    yield opened
    await opened.aclose()


@pytest.fixture
async def live(dsn: str) -> AsyncIterator[PostgresStore]:
    """The store on the database's own clock, as real processes have it."""
    opened = await PostgresStore.open(dsn)
    await opened.maintain(keep=HISTORY_KEPT)
    yield opened
    await opened.aclose()
