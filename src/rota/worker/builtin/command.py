"""`command`: a program that the operator allows, without a shell, under a guardian."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rota.settings import CommandSettings
from rota.worker.builtin import guardian
from rota.worker.builtin.shorten import printed_size, shortened
from rota.worker.context import Context
from rota.worker.tasks import Failed, GiveUp

MOST_OUTPUT = 64 * 1024
# Both outputs and the rest have to fit into the 64 KiB of a result.
MOST_KEPT = 60 * 1024
MOST_OF_A_FAILURE = 3000
# Killing takes a moment too, and it should be over before the supervisor loses its patience.
MARGIN = 0.5
INHERITED = ("PATH", "HOME", "LANG", "TZ")
# They would make an allowed program run something else. A hurdle, not a wall: programs have ways of their own.
NOT_THEIRS = re.compile(
    r"ROTA_.*|PATH|LD_.*|DYLD_.*|GCONV_PATH|BASH_ENV|ENV|SHELLOPTS|PYTHON(PATH|HOME|STARTUP)|PERL5(LIB|OPT)"
    r"|RUBY(LIB|OPT)|NODE_OPTIONS|NODE_PATH"
)
# The machine was short of something.
PASSING = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
AtLeastOne = Annotated[int, Meta(ge=1, le=2**31)]


class Limits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    cpu_seconds: AtLeastOne | None = None
    memory_mb: AtLeastOne | None = None
    files: AtLeastOne | None = None


class Command(Struct, frozen=True):
    """What a job may say."""

    argv: Annotated[list[str], Meta(min_length=1)]
    env: dict[str, str]
    cwd: str | None
    stdin: str | None
    ok_codes: list[int]
    retry_codes: list[int] | None
    limits: Limits


class Order(Struct, frozen=True):
    """What the guardian is told."""

    path: str
    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    limits: Limits


class Ended(Struct, frozen=True):
    code: int
    stdout: str
    stderr: str


async def run_command(
    ctx: Context,
    argv: list[str],
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    ok_codes: Sequence[int] = (0,),
    retry_codes: list[int] | None = None,
    limits: dict[str, int] | None = None,
) -> dict[str, Any]:
    settings = CommandSettings.read()
    words = {"argv": argv, "env": env or {}, "cwd": cwd, "stdin": stdin, "limits": limits or {}}
    command = _command(words | {"ok_codes": ok_codes, "retry_codes": retry_codes})
    path = program(command.argv[0], settings.allowed, os.environ.get("PATH", os.defpath))
    order = Order(path, command.argv, _environment(command.env, ctx), command.cwd, command.limits)
    return _judged(await _guarded(order, command.stdin, ctx, settings.grace), command)


# What is asked


def _command(words: dict[str, Any]) -> Command:
    try:
        command = msgspec.convert(words, Command)
    except msgspec.ValidationError as error:
        raise GiveUp(f"the command cannot be run: {error}") from None
    if any("\0" in text for text in (*command.argv, *command.env, *command.env.values(), command.cwd or "")):
        raise GiveUp("the command cannot be run: there is a NUL in it")
    if command.cwd is not None and not command.cwd.startswith("/"):
        raise GiveUp("the command cannot be run: its cwd has to be an absolute path")
    return command


def program(name: str, allowed: Iterable[str], path: str) -> str:
    """The file to run. A name is found on our PATH; a path has to be written the way it is allowed.

    Links are not followed: what `/bin/ls` leads to may be a program of many names.
    """
    names = {each for each in allowed if "/" not in each}
    found = {each: _found(each, path) for each in names}
    if name in names:
        if (file := found[name]) is None:
            raise GiveUp(f"{name!r} is allowed, but there is no such program on the worker's PATH")
        return file
    if name in {each for each in allowed if each.startswith("/")} | set(found.values()):
        return name
    raise GiveUp(f"{name!r} is not among the commands that ROTA_COMMANDS_ALLOW allows")


def _found(name: str, path: str) -> str | None:
    # The current folder is no place to find programs in, whatever the PATH says.
    return shutil.which(name, path=os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/")))


def _environment(given: dict[str, str], ctx: Context) -> dict[str, str]:
    for name in given:
        if not name or "=" in name:
            raise GiveUp(f"there is no variable named {name!r}")
        if NOT_THEIRS.fullmatch(name):
            raise GiveUp(f"the variable {name} is not the job's to set")
    ours = {"ROTA_EXECUTION_ID": ctx.execution_id, "ROTA_ATTEMPT": str(ctx.attempt), "ROTA_FENCE": str(ctx.fence)}
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | given | ours


# How it is run


async def _guarded(order: Order, stdin: str | None, ctx: Context, grace: float) -> Ended:
    """Comes back, also by a cancellation, when nothing of the command runs any more."""
    line, theirs = socket.socketpair()
    with line, theirs:
        work = asyncio.create_task(_run(order, stdin, line, theirs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await _end(work, line, min(grace, ctx.grace - MARGIN))
            raise


async def _end(work: asyncio.Task[Ended], line: socket.socket, grace: float) -> None:
    """SIGTERM, and SIGKILL after the grace or when asked again; either way it waits until all is over."""
    with suppress(OSError):
        line.send(b"T")
    with suppress(asyncio.CancelledError):
        await asyncio.wait([work], timeout=max(0.0, grace))
    with suppress(OSError):
        line.shutdown(socket.SHUT_WR)
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    # Looked at, so that nobody complains that it was not.
    work.exception()


async def _run(order: Order, stdin: str | None, line: socket.socket, theirs: socket.socket) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(guardian.__file__)), str(theirs.fileno())),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Of Python's own needs; the command's environment is in the order.
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    assert process.stdout is not None and process.stderr is not None
    answer, stdout, stderr, _ = await asyncio.gather(
        _order(order, line), _tail(process.stdout), _tail(process.stderr), _feed(process.stdin, stdin)
    )
    await process.wait()
    return _ended(answer, stdout, stderr)


async def _order(order: Order, line: socket.socket) -> bytes:
    """Tells the guardian what to do; what it says in the end."""
    loop = asyncio.get_running_loop()
    line.setblocking(False)
    body = msgspec.json.encode(order)
    answer = b""
    with suppress(ConnectionError):
        await loop.sock_sendall(line, guardian.LENGTH.pack(len(body)) + body)
        while chunk := await loop.sock_recv(line, 65536):
            answer += chunk
    return answer


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = bytearray()
    while chunk := await stream.read(MOST_OUTPUT):
        kept += chunk
        del kept[:-MOST_OUTPUT]
    return kept.decode("utf-8", "replace")


async def _feed(stream: asyncio.StreamWriter | None, text: str | None) -> None:
    if stream is None or text is None:
        return
    # A command need not read all of its input.
    with suppress(ConnectionError):
        stream.write(text.encode())
        await stream.drain()
    with suppress(ConnectionError):
        stream.close()
        await stream.wait_closed()


# What came of it


def _ended(answer: bytes, stdout: str, stderr: str) -> Ended:
    if not answer:
        raise Failed("the guardian of the command was killed, and the command with it")
    words: dict[str, Any] = msgspec.json.decode(answer)
    if "error" in words:
        refusal = f"the command cannot be run: {words['error']}"
        raise Failed(refusal) if words["errno"] in PASSING else GiveUp(refusal)
    return Ended(words["code"], stdout, stderr)


def _judged(ended: Ended, command: Command) -> dict[str, Any]:
    if ended.code in command.ok_codes:
        return _kept(ended)
    words = _words(ended)
    if command.retry_codes is None or ended.code in command.retry_codes:
        raise Failed(words)
    raise GiveUp(words)


def _kept(ended: Ended) -> dict[str, Any]:
    """Each output gets half of the room, and what the other leaves of its half."""
    half = MOST_KEPT // 2
    stdout = shortened(ended.stdout, max(half, MOST_KEPT - printed_size(ended.stderr)), keep_end=True)
    stderr = shortened(ended.stderr, max(half, MOST_KEPT - printed_size(stdout)), keep_end=True)
    return {"code": ended.code, "stdout": stdout, "stderr": stderr}


def _words(ended: Ended) -> str:
    how = f"ended with code {ended.code}" if ended.code >= 0 else f"was ended by signal {-ended.code}"
    outputs = (("stderr", ended.stderr), ("stdout", ended.stdout))
    parts = [f"{name}: {text.strip()[-MOST_OF_A_FAILURE:]}" for name, text in outputs if text.strip()]
    return "\n".join([f"the command {how}", *parts])
