"""Which release of the time zone database is really used here."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

import tzdata  # type: ignore[import-untyped]
from msgspec import Struct

PACKAGE = "the tzdata package"
# Where distributions write the release beside the zones: the text form of all rules, and macOS's own file.
_SAYS_VERSION = (("tzdata.zi", re.compile(r"# version (\S+)")), ("+VERSION", re.compile(r"(\S+)")))
_RELEASE = re.compile(r"(\d{4})([a-z])")


class ZoneSource(Struct, frozen=True):
    """A folder or package, and how many zones are read from it; no version where it tells none."""

    place: str
    version: str | None
    zones: int

    def age(self, now: datetime) -> timedelta | None:
        """Roughly: a release is named by its year and a letter, and a few come every year."""
        named = _RELEASE.match(self.version or "")
        if named is None:
            return None
        days = min(364, 45 * (ord(named[2]) - ord("a") + 1))
        return now - datetime(int(named[1]), 1, 1, tzinfo=UTC) - timedelta(days=days)


def zone_sources() -> list[ZoneSource]:
    """As zoneinfo looks, zone by zone: the first folder that has it, else the package. Most zones first."""
    counted = Counter(map(_home, available_timezones()))
    return [ZoneSource(home, _version(home), zones) for home, zones in counted.most_common()]


def package_version() -> str:
    version: str = tzdata.IANA_VERSION
    return version


def _home(zone: str) -> str:
    return next((folder for folder in TZPATH if (Path(folder) / zone).is_file()), PACKAGE)


def _version(home: str) -> str | None:
    if home == PACKAGE:
        return package_version()
    for name, form in _SAYS_VERSION:
        if found := form.match(_beginning(Path(home) / name)):
            return found[1]
    return None


def _beginning(file: Path) -> str:
    try:
        with file.open(errors="replace") as text:
            return text.readline(200)
    except OSError:
        return ""
