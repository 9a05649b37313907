"""Reads `Settings` from a file and the environment, or lists everything that is wrong. Messages never show secrets."""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from pydantic import SecretStr, TypeAdapter, ValidationError

from bot import integrations
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
from bot.settings.problems import (
    Place,
    SettingsProblem,
    cross_problems,
    describe,
    from_validation,
    open_address_problems,
    syntax_error,
)
from core.files import folder_mode, make_folder

_log = structlog.get_logger("clarify.settings")
DEFAULT_FILE = Path("clarify.toml")
_SECTIONS = ("slack", "http", "ledger", "storage", "monitor", "pacing", "shell", "trust")
SLACK_API_URL = "https://slack.com/api/"
_SLACK_VARIABLES = {  # mode → required variables, with the beginnings of their values
    "socket": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"},
    "http": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_SIGNING_SECRET": ""},
}
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
    """Reads the same file for the shell: requires no secret, and without a file uses the defaults.

    Raises:
        ConfigurationError: with every problem found, one a line.
    """
    file = path or DEFAULT_FILE
    if path is None and not file.exists():
        folder = Path.cwd()
        configuration = Configuration.model_validate(
            {name: {} for name in _SECTIONS}, context={"folder": folder}
        )
        return ShellSettings.model_construct(**dict(configuration), file=None, folder=folder, by_variable={})
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
