"""Writes the generated parts of the documentation: `python -m tests.docs.references`.

Each is between `<!-- generated: NAME -->` and `<!-- end -->` in its page, and comes from the code that it describes.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml  # type: ignore[import-untyped]
from fastapi import FastAPI
from prometheus_client import Counter, Histogram
from pydantic_core import PydanticUndefined
from typer.main import get_command

from bot import integrations, responders
from bot.ask import receiver
from bot.ask.inbox import Backlog
from bot.ask.push import MOST_READERS
from bot.ask.questions import KEYS_KEPT, LARGEST_PAGE, MOST_LISTED, QuestionRefused
from bot.ask.tools import RECEIPT_LIMIT, TOOLS
from bot.cli import setup
from bot.cli.app import app as shell
from bot.cli.install import PARSERS
from bot.cli.running import EXIT_CODES
from bot.commands import commands, grammar
from bot.integrated import commands_of
from bot.settings import model
from bot.settings.model import Configuration, OnCallSettings, ProducerSettings, SettingsTable
from bot.show import callbacks, desired
from bot.slack import threads
from bot.telemetry import Telemetry
from bot.views import arguments
from bot.web import guard, health, server
from bot.web.guard import Callers
from bot.web.questions import LONGEST_WAIT, question_routes
from bot.web.server import build_app
from core import answers, approvals, errors, escalation, forms, hub, receipts, router, schemas, workflow
from core.clock import SystemClock
from core.questions import DEFAULT_TIMEOUT, LONGEST_TIMEOUT, NewQuestion

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "bot/settings/example.toml"
EXAMPLES = (EXAMPLE, ROOT / "clarify.example.toml")
_PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TYPES: dict[Any, str] = {
    model.Duration: "duration",
    model.LongerThanNothing: "duration",
    model.ConfigPath: "path",
    model.FolderOrFalse: "path or false",
    model.ChannelId: "channel id `C…`",
    model.UserId: "user id `U…`",
    model.UserGroupId: "user group id `S…`",
    model.EnvironmentName: "variable's name",
    model.HttpUrl: "URL",
    model.Name: "name",
    model.Argv: "command, as a list of words",
    model.Places: "list of ids `C…`, `S…`, `U…`",
    bool: "true or false",
    int: "number",
    float: "number",
    str: "text",
    Path: "path",
    datetime: "date and time",
}


def pages() -> list[Path]:
    """README and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(text: str) -> str:
    """A page's text with its generated parts as they should be."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]().strip()}\n\n{match[3]}", text)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), ["---"] * len(list(heads)), *map(list, rows)]
    return "\n".join("| " + " | ".join(_cell(each) for each in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# -- configuration.md


def settings() -> str:
    """Every table of clarify.toml, with its keys."""
    text = "\n".join(_tables(_hints(Configuration), ""))
    return re.sub(r"\bdocs/([\w/]+/)([\w-]+\.md)", r"[\2](../\1\2)", text)


@cache
def _hints(table: type[SettingsTable]) -> Mapping[str, Any]:
    """The type of each key, those of integrations as well."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        if name == "source" and table is OnCallSettings:
            found |= {key: _of(each).on_call.settings for key, each in integrations.ON_CALL.items()}
        elif name in table.model_fields:
            found[name] = hint
    if table is Configuration:
        found |= {name: _of(name).settings for name in integrations.TABLES}
    return found


def _of(name: str) -> Any:
    return integrations.load(name)


