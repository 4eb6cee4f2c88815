"""A clock that moves when told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    def __init__(self) -> None:
        self.moment = datetime(2027, 1, 4, 10, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, **by: float) -> datetime:
        self.moment += timedelta(**by)
        return self.moment
