"""`Limits` means what `asyncio.timeout` means, with one timer for all."""

from __future__ import annotations

import asyncio

import pytest

from rota.worker.limits import Limits

SOON = 0.02


async def within(limits: Limits, seconds: float, *, work: float) -> str:
    try:
        with limits.within(seconds):
            await asyncio.sleep(work)
        return "done"
    except TimeoutError:
        return "too long"


async def test_only_what_takes_too_long_is_ended() -> None:
    limits = Limits()

    ended = await asyncio.gather(
        within(limits, SOON, work=60), within(limits, 60, work=2 * SOON), within(limits, 3 * SOON, work=60)
    )

    assert tuple(ended) == ("too long", "done", "too long")


async def test_one_that_ends_sooner_than_those_before_is_not_forgotten() -> None:
    limits = Limits()
    slow = asyncio.create_task(within(limits, 60, work=60))
    await asyncio.sleep(0)

    assert await within(limits, SOON, work=60) == "too long"
    assert not slow.done()
    slow.cancel()


async def test_a_cancellation_from_outside_stays_one() -> None:
    task = asyncio.create_task(within(Limits(), 60, work=60))
    await asyncio.sleep(SOON)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_comes_after_the_limit_is_not_lost() -> None:
    limits, cleaning = Limits(), asyncio.Event()

    async def clings() -> None:
        with limits.within(SOON):
            try:
                await asyncio.sleep(60)
            finally:
                cleaning.set()
                await asyncio.sleep(60)

    task = asyncio.create_task(clings())
    await cleaning.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_clings_is_told_once_and_can_tell() -> None:
    limits = Limits()
    with limits.within(SOON) as limit:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(2 * SOON)

    assert limit.expired
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0


async def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="mine"), Limits().within(SOON):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("mine") from None
