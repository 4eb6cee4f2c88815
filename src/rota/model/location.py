"""Where a job wants its result: a location that the operator named, and a path below it that cannot leave it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import Struct

from rota.model.errors import InvalidField

FIELD = "result_location"
LONGEST = 500
# What every store takes: a file's name has 255 bytes, a few of them for its unfinished copy; a key of S3 has 1024.
MOST_OF_A_PART = 240
MOST_OF_A_PATH = 1000
DEFAULT_PATH = "{job_id}/{execution_id}.json"
LOCATION_NAME = re.compile(r"[a-z0-9_-]{1,64}")
PLACEHOLDERS = ("execution_id", "job_id", "attempt", "fires_at")
_placeholder = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


class Place(Struct, frozen=True):
    """A path below a named location."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name}/{self.path}"


def checked_location(text: str) -> str:
    """The same text; an InvalidField if it can be no place, whatever its placeholders stand for."""
    _template(text)
    return text


def place_of(text: str, *, execution_id: str, job_id: str, attempt: int, fires_at: datetime) -> Place:
    """With its placeholders filled in, and checked again: what was put in may not change what kind of path it is."""
    template = _template(text)
    values = {
        "execution_id": execution_id,
        "job_id": job_id,
        "attempt": str(attempt),
        "fires_at": fires_at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"),
    }
    path = _placeholder.sub(lambda found: values[found[1]], template.path)
    _check_path(path)
    return Place(template.name, path)


def _template(text: str) -> Place:
    if len(text) > LONGEST:
        raise InvalidField(FIELD, f"has {len(text)} characters; {LONGEST} are allowed")
    if "://" in text:
        raise InvalidField(FIELD, "is a URL; write the name of a location and a path below it, like reports/sales.json")
    name, slash, path = text.partition("/")
    if not LOCATION_NAME.fullmatch(name):
        raise InvalidField(FIELD, "must begin with the name of a location: 1 to 64 of a-z, 0-9, _ and -")
    path = path if slash else DEFAULT_PATH
    _check_path(_placeholder.sub("x", path))
    return Place(name, path)


def _check_path(path: str) -> None:
    # Also such as nobody sees: URLs drop tabs and line breaks, and a file location is a URL to its store.
    if not path.isprintable():
        raise InvalidField(FIELD, "contains control or other characters that cannot be printed; remove them")
    # To a URL a backslash is a slash and `C:` or `C|` a drive; `#` with a number marks the unfinished copy of a file.
    if any(character in path for character in "\\:|#"):
        raise InvalidField(FIELD, r"contains one of \ : | #; the parts of a path are separated by /")
    if "{" in path or "}" in path:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise InvalidField(FIELD, f"has a placeholder that nobody knows; there are {known}")
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidField(FIELD, "has an empty part or one that is . or ..; name each folder of the path")
    if len(path.encode()) > MOST_OF_A_PATH or any(len(part.encode()) > MOST_OF_A_PART for part in parts):
        raise InvalidField(FIELD, f"is too long: {MOST_OF_A_PART} bytes a part and {MOST_OF_A_PATH} in all")
