"""`rota up`: PostgreSQL, API, scheduler and a worker, with one command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from rota.cli import show
from rota.cli.nodes import begin, bind, prepare, serving, stop_on_signals
from rota.loop import pause
from rota.model.errors import RotaError, StoreError
from rota.model.keys import Scope, hash_of
from rota.scheduler.duties import run_duties
from rota.server.app import create_app
from rota.store.embedded import EmbeddedPostgres
from rota.store.postgres.engine import PostgresStore

ADMIN = "admin"


class WorkerDidNotStart(RotaError):
    pass


async def up(
    app: str | None, data: Path, host: str, port: int, database: str | None, worker_options: list[str]
) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{data} cannot be a data folder: {error.strerror}. Choose another with --data.") from None
    listener = bind(host, port)
    postgres = EmbeddedPostgres(data)
    try:
        with show.err.status("starting PostgreSQL"):
            dsn: str = await asyncio.to_thread(postgres.start) if database is None else database
        with show.err.status("preparing the database"):
            await prepare(dsn)
        await _run(app, dsn, data, listener, worker_options, None if database else postgres)
    finally:
        listener.close()
        await asyncio.to_thread(postgres.stop)


async def _run(
    app: str | None,
    dsn: str,
    data: Path,
    listener: socket.socket,
    worker_options: list[str],
    postgres: EmbeddedPostgres | None,
) -> None:
    begin()
    stop = stop_on_signals()
    store = await PostgresStore.open(dsn)
    worker = Worker([*worker_options, *([app] if app else [])], dsn, data)
    duties: list[asyncio.Task[None]] = []
    try:
        key = await ensure_admin_key(store, data / "admin.key")
        host, port = listener.getsockname()[:2]
        url = f"http://{host}:{port}"
        (data / "url").write_text(url + "\n")
        async with serving(create_app(store), listener):
            duties.append(asyncio.create_task(run_duties(store, stop)))
            with show.err.status("starting a worker"):
                worker.start()
                await worker.until_ready(store, stop)
            duties.append(asyncio.create_task(worker.keep_running(stop)))
            if postgres is not None:
                duties.append(asyncio.create_task(_keep_postgres(postgres, stop)))
            if not stop.is_set():
                _welcome(url, key)
            await stop.wait()
            show.err.print("[dim]stopping: running work gets up to 30 s; Ctrl-C again ends it now[/dim]")
    finally:
        stop.set()
        await asyncio.gather(*duties, return_exceptions=True)
        await asyncio.to_thread(worker.end)
        await store.aclose()


async def _keep_postgres(postgres: EmbeddedPostgres, stop: asyncio.Event) -> None:
    """The server is a child like the worker: when it dies it is started again, on the same socket."""
    while not stop.is_set():
        if not postgres.alive:
            show.err.print("[yellow]PostgreSQL ended; starting it again.[/yellow]")
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        await pause(0.5, stop)


async def ensure_admin_key(store: PostgresStore, file: Path) -> Path:
    """The key in the file, as long as the database knows it; else a new one."""
    if file.exists() and await store.principal(hash_of(file.read_text().strip())):
        return file
    _, secret = await store.create_key(ADMIN, [Scope.ADMIN])
    file.unlink(missing_ok=True)
    # Nobody else may read it, not even for the moment between making and protecting it.
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as secret_file:
        secret_file.write(secret + "\n")
    return file


def _welcome(url: str, key: Path) -> None:
    show.out.print(f"[bold green]Rota is up[/bold green] at [bold]{url}[/bold]  (docs: {url}/docs)")
    show.out.print(f"The admin key is in {key}. A first job:\n", markup=False, highlight=False, soft_wrap=True)
    show.out.print(
        f"  curl -s {url}/jobs -H \"Authorization: Bearer $(cat '{key}')\" "
        '-d \'{"task_id": "echo", "parameters": {"hello": "world"}}\'\n',
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    show.out.print("[dim]Ctrl-C stops everything.[/dim]")


class Worker:
    """The worker beside the server: a process of its own, started again when it dies."""

    def __init__(self, arguments: list[str], dsn: str, data: Path) -> None:
        self._command = [sys.executable, "-m", "rota", "worker", *arguments]
        self._environment = os.environ | {
            "ROTA_DATABASE_URL": dsn, "ROTA_DATA": str(data), "ROTA_DIE_WITH_PARENT": "1",
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # In a session of its own: a Ctrl-C is ours to hand on.
        self._process = subprocess.Popen(self._command, env=self._environment, start_new_session=True)

    async def until_ready(self, store: PostgresStore, stop: asyncio.Event) -> None:
        """Registered, or ended: then it has said why."""
        while not stop.is_set():
            if self._process is None or self._process.poll() is not None:
                raise WorkerDidNotStart("The worker ended before it was ready; its own words are above.")
            if any(worker.pid == self._process.pid and worker.state == "ALIVE" for worker in await store.workers()):
                return
            await pause(0.02, stop)

    async def keep_running(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._process is not None and self._process.poll() is not None:
                show.err.print(
                    f"[yellow]The worker ended with code {self._process.returncode}; starting it again.[/yellow]"
                )
                self.start()
            await pause(1.0, stop)

    def end(self) -> None:
        """Lets it drain; what is left after that runs again elsewhere or later."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
