"""The `[github]` table: each round of a clarification mirrored to the issue that it is about."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from bot.settings.table import EnvironmentName, HttpUrl, Table
from bot.settings.values import is_loopback, url_host

_LOGIN = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})"
_REPO = re.compile(rf"{_LOGIN}/(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,100}}")
_MENTION = re.compile(rf"@{_LOGIN}(?:/{_LOGIN})?")


def _repo(value: str) -> str:
    if not _REPO.fullmatch(value):
        raise ValueError('expected "owner/name", as in the address of the repository')
    return value


def _mention(value: str) -> str:
    if not _MENTION.fullmatch(value):
        raise ValueError('expected "@user" or "@organisation/team"')
    return value


class GithubSettings(Table):
    """Where to mirror to. `token_env` names the variable with a token that may write issues of `repo`.

    `mention`: who is told of an escalation. `comments_per_second` paces everything that is written there.
    """

    model_config = ConfigDict(populate_by_name=True)

    repo: Annotated[str, AfterValidator(_repo)] = Field(validation_alias=AliasChoices("repo", "repository"))
    token_env: EnvironmentName
    api_url: HttpUrl = "https://api.github.com"
    mention: Annotated[str, AfterValidator(_mention)] | None = None
    comments_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _token_stays_private(self) -> GithubSettings:
        host = url_host(self.api_url)
        if self.api_url.startswith("http://") and not is_loopback(host):
            raise ValueError(
                f"api_url: would send the token of {self.token_env} unencrypted to {host}; "
                "expected https://, or a loopback host"
            )
        return self
