"""Reads `Settings` from a file and the environment, or lists everything that is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from bot import integrations
from bot.errors import ConfigurationError
from bot.settings.environment import given_secrets, secret_problems, slack_api_url
from bot.settings.model import (
    OF_AN_INTEGRATION,
    Configuration,
    OnCallSettings,
    Settings,
    ShellSettings,
    Source,
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
