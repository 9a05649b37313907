"""A workspace that is quick, and settings for it."""

from __future__ import annotations

from pathlib import Path

from bot.settings.load import parse_settings
from bot.settings.model import Settings
from workspace import Options
from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, FALLBACK

FAST = Options(ack_timeout=30.0, retry_delays=(0.0, 0.05, 0.1), trigger_lifetime=600.0)
CONFIGURATION = f"""
[slack]
fallback_channel = "{FALLBACK}"
[[producers]]
name = "planner"
url = "http://127.0.0.1:1"
[[routes]]
channel = "{AGENTS}"
answerers = ["members"]
"""


def settings(folder: Path, more: str = "", api: str = "") -> Settings:
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
    environ |= {"SLACK_API_URL": api} if api else {}
    return parse_settings(CONFIGURATION + more, file=folder / "clarify.toml", environ=environ)
