"""Commands about calendars: days on which the jobs that refer to them do not fire."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli import show
from rota.cli.connect import AsJson
from rota.client import Client

app = typer.Typer(help="Calendars: days on which the jobs that refer to them do not fire.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(help="The calendar's name.")]
User = Annotated[str | None, typer.Option("--user", help="This user's; for admin.")]


@app.callback()
def list_calendars(context: typer.Context, user: User = None, json: AsJson = False) -> None:
    """List the calendars."""
    if context.invoked_subcommand is not None:
        if user is not None:
            raise typer.BadParameter(f"--user goes behind {context.invoked_subcommand}")
        return
    with Client() as rota:
        found = rota.calendars(user_id=user)
    show.as_json(found) if json else show.calendars(found.calendars)


@app.command("show")
def show_calendar(name: Name, user: User = None, json: AsJson = False) -> None:
    """Show one calendar with all its days."""
    with Client() as rota:
        found = rota.calendar(name, user_id=user)
    show.as_json(found) if json else show.calendar(found)


@app.command()
def put(
    name: Name,
    days: Annotated[
        list[str], typer.Argument(metavar="DAY...", help="2027-12-25, 2027-12-24/2027-12-26, or two instants with a /.")
    ],
    user: User = None,
    json: AsJson = False,
) -> None:
    """Make a calendar of these days, or replace the one of that name."""
    with Client() as rota:
        found = rota.put_calendar(name, days, user_id=user)
    show.as_json(found) if json else show.calendar(found)


@app.command()
def delete(name: Name, user: User = None, json: AsJson = False) -> None:
    """Delete a calendar to which no job refers."""
    with Client() as rota:
        gone = rota.delete_calendar(name, user_id=user)
    show.as_json(gone) if json else show.calendar(gone)
