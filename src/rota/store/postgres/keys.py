"""API keys in the store: only their hashes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import asyncpg

from rota.model.keys import ApiKey, Principal, Scope, hash_of, new_secret
from rota.store.postgres.database import Database
from rota.store.postgres.queries import Queries

SQL = Queries("keys.sql")


class Keys:
    db: Database

    async def create_key(self, user_id: str, scopes: Sequence[Scope]) -> tuple[ApiKey, str]:
        secret = new_secret()
        names = [scope.value for scope in scopes]
        rows = await self.db.fetch(
            SQL.create, "k_" + secrets.token_hex(4), hash_of(secret), user_id, names, self.db.time
        )
        return _key(rows[0]), secret

    async def keys(self) -> list[ApiKey]:
        return [_key(row) for row in await self.db.look(SQL.all)]

    async def revoke_key(self, key_id: str) -> bool:
        return bool(await self.db.fetch(SQL.revoke, key_id, self.db.time))

    async def principal(self, hash: bytes) -> Principal | None:
        rows = await self.db.look(SQL.principal, hash)
        return Principal(rows[0]["user_id"], frozenset(map(Scope, rows[0]["scopes"]))) if rows else None


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(
        id=row["id"],
        user_id=row["user_id"],
        scopes=[Scope(scope) for scope in row["scopes"]],
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
    )
