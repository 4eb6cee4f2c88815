"""Commands about backfills: past firings of a recurring job run, a few at a time."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rota.api import BackfillView
from rota.cli import show
from rota.cli.connect import AsJson
from rota.client import Client
from rota.model.backfill import MOST_PARALLEL, BackfillState, Reprocess

app = typer.Typer(help="Backfills: past firings of a recurring job run, a few at a time.", no_args_is_help=True)
# Seconds between two looks at a backfill that is waited for.
LOOKS = 0.5
# As shells have it for what Ctrl-C ended.
INTERRUPTED = 130
Job = Annotated[str, typer.Argument(help="The job's id.")]
Id = Annotated[str, typer.Argument(help="The backfill's id.")]


@app.command()
def start(
    job: Job,
    from_: Annotated[str, typer.Option("--from", help="From this instant on: 2027-01-31T10:30:00Z.")],
    to: Annotated[str, typer.Option("--to", help="Up to this instant, which belongs to it.")],
    max_parallel: Annotated[int, typer.Option(min=1, max=MOST_PARALLEL, help="How many may be open at once.")] = 1,
    reprocess: Annotated[Reprocess, typer.Option(help="What runs again: none that ever ran.")] = Reprocess.NONE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show its progress until it has ended.")] = False,
    json: AsJson = False,
) -> None:
    """Run the firings of a range that never ran, also those that failed, or all."""
    if dry_run and wait:
        raise typer.BadParameter("--wait goes with a backfill that runs; --dry-run starts none")
    with Client() as rota:
        if dry_run:
            preview = rota.preview_backfill(job, from_, to, max_parallel=max_parallel, reprocess=reprocess.value)
            return show.as_json(preview) if json else show.backfill_preview(preview)
        found = rota.backfill(job, from_, to, max_parallel=max_parallel, reprocess=reprocess.value)
        if wait:
            found = _waited(rota, found)
    show.as_json(found) if json else show.backfill(found)
    if wait and found.state != BackfillState.COMPLETED:
        raise typer.Exit(1)
    return None


def _waited(rota: Client, backfill: BackfillView) -> BackfillView:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    try:
        with Progress(*columns, console=show.err) as progress:
            bar = progress.add_task("backfill", total=backfill.total)
            while backfill.state == BackfillState.RUNNING:
                time.sleep(LOOKS)
                backfill = rota.find_backfill(backfill.id)
                progress.update(bar, completed=show.done_of(backfill))
    except KeyboardInterrupt:
        show.err.print(f"It goes on without you: `rota backfill show {backfill.id}`, or `rota backfill cancel …`.")
        raise typer.Exit(INTERRUPTED) from None
    return backfill


@app.command("list")
def list_backfills(job: Job, json: AsJson = False) -> None:
    """List the backfills of a job, newest first."""
    with Client() as rota:
        found = rota.backfills(job)
    show.as_json(found) if json else show.backfills(found.backfills)


@app.command("show")
def show_backfill(id: Id, json: AsJson = False) -> None:
    """Show one backfill and how far it is."""
    with Client() as rota:
        found = rota.find_backfill(id)
    show.as_json(found) if json else show.backfill(found)


@app.command()
def cancel(id: Id, json: AsJson = False) -> None:
    """Cancel a backfill; what runs is asked to stop."""
    with Client() as rota:
        found = rota.cancel_backfill(id)
    show.as_json(found) if json else show.backfill(found)
