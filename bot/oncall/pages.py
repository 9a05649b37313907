"""The pages that were sent: about what, to where, with what outcome, and where their messages are in Slack.

A page is about one or more similar incidents, with a message per destination in Slack, and a row of `sendings` per pager
outside. Each of them says what the page is about; the incidents' logs have its number. It is stored before it is sent. If a
message fails, or is not posted after 15 s, that is logged once per page, and the policy's next step is due at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import structlog

from bot.ask.inbox import next_number, skip_numbers
from bot.oncall import incidents
from bot.oncall.incidents import (
    Incident,
    Incidents,
    append,
    append_listed,
    first_failure,
    moment,
    pages_of,
    unforgotten,
)
from bot.show import messages
from bot.show.messages import DELETED, Fresh, MessageRow, Messages, put
from bot.show.messenger import MessageOutcome
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from bot.views.inert import is_user
from core.clock import Clock
from core.escalation import Failed, Paged

_log = structlog.get_logger("clarify.paging")
_DEADLINE = timedelta(seconds=15)
_AFTER_FAILURE = timedelta(seconds=2)
_NUMBERS = "page"
# Incidents about a card, or a reminder, that cannot be posted.
_ABOUT_THE_CARD = ("unplaceable:card:", "unplaceable:nudge:")
SendingState = Literal["sent", "late", "failed", "dropped"]
"""The outcome of a sending. late: not posted in time, still being retried; dropped: not needed any more."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a page goes. via: "slack", or the integration that pages people outside. target: a channel or user in Slack, or the
    environment variable with the pager's address.

    thread: the session (producer, id) in whose thread of the channel it is posted.
    mentions: users that the post mentions.
    is_thread: it is where the questions are, not a channel that the step names.
    """

    via: str
    target: str
    thread: tuple[str, str] | None = None
    mentions: tuple[str, ...] = ()
    is_thread: bool = field(default=False, compare=False)

    @property
    def is_direct(self) -> bool:
        """Whether it is a user's direct messages."""
        return self.via == "slack" and self.target.startswith(("U", "W"))

    @property
    def users(self) -> set[str]:
        """The users that a message there notifies."""
        return {*self.mentions, *([self.target] if self.is_direct else [])}


class Item(NamedTuple):
    """An incident of a page. `step`: the step of its policy that the page carries out; None: the page only lists it."""

    incident: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Incidents that go out together on one page, and its destinations; none if no one could be found.

    `note`: why it does not go to the person who should be on call; `reaches_nobody`: so the post mentions no one.
    """

    items: tuple[Item, ...]
    destinations: tuple[Destination, ...]
    note: str = ""
    reaches_nobody: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What is sent, and about what. `note` as in `Batch`."""

    number: int
    at: datetime
    note: str
    items: tuple[Item, ...]

    @property
    def incidents(self) -> list[int]:
        return [each.incident for each in self.items]

    @property
    def steps(self) -> dict[int, int]:
        """The step that it carries out, by incident."""
        return {each.incident: each.step for each in self.items if each.step is not None}


@dataclass(frozen=True, slots=True)
class Sending:
    """A page on its way to one destination. `key`: of its message or, outside Slack, of its row in `sendings`."""

    page: Page
    destination: Destination
    key: str

    @property
    def is_in_slack(self) -> bool:
        return self.destination.via == "slack"

    @property
    def body(self) -> dict[str, Any]:
        """What is stored of it, as JSON."""
        at, note, items = self.page.at.timestamp(), self.page.note, self.page.items
        return {"at": at, "note": note, "items": items, "mentions": self.destination.mentions}


@dataclass(frozen=True, slots=True)
class PagePlace:
    """The place of an open page in Slack, and a clarification that it is about."""

    channel: str
    ts: str
    clarification: str


