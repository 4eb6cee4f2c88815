"""What the task bodies themselves say: which job ran, when it was due, when its body began."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

TASKS = ("bench", *(f"bench-{number}" for number in range(2, 11)))
FLOOD = "flood"
LINE = struct.Struct("=16sdd")


class Seen(Struct, frozen=True):
    """One body that ran: the bytes of its job's id, its due time and its start in seconds since 1970."""

    job_id: bytes
    due_at: float
    started_at: float

    @property
    def late_ms(self) -> float:
        return (self.started_at - self.due_at) * 1000


def seen_in(folder: Path) -> list[Seen]:
    return [Seen(*line) for file in sorted(folder.glob("*.ran")) for line in LINE.iter_unpack(file.read_bytes())]


def count_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.ran")) // LINE.size


def forget(folder: Path) -> None:
    """Between two measurements; the children go on writing to the same files."""
    for file in folder.glob("*.ran"):
        with file.open("r+b") as lines:
            lines.truncate()


def checksum(job_ids: Sequence[bytes]) -> int:
    """The same for the same ids in any order; SQL can compute it too (`CHECKSUM`)."""
    return sum(int.from_bytes(job_id[7:15], "big") & MASK for job_id in job_ids)


# Bytes of an id that are random: those before are time and version, the last is the shard.
MASK = (1 << 60) - 1
CHECKSUM = "coalesce(sum(('x' || substr(replace(job_id::text, '-', ''), 16, 15))::bit(60)::bigint), 0)"
