"""A digest as a picture, for the one who asked: drawn and sent after the figures were shown as text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from bot import charts
from bot.delivery.pictures import Picture
from bot.people import Person
from bot.slackapi import Place
from bot.views import inert
from core.clock import recent, spoken
from core.digest import Count

if TYPE_CHECKING:
    from core.digest import Digest

COMES = "A picture of these figures comes to your direct messages with me."
CANNOT = f"For a picture, what draws it has to be installed where the bot runs: `{charts.HOW_TO_GET_IT}`."
_ALT = 1000  # characters: Slack's limit
_NAME = 60


class Sends(Protocol):
    """`bot.delivery.pictures.Pictures`."""

    async def send(self, user: str, picture: Picture) -> str | None: ...


class Tells(Protocol):
    """`bot.delivery.delivery.Delivery`, as far as one person is told something."""

    async def tell(self, user: str, place: Place, text: str) -> bool: ...


class Runs(Protocol):
    """`bot.slack.answering.Later`."""

    def run(self, work: Coroutine[Any, Any, object], name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is to be drawn: figures of the `span` up to `until`; `unread` ledgers are not counted in them."""

    figures: Digest
    span: timedelta
    until: datetime
    unread: int = 0

    @property
    def title(self) -> str:
        return recent(self.span)


class DigestPictures:
    """`name_of`: what people are called, as far as it is known."""

    def __init__(
        self, *, pictures: Sends, teller: Tells, later: Runs, name_of: Callable[[str], str | None]
    ) -> None:
        self._pictures = pictures
        self._teller = teller
        self._later = later
        self._name_of = name_of
        self._turn = asyncio.Lock()  # what is drawn with has settings that all threads share

    def send(self, drawing: Drawing, person: Person, place: Place) -> None:
        """Draw and send in the background. Trouble is told to the person, where they asked."""
        self._later.run(self._send(drawing, person, place), "send a digest as a picture")

    async def _send(self, drawing: Drawing, person: Person, place: Place) -> None:
        drawing = replace(drawing, figures=_named(drawing.figures, self._name_of))
        try:
            async with self._turn:
                content = await asyncio.to_thread(charts.draw, drawing.figures, drawing.span, drawing.until)
            picture = Picture("digest.png", drawing.title, alt_of(drawing), comment_of(drawing), content)
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
        if not await self._teller.tell(person.user, place, text):
            await self._teller.tell(person.user, Place(person.user), text)


def comment_of(drawing: Drawing) -> str:
    """What comes with the picture: alone it must do for a screen reader. Nobody's words but ours are in it."""
    figures = drawing.figures
    became = (
        f"{figures.resolved} resolved, {figures.answered} answered, {figures.open} open and "
        f"{figures.abandoned} abandoned"
    )
    parts = [
        f"{drawing.title}: {figures.total} asked, of which {became}; {figures.escalated} escalated at some time."
    ]
    if figures.median is not None and figures.p95 is not None:
        parts.append(
            f"Time to answer: median {spoken(figures.median)}, 95 % within {spoken(figures.p95)}, "
            f"of {figures.answers} answer{'' if figures.answers == 1 else 's'}."
        )
    if drawing.unread:
        parts.append(f"{drawing.unread} ledgers could not be read and are not counted.")
    return " ".join([*parts, "Only what you may see is counted."])


def alt_of(drawing: Drawing) -> str:
    """All that the picture shows, as plain text."""
    figures = drawing.figures
    parts = [comment_of(drawing)]
    if figures.rounds_mean is not None:
        parts.append(f"Rounds: {figures.rounds_mean:.1f} on average.")
    named = (
        ("Asks most", figures.askers),
        ("Answers most", figures.answerers),
        ("Top topics", figures.topics),
    )
    parts += [f"{title}: {_counted(counts)}." for title, counts in named if counts]
    return inert.clip(" ".join(parts), _ALT)


def _counted(counts: Sequence[Count]) -> str:
    return ", ".join(
        f"{inert.clip(inert.line(count.name), _NAME) or '(blank)'} {count.times}" for count in counts
    )


def _named(figures: Digest, name_of: Callable[[str], str | None]) -> Digest:
    """People by their names: a picture knows no mentions."""

    def named(count: Count) -> Count:
        user = count.name.rsplit("/", 1)[-1] if count.name.startswith("user:slack/") else ""
        return replace(count, name=name_of(user) or count.name) if user else count

    return replace(
        figures,
        askers=tuple(map(named, figures.askers)),
        answerers=tuple(map(named, figures.answerers)),
    )
