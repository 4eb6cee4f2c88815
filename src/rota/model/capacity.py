"""What jobs need of a worker, what a worker has, and what of the one fits into the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec
from msgspec import Struct

# So long a job that fits the worker, but not beside what runs there, is passed by smaller ones; then they wait for it.
PATIENCE = timedelta(seconds=5)
# Amounts are decimal fractions and computed in binary: a tenth taken ten times is a whole.
_DUST = 1e-9
MOST_AT_ONCE = 2**31


class Needs(Struct, frozen=True, omit_defaults=True):
    """What one attempt takes while it runs, and what its worker must be."""

    resources: dict[str, float] = {}
    labels: tuple[str, ...] = ()


class Capacity(Struct, frozen=True):
    """What a worker has in all, what of it is free, and what it is."""

    total: dict[str, float] = {}
    free: dict[str, float] = {}
    labels: tuple[str, ...] = ()

    def suits(self, needs: Needs) -> bool:
        """Whether it could ever run that."""
        return set(needs.labels) <= set(self.labels) and fits(needs.resources, self.total) > 0


class Queued(Struct, frozen=True):
    """Executions alike that are due: how many there are, and how long the first has waited, head start included."""

    lane: int
    needs: Needs
    count: int
    waited: timedelta


NOTHING = Needs()
_decode = msgspec.json.Decoder(Needs).decode


def needs_in(resources: dict[str, float], labels: Iterable[str] = ()) -> Needs:
    """In one order; nothing is always the same nothing, which is not stored."""
    return Needs(dict(sorted(resources.items())), tuple(sorted(set(labels)))) if resources or labels else NOTHING


def needs_text(needs: Needs) -> str:
    """The same for the same needs, in whatever order they were given."""
    if needs == NOTHING:
        return ""
    return msgspec.json.encode(needs_in(needs.resources, needs.labels)).decode()


def needs_of(text: str) -> Needs:
    return _decode(text) if text else NOTHING


def fits(resources: dict[str, float], free: dict[str, float]) -> int:
    """How many times; what nobody declared there is none of."""
    times = [(free.get(name, 0.0) + _DUST) / amount for name, amount in resources.items()]
    return int(min([*times, float(MOST_AT_ONCE)]))


def less(free: dict[str, float], taken: Iterable[dict[str, float]]) -> dict[str, float]:
    left = dict(free)
    for resources in taken:
        for name, amount in resources.items():
            left[name] = left.get(name, 0.0) - amount
    return left


def shares(queued: Sequence[Queued], capacity: Capacity, *, room: int) -> dict[int, int]:
    """How many of each lane to take, the longest waiting first.

    What has waited too long for a place keeps it free: of a resource that it lacks nobody behind it gets any.
    """
    free, kept_free, taken = dict(capacity.free), set[str](), dict[int, int]()
    for lane in sorted(queued, key=lambda lane: lane.waited, reverse=True):
        if not capacity.suits(lane.needs) or kept_free & lane.needs.resources.keys():
            continue
        count = min(lane.count, room, fits(lane.needs.resources, free))
        if count > 0:
            taken[lane.lane] = count
            room -= count
            free = less(free, [lane.needs.resources] * count)
        if count < lane.count and lane.waited > PATIENCE:
            kept_free |= {name for name, amount in lane.needs.resources.items() if free.get(name, 0.0) + _DUST < amount}
    return taken