@dataclass(eq=False)
class Pages:
    """Stores pages and the outcome of each. Methods that read or store raise StorageUnavailable."""

    store: Store
    incidents: Incidents
    messages: Messages
    clock: Clock
    # By key: the deadline for a message to be posted.
    _watched: dict[str, tuple[datetime, Sending]] = field(default_factory=dict, init=False)

    async def load(self) -> list[Sending]:
        """After the incidents: load who was paged, and return the sendings without an outcome, oldest first."""
        rows = await self._load_paged([each.incident for each in self.incidents])
        owed = [
            each for row in rows if row.ts is row.failed is None and (each := sending_of(row)) is not None
        ]
        owed += map(_outside, await self.store.read("select * from sendings where state = 'wanted'"))
        return sorted(owed, key=lambda each: (each.page.number, each.key))

    async def reload(self, incidents: Collection[int] | None = None) -> None:
        """Read incidents again that another bot changed; None: all."""
        if incidents is None:
            rows = await self.store.read("select id from incidents where closed_at is null")
            incidents = {row["id"] for row in rows} | {each.incident.id for each in self.incidents}
        await self.incidents.reload(incidents)
        await self._load_paged([each.incident for each in self.incidents if each.incident.id in incidents])

    async def _load_paged(self, incidents: Iterable[Incident]) -> list[MessageRow]:
        """Notes who was paged about open incidents; returns the messages."""
        rows = await self.messages.of_pages(_pages(incidents))
        for row in rows:
            if (sending := sending_of(row)) is not None:
                self._note_paged(sending)
        return rows

    def _note_paged(self, sending: Sending) -> None:
        to = sending.destination
        for incident in sending.page.incidents:
            if (each := self.incidents.open(incident)) is not None:
                each.note_page(sending.page.number, to.target, to.users, in_thread=to.thread is not None)

    async def send(self, *batches: Batch) -> tuple[Sending, ...]:
        """Store pages with all their messages, all or none; durable when this returns. Without destinations, only log that a
        page failed. A page that reaches nobody has failed too.

        In the channel of its card, a page goes into the card's thread. A handoff's card is the page while it is not posted.
        """
        now = self.clock.now()
        made = [(batch, self._only(batch)) for batch in batches]

        def work(tx: Tx) -> list[tuple[list[Sending], list[tuple[int, Paged | Failed]]]]:
            return [_store(tx, *each, now) for each in made]

        stored = await self.store.write(work)
        for _, happenings in stored:
            for incident, happening in happenings:
                if (each := self.incidents.open(incident)) is not None:
                    each.note(happening)
                    if each.incident.kind == "handoff":  # its card waited for this
                        self.incidents.touch([incident])
        return tuple(sending for sendings, _ in stored for sending in sendings)

    def _only(self, batch: Batch) -> Incident | None:
        """The incident that a page is about, if it is one."""
        each = self.incidents.open(batch.items[0].incident) if len(batch.items) == 1 else None
        return None if each is None else each.incident

    def watch(self, sending: Sending) -> None:
        """Set the deadline of a message that was handed to delivery."""
        self._note_paged(sending)
        self._watched[sending.key] = self.clock.now() + _DEADLINE, sending

    def next_look(self) -> datetime | None:
        """The earliest deadline of a message; None if none is watched."""
        return min((at for at, _ in self._watched.values()), default=None)

    async def look(self) -> None:
        """Give up waiting for messages past their deadline. If the clock was set back, no message gets longer."""
        now = self.clock.now()
        for key, (at, sending) in list(self._watched.items()):
            if at > now:
                self._watched[key] = min(at, now + _DEADLINE), sending
                continue
            await self.settle(sending, "late", "not there in time")
            self._watched.pop(key, None)

    async def on_outcome(self, row: MessageRow, outcome: MessageOutcome, note: str | None = None) -> None:
        """Record the outcome of a page's message, or update the pages that link to the message."""
        if outcome == "tried":
            self._shorten_deadline(row.key)
        elif row.kind in {"page", "handoff"}:
            sending = sending_of(row)
            if outcome == "failed" and sending is not None:
                await self.settle(sending, "failed", note)
            self._watched.pop(row.key, None)
            if outcome == "sent" and sending is not None:  # it may cover older ones
                self.incidents.touch(sending.page.incidents)
        if row.kind in {"notice", "handoff"} and outcome == "sent":
            about = row.key.partition(":")[2]
            self.incidents.touch(
                each.incident.id for each in self.incidents if each.incident.key.partition(":")[2] == about
            )

    async def settle(self, sending: Sending, state: SendingState, note: str | None = None) -> None:
        """Store the outcome of a sending; of a message, only that it failed, or was not posted in time. The first failure of
        a page makes the policy's next step due.
        """
        page, now = sending.page, self.clock.now()

        def work(tx: Tx) -> list[tuple[int, Failed]]:
            if not sending.is_in_slack:
                tx.run(
                    "update sendings set state = :state, note = :note where key = :key",
                    state=state,
                    note=note,
                    key=sending.key,
                )
            elif state == "late" and messages.is_posted(tx, sending.key):
                return []
            return first_failure(tx, page.steps, page.number, now) if state in {"late", "failed"} else []

        failed = await self.store.write(work)
        if not failed:
            return
        through = sending.destination.via
        _log.warning(
            "page not delivered", page=page.number, step=failed[0][1].step, through=through, reason=note
        )
        self.incidents.logged(failed)

    async def incidents_of(self, page: int) -> list[Incident]:
        """The incidents that a page in Slack is about, the open ones first."""
        rows = await self.messages.of_pages([page])
        return await self.incidents.all({each for row in rows for each, _ in _items(row)})

    async def of_incidents(self, incidents: Collection[int]) -> list[MessageRow]:
        """The messages about incidents and their questions: pages, cards of handoffs."""
        about = await self.incidents.related(incidents)
        rows = await self.messages.of_pages(_pages(about))
        cards = [await self.messages.get(each.notice_key) for each in about if each.kind == "handoff"]
        return [*rows, *(card for card in cards if card is not None and card.kind == "handoff")]

    async def is_covered(self, row: MessageRow) -> bool:
        """Whether other pages to the same target cover all open incidents of `row`."""
        related = await self.incidents.related([each for each, _ in _items(row)])
        rows = [each for each in await self.messages.of_pages(_pages(related)) if each.target == row.target]
        # A newer list may also be about other matters, which decide whether it stays.
        listed = await self.incidents.all({incident for each in rows for incident, _ in _items(each)})
        return covers(row, rows, {each.id: each for each in (*related, *listed)}.values())

    async def clarifications_of(self, row: MessageRow) -> tuple[str, ...]:
        """The clarifications of the page with this message."""
        about = await self.incidents.all([each for each, _ in _items(row)])
        found = (each.clarification for each in sorted(about, key=lambda each: each.id))
        return tuple(dict.fromkeys(each for each in found if each is not None))

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        """The clarifications of the page at `ts`, empty if it is no page. A reply in its thread is an answer."""
        row = await self.messages.landed_at(channel, ts)
        return () if row is None else await self.clarifications_of(row)

    async def open_pages(self) -> list[PagePlace]:
        """The pages of open incidents about questions, where the page begins a thread of its own."""
        return list(
            {
                PagePlace(row.channel or "", row.ts, clarification)
                for row, clarification in await self._open()
                if row.ts is not None and row.thread_ts is None and row.failed != DELETED
            }
        )

    async def paged_before(self, user: str, ts: str, *, in_doubt: bool) -> set[str]:
        """The clarifications of open incidents whose pages to a user were posted before the message at `ts`, even if the
        pages are deleted by now. `in_doubt`: also of posts of unknown outcome.
        """

        def is_before(row: MessageRow) -> bool:
            return float(row.ts) < float(ts) if row.ts is not None else in_doubt and row.intent_at is not None

        return {
            clarification
            for row, clarification in await self._open()
            if is_before(row) and (to := sending_of(row)) is not None and user in to.destination.users
        }

    async def _open(self) -> list[tuple[MessageRow, str]]:
        """The messages of pages about questions whose incidents are open, with the questions."""
        about: dict[int, set[str]] = {}
        for each in await self.incidents.about_questions():
            for page in each.pages:
                about.setdefault(page, set()).add(each.clarification or "")
        rows = await self.messages.of_pages(about)
        return [(row, clarification) for row in rows for clarification in about[row.page or 0]]

    def _shorten_deadline(self, key: str) -> None:
        """Shorten a message's deadline to 2 s, after its first try failed."""
        if key in self._watched:
            at, sending = self._watched[key]
            self._watched[key] = min(at, self.clock.now() + _AFTER_FAILURE), sending
            self.incidents.awake.set()


