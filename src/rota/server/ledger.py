"""The ledger of a job over HTTP: "prove that every Friday 10:30 ran"."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import islice

from starlette.responses import Response

from rota.api import LedgerView
from rota.model.errors import InvalidField
from rota.model.instants import LATEST
from rota.model.job import Job
from rota.model.ledger import Line, Reading, ledger
from rota.model.query import Position, print_token
from rota.server.answers import line_view
from rota.server.http import Call, answer
from rota.server.jobs import instant_in, job_of, page_in

QUERY = ("from", "to", "limit", "page_token")
# Unless said: the last week up to now.
USUAL_TIME = timedelta(days=7)
_UNPROVEN = (Reading.MISSING, Reading.UNSETTLED, Reading.FORGOTTEN)
_JUST_AFTER = timedelta(microseconds=1)


async def look(call: Call) -> Response:
    asked = call.query()
    job = await job_of(call)
    now = await call.store.now()
    end = instant_in(asked, "to") or now
    start = instant_in(asked, "from") or min(now, end) - USUAL_TIME
    if end < start:
        raise InvalidField("to", "lies before `from`")
    page = page_in(asked)
    if page.after is not None:
        start = max(start, min(page.after.at, LATEST) + _JUST_AFTER)
    found = await _lines(call, job, start, end, page.limit + 1)
    lines = found[: page.limit]
    token = print_token(Position(lines[-1].fires_at, job.id, 0)) if len(found) > page.limit else None
    counts = Counter(line.verdict.value for line in lines)
    complete = not any(line.verdict in _UNPROVEN for line in lines)
    return answer(LedgerView([line_view(line) for line in lines], dict(counts), complete, token))


async def _lines(call: Call, job: Job, start: datetime, end: datetime, limit: int) -> list[Line]:
    accounts = await call.store.accounts(job.id, start=start, end=end, limit=limit)
    if accounts is not None:
        return list(islice(ledger(accounts, start=start, end=end), limit))
    run = job.last_execution
    assert run is not None, "a one-shot job is its execution"
    return [Line(run.fires_at, run.status, None, run)] if start <= run.fires_at <= end else []