def _tables(hints: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, hint in hints.items():
        inner = _inner(hint)
        if name == "identities":
            yield '### `[identities]`\n\nThe names that agents see instead of Slack user IDs: `U0ANN = "user:ann"`.\n'
        elif inner is not None:
            title = f"{path}{name}"
            shown = {tuple: f"[[{title}]]", dict: f"[{title}.ROLE]"}.get(_outer(hint), f"[{title}]")
            yield f"### `{shown if not path else title}`\n\n{inspect.cleandoc(inner.__doc__ or '')}\n"
            yield _keys(inner, title)
            yield from _tables(_hints(inner), f"{title}.")


def _inner(hint: Any) -> type[SettingsTable] | None:
    """The table that a field holds, or holds several of."""
    if isinstance(hint, type) and issubclass(hint, SettingsTable):
        return hint
    return next((found for each in get_args(hint) if (found := _inner(each)) is not None), None)


def _outer(hint: Any) -> Any:
    origin = get_origin(hint)
    return _outer(get_args(hint)[0]) if origin is Annotated else origin


def _keys(table: type[SettingsTable], title: str) -> str:
    about, given = _meanings(table), examples().get(title, {})
    rows = []
    for name, hint in _hints(table).items():
        field = table.model_fields.get(name)
        default = None if field is None else field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else _default(default)
        rows.append((_code(name), _type(hint), shown, about[name], _code(given.get(name, ""))))
    return _table(("key", "type", "default", "meaning", "example"), rows)


@cache
def _meanings(table: type[SettingsTable]) -> Mapping[str, str]:
    """The string below each field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(below, ast.Expr), f"{table.__name__}.{node.target.id} has no string below it"
            assert isinstance(below.value, ast.Constant)
            found[node.target.id] = inspect.cleandoc(str(below.value.value))
    if table is OnCallSettings:
        found |= {key: _of(each).on_call.about for key, each in integrations.ON_CALL.items()}
    return found


def _type(hint: Any) -> str:
    known = next((words for each, words in _TYPES.items() if hint == each), None)
    if known is not None:
        return known
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        is_mode = any(getattr(each, "func", None) is model.file_mode for each in inner)
        words = "text" if is_mode else _type(inner[0])
    elif origin is Literal:
        words = ", ".join(_code(str(each)) for each in inner)
    elif origin is tuple:
        words = f"list of {_plural(_type(inner[0]))}"
    elif origin is dict:
        words = "table"
    elif isinstance(hint, type) and issubclass(hint, SettingsTable):
        words = "table, see below"
    else:
        words = " or ".join(_type(each) for each in inner if each is not type(None))
    return words


def _plural(words: str) -> str:
    if words.startswith("`"):
        return words
    if words.startswith("table"):
        return "tables, see below"
    first, _, rest = words.partition(" `")
    return f"{first}s" + (f" `{rest}" if rest else "") if words != "text" else "texts"


def _default(value: Any) -> str:
    if value is None or value == {}:
        return ""
    first = value[0] if isinstance(value, tuple) and value else value
    return "see below" if isinstance(first, SettingsTable) else _code(_toml(value))


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        text = "[" + ", ".join(map(_toml, value)) + "]"
    elif isinstance(value, timedelta):
        text = f'"{_span(value)}"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int | float):
        text = '"0600"' if value == 0o600 else str(value)
    else:
        text = f'"{value}"'
    return text


def _span(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


@cache
def examples() -> Mapping[str, Mapping[str, str]]:
    """Table → key → value, as example.toml has them, commented out or not."""
    found: dict[str, dict[str, str]] = {}
    table = ""
    for line in EXAMPLE.read_text().splitlines():
        bare = re.sub(r"^(# *)+", "", line.strip())
        if header := re.match(r"\[+([a-z_]+)[\w.-]*\]+", bare):
            table = header[1]
        for place in _DEEPER.get(table, ()):
            for name, value in _PAIR.findall(bare.partition(" # ")[0]):
                if place.partition(".")[2] in bare or place.endswith(".steps"):
                    found.setdefault(place, {}).setdefault(name, value)
        if pair := re.match(r"([a-z_]+) = (.*)", bare):
            value = re.sub(r"\s+#.*", "", pair[2]).strip()
            found.setdefault(table, {}).setdefault(pair[1], "" if value == "[" else value)
    return found


def explained(text: str) -> str:
    """The text of example.toml with the comments of its tables and keys as the models have them. A table that comes again,
    and its keys, keep theirs.
    """
    models = dict(_models(Configuration))
    shown: list[str] = []
    told: set[str] = set()
    table, is_ours = "", False
    for line in text.splitlines():
        if is_ours and re.match(r" {20,}#", line):
            continue  # the rest of a comment
        found = re.match(r"(?:# )?(?:\[+([a-z_]+)[\w.-]*\]+|([a-z_]+) = .*?)(?= +# |$)", line)
        table = found[1] if found and found[1] else table
        place = f"{table}.{found[2]}" if found and found[2] else table
        is_ours = found is not None and place not in told and (table in models)
        if found is None or not is_ours:
            shown.append(line)
            continue
        told.add(place)
        about, hints = _meanings(models[table]), _hints(models[table])
        words = f"{about[found[2]]} {_offered(hints[found[2]])}" if found[2] else models[table].__doc__ or ""
        head = found[0].ljust(_COLUMN - 1)
        lines = textwrap.wrap(
            f"{' ' * len(head)}{' '.join(words.split())}" if len(head) < 90 else words,
            116,
            initial_indent="" if len(head) < 90 else " " * _COLUMN,
            subsequent_indent=" " * _COLUMN,
            break_on_hyphens=False,
        )
        rest = [f"{'':{_COLUMN}}# {each.strip()}" for each in lines]
        shown += [f"{head} {rest.pop(0).strip()}", *rest] if len(head) < 90 else [head, *rest]
    return "\n".join(shown) + "\n"


def _models(above: type[SettingsTable]) -> Iterator[tuple[str, type[SettingsTable]]]:
    for name, hint in _hints(above).items():
        if (inner := _inner(hint)) is not None:
            yield name, inner


def _offered(hint: Any) -> str:
    """The words that a key takes, where these are few."""
    return f"({_type(hint).replace('`', '')})" if get_origin(hint) is Literal else ""


_COLUMN = 32  # of the comments
_PAIR = re.compile(r'(?<=[{ ])([a-z_]+) = ("[^"]*"|\[[^\]]*\]|\{[^}]*\}|[0-9T:-]+|true|false)')
_DEEPER = {
    "on_call": ("on_call.steps", "on_call.rotation", "on_call.pagerduty"),
    "trust": ("trust.checkpoint",),
    "producers": ("producers.callbacks",),
    "routes": ("routes.approvals", "routes.four_eyes"),
    "guard": ("guard.ask",),
}


# -- agents/http.md


@cache
def _document() -> dict[str, Any]:
    """The OpenAPI document of what agents ask with."""
    nobody: Any = None
    routes = question_routes(questions=nobody, callers=Callers({}), waiting=nobody)
    served: FastAPI = build_app([routes], Callers({}))
    return served.openapi()


def http_requests() -> str:
    parts = []
    for path, item in _document()["paths"].items():
        for method, operation in item.items():
            parts.append(f"#### `{method.upper()} {path}`\n\n{' '.join(operation['description'].split())}\n")
            given = operation.get("parameters", [])
            if given:
                rows = [
                    (_code(each["name"]), each["in"], _schema(each["schema"]), each.get("description", ""))
                    for each in given
                ]
                parts.append(_table(("parameter", "in", "type", "meaning"), rows))
            statuses = [(code, each["description"]) for code, each in sorted(operation["responses"].items())]
            parts.append(_table(("status", "meaning"), statuses))
    return "\n".join(parts)


def _fields(name: str) -> str:
    schema = _document()["components"]["schemas"][name]
    rows = [
        (_code(field), _schema(inner), _json(inner.get("default")), inner.get("description", ""))
        for field, inner in schema["properties"].items()
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _json(value: Any) -> str:
    return "" if value is None else _code(str(value).lower() if isinstance(value, bool) else str(value))


def _schema(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(
            dict.fromkeys(_schema(each) for each in schema["anyOf"] if each.get("type") != "null")
        )
    if "$ref" in schema:
        return _schema(_document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return ", ".join(_code(each) for each in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_schema(schema['items'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low:g} to {high:.0f}"
    most = schema.get("maxLength")
    return f"{kind}, up to {most:,} characters" if most else str(kind)


def http_errors() -> str:
    """Codes, statuses and why: of exceptions, and of what the routes refuse themselves."""
    rows: dict[tuple[str, int], str] = {}
    for module in (guard, guard):
        for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"problem", "_body"}:
                status, code, *words = (getattr(each, "value", None) for each in node.args)
                if isinstance(status, int) and isinstance(code, str):
                    rows.setdefault((code, status), _words(node.args[2]) if words else "")
    for kind in QuestionRefused.__subclasses__():
        rows[kind.code, kind.status] = inspect.cleandoc(kind.__doc__ or "")
    for error in (errors.NotFound, errors.LockTimeout, errors.LedgerUnreadable, errors.LedgerUnwritable):
        answered = next(status for each, status in guard._STATUSES if issubclass(error, each))
        rows[error.code, answered] = _ABOUT[error]
    rows["UNAUTHORIZED", 401] = "A bearer token is required, or the token belongs to no producer."
    rows["NOT_LOCAL", 403] = (
        "Without a token, only processes on the bot's machine may call, and not through a proxy."
    )
    rows["BAD_INPUT", 422] = "A field is wrong: `field` names it, `message` says what to send."
    rows["STORAGE_UNAVAILABLE", 503] = "The storage is unavailable. Nothing was stored: try again."
    rows["TOO_LARGE", 413] = f"The body has more than {guard.BODY_LIMIT:,} bytes."
    ordered = sorted(rows.items(), key=lambda row: (row[0][1], row[0][0]))
    return _table(
        ("status", "error", "meaning"), [(str(status), _code(code), why) for (code, status), why in ordered]
    )


_ABOUT: dict[type[errors.ClarifyError], str] = {
    errors.NotFound: "You have no question with this ID.",
    errors.LockTimeout: "Others are changing the same question or session: try again.",
    errors.LedgerUnreadable: "The question cannot be read from the database; someone was paged.",
    errors.LedgerUnwritable: "The bot cannot write to the database: try again.",
}


def _words(node: ast.expr) -> str:
    """The constant parts of a message."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    if isinstance(node, ast.BinOp):
        return f"{_words(node.left)}{_words(node.right)}"
    return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in parts)


