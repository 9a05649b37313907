"""Incidents (what on-call has to claim), the log of each, and the open ones in memory.

Every part raises incidents here, and the pager handles them. Incidents and their log (`core.escalation.Happening`) are stored
before anything is sent, so that a kill loses nothing. Each entry is a row without a foreign key, so adding one never waits for a
lock. Times are on our clock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, Literal, cast, get_args

import structlog

from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from core.clock import Clock
from core.escalation import (
    Began,
    Failed,
    Handed,
    Happening,
    IncidentClosed,
    Left,
    NewIncident,
    NotMine,
    Paged,
    Snoozed,
    Taken,
    is_news,
)
from core.names import whole_characters
from core.records import FORGOTTEN, Subject

_log = structlog.get_logger("clarify.paging")
Kind = Literal[
    "escalated",
    "refused",
    "undelivered",
    "unplaceable",
    "ledger",
    "errored",
    "event",
    "handoff",
    "trouble",
    "failed",
]
_KINDS: frozenset[str] = frozenset(get_args(Kind))
_SOON = timedelta(seconds=1)
_NOTED = 16  # entries: fewer arrive while one is stored
Group = tuple[str, str | None]
"""A kind and a policy: many incidents of a group share one page."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A stored incident; see `core.escalation.NewIncident`. `policy` names the on-call policy; None: only the last resort.

    `history`: what happened to it, oldest first; `entries`: the same as stored; `pages`: the numbers of those that name it.
    """

    id: int
    key: str
    kind: Kind
    policy: str | None
    agent_id: str | None
    clarification: str | None
    title: str
    reason: str
    body: str
    expires_at: datetime | None
    began_at: datetime
    closed_at: datetime | None
    history: list[Happening] = field(default_factory=list, repr=False, compare=False)
    entries: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)
    pages: set[int] = field(default_factory=set, repr=False, compare=False)

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def group(self) -> Group:
        return self.kind, self.policy

    @property
    def notice_key(self) -> str:
        """The key of the notice or card about the same event: both are named after the event."""
        return f"notice:{self.key.partition(':')[2]}"


@dataclass(slots=True)
class OpenIncident:
    """An open incident. `paged`: the Slack users it was sent to. `newest`: the number of its newest page by user or
    channel, without pages in threads. `due`: when to ask the policy again; None: only after something happens.
    """

    incident: Incident
    paged: set[str] = field(default_factory=set)
    newest: dict[str, int] = field(default_factory=dict)
    due: datetime | None = None

    @property
    def history(self) -> list[Happening]:
        return self.incident.history

    def note_page(self, page: int, target: str, users: set[str], *, in_thread: bool) -> None:
        """Note a page to a channel or user, which notifies `users`."""
        self.paged |= users
        if not in_thread:
            self.newest[target] = max(page, self.newest.get(target, 0))

    def note(self, happening: Happening) -> None:
        """Append to the history, unless `reload` did already."""
        if happening not in self.history[-_NOTED:]:
            self.history.append(happening)


@dataclass(eq=False)
class Incidents:
    """The incidents in the storage, and the open ones in memory.

    `policy_of(agent)` names the on-call policy of an agent's route. `on_change` is called after something happened to
    incidents. `awake` is set when the pager has something to do. Methods that read or store raise StorageUnavailable, and
    what they store is durable when they return.
    """

    store: Store
    clock: Clock
    policy_of: Callable[[str], str | None]
    on_change: Callable[[], None] = lambda: None
    awake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    touched: set[int] = field(default_factory=set, init=False)  # their messages need an update
    _open: dict[int, OpenIncident] = field(default_factory=dict, init=False)
    _by_clarification: dict[str, set[int]] = field(default_factory=dict, init=False)
    _latest: datetime | None = field(default=None, init=False)

    async def load(self) -> None:
        for known in self:
            self._drop(known.incident.id)
        for incident in await self._read("closed_at is null"):
            self._keep_open(_opened(incident))

    async def reload(self, incidents: Collection[int]) -> None:
        """Reads incidents again that another bot raised or changed, or whose words another process erased."""
        for incident in await self.all(incidents):
            if not incident.is_open:
                self._drop(incident.id)
            elif (known := self._open.get(incident.id)) is None:
                self._keep_open(_opened(incident))
            else:
                noted, known.incident = known.history[-_NOTED:], incident
                for each in noted:
                    known.note(each)

    async def raise_(self, new: NewIncident) -> Incident | None:
        """Open an incident, once per key. Returns None if it was raised before."""
        began = Began(self.clock.now())

        def work(tx: Tx) -> Incident | None:
            row = tx.one(
                """insert into incidents (key, kind, policy, agent_id, clarification, title, reason, body,
                     expires_at, began_at)
                   values (:key, :kind, :policy, :agent_id, :clarification, :title, :reason, :body,
                     :expires_at, :began_at)
                   on conflict (key) do nothing returning *""",
                key=new.key,
                kind=kind_of(new.key),
                policy=self.policy_of(new.agent_id or ""),
                agent_id=whole_characters(new.agent_id) if new.agent_id is not None else None,
                clarification=new.clarification,
                title=whole_characters(new.title),
                reason=whole_characters(new.reason),
                body=whole_characters(new.body),
                expires_at=new.expires_at.timestamp() if new.expires_at else None,
                began_at=began.at.timestamp(),
            )
            if row is None:
                return None
            incident = _incident(row)
            append(tx, incident.id, began)
            return incident

        incident = await self.store.write(work)
        if incident is not None:
            incident.history.append(began)
            self._keep_open(OpenIncident(incident))
        return incident

    async def happened(self, entries: Sequence[tuple[int, Happening]]) -> None:
        """Log what happened to incidents and wake the pager; `IncidentClosed` closes them."""

        def work(tx: Tx) -> None:
            for incident, happening in sorted(entries, key=itemgetter(0)):  # two bots lock them in one order
                append(tx, incident, happening)
                if isinstance(happening, IncidentClosed):
                    _close(tx, incident, happening.at)

        await self.store.write(work)
        self.logged(entries)

    def logged(self, entries: Sequence[tuple[int, Happening]]) -> None:
        """Takes up what was stored of incidents."""
        for incident, happening in entries:
            if (each := self._open.get(incident)) is not None:
                each.note(happening)
            if isinstance(happening, IncidentClosed):
                self._drop(incident)
        self.changed([incident for incident, _ in entries])

    async def follow(self, holders: Sequence[tuple[int, Taken | Handed]]) -> None:
        """Log who claimed incidents or was handed them according to the records, unless their logs have that or something
        newer.
        """
        now = self.clock.now()

        def work(tx: Tx) -> list[tuple[int, Happening]]:
            news: list[tuple[int, Happening]] = []
            for incident, held in sorted(holders, key=itemgetter(0)):
                # Locks the row: if two bots follow the same record, only one writes.
                row = tx.one(
                    "update incidents set kind = kind where id = :id and closed_at is null returning *",
                    id=incident,
                )
                if row is not None and is_news(held, _logged_of(tx, [incident])[0].history, now):
                    append(tx, incident, held)
                    news.append((incident, held))
            return news

        self.logged(await self.store.write(work))

    async def claim(self, incidents: Sequence[int], user: str) -> set[int]:
        """Close incidents that `user` claimed, and return those that were still open: the first click wins."""
        now = self.clock.now()

        def work(tx: Tx) -> set[int]:
            mine: set[int] = set()
            for incident in sorted(incidents):
                if _close(tx, incident, now):
                    append(tx, incident, Taken(now, user))
                    append(tx, incident, IncidentClosed(now))
                    mine.add(incident)
            return mine

        mine = await self.store.write(work)
        for incident in mine:
            self._drop(incident)
        self.changed(incidents)
        return mine

    async def close(self, incidents: Iterable[OpenIncident]) -> None:
        """Close incidents that need no one any more."""
        now = self.clock.now()
        if entries := [(each.incident.id, IncidentClosed(now)) for each in incidents]:
            await self.happened(entries)

    def changed(self, incidents: Iterable[int]) -> None:
        """Have the pager ask the policies about incidents again, and update their messages."""
        now = self.clock.now()
        for incident in incidents:
            self.touched.add(incident)
            if (each := self._open.get(incident)) is not None:
                each.due = now
        self.on_change()
        self.awake.set()

    def touch(self, incidents: Iterable[int]) -> None:
        """Have the pager update the messages about incidents, and about others of their questions."""
        self.touched.update(incidents)
        self.awake.set()

    def show_again(self, clarification: str) -> None:
        """Have the pager update the pages about a clarification: someone saw controls that should be gone."""
        self.touch(each.incident.id for each in self.about(clarification))

    def paged(self, clarification: str) -> frozenset[str]:
        """The Slack users to whom the open incidents about a clarification were sent."""
        return frozenset(user for each in self.about(clarification) for user in each.paged)

    def about(self, clarification: str) -> list[OpenIncident]:
        """The open incidents about a clarification, oldest first."""
        return [self._open[each] for each in sorted(self._by_clarification.get(clarification, ()))]

    def open(self, incident: int) -> OpenIncident | None:
        """An incident, if it is open."""
        return self._open.get(incident)

    def __iter__(self) -> Iterator[OpenIncident]:
        return iter(list(self._open.values()))

    async def get(self, incident: int) -> Incident | None:
        return next(iter(await self._read("id = :id", id=incident)), None)

    async def named(self, key: str) -> Incident | None:
        """The incident with this key, open or closed."""
        return next(iter(await self._read("key = :key", key=key)), None)

    async def all(self, incidents: Collection[int]) -> list[Incident]:
        """Incidents by their ids, the open ones first."""
        found = [each for some in batches(incidents) for each in await self._read("id in :ids", ids=some)]
        return sorted(found, key=lambda each: (not each.is_open, each.id))

    async def about_questions(self) -> list[Incident]:
        """The open incidents about clarifications."""
        return await self._read("closed_at is null and clarification is not null")

    async def related(self, incidents: Collection[int]) -> list[Incident]:
        """Incidents, and the others of their clarifications."""
        known = await self.all(incidents)
        about = {each.clarification for each in known if each.clarification is not None}
        for some in batches(about):
            known += await self._read("clarification in :some", some=some)
        return list({each.id: each for each in known}.values())

    async def _read(self, which: str, **values: object) -> list[Incident]:
        return _with_logs(await self.store.read(f"{_LOGS} where {which}{_IN_ORDER}", **values))

    def take_due(self, now: datetime) -> list[OpenIncident]:
        """The incidents due now, the earliest first; all of them if the clock was set back. They are due again in a second
        unless rescheduled.
        """
        is_set_back, self._latest = self._latest is not None and now < self._latest, now
        due = [(each.due, each) for each in self if each.due is not None and (is_set_back or each.due <= now)]
        found = [each for _, each in sorted(due, key=lambda one: one[0])]
        for each in found:
            each.due = now + _SOON
        return found

    def next_due(self) -> datetime | None:
        return min((each.due for each in self._open.values() if each.due is not None), default=None)

    def _keep_open(self, each: OpenIncident) -> None:
        incident = each.incident
        self._open[incident.id] = each
        if incident.clarification is not None:
            self._by_clarification.setdefault(incident.clarification, set()).add(incident.id)
        each.due = self.clock.now()
        self.awake.set()

    def _drop(self, incident_id: int) -> None:
        each = self._open.pop(incident_id, None)
        if each is None:
            return
        of = self._by_clarification.get(each.incident.clarification or "", set())
        of.discard(incident_id)
        if not of:
            self._by_clarification.pop(each.incident.clarification or "", None)


def kind_of(key: str) -> Kind:
    """The kind that begins an incident's key; "trouble" (with a producer) if it is none of ours."""
    head = key.partition(":")[0]
    return cast("Kind", head) if head in _KINDS else "trouble"


