"""What a person may see and change through commands (`Access`): the open clarifications, agents (`agents`), sessions (`ready`) and
past decisions that they list; and what integrations may do in Slack (`SlackHost`).

People see the questions that they may answer, those of their channels, and those that they claimed, were handed, or are
paged for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.commands.grammar import Board, List, Past
from bot.decisions.search import DecisionSearch
from bot.errors import SlackError, SlackRefusedError, StorageUnavailable
from bot.intake.notices import content
from bot.oncall.roster import Roster
from bot.people.access import AccessControl, AccessRefusal, Person, in_time
from bot.people.directory import People
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import RouteSettings, Settings
from bot.show.delivery import Delivery
from bot.show.messages import Fresh, Messages, Permalinks
from bot.slackapi import Place
from bot.views.blockkit import Draft
from bot.views.lists import (
    LINES,
    PAGE_SIZE,
    ListRow,
    Offer,
    agent_row,
    decision_row,
    listing,
    past_row,
    row,
    said,
    session_row,
    unread,
)
from bot.views.locale import in_words
from bot.views.render import Renderer
from core.clarification import Clarification
from core.clock import Clock
from core.errors import NotFound
from core.index import Index, SessionFact, ready_queue, tree
from core.ledger import Contents, Ledger
from core.summary import PastDecision, Seen, Summary, is_held_by, is_late, order, page_of

_BREATH = 1000  # records handled before other tasks get a turn
_HEADINGS = {"waiting": "Open questions", "mine": "Waiting for you", "stale": "Overdue questions"}
_NOTHING = {
    "waiting": "No questions are waiting for you or open in this channel.",
    "mine": "No questions are waiting for you.",
    "stale": "No overdue questions: none has had a reminder or been escalated.",
    "agents": "No agent is active.",
    "ready": "The queue is empty: no session is running.",
}
_SEARCHED = (
    "I looked through the questions, answers, comments and agents' names of decisions, in the channels that you are in and in "
    "your direct messages."
)
_UNREADABLE = "The decisions can't be read right now. Please try again in a moment."
_CHANNELS_UNKNOWN = (
    "Slack did not say which channels you are in, so nothing is shown. Please try again in a moment."
)
_log = logging.getLogger("clarify.commands")


@dataclass(frozen=True, slots=True)
class Rights:
    """The audiences whose questions a person may answer, and those whose questions they may see, which include those."""

    user: str
    answers: frozenset[Audience]
    sees: frozenset[Audience]


@dataclass(eq=False)
class Access:
    """Decides who may see and change what through commands: the answerers, and the people on call for the agent.

    Every coroutine raises SlackError if Slack cannot tell who someone is. `paged(clarification)` returns the users that got
    its open pages.
    """

    control: AccessControl
    roster: Roster
    paged: Callable[[str], frozenset[str]]
    settings: Settings

    def __post_init__(self) -> None:
        self.audiences = Audiences(self.settings)

    async def rights(self, person: Person, audiences: Iterable[Audience]) -> Rights:
        """Returns what `person` may do with questions of `audiences`. Asks Slack once per route, not per audience."""
        answers: set[Audience] = set()
        sees: set[Audience] = set()
        for route, named in self.audiences.by_route(audiences).items():
            if await self._refusal(person, route) is None:
                answers.update(named)
            elif await self.control.sees(person, named[0]):
                sees.update(named)
        return Rights(person.user, frozenset(answers), frozenset(sees | answers))

    async def refusal(self, person: Person, record: Clarification) -> AccessRefusal | None:
        """Returns why `person` may not change this clarification, or None if they may."""
        route = self.audiences.route(record)
        if record.status == "escalated" and await self.control.may_as_paged(person, record.id, route):
            return None
        return await self._refusal(person, route)

    async def sees(self, person: Person, record: Clarification) -> bool:
        """Returns whether `person`, who may not change this clarification, may see it."""
        return self.is_held_by(person.user, record) or await self.control.sees(person, audience_of(record))

    async def duty_refusal(self, person: Person, policy: str) -> AccessRefusal | None:
        """Returns why `person` may not change who is on call by a policy, or None if they may.

        Allowed are the people of its rotation, the person on call, and the answerers of routes that use it.
        """
        named = self.settings.on_call_named(policy).named_users
        if person.user in named or await self._is_on_call(person, policy):
            return None
        if person.user in await in_time(person.deadline, self.roster.crew(policy)):
            return None
        refused: AccessRefusal | None = None
        for route in self.settings.routes:
            if route.on_call == policy:
                refused = await self.control.refusal_on(person, route)
                if refused is None:
                    return None
        return refused or AccessRefusal("you are not on call here", named)

    def is_held_by(self, user: str, record: Seen) -> bool:
        """Returns whether `user` claimed it, was handed it, or was paged for it while it is escalated."""
        return is_held_by(user, record, self.paged(record.id))

    async def _refusal(self, person: Person, route: RouteSettings) -> AccessRefusal | None:
        refused = await self.control.refusal_on(person, route)
        if refused is None or route.on_call is None:
            return refused
        return None if await self._is_on_call(person, route.on_call) else refused

    async def _is_on_call(self, person: Person, policy: str) -> bool:
        return person.user in await in_time(person.deadline, self.roster.on_call(policy))


@dataclass(kw_only=True, eq=False)
class Lists:
    """Lists what is open, a page at a time.

    Every coroutine raises SlackError if Slack cannot tell what the person may see. `sessions` returns the agents' sessions;
    may raise StorageUnavailable. `locale_of` returns a user's locale, empty if it is not known.
    """

    index: Index
    ledger: Ledger
    access: Access
    permalinks: Permalinks
    sessions: Callable[[], Awaitable[Sequence[SessionFact]]]
    clock: Clock
    locale_of: Callable[[str], str] = lambda _: ""

    async def show(self, command: List, person: Person, place: Place, page: int = 1) -> Draft:
        """Returns a page of a list.

        Raises:
            LedgerUnreadable, LockTimeout: the issue's ledger cannot be read.
        """
        if command.kind == "issue":
            return await self._issue(command, person, page)
        wanted, mine, rights = await self._wanted(command, person, place)
        if not wanted:
            return said(_NOTHING[command.kind], live=False)
        locale = self.locale_of(person.user)
        heading = in_words(f"{_HEADINGS[command.kind]}: {len(wanted)}", locale)
        notes = []
        if command.kind == "waiting":
            notes = [in_words(f"{mine} for you, {len(wanted) - mine} more in this channel", locale)]
        return await self._page(wanted, rights, page, heading=heading, query=command.query, notes=notes)

    async def one(self, clarification_id: str, person: Person) -> Draft:
        """Returns one clarification.

        Raises:
            NotFound: it does not exist, or this person may not see it.
        """
        record = await self.ledger.find(clarification_id)
        rights = await self.access.rights(person, [audience_of(record)])
        if not self._may_see(record, rights):
            raise NotFound(clarification_id)
        return await self._page([record], rights, 1, heading=record.id, query=record.id)

    async def of_issue(self, issue: int, person: Person) -> Contents:
        """Returns the issue's records that the person may see, open ones first, then the latest; and those that cannot be
        read.
        """
        records, unreadable = await self.ledger.read(issue)
        rights = await self.access.rights(person, {audience_of(record) for record in records})
        found = [record for record in records if self._may_see(record, rights)]
        return Contents(sorted(found, key=order), unreadable)

    async def board(self, command: Board, person: Person, page: int) -> Draft:
        """Returns a page of the agents, or of the sessions.

        Raises:
            StorageUnavailable: the sessions cannot be read now.
        """
        records = [each for each in self.index if each.is_open]
        sessions = await self.sessions()
        asked = {audience_of(each) for each in records}
        rights = await self.access.rights(person, asked | {Audience(fact.agent_id) for fact in sessions})
        records = [each for each in records if audience_of(each) in rights.sees]
        sessions = [fact for fact in sessions if Audience(fact.agent_id) in rights.sees]
        # In a thread: it takes long with thousands of records.
        query, empty = command.kind, _NOTHING[command.kind]
        if command.kind == "agents":
            agents = page_of(await asyncio.to_thread(tree, records, sessions), page, LINES)
            heading, found = "Agents", agents.of(list(map(agent_row, agents.items)))
        else:
            queue = page_of(await asyncio.to_thread(ready_queue, records, sessions), page, LINES)
            heading, found = "Ready queue", queue.of(list(map(session_row, queue.items)))
        return listing(heading, found, query=query) if found.items else said(empty, live=False)

    async def _issue(self, command: List, person: Person, page: int) -> Draft:
        found, unreadable = await self.of_issue(command.issue, person)
        odd = [f"{len(unreadable)} more cannot be read"] if unreadable else []
        if not found:
            nothing = f"Issue {command.issue} has no questions that you may see."
            return said(" ".join([nothing, *(f"{each}." for each in odd)]), live=False)
        rights = await self.access.rights(person, {audience_of(record) for record in found})
        counts = f"{len(found)} clarifications, {sum(r.is_open for r in found)} open"
        heading = f"Issue {command.issue}: {in_words(counts, self.locale_of(person.user))}"
        return await self._page(found, rights, page, heading=heading, query=command.query, notes=odd)

    async def _wanted(self, command: List, person: Person, place: Place) -> tuple[list[Summary], int, Rights]:
        """Returns what to list, and how many of it wait for the person. Those come first, each part most urgent first; in
        `mine`, what the person claimed comes before the rest.
        """
        records = [each for each in self.index if each.is_open]
        rights = await self.access.rights(person, {audience_of(each) for each in records})
        audiences = self.access.audiences
        here = {each for each in rights.sees if audiences.route_of(each).channel == place.channel}
        mine: list[Summary] = []
        others: list[Summary] = []
        now = self.clock.now()
        for number, each in enumerate(records):
            audience, held = audience_of(each), self.access.is_held_by(person.user, each)
            if command.kind == "stale":
                if is_late(each, now) and (held or audience in rights.sees):
                    mine.append(each)
            elif held or (audience in rights.answers and audiences.shows(each)):
                mine.append(each)
            elif command.kind == "waiting" and audience in here:
                others.append(each)
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        mine.sort(key=order)
        if command.kind == "mine":
            mine.sort(key=lambda each: each.claimed_by != person.user)
        return [*mine, *sorted(others, key=order)], len(mine), rights

    async def _page(
        self,
        found: Sequence[Seen],
        rights: Rights,
        number: int,
        *,
        heading: str,
        query: str,
        notes: Collection[str] = (),
    ) -> Draft:
        page = page_of(found, number, PAGE_SIZE)
        read = await asyncio.gather(*map(self.ledger.whole_if_readable, page.items))
        links = await self.permalinks.links([each.id for each in read])
        rows = [await self._row(each, rights, links.get(each.id), n) for n, each in enumerate(read)]
        return listing(heading, page.of(rows), query=query, notes=notes)

    async def _row(self, each: Seen, rights: Rights, link: str | None, n: int) -> ListRow:
        if isinstance(each, Summary):
            return unread(each.id, each.short_topic)
        may = audience_of(each) in rights.answers or self.access.is_held_by(rights.user, each)
        free = each.status == "escalated" and each.claimed_by != rights.user
        is_tampered = await self.ledger.is_tampered(each)
        may = may and not is_tampered
        return row(each, Offer(answer=may, take=may and free, link=link), n, is_tampered=is_tampered)

    def _may_see(self, record: Clarification, rights: Rights) -> bool:
        return audience_of(record) in rights.sees or self.access.is_held_by(rights.user, record)


@dataclass(kw_only=True, eq=False)
class PastDecisions:
    """Shows what a search of decisions found, a page at a time. `to_plain` turns Slack's markup into plain text."""

    search: DecisionSearch
    permalinks: Permalinks
    to_plain: Callable[[str], str]

    async def show(self, command: Past, person: Person, page: int = 1) -> Draft:
        """Returns a page of it, or why there is none."""
        search = command.search
        search = search._replace(
            words=tuple(map(self.to_plain, search.words)), agent=self.to_plain(search.agent)
        )
        try:
            found = await self.search.page(search, person, page)
        except SlackError as error:
            _log.warning("decisions not searched: %s", error)
            return said(_CHANNELS_UNKNOWN)
        except StorageUnavailable as error:
            _log.warning("decisions not searched: %s", error)
            return said(_UNREADABLE)
        words = self.to_plain(command.text)
        if not found.items:
            return said(f"Nothing found for “{words}”. {_SEARCHED}", live=False)
        links = await asyncio.gather(*(self._link(each) for each in found.items))
        rows = [decision_row(past_row(each), link) for each, link in zip(found.items, links, strict=True)]
        return listing(f"Decisions: {words}", found.of(rows), query=command.query)

    async def _link(self, decision: PastDecision) -> str | None:
        if decision.channel is None or decision.ts is None:
            return None
        return await self.permalinks.permalink(decision.channel, decision.ts)


