"""Between a worker and a command, one process per command: starts it, ends it, and lets nothing of it survive.

`python -I -S guardian.py FD`, with nothing but the standard library. FD is a socket to the worker: an order comes in,
any byte after it means SIGTERM, its end SIGKILL; the end comes also when the worker is killed. Out goes what became of
the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, NoReturn

LENGTH = struct.Struct(">I")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIMITS = {"cpu_seconds": resource.RLIMIT_CPU, "memory_mb": resource.RLIMIT_AS, "files": resource.RLIMIT_NOFILE}
UNITS = {"memory_mb": 1024 * 1024}


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    keep_only(line.fileno())
    adopt_orphans()
    wake = woken_by_children()
    order = read_order(line)
    if order is None:
        return
    pid, problem = start(order)
    if problem is not None:
        os.waitpid(pid, 0)
        answer = problem
    else:
        answer = {"code": guard(line, wake, pid)}
    with suppress(OSError):  # A worker that is gone need not be told.
        line.sendall(json.dumps(answer).encode())


def keep_only(fd: int) -> None:
    """A worker's other files are not the command's to see."""
    os.closerange(3, fd)
    os.closerange(fd + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def adopt_orphans() -> None:
    """Whoever hides from the command's group becomes our child when its parent ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def woken_by_children() -> int:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def read_order(line: socket.socket) -> dict[str, Any] | None:
    head = read_exactly(line, LENGTH.size)
    body = read_exactly(line, LENGTH.unpack(head)[0]) if head else None
    return None if body is None else dict(json.loads(body))


def read_exactly(line: socket.socket, size: int) -> bytes | None:
    read = b""
    while len(read) < size:
        chunk = line.recv(size - len(read))
        if not chunk:
            return None
        read += chunk
    return read


def start(order: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """The command's process, and why it could not become the command, if it could not."""
    reading, writing = os.pipe()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(order, guardian, writing)
    os.close(writing)
    # Nobody but the command may hold the reading end of its input.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a file descriptor
        problem = pipe.read()
    return pid, json.loads(problem) if problem else None


def become(order: dict[str, Any], guardian: int, problems: int) -> NoReturn:
    """The pipe for problems closes by itself when the command takes over."""
    try:
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guardian:
                os._exit(1)
        # A worker's child ignores SIGTERM and SIGINT, and that would be inherited.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if order["cwd"] is not None:
            os.chdir(order["cwd"])
        for name, most in order["limits"].items():
            limit(name, most)
        os.execve(order["path"], order["argv"], order["env"])
    except BaseException as error:
        words = {"error": str(error), "errno": getattr(error, "errno", None)}
        os.write(problems, json.dumps(words).encode())
    os._exit(127)


def limit(name: str, most: int) -> None:
    _, hard = resource.getrlimit(LIMITS[name])
    most *= UNITS.get(name, 1)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(LIMITS[name], (most, most))


def guard(line: socket.socket, wake: int, pid: int) -> int:
    """How the command ended; a signal as a negative number. Nothing that it started is left afterwards."""
    code = watch(line, wake, pid)
    # Before it is reaped its number, and that of its group, is nobody else's.
    kill_group(pid, signal.SIGKILL)
    while True:
        for each in children():
            kill(each)
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)


def watch(line: socket.socket, wake: int, pid: int) -> int:
    """Until the command has ended, or nobody wants it any more."""
    while not has_ended(pid):
        ready, _, _ = select.select([line.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if line.fileno() in ready:
            if not line.recv(64):
                break
            kill_group(pid, signal.SIGTERM)
    return -signal.SIGKILL


def has_ended(pid: int) -> bool:
    """Looks without reaping the command; orphans that have ended are reaped on the way."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == pid:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def kill_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 - pathlib takes long to import
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
