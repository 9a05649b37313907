"""Finds out who somebody in Slack is, whether they may answer, and under which name their answer goes to an agent.

`People` asks Slack and keeps what it says for a few minutes; `may_answer` decides from such facts (pure); `AccessControl`
joins both for the configured routes. Slack waits three seconds for an acknowledgement, so all look-ups of one
interaction share a budget (`lookup_budget`): with what a ledger's lock needs it is below those three. Where it does not
suffice nothing is recorded, and the person is told so.

`answerers` of a route: "members" are the full members of this workspace who are in the channel; U… is that
person, also a guest; S… are the members of that user group. Guests, external people, bots and deactivated
users are refused unless their id, or a group that they are in, is listed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import (
    ConfigurationError,
    RepliesUnread,
    SlackError,
    SlackRefusedError,
    SlackUnreachableError,
)
from bot.routing import Audience
from bot.settings.model import PersonalRoute, RouteSettings, Settings
from bot.settings.problems import Place, dotted
from bot.slackapi import SlackBusyError, ask
from bot.views import inert, phrases
from core.clarification import ArgumentsChanged, Clarification, Decider, NotOpen, Superseded
from core.errors import (
    AnswerRejected,
    BadInput,
    LedgerInDoubt,
    LedgersAway,
    LockTimeout,
    NotCounted,
    NotFound,
)

_T = TypeVar("_T")
View = dict[str, Any]
Fact = Literal["user", "channel", "group", "group itself"]
"""Who somebody is, who is in a channel, who is in a user group, whether that is enabled."""
Reason = Literal[
    "deactivated", "bot", "external", "guest", "not in the channel", "not listed", "asked of another"
]
MEMBERS = "members"
PEOPLE_UNKNOWN = "Slack did not say who you are, so nothing was recorded. Please try again in a moment."
LOOK_UPS = 0.8  # seconds: with two for a ledger's lock they leave 0.2 for writing and acknowledging
# users.info errors for people that Slack hides from us, some of other companies (Slack Connect) among them.
UNKNOWN_USER = frozenset({"user_not_found", "users_not_found", "user_not_visible"})
NO_GROUP = frozenset({"no_such_subteam", "subteam_not_found", "subteam_disabled"})
_CHANNEL_GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived", "fetch_members_failed"})
_SAID: tuple[tuple[type[Exception], str, bool], ...] = (
    (ArgumentsChanged, phrases.ARGUMENTS_CHANGED, True),
    (Superseded, phrases.STALE_CARD, True),
    (LedgerInDoubt, phrases.NOT_SURE, True),
    (LedgersAway, phrases.LEDGERS_AWAY, False),
    (LockTimeout, phrases.BUSY, False),
    (RepliesUnread, phrases.REPLIES_UNREAD, False),
    (SlackError, PEOPLE_UNKNOWN, False),
)
_FACTS = UNKNOWN_USER | NO_GROUP | _CHANNEL_GONE
_LOOK_UP_TO_ASK = 2.0  # seconds that an agent's question waits for
_KEEP = 300.0
_KEEP_EVERYBODY = 3600.0
_LONGEST_WAIT = 120.0
_AGAIN = 10.0
_MOST_KEPT = 20_000
_PAGE = 1000
# Seconds that Slack has where a fact is there that only is out of date: a click has less than one for all look-ups.
_PATIENCE = 0.3
_MOST_ASKED = 30
_MOST_SEEING = 100  # Slack is asked of each, and takes about as many such calls a minute
_LONGEST_CHECK = 5.0  # seconds: people wait for the start to end
_LONGEST_NAME = 256  # of `decided_by` (AAEP, clarification.reply)
_WHY: Mapping[Reason, str] = {
    "deactivated": "your account is deactivated",
    "bot": "bots cannot answer",
    "external": "you are not a member of this workspace",
    "guest": "you are a guest in this workspace",
    "not in the channel": "you are not in the channel",
    "not listed": "you are not an answerer for this agent",
    "asked of another": "this question is for someone else",
}
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in Slack, by what does not change: the team that they are at home in, and their user id."""

    team: str
    user: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody may not answer, and who may (as configured)."""

    why: str
    answerers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the surface does next.

    `text` is for the person alone, laid out as `blocks` where there are some. `view` is shown to them; `errors` are put beside a submitted modal's fields.
    With `recorded` false nothing was kept of what they did, and Slack must not be told that it was; with `busy`
    telling the person is enough, once it is known that the words arrived.
    `record` is the clarification as answered, where it was.
    """

    text: str = ""
    blocks: list[dict[str, Any]] | None = None
    view: View | None = None
    errors: Mapping[str, str] | None = None
    recorded: bool = True
    busy: bool = False
    record: Clarification | None = None


