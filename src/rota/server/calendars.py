"""Calendars over HTTP: every user has their own, by name."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from rota.api import CalendarsView, CalendarView
from rota.model.calendar import NamedCalendar, parse_calendar
from rota.model.errors import Conflict, InvalidField, NotFound
from rota.model.instants import print_instant
from rota.server.bodies import NO_CONTROL_CHARACTERS
from rota.server.http import Call, answer
from rota.store.protocol import CalendarInUse

QUERY = ("user_id",)
LONGEST_NAME = 100
LONGEST_USER = 200
_name = re.compile(NO_CONTROL_CHARACTERS)


class CalendarBody(Struct, frozen=True, forbid_unknown_fields=True):
    """All its days; whatever it had before is replaced."""

    days: Annotated[
        list[str],
        Meta(
            description="Dates and ranges of dates, by the clocks of the job that refers to it, or ranges of instants.",
            examples=[["2027-12-25", "2027-12-24/2027-12-26", "2027-12-24T12:00:00Z/2027-12-27T06:00:00Z"]],
        ),
    ]


_body = msgspec.json.Decoder(CalendarBody)


async def list_all(call: Call) -> Response:
    found = await call.store.calendars(call.user_asked_for(call.query().get("user_id")))
    return answer(CalendarsView([calendar_view(calendar) for calendar in found]))


async def put(call: Call) -> Response:
    user_id, name = _whose(call), call.request.path_params["name"]
    for field, text, longest in (("name", name, LONGEST_NAME), ("user_id", user_id, LONGEST_USER)):
        if not _is_name(text, longest):
            raise InvalidField(field, f"must have 1 to {longest} characters, and no control characters")
    body, _ = await call.body(_body)
    return answer(calendar_view(await call.store.put_calendar(user_id, name, parse_calendar(body.days))))


async def look(call: Call) -> Response:
    name = _known_name(call)
    found = await call.store.find_calendar(_whose(call), name)
    if found is None:
        raise NotFound("calendar", name)
    return answer(calendar_view(found))


async def delete(call: Call) -> Response:
    name = _known_name(call)
    match await call.store.delete_calendar(_whose(call), name):
        case None:
            raise NotFound("calendar", name)
        case CalendarInUse(jobs):
            refer = "1 job refers" if jobs == 1 else f"{jobs} jobs refer"
            raise Conflict(f"{refer} to this calendar; cancel them, or give them another one.")
        case NamedCalendar() as gone:
            return answer(calendar_view(gone))


def _whose(call: Call) -> str:
    """A name is one user's: admin who names nobody means their own."""
    asked = call.user_asked_for(call.query().get("user_id"))
    return call.principal.user_id if asked is None else asked


def _known_name(call: Call) -> str:
    """What cannot be a name was never put."""
    name: str = call.request.path_params["name"]
    if not _is_name(name, LONGEST_NAME):
        raise NotFound("calendar", name)
    return name


def _is_name(text: str, longest: int) -> bool:
    return len(text) <= longest and _name.match(text) is not None


def calendar_view(calendar: NamedCalendar) -> CalendarView:
    return CalendarView(
        name=calendar.name,
        user_id=calendar.user_id,
        days=list(calendar.days),
        changed_at=print_instant(calendar.changed_at),
    )
