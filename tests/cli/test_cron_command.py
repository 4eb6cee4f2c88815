"""`rota cron`: no server, no database, an answer."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rota.cli import main
from rota.cli.cron import cron

app = typer.Typer()
app.callback()(lambda: None)
app.command()(cron)


def rota(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["cron", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def rota_json(*arguments: str) -> Any:
    return json.loads(rota(*arguments, "--json"))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Asks as a shell does; the exit code, what was printed and what was complained of, in one line each."""

    def ask(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(main, "app", app)
        monkeypatch.setattr(sys, "argv", ["rota", "cron", *arguments])
        with pytest.raises(SystemExit) as exit:
            main.main()
        printed = capsys.readouterr()
        assert isinstance(exit.value.code, int)
        return exit.value.code, printed.out, " ".join(printed.err.split())

    return ask


def test_the_sentence_the_firings_and_the_warnings() -> None:
    text = rota("30 2 * * *", "--tz", "America/New_York", "--from", "2027-03-13T00:00Z", "-n", "2")

    assert [line.rstrip() for line in text.splitlines()[:4]] == [
        "At 02:30 every day (America/New_York)",
        "UTC                   America/New_York",
        "2027-03-13 07:30:00Z  2027-03-13 02:30:00-05:00",
        "2027-03-14 07:30:00Z  2027-03-14 03:30:00-04:00  shifted out of the DST gap",
    ]
    assert "Warning: 02:30 does not exist on 2027-03-14 in America/New_York; it fires at 03:30" in text


def test_json_is_one_object() -> None:
    assert rota_json("30 10 * * FRI", "--from", "2027-01-04T10:00:00Z", "-n", "2") == {
        "firings": ["2027-01-08T10:30:00.000Z", "2027-01-15T10:30:00.000Z"],
        "description": "At 10:30 on Friday (UTC)",
        "warnings": [],
    }


def test_json_tells_the_warnings() -> None:
    found = rota_json("30 1 * * *", "--tz", "Europe/London", "--from", "2027-01-01T00:00Z")

    assert found["warnings"] == [
        "01:30 does not exist on 2027-03-28 in Europe/London; it fires at 02:30",
        "01:30 comes twice on 2027-10-31 in Europe/London; it fires the first time, at 2027-10-31T00:30:00.000Z",
    ]


def test_quartz_counts_weekdays_from_one() -> None:
    asked = ("0 0 10 ? * 6", "--from", "2027-01-04T10:00:00Z", "-n", "1")

    assert rota_json(*asked)["firings"] == ["2027-01-09T10:00:00.000Z"]
    assert rota_json(*asked, "--dialect", "quartz")["firings"] == ["2027-01-08T10:00:00.000Z"]


def test_ten_firings_from_now_on_unless_said() -> None:
    before = datetime.now(UTC)
    firings = [datetime.fromisoformat(at) for at in rota_json("* * * * *")["firings"]]

    assert len(firings) == 10
    assert all(at > before for at in firings)


def test_durations_and_instants_are_schedules_too() -> None:
    since = ("--from", "2027-01-04T10:00:00Z", "-n", "2")

    assert rota_json("PT15M", *since) == {
        "firings": ["2027-01-04T10:15:00.000Z", "2027-01-04T10:30:00.000Z"],
        "description": "Every 15 minutes",
        "warnings": [],
    }
    assert rota_json("2027-01-31T10:30:00+02:00", *since)["firings"] == ["2027-01-31T08:30:00.000Z"]
    assert rota_json("2026-01-31T10:30:00Z", *since)["firings"] == []
    assert "No firings." in rota("2026-01-31T10:30:00Z", *since)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["61 * * * *"], "minute: 61 is outside 0-59"),
        (["0 0 30 2 *"], "would never fire"),
        (["* * *"], "has 3 fields"),
        ([""], "has 0 fields"),
        (["* * * * *", "--tz", "Nowhere"], "'Nowhere' is not an IANA time zone"),
        (["* * * * *", "--from", "yesterday"], "--from: 'yesterday' is not an ISO 8601 instant"),
        (["* * * * *", "--dialect", "ours"], "there is no cron dialect 'ours'"),
        (["* * * * *", "--dialect", "quartz", "--tz", "Nowhere"], "'Nowhere' is not an IANA time zone"),
        (["P1M"], "years and months have no fixed length"),
        (["PT15M", "--tz", "UTC"], "time_zone: goes with cron and RRULE only"),
        (["now"], "now is no schedule to look ahead from"),
        (["* * * * *", "-n", "0"], "-n"),
        (["* * * * *", "-n", "1001"], "-n"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_cannot_be_exits_2_with_the_reason(
    refused: Any, arguments: list[str], reason: str, form: list[str]
) -> None:
    code, printed, complaint = refused(*arguments, *form)

    assert code == 2
    assert printed == ""
    assert reason in complaint
