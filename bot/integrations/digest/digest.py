"""`/clarify digest`: figures of the questions that the person may see; and the weekly digest of a channel.

A channel's digest counts only questions that everyone in the channel may see (`SlackHost.sight_in`). It has no
topics, since `clarify forget` could not remove those agents' words from it, and no mentions, which would notify people.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from bot.api import Draft, Person, Sight, SlackHost, escaped_line, is_user, mention
from bot.integrations.digest.figures import Digest, DigestBuilder, add_all
from bot.integrations.digest.message import message
from bot.integrations.digest.settings import DigestSettings
from core.clock import recent, span_of
from core.errors import BadInput

_log = logging.getLogger("clarify.digest")
_WEEK, _LATE, _LONGEST = timedelta(days=7), timedelta(days=1), timedelta(days=366)
_NAME = 80


def span_in(words: str) -> timedelta:
    """Reads the span that follows `digest`.

    Raises:
        BadInput: it is none, or too long.
    """
    if not words:
        return _WEEK
    try:
        span = span_of("".join(each.strip("\"'`“”„‘’«»‹›:,;.!") for each in words.split()))
    except OverflowError:
        span = None
    if span is None or span > _LONGEST:
        short = words if len(words) <= 40 else words[:39] + "…"
        raise BadInput(f"“{short}” is not a time span of up to a year. For example: “/clarify digest 7d”.")
    return span


async def for_person(host: SlackHost, span: timedelta, person: Person) -> Draft:
    """Returns the figures of the questions asked within the span.

    Raises:
        SlackError: Slack could not tell what the person may see.
    """
    until, zone = host.clock.now(), await host.zone_of(person)
    figures, unread = await _counted(host, until - span, until, zone, host.sight_of(person))
    return message(
        figures,
        recent(span),
        zone.key,
        counted=figures.names()[:2],
        shown=_mentioned,
        notes=_not_counted(unread),
        locale=host.locale_of(person.user),
    )


async def _for_channel(
    host: SlackHost, channel: str, since: datetime, until: datetime, zone: ZoneInfo
) -> Draft:
    """Returns the figures of the questions asked from `since` to before `until` that everyone in `channel` may see.
    `zone`: whose days it counts.
    """
    sight = await host.sight_in(channel)
    figures, unread = await _counted(host, since, until, zone, sight)
    names = {each.name: await host.name_of(user) for each in figures.people if (user := _user(each.name))}
    where = "in this channel" + (" and in public ones" if sight.others else "")
    return message(
        figures,
        f"The week to {until:%A, %d %B %Y}",
        zone.key,
        counted=figures.names()[1:2],
        shown=lambda name: escaped_line(names.get(name, name), _NAME),
        notes=[
            *_not_counted(unread),
            f"Questions asked {where}. `/clarify digest` counts the ones you may see.",
        ],
    )


async def _counted(
    host: SlackHost, since: datetime, until: datetime, zone: ZoneInfo, sight: Sight
) -> tuple[Digest, Sequence[str]]:
    """Returns the figures of what may be seen, and the questions that could not be read."""
    builder = DigestBuilder(since, until, zone)
    unread = await add_all(builder, host.ledger.every(since=since), host.route, sight.may_see)
    return builder.result(until), unread


@dataclass(frozen=True)
class Weekly:
    """Posts a digest to a channel once a week.

    The message's key names the week, so that a restart or a new leader does not repeat it. A digest that was due while no
    bot ran is posted up to a day late, then skipped.
    """

    host: SlackHost
    settings: DigestSettings

    async def __call__(self, now: datetime) -> datetime:
        """Posts the latest digest, unless it is posted already or too old. Returns when the next one is due."""
        due = self.settings.last_due(now)
        year, week, _ = due.isocalendar()
        key = f"digest:{year}-W{week:02}"
        if now - due <= _LATE and not await self.host.is_posted(key):
            channel, zone = self.settings.channel, ZoneInfo(self.settings.timezone)
            draft = await _for_channel(self.host, channel, due - _WEEK, due, zone)
            await self.host.post(key, channel, draft)
            _log.info("weekly digest posted: %s", key)
        return due + _WEEK


def _not_counted(unread: Sequence[str]) -> list[str]:
    if not unread:
        return []
    if len(unread) == 1:
        return ["1 question could not be read and is not counted."]
    return [f"{len(unread)} questions could not be read and are not counted."]


def _mentioned(name: str) -> str:
    """Returns a person as a mention, for a reply that only the asker sees."""
    user = _user(name)
    return mention(user) if user else escaped_line(name, _NAME)


def _user(name: str) -> str:
    """Returns the Slack user id in a record's name, or an empty string."""
    user = name.rsplit("/", 1)[-1] if name.startswith("user:slack/") else ""
    return user if is_user(user) else ""
