"""`rota bench`: measures the real thing, and checks itself before it says a number."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rota.cli import show
from rota.cli.connect import AsJson
from rota.model.errors import InvalidField

if TYPE_CHECKING:
    from rota.bench.load import Report
    from rota.bench.run import Workload
    from rota.bench.stage import Setup, Stage, Tell

app = typer.Typer(
    help="Measure Rota on this machine: a real PostgreSQL with fsync, server, scheduler, worker and producer. "
    "Every run checks that each job ran exactly once and on time before it prints a number.",
    no_args_is_help=True,
)
Database = Annotated[
    str | None,
    typer.Option("--database", help="postgres://… of an empty database to fill, instead of an embedded one."),
]
Seconds = Annotated[float, typer.Option(min=1, help="How long it is measured.")]
Jobs = Annotated[int, typer.Option("--n", min=1, help="How many jobs.")]
Concurrency = Annotated[int, typer.Option(min=1, max=100_000, help="How many executions the worker has at once.")]
Children = Annotated[int | None, typer.Option(min=1, max=64, help="Child processes; one per core unless said.")]
Users = Annotated[int, typer.Option(min=1, max=10_000, help="Whose jobs they are: so many users take turns.")]
Plot = Annotated[Path | None, typer.Option(dir_okay=False, help="Draw lateness over time into this SVG file.")]
Ceiling = Annotated[
    int,
    typer.Option(
        min=0, help="Jobs that the bare SQL is measured with, before and after, for the ratio; 0 leaves it out."
    ),
]


@app.command()
def throughput(
    seconds: Seconds = 30,
    http: Annotated[bool, typer.Option("--http", help="Submit through the API, in batches of 1,000.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="The worker has no database, only the server.")] = False,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    users: Users = 1,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Submit, claim, execute and finish no-op jobs, as many as go."""
    from rota.bench import load as workloads

    workload = partial(workloads.throughput, seconds=seconds, over_http=http, remote=remote)
    _run("throughput", workload, _setup(database, concurrency, children, users), ceiling, json)


@app.command()
def drain(
    n: Jobs = 200_000,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    users: Users = 1,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Store jobs first, then start a worker."""
    from rota.bench import load as workloads

    _run("drain", partial(workloads.drain, jobs=n), _setup(database, concurrency, children, users), ceiling, json)


@app.command()
def steady(
    rate: Annotated[float, typer.Option(min=1, max=100_000, help="Jobs due in a second.")] = 1000,
    seconds: Seconds = 30,
    plot: Plot = None,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    users: Users = 1,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Due times spread evenly: how late does each task body begin?"""
    from rota.bench import load as workloads

    workload = partial(workloads.steady, rate=rate, seconds=seconds)
    _run("steady", workload, _setup(database, concurrency, children, users), ceiling, json, plot)


@app.command()
def burst(
    n: Jobs = 20_000,
    plot: Plot = None,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    users: Users = 1,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """All due at one instant: when has the last begun?"""
    from rota.bench import load as workloads

    _run("burst", partial(workloads.burst, jobs=n), _setup(database, concurrency, children, users), ceiling, json, plot)


@app.command()
def recurring(
    jobs: Annotated[int, typer.Option(min=60, help="How many cron jobs are stored.")] = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="Firings in a second.")] = 1000,
    seconds: Annotated[int, typer.Option(min=1, help="How long it is measured.")] = 60,
    plot: Plot = None,
    database: Database = None,
    # All firings of a second are due at the same instant; who cannot hold them all begins the last ones later.
    concurrency: Concurrency = 5000,
    children: Children = None,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Many stored cron jobs, some of which fire every second."""
    from rota.bench import recurring as workloads

    workload = partial(workloads.recurring, jobs=jobs, rate=rate, seconds=seconds)
    _run("recurring", workload, _setup(database, concurrency, children), ceiling, json, plot)


@app.command()
def depth(
    pending: Annotated[int, typer.Option(min=10_000, help="How many future executions are stored.")] = 1_000_000,
    seconds: Seconds = 15,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Throughput with many future executions stored, against the same with 10,000."""
    from rota.bench import obstacles as workloads

    workload = partial(workloads.depth, pending=pending, seconds=seconds)
    _run("depth", workload, _setup(database, concurrency, children), ceiling, json)


@app.command()
def crowd(
    executions: Annotated[int, typer.Option(min=1, help="How many due executions stand in the way.")] = 1_000_000,
    seconds: Seconds = 10,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Throughput while many due executions stand in the way that the worker must not or cannot take."""
    from rota.bench import obstacles as workloads

    workload = partial(workloads.crowd, executions=executions, seconds=seconds)
    _run("crowd", workload, _setup(database, concurrency, children), ceiling, json)


@app.command()
def snapshot(
    held: Annotated[float, typer.Option(min=1, help="Seconds that the transaction is held open.")] = 60,
    database: Database = None,
    concurrency: Concurrency = 2000,
    children: Children = None,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Throughput while another connection holds a transaction open."""
    from rota.bench import obstacles as workloads

    _run("snapshot", partial(workloads.snapshot, held=held), _setup(database, concurrency, children), ceiling, json)


@app.command()
def http(
    seconds: Seconds = 10,
    connections: Annotated[int, typer.Option("-c", min=1, max=1000, help="Connections for single jobs.")] = 32,
    rows: Annotated[int, typer.Option(min=10_000, help="Ended executions stored when the API is read.")] = 1_000_000,
    database: Database = None,
    ceiling: Ceiling = 200_000,
    json: AsJson = False,
) -> None:
    """Jobs accepted by the API, one by one and in batches, and what reading it takes with much history."""
    from rota.bench import http as workloads

    workload = partial(workloads.http, seconds=seconds, connections=connections, rows=rows)
    _run("http", workload, _setup(database), ceiling, json)


@app.command()
def limit(
    n: Annotated[int, typer.Option("--n", min=4000, help="How many jobs.")] = 400_000,
    database: Database = None,
    json: AsJson = False,
) -> None:
    """The ceiling: the same SQL statements, with no other Python around them."""
    from rota.bench import limit as workloads

    async def workload(stage: Stage, tell: Tell) -> Report:
        tell("measuring the ceiling", None)
        found = await workloads.limit(stage, n)
        return {"jobs": n, "rate": found["limit_rate"]} | found

    _run("limit", workload, _setup(database), 0, json)


def _setup(database: str | None, concurrency: int = 2000, children: int | None = None, users: int = 1) -> Setup:
    from rota.bench.stage import USER, Setup

    names = (USER,) if users == 1 else tuple(f"{USER}-{number}" for number in range(users))
    return Setup(database, concurrency, children, names)


def _run(name: str, workload: Workload, setup: Setup, ceiling: int, json: bool, file: Path | None = None) -> None:
    from rota.bench.run import plot, run

    if file is not None and not file.absolute().parent.is_dir():
        raise InvalidField("--plot", f"there is no folder {file.absolute().parent}")
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=show.err, transient=True) as progress:
        bar = progress.add_task(name, total=None)

        def tell(what: str, share: float | None) -> None:
            progress.update(
                bar, description=f"{name}: {what}", total=None if share is None else 1.0, completed=share or 0
            )

        report = uvloop.run(run(name, workload, setup, tell, ceiling=ceiling))
    if file is not None:
        plot(report, file)
    report.pop("points", None)
    if json:
        show.as_json(report)
    else:
        show.bench(report)
