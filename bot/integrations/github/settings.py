"""The table `[github]`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from bot.api import (
    EnvironmentName,
    HttpUrl,
    SettingsTable,
    keep_token_private,
)

_LOGIN = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})"


def _repo(value: str) -> str:
    if not re.fullmatch(rf"{_LOGIN}/(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,100}}", value):
        raise ValueError('expected "owner/name", as in the address of the repository')
    return value


def _mention(value: str) -> str:
    if not re.fullmatch(rf"@{_LOGIN}(?:/{_LOGIN})?", value):
        raise ValueError('expected "@user" or "@organisation/team"')
    return value


class GithubSettings(SettingsTable):
    """Mirrors what agents ask about an issue to GitHub, as comments and labels."""

    model_config = ConfigDict(populate_by_name=True)

    repo: Annotated[str, AfterValidator(_repo)] = Field(validation_alias=AliasChoices("repo", "repository"))
    """The repository with the issues to mirror to."""
    token_env: EnvironmentName
    """The variable with a token that may read and write its issues."""
    api_url: HttpUrl = "https://api.github.com"
    """GitHub's API; for GitHub Enterprise, "https://HOST/api/v3"."""
    mention: Annotated[str, AfterValidator(_mention)] | None = None
    """Whom to mention when a question escalates."""
    comments_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The most writes per second to GitHub."""

    @model_validator(mode="after")
    def _token_stays_private(self) -> GithubSettings:
        keep_token_private("api_url", self.api_url, self.token_env)
        return self
