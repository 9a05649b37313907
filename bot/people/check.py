"""Checks of Slack for `clarify check` and `clarify init`: the tokens, the channels and people that the file names, and a sample of
every kind of message and window, made by the views themselves, for Slack to judge.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.checks import CheckResult, clock, right, warning, wrong
from bot.errors import SlackError, SlackRefusedError
from bot.people.access import MEMBERS, check_answerers, count_answerers
from bot.people.directory import Installation, People, Profile
from bot.settings.load import SLACK_API_URL, Place, dotted, located
from bot.settings.model import ProducerSettings, RouteSettings, Settings, parse_target
from bot.slackapi import SlackBusyError, ask
from bot.views import forms
from bot.views.blockkit import Draft, View, classic
from bot.views.card import card
from bot.views.codec import PagePress
from bot.views.lists import (
    Chosen,
    DutyLine,
    Offer,
    QuestionRow,
    decision_row,
    home,
    listing,
    past_row,
    rollup,
    rollup_modal,
    row,
    search_modal,
    which_question,
)
from bot.views.notices import (
    Handoff,
    ToolLine,
    handoff_card,
    nudge,
    nudge_over,
    storage_began,
    taken_over,
    tools_notice,
)
from bot.views.page import PageContent, PageItem, ShiftBegins, ShiftEnds, page_card, shift_card
from bot.views.render import Renderer
from bot.views.verify import Proof, verify_view
from core.clarification import Answer, Clarification, Decider, one_line
from core.index import AgentNode, ReadyItem
from core.questions import NewQuestion, ask_of
from core.receipts import Checked, claims_of
from core.summary import Decided, DecidedBy, PastDecision, page_of
from core.transitions import amended, answered, opened

_T = TypeVar("_T")
NEEDED_SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "groups:history",
        "groups:read",
        "im:history",
        "im:write",
        "usergroups:read",
        "users:read",
    }
)
EMAIL_SCOPE = "users:read.email"
_TRIES = 3
_LONGEST_WAIT = 30.0
_SIGNING_SECRET = re.compile(r"[0-9a-f]{32}")
_REQUEST_URL = (
    "Slack must reach {listen} as https://YOUR-HOST/slack/events, with Socket Mode off. While the bot runs, set that URL for "
    "event subscriptions, interactivity and /clarify"
)
_FIXES = {
    "invalid_auth": "copy the token from the app's page: Install App, or App-Level Tokens",
    "not_authed": "copy the token from the app's page: Install App, or App-Level Tokens",
    "account_inactive": "reinstall the app: its token was revoked",
    "token_revoked": "reinstall the app: its token was revoked",
    "missing_scope": "add the scope named above and reinstall the app",
    "channel_not_found": "check the id; for a private channel, run /invite @clarify in it first",
    "user_not_found": "check the id; Slack does not show this person to the app",
    "user_not_visible": "check the id; Slack does not show this person to the app",
    "no_such_subteam": "check the id; a disabled group must be enabled again",
    "subteam_not_found": "check the id; a disabled group must be enabled again",
    "not_allowed_token_type": "SLACK_BOT_TOKEN begins with xoxb-, SLACK_APP_TOKEN with xapp-",
    "ratelimited": "try again in a minute",
}
_SCOPES = "SLACK_BOT_TOKEN scopes"
_LAYOUTS = "messages and windows"
_REFUSALS, _REFUSED_MOST = 3, 500


async def check_slack(settings: Settings) -> AsyncIterator[CheckResult]:
    """Check the tokens, channels and people; stops if Slack cannot be asked any more."""
    bot = slack_client(settings.slack_api_url, settings.bot_token)
    email = settings.slack.identity == "email" or any(each.source is not None for each in settings.on_call)
    email = email or any("@" in (each.requested_by or "") for each in settings.producers)
    # Two accounts of one person are told by their address.
    email = email or any(each.approvals.most > 1 or each.four_eyes is not None for each in settings.routes)
    results, home = await check_bot_token(bot, email=email)
    for result in results:
        yield result
    if home is None:
        return
    if (token := settings.app_token) is not None:
        yield await check_app_token(slack_client(settings.slack_api_url, token))
    if settings.slack.mode == "http" and settings.signing_secret is not None:
        yield _signing_secret(settings, settings.signing_secret)
        yield right("slack.mode", _REQUEST_URL.format(listen=settings.http.listen))
    lacks_scopes = any(result.subject == _SCOPES and not result.ok for result in results)
    async for result in _places_and_people(settings, bot, home, scopes_reported=lacks_scopes):
        yield result
    if (limited := await _history(settings, bot)) is not None:
        yield limited
    async for result in check_layouts(bot):
        yield result


async def check_bot_token(
    bot: AsyncWebClient, *, email: bool
) -> tuple[Sequence[CheckResult], Installation | None]:
    """Checks the bot token, its scopes and Slack's clock. Returns the results, and where the app is installed; None if the
    token does not work. `email`: whether the bot finds people by e-mail address, which needs another scope.
    """
    try:
        me = await _call(bot, "auth.test")
    except SlackError as error:
        return [_refused("SLACK_BOT_TOKEN", error)], None
    home, headers = Installation.of(_body(me)), _headers(me)
    where = f"{me.get('team')}{', all of its workspaces' if home.is_organization else ''}"
    results = [right("SLACK_BOT_TOKEN", f"works: @{me.get('user')} in {where}")]
    results.append(_scopes(headers.get("x-oauth-scopes"), email=email))
    if skew := clock("Slack's clock", headers.get("date")):
        results.append(skew)
    return results, home


async def check_app_token(app: AsyncWebClient) -> CheckResult:
    try:
        await _call(app, "apps.connections.open")
    except SlackError as error:
        return _refused("SLACK_APP_TOKEN", error)
    return right("SLACK_APP_TOKEN", "works: Socket Mode can connect")


def _signing_secret(settings: Settings, secret: SecretStr) -> CheckResult:
    """Checks the format only: Slack's first request proves the secret. Catches tokens pasted here by mistake."""
    subject, value = "SLACK_SIGNING_SECRET", secret.get_secret_value()
    if settings.slack_api_url == SLACK_API_URL and not _SIGNING_SECRET.fullmatch(value):
        fix = "copy the Signing Secret from Basic Information → App Credentials"
        return wrong(subject, "is not 32 hexadecimal digits, as Slack's are", fix)
    return right(subject, "is set; Slack's first request will prove it")


