"""`/docs`: the OpenAPI document as one page to read, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

_STYLE = """
:root { color-scheme: light dark; --soft: #667; --line: #8884; --back: #8881; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code { font-family: ui-monospace, monospace; background: var(--back); padding: .1em .3em; border-radius: .2em; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
h3 { margin: 2rem 0 .3rem; overflow-wrap: anywhere; }
h3 b { display: inline-block; min-width: 4rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
caption { text-align: left; font-weight: bold; padding: .8rem 0 .2rem; }
a:focus-visible, .table:focus-visible { outline: 3px solid; outline-offset: 2px; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_QUOTED, _AS_CODE = re.compile("`([^`]+)`"), r"<code>\1</code>"
_METHODS = ("get", "post", "put", "patch", "delete")
Document = Mapping[str, Any]


def serve(app: FastAPI) -> None:
    """Add the page to `app`."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers={"Content-Security-Policy": _POLICY})


def page(document: Document) -> str:
    """The HTML of an OpenAPI 3.1 document."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}: HTTP interface"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>",
            prose(info.get("description", "")),
            '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            *_schemes(document),
            *_operations(document),
            *_schemas(document),
            "</main></body></html>",
        ]
    )


def prose(text: str) -> str:
    """Paragraphs; what stands between backticks is code."""
    found = [escape(" ".join(part.split())) for part in text.split("\n\n") if part.strip()]
    return "".join(f"<p>{_QUOTED.sub(_AS_CODE, part)}</p>" for part in found)


def _schemes(document: Document) -> Iterator[str]:
    """How callers say who they are."""
    for name, scheme in document.get("components", {}).get("securitySchemes", {}).items():
        how = f"<code>{escape(scheme.get('scheme', scheme['type']))}</code>"
        yield f"<p><b>{escape(name)}</b>, {how}: {_about(scheme)}</p>"


def _operations(document: Document) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, item in document.get("paths", {}).items():
        for method in (each for each in _METHODS if each in item):
            operation = item[method]
            tag = (operation.get("tags") or ["Other"])[0]
            by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    for tag, shown in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from shown


def _operation(method: str, path: str, operation: Document) -> str:
    parts = [
        f"<h3><b>{method.upper()}</b> <code>{escape(path)}</code></h3>",
        prose(f"{operation.get('summary', '')}\n\n{operation.get('description', '')}"),
    ]
    if parameters := operation.get("parameters"):
        rows = [(_named(each), each["in"], _type(each["schema"]), _about(each)) for each in parameters]
        parts.append(_table("Parameters", ("Name", "In", "Type", "About"), rows))
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        parts.append(f"<p>Body: {_contents(body)}</p>")
    answers = [
        (f"<code>{escape(status)}</code>", _contents(answer.get("content", {})), _about(answer))
        for status, answer in sorted(operation.get("responses", {}).items())  # digits before "default"
    ]
    parts.append(_table("Answers", ("Status", "Body", "About"), answers))
    return "".join(parts)


def _schemas(document: Document) -> Iterator[str]:
    schemas = document.get("components", {}).get("schemas", {})
    if schemas:
        yield "<h2>Bodies</h2>"
    for name, schema in schemas.items():
        yield f'<h3 id="schema-{escape(name)}">{escape(name)}</h3>{prose(schema.get("description", ""))}'
        required = schema.get("required", [])
        rows = [
            (_named({"name": field, "required": field in required}), _type(inner), _about(inner))
            for field, inner in schema.get("properties", {}).items()
        ]
        yield (
            _table(f"Fields of {name}", ("Name", "Type", "About"), rows)
            if rows
            else f"<p>{_type(schema)}</p>"
        )


def _contents(contents: Document) -> str:
    shown = [
        f"{_type(each.get('schema', {}))} as <code>{escape(kind)}</code>" for kind, each in contents.items()
    ]
    return ", or ".join(shown) or "none"


def _named(parameter: Document) -> str:
    """A name, and in words whether it has to be there."""
    return f"<code>{escape(parameter['name'])}</code>{', required' if parameter.get('required') else ''}"


def _type(schema: Document) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[several]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = schema.get("type", "anything")
    return escape(" or ".join(kind) if isinstance(kind, list) else str(kind))


def _about(described: Document) -> str:
    return prose(str(described.get("description", ""))).removeprefix("<p>").removesuffix("</p>")


def _table(caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    label = escape(caption)
    return (
        f'<div class="table" role="region" aria-label="{label}" tabindex="0"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
