"""Who may pass a gate: no more under way at once, and no more begun in a time, than its key allows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from rota.model.definition import Gate
from rota.model.execution import ExecutionKey

# A gate is looked at a few times a second; what could have passed in between passes then.
CREDIT = timedelta(milliseconds=300)


class AtGate(Struct, frozen=True):
    """Somebody who waits at a gate; what each asks for holds for itself."""

    key: ExecutionKey
    gate: Gate


def let_through(
    waiting: Sequence[AtGate], *, under_way: int, next_at: datetime | None, now: datetime
) -> tuple[list[ExecutionKey], datetime | None]:
    """Of those at one gate, in their order, who passes; and when the next may, if the gate counts in time."""
    passed: list[ExecutionKey] = []
    for each in waiting:
        gate = each.gate
        if gate.concurrency is not None and under_way >= gate.concurrency:
            break
        if gate.rate is not None:
            at = max(next_at, now - CREDIT) if next_at else now
            if at > now:
                break
            next_at = at + timedelta(seconds=gate.per / gate.rate)
        passed.append(each.key)
        under_way += 1
    return passed, next_at
