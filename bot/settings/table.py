"""What every table of `clarify.toml` is made of: its base, and the values that several of them hold."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bot.settings.values import (
    channel_id,
    duration,
    environment_name,
    http_url,
    resolved_path,
    short_name,
    user_group_id,
    user_id,
)

Duration = Annotated[timedelta, BeforeValidator(duration)]
LongerThanNothing = Annotated[Duration, Field(gt=timedelta(0))]
ConfigPath = Annotated[Path, AfterValidator(resolved_path)]
ChannelId = Annotated[str, AfterValidator(channel_id)]
UserId = Annotated[str, AfterValidator(user_id)]
UserGroupId = Annotated[str, AfterValidator(user_group_id)]
EnvironmentName = Annotated[str, AfterValidator(environment_name)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
Name = Annotated[str, AfterValidator(short_name)]


class Table(BaseModel):
    """A table of the file: unknown keys refused, never changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)
