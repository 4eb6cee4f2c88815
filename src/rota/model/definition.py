"""What a job asks for, apart from when: the part that every execution carries with it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rota.model.capacity import NOTHING, Needs


class Backoff(Struct, frozen=True):
    """Waiting grows from `initial` by `factor` up to `cap` seconds; `jitter` takes off up to that share of it."""

    initial: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.2

    def delay(self, failures: int, luck: float) -> float:
        """Seconds to wait after that many failures; `luck` in [0, 1) spreads the herd."""
        try:
            grown = self.initial * self.factor ** min(failures - 1, 64)
        except OverflowError:
            grown = self.cap
        return min(grown, self.cap) * (1 - self.jitter * luck)


class Gate(Struct, frozen=True, omit_defaults=True):
    """Of all with one key no more than `concurrency` are under way at once, and `rate` begin in `per` seconds."""

    key: str
    concurrency: int | None = None
    rate: int | None = None
    per: float = 1.0


class Policy(Struct, frozen=True, omit_defaults=True):
    """How an execution is to be treated; kept with it, so a later change of the job does not change work begun."""

    max_retries: int = 3
    backoff: Backoff = Backoff()
    timeout: float = 3600.0
    needs: Needs = NOTHING
    # In seconds after the nominal time: not to begin later, not to be tried later.
    start_by: float | None = None
    deadline: float | None = None
    gate: Gate | None = None
    result_location: str | None = None


DEFAULT = Policy()
_decode = msgspec.json.Decoder(Policy).decode


def policy_text(policy: Policy) -> str | None:
    """As stored: nothing at all where it is the default."""
    return None if policy is DEFAULT or policy == DEFAULT else msgspec.json.encode(policy).decode()


def policy_of(text: str | None) -> Policy:
    return DEFAULT if text is None else _decode(text)


class Definition(Struct, frozen=True, kw_only=True):
    """`parameters` is JSON text, passed through as it is."""

    user_id: str
    task_id: str
    queue: str = "default"
    priority: int = 0
    parameters: str = "{}"
    policy: Policy = DEFAULT
