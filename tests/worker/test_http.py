"""`http` against a real server on loopback, which the settings of these tests allow."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from rota.model.retry import Done, Outcome, Raised, TimedOut
from rota.version import VERSION
from rota.worker.builtin import builtin
from rota.worker.builtin.http import MOST_BODY, CheckedResolver, Http, retry_after
from rota.worker.builtin.webhook import keys_of, signature
from rota.worker.executor import MOST_RESULT, execute
from rota.worker.tasks import App, GiveUp
from tests.support.context import EXECUTION, a_context
from tests.support.ports import free_ports

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[web.BaseRequest, bytes]] = []
        self.peers: set[Any] = set()
        self.answer: Callable[[], Awaitable[web.StreamResponse]] = self.says(200)
        self.url = ""
        self.over = asyncio.Event()

    def says(self, status: int, body: bytes = b"", **headers: str) -> Callable[[], Awaitable[web.StreamResponse]]:
        async def answer() -> web.StreamResponse:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=body, headers=named)

        return answer

    async def says_nothing(self) -> web.StreamResponse:
        await self.over.wait()
        return web.Response()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request, await request.read()))
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        return await self.answer()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
    server.url = site.name
    yield server
    server.over.set()
    await runner.cleanup()


@pytest.fixture(autouse=True)
def loopback_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_HTTP_ALLOW", "127.0.0.0/8, ::1/128")
    monkeypatch.delenv("ROTA_WEBHOOK_SECRET", raising=False)


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    task = Http()
    yield task
    await task.aclose()


async def outcome_of(http: Http, /, *, within: float = 60.0, **parameters: Any) -> Outcome:
    with ThreadPoolExecutor(1) as threads:
        return await execute(App().task("http")(http), json.dumps(parameters), within, threads, a_context())


async def ask(http: Http, url: str, **parameters: Any) -> dict[str, Any]:
    return await http(a_context(), url, **parameters)


# What is sent


async def test_a_request_carries_the_body_and_says_which_attempt_it_is(server: Server, http: Http) -> None:
    await ask(http, f"{server.url}/hook?a=1", body={"hello": ["world", None]}, headers={"X-Mine": "grüße"})

    [(request, body)] = server.requests
    assert (request.method, request.path_qs, json.loads(body)) == ("POST", "/hook?a=1", {"hello": ["world", None]})
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Rota-Execution-Id"] == request.headers["webhook-id"] == EXECUTION
    assert (request.headers["Rota-Attempt"], request.headers["Rota-Fence"]) == ("3", "3")
    assert request.headers["User-Agent"] == f"Rota/{VERSION}"
    assert request.headers["X-Mine"] == "grüße"
    assert "webhook-signature" not in request.headers


async def test_without_a_body_none_is_sent_and_null_is_one(server: Server, http: Http) -> None:
    await ask(http, server.url, method="GET")
    await ask(http, server.url, body=None)

    [(first, nothing), (_, null)] = server.requests
    assert (first.method, nothing, null) == ("GET", b"", b"null")
    assert "Content-Type" not in first.headers


async def test_a_receiver_can_verify_the_signature(server: Server, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_WEBHOOK_SECRET", f"{SECRET} {OTHER}")

    await ask(http, server.url, body={"a": 1})

    [(request, body)] = server.requests
    stamp = request.headers["webhook-timestamp"]
    signed = f"{request.headers['webhook-id']}.{stamp}.".encode() + body
    expected = [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in (b"k" * 24, b"o" * 32)
    ]
    assert request.headers["webhook-signature"].split(" ") == expected
    assert abs(int(stamp) - time.time()) < 60


async def test_a_receiver_can_verify_it_as_the_docs_say(
    server: Server, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_WEBHOOK_SECRET", f"{SECRET} {OTHER}")
    page = (Path(__file__).parent.parent.parent / "docs" / "builtin-tasks.md").read_text()
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)

    await ask(http, server.url, body={"a": 1})

    [(request, body)] = server.requests
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert names["is_ours"](SECRET, headers, body) and names["is_ours"](OTHER, headers, body)
    assert not names["is_ours"](SECRET, headers, body + b" ")


def test_the_signature_is_the_one_of_the_specification() -> None:
    """The example of the Standard Webhooks reference libraries."""
    keys = keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert (
        signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("secret", ["hunter2", "whsec_", "whsec_???", "whsec_c2hvcnQ="])
def test_a_secret_that_is_none_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(ValueError, match="a webhook secret is") as refusal:
        keys_of(secret)

    assert secret not in str(refusal.value).replace("whsec_ and", "")


async def test_connections_are_used_again(server: Server, http: Http) -> None:
    for _ in range(5):
        await ask(http, server.url)

    assert len(server.requests) == 5 and len(server.peers) == 1


async def test_cookies_of_one_job_do_not_reach_another(server: Server, http: Http) -> None:
    server.answer = server.says(200, Set_Cookie="session=ann")
    await ask(http, server.url)
    await ask(http, server.url)

    assert all("Cookie" not in request.headers for request, _ in server.requests)


@pytest.mark.parametrize(
    "name",
    ["Webhook-Signature", "webhook-id", "rota-fence", "USER-AGENT", "Host", "Content-Length", "Transfer-Encoding"],
)
async def test_our_headers_are_not_the_jobs_to_set(server: Server, http: Http, name: str) -> None:
    with pytest.raises(GiveUp, match="not the job's to set"):
        await ask(http, server.url, headers={name: "1"})

    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("X", "a\r\nRota-Fence: 9"), ("X", "a\n"), ("X\r\nY", "a"), ("X: Y", "a"), ("", "a"), ("X", "\0"), ("Ü", "a")],
)
async def test_a_header_inside_a_header_is_given_up(server: Server, http: Http, name: str, value: str) -> None:
    with pytest.raises(GiveUp, match="no place in it"):
        await ask(http, server.url, headers={name: value})

    assert server.requests == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": 7},
        {"url": "ftp://127.0.0.1/"},
        {"url": "file:///etc/passwd"},
        {"url": "/relative"},
        {"url": "http://"},
        {"url": "http://ann:secret@127.0.0.1/"},
        {"url": "http://ann@127.0.0.1/"},
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://127.0.0.1/\r\nX: y"},
        {"url": "http://127.0.0.1/", "method": "CONNECT"},
        {"url": "http://127.0.0.1/", "method": "GET / HTTP/1.1\r\nX:"},
        {"url": "http://127.0.0.1/", "headers": {"X": 1}},
        {"url": "http://127.0.0.1/", "headers": ["X"]},
        {"url": "http://127.0.0.1/", "timeout": "soon"},
        {"url": "http://127.0.0.1/", "timeout": 0},
    ],
)
async def test_a_request_that_cannot_be_is_given_up(http: Http, wrong: dict[str, Any]) -> None:
    outcome = await outcome_of(http, **wrong)

    assert isinstance(outcome, Raised) and outcome.final, outcome


# Where it may go


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "127.1", "0x7f000001", "0", "[::1]"),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "１２７.0.0.1", "127.0.0.1.", "[::1%25lo]"),
    ],
)
async def test_loopback_is_refused_in_every_spelling(
    server: Server, http: Http, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_HTTP_ALLOW")
    port = server.url.rpartition(":")[2]

    outcome = await outcome_of(http, url=f"http://{host}:{port}/")

    assert isinstance(outcome, Raised) and server.requests == []
    assert outcome.final, outcome.error


async def test_a_refusal_says_what_to_change(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_HTTP_ALLOW")

    for host in ("127.0.0.1", "localhost", "[::ffff:169.254.169.254]", "169.254.169.254"):
        outcome = await outcome_of(http, url=f"http://{host}:1/")
        assert isinstance(outcome, Raised) and outcome.final and "ROTA_HTTP_ALLOW" in outcome.error, host


async def test_a_name_leads_to_allowed_addresses_only() -> None:
    class Names(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
            return [
                ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
                for address in ("10.0.0.1", "1.1.1.1", "169.254.169.254", "127.0.0.1")
            ]

        async def close(self) -> None: ...

    found = await CheckedResolver([ip_network("127.0.0.0/8")], Names()).resolve("example.com", 80)

    assert [each["host"] for each in found] == ["1.1.1.1", "127.0.0.1"]


async def test_a_name_is_looked_up_for_each_connection_and_the_last_gate_holds(
    server: Server, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that is fooled does not help: the address of the connection itself is checked."""
    monkeypatch.setenv("ROTA_HTTP_ALLOW", "10.0.0.0/8")

    async def fooled(self: Any, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        flags = socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=flags)]

    monkeypatch.setattr(CheckedResolver, "resolve", fooled)
    port = server.url.rpartition(":")[2]

    with pytest.raises(GiveUp, match=r"127\.0\.0\.1 is not a public address"):
        await ask(http, f"http://example.com:{port}/")

    assert server.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(server: Server, http: Http, status: int) -> None:
    server.answer = server.says(status, Location="http://169.254.169.254/")

    with pytest.raises(GiveUp, match=r"redirect to 'http://169\.254\.169\.254/'"):
        await ask(http, server.url)

    assert len(server.requests) == 1


