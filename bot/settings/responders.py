"""The `[responders.<role>]` tables: how a role that agents ask answers."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, ConfigDict, Field, model_validator

from bot.settings.table import EnvironmentName, HttpUrl, LongerThanNothing, Table
from bot.settings.values import is_loopback, url_host


def _argv(value: object) -> object:
    """A command as a shell would split it; no shell runs it."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"cannot be split into words: {error}") from error
    return value


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _places(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not re.fullmatch(r"[CGSUW][A-Z0-9]+", each):
            raise ValueError(f'"{each}" is none of a channel (C…), a user group (S…), a user (U…)')
    if sum(each[0] in "CG" for each in value) > 1:
        raise ValueError("expected one channel at most")
    return value


Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), Field(min_length=1)]
Places = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1), AfterValidator(_places)]


class ResponderSettings(Table):
    """How a role answers, by exactly one of three ways.

    `command`: run for each question, which it gets as JSON on its standard input. `http`: a URL that each question is
    posted to, with the bearer token of `token_env`. `people`: a channel, user groups and users in Slack; with a channel
    alone its members answer, without one the question goes to the channel of the agent that asks. `timeout`: of one try
    of a command or an endpoint.
    """

    model_config = ConfigDict(populate_by_name=True)

    command: Argv | None = None
    http: HttpUrl | None = None
    people: Places | None = None
    token_env: EnvironmentName | None = None
    timeout: LongerThanNothing = Field(
        default=timedelta(minutes=2), validation_alias=AliasChoices("timeout", "time_limit")
    )

    @model_validator(mode="after")
    def _one_way(self) -> ResponderSettings:
        given = [key for key in ("command", "http", "people") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of command, http, people; got {', '.join(given) or 'none'}"
            )
        if self.token_env is not None and self.http is None:
            raise ValueError("token_env: only sent to an http responder; leave it out")
        if self.token_env is not None and self.http is not None and self.http.startswith("http://"):
            host = url_host(self.http)
            if not is_loopback(host):
                raise ValueError(
                    f"http: would send the token of {self.token_env} unencrypted to {host}; "
                    "expected https://, or a loopback host"
                )
        return self

    @property
    def kind(self) -> Literal["command", "http", "people"]:
        """Which of the three ways it is."""
        if self.people is not None:
            return "people"
        return "command" if self.command is not None else "http"

    @property
    def channel(self) -> str | None:
        """Where people are asked; None: where the agent's own questions go."""
        return next((each for each in self.people or () if each[0] in "CG"), None)

    @property
    def answerers(self) -> tuple[str, ...]:
        """Who answers, as a route's `answerers`."""
        return tuple(each for each in self.people or () if each[0] in "SUW") or ("members",)
