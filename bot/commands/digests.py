"""`digest`: figures over the questions that the person may see; on request also as a picture.

The picture is drawn and sent after the text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bot import charts
from bot.commands.grammar import Digest
from bot.commands.lists import Access
from bot.delivery.messenger import Picture, Pictures
from bot.people import Person
from bot.routing import Audience, audience_of
from bot.slackapi import Gateway, Place
from bot.views import inert
from bot.views.blockkit import Draft
from bot.views.lists import said
from core.clarification import Clarification
from core.clock import Clock, recent
from core.digest import Count, DigestBuilder
from core.errors import ClarifyError
from core.ledger import Ledger
from core.records import parse

if TYPE_CHECKING:
    from core.digest import Digest as Figures

_log = logging.getLogger("clarify.commands")
_AT_ONCE = 4  # more threads make it no faster, and hold up the event loop several times longer
_ALT = 1000  # characters: Slack's limit
_NAME, _DRAWN_NAME = 80, 60
_COMES = "A picture of these figures comes to your direct messages with me."
_CANNOT = f"For a picture, what draws it has to be installed where the bot runs: `{charts.HOW_TO_GET_IT}`."


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture to draw: figures of the `span` up to `until`; `unread` ledgers are not counted in them."""

    figures: Figures
    span: timedelta
    until: datetime
    unread: int = 0


class Digests:
    """Counts what a person may see, and draws the figures on request.

    `later` runs work in the background; `name_of`: what people are called, as far as it is known.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        access: Access,
        clock: Clock,
        pictures: Pictures,
        gateway: Gateway,
        later: Callable[[Coroutine[Any, Any, None], str], object],
        name_of: Callable[[str], str | None],
    ) -> None:
        self._ledger = ledger
        self._access = access
        self._clock = clock
        self._pictures = pictures
        self._gateway = gateway
        self._later = later
        self._name_of = name_of
        self._turn = asyncio.Lock()  # what is drawn with has settings that all threads share

    async def show(self, command: Digest, person: Person, place: Place) -> Draft:
        """The figures of what was asked within the span.

        Raises:
            SlackError: Slack does not tell what the person may see.
        """
        until = self._clock.now()
        builder = DigestBuilder(until - command.span)
        known: dict[Audience, bool] = {}
        unread = 0
        issues = await self._ledger.live()
        for start in range(0, len(issues), _AT_ONCE):
            for records in await asyncio.gather(*map(self._read, issues[start : start + _AT_ONCE])):
                unread += records is None
                for record in records or ():
                    audience = audience_of(record)
                    if audience not in known:
                        known[audience] = audience in (await self._access.rights(person, [audience])).sees
                    if known[audience]:
                        builder.add(record)
        figures = builder.result()
        lines = [f"*{name}*: {value}" for name, value in figures.words()]
        lines += [f"*{title}*: {_counted(counts)}" for title, counts in figures.names() if counts]
        lines += _not_counted(unread)
        if command.png and not charts.can_draw():
            lines.append(_CANNOT)
        elif command.png:
            work = self._send(Drawing(figures, command.span, until, unread), person, place)
            self._later(work, "send a digest as a picture")
            lines.append(_COMES)
        return said("\n".join(lines), heading=recent(command.span))

    async def _read(self, issue: int) -> list[Clarification] | None:
        try:
            return [each for item in await self._ledger.read(issue) if (each := parse(item)) is not None]
        except ClarifyError as error:
            _log.warning("a ledger is left out of a digest: %s", error)
            return None

    async def _send(self, drawing: Drawing, person: Person, place: Place) -> None:
        """Draw and send; errors are told to the person where they asked."""
        drawing = replace(drawing, figures=_named(drawing.figures, self._name_of))
        comment, alt = described(drawing)
        try:
            async with self._turn:
                content = await asyncio.to_thread(charts.draw, drawing.figures, drawing.span, drawing.until)
            picture = Picture("digest.png", recent(drawing.span), alt, comment, content)
            trouble = await self._pictures.send(person.user, picture)
        except Exception as error:
            await self._tell(person, place, f"something went wrong ({type(error).__name__})")
            raise
        if trouble is not None:
            await self._tell(person, place, trouble)

    async def _tell(self, person: Person, place: Place, trouble: str) -> None:
        """Where the bot is no member, in the direct messages."""
        text = (
            f"The picture could not be sent: {inert.escape(trouble)}. "
            "`clarify digest --png FILE` draws it in a shell."
        )
        if not await self._gateway.tell(person.user, place, text):
            await self._gateway.tell(person.user, Place(person.user), text)


def described(drawing: Drawing) -> tuple[str, str]:
    """What comes with a picture: a comment in which nobody's words but ours are, and as plain text all that it shows."""
    figures = drawing.figures
    said = [f"{name}: {value}." for name, value in figures.words()]
    closing = [*_not_counted(drawing.unread), "Only what you may see is counted."]
    comment = " ".join([f"{recent(drawing.span)}.", *said, *closing])
    named = [f"{title}: {_drawn(counts)}." for title, counts in figures.names() if counts]
    return comment, inert.clip(" ".join([comment, *named]), _ALT)


def _not_counted(unread: int) -> list[str]:
    return [f"{unread} ledgers could not be read and are not counted."] if unread else []


def _counted(counts: Sequence[Count]) -> str:
    """Names as agents and ledgers have them; people in Slack as Slack shows them."""
    parts = []
    for count in counts:
        user = _user(count.name)
        name = inert.escaped_line(count.name, _NAME)
        parts.append(f"{inert.mention(user) if inert.is_user(user) else name} ({count.times})")
    return ", ".join(parts)


def _drawn(counts: Sequence[Count]) -> str:
    return ", ".join(f"{inert.named(count.name, _DRAWN_NAME)} {count.times}" for count in counts)


def _named(figures: Figures, name_of: Callable[[str], str | None]) -> Figures:
    """People by their names: a picture knows no mentions."""

    def named(count: Count) -> Count:
        return replace(count, name=name_of(_user(count.name)) or count.name)

    askers, answerers = map(named, figures.askers), map(named, figures.answerers)
    return replace(figures, askers=tuple(askers), answerers=tuple(answerers))


def _user(name: str) -> str:
    """The Slack user that a name of ours stands for; empty: another's name."""
    return name.rsplit("/", 1)[-1] if name.startswith("user:slack/") else ""
