"""Home tabs: gathers what they show, and keeps open ones up to date.

After a change (`touch`) or when a viewer opens or pages their tab (`opened`, `press`), the bot renders each viewer's tab
from a shared snapshot, and publishes it if it differs from the last one: at most once a second per person, and at
`_PUBLISHES_PER_SECOND` in all. A tab that was rendered from older facts stays due, so the last state is always published.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from asyncio import to_thread
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

import structlog

from bot.errors import SlackError, StorageUnavailable
from bot.oncall.roster import Roster
from bot.people.access import AccessControl, Person
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import RouteSettings
from bot.slackapi import Gateway, Later, Never, Outcome, Place, Sent, Unknown
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx
from bot.views import lists as views
from bot.views.codec import HomePress, HomeSection
from bot.views.lists import Chosen, DutyLine, QuestionRow, row_of
from bot.views.render import Renderer
from bot.views.wording import round_of
from core.clarification import Clarification
from core.clock import Clock, Pace, backoff, event_or_time
from core.errors import LedgersAway
from core.index import AgentNode, ReadyItem, SessionFact, ready_queue, tree
from core.ledger import Ledger
from core.summary import ListPage, Seen, is_held_by, order, page_of

_log = structlog.get_logger("clarify.home")
_T = TypeVar("_T")
_Line = TypeVar("_Line", AgentNode, ReadyItem)
View = dict[str, Any]

_MOST_ANSWERS = 80
_KEPT_WORDS = 600  # characters, more than a tab shows
_RESTORED = 100

# Seconds that a decision is cached, and a failure to get one from Slack.
_ACCESS_KEPT, _ACCESS_AGAIN = 120.0, 15.0
_MOST_DECISIONS = 20_000

_PUBLISHES_PER_SECOND = 1.5  # in all: views.publish is tier 4, and other calls need some of that
_EACH = 1.0  # seconds between two publishes for one person
_SETTLE = 0.25  # seconds that a change waits for others, to publish them together
_HEAD_START = 30.0  # seconds of waiting that a viewer at the screen is ahead of others
_LONGEST = 60.0
# Seconds that a snapshot is reused despite changes, and at least so many times the seconds that taking it took.
_REUSE, _REUSE_TIMES = 0.5, 10.0
_LOOK = 0.1  # seconds between two tabs
_SWEEP = 300.0  # seconds after which tabs are rendered even without a known change
_UNSURE = 15.0
_APART = 60.0
_REMEMBERED = 7 * 86_400.0
_SAME_VISIT = 3600.0
_REFUSED_PERSON = frozenset({"not_enabled", "user_not_visible", "user_is_bot", "user_is_restricted"})


_Answer = tuple[Audience, QuestionRow]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts at one moment, the same for all viewers.

    `number` grows with each newer snapshot. `questions`: what people can answer, most urgent first. `audiences`: of all
    items. `paged`: the users paged for escalated questions. `agents`: each below the one that it waits for; `ready`: their
    sessions. `answers`: newest first.
    """

    number: int
    questions: Sequence[Seen] = ()
    audiences: frozenset[Audience] = frozenset()
    paged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    agents: tuple[AgentNode, ...] = ()
    ready: tuple[ReadyItem, ...] = ()
    duties: tuple[DutyLine, ...] = ()
    answers: tuple[_Answer, ...] = ()


