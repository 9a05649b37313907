"""The pages that were sent: about what, to where, with what outcome, and where their messages are in Slack.

A page is about one or more similar incidents, with a message per destination. It is stored before it is sent. If a message
fails, or is not posted after 15 s, that is logged once per page, and the policy's next step is due at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import structlog

from bot.delivery.messages import DELETED, Fresh, InFlight, MessageRow, put
from bot.delivery.messenger import MessageOutcome
from bot.oncall.incidents import Group, Incident, Incidents, append, moment
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from core.clock import Clock
from core.escalation import Failed, Paged
from core.records import FORGOTTEN

_log = structlog.get_logger("clarify.paging")
_DEADLINE = timedelta(seconds=15)
_AFTER_FAILURE = timedelta(seconds=2)
SendingState = Literal["sent", "late", "failed", "dropped"]
"""The outcome of a sending. late: not posted in time, still being retried; dropped: not needed any more."""
# The earlier states from which a sending can get there.
_BEFORE: dict[SendingState, tuple[str, ...]] = {
    "sent": ("wanted", "late"),
    "late": ("wanted",),
    "failed": ("wanted", "late", "sent"),
    "dropped": ("wanted", "late"),
}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a page goes. via: "slack", or a kind of pager outside (`PAGERS`). target: a channel or user in Slack, or the
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
    """Incidents that go out together on one page, and its destinations; none if no one could be found. `step`: of the
    first of them.

    `note`: why it does not go to the person who should be on call; `reaches_nobody`: so the post mentions no one.
    """

    group: Group
    step: int
    items: tuple[Item, ...]
    destinations: tuple[Destination, ...]
    note: str = ""
    reaches_nobody: bool = False


@dataclass(frozen=True, slots=True)
class Sending:
    """A page on its way to one destination. `message` is its key in the messages table; None: it goes outside Slack.
    `failed`: the page failed already, and the next step replaced it.
    """

    page: int
    destination: Destination
    message: str | None = None
    items: tuple[Item, ...] = ()
    failed: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the message is the page's own; otherwise it is a handoff's card."""
        return self.message is not None and self.message.startswith("page:")


@dataclass(frozen=True, slots=True)
class Lane:
    """A message to update, and the lane for that; `post`: it is not posted yet."""

    target: str
    key: str
    post: bool


@dataclass(frozen=True, slots=True)
class PagePlace:
    """The place of an open page in Slack, and a clarification that it is about."""

    channel: str
    ts: str
    clarification: str