def append(tx: Tx, incident: int, happening: Happening) -> None:
    """Write an entry into an incident's log, within the caller's transaction."""
    given = {each.name: getattr(happening, each.name) for each in fields(happening)}
    _append(tx, incident, {"what": _WHAT[type(happening)]} | given)


def append_listed(tx: Tx, incident: int, page: int) -> None:
    """Write into an incident's log that a page lists it, though no step of its policy led there."""
    _append(tx, incident, {"what": LISTED, "page": page})


def _append(tx: Tx, incident: int, entry: Mapping[str, object]) -> None:
    tx.run(
        "insert into incident_log (incident, page, entry) values (:incident, :page, :entry)",
        incident=incident,
        page=entry.get("page"),
        entry=json.dumps(entry, default=datetime.timestamp),
    )
    tx.tell("incident", incident)


def first_failure(tx: Tx, steps: Mapping[int, int], page: int, now: datetime) -> list[tuple[int, Failed]]:
    """Write into the logs of the open ones of some incidents that a page failed, unless one of them has that already.
    `steps`: the step of each.
    """
    incidents = _logged_of(tx, steps)
    if any(isinstance(each, Failed) and each.page == page for known in incidents for each in known.history):
        return []
    failed = [(each.id, Failed(now, steps[each.id], page)) for each in incidents if each.is_open]
    for incident, happening in failed:
        append(tx, incident, happening)
    return failed


