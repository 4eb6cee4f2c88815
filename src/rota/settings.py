"""Settings, read once at the edge from the environment. Every one of them is listed in docs/settings.md."""

from __future__ import annotations

import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from msgspec import Struct

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


class HttpSettings(Struct, frozen=True):
    """What the task `http` may reach beside the public internet, and what it signs with."""

    allowed: tuple[IPv4Network | IPv6Network, ...]
    webhook_secret: str

    @classmethod
    def read(cls) -> HttpSettings:
        env = os.environ
        return cls(
            allowed=tuple(ip_network(each) for each in _listed(env.get("ROTA_HTTP_ALLOW", ""))),
            webhook_secret=env.get("ROTA_WEBHOOK_SECRET", ""),
        )


class CommandSettings(Struct, frozen=True):
    """The commands that the task `command` may start: bare names, found on our own PATH, or absolute paths."""

    allowed: tuple[str, ...]
    grace: float

    @classmethod
    def read(cls) -> CommandSettings:
        env = os.environ
        return cls(
            allowed=tuple(_listed(env.get("ROTA_COMMANDS_ALLOW", ""))),
            grace=float(env.get("ROTA_COMMANDS_GRACE", "10")),
        )


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
