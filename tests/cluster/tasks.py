"""Tasks that tell what they did by appending a line to a file: a witness apart from the product's own tables."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from rota.worker.tasks import App

app = App()


def note(file: str, text: str) -> None:
    # O_APPEND and one write: lines of several processes never mix.
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def notes(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@app.task("note")
async def write_note(file: str, text: str) -> None:
    note(file, text)


@app.task("begin_and_wait_for")
async def begin_and_wait_for(file: str, text: str, sign: str) -> str:
    """Notes that it began, and completes once the sign is there."""
    note(file, f"{text} began {os.getpid()}")
    while not Path(sign).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    note(file, f"{text} ended {os.getpid()}")
    return text


@app.task("block")
def block(file: str, text: str, seconds: float) -> None:
    note(file, f"{text} began")
    time.sleep(seconds)
    note(file, f"{text} ended")


@app.task("crash")
async def crash(file: str) -> None:
    note(file, "crashed")
    os._exit(9)


@app.task("take")
async def take(file: str, takes: dict[str, float], seconds: float, ends: str, number: int) -> None:
    """Notes what it takes of its worker, and that it gives it back."""
    note(file, json.dumps(["takes", os.getpid(), number, takes]))
    await asyncio.sleep(seconds)
    if ends == "with a crash":
        note(file, json.dumps(["crashes", os.getpid(), number, takes]))
        os._exit(9)
    note(file, json.dumps(["gives back", os.getpid(), number, takes]))
    if ends == "badly":
        raise RuntimeError("badly")
