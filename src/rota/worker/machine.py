"""What a worker's machine has, and what its operator says it has."""

from __future__ import annotations

import os
from pathlib import Path

from rota.model.errors import InvalidField, quoted

_MEBIBYTE = 1024 * 1024
_CGROUP = Path("/sys/fs/cgroup")


def machine() -> dict[str, float]:
    """Cores that we may run on, and memory; a container's limits count before the machine's."""
    return {"cpu": _cores(), "memory_mb": float(_memory() // _MEBIBYTE)}


def _cores() -> float:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _line(_CGROUP / "cpu.max").partition(" ")
    return min(float(allowed), int(quota) / int(period)) if quota.isdigit() and period.isdigit() else float(allowed)


def _memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _line(_CGROUP / "memory.max")
    return min(physical, int(limit)) if limit.isdigit() else physical


def is_stopped(pid: int) -> bool:
    """By SIGSTOP or a debugger: it will not say a word, whatever its tasks do. Linux only."""
    return _line(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1] in ("T", "t")


def memory_of(pid: int) -> float:
    """Resident, in MiB; 0 where nobody can tell."""
    pages = _line(Path(f"/proc/{pid}/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") / _MEBIBYTE if len(pages) > 1 else 0.0


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def amounts(text: str) -> dict[str, float]:
    """`gpu=1,licence=3`"""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, amount = part.partition("=")
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            raise InvalidField("--resources", f"{quoted(part)} is not name=amount; write it like gpu=1") from None
        if not 0 <= found[name.strip()] < float("inf") or not name.strip():
            raise InvalidField("--resources", f"{quoted(part)} is not name=amount; write it like gpu=1")
    return found