def covers(row: MessageRow, others: Iterable[MessageRow], incidents: Collection[Incident]) -> bool:
    """Whether others of the pages to one target cover all open incidents of `row` (pure): newer ones about them or, of a card
    or reminder that cannot be posted, about another one of its question, or any about the escalated question. If `row` is
    posted, only posted ones count; else also those whose failure is one of the incident's own step. Once all of them are closed,
    a newer page about them that stays in direct messages is enough: `row` was not deleted in time.
    `incidents`: those of all the pages, and those that share a question with `row`.
    """
    known = {each.id: each for each in incidents}
    theirs = [(each, *pair) for each in others if each.failed in {None, DELETED} for pair in _items(each)]

    def is_covered(mine: Incident) -> bool:
        for each, incident, step in theirs:
            other = known.get(incident)
            if other is None or (each.ts is None and (row.ts is not None or step is None)):
                continue
            is_newer = (each.page or 0) > (row.page or 0)
            if other.id == mine.id:
                is_instead = is_newer
            else:
                is_instead = _is_instead(other, mine) and (is_newer or other.kind == "escalated")
            if is_instead:
                return True
        return False

    mine = [known[each] for each, _ in _items(row) if each in known]
    if left := [each for each in mine if each.is_open]:
        return all(map(is_covered, left))
    stay = (each for each in others if (each.page or 0) > (row.page or 0) and _stays(each, known))
    return any({each for each, _ in _items(row)} <= {each for each, _ in _items(other)} for other in stay)