# -- agents/mcp.md


def mcp_tools() -> str:
    parts = []
    for tool in TOOLS:
        parts.append(f"#### `{tool.name}`\n\n{' '.join((tool.description or '').split())}\n")
        schema = tool.input_schema
        required = schema.get("required", [])
        rows = [
            (
                _code(name) + (", required" if name in required else ""),
                _schema(inner),
                inner.get("description", ""),
            )
            for name, inner in schema["properties"].items()
        ]
        parts.append(_table(("argument", "type", "meaning"), rows))
    return "\n".join(parts)


# -- people/commands.md


def slack_commands() -> str:
    added = commands_of(())
    short = _table(
        ("command", "what it does"), [(_code(form), about) for form, about in grammar.forms(added)]
    )
    more = "\n".join(f"* **{word}**: {grammar.help_text(word, added)}" for word in grammar.verbs(added))
    return f"{short}\n`/clarify help WORD` explains each command:\n\n{more}"


def exit_codes() -> str:
    by_code: dict[int, list[str]] = {0: [], 1: []}
    for name, code in EXIT_CODES.items():
        by_code.setdefault(code, []).append(_code(name))
    rows = [(str(code), _EXITS[code], ", ".join(by_code[code])) for code in sorted(by_code)]
    return _table(("code", "meaning", "errors"), rows)