@dataclass(eq=False)
class Pages:
    """Stores pages and the outcome of each. Methods that read or store raise StorageUnavailable.

    `landed`: the keys of newly posted messages, which may cover older ones.
    """

    store: Store
    incidents: Incidents
    in_flight: InFlight
    clock: Clock
    landed: set[str] = field(default_factory=set, init=False)
    # By key: the deadline for a message to be posted.
    _watched: dict[str, tuple[datetime, Sending]] = field(default_factory=dict, init=False)

    async def restore(self) -> list[Sending]:
        """On start, after the incidents: load who was paged, and return the sendings without an outcome."""
        await self._load_paged()
        rows = await self.store.read(
            """select s.message from page_sendings s join messages m on m.key = s.message
               where s.state in ('wanted', 'late') and m.ts is not null"""
        )
        for row in rows:
            await self._ended(row["message"], "sent", None)
        return await self._owed()

    async def reload(self, incidents: Collection[int] | None = None) -> None:
        """Read incidents again that another bot changed; None: all."""
        if incidents is None:
            rows = await self.store.read("select id from incidents where closed_at is null")
            incidents = {row["id"] for row in rows} | {each.incident.id for each in self.incidents}
        await self.incidents.reload(incidents)
        await self._load_paged()

    async def _load_paged(self) -> None:
        rows = await self.store.read(
            """select i.incident, i.page, s.target, s.mentions, m.session_id
               from incidents x join page_items i on i.incident = x.id
               join page_sendings s on s.page = i.page left join messages m on m.key = s.message
               where x.closed_at is null and s.via = 'slack' order by i.page"""
        )
        for row in rows:
            if (each := self.incidents.open(row["incident"])) is not None:
                users, in_thread = _destination("slack", row).users, row["session_id"] is not None
                each.note_page(row["page"], row["target"], users, in_thread=in_thread)

    async def send(self, *batches: Batch) -> tuple[Sending, ...]:
        """Store pages with all their messages, all or none; durable when this returns. Without destinations, only log that a
        page failed. A page that reaches nobody has failed too.

        In the channel of its card, a page goes into the card's thread. A handoff's card is the page while it is not posted.
        """
        now = self.clock.now()
        made = [
            (
                batch,
                self._only(batch),
                [(each.incident, happened) for each, happened in _happenings(batch, now)],
            )
            for batch in batches
        ]

        def work(tx: Tx) -> tuple[Sending, ...]:
            return tuple(sending for each in made for sending in _store(tx, *each, now))

        sendings = await self.store.write(work)
        for _, _, happenings in made:
            for incident, happening in happenings:
                if (each := self.incidents.open(incident)) is not None:
                    each.note(happening)
                    if each.incident.kind == "handoff":  # its card waited for this
                        self.incidents.touch([each.incident])
        return sendings

    def _only(self, batch: Batch) -> Incident | None:
        """The incident that a page is about, if it is one."""
        each = self.incidents.open(batch.items[0].incident) if len(batch.items) == 1 else None
        return None if each is None else each.incident

    def watch(self, sending: Sending) -> None:
        """Set the deadline of a message that was handed to delivery."""
        if sending.message is None:
            return
        for incident, _ in sending.items:
            if (each := self.incidents.open(incident)) is not None:
                to = sending.destination
                each.note_page(sending.page, to.target, to.users, in_thread=to.thread is not None)
        self._watched[sending.message] = self.clock.now() + _DEADLINE, sending

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
            if await self.is_posted(key):
                await self.settle(sending, "sent")
            else:
                await self.settle(sending, "late", "not there in time")
            self._watched.pop(key, None)

    async def on_outcome(self, row: MessageRow, outcome: MessageOutcome, note: str | None = None) -> None:
        """Record the outcome of a page's message, or update the pages that link to the message."""
        if outcome == "tried":
            self._shorten_deadline(row.key)
        elif row.kind in {"page", "handoff"}:
            await self._ended(row.key, outcome, note)
        if row.kind in {"notice", "handoff"} and outcome == "sent":
            about = row.key.partition(":")[2]
            self.incidents.touch(
                each.incident for each in self.incidents if each.incident.key.partition(":")[2] == about
            )

    async def settle(self, sending: Sending, state: SendingState, note: str | None = None) -> None:
        """Store the outcome of a sending. The first failure of a page makes the policy's next step due."""
        page, to, now = sending.page, sending.destination, self.clock.now()

        def work(tx: Tx) -> list[tuple[int, Failed]]:
            before = tx.one(
                "select 1 from page_sendings where page = :page and state in ('late', 'failed')", page=page
            )
            changed = tx.run(
                """update page_sendings set state = :state, note = :note
                   where page = :page and via = :via and target = :target and state in :before""",
                state=state,
                note=note,
                page=page,
                via=to.via,
                target=to.target,
                before=_BEFORE[state],
            )
            if not changed or before is not None or state in {"sent", "dropped"}:
                return []
            rows = tx.rows(
                """select i.incident, i.step from page_items i join incidents x on x.id = i.incident
                   where i.page = :page and i.step is not null and x.closed_at is null""",
                page=page,
            )
            failed = [(row["incident"], Failed(now, row["step"])) for row in rows]
            for incident, happening in failed:
                append(tx, incident, happening, page)
            return failed

        failed = await self.store.write(work)
        if not failed:
            return
        _log.warning("page not delivered", page=page, step=failed[0][1].step, through=to.via, reason=note)
        for incident, happening in failed:
            if (each := self.incidents.open(incident)) is not None:
                each.note(happening)
        self.incidents.changed([incident for incident, _ in failed])

    async def since(self, since: datetime) -> list[tuple[Group, set[int], datetime]]:
        """The pages sent since then, oldest first: their group, incidents and time."""
        rows = await self.store.read(
            """select p.id, p.kind, p.policy, p.at, i.incident from pages p join page_items i on i.page = p.id
               where p.at >= :since and i.step is not null order by p.id""",
            since=since.timestamp(),
        )
        found: dict[int, tuple[Group, set[int], datetime]] = {}
        for row in rows:
            page = found.setdefault(row["id"], ((row["kind"], row["policy"]), set(), moment(row["at"])))
            page[1].add(row["incident"])
        return list(found.values())

    async def sent(self, page: int) -> tuple[datetime, str] | None:
        """When a page was sent, and its note; None if there is no such page."""
        row = await self.store.read_one("select at, note from pages where id = :page", page=page)
        return (moment(row["at"]), row["note"] or "") if row else None

    async def of_incidents(self, incidents: Iterable[int]) -> list[Lane]:
        """The messages about incidents (pages, cards of handoffs) that may still change."""
        found: dict[str, Lane] = {}
        for some in batches(incidents):
            rows = await self.store.read(
                """select m.key, m.target, m.channel, m.ts from page_items i
                   join page_sendings s on s.page = i.page join messages m on m.key = s.message
                   where i.incident in :incidents and m.final = 0 and m.failed is null
                   union
                   select m.key, m.target, m.channel, m.ts from incidents x
                   join messages m on m.key = 'notice:' || substr(x.key, length('handoff:') + 1)
                   where x.id in :incidents and x.kind = 'handoff'
                     and m.kind = 'handoff' and m.final = 0 and m.failed is null""",
                incidents=some,
            )
            found |= {row["key"]: _lane(row) for row in rows}
        return list(found.values())

    async def older(self, key: str) -> list[Lane]:
        """The earlier pages to the target of `key` that share an incident or a question with it."""
        rows = await self.store.read(
            """select distinct m.key, m.target, m.channel, m.ts from page_sendings new
               join page_items i on i.page = new.page join incidents x on x.id = i.incident
               join incidents y on y.id = x.id or y.clarification = x.clarification
               join page_items j on j.incident = y.id
               join page_sendings old on old.page = j.page and old.via = 'slack' and old.target = new.target
               join messages m on m.key = old.message
               where new.message = :key and old.page < new.page and m.final = 0 and m.failed is null""",
            key=key,
        )
        return [_lane(row) for row in rows]

    async def is_covered(self, key: str, *, posted: bool) -> bool:
        """Whether other pages to the same target cover all open incidents of `key`: newer ones about them or, of a card
        or reminder that cannot be posted, about another one of its question, or any about the escalated question. If
        `key` is `posted`, only posted ones count; else also those whose failure is one of the incident's own step.
        """
        row = await self.store.read_one(
            """select count(*) as open, count(case when exists (
                 select 1 from incidents y join page_items j on j.incident = y.id
                 join page_sendings s on s.page = j.page left join messages m on m.key = s.message
                 where (y.id = x.id or (y.clarification = x.clarification and y.closed_at is null
                     and substr(x.key, 1, 17) in ('unplaceable:card:', 'unplaceable:nudge')
                     and (y.kind = 'escalated'
                       or substr(y.key, 1, 17) in ('unplaceable:card:', 'unplaceable:nudge'))))
                   and s.via = 'slack' and s.target = mine.target
                   and (j.page > i.page or (x.id <> y.id and y.kind = 'escalated'))
                   and coalesce(m.failed, :deleted) = :deleted
                   and (m.ts is not null or (:posted = 0 and j.step is not null)))
                 then 1 end) as covered
               from page_sendings mine join page_items i on i.page = mine.page
               join incidents x on x.id = i.incident
               where mine.message = :key and x.closed_at is null""",
            posted=int(posted),
            key=key,
            deleted=DELETED,
        )
        return row is not None and row["open"] > 0 and row["open"] == row["covered"]

    async def sending_of(self, key: str) -> Sending | None:
        """The sending whose message is `key`."""
        row = await self.store.read_one("select * from page_sendings where message = :key", key=key)
        return Sending(row["page"], _destination("slack", row), key) if row else None

    async def is_posted(self, key: str) -> bool:
        """Whether a message was posted."""
        row = await self.store.read_one("select ts from messages where key = :key", key=key)
        return row is not None and row["ts"] is not None

    async def clarifications_of(self, key: str) -> tuple[str, ...]:
        """The clarifications of the page with this message."""
        rows = await self.store.read(
            """select distinct i.clarification from page_sendings s
               join page_items p on p.page = s.page join incidents i on i.id = p.incident
               where s.message = :key and i.clarification is not null""",
            key=key,
        )
        return tuple(row["clarification"] for row in rows)

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        """The clarifications of the page at `ts`, empty if it is no page. A reply in its thread is an answer."""
        rows = await self.in_flight.find(
            channel,
            lambda: self.store.read(
                """select i.clarification from messages m
                   join page_sendings s on s.message = m.key
                   join page_items p on p.page = s.page
                   join incidents i on i.id = p.incident
                   where m.channel = :channel and m.ts = :ts and i.clarification is not null
                   group by i.clarification order by min(i.id)""",
                channel=channel,
                ts=ts,
            ),
        )
        return tuple(row["clarification"] for row in rows)

    async def open_pages(self) -> list[PagePlace]:
        """The pages of open incidents about questions, where the page begins a thread of its own."""
        rows = await self.store.read(
            """select distinct m.channel, m.ts, i.clarification from incidents i
               join page_items p on p.incident = i.id
               join page_sendings s on s.page = p.page join messages m on m.key = s.message
               where i.closed_at is null and i.clarification is not null
                 and m.ts is not null and m.thread_ts is null and coalesce(m.failed, '') <> :deleted""",
            deleted=DELETED,
        )
        return [PagePlace(row["channel"], row["ts"], row["clarification"]) for row in rows]

    async def paged_before(self, user: str, ts: str, *, in_doubt: bool) -> set[str]:
        """The clarifications of open incidents whose pages to a user were posted before the message at `ts`, even if the
        pages are deleted by now. `in_doubt`: also of posts of unknown outcome.
        """
        rows = await self.store.read(
            """select i.clarification, s.target, s.mentions from incidents i
               join page_items p on p.incident = i.id
               join page_sendings s on s.page = p.page join messages m on m.key = s.message
               where i.closed_at is null and i.clarification is not null
                 and (cast(m.ts as double precision) < :ts
                   or (m.ts is null and m.intent_at is not null and :in_doubt = 1))""",
            ts=float(ts),
            in_doubt=int(in_doubt),
        )
        return {row["clarification"] for row in rows if user in _destination("slack", row).users}

    def _shorten_deadline(self, key: str) -> None:
        """Shorten a message's deadline to 2 s, after its first try failed."""
        if key in self._watched:
            at, sending = self._watched[key]
            self._watched[key] = min(at, self.clock.now() + _AFTER_FAILURE), sending
            self.incidents.awake.set()

    async def _ended(self, key: str, state: SendingState, note: str | None) -> None:
        sending = await self.sending_of(key)
        if sending is None:
            return
        await self.settle(sending, state, note)
        self._watched.pop(key, None)
        if state == "sent":
            self.landed.add(key)
            self.incidents.awake.set()

    async def _owed(self) -> list[Sending]:
        """The sendings without an outcome, oldest first."""
        rows = await self.store.read(
            """select s.*, i.incident, i.step, (select count(*) from page_sendings o
                 where o.page = s.page and o.state in ('late', 'failed')) as failed
               from page_sendings s join page_items i on i.page = s.page
               where s.state in ('wanted', 'late') order by s.page, s.via, s.target, i.incident"""
        )
        found: dict[object, Sending] = {}
        for row in rows:
            to, item = _destination(row["via"], row), Item(row["incident"], row["step"])
            before = found.get((row["page"], to)) or Sending(
                row["page"], to, row["message"], failed=row["failed"] > 0
            )
            found[row["page"], to] = replace(before, items=(*before.items, item))
        return list(found.values())


