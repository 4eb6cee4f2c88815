"""The human docs at /docs: one plain page, made from the route table, with nothing fetched from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from rota.server.http import Endpoint
from rota.server.openapi import DESCRIPTIONS
from rota.version import VERSION

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rota API</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem }}
code, pre {{ font: 14px/1.5 ui-monospace, monospace }}
pre {{ padding: .8rem; border-radius: .4rem; overflow-x: auto; background: rgb(128 128 128 / .12) }}
details {{ border-top: 1px solid rgb(128 128 128 / .3); padding: .5rem 0 }}
summary {{ cursor: pointer }}
.method {{ display: inline-block; min-width: 4.5rem; font-weight: 600 }}
table {{ border-collapse: collapse; width: 100% }}
td {{ padding: .2rem .8rem .2rem 0; vertical-align: top }}
</style></head><body>
<h1>Rota API <small>{version}</small></h1>
<p>JSON in and out. Send <code>Authorization: Bearer rota_…</code>; <code>rota up</code> leaves an admin key in
<code>rota-data/admin.key</code>. Errors are <code>application/problem+json</code> and name the field.
The machine's version of this page is <a href="/openapi.json">/openapi.json</a>.</p>
<pre>curl -s {address}jobs \\
  -H "Authorization: Bearer $(cat rota-data/admin.key)" \\
  -d '{{"task_id": "echo", "parameters": {{"hello": "world"}}}}'</pre>
{endpoints}
</body></html>
"""


def docs_page(endpoints: list[Endpoint], address: str) -> str:
    sections = "\n".join(_section(endpoint) for endpoint in endpoints)
    return _PAGE.format(version=VERSION, address=escape(address), endpoints=sections)


def _section(endpoint: Endpoint) -> str:
    head = f'<span class="method">{endpoint.method}</span> <code>{escape(endpoint.path)}</code>'
    scope = f"Scope <code>{endpoint.scope}</code>. " if endpoint.scope else "No key needed. "
    parts = [
        f"<p>{scope}Answers {endpoint.status} with <code>{endpoint.answer.__name__}</code>.</p>",
        _table("Parameters", [(name, DESCRIPTIONS.get(name, "")) for name in (*endpoint.query, *endpoint.headers)]),
        _table("Body", _fields(endpoint.body) if endpoint.body else []),
        _table("Answer", _fields(endpoint.answer)),
        _table("Answer to a dry run (200)", _fields(endpoint.dry) if endpoint.dry else []),
    ]
    return f"<details><summary>{head} {escape(endpoint.summary)}</summary>{''.join(parts)}</details>"


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<h4>{title}</h4><table>{cells}</table>"


def _fields(kind: type) -> list[tuple[str, str]]:
    (_,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    schema = components[kind.__name__]
    required = schema.get("required", [])
    return [
        (name, f"{_told(field)}, required" if name in required else _told(field))
        for name, field in schema.get("properties", {}).items()
    ]


def _told(field: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in field:
        kind = " or ".join(dict.fromkeys(_told(each) for each in field["anyOf"]))
    elif "enum" in field:
        kind = " | ".join(map(str, field["enum"]))
    elif field.get("type") == "array":
        kind = f"list of {_told(field.get('items', {}))}"
    else:
        kind = str(field.get("$ref") or field.get("type") or "anything")
    return f"{kind}. {field['description']}" if "description" in field else kind
