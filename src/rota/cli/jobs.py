"""Commands about jobs and executions: they talk to the server as anyone would."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from rota.api import JobView
from rota.cli import show
from rota.cli.connect import AsJson
from rota.client import Client, RequestRefused

# After so many seconds of waiting one asks why.
PATIENCE = 5.0
Id = Annotated[str, typer.Argument(help="A job id.")]
At = Annotated[str | None, typer.Option(help="At this instant: 2027-01-31T10:30:00Z.")]
Every = Annotated[str | None, typer.Option(help="Every ISO 8601 duration: PT15M.")]
Cron = Annotated[str | None, typer.Option(help='By cron: "0 10 * * FRI".')]
Rule = Annotated[
    str | None, typer.Option(help='By RFC 5545: "FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0".')
]
Zone = Annotated[str | None, typer.Option("--tz", help="IANA time zone of the cron expression or the RRULE.")]
OverlapRule = Annotated[
    str | None,
    typer.Option(help="While one is open: skip, buffer_one, buffer_all, cancel_other, terminate_other or allow."),
]
MisfireRule = Annotated[str | None, typer.Option(help="Of firings missed run the latest, all, or none (skip).")]
User = Annotated[str | None, typer.Option("--user", help="Only this user's.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many rows.")]
Token = Annotated[str | None, typer.Option("--page-token", help="Where the page before ended.")]
Pairs = Annotated[list[str], typer.Option("-p", "--parameter", help="key=value; the value is JSON if it can be.")]


def submit(
    task: Annotated[str, typer.Argument(help="The task to run, for example echo.")],
    parameter: Pairs = [],  # noqa: B006 - typer wants it so
    at: At = None,
    every: Every = None,
    cron: Cron = None,
    rrule: Rule = None,
    tz: Zone = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="A step up is a head start of five seconds.")] = 0,
    queue: Annotated[str, typer.Option(help="The queue whose workers may take it.")] = "default",
    max_retries: Annotated[int | None, typer.Option(min=0, max=1000, help="How often it is tried again.")] = None,
    overlap: OverlapRule = None,
    misfire: MisfireRule = None,
    jitter: Annotated[str | None, typer.Option(help="Put each start off by up to this duration.")] = None,
    calendar: Annotated[str | None, typer.Option(help="Not on the days of this calendar.")] = None,
    max_executions: Annotated[int | None, typer.Option(min=1, help="End the job after so many.")] = None,
    auto_pause_after: Annotated[int | None, typer.Option(min=1, help="Pause it after so many failures.")] = None,
    key: Annotated[str | None, typer.Option("--idempotency-key", help="The same key gives the same job.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended; exit 1 unless it completed.")] = False,
    json: AsJson = False,
) -> None:
    """Submit a job: now, at an instant, every so often, by cron or by an RRULE."""
    given = {
        "max_retries": max_retries, "overlap": overlap, "misfire": misfire, "jitter": jitter, "calendar": calendar,
        "max_executions": max_executions, "auto_pause_after": auto_pause_after,
    }  # fmt: skip
    options: dict[str, Any] = {"priority": priority, "queue": queue}
    options |= {name: value for name, value in given.items() if value is not None}
    _one_of(at, every, cron, rrule)
    if wait and (every or cron or rrule):
        raise typer.BadParameter("--wait goes with a job that runs once; this one never ends by itself")
    with Client() as rota:
        job = rota.submit(
            task,
            _parameters(parameter),
            at=at,
            every=every,
            cron=cron,
            rrule=rrule,
            tz=tz,
            idempotency_key=key,
            **options,
        )
        if wait:
            with show.err.status(f"waiting for {job.id}"):
                job = _waited(rota, job)
    show.as_json(job) if json else show.job(job)
    if wait and job.status != "COMPLETED":
        raise typer.Exit(1)


def _waited(rota: Client, job: JobView) -> JobView:
    try:
        return rota.wait(job.id, timeout=PATIENCE)
    except TimeoutError:
        _explain(rota, job)
    return rota.wait(job.id)


def _explain(rota: Client, job: JobView) -> None:
    """Why it may take for ever."""
    with suppress(RequestRefused):
        alive = [worker for worker in rota.workers().workers if worker.state == "ALIVE"]
        if not any(job.task_id in worker.tasks and job.queue in worker.queues for worker in alive):
            where = f"{job.task_id!r} in the queue {job.queue!r}"
            show.err.print(f"No live worker serves {where}; start one with `rota worker module:app`.", markup=False)


def list_jobs(
    status: Annotated[str | None, typer.Option(help="For example pending, running, completed, failed, active.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task's.")] = None,
    user: User = None,
    limit: Limit = 50,
    page_token: Token = None,
    json: AsJson = False,
) -> None:
    """List jobs."""
    with Client() as rota:
        page = rota.list(status=status, task_id=task, user_id=user, limit=limit, page_token=page_token)
    if json:
        return show.as_json(page)
    show.jobs(page.jobs)
    return _more(page.next_page_token)


def job(id: Id, json: AsJson = False) -> None:
    """Show one job."""
    with Client() as rota:
        found = rota.get(id)
    show.as_json(found) if json else show.job(found)


def executions(
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    status: Annotated[str | None, typer.Option(help="For example running, completed, failed, skipped.")] = None,
    worker: Annotated[str | None, typer.Option(help="Only what runs or ran on this worker.")] = None,
    user: User = None,
    limit: Limit = 50,
    page_token: Token = None,
    json: AsJson = False,
) -> None:
    """List executions."""
    with Client() as rota:
        page = rota.executions(
            job_id=job, status=status, worker_id=worker, user_id=user, limit=limit, page_token=page_token
        )
    if json:
        return show.as_json(page)
    show.executions(page.executions)
    return _more(page.next_page_token)


def execution(id: Annotated[str, typer.Argument(help="An execution id.")], json: AsJson = False) -> None:
    """Show one execution and its attempts."""
    with Client() as rota:
        found = rota.execution(id)
    show.as_json(found) if json else show.execution(found)


def cancel(id: Id, json: AsJson = False) -> None:
    """Cancel a job; what runs is asked to stop."""
    with Client() as rota:
        found = rota.cancel(id)
    show.as_json(found) if json else show.job(found)


def reschedule(
    id: Id,
    at: At = None,
    every: Every = None,
    cron: Cron = None,
    rrule: Rule = None,
    tz: Zone = None,
    priority: Annotated[int | None, typer.Option(min=0, max=9, help="Another priority.")] = None,
    json: AsJson = False,
) -> None:
    """Give a job another schedule or priority."""
    _one_of(at, every, cron, rrule)
    changes: dict[str, Any] = {} if priority is None else {"priority": priority}
    if not changes and not any((at, every, cron, rrule, tz)):
        raise typer.BadParameter("say what is to change: --at, --every, --cron, --rrule, --tz or --priority")
    with Client() as rota:
        found = rota.reschedule(id, at=at, every=every, cron=cron, rrule=rrule, tz=tz, **changes)
    show.as_json(found) if json else show.job(found)


def run(id: Id, json: AsJson = False) -> None:
    """Run a job now, once more."""
    with Client() as rota:
        found = rota.run(id)
    show.as_json(found) if json else show.executions([found])


def pause(
    id: Id,
    note: Annotated[str | None, typer.Option(help="Why, for whoever looks.")] = None,
    until: Annotated[str | None, typer.Option(help="Resume at this instant by itself.")] = None,
    json: AsJson = False,
) -> None:
    """Pause a recurring job; what runs goes on."""
    with Client() as rota:
        found = rota.pause(id, note=note, until=until)
    show.as_json(found) if json else show.job(found)


def resume(
    id: Id,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="What fell due meanwhile counts as missed.")] = False,
    json: AsJson = False,
) -> None:
    """Resume a paused job."""
    with Client() as rota:
        found = rota.resume(id, catch_up=catch_up)
    show.as_json(found) if json else show.job(found)


def ledger(
    id: Id,
    since: Annotated[str | None, typer.Option("--from", help="An instant; a week ago unless said.")] = None,
    to: Annotated[str | None, typer.Option(help="An instant; now unless said.")] = None,
    limit: Limit = 100,
    page_token: Token = None,
    json: AsJson = False,
) -> None:
    """Show every firing that was expected of a job, and what became of it."""
    with Client() as rota:
        page = rota.ledger(id, start=since, end=to, limit=limit, page_token=page_token)
    if json:
        return show.as_json(page)
    show.ledger(page)
    return _more(page.next_page_token)


letters = typer.Typer(help="Executions that failed for good.", invoke_without_command=True)


@letters.callback()
def dead_letters(context: typer.Context, limit: Limit = 50, page_token: Token = None, json: AsJson = False) -> None:
    """List the dead letters."""
    if context.invoked_subcommand is not None:
        return None
    with Client() as rota:
        page = rota.dead_letters(limit=limit, page_token=page_token)
    if json:
        return show.as_json(page)
    show.executions(page.executions, empty="No dead letters.")
    return _more(page.next_page_token)


@letters.command()
def redrive(
    ids: Annotated[list[str] | None, typer.Argument(help="Execution ids.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Every one of them.")] = False,
    json: AsJson = False,
) -> None:
    """Run dead letters again."""
    if bool(ids) == all:
        raise typer.BadParameter("name the executions, or say --all")
    with Client() as rota:
        done = rota.redrive(ids or None)
    if json:
        return show.as_json(done)
    for name in done.redriven:
        show.out.print(f"redriven {name}")
    for refused in done.refused:
        show.err.print(f"refused {refused.id}: {refused.reason}", markup=False)
    if not done.redriven and not done.refused:
        show.out.print("[dim]No dead letters.[/dim]")
    if done.refused:
        raise typer.Exit(1)
    return None


def workers(
    all: Annotated[bool, typer.Option("--all", help="Also those that have stopped or died.")] = False,
    json: AsJson = False,
) -> None:
    """List the workers that are alive."""
    with Client() as rota:
        found = rota.workers()
    chosen = [worker for worker in found.workers if all or worker.state == "ALIVE"]
    show.as_json({"workers": chosen}) if json else show.workers(chosen)


WorkerId = Annotated[str, typer.Argument(help="A worker id, as `rota workers` shows it.")]


def pause_worker(id: WorkerId, json: AsJson = False) -> None:
    """A worker claims nothing for now; what runs goes on."""
    _tell_worker(id, "pause", json)


def resume_worker(id: WorkerId, json: AsJson = False) -> None:
    """A paused worker goes on."""
    _tell_worker(id, "resume", json)


def drain_worker(id: WorkerId, json: AsJson = False) -> None:
    """A worker lets what runs end, hands back the rest, and ends."""
    _tell_worker(id, "drain", json)


def _tell_worker(id: str, wish: str, json: bool) -> None:
    with Client() as rota:
        found = rota.tell_worker(id, wish)
    show.as_json(found) if json else show.workers([found])


def _parameters(pairs: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not key=value", param_hint="-p")
        try:
            parameters[name] = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            parameters[name] = text
    return parameters


def _one_of(*schedules: str | None) -> None:
    if sum(schedule is not None for schedule in schedules) > 1:
        raise typer.BadParameter("--at, --every, --cron and --rrule exclude each other")


def _more(token: str | None) -> None:
    if token:
        show.err.print(f"[dim]There is more: --page-token {token}[/dim]")
