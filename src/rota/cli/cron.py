"""`rota cron`: what a schedule means and when it fires, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from rota.cli import show
from rota.cli.connect import AsJson
from rota.model.cron import Cron
from rota.model.errors import InvalidSchedule
from rota.model.instants import parse_instant, print_instant
from rota.model.preview import Clock, Firing, Once, Timetable, lint, preview, sentence, zone_of
from rota.model.schedule import Recurring, known_zone, parse_when

Expression = Annotated[
    str,
    typer.Argument(
        metavar="EXPR",
        help='"30 10 * * FRI", or PT15M, or "FREQ=WEEKLY;BYDAY=MO", or 2027-01-31T10:30:00Z.',
        show_default=False,
    ),
]
Zone = Annotated[str | None, typer.Option("--tz", help="IANA time zone of the cron expression; UTC unless said.")]
From = Annotated[str | None, typer.Option("--from", help="Firings after this instant; now unless said.")]
Count = Annotated[int, typer.Option("-n", min=1, max=1000, help="How many firings.")]
Dialect = Annotated[str, typer.Option(help="unix, or quartz: days of the week are 1-7 and Sunday is 1.")]


def cron(
    expression: Expression,
    tz: Zone = None,
    since: From = None,
    count: Count = 10,
    dialect: Dialect = "unix",
    json: AsJson = False,
) -> None:
    """Say what a schedule means and when it fires next; needs no server."""
    after = parse_instant(since, "--from") if since is not None else datetime.now(UTC)
    schedule = _schedule(expression, tz, dialect, after)
    found, warnings = preview(schedule, after=after, count=count), lint(schedule, after=after)
    if json:
        instants = [print_instant(firing.at) for firing in found]
        return show.as_json({"firings": instants, "description": sentence(schedule), "warnings": warnings})
    show.out.print(sentence(schedule), style="bold", highlight=False, soft_wrap=True)
    _print_firings(found, zone_of(schedule))
    for warning in warnings:
        show.out.print("[yellow]Warning:[/yellow]", warning, highlight=False, soft_wrap=True)
    return None


def _schedule(expression: str, tz: str | None, dialect: str, after: datetime) -> Timetable:
    if dialect != "unix":
        return Clock(Cron.parse(expression, dialect=dialect), ZoneInfo(known_zone(tz or "UTC")))
    match parse_when(expression, time_zone=tz):
        case Recurring() as recurring:
            return recurring.anchored(after)
        case datetime() as instant:
            return Once(instant)
        case None:
            raise InvalidSchedule("schedule", "now is no schedule to look ahead from; write a cron expression")


def _print_firings(found: list[Firing], zone: str) -> None:
    utc = [show.moment(print_instant(firing.at)) for firing in found]
    if zone == "UTC":
        return show.table(("UTC",), [(at,) for at in utc], empty="No firings.")
    rows = [(at, firing.local.replace("T", " "), firing.note or "") for at, firing in zip(utc, found, strict=True)]
    return show.table(("UTC", zone, ""), rows, empty="No firings.")
