"""Signatures by the Standard Webhooks scheme: https://www.standardwebhooks.com."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def keys_of(secrets: str) -> tuple[bytes, ...]:
    """The keys in `whsec_… whsec_…`: during a rotation a receiver may know either."""
    return tuple(_key_of(secret) for secret in secrets.split())


def _key_of(secret: str) -> bytes:
    # Not the secret itself in the words: they end up in the history of a job.
    wrong = ValueError(f"a webhook secret is {PREFIX} and at least 24 bytes in base64")
    if not secret.startswith(PREFIX):
        raise wrong
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise wrong from None
    if len(key) < 24:
        raise wrong
    return key


def signature(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """One signature per key, separated by spaces."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(key, signed, "sha256") for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
