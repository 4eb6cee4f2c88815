from __future__ import annotations

import asyncio

from rota.loop import pause, repeat


async def test_a_full_batch_is_followed_at_once_and_an_empty_one_by_a_pause_that_can_be_ended() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    answers = iter([5, 5, 0, 5, 0])
    steps = 0

    async def step() -> int:
        nonlocal steps
        steps += 1
        done = next(answers)
        if done == 0:
            # An hour's pause follows, unless somebody wakes the loop or stops it.
            asyncio.get_running_loop().call_soon(wake.set if steps == 3 else stop.set)
        return done

    await repeat(step, every=3600, full=5, stop=stop, wake=wake)

    assert steps == 5


async def test_an_error_is_survived() -> None:
    stop = asyncio.Event()
    steps = 0

    async def step() -> int:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise RuntimeError("once")
        stop.set()
        return 0

    await repeat(step, every=0.001, stop=stop)

    assert steps == 2


async def test_a_pause_ends_with_the_first_event() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_soon(second.set)

    await pause(3600, first, None, second)

    assert not first.is_set()
