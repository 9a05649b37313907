"""Lists of what is open, as far as a person may see it: clarifications, agents (`agents`) and sessions (`ready`).

Somebody sees the questions that they may answer, those of channels that they are in, and what they hold: took, were
handed, or are paged for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from bot.commands.grammar import Board, List
from bot.delivery.messages import Permalinks
from bot.oncall.roster import Roster
from bot.people.access import AccessControl, Person, Refusal, in_time
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import RouteSettings, Settings
from bot.slackapi import Place
from bot.views import inert, phrases
from bot.views.blockkit import Draft
from bot.views.lists import PAGE_SIZE, ListRow, Offer, board, listing, page_of, row, said, unread
from core.agents import AgentNode, ReadyItem, SessionFact, ready_queue, tree, walk
from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.errors import ClarifyError, NotFound
from core.index import Index, is_late, urgency, whole
from core.ledger import Ledger
from core.records import Outline, parse

_BREATH = 1000  # records looked at before others get their turn
_NAME, _LISTED, _DEEPEST = 40, 3, 8  # so that a page of lines fits into a message and its text
_INDENT = "\u2003"  # an em space: Slack trims ordinary ones
_HEADINGS = {"waiting": "Open questions", "mine": "Waiting for you", "stale": "Overdue questions"}
_NOTHING = {
    "waiting": "No questions are waiting for you or open in this channel.",
    "mine": "No questions are waiting for you.",
    "stale": "No overdue questions: none has had a reminder or been escalated.",
    "agents": "No agent is active.",
    "ready": "The queue is empty: no session is running.",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """The audiences whose questions a person may answer, and those whose questions the person may see."""

    user: str
    answers: frozenset[Audience]
    sees: frozenset[Audience]  # those that they may answer among them


class Access:
    """Decides who may see and change what through commands: the answerers, and the people on call for the agent.

    Every coroutine raises SlackError where Slack does not tell who somebody is. `paged(clarification)` gives the users
    that its open pages were sent to.
    """

    def __init__(
        self,
        control: AccessControl,
        roster: Roster,
        paged: Callable[[str], frozenset[str]],
        settings: Settings,
    ) -> None:
        self.control = control
        self.audiences = Audiences(settings)
        self._roster = roster
        self._paged = paged
        self._settings = settings

    async def rights(self, person: Person, audiences: Iterable[Audience]) -> Rights:
        """What `person` may do with questions of `audiences`. Asks Slack once per route, not once per audience."""
        answers: set[Audience] = set()
        sees: set[Audience] = set()
        for route, named in self.audiences.by_route(audiences).items():
            if await self._refusal(person, route) is None:
                answers.update(named)
            elif await self.control.sees(person, named[0]):
                sees.update(named)
        return Rights(person.user, frozenset(answers), frozenset(sees | answers))

    async def refusal(self, person: Person, record: Clarification) -> Refusal | None:
        """Why `person` may not change this clarification; None if they may."""
        route = self.audiences.route(record)
        if record.status == "escalated" and await self.control.may_as_paged(person, record.id, route):
            return None
        return await self._refusal(person, route)

    async def duty_refusal(self, person: Person, policy: str) -> Refusal | None:
        """Why `person` may not change who is on call by a policy; None if they may.

        Those may who take turns by it, whose turn it is, and who answer where it is used.
        """
        named = self._settings.on_call_named(policy).named_users
        if person.user in named or await self._is_on_call(person, policy):
            return None
        if person.user in await in_time(person.deadline, self._roster.crew(policy)):
            return None
        refused: Refusal | None = None
        for route in self._settings.routes:
            if route.on_call == policy:
                refused = await self.control.refusal_on(person, route)
                if refused is None:
                    return None
        return refused or Refusal("you are not on call here", named)

    def is_held_by(self, user: str, record: Clarification) -> bool:
        """Whether somebody took it, was handed it, or was paged for it while it is escalated."""
        if user in {record.claimed_by, record.offered_to}:
            return True
        return record.status == "escalated" and user in self._paged(record.id)

    async def _refusal(self, person: Person, route: RouteSettings) -> Refusal | None:
        refused = await self.control.refusal_on(person, route)
        if refused is None or route.on_call is None:
            return refused
        return None if await self._is_on_call(person, route.on_call) else refused

    async def _is_on_call(self, person: Person, policy: str) -> bool:
        return person.user in await in_time(person.deadline, self._roster.on_call(policy))


class Lists:
    """Lists what is open, a page at a time.

    Every coroutine raises SlackError where Slack does not tell what the person may see. `sessions`: the agents' sessions; may raise StorageUnavailable.
    """

    def __init__(
        self,
        *,
        index: Index,
        ledger: Ledger,
        access: Access,
        permalinks: Permalinks,
        sessions: Callable[[], Awaitable[Sequence[SessionFact]]],
        clock: Clock,
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._access = access
        self._permalinks = permalinks
        self._sessions = sessions
        self._clock = clock

    async def show(self, command: List, person: Person, place: Place, page: int = 1) -> Draft:
        """A page of a list.

        Raises:
            LedgerUnreadable, LockTimeout: of the one issue that was asked for.
        """
        if command.kind == "issue":
            return await self._issue(command, person, page)
        wanted, mine, rights = await self._wanted(command, person, place)
        if not wanted:
            return said(_NOTHING[command.kind], live=False)
        heading = f"{_HEADINGS[command.kind]}: {len(wanted)}"
        notes = []
        if command.kind == "waiting":
            notes = [f"{mine} for you, {len(wanted) - mine} more in this channel"]
        return await self._page(wanted, rights, page, heading=heading, query=command.query, notes=notes)

    async def one(self, clarification_id: str, person: Person) -> Draft:
        """One clarification.

        Raises:
            NotFound: there is none, or none that this person could see.
        """
        record = await self._ledger.find(clarification_id, parse_id(clarification_id)[0])
        rights = await self._access.rights(person, [audience_of(record)])
        if not self._may_see(record, rights):
            raise NotFound(clarification_id)
        return await self._page([record], rights, 1, heading=record.id, query=record.id)

    async def of_issue(self, issue: int, person: Person) -> tuple[list[Clarification], int]:
        """Those that a person could see, open ones first, then the latest; how many nobody sees: they cannot be read."""
        items = await self._ledger.read(issue)
        records = [record for item in items if (record := parse(item)) is not None]
        rights = await self._access.rights(person, {audience_of(record) for record in records})
        found = [record for record in records if self._may_see(record, rights)]
        found.sort(key=lambda record: record.asked_last, reverse=True)
        found.sort(key=lambda record: urgency(record) if record.is_open else (inf, inf))
        return found, len(items) - len(records)

    async def board(self, command: Board, person: Person, page: int) -> Draft:
        """A page of the agents, or of the sessions.

        Raises:
            StorageUnavailable: the sessions are not known now.
        """
        records = [each for each in self._index if each.is_open]
        sessions = await self._sessions()
        asked = {audience_of(each) for each in records}
        rights = await self._access.rights(person, asked | {Audience(fact.agent_id) for fact in sessions})
        records = [each for each in records if audience_of(each) in rights.sees]
        sessions = [fact for fact in sessions if Audience(fact.agent_id) in rights.sees]
        # Elsewhere: it takes long where thousands wait.
        lines = await asyncio.to_thread(board_lines, command, records, sessions)
        if not lines:
            return said(_NOTHING[command.kind], live=False)
        heading = "Agents" if command.kind == "agents" else "Ready queue"
        return board(heading, lines, page=page, query=command.kind)

    async def _issue(self, command: List, person: Person, page: int) -> Draft:
        found, unreadable = await self.of_issue(command.issue, person)
        odd = [f"{unreadable} more cannot be read in issue-{command.issue}.json"] if unreadable else []
        if not found:
            nothing = f"Issue {command.issue} has no questions that you may see."
            return said(" ".join([nothing, *(f"{each}." for each in odd)]), live=False)
        rights = await self._access.rights(person, {audience_of(record) for record in found})
        heading = f"Issue {command.issue}: {len(found)} clarifications, {sum(r.is_open for r in found)} open"
        return await self._page(found, rights, page, heading=heading, query=command.query, notes=odd)

    async def _wanted(
        self, command: List, person: Person, place: Place
    ) -> tuple[list[Clarification], int, Rights]:
        """What is to be listed, most urgent first; how many of it wait for the person: those come first, of `mine` those
        before them that the person took.
        """
        records = [each for each in self._index if each.is_open]
        rights = await self._access.rights(person, {audience_of(each) for each in records})
        audiences = self._access.audiences
        here = {each for each in rights.sees if audiences.route_of(each).channel == place.channel}
        mine: list[tuple[bool, tuple[float, float], int]] = []
        others: list[tuple[bool, tuple[float, float], int]] = []
        now = self._clock.now()
        for number, each in enumerate(records):
            audience, held = audience_of(each), self._access.is_held_by(person.user, each)
            if command.kind == "stale":
                if is_late(each, now) and (held or audience in rights.sees):
                    mine.append((False, urgency(each), number))
            elif held or (audience in rights.answers and audiences.shows(each)):
                theirs = command.kind == "mine" and each.claimed_by == person.user
                mine.append((not theirs, urgency(each), number))
            elif command.kind == "waiting" and audience in here:
                others.append((False, urgency(each), number))
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        found = [records[number] for _, _, number in (*sorted(mine), *sorted(others))]
        return found, len(mine), rights

    async def _page(
        self,
        found: Sequence[Clarification],
        rights: Rights,
        page: int,
        *,
        heading: str,
        query: str,
        notes: Collection[str] = (),
    ) -> Draft:
        page = page_of(page, len(found))
        shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        read = await asyncio.gather(*(self._read(each) for each in shown))
        links = await self._permalinks.links([each.id for each in read])
        rows = [await self._row(each, rights, links.get(each.id), n) for n, each in enumerate(read)]
        return listing(heading, rows, page=page, total=len(found), query=query, notes=notes)

    async def _read(self, known: Clarification) -> Clarification:
        """All of the record, or what is known where its ledger cannot be read."""
        try:
            return await whole(known, self._ledger)
        except ClarifyError:
            return known

    async def _row(self, each: Clarification, rights: Rights, link: str | None, n: int) -> ListRow:
        if isinstance(each, Outline):
            return unread(each.id, each.short_topic)
        may = audience_of(each) in rights.answers or self._is_held(each, rights.user)
        taken = each.asked.taken_by
        free = each.status == "escalated" and (taken is None or taken.user != rights.user)
        is_tampered = await self._ledger.is_tampered(each)
        may = may and not is_tampered
        return row(each, Offer(answer=may, take=may and free, link=link), n, is_tampered=is_tampered)

    def _may_see(self, record: Clarification, rights: Rights) -> bool:
        holders = {holder.user for holder in (record.asked.taken_by, record.asked.handed_to) if holder}
        return (
            audience_of(record) in rights.sees or rights.user in holders or self._is_held(record, rights.user)
        )

    def _is_held(self, record: Clarification, user: str) -> bool:
        known = self._index.get(record.id)
        return known is not None and self._access.is_held_by(user, known)


def board_lines(
    command: Board, records: Sequence[Clarification], sessions: Sequence[SessionFact]
) -> list[str]:
    """One line for each agent or session, in mrkdwn of ours (pure)."""
    if command.kind == "agents":
        return [_of_agent(node, depth) for depth, node in walk(tree(records, sessions))]
    return [_of_session(item) for item in ready_queue(records, sessions)]


def _of_agent(node: AgentNode, depth: int) -> str:
    on = list(dict.fromkeys(wait.on for wait in node.waits))
    parts = [f"{_INDENT * min(depth, _DEEPEST)}*{_clean(node.name or node.agent)}*:"]
    parts.append(phrases.waiting(node.status, on, _several))
    if node.since is not None:
        parts.append(f"since {inert.date(node.since)}")
    if node.waits:
        parts.append(f"({_several([wait.clarification for wait in node.waits])})")
    return " ".join(parts)


def _of_session(item: ReadyItem) -> str:
    name = f"*{_clean(item.name or item.agent)}*, issue {item.issue}"
    if not item.blocked_by:
        return f"{name}: ready"
    since = f" since {inert.date(item.since)}" if item.since else ""
    return f"{name}: blocked by {_several(item.blocked_by)}{since}"


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(_clean(each) for each in names[:_LISTED]) + more


def _clean(text: str) -> str:
    return inert.escaped_line(text, _NAME)
