"""Asks Slack what `clarify check` wants to know, with the client that the bot uses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import aiohttp
from pydantic import SecretStr
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.check import findings
from bot.check.findings import Finding, right, wrong
from bot.people import MEMBERS, NO_GROUP, Installation, NobodyCouldAnswer, People, check_answerers
from bot.settings.environment import SLACK_API_URL
from bot.settings.model import Settings
from bot.settings.problems import Place, dotted, line_of

_TRIES = 3
_LONGEST_WAIT = 30.0
_SIGNING_SECRET = re.compile(r"[0-9a-f]{32}")
_REQUEST_URL = (
    "Slack has to reach {listen} as https://YOUR-HOST/slack/events, with Socket Mode off: set that as the request URL of "
    "event subscriptions, of interactivity and of /clarify while the bot runs"
)


class Answer(NamedTuple):
    """Slack's answer: its JSON (`ok` false and an `error` also where none came), its headers in lower case."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]


async def probe(settings: Settings) -> AsyncIterator[Finding]:
    """Yield what is right and wrong with the tokens, channels and people; stops where nothing more can be asked."""
    bot = _client(settings, settings.secrets.bot_token)
    answer = await _call(bot, "auth.test")
    if not answer.body.get("ok"):
        yield findings.refused("SLACK_BOT_TOKEN", answer.body)
        return
    home = Installation.of(answer.body)
    where = f"{answer.body.get('team')}{', all of its workspaces' if home.is_organization else ''}"
    yield right("SLACK_BOT_TOKEN", f"works: @{answer.body.get('user')} in {where}")
    scopes = findings.scopes(answer.headers.get("x-oauth-scopes"), email=settings.slack.identity == "email")
    yield scopes
    if skew := findings.clock("Slack's clock", answer.headers.get("date"), datetime.now(UTC)):
        yield skew
    if settings.secrets.app_token is not None:
        yield await _app_token(settings, settings.secrets.app_token)
    if settings.slack.mode == "http" and settings.secrets.signing_secret is not None:
        yield _signing_secret(settings, settings.secrets.signing_secret)
        yield right("slack.mode", _REQUEST_URL.format(listen=settings.http.listen))
    async for finding in _places_and_people(settings, bot, home, scopes_told=not scopes.ok):
        yield finding
    if (limited := await _history(settings, bot)) is not None:
        yield limited


async def _app_token(settings: Settings, token: SecretStr) -> Finding:
    answer = await _call(_client(settings, token), "apps.connections.open")
    if not answer.body.get("ok"):
        return findings.refused("SLACK_APP_TOKEN", answer.body)
    return right("SLACK_APP_TOKEN", "works: Socket Mode can connect")


def _signing_secret(settings: Settings, secret: SecretStr) -> Finding:
    """Nothing to ask Slack: only its requests prove it. But other apps' secrets and tokens are often pasted here."""
    subject, value = "SLACK_SIGNING_SECRET", secret.get_secret_value()
    if settings.slack_api_url == SLACK_API_URL and not _SIGNING_SECRET.fullmatch(value):
        mend = "copy the Signing Secret from Basic Information → App Credentials"
        return wrong(subject, "is not 32 hexadecimal digits, as Slack's are", mend)
    return right(subject, "is there; Slack's first request proves it")


async def _places_and_people(
    settings: Settings, bot: AsyncWebClient, home: Installation, *, scopes_told: bool
) -> AsyncIterator[Finding]:
    """Look at each channel, person and group; Slack is asked once per id, and what is wrong with it told once, with
    all the keys that name it. What follows from something told before, a missing scope, is not told again.
    """
    named = _named(settings)
    known: dict[str, Finding] = {}
    for place, name in named:
        if name not in known:
            answer = await _ask_about(bot, name)
            found = known[name] = _judge(dotted(place), name, answer)
            follows = scopes_told and answer.get("error") == "missing_scope"
            if not found.ok and not follows:
                yield _located(settings, found, name, [each for each, other in named if other == name])
            if answer.get("error") == "unreachable":
                return
        if known[name].ok:
            yield known[name]._replace(subject=dotted(place))
    usable = {name for name, found in known.items() if found.ok}
    for place, answerers, channel in _lists(settings):
        if channel in usable and usable.isdisjoint(answerers) and MEMBERS in answerers:
            try:
                await check_answerers((MEMBERS,), channel, People(bot), home)
            except NobodyCouldAnswer as error:
                mend = "invite people to the channel, or name users (U…) or user groups (S…)"
                finding = wrong(dotted(place), "; ".join(error.problems), mend)
                yield _located(settings, finding, MEMBERS, [place])


def _lists(settings: Settings) -> Iterator[tuple[Place, tuple[str, ...], str | None]]:
    """Who may answer where: the key, whom it names, the channel."""
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "answerers"), route.answerers, route.channel
    for role, responder in settings.responders.items():
        if responder.kind == "people":
            yield ("responders", role, "people"), responder.answerers, responder.channel


