"""Results that go to a place of their own: a file or an object below a location that the operator named."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from rota.model.errors import InvalidField, RotaError
from rota.model.location import Place, place_of
from rota.worker.context import Context
from rota.worker.tasks import GiveUp

if TYPE_CHECKING:
    from obstore.store import ObjectStore

JSON = "application/json"
BINARY = "application/octet-stream"


class NotKept(RotaError):
    """The result could not be written; another attempt may have more luck."""


class Location:
    """A store as the operator named it. A file location has a folder that nothing may be written outside of."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, url: str) -> Location:
        # Not at the top: 5 MB and 10 ms that only those pay who have such results.
        from obstore.store import LocalStore, from_url

        parts = urlsplit(url)
        if parts.scheme != "file":
            return cls(from_url(url))
        folder = Path(unquote(parts.path))
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        return cls(LocalStore(folder), folder)

    async def put(self, path: str, body: bytes, content_type: str) -> None:
        """All of it or nothing, in the place of what was there."""
        if self._folder is None:
            await self._store.put_async(path, body, attributes={"Content-Type": content_type})
            return
        await asyncio.to_thread(_check_below, self._folder, path)
        await self._store.put_async(path, body)


def _check_below(folder: Path, path: str) -> None:
    try:
        target = (folder / path).resolve()
    except RuntimeError as error:
        raise GiveUp(f"the result location has a link that leads nowhere: {error}") from None
    if not target.is_relative_to(folder):
        raise GiveUp("a link below the result location leads out of it; nothing was written")


class Shelf:
    """Where the result of one attempt goes."""

    def __init__(self, location: Location, place: Place) -> None:
        self._location = location
        self._place = place

    async def put(self, body: bytes, content_type: str) -> str:
        """What the execution has for a result then."""
        from obstore.exceptions import BaseError

        try:
            await self._location.put(self._place.path, body, content_type)
        except (BaseError, OSError) as error:
            raise NotKept(f"the result could not be written to {self._place}: {_first_line(error)}") from None
        kept = {"result_location": str(self._place), "bytes": len(body), "content_type": content_type}
        return msgspec.json.encode(kept).decode()


class Locations:
    """Those that the operator named, by name; each is opened when it is first asked for."""

    def __init__(self, urls: Mapping[str, str] | None = None) -> None:
        self._urls = urls or {}
        self._open: dict[str, Location] = {}

    async def shelf(self, wish: str, context: Context) -> Shelf:
        """Raises GiveUp if there can be none here, NotKept if there is none at the moment."""
        place = _place(wish, context)
        url = self._urls.get(place.name)
        if url is None:
            raise GiveUp(f"the worker knows no result location {place.name!r}; ROTA_RESULT_LOCATIONS names them")
        if place.name not in self._open:
            self._open[place.name] = await asyncio.to_thread(_opened, place.name, url)
        return Shelf(self._open[place.name], place)


def _place(wish: str, context: Context) -> Place:
    try:
        return place_of(
            wish,
            execution_id=context.execution_id,
            job_id=context.job_id,
            attempt=context.attempt,
            fires_at=context.fires_at,
        )
    except InvalidField as error:
        raise GiveUp(str(error)) from None


def _opened(name: str, url: str) -> Location:
    from obstore.exceptions import BaseError

    try:
        return Location.open(url)
    except (BaseError, OSError, ValueError) as error:
        raise NotKept(f"the result location {name!r} cannot be opened: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    """The rest is what a debugger would show."""
    return (str(error) or type(error).__name__).splitlines()[0]
