"""What an execution has logged, and what it goes on logging."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import msgspec
import typer

from rota.api import LogLineView, LogsView
from rota.cli import show
from rota.cli.connect import AsJson
from rota.client import ENDED, Client

LOOK_AGAIN = 0.5


def logs(
    execution: Annotated[str, typer.Argument(help="An execution id.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the execution has ended.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt's.")] = None,
    json: AsJson = False,
) -> None:
    """Show what an execution has logged; with -f and --json one line of JSON each."""
    with Client() as rota:
        if json and not follow:
            return show.as_json(LogsView(list(_lines(rota, execution, attempt)), None))
        # Ctrl-C is how one stops following.
        with suppress(KeyboardInterrupt):
            for line in _followed(rota, execution, attempt) if follow else _lines(rota, execution, attempt):
                _show_as_json(line) if json else show.log_line(line)
    return None


def _followed(rota: Client, execution: str, attempt: int | None) -> Iterator[LogLineView]:
    after: str | None = None
    while True:
        # Asked before the lines: what has ended by then has all its lines there.
        has_ended = rota.execution(execution).execution.status in ENDED
        for line in _lines(rota, execution, attempt, after):
            after = f"{line.attempt}-{line.seq}"
            yield line
        if has_ended:
            return
        time.sleep(LOOK_AGAIN)


def _lines(rota: Client, execution: str, attempt: int | None, after: str | None = None) -> Iterator[LogLineView]:
    while True:
        page = rota.logs(execution, attempt=attempt, after=after)
        yield from page.lines
        if page.next is None:
            return
        after = page.next


def _show_as_json(line: LogLineView) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()
