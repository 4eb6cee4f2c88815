"""How things look in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rota.api import (
    BackfillPreview,
    BackfillView,
    CalendarView,
    ExecutionDetail,
    ExecutionView,
    JobView,
    LedgerView,
    LineView,
    LogLineView,
    WorkerView,
)
from rota.model.keys import ApiKey

# A pipe has no width: nothing is cut for those who read by machine.
out = Console() if sys.stdout.isatty() else Console(width=10_000)
err = Console(stderr=True)
# Words of users are text, never markup; only ours have colours.
Cell = str | Text
MOST_SHOWN = 500
_COLOURS = {
    "COMPLETED": "green", "FAILED": "red", "RUNNING": "cyan", "RETRYING": "yellow", "QUEUED": "blue",
    "SCHEDULED": "blue", "CANCELLED": "dim", "SKIPPED": "dim", "ACTIVE": "green", "DEAD": "red", "ALIVE": "green",
    "MISSING": "red", "PAUSED": "yellow", "UNSETTLED": "yellow", "EXPECTED": "blue",
}  # fmt: skip


def as_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    lines = list(rows)
    if not lines:
        out.print(f"[dim]{empty}[/dim]")
        return
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        # Ids are there to be copied and statuses to be seen, so they are never cut; the rest gives way.
        width = max(len(line[place]) for line in lines) if column in _NEVER_CUT else None
        grid.add_column(column, no_wrap=True, overflow="ellipsis", min_width=width)
    for line in lines:
        grid.add_row(*map(_text, line))
    out.print(grid)


_NEVER_CUT = {
    "backfill",
    "calendar",
    "job",
    "execution",
    "worker",
    "key",
    "status",
    "state",
    "next",
    "when",
    "fires at",
    "verdict",
    "because",
}


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def jobs(found: Iterable[JobView]) -> None:
    rows = [(j.id, status(j.status), j.task_id, rhythm(j), ago(j.next_fires_at), j.user_id) for j in found]
    table(("job", "status", "task", "schedule", "next", "user"), rows, empty="No jobs.")


def executions(found: Iterable[ExecutionView], *, empty: str = "No executions.") -> None:
    rows = [(e.id, status(e.status), e.task_id, ago(e.started_at or e.due_at), first_line(e.error)) for e in found]
    table(("execution", "status", "task", "when", "error"), rows, empty=empty)


def ledger(page: LedgerView) -> None:
    rows = [
        (moment(line.fires_at), status(line.verdict), line.because or ("" if line.scheduled else "run by hand"),
         late(line), line.execution_id or "", first_line(line.error))
        for line in page.lines
    ]  # fmt: skip
    table(("fires at", "verdict", "because", "late", "execution", "error"), rows, empty="No firings in that time.")
    if page.lines:
        counted = ", ".join(f"{count} {verdict}" for verdict, count in page.counts.items())
        proof = "every firing is accounted for" if page.complete else "NOT every firing is accounted for"
        out.print(f"{len(page.lines)} firings: {counted}; {proof}.", style="bold" if page.complete else "bold red")


def late(line: LineView) -> str:
    """How long after its nominal time it started."""
    if line.started_at is None:
        return ""
    seconds = (datetime.fromisoformat(line.started_at) - datetime.fromisoformat(line.fires_at)).total_seconds()
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.0f} s"


def workers(found: Iterable[WorkerView]) -> None:
    rows = [
        (w.id, status(f"{w.state} ({w.wish})" if w.wish else w.state), f"{w.running}/{w.concurrency}", w.host,
         ", ".join(w.queues),
         ", ".join([*(f"{name} {amount:g}" for name, amount in w.resources.items()), *w.labels]), ", ".join(w.tasks))
        for w in found
    ]  # fmt: skip
    table(("worker", "state", "running", "host", "queues", "has", "tasks"), rows, empty="No workers.")


def backfills(found: Iterable[BackfillView]) -> None:
    rows = [(b.id, status(b.state), _progress(b), f"{moment(b.start)} – {moment(b.end)}") for b in found]
    table(("backfill", "state", "done", "range"), rows, empty="No backfills.")


def backfill(b: BackfillView) -> None:
    pairs: list[tuple[str, Cell]] = [
        ("id", b.id), ("job", b.job_id), ("state", status(b.state)), ("from", moment(b.start)), ("to", moment(b.end)),
        ("done", _progress(b)), ("open", f"{b.open} of at most {b.max_parallel}"),
        ("passed over", str(b.passed_over)), ("reprocess", b.reprocess), ("created", moment(b.created_at)),
        ("ended", moment(b.ended_at)),
    ]  # fmt: skip
    _pairs(pairs)


def _progress(b: BackfillView) -> str:
    return f"{done_of(b)} of {b.total}"


def done_of(b: BackfillView) -> int:
    return b.made - b.open + b.passed_over


def backfill_preview(b: BackfillPreview) -> None:
    pairs: list[tuple[str, Cell]] = [
        ("would make", f"{b.would_make} of {b.total} firings"), ("would pass over", str(b.passed_over)),
        ("first", "\n".join(map(moment, b.first))), ("last", "\n".join(map(moment, b.last))),
    ]  # fmt: skip
    _pairs(pairs)


def calendars(found: Iterable[CalendarView]) -> None:
    rows = [(c.name, str(len(c.days)), ", ".join(c.days[:3]) + ", …" * (len(c.days) > 3), c.user_id) for c in found]
    table(("calendar", "entries", "days", "user"), rows, empty="No calendars.")


def calendar(c: CalendarView) -> None:
    days = "\n".join(c.days)
    _pairs([("name", c.name), ("user", c.user_id), ("changed", moment(c.changed_at)), ("days", days)])


def keys(found: Iterable[ApiKey]) -> None:
    rows = [
        (k.id, k.user_id, ", ".join(k.scopes), f"{k.created_at:%Y-%m-%d %H:%M}", "revoked" if k.revoked_at else "")
        for k in found
    ]
    table(("key", "user", "scopes", "created", ""), rows, empty="No keys.")


def job(j: JobView) -> None:
    pairs: list[tuple[str, Cell]] = [
        ("id", j.id), ("task", j.task_id), ("status", status(j.status)), ("schedule", when(j)),
        ("next", moment(j.next_fires_at)), ("user", j.user_id), ("priority", str(j.priority)), ("queue", j.queue),
        ("parameters", shown(j.parameters)), ("created", moment(j.created_at)), ("rules", rules(j)),
        ("paused", paused(j)),
    ]  # fmt: skip
    _pairs(pairs)
    if j.last_execution is not None:
        out.print("\n[bold]last execution[/bold]")
        execution(ExecutionDetail(j.last_execution, []))


def execution(detail: ExecutionDetail) -> None:
    e = detail.execution
    pairs: list[tuple[str, Cell]] = [
        ("id", e.id), ("status", status(e.status)), ("due", moment(e.due_at)), ("started", moment(e.started_at)),
        ("finished", moment(e.finished_at)), ("attempt", f"{e.attempt} ({e.failures} failed)"),
        ("progress", f"{e.progress.fraction:.0%} {e.progress.note}".strip() if e.progress else ""),
        ("worker", e.worker_id or ""), ("error", e.error or ""),
        ("result", "" if e.result is None else shown(e.result)),
    ]  # fmt: skip
    if e.skipped is not None:
        pairs.append(("skipped", f"{e.skipped.count} firings up to {e.skipped.last}: {e.skipped.because}"))
    _pairs(pairs)
    for attempt in detail.attempts:
        line = f"  attempt {attempt.attempt} {attempt.verdict} {moment(attempt.ended_at)} {first_line(attempt.error)}"
        out.print(Text(line))


def log_line(line: LogLineView) -> None:
    out.print(Text(f"{moment(line.at)} #{line.attempt} {line.text}"), soft_wrap=True)


def _pairs(pairs: Iterable[tuple[str, Cell]]) -> None:
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, _text(value))
    out.print(grid)


def status(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def rules(j: JobView) -> str:
    """What is not as usual."""
    misfire = j.misfire.policy if j.misfire else None
    given = [
        ("overlap", j.overlap, "skip"), ("misfire", misfire, "latest"), ("jitter", j.jitter, None),
        ("calendar", j.calendar, None), ("max executions", j.max_executions, None),
        ("pauses after", j.auto_pause_after, None), ("waiting", j.waiting or None, None),
    ]  # fmt: skip
    return ", ".join(f"{name} {value}" for name, value, usual in given if value is not None and value != usual)


def paused(j: JobView) -> str:
    if j.paused is None:
        return ""
    until = f" until {moment(j.paused.until)}" if j.paused.until else ""
    return f"since {moment(j.paused.since)}{until}" + (f": {j.paused.note}" if j.paused.note else "")


def shown(value: object) -> str:
    """JSON, as much of it as one wants to see at a glance."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text)} characters; --json shows all)"


