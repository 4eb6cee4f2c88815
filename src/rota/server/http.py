"""Requests and answers: reading bodies within limits, query parameters by name, JSON out."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from rota.model.errors import Forbidden, InvalidField, NotFound, TooLarge
from rota.model.keys import Principal, Scope
from rota.server.problems import Malformed, invalid_body
from rota.store.protocol import Store

ONE = 1024 * 1024
MANY = 16 * 1024 * 1024
# Below this, packing takes longer than sending.
WORTH_PACKING = 1024
GZIP = 31
Body = TypeVar("Body")
Handler = Callable[["Call"], Awaitable[Response]]
_encode = msgspec.json.Encoder().encode


class Call(Struct, frozen=True):
    """One authenticated request."""

    request: Request
    principal: Principal
    store: Store
    services: Any

    async def body(self, decoder: msgspec.json.Decoder[Body], limit: int = ONE) -> tuple[Body, bytes]:
        raw = await _read(self.request, limit)
        try:
            return decoder.decode(raw), raw
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid_body(error) from None

    def query(self) -> dict[str, str]:
        """The query parameters, each given once."""
        given: dict[str, str] = {}
        for name, value in self.request.query_params.multi_items():
            if name in given:
                raise InvalidField(name, "is given twice")
            given[name] = storable(value, name)
        return given

    def path_id(self, kind: str) -> UUID:
        text = self.request.path_params["id"]
        try:
            return UUID(text)
        except ValueError:
            raise NotFound(kind, text) from None

    def user_asked_for(self, user_id: str | None, field: str = "user_id") -> str | None:
        """Whose things are meant: only admin may name another, and means everybody by naming nobody."""
        if self.principal.is_admin or user_id == self.principal.user_id:
            return user_id
        if user_id is not None:
            raise Forbidden(f"{field}: only a key with the scope `admin` may name another user.")
        return self.principal.user_id

    def may_see(self, user_id: str) -> bool:
        return self.principal.is_admin or user_id == self.principal.user_id


class Endpoint(Struct, frozen=True, kw_only=True):
    """One line of the route table; routes, OpenAPI and the human docs are made from it."""

    method: str
    path: str
    handler: Handler
    summary: str
    answer: type
    scope: Scope | None
    status: int = 200
    # What it answers with 200 when it was only asked what it would do.
    dry: type | None = None
    query: tuple[str, ...] = ()
    body: type | None = None
    headers: tuple[str, ...] = ()


def storable(text: str, field: str) -> str:
    if "\0" in text:
        raise InvalidField(field, "contains a NUL character; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidField(field, "is not valid Unicode") from None
    return text


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, media_type="application/json")


def packed_answer(request: Request, value: object) -> Response:
    """Compressed if it is large and the caller reads gzip."""
    content, headers = _encode(value), {}
    if len(content) >= WORTH_PACKING and _reads_gzip(request):
        content, headers = zlib.compress(content, 1, GZIP), {"Content-Encoding": "gzip"}
    return Response(content, 200, headers, media_type="application/json")


def _reads_gzip(request: Request) -> bool:
    accepted = request.headers.get("accept-encoding", "").replace(" ", "")
    return "gzip" in accepted and "gzip;q=0" not in accepted


async def _read(request: Request, limit: int) -> bytes:
    content = await _received(request, limit)
    match request.headers.get("content-encoding", "identity").lower():
        case "identity":
            return content
        case "gzip":
            return _unpacked(content, limit)
        case _:
            raise InvalidField("Content-Encoding", "is none that we read; send gzip, or the body as it is")


def _unpacked(content: bytes, limit: int) -> bytes:
    """Stops unpacking as soon as it is too much, whatever a small body may swell to."""
    packed = zlib.decompressobj(GZIP)
    try:
        unpacked = packed.decompress(content, limit + 1)
    except zlib.error as error:
        raise Malformed(f"The body is not gzip as its header says: {error}") from None
    if len(unpacked) > limit:
        raise TooLarge(f"The body unpacks to more than {limit} bytes, which is the most that is taken.")
    if not packed.eof or packed.unused_data:
        raise Malformed("The body is not one whole piece of gzip.")
    return unpacked


async def _received(request: Request, limit: int) -> bytes:
    """Stops reading as soon as it is too much."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"The body has {declared} bytes; {limit} are taken at most.")
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > limit:
            raise TooLarge(f"The body has more than {limit} bytes, which is the most that is taken.")
    return bytes(chunks)
