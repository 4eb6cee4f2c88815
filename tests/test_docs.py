"""What a user can say to Rota stands in its docs."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from rota.cli.main import app
from rota.server.app import ENDPOINTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_every_setting_is_documented() -> None:
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    settings = set(re.findall(r"\bROTA_[A-Z_]+\b", source))

    assert settings
    assert settings <= set(re.findall(r"\bROTA_[A-Z_]+\b", (DOCS / "settings.md").read_text()))


def test_every_command_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    group = typer.main.get_command(app)
    names = set(group.commands)  # type: ignore[attr-defined]

    assert names
    assert {name for name in names if f"`rota {name}" not in text} == set()


def test_every_endpoint_is_documented() -> None:
    text = (DOCS / "api.md").read_text()

    assert [e for e in ENDPOINTS if f"`{e.method} {e.path}`" not in text] == []


def test_every_link_between_our_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} → {link}"


def test_every_file_that_the_readme_names_as_proof_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "README.md").read_text()))

    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()
