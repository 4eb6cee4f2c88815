"""A proxy that cuts the line on demand: after the server has done what was asked, before its answer gets through."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Cutting:
    """`cut["claim"] = 3`: the next three answers to claims are lost, and their connections with them."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self.cut: Counter[str] = Counter()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        asked = ""

        async def requests() -> None:
            nonlocal asked
            while chunk := await reader.read(1 << 20):
                if chunk.startswith(b"POST /work/"):
                    asked = chunk.split(b" ", 2)[1].decode().removeprefix("/work/")
                there_writer.write(chunk)
            there_writer.close()

        async def answers() -> None:
            while chunk := await there_reader.read(1 << 20):
                if self.cut[asked] > 0:
                    self.cut[asked] -= 1
                    break
                writer.write(chunk)
            writer.close()

        both = [asyncio.create_task(requests()), asyncio.create_task(answers())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for end in (writer, there_writer):
                end.close()


@asynccontextmanager
async def a_cutting_proxy(url: str) -> AsyncIterator[Cutting]:
    proxy = Cutting(url)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