async def _places_and_people(
    settings: Settings, bot: AsyncWebClient, home: Installation, *, scopes_reported: bool
) -> AsyncIterator[CheckResult]:
    """Check each channel, person and group. Asks Slack once per id, and reports each problem once, with all the keys that
    name the id; problems that follow from a missing scope, which was reported, are left out.
    """
    named, people = _names(settings), People(bot)
    known: dict[str, CheckResult] = {}
    for place, name in named:
        if name not in known:
            refused: SlackError | None = None
            try:
                known[name] = await _check_one(bot, people, dotted(place), name)
            except SlackError as error:
                refused, known[name] = error, _refused(dotted(place), error, name)
            follows = scopes_reported and getattr(refused, "code", None) == "missing_scope"
            if not known[name].ok and not follows:
                yield located(settings, known[name], name, [each for each, other in named if other == name])
            if refused is not None and not isinstance(refused, (SlackRefusedError, SlackBusyError)):
                return
        if known[name].ok:
            yield known[name]._replace(subject=dotted(place))
    usable = {name for name, found in known.items() if found.ok}
    async for each in check_answerers(settings, people, home):
        if not each.can_answer and MEMBERS in each.answerers and each.channel in usable:
            text = each.refused.get(MEMBERS, each.no_answerer)
            fix = "invite people to the channel, or name users (U…) or user groups (S…)"
            yield located(settings, wrong(dotted(each.place), text, fix), MEMBERS, [each.place])
    async for result in _quorums(settings, people, home):
        yield result


async def _quorums(settings: Settings, people: People, home: Installation) -> AsyncIterator[CheckResult]:
    """Check that each route has enough people for its approvals."""
    for index, route in enumerate(settings.routes):
        async for result in _four_eyes(settings, people, home, index):
            yield result
        most = route.approvals.most
        if most == 1:
            continue
        place: Place = ("routes", index, "approvals")
        try:
            may = await _patiently(partial(count_answerers, route, settings, people, home, most))
        except SlackError:
            continue  # reported already
        if may < most:
            text = f"only {may} may answer in {route.channel}, but {most} people must approve"
            fix = "add people to `answerers`, or lower `approvals`; until then these actions can only be rejected"
            yield located(settings, wrong(dotted(place), text, fix), "approvals", [place])
        else:
            yield right(dotted(place), f"at least {most} people may answer in {route.channel}")


