"""Jobs over HTTP: submit, list, look, change, cancel, run."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from rota.api import JobsView
from rota.model.calendar import Calendar
from rota.model.definition import Definition
from rota.model.errors import Conflict, InvalidField, InvalidSchedule, NotFound, quoted
from rota.model.execution import Status, statuses_named
from rota.model.instants import parse_instant, whole_milliseconds
from rota.model.job import IdempotencyKey, Job, JobStatus, NewJob, new_job_id
from rota.model.policy import Unplanned, plan_for
from rota.model.query import MOST_PER_PAGE, JobFilter, Page, parse_token, print_token
from rota.model.rules import Rules
from rota.model.schedule import ByCron, Recurring, ScheduleText, parse_when, schedule_text, typed
from rota.server.answers import execution_view, job_view
from rota.server.bodies import (
    RULES,
    BatchBody,
    JobBody,
    JobPatch,
    PauseBody,
    ResumeBody,
    definition_of,
    patched,
    rules_of,
    unique_of,
)
from rota.server.http import MANY, Call, answer, storable
from rota.store.protocol import Accepted, KeyReused, OneShotChange, RecurringChange, Replayed, Submission, Taken

LIST = ("user_id", "status", "task_id", "start_time", "end_time", "limit", "page_token")
_one = msgspec.json.Decoder(JobBody)
_many = msgspec.json.Decoder(BatchBody)
_patch = msgspec.json.Decoder(JobPatch)
_pause = msgspec.json.Decoder(PauseBody)
_resume = msgspec.json.Decoder(ResumeBody)
# How often a change is made anew when the planner was faster; it is bound to win in between.
PATIENCE = 10
# So many parts of a long pause are settled for one change, at a few hundred firings each where they cannot be counted.
LONGEST_PAST = 5000


async def create(call: Call) -> Response:
    body, _ = await call.body(_one)
    jobs, status = await _submit(call, [body], body)
    return answer(job_view(jobs[0]), status, {"Location": f"/jobs/{jobs[0].id}"})


async def create_many(call: Call) -> Response:
    batch, _ = await call.body(_many, MANY)
    jobs, status = await _submit(call, batch.jobs, batch)
    return answer(JobsView([job_view(job) for job in jobs]), status)


async def _submit(call: Call, bodies: list[JobBody], whole: JobBody | BatchBody) -> tuple[list[Job], int]:
    key = _key(call, whole)
    try:
        jobs = await _new_jobs(call, bodies, many=isinstance(whole, BatchBody))
    except InvalidField:
        # A repetition may come so late that its schedule lies in the past; it still means the first job.
        again = await call.store.replay(_owner(call, bodies[0]), key) if key else None
        if again is None:
            raise
        return await call.store.find_jobs(again), 200
    match await call.services.submitter.submit(Submission(jobs, key)):
        case Accepted(jobs=stored):
            return stored, 201
        case Replayed(job_ids):
            return await call.store.find_jobs(job_ids), 200
        case Taken(job_id, rejected) if rejected:
            raise Conflict(f"The unique_key is taken by the job {job_id}, which has not ended.")
        case Taken(job_id):
            return await call.store.find_jobs([job_id]), 200
        case KeyReused():
            raise InvalidField("Idempotency-Key", "was used for another body; a new job needs a new key")
    raise AssertionError("a submission has one of four receipts")


async def _new_jobs(call: Call, bodies: list[JobBody], *, many: bool) -> list[NewJob]:
    shards = await call.store.shards()
    # Most jobs are due at once, and then the time is the database's business alone.
    timed = any(
        body.schedule is not None or body.execution_end_time is not None or body.start_by or body.deadline
        for body in bodies
    )
    now = await call.store.now() if timed else None
    jobs = [_new_job(call, body, shards, now, f"jobs[{n}]" if many else "") for n, body in enumerate(bodies)]
    for user_id, name in dict.fromkeys((job.definition.user_id, job.rules.calendar) for job in jobs):
        await known_calendar(call, user_id, name)
    return jobs


def _new_job(call: Call, body: JobBody, shards: int, now: datetime | None, place: str) -> NewJob:
    try:
        when = parse_when(
            body.schedule, start=body.execution_start_time, end=body.execution_end_time, time_zone=body.time_zone
        )
        definition = definition_of(body, _owner(call, body), None if isinstance(when, Recurring) else when or now)
        if place and body.unique_key is not None:
            raise InvalidField("unique_key", "goes with one job at a time; use POST /jobs")
        if not isinstance(when, Recurring):
            if when is None and now is not None and body.execution_end_time is not None:
                _not_over(body.execution_end_time, now)
            _only_recurring(body)
            return NewJob(id=new_job_id(shards), definition=definition, fires_at=when, unique=unique_of(body))
        assert now is not None, "a recurring job has a schedule"
        recurring = when.anchored(now)
        return NewJob(
            id=new_job_id(shards),
            definition=definition,
            recurring=recurring,
            fires_at=_first(recurring, now),
            rules=_fitting(rules_of(body), definition),
            since=now,
            unique=unique_of(body),
        )
    except InvalidField as error:
        raise InvalidField(f"{place}.{error.field}".lstrip("."), error.problem) from None


def _only_recurring(body: JobBody) -> None:
    for name in RULES:
        if getattr(body, name) != getattr(_USUAL, name):
            raise InvalidField(name, "goes with recurring jobs; give it a schedule that recurs, or leave this out")


_USUAL = JobBody(task_id="any")


def _fitting(rules: Rules, definition: Definition) -> Rules:
    start_by = definition.policy.start_by
    if rules.jitter is not None and start_by is not None and rules.jitter.total_seconds() >= start_by:
        raise InvalidField("start_by", "is not longer than jitter, which may put the start off as far as that")
    return rules


def _not_over(end: str, now: datetime) -> None:
    if parse_instant(end, "execution_end_time") < now:
        raise InvalidField("execution_end_time", "has passed, so the job could never run; choose a later one")


def _first(recurring: Recurring, after: datetime) -> datetime:
    fires_at = recurring.after(after)
    if fires_at is None:
        raise InvalidSchedule("schedule", "never fires between now and execution_end_time")
    return fires_at


def _owner(call: Call, body: JobBody) -> str:
    if body.user_id is not None and body.scheduler is not None and body.user_id != body.scheduler:
        raise InvalidField("scheduler", "is another name of user_id, and the two differ; send one of them")
    named = body.user_id if body.user_id is not None else body.scheduler
    field = "user_id" if body.user_id is not None else "scheduler"
    return call.user_asked_for(named, field) or call.principal.user_id


def _key(call: Call, whole: JobBody | BatchBody) -> IdempotencyKey | None:
    name = call.request.headers.get("idempotency-key")
    if name is None:
        return None
    if not 1 <= len(name) <= 255 or not name.isprintable():
        raise InvalidField("Idempotency-Key", "must have 1 to 255 printable characters")
    canonical = msgspec.json.encode(whole, order="deterministic")
    return IdempotencyKey(name, hashlib.sha256(canonical).digest())


async def list_all(call: Call) -> Response:
    asked = call.query()
    statuses, job_statuses = _statuses(asked.get("status"))
    where = JobFilter(
        user_id=call.user_asked_for(asked.get("user_id")),
        statuses=statuses,
        job_statuses=job_statuses,
        task_id=asked.get("task_id"),
        start=instant_in(asked, "start_time"),
        end=instant_in(asked, "end_time"),
    )
    found = await call.store.jobs(where, page_in(asked))
    return answer(JobsView([job_view(job) for job in found.items], print_token(found.next) if found.next else None))


def _statuses(word: str | None) -> tuple[frozenset[Status] | None, frozenset[JobStatus] | None]:
    """A word may stand for executions, for recurring jobs, or (CANCELLED) for both."""
    if word is None:
        return None, None
    statuses = statuses_named(word)
    job_statuses = frozenset({JobStatus(word.upper())} if word.upper() in JobStatus.__members__ else ())
    if not statuses and not job_statuses:
        names = ", ".join(dict.fromkeys([*map(str, Status), *map(str, JobStatus), "PENDING"]))
        raise InvalidField("status", f"{quoted(word)} is not a status; there are {names}")
    return statuses, job_statuses


def instant_in(asked: dict[str, str], field: str) -> datetime | None:
    return parse_instant(asked[field].replace(" ", "+"), field) if field in asked else None


def page_in(asked: dict[str, str]) -> Page:
    limit = asked.get("limit", "50")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 6 and 1 <= int(limit) <= MOST_PER_PAGE):
        raise InvalidField("limit", f"must be a whole number from 1 to {MOST_PER_PAGE}")
    return Page(int(limit), parse_token(asked["page_token"]) if "page_token" in asked else None)


async def look(call: Call) -> Response:
    return answer(job_view(await job_of(call)))


async def job_of(call: Call) -> Job:
    return await found_job(call, call.path_id("job"))


async def found_job(call: Call, job_id: UUID) -> Job:
    """Somebody else's job is as unknown as one that never was."""
    for job in await call.store.find_jobs([job_id]):
        if call.may_see(job.definition.user_id):
            return job
    raise NotFound("job", str(job_id))


