"""The `rota` command."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from rota.cli import backfill, bench, calendars, cron, doctor, jobs, keys, logs, show
from rota.cli.connect import Data, Database, dsn_of, use_data, work_server
from rota.client import RequestRefused, ServerUnreachable
from rota.model.errors import Invalid, RotaError, StoreUnavailable
from rota.settings import DEFAULT_DATA, DEFAULT_PORT
from rota.version import VERSION

app = typer.Typer(
    help="Rota: a distributed job scheduler. `rota up` starts everything.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Queues = Annotated[str, typer.Option(help="Queues to work on, separated by commas.")]
Concurrency = Annotated[int, typer.Option(min=1, max=100_000, help="How many executions at once.")]
Children = Annotated[int | None, typer.Option(min=1, max=64, help="Child processes; one per core unless said.")]
Drain = Annotated[float, typer.Option(min=0, help="Seconds that running work gets to end when the worker stops.")]
Resources = Annotated[
    str, typer.Option(help="What it has, like gpu=1,licence=3; cpu and memory_mb as the machine has.")
]
ReadyFile = Annotated[
    Path | None, typer.Option(help="Touched every second as long as claims succeed, for probes; removed at the end.")
]
MaxTasks = Annotated[int | None, typer.Option(min=1, help="A child makes way for another after so many attempts.")]
MaxAge = Annotated[float | None, typer.Option(min=1, help="…after so many seconds.")]
MaxMemory = Annotated[float | None, typer.Option(min=1, help="…when it has so many MiB of memory.")]
Labels = Annotated[str, typer.Option(help="What it is, like eu,ssd; jobs may ask for it.")]
Server = Annotated[
    str | None, typer.Option(help="http://… of a Rota server to work for instead of a database; key in ROTA_API_KEY.")
]
AppArgument = Annotated[str | None, typer.Argument(help="Your tasks, as module:app; without it the built-in ones.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        show.out.print(VERSION)
        raise typer.Exit


@app.command()
def up(
    app: AppArgument = None,
    data: Data = DEFAULT_DATA,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    database: Database = None,
    concurrency: Concurrency = 100,
    children: Children = None,
) -> None:
    """Start everything: PostgreSQL, API, scheduler and a worker."""
    from rota.cli.up import up as run_up

    use_data(data)
    options = ["--concurrency", str(concurrency), *(["--children", str(children)] if children else [])]
    uvloop.run(run_up(app, data, host, port, database, options))


@app.command()
def server(
    database: Database = None, data: Data = DEFAULT_DATA, host: Host = "127.0.0.1", port: Port = DEFAULT_PORT
) -> None:
    """Run the HTTP API alone."""
    from rota.cli.nodes import run_server

    uvloop.run(run_server(dsn_of(database, data), host, port))


@app.command()
def scheduler(database: Database = None, data: Data = DEFAULT_DATA) -> None:
    """Run the planner, the reaper and the janitor alone."""
    from rota.cli.nodes import run_scheduler

    uvloop.run(run_scheduler(dsn_of(database, data)))


@app.command()
def worker(
    app: AppArgument = None,
    server: Server = None,
    database: Database = None,
    data: Data = DEFAULT_DATA,
    queues: Queues = "default",
    concurrency: Concurrency = 100,
    children: Children = None,
    drain: Drain = 30.0,
    resources: Resources = "",
    labels: Labels = "",
    max_tasks: MaxTasks = None,
    max_age: MaxAge = None,
    max_memory: MaxMemory = None,
    ready_file: ReadyFile = None,
) -> None:
    """Run a worker: a supervisor and its children."""
    from rota.cli.nodes import run_remote_worker, run_worker
    from rota.worker.children import Span
    from rota.worker.machine import amounts
    from rota.worker.supervisor import CHILDREN, WorkerSettings

    use_data(data)
    names = tuple(name.strip() for name in queues.split(",") if name.strip())
    settings = WorkerSettings(
        app=app,
        queues=names,
        concurrency=concurrency,
        drain=drain,
        children=children or CHILDREN,
        resources=amounts(resources),
        labels=tuple(label.strip() for label in labels.split(",") if label.strip()),
        span=Span(max_tasks, max_age, max_memory),
        ready_file=ready_file,
    )
    if server:
        uvloop.run(run_remote_worker(work_server(server), settings))
    else:
        uvloop.run(run_worker(dsn_of(database, data, or_else=", or a server with --server"), settings))


@app.command()
def migrate(database: Database = None, data: Data = DEFAULT_DATA) -> None:
    """Bring the database to this version of Rota."""
    from rota.cli.nodes import prepare

    with show.err.status("migrating"):
        applied = uvloop.run(prepare(dsn_of(database, data)))
    show.out.print(f"Applied {', '.join(map(str, applied))}." if applied else "Nothing to do.")


app.command()(jobs.submit)
app.command("jobs")(jobs.list_jobs)
app.command()(jobs.job)
app.command()(jobs.executions)
app.command()(jobs.execution)
app.command()(logs.logs)
app.command()(jobs.cancel)
app.command()(jobs.reschedule)
app.command()(jobs.run)
app.command()(jobs.pause)
app.command()(jobs.resume)
app.command()(jobs.ledger)
app.add_typer(jobs.letters, name="dead-letters")
app.add_typer(backfill.app, name="backfill")
app.add_typer(calendars.app, name="calendars")
app.command()(jobs.workers)
app.command()(jobs.pause_worker)
app.command()(jobs.resume_worker)
app.command()(jobs.drain_worker)
app.command()(cron.cron)
app.command()(doctor.doctor)
app.add_typer(keys.app, name="keys")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 asked wrongly, 3 nobody there."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        app()
    except RotaError as error:
        show.err.print("[red]Error:[/red] ", end="")
        show.err.print(str(error), markup=False, highlight=False)
        sys.exit(_exit_code(error))


def _exit_code(error: RotaError) -> int:
    if isinstance(error, ServerUnreachable | StoreUnavailable):
        return 3
    if isinstance(error, Invalid) or (isinstance(error, RequestRefused) and error.status in (400, 422)):
        return 2
    return 1
