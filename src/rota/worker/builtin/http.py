"""`http`: one signed request per attempt, to the public internet unless the operator allows more."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NoReturn

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import UNSET, Struct
from yarl import URL

from rota.settings import HttpSettings
from rota.version import VERSION
from rota.worker.builtin.addresses import Network, may_reach
from rota.worker.builtin.shorten import printed_size, shortened
from rota.worker.builtin.webhook import keys_of, signature
from rota.worker.context import Context
from rota.worker.tasks import Failed, GiveUp, RetryLater

MOST_BODY = 32 * 1024
MOST_OF_A_REFUSAL = 1000
MOST_HEADER = 1024
CONNECTIONS = 100
CONNECT_TIMEOUT = 10.0
# Others may succeed later; 429 and 5xx are among them.
WORTH_ANOTHER_TRY = {408, 425, 429}
# Worth keeping of an answer; the rest is between the servers.
KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "x-request-id")
# Ours, or the connection's: a job that could set them could sign for us or smuggle a second request.
OUR_HEADERS = re.compile(
    r"webhook-.*|rota-.*|user-agent|host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade"
    r"|expect|proxy-.*"
)
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Request(Struct, frozen=True):
    """What a job may say."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    headers: dict[str, str]
    timeout: float


class Http:
    """The task. Its connections are kept open and shared by all attempts in this process."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._keys: tuple[bytes, ...] = ()

    async def __call__(
        self,
        ctx: Context,
        url: str,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        body: Any = UNSET,
        timeout: float = 30.0,
    ) -> dict[str, Any]:
        request = _request(url, method, headers or {}, timeout)
        target = _target(request.url)
        session = self._opened()
        payload = None if body is UNSET else msgspec.json.encode(body)
        sent = _headers(request.headers, payload) | _our_headers(ctx, self._keys, payload or b"")
        try:
            async with session.request(
                request.method,
                target,
                headers=sent,
                data=payload,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=request.timeout, connect=min(request.timeout, CONNECT_TIMEOUT)),
            ) as response:
                content = await _read(response)
        except aiohttp.InvalidURL as error:
            raise GiveUp(f"the URL cannot be asked: {error}") from None
        except TimeoutError:
            raise Failed(f"{target.host} did not answer within {request.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Failed(f"{target.host} could not be asked: {str(error) or type(error).__name__}") from None
        return _judged(response, content)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = HttpSettings.read()
            self._keys = keys_of(settings.webhook_secret)
            self._session = _session(settings.allowed)
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


# What is asked


def _request(url: str, method: str, headers: dict[str, str], timeout: float) -> Request:
    words = {"url": url, "method": method, "headers": headers, "timeout": timeout}
    try:
        request = msgspec.convert(words, Request)
    except msgspec.ValidationError as error:
        raise GiveUp(f"the request cannot be made: {error}") from None
    if request.timeout <= 0:
        raise GiveUp("the request cannot be made: its timeout has to be more than nothing")
    return request


def _target(text: str) -> URL:
    if CONTROL.search(text):
        raise GiveUp("the URL has control characters in it")
    try:
        url = URL(text)
    except ValueError as error:
        raise GiveUp(f"the URL cannot be read: {error}") from None
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise GiveUp("only http:// and https:// with a host can be asked")
    if url.raw_user is not None or url.raw_password is not None:
        raise GiveUp("a name or password in the URL is not sent; use a header")
    return url


def _headers(given: dict[str, str], payload: bytes | None) -> dict[str, str]:
    for name, value in given.items():
        if not TOKEN.fullmatch(name) or CONTROL.search(value):
            raise GiveUp(f"the header {name!r} cannot be: control characters and separators have no place in it")
        if OUR_HEADERS.fullmatch(name.lower()):
            raise GiveUp(f"the header {name!r} is not the job's to set")
    named = {name.lower() for name in given}
    # Answers are kept as they come; a compressed one would not be readable, or larger than it looks.
    ours = {"Accept-Encoding": "identity"} | ({} if payload is None else {"Content-Type": "application/json"})
    return {name: value for name, value in ours.items() if name.lower() not in named} | given


def _our_headers(ctx: Context, keys: Sequence[bytes], payload: bytes) -> dict[str, str]:
    now = int(time.time())
    ours = {
        "User-Agent": f"Rota/{VERSION}",
        "Rota-Execution-Id": ctx.execution_id,
        "Rota-Attempt": str(ctx.attempt),
        "Rota-Fence": str(ctx.fence),
        "webhook-id": ctx.execution_id,
        "webhook-timestamp": str(now),
    }
    if keys:
        ours["webhook-signature"] = signature(keys, ctx.execution_id, now, payload)
    return ours


# How it is asked


def _session(allowed: Sequence[Network]) -> aiohttp.ClientSession:
    def checked_socket(info: tuple[Any, ...]) -> socket.socket:
        """The last gate: sees the very address a connection goes to, also one that was written in the URL."""
        family, kind, protocol, _, address = info
        if not may_reach(str(address[0]), allowed):
            _refuse(str(address[0]))
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(
        # No cache of names: each connection goes to an address that was looked up and checked for it.
        resolver=CheckedResolver(allowed),
        use_dns_cache=False,
        socket_factory=checked_socket,
        limit=CONNECTIONS,
    )
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)


class CheckedResolver(AbstractResolver):
    """Only addresses that may be reached; the connection is made to one of these and to nothing else."""

    def __init__(self, allowed: Sequence[Network], inner: AbstractResolver | None = None) -> None:
        self._allowed = allowed
        self._inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        fine = [each for each in found if may_reach(each["host"], self._allowed)]
        return fine or _refuse(host)

    async def close(self) -> None:
        await self._inner.close()


def _refuse(host: str) -> NoReturn:
    raise GiveUp(f"{host} is not a public address, and ROTA_HTTP_ALLOW does not allow it")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """One byte more than is kept, if there is one; the connection is not used again with a rest on it."""
    content = bytearray()
    while len(content) <= MOST_BODY:
        chunk = await response.content.read(MOST_BODY + 1 - len(content))
        if not chunk:
            return bytes(content)
        content += chunk
    response.close()
    return bytes(content)


# What came of it


def _judged(response: aiohttp.ClientResponse, content: bytes) -> dict[str, Any]:
    status = response.status
    if 200 <= status < 300:
        return {"status": status, "headers": _kept(response), "body": _body(content)}
    if 300 <= status < 400:
        where = response.headers.get("Location", "nowhere")[:MOST_HEADER]
        raise GiveUp(f"the answer was {status}, a redirect to {where!r}; redirects are not followed")
    words = f"the answer was {status} {response.reason or ''}".rstrip()
    said = content.decode("utf-8", "replace")[:MOST_OF_A_REFUSAL].strip()
    words += f": {said}" if said else ""
    wait = retry_after(response.headers.get("Retry-After"), datetime.now(UTC)) if status in (429, 503) else None
    if wait is not None:
        raise RetryLater(wait, words)
    if 400 <= status < 500 and status not in WORTH_ANOTHER_TRY:
        raise GiveUp(words)
    raise Failed(words)


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds, or an HTTP date; None if it says nothing that can be read."""
    if text is None:
        return None
    text = text.strip()
    # More digits than that are no wait that anybody meant.
    if re.fullmatch(r"[0-9]{1,12}", text):
        return float(text)
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())


def _kept(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {name: response.headers[name][:MOST_HEADER] for name in KEPT_HEADERS if name in response.headers}
    return {name: value.encode("utf-8", "replace").decode() for name, value in headers.items()}


def _body(content: bytes) -> Any:
    """JSON as such if all of it was read and can be kept as it is, otherwise text."""
    if len(content) <= MOST_BODY:
        try:
            value = msgspec.json.decode(content)
            if printed_size(value) <= MOST_BODY:
                return value
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            pass
    return shortened(content.decode("utf-8", "replace"), MOST_BODY)