def _insert_page(tx: Tx, batch: Batch, now: datetime) -> int:
    (row,) = tx.rows(
        """insert into pages (kind, policy, step, at, note) values (:kind, :policy, :step, :at, :note)
           returning id""",
        kind=batch.group[0],
        policy=batch.group[1],
        step=batch.step,
        at=now.timestamp(),
        note=batch.note or None,
    )
    page: int = row["id"]
    items = [{"page": page, "incident": each.incident, "step": each.step} for each in batch.items]
    tx.many("insert into page_items (page, incident, step) values (:page, :incident, :step)", items)
    return page


def _happenings(batch: Batch, now: datetime) -> Iterator[tuple[Item, Paged | Failed]]:
    """What is logged of each of its incidents once it is stored."""
    for item in batch.items:
        if item.step is not None and batch.destinations:
            yield item, Paged(now, item.step)
        if item.step is not None and (batch.reaches_nobody or not batch.destinations):
            yield item, Failed(now, item.step)


def _store(
    tx: Tx,
    batch: Batch,
    about: Incident | None,
    happenings: Sequence[tuple[int, Paged | Failed]],
    now: datetime,
) -> tuple[Sending, ...]:
    page = _insert_page(tx, batch, now) if batch.destinations else None
    for incident, happening in happenings:
        append(tx, incident, happening, page)
    if page is None:
        return ()
    card = _card(tx, about) if about is not None else None
    sendings = tuple(_sending(page, batch, each, card) for each in batch.destinations)
    tx.many(
        """insert into page_sendings (page, via, target, mentions, message)
           values (:page, :via, :target, :mentions, :message)""",
        [_sending_row(each) for each in sendings],
    )
    put(tx, [_fresh(each, each.message) for each in sendings if each.message and each.is_own])
    return sendings


