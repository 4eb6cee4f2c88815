"""Finding the server and the database, and saying clearly when they are not there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from rota.model.errors import InvalidField, StoreUnavailable
from rota.settings import ServerAddress, Settings
from rota.store.postgres.engine import PostgresStore

Data = Annotated[Path, typer.Option("--data", envvar="ROTA_DATA", help="The folder `rota up` keeps everything in.")]
Database = Annotated[
    str | None,
    typer.Option("--database", envvar="ROTA_DATABASE_URL", help="postgres://… instead of the embedded store."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def dsn_of(database: str | None, data: Path, *, or_else: str = "") -> str:
    """The database that was named, else the embedded one that is running in the folder."""
    if database:
        return database
    from rota.store.embedded import running_dsn

    dsn = running_dsn(data)
    if dsn is None:
        raise StoreUnavailable(
            f"No Rota is running in {data}. Start one with `rota up`, or name a database with --database{or_else}."
        )
    return dsn


def work_server(url: str) -> ServerAddress:
    """The server that a worker without a database works for."""
    server = ServerAddress(url.rstrip("/"), Settings.read().server().api_key).checked("--server")
    if not server.api_key:
        raise InvalidField("ROTA_API_KEY", "is not set; `rota keys create --user NAME --scope work` makes a key")
    return server


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(dsn)
    try:
        yield store
    finally:
        await store.aclose()


def use_data(data: Path) -> None:
    """What a command is told of the folder holds for everything it starts and asks."""
    os.environ["ROTA_DATA"] = str(data)
