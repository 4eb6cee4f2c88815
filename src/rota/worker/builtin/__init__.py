"""Tasks that every worker has: for trying things out, and those of docs/builtin-tasks.md."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.worker.builtin.command import run_command
from rota.worker.builtin.email import send_email
from rota.worker.builtin.http import Http
from rota.worker.tasks import App

builtin = App()


@builtin.task("noop")
async def noop(**_: Any) -> None:
    """Does nothing."""


@builtin.task("echo")
async def echo(**parameters: Any) -> dict[str, Any]:
    """Gives its parameters back."""
    return parameters


@builtin.task("sleep")
async def sleep(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)


@builtin.task("fail")
async def fail(message: str = "this task always fails") -> None:
    raise RuntimeError(message)


builtin.task("send_email")(send_email)
builtin.task("http")(Http())
builtin.task("command")(run_command)
