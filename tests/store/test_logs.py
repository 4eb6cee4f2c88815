from __future__ import annotations

from datetime import timedelta

from rota.model.execution import Claimed
from rota.model.log import LogPosition, NewLine
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import a_job, claim, submit


def a_line(claimed: Claimed, seq: int, *, attempt: int = 1, ago: float = 0.0) -> NewLine:
    return NewLine(*claimed.key, attempt=attempt, seq=seq, ago=ago, text=f"{attempt}/{seq}")


async def texts(
    store: PostgresStore,
    claimed: Claimed,
    *,
    attempt: int | None = None,
    after: tuple[int, int] = (0, 0),
    limit: int = 100,
) -> list[str]:
    found = await store.logs(claimed.key, attempt=attempt, after=LogPosition(*after), limit=limit)
    return [line.text for line in found]


async def test_lines_come_attempt_after_attempt_and_page_after_page(store: PostgresStore) -> None:
    await submit(store, a_job(), a_job())
    [one, other] = await claim(store)
    await store.keep_logs([a_line(one, 2, attempt=2), a_line(one, 1, attempt=2), a_line(other, 1)])
    await store.keep_logs([a_line(one, n) for n in (1, 2, 3)])

    assert await texts(store, one) == ["1/1", "1/2", "1/3", "2/1", "2/2"]
    assert await texts(store, one, limit=2) == ["1/1", "1/2"]
    assert await texts(store, one, after=(1, 2), limit=2) == ["1/3", "2/1"]
    assert await texts(store, one, attempt=2) == ["2/1", "2/2"]
    assert await texts(store, other) == ["1/1"]


async def test_a_line_told_twice_is_shown_once(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job())
    [one] = await claim(store)
    await store.keep_logs([a_line(one, n) for n in (1, 2)])
    clock.advance(days=1)
    await store.keep_logs([a_line(one, n) for n in (1, 2, 3)])

    assert await texts(store, one, limit=2) == ["1/1", "1/2"]
    assert await texts(store, one) == ["1/1", "1/2", "1/3"]


async def test_when_it_was_said_is_told_as_a_duration(store: PostgresStore, clock: FakeClock) -> None:
    await submit(store, a_job())
    [one] = await claim(store)
    await store.keep_logs([a_line(one, 1, ago=1.5)])

    [line] = await store.logs(one.key, attempt=None, after=LogPosition(), limit=1)

    assert clock.moment - line.at == timedelta(seconds=1.5)


async def test_logs_go_with_the_days_they_belong_to(store: PostgresStore, clock: FakeClock) -> None:
    keep = timedelta(days=30)
    await store.maintain(keep=keep)
    await submit(store, a_job())
    [one] = await claim(store)
    await store.keep_logs([a_line(one, 1)])
    clock.advance(days=29)
    await store.maintain(keep=keep)
    assert await texts(store, one) == ["1/1"]

    clock.advance(days=2)
    await store.maintain(keep=keep)

    assert await texts(store, one) == []
