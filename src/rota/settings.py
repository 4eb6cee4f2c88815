"""Settings, read once at the edge from the environment. Every one of them is listed in docs/settings.md."""

from __future__ import annotations

import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from rota.model.errors import InvalidField, quoted
from rota.model.location import LOCATION_NAME

DEFAULT_PORT = 7070
DEFAULT_DATA = Path("rota-data")
LOCATIONS = "ROTA_RESULT_LOCATIONS"
LOCATION_SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")


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


class ResultSettings(Struct, frozen=True):
    """The locations that results may be written to: their URLs by name."""

    locations: dict[str, str]

    @classmethod
    def read(cls) -> ResultSettings:
        named: dict[str, str] = {}
        for entry in filter(None, map(str.strip, os.environ.get(LOCATIONS, "").split(","))):
            name, _, url = entry.partition("=")
            _check_location(name, url)
            if name in named:
                raise InvalidField(LOCATIONS, f"names {name} twice")
            named[name] = url
        return cls(named)


def _check_location(name: str, url: str) -> None:
    if not LOCATION_NAME.fullmatch(name):
        raise InvalidField(LOCATIONS, f"{quoted(name)} is no name; it has 1 to 64 of a-z, 0-9, _ and -")
    parts = urlsplit(url)
    if parts.scheme not in LOCATION_SCHEMES or parts.query or parts.fragment:
        raise InvalidField(LOCATIONS, f"{name} is not the URL of a {', '.join(LOCATION_SCHEMES)} location")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/") or not parts.path.strip("/")):
        raise InvalidField(LOCATIONS, f"{name} is not an absolute folder; write it like file:///var/rota/reports")
    if parts.scheme != "file" and not parts.netloc:
        raise InvalidField(LOCATIONS, f"{name} names no bucket; write it like {parts.scheme}://bucket/prefix")


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