def _stays(row: MessageRow, known: Mapping[int, Incident]) -> bool:
    """Whether a page in direct messages stays, as its user has seen it, and says how all that it is about ended."""
    is_over = all(each in known and not known[each].is_open for each, _ in _items(row))
    return is_over and row.ts is not None and row.failed is None and row.seen and is_user(row.target)


def _is_instead(other: Incident, mine: Incident) -> bool:
    """Whether a page about `other` says all that one about `mine` would: the question of a card that cannot be posted."""
    return (
        other.is_open
        and other.clarification is not None
        and other.clarification == mine.clarification
        and mine.key.startswith(_ABOUT_THE_CARD)
        and (other.kind == "escalated" or other.key.startswith(_ABOUT_THE_CARD))
    )


def _items(row: MessageRow) -> tuple[Item, ...]:
    return () if (sending := sending_of(row)) is None else sending.page.items


def _pages(incidents: Iterable[Incident]) -> set[int]:
    return set[int]().union(*(each.pages for each in incidents))


def sending_of(row: MessageRow) -> Sending | None:
    """The sending whose message is `row`; None if there is none, or it is forgotten."""
    body = (row.body or {}).get("page")
    if row.page is None or body is None:
        return None
    thread = None if row.session_id is None else (row.producer or "", row.session_id)
    to = Destination("slack", row.target, thread, tuple(body["mentions"]))
    return Sending(_page(row.page, body), to, row.key)


def _outside(row: Row) -> Sending:
    return Sending(
        _page(row["page"], json.loads(row["body"])), Destination(row["via"], row["target"]), row["key"]
    )


def _page(number: int, body: Mapping[str, Any]) -> Page:
    return Page(number, moment(body["at"]), body["note"], tuple(Item(*each) for each in body["items"]))


def _happenings(batch: Batch, page: int | None, now: datetime) -> Iterator[tuple[int, Paged | Failed]]:
    """What is logged of each of its incidents."""
    for incident, step in batch.items:
        if step is not None and page is not None:
            yield incident, Paged(now, step, page)
        if step is not None and (batch.reaches_nobody or page is None):
            yield incident, Failed(now, step, page)


def _store(
    tx: Tx, batch: Batch, about: Incident | None, now: datetime
) -> tuple[list[Sending], list[tuple[int, Paged | Failed]]]:
    number = next_number(tx, _NUMBERS) if batch.destinations else None
    happenings = sorted(_happenings(batch, number, now), key=itemgetter(0))
    for incident, happening in happenings:
        append(tx, incident, happening)
    if number is None:
        return [], happenings
    for incident, step in batch.items:
        if step is None:
            append_listed(tx, incident, number)
    card = _card(tx, about) if about is not None else None
    page = Page(number, now, batch.note, batch.items)
    sendings = [_sending(page, each, card) for each in batch.destinations]
    for at, each in enumerate(sendings):
        if card is None or each.key != card["key"]:
            continue
        if not messages.be_page(tx, card, number, each.body):
            sendings[at] = replace(each, key=_own_key(number, each.destination))
    put(
        tx,
        [_fresh(each) for each in sendings if each.is_in_slack and (card is None or each.key != card["key"])],
    )
    tx.many(
        "insert into sendings (key, page, via, target, body, at) values (:key, :page, :via, :target, :body, :at)",
        [_row(each) for each in sendings if not each.is_in_slack],
    )
    return sendings, happenings


def _card(tx: Tx, incident: Incident) -> Row | None:
    """The card of an incident's question, if it is posted; else the message about the same event."""
    if incident.clarification is None:
        return tx.one("select * from messages where key = :key and failed is null", key=incident.notice_key)
    return tx.one(
        """select * from messages where kind = 'card' and clarification = :clarification and ts is not null
             and failed is null order by round desc limit 1""",
        clarification=incident.clarification,
    )