def _destination(via: str, row: Row) -> Destination:
    return Destination(via, row["target"], None, tuple(json.loads(row["mentions"])))


def _card(tx: Tx, incident: Incident) -> Row | None:
    """The card of an incident's question, if it is posted; else the message about the same event."""
    if incident.clarification is None:
        return tx.one("select * from messages where key = :key and failed is null", key=incident.notice_key)
    return tx.one(
        """select * from messages where kind = 'card' and clarification = :clarification and ts is not null
             and failed is null order by round desc limit 1""",
        clarification=incident.clarification,
    )


def _sending(page: int, batch: Batch, to: Destination, card: Row | None) -> Sending:
    message = f"page:{page}:{to.target}" if to.via == "slack" else None
    if card is not None and to.via == "slack" and to.target == (card["channel"] or card["target"]):
        to = replace(to, thread=(card["producer"], card["session_id"]))
        if card["kind"] == "handoff" and card["ts"] is None and card["intent_at"] is None:
            message = card["key"]
    return Sending(page, to, message, batch.items)


def _sending_row(sending: Sending) -> dict[str, object]:
    to = sending.destination
    where = {"via": to.via, "target": to.target, "mentions": json.dumps(to.mentions)}
    return {"page": sending.page, "message": sending.message, **where}


def _fresh(sending: Sending, key: str) -> Fresh:
    producer, session = sending.destination.thread or (None, None)
    return Fresh(
        key=key, kind="page", target=sending.destination.target, producer=producer, session_id=session
    )


