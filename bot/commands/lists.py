"""Clarifications in lists: what waits for a person, what is stale, what an issue has, one by its id.

Only what the person could see in Slack is shown: questions that they may answer, and those of channels they are in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

from bot.commands.access import Access, Circle
from bot.commands.grammar import List, One
from bot.commands.ports import Ledgers, Links, Open
from bot.people import Person
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import Settings
from bot.slackapi import Place
from bot.views import listing
from bot.views.listing import PAGE_SIZE, Listing, Offer, Row
from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.errors import ClarifyError, NotFound
from core.index import Summary, is_late, urgency
from core.records import parse

_BREATH = 1000  # summaries looked at before others get their turn
_Ranked = tuple[tuple[float, float], int]
_NOTHING = {
    "waiting": "Nothing waits for you, and nothing is open in this channel.",
    "mine": "Nothing waits for you.",
    "stale": "Nothing is stale: no open question was reminded of or escalated.",
}
_HEADINGS = {"waiting": "Open questions", "mine": "Waiting for you", "stale": "Stale questions"}


class Lists:
    def __init__(
        self, *, index: Open, records: Ledgers, access: Access, links: Links, settings: Settings, clock: Clock
    ) -> None:
        self._index = index
        self._records = records
        self._access = access
        self._links = links
        self._audiences = Audiences(settings)
        self._clock = clock

    async def show(self, command: List, person: Person, place: Place, page: int = 1) -> Listing:
        """A page of a list.

        Raises:
            SlackError: Slack does not tell what the person may see.
            LedgerUnreadable, LockTimeout: of the one issue that was asked for.
        """
        if command.kind == "issue":
            return await self._issue(command, person, page)
        wanted, mine, circle = await self._wanted(command, person, place)
        if not wanted:
            return listing.said(_NOTHING[command.kind], live=False)
        page = listing.page_of(page, len(wanted))
        shown = wanted[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        rows = await self._rows(await self._read(shown), circle)
        heading = f"{_HEADINGS[command.kind]}: {len(wanted)}"
        notes = (
            [f"{mine} for you, {len(wanted) - mine} more in this channel"]
            if command.kind == "waiting"
            else []
        )
        return listing.listing(heading, rows, page=page, total=len(wanted), query=command.query, notes=notes)

    async def one(self, command: One, person: Person) -> Listing:
        """One clarification.

        Raises:
            NotFound: there is none, or none that this person could see.
        """
        record = await self._records.find(command.id, parse_id(command.id)[0])
        circle = await self._access.circle(person, [audience_of(record)])
        if not self._may_see(record, circle):
            raise NotFound(command.id)
        rows = await self._rows([record], circle)
        return listing.listing(record.id, rows, page=1, total=1, query=record.id)

    async def visible(self, issue: int, person: Person) -> list[Clarification]:
        """The clarifications of an issue that a person could see: open ones first, then the latest."""
        return (await self._of_issue(issue, person))[0]

    async def _of_issue(self, issue: int, person: Person) -> tuple[list[Clarification], int]:
        """Those that a person could see; how many cannot be read, so that nobody sees them."""
        items = await self._records.read(issue)
        records = [record for item in items if (record := parse(item)) is not None]
        circle = await self._access.circle(person, {audience_of(record) for record in records})
        found = [record for record in records if self._may_see(record, circle)]
        found.sort(key=lambda record: record.asked_last, reverse=True)
        found.sort(key=lambda record: urgency(record) if record.is_open else (inf, inf))
        return found, len(items) - len(records)

    async def _issue(self, command: List, person: Person, page: int) -> Listing:
        found, unreadable = await self._of_issue(command.issue, person)
        odd = [f"{unreadable} more cannot be read in issue-{command.issue}.json"] if unreadable else []
        if not found:
            nothing = f"There is nothing of issue {command.issue} that you could see."
            return listing.said(" ".join([nothing, *(f"{each}." for each in odd)]), live=False)
        circle = await self._access.circle(person, {audience_of(record) for record in found})
        page = listing.page_of(page, len(found))
        rows = await self._rows(found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], circle)
        heading = f"Issue {command.issue}: {len(found)} clarifications, {sum(r.is_open for r in found)} open"
        return listing.listing(heading, rows, page=page, total=len(found), query=command.query, notes=odd)

    async def _wanted(self, command: List, person: Person, place: Place) -> tuple[list[Summary], int, Circle]:
        """What is to be listed, most urgent first; how many of it wait for the person: those come first."""
        summaries = [each for each in self._index if each.is_open]
        circle = await self._access.circle(person, {audience_of(each) for each in summaries})
        here = {each for each in circle.answers | circle.sees if self._is_shown_in(each, place)}
        mine: list[_Ranked] = []
        others: list[_Ranked] = []
        now = self._clock.now()
        for number, each in enumerate(summaries):
            audience, held = audience_of(each), self._access.is_held_by(person.user, each)
            ranked = (urgency(each), number)
            if command.kind == "stale":
                if is_late(each, now) and (held or circle.may_see(audience)):
                    mine.append(ranked)
            elif held or (circle.may_answer(audience) and self._audiences.shows(each)):
                mine.append(ranked)
            elif command.kind == "waiting" and audience in here:
                others.append(ranked)
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        found = [summaries[number] for _, number in (*sorted(mine), *sorted(others))]
        return found, len(mine), circle

    def _is_shown_in(self, audience: Audience, place: Place) -> bool:
        return self._audiences.route_of(audience).channel == place.channel

    def _may_see(self, record: Clarification, circle: Circle) -> bool:
        asked = record.asked
        holders = {holder.user for holder in (asked.taken_by, asked.handed_to) if holder}
        return (
            circle.may_see(audience_of(record))
            or circle.user in holders
            or self._paged_for(record, circle.user)
        )

    def _paged_for(self, record: Clarification, user: str) -> bool:
        known = self._index.get(record.id, record.issue_number)
        return known is not None and self._access.is_held_by(user, known)

    async def _read(self, summaries: Sequence[Summary]) -> list[Clarification | Summary]:
        """The records, or what is known where a ledger cannot be read."""
        return list(await asyncio.gather(*(self._found(each) for each in summaries)))

    async def _found(self, summary: Summary) -> Clarification | Summary:
        try:
            return await self._records.find(summary.id, summary.issue)
        except ClarifyError:
            return summary

    async def _rows(self, found: Sequence[Clarification | Summary], circle: Circle) -> list[Row]:
        links = await self._links.links([each.id for each in found])
        return [
            listing.unread(each.id, each.topic)
            if isinstance(each, Summary)
            else listing.row(each, self._offer(each, circle, links.get(each.id)), n)
            for n, each in enumerate(found)
        ]

    def _offer(self, record: Clarification, circle: Circle, link: str | None) -> Offer:
        may = circle.may_answer(audience_of(record)) or self._paged_for(record, circle.user)
        taken = record.asked.taken_by
        free = record.status == "escalated" and (taken is None or taken.user != circle.user)
        return Offer(answer=may, take=may and free, link=link)