async def _four_eyes(
    settings: Settings, people: People, home: Installation, index: int
) -> AsyncIterator[CheckResult]:
    """Check that someone can approve on a route that demands four eyes."""
    route, place = settings.routes[index], ("routes", index, "four_eyes")
    if route.four_eyes is None:
        return
    subject, needed = dotted(place), route.approvals.most
    asks = [each for each in settings.producers if _asks_on(settings, each, route)]
    asking = [each for each in settings.producers if each in asks or _may_ask_on(each, route)]
    unknown = [each.name for each in asks if each.requested_by is None]
    none = all(each.requested_by is None for each in asking)
    if (unknown or none) and not route.four_eyes.claimed:
        who = f"{', '.join(unknown)} may ask here without" if unknown else "no producer that may ask here has"
        fix = "set `requested_by` in [[producers]], or `four_eyes = {claimed = true}`; until then approvals are refused"
        yield located(settings, wrong(subject, f"{who} `requested_by`", fix), "four_eyes", [place])
    for requester in sorted({each.requested_by for each in asking if each.requested_by is not None}):
        count = partial(count_answerers, route, settings, people, home, needed, besides=requester)
        try:
            may = await _patiently(count)
        except SlackError as error:
            yield located(settings, _refused(subject, error, requester), "four_eyes", [place])
            continue
        if may < needed:
            text = f"only {may} may approve what is asked for {requester} in {route.channel}; {needed} must"
            fix = "add people to `answerers`; until then these actions can only be rejected"
            yield located(settings, wrong(subject, text, fix), "four_eyes", [place])
        else:
            yield right(
                subject, f"{needed} or more may approve what is asked for {requester} in {route.channel}"
            )


def _asks_on(settings: Settings, producer: ProducerSettings, route: RouteSettings) -> bool:
    """Returns whether questions of a producer, under its own name or one of its `agents`, go to this route."""
    return any(settings.route_for(each) is route for each in (producer.name, *(producer.agents or ())))


def _may_ask_on(producer: ProducerSettings, route: RouteSettings) -> bool:
    return route.agent is not None and producer.speaker.may_be(route.agent)


async def _check_one(bot: AsyncWebClient, people: People, subject: str, name: str) -> CheckResult:
    """Check a channel, a person or a user group.

    Raises:
        SlackError: Slack does not return it.
    """
    if name[0] in "CG":
        answer = await _call(bot, "conversations.info", {"channel": name})
        return _channel(subject, name, answer["channel"])
    if name[0] == "S":
        count = len(await _patiently(partial(people.group, name)))
        if not count:
            fix = "add people to it, or choose others in clarify.toml"
            return wrong(subject, f"user group {name} has no members", fix)
        return right(subject, f"user group {name} has {count} member{'s' if count > 1 else ''}")
    return _person(subject, await _patiently(partial(people.profile, name)))


async def _history(settings: Settings, bot: AsyncWebClient) -> CheckResult | None:
    """Read a channel twice in a row; returns a hint if Slack limits the app's history calls. The bot works with that limit,
    but catches up slowly.
    """
    place = next((route.channel for route in settings.routes), settings.slack.fallback_channel)
    if place is None or place[0] not in "CG":
        return None
    try:
        for _ in range(2):
            await _call(bot, "conversations.history", {"channel": place, "limit": "1"}, tries=1)
    except SlackBusyError as error:
        seconds = _headers(getattr(error.__cause__, "response", None)).get("retry-after", "")
        again = f" (again in {seconds} s)" if seconds.isdigit() else ""
        text = (
            f"Slack refused a second history call{again}: it seems to allow this app one a minute. "
            "Replies written while the bot is away will be found late"
        )
        fix = (
            "create your own app (`clarify manifest`) instead of one distributed outside Slack's Marketplace"
        )
        return right("history", text, fix)
    except SlackError:
        pass
    return None


