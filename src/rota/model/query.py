"""What people may ask for, and a page of the answer."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import Annotated, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from rota.model.errors import InvalidField
from rota.model.execution import EPOCH, Status
from rota.model.job import JobStatus

MOST_PER_PAGE = 1000
Item = TypeVar("Item")


class JobFilter(Struct, frozen=True, kw_only=True):
    user_id: str | None = None
    statuses: frozenset[Status] | None = None
    job_statuses: frozenset[JobStatus] | None = None
    task_id: str | None = None
    start: datetime | None = None
    end: datetime | None = None


class ExecutionFilter(Struct, frozen=True, kw_only=True):
    user_id: str | None = None
    statuses: frozenset[Status] | None = None
    job_id: UUID | None = None
    task_id: str | None = None
    worker_id: str | None = None
    start: datetime | None = None
    end: datetime | None = None


class Position(NamedTuple):
    """Where a page ended: the key of its last row, which never changes."""

    at: datetime
    job_id: UUID
    run: int


class Page(Struct, frozen=True):
    limit: int
    after: Position | None = None


class Slice(Struct, Generic[Item], frozen=True):
    items: list[Item]
    next: Position | None


_Token = tuple[int, UUID, Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]


def print_token(position: Position) -> str:
    micros = (position.at - EPOCH) // timedelta(microseconds=1)
    text = msgspec.json.encode((micros, position.job_id, position.run))
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def parse_token(token: str) -> Position:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        micros, job_id, run = msgspec.json.decode(text, type=_Token)
        return Position(EPOCH + timedelta(microseconds=micros), job_id, run)
    except (binascii.Error, ValueError, msgspec.MsgspecError, OverflowError):
        raise InvalidField("page_token", "is not a token we gave; leave it out to begin at the first page") from None
