"""The key `pagerduty` of `[[on_call]]`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, model_validator

from bot.api import (
    EnvironmentName,
    HttpUrl,
    SettingsTable,
    keep_token_private,
)


def _schedule(value: str) -> str:
    if not re.fullmatch("[A-Z0-9]{1,40}", value):
        raise ValueError(
            f'"{value}" is not a schedule ID; expected P… (the end of the schedule\'s web address)'
        )
    return value


class PagerDutySettings(SettingsTable):
    """A schedule in PagerDuty."""

    schedule: Annotated[str, AfterValidator(_schedule)]
    """The schedule's ID, at the end of its web address."""
    token_env: EnvironmentName
    """The variable with an API token; a read-only one is enough."""
    api_url: HttpUrl = "https://api.pagerduty.com"
    """In Europe "https://api.eu.pagerduty.com"."""

    @model_validator(mode="after")
    def _token_stays_private(self) -> PagerDutySettings:
        keep_token_private("api_url", self.api_url, self.token_env)
        return self
