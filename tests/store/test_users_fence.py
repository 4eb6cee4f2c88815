"""The two lines of SQL in docs/tasks.md by which a user's own database refuses a zombie."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks.md"
[_SQL] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
TABLE, PASS = _SQL.strip().splitlines()


@pytest.fixture
async def theirs(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    """Two connections to a database of a user: one of the old attempt, one of the new."""
    old, new = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    await old.execute(TABLE)
    yield old, new
    await old.execute("drop table fences")
    await old.close()
    await new.close()


async def test_whoever_comes_with_a_lower_fence_is_refused(theirs: tuple[Any, Any]) -> None:
    old, new = theirs

    assert await old.fetchval(PASS, "one", 1) == 1
    assert await old.fetchval(PASS, "one", 1) == 1, "the same attempt writes more than once"
    assert await new.fetchval(PASS, "one", 2) == 2
    assert await old.fetchval(PASS, "one", 1) is None
    assert await old.fetchval(PASS, "two", 1) == 1, "another execution has a fence of its own"


async def test_a_zombie_that_comes_in_the_middle_of_a_write_waits_and_is_refused(theirs: tuple[Any, Any]) -> None:
    old, new = theirs
    async with new.transaction():
        await new.fetchval(PASS, "one", 2)
        late = asyncio.create_task(old.fetchval(PASS, "one", 1))
        while not await new.fetchval("select count(*) from pg_locks where not granted"):
            pass
        assert not late.done()

    assert await late is None
