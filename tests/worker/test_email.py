"""`send_email` against a real SMTP server, and without one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from rota.model.retry import Done, Raised
from rota.worker.builtin import builtin
from rota.worker.builtin.email import send_email
from rota.worker.executor import execute
from rota.worker.tasks import GiveUp
from tests.support.context import a_context

HERE = "127.0.0.1"


class Mail(NamedTuple):
    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        return body_of(self.message, "plain")


class Postman:
    """Takes every mail, except for those to people who are not in or who have moved away."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if address.startswith("moved"):
            return "550 nobody of that name"
        if address.startswith("out"):
            return "450 greylisted, come back in five minutes"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(Mail(envelope.mail_from, envelope.rcpt_tos, parsed(envelope.content)))
        return "250 OK"


def parsed(content: bytes) -> EmailMessage:
    message = message_from_bytes(content, policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


def body_of(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    assert part is not None
    return str(part.get_content()).rstrip("\r\n")


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No settings of this machine leak in, no mail leaks out."""
    for name in ("HOST", "PORT", "USERNAME", "PASSWORD", "TLS", "SENDER"):
        monkeypatch.delenv(f"ROTA_SMTP_{name}", raising=False)
    monkeypatch.setenv("ROTA_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def postman(monkeypatch: pytest.MonkeyPatch) -> Iterator[Postman]:
    postman = Postman()
    controller = Controller(postman, hostname=HERE, port=a_free_port())
    controller.start()
    monkeypatch.setenv("ROTA_SMTP_HOST", HERE)
    monkeypatch.setenv("ROTA_SMTP_PORT", str(controller.port))
    yield postman
    controller.stop()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


# By SMTP


async def test_a_mail_arrives(postman: Postman) -> None:
    receipt = await send_email("ann@example.com", subject="Hello", body="How are you?")

    [mail] = postman.mails
    assert (mail.sender, mail.recipients) == ("rota@localhost", ["ann@example.com"])
    assert (mail.message["To"], mail.message["From"]) == ("ann@example.com", "rota@localhost")
    assert (mail.message["Subject"], mail.text) == ("Hello", "How are you?")
    assert mail.message["Message-ID"] == receipt["message_id"]
    assert mail.message["Date"]


async def test_a_mail_arrives_at_everyone(postman: Postman) -> None:
    await send_email(["ann@example.com", "Bob <bob@example.com>"], subject="Hello")

    [mail] = postman.mails
    assert mail.recipients == ["ann@example.com", "bob@example.com"]
    assert mail.message["To"] == "ann@example.com, Bob <bob@example.com>"


@pytest.mark.parametrize(
    "text",
    [
        "grüße, 世界 😀",
        ".\n..\nQUIT\n.",
        "a line of its own\n\nand another",
        pytest.param("long " * 1000, id="long"),
    ],
)
async def test_a_mail_arrives_as_it_was_written(postman: Postman, text: str) -> None:
    await send_email("ann@example.com", body=text)

    [mail] = postman.mails
    assert mail.text.splitlines() == text.splitlines()


@pytest.mark.parametrize("subject", ["grüße, 世界 😀", "", pytest.param("long " * 100 + "end", id="long")])
async def test_a_subject_arrives_as_it_was_written(postman: Postman, subject: str) -> None:
    await send_email("ann@example.com", subject=subject)

    [mail] = postman.mails
    assert mail.message["Subject"] == subject


async def test_html_comes_beside_the_plain_text(postman: Postman) -> None:
    await send_email("ann@example.com", body="plain", html="<b>grün</b>")

    [mail] = postman.mails
    assert (mail.text, body_of(mail.message, "html")) == ("plain", "<b>grün</b>")


async def test_the_sender_is_the_one_of_the_settings(postman: Postman, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SMTP_SENDER", "jobs@example.com")

    await send_email("ann@example.com")

    [mail] = postman.mails
    assert (mail.sender, mail.message["From"]) == ("jobs@example.com", "jobs@example.com")


async def test_a_sender_of_the_jobs_own_wins(postman: Postman, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SMTP_SENDER", "jobs@example.com")

    await send_email("ann@example.com", sender="Carl <carl@example.com>")

    [mail] = postman.mails
    assert (mail.sender, mail.message["From"]) == ("carl@example.com", "Carl <carl@example.com>")


async def test_two_mails_have_two_ids(postman: Postman) -> None:
    first = await send_email("ann@example.com")
    second = await send_email("ann@example.com")

    assert first["message_id"] != second["message_id"]


async def test_with_a_server_nothing_is_left_in_the_outbox(postman: Postman, data: Path) -> None:
    await send_email("ann@example.com")

    assert not (data / "outbox").exists()


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_server_that_asks_for_a_password_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def knows(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> Any:
        return AuthResult(success=(given.login, given.password) == (b"rota", b"secret"))

    postman = Postman()
    controller = Controller(
        postman, hostname=HERE, port=a_free_port(), authenticator=knows, auth_required=True, auth_require_tls=False
    )
    controller.start()
    for name, value in {"HOST": HERE, "PORT": controller.port, "USERNAME": "rota", "PASSWORD": "secret"}.items():
        monkeypatch.setenv(f"ROTA_SMTP_{name}", str(value))

    await send_email("ann@example.com")

    controller.stop()
    assert len(postman.mails) == 1


# What does not arrive


@pytest.mark.parametrize("to", ["moved@example.com", ["moved@example.com", "moved.too@example.com"]])
async def test_when_nobody_is_there_the_mail_is_given_up(postman: Postman, to: str | list[str]) -> None:
    with pytest.raises(GiveUp, match=r"no recipient was accepted: .*nobody of that name"):
        await send_email(to, subject="Hello")

    assert postman.mails == []


async def test_when_the_server_asks_for_patience_the_mail_is_not_given_up(postman: Postman) -> None:
    try:
        await send_email("out@example.com", subject="Hello")
    except GiveUp:
        raise
    except Exception as error:
        assert "come back in five minutes" in str(error)


async def test_one_who_moved_does_not_keep_the_mail_from_the_others(postman: Postman) -> None:
    await send_email(["moved@example.com", "ann@example.com"], subject="Hello")

    [mail] = postman.mails
    assert mail.recipients == ["ann@example.com"]


async def test_the_receipt_says_who_moved(postman: Postman) -> None:
    receipt = await send_email(["moved@example.com", "ann@example.com"], subject="Hello")

    assert "moved@example.com" in str(receipt)


@pytest.mark.parametrize("with_server", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        {"to": "ann@example.com", "subject": "Hello\nBcc: eve@example.com"},
        {"to": "ann@example.com", "subject": "Hello\r\n\r\na body"},
        {"to": "ann@example.com", "subject": "Hello\n"},
        {"to": "ann@example.com\n"},
        {"to": "ann@example.com", "sender": "carl@example.com\r\n"},
        {"to": "ann@example.com", "subject": "=?utf-8?q?Hello=0D=0ABcc=3A_eve=40example.com?="},
        {"to": "ann@example.com\r\nBcc: eve@example.com"},
        {"to": ["ann@example.com", "bob@example.com\nBcc: eve@example.com"]},
        {"to": "ann@example.com", "sender": "carl@example.com\nBcc: eve@example.com"},
        {"to": "ann@example.com", "subject": "\ud800"},
    ],
)
async def test_a_header_inside_a_header_is_given_up(
    headers: dict[str, Any], with_server: bool, request: pytest.FixtureRequest, data: Path
) -> None:
    postman: Postman | None = request.getfixturevalue("postman") if with_server else None

    with pytest.raises(GiveUp, match="a header that cannot be"):
        await send_email(**headers)

    assert postman is None or postman.mails == []
    assert not (data / "outbox").exists()


@pytest.mark.usefixtures("postman")
@pytest.mark.parametrize("to", ["", [], "<", '"', "a@["])
async def test_a_mail_to_nobody_is_given_up(to: str | list[str]) -> None:
    with pytest.raises(GiveUp):
        await send_email(to, subject="Hello")


async def test_when_the_server_is_away_the_mail_is_worth_another_try(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    monkeypatch.setenv("ROTA_SMTP_HOST", HERE)
    monkeypatch.setenv("ROTA_SMTP_PORT", str(a_free_port()))

    outcome = await execute(builtin.tasks["send_email"], '{"to": "ann@example.com"}', 60, threads, a_context())

    assert isinstance(outcome, Raised) and not outcome.final


# Without a server


async def test_without_a_server_a_mail_is_a_file_in_the_outbox(data: Path) -> None:
    receipt = await send_email(["ann@example.com", "bob@example.com"], subject="Grüße", body="Wie geht's?")

    [file] = (data / "outbox").iterdir()
    message = parsed(file.read_bytes())
    assert (receipt, file.suffix) == ({"file": str(file)}, ".eml")
    assert (message["To"], message["Subject"]) == ("ann@example.com, bob@example.com", "Grüße")
    assert body_of(message, "plain") == "Wie geht's?"


async def test_every_mail_has_a_file_of_its_own(data: Path) -> None:
    for _ in range(3):
        await send_email("ann@example.com", subject="Hello")

    assert len(list((data / "outbox").iterdir())) == 3


async def test_every_worker_knows_how_to_send_a_mail(data: Path, threads: ThreadPoolExecutor) -> None:
    parameters = '{"to": "ann@example.com", "subject": "Hello"}'

    outcome = await execute(builtin.tasks["send_email"], parameters, 60, threads, a_context())

    [file] = (data / "outbox").iterdir()
    assert isinstance(outcome, Done) and outcome.result and file.name in outcome.result
