"""A whole `clarify.toml`, its environment, and what comes of reading such texts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from bot.errors import ConfigurationError
from bot.settings.load import parse_settings
from bot.settings.model import Settings

ENVIRON = {
    "SLACK_BOT_TOKEN": "xoxb-local-bot",
    "SLACK_APP_TOKEN": "xapp-local-app",
    "SLACK_SIGNING_SECRET": "0a1b2c3d",
    "PLANNER_TOKEN": "planner-secret",
    "PAGER_URL": "pagerduty://integration-key@routing-key",
}

FULL = """
[slack]
mode = "socket"
identity = "slack_id"
fallback_channel = "C9"
[http]
listen = "127.0.0.1:8787"
[[producers]]
name = "planner"
url = "http://127.0.0.1:8080/"
token_env = "PLANNER_TOKEN"
dialect = "auto"
[[routes]]
agent = "retirement-*"
channel = "C0123456789"
answerers = ["members", "U1", "S1"]
verbosity = "normal"
on_call = "platform"
[ledger]
directory = ".agentx/state/clarifications"
workflows = ".agentx/workflows"
archive_after = "30d"
[storage]
path = "clarify.db"
[monitor]
sla = "30m"
alarm = true
[pacing]
posts_per_second = 1.0
[[on_call]]
name = "platform"
users = ["U3"]
steps = [
  {after = "0s", notify = ["thread", "dm"], every = "5m"},
  {after = "15m", notify = ["apprise:PAGER_URL"]},
]
[identities]
U0123 = "user:folake"
"""


def parse(source: str, environ: dict[str, str] | None = None, file: Path = Path("clarify.toml")) -> Settings:
    return parse_settings(
        dedent(source).lstrip("\n"), file=file, environ=ENVIRON if environ is None else environ
    )


def problems(source: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse(source, environ)
    return caught.value.problems
