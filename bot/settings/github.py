"""The `[github]` table: issues whose clarifications are mirrored as comments."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from bot.settings.table import EnvironmentName, HttpUrl, Table
from bot.settings.values import is_loopback, url_host


def _repository(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", value):
        raise ValueError('expected "owner/name"')
    return value


def _mention(value: str) -> str:
    if not re.fullmatch(r"@[A-Za-z0-9-]+(/[A-Za-z0-9._-]+)?", value):
        raise ValueError('expected "@user" or "@org/team"')
    return value


class GithubSettings(Table):
    """`mention` is told of an escalation."""

    model_config = ConfigDict(populate_by_name=True)

    repo: Annotated[str, AfterValidator(_repository)] = Field(
        validation_alias=AliasChoices("repo", "repository")
    )
    token_env: EnvironmentName
    api_url: HttpUrl = "https://api.github.com"
    mention: Annotated[str, AfterValidator(_mention)] | None = None
    comments_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _encrypted(self) -> GithubSettings:
        if self.api_url.startswith("http://") and not is_loopback(url_host(self.api_url)):
            raise ValueError(
                "api_url: would send the token unencrypted; expected https://, or a loopback host"
            )
        return self
