"""Backfills over HTTP: past firings of a recurring job run, a few at a time."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from rota.api import BackfillPreview, BackfillsView, BackfillView
from rota.model.backfill import (
    MOST_PARALLEL,
    Backfill,
    BackfillState,
    NewBackfill,
    Reprocess,
    firings_between,
    new_backfill_id,
    wanted_of,
)
from rota.model.errors import Conflict, InvalidField, NotFound
from rota.model.instants import parse_instant, print_instant
from rota.model.job import Job, JobStatus
from rota.server.bodies import Instant
from rota.server.http import Call, answer
from rota.server.jobs import job_of

# So many firings of either end of a preview are told.
SHOWN = 5


class BackfillBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Both ends belong to the range. With `dry_run` nothing is stored."""

    start: Instant = msgspec.field(name="from")
    end: Instant = msgspec.field(name="to")
    max_parallel: Annotated[int, Meta(ge=1, le=MOST_PARALLEL, description="How many may be open at once.")] = 1
    reprocess: Annotated[
        Reprocess,
        Meta(description="What runs again: none that ever ran, those that failed or were cancelled at last, all."),
    ] = Reprocess.NONE
    dry_run: bool = False


_body = msgspec.json.Decoder(BackfillBody)


async def create(call: Call) -> Response:
    body, _ = await call.body(_body)
    job = await job_of(call)
    start, end = await _range(call, body)
    firings = await _firings(call, job, start, end)
    if body.dry_run:
        return answer(await _preview(call, job, body, firings))
    new = NewBackfill(
        id=new_backfill_id(job.id),
        job_id=job.id,
        starts_at=start,
        ends_at=end,
        first_fires_at=firings[0],
        max_parallel=body.max_parallel,
        reprocess=body.reprocess,
        total=len(firings),
    )
    backfill = await call.store.create_backfill(new)
    if backfill is None:
        raise Conflict(_CANCELLED)
    return answer(backfill_view(backfill), 201, {"Location": f"/backfills/{backfill.id}"})


_CANCELLED = "The job is CANCELLED; submit it anew."


async def _range(call: Call, body: BackfillBody) -> tuple[datetime, datetime]:
    start, end = parse_instant(body.start, "from"), parse_instant(body.end, "to")
    if end < start:
        raise InvalidField("to", "lies before `from`")
    if end > await call.store.now():
        raise InvalidField("to", "lies in the future; what is yet to come fires by itself")
    return start, end


async def _firings(call: Call, job: Job, start: datetime, end: datetime) -> list[datetime]:
    if job.schedule is None:
        raise Conflict("The job runs once and has no firings to make up for; `run` runs it once more.")
    if job.status is JobStatus.CANCELLED:
        raise Conflict(_CANCELLED)
    name = job.rules.calendar if job.rules else None
    calendar = None if name is None else await call.store.find_calendar(job.definition.user_id, name)
    # A hundred thousand firings take a second to find, in which others want to be served.
    return await asyncio.to_thread(firings_between, job.schedule, calendar, start=start, end=end)


async def _preview(call: Call, job: Job, body: BackfillBody, firings: list[datetime]) -> BackfillPreview:
    runs = await call.store.runs(job.id, start=firings[0], end=firings[-1])
    wanted = [print_instant(fires_at) for fires_at in wanted_of(firings, runs, body.reprocess)]
    return BackfillPreview(
        job_id=str(job.id),
        start=print_instant(parse_instant(body.start, "from")),
        end=print_instant(parse_instant(body.end, "to")),
        max_parallel=body.max_parallel,
        reprocess=body.reprocess.value,
        total=len(firings),
        would_make=len(wanted),
        passed_over=len(firings) - len(wanted),
        first=wanted[:SHOWN],
        last=wanted[-SHOWN:],
    )


async def list_of_job(call: Call) -> Response:
    job = await job_of(call)
    return answer(BackfillsView([backfill_view(backfill) for backfill in await call.store.backfills(job.id)]))


async def look(call: Call) -> Response:
    return answer(backfill_view(await _backfill_of(call)))


async def cancel(call: Call) -> Response:
    backfill = await _backfill_of(call)
    if await call.store.cancel_backfill(backfill.id):
        return answer(backfill_view(await _backfill_of(call)))
    ended = await _backfill_of(call)
    if ended.state is BackfillState.COMPLETED:
        raise Conflict("The backfill is COMPLETED and cannot be cancelled any more.")
    return answer(backfill_view(ended))


async def _backfill_of(call: Call) -> Backfill:
    """Somebody else's is as unknown as one that never was."""
    backfill_id = call.path_id("backfill")
    found = await call.store.find_backfill(backfill_id)
    if found is None or not call.may_see(found.user_id):
        raise NotFound("backfill", str(backfill_id))
    return found


def backfill_view(backfill: Backfill) -> BackfillView:
    return BackfillView(
        id=str(backfill.id),
        job_id=str(backfill.job_id),
        state=backfill.state.value,
        start=print_instant(backfill.starts_at),
        end=print_instant(backfill.ends_at),
        max_parallel=backfill.max_parallel,
        reprocess=backfill.reprocess.value,
        total=backfill.total,
        made=backfill.made,
        passed_over=backfill.passed_over,
        open=backfill.open,
        created_at=print_instant(backfill.created_at),
        ended_at=print_instant(backfill.ended_at) if backfill.ended_at else None,
    )