def _close(tx: Tx, incident: int, at: datetime) -> bool:
    sql = "update incidents set closed_at = :at where id = :id and closed_at is null"
    return tx.run(sql, at=at.timestamp(), id=incident) > 0


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_LOGGED: Mapping[str, type[Happening]] = {
    "began": Began,
    "sent": Paged,
    "failed": Failed,
    "taken": Taken,
    "handed": Handed,
    "snoozed": Snoozed,
    "not mine": NotMine,
    "left": Left,
    "closed": IncidentClosed,
}
_WHAT = {kind: what for what, kind in _LOGGED.items()}
LISTED = "listed"


def _happening(entry: Mapping[str, Any]) -> Happening:
    """The happening that `append` wrote."""
    kind = _LOGGED[entry["what"]]
    given = {each.name: entry[each.name] for each in fields(kind)}
    return kind(**given | {name: moment(given[name]) for name in ("at", "until") if name in given})


def _opened(incident: Incident) -> OpenIncident:
    if not incident.history:
        incident.history.append(Began(incident.began_at))
    return OpenIncident(incident)


# An incident with a row for each entry of its log.
_LOGS = "select * from incidents left join incident_log on incident = id"
_IN_ORDER = " order by id, seq"


def _with_logs(rows: Iterable[Row]) -> list[Incident]:
    found: dict[int, Incident] = {}
    for row in rows:
        if row["id"] not in found:
            found[row["id"]] = _incident(row)
        if row["entry"] is None:
            continue
        incident = found[row["id"]]
        if row["page"] is not None:
            incident.pages.add(row["page"])
        try:
            entry = json.loads(row["entry"])
            if entry["what"] != LISTED:
                incident.history.append(_happening(entry))
                incident.entries.append(entry)
        except (ValueError, TypeError, KeyError) as error:  # one entry must not keep the bot from starting
            _log.error(
                "cannot read an entry in the log of an incident",
                incident=row["id"],
                seq=row["seq"],
                reason=repr(error),
            )
    return list(found.values())


