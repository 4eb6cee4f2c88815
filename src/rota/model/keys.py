"""API keys: who calls, and what they may do."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

PREFIX = "rota_"


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    ADMIN = "admin"


class Principal(Struct, frozen=True):
    """The bearer of a key. Admin includes every other scope and every user."""

    user_id: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes


class ApiKey(Struct, frozen=True, kw_only=True):
    id: str
    user_id: str
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    """Plain SHA-256: the secret has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(secret.encode()).digest()