def _said(error: Exception) -> tuple[str, bool]:
    """What is always said of an error, and whether something may have been recorded; no words: that depends."""
    return next(((text, recorded) for kind, text, recorded in _SAID if isinstance(error, kind)), ("", True))


def explained(error: Exception, clarification_id: str) -> Reaction:
    """What a person is told of an error (pure but for the log). Contents never reach the log."""
    text, recorded = _said(error)
    match error:
        case _ if text:
            pass
        case NotOpen():
            text = phrases.closed(error.record)
        case AnswerRejected() | BadInput() | NotCounted():
            text = inert.escape(str(error))
        case NotFound():
            text = phrases.unknown_clarification(clarification_id)
        case _:
            text, recorded = phrases.STORAGE_FAILED, False
    if not recorded:
        _log.warning("nothing recorded for %s: %s", clarification_id, error)
    return Reaction(text, recorded=recorded, busy=isinstance(error, LockTimeout | RepliesUnread))


@dataclass(frozen=True, slots=True)
class Profile:
    """What Slack says of a person (users.info). `team` is where they are at home, `enterprise` the organization
    (Enterprise Grid) that this belongs to; `global_id` what they are called in all of its workspaces; empty if Slack does
    not say. `name` is what is shown of `names`, the display and the real name.
    """

    id: str
    team: str
    enterprise: str = ""
    global_id: str = ""
    name: str = ""
    names: tuple[str, ...] = ()
    email: str | None = None
    is_bot: bool = False
    is_deleted: bool = False
    is_guest: bool = False
    is_stranger: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the app is installed: a workspace (T…), in an Enterprise Grid organization (E…) if it names one; or, with
    the organization's id in both, all of its workspaces.
    """

    team: str
    enterprise: str = ""

    @classmethod
    def of(cls, me: Mapping[str, Any]) -> Installation:
        """By what auth.test says. Installed for a whole organization, Slack names that in place of a workspace."""
        team, enterprise = str(me.get("team_id") or ""), str(me.get("enterprise_id") or "")
        return cls(team, enterprise or (team if team.startswith("E") else ""))

    @property
    def is_organization(self) -> bool:
        return bool(self.enterprise) and self.team == self.enterprise


@dataclass(slots=True)
class _Budget:
    left: float


_budget: ContextVar[_Budget | None] = ContextVar("budget of look-ups", default=None)


@contextmanager
def lookup_budget(seconds: float | None = None) -> Iterator[None]:
    """Inside, and in what is started from inside, look-ups have `seconds` (None: LOOK_UPS) in all."""
    token = _budget.set(_Budget(LOOK_UPS if seconds is None else seconds))
    try:
        yield
    finally:
        _budget.reset(token)


async def without_budget(work: Coroutine[Any, Any, _T]) -> _T:
    """`work` after the acknowledgement: no such limit. To be run as a task of its own."""
    _budget.set(None)  # of the task that this runs in
    return await work


async def within_budget(look_up: Awaitable[_T]) -> _T:
    """A look-up's result, if it comes while there is budget left.

    Raises:
        SlackUnreachableError: it did not. The look-up itself goes on where it is shared (`People`).
    """
    budget = _budget.get()
    if budget is None:
        return await look_up
    begun = time.monotonic()
    try:
        async with asyncio.timeout(max(0.0, budget.left)):
            return await look_up
    except TimeoutError:
        raise SlackUnreachableError("Slack did not answer in time") from None
    finally:
        budget.left -= time.monotonic() - begun


@dataclass(slots=True)
class _Kept:
    """`value` is a SlackRefusedError where Slack says that there is no such thing."""

    value: Any
    at: float


class People:
    """Asks Slack who people are, who is in a channel and in a user group, and keeps the answers for five minutes.

    Every method raises SlackRefusedError or SlackUnreachableError when Slack does not tell. Before somebody is refused
    on a kept fact it is refreshed once (`fresh`), not more often than every `again` seconds per fact, since
    `usergroups.users.list` is tier 2 (about 20 calls a minute). That there is no such person or group is a fact, too. A
    fact that is out of date serves, but for a refusal, while Slack tells nothing newer. `seconds` is a monotonic clock.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        *,
        again: float = _AGAIN,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web = web
        self._again = again
        self._seconds = seconds
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._refused: dict[tuple[str, str], str] = {}  # by what word, when it was asked last
        self._names: dict[str, str] = {}
        self._groups: set[str] = set()  # that were asked about: those of the configuration
        self._me: AsyncSlackResponse | None = None

    async def me(self) -> AsyncSlackResponse:
        """Who we are: what auth.test says. Asked until it is known, then never again."""
        if self._me is None:
            self._me = await ask("auth.test", self._web.auth_test)
        return self._me

    @property
    def bot_user(self) -> str:
        """Our own user id, empty until `me` is known."""
        return self._mine("user_id")

    @property
    def team(self) -> str:
        """Where we are at home, empty until `me` is known."""
        return self._mine("team_id")

    def _mine(self, name: str) -> str:
        return str(self._me.get(name) or "") if self._me is not None else ""

    async def installation(self) -> Installation:
        """Where the app is installed."""
        me = (await self.me()).data
        return Installation.of(me if isinstance(me, dict) else {})

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        return await self._look_up(("user", user), lambda: self._profile(user), fresh=fresh)

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        return await self._look_up(("channel", channel), lambda: self._members(channel), fresh=fresh)

    async def group(self, group: str, *, fresh: bool = False) -> frozenset[str]:
        self._groups.add(group)
        return await self._look_up(("group", group), lambda: self._group(group), fresh=fresh)

    async def by_email(self, email: str) -> Profile:
        """The active person with an e-mail address; needs the scope users:read.email."""
        return await self._look_up(("email", email), lambda: self._by_email(email), fresh=False)

    async def everybody(self) -> tuple[Profile, ...]:
        """All people, bots and deactivated accounts of the workspace, as of the last hour."""
        return await self._look_up(("everybody", ""), self._everybody, fresh=False, keep=_KEEP_EVERYBODY)

    async def is_public(self, channel: str) -> bool:
        """Whether every full member of our workspace may read this channel, and nobody else's does."""
        return await self._look_up(("openness", channel), lambda: self._public(channel), fresh=True)

    async def present(self, user: str) -> bool:
        """Whether somebody is at their screen, as of the last seconds."""
        return await self._look_up(("presence", user), lambda: self._present(user), fresh=True)

    def known_name(self, user: str) -> str | None:
        """A person's name as it was when Slack told it last, also where more of them may have changed; nobody is asked."""
        return self._names.get(user) or None

    def trouble_with(self, entry: str) -> str | None:
        """What is wrong with a user (U…) or user group (S…) that the configuration names, as Slack said when it was
        asked last; None if nothing is, or it was not asked yet.
        """
        key = ("group" if entry.startswith("S") else "user", entry)
        if (code := self._refused.get(key)) is not None:
            return f"Slack says {code}"
        kept = self._kept.get(key)
        if kept is None:
            return None
        if isinstance(kept.value, Profile):
            return "deactivated" if kept.value.is_deleted else None
        return None if kept.value else "no members"

    def forget(self, fact: Fact, name: str) -> None:
        """What is kept of one of them is out of date. Whether a user group that was ever asked about is enabled is looked at
        now, and told if it has changed.
        """
        if fact != "group itself":
            self._kept.pop((fact, name), None)
            return
        key = ("group", name)
        self._kept.pop(key, None)
        if name in self._groups:
            self._asked(key, lambda: self._group(name))

    def forget_all(self) -> None:
        """What is kept of any of them may be out of date."""
        self._kept.clear()
        for kind, name in tuple(self._refused):
            if kind == "group":
                self.forget("group itself", name)

    async def _look_up(
        self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]], *, fresh: bool, keep: float = _KEEP
    ) -> _T:
        kept = self._kept.get(key)
        if kept is not None and self._seconds() - kept.at < (self._again if fresh else keep):
            if isinstance(kept.value, SlackRefusedError):
                raise SlackRefusedError(str(kept.value), code=kept.value.code)
            value: _T = kept.value
            return value
        stands_in = not fresh and kept is not None and not isinstance(kept.value, SlackRefusedError)
        try:
            async with asyncio.timeout(_PATIENCE if stands_in else None):
                # Shielded: one that gives up waiting must not end it for the others.
                found: _T = await asyncio.shield(self._asked(key, fetch))
        except (SlackError, TimeoutError) as error:
            if kept is None or not stands_in or getattr(error, "code", None) in _FACTS:
                raise
            _log.debug("using the last known value, Slack did not return it: %s", key)
            found = kept.value
        return found

    def _asked(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> asyncio.Task[_T]:
        """The question that is under way, or a new one."""
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._fetch(key, fetch), name=f"look up {key[0]} {key[1]}")
            self._asking[key] = asking

            def done(task: asyncio.Task[Any]) -> None:
                del self._asking[key]
                if not task.cancelled():
                    task.exception()  # perhaps nobody waits for it any more

            asking.add_done_callback(done)
        return asking

    async def _fetch(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> _T:
        try:
            value = await fetch()
        except SlackRefusedError as error:
            if self._refused.get(key) != error.code:
                _log.warning("Slack does not return the %s %s: %s", *key, error.code)
            self._refused[key] = error.code or "no"
            if error.code in UNKNOWN_USER | NO_GROUP:
                self._keep_fact(key, error)
            raise
        if self._refused.pop(key, None) is not None:
            _log.info("Slack returns the %s %s again", *key)
        self._keep_fact(key, value)
        return value

    def _keep_fact(self, key: tuple[str, str], value: object) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
            self._names.clear()
        if isinstance(value, Profile):
            self._names[value.id] = value.name
        self._kept[key] = _Kept(value, self._seconds())

    async def _profile(self, user: str) -> Profile:
        response = await ask("users.info", lambda: self._web.users_info(user=user))
        return profile_of(response["user"])

    async def _by_email(self, email: str) -> Profile:
        response = await ask("users.lookupByEmail", lambda: self._web.users_lookupByEmail(email=email))
        return profile_of(response["user"])

    async def _everybody(self) -> tuple[Profile, ...]:
        try:
            return tuple(await self._everybody_in(None))
        except SlackRefusedError as error:
            if error.code != "missing_argument":
                raise
        # The app is installed for an organization: Slack wants to know of which workspace.
        teams = await self._look_up(("teams", ""), self._teams, fresh=False)
        found = [person for team in teams for person in await self._everybody_in(team)]
        return tuple({person.id: person for person in found}.values())

    async def _everybody_in(self, team: str | None) -> list[Profile]:
        """Slack allows twenty of these calls a minute; where there are that many pages, it takes minutes."""
        found: list[Profile] = []
        page: dict[str, Any] = {"limit": _PAGE} | ({"team_id": team} if team else {})
        while True:
            try:
                response = await ask("users.list", partial(self._web.users_list, **page))
            except SlackBusyError as error:
                if error.after > _LONGEST_WAIT:
                    raise
                await asyncio.sleep(error.after)
                continue
            found += map(profile_of, response["members"])
            page["cursor"] = (response.get("response_metadata") or {}).get("next_cursor")
            if not page["cursor"]:
                return found

    async def _present(self, user: str) -> bool:
        response = await ask("users.getPresence", lambda: self._web.users_getPresence(user=user))
        return bool(response["presence"] == "active")

    async def _public(self, channel: str) -> bool:
        call = partial(self._web.conversations_info, channel=channel)
        found = (await ask("conversations.info", call))["channel"]
        closed = ("is_private", "is_im", "is_mpim", "is_shared", "is_ext_shared", "is_org_shared")
        return not any(found.get(each) for each in (*closed, "is_pending_ext_shared"))

    async def _members(self, channel: str) -> frozenset[str]:
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page: dict[str, Any] = {"limit": _PAGE} | ({"cursor": cursor} if cursor else {})
            call = partial(self._web.conversations_members, channel=channel, **page)
            response = await ask("conversations.members", call)
            found.update(response["members"])
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return frozenset(found)

    async def _group(self, group: str) -> frozenset[str]:
        method = "usergroups.users.list"
        try:
            response = await ask(method, lambda: self._web.usergroups_users_list(usergroup=group))
            return frozenset(response["users"])
        except SlackRefusedError as error:
            if error.code != "missing_argument":
                raise
        # The app is installed for an organization: Slack wants to know of which workspace.
        for team in await self._look_up(("teams", ""), self._teams, fresh=False):
            call = partial(self._web.usergroups_users_list, usergroup=group, team_id=team)
            try:
                return frozenset((await ask(method, call))["users"])
            except SlackRefusedError as error:
                if error.code not in NO_GROUP:
                    raise
        raise SlackRefusedError(f"{method}: no_such_subteam", code="no_such_subteam")

    async def _teams(self) -> tuple[str, ...]:
        """The workspaces of the organization that the app may work in."""
        response = await ask("auth.teams.list", lambda: self._web.auth_teams_list(limit=_PAGE))
        return tuple(str(team["id"]) for team in response["teams"])


def profile_of(user: dict[str, Any]) -> Profile:
    """A person from users.info's `user` (pure)."""
    shown = user.get("profile") or {}
    return Profile(
        id=str(user["id"]),
        team=str(user.get("team_id") or shown.get("team") or ""),
        enterprise=str((user.get("enterprise_user") or {}).get("enterprise_id") or ""),
        global_id=str((user.get("enterprise_user") or {}).get("id") or ""),
        name=str(shown.get("display_name") or shown.get("real_name") or user.get("name") or ""),
        names=tuple(
            dict.fromkeys(
                str(name)
                for name in (shown.get("display_name"), shown.get("real_name"), user.get("real_name"))
                if name
            )
        ),
        email=shown.get("email") or None,
        is_bot=bool(user.get("is_bot")) or user["id"] == "USLACKBOT",
        is_deleted=bool(user.get("deleted")),
        is_guest=bool(user.get("is_restricted") or user.get("is_ultra_restricted")),
        is_stranger=bool(user.get("is_stranger")),
    )


def may_answer(
    person: Profile,
    answerers: Sequence[str],
    *,
    channel_members: AbstractSet[str],
    groups: Mapping[str, AbstractSet[str]],
    home: Installation,
) -> Reason | None:
    """Why `person` may not answer; None if they may.

    Args:
        person: as Slack describes them now.
        answerers: the route's list.
        channel_members: the user ids in the question's channel; needed for "members" only.
        groups: the user ids in each listed user group.
        home: where we are installed.
    """
    if person.id in answerers or any(person.id in groups.get(entry, frozenset()) for entry in answerers):
        return None
    if (reason := outsider(person, home)) is not None:
        return reason
    if MEMBERS not in answerers:
        return "not listed"
    return None if person.id in channel_members else "not in the channel"


def outsider(person: Profile, home: Installation) -> Reason | None:
    """Why somebody may neither answer nor be paged unless they are listed; None: an active, full member of ours."""
    if person.is_deleted:
        return "deactivated"
    if person.is_bot:
        return "bot"
    colleague = bool(home.enterprise) and person.enterprise == home.enterprise
    if not colleague and (person.team not in {home.team, ""} or person.is_stranger):
        return "external"
    return "guest" if person.is_guest else None


def lists_of_answerers(settings: Settings) -> Iterator[tuple[Place, tuple[str, ...], str | None]]:
    """Every list of who may answer: where it stands, whom it names, the channel.

    None: that of the agent that asks. Then it names users and groups, who need no channel.
    """
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "answerers"), route.answerers, route.channel
    for role, responder in settings.responders.items():
        if responder.kind == "people":
            yield ("responders", role, "people"), responder.answerers, responder.channel


