"""`clarify init` at a real terminal against the local workspace, and `clarify manifest`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from bot.settings.load import parse_settings
from tests.kit.processes import clarify, ended
from workspace import Workspace
from workspace.seed import APP_TOKEN, BOT_TOKEN, BOT_USER

ROOT = Path(__file__).parents[4]
# `clarify`, whose check of the address that it writes finds a free port: another program may have the usual one.
PROGRAM = """
import bot.check
from bot.cli import main

bind = bot.check.bind
bot.check.bind = lambda host, _: bind(host, 0)
main()
"""
TOKENS = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}


class Terminal:
    """A person at the terminal of a `clarify` process."""

    def __init__(self, process: asyncio.subprocess.Process, fd: int, reader: asyncio.StreamReader) -> None:
        self.process = process
        self.screen = ""
        self._fd = fd
        self._reader = reader
        self._read = 0

    async def sees(self, words: str) -> None:
        """Returns once `words` are on the screen, after what was awaited before."""
        async with asyncio.timeout(30):
            while (at := self.screen.find(words, self._read)) < 0:
                data = await self._reader.read(4096)
                assert data, f"ended without {words!r}:\n{self.screen}"
                self.screen += data.decode().replace("\r\n", "\n")
        self._read = at + len(words)

    def types(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    async def ends(self) -> int:
        with suppress(OSError):  # a terminal whose last program has ended gives EIO
            while data := await self._reader.read(4096):
                self.screen += data.decode().replace("\r\n", "\n")
        return await self.process.wait()


@asynccontextmanager
async def at_a_terminal(*words: str, cwd: Path, env: dict[str, str]) -> AsyncIterator[Terminal]:
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "dumb", **env},
        start_new_session=True,
    )
    os.close(theirs)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    try:
        yield Terminal(process, ours, reader)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        transport.close()


async def test_init_asks_and_writes_a_configuration_that_passes_its_checks(
    tmp_path: Path, workspace: Workspace
) -> None:
    env = {"SLACK_API_URL": workspace.api_url}
    async with at_a_terminal("init", cwd=tmp_path, env=env) as terminal:
        await terminal.sees("https://api.slack.com/apps?new_app=1&manifest_yaml=")
        await terminal.sees("from Install App: ")
        terminal.types("xoxb-wrong")
        await terminal.sees("Slack says invalid_auth")
        await terminal.sees("from Install App: ")
        terminal.types(BOT_TOKEN)
        await terminal.sees("works: @clarify in Local workspace")
        await terminal.sees("from Basic Information: ")
        terminal.types("not-one")
        await terminal.sees("SLACK_APP_TOKEN must begin with xapp-")
        await terminal.sees("from Basic Information: ")
        terminal.types(APP_TOKEN)
        await terminal.sees("1. #agents\n  2. #clarify-fallback\n")
        terminal.types("agents")
        await terminal.sees("Fallback channel")
        await terminal.sees("Number [2]")
        terminal.types("")
        await terminal.sees("Who is on call?")
        terminal.types("nobody@example.com")
        await terminal.sees("there is no such person")
        terminal.types("U0ONCALL")
        await terminal.sees("Save the tokens")
        terminal.types("y")
        assert await terminal.ends() == 0, terminal.screen
    assert "checks passed.\nNext:\n  set -a; . ./clarify.env; set +a\n  clarify run\n" in terminal.screen
    assert BOT_TOKEN not in terminal.screen
    assert APP_TOKEN not in terminal.screen
    text = (tmp_path / "clarify.toml").read_text()
    settings = parse_settings(text, file=tmp_path / "clarify.toml", environ=TOKENS)
    assert (settings.routes[0].channel, settings.slack.fallback_channel) == ("C0AGENTS", "C0FALLBACK")
    assert settings.on_call_named("platform").users == ("U0ONCALL",)
    assert settings.routes[0].on_call == "platform"
    assert BOT_TOKEN not in text
    secrets = tmp_path / "clarify.env"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert secrets.read_text() == f"SLACK_BOT_TOKEN={BOT_TOKEN}\nSLACK_APP_TOKEN={APP_TOKEN}\n"


async def test_init_waits_for_an_invitation(tmp_path: Path, workspace: Workspace) -> None:
    channels = [each for each in workspace.state.channels.values() if BOT_USER in each.members]
    for each in channels:
        each.members.remove(BOT_USER)
    env = {"SLACK_API_URL": workspace.api_url, **TOKENS}
    async with at_a_terminal("init", "--on-call", "S0PLATFORM", cwd=tmp_path, env=env) as terminal:
        await terminal.sees("send /invite @clarify")
        workspace.state.channels["C0AGENTS"].members.append(BOT_USER)
        terminal.types("")
        await terminal.sees("Channel for the agents' questions")
        terminal.types("1")
        await terminal.sees("Fallback channel")
        terminal.types("1")
        assert await terminal.ends() == 0, terminal.screen
    assert "Save the tokens" not in terminal.screen  # they came from the environment
    text = (tmp_path / "clarify.toml").read_text()
    assert (
        parse_settings(text, file=tmp_path / "x", environ=TOKENS).on_call_named("platform").group
        == "S0PLATFORM"
    )


async def test_init_without_a_terminal_fills_in_its_options(tmp_path: Path) -> None:
    options = ("--channel", "C0HERE", "--on-call", "U0ANN", "--on-call", "U0BEN")
    done = await ended(await clarify("init", "--no-input", *options, cwd=tmp_path, env={}))
    assert (done.code, done.err) == (0, "")
    assert "clarify check" in done.out
    text = (tmp_path / "clarify.toml").read_text()
    settings = parse_settings(text, file=tmp_path / "clarify.toml", environ=TOKENS)
    assert (settings.routes[0].channel, settings.slack.fallback_channel) == ("C0HERE", "C0HERE")
    assert settings.on_call_named("platform").users == ("U0ANN", "U0BEN")
    assert [route.on_call for route in settings.routes] == ["platform"]
    assert not settings.producers  # none that is not there
    again = await ended(await clarify("init", "--no-input", *options, cwd=tmp_path, env={}))
    assert (again.code, again.err) == (2, "clarify: clarify.toml already exists; left unchanged.\n")
    assert (tmp_path / "clarify.toml").read_text() == text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--channel", "#agents"), '--channel: "#agents" is not a Slack id; expected C…'),
        (("--on-call", "S0A", "--on-call", "U0B"), "expected users, or one user group alone"),
        (("no/such/clarify.toml",), "no/such/clarify.toml: cannot be written: No such file or directory"),
    ],
)
async def test_init_names_a_choice_that_is_wrong(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    done = await ended(await clarify("init", *options, cwd=tmp_path, env={}))
    assert (done.code, expected in done.err) == (2, True), done.err
    assert not (tmp_path / "clarify.toml").exists()


async def test_manifest_is_the_one_of_the_repository_and_its_link_creates_the_app(tmp_path: Path) -> None:
    done = await ended(await clarify("manifest", cwd=tmp_path, env={}))
    ours = (ROOT / "manifest.yml").read_text()
    assert done.out.startswith(ours)
    link = done.out.splitlines()[-1].removeprefix("# Create the app: ")
    assert urlsplit(link)._replace(query="").geturl() == "https://api.slack.com/apps"
    query = parse_qs(urlsplit(link).query, strict_parsing=True)
    assert query["new_app"] == ["1"]
    assert yaml.safe_load(query["manifest_yaml"][0]) == yaml.safe_load(ours) == yaml.safe_load(done.out)


async def test_manifest_for_http_differs_in_the_addresses_alone(tmp_path: Path) -> None:
    done = await ended(
        await clarify("manifest", "--http", "https://clarify.example.com/", cwd=tmp_path, env={})
    )
    made, ours = yaml.safe_load(done.out), yaml.safe_load((ROOT / "manifest.yml").read_text())
    url = "https://clarify.example.com/slack/events"
    assert made["settings"]["event_subscriptions"].pop("request_url") == url
    assert made["settings"]["interactivity"].pop("request_url") == url
    assert made["features"]["slash_commands"][0].pop("url") == url
    assert made["settings"].pop("socket_mode_enabled") is False
    assert ours["settings"].pop("socket_mode_enabled") is True
    assert made == ours
    refused = await ended(
        await clarify("manifest", "--http", "http://plain.example.com", cwd=tmp_path, env={})
    )
    assert (refused.code, "expected the bot's address" in refused.err) == (2, True)
