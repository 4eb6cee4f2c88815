"""Settings, read once at the edge from the environment. Every one of them is listed in docs/settings.md."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from rota.model.errors import InvalidField, quoted

DEFAULT_PORT = 7070
DEFAULT_DATA = Path("rota-data")


class Settings(Struct, frozen=True):
    """Where things are."""

    data: Path = DEFAULT_DATA
    database: str | None = None
    url: str | None = None
    api_key: str | None = None

    @classmethod
    def read(cls) -> Settings:
        env = os.environ
        return cls(
            data=Path(env.get("ROTA_DATA", DEFAULT_DATA)),
            database=env.get("ROTA_DATABASE_URL"),
            url=env.get("ROTA_URL"),
            api_key=env.get("ROTA_API_KEY"),
        )

    def server(self) -> ServerAddress:
        """Where the server is and the key to it: as told, else as `rota up` left them in the data folder."""
        url = self.url or _line(self.data / "url") or f"http://127.0.0.1:{DEFAULT_PORT}"
        return ServerAddress(url, self.api_key or _line(self.data / "admin.key"))


class ServerAddress(Struct, frozen=True):
    url: str
    api_key: str | None

    def checked(self, url_is: str = "ROTA_URL") -> ServerAddress:
        """Refuses what can be no address and no key, before anything is sent there."""
        if not self.url.startswith(("http://", "https://")):
            raise InvalidField(url_is, f"{quoted(self.url)} is no address; write it like http://127.0.0.1:7070")
        if "@" in urlsplit(self.url).netloc:
            raise InvalidField(url_is, "carries a login; leave it out, the key goes into ROTA_API_KEY")
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidField("ROTA_API_KEY", "has characters that no key has")
        return self


def _line(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


class EmailSettings(Struct, frozen=True):
    """Without a host, mail becomes files in the outbox."""

    host: str | None
    port: int
    username: str | None
    password: str | None
    tls: bool
    sender: str
    outbox: Path

    @classmethod
    def read(cls) -> EmailSettings:
        env = os.environ
        return cls(
            host=env.get("ROTA_SMTP_HOST"),
            port=int(env.get("ROTA_SMTP_PORT", "25")),
            username=env.get("ROTA_SMTP_USERNAME"),
            password=env.get("ROTA_SMTP_PASSWORD"),
            tls=env.get("ROTA_SMTP_TLS", "") == "1",
            sender=env.get("ROTA_SMTP_SENDER", "rota@localhost"),
            outbox=Path(env.get("ROTA_DATA", DEFAULT_DATA)) / "outbox",
        )
