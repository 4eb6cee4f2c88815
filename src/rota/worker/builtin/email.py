"""`send_email`: by SMTP where it is set up, otherwise a file in the outbox."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from uuid import uuid4

import aiosmtplib

from rota.settings import EmailSettings
from rota.worker.tasks import GiveUp


async def send_email(
    to: str | list[str], subject: str = "", body: str = "", sender: str | None = None, html: str | None = None
) -> dict[str, str]:
    settings = EmailSettings.read()
    message = _message(to, subject, body, sender or settings.sender, html)
    if settings.host is None:
        return {"file": str(await asyncio.to_thread(_keep, message, settings.outbox))}
    refused = await _send(message, settings)
    return {"message_id": str(message["Message-ID"])} | ({"refused": ", ".join(refused)} if refused else {})


def _message(to: str | list[str], subject: str, body: str, sender: str, html: str | None) -> EmailMessage:
    message = EmailMessage()
    try:
        message["To"] = to if isinstance(to, str) else ", ".join(to)
        message["From"] = sender
        message["Subject"] = subject
        if not message["To"].addresses:
            raise ValueError("there is nobody to send it to")
        # As given, and as read: an encoded word may hide a line break, and an address header drops one at its end.
        written = [*([to] if isinstance(to, str) else to), sender, subject, *map(str, message.values())]
        if any(ord(character) < 32 and character != "\t" for text in written for character in text):
            raise ValueError("line breaks and other control characters have no place in it")
    except (ValueError, IndexError, AttributeError) as error:
        # A line break in a header is an injection, not a mishap: trying again would not help.
        raise GiveUp(f"the message has a header that cannot be: {error}") from None
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain="rota.local")
    message.set_content(body)
    if html is not None:
        message.add_alternative(html, subtype="html")
    return message


async def _send(message: EmailMessage, settings: EmailSettings) -> list[str]:
    try:
        refused, _ = await aiosmtplib.send(
            message,
            hostname=settings.host,
            port=settings.port,
            username=settings.username,
            password=settings.password,
            use_tls=settings.tls,
            timeout=30,
        )
    except aiosmtplib.SMTPRecipientsRefused as error:
        if any(recipient.code < 500 for recipient in error.recipients):
            raise
        raise GiveUp(f"no recipient was accepted: {error}") from None
    return sorted(refused)


def _keep(message: EmailMessage, outbox: Path) -> Path:
    outbox.mkdir(parents=True, exist_ok=True)
    file = outbox / f"{uuid4().hex}.eml"
    file.write_bytes(bytes(message))
    return file