_EXITS = {
    0: "success",
    1: "any error that is not listed here",
    2: "wrong usage, configuration or input",
    3: "no such clarification",
    4: "not allowed",
    5: "already answered or closed",
    6: "busy, or the database cannot be written now: try again",
    7: "a responder gave no usable answer",
    8: "not answered within `--timeout`",
}


def shell_commands() -> str:
    root: Any = get_command(shell)
    parts = []
    for name, command in root.commands.items():
        parser = PARSERS.get(name)
        parts.append(f"#### `clarify {name}`\n" + "".join(f"\n{each}\n" for each in _about(command, parser)))
    return "\n".join(parts)


def _about(command: Any, parser: Callable[[], ArgumentParser] | None) -> Iterator[str]:
    if parser is not None:
        made = parser()
        yield " ".join(each for each in (made.description, made.epilog) if each)
        rows = [
            (_code(" ".join([*each.option_strings[-1:], _value(each)]).strip()), each.help or "")
            for each in made._actions
            if each.dest != "help"
        ]
    else:
        yield "\n\n".join(" ".join(each.split()) for each in command.help.split("\n\n"))
        rows = [
            _parameter(each) for each in command.params if not getattr(each, "hidden", False) and each.help
        ]
    if rows:
        yield _table(("option or argument", "meaning"), rows).strip()


def _value(action: Any) -> str:
    """What follows an option of argparse's."""
    if action.nargs == 0:
        return ""
    return str(action.metavar or "|".join(action.choices or ()) or action.dest.upper())


def _parameter(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        return _code((parameter.metavar or parameter.name).strip("[]").upper()), parameter.help
    metavar = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.strip('_').upper()}"
    return _code(", ".join(parameter.opts) + metavar), parameter.help


# -- operate/monitoring.md


