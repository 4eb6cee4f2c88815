"""Real `rota` processes, for what only real processes show."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def rota(*arguments: str, cwd: Path | None = None, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `rota` command that is killed with everything it started, unless it ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", *arguments],
        env=os.environ | environment,
        cwd=cwd,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        kill(process)


@asynccontextmanager
async def a_rota(*arguments: str, cwd: Path | None = None, **env: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    with rota(*arguments, cwd=cwd, **env) as process:
        yield process


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9; its own children die with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


async def eventually(ask: Callable[[], Awaitable[T]], *, within: float = 60.0) -> T:
    """The first answer that is true; the bound is there to end a failing test, not to measure."""
    deadline = time.monotonic() + within
    while not (answer := await ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come true within {within} s; the last answer was {answer!r}")
        await asyncio.sleep(0.05)
    return answer
