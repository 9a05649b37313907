# ruff: noqa: PLC0415, T201 - heavy imports only where needed; it talks with the person at the terminal
"""`clarify manifest` and `clarify init`: the Slack app's manifest, and a first clarify.toml that works.

On a terminal, `init` asks: it checks the tokens with Slack, lists the bot's channels and the people in them, writes the
file, and validates it. Otherwise it fills in its options. Both write the same file with explanations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import typer

from bot.cli.output import Output
from bot.errors import ConfigurationError

if TYPE_CHECKING:
    from bot.settings.model import Settings

_CREATE = "https://api.slack.com/apps?new_app=1&manifest_yaml="
_EVENTS = "/slack/events"
_HTTP_HEAD = """\
# The Slack app for clarify-bot, for `[slack] mode = "http"`. Once the app is installed:
# Install App → Bot User OAuth Token → SLACK_BOT_TOKEN (xoxb-…)
# Basic Information → Signing Secret → SLACK_SIGNING_SECRET
"""
_VARIABLES = {
    "SLACK_BOT_TOKEN": ("Bot User OAuth Token (xoxb-…), from Install App", "xoxb-"),
    "SLACK_APP_TOKEN": ("App-Level Token (xapp-…), from Basic Information", "xapp-"),
}
_SHOWN = 30  # people of a channel; more are named by e-mail address or id
_PLACES = {  # by choice: the example in the file that it replaces
    "fallback": 'fallback_channel = "C0FALLBACK"',
    "channel": '[[routes]]                      # one without `agent` is the default\nchannel = "C0AGENTS"',
    "on_call": 'users = ["U0ANN"]               #',
}


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices for clarify.toml: ids of channels, and of users or one user group. None: not chosen."""

    channel: str | None = None
    fallback: str | None = None
    on_call: Sequence[str] = ()


def manifest(http: str | None) -> str:
    """Returns the Slack app's manifest, for Socket Mode or for a bot that Slack reaches at `http`.

    Raises:
        ConfigurationError: `http` is not an https:// address.
    """
    packaged = files("bot").joinpath("manifest.yml")
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "manifest.yml"
    text = source.read_text(encoding="utf-8")
    if http is None:
        return text
    parts = urlsplit(http)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(["--http: expected the bot's address, such as https://clarify.example.com"])
    url = http.rstrip("/").removesuffix(_EVENTS) + _EVENTS
    for old, new in (
        ("  event_subscriptions:\n", f"  event_subscriptions:\n    request_url: {url}\n"),
        ("  interactivity:\n", f"  interactivity:\n    request_url: {url}\n"),
        ("    - command: /clarify\n", f"    - command: /clarify\n      url: {url}\n"),
        ("socket_mode_enabled: true", "socket_mode_enabled: false"),
    ):
        text = _replaced(text, old, new)
    return _HTTP_HEAD + text[text.index("_metadata:") :]


def link(text: str) -> str:
    """Returns the address of Slack's form for a new app, with the manifest filled in, without comments."""
    lines = (re.sub(r"(?:^|(?<!\s)\s+)#(?s: .*)?\Z", "", line) for line in text.splitlines())
    return _CREATE + quote("\n".join(line for line in lines if line) + "\n", safe="")


def init(path: Path, choices: Choices, *, ask: bool) -> None:
    """Write `path`; with `ask`, ask the person at the terminal for what is missing, and check it with Slack.

    Raises:
        ConfigurationError: the file is there already or cannot be written, or a choice is no id.
        typer.Exit: what was written does not pass its checks.
    """
    if path.exists():
        raise ConfigurationError([f"{path} already exists; left unchanged."])
    if ask:
        asyncio.run(_guided(path, choices))
        return
    _write(path, filled(choices))
    print(f"Wrote {path}. Next: set your channels and people in it where they are missing, then run")
    print(f"  clarify check{_config(path)}")


def filled(choices: Choices) -> str:
    """Returns the explained configuration with the choices in place of its examples.

    Raises:
        ConfigurationError: a choice is not an id.
    """
    text = files("bot.settings").joinpath("example.toml").read_text(encoding="utf-8")
    given = {"channel": choices.channel, "fallback": choices.fallback or choices.channel}
    for name, value in given.items():
        if value is not None:
            text = _with(text, name, re.compile(r'"C0\w+"'), f'"{_id(value, "CG", name)}"')
    if choices.on_call:
        group = [each for each in choices.on_call if each.startswith("S")]
        if group and len(choices.on_call) > 1:
            raise ConfigurationError(["--on-call: expected users, or one user group alone"])
        ids = [_id(each, "UWS", "on-call") for each in choices.on_call]
        value = f'group = "{ids[0]}"' if group else f"users = [{', '.join(f'{each!r}' for each in ids)}]"
        value = value.replace("'", '"').ljust(31)
        text = _with(text, "on_call", re.compile(r'users = \["U0ANN"\] *'), f"{value} ")
    return text