async def _ask_about(bot: AsyncWebClient, name: str) -> Mapping[str, Any]:
    if name[0] in "CG":
        return (await _call(bot, "conversations.info", {"channel": name})).body
    if name[0] != "S":
        return (await _call(bot, "users.info", {"user": name})).body
    method = "usergroups.users.list"
    body = (await _call(bot, method, {"usergroup": name})).body
    if body.get("error") == "missing_argument":
        # The app is installed for an organization: Slack wants to know of which workspace.
        teams = (await _call(bot, "auth.teams.list")).body.get("teams") or ()
        for team in teams:
            body = (await _call(bot, method, {"usergroup": name, "team_id": str(team["id"])})).body
            if body.get("error") not in NO_GROUP:
                break
    return body


def _judge(subject: str, name: str, answer: Mapping[str, Any]) -> Finding:
    judge = {"C": findings.channel, "G": findings.channel, "S": findings.group}.get(name[0], findings.person)
    return judge(subject, name, answer)


def _located(settings: Settings, finding: Finding, name: str, places: Sequence[Place]) -> Finding:
    """Say in which line it stands, and which other keys name the same."""
    lines = {place: line_of(settings.source, place, name) for place in places}
    first, *others = lines
    text = finding.text
    if others:
        text += f" (also {', '.join(f'{dotted(each)} in line {lines[each]}' for each in others)})"
    line = f"{settings.file.name}:{lines[first]}" if lines[first] is not None else ""
    return finding._replace(text=text, line=line)


async def _history(settings: Settings, bot: AsyncWebClient) -> Finding | None:
    """Read a channel twice in a row: who is refused seems to be limited. None where there is nothing to say."""
    place = next((route.channel for route in settings.routes), settings.slack.fallback_channel)
    if place is None or place[0] not in "CG":
        return None
    for _ in range(2):
        answer = await _call(bot, "conversations.history", {"channel": place, "limit": "1"}, tries=1)
        if answer.body.get("error") == "ratelimited":
            return findings.history(answer.headers.get("retry-after"))
        if not answer.body.get("ok"):
            return None
    return None


def _named(settings: Settings) -> list[tuple[Place, str]]:
    """List what the file names in Slack: (key, id)."""
    named: list[tuple[Place, str]] = []
    if settings.slack.fallback_channel is not None:
        named.append((("slack", "fallback_channel"), settings.slack.fallback_channel))
    for index, route in enumerate(settings.routes):
        named.append((("routes", index, "channel"), route.channel))
        people = (*route.answerer_users, *route.answerer_groups)
        named += [(("routes", index, "answerers"), name) for name in people]
    for role, responder in settings.responders.items():
        named += [(("responders", role, "people"), name) for name in responder.people or ()]
    for index, on_call in enumerate(settings.on_call):
        key = ("rotation", "users") if on_call.rotation else ("users",)
        named += [(("on_call", index, *key), name) for name in on_call.named_users]
        if on_call.group is not None:
            named.append((("on_call", index, "group"), on_call.group))
        targets = [target.partition(":") for step in on_call.steps for target in step.notify]
        named += [
            (("on_call", index, "steps"), name) for kind, _, name in targets if kind in {"channel", "group"}
        ]
    return named


def _client(settings: Settings, token: SecretStr) -> AsyncWebClient:
    return AsyncWebClient(
        token=token.get_secret_value(), base_url=settings.slack_api_url, timeout=10, retry_handlers=[]
    )


async def _call(
    client: AsyncWebClient, method: str, arguments: Mapping[str, str] | None = None, tries: int = _TRIES
) -> Answer:
    """Call a method; waits as long as Slack asks when it is too busy, up to half a minute."""
    for left in reversed(range(tries)):
        try:
            response = await client.api_call(method, params=dict(arguments or {}))
        except SlackApiError as error:
            response = error.response
        except (aiohttp.ClientError, SlackClientError, TimeoutError, OSError) as error:
            return Answer({"ok": False, "error": "unreachable", "reason": type(error).__name__}, {})
        answer = _answer(response)
        if answer.body.get("error") != "ratelimited" or not left:
            break
        await asyncio.sleep(_wait(answer.headers.get("retry-after")))
    return answer


def _answer(response: AsyncSlackResponse) -> Answer:
    body = response.data if isinstance(response.data, Mapping) else {}
    if not body:
        body = {"ok": False, "error": "unreachable", "reason": f"HTTP {response.status_code} without JSON"}
    if response.status_code == 429:
        body = {"ok": False, "error": "ratelimited"}
    return Answer(body, {name.lower(): value for name, value in dict(response.headers).items()})


def _wait(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or 1), 0.1), _LONGEST_WAIT)
    except ValueError:
        return 1.0