async def cancel(call: Call) -> Response:
    job = await job_of(call)
    over = job.status is JobStatus.FINISHED and not job.has_open
    if over or job.status in (Status.COMPLETED, Status.FAILED):
        raise Conflict(f"The job is {job.status} and cannot be cancelled any more.")
    await call.store.cancel_jobs([job.id])
    return answer(job_view(await found_job(call, job.id)))


async def run(call: Call) -> Response:
    job = await job_of(call)
    if job.status is JobStatus.CANCELLED:
        raise Conflict("The job is CANCELLED; submit it anew.")
    key = await call.store.run_now(job)
    if key is None:
        raise Conflict("An execution of this job is running, and it allows no overlap.")
    [execution] = await call.store.find_executions([key])
    return answer(execution_view(execution), 201)


async def pause(call: Call) -> Response:
    body, _ = await call.body(_pause)
    job = await _recurring(call, "paused")
    until = parse_instant(body.until, "until") if body.until is not None else None
    if until is not None and until <= await call.store.now():
        raise InvalidField("until", "has passed already; leave it out to pause the job until it is resumed")
    if body.note is not None:
        storable(body.note, "note")
    if not await call.store.pause(job.id, note=body.note, until=until):
        raise Conflict(f"The job is {(await found_job(call, job.id)).status} and cannot be paused any more.")
    return answer(job_view(await found_job(call, job.id)))


