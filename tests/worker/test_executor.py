"""One attempt: whatever a task does ends as an outcome, and a thread that runs is never called over."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from rota.model.errors import Conflict
from rota.model.retry import Done, HandedBack, Outcome, Raised, Stopped, TimedOut
from rota.worker import executor
from rota.worker.context import Context, context
from rota.worker.executor import MOST_ERROR, MOST_RESULT, UNKNOWN_TASK_DELAY
from rota.worker.tasks import App, GiveUp, RetryLater, Task
from tests.support.context import EXECUTION, a_context

LONG = 60.0
SHORT = 0.01
# Nobody waits that long unless a test has failed.
PATIENCE = 5.0


async def execute(task: Task | None, parameters: str, timeout: float, threads: ThreadPoolExecutor) -> Outcome:
    return await executor.execute(task, parameters, timeout, threads, a_context())


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def one_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def a_task(function: Callable[..., Any]) -> Task:
    return App().task("task")(function)


def returning(value: Any, *, in_thread: bool) -> Task:
    async def on_loop() -> Any:
        return value

    return a_task((lambda: value) if in_thread else on_loop)


def raising(error: BaseException, *, in_thread: bool) -> Task:
    def thrown() -> None:
        raise error

    async def on_loop() -> None:
        raise error

    return a_task(thrown if in_thread else on_loop)


class Gate:
    """A thread that waits at a gate until the test opens it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.is_open = threading.Event()
        self.passed = False
        self._loop = asyncio.get_running_loop()

    def wait(self) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self.is_open.wait(PATIENCE)
        self.passed = True

    def wait_and_return(self, value: Any = None) -> Any:
        self.wait()
        return value

    def wait_and_raise(self, error: BaseException) -> None:
        self.wait()
        raise error

    def open_soon(self) -> None:
        """After everything the loop has already been asked to do, a cancellation for example."""
        self._loop.call_soon(self.is_open.set)

    def open_after(self, seconds: float) -> None:
        """Timers of a loop go off in order: that of an attempt which has begun with less time comes first."""
        self._loop.call_later(seconds, self.is_open.set)


both_kinds = pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])


# Results


@both_kinds
@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        (0, "0"),
        (False, "false"),
        ("", '""'),
        ("grüße", '"grüße"'),
        ([], "[]"),
        ({"sent": 3, "to": ["ann"]}, '{"sent":3,"to":["ann"]}'),
        ({1: "one"}, '{"1":"one"}'),
        ((1, 2), "[1,2]"),
        (2**70, str(2**70)),
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (datetime(2027, 1, 31, tzinfo=UTC), '"2027-01-31T00:00:00Z"'),
        (b"bytes", '"Ynl0ZXM="'),
    ],
)
async def test_what_a_task_returns_is_kept_as_json(
    threads: ThreadPoolExecutor, value: Any, result: str | None, in_thread: bool
) -> None:
    assert await execute(returning(value, in_thread=in_thread), "{}", LONG, threads) == Done(result)


async def test_a_dataclass_is_kept_as_an_object(threads: ThreadPoolExecutor) -> None:
    @dataclass
    class Sent:
        to: str

    assert await execute(returning(Sent("ann"), in_thread=False), "{}", LONG, threads) == Done('{"to":"ann"}')


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_does_not_have_are_kept_as_null(threads: ThreadPoolExecutor, value: float) -> None:
    assert await execute(returning([value], in_thread=False), "{}", LONG, threads) == Done("[null]")


async def test_nul_in_a_result_is_kept_escaped(threads: ThreadPoolExecutor) -> None:
    outcome = await execute(returning("a\0b", in_thread=False), "{}", LONG, threads)

    assert outcome == Done(r'"a\u0000b"')


