"""Commands about API keys: they go to the database, so they work before there is any key."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rota.cli import show
from rota.cli.connect import AsJson, Data, Database, dsn_of, opened
from rota.model.errors import Conflict, InvalidField
from rota.model.keys import ApiKey, Scope
from rota.settings import DEFAULT_DATA

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.command()
def create(
    user: Annotated[str, typer.Option(help="Whose key it is.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; say it again for more.")] = [  # noqa: B006
        Scope.READ,
        Scope.SUBMIT,
    ],
    database: Database = None,
    data: Data = DEFAULT_DATA,
    json: AsJson = False,
) -> None:
    """Make a key. It is shown once; only its hash is kept."""
    if not user.strip() or not user.isprintable() or len(user) > 200:
        raise InvalidField("--user", "must have 1 to 200 printable characters")

    async def make() -> tuple[ApiKey, str]:
        async with opened(dsn_of(database, data)) as store:
            return await store.create_key(user, scope)

    key, secret = asyncio.run(make())
    if json:
        return show.as_json({"id": key.id, "user_id": key.user_id, "scopes": key.scopes, "key": secret})
    show.err.print(f"Key {key.id} of {key.user_id} ({', '.join(key.scopes)}). It is not shown again:")
    show.out.print(secret, soft_wrap=True)
    return None


@app.command("list")
def list_keys(database: Database = None, data: Data = DEFAULT_DATA, json: AsJson = False) -> None:
    """List the keys, without their secrets."""

    async def find() -> list[ApiKey]:
        async with opened(dsn_of(database, data)) as store:
            return await store.keys()

    found = asyncio.run(find())
    show.as_json({"keys": found}) if json else show.keys(found)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="The key's id, as `rota keys list` shows it.")],
    database: Database = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Revoke a key; servers refuse it within five seconds."""

    async def end() -> bool:
        async with opened(dsn_of(database, data)) as store:
            return await store.revoke_key(id)

    if not asyncio.run(end()):
        raise Conflict(f"There is no key {id!r} that is not revoked.")
    show.out.print(f"Revoked {id}.")
