"""The stage of a benchmark: PostgreSQL with fsync on, and real processes of Rota around it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rota.bench.producer import Plan, Told
from rota.bench.usage import Used, used_by
from rota.bench.witness import TASKS, count_in
from rota.model.errors import RotaError, StoreError
from rota.model.keys import Scope
from rota.model.ledger import HISTORY_KEPT
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrate
from rota.version import VERSION

USER = "bench"
TASK = TASKS[0]
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
_SHOWN = (*DURABLE, "shared_buffers", "max_wal_size", "checkpoint_timeout", "autovacuum_naptime", "wal_compression")
# After so long without a task that begins there is nothing to wait for.
PATIENCE = 60.0
# What is going on, and how far it is from 0 to 1 if that is known.
Tell = Callable[[str, float | None], None]


class BenchFailed(RotaError):
    """The run did not pass its own check, or a process did not start: there is no number."""


class Setup(Struct, frozen=True):
    """What all workloads share."""

    database: str | None = None
    concurrency: int = 2000
    children: int | None = None
    user_ids: tuple[str, ...] = (USER,)


class Stage:
    def __init__(self, setup: Setup, dsn: str, store: PostgresStore, folder: Path, postgres: int | None) -> None:
        self.setup = setup
        self.dsn = dsn
        self.store = store
        self.folder = folder
        self.key = ""
        self.url = ""
        self._postgres = postgres
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def serve(self) -> None:
        """The server and the scheduler: what a cluster has beside its workers."""
        _, self.key = await self.store.create_key(USER, [Scope.ADMIN])
        self._start("scheduler")
        server = self._start("server", "--port", "0")
        while "http://" not in (said := self._said("server")):
            if server.poll() is not None:
                raise BenchFailed(f"The server did not start: {said}")
            await asyncio.sleep(0.02)
        self.url = f"http://{said.partition('http://')[2].split()[0]}"

    async def start_worker(self, *, remote: bool = False) -> None:
        """Returns once it may claim. A remote one has no database, only the server."""
        options = ["--concurrency", str(self.setup.concurrency)]
        if self.setup.children:
            options += ["--children", str(self.setup.children)]
        environment = {}
        if remote:
            _, key = await self.store.create_key(USER, [Scope.WORK])
            options += ["--server", self.url]
            environment = {"ROTA_API_KEY": key, "ROTA_DATABASE_URL": ""}
        worker = self._start("worker", *options, "rota.bench.tasks:app", name="supervisor", **environment)
        while not any(each.state == "ALIVE" for each in await self.store.workers()):
            if worker.poll() is not None:
                raise BenchFailed(f"The worker did not start: {self._said('supervisor')}")
            await asyncio.sleep(0.02)

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _start(self, *arguments: str, name: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
        name = name or arguments[0]
        given = {
            "ROTA_DATABASE_URL": self.dsn,
            "ROTA_DATA": str(self.folder),
            "ROTA_DIE_WITH_PARENT": "1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rota", *arguments],
                env=os.environ | given | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    async def produce(self, plan: Plan, tell: Callable[[int], None] = lambda _: None) -> Told:
        """Runs a producer in a process of its own; what it told at its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rota.bench.producer", env=os.environ | {"ROTA_API_KEY": self.key},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        # Not as an argument, which everybody on the machine can read: there may be a password in it.
        process.stdin.write(msgspec.json.encode(plan))
        process.stdin.close()
        told = None
        try:
            async for line in process.stdout:
                told = msgspec.json.decode(line, type=Told)
                tell(told.submitted)
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        if code != 0 or told is None or not told.is_over:
            raise BenchFailed(f"The producer ended with code {code}.")
        return told

    async def until_done(self, jobs: int, tell: Callable[[int], None] = lambda _: None, *, task_id: str = TASK) -> None:
        """Until so many task bodies have run and have ended; no question to the database as long as it is busy."""
        before, grew_at = -1, time.monotonic()
        while (ran := count_in(self.folder)) < jobs:
            tell(ran)
            if ran > before:
                before, grew_at = ran, time.monotonic()
            elif time.monotonic() - grew_at > PATIENCE:
                raise BenchFailed(f"{ran} of {jobs} jobs have run, and nothing has moved for {PATIENCE:g} s.")
            await asyncio.sleep(0.05)
        while (await self.store.db.look(_HELD, task_id))[0][0]:  # noqa: ASYNC110 - the database has no event for it
            await asyncio.sleep(0.02)

    def used(self) -> dict[str, Used]:
        roles = {name: process.pid for name, process in self._processes.items()} | {"bench": os.getpid()}
        used = used_by(roles, children={"supervisor": "children", "bench": "_"})
        used.pop("_", None)
        if self._postgres is not None:
            used |= used_by({"postgres": self._postgres}, children={})
        return used

    async def facts(self) -> dict[str, Any]:
        rows = await self.store.db.look(
            "select name, current_setting(name) as value from unnest($1::text[]) as t (name)", _SHOWN
        )
        [[version]] = await self.store.db.look("show server_version")
        return {
            "machine": {
                "system": f"{platform.system()} {platform.release()}",
                "processor": _processor(),
                "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
                "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            },
            "versions": {"rota": VERSION, "python": platform.python_version(), "postgresql": version},
            "settings": {row["name"]: row["value"] for row in rows}
            | {
                "database": "named by --database" if self.setup.database else "embedded",
                "concurrency": self.setup.concurrency,
                "children": self.setup.children or os.cpu_count(),
                "users": len(self.setup.user_ids),
            },
        }

    async def close(self) -> None:
        for process in reversed(self._processes.values()):
            await self._end(process)

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_HELD = "select exists (select from executions where worker_id is not null and task_id = $1)"


@asynccontextmanager
async def a_stage(setup: Setup, tell: Tell) -> AsyncIterator[Stage]:
    """An empty database of our own, or the empty one that was named; with a server, a scheduler, and no worker yet."""
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    postgres = EmbeddedPostgres(folder)
    try:
        tell("starting PostgreSQL", None)
        dsn: str = await asyncio.to_thread(postgres.start) if setup.database is None else setup.database
        await migrate(dsn)
        store = await PostgresStore.open(dsn)
        stage = Stage(setup, dsn, store, folder, None if setup.database else postgres.pid)
        try:
            await _refuse_used(store)
            await _refuse_careless(store)
            await store.maintain(keep=HISTORY_KEPT)
            tell("starting server and scheduler", None)
            await stage.serve()
            yield stage
        finally:
            tell("stopping", None)
            await stage.close()
            await store.aclose()
    finally:
        await asyncio.to_thread(postgres.stop)
        shutil.rmtree(folder, ignore_errors=True)


async def _refuse_used(store: PostgresStore) -> None:
    for name in ("executions", "jobs", "history"):
        if (await store.db.look(f"select exists (select from {name})"))[0][0]:
            raise StoreError(
                f"The database has rows in {name}. A benchmark needs an empty one that it may fill with millions of "
                "rows: create one for it and drop it afterwards."
            )


async def _refuse_careless(store: PostgresStore) -> None:
    for setting in DURABLE:
        if (await store.db.look(f"show {setting}"))[0][0] != "on":
            raise BenchFailed(f"{setting} is off in this database; a number from there would not hold anywhere else.")


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