def a_circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@both_kinds
@pytest.mark.parametrize(
    "value",
    [object(), {"deep": [object()]}, {(1, 2): 3}, a_circle(), "\ud800", {"\ud800": 1}, 1j, Exception, iter([1])],
    ids=lambda value: type(value).__name__,
)
async def test_a_result_that_json_does_not_have_is_a_final_failure(
    threads: ThreadPoolExecutor, value: Any, in_thread: bool
) -> None:
    outcome = await execute(returning(value, in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and outcome.final
    assert outcome.error.startswith("the result cannot be kept as JSON: ")
    assert is_storable(outcome.error)


async def test_the_largest_result_is_kept(threads: ThreadPoolExecutor) -> None:
    largest = "x" * (MOST_RESULT - 2)

    assert await execute(returning(largest, in_thread=False), "{}", LONG, threads) == Done(f'"{largest}"')


@pytest.mark.parametrize("value", ["x" * (MOST_RESULT - 1), "ü" * (MOST_RESULT // 2)], ids=["ascii", "umlauts"])
async def test_a_result_that_is_too_large_is_a_final_failure(threads: ThreadPoolExecutor, value: str) -> None:
    outcome = await execute(returning(value, in_thread=False), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and outcome.final
    assert f"{MOST_RESULT} are kept at most" in outcome.error


# Parameters


@both_kinds
async def test_parameters_become_keyword_arguments(threads: ThreadPoolExecutor, in_thread: bool) -> None:
    def greet(name: str, *, times: int = 1) -> str:
        return name * times

    async def greet_on_loop(name: str, *, times: int = 1) -> str:
        return name * times

    task = a_task(greet if in_thread else greet_on_loop)

    assert await execute(task, '{"name": "ü", "times": 2}', LONG, threads) == Done('"üü"')


@pytest.mark.parametrize("name", ["self", "fn", "args", "task", "parameters", "class", "with space", "ü"])
async def test_no_name_of_a_parameter_is_taken(threads: ThreadPoolExecutor, name: str) -> None:
    task = a_task(lambda **given: given)

    outcome = await execute(task, json.dumps({name: 1}), LONG, threads)

    assert isinstance(outcome, Done) and outcome.result and json.loads(outcome.result) == {name: 1}


@both_kinds
@pytest.mark.parametrize("parameters", ['{"times": 1}', "{}", '{"name": "ann", "age": 3}'])
async def test_parameters_that_do_not_fit_fail_and_say_so(
    threads: ThreadPoolExecutor, parameters: str, in_thread: bool
) -> None:
    def greet(name: str) -> str:
        return name

    async def greet_on_loop(name: str) -> str:
        return name

    outcome = await execute(a_task(greet if in_thread else greet_on_loop), parameters, LONG, threads)

    assert isinstance(outcome, Raised)
    assert "TypeError: " in outcome.error and "argument" in outcome.error


@pytest.mark.parametrize("parameters", ["", "[]", "null", '"text"', "{", "{'a': 1}"])
async def test_parameters_that_are_no_object_fail(threads: ThreadPoolExecutor, parameters: str) -> None:
    outcome = await execute(a_task(lambda **_: None), parameters, LONG, threads)

    assert isinstance(outcome, Raised)


async def test_a_task_nobody_knows_is_handed_back(threads: ThreadPoolExecutor) -> None:
    assert await execute(None, "{}", LONG, threads) == HandedBack(after=UNKNOWN_TASK_DELAY)


# Errors


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class NotEvenText(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class UnprintableGiveUp(GiveUp):
    def __str__(self) -> str:
        raise ValueError("no text")


def is_storable(error: str) -> bool:
    """PostgreSQL's text: UTF-8 without NUL."""
    return "\0" not in error and error.encode().decode() == error and len(error) <= MOST_ERROR + 1


@both_kinds
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such customer"),
        KeyError("customer"),
        AssertionError(),
        MemoryError(),
        RecursionError(),
        StopAsyncIteration(),
        TimeoutError("of its own"),
        concurrent.futures.InvalidStateError(),
        ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
        SystemExit(3),
        KeyboardInterrupt(),
        BaseException("bare"),
        BaseExceptionGroup("several", [SystemExit(1)]),
        Unprintable(),
        NotEvenText(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_task_raises_is_a_failure_with_its_traceback(
    threads: ThreadPoolExecutor, error: BaseException, in_thread: bool
) -> None:
    outcome = await execute(raising(error, in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised)
    assert (outcome.after, outcome.final) == (None, False)
    assert "Traceback (most recent call last)" in outcome.error and type(error).__name__ in outcome.error
    assert is_storable(outcome.error)


@pytest.mark.parametrize(
    "in_thread",
    [False, True],
    ids=["async", "sync"],
)
async def test_stop_iteration_is_a_failure_too(threads: ThreadPoolExecutor, in_thread: bool) -> None:
    outcome = await execute(raising(StopIteration(), in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and "StopIteration" in outcome.error


@pytest.mark.parametrize(
    "in_thread",
    [False, True],
    ids=["async", "sync"],
)
async def test_generator_exit_is_a_failure_too(threads: ThreadPoolExecutor, in_thread: bool) -> None:
    outcome = await execute(raising(GeneratorExit(), in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and "GeneratorExit" in outcome.error


@pytest.mark.parametrize("error", [concurrent.futures.CancelledError(), asyncio.CancelledError()])
async def test_a_thread_that_raises_cancelled_has_failed(threads: ThreadPoolExecutor, error: BaseException) -> None:
    outcome = await execute(raising(error, in_thread=True), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and "CancelledError" in outcome.error


async def test_a_cancellation_nobody_asked_for_is_a_failure(threads: ThreadPoolExecutor) -> None:
    async def awaits_what_was_cancelled() -> None:
        part = asyncio.ensure_future(asyncio.Event().wait())
        part.cancel()
        await part

    outcome = await execute(a_task(awaits_what_was_cancelled), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and "CancelledError" in outcome.error


@both_kinds
async def test_nul_and_lone_surrogates_in_an_error_are_made_storable(
    threads: ThreadPoolExecutor, in_thread: bool
) -> None:
    outcome = await execute(raising(ValueError("a\0b\ud800c"), in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and is_storable(outcome.error)
    assert r"a\0b?c" in outcome.error


@pytest.mark.parametrize("text", ["x", "ü", "\0", "\ud800", "😀"])
@pytest.mark.parametrize("kind", [ValueError, GiveUp, partial(RetryLater, 1.0)])
async def test_of_a_long_error_the_end_is_kept(
    threads: ThreadPoolExecutor, kind: Callable[[str], BaseException], text: str
) -> None:
    error = kind(text * 2 * MOST_ERROR + "the end")

    outcome = await execute(raising(error, in_thread=False), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and is_storable(outcome.error)
    assert outcome.error.startswith("…") and outcome.error.rstrip().endswith("the end")


# Wishes


@both_kinds
async def test_giving_up_is_final(threads: ThreadPoolExecutor, in_thread: bool) -> None:
    outcome = await execute(raising(GiveUp("no such customer"), in_thread=in_thread), "{}", LONG, threads)

    assert outcome == Raised("no such customer", final=True)


async def test_giving_up_without_a_word_names_itself(threads: ThreadPoolExecutor) -> None:
    assert await execute(raising(GiveUp(), in_thread=False), "{}", LONG, threads) == Raised("GiveUp", final=True)


async def test_giving_up_with_an_unprintable_word_is_final_all_the_same(threads: ThreadPoolExecutor) -> None:
    outcome = await execute(raising(UnprintableGiveUp(), in_thread=False), "{}", LONG, threads)

    assert outcome == Raised("UnprintableGiveUp (its text could not be printed)", final=True)


@both_kinds
@pytest.mark.parametrize(("wish", "after"), [(30, 30), (0.5, 0.5), (0, 0), (-5, 0), (math.nan, 0)])
async def test_a_wish_for_later_is_passed_on_and_never_negative(
    threads: ThreadPoolExecutor, wish: float, after: float, in_thread: bool
) -> None:
    outcome = await execute(raising(RetryLater(wish, "busy"), in_thread=in_thread), "{}", LONG, threads)

    assert outcome == Raised("busy", after=after)


@pytest.mark.parametrize("wish", [timedelta(minutes=5), "5", None])
async def test_a_wish_that_is_no_number_is_a_failure(threads: ThreadPoolExecutor, wish: Any) -> None:
    outcome = await execute(raising(RetryLater(wish, "busy"), in_thread=False), "{}", LONG, threads)

    assert isinstance(outcome, Raised)


async def test_a_wish_that_was_never_made_is_a_failure(threads: ThreadPoolExecutor) -> None:
    class Busy(RetryLater):
        def __init__(self) -> None:
            Exception.__init__(self, "busy")

    outcome = await execute(raising(Busy(), in_thread=False), "{}", LONG, threads)

    assert isinstance(outcome, Raised)


# Time


async def test_an_async_task_that_takes_too_long_is_stopped(threads: ThreadPoolExecutor) -> None:
    cleaned_up = False

    async def for_ever() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    assert await execute(a_task(for_ever), "{}", SHORT, threads) == TimedOut(SHORT)
    assert cleaned_up


async def test_an_async_task_that_clings_to_its_time_has_still_overrun_it(threads: ThreadPoolExecutor) -> None:
    async def clings() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in the end"
        return "in time"

    assert await execute(a_task(clings), "{}", SHORT, threads) == TimedOut(SHORT)


@both_kinds
async def test_a_timeout_inside_the_task_is_its_own_failure(threads: ThreadPoolExecutor, in_thread: bool) -> None:
    outcome = await execute(raising(TimeoutError("the server is slow"), in_thread=in_thread), "{}", LONG, threads)

    assert isinstance(outcome, Raised) and "the server is slow" in outcome.error


async def test_a_thread_that_overran_its_time_is_over_before_the_attempt_is(threads: ThreadPoolExecutor) -> None:
    gate = Gate()
    attempt = asyncio.create_task(execute(a_task(gate.wait_and_return), "{}", SHORT, threads))
    await gate.entered.wait()
    gate.open_after(2 * SHORT)

    outcome = await attempt

    assert outcome == TimedOut(SHORT)
    assert gate.passed


async def test_a_thread_that_overran_its_time_and_failed_says_how(threads: ThreadPoolExecutor) -> None:
    gate = Gate()
    task = a_task(lambda: gate.wait_and_raise(ValueError("no such customer")))
    attempt = asyncio.create_task(execute(task, "{}", SHORT, threads))
    await gate.entered.wait()
    gate.open_after(2 * SHORT)

    outcome = await attempt

    assert isinstance(outcome, Raised) and "no such customer" in outcome.error


async def test_a_task_whose_thread_never_came_free_has_timed_out_without_a_start(
    one_thread: ThreadPoolExecutor,
) -> None:
    gate = Gate()
    calls: list[str] = []
    busy = one_thread.submit(gate.wait)

    outcome = await execute(a_task(lambda: calls.append("started")), "{}", SHORT, one_thread)

    gate.is_open.set()
    await asyncio.wrap_future(busy)
    assert (outcome, calls) == (TimedOut(SHORT), [])


# Cancellation


async def cancelled(attempt: asyncio.Task[Outcome], started: asyncio.Event) -> Outcome:
    await started.wait()
    attempt.cancel()
    return await attempt


async def next_turn() -> None:
    """Until everything the loop has been asked to do is done, and what follows from that at once."""
    turn = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, turn.set)
    await turn.wait()


async def test_an_async_task_is_stopped_when_asked(threads: ThreadPoolExecutor) -> None:
    started, cleaned_up = asyncio.Event(), asyncio.Event()

    async def for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()

    attempt = asyncio.create_task(execute(a_task(for_ever), "{}", LONG, threads))

    assert await cancelled(attempt, started) == Stopped()
    assert cleaned_up.is_set()


async def test_an_async_task_that_finishes_in_spite_of_its_cancellation_is_done(threads: ThreadPoolExecutor) -> None:
    started = asyncio.Event()

    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    attempt = asyncio.create_task(execute(a_task(stubborn), "{}", LONG, threads))

    assert await cancelled(attempt, started) == Done('"done all the same"')


async def test_an_async_task_that_fails_while_it_is_stopped_has_failed(threads: ThreadPoolExecutor) -> None:
    started = asyncio.Event()

    async def clumsy() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while cleaning up")

    attempt = asyncio.create_task(execute(a_task(clumsy), "{}", LONG, threads))

    outcome = await cancelled(attempt, started)

    assert isinstance(outcome, Raised) and "while cleaning up" in outcome.error


@pytest.mark.parametrize("times", [1, 3])
async def test_a_thread_that_finishes_after_its_cancellation_was_asked_for_is_done(
    threads: ThreadPoolExecutor, times: int
) -> None:
    gate = Gate()
    attempt = asyncio.create_task(execute(a_task(lambda: gate.wait_and_return("done")), "{}", LONG, threads))
    await gate.entered.wait()
    for _ in range(times):
        attempt.cancel()
        await next_turn()
    gate.open_soon()

    assert await attempt == Done('"done"')


async def test_a_thread_that_runs_holds_its_attempt_whatever_was_asked(threads: ThreadPoolExecutor) -> None:
    gate = Gate()
    attempt = asyncio.create_task(execute(a_task(gate.wait_and_return), "{}", LONG, threads))
    await gate.entered.wait()

    attempt.cancel()
    await next_turn()

    assert not attempt.done()
    gate.is_open.set()
    await attempt


async def test_a_thread_that_fails_after_its_cancellation_was_asked_for_has_failed(
    threads: ThreadPoolExecutor,
) -> None:
    gate = Gate()
    task = a_task(lambda: gate.wait_and_raise(GiveUp("no such customer")))
    attempt = asyncio.create_task(execute(task, "{}", LONG, threads))
    await gate.entered.wait()
    attempt.cancel()
    gate.open_soon()

    assert await attempt == Raised("no such customer", final=True)


async def test_a_task_that_still_waits_for_a_thread_is_stopped_without_a_start(one_thread: ThreadPoolExecutor) -> None:
    gate = Gate()
    calls: list[str] = []
    busy = one_thread.submit(gate.wait)
    attempt = asyncio.create_task(execute(a_task(lambda: calls.append("started")), "{}", LONG, one_thread))

    outcome = await cancelled(attempt, gate.entered)

    gate.is_open.set()
    await asyncio.wrap_future(busy)
    assert (outcome, calls) == (Stopped(), [])


# The context


async def test_a_task_is_told_which_attempt_it_is(threads: ThreadPoolExecutor) -> None:
    async def on_loop(ctx: Context, name: str) -> list[Any]:
        return [name, ctx.execution_id, ctx.attempt, ctx.fence, context() is ctx]

    def in_thread(ctx: Context, name: str) -> list[Any]:
        return [name, ctx.execution_id, ctx.attempt, ctx.fence, context() is ctx]

    for function in (on_loop, in_thread):
        outcome = await execute(a_task(function), '{"name": "Ann"}', LONG, threads)
        assert outcome == Done(f'["Ann","{EXECUTION}",3,3,true]')


async def test_code_below_a_task_finds_the_context(threads: ThreadPoolExecutor) -> None:
    def below() -> str:
        return context().user_id

    assert await execute(a_task(below), "{}", LONG, threads) == Done('"ann"')


def test_elsewhere_there_is_no_context() -> None:
    with pytest.raises(Conflict, match="does not run in a task"):
        context()