async def resume(call: Call) -> Response:
    body, _ = await call.body(_resume)
    job = await _recurring(call, "resumed")
    if not await call.store.resume(job.id, catch_up=body.catch_up):
        raise Conflict(f"The job is {(await found_job(call, job.id)).status}, not PAUSED.")
    return answer(job_view(await found_job(call, job.id)))


async def _recurring(call: Call, verb: str) -> Job:
    job = await job_of(call)
    if job.schedule is None:
        raise Conflict(f"The job runs once and cannot be {verb}; cancel it, or give it another time.")
    return job


async def change(call: Call) -> Response:
    patch, _ = await call.body(_patch)
    lost = settled = 0
    while lost < PATIENCE and settled < LONGEST_PAST:
        job, now = await job_of(call), await call.store.now()
        if _is_behind(job, now):
            # What is due by the old schedule is settled by it first, whoever was to plan it, a part at a time.
            await _settle(call, job, now)
            settled += 1
        elif await (_change_recurring if job.schedule else _change_one_shot)(call, job, patch, now):
            return answer(job_view(await found_job(call, job.id)))
        else:
            lost += 1
    raise Conflict("The job is being changed by others; try again.")


def _is_behind(job: Job, now: datetime) -> bool:
    return job.cursor is not None and job.cursor <= now and job.status in (JobStatus.ACTIVE, JobStatus.PAUSED)


