"""The tasks of tests/cluster, and isolated ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rota.worker.tasks import App
from tests.cluster.tasks import app as others
from tests.cluster.tasks import note

app = App()
app.include(others)


@app.task("alone", isolated=True, max_retries=1)
def alone(file: str, text: str, sign: str | None = None) -> int:
    """Notes its process, and waits for the sign if there is one to wait for."""
    note(file, f"{text} began {os.getpid()}")
    while sign is not None and not Path(sign).exists():
        time.sleep(0.02)
    note(file, f"{text} ended {os.getpid()}")
    return os.getpid()


@app.task("crash_alone", isolated=True)
async def crash_alone(file: str) -> None:
    note(file, "crashed")
    os._exit(9)


@app.task("hoard", isolated=True, max_retries=0)
def hoard(mebibytes: int) -> int:
    """Takes that much memory at once, and touches it."""
    return len(bytearray(b"x") * (mebibytes * 1024 * 1024))
