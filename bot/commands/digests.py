"""`digest`: figures over the ledgers, of what the person could see; also drawn, where that is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bot import charts
from bot.commands.access import Access, Circle
from bot.commands.grammar import Digest
from bot.commands.pictures import CANNOT, COMES, Drawing
from bot.commands.ports import Ledgers
from bot.people import Person
from bot.routing import Audience, audience_of
from bot.slackapi import Place
from bot.views import inert, listing
from bot.views.listing import Listing
from core.clarification import Clarification
from core.clock import Clock, recent, spoken
from core.digest import Count, DigestBuilder
from core.errors import ClarifyError
from core.records import parse

if TYPE_CHECKING:
    from core.digest import Digest as Figures

_log = logging.getLogger("clarify.commands")
_AT_ONCE = 4  # more threads make it no faster, and hold up the event loop several times longer
_NAME = 80


class Draws(Protocol):
    """`bot.commands.pictures.DigestPictures`."""

    def send(self, drawing: Drawing, person: Person, place: Place) -> None: ...


class LedgerDigests:
    """`pictures` draws and sends in the background."""

    def __init__(self, records: Ledgers, access: Access, clock: Clock, pictures: Draws) -> None:
        self._records = records
        self._access = access
        self._clock = clock
        self._pictures = pictures

    async def show(self, command: Digest, person: Person, place: Place) -> Listing:
        """The figures of what was asked within the span.

        Raises:
            SlackError: Slack does not tell what the person may see.
        """
        until = self._clock.now()
        builder = DigestBuilder(until - command.span)
        known: dict[Audience, bool] = {}
        unread = 0
        issues = await asyncio.to_thread(lambda: list(self._records.issues()))
        for start in range(0, len(issues), _AT_ONCE):
            for records in await asyncio.gather(*map(self._read, issues[start : start + _AT_ONCE])):
                unread += records is None
                for record in records or ():
                    if await self._may_see(record, person, known):
                        builder.add(record)
        heading = recent(command.span)
        figures = builder.result()
        lines = _lines(figures, unread)
        if command.png and not charts.can_draw():
            lines.append(CANNOT)
        elif command.png:
            self._pictures.send(Drawing(figures, command.span, until, unread), person, place)
            lines.append(COMES)
        return listing.said("\n".join(lines), heading=heading)

    async def _read(self, issue: int) -> list[Clarification] | None:
        try:
            return [each for item in await self._records.read(issue) if (each := parse(item)) is not None]
        except ClarifyError as error:
            _log.warning("a ledger is left out of a digest: %s", error)
            return None

    async def _may_see(self, record: Clarification, person: Person, known: dict[Audience, bool]) -> bool:
        audience = audience_of(record)
        if audience not in known:
            circle: Circle = await self._access.circle(person, [audience])
            known[audience] = circle.may_see(audience)
        return known[audience]


def _lines(figures: Figures, unread: int) -> list[str]:
    """The figures in words: mrkdwn of ours."""
    became = (
        f"{figures.resolved} resolved, {figures.answered} answered, {figures.open} open, "
        f"{figures.abandoned} abandoned"
    )
    lines = [f"*Asked*: {figures.total} ({became})", f"*Escalated*: {figures.escalated}"]
    if figures.median is not None and figures.p95 is not None:
        times = f"median {spoken(figures.median)}, 95 % within {spoken(figures.p95)}"
        lines.append(f"*Time to answer*: {times} ({figures.answers} answers)")
    if figures.rounds_mean is not None:
        lines.append(f"*Rounds*: {figures.rounds_mean:.1f} on average, {figures.rounds_max} at most")
    named = (
        ("Top topics", figures.topics),
        ("Asks most", figures.askers),
        ("Answers most", figures.answerers),
    )
    lines += [f"*{name}*: {_counted(counts)}" for name, counts in named if counts]
    if unread:
        lines.append(f"{unread} ledgers could not be read and are not counted.")
    return lines


def _counted(counts: Sequence[Count]) -> str:
    return ", ".join(f"{_who(count.name)} ({count.times})" for count in counts)


def _who(name: str) -> str:
    """A name as agents and ledgers have it; people in Slack as Slack shows them."""
    user = name.rsplit("/", 1)[-1] if name.startswith("user:slack/") else ""
    if inert.is_user(user):
        return inert.mention(user)
    return inert.clip_escaped(inert.escape(inert.line(name)), _NAME) or "(blank)"