async def check_layouts(bot: AsyncWebClient) -> AsyncIterator[CheckResult]:
    """Hand a sample of every kind of message and window to Slack, which judges it without showing it to anyone.

    That says whether Slack knows their blocks, not whether this workspace has them already (docs.slack.dev, blocks.validate).
    """
    every, found = list(samples()), list[CheckResult]()
    try:
        for name, made in every:
            refused = await _refusals(bot, made)
            if not refused:
                continue
            text = f"{name}: Slack refuses it: {refused}"
            if not await _refusals(bot, made | {"blocks": classic(made["blocks"])}):
                fix = "update clarify-bot; until then it is sent in Slack's older blocks"
                found.append(warning(_LAYOUTS, text, fix))
            else:
                found.append(wrong(_LAYOUTS, text, "update clarify-bot, or report this"))
    except SlackError as error:
        code = getattr(error, "code", None)
        why = "Slack does not offer blocks.validate" if code == "unknown_method" else str(error)
        found.append(right(_LAYOUTS, f"could not be checked: {why}"))
    for result in found or [right(_LAYOUTS, f"Slack accepts a sample of each of {len(every)} kinds")]:
        yield result


async def _refusals(bot: AsyncWebClient, made: Mapping[str, Any]) -> str:
    """Returns what Slack says is wrong with a message's blocks or a view, and where; empty if nothing.

    Raises:
        SlackError: Slack cannot judge it.
    """
    kind = "view" if "type" in made else "message"
    try:
        await _call(bot, "blocks.validate", {kind: json.dumps(made)})
    except SlackRefusedError as error:
        if error.code != f"invalid_{kind}":
            raise
        errors = _body(getattr(error.__cause__, "response", None)).get("errors")
        told = [each for each in errors if isinstance(each, Mapping)] if isinstance(errors, list) else []
        shown = [f"{each.get('message')} at {each.get('pointer')}" for each in told[:_REFUSALS]]
        return one_line("; ".join(shown) or error.code, _REFUSED_MOST)
    return ""


def _names(settings: Settings) -> list[tuple[Place, str]]:
    """Returns every Slack id in the file, with its key."""
    named: list[tuple[Place, str]] = []
    if settings.slack.fallback_channel is not None:
        named.append((("slack", "fallback_channel"), settings.slack.fallback_channel))
    named += settings.channels_of_integrations
    for index, producer in enumerate(settings.producers):
        if producer.requested_by is not None and "@" not in producer.requested_by:
            named.append((("producers", index, "requested_by"), producer.requested_by))
    for index, route in enumerate(settings.routes):
        named.append((("routes", index, "channel"), route.channel))
        people = (*route.answerer_users, *route.answerer_groups)
        named += [(("routes", index, "answerers"), name) for name in people]
    for role, responder in settings.responders.items():
        named += [(("responders", role, "people"), name) for name in responder.people or ()]
    for index, on_call in enumerate(settings.on_call):
        key = ("rotation", "users") if on_call.rotation else ("users",)
        named += [(("on_call", index, *key), name) for name in on_call.named_users]
        named += [(("on_call", index, "people"), name) for name in on_call.people.values()]
        if on_call.group is not None:
            named.append((("on_call", index, "group"), on_call.group))
        targets = [parse_target(target) for step in on_call.steps for target in step.notify]
        named += [
            (("on_call", index, "steps"), name) for kind, name in targets if kind in {"channel", "group"}
        ]
    return named


def slack_client(api_url: str, token: SecretStr) -> AsyncWebClient:
    return AsyncWebClient(token=token.get_secret_value(), base_url=api_url, timeout=10, retry_handlers=[])


async def _call(
    client: AsyncWebClient, method: str, arguments: Mapping[str, str] | None = None, tries: int = _TRIES
) -> AsyncSlackResponse:
    call = partial(client.api_call, method, data=dict(arguments or {}))
    return await _patiently(partial(ask, method, call), tries)


async def _patiently(call: Callable[[], Awaitable[_T]], tries: int = _TRIES) -> _T:
    """Retries while Slack is too busy, after the time that it asks for, up to half a minute."""
    while True:
        try:
            return await call()
        except SlackBusyError as error:
            tries -= 1
            if not tries:
                raise
            await asyncio.sleep(min(error.after, _LONGEST_WAIT))


def _body(answer: object) -> Mapping[str, Any]:
    data = getattr(answer, "data", None)
    return data if isinstance(data, Mapping) else {}


def _headers(answer: object) -> Mapping[str, str]:
    """Returns the headers of Slack's response, with names in lower case."""
    return {name.lower(): value for name, value in dict(getattr(answer, "headers", None) or {}).items()}


