"""From what is configured to what answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from bot.errors import ConfigurationError
from bot.responders.command import CommandResponder
from bot.responders.http import HttpResponder
from bot.settings.environment import read_environment
from bot.settings.responders import ResponderSettings
from core.dispatch import Responder

_SLACKS = frozenset({"SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"})


def responders_of(
    settings: Mapping[str, ResponderSettings],
    secrets: Mapping[str, SecretStr],
    folder: Path,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Responder]:
    """What answers for each role, by role; those that people answer for are left out.

    Args:
        settings: the `[responders.<role>]` tables.
        secrets: our own, by the environment variables that the configuration names: no command gets to see them.
        folder: where commands run.
        environ: what commands get of the environment, but for our secrets; None: all of it.

    Raises:
        ConfigurationError: the token of an endpoint is not among the secrets.
    """
    ours = _SLACKS | secrets.keys()
    given = read_environment() if environ is None else environ
    env = {name: value for name, value in given.items() if name not in ours}
    built: dict[str, Responder] = {}
    for role, table in settings.items():
        if table.command is not None:
            built[role] = CommandResponder(table.command, table.timeout, folder, env)
        elif table.http is not None:
            token = None if table.token_env is None else secrets.get(table.token_env)
            if table.token_env is not None and token is None:
                raise ConfigurationError(
                    [f"responders.{role}.token_env: asks for {table.token_env}, which is not set"]
                )
            built[role] = HttpResponder(table.http, token, table.timeout)
    return built