# What comes back


async def test_json_comes_back_as_json(server: Server, http: Http) -> None:
    server.answer = server.says(201, b'{"id": 7}', Content_Type="application/json", X_Request_Id="r1", X_Other="no")

    outcome = await outcome_of(http, url=server.url)

    assert isinstance(outcome, Done) and outcome.result
    result = json.loads(outcome.result)
    assert (result["status"], result["body"]) == (201, {"id": 7})
    assert result["headers"]["content-type"] == "application/json"
    assert result["headers"]["x-request-id"] == "r1" and "x-other" not in result["headers"]


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"",
        b"x" * (MOST_BODY + 1),
        b"\0" * 10_000_000,
        b"\xff" * MOST_BODY,
        b'"' + b"\\u0000" * 5400 + b'"',
        b"[" * 30_000,
        b"[" * 5_000 + b"]" * 5_000,
        b"1" * 400,
        b"1e999",
        b"NaN",
    ],
    ids=lambda body: f"{body[:4]!r} x {len(body)}",
)
async def test_any_answer_can_be_kept(server: Server, http: Http, body: bytes) -> None:
    server.answer = server.says(200, body)

    outcome = await outcome_of(http, url=server.url)

    assert isinstance(outcome, Done) and outcome.result
    assert len(outcome.result) < MOST_RESULT and json.loads(outcome.result)["status"] == 200