@dataclass(kw_only=True, eq=False)
class Gathering:
    """Takes snapshots, partly in a thread, so that thousands of open questions do not block the event loop.

    `sessions` returns the agents' sessions; may raise StorageUnavailable. `policies`: the names of the on-call policies, in
    the order of the configuration. `paged` returns the users paged for a clarification, who may answer it while it is
    escalated. `shows`: whether a question goes to people.
    """

    index: Iterable[Seen]
    ledger: Ledger
    sessions: Callable[[], Awaitable[Sequence[SessionFact]]]
    roster: Roster
    policies: Sequence[str]
    paged: Callable[[str], frozenset[str]]
    shows: Callable[[Seen], bool]

    def __post_init__(self) -> None:
        self._fleet: tuple[tuple[AgentNode, ...], tuple[ReadyItem, ...]] = (), ()  # as last known
        self._duties: tuple[DutyLine, ...] = ()  # as last known
        self._answers: dict[tuple[str, int], _Answer] = {}  # the newest ones, by id and round

    def record_changed(self, record: Clarification) -> None:
        """Keep the record's latest answer, if it is among the newest of all."""
        shown = round_of(record)
        if shown.stage != "answered" and record.round > 1:
            shown = round_of(record, record.round - 1)
        if shown.decided is None or shown.answered_at is None:
            return
        row = row_of(shown)
        decided = replace(shown.decided, answer=shown.decided.answer[:_KEPT_WORDS])
        kept = replace(row, question=row.question[:_KEPT_WORDS], decided=decided)
        self._answers[record.id, shown.number] = audience_of(record), kept
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[min(self._answers, key=lambda key: self._answers[key][1].at)]

    async def load_answers(self) -> None:
        """Read the answers of the records that were written last."""
        try:
            for record in await self.ledger.latest(_RESTORED):
                if not await self.ledger.is_tampered(record):
                    self.record_changed(record)
        except LedgersAway as error:
            _log.warning("answers left out of the Home tab", reason=str(error))

    async def whole(self, page: ListPage[Seen]) -> ListPage[Seen]:
        """Returns the page with the full texts of its questions, if they can be read."""
        return page.of([await self.ledger.whole_if_readable(each) for each in page.items])

    async def snapshot(self, number: int) -> Snapshot:
        """Returns all facts as they are now, as snapshot `number`."""
        known = list(self.index)
        try:
            turns = await asyncio.gather(*map(self.roster.who, self.policies))
            self._duties = tuple(
                DutyLine(policy, turn.users, turn.source, turn.until)
                for policy, turn in zip(self.policies, turns, strict=True)
            )
            sessions = await self.sessions()
            self._fleet = (
                await to_thread(tree, known, sessions),
                await to_thread(ready_queue, known, sessions),
            )
        except StorageUnavailable as error:  # show the questions anyway
            _log.warning("cannot read the agents' sessions and who is on call", reason=str(error))
        agents, ready = self._fleet
        questions = await to_thread(self._for_people, known)
        escalated = (each.id for each in questions if each.status == "escalated")
        paged = {each: users for each in escalated if (users := self.paged(each))}
        answers = sorted(self._answers.values(), key=lambda each: (each[1].at, each[1].id), reverse=True)
        audiences = {*map(audience_of, known), *(audience for audience, _ in answers)}
        audiences |= {Audience(each.agent) for each in agents} | {Audience(each.agent) for each in ready}
        return Snapshot(
            number=number,
            questions=questions,
            audiences=frozenset(audiences),
            paged=paged,
            agents=agents,
            ready=ready,
            duties=self._duties,
            answers=tuple(answers),
        )

    def _for_people(self, known: Sequence[Seen]) -> list[Seen]:
        return sorted((each for each in known if each.is_open and self.shows(each)), key=order)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The audiences whose questions a person may answer. `unsure`: Slack could not tell for all of them."""

    audiences: frozenset[Audience]
    unsure: bool = False


@dataclass(eq=False)
class KeptAccess:
    """Caches for some minutes which questions a person may answer, per person and route. A click is checked again."""

    access: AccessControl
    audiences: Audiences
    clock: Clock

    def __post_init__(self) -> None:
        # The decision (None: Slack could not tell) and until when it holds.
        self._kept: dict[tuple[Person, RouteSettings], tuple[bool | None, float]] = {}

    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        """Returns the `audiences` whose questions `person` may answer. Never raises."""
        by_route = self.audiences.by_route(audiences)
        decided = [(await self._may(person, route), named) for route, named in by_route.items()]
        allowed = frozenset(audience for may, named in decided for audience in named if may)
        return Admitted(allowed, unsure=any(may is None for may, _ in decided))

    async def _may(self, person: Person, route: RouteSettings) -> bool | None:
        may, until = self._kept.get((person, route), (None, -inf))
        if self.clock.steady() < until:
            return may
        keep = _ACCESS_KEPT
        try:
            may = await self.access.refusal_on(person, route) is None
        except SlackError as error:
            _log.warning("Slack did not say who may answer", user=person.user, reason=str(error))
            keep = _ACCESS_AGAIN
        if len(self._kept) >= _MOST_DECISIONS:
            self._kept.clear()
        self._kept[person, route] = may, self.clock.steady() + keep
        return may


def chosen(snapshot: Snapshot, user: str, admitted: Admitted, pages: Mapping[str, int]) -> Chosen:
    """Returns what `user` sees of the snapshot, on their pages; instead of a page that is gone, the last one."""
    allowed = admitted.audiences
    inbox = [
        each
        for each in snapshot.questions
        if audience_of(each) in allowed or is_held_by(user, each, snapshot.paged.get(each.id, ()))
    ]
    # People who are on call or paged see all agents, to find out at night what blocks what.
    on_call = [each.users for each in snapshot.duties]
    everything = any(user in users for users in (*on_call, *snapshot.paged.values()))
    stranger = not (allowed or admitted.unsure or inbox or everything)

    def page(section: HomeSection, items: Sequence[_T]) -> ListPage[_T]:
        return page_of(items, pages.get(section, 1), views.PAGE_SIZES[section])

    def known(lines: Sequence[_Line]) -> list[_Line]:
        return [each for each in lines if everything or Audience(each.agent) in allowed]

    return Chosen(
        user=user,
        inbox=page("inbox", inbox),
        taken=page("taken", [each for each in inbox if each.claimed_by == user]),
        agents=page("agents", known(snapshot.agents)),
        ready=page("ready", known(snapshot.ready)),
        duty=page("duty", snapshot.duties),
        answers=page(
            "answers",
            [
                row
                for audience, row in snapshot.answers
                if audience in allowed or (row.decided and any(one.user == user for one in row.decided.by))
            ],
        ),
        unsure=admitted.unsure,
        stranger=stranger and bool(snapshot.agents or snapshot.questions),
    )


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who opened their Home tab, last at `opened_at` (seconds since 1970, our clock). `channel`: their DM with
    the bot; `pages`: their page of each section, from 1.
    """

    user: str
    team: str
    channel: str
    opened_at: float
    pages: Mapping[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Viewers:
    """The people who opened their Home tab: the homes table. Every method raises StorageUnavailable."""

    store: Store

    async def all(self) -> list[Viewer]:
        return [_viewer(row) for row in await self.store.read("select * from homes order by user_id")]

    async def get(self, user: str) -> Viewer | None:
        row = await self.store.read_one("select * from homes where user_id = :user", user=user)
        return None if row is None else _viewer(row)

    async def keep(self, viewer: Viewer) -> None:

        def work(tx: Tx) -> None:
            tx.run(
                """insert into homes (user_id, team, channel, opened_at, pages)
                   values (:user, :team, :channel, :opened_at, :pages)
                   on conflict (user_id) do update set team = excluded.team, channel = excluded.channel,
                   opened_at = excluded.opened_at, pages = excluded.pages""",
                user=viewer.user,
                team=viewer.team,
                channel=viewer.channel,
                opened_at=viewer.opened_at,
                pages=json.dumps(dict(viewer.pages)),
            )
            tx.tell("home", viewer.user)

        await self.store.write(work)

    async def forget(self, users: Collection[str]) -> None:
        """Stop publishing to these users until they open their Home tab again."""
        await self.store.write(
            lambda tx: tx.many("delete from homes where user_id = :user", [{"user": each} for each in users])
        )


def forget_viewer(tx: Tx, user: str) -> bool:
    """Forgets that a person looks at their Home tab, until they open it again. Returns whether they did."""
    return tx.run("delete from homes where user_id = :user", user=user) > 0


def _viewer(row: Row) -> Viewer:
    return Viewer(row["user_id"], row["team"], row["channel"], row["opened_at"], json.loads(row["pages"]))


SWEEP = Sweep(
    "homes",
    """select user_id as name from homes where user_id > :after and opened_at < :horizon
       order by user_id limit :most""",
    ("delete from homes where user_id in :names",),
)


async def publish(gateway: Gateway, user: str, view: View) -> Outcome:
    """Call views.publish. It is idempotent, so the caller may retry an unknown outcome; the client retries nothing."""
    failed = await gateway.show(gateway.client.views_publish, view, user_id=user)
    outcome = Sent(user, "") if failed is None else failed
    gateway.telemetry.delivered("home", outcome.word)
    return outcome


@dataclass(slots=True)
class _Seat:
    """A viewer and the state of their tab.

    `digest`: of the tab that Slack shows; None: not known, as after a restart.
    `seen`: the number of the snapshot that it was last rendered from. `urgent`: they wait at the screen. `again_at`: when
    to update it in any case. `busy`: a publish is under way.
    """

    viewer: Viewer
    digest: str | None = None
    seen: int = -1
    urgent: bool = False
    not_before: float = -inf
    again_at: float = inf
    last: float = -inf
    failures: int = 0
    busy: bool = False

    def due_at(self, number: int, changed_at: float) -> float:
        """Returns when to render it next; `inf`: not before a change. `number`: of the newest facts; `changed_at`: when the
        first of them changed after the last snapshot.
        """
        if self.busy:
            return inf
        wanted = self.again_at
        if self.urgent:
            wanted = -inf
        elif self.seen < number:
            wanted = min(wanted, changed_at + _SETTLE)
        return max(wanted, self.not_before)


@dataclass(kw_only=True, eq=False)
class HomeTabs:
    """Keeps open Home tabs up to date.

    Call `load` once, then `run`. `send` publishes a person's view, once. `locale_of` returns a user's locale, empty if it
    is not known.
    """

    gathering: Gathering
    access: KeptAccess
    renderer: Renderer
    send: Callable[[str, View], Awaitable[Outcome]]
    viewers: Viewers
    clock: Clock
    locale_of: Callable[[str], str] = lambda _: ""

    def __post_init__(self) -> None:
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

    async def load(self) -> None:
        """Read the viewers from the storage."""
        for viewer in await self.viewers.all():
            self._seats.setdefault(viewer.user, _Seat(viewer))

    def touch(self) -> None:
        """Note that something changed that a tab may show. Cheap, so it can be called often."""
        self._number += 1
        if not self._stale:
            self._stale = True
            self._changed_at = self.clock.steady()
            self._wake.set()

    def record_changed(self, record: Clarification) -> None:
        self.gathering.record_changed(record)
        self.touch()

    async def load_answers(self) -> None:
        """Read the newest answers from the ledgers."""
        await self.gathering.load_answers()
        self.touch()

    async def forgotten(self) -> None:
        """Follow another process that redacted texts or forgot viewers."""
        known = list(self._seats)
        stored = {viewer.user for viewer in await self.viewers.all()}
        for user in known:
            if user not in stored:
                self._seats.pop(user, None)
        await self.load_answers()

    async def opened(self, user: str, team: str = "", channel: str = "", *, shown: bool = True) -> _Seat:
        """Update the tab of a user who just opened it. `shown`: whether Slack has a view to show them.

        Raises:
            StorageUnavailable: the viewer is not stored, but served until a restart.
        """
        now = self.clock.now().timestamp()
        seat = self._seats.setdefault(user, _Seat(Viewer(user, team, channel, now)))
        before = seat.viewer
        pages = before.pages if now - before.opened_at < _SAME_VISIT else {}
        seat.viewer = Viewer(user, team or before.team, channel or before.channel, now, pages)
        if not shown:
            seat.digest = None
        seat.urgent = True
        self._wake.set()
        await self.viewers.keep(seat.viewer)
        return seat

    async def press(self, press: HomePress, person: Person) -> None:
        """Turn a page of a section.

        Raises:
            StorageUnavailable: the viewer is not stored, but served until a restart.
        """
        seat = self._seats.get(person.user) or await self.opened(person.user, person.team)
        seat.viewer = replace(seat.viewer, pages={**seat.viewer.pages, press.subject: press.number})
        seat.urgent = True
        self._wake.set()
        await self.viewers.keep(seat.viewer)

    async def looked_elsewhere(self, user: str) -> None:
        """Update the tab of a user who opened or paged it through another bot. Empty `user`: who is on call changed."""
        if user and (viewer := await self.viewers.get(user)) is not None:
            seat = self._seats.setdefault(user, _Seat(viewer))
            seat.viewer = viewer
            seat.urgent, seat.digest = True, None
            self._wake.set()
        self.touch()

    def place_of(self, user: str) -> Place:
        """Returns the viewer's DM; the channel is empty if it is not known."""
        seat = self._seats.get(user)
        return Place(seat.viewer.channel if seat else "")

    async def run(self) -> None:
        """Publish the tabs that are due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._sweep()
                now = self.clock.steady()
                due_at = [seat.due_at(self._number, self._changed_at) for seat in self._seats.values()]
                due = max(min(due_at, default=inf), self._next_look, now + self._pace.wait(now, post=True))
                waiting = [seat for seat, at in zip(self._seats.values(), due_at, strict=True) if at <= now]
                if due <= now and waiting:
                    # The tab that waited longest; urgent ones get a head start.
                    await self._look(min(waiting, key=lambda s: s.last - (_HEAD_START if s.urgent else 0.0)))
                else:
                    await event_or_time(self.clock, self._wake, min(due, self._sweep_at) - now)
        finally:
            for task in self._publishing:
                task.cancel()
            await asyncio.gather(*self._publishing, return_exceptions=True)

    async def _sweep(self) -> None:
        """Every few minutes, forget viewers who were away for a week, and have the other tabs rendered."""
        if self._seats and self._sweep_at == inf:
            self._sweep_at = self.clock.steady() + _SWEEP
        if self.clock.steady() < self._sweep_at:
            return
        self._sweep_at = self.clock.steady() + _SWEEP if self._seats else inf
        self.touch()
        since = self.clock.now().timestamp() - _REMEMBERED
        await self._forget([user for user, seat in self._seats.items() if seat.viewer.opened_at < since])

    async def _look(self, seat: _Seat) -> None:
        """Render one tab, and publish it if it changed; retries later if it cannot be rendered."""
        try:
            snapshot = await self._facts()
            # From here on, any click or change makes it due again.
            seat.seen, seat.urgent, seat.again_at = snapshot.number, False, inf
            seat.last = self.clock.steady()
            view, digest, unsure = await self._tab(seat, snapshot)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before, seat.seen = self.clock.steady() + _APART, -1
            _log.exception("cannot build a Home tab", user=seat.viewer.user, error=type(error).__name__)
            return
        now = self.clock.steady()
        if unsure:
            seat.again_at = now + _UNSURE
        self._next_look = now + _LOOK
        seat.not_before = now + _EACH
        if digest == seat.digest:
            return
        seat.busy, seat.digest = True, None  # not known until Slack confirms it
        self._pace.posted(now)
        work = self._publish(seat, view, digest)
        task = asyncio.create_task(work, name=f"home {seat.viewer.user}")
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _facts(self) -> Snapshot:
        """Returns the newest snapshot, or one that is young enough; a tab rendered from that stays due."""
        began = self.clock.steady()
        if self._snapshot.number < self._number and began >= self._good_until:
            self._stale = False
            self._snapshot = await self.gathering.snapshot(self._number)
            now = self.clock.steady()
            self._good_until = now + max(_REUSE, _REUSE_TIMES * (now - began))
            self._sweep_at = min(self._sweep_at, began + self._until_handover())
        return self._snapshot

    def _until_handover(self) -> float:
        """Returns the seconds until the next turn on call."""
        now = self.clock.now()
        left = [(each.until - now).total_seconds() for each in self._snapshot.duties if each.until]
        return max(1.0, min((each for each in left if each > 0), default=_SWEEP))

    async def _tab(self, seat: _Seat, snapshot: Snapshot) -> tuple[View, str, bool]:
        """Returns a viewer's tab, its digest, and whether Slack could not tell all that they may answer.

        Raises:
            RenderError: the tab breaks a limit of Slack's: a bug.
        """
        viewer = seat.viewer
        admitted = await self.access.admitted(Person(viewer.team, viewer.user), snapshot.audiences)
        shown = await to_thread(chosen, snapshot, viewer.user, admitted, viewer.pages)
        inbox, taken = await self.gathering.whole(shown.inbox), await self.gathering.whole(shown.taken)
        locale = self.locale_of(viewer.user)

        def rendered() -> tuple[View, str, bool]:
            view = self.renderer.view(views.home(replace(shown, inbox=inbox, taken=taken, locale=locale)))
            said = json.dumps(view, sort_keys=True).encode()
            return view, hashlib.blake2b(said, digest_size=12).hexdigest(), shown.unsure

        return await to_thread(rendered)

    async def _publish(self, seat: _Seat, view: View, digest: str) -> None:
        user = seat.viewer.user
        try:
            outcome = await self.send(user, view)
            # From now on, since Slack may have taken it only just now.
            seat.not_before = max(seat.not_before, self.clock.steady() + _EACH)
            await self._settle(seat, outcome, digest)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before, seat.seen = self.clock.steady() + _APART, -1
            _log.exception("cannot publish a Home tab", user=user, error=type(error).__name__)
        finally:
            seat.busy = False
            self._wake.set()

    async def _settle(self, seat: _Seat, outcome: Outcome, digest: str) -> None:
        """Act on the outcome of a publish: done, retry, or drop the viewer."""
        user, now = seat.viewer.user, self.clock.steady()
        failures, seat.failures = seat.failures, 0
        match outcome:
            case Sent():
                self._pace.went_well()
                seat.digest = digest
            case Later() | Never(what="app"):  # all tabs wait
                self._repeat(seat, failures)
                self._pace.refused(now, outcome.after if isinstance(outcome, Later) else _LONGEST)
            case Unknown():
                self._repeat(seat, failures)
                wait = backoff(failures, first=2.0, longest=_LONGEST)
                seat.not_before = max(seat.not_before, now + wait)
            case Never(what=what, code=code) if what == "place" or code in _REFUSED_PERSON:
                _log.info("Slack shows this person no Home tab", user=user)
                await self._forget([user])
            case Never():
                _log.error("Slack rejected a Home tab", user=user)
                seat.digest = digest  # as if published, so that it is not retried

    def _repeat(self, seat: _Seat, failures: int) -> None:
        _log.warning("Home tab delayed", user=seat.viewer.user)
        seat.seen, seat.failures = -1, failures + 1

    async def _forget(self, users: list[str]) -> None:
        for user in users:
            self._seats.pop(user, None)
        try:
            if users:
                await self.viewers.forget(users)
        except StorageUnavailable as error:
            _log.warning("cannot forget viewers of Home tabs", count=len(users), reason=str(error))