def _with(text: str, name: str, example: re.Pattern[str], value: str) -> str:
    place = _PLACES[name]
    return _replaced(text, place, example.sub(lambda _: value, place))


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise RuntimeError(f"expected once in the packaged file: {old!r}")
    return text.replace(old, new)


def _id(value: str, kinds: str, option: str) -> str:
    if not re.fullmatch(rf"[{kinds}][A-Z0-9]{{1,20}}", value):
        raise ConfigurationError([f'--{option}: "{value}" is not a Slack id; expected {kinds[0]}…'])
    return value


def _write(path: Path, text: str, *, secret: bool = False) -> None:
    try:
        path.touch(mode=0o600 if secret else 0o666, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigurationError([f"{path} already exists; left unchanged."]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be written: {error.strerror}"]) from error


def _config(path: Path) -> str:
    return "" if path == Path("clarify.toml") else f" --config {path}"


async def _guided(path: Path, choices: Choices) -> None:
    """Ask for tokens, channels and the person on call, write the file, and check it."""
    from bot.settings.load import parse_settings, read_environment, slack_api_url

    environ = dict(read_environment())
    api_url = slack_api_url(environ)
    typed = await _tokens(environ, api_url)
    slack = _Slack(api_url, environ["SLACK_BOT_TOKEN"])
    channels = await _until_invited(slack)
    channel = choices.channel or _choose("Channel for the agents' questions", channels)
    fallback = choices.fallback or _choose(
        "Fallback channel, where a question goes if its own channel fails",
        channels,
        first=next((each for each in channels if each != channel), channel),
    )
    on_call = choices.on_call or await _on_call(slack, channel)
    text = filled(Choices(channel, fallback, on_call))
    settings = parse_settings(text, file=path, environ=environ)
    _write(path, text)
    print(f"Wrote {path}.")
    exported = _kept(path, typed)
    passed = await _checked(settings, Output(json=False))
    print("Next:")
    for command in (*exported, f"clarify {'run' if passed else 'check'}{_config(path)}"):
        print(f"  {command}")
    if not passed:
        raise typer.Exit(1)


def check(out: Output, config: Path | None) -> None:
    """Validate the configuration.

    Raises:
        ConfigurationError: the file cannot be used. typer.Exit: a check failed.
    """
    from bot.settings.load import load_settings, read_environment

    settings = load_settings(config, read_environment())
    if not asyncio.run(_checked(settings, out)):
        raise typer.Exit(1)


async def _checked(settings: Settings, out: Output) -> bool:
    """Prints each result as soon as it is known, since the network may be slow; returns whether all is well."""
    from bot.check import check_all
    from bot.checks import summary

    seen = []
    async for result in check_all(settings):
        seen.append(result)
        for line in () if out.json else result.lines:
            out.line(line)
    passed = all(each.ok for each in seen)
    out.show({"ok": passed, "checks": [each.json for each in seen]}, summary(seen))
    return passed


async def _tokens(environ: dict[str, str], api_url: str) -> dict[str, str]:
    """Take the tokens from the environment, or ask until Slack accepts them. Returns the typed ones."""
    from pydantic import SecretStr

    from bot.people.check import check_app_token, check_bot_token, slack_client

    if not environ.get("SLACK_BOT_TOKEN"):
        print("Create the Slack app with this link, install it, and copy its tokens here:")
        print(f"  {link(manifest(None))}")
    typed: dict[str, str] = {}
    for variable, (about, prefix) in _VARIABLES.items():
        value = environ.get(variable, "").strip()
        while True:
            if not value:
                value = typer.prompt(about, hide_input=True).strip()
                typed[variable] = value
            if not value.startswith(prefix):
                print(f"✗ {variable} must begin with {prefix}")
                value = ""
                continue
            client = slack_client(api_url, SecretStr(value))
            is_bot = variable == "SLACK_BOT_TOKEN"
            results = (
                (await check_bot_token(client, email=True))[0] if is_bot else [await check_app_token(client)]
            )
            for line in (line for result in results for line in result.lines):
                print(line)
            if all(result.ok for result in results):
                break
            value = ""
        environ[variable] = value
    return typed


class _Slack:
    """The Slack calls of `init`."""

    def __init__(self, api_url: str, token: str) -> None:
        from pydantic import SecretStr

        from bot.people.check import slack_client

        self._client = slack_client(api_url, SecretStr(token))

    async def all(self, method: str, key: str, **arguments: Any) -> list[Any]:
        """Returns every page of a list."""
        found: list[Any] = []
        cursor = ""
        while True:
            body = await self.call(method, **arguments, limit=200, cursor=cursor)
            found += body[key]
            cursor = str((body.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                return found

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Calls Slack. Raises SlackError if Slack refuses or cannot be reached."""
        from bot.slackapi import ask

        answer = await ask(method, lambda: self._client.api_call(method, params=arguments))
        return answer.data if isinstance(answer.data, Mapping) else {}


async def _until_invited(slack: _Slack) -> dict[str, str]:
    """Returns the bot's channels, by id; asks the person to invite it while there are none."""
    while True:
        found = await slack.all(
            "users.conversations",
            "channels",
            types="public_channel,private_channel",
            exclude_archived="true",
        )
        if found:
            return {str(each["id"]): f"#{each.get('name', '?')}" for each in found}
        typer.prompt(
            "The bot is in no channel yet. In Slack, open the channel for your agents' questions and send "
            "/invite @clarify, then press Enter here",
            default="",
            show_default=False,
        )


def _choose(about: str, options: Mapping[str, str], *, first: str | None = None) -> str:
    """Returns the option that the person at the terminal picks by number, name or id."""
    print(f"{about}:")
    for number, name in enumerate(options.values(), 1):
        print(f"  {number}. {name}")
    default = list(options).index(first) + 1 if first else 1
    while True:
        given = str(typer.prompt("Number", default=str(default)))
        if (found := _picked(given, options)) is not None:
            return found
        print(f'✗ "{given}" is not in the list')


def _picked(given: str, options: Mapping[str, str]) -> str | None:
    """Returns the option with this number, name or id."""
    given = given.strip()
    if given.isdecimal() and 1 <= int(given) <= len(options):
        return list(options)[int(given) - 1]
    return next((id_ for id_, name in options.items() if given in {id_, name, name.lstrip("#@")}), None)


async def _on_call(slack: _Slack, channel: str) -> list[str]:
    """Returns whom to page: people of the channel, or others by e-mail address or id, or a user group."""
    people = await _people(slack, channel)
    print("Who is on call?")
    for number, name in enumerate(people.values(), 1):
        print(f"  {number}. {name}")
    about = "Numbers with commas, e-mail addresses, or ids (U…; S… for a user group)"
    while True:
        found: list[str] = []
        for given in re.split(r"[,\s]+", str(typer.prompt(about, default="1" if people else None)).strip()):
            if (person := _picked(given, people) or await _known(slack, given)) is None:
                print(f'✗ "{given}": there is no such person')
                break
            found.append(person)
        else:
            if len(found) > 1 and any(each.startswith("S") for each in found):
                print("✗ Give people or one user group, not both")
                continue
            return list(dict.fromkeys(found))


async def _people(slack: _Slack, channel: str) -> dict[str, str]:
    """Returns the first full members of the channel, by id."""
    from bot.errors import SlackError

    found: dict[str, str] = {}
    for user_id in await slack.all("conversations.members", "members", channel=channel):
        if len(found) == _SHOWN:
            break
        try:
            user = (await slack.call("users.info", user=user_id))["user"]
        except SlackError:
            continue  # the app cannot page a user that Slack hides from it
        left_out = ("deleted", "is_bot", "is_restricted", "is_ultra_restricted", "is_stranger")
        if not any(user.get(each) for each in left_out):
            profile = user.get("profile") or {}
            found[user_id] = f"{profile.get('real_name') or user.get('name', '?')} ({user_id})"
    return found


async def _known(slack: _Slack, given: str) -> str | None:
    """Returns the id of a person or user group, by id or e-mail address, if Slack knows it."""
    from bot.errors import SlackRefusedError

    try:
        if "@" in given.strip("@"):
            return str((await slack.call("users.lookupByEmail", email=given))["user"]["id"])
        if re.fullmatch(r"[UW][A-Z0-9]+", given):
            return str((await slack.call("users.info", user=given))["user"]["id"])
        if re.fullmatch(r"S[A-Z0-9]+", given):
            await slack.call("usergroups.users.list", usergroup=given)
            return given
    except SlackRefusedError:
        pass
    return None


def _kept(path: Path, typed: Mapping[str, str]) -> list[str]:
    """Offers to store the typed tokens in a file; returns the commands that load them into the environment.

    The bot takes secrets from the environment only.
    """
    if not typed:
        return []
    file = path.with_name("clarify.env")
    if file.exists() or not typer.confirm(f"Save the tokens to {file}, readable only by you?", default=True):
        return [f"export {variable}=…" for variable in typed]
    _write(file, "".join(f"{variable}={value}\n" for variable, value in typed.items()), secret=True)
    print(f"Wrote {file}. Keep it out of version control.")
    return [f"set -a; . ./{file}; set +a" if not file.is_absolute() else f"set -a; . {file}; set +a"]
