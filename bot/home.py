"""Home tabs: gathers what they show, and keeps those of the people who look at them up to date.

Something changed (`touch`), somebody looks (`opened`, `press`): each viewer's tab is derived anew from a snapshot
that all share, and published if it says something else than before. At most one publish per person and second;
all together as `_PUBLISHES_PER_SECOND` says. A viewer who was looked at with older facts stays due, so that
the last state is always published.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
from asyncio import to_thread
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError, StorageUnavailable
from bot.oncall.roster import Roster
from bot.people import AccessControl, Person
from bot.routing import Audience, audience_of
from bot.settings.model import RouteSettings
from bot.slackapi import Later, Never, Outcome, Place, Sent, Unknown, failure
from bot.storage.store import Row, Store
from bot.telemetry import Telemetry
from bot.views.home import (
    PAGE_SIZES,
    AgentLine,
    Answered,
    Chosen,
    DutyLine,
    HomePress,
    Page,
    Section,
    home,
)
from bot.views.render import Renderer
from bot.views.rounds import round_of
from core.agents import AgentNode, ReadyItem, SessionFact, ready_queue, tree
from core.clarification import Clarification
from core.clock import Clock, Pace, backoff, event_or_time
from core.errors import ClarifyError, LedgersAway
from core.index import Summary, urgency
from core.ledger import FileLedger
from core.records import parse

_log = structlog.get_logger("clarify.home")
_T = TypeVar("_T")
View = dict[str, Any]

_SLICE = 500  # items: well below a millisecond
_MOST_ANSWERS = 80
_MOST_WORDS = 2000
_KEPT_WORDS = 600  # characters: more than is shown
_RESTORED_FILES = 100

_ACCESS_KEPT, _ACCESS_AGAIN = (
    120.0,
    15.0,
)  # seconds that a decision holds, and after which Slack is asked again
_MOST_DECISIONS = 20_000

_PUBLISHES_PER_SECOND = 1.5  # in all: views.publish is tier 4, and the others of that tier want some of it
_EACH = 1.0  # seconds between two publishes for one person
_SETTLE = 0.25  # seconds that a change waits for those which come with it
_HEAD_START = 30.0  # seconds of waiting that a press or an opening is worth
_LONGEST = 60.0
# Seconds that a snapshot serves, however much changes meanwhile; at least so many times what it took to take it.
_REUSE, _REUSE_TIMES = 0.5, 10.0
_LOOK = 0.1  # seconds between looks that find nothing new
_SWEEP = 300.0  # seconds after which tabs are looked at also when nobody says that something changed
_UNSURE = 15.0
_APART = 60.0
_REMEMBERED = 7 * 86_400.0
_SAME_VISIT = 3600.0
_REFUSED_PERSON = frozenset({"not_enabled", "user_not_visible", "user_is_bot", "user_is_restricted"})


@dataclass(frozen=True, slots=True)
class Fleet:
    """How the agents stand: each in a line below the one that it waits for, and their sessions."""

    agents: tuple[AgentLine, ...] = ()
    ready: tuple[ReadyItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All facts at one moment, the same for everybody.

    `questions`: what people can answer, those with the least time left first. `paged`: whom the pages of
    escalated ones were sent to. `answers`: the newest first. `number` grows with each snapshot of newer facts.
    `audiences`: those of which it has to be known whether somebody is among them.
    """

    number: int
    questions: Sequence[Summary] = ()
    audiences: frozenset[Audience] = frozenset()
    paged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    duties: tuple[DutyLine, ...] = ()
    answers: tuple[Answered, ...] = ()


