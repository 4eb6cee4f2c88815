"""The OpenAPI 3.1 document, made from the route table."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from rota.server.http import Endpoint
from rota.server.problems import Problem
from rota.version import VERSION

_REF = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"{(\w+)}")
DESCRIPTIONS = {
    "user_id": "Whose; only admin may name another user.",
    "status": "One status in any case; PENDING is SCHEDULED, QUEUED or RETRYING.",
    "start_time": "Firing at or after this ISO 8601 instant.",
    "end_time": "Firing at or before this ISO 8601 instant.",
    "limit": "Rows a page, 1 to 1000; 50 unless said otherwise.",
    "page_token": "The next_page_token of the page before.",
    "attempt": "Only this attempt's lines.",
    "after": "Only what comes after this place, `<attempt>-<seq>`.",
    "Idempotency-Key": "Sent again with the same body it gives the first job again; kept for 24 hours.",
}


def openapi(endpoints: list[Endpoint]) -> dict[str, Any]:
    named = {t for endpoint in endpoints for t in (endpoint.answer, endpoint.body, endpoint.dry) if t is not None}
    types = named | {Problem}
    ordered = sorted(types, key=lambda t: t.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    by_type = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": VERSION, "description": "A distributed job scheduler."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key, rota_…"}},
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z]+', '_', endpoint.path)}".rstrip("_"),
        "parameters": _parameters(endpoint),
        "responses": {
            str(endpoint.status): _response("Done", "application/json", schemas[endpoint.answer]),
            "default": _response("A problem (RFC 9457)", "application/problem+json", schemas[Problem]),
        },
    }
    if endpoint.headers:
        repeated = _response("The same was submitted before", "application/json", schemas[endpoint.answer])
        operation["responses"]["200"] = repeated
    if endpoint.dry is not None:
        operation["responses"]["200"] = _response("What it would do", "application/json", schemas[endpoint.dry])
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[endpoint.body]}},
        }
    if endpoint.scope is not None:
        operation["security"] = [{"key": []}]
        operation["description"] = f"Takes a key with the scope `{endpoint.scope}`."
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    places = (
        [(name, "path") for name in _PATH_PARAMETER.findall(endpoint.path)]
        + [(name, "query") for name in endpoint.query]
        + [(name, "header") for name in endpoint.headers]
    )
    return [
        {
            "name": name,
            "in": place,
            "required": place == "path",
            "schema": {"type": "string"},
            "description": DESCRIPTIONS.get(name, name.replace("_", " ")),
        }
        for name, place in places
    ]


def _response(description: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema}}}