def _lane(row: Row) -> Lane:
    """While a message is being posted it stays in that lane: two lanes would both post it."""
    if row["ts"] is None:
        return Lane(row["target"], row["key"], post=True)
    return Lane(row["channel"] or row["target"], row["key"], post=False)


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry of an incident's log, for the audit: what happened (`sent`, `taken`, …), and of a page what was sent where,
    with what outcome.
    """

    at: datetime
    what: str
    reason: str
    policy: str | None
    step: int | None
    user: str | None
    by: str | None
    until: datetime | None
    sendings: tuple[dict[str, object], ...]


def logged(tx: Tx) -> dict[str, list[Logged]]:
    """All that happened to the incidents about clarifications, by clarification, oldest first."""
    sendings: dict[int, list[dict[str, object]]] = {}
    for row in tx.rows("select * from page_sendings order by page, via, target"):
        sending = {"via": row["via"], "to": row["target"], "mentions": json.loads(row["mentions"])}
        sendings.setdefault(row["page"], []).append(sending | {"state": row["state"], "note": row["note"]})
    found: dict[str, list[Logged]] = {}
    for row in tx.rows(
        """select l.*, i.clarification, i.policy, i.reason from incident_log l join incidents i on i.id = l.incident
           where i.clarification is not null order by l.id"""
    ):
        sent = sendings.get(row["page"], []) if row["what"] == "sent" else []
        found.setdefault(row["clarification"], []).append(
            Logged(
                at=moment(row["at"]),
                what=row["what"],
                reason=row["reason"],
                policy=row["policy"],
                step=row["step"],
                user=row["user_id"],
                by=row["done_by"] or None,
                until=None if row["until"] is None else moment(row["until"]),
                sendings=tuple(sent),
            )
        )
    return found


SWEEP = Sweep(  # after the incidents
    "pages",
    """select id as name from pages g where id > :after and id < (select max(id) from pages) and at < :horizon
       and not exists (select 1 from page_items p where p.page = g.id) order by id limit :most""",
    (
        """delete from messages where key in (
             select message from page_sendings where message is not null and page in :names)""",
        "delete from page_sendings where page in :names",
        "delete from pages where id in :names",
    ),
    first=0,
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


def find_about(tx: Tx, incidents: Collection[int]) -> PagesAbout:
    """The pages about incidents."""
    pages: set[int] = set()
    for some in batches(incidents):
        rows = tx.rows("select page from page_items where incident in :incidents", incidents=some)
        pages |= {row["page"] for row in rows}
    others, alone, shared, outside = set[int](), set[str](), set[str](), set[Outside]()
    for pages_ in batches(pages):
        rows = tx.rows(
            """select page, incident from page_items join incidents on incidents.id = incident
               where page in :pages and title <> :gone""",
            pages=pages_,
            gone=FORGOTTEN,
        )
        others |= {row["page"] for row in rows if row["incident"] not in incidents}
    for pages_ in batches(pages):
        for row in tx.rows(
            "select page, via, target, state, message from page_sendings where page in :pages", pages=pages_
        ):
            if row["via"] != "slack" and row["state"] == "sent":
                outside.add((row["page"], row["via"], row["target"]))
            if row["message"] is not None:
                (shared if row["page"] in others else alone).add(row["message"])
    return PagesAbout(alone, shared, frozenset(outside))


def leave_out(tx: Tx, count: int, now: datetime) -> None:
    """Skip `count` ids: an unused row takes the last of them."""
    tx.run(
        """insert into pages (id, kind, step, at)
           select coalesce(max(id), 0) + :count, 'restored', 0, :now from pages""",
        count=count,
        now=now.timestamp(),
    )
