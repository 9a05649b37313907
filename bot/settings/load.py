"""Reads `Settings` from a file and the environment, or lists everything that is wrong. Messages never show secrets.

Each model checks its own table. Checks across tables run on the document as read, so that they are reported together
with the problems of single keys: duplicate and unknown names, routes that are never reached.
"""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import re
import socket
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from bot import integrations
from bot.checks import CheckResult
from bot.errors import ConfigurationError
from bot.settings.model import (
    OF_AN_INTEGRATION,
    Configuration,
    OnCallSettings,
    Settings,
    ShellSettings,
    Source,
    http_url,
    is_loopback,
    is_web_address,
    parse_target,
    url_host,
)
from core.clarification import agent_key
from core.files import folder_mode, make_folder

_log = structlog.get_logger("clarify.settings")
DEFAULT_FILE = Path("clarify.toml")
_SECTIONS = ("slack", "http", "ledger", "storage", "monitor", "pacing", "shell", "trust")
SLACK_API_URL = "https://slack.com/api/"
_SLACK_VARIABLES = {  # mode → required variables, with the beginnings of their values
    "socket": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"},
    "http": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_SIGNING_SECRET": ""},
}
Place = tuple[str | int, ...]
Fits = tuple[Callable[[str], bool], str]
_SIGNING_PREFIX = "whsec_"


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads `path` (default: clarify.toml in this folder) and the secrets that it names from `environ`.

    Raises:
        ConfigurationError: with every problem found, one a line.
    """
    file = path or DEFAULT_FILE
    return parse_settings(_read_source(file), file=file, environ=environ)


def _read_source(file: Path) -> str:
    """Returns the text of a configuration file.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError([f"{file}: no such file; `clarify init` writes one to start from"]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError([f"{file}: cannot be read: {reason}"]) from error


def parse_settings(source: str, *, file: Path, environ: Mapping[str, str]) -> Settings:
    """Reads TOML text as if it were in `file`. See `load_settings`."""
    document = _document(source, file)
    found = _Integrations(document, file.resolve().parent)
    problems = [*secret_problems(document, environ), *found.problems]
    return Settings.model_construct(
        **dict(_configuration(found.rest, source, file, problems)),
        file=file.resolve(),
        folder=file.resolve().parent,
        by_variable=given_secrets(document, environ),
        source=source,
        slack_api_url=slack_api_url(environ),
        integrations=found.settings,
        broken_integrations=found.broken,
    )


def load_shell_settings(path: Path | None, environ: Mapping[str, str]) -> ShellSettings:
    """Reads the same file for the shell: requires no secret, and uses the defaults where there are only workflows or a
    database.

    Raises:
        ConfigurationError: with every problem found, one a line.
    """
    file = path or DEFAULT_FILE
    if path is None and not file.exists():
        folder = Path.cwd()
        configuration = Configuration.model_validate(
            {name: {} for name in _SECTIONS}, context={"folder": folder}
        )
        if configuration.storage.path.exists() or configuration.ledger.workflows.exists():
            return ShellSettings.model_construct(
                **dict(configuration), file=None, folder=folder, by_variable={}
            )
    source = _read_source(file)
    document = _document(source, file)
    found = _Integrations(document, file.resolve().parent)
    return ShellSettings.model_construct(
        **dict(_configuration(found.rest, source, file, found.problems)),
        file=file.resolve(),
        folder=file.resolve().parent,
        by_variable=given_secrets(document, environ),
    )


def _document(source: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([syntax_error(error, source, str(file))]) from error


class _Integrations:
    """What integrations have in a file: the `settings` of their tables, by name, and why others are `broken`. `rest`: the file
    without their tables, and with a `Source` in place of their keys in `[[on_call]]`.
    """

    def __init__(self, document: dict[str, Any], folder: Path) -> None:
        self.settings: dict[str, object] = {}
        self.broken: dict[str, str] = {}
        self.problems: list[SettingsProblem] = []
        self.rest = dict(document)
        self._folder = folder
        for name in document.keys() - Configuration.model_fields.keys():
            if integrations.has_table(name):
                self._read_table(name, self.rest.pop(name))
        if isinstance(policies := document.get("on_call"), list):
            self.rest["on_call"] = [
                self._policy(index, each) if isinstance(each, dict) else each
                for index, each in enumerate(policies)
            ]

    def _read_table(self, name: str, table: object) -> None:
        if (found := self._loaded(name)) is None:
            return
        if found.settings is None:
            self.problems.append(SettingsProblem((name,), "unknown key"))
        elif (read := self._read(table, found.settings, (name,))) is not None:
            self.settings[name] = read

    def _policy(self, index: int, table: dict[str, Any]) -> dict[str, Any]:
        rest, sources = dict[str, Any](), list[Source]()
        for key, value in table.items():
            name = None if key in OnCallSettings.model_fields else integrations.on_call(key)
            if name is None:
                rest[key] = value
            else:
                sources.append(self._source(key, name, value, ("on_call", index, key)))
        if len(sources) > 1:
            text = f"expected only one of {', '.join(each.key for each in sources)}"
            self.problems.append(SettingsProblem(("on_call", index), text))
        return rest | {OF_AN_INTEGRATION: sources[0]} if sources else rest

    def _source(self, key: str, name: str, value: object, place: Place) -> Source:
        found = self._loaded(name)
        if found is None:
            return Source(key, name, name, None)
        if found.on_call is None:
            self.problems.append(SettingsProblem(place, "unknown key"))
            return Source(key, name, name, None)
        return Source(key, name, found.on_call.label, self._read(value, found.on_call.settings, place))

    def _loaded(self, name: str) -> Any | None:
        """Returns a `bot.api.Integration`, which this module cannot name: it is above."""
        try:
            return integrations.load(name)
        except Exception as error:  # noqa: BLE001 - others wrote it, and nothing else may fail with it
            _log.exception("an integration cannot be loaded", integration=name)
            self.broken[name] = f"cannot be loaded ({type(error).__name__}: {error})"
            return None

    def _read(self, value: object, expected: Any, place: Place) -> object:
        try:
            return TypeAdapter(expected).validate_python(value, context={"folder": self._folder})
        except ValidationError as error:
            self.problems += from_validation(error, expected, place)
            return None


def _configuration(
    document: dict[str, Any], source: str, file: Path, problems: list[SettingsProblem]
) -> Configuration:
    problems = [*cross_problems(document), *problems]
    try:
        configuration = Configuration.model_validate(
            {name: {} for name in _SECTIONS} | document, context={"folder": file.resolve().parent}
        )
    except ValidationError as error:
        problems = [*from_validation(error, Configuration), *problems]
        raise ConfigurationError(describe(problems, source, str(file))) from None
    problems += open_address_problems(configuration)
    if problems:
        raise ConfigurationError(describe(problems, source, str(file)))
    return configuration


def prepare_folders(settings: Settings) -> None:
    """Creates missing folders that the settings name.

    Raises:
        ConfigurationError: naming each folder that cannot be created.
    """
    shared = folder_mode(settings.ledger.mode)
    wanted = {
        "ledger.workflows": (settings.ledger.workflows, shared),
        "storage.path": (settings.storage.path.parent, 0o700),
    }
    if settings.ledger_folder is not None and not settings.storage.path.exists():
        wanted = {"ledger.directory": (settings.ledger_folder, shared)} | wanted
    problems = []
    for key, (folder, mode) in wanted.items():
        try:
            make_folder(folder, mode)
        except OSError as error:
            problems.append(
                f"{settings.file}: {key}: the folder {folder} cannot be created: {error.strerror}"
            )
    if problems:
        raise ConfigurationError(problems)


class WantedVariable(NamedTuple):
    """An environment variable named by the key at `place`; `fits` checks its value, `expected` describes it."""

    variable: str
    place: Place
    fits: Callable[[str], bool]
    expected: str


def read_environment() -> Mapping[str, str]:
    """Returns the process's environment. The only place that reads it."""
    return dict(os.environ)


def os_identity() -> str:
    """Returns who decides in a shell: `user:os/{login}@{host}`, with the system's login name rather than a
    variable's.
    """
    number = os.getuid()
    try:
        login = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container, a user may have only a number
        login = str(number)
    return f"user:os/{login}@{socket.gethostname()}"[:256]


def slack_api_url(environ: Mapping[str, str]) -> str:
    """Returns the address of Slack's Web API, with a slash at the end."""
    return (environ.get("SLACK_API_URL", "").strip() or SLACK_API_URL).rstrip("/") + "/"


def given_secrets(document: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, SecretStr]:
    """Returns the secrets that the document names, by variable, as far as they are set."""
    values = {want.variable: environ.get(want.variable, "").strip() for want in wanted(document)}
    return {variable: SecretStr(value) for variable, value in values.items() if value}


def secret_problems(document: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[SettingsProblem]:
    for want in wanted(document):
        value = environ.get(want.variable, "").strip()
        if not value:
            yield SettingsProblem(want.place, f"{want.variable} is not set in the environment")
        elif not want.fits(value):
            yield SettingsProblem(want.place, f"{want.variable} must {want.expected}")
    yield from _api_url_problems(slack_api_url(environ))


def _api_url_problems(url: str) -> Iterator[SettingsProblem]:
    try:
        checked = http_url(url)
    except ValueError as error:
        yield SettingsProblem((), f"SLACK_API_URL (environment): {error}")
        return
    if checked.startswith("http://") and not is_loopback(url_host(checked)):
        text = "would send the Slack token unencrypted; expected https://, or a loopback host"
        yield SettingsProblem((), f"SLACK_API_URL (environment): {text}")


def wanted(document: Mapping[str, Any]) -> Iterator[WantedVariable]:
    """Yields every variable that the document names, in a key or by Slack's mode. Skips malformed names: the model
    reports them.
    """
    slack = document.get("slack")
    mode = slack.get("mode", "socket") if isinstance(slack, dict) else "socket"
    for variable, prefix in _SLACK_VARIABLES.get(str(mode), {}).items():
        begins = partial(_begins_with, prefix)
        yield WantedVariable(variable, ("slack", "mode"), begins, f"begin with {prefix}")
    for place, value in _texts(document, ()):
        key = next(part for part in reversed(place) if isinstance(part, str))
        kind, name = parse_target(value)
        if key == "notify" and integrations.is_pager(kind):
            want = WantedVariable(
                name, place[:-1], partial(_is_address, kind), f"be a URL that {kind} can notify"
            )
        elif key.endswith("_env") and "people" not in place:  # names of people are keys, too
            want = WantedVariable(value, place, *_fits_of(key, place))
        else:
            continue
        if want.variable.isascii() and want.variable.isidentifier() and want.variable.isupper():
            yield want


def _texts(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields every text of a document with its place."""
    if isinstance(value, str):
        yield place, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _texts(each, (*place, key))


def _begins_with(prefix: str | tuple[str, ...], value: str) -> bool:
    return value.startswith(prefix)


def _is_address(kind: str, value: str) -> bool:
    """Whether it is an address that a pager can notify; also if that cannot be told: then other checks tell why."""
    try:
        paging = integrations.load(kind).paging
        return paging is None or paging.service(value) is not None
    except Exception:  # noqa: BLE001 - others wrote it
        return True


def _fits_of(key: str, place: Place) -> Fits:
    """Returns whether a value fits the key of a variable, and what is expected."""
    if place[0] == "on_call" and len(place) == 3 and (name := integrations.on_call(key)) is not None:
        with suppress(Exception):  # others wrote it; what it raises is told where the file is read
            fits: Fits = integrations.load(name).on_call.fits
            return fits
    return _FITS.get(f"{place[0]}.{key}") or _FITS.get(key) or (bool, "not be empty")


def signing_key(secret: str) -> bytes:
    """Returns the key of a secret: base64 after `whsec_`, otherwise the text itself. Empty: not a key."""
    if not secret.startswith(_SIGNING_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_signing_key(value: str) -> bool:
    """Returns whether it is an Ed25519 key, as `bot.signing` reads it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - only where there is a key
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        content = (
            value.encode()
            if "-----BEGIN" in value
            else base64.b64decode("".join(value.split()), validate=True)
        )
        return isinstance(load_pem_private_key(content, None), Ed25519PrivateKey)
    except (ValueError, TypeError):
        return False


_SECRET = (lambda secret: bool(signing_key(secret)), "be a secret, with base64 after whsec_")
_POSTGRES = (partial(_begins_with, ("postgresql://", "postgres://")), "begin with postgresql://")
_FITS: Mapping[
    str, tuple[Callable[[str], bool], str]
] = {  # by the key, or table and key: whether a value fits, and what is expected
    "storage.url_env": _POSTGRES,
    "storage.listen_url_env": _POSTGRES,
    "heartbeat_env": (is_web_address, "be a URL with http:// or https:// and a host"),
    "key_env": (
        _is_signing_key,
        "hold an Ed25519 private key: PKCS#8 PEM, or its base64",
    ),
    "secret_env": _SECRET,
    "callback_secret_env": _SECRET,
}


_TEXTS = {  # pydantic's error types → our words
    "missing": "required",
    "literal_error": "expected {expected}",
    "value_error": "{error}",
    "greater_than": "expected more than zero",
    "too_short": "expected at least one",
    "string_too_short": "expected at least {min_length} character",
    "string_too_long": "expected at most {max_length} characters",
    "path_type": "expected a path, as a string",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
}


_TOML = {  # how tomllib's messages begin → our words
    "Expected '=' after a key": 'expected "=" after the key',
    "Invalid value": "expected a value: text in quotes, a number, true, false, a list or a table",
    "Invalid initial character for a key part": "expected a key, or a value in quotes",
    "Invalid statement": "expected a key, such as `mode = …`, or a table, such as [slack]",
    "Illegal character '\\n'": "the text has no closing quote on this line",
    "Unterminated string": "the text has no closing quote",
    "Expected newline or end of document": "expected the end of the line after the value",
    "Unclosed array": "the list has no closing ]",
    "Unclosed inline table": "the table has no closing }",
    "Expected ']' at the end of a table": "the table's name has no closing ]",
    "Cannot overwrite a value": "this key is set twice",
    "Duplicate inline table key": "this key is set twice",
    "Cannot declare": "this table is defined twice; an array of tables has double brackets, [[…]]",
    "Unescaped '\\' in a string": "write the backslash twice, or put the text in single quotes",
}


class SettingsProblem(NamedTuple):
    """One problem. `place` is the path to the key, such as ("producers", 0, "dialect")."""

    place: Place
    text: str


def tables(document: Mapping[str, Any], array: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the tables of an array with their index; the model reports what is not a table."""
    value = document.get(array)
    for index, table in enumerate(value if isinstance(value, list) else ()):
        if isinstance(table, dict):
            yield index, table


def describe(problems: Iterable[SettingsProblem], source: str, file: str) -> list[str]:
    """Returns one line per problem, in the file's order: `clarify.toml:12: producers[0].dialect: expected …`."""
    told = []
    for place, text in problems:
        number = line_of(source, place, str(place[-1])) if place else None
        where = file if number is None else f"{file}:{number}"
        key = dotted(place)
        told.append((number or 0, f"{where}: {key}: {text}" if key else f"{where}: {text}"))
    return list(dict.fromkeys(line for _, line in sorted(told, key=lambda item: item[0])))


def syntax_error(error: tomllib.TOMLDecodeError, source: str, file: str) -> str:
    """Returns `clarify.toml:3:5: not valid TOML: …`, with line and column counted from 1."""
    said = str(error)
    if (at := re.search(r" \(at line (\d+), column (\d+)\)$", said)) is not None:
        line, column = int(at[1]), int(at[2])
    else:  # "(at end of document)"
        lines = source.splitlines() or [""]
        line, column = len(lines), len(lines[-1]) + 1
    plain = said.partition(" (at ")[0]
    words = next((ours for theirs, ours in _TOML.items() if plain.startswith(theirs)), plain)
    return f"{file}:{line}:{column}: not valid TOML: {words}"


def line_of(source: str, place: Place, word: str) -> int | None:
    """Returns the line with `word` under a key, or the key's line if it is not found. Understands lists of several
    lines, also of inline tables.
    """
    lines = line_numbers(source)
    known = next((place[:n] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    if known is None:
        return None
    start = lines[known]
    end = min(
        (number for key, number in lines.items() if number > start and key[: len(known)] != known),
        default=None,
    )
    texts = [line.partition("#")[0] for line in source.splitlines()[start - 1 : end and end - 1]]
    index = next((part for part in place[len(known) :] if isinstance(part, int)), -1)
    if index >= 0 and any("{" in text for text in texts):
        counted = [sum(text.count("{") for text in texts[: n + 1]) for n in range(len(texts))]
        first = next((n for n, count in enumerate(counted) if count > index), 0)
        after = next((n for n, count in enumerate(counted) if count > index + 1 and n > first), len(texts))
        texts, start = texts[first:after], start + first
    return next(
        (n for n, text in enumerate(texts, start) if re.search(rf"\b{re.escape(word)}\b", text)), start
    )


def dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def located(settings: Settings, result: CheckResult, name: str, places: Sequence[Place]) -> CheckResult:
    """Adds the line in the file, and the other keys with the same value."""
    lines = {place: line_of(settings.source, place, name) for place in places}
    first, *others = lines
    text = result.text
    if others:
        text += f" (also {', '.join(f'{dotted(each)} in line {lines[each]}' for each in others)})"
    line = f"{settings.file.name}:{lines[first]}" if lines[first] is not None else ""
    return result._replace(text=text, line=line)


def line_numbers(source: str) -> dict[Place, int]:
    """Returns the line of each table and key. Only a hint: does not parse inline tables and multi-line strings."""
    found: dict[Place, int] = {}
    counts: dict[str, int] = {}
    table: Place = ()
    for number, line in enumerate(source.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)\s*+([^\[\]]+)\]", line):
            name = header.group(2).rstrip()
            table = tuple(part.strip().strip("\"'") for part in name.split("."))
            if header.group(1) == "[[":
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            elif table[0] in counts:
                table = (table[0], counts[str(table[0])], *table[1:])
            for length in range(1, len(table) + 1):
                found.setdefault(table[:length], number)
        elif key := re.match(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*=", line):
            found.setdefault((*table, key.group(1)), number)
    return found


def from_validation(error: ValidationError, expected: object, above: Place = ()) -> Iterator[SettingsProblem]:
    """Yields pydantic's errors in our words. Omits "too short" for a list whose items are wrong.

    Args:
        error: what the validation raised.
        expected: the model of what was validated, or a type that holds it.
        above: where that stands in the file.
    """
    details = error.errors(include_url=False, include_context=True)
    wrong = {detail["loc"][:length] for detail in details for length in range(1, len(detail["loc"]))}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in wrong:
            continue
        inside = tuple(part for part in detail["loc"] if part != "[key]")
        place, text = above + inside, _words(detail, expected, above, inside)
        inner = (
            re.match(r"((?:[a-z_]+|\[\d+\])(?:\[\d+\])?(?:\.[a-z_]+)?): (.+)", text)
            if detail["type"] == "value_error"
            else None
        )
        if inner:  # a check of several keys names the one to change
            parts = re.findall(r"[a-z_]+|\d+", inner.group(1))
            place = (*place, *(int(part) if part.isdigit() else part for part in parts))
            text = inner.group(2)
        yield SettingsProblem(place, text)


def _words(detail: ErrorDetails, expected: object, above: Place, inside: Place) -> str:
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if detail["type"] == "extra_forbidden":
        return "unknown key" + _suggestion(str(inside[-1]), _known_keys(expected, above, inside[:-1]))
    if detail["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        return f"expected a table, such as [{dotted(above + inside)}]"
    if template := _TEXTS.get(detail["type"]):
        return template.format_map(context)
    return detail["msg"].replace("Input should be", "expected")


def _suggestion(key: str, known: Collection[str]) -> str:
    near = get_close_matches(key, known, n=1)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; expected one of {', '.join(sorted(known))}" if known else ""


def _known_keys(expected: object, above: Place, table: Place) -> Collection[str]:
    model = _model_in(expected)
    for part in table:
        if (
            model is None or part not in model.model_fields
        ):  # an index, or the user's own name: [responders.x]
            continue
        model = _model_in(model.model_fields[str(part)].annotation)
    keys = [] if model is None else [key for key, field in model.model_fields.items() if not field.exclude]
    if not (*above, *table):
        return [*keys, *integrations.tables()]
    return [*keys, *integrations.ON_CALL] if table[:1] == ("on_call",) and len(table) == 2 else keys


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Returns the table's model within `Model`, `tuple[Model, ...]`, `Annotated[…]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if model := _model_in(inner):
            return model
    return None


def cross_problems(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    for array in ("producers", "on_call"):
        for place, name, _ in _repeated(_values(document, array, "name")):
            yield SettingsProblem(place, f'"{name}" is already used; names must be unique')
    responders = document.get("responders")
    roles = responders if isinstance(responders, dict) else ()
    for place, _, earlier in _repeated((("responders", role), agent_key(role)) for role in roles):
        yield SettingsProblem(place, f'the same role as "{earlier[-1]}"; roles must be unique')
    yield from _on_call_references(document)
    yield from _unreachable_routes(document)
    yield from _missing_fallback(document)


def _values(document: Mapping[str, Any], array: str, key: str) -> Iterator[tuple[Place, str]]:
    for index, table in tables(document, array):
        if isinstance(value := table.get(key), str):
            yield (array, index, key), value


def _repeated(found: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, str, Place]]:
    """Yields each repetition: its place, its value, and the place of the first one."""
    first: dict[str, Place] = {}
    for place, value in found:
        earlier = first.setdefault(value, place)
        if earlier != place:
            yield place, value, earlier


def _on_call_references(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    known = {str(table.get("name")) for _, table in tables(document, "on_call")}
    for index, route in tables(document, "routes"):
        name = route.get("on_call")
        if isinstance(name, str) and name not in known:
            choice = ", ".join(sorted(known)) or "none is defined"
            text = f'no [[on_call]] is named "{name}"; expected one of: {choice}'
            yield SettingsProblem(("routes", index, "on_call"), text)


def _unreachable_routes(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    first: dict[str, int] = {}
    default: int | None = None
    for index, route in tables(document, "routes"):
        agent = route.get("agent")
        if "agent" not in route:
            if default is not None:
                yield SettingsProblem(
                    ("routes", index), f"a second route without agent; routes[{default}] is the default"
                )
            default = index if default is None else default
        elif isinstance(agent, str):
            earlier = first.get(agent, first.get("*"))
            if earlier is not None:
                yield SettingsProblem(
                    ("routes", index, "agent"), f"never reached: routes[{earlier}] takes all of it"
                )
            first.setdefault(agent, index)


def _missing_fallback(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    slack = document.get("slack")
    has_fallback = isinstance(slack, dict) and "fallback_channel" in slack
    if not has_fallback and all("agent" in route for _, route in tables(document, "routes")):
        text = "required unless a route without agent exists: other agents' events need a channel"
        yield SettingsProblem(("slack", "fallback_channel"), text)


def open_address_problems(configuration: Configuration) -> Iterator[SettingsProblem]:
    if is_loopback(configuration.http.host):
        return
    for index, producer in enumerate(configuration.producers):
        if producer.pushes and producer.token_env is None:
            text = f"required: it pushes to the bot, and http.listen ({configuration.http.listen}) is open to other hosts"
            yield SettingsProblem(("producers", index, "token_env"), text)