async def test_an_answer_without_end_is_read_to_the_limit(server: Server, http: Http) -> None:
    async def endless() -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(server.requests[-1][0])
        while True:
            await response.write(b"more " * 1000)

    server.answer = endless

    result = await ask(http, server.url)

    assert len(result["body"]) <= MOST_BODY


@pytest.mark.parametrize(
    ("status", "final"),
    [
        (400, True),
        (401, True),
        (404, True),
        (410, True),
        (422, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
        (504, False),
    ],
)
async def test_a_refusal_is_final_and_a_mishap_is_not(server: Server, http: Http, status: int, final: bool) -> None:
    server.answer = server.says(status, b"for this reason")

    outcome = await outcome_of(http, url=server.url)

    assert isinstance(outcome, Raised)
    assert (outcome.final, outcome.after) == (final, None)
    assert f"the answer was {status}" in outcome.error and "for this reason" in outcome.error
    assert "Traceback" not in outcome.error


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_names_a_time_is_asked_again_then(server: Server, http: Http, status: int) -> None:
    server.answer = server.says(status, Retry_After="120")

    outcome = await outcome_of(http, url=server.url)

    assert isinstance(outcome, Raised) and (outcome.after, outcome.final) == (120.0, False)


NOW = datetime(2027, 1, 4, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 30 ", 30.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 500, None),
        ("Mon, 99 Foo 2027 10:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after(text, NOW) == seconds


async def test_when_nobody_is_there_it_is_worth_another_try(http: Http) -> None:
    [port] = free_ports(1)

    outcome = await outcome_of(http, url=f"http://127.0.0.1:{port}/")

    assert isinstance(outcome, Raised) and not outcome.final and "could not be asked" in outcome.error


async def test_an_answer_that_takes_too_long_is_worth_another_try(server: Server, http: Http) -> None:
    server.answer = server.says_nothing

    outcome = await outcome_of(http, url=server.url, timeout=0.05)

    assert isinstance(outcome, Raised) and not outcome.final and "did not answer within 0.05 s" in outcome.error


async def test_the_attempts_own_time_is_a_limit_too(server: Server, http: Http) -> None:
    server.answer = server.says_nothing

    assert await outcome_of(http, within=0.05, url=server.url) == TimedOut(0.05)


def test_every_worker_knows_http() -> None:
    assert builtin.tasks["http"].takes_context and builtin.tasks["http"].is_async
