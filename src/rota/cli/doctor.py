"""`rota doctor`: whether this machine and this cluster are well, and what to do where they are not."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import aiohttp
import msgspec
import typer
from msgspec import Struct
from rich.table import Table
from rich.text import Text

from rota.api import HealthView
from rota.cli import show
from rota.cli.connect import AsJson, Data, Database, opened, use_data
from rota.client import AsyncClient, RequestRefused
from rota.model.errors import Invalid, RotaError, StoreError
from rota.model.keys import Principal, hash_of
from rota.model.tzversion import PACKAGE, ZoneSource, package_version, zone_sources
from rota.settings import DEFAULT_DATA, ServerAddress, Settings
from rota.store.postgres.health import MOST_LETTERS, Cluster, Health, LiveWorker, Overdue, examine, place_of
from rota.store.postgres.migrate import OLDEST_SERVER
from rota.version import VERSION

ZONES_AGE = timedelta(days=548)
CLOCK_ERROR = timedelta(seconds=1)
PLANNER_LAG = timedelta(seconds=5)
WORKERS_SHOWN = 10
PATIENCE = aiohttp.ClientTimeout(total=10, connect=5)
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(Struct, frozen=True):
    name: str
    state: State
    detail: str
    advice: str | None = None


def ok(name: str, detail: str) -> Check:
    return Check(name, State.OK, detail)


def warning(name: str, detail: str, advice: str) -> Check:
    return Check(name, State.WARNING, detail, advice)


def problem(name: str, detail: str, advice: str) -> Check:
    return Check(name, State.PROBLEM, detail, advice)


def doctor(database: Database = None, data: Data = DEFAULT_DATA, json: AsJson = False) -> None:
    """Say whether this machine and this cluster are well; exit 1 if there is a problem."""
    use_data(data)
    with show.err.status("looking"):
        checks = asyncio.run(_checks(database, data))
    well = all(check.state is not State.PROBLEM for check in checks)
    show.as_json({"checks": checks, "ok": well}) if json else _print(checks)
    if not well:
        raise typer.Exit(1)


async def _checks(database: str | None, data: Path) -> list[Check]:
    settings = Settings.read()
    address = settings.server()
    health = await _health(database, data, address.api_key)
    server = await server_check(address.url.rstrip("/"), given=bool(settings.url))
    checks = [versions(), time_zones(zone_sources(), datetime.now(UTC)), server]
    if server.state is State.OK:
        checks.append(await key_check(address, health.cluster if isinstance(health, Health) else None))
    if isinstance(health, Check):
        return [*checks, health]
    place = (place_of(database) or "at the address given") if database else f"embedded in {data}"
    return [*checks, *database_checks(health, place), *cluster_checks(health.cluster)]


def versions() -> Check:
    return ok("versions", f"Rota {VERSION}, Python {platform.python_version()}, {platform.platform()}")


def time_zones(sources: Sequence[ZoneSource], now: datetime) -> Check:
    ages = [source.age(now) for source in sources]
    detail = "; ".join(map(_source, sources, ages)) or "none at all"
    if sources and all(age is not None and age <= ZONES_AGE for age in ages):
        return ok("time zones", detail)
    return warning("time zones", detail, _zones_advice(sources))


def _source(source: ZoneSource, age: timedelta | None) -> str:
    old = "" if age is None else f", about {max(0, age.days) / 30.4:.0f} months old"
    return f"{source.version or 'unknown version'} from {source.place} (zones: {source.zones}{old})"


def _zones_advice(sources: Sequence[ZoneSource]) -> str:
    if {source.place for source in sources} <= {PACKAGE}:
        return "Upgrade it (pip install -U tzdata): rules of daylight saving change every year."
    package = package_version()
    newer = all(source.version is None or source.version < package for source in sources if source.place != PACKAGE)
    other = f", or set PYTHONTZPATH to nothing: then the tzdata package counts, which is {package}" if newer else ""
    return f"Update the system's tzdata{other}."


async def server_check(url: str, *, given: bool) -> Check:
    if "@" in url:
        return problem("server", "ROTA_URL has a login in it", "Leave it out; a key goes into ROTA_API_KEY.")
    try:
        async with aiohttp.ClientSession(timeout=PATIENCE) as session, session.get(f"{url}/readyz") as response:
            status, content = response.status, await response.read()
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        detail = f"nobody answers at {url}: {cause or 'it takes too long'}"
        if given:
            return problem("server", detail, "Start it there with `rota server`, or correct ROTA_URL.")
        return warning("server", detail, "Start one with `rota up`, or set ROTA_URL.")
    except (aiohttp.ClientError, ValueError):
        return problem("server", "ROTA_URL is no address", "Write it like http://127.0.0.1:7070.")
    if status == 503:
        return problem("server", f"{url} is up, but its database is away", "See to the database of that server.")
    if status != 200 or not _is_ready(content):
        return problem("server", f"what answers at {url} is not a Rota server", "Correct ROTA_URL.")
    return ok("server", f"ready at {url}")


def _is_ready(content: bytes) -> bool:
    try:
        return msgspec.json.decode(content, type=HealthView).status == "ready"
    except msgspec.MsgspecError:
        return False


async def key_check(address: ServerAddress, cluster: Cluster | None) -> Check:
    """The server says whether it takes the key; whose it is only the database tells."""
    if not address.api_key:
        return warning("key", "none", "Set ROTA_API_KEY; `rota keys create` makes a key.")
    told = "accepted"
    try:
        async with AsyncClient(address.url, address.api_key) as client:
            await client.list(limit=1)
    except RequestRefused as refused:
        if refused.status != 403:
            detail = "unknown to the server, or revoked" if refused.status == 401 else str(refused)
            return problem("key", detail, "`rota keys create` makes a new one; set ROTA_API_KEY to it.")
        told = f"accepted. {refused}"
    except RotaError as error:
        return problem("key", str(error), "Correct ROTA_API_KEY." if isinstance(error, Invalid) else "Try again.")
    if cluster is None:
        return ok("key", told)
    if cluster.bearer is None:
        return warning(
            "key",
            "accepted by the server, but unknown to this database: they are not of one cluster",
            "Let ROTA_URL and ROTA_DATABASE_URL (or --data) lead to the same cluster.",
        )
    return ok("key", f"accepted: {_bearer(cluster.bearer)}")


def _bearer(bearer: Principal) -> str:
    return f"{bearer.user_id} ({', '.join(sorted(bearer.scopes)) or 'no scopes'})"


async def _health(database: str | None, data: Path, api_key: str | None) -> Health | Check:
    """Or why there is none."""
    from rota.store.embedded import running_dsn

    try:
        dsn = database or running_dsn(data)
        if dsn is None:
            return warning("database", f"none is running in {data}", "`rota up` starts one; --database names another.")
        async with opened(dsn) as store:
            return await examine(store, key=hash_of(api_key or ""))
    except (RotaError, ValueError, OverflowError) as error:
        return _no_health(error, database, data)


def _no_health(error: Exception, database: str | None, data: Path) -> Check:
    if not database:
        return problem("database", f"embedded in {data}: {error}", "Look at what `rota up` says there.")
    place = place_of(database)
    # The driver repeats what it does not understand, and that may be part of a password.
    if place is None or not isinstance(error, StoreError):
        advice = "Write it like postgres://user:password@host:5432/name, with %40 for @ and so on."
        return problem("database", "its address cannot be read", advice)
    return problem("database", f"{place}: {error}", "Start it, or correct ROTA_DATABASE_URL or --database.")


def database_checks(health: Health, place: str) -> list[Check]:
    return [_server_version(health, place), _migrations(health), clock(health.ahead), _durability(health.off)]


def _server_version(health: Health, place: str) -> Check:
    detail = f"PostgreSQL {health.version}, {place}"
    if health.number < OLDEST_SERVER:
        return problem("database", detail, f"Rota needs PostgreSQL {OLDEST_SERVER // 10_000} or newer.")
    return ok("database", detail)


def _migrations(health: Health) -> Check:
    if health.unknown:
        detail = f"{_listed(health.unknown)} applied, which Rota {VERSION} does not know"
        return problem("migrations", detail, "Upgrade Rota on this machine to the version of the others.")
    if health.lacking:
        return problem("migrations", f"{_listed(health.lacking)} not applied", "Run `rota migrate`.")
    return ok("migrations", f"all {health.applied} applied")


def clock(ahead: timedelta) -> Check:
    side = "behind" if ahead > timedelta() else "ahead of"
    detail = f"{abs(ahead).total_seconds():.3f} s {side} the database's"
    if abs(ahead) > CLOCK_ERROR:
        return warning("clock", detail, "Let NTP set both clocks; jobs fire by the database's.")
    return ok("clock", detail)


def _durability(off: Sequence[str]) -> Check:
    if not off:
        return ok("durability", "what is acknowledged survives a power cut")
    advice = "Turn it on, in postgresql.conf or wherever it was turned off: a power cut may lose acknowledged jobs."
    # Some file systems never tear a page; without the other two something is lost on any of them.
    state = State.WARNING if list(off) == ["full_page_writes"] else State.PROBLEM
    return Check("durability", state, f"{_listed(off)} off", advice)


def cluster_checks(cluster: Cluster | None) -> list[Check]:
    if cluster is None:
        return []
    return [
        _workers(cluster.workers),
        _planner(cluster.overdue),
        _dead_letters(cluster.dead_letters),
        _partitions(cluster.missing_partitions),
    ]


def _workers(workers: Sequence[LiveWorker]) -> Check:
    if not workers:
        return warning("workers", "none is alive", "Nothing runs until there is one: start it with `rota worker`.")
    each = [f"{w.id} on {w.host} renewed {_span(w.silent)} ago" for w in workers[:WORKERS_SHOWN]]
    more = [f"and {len(workers) - len(each)} more"] if len(workers) > len(each) else []
    detail = f"{len(workers)} alive: {', '.join(each + more)}"
    lapsed = [w.id for w in workers[:WORKERS_SHOWN] if w.silent > w.lease]
    if lapsed:
        advice = "Look after the machine; any `rota server`, `rota scheduler` or `rota worker` takes over the work."
        return warning("workers", f"{detail}; {_listed(lapsed)} past the lease", advice)
    return ok("workers", detail)


def _planner(overdue: Overdue | None) -> Check:
    if overdue is None or overdue.late <= PLANNER_LAG:
        return ok("planner", "no recurring job is overdue")
    advice = "Is a scheduler running? `rota scheduler` starts one; its log tells of jobs that it cannot plan."
    return warning("planner", f"job {overdue.job_id} is overdue by {_span(overdue.late)}", advice)


def _dead_letters(count: int) -> Check:
    if count == 0:
        return ok("dead letters", "none")
    number = f"more than {MOST_LETTERS}" if count > MOST_LETTERS else str(count)
    advice = "`rota dead-letters` lists them, `rota dead-letters redrive` runs them again."
    return warning("dead letters", number, advice)


def _partitions(missing: Sequence[str]) -> Check:
    if not missing:
        return ok("partitions", "there for today and tomorrow")
    advice = "A scheduler makes them every hour, `rota migrate` now; until then the default partition holds their rows."
    return warning("partitions", f"{_listed(missing)} missing", advice)


def _listed(names: Sequence[object]) -> str:
    return f"{', '.join(map(str, names))} {'is' if len(names) == 1 else 'are'}"


def _span(length: timedelta) -> str:
    seconds = max(0.0, length.total_seconds())
    unit, size = next(((u, s) for u, s in (("d", 86400), ("h", 3600), ("min", 60)) if seconds >= 2 * s), ("s", 1))
    return f"{seconds / size:.0f} {unit}"


def _print(checks: Sequence[Check]) -> None:
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for check in checks:
        style = _STYLES[check.state]
        grid.add_row(Text(check.state, style=style), Text(check.name), Text(check.detail))
        if check.advice:
            grid.add_row("", "", Text(f"→ {check.advice}", style=style))
    show.out.print(grid)
