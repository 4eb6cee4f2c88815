"""Tasks that tell what they did by appending a line to a file: a witness apart from the product's own tables."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from rota.model.errors import Conflict, Superseded
from rota.worker.context import Context
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


@app.task("count_to")
async def count_to(file: str, last: int, crash_at: int, ctx: Context) -> int:
    """Goes on from its checkpoint; the first attempt dies on the way."""
    first: int = (ctx.last_checkpoint or {"done": 0})["done"] + 1
    for number in range(first, last + 1):
        note(file, f"{number} by {ctx.attempt}")
        await ctx.checkpoint({"done": number})
        if number == crash_at and ctx.attempt == 1:
            os._exit(9)
    return first


@app.task("count_to_in_a_thread")
def count_to_in_a_thread(file: str, last: int, crash_at: int, ctx: Context) -> int:
    first: int = (ctx.last_checkpoint or {"done": 0})["done"] + 1
    for number in range(first, last + 1):
        note(file, f"{number} by {ctx.attempt}")
        ctx.checkpoint({"done": number})
        if number == crash_at and ctx.attempt == 1:
            os._exit(9)
    return first


@app.task("checkpoint_after")
async def checkpoint_after(file: str, sign: str, ctx: Context) -> None:
    """Notes what its checkpoint, made once the sign is there, comes to."""
    note(file, "began")
    while not Path(sign).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    try:
        await ctx.checkpoint("mine")
        note(file, "kept")
    except Superseded:
        note(file, "superseded")


@app.task("speak")
async def speak(name: str, lines: int, ctx: Context) -> None:
    """In every way there is, taking turns with whoever else speaks."""
    for number in range(lines):
        ctx.log(name, number, way="ctx")
        print(f"{name} {number} print")
        logging.getLogger("theirs").info("%s %d logging", name, number)
        print(f"{name} {number} stderr", file=sys.stderr)
        await asyncio.sleep(0)
    await asyncio.to_thread(print, name, "thread")
    print(name, "rest", end="")


@app.task("speak_in_a_thread")
def speak_in_a_thread(name: str, lines: int) -> None:
    for number in range(lines):
        print(name, number, "print")
        logging.warning("%s %d logging", name, number)
        time.sleep(0.001)
    print(name, "rest", end="")


@app.task("say_and_fail")
def say_and_fail(ctx: Context) -> None:
    print("attempt", ctx.attempt)
    logging.debug("nobody wants to know")
    if ctx.attempt == 1:
        raise ValueError("no")


@app.task("fork")
def fork(ctx: Context) -> int:
    """The exit code of a process that is forked in the middle of things and speaks."""
    print("before")
    pid = os.fork()
    if pid == 0:
        print("from the fork")
        ctx.log("from the fork")
        try:
            ctx.checkpoint(1)
        except Conflict:
            os._exit(7)
        os._exit(8)
    _, status = os.waitpid(pid, 0)
    print("after")
    return os.waitstatus_to_exitcode(status)


@app.task("checkpoint_too_late")
async def checkpoint_too_late(file: str, ctx: Context) -> None:
    """Leaves a thread behind that outlives the attempt."""

    def late() -> None:
        time.sleep(0.5)
        ctx.log("nobody hears this")
        try:
            ctx.checkpoint("late")
        except Superseded:
            note(file, "superseded")

    threading.Thread(target=late, daemon=True).start()


@app.task("say_and_wait_for")
async def say_and_wait_for(sign: str, ctx: Context) -> None:
    ctx.log("waiting")
    ctx.progress(0.1)
    ctx.progress(0.25, "waiting")
    while not Path(sign).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    ctx.log("seen")


@app.task("hold_interpreter")
def hold_interpreter(seconds: int) -> None:
    """Without letting go of the interpreter's lock, as bad extensions do: nothing else runs in this process."""
    ctypes.PyDLL(None).sleep(seconds)


@app.task("nap")
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task("note_pid")
async def note_pid(file: str, text: str) -> None:
    note(file, f"{text} {os.getpid()}")
    await asyncio.sleep(0.05)
