"""What comes in as JSON, and the rules it has to keep. The OpenAPI document is made from these."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from rota.model.capacity import needs_in
from rota.model.definition import Backoff, Definition, Gate, Policy
from rota.model.errors import InvalidField
from rota.model.instants import looks_like_instant, parse_duration, parse_instant
from rota.model.job import OnConflict, Unique
from rota.model.location import LONGEST, checked_location
from rota.model.policy import GRACE
from rota.model.rules import Misfire, Overlap, Rules
from rota.model.schedule import ScheduleText

# Ends with "nothing follows": `$` alone would let a line break through.
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f]+(?![\s\S])"
MOST_JOBS = 10_000
DEEPEST = 64
LARGEST_INTEGER = 2**63
LEAST_OF_A_RESOURCE = 1e-6
MOST_OF_A_RESOURCE = 1e9

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)]
Key = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)]
Priority = Annotated[int, Meta(ge=0, le=9, description="A step up is a head start of five seconds.")]
Retries = Annotated[int, Meta(ge=0, le=1000)]
Duration = Annotated[
    float | str, Meta(description="Seconds, or an ISO 8601 duration such as PT5M.", examples=[30, "PT5M"])
]
Limit = Annotated[
    float | str,
    Meta(description="Seconds or an ISO 8601 duration after the nominal time; or, for a job of one shot, an instant."),
]
Instant = Annotated[str, Meta(description="ISO 8601 with an offset.", examples=["2027-01-31T10:30:00Z"])]
ResourceName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+(?![\s\S])")]
Resources = Annotated[
    dict[ResourceName, float],
    Meta(max_length=16, description="What it takes of a worker while it runs.", examples=[{"cpu": 0.5, "gpu": 1}]),
]
Labels = Annotated[tuple[ResourceName, ...], Meta(max_length=16, description="What its worker must be.")]
ResultLocation = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST,
        description="A location that the operator named, and a path below it, where the result is written.",
        examples=["reports", "reports/sales/{fires_at}-{execution_id}.json"],
    ),
]
Executions = Annotated[int, Meta(ge=1, le=2**31 - 1, description="So many are made, then the job is FINISHED.")]
Failures = Annotated[int, Meta(ge=1, le=1000, description="The job is paused when so many failed in a row.")]
JsonObject = dict[str, Any]
Schedule = Annotated[
    str | ScheduleText,
    Meta(
        description="A cron expression, an ISO 8601 instant or duration, an RRULE or `now`; or the same with its type.",
        examples=["0 10 * * *", {"type": "DATE", "expression": "2027-01-31T10:30:00Z"}],
    ),
]


class BackoffBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Wait `initial`, then `factor` times as long each time, up to `cap`; `jitter` takes off up to that share."""

    initial: Duration = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap: Duration = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2


class MisfireBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of firings that were missed; none runs later than `window` after its time."""

    policy: Misfire = Misfire.LATEST
    window: Duration | None = None


class ConcurrencyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Of all your executions with this key so many run at once, wherever they run."""

    key: Key
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1


class RateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Of all your executions with this key so many begin in that time, evenly."""

    key: Key
    limit: Annotated[int, Meta(ge=1, le=10_000)]
    per: Duration = 1.0


class UniqueBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Only one job of yours has this key while it is `pending`, or `active`: pending or running."""

    key: Key
    while_: Literal["pending", "active"] = msgspec.field(name="while", default="active")
    on_conflict: OnConflict = OnConflict.REJECT


class JobBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to be. Without a schedule it runs at `execution_start_time`, or now."""

    task_id: Name
    schedule: Schedule | None = None
    parameters: JsonObject = {}
    user_id: Name | None = None
    scheduler: Annotated[Name, Meta(description="Another name for user_id.")] | None = None
    execution_start_time: Instant | None = None
    execution_end_time: Instant | None = None
    time_zone: Annotated[str, Meta(description="IANA name, for cron expressions.")] | None = None
    priority: Priority = 0
    queue: Name = "default"
    max_retries: Retries = 3
    backoff: BackoffBody = BackoffBody()
    timeout: Duration = 3600.0
    start_by: Limit | None = None
    deadline: Limit | None = None
    concurrency: ConcurrencyBody | None = None
    rate: RateBody | None = None
    unique_key: UniqueBody | Key | None = None
    resources: Resources = {}
    labels: Labels = ()
    result_location: ResultLocation | None = None
    overlap: Overlap = Overlap.SKIP
    misfire: MisfireBody | Misfire = Misfire.LATEST
    jitter: Duration | None = None
    calendar: Annotated[Name, Meta(description="No firings on the days of this calendar.")] | None = None
    max_executions: Executions | None = None
    auto_pause_after: Failures | None = None


class BatchBody(Struct, frozen=True, forbid_unknown_fields=True):
    jobs: Annotated[list[JobBody], Meta(min_length=1, max_length=MOST_JOBS)]


class JobPatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Only what is named changes. Work already begun goes on as it was."""

    schedule: Schedule | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET
    execution_start_time: Instant | UnsetType | None = UNSET
    execution_end_time: Instant | UnsetType | None = UNSET
    time_zone: str | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    max_retries: Retries | UnsetType = UNSET
    backoff: BackoffBody | UnsetType = UNSET
    timeout: Duration | UnsetType = UNSET
    start_by: Limit | UnsetType | None = UNSET
    deadline: Limit | UnsetType | None = UNSET
    resources: Resources | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    result_location: ResultLocation | UnsetType | None = UNSET
    overlap: Overlap | UnsetType = UNSET
    misfire: MisfireBody | Misfire | UnsetType = UNSET
    jitter: Duration | UnsetType | None = UNSET
    calendar: Name | UnsetType | None = UNSET
    max_executions: Executions | UnsetType | None = UNSET
    auto_pause_after: Failures | UnsetType | None = UNSET


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and until when; without `until` it stays paused until it is resumed."""

    note: Annotated[str, Meta(max_length=1000)] | None = None
    until: Instant | None = None


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What fell due meanwhile is skipped; with `catch_up` it counts as missed, and `misfire` says what runs."""

    catch_up: bool = False


class RedriveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Either the ids of the executions, or a filter; an empty filter is every dead letter you may see."""

    executions: Annotated[list[str], Meta(max_length=1000)] | None = None
    user_id: Name | None = None
    task_id: Name | None = None


def definition_of(body: JobBody, user_id: str, fires_at: datetime | None) -> Definition:
    """`fires_at` is the instant that limits may be counted from; None for a recurring job."""
    return Definition(
        user_id=user_id,
        task_id=body.task_id,
        queue=body.queue,
        priority=body.priority,
        parameters=parameters_text(body.parameters),
        policy=Policy(
            max_retries=body.max_retries,
            backoff=backoff_of(body.backoff),
            timeout=seconds_of(body.timeout, "timeout"),
            needs=needs_in(_amounts(body.resources), body.labels),
            start_by=limit_of(body.start_by, "start_by", fires_at),
            deadline=limit_of(body.deadline, "deadline", fires_at),
            gate=_gate(body, user_id),
            result_location=_location(body.result_location),
        ),
    )


def _gate(body: JobBody, user_id: str) -> Gate | None:
    concurrency, rate = body.concurrency, body.rate
    if concurrency is not None and rate is not None and concurrency.key != rate.key:
        raise InvalidField("rate.key", "is another than that of concurrency; a job has one key for both")
    key = concurrency.key if concurrency else rate.key if rate else None
    if key is None:
        return None
    return Gate(
        key=msgspec.json.encode([user_id, key]).decode(),
        concurrency=concurrency.limit if concurrency else None,
        rate=rate.limit if rate else None,
        per=seconds_of(rate.per, "rate.per") if rate else 1.0,
    )


def _location(text: str | None) -> str | None:
    return None if text is None else checked_location(text)


def unique_of(body: JobBody) -> Unique | None:
    match body.unique_key:
        case None:
            return None
        case str(key):
            return Unique(key)
        case UniqueBody(key, while_, on_conflict):
            return Unique(key, while_ == "active", on_conflict)


def limit_of(value: float | str | None, field: str, fires_at: datetime | None) -> float | None:
    """Seconds after the nominal time."""
    if value is None:
        return None
    if isinstance(value, str) and looks_like_instant(value):
        if fires_at is None:
            raise InvalidField(field, "of a recurring job is a duration after each firing, like PT10M")
        seconds = (parse_instant(value, field) - fires_at).total_seconds()
        if seconds <= 0:
            raise InvalidField(field, "lies before the job is due; choose a later one")
        return seconds
    return seconds_of(value, field)


def patched(definition: Definition, patch: JobPatch, fires_at: datetime | None) -> Definition:
    changes: dict[str, Any] = {}
    for name in ("priority", "queue"):
        if getattr(patch, name) is not UNSET:
            changes[name] = getattr(patch, name)
    if patch.parameters is not UNSET:
        changes["parameters"] = parameters_text(patch.parameters)
    policy: dict[str, Any] = {}
    if patch.max_retries is not UNSET:
        policy["max_retries"] = patch.max_retries
    if patch.backoff is not UNSET:
        policy["backoff"] = backoff_of(patch.backoff)
    if patch.timeout is not UNSET:
        policy["timeout"] = seconds_of(patch.timeout, "timeout")
    for name in ("start_by", "deadline"):
        if getattr(patch, name) is not UNSET:
            policy[name] = limit_of(getattr(patch, name), name, fires_at)
    if patch.result_location is not UNSET:
        policy["result_location"] = _location(patch.result_location)
    needs = definition.policy.needs
    policy["needs"] = needs_in(
        needs.resources if patch.resources is UNSET else _amounts(patch.resources),
        needs.labels if patch.labels is UNSET else patch.labels,
    )
    changed = msgspec.structs.replace(definition.policy, **policy)
    return msgspec.structs.replace(definition, policy=changed, **changes)


RULES = ("overlap", "misfire", "jitter", "calendar", "max_executions", "auto_pause_after")


def rules_of(body: JobBody | JobPatch, old: Rules = Rules()) -> Rules:  # noqa: B008 - frozen
    """Only what is named changes."""
    given = {name: value for name in RULES if (value := getattr(body, name)) is not UNSET}
    misfire = given.pop("misfire", None)
    if misfire is not None:
        misfire = misfire if isinstance(misfire, MisfireBody) else MisfireBody(misfire)
        given |= {"misfire": misfire.policy, "misfire_window": _window(misfire.window)}
    if given.get("jitter") is not None:
        given["jitter"] = timedelta(seconds=seconds_of(given["jitter"], "jitter"))
    rules: Rules = msgspec.structs.replace(old, **given)
    if rules.misfire is Misfire.ALL and rules.replaces:
        raise InvalidField("misfire", f"all does not go with overlap {rules.overlap}: each would end the one before it")
    return rules


def _window(value: float | str | None) -> timedelta | None:
    if value is None:
        return None
    window = timedelta(seconds=seconds_of(value, "misfire.window"))
    if window < GRACE:
        raise InvalidField("misfire.window", f"must be at least {GRACE.seconds} seconds")
    return window


def _amounts(resources: dict[str, float]) -> dict[str, float]:
    for name, amount in resources.items():
        if not LEAST_OF_A_RESOURCE <= amount <= MOST_OF_A_RESOURCE:
            limits = f"at least {LEAST_OF_A_RESOURCE:g} and at most {MOST_OF_A_RESOURCE:g}"
            raise InvalidField(f"resources.{name}", f"must be {limits}")
    return dict(sorted(resources.items()))


def backoff_of(body: BackoffBody) -> Backoff:
    return Backoff(
        initial=seconds_of(body.initial, "backoff.initial"),
        factor=body.factor,
        cap=seconds_of(body.cap, "backoff.cap"),
        jitter=body.jitter,
    )


def seconds_of(value: float | str, field: str) -> float:
    seconds = parse_duration(value, field).total_seconds() if isinstance(value, str) else float(value)
    if not 0 < seconds <= timedelta(days=366).total_seconds():
        raise InvalidField(field, "must be more than 0 and at most 366 days")
    return seconds


def parameters_text(parameters: JsonObject) -> str:
    _check_storable(parameters, "parameters", 0)
    return msgspec.json.encode(parameters).decode()


def _check_storable(value: Any, field: str, depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidField("parameters", f"is nested more than {DEEPEST} levels deep")
    match value:
        case str():
            if "\0" in value:
                raise InvalidField(field, "contains a NUL character, which cannot be stored; remove it")
        case bool() | float() | None:
            pass
        case int():
            if not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
                raise InvalidField(field, "is an integer beyond 64 bits; send it as a string")
        case dict():
            for key, inner in value.items():
                _check_storable(key, field, depth)
                _check_storable(inner, f"{field}.{key}"[:200], depth + 1)
        case list():
            for place, inner in enumerate(value):
                _check_storable(inner, f"{field}[{place}]"[:200], depth + 1)
