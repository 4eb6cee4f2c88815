from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from rota.model.keys import Scope
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import USER, Caller, a_caller, a_rota_server
from tests.support.database import _empty, a_database

NewCaller = Callable[..., Awaitable[Caller]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def one_database(server: str) -> AsyncIterator[str]:
    async with a_database(server) as database:
        yield database


@pytest.fixture
async def dsn(one_database: str) -> str:
    """Emptied instead of cloned: a fifth of the time, and there are many tests here."""
    await _empty(one_database)
    return one_database


@pytest.fixture
async def url(store: PostgresStore) -> AsyncIterator[str]:
    async with a_rota_server(store) as address:
        yield address


@pytest.fixture
async def caller(url: str, store: PostgresStore) -> AsyncIterator[NewCaller]:
    """Makes callers: `await caller("carl", Scope.READ)`."""
    async with AsyncExitStack() as stack:

        async def new(user_id: str, *scopes: Scope) -> Caller:
            _, secret = await store.create_key(user_id, scopes or USER)
            return await stack.enter_async_context(a_caller(url, secret))

        yield new


@pytest.fixture
async def admin(caller: NewCaller) -> Caller:
    return await caller("root", Scope.ADMIN)


@pytest.fixture
async def ann(caller: NewCaller) -> Caller:
    return await caller("ann")


@pytest.fixture
async def bob(caller: NewCaller) -> Caller:
    return await caller("bob")


@pytest.fixture
async def worker(caller: NewCaller) -> Caller:
    """Somebody who may only work."""
    return await caller("machine", Scope.WORK)


@pytest.fixture
async def nobody(url: str) -> AsyncIterator[Caller]:
    async with a_caller(url, None) as without_key:
        yield without_key