class Gathering:
    """Takes snapshots, in slices and partly in a thread, so that thousands of open questions hold nobody up.

    Args:
        index: what is open, in memory.
        ledger: for the words of questions and answers.
        sessions: the agents' sessions; may raise StorageUnavailable.
        roster: who is on call.
        policies: the names of the on-call policies, in the order of the configuration.
        paged: whom the pages of a clarification were sent to: they may answer it while it is escalated.
        shows: whether people are asked a question.
    """

    def __init__(
        self,
        *,
        index: Iterable[Summary],
        ledger: FileLedger,
        sessions: Callable[[], Awaitable[Sequence[SessionFact]]],
        roster: Roster,
        policies: Sequence[str],
        paged: Callable[[str], frozenset[str]],
        shows: Callable[[Summary], bool],
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._sessions = sessions
        self._roster = roster
        self._policies = policies
        self._paged = paged
        self._shows = shows
        self._last_fleet = Fleet()
        self._answers: dict[tuple[str, int], Answered] = {}  # the newest
        self._questions: OrderedDict[tuple[str, str], str] = OrderedDict()

    def record_changed(self, record: Clarification) -> None:
        """Keep the answer of a record's newest round that has one, if it is among the newest of all."""
        found = _answered(record)
        if found is None:
            return
        self._answers[record.id, found.round] = found
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[min(self._answers, key=lambda key: self._answers[key].at)]

    async def restore_answers(self) -> None:
        """Read what the hundred ledgers that were written last say. One that cannot be read is left out."""
        try:
            issues = await to_thread(_written_last, self._ledger, _RESTORED_FILES)
        except LedgersAway as error:
            _log.warning("answers are left out", reason=str(error))
            return
        for issue in issues:
            try:
                items = await self._ledger.read(issue)
            except ClarifyError as error:
                _log.warning("answers of a ledger are left out", issue=issue, reason=str(error))
                continue
            for item in items:
                if (record := parse(item)) is not None:
                    self.record_changed(record)

    async def words(self, summaries: Iterable[Summary]) -> dict[str, str]:
        """The question of each, looked up once for each change; one whose ledger cannot be read is left out."""
        found = {}
        for each in summaries:
            if (words := await self._words(each)) is not None:
                found[each.id] = words
        return found

    async def _words(self, summary: Summary) -> str | None:
        key = (summary.id, summary.digest)
        if (kept := self._questions.get(key)) is not None:
            self._questions.move_to_end(key)
            return kept
        try:
            record = await self._ledger.find(summary.id, summary.issue)
        except ClarifyError as error:
            _log.warning("a question cannot be read for a Home tab", id=summary.id, reason=str(error))
            return None
        self._questions[key] = record.question[:_KEPT_WORDS]
        if len(self._questions) > _MOST_WORDS:
            self._questions.popitem(last=False)
        return self._questions[key]

    async def snapshot(self, number: int) -> Snapshot:
        """All facts as they are now; `number` tells this snapshot from others."""
        known = await self._known()
        duties = await self._duties()
        fleet = await self._fleet_of(known)
        questions = await to_thread(self._for_people, known)
        answers = sorted(self._answers.values(), key=lambda each: (each.at, each.clarification), reverse=True)
        return Snapshot(
            number=number,
            questions=questions,
            audiences=frozenset(
                {
                    *map(audience_of, known),
                    *(each.audience for each in answers),
                    *(Audience(each.agent) for each in fleet.agents),
                    *(Audience(each.agent) for each in fleet.ready),
                }
            ),
            paged=await self._paged_of(questions),
            fleet=fleet,
            duties=duties,
            answers=tuple(answers),
        )

    async def _known(self) -> list[Summary]:
        known = []
        for count, each in enumerate(self._index):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            known.append(each)
        return known

    async def _duties(self) -> tuple[DutyLine, ...]:
        found = await asyncio.gather(*(self._roster.who(policy) for policy in self._policies))
        return tuple(
            DutyLine(policy, duty.users, duty.source, duty.until)
            for policy, duty in zip(self._policies, found, strict=True)
        )

    async def _fleet_of(self, known: Sequence[Summary]) -> Fleet:
        """How the agents stood last, where it cannot be known now: the questions do not wait for it."""
        try:
            self._last_fleet = await to_thread(_fleet, known, await self._sessions())
        except StorageUnavailable as error:
            _log.warning("the agents' sessions cannot be read", reason=str(error))
        return self._last_fleet

    def _for_people(self, known: Sequence[Summary]) -> list[Summary]:
        return sorted((each for each in known if each.is_open and self._shows(each)), key=urgency)

    async def _paged_of(self, questions: Sequence[Summary]) -> dict[str, frozenset[str]]:
        found = {}
        for count, each in enumerate(questions):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            if each.status == "escalated" and (users := self._paged(each.id)):
                found[each.id] = users
        return found


def _answered(record: Clarification) -> Answered | None:
    """The answer of a record's newest round that has one."""
    shown = round_of(record)
    if shown.stage != "answered" and record.round > 1:
        shown = round_of(record, record.round - 1)
    if shown.stage != "answered" or shown.answered_at is None:
        return None
    agent, to = audience_of(record)
    return Answered(
        clarification=record.id,
        round=shown.number,
        agent=agent,
        to=to,
        question=shown.question[:_KEPT_WORDS],
        answer=shown.answer_label[:_KEPT_WORDS],
        at=shown.answered_at,
        by=shown.answered_by,
        user=shown.slack_user,
    )


def _written_last(ledger: FileLedger, most: int) -> list[int]:
    """The issues whose files were written last. Blocking."""
    written = []
    for issue in ledger.issues():
        try:
            written.append((ledger.path(issue).stat().st_mtime_ns, issue))
        except FileNotFoundError:
            continue  # archived in the meantime
    return [issue for _, issue in heapq.nlargest(most, written)]


def _fleet(known: Sequence[Summary], sessions: Sequence[SessionFact]) -> Fleet:
    # In the order that the views will ask for: sorting what is sorted takes no time, and sorting thousands of moments
    # would hold up the whole process, since nothing else runs meanwhile. Numbers sort many times faster.
    asked = [each.asked_last.timestamp() for each in known]
    known = [known[at] for at in sorted(range(len(known)), key=asked.__getitem__)]
    return Fleet(tuple(_flat(tree(known, sessions))), ready_queue(known, sessions))


def _flat(roots: Sequence[AgentNode]) -> list[AgentLine]:
    """The tree in lines, each agent followed by those that wait for it."""
    lines = []
    left = [(0, node) for node in reversed(roots)]
    while left:
        depth, node = left.pop()
        on = dict.fromkeys(wait.on for wait in node.waits)
        about = tuple(wait.clarification for wait in node.waits) or node.asked
        lines.append(AgentLine(node.agent, node.name, node.status, depth, tuple(on), node.since, about))
        left += [(depth + 1, waiter) for waiter in reversed(node.waiters)]
    return lines


@dataclass(frozen=True, slots=True)
class Admitted:
    """The audiences whose questions somebody may answer. `unsure`: Slack did not tell for all of them."""

    audiences: frozenset[Audience]
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class _Decision:
    """`may` None: not known."""

    may: bool | None
    until: float


class KeptAccess:
    """Whose questions somebody may answer: one decision per person and route, kept for minutes.

    Good enough for a list, since a click is checked again.
    """

    def __init__(
        self, access: AccessControl, route_of: Callable[[Audience], RouteSettings], clock: Clock
    ) -> None:
        self._access = access
        self._route_of = route_of
        self._clock = clock
        self._kept: dict[tuple[str, str, Hashable], _Decision] = {}

    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        """Of `audiences` those whose questions `person` may answer. Never raises."""
        by_route: dict[Hashable, list[Audience]] = defaultdict(list)
        for audience in audiences:
            route = self._route_of(audience)
            by_route[route.channel, route.answerers].append(audience)
        allowed: list[Audience] = []
        unsure = False
        for route_key, of_route in by_route.items():
            may = await self._may(person, route_key, of_route[0])
            unsure |= may is None
            allowed += of_route if may else ()
        return Admitted(frozenset(allowed), unsure)

    async def _may(self, person: Person, route: Hashable, audience: Audience) -> bool | None:
        key = (person.team, person.user, route)
        kept = self._kept.get(key)
        if kept is None or kept.until <= self._clock.steady():
            if len(self._kept) >= _MOST_DECISIONS:
                self._kept.clear()
            kept = self._kept[key] = await self._decided(person, audience, kept)
        return kept.may

    async def _decided(self, person: Person, audience: Audience, before: _Decision | None) -> _Decision:
        try:
            refusal = await self._access.refusal(person, self._route_of(audience).channel, audience)
        except SlackError as error:
            _log.warning("Slack does not tell what somebody may answer", user=person.user, reason=str(error))
            return _Decision(before.may if before else None, self._clock.steady() + _ACCESS_AGAIN)
        return _Decision(refusal is None, self._clock.steady() + _ACCESS_KEPT)


def chosen(snapshot: Snapshot, user: str, admitted: Admitted, pages: Mapping[str, int]) -> Chosen:
    """What `user` sees of the facts, on the pages that they turned to; a page that is gone becomes the last one."""
    allowed = admitted.audiences
    inbox = [each for each in snapshot.questions if _waits_for(user, each, snapshot, admitted)]
    answers = [each for each in snapshot.answers if each.audience in allowed or each.user == user]
    everything = _sees_everything(user, snapshot)
    stranger = not (allowed or admitted.unsure or inbox or everything)
    agents = [each for each in snapshot.fleet.agents if everything or Audience(each.agent) in allowed]
    ready = [each for each in snapshot.fleet.ready if everything or Audience(each.agent) in allowed]

    def page(section: Section, items: Sequence[_T]) -> Page[_T]:
        return _page(items, pages.get(section, 1), PAGE_SIZES[section])

    return Chosen(
        user=user,
        inbox=page("inbox", inbox),
        taken=page("taken", [each for each in inbox if each.taken_by == user]),
        agents=page("agents", agents),
        ready=page("ready", ready),
        duty=page("duty", snapshot.duties),
        answers=page("answers", answers),
        unsure=admitted.unsure,
        stranger=stranger and bool(snapshot.fleet.agents or snapshot.questions),
    )


def _waits_for(user: str, question: Summary, snapshot: Snapshot, admitted: Admitted) -> bool:
    """Whether they may answer it, or it is theirs by being on call."""
    return (
        audience_of(question) in admitted.audiences
        or user in (question.taken_by, question.handed_to)
        or user in snapshot.paged.get(question.id, ())
    )


def _sees_everything(user: str, snapshot: Snapshot) -> bool:
    """Whether they have to know how all agents stand: to decide at night what blocks what."""
    return any(user in each.users for each in snapshot.duties) or any(
        user in users for users in snapshot.paged.values()
    )


def _page(items: Sequence[_T], number: int, size: int) -> Page[_T]:
    pages = max(1, -(-len(items) // size))
    number = min(max(1, number), pages)
    return Page(tuple(items[(number - 1) * size : number * size]), number, pages, len(items))


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who opened their Home tab, last at `opened_at` (seconds since 1970, our clock).

    `channel`: their direct messages with the bot. `pages`: what page of a section they look at, from 1.
    `digest` tells what Slack shows them; None: not known.
    """

    user: str
    team: str
    channel: str
    opened_at: float
    pages: Mapping[str, int] = field(default_factory=dict)
    digest: str | None = None


class Viewers:
    """Who looks at their Home tab: the homes table. Every method raises StorageUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[Viewer]:
        """Everybody who is not forgotten."""
        return [_viewer(row) for row in await self._store.read("select * from homes order by user_id")]

    async def seen(self, viewer: Viewer) -> None:
        """Somebody opened their Home tab."""
        await self._store.run(
            """insert into homes (user_id, team, channel, opened_at, pages, digest)
               values (:user, :team, :channel, :opened_at, :pages, :digest)
               on conflict (user_id) do update set team = excluded.team, channel = excluded.channel,
               opened_at = excluded.opened_at, pages = excluded.pages, digest = excluded.digest""",
            user=viewer.user,
            team=viewer.team,
            channel=viewer.channel,
            opened_at=viewer.opened_at,
            pages=json.dumps(dict(viewer.pages)),
            digest=viewer.digest,
        )

    async def shows(self, user: str, digest: str | None) -> None:
        """What Slack shows somebody now; None: not known any more."""
        await self._store.run(
            "update homes set digest = :digest where user_id = :user", digest=digest, user=user
        )

    async def turned(self, user: str, pages: Mapping[str, int]) -> None:
        """Somebody looks at other pages of their sections."""
        await self._store.run(
            "update homes set pages = :pages where user_id = :user", pages=json.dumps(dict(pages)), user=user
        )

    async def forget(self, users: Collection[str]) -> None:
        """Nothing is published to them any more, until they open their Home tab again."""
        await self._store.write(
            lambda tx: tx.many("delete from homes where user_id = :user", [{"user": each} for each in users])
        )


def _viewer(row: Row) -> Viewer:
    pages: dict[str, int] = json.loads(row["pages"])
    return Viewer(row["user_id"], row["team"], row["channel"], row["opened_at"], pages, row["digest"])


async def publish(web: AsyncWebClient, telemetry: Telemetry, user: str, view: View) -> Outcome:
    """Call views.publish, once. One whose outcome is unknown is simply repeated: it says the same.

    `web` has no retry handlers: pace and backoff are the caller's.
    """
    outcome: Outcome
    try:
        await web.views_publish(user_id=user, view=view)
        outcome = Sent(user, "")
    except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
        outcome = failure(error)
    telemetry.delivered("home", type(outcome).__name__.lower())
    return outcome


@dataclass(slots=True)
class _Seat:
    """One viewer's place in the round.

    `seen`: the number of the snapshot that they were last looked at with. `urgent`: they wait for it in front of
    the screen. `again_at`: to be looked at then, whatever happens. `refused`: the digest of a view that Slack
    will not take. `busy`: a publish is on its way. `lost`: Slack had nothing to show them while it was.
    """

    viewer: Viewer
    seen: int = -1
    urgent: bool = False
    not_before: float = -inf
    again_at: float = inf
    last: float = -inf
    failures: int = 0
    busy: bool = False
    lost: bool = False
    refused: str | None = None

    def due_at(self, number: int, changed_at: float) -> float:
        """When to look at it; `inf`: not before something happens.

        Args:
            number: of the newest facts.
            changed_at: when the first of them changed that no snapshot holds.
        """
        if self.busy:
            return inf
        wanted = self.again_at
        if self.urgent:
            wanted = -inf
        elif self.seen < number:
            wanted = min(wanted, changed_at + _SETTLE)
        return max(wanted, self.not_before)


@dataclass(frozen=True, slots=True)
class _Tab:
    """What is to be published. `digest` tells whether it says something else than another one.

    `unsure`: it is not known of all questions whether the person may answer them.
    """

    view: View
    digest: str
    unsure: bool


class HomeTabs:
    """`restore` once, then `run` until cancelled. `send` publishes a person's view, once."""

    def __init__(
        self,
        *,
        gathering: Gathering,
        access: KeptAccess,
        renderer: Renderer,
        send: Callable[[str, View], Awaitable[Outcome]],
        viewers: Viewers,
        clock: Clock,
    ) -> None:
        self._gathering = gathering
        self._access = access
        self._renderer = renderer
        self._send = send
        self._viewers = viewers
        self._clock = clock
        self._seats: dict[str, _Seat] = {}
        self._pace = Pace(_PUBLISHES_PER_SECOND)
        self._snapshot = Snapshot(0)
        self._good_until = -inf
        self._number = 1
        self._changed_at = -inf
        self._stale = True  # whether a change waits for its snapshot
        self._next_look = -inf
        self._sweep_at = inf
        self._wake = asyncio.Event()
        self._publishing: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """Read who looked at their tab before the restart."""
        for viewer in await self._viewers.all():
            self._seats.setdefault(viewer.user, _Seat(viewer))

    def touch(self) -> None:
        """Something changed that a tab may show. Cheap: to be called as often as it happens."""
        self._number += 1
        if not self._stale:
            self._stale = True
            self._changed_at = self._clock.steady()
            self._wake.set()

    def record_changed(self, record: Clarification) -> None:
        """Show a record as it is now."""
        self._gathering.record_changed(record)
        self.touch()

    async def restore_answers(self) -> None:
        """Read the newest answers from the ledgers: at the start, and after words were taken out of them."""
        await self._gathering.restore_answers()
        self.touch()

    async def opened(self, user: str, team: str = "", channel: str = "", *, shown: bool = True) -> None:
        """Somebody opened their tab, and waits for it.

        Args:
            user: their id.
            team: where they are at home.
            channel: their direct messages with the bot.
            shown: whether Slack has a view to show them.

        Raises:
            StorageUnavailable: they are not remembered over a restart.
        """
        now = self._clock.now().timestamp()
        seat = self._seats.setdefault(user, _Seat(Viewer(user, team, channel, now)))
        before = seat.viewer
        seat.viewer = replace(
            before,
            team=team or before.team,
            channel=channel or before.channel,
            opened_at=now,
            pages=before.pages if now - before.opened_at < _SAME_VISIT else {},
            digest=before.digest if shown else None,
        )
        seat.urgent, seat.refused, seat.lost = True, None, not shown
        self._wake.set()
        await self._viewers.seen(seat.viewer)

    async def press(self, press: HomePress, person: Person) -> None:
        """A page of a section was turned.

        Raises:
            StorageUnavailable: it is not remembered over a restart.
        """
        if person.user not in self._seats:
            await self.opened(person.user, person.team)
        seat = self._seats[person.user]
        seat.viewer = replace(seat.viewer, pages={**seat.viewer.pages, press.subject: press.number})
        seat.urgent = True
        self._wake.set()
        await self._viewers.turned(person.user, seat.viewer.pages)

    def place_of(self, user: str) -> Place:
        """Where somebody who looks at their tab can be told something; the channel is empty if it is not known."""
        seat = self._seats.get(user)
        return Place(seat.viewer.channel if seat else "")

    async def run(self) -> None:
        """Publish what is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._sweep()
                now = self._clock.steady()
                due = max(self._first_due(), self._next_look, now + self._pace.wait(now, post=True))
                seat = self._next_seat(now)
                if due <= now and seat is not None:
                    await self._look(seat)
                else:
                    await event_or_time(self._clock, self._wake, min(due, self._sweep_at) - now)
        finally:
            for task in self._publishing:
                task.cancel()
            await asyncio.gather(*self._publishing, return_exceptions=True)

    def _first_due(self) -> float:
        """When somebody is due; `inf`: nobody will be."""
        return min(
            (seat.due_at(self._number, self._changed_at) for seat in self._seats.values()), default=inf
        )

    def _next_seat(self, now: float) -> _Seat | None:
        """Of those who are due the one that waited longest; one who looks on counts as having waited longer."""
        due = [seat for seat in self._seats.values() if seat.due_at(self._number, self._changed_at) <= now]
        return min(due, key=lambda seat: seat.last - (_HEAD_START if seat.urgent else 0.0), default=None)

    async def _sweep(self) -> None:
        """Now and then: forget who has not looked for a week, and look again at the others."""
        if self._seats and self._sweep_at == inf:
            self._sweep_at = self._clock.steady() + _SWEEP
        if self._clock.steady() < self._sweep_at:
            return
        self._sweep_at = self._clock.steady() + _SWEEP if self._seats else inf
        self.touch()
        since = self._clock.now().timestamp() - _REMEMBERED
        await self._forget([user for user, seat in self._seats.items() if seat.viewer.opened_at < since])

    async def _look(self, seat: _Seat) -> None:
        """Derive one tab; publish it if it says something new. One that cannot be made is tried again later."""
        try:
            await self._show(seat)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before = self._clock.steady() + _APART
            seat.seen = -1
            _log.exception("a Home tab could not be made", user=seat.viewer.user, error=type(error).__name__)

    async def _show(self, seat: _Seat) -> None:
        snapshot = await self._facts()
        # From here on, whatever is pressed or changed makes it due again.
        seat.seen, seat.urgent, seat.again_at = snapshot.number, False, inf
        seat.last = self._clock.steady()
        tab = await self._tab(seat.viewer, snapshot)
        if tab.unsure:
            seat.again_at = self._clock.steady() + _UNSURE
        now = self._clock.steady()
        self._next_look = now + _LOOK
        seat.not_before = now + _EACH
        if tab.digest in (seat.viewer.digest, seat.refused):
            return
        seat.busy, seat.lost = True, False
        self._pace.posted(now)
        task = asyncio.create_task(self._publish(seat, tab), name=f"home {seat.viewer.user}")
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _facts(self) -> Snapshot:
        """The newest snapshot, or one that is young enough: whoever gets that stays due."""
        began = self._clock.steady()
        if self._snapshot.number < self._number and began >= self._good_until:
            self._stale = False
            self._snapshot = await self._gathering.snapshot(self._number)
            now = self._clock.steady()
            self._good_until = now + max(_REUSE, _REUSE_TIMES * (now - began))
            self._sweep_at = min(self._sweep_at, began + self._until_handover())
        return self._snapshot

    def _until_handover(self) -> float:
        """Seconds until somebody else is on call."""
        now = self._clock.now()
        left = [(each.until - now).total_seconds() for each in self._snapshot.duties if each.until]
        return max(1.0, min((each for each in left if each > 0), default=_SWEEP))

    async def _tab(self, viewer: Viewer, snapshot: Snapshot) -> _Tab:
        """The tab of `viewer`, on the pages that they look at.

        Raises:
            RenderError: it breaks a limit of Slack's: a fault of ours.
        """
        admitted = await self._access.admitted(Person(viewer.team, viewer.user), snapshot.audiences)
        shown = await to_thread(chosen, snapshot, viewer.user, admitted, viewer.pages)
        words = await self._gathering.words(shown.questions)
        return await to_thread(self._rendered, shown, words)

    def _rendered(self, shown: Chosen, words: dict[str, str]) -> _Tab:
        view = self._renderer.home(home(shown, words))
        said = json.dumps(view, sort_keys=True).encode()
        return _Tab(view, hashlib.blake2b(said, digest_size=12).hexdigest(), shown.unsure)

    async def _publish(self, seat: _Seat, tab: _Tab) -> None:
        user = seat.viewer.user
        try:
            await self._remember(seat, None)  # until it is known to be there
            outcome = await self._send(user, tab.view)
            # Counted from here: Slack has it by now, however long the way was.
            seat.not_before = max(seat.not_before, self._clock.steady() + _EACH)
            await self._settle(seat, outcome, tab.digest)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before, seat.seen = self._clock.steady() + _APART, -1
            _log.exception("a Home tab could not be published", user=user, error=type(error).__name__)
        finally:
            seat.busy = False
            self._wake.set()

    async def _settle(self, seat: _Seat, outcome: Outcome, digest: str) -> None:
        """Act on what came of a publish: it is shown, to be repeated, or not wanted."""
        user = seat.viewer.user
        failures, seat.failures = seat.failures, 0
        match outcome:
            case Sent():
                self._pace.went_well()
                # Slack had nothing to show after this was sent: it may have been lost.
                await self._remember(seat, None if seat.lost else digest)
            case Later(after=seconds):
                self._repeat(seat, seconds, failures + 1, everybody=True)
            case Never(what="app"):
                self._repeat(seat, _LONGEST, failures + 1, everybody=True)
            case Unknown():
                seconds = backoff(failures, first=2.0, longest=_LONGEST)
                self._repeat(seat, seconds, failures + 1, everybody=False)
            case Never(what=what, code=code) if what == "place" or code in _REFUSED_PERSON:
                _log.info("Slack shows somebody no Home tab", user=user)
                await self._forget([user])
            case Never():
                _log.error("Slack does not take a Home tab", user=user)
                seat.refused = digest

    def _repeat(self, seat: _Seat, seconds: float | None, failures: int, *, everybody: bool) -> None:
        """Publish again after `seconds` (None: as the pace's backoff says); `everybody` waits so long."""
        now = self._clock.steady()
        _log.warning("a Home tab has to wait", user=seat.viewer.user, seconds=seconds)
        seat.seen, seat.failures = -1, failures
        if everybody:
            self._pace.refused(now, seconds)
        else:
            seat.not_before = max(seat.not_before, now + (seconds or 0.0))

    async def _remember(self, seat: _Seat, digest: str | None) -> None:
        """Note what Slack shows. Not being able to costs at most a publish that says the same."""
        if seat.viewer.digest == digest:
            return
        seat.viewer = replace(seat.viewer, digest=digest)
        try:
            await self._viewers.shows(seat.viewer.user, digest)
        except StorageUnavailable as error:
            _log.warning("what a Home tab shows is not noted", user=seat.viewer.user, reason=str(error))

    async def _forget(self, users: list[str]) -> None:
        for user in users:
            self._seats.pop(user, None)
        if not users:
            return
        try:
            await self._viewers.forget(users)
        except StorageUnavailable as error:
            _log.warning("viewers of Home tabs are not forgotten", count=len(users), reason=str(error))
