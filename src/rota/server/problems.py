"""Errors as RFC 9457 problem+json: what was wrong, with which field, and what to do."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from rota.model import errors

STATUS: dict[type[errors.RotaError], tuple[int, str]] = {
    errors.Invalid: (422, "That cannot be"),
    errors.Unauthenticated: (401, "Who is calling?"),
    errors.Forbidden: (403, "This key may not do that"),
    errors.NotFound: (404, "Not found"),
    errors.Conflict: (409, "Not in its present state"),
    errors.TooLarge: (413, "Too much at once"),
    errors.StoreUnavailable: (503, "The store is away for the moment"),
    errors.StoreError: (500, "The store refused"),
}
_AT = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"missing required field `(.*?)`")


class Problem(Struct, frozen=True, omit_defaults=True):
    title: str
    status: int
    detail: str
    field: str | None = None
    type: str = "about:blank"


class Malformed(errors.Invalid):
    """Not even JSON."""


def problem_of(error: errors.RotaError) -> Problem:
    status, title = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if isinstance(error, Malformed):
        status = 400
    field = error.field if isinstance(error, errors.InvalidField) else None
    return Problem(title=title, status=status, detail=_detail(error), field=field)


def _detail(error: errors.RotaError) -> str:
    """What the database says may hold other people's data, so it stays here and in the log."""
    if isinstance(error, errors.StoreUnavailable):
        return "The database does not answer just now; what was asked may or may not have happened. Try again."
    if isinstance(error, errors.StoreError):
        return "It is our fault, and it has been logged."
    return str(error)


def invalid_body(error: Exception) -> errors.Invalid:
    """msgspec's words as ours: the field first, then what is wrong with it."""
    if isinstance(error, msgspec.ValidationError):
        text = str(error)
        path = _AT.search(text)
        place = path[1] if path else ""
        problem = _AT.sub("", text)
        for pattern, sentence in ((_UNKNOWN, "is not a field we know; see /docs"), (_MISSING, "is missing; add it")):
            if named := pattern.search(problem):
                return errors.InvalidField(f"{place}.{named[1]}".lstrip("."), sentence)
        return errors.InvalidField(place or "body", problem[0].lower() + problem[1:])
    if isinstance(error, RecursionError):
        return Malformed("The JSON is nested too deeply.")
    return Malformed(f"The body is not JSON that we can read: {error}")
