"""What attempts log: lines with their time, so many and no more."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from rota.model.errors import InvalidField

# Bytes of UTF-8: of one line, and of all lines of one attempt.
MOST_LINE = 8 * 1024
MOST_LOG = 256 * 1024
_POSITION = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


class NewLine(Struct, frozen=True):
    """A line to be kept; `ago` counts back from the moment it is stored."""

    job_id: UUID
    fires_at: datetime
    run: int
    attempt: int
    seq: int
    ago: float
    text: str


class LogLine(Struct, frozen=True):
    attempt: int
    seq: int
    at: datetime
    text: str

    @property
    def position(self) -> LogPosition:
        return LogPosition(self.attempt, self.seq)


class LogPosition(NamedTuple):
    """A place in the log of an execution: attempt after attempt, line after line."""

    attempt: int = 0
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        match = _POSITION.fullmatch(text)
        if not match:
            raise InvalidField("after", "is no place in a log; they look like <attempt>-<seq>")
        return cls(int(match[1]), int(match[2]))


def storable(text: str) -> str:
    """PostgreSQL takes no NUL and no lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def cut(text: str) -> str:
    """As much of a line as is kept."""
    clean = storable(text[: MOST_LINE + 1])
    encoded = clean.encode()
    return clean if len(encoded) <= MOST_LINE else encoded[: MOST_LINE - 3].decode("utf-8", "ignore") + "…"
