"""Schedules over HTTP: what one would do, before there is a job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from rota.model.calendar import Calendar
from rota.model.errors import InvalidSchedule
from rota.model.execution import Status
from rota.model.instants import parse_instant, print_instant
from rota.model.job import Job
from rota.model.policy import due_at
from rota.model.preview import Difference, Firing, Once, Timetable, difference, lint, sentence, shortest_gap, too_slow
from rota.model.preview import preview as look_ahead
from rota.model.query import ExecutionFilter, Page
from rota.model.rules import Rules
from rota.model.schedule import Recurring, parse_when
from rota.server.bodies import Duration, Instant, Name, Schedule, seconds_of
from rota.server.http import Call, answer
from rota.server.jobs import found_job, known_calendar

# So many of the last completed runs tell how long a job takes.
RUNS = 50


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule as a job would have it. With `job_id`, also what it would change for that job."""

    schedule: Schedule
    time_zone: Annotated[str, Meta(description="IANA name, for cron expressions.")] | None = None
    execution_start_time: Instant | None = None
    execution_end_time: Instant | None = None
    count: Annotated[int, Meta(ge=1, le=1000, description="How many firings.")] = 10
    after: Annotated[Instant, Meta(description="Firings after this instant; now unless said.")] | None = None
    job_id: UUID | None = None
    jitter: Duration | None = None
    calendar: Name | None = None


class FiringView(Struct, frozen=True):
    """`local` is the wall clock in the schedule's zone with its offset; `note` tells of a change of the clocks, and of
    firings that a calendar takes away. `due_at` is when it starts: known exactly with `job_id`, else not before."""

    at: str
    local: str
    note: str | None
    due_at: str


class DifferenceView(Struct, frozen=True):
    """Of the next firings of either: those that only the new schedule has, only the job's, and both."""

    added: list[str]
    removed: list[str]
    same: list[str]


class PreviewView(Struct, frozen=True):
    firings: list[FiringView]
    description: str
    warnings: list[str]
    difference: DifferenceView | None = None


_preview = msgspec.json.Decoder(PreviewBody)


async def preview(call: Call) -> Response:
    body, _ = await call.body(_preview)
    job = await found_job(call, body.job_id) if body.job_id is not None else None
    after = parse_instant(body.after, "after") if body.after is not None else await call.store.now()
    schedule = _schedule(body, after)
    rules = _rules(body, job)
    calendar = await known_calendar(call, job.definition.user_id if job else call.principal.user_id, rules.calendar)
    warnings = lint(schedule, after=after)
    if job is not None and (slow := too_slow(await _took(call, job), shortest_gap(schedule, after))):
        warnings.append(slow)
    return answer(
        PreviewView(
            firings=[
                _firing(firing, schedule, rules, calendar, body.job_id)
                for firing in look_ahead(schedule, after=after, count=body.count)
            ],
            description=sentence(schedule),
            warnings=warnings,
            difference=_difference(difference(_present(job), schedule, after=after, count=body.count)) if job else None,
        )
    )


def _schedule(body: PreviewBody, after: datetime) -> Timetable:
    when = parse_when(
        body.schedule, start=body.execution_start_time, end=body.execution_end_time, time_zone=body.time_zone
    )
    match when:
        case Recurring():
            return when.anchored(after)
        case datetime():
            return Once(when)
        case None:
            raise InvalidSchedule("schedule", "now is no schedule to look ahead from; write a cron expression")


def _present(job: Job) -> Timetable:
    if job.schedule is not None:
        return job.schedule
    assert job.last_execution is not None, "a one-shot job is its execution"
    return Once(job.last_execution.fires_at)


async def _took(call: Call, job: Job) -> list[timedelta]:
    where = ExecutionFilter(job_id=job.id, statuses=frozenset({Status.COMPLETED}))
    runs = (await call.store.executions(where, Page(RUNS))).items
    return [run.finished_at - run.started_at for run in runs if run.finished_at and run.started_at]


def _rules(body: PreviewBody, job: Job | None) -> Rules:
    """Those of the job, but for what is named here."""
    rules = job.rules if job and job.rules else Rules()
    jitter = timedelta(seconds=seconds_of(body.jitter, "jitter")) if body.jitter is not None else rules.jitter
    return msgspec.structs.replace(rules, jitter=jitter, calendar=body.calendar or rules.calendar)


def _firing(
    firing: Firing, schedule: Timetable, rules: Rules, calendar: Calendar | None, job_id: UUID | None
) -> FiringView:
    starts_at, note = firing.at, firing.note
    if isinstance(schedule, Recurring):
        if job_id is not None:
            starts_at = due_at(job_id, schedule, rules, firing.at)
        if calendar is not None and calendar.covers(firing.at, schedule.zone):
            note = f"skipped: a day of the calendar {rules.calendar}"
    return FiringView(print_instant(firing.at), firing.local, note, print_instant(starts_at))


def _difference(found: Difference) -> DifferenceView:
    added, removed, same = ([print_instant(at) for at in ats] for ats in (found.added, found.removed, found.same))
    return DifferenceView(added, removed, same)
