"""How a recurring job treats firings that come too late, too thick or on the wrong day."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zlib import crc32

import msgspec
from msgspec import Struct

_MILLISECOND = timedelta(milliseconds=1)


class Overlap(StrEnum):
    """What happens to a firing while the one before it is still open."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"
    ALLOW = "allow"


class Misfire(StrEnum):
    """What happens to firings that nobody planned in time: the newest runs, all of them, none."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Rules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`misfire_window` is how late a firing may still run, `jitter` how far its start may be put off."""

    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.LATEST
    misfire_window: timedelta | None = None
    jitter: timedelta | None = None
    calendar: str | None = None
    max_executions: int | None = None
    auto_pause_after: int | None = None

    @property
    def replaces(self) -> bool:
        return self.overlap in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER)


_decode = msgspec.json.Decoder(Rules).decode


def rules_text(rules: Rules) -> str:
    return msgspec.json.encode(rules).decode()


def rules_of(text: str) -> Rules:
    return _decode(text)


def splay(job_id: UUID, fires_at: datetime, most: timedelta) -> timedelta:
    """Less than `most`, in whole milliseconds; the same for the same firing, so that previews are exact."""
    share = crc32(f"{job_id}/{fires_at.timestamp():.3f}".encode()) / 2**32
    return int(most / _MILLISECOND * share) * _MILLISECOND
