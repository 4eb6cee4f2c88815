"""How far a running attempt is, by its own word."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

MOST_NOTE = 500


class NewProgress(Struct, frozen=True):
    job_id: UUID
    fires_at: datetime
    run: int
    attempt: int
    fraction: float
    note: str


class Progress(Struct, frozen=True):
    """`fraction` from 0 to 1."""

    fraction: float
    note: str
    at: datetime
