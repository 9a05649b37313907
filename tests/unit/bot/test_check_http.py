"""What `clarify check` says of Slack over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.check.slack import probe
from bot.settings.environment import SLACK_API_URL
from bot.settings.load import parse_settings
from bot.settings.model import Settings
from bot.workspace import Workspace
from bot.workspace.seed import AGENTS, BOT_TOKEN, SIGNING_SECRET

LIKE_SLACKS = "0123456789abcdef0123456789abcdef"


def settings(folder: Path, api_url: str, secret: str = SIGNING_SECRET) -> Settings:
    environ = {
        "SLACK_API_URL": api_url,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": secret,
    }
    source = f'[slack]\nmode = "http"\nfallback_channel = "{AGENTS}"\n[http]\nlisten = "127.0.0.1:9999"\n'
    return parse_settings(source, file=folder / "clarify.toml", environ=environ)


async def test_check_of_http_mode_asks_for_no_socket_and_names_the_address(tmp_path: Path) -> None:
    async with Workspace() as workspace:
        found = [finding async for finding in probe(settings(tmp_path, workspace.api_url))]
        assert not [call for call in workspace.calls if call.method == "apps.connections.open"]
    assert [finding.subject for finding in found if not finding.ok] == []
    said = {finding.subject: finding.text for finding in found}
    assert "127.0.0.1:9999" in said["slack.mode"]
    assert "/slack/events" in said["slack.mode"]
    assert "SLACK_SIGNING_SECRET" in said
    assert not any(SIGNING_SECRET in text for text in said.values())


@pytest.mark.parametrize(
    ("secret", "fits"), [(LIKE_SLACKS, True), ("xapp-1-another", False), (LIKE_SLACKS[:-1], False)]
)
def test_check_knows_what_slacks_secrets_look_like(tmp_path: Path, secret: str, fits: bool) -> None:
    from bot.check.slack import _signing_secret

    configured = settings(tmp_path, SLACK_API_URL, secret)
    assert configured.secrets.signing_secret is not None
    finding = _signing_secret(configured, configured.secrets.signing_secret)
    assert finding.ok is fits
    assert bool(finding.mend) is not fits
    assert secret not in f"{finding.text} {finding.mend}"
