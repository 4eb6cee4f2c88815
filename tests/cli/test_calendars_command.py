"""`rota calendars`, and the same through the Python client."""

from __future__ import annotations

import asyncio

import pytest

from rota import Client, RequestRefused
from rota.store.postgres.engine import PostgresStore
from tests.cli.test_commands import Shell, rota
from tests.server.calls import USER, a_rota_server

__all__ = ["rota"]
DAYS = ["2027-12-24/2027-12-26", "2027-12-31"]


async def test_a_calendar_is_put_shown_and_deleted(rota: Shell) -> None:
    assert "No calendars." in (await rota("calendars")).out
    made = (await rota("calendars", "put", "[bank] holidays", *DAYS, "--json")).json
    assert (made["name"], made["user_id"], made["days"]) == ("[bank] holidays", "admin", DAYS)

    assert (await rota("calendars", "--json")).json == {"calendars": [made]}
    listed = (await rota("calendars")).out
    assert "[bank] holidays" in listed and "2027-12-24/2027-12-26, 2027-12-31" in listed
    assert "2027-12-31" in (await rota("calendars", "show", "[bank] holidays")).out
    assert (await rota("calendars", "delete", "[bank] holidays", "--json")).json == made
    assert (await rota("calendars", "show", "[bank] holidays")).code == 1


async def test_admin_says_whose(rota: Shell) -> None:
    await rota("calendars", "put", "days", "2027-12-25", "--user", "ann")

    assert (await rota("calendars", "--user", "ann", "--json")).json["calendars"][0]["user_id"] == "ann"
    assert (await rota("calendars", "show", "days")).code == 1
    early = await rota("calendars", "--user", "ann", "delete", "days")
    assert (early.code, "--user goes behind delete" in early.err) == (2, True)
    assert (await rota("calendars", "delete", "days", "--user", "ann")).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["put", "days", "2027-12-25", "christmas"], 2, "days[1]"),
        (["put", "days"], 2, "DAY"),
        (["put", "x" * 101, "2027-12-25"], 2, "1 to 100 characters"),
        (["show", "days"], 1, "no calendar 'days'"),
        (["delete", "days"], 1, "no calendar 'days'"),
    ],
)
async def test_what_is_wrong_is_said_in_a_sentence(rota: Shell, arguments: list[str], code: int, words: str) -> None:
    done = await rota("calendars", *arguments)

    assert (done.code, words in done.err) == (code, True), done


async def test_calendars_through_the_client(store: PostgresStore) -> None:
    _, secret = await store.create_key("ann", USER)

    def work(url: str) -> None:
        with Client(url, secret) as client:
            made = client.put_calendar("ä b?", (day for day in DAYS))
            assert made.days == DAYS
            assert client.calendar("ä b?") == made
            assert client.calendars().calendars == [made]
            client.submit("echo", cron="0 10 * * *", calendar="ä b?")
            with pytest.raises(RequestRefused) as refusal:
                client.delete_calendar("ä b?")
            assert refusal.value.status == 409

    async with a_rota_server(store) as url:
        await asyncio.to_thread(work, url)