async def check_answerers(
    answerers: Sequence[str], channel: str, people: People, home: Installation
) -> tuple[bool, tuple[str, ...]]:
    """Whether somebody could answer, for the start; and what is wrong, which others may make up for.

    What Slack does not tell now counts as somebody: at a click it is asked again.

    Args:
        answerers: a route's list.
        channel: the route's channel.
        people: asks Slack.
        home: where we are installed.
    """
    problems: list[str] = []
    somebody = False
    for entry in answerers:
        try:
            somebody = await _somebody_behind(entry, channel, people, home) or somebody
        except SlackUnreachableError as error:
            _log.warning("%s: cannot check for answerers yet: %s", _what(entry, channel), error)
            somebody = True
        except SlackRefusedError as error:
            if entry == MEMBERS and error.code in _CHANNEL_GONE:
                # One channel that went away must not keep all others waiting: its cards go to the fallback channel.
                somebody = True
            problems.append(f"{_what(entry, channel)}: Slack says {error.code or 'no'}")
    if not somebody and not problems:
        problems.append(
            f"no one can answer in {channel}; expected a full member of the workspace in the channel, "
            "a user ID (U…), or a user group (S…) with members"
        )
    return somebody, tuple(problems)


async def count_answerers(
    answerers: Sequence[str],
    channel: str,
    people: People,
    home: Installation,
    most: int,
    *,
    named: Callable[[Profile], str] = lambda person: person.global_id or person.id,
) -> int:
    """How many different people may answer, counted up to `most`.

    Args:
        answerers: a route's list.
        channel: the route's channel.
        people: asks Slack.
        home: where we are installed.
        most: how many are enough.
        named: the same for all accounts of one person; empty: they may not answer after all.

    Raises:
        SlackUnreachableError: Slack does not tell now. What it refuses to tell counts as nobody.
    """
    found: set[str] = set()

    async def add(users: Iterable[str], *, listed: bool) -> None:
        for user in users:
            if len(found) >= most:
                return
            try:
                person = await people.profile(user)
            except SlackRefusedError:
                continue
            gone = person.is_deleted or person.is_bot
            if not gone and (listed or outsider(person, home) is None):
                found.add(named(person))
                found.discard("")

    for entry in answerers:
        try:
            if entry == MEMBERS:
                await add(sorted(await people.members(channel)), listed=False)
            else:
                await add(await people.group(entry) if entry.startswith("S") else (entry,), listed=True)
        except SlackRefusedError as error:
            _log.warning("%s: Slack says %s", _what(entry, channel), error.code)
    return len(found)


