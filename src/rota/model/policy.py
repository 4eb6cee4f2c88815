"""What the planner is to do about a recurring job: pure rules over its schedule, its cursor and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from rota.model.calendar import Calendar
from rota.model.rules import Misfire, Overlap, Rules, splay
from rota.model.schedule import Recurring

OVERLAP = "overlap"
MISFIRE = "misfire"
PAUSED = "paused"
CALENDAR = "calendar"
# No single step makes or counts more than this of one job; what is left is for the next step.
MOST_FIRINGS = 1000
MOST_MISSED = 300
# The planner works ahead of time; a firing that it sees only when it is due has not been missed before this.
GRACE = timedelta(seconds=10)
# Of firings missed, `misfire: all` makes up for so many, the newest, and those that may overlap at this pace.
MOST_CAUGHT_UP = 100
PACE = timedelta(milliseconds=100)
# After a long outage any of so many, the newest, might run by some rule: those to be made up for, and those on time.
MOST_UNDECIDED = MOST_CAUGHT_UP + 20
# So many wait for their turn with `overlap: buffer_all`.
MOST_BUFFERED = 1000


class Unplanned(Struct, frozen=True, kw_only=True):
    """A recurring job whose cursor lies within the horizon, as the planner sees it."""

    id: UUID
    revision: int
    next_fires_at: datetime
    schedule: Recurring
    rules: Rules = Rules()
    has_open: bool = False
    waiting: int = 0
    fired: int = 0
    failed_in_a_row: int = 0
    paused_through: datetime | None = None
    calendar: Calendar | None = None


class Firing(Struct, frozen=True):
    """An execution to be made."""

    fires_at: datetime
    due_at: datetime


class Skip(Struct, frozen=True):
    """Consecutive firings that did not happen, for one reason."""

    first: datetime
    last: datetime
    count: int
    because: str


class Plan(Struct, frozen=True, kw_only=True):
    """What to write for one job if its (revision, cursor) are still what was seen.

    Firings that wait are let go one after the other; with `replaces` what is open is asked to stop. A partial plan
    leaves something that is due to the next one.
    """

    job: Unplanned
    firings: list[Firing]
    skips: list[Skip]
    next_fires_at: datetime | None
    waits: bool = False
    replaces: bool = False
    finishes: bool = False
    is_partial: bool = False

    @property
    def leads(self) -> bool:
        """Its first skip begins where the last plan ended."""
        return bool(self.skips) and self.skips[0].first == self.job.next_fires_at

    @property
    def trails(self) -> bool:
        """Nothing fires after its last skip."""
        return bool(self.skips) and all(firing.fires_at < self.skips[-1].first for firing in self.firings)


def is_failing(job: Unplanned) -> bool:
    """So often in a row that it is to be paused."""
    most = job.rules.auto_pause_after
    return most is not None and job.failed_in_a_row >= most


def plan_for(job: Unplanned, *, now: datetime, horizon: timedelta) -> Plan | None:
    """None when there is nothing to do yet."""
    left = None if job.rules.max_executions is None else max(0, job.rules.max_executions - job.fired)
    if left == 0:
        return Plan(job=job, firings=[], skips=[], next_fires_at=job.next_fires_at, finishes=True)
    due, cursor = _from(job, job.next_fires_at, now, MOST_MISSED)
    barred = {fires_at: reason for fires_at in due if (reason := _barred(job, fires_at))}
    if cursor is not None and cursor <= now:
        return _in_bulk(job, due, now) or _in_part(job, due, barred, cursor)
    free = [fires_at for fires_at in due if fires_at not in barred]
    chosen = _chosen(job, free, now)[-(left or MOST_FIRINGS) :]
    room = MOST_FIRINGS if job.rules.overlap is Overlap.ALLOW else 0 if job.has_open or chosen else 1
    ahead, cursor = _ahead(job, cursor, now + horizon, room if left is None else min(room, left - len(chosen)))
    if not due and not ahead:
        return None
    return Plan(
        job=job,
        firings=[*_firings(job, chosen, now), *_firings(job, ahead, now)],
        skips=_skips(job, due, barred, chosen),
        next_fires_at=cursor,
        waits=job.rules.overlap is not Overlap.ALLOW and (job.has_open or len(chosen) > 1),
        replaces=job.rules.replaces and job.has_open and bool(chosen),
        finishes=cursor is None or len(chosen) + len(ahead) == left,
    )


def _from(job: Unplanned, first: datetime | None, until: datetime, most: int) -> tuple[list[datetime], datetime | None]:
    """The firings up to `until`, and the one that follows them."""
    if first is None or first > until or most == 0:
        return [], first
    found = [first]
    for fires_at in job.schedule.firings(first):
        if fires_at > until or len(found) == most:
            return found, fires_at
        found.append(fires_at)
    return found, None


def _in_bulk(job: Unplanned, due: list[datetime], now: datetime) -> Plan | None:
    """After a long outage all but the newest few have one fate: they are counted, not gone through. None where this
    cannot be, because of a calendar, the end of a pause, or a rule that does not count."""
    newest = _newest(job, due, now)
    if job.calendar is not None or newest is None:
        return None
    last, cursor = newest
    fates = {_barred(job, due[0]), _barred(job, last)}
    if len(fates) > 1:
        return None
    because = fates.pop() or _otherwise(job)
    between = job.schedule.count(due[0], last)
    if between is None:
        return None
    skip = Skip(due[0], last, 1 + between, because)
    return Plan(job=job, firings=[], skips=[skip], next_fires_at=cursor, is_partial=True)


def _newest(job: Unplanned, due: list[datetime], now: datetime) -> tuple[datetime, datetime] | None:
    """The first of the newest few, which any rule might let run, and the firing before it."""
    # As far back as so many took at the beginning, or a little more.
    span = due[MOST_UNDECIDED + 1] - due[0]
    while now - span > due[-1]:
        found, following = _from(job, job.schedule.after(now - span), now, MOST_MISSED)
        if following is not None and following <= now:
            return None
        if len(found) > MOST_UNDECIDED:
            return found[-MOST_UNDECIDED - 1], found[-MOST_UNDECIDED]
        span *= 2
    return None


def _in_part(job: Unplanned, due: list[datetime], barred: dict[datetime, str], cursor: datetime) -> Plan:
    """Settled is what is too old to run whatever the rules say, or hundreds of firings ago."""
    free = [fires_at for fires_at in due if fires_at not in barred]
    undecided = [fires_at for fires_at in free[-MOST_UNDECIDED:] if fires_at > due[len(due) // 2]]
    cursor = undecided[0] if undecided else cursor
    due = [fires_at for fires_at in due if fires_at < cursor]
    return Plan(job=job, firings=[], skips=_skips(job, due, barred), next_fires_at=cursor, is_partial=True)


def _ahead(
    job: Unplanned, first: datetime | None, until: datetime, most: int
) -> tuple[list[datetime], datetime | None]:
    """As far as nothing bars them: a firing is skipped when its time has come, not before."""
    found, following = _from(job, first, until, most)
    for place, fires_at in enumerate(found):
        if _barred(job, fires_at):
            return found[:place], fires_at
    return found, following


def _barred(job: Unplanned, fires_at: datetime) -> str | None:
    if job.paused_through is not None and fires_at < job.paused_through:
        return PAUSED
    if job.calendar is not None and job.calendar.covers(fires_at, job.schedule.zone):
        return CALENDAR
    return None


def _chosen(job: Unplanned, due: list[datetime], now: datetime) -> list[datetime]:
    """What of the firings that are due is to run."""
    kept = _not_missed(job.rules, due, now)
    if job.rules.overlap is Overlap.ALLOW or not job.has_open:
        return kept
    caught_up = [fires_at for fires_at in kept if now - fires_at > GRACE] if job.rules.misfire is Misfire.ALL else []
    match job.rules.overlap:
        case Overlap.SKIP:
            return caught_up
        case Overlap.BUFFER_ONE:
            return caught_up or ([] if job.waiting else kept[:1])
        case Overlap.BUFFER_ALL:
            return kept[: max(0, MOST_BUFFERED - job.waiting)]
        case _:
            return kept[-1:]


def _not_missed(rules: Rules, due: list[datetime], now: datetime) -> list[datetime]:
    window = rules.misfire_window
    on_time = window or GRACE if rules.misfire is Misfire.SKIP else GRACE
    fresh = [fires_at for fires_at in due if now - fires_at <= on_time]
    missed = [fires_at for fires_at in due[: len(due) - len(fresh)] if window is None or now - fires_at <= window]
    match rules.misfire:
        case Misfire.ALL:
            return missed[-MOST_CAUGHT_UP:] + fresh
        case Misfire.SKIP:
            missed = []
        case Misfire.LATEST:
            missed = [] if fresh else missed[-1:]
    return missed + (fresh if rules.overlap in (Overlap.ALLOW, Overlap.BUFFER_ALL) else fresh[-1:])


def _firings(job: Unplanned, chosen: list[datetime], now: datetime) -> list[Firing]:
    paced = job.rules.misfire is Misfire.ALL and job.rules.overlap is Overlap.ALLOW
    return [
        Firing(
            fires_at,
            now + place * PACE
            if paced and now - fires_at > GRACE
            else due_at(job.id, job.schedule, job.rules, fires_at),
        )
        for place, fires_at in enumerate(chosen)
    ]


def due_at(job_id: UUID, schedule: Recurring, rules: Rules, fires_at: datetime) -> datetime:
    """With jitter it is put off, but not past the firing that follows."""
    if rules.jitter is None:
        return fires_at
    following = schedule.after(fires_at)
    most = rules.jitter if following is None else min(rules.jitter, following - fires_at)
    return fires_at + splay(job_id, fires_at, most)


def _otherwise(job: Unplanned) -> str:
    """Why nothing runs that neither a pause nor a calendar bars."""
    return OVERLAP if job.has_open and job.rules.overlap is not Overlap.ALLOW else MISFIRE


def _skips(
    job: Unplanned, due: list[datetime], barred: dict[datetime, str], chosen: Sequence[datetime] = ()
) -> list[Skip]:
    """Whatever is due and does not run, neighbours with one reason together."""
    otherwise = _otherwise(job)
    running = set(chosen)
    skips: list[Skip] = []
    follows = False
    for fires_at in due:
        if fires_at in running:
            follows = False
            continue
        because = barred.get(fires_at, otherwise)
        if follows and skips[-1].because == because:
            skips[-1] = Skip(skips[-1].first, fires_at, skips[-1].count + 1, because)
        else:
            skips.append(Skip(fires_at, fires_at, 1, because))
        follows = True
    return skips
