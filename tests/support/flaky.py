"""A source of work that fails on demand, also after having done the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from rota.model.errors import StoreUnavailable
from rota.store.protocol import WorkSource


class Flaky:
    """`after={"claim": 3}`: the next three claims are carried out, and then their answers are lost."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._source, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if self.before[name] > 0:
                self.before[name] -= 1
                raise StoreUnavailable("the call was lost")
            answer = await method(*args, **kwargs)
            if self.after[name] > 0:
                self.after[name] -= 1
                raise StoreUnavailable("the answer was lost")
            return answer

        return call


def flaky(source: WorkSource) -> tuple[WorkSource, Flaky]:
    wrapper = Flaky(source)
    return cast(WorkSource, wrapper), wrapper
