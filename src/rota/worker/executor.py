"""One attempt in a child: find the task, call it within its time, sort what came of it."""

from __future__ import annotations

import asyncio
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any

import msgspec

from rota.model.log import storable
from rota.model.retry import Done, HandedBack, Outcome, Raised, Stopped, TimedOut
from rota.worker.context import CURRENT, Context
from rota.worker.limits import Limits
from rota.worker.results import BINARY, JSON, Locations, NotKept, Shelf
from rota.worker.tasks import Failed, GiveUp, RetryLater, Task

MOST_RESULT = 64 * 1024
MOST_ERROR = 8 * 1024
# A worker should not have claimed what its children do not know; somebody else may have the newer code.
UNKNOWN_TASK_DELAY = 5.0
NOWHERE = Locations()
_parameters = msgspec.json.Decoder(dict[str, Any]).decode


async def execute(
    task: Task | None,
    parameters: str,
    timeout: float,
    threads: ThreadPoolExecutor,
    context: Context,
    *,
    result_location: str | None = None,
    locations: Locations = NOWHERE,
    limits: Limits | None = None,
) -> Outcome:
    """Never raises: whatever a task does ends as an outcome."""
    if task is None:
        return HandedBack(after=UNKNOWN_TASK_DELAY)
    CURRENT.set(context)
    try:
        with (limits or Limits()).within(timeout) as limit:
            # First of all: work whose result has nowhere to go is not begun.
            shelf = await locations.shelf(result_location, context) if result_location is not None else None
            given = {"ctx": context} if task.takes_context else {}
            value = await _call(task, _parameters(parameters) | given, threads)
            # A task that clung to its time has used up that of an upload too.
            outcome = TimedOut(timeout) if limit.expired else await _kept(value, shelf)
        return TimedOut(timeout) if limit.expired else outcome
    except TimeoutError as error:
        return TimedOut(timeout) if limit.expired else _raised(error)
    except asyncio.CancelledError as error:
        asked = (current := asyncio.current_task()) is not None and current.cancelling() > 0
        return Stopped() if asked else _raised(error)
    except RetryLater as wish:
        after = getattr(wish, "after", None)
        return Raised(printable(wish), after=max(0.0, after)) if isinstance(after, int | float) else _raised(wish)
    except GiveUp as error:
        return Raised(printable(error), final=True)
    except (Failed, NotKept) as error:
        return Raised(printable(error))
    except BaseException as error:
        return _raised(error)


async def _call(task: Task, parameters: dict[str, Any], threads: ThreadPoolExecutor) -> Any:
    if task.is_async:
        return await task.call(**parameters)
    future = threads.submit(copy_context().run, _in_thread, task.call, parameters)
    thread = asyncio.wrap_future(future)
    while True:
        try:
            value, error = await asyncio.shield(thread)
            break
        except asyncio.CancelledError:
            # A thread cannot be interrupted: as long as it runs the attempt is not over, whatever was asked.
            if future.cancelled() or future.cancel():
                raise
    if error is not None:
        raise error
    return value


def _in_thread(call: Any, parameters: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """What a call came to, as a value: some exceptions mean something else to a future or to a coroutine."""
    try:
        return call(**parameters), None
    except BaseException as error:
        return None, error


async def _kept(value: Any, shelf: Shelf | None) -> Outcome:
    if shelf is None:
        return _inline(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return Done(await shelf.put(bytes(value), BINARY))
    return Done(await shelf.put(_json(value), JSON))


def _inline(value: Any) -> Outcome:
    if value is None:
        return Done(None)
    text = _json(value)
    if len(text) > MOST_RESULT:
        size = f"the result has {len(text)} bytes of JSON; {MOST_RESULT} are kept at most"
        return Raised(f"{size}. Give the job a result_location for larger ones", final=True)
    return Done(text.decode())


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_cannot)
    except (TypeError, ValueError, RecursionError) as error:
        raise GiveUp(f"the result cannot be kept as JSON: {printable(error)}") from None


def _cannot(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _raised(error: BaseException) -> Raised:
    try:
        text = "".join(traceback.format_exception(type(error), error, _theirs(error)))
    except Exception:
        text = f"{type(error).__name__} (its text could not be printed)"
    return Raised(_storable(text))


def _theirs(error: BaseException) -> TracebackType | None:
    """The traceback from the task on: our own frames above it help nobody."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace or error.__traceback__


def printable(error: BaseException) -> str:
    try:
        return _storable(str(error) or type(error).__name__)
    except Exception:
        return f"{type(error).__name__} (its text could not be printed)"


def _storable(text: str) -> str:
    """The end of a traceback tells the most."""
    clean = storable(text)
    return clean if len(clean) <= MOST_ERROR else "…" + clean[-MOST_ERROR:]
