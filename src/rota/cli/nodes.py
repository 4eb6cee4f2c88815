"""Running the parts of Rota, apart or together."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from rota.cli import show
from rota.loop import settle
from rota.model.errors import RotaError
from rota.model.ledger import HISTORY_KEPT
from rota.scheduler.duties import run_duties, run_reaper
from rota.server.app import create_app
from rota.settings import ServerAddress
from rota.store.postgres.engine import PostgresStore
from rota.store.postgres.migrate import migrate
from rota.worker.child import die_with_parent
from rota.worker.remote import RemoteSource
from rota.worker.supervisor import Supervisor, WorkerSettings


class AddressInUse(RotaError):
    pass


def bind(host: str, port: int) -> socket.socket:
    """Before anything is started, so that a taken port is known at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named in full: only for a socket known to be TCP does asyncio turn Nagle's delay off.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        option = "--port" if error.errno == errno.EADDRINUSE else "--host"
        raise AddressInUse(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with {option}.") from None
    listener.listen(2048)
    return listener


class _Server(uvicorn.Server):
    """Signals are ours to answer: the parts stop in an order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not running.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        yield
    finally:
        if hints := getattr(app.state, "hints", None):
            hints.close()
        server.should_exit = True
        await running


def stop_on_signals() -> asyncio.Event:
    """The first Ctrl-C or SIGTERM stops in order; the second ends at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    return stop


async def prepare(dsn: str) -> list[int]:
    """The schema of this version, and partitions for the days to come."""
    applied = await migrate(dsn)
    store = await PostgresStore.open(dsn)
    try:
        await store.maintain(keep=HISTORY_KEPT)
    finally:
        await store.aclose()
    return applied


def begin() -> None:
    """What each process does first. Who starts us as a part of his may want us to end with him, however he ends."""
    settle()
    if os.environ.get("ROTA_DIE_WITH_PARENT"):
        die_with_parent()


async def run_server(dsn: str, host: str, port: int) -> None:
    begin()
    listener = bind(host, port)
    await prepare(dsn)
    store = await PostgresStore.open(dsn)
    stop = stop_on_signals()
    try:
        async with serving(create_app(store), listener):
            show.err.print(f"Rota serves http://{host}:{listener.getsockname()[1]}", highlight=False)
            await run_reaper(store, stop)
    finally:
        await store.aclose()


async def run_scheduler(dsn: str) -> None:
    begin()
    await prepare(dsn)
    store = await PostgresStore.open(dsn)
    try:
        show.err.print("Rota plans, reaps and cleans up.")
        await run_duties(store, stop_on_signals())
    finally:
        await store.aclose()


async def run_worker(dsn: str, settings: WorkerSettings) -> None:
    begin()
    store = await PostgresStore.open(dsn)
    stop = stop_on_signals()
    supervisor = Supervisor(store, store.woken, settings)
    helping = [asyncio.create_task(run_reaper(store, stop)), asyncio.create_task(_tell_ready(supervisor))]
    try:
        await supervisor.run(stop)
    finally:
        for helper in helping:
            helper.cancel()
        await asyncio.gather(*helping, return_exceptions=True)
        await store.aclose()


async def run_remote_worker(server: ServerAddress, settings: WorkerSettings) -> None:
    """Without a database, and so without a reaper: the servers have theirs."""
    begin()
    stop = stop_on_signals()
    async with RemoteSource(server.url, server.api_key or "") as source:
        supervisor = Supervisor(source, source.woken, settings)
        telling = asyncio.create_task(_tell_ready(supervisor))
        try:
            await _unless_refused(supervisor.run(stop), source.refused)
        finally:
            telling.cancel()


async def _unless_refused(work: Coroutine[None, None, None], refused: asyncio.Future[RotaError]) -> None:
    """A key that is refused ends everything: what runs could not even be told."""
    working = asyncio.create_task(work)
    refused.add_done_callback(lambda _: working.cancel())
    await asyncio.wait([working])
    if refused.done():
        raise refused.result()
    await working


async def _tell_ready(supervisor: Supervisor) -> None:
    await supervisor.ready.wait()
    if not os.environ.get("ROTA_DIE_WITH_PARENT"):
        show.err.print("The worker is ready; Ctrl-C lets it finish what runs.")
