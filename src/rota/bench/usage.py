"""What processes have used: seconds of processor and memory, as the system tells it. Empty where there is no /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_MEMORY = ("VmHWM:", "VmRSS:")


class Used(Struct, frozen=True):
    """The memory of the largest process of a role, the most it ever had and now; PostgreSQL's counts what it shares."""

    cpu_s: float
    memory_mb: float
    processes: int
    resident_mb: float = 0.0


def used_by(roles: Mapping[str, int], *, children: Mapping[str, str]) -> dict[str, Used]:
    """By role; `roles` are process ids, `children` names what the descendants of a role are."""
    below = _children_of()
    used = {}
    for role, pid in roles.items():
        family = _descendants(pid, below)
        if role in children:
            used[role] = _sum([pid])
            used[children[role]] = _sum(family)
        else:
            used[role] = _sum([pid, *family], and_ended=True)
    return used


def between(before: Mapping[str, Used], after: Mapping[str, Used]) -> dict[str, Used]:
    nothing = Used(0.0, 0.0, 0)
    return {
        role: replace(now, cpu_s=round(now.cpu_s - before.get(role, nothing).cpu_s, 2)) for role, now in after.items()
    }


def _sum(pids: list[int], *, and_ended: bool = False) -> Used:
    seen = [each for pid in pids if (each := _one(pid, and_ended))]
    return Used(
        cpu_s=sum(cpu for cpu, _, _ in seen),
        memory_mb=max((most for _, most, _ in seen), default=0.0),
        processes=len(seen),
        resident_mb=max((now for _, _, now in seen), default=0.0),
    )


def _one(pid: int, and_ended: bool) -> tuple[float, float, float] | None:
    """Its own time, or also that of its children that have ended, such as PostgreSQL's vacuum workers."""
    try:
        # The name stands in brackets and may hold anything; what follows it are plain fields.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    most, now = (next((line for line in status.splitlines() if line.startswith(f)), f"{f} 0 kB") for f in _MEMORY)
    return sum(map(int, fields[11 : 15 if and_ended else 13])) / _TICKS, _mb(most), _mb(now)


def _mb(line: str) -> float:
    return round(int(line.split()[1]) / 1024, 1)


def _children_of() -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        below.setdefault(parent, []).append(int(folder.name))
    return below


def _descendants(pid: int, below: Mapping[int, list[int]]) -> list[int]:
    found: list[int] = []
    for child in below.get(pid, []):
        found += [child, *_descendants(child, below)]
    return found