def rhythm(j: JobView) -> str:
    """In a list a one-shot job needs no schedule: when it is due stands beside."""
    return "once" if j.schedule.type == "DATE" else when(j)


def ago(text: str | None) -> str:
    """`in 5m`, `3s ago`: short, and what one wants to know."""
    if text is None:
        return ""
    seconds = (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()
    size = next((f"{abs(seconds) / unit:.0f}{name}" for name, unit in _UNITS if abs(seconds) >= 2 * unit), "1s")
    return f"in {size}" if seconds > 0 else f"{size} ago"


_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def when(j: JobView) -> str:
    zone = f" {j.schedule.time_zone}" if j.schedule.time_zone else ""
    expression = (j.schedule.expression or "").replace("\n", " ")
    return moment(expression) if j.schedule.type == "DATE" else f"{expression}{zone}"


def moment(text: str | None) -> str:
    return (text or "").replace("T", " ").replace(".000Z", "Z")


def first_line(text: str | None) -> str:
    """The last line of a traceback says what happened."""
    lines = (text or "").strip().splitlines()
    return lines[-1][:80] if lines else ""


def bench(report: dict[str, Any]) -> None:
    """The numbers, what each process used, and on what it was measured."""
    numbers = [
        (name.replace("_", " "), _number(value))
        for name, value in report.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    table(("number", report["workload"]), numbers, empty="")
    for name, part in report.items():
        if isinstance(part, dict) and name not in ("machine", "versions", "settings", "processes", "cpu_us_per_job"):
            out.print()
            table((name.replace("_", " "), ""), [(key, _number(value)) for key, value in part.items()], empty="")
    out.print()
    per_job = report.get("cpu_us_per_job", {})
    rows = [
        (role, str(used.processes), f"{used.cpu_s:.1f} s", f"{per_job.get(role, '')}", f"{used.memory_mb:.0f} MB")
        for role, used in report.get("processes", {}).items()
    ]
    if rows:
        table(("process", "number", "processor", "µs per job", "most memory"), rows, empty="")
        out.print()
    for part in ("machine", "versions", "settings"):
        words = ", ".join(f"{name} {value}" for name, value in report[part].items())
        out.print(f"[dim]{part}: {words}[/dim]", soft_wrap=True, highlight=False)


def _number(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_number(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)