async def _somebody_behind(entry: str, channel: str, people: People, home: Installation) -> bool:
    if entry.startswith("S"):
        return bool(await people.group(entry))
    if entry != MEMBERS:
        return not (await people.profile(entry)).is_deleted
    members = sorted(await people.members(channel))
    for user in members[:_MOST_ASKED]:
        try:
            if outsider(await people.profile(user), home) is None:
                return True
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
    return len(members) > _MOST_ASKED  # a channel with very many others is believed to have one


def _goes_by(person: Profile, named: str) -> bool:
    """Whether somebody has this Slack user id or e-mail address."""
    if "@" not in named:
        return person.id == named
    return person.email is not None and person.email.casefold() == named.casefold()


def _what(entry: str, channel: str) -> str:
    if entry == MEMBERS:
        return f"the members of {channel}"
    return f"the user group {entry}" if entry.startswith("S") else f"the user {entry}"


@dataclass(slots=True)
class _Facts:
    """What is known so far of somebody who wants to answer."""

    profile: Profile
    members: frozenset[str] = frozenset()
    groups: dict[str, frozenset[str]] = field(default_factory=dict)


class AccessControl:
    """Checks people against the routes. Raises SlackError where Slack does not tell, or not within the budget: then
    nobody is let in and nobody is refused.

    `paged`: the users that the open page of an escalated clarification was sent to: they may answer it, as long as
    they are people who may be paged.
    """

    def __init__(self, people: People, settings: Settings, paged: Callable[[str], frozenset[str]]) -> None:
        self._people = people
        self._settings = settings
        self._paged = paged

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None:
        """Why `person` may not answer a question of this audience in `channel`; None if they may.

        A refusal on kept facts is checked once more on fresh ones.
        """
        route = self._settings.route_for(*audience)
        if clarification is not None and await self.may_as_paged(person, clarification, route):
            return None
        where = (
            channel if channel in {route.channel, self._settings.slack.fallback_channel} else route.channel
        )
        return await within_budget(self._refusal(person, route, where))

    async def may_as_paged(self, person: Person, clarification: str, route: RouteSettings) -> bool:
        """Whether `person` was paged about a clarification of this route, and still is somebody who may be.

        Whom the policy lists by hand may be; anybody else as a full member of our workspace only, whatever named them.
        """
        if person.user not in self._paged(clarification):
            return False
        if route.on_call is not None and person.user in self._settings.on_call_named(route.on_call).listed:
            return True
        return await within_budget(self._is_full_member(person))

    async def _is_full_member(self, person: Person) -> bool:
        """A refusal on kept facts is checked once more on fresh ones."""
        home = await self._people.installation()
        theirs = Profile(person.user, person.team)
        return (
            outsider(await self._described(theirs, fresh=False), home) is None
            or outsider(await self._described(theirs, fresh=True), home) is None
        )

    async def refusal_on(self, person: Person, route: RouteSettings) -> Refusal | None:
        """Why `person` may not answer where `route` goes; None if they may."""
        return await within_budget(self._refusal(person, route, route.channel))

    async def sees(self, person: Person, audience: Audience) -> bool:
        """Whether `person` is in the channel where questions of this audience are shown."""
        try:
            members = await within_budget(self._people.members(self._settings.route_for(*audience).channel))
        except SlackRefusedError:
            return False  # the channel is gone, or the bot is not in it
        return person.user in members

    async def full_member(self, user: str) -> bool:
        """Whether this is an active, full member of our workspace."""
        try:
            profile, home = await within_budget(
                asyncio.gather(self._people.profile(user, fresh=True), self._people.installation())
            )
        except SlackRefusedError:
            return False
        return outsider(profile, home) is None

    async def seen_from(self, channel: str, others: Iterable[str]) -> frozenset[str]:
        """Those of `others`, channels, that everybody in `channel` may read: itself, and public ones where only full members
        of our workspace are in it, `_MOST_SEEING` of them at most.
        """
        open_ = [
            each for each in others if each != channel and each[0] in "CG" and await self._is_public(each)
        ]
        if open_ and await self._has_outsiders(channel):
            open_ = []
        return frozenset({channel, *open_})

    async def _is_public(self, channel: str) -> bool:
        try:
            return await self._people.is_public(channel)
        except SlackRefusedError:
            return False  # it is gone, or private and without us

    async def _has_outsiders(self, channel: str) -> bool:
        """Whether somebody may be in a channel who is no full member of our workspace; yes, where Slack tells not of all."""
        try:
            members, home = await self._people.members(channel, fresh=True), await self._people.installation()
            if len(members) > _MOST_SEEING:
                return True
            for user in sorted(members):
                if outsider(await self._people.profile(user), home) in {"guest", "external"}:
                    return True
        except SlackRefusedError:
            return True
        return False

    async def decider(self, person: Person, *, several: bool = False) -> Decider:
        """Who decides, in Slack. `several`: they are one of several people, who are told apart by what Slack says now.

        Raises:
            SlackError: several have to decide, and Slack does not say who this is.
        """
        if not several:
            return Decider(await self.decided_by(person), "slack", person.team, person.user)
        profile = await within_budget(self._people.profile(person.user))
        return Decider(
            await self.decided_by(person),
            "slack",
            person.team,
            person.user,
            is_known=True,
            global_id=profile.global_id or None,
        )

    async def decided_by(self, person: Person) -> str:
        """The name that an agent is told: stable, and not one that its owner can change at will.

        The configured table first; then, by mode, `user:{e-mail}`, or `user:slack/{team}/{user}`. An e-mail address
        that is missing or too long is replaced by the latter, which always fits.
        """
        if named := self._settings.identities.get(person.user):
            return named
        if self._settings.slack.identity == "email":
            email = await self._email(person.user)
            if email and len(by_email := f"user:{email}") <= _LONGEST_NAME:
                return by_email
        return f"user:slack/{person.team}/{person.user}"

    async def _email(self, user: str) -> str | None:
        try:
            return (await within_budget(self._people.profile(user))).email
        except SlackRefusedError:
            # Somebody of whom Slack tells us nothing, such as an external person: no address.
            return None

    async def trouble_with(self, named: str) -> str | None:
        """Why a person whom a question names cannot answer it; None if they can, or if Slack does not tell that now."""
        if "@" in named:
            return None  # who has an address is known once they answer
        try:
            with lookup_budget(_LOOK_UP_TO_ASK):
                person = await within_budget(self._people.profile(named))
        except SlackRefusedError as error:
            unknown = "`to` must be a person in this workspace; Slack has no user with this ID."
            # Of people of other organizations it says that they are not visible; they may answer where they are listed.
            return unknown if error.code == "user_not_found" else None
        except SlackUnreachableError:
            return None
        return (
            "`to` must be a person who can answer; this account is deactivated."
            if person.is_deleted
            else None
        )

    async def how_many(self, audience: Audience, most: int) -> int:
        """How many different people may answer a question of this audience, counted up to `most`.

        Raises:
            SlackUnreachableError: Slack does not tell now.
        """
        route = self._settings.route_for(*audience)

        def named(person: Profile) -> str:
            if isinstance(route, PersonalRoute) and not _goes_by(person, route.only):
                return ""
            by_email = self._settings.slack.identity == "email" and person.email
            return self._settings.identities.get(person.id) or by_email or person.global_id or person.id

        home = await self._people.installation()
        return await count_answerers(route.answerers, route.channel, self._people, home, most, named=named)

    async def _is(self, person: Person, named: str) -> bool:
        """Whether somebody goes by this Slack user id or e-mail address."""
        if "@" not in named:
            return person.user == named
        email = await self._email(person.user)
        return email is not None and email.casefold() == named.casefold()

    async def check(self) -> None:
        """For the start: every route, and every role of people, has somebody who could answer, as far as Slack tells
        at once.

        Raises:
            ConfigurationError: one has not.
        """
        problems: list[str] = []
        home = await self._people.installation()
        try:
            async with asyncio.timeout(_LONGEST_CHECK):
                for place, answerers, channel in lists_of_answerers(self._settings):
                    where = channel or "the channel of the agent that asks"
                    somebody, wrong = await check_answerers(answerers, where, self._people, home)
                    if not somebody:
                        problems += [f"{dotted(place)}: {each}" for each in wrong]
                        continue
                    for each in wrong:
                        _log.warning("%s: %s", dotted(place), each)
        except TimeoutError:
            _log.warning("could not check all answerers in time")
        if problems:
            raise ConfigurationError(problems)

    def troubles(self) -> tuple[str, ...]:
        """What is wrong with users and user groups that the lists of answerers name, as Slack said last."""
        return tuple(
            f"{dotted(place)}: {entry} ({trouble})"
            for place, answerers, _ in lists_of_answerers(self._settings)
            for entry in answerers
            if entry != MEMBERS and (trouble := self._people.trouble_with(entry)) is not None
        )

    async def _refusal(self, person: Person, route: RouteSettings, where: str) -> Refusal | None:
        if isinstance(route, PersonalRoute) and not await self._is(person, route.only):
            return Refusal(_WHY["asked of another"], route.mentioned)
        if person.user in route.answerer_users:
            return None
        reason = await self._decide(person, route, where, fresh=False)
        if reason is not None:
            reason = await self._decide(person, route, where, fresh=True)
        return None if reason is None else Refusal(_WHY[reason], route.answerers)

    async def _decide(
        self, person: Person, route: RouteSettings, channel: str, *, fresh: bool
    ) -> Reason | None:
        """By the first entry that is known to admit. One that Slack does not tell of keeps nobody out whom another
        admits.

        Raises:
            SlackError: none does, and one of them is not known.
        """
        home = await self._people.installation()
        facts = _Facts(Profile(person.user, person.team))
        tasks = [
            asyncio.ensure_future(self._learn_group(facts, group, fresh=fresh))
            for group in route.answerer_groups
        ]
        tasks.append(asyncio.ensure_future(self._learn_membership(facts, home, route, channel, fresh=fresh)))
        unknown: SlackError | None = None
        reason: Reason | None = "not listed"
        try:
            for each in asyncio.as_completed(tasks):
                try:
                    await each
                except SlackError as error:
                    unknown = error
                reason = may_answer(
                    facts.profile,
                    route.answerers,
                    channel_members=facts.members,
                    groups=facts.groups,
                    home=home,
                )
                if reason is None:
                    return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if unknown is not None:
            raise unknown
        return reason

    async def _learn_group(self, facts: _Facts, group: str, *, fresh: bool) -> None:
        try:
            facts.groups[group] = await self._people.group(group, fresh=fresh)
        except SlackRefusedError:
            facts.groups[group] = frozenset()  # it admits nobody: `troubles`

    async def _learn_membership(
        self, facts: _Facts, home: Installation, route: RouteSettings, channel: str, *, fresh: bool
    ) -> None:
        # Slack need not tell us of people who are at home elsewhere, and only full members need the channel's list.
        if facts.profile.team not in {home.team, ""} and not home.enterprise:
            return
        if MEMBERS in route.answerers:
            facts.profile, facts.members = await asyncio.gather(
                self._described(facts.profile, fresh=fresh), self._people.members(channel, fresh=fresh)
            )
        else:
            facts.profile = await self._described(facts.profile, fresh=fresh)

    async def _described(self, person: Profile, *, fresh: bool) -> Profile:
        """As Slack describes them; somebody whom it does not tell about is a stranger."""
        try:
            return await self._people.profile(person.id, fresh=fresh)
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            return replace(person, is_stranger=True)