def _logged_of(tx: Tx, incidents: Collection[int]) -> list[Incident]:
    """Incidents by their ids, of one batch."""
    return _with_logs(tx.rows(f"{_LOGS} where id in :ids{_IN_ORDER}", ids=sorted(incidents)))


def _incident(row: Row) -> Incident:
    return Incident(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        policy=row["policy"],
        agent_id=row["agent_id"],
        clarification=row["clarification"],
        title=row["title"],
        reason=row["reason"],
        body=row["body"],
        expires_at=moment(row["expires_at"]) if row["expires_at"] is not None else None,
        began_at=moment(row["began_at"]),
        closed_at=moment(row["closed_at"]) if row["closed_at"] is not None else None,
    )


SWEEP = Sweep(
    "incidents",
    """select id as name, clarification from incidents where id > :after and id < (select max(id) from incidents)
       and closed_at < :horizon and kind <> 'ledger' order by id limit :most""",
    ("delete from incident_log where incident in :names", "delete from incidents where id in :names"),
    first=0,
)


def logged(tx: Tx) -> list[Incident]:
    """The incidents about clarifications, oldest first."""
    return _with_logs(tx.rows(f"{_LOGS} where clarification is not null{_IN_ORDER}"))


def pages_of(tx: Tx, incidents: Collection[int]) -> set[int]:
    """The numbers of the pages that name some of these incidents."""
    sql = "select page from incident_log where incident in :ids and page is not null"
    return {row["page"] for some in batches(incidents) for row in tx.rows(sql, ids=some)}