def metrics() -> str:
    clock = SystemClock()
    nobody: Any = SimpleNamespace(names=["*"], shows=bool)
    sources = health.Sources(
        telemetry=Telemetry(clock),
        index=(),
        audiences=nobody,
        clock=clock,
        leads=lambda: True,
        backlog=nobody,
        producers=dict,
        slack_connected=lambda: True,
        queues={},
        outside=nobody,
    )
    rows = []
    backlog = Backlog(0, timedelta())
    counted = [each for each in vars(sources.telemetry).values() if isinstance(each, (Counter, Histogram))]
    figures = [
        *((each, getattr(each, "_labelnames", ())) for each in health._figures(sources, 0.0, backlog, {})),
        *((next(iter(each.describe())), each._labelnames) for each in counted),
    ]
    for family, labels in figures:
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        named = f"{family.name}{suffix}" + (
            f"{{{', '.join(labels)}}}" if labels and family.type != "info" else ""
        )
        rows.append((_code(named), family.type, family.documentation))
    return _table(("metric", "type", "what it counts"), sorted(rows))


def rules() -> list[dict[str, Any]]:
    whole = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    return [rule for group in whole["groups"] for rule in group["rules"]]


def alerts() -> str:
    rows = [
        (_code(rule["alert"]), rule["labels"]["severity"], rule["annotations"]["action"]) for rule in rules()
    ]
    return _table(("alert", "severity", "what to do"), rows)


# -- operate/slack-app.md


def app_link() -> str:
    return f"[create-app]: {setup.link(setup.manifest(None))}\n"


def scopes() -> str:
    return _table(("scope", "what it is for"), _explained(MANIFEST["oauth_config"]["scopes"]["bot"]))


def slack_events() -> str:
    return _table(
        ("event", "what it is for"), _explained(MANIFEST["settings"]["event_subscriptions"]["bot_events"])
    )


MANIFEST = yaml.safe_load((ROOT / "manifest.yml").read_text())