class Sight:
    """The questions that someone may see. `others`: whether that includes questions of other channels."""

    def __init__(self, sees: Callable[[Audience], Awaitable[bool]], *, others: bool = True) -> None:
        self.others = others
        self._sees = sees
        self._known: dict[Audience, bool] = {}  # thousands of questions share a few audiences

    async def may_see(self, record: Seen) -> bool:
        """Raises SlackError if Slack cannot tell."""
        audience = audience_of(record)
        if audience not in self._known:
            self._known[audience] = await self._sees(audience)
        return self._known[audience]


@dataclass(frozen=True, kw_only=True, eq=False)
class SlackHost:
    """The running bot in Slack, for integrations: its clarifications and people. Posts once for each key."""

    ledger: Ledger
    clock: Clock
    access: Access
    people: People
    messages: Messages
    delivery: Delivery
    renderer: Renderer

    def route(self, record: Seen) -> str:
        """Returns the name of the route by which a question is asked."""
        return self.access.audiences.route(record).name

    def sight_of(self, person: Person) -> Sight:
        """Returns which questions a person may see."""

        async def sees(audience: Audience) -> bool:
            return audience in (await self.access.rights(person, [audience])).sees

        return Sight(sees)

    async def sight_in(self, channel: str) -> Sight:
        """Returns which questions everyone in a channel may see.

        Raises:
            SlackError: Slack cannot tell.
        """
        audiences = self.access.audiences
        channels = await self.access.control.seen_from(channel, audiences.channels)

        async def sees(audience: Audience) -> bool:
            return audiences.route_of(audience).channel in channels

        return Sight(sees, others=len(channels) > 1)

    async def zone_of(self, person: Person) -> ZoneInfo:
        """Returns a person's time zone, or UTC if Slack names none that is known here."""
        try:
            return ZoneInfo((await in_time(person.deadline, self.people.profile(person.user))).zone or "UTC")
        except (SlackError, ValueError, ZoneInfoNotFoundError):
            return ZoneInfo("UTC")

    def locale_of(self, user: str) -> str:
        """Returns a user's locale, empty if it is not known."""
        return self.people.known_locale(user)

    async def name_of(self, user: str) -> str:
        """Returns a user's name, or their id if Slack has no name.

        Raises:
            SlackError: Slack cannot tell.
        """
        try:
            return (await self.people.profile(user)).name or user
        except SlackRefusedError:
            return user

    async def is_posted(self, key: str) -> bool:
        """Whether `post` had that key before, within the last week at least."""
        return await self.messages.get(key) is not None

    async def post(self, key: str, channel: str, draft: Draft) -> None:
        """Posts in a channel; if the channel is gone, posts nowhere. Durable on return. `key` begins with the integration's name.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        body = content(self.renderer, draft)
        await self.delivery.notify(Fresh(key=key, kind="post", target=channel, body=body, wanted="post"))
