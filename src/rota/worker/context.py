"""What task code may know of the attempt it is, and what it may say while it runs."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from rota.model.errors import Conflict
from rota.model.execution import MOST_CHECKPOINT, ExecutionKey
from rota.model.log import storable
from rota.model.progress import MOST_NOTE
from rota.worker.grace import OVERTIME
from rota.worker.voice import KEPT, Voice


@dataclass(slots=True)
class Context:
    """Given to a task whose function takes a parameter named `ctx`, and to any code below it by `rota.context()`.

    `fence` grows with every attempt of an execution: a database that remembers the highest it has seen can refuse a
    zombie's writes. `cancelled` turns true when the execution is to stop. `grace` is how many seconds the attempt has
    for cleaning up once it is cancelled or its time is over; then its process is killed. `last_checkpoint` is what the
    attempts before this one have left, None if nothing.
    """

    key: ExecutionKey
    task_id: str
    user_id: str
    attempt: int
    fence: int
    cancelled: bool = False
    grace: float = OVERTIME
    last_checkpoint: Any = None
    # Without one, as in tests that call a task by hand, nobody hears what is said.
    _voice: Voice | None = field(default=None, repr=False, compare=False)

    @property
    def execution_id(self) -> str:
        return str(self.key)

    @property
    def job_id(self) -> str:
        return str(self.key.job_id)

    @property
    def fires_at(self) -> datetime:
        """The nominal time of the firing, in UTC."""
        return self.key.fires_at

    def checkpoint(self, value: Any) -> Awaitable[None]:
        """Durable on return, for the next attempt: `await` it in async code; in a thread the call itself waits.

        JSON of up to 64 KiB. Raises `rota.Superseded` when this attempt no longer holds its execution.
        """
        text = _checkpoint_text(value)
        return KEPT if self._voice is None else self._voice.checkpoint(text)

    def progress(self, fraction: float, note: str = "") -> None:
        """How far it is, from 0 to 1, for whoever looks while it runs. Cheap: only the newest word counts."""
        if self._voice is not None:
            self._voice.progress(min(1.0, max(0.0, fraction)), storable(str(note)[:MOST_NOTE]))

    def log(self, *values: object, **fields: object) -> None:
        """A line for the log of this attempt: `ctx.log("fetched", url, rows=7)`."""
        self.take_down(None, " ".join([*map(str, values), *(f"{name}={value}" for name, value in fields.items())]))

    def take_down(self, stream: str | None, text: str) -> None:
        """A line by itself, or a piece of what comes on a stream."""
        if self._voice is None:
            return
        if stream is None:
            self._voice.log(text)
        else:
            self._voice.write(stream, text)


CURRENT: ContextVar[Context] = ContextVar("rota-context")


def context() -> Context:
    """The context of the attempt that this code runs in."""
    try:
        return CURRENT.get()
    except LookupError:
        raise Conflict("There is no context here: this code does not run in a task of a worker.") from None


def _checkpoint_text(value: Any) -> str:
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the checkpoint cannot be kept as JSON: {error}") from None
    if len(text) > MOST_CHECKPOINT:
        raise ValueError(f"the checkpoint has {len(text)} bytes of JSON; {MOST_CHECKPOINT} are kept at most")
    return text.decode()