def _explained(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name with the comment that manifest.yml has beside it."""
    comments = dict(re.findall(r"^ +- (\S+) # (.+)$", (ROOT / "manifest.yml").read_text(), re.MULTILINE))
    return ((_code(name), comments[name]) for name in names)


# -- agents/frameworks.md


def frameworks() -> str:
    """What to install for each, and the versions that the tests of `examples/` run with."""
    pinned = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements-examples.lock").read_text(), re.MULTILINE)
    )
    pinned |= json.loads((ROOT / "tests/examples/node/package.json").read_text())["dependencies"]
    rows = (
        (name, _code(f"{how} {' '.join(packages)}"), ", ".join(f"{each} {pinned[each]}" for each in packages))
        for name, how, packages in _FRAMEWORKS
    )
    return _table(("framework", "install", "tested with"), rows)


_FRAMEWORKS = (
    ("LangGraph, LangChain", "pip install", ("langgraph", "langchain")),
    ("pydantic-ai", "pip install", ("pydantic-ai-slim",)),
    ("OpenAI Agents SDK", "pip install", ("openai-agents",)),
    ("Google ADK", "pip install", ("google-adk",)),
    ("Microsoft Agent Framework", "pip install", ("agent-framework-core",)),
    ("Vercel AI SDK", "npm install", ("ai", "zod")),
    ("Mastra", "npm install", ("@mastra/core", "@mastra/libsql", "zod")),
    ("Claude Agent SDK", "npm install", ("@anthropic-ai/claude-agent-sdk",)),
    ("Trigger.dev", "npm install", ("@trigger.dev/sdk",)),
)


# -- limits.md


def limits() -> str:
    return "\n".join(f"### {title}\n\n{_table(('what', 'limit'), rows)}" for title, rows in _LIMITS.items())


def _bytes(number: int) -> str:
    mebi, kibi = divmod(number, 1 << 20), divmod(number, 1 << 10)
    return (
        f"{mebi[0]} MiB"
        if number and not mebi[1]
        else f"{kibi[0]} KiB"
        if not kibi[1]
        else f"{number:,} bytes"
    )


def _time(value: timedelta) -> str:
    """A duration in words."""
    seconds = int(value.total_seconds())
    units = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
    unit, length = next((unit, length) for unit, length in units if seconds % length == 0)
    return f"{seconds // length} {unit}{'' if seconds == length else 's'}"


def _most(field: str) -> int:
    """The length that a field of a question may have, or the number of its entries."""
    return next(
        int(each.max_length)
        for each in NewQuestion.model_fields[field].metadata
        if hasattr(each, "max_length")
    )


_CHARACTERS = "{:,} characters".format
_LIMITS: Mapping[str, list[tuple[str, str]]] = {
    "A question": [
        ("`question`, `action`, `consequence`", _CHARACTERS(_most("question"))),
        ("`context`", _CHARACTERS(_most("context"))),
        ("`agent`, `session`", _CHARACTERS(_most("agent"))),
        ("`key`", _CHARACTERS(_most("key"))),
        ("`callback_url`", _CHARACTERS(_most("callback_url"))),
        ("`choices`", str(_most("choices"))),
        (
            "`timeout`",
            f"1 second to {LONGEST_TIMEOUT // 86_400} days; {_time(timedelta(seconds=DEFAULT_TIMEOUT))} by default",
        ),
        ("the whole request", _bytes(guard.BODY_LIMIT)),
        ("how long a `key` counts after the question has expired", _time(KEYS_KEPT)),
    ],
    "An approval": [
        ("`arguments`, as JSON", _bytes(approvals.ARGUMENTS_LIMIT)),
        ("a text among the arguments that people can edit", _CHARACTERS(arguments.LONGEST)),
        ("arguments that people can edit, in one window", str(arguments.MOST_FIELDS)),
        ("`arguments_schema`, as JSON", _bytes(schemas.SCHEMA_LIMIT)),
        ("people who must approve", str(approvals.MOST_APPROVALS)),
        ("a reason, where one is required", f"{approvals.LEAST_REASON} characters at least"),
    ],
    "An answer": [
        ("a text", _CHARACTERS(answers.TEXT_LIMIT)),
        ("a text that is typed into a window, not a thread", _CHARACTERS(forms.TYPED_LIMIT)),
        ("fields of a form", str(forms.MOST_FIELDS)),
        ("options of a field", str(forms.MOST_OPTIONS)),
        ("an answer of a responder (`[responders]`)", _bytes(responders.MOST)),
        (
            "text included verbatim in a receipt; longer text is replaced by its digest",
            _bytes(receipts.INLINE),
        ),
        ("a receipt in an MCP result; a longer one is at its address", _bytes(RECEIPT_LIMIT)),
    ],
    "Waiting, listing, delivering": [
        (
            "open questions of a producer (`max_open`)",
            f"{ProducerSettings.model_fields['max_open'].default} by default",
        ),
        ("an agent's open questions with cards of their own, per channel", str(desired.CARD_LIMIT)),
        ("one request that waits (`wait`)", f"{LONGEST_WAIT} seconds"),
        ("requests that wait at once", f"{server._MOST_WAITING:,}"),
        ("questions on a page of a list", f"{MOST_LISTED}, and about {_bytes(LARGEST_PAGE)}"),
        ("streams of pushed replies (`/aaep`) at once", str(MOST_READERS)),
        ("an event of an AAEP stream", _bytes(receiver.MAX_EVENT)),
        ("how long a webhook or a callback is retried", _time(callbacks._PATIENCE)),
    ],
    "People and on call": [
        ("an override", f"{_time(grammar.LONGEST_DUTY)} at most"),
        ("current and planned overrides in one list", str(commands._MOST_OVERRIDES)),
        ("**Snooze**", f"{_time(escalation._SNOOZE)}, at most half of the time left"),
        (
            "after downtime: how long no question expires while replies in its thread are unread",
            f"{_time(threads.PATIENCE)} at most",
        ),
    ],
    "Agents that ask agents": [
        ("an entry in a ledger file", _CHARACTERS(router.BODY_LIMIT)),
        ("the name of a role", _CHARACTERS(workflow.ROLE_LIMIT)),
        ("an issue number of your own", f"1 to {hub.HIGHEST_ISSUE:,}"),
    ],
}


PARTS: dict[str, Callable[[], str]] = {
    "app-link": app_link,
    "scopes": scopes,
    "slack-events": slack_events,
    "limits": limits,
    "frameworks": frameworks,
    "settings": settings,
    "http-requests": http_requests,
    "http-question": lambda: _fields("NewQuestion"),
    "http-state": lambda: _fields("QuestionState"),
    "http-errors": http_errors,
    "mcp-tools": mcp_tools,
    "slack-commands": slack_commands,
    "exit-codes": exit_codes,
    "shell-commands": shell_commands,
    "metrics": metrics,
    "alerts": alerts,
}


if __name__ == "__main__":
    for example in EXAMPLES:
        example.write_text(explained(EXAMPLE.read_text()))
    for page in pages():
        page.write_text(written(page.read_text()))
