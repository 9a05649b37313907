"""Reads `Settings` from a file and the environment, or lists everything that is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from pydantic import TypeAdapter, ValidationError

from bot import integrations
from bot.errors import ConfigurationError
from bot.settings.environment import given_secrets, secret_problems, slack_api_url
from bot.settings.model import Configuration, Secrets, Settings, ShellSettings
from bot.settings.problems import (
    Problem,
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
    ours, theirs = _apart(document)
    tables = _read_integrations(theirs, file.resolve().parent)
    problems = [*secret_problems(document, environ), *tables.problems]
    configuration = _configuration(ours, source, file, problems)
    return Settings.model_construct(
        **dict(configuration),
        integrations=tables.values,
        broken_integrations=tables.broken,
        file=file.resolve(),
        source=source,
        slack_api_url=slack_api_url(environ),
        secrets=Secrets(by_variable=given_secrets(document, environ)),
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
    return ShellSettings.model_construct(
        **dict(_configuration(_apart(document)[0], source, file, [])),
        file=file.resolve(),
        folder=file.resolve().parent,
        by_variable=given_secrets(document, environ),
    )


def _document(source: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([syntax_error(error, source, str(file))]) from error


def _apart(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the tables of the bot, and those of integrations."""
    theirs = {
        name: table
        for name, table in document.items()
        if name not in Configuration.model_fields and integrations.is_known(name)
    }
    return {name: table for name, table in document.items() if name not in theirs}, theirs


class _Tables(NamedTuple):
    """The settings of integrations, by name, and why others cannot be used."""

    values: dict[str, object]
    broken: dict[str, str]
    problems: list[Problem]


def _read_integrations(document: dict[str, Any], folder: Path) -> _Tables:
    found = _Tables({}, {}, [])
    for name, table in document.items():
        try:
            expected = integrations.load(name).settings
            read = TypeAdapter(expected).validate_python
        except Exception as error:  # noqa: BLE001 - others wrote it, and nothing else may fail with it
            _log.exception("an integration cannot be loaded", integration=name)
            found.broken[name] = f"cannot be loaded ({type(error).__name__}: {error})"
            continue
        try:
            found.values[name] = read(table, context={"folder": folder})
        except ValidationError as error:
            found.problems.extend(from_validation(error, expected, (name,)))
    return found


def _configuration(
    document: dict[str, Any], source: str, file: Path, problems: list[Problem]
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
