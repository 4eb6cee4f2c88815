"""What a supervisor and its children say to each other: msgpack frames over a socket pair, always in batches."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from rota.model.retry import Outcome

_LENGTH = struct.Struct(">I")


class Start(Struct, frozen=True, array_like=True):
    """Begin this at `at`, a monotonic time that all processes of the machine share."""

    slot: int
    task_id: str
    parameters: str
    timeout: float
    at: float
    job_id: UUID
    fires_at: datetime
    run: int
    user_id: str
    attempt: int
    checkpoint: str | None
    result_location: str | None


class Kept(Struct, frozen=True, array_like=True):
    """The answer to a question: the checkpoint is durable, or what is wrong."""

    number: int
    problem: str | None
    superseded: bool


class Orders(Struct, frozen=True, array_like=True):
    """From the supervisor. `drain` asks for everything back that has not begun.

    Those of the cancelled that are `hurried` are killed soon, the others have their time to clean up.
    """

    start: list[Start] = []
    cancel: list[int] = []
    drain: bool = False
    kept: list[Kept] = []
    hurried: list[int] = []


class Report(Struct, frozen=True, array_like=True):
    """How it went, and when it began if it did."""

    slot: int
    outcome: Outcome
    started_at: float | None


class Asked(Struct, frozen=True, array_like=True):
    """A checkpoint to be kept; whoever asked waits for the answer."""

    slot: int
    number: int
    value: str


class Progressed(Struct, frozen=True, array_like=True):
    slot: int
    fraction: float
    note: str


class Line(Struct, frozen=True, array_like=True):
    """What an attempt has logged, and when by the monotonic clock."""

    slot: int
    seq: int
    at: float
    text: str


class Reports(Struct, frozen=True, array_like=True):
    """From a child. The first one names the tasks it knows and which are isolated, or why it cannot work."""

    ended: list[Report] = []
    tasks: list[str] | None = None
    broken: str | None = None
    lines: list[Line] = []
    asked: list[Asked] = []
    progress: list[Progressed] = []
    isolated: list[str] = []


class Channel(asyncio.Protocol):
    """One end of the socket pair. `lost` is called once, when the other end is gone."""

    def __init__(self, kind: type[Any], received: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def send(self, message: Orders | Reports) -> None:
        if self._transport is not None and not self._transport.is_closing():
            body = self._encode(message)
            self._transport.write(_LENGTH.pack(len(body)) + body)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = self._decode(memoryview(self._buffer)[_LENGTH.size : end].tobytes())
            del self._buffer[:end]
            self._received(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
