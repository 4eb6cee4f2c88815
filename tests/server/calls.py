"""A server on the loopback, and people who call it."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import uvicorn

from rota.cli.nodes import bind
from rota.model.keys import Scope
from rota.server.app import create_app
from rota.store.protocol import Store

PROBLEM = "application/problem+json"
USER = (Scope.READ, Scope.SUBMIT)


@asynccontextmanager
async def a_rota_server(store: Store) -> AsyncIterator[str]:
    """A real one, in the loop of the test. Uvicorn's own `serve` takes 0.2 s to stop, so its parts are called here."""
    listener = bind("127.0.0.1", 0)
    # Inherited by what is accepted; without it every answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(create_app(store), log_level="warning", access_log=False, server_header=False)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for each in server.servers:
            each.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        if server.server_state.tasks:
            await asyncio.wait(server.server_state.tasks, timeout=5)
        await server.lifespan.shutdown()
        listener.close()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    def ok(self, status: int = 200) -> Any:
        """The answer's JSON; anything but this status fails the test and shows what was said."""
        assert self.status == status, f"{self.status}: {self.content.decode()}"
        return self.json

    def refused(self, status: int, field: str | None = None) -> str:
        """A problem as RFC 9457 has it, about this field; what it says."""
        problem = self.ok(status)
        assert self.headers["Content-Type"] == PROBLEM
        assert problem["status"] == status
        assert problem["title"]
        assert problem.get("field") == field, problem
        detail: str = problem["detail"]
        assert detail
        return detail


class Caller:
    """Somebody with an API key, or without."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def send(
        self, method: str, path: str, content: bytes | AsyncIterator[bytes] | None = None, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        # aiohttp warns of large bodies as plain bytes.
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        async with self.session.request(method, path, data=data, headers=named, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **query: object) -> Answer:
        params = {name: str(value) for name, value in query.items()}
        async with self.session.get(path, params=params) as response:
            return Answer(response.status, response.headers, await response.read())

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.send("POST", path, None if body is None else msgspec.json.encode(body), **headers)

    async def patch(self, path: str, body: object) -> Answer:
        return await self.send("PATCH", path, msgspec.json.encode(body))

    async def put(self, path: str, body: object) -> Answer:
        return await self.send("PUT", path, msgspec.json.encode(body))

    async def delete(self, path: str) -> Answer:
        return await self.send("DELETE", path)

    async def submit(self, task_id: str = "echo", **fields: object) -> Any:
        return (await self.post("/jobs", {"task_id": task_id} | fields)).ok(201)

    async def all(self, path: str, **query: object) -> list[Any]:
        """The rows of the first page, which is to be the only one."""
        found = (await self.get(path, **query)).ok()
        assert found["next_page_token"] is None
        rows: list[Any] = found[path.rsplit("/", 1)[-1].replace("dead-letters", "executions")]
        return rows


@asynccontextmanager
async def a_caller(url: str, secret: str | None) -> AsyncIterator[Caller]:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    async with aiohttp.ClientSession(url, headers=headers) as session:
        yield Caller(session)