async def _change_one_shot(call: Call, job: Job, patch: JobPatch, now: datetime) -> bool:
    last = job.last_execution
    assert last is not None, "a one-shot job is its execution"
    if not last.is_pending:
        raise Conflict(f"The job is {job.status}; only a pending one can be changed.")
    for name in RULES:
        if getattr(patch, name) is not UNSET:
            raise InvalidField(name, "goes with recurring jobs")
    when = parse_when(
        patch.schedule if patch.schedule is not UNSET else None,
        start=patch.execution_start_time or None,
        end=patch.execution_end_time or None,
        time_zone=patch.time_zone or None,
    )
    if isinstance(when, Recurring):
        raise InvalidField("schedule", "a one-shot job cannot become recurring; cancel it and submit a new one")
    if when is None and patch.schedule is not UNSET:
        when = whole_milliseconds(now)
    return await call.store.change_one_shot(
        OneShotChange(key=last.key, definition=patched(job.definition, patch, when or last.fires_at), fires_at=when)
    )


async def _change_recurring(call: Call, job: Job, patch: JobPatch, now: datetime) -> bool:
    if job.status is JobStatus.CANCELLED:
        raise Conflict("The job is CANCELLED; submit it anew.")
    schedule = _new_schedule(job, patch).anchored(now)
    definition = patched(job.definition, patch, None)
    rules = _fitting(rules_of(patch, job.rules or Rules()), definition)
    await known_calendar(call, job.definition.user_id, rules.calendar)
    if rules.max_executions is not None and rules.max_executions <= job.fired:
        raise InvalidField(
            "max_executions", f"the job has made {job.fired} executions already; allow more, or cancel it"
        )
    accounted_to = max(now, job.begun_at) if job.begun_at else now
    return await call.store.change_recurring(
        RecurringChange(
            id=job.id,
            revision=job.revision,
            seen_next=job.cursor,
            withdraws=[fires_at for fires_at in job.planned if fires_at > accounted_to],
            definition=definition,
            schedule=schedule,
            rules=rules,
            since=accounted_to,
            next_fires_at=_first(schedule, accounted_to),
        )
    )


async def _settle(call: Call, job: Job, now: datetime) -> None:
    assert job.cursor is not None and job.schedule is not None and job.rules is not None
    due = Unplanned(
        id=job.id,
        revision=job.revision,
        next_fires_at=job.cursor,
        schedule=job.schedule,
        rules=job.rules,
        has_open=job.has_open,
        waiting=job.waiting,
        fired=job.fired,
        paused_through=job.paused_through if job.pause is None else now + timedelta(milliseconds=1),
        calendar=await call.store.find_calendar(job.definition.user_id, job.rules.calendar or ""),
    )
    if plan := plan_for(due, now=now, horizon=timedelta(0)):
        await call.store.plan([plan])


async def known_calendar(call: Call, user_id: str, name: str | None) -> Calendar | None:
    if name is None:
        return None
    found = await call.store.find_calendar(user_id, name)
    if found is None:
        raise InvalidField("calendar", f"{quoted(name)} is not a calendar of {user_id}; make it first")
    return found


def _completed(text: ScheduleText, old: ScheduleText, zone: str | None) -> ScheduleText:
    """Only what is named changes: another expression stays in its zone and with its rules for the clocks."""
    return ScheduleText(
        "CRON",
        text.expression,
        zone or text.time_zone or old.time_zone,
        text.dialect or old.dialect,
        text.dst_gap or old.dst_gap,
        text.dst_fold or old.dst_fold,
    )


def _new_schedule(job: Job, patch: JobPatch) -> Recurring:
    old = job.schedule
    assert old is not None
    text = schedule_text(old) if patch.schedule is UNSET else typed(patch.schedule)
    if isinstance(old.rhythm, ByCron) and text.type.upper() == "CRON":
        text = _completed(text, schedule_text(old), patch.time_zone or None)
    if text.type.upper() == "RRULE" and patch.time_zone:
        text = msgspec.structs.replace(text, time_zone=patch.time_zone)
    start, end = patch.execution_start_time or None, patch.execution_end_time or None
    when = parse_when(text, start=start, end=end, time_zone=patch.time_zone or None)
    if not isinstance(when, Recurring):
        raise InvalidField("schedule", "a recurring job cannot become one-shot; cancel it and submit a new one")
    return Recurring(
        rhythm=old.rhythm if patch.schedule is UNSET and patch.time_zone is UNSET else when.rhythm,
        starts_at=old.starts_at if patch.execution_start_time is UNSET else when.starts_at,
        ends_at=old.ends_at if patch.execution_end_time is UNSET else when.ends_at,
    )