def _scopes(header: str | None, *, email: bool) -> CheckResult:
    """Compare the `x-oauth-scopes` header of a response with what the bot needs."""
    needed = NEEDED_SCOPES | ({EMAIL_SCOPE} if email else frozenset())
    given = {scope.strip() for scope in (header or "").split(",")}
    missing = sorted(needed - given)
    if missing:
        fix = "add them (OAuth & Permissions, or paste what `clarify manifest` prints) and reinstall the app"
        return wrong(_SCOPES, f"missing: {', '.join(missing)}", fix)
    return right(_SCOPES, f"all {len(needed)} required")


def _channel(subject: str, channel_id: str, found: Mapping[str, Any]) -> CheckResult:
    called = f"#{found.get('name', '?')}"
    name = f"{channel_id} ({called})"
    if found.get("is_archived"):
        return wrong(subject, f"{name} is archived", "unarchive it, or choose another channel")
    if not found.get("is_member"):
        return wrong(subject, f"the bot is not in {name}", f"invite it: /invite @clarify in {called}")
    return right(subject, f"{name}, and the bot is in it")


def _person(subject: str, profile: Profile) -> CheckResult:
    name = f"{profile.id} ({profile.names[-1] if profile.names else profile.name})"
    if profile.is_deleted:
        return wrong(subject, f"{name} is deactivated", "choose someone else in clarify.toml")
    if profile.is_bot:
        return wrong(subject, f"{name} is a bot", "choose a person in clarify.toml")
    return right(subject, f"{name} is there")


def _refused(subject: str, error: SlackError, name: str = "") -> CheckResult:
    code = "ratelimited" if isinstance(error, SlackBusyError) else getattr(error, "code", None)
    if code is None:
        cause: Any = error.__cause__  # aiohttp's error of a connection names the address
        at = f" at {cause.host}:{cause.port}" if hasattr(cause, "host") else ""
        text = f"Slack{at} cannot be reached: {str(error).partition(': ')[2]}"
        return wrong(subject, text, "check the network, SLACK_API_URL, and https://slack-status.com")
    needs = _body(getattr(error.__cause__, "response", None)).get("needed")
    text = f"{name and f'{name}: '}Slack says {code}{f' (needs {needs})' if needs else ''}"
    return wrong(subject, text, _FIXES.get(code, f"see https://docs.slack.dev/reference/methods for {code}"))


_AT = datetime(2026, 6, 16, 9, 30, tzinfo=UTC)
_LATER = _AT + timedelta(minutes=20)
_USER, _OTHER = "U0SAMPLE1", "U0SAMPLE2"
_LINK = "https://example.slack.com/archives/C0SAMPLE/p1781602200000000"
_MARKDOWN = """Tests of **4.1** passed, see `make test` and https://example.com/build/412:

1. unit
   - core
2. *browser*, ~~twice~~

> No other deployment is running.

| Service | Errors |
| --- | ---: |
| checkout | 12 |

```sql
select count(*) from orders;
```
"""
_ASKED: dict[str, dict[str, Any]] = {
    "question": {"question": "Start the release of `4.1`?", "context": _MARKDOWN, "default": "no"},
    "choices": {"question": "Where should it go first?", "choices": ["Staging", "Canary"], "other": True},
    "approval": {
        "action": "Email 12,040 customers",
        "consequence": "Mail cannot be called back.",
        "risk": "high",
        "irreversible": True,
        "editable": True,
        "approvals": 2,
        "arguments": {
            "list": "customers",
            "subject": "News in 4.1",
            "recipients": 12040,
            "body": "Hello. " * 900,
        },
    },
    "form": {
        "question": "How should it be rolled out?",
        "schema": {
            "type": "object",
            "properties": {
                "percent": {"type": "integer", "minimum": 1, "maximum": 100},
                "when": {"type": "string", "format": "date"},
                "region": {"type": "string", "enum": ["eu", "us"]},
                "notify": {"type": "boolean"},
            },
        },
    },
}


def samples(installation: str = "sample") -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns what each is called, and a message's `blocks` or a whole view, as they are sent to Slack."""
    renderer = Renderer(installation)
    for name, draft in _messages():
        yield name, {"blocks": renderer.message(draft).blocks}
    for name, view in _views():
        yield name, renderer.view(view)


def _record(name: str, seq: int = 1) -> Clarification:
    question = NewQuestion.model_validate(_ASKED[name])
    ask = ask_of(
        question, producer="sample", token=f"sample-{name}", at=_AT, expires_at=_AT + timedelta(hours=4)
    )
    return opened(1, seq, ask, _AT, timedelta(minutes=30))


