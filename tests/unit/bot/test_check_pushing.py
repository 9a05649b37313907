"""`clarify check` on what calls us, and on what we tell others: nothing is connected to, nothing is sent."""

from __future__ import annotations

from pathlib import Path

from bot.check.local import probe as local
from bot.check.producers import probe as producers
from bot.settings.load import parse_settings, prepare_folders
from bot.settings.model import Settings

CONFIGURATION = """
[slack]
fallback_channel = "C0FALLBACK"
[[producers]]
name = "first"
token_env = "FIRST"
[[producers]]
name = "second"
token_env = "SECOND"
[[webhooks]]
url = "http://127.0.0.1:1/hook"
secret_env = "HOOK"
"""


def configured(folder: Path, second: str, text: str = CONFIGURATION) -> Settings:
    environ = {
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_APP_TOKEN": "xapp-1",
        "FIRST": "a",
        "SECOND": second,
        "HOOK": "h",
    }
    settings = parse_settings(text, file=folder / "clarify.toml", environ=environ)
    prepare_folders(settings)
    return settings


async def told(settings: Settings) -> list[tuple[bool, str]]:
    return [(found.ok, found.text) async for found in producers(settings)]


async def test_producers_that_share_the_server_are_told_of_those_that_may_take_any_name(
    tmp_path: Path,
) -> None:
    settings = configured(tmp_path, "b")
    first, second = [found async for found in producers(settings)]
    assert (first.ok, first.text) == (True, "pushes to us, as does second, and may call itself any agent")
    assert first.mend == 'set agents = ["first", …] for it: the agents that may speak through it'
    assert "as does first" in second.text
    text = CONFIGURATION.replace('name = "first"', 'name = "first"\nagents = ["first-*"]')
    bound = configured(tmp_path, "b", text)
    assert (await told(bound))[0] == (True, "pushes to us: nothing to connect to")


async def test_producers_that_share_a_token_are_told_of(tmp_path: Path) -> None:
    shared = await told(configured(tmp_path, "a"))
    assert shared == [
        (False, "its token is that of second, too: each could read the other's replies"),
        (False, "its token is that of first, too: each could read the other's replies"),
    ]
    assert all(ok for ok, _ in await told(configured(tmp_path, "b")))


def test_webhooks_are_named_and_nothing_is_sent(tmp_path: Path) -> None:
    found = [(each.subject, each.text) for each in local(configured(tmp_path, "b"))]
    assert ("webhooks[0]", "signed with HOOK; nothing is sent by this check") in found
