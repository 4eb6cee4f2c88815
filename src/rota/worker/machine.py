"""What a worker's machine has, and what its operator says it has."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
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


def confine(pid: int, resources: dict[str, float]) -> None:
    """Holds a process with nothing else in it to what its attempt said it takes, as far as the system lets us.

    Memory by a limit on the data of the process, so that an allocation beyond it fails; where we may make control
    groups, also by one of its own, which counts what it starts as well and has a share of the processors.
    """
    memory = resources.get("memory_mb")
    if memory is not None and hasattr(resource, "prlimit"):
        most = int(memory * _MEBIBYTE)
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))
    with suppress(OSError):
        _group(pid, memory, resources.get("cpu"))


def _group(pid: int, memory: float | None, cpu: float | None) -> None:
    group = _group_of(pid)
    if not os.access(group.parent, os.W_OK):
        return
    group.mkdir()
    try:
        if memory is not None:
            (group / "memory.max").write_text(str(int(memory * _MEBIBYTE)))
        if cpu is not None:
            (group / "cpu.max").write_text(f"{max(1000, int(cpu * 100_000))} 100000")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        group.rmdir()
        raise


def set_free(pid: int) -> None:
    """Its control group goes with it."""
    with suppress(OSError):
        _group_of(pid).rmdir()


def _group_of(pid: int) -> Path:
    own = _line(Path("/proc/self/cgroup")).partition("0::")[2].partition("\n")[0].strip("/")
    return _CGROUP / own / f"rota-{pid}"
