"""What the shell needs of a configuration: where the ledgers are, and who answers. No Slack, no Slack secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from bot.settings.load import DEFAULT_FILE, SECTIONS, configuration_in, read_source
from bot.settings.model import Configuration, LedgerSettings, StorageSettings
from bot.settings.monitor import MonitorSettings
from bot.settings.responders import ResponderSettings


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """`file` is None where there is none: then everything is as by default, in this folder.

    `by_variable`: the secrets of all variables that the file names, as far as they are set: some are sent to
    responders, and no command gets to see any. `folder`: what relative paths count from. `consent`: whether the
    person at the prompt may accept confirmations.
    """

    ledger: LedgerSettings
    storage: StorageSettings
    monitor: MonitorSettings
    responders: Mapping[str, ResponderSettings]
    file: Path | None
    folder: Path
    by_variable: Mapping[str, SecretStr]
    consent: bool = False


def load_shell_settings(path: Path | None, environ: Mapping[str, str]) -> ShellSettings:
    """Read `path` (default: clarify.toml in this folder, if it is there).

    Raises:
        ConfigurationError: with every problem found, one a line.
    """
    file = path or DEFAULT_FILE
    if path is None and not file.exists():
        folder = Path.cwd()
        bare = Configuration.model_validate({name: {} for name in SECTIONS}, context={"folder": folder})
        return _of(bare, None, folder, {})
    configuration, secrets = configuration_in(read_source(file), file=file, environ=environ)
    return _of(configuration, file.resolve(), file.resolve().parent, secrets)


def _of(
    configuration: Configuration, file: Path | None, folder: Path, secrets: Mapping[str, SecretStr]
) -> ShellSettings:
    return ShellSettings(
        ledger=configuration.ledger,
        storage=configuration.storage,
        monitor=configuration.monitor,
        responders=configuration.responders,
        file=file,
        folder=folder,
        by_variable=secrets,
        consent=configuration.shell.consent,
    )
