"""`/docs`: the OpenAPI document as one page, to read and to try out; it loads nothing from other sites."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse

from bot.web.callers import PAGE_HEADER, Callers

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
summary { cursor: pointer; font-weight: bold; padding: .5rem 0; }
label { display: block; margin: .6rem 0; }
input, textarea { font: inherit; display: block; width: 100%; box-sizing: border-box; padding: .3rem; }
textarea, pre { font-family: ui-monospace, monospace; }
button { font: inherit; padding: .3rem 1rem; }
pre { background: var(--back); padding: .5rem; overflow: auto; max-height: 30rem; white-space: pre-wrap; }
.tools { border: 1px solid var(--line); padding: 0 1rem; }
:focus-visible { outline: 3px solid; outline-offset: 2px; }
"""
_SCRIPT = """
const $ = (id) => document.getElementById(id);
for (const form of document.querySelectorAll("form")) {
  const body = form.querySelector("textarea");
  if (body) body.value = fresh(body.value);
  form.addEventListener("submit", (event) => { event.preventDefault(); send(form); });
  form.querySelector(".stop").addEventListener("click", () => form.sending.abort());
}
// New ids for each visit, and the current time, so that no request repeats an earlier one.
function fresh(text) {
  const id = Date.now().toString(36);
  return text.replace(/"(evt|rpl|sess)_1"/g, `"$1_${id}"`)
    .replace(/"timestamp": "[^"]*"/, `"timestamp": "${new Date().toISOString()}"`);
}
function request(form) {
  const query = new URLSearchParams(), headers = {"HEADER": document.body.dataset.key};
  let path = form.dataset.path;
  if ($("producer").value) query.set("producer", $("producer").value);
  if ($("token").value) headers.Authorization = `Bearer ${$("token").value}`;
  for (const field of form.querySelectorAll("input")) {
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value && field.dataset.in === "query") query.set(field.name, field.value);
    else if (field.value) headers[field.name] = field.value;
  }
  const body = form.querySelector("textarea")?.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const asked = query.toString();
  return [path + (asked && "?" + asked), {method: form.dataset.method, headers, body}];
}
async function send(form) {
  const shown = form.querySelector("pre"), stop = form.querySelector(".stop"), sending = new AbortController();
  form.sending?.abort();
  form.sending = sending;
  stop.hidden = false;
  shown.textContent = "…";
  const show = (text) => { if (form.sending === sending) shown.textContent = text; };
  let text = "";
  try {
    const [path, how] = request(form), answer = await fetch(path, {...how, signal: sending.signal});
    const status = `${how.method} ${path}\n${answer.status} ${answer.statusText}\n\n`;
    show(status);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part; !(part = await reader.read()).done;) show(status + (text += part.value));
    if (answer.headers.get("content-type")?.includes("json")) {
      show(status + JSON.stringify(JSON.parse(text), null, 2));
    }
  } catch (error) {
    if (error.name !== "AbortError") show(`${text}\n${error}`);
  }
  if (form.sending === sending) stop.hidden = true;
}
""".replace("HEADER", PAGE_HEADER)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; style-src {_digest(_STYLE)}; script-src {_digest(_SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SIGNED = {"Slack"}  # tags of routes that only Slack can call
_QUOTED, _AS_CODE = re.compile("`([^`]+)`"), r"<code>\1</code>"
_METHODS = ("get", "post", "put", "patch", "delete")
Document = Mapping[str, Any]


def serve(app: FastAPI, callers: Callers) -> None:
    """Add the page and the document to `app`, for callers who may see them."""
    may_look = [Depends(callers.onlooker)]

    @app.get("/docs", include_in_schema=False, dependencies=may_look)
    async def docs() -> HTMLResponse:
        shown = page(app.openapi(), callers.page_key)
        return HTMLResponse(shown, headers={"Content-Security-Policy": _POLICY})

    @app.get("/openapi.json", include_in_schema=False, dependencies=may_look)
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())


def page(document: Document, key: str = "") -> str:
    """Returns an OpenAPI 3.1 document as HTML. `key` admits the page's own requests."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}: HTTP interface"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body data-key='{escape(key)}'><main>",
            f"<h1>{title}</h1>",
            _prose(info.get("description", "")),
            '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            *_schemes(document),
            _TOOLS,
            *_operations(document),
            *_schemas(document),
            f"</main><script>{_SCRIPT}</script></body></html>",
        ]
    )


_TOOLS = """<div class="tools"><p>Try each request below: it goes to this server and takes effect.
Questions are posted to people.</p>
<label>Token, if needed <input id="token" type="password" autocomplete="off"></label>
<label>Producer, if several have no token <input id="producer" autocomplete="off"></label></div>"""


def _prose(text: str) -> str:
    """Returns paragraphs, with text between backticks as code."""
    found = [escape(" ".join(part.split())) for part in text.split("\n\n") if part.strip()]
    return "".join(f"<p>{_QUOTED.sub(_AS_CODE, part)}</p>" for part in found)


def _schemes(document: Document) -> Iterator[str]:
    """Yields how callers authenticate."""
    for name, scheme in document.get("components", {}).get("securitySchemes", {}).items():
        how = f"<code>{escape(scheme.get('scheme', scheme['type']))}</code>"
        yield f"<p><b>{escape(name)}</b>, {how}: {_about(scheme)}</p>"


def _operations(document: Document) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, item in document.get("paths", {}).items():
        for method in (each for each in _METHODS if each in item):
            operation = item[method]
            tag = (operation.get("tags") or ["Other"])[0]
            shown = _operation(method, path, operation)
            tried = "" if tag in _SIGNED else _form(method, path, operation, document)
            by_tag.setdefault(tag, []).append(shown + tried)
    for tag, parts in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from parts


def _operation(method: str, path: str, operation: Document) -> str:
    parts = [
        f"<h3><b>{method.upper()}</b> <code>{escape(path)}</code></h3>",
        _prose(f"{operation.get('summary', '')}\n\n{operation.get('description', '')}"),
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
    parts.append(_table("Responses", ("Status", "Body", "About"), answers))
    return "".join(parts)


def _form(method: str, path: str, operation: Document, document: Document) -> str:
    """Returns the form to try an operation: a field for each parameter, and an example body."""
    fields = []
    for each in operation.get("parameters", []):
        schema = each["schema"]
        hint = (schema.get("examples") or [schema.get("default")])[0]
        placeholder = "" if hint is None else f' placeholder="{escape(str(hint))}"'
        needed = " required" if each.get("required") else ""
        fields.append(
            f"<label>{_named(each)} <input name='{escape(each['name'])}' data-in='{each['in']}'{placeholder}{needed}></label>"
        )
    contents = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if contents is not None:
        example = contents.get("example") or _example(contents.get("schema", {}), document)
        text = escape(json.dumps(example, indent=2, ensure_ascii=False))
        rows = text.count("\n") + 2
        fields.append(
            f'<label>Body <textarea name="body" rows="{rows}" spellcheck="false">{text}</textarea></label>'
        )
    return (
        f'<details><summary>Try it</summary><form data-method="{method.upper()}" data-path="{escape(path)}">'
        f"{''.join(fields)}<p><button>Send</button> <button type='button' class='stop' hidden>Stop</button></p>"
        '<pre aria-live="polite" aria-label="Response" tabindex="0"></pre></form></details>'
    )


def _example(schema: Document, document: Document) -> Any:
    """Returns an example with the required fields."""
    if "$ref" in schema:
        return _example(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    for known in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if schema.get(known):
            first = schema[known][0]
            return first if known in {"examples", "enum"} else _example(first, document)
    if "default" in schema or "const" in schema:
        return schema.get("default", schema.get("const"))
    if schema.get("type") == "object":
        inner = schema.get("properties", {})
        return {name: _example(inner.get(name, {}), document) for name in schema.get("required", [])}
    plain = {"array": [], "integer": schema.get("minimum", 0), "number": 0.0, "boolean": False}
    return plain.get(schema.get("type", ""), "")


def _schemas(document: Document) -> Iterator[str]:
    schemas = document.get("components", {}).get("schemas", {})
    if schemas:
        yield "<h2>Bodies</h2>"
    for name, schema in schemas.items():
        yield f'<h3 id="schema-{escape(name)}">{escape(name)}</h3>{_prose(schema.get("description", ""))}'
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
    """Returns a name, marked if it is required."""
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
    return _prose(str(described.get("description", ""))).removeprefix("<p>").removesuffix("</p>")


def _table(caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    label = escape(caption)
    return (
        f'<div class="table" role="region" aria-label="{label}" tabindex="0"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
