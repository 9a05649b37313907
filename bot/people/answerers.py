"""Checks the lists of answerers: can anyone on them answer, how many people, and what is wrong with their entries?

`check_answerers` serves the start and `clarify check`; `troubles` serves /readyz and does not ask Slack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.people.access import MEMBERS
from bot.people.directory import (
    CHANNEL_GONE,
    UNKNOWN_USER,
    Installation,
    People,
    Profile,
    is_same_person,
    outsider,
)
from bot.settings.model import PersonalRoute, RouteSettings, Settings
from bot.settings.problems import Place, dotted

_MOST_ASKED = 30
_LONGEST_CHECK = 5.0  # seconds: people wait for the start to end
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAnswerers:
    """The result for one list of answerers.

    `can_answer`: whether anyone could answer; an entry that Slack does not return now counts, since a click asks again.
    `refused`: the entries that Slack refuses to return, with the problem in words.
    """

    place: Place
    answerers: tuple[str, ...]
    channel: str
    can_answer: bool
    refused: Mapping[str, str]

    @property
    def no_answerer(self) -> str:
        """The problem in words if no one could answer, although Slack refused no entry."""
        return (
            f"no one can answer in {self.channel}; expected a full member of the workspace in the channel, "
            "a user ID (U…), or a user group (S…) with members"
        )


async def check_answerers(
    settings: Settings, people: People, home: Installation
) -> AsyncIterator[CheckedAnswerers]:
    """Asks Slack about every list of answerers in the configuration. `home`: where the app is installed."""
    for place, answerers, channel in _lists(settings):
        refused: dict[str, str] = {}
        can_answer = False
        for entry in answerers:
            try:
                can_answer = await _has_answerer(entry, channel, people, home) or can_answer
            except SlackUnreachableError as error:
                _log.warning("%s: cannot check for answerers yet: %s", _what(entry, channel), error)
                can_answer = True
            except SlackRefusedError as error:
                if entry == MEMBERS and error.code in CHANNEL_GONE:
                    # One lost channel must not stop the bot: its cards go to the fallback channel.
                    can_answer = True
                refused[entry] = f"{_what(entry, channel)}: Slack says {error.code or 'no'}"
        yield CheckedAnswerers(
            place=place, answerers=answerers, channel=channel, can_answer=can_answer, refused=refused
        )


async def require_answerers(settings: Settings, people: People) -> None:
    """Checks on start that each list has someone who could answer, as far as Slack answers within five seconds.

    Raises:
        ConfigurationError: a list has no one.
    """
    problems: list[str] = []
    home = await people.installation()
    try:
        async with asyncio.timeout(_LONGEST_CHECK):
            async for found in check_answerers(settings, people, home):
                wrong = [f"{dotted(found.place)}: {each}" for each in found.refused.values()]
                if not found.can_answer:
                    problems += wrong or [f"{dotted(found.place)}: {found.no_answerer}"]
                    continue
                for each in wrong:
                    _log.warning("%s", each)
    except TimeoutError:
        _log.warning("could not check all answerers in time")
    if problems:
        raise ConfigurationError(problems)


def troubles(settings: Settings, people: People) -> str | None:
    """Returns what is wrong with the listed users and user groups, by Slack's last answers; None if nothing is."""
    found = (
        f"{dotted(place)}: {entry} ({trouble})"
        for place, answerers, _ in _lists(settings)
        for entry in answerers
        if entry != MEMBERS and (trouble := people.trouble_with(entry)) is not None
    )
    return "; ".join(found) or None


async def count_answerers(
    route: RouteSettings,
    settings: Settings,
    people: People,
    home: Installation,
    most: int,
    *,
    besides: str | None = None,
) -> int:
    """Returns how many different people may answer on `route`, counted up to `most`. All accounts of one person count once;
    an entry that Slack refuses to return does not count. `besides`: a person who does not, by user id or e-mail address.

    Raises:
        SlackUnreachableError: Slack does not answer.
        SlackRefusedError: Slack does not return the person who does not count.
    """
    left_out = () if besides is None else (await people.named(besides),)
    only = await _only(route, people)
    is_same = partial(is_same_person, names=settings.identities)
    found: list[Profile] = []
    async for person, listed in _named(route, people):
        may = listed or outsider(person, home) is None
        if not may or person.is_deleted or person.is_bot or not (only is None or is_same(person, only)):
            continue
        if not any(is_same(person, each) for each in (*left_out, *found)):
            found.append(person)
        if len(found) >= most:
            break
    return len(found)


async def _named(route: RouteSettings, people: People) -> AsyncIterator[tuple[Profile, bool]]:
    """Yields everyone whom a route's answerers name, and whether by hand, without those whom Slack refuses to return."""
    for entry in route.answerers:
        try:
            if entry == MEMBERS:
                users: Iterable[str] = sorted(await people.members(route.channel))
            else:
                users = await people.group(entry) if entry.startswith("S") else (entry,)
        except SlackRefusedError as error:
            _log.warning("%s: Slack says %s", _what(entry, route.channel), error.code)
            continue
        for user in users:
            try:
                yield await people.profile(user), entry != MEMBERS
            except SlackRefusedError:
                continue


def _lists(settings: Settings) -> Iterator[tuple[Place, tuple[str, ...], str]]:
    """Yields every list of answerers: its place, entries and channel. Without a channel, it has only users and groups."""
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "answerers"), route.answerers, route.channel
    for role, responder in settings.responders.items():
        if responder.kind == "people":
            channel = responder.channel or "the channel of the agent that asks"
            yield ("responders", role, "people"), responder.answerers, channel


async def _only(route: RouteSettings, people: People) -> Profile | None:
    """Returns the only person whom a question on `route` is for; None if it is for all answerers."""
    if not isinstance(route, PersonalRoute):
        return None
    try:
        return await people.named(route.only)
    except SlackRefusedError:
        return Profile("", "", email=route.only) if "@" in route.only else Profile(route.only, "")


async def _has_answerer(entry: str, channel: str, people: People, home: Installation) -> bool:
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
    return len(members) > _MOST_ASKED  # assume that a large channel has one


def _what(entry: str, channel: str) -> str:
    if entry == MEMBERS:
        return f"the members of {channel}"
    return f"the user group {entry}" if entry.startswith("S") else f"the user {entry}"
