"""Tasks: the named work that a worker knows."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from rota.model.errors import Conflict, InvalidField

Function = TypeVar("Function", bound=Callable[..., Any])


class RetryLater(Exception):
    """Raised by a task: try again, after that many seconds."""

    def __init__(self, after: float, reason: str = "the task asked to be tried later") -> None:
        super().__init__(reason)
        self.after = after


class Failed(Exception):
    """Raised by our own tasks: its words say it all, a traceback would not help. Retried like any failure."""


class GiveUp(Exception):
    """Raised by a task: do not try again."""


class Task(Struct, frozen=True):
    """`options` are what a job of this task is submitted with unless it says otherwise.

    Each attempt of one that is `isolated` has a process of its own.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    takes_context: bool
    options: dict[str, Any]
    isolated: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


class App:
    """A set of tasks: what `rota worker module:app` works on."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}

    def task(self, name: str, *, isolated: bool = False, **options: Any) -> Callable[[Function], Task]:
        """`@app.task("send_email", max_retries=5)`: a job's parameters become the function's keyword arguments.

        One named `ctx` is given the `rota.Context` of the attempt. With `isolated=True` each attempt has a process of
        its own: slower to start, but a crash, a leak or a thread that never ends is its own affair.
        """

        def register(function: Function) -> Task:
            if name in self.tasks:
                raise Conflict(f"There are two tasks named {name!r}.")
            task = Task(name, function, _is_async(function), _takes_context(function), options, isolated)
            self.tasks[name] = task
            return task

        return register

    def include(self, other: App) -> None:
        """Tasks of ours stand; theirs fill in."""
        self.tasks = other.tasks | self.tasks


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        return "ctx" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def load_app(path: str) -> App:
    """`package.module:app`, seen from the current folder."""
    module_name, _, attribute = path.partition(":")
    if not module_name or module_name.endswith(".py"):
        hint = f"{module_name.removesuffix('.py') or 'module'}:{attribute or 'app'}".replace("/", ".")
        raise InvalidField("APP", f"{path!r} is not a module; write it like {hint}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidField("APP", f"there is no module {error.name!r} to import from {here}") from None
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, App):
        raise InvalidField("APP", f"{path!r} is not a rota.App; write it like module:app")
    return app
