"""Reads the named queries of a `.sql` file: a block begins with `-- name: some_name`."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The queries of one file, as attributes; a misspelt one fails at once."""

    def __init__(self, file: str) -> None:
        text = files(__package__).joinpath("sql", file).read_text()
        _, *blocks = _NAME.split(text)
        self.by_name = {name: body.strip().rstrip(";") for name, body in zip(blocks[::2], blocks[1::2], strict=True)}

    def __getattr__(self, name: str) -> str:
        try:
            return self.by_name[name]
        except KeyError:
            raise AttributeError(f"there is no query named {name}") from None
