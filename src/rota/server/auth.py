"""Who calls, by their API key."""

from __future__ import annotations

import time

from rota.model.errors import Forbidden, Unauthenticated
from rota.model.keys import PREFIX, Principal, Scope, hash_of
from rota.store.protocol import Store

# A revoked key is refused after this at the latest.
REMEMBERED = 5.0
MOST_REMEMBERED = 10_000


class Authenticator:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[bytes, tuple[float, Principal | None]] = {}

    async def principal(self, header: str | None, scope: Scope) -> Principal:
        principal = await self._find(_secret_in(header))
        if principal is None:
            raise Unauthenticated("This key is unknown or revoked; `rota keys create` makes a new one.")
        if not principal.may(scope):
            raise Forbidden(f"This takes a key with the scope `{scope}`; this one has {_names(principal)}.")
        return principal

    async def _find(self, secret: str) -> Principal | None:
        hash = hash_of(secret)
        now = time.monotonic()
        until, principal = self._known.get(hash, (0.0, None))
        if now < until:
            return principal
        principal = await self._store.principal(hash)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[hash] = (now + REMEMBERED, principal)
        return principal


def _secret_in(header: str | None) -> str:
    kind, _, secret = (header or "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip().startswith(PREFIX):
        raise Unauthenticated("Send a header `Authorization: Bearer rota_…` with your API key.")
    return secret.strip()


def _names(principal: Principal) -> str:
    return ", ".join(f"`{scope}`" for scope in sorted(principal.scopes)) or "none"