def _answered() -> Clarification:
    decider = Decider(f"user:slack/T0SAMPLE/{_USER}", "slack", "T0SAMPLE", _USER)
    done = answered(_record("question"), Answer("yes", "Yes"), decider, _LATER)
    return amended(done, receipt="e30.e30.e30")


def _item(number: int = 1, record: Clarification | None = None) -> PageItem:
    item = PageItem(number, "escalated", "Deployer is waiting", "No answer in time", since=_AT)
    return item if record is None else item.with_question(record, _LINK)


def _messages() -> Iterator[tuple[str, Draft]]:
    records = [_record(name, seq) for seq, name in enumerate(_ASKED, 1)]
    for name, record in zip(_ASKED, records, strict=True):
        yield f"card ({name})", card(record)
    question, decided = records[0], _answered()
    yield "card (decided)", card(decided)
    yield "card (shared)", rollup(records, 9, _LATER, "Deployer")
    yield "page", page_card(PageContent(1, _LATER, (_item(1, question),), 1, 1, mentions=(_USER,)))
    yield "page (several)", page_card(PageContent(1, _LATER, (_item(1, question), _item(2)), 2, 2))
    yield "reminder", nudge(question, (_USER,))
    yield "reminder (over)", nudge_over(decided, None)
    yield "notice", storage_began("clarify.db", 2)
    yield "notice (claimed by another)", taken_over(question, _OTHER, _LINK)
    yield "handoff", handoff_card(Handoff("Deployer", "s1", "I have no access", "human"), _item(), (_USER,))
    yield "tools", tools_notice([ToolLine("deploy", "error", "no disk", 4200), ToolLine("build", "success")])
    turn = ShiftBegins("default", _LATER, (_OTHER,), (), None, (_item(1, question),), 1, ())
    yield "shift", shift_card([turn], [ShiftEnds("billing", (_OTHER,), ("CLR-1-001",))], _AT)
    rows = [row(each, Offer(answer=True, take=True, link=_LINK), n) for n, each in enumerate(records)]
    yield "list", listing("Open questions", page_of(rows, 1, 3), query="mine")
    yield "list (which question)", which_question(records, "1")
    yield "list (decisions)", _found()


def _found() -> Draft:
    by = (DecidedBy("Ade", _USER),)
    past = PastDecision("CLR-1-001", _AT, "deployer", "answered", "Start?", "Yes", None, by)
    return listing("Decisions", page_of([decision_row(past_row(past), _LINK)], 1, 5), query="find start")


def _views() -> Iterator[tuple[str, View]]:
    records = {name: _record(name, seq) for seq, name in enumerate(_ASKED, 1)}
    for name, record in records.items():
        yield f"window (answer, {name})", forms.answer_modal(record)
    question, approval, decided = records["question"], records["approval"], _answered()
    yield "window (accept)", forms.accept_modal(approval)
    yield "window (full text)", forms.full_view(decided)
    yield "window (full text of an approval)", forms.full_view(approval)
    checked = Checked(None, "sample", claims_of(decided, "urn:clarify:sample"))
    yield "window (verify)", verify_view(decided, 1, Proof(checked, (1, 2)))
    yield "window (hand over)", forms.hand_modal(PagePress("hand", 1, 1), "CLR-1-001")
    yield "window (message)", forms.message_modal("Not recorded", "Answer it on its card.")
    yield "window (open questions)", rollup_modal(page_of(list(records.values()), 1, 3))
    yield "window (decisions)", search_modal(_found())
    agent = AgentNode("deployer", "Deployer", "working", (), (), (1,), _AT)
    ready = ReadyItem("deployer", "Deployer", "sample", "s1", 1, (), None, _AT)
    past = QuestionRow(
        "CLR-1-001", "Deployer", "Start?", _AT, Decided("answered", (DecidedBy("Ade", _USER),), "Yes")
    )
    yield (
        "Home tab",
        home(
            Chosen(
                _USER,
                inbox=page_of([question, approval], 1, 5),
                taken=page_of([], 1, 5),
                agents=page_of([agent], 1, 5),
                ready=page_of([ready], 1, 5),
                duty=page_of([DutyLine("default", (_USER,), "calendar", _LATER)], 1, 5),
                answers=page_of([past], 1, 5),
            )
        ),
    )