def _sending(page: Page, to: Destination, card: Row | None) -> Sending:
    key = _own_key(page.number, to)
    if card is not None and to.via == "slack" and to.target == (card["channel"] or card["target"]):
        to = replace(to, thread=(card["producer"], card["session_id"]))
        if card["kind"] == "handoff" and card["ts"] is None and card["intent_at"] is None:
            key = card["key"]
    return Sending(page, to, key)


def _own_key(page: int, to: Destination) -> str:
    return f"page:{page}:{to.target}"


def _row(sending: Sending) -> dict[str, object]:
    page, to = sending.page, sending.destination
    about = {"page": page.number, "at": page.at.timestamp(), "body": json.dumps(sending.body)}
    return {"key": sending.key, "via": to.via, "target": to.target, **about}


def _fresh(sending: Sending) -> Fresh:
    to = sending.destination
    producer, session = to.thread or (None, None)
    return Fresh(
        key=sending.key,
        kind="page",
        target=to.target,
        producer=producer,
        session_id=session,
        page=sending.page.number,
        body={"page": sending.body},
    )


class Logged(NamedTuple):
    """An entry of an incident's log, for the audit, and of a page what was sent where, with what outcome."""

    incident: Incident
    entry: Mapping[str, Any]
    sendings: Sequence[dict[str, object]] = ()


def logged(tx: Tx) -> dict[str, list[Logged]]:
    """All that happened to the incidents about clarifications, by clarification, oldest first."""
    entries = [(each, entry) for each in incidents.logged(tx) for entry in each.entries]
    failed = {entry["page"] for _, entry in entries if entry["what"] == "failed"}
    sendings: dict[int, list[dict[str, object]]] = {}
    for some in batches({entry["page"] for _, entry in entries if entry["what"] == "sent"}):
        for row in messages.of_pages(tx, some):
            sending, state = sending_of(row), _state(row, is_failed=row.page in failed)
            mentions = list(sending.destination.mentions) if sending is not None else []
            told = {"via": "slack", "to": row.target, "mentions": mentions, "state": state}
            note = row.failed if state == "failed" else None
            sendings.setdefault(row.page or 0, []).append(told | {"note": note})
        for each in tx.rows("select * from sendings where page in :pages order by key", pages=some):
            told = {"via": each["via"], "to": each["target"], "mentions": [], "state": each["state"]}
            sendings.setdefault(each["page"], []).append(told | {"note": each["note"]})
    found: dict[str, list[Logged]] = {}
    for incident, entry in entries:
        sent = sendings.get(entry["page"], ()) if entry["what"] == "sent" else ()
        found.setdefault(incident.clarification or "", []).append(Logged(incident, entry, sent))
    return found


def _state(row: MessageRow, *, is_failed: bool) -> str:
    """What became of a page's message; `is_failed`: so the incidents' logs say."""
    if row.ts is not None:
        return "sent"
    if row.failed is not None:
        return "failed" if is_failed else "dropped"
    return "late" if is_failed else "wanted"


# After the incidents, as `messages.SWEEP_PAGES`.
SWEEP = Sweep(
    "sendings",
    """select key as name from sendings p where key > :after and at < :horizon and state <> 'wanted' and not exists (
         select 1 from incident_log l join incidents i on i.id = l.incident where l.page = p.page)
       order by key limit :most""",
    ("delete from sendings where key in :names",),
)


Outside = tuple[int, str, str]  # the page, via what, to whom


@dataclass(frozen=True, slots=True)
class PagesAbout:
    """The message keys of pages about certain incidents `alone`, and of those `shared` with others that are not forgotten;
    what was sent `outside` Slack.
    """

    alone: set[str]
    shared: set[str]
    outside: frozenset[Outside]


def find_about(tx: Tx, about: Collection[int]) -> PagesAbout:
    """The pages about incidents."""
    numbers = pages_of(tx, about)
    rows = [row for some in batches(numbers) for row in messages.of_pages(tx, some)]
    named = {row.key: {each for each, _ in _items(row)} - set(about) for row in rows}
    others = unforgotten(tx, set[int]().union(*named.values()))
    shared = {key for key, theirs in named.items() if theirs & others}
    outside = {
        (row["page"], row["via"], row["target"])
        for some in batches(numbers)
        for row in tx.rows("select * from sendings where page in :pages and state = 'sent'", pages=some)
    }
    return PagesAbout(named.keys() - shared, shared, frozenset(outside))


def leave_out(tx: Tx, count: int) -> None:
    """Skip `count` numbers."""
    skip_numbers(tx, _NUMBERS, count)