def unforgotten(tx: Tx, incidents: Collection[int]) -> set[int]:
    """Those of some incidents that have their words."""
    sql = "select id from incidents where id in :ids and title <> :gone"
    return {row["id"] for some in batches(incidents) for row in tx.rows(sql, ids=some, gone=FORGOTTEN)}


def of(tx: Tx, clarifications: Collection[str]) -> set[int]:
    """The incidents of a few clarifications."""
    rows = tx.rows("select id from incidents where clarification in :ids", ids=sorted(clarifications))
    return {row["id"] for row in rows}


def find_about(tx: Tx, subject: Subject, messages: Collection[str]) -> set[int]:
    """The incidents to forget with `subject`, besides those of its clarifications; `messages`: the keys of the messages
    about it.
    """
    return {
        row["id"]
        for row in tx.rows("select id, key, clarification from incidents")
        if row["clarification"] not in subject.clarifications
        and (subject.is_in(row["key"]) or f"notice:{row['key'].partition(':')[2]}" in messages)
    }


def forget(tx: Tx, incidents: Iterable[int]) -> None:
    """Close incidents, since no one can tell any more what they are about, and erase their words and the people in their logs."""
    for some in batches(incidents):
        tx.run(
            """update incidents set title = :gone, reason = :gone, body = '',
                 closed_at = coalesce(closed_at, began_at) where id in :ids""",
            gone=FORGOTTEN,
            ids=some,
        )
        for row in tx.rows("select * from incident_log where incident in :ids", ids=some):
            tx.run(
                "update incident_log set entry = :entry where seq = :seq",
                entry=_without_people(row["entry"]),
                seq=row["seq"],
            )


def naming(tx: Tx, user: str) -> list[int]:
    """The entries in the logs of closed incidents in which a Slack user id stands, by number."""
    rows = tx.rows(
        """select l.seq, l.entry from incident_log l join incidents i on i.id = l.incident
           where i.closed_at is not null and l.entry like :one""",
        one=f"%{json.dumps(user)}%",
    )
    return [row["seq"] for row in rows if _without_people(row["entry"], user) != row["entry"]]


def forget_person(tx: Tx, entries: Sequence[int], user: str) -> None:
    """Erases a person from a few log entries."""
    for row in tx.rows("select seq, entry from incident_log where seq in :entries", entries=entries):
        tx.run(
            "update incident_log set entry = :entry where seq = :seq",
            entry=_without_people(row["entry"], user),
            seq=row["seq"],
        )


def _without_people(entry: str, user: str | None = None) -> str:
    """An entry without its names, or without `user` alone; of one that cannot be read nothing is left."""
    try:
        given = json.loads(entry)
        gone = {name for name in ("user", "by") if user is None or given.get(name) == user}
        return json.dumps({name: "" if name in gone else each for name, each in given.items()})
    except (ValueError, AttributeError):
        return "{}"


def open_among(tx: Tx, incidents: Iterable[int]) -> int:
    """How many of `incidents` are open."""
    found = 0
    for some in batches(incidents):
        found += len(tx.rows("select id from incidents where id in :ids and closed_at is null", ids=some))
    return found


def leave_out(tx: Tx, count: int, key: str, now: datetime) -> None:
    """Skip `count` ids: a closed row takes the last of them."""
    tx.run(
        """insert into incidents (id, key, kind, title, reason, body, began_at, closed_at)
           select coalesce(max(id), 0) + :count, :key, 'restored', '', '', '', :now, :now from incidents""",
        count=count,
        key=key,
        now=now.timestamp(),
    )
