"""Deletes what is not to be kept: a session, a clarification or a person that someone wants forgotten, and once a day what is over.

`forget` deletes sessions and clarifications in the records, the rest of the storage, Slack, and the files that an integration
keeps beside the database. It works beside a running bot, in transactions short enough for it to write in between: some
clarifications each, with all that hangs on them; then the messages that only mention them, or belong to the session alone; at last
the session. If it is killed, the same call does the rest. Open questions are skipped: close them first. Blocking.

`forget_person` deletes what the bot stores about a person where no signed decision names them, in the same way. What they answered,
approved or edited stays as it is, since receipts and the log of decisions prove it; `Remains` says where.

`Upkeep` deletes what is over while the bot runs: clarifications, with what hangs on them, and other rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from bot import integrations, mailing
from bot.ask import inbox, push, questions
from bot.ask.questions import KEYS_KEPT
from bot.decisions import log
from bot.errors import StorageUnavailable
from bot.oncall import incidents, pages, roster
from bot.oncall.pages import Outside
from bot.show import memory, messages, removal, replies
from bot.storage import ledger, opening
from bot.storage.opening import Kept
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from core.clarification import DONE, ID, Clarification
from core.clock import Clock
from core.errors import BadInput, NotFound
from core.index import session_of
from core.ledger import FORGOTTEN
from core.records import Raw, Subject, forgotten, is_unsettled, names_of, parse, without_person
from core.summary import Summary

_log = structlog.get_logger("clarify.integrations")
_T = TypeVar("_T")
Pair = tuple[str, str]
# In one transaction, for which a bot on SQLite waits: about 15 ms.
_CLARIFICATIONS = 20
_ROWS = 100
_RECORDS = 20  # in one transaction, for which a bot on SQLite waits


@dataclass(frozen=True, slots=True)
class Erased:
    """What came of erasing. `left`: files that may still hold something, and may not later; `stays`: files that will not be
    touched; `deleted`: how many were deleted whole.
    """

    left: Sequence[str] = ()
    stays: Sequence[str] = ()
    deleted: int = 0


@dataclass(frozen=True, kw_only=True)
class LocalFiles:
    """What a command does with the files of an integration.

    Args:
        first: returns one of them, or None if there are none.
        move_aside: moves all into a new folder of a name beside them; returns that, or None if there were none.
        forgotten: returns, for `erase`, what they may hold of the clarifications with some ids that are forgotten by now.
        erase: removes that from them as far as possible now. `writes`: no bot runs that does it.
    """

    first: Callable[[], Path | None]
    move_aside: Callable[[str], Path | None]
    forgotten: Callable[[Tx, Sequence[str]], Any]
    erase: Callable[..., Erased]


@dataclass(frozen=True, slots=True)
class Found:
    """The clarifications and sessions with a name, and what of them is to be forgotten yet: `parts`, one per clarification.
    `unsettled`: those still waiting for something; `unknown`: the ids of unreadable ones.
    """

    subject: Subject
    parts: tuple[Subject, ...] = ()
    unsettled: tuple[Clarification, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        return sorted(self.subject.clarifications)

    @property
    def session(self) -> Pair | None:
        """The session with its producer, or None if the name is a clarification's."""
        return next(iter(self.subject.sessions), None)


@dataclass(frozen=True, slots=True)
class Traces:
    """What could not be removed. `in_flight`: messages being posted right now, and `waiting`: events not processed yet: what
    they are about was not changed, so try again. `unsettled`: agents wait for them by now, so they were not changed either.
    `pagers`: pages sent outside Slack. `untaken`: incidents that no one had claimed, closed now. `elsewhere`: where others keep
    what an integration told them, by its name. `receipts`: deleted here, but agents and webhooks may have copies.
    """

    in_flight: int = 0
    waiting: int = 0
    unsettled: tuple[Clarification, ...] = ()
    pagers: frozenset[Outside] = frozenset()
    untaken: int = 0
    elsewhere: Mapping[str, Sequence[str]] = field(default_factory=dict)
    receipts: int = 0

    def is_all(self, *, abandoned: bool) -> bool:
        """Returns whether everything possible was done."""
        return not self.in_flight and not self.unsettled and (abandoned or not self.waiting)

    def __add__(self, other: Traces) -> Traces:
        return Traces(
            self.in_flight + other.in_flight,
            self.waiting + other.waiting,
            self.unsettled + other.unsettled,
            self.pagers | other.pagers,
            self.untaken + other.untaken,
            {**self.elsewhere, **other.elsewhere},
            self.receipts + other.receipts,
        )


def find(kept: Kept, name: str, producer: str | None = None) -> Found:
    """Finds what `name` means: a clarification's id, or else a session.

    Raises:
        NotFound: nothing has that name.
        BadInput: sessions of several producers have it.
        StorageUnavailable: the storage cannot be read.
    """
    with kept.read_only() as tx:
        if ID.fullmatch(name):
            rows = tx.rows("select id, producer, body from clarifications where id = :id", id=name)
            if not rows:
                raise NotFound(name)
            return _found(rows)
        rows = tx.rows(
            "select id, producer, body from clarifications where session = :session and producer <> ''",
            session=name,
        )
        rows = [row for row in rows if producer in {None, row["producer"]}]
        known = {row["producer"] for row in rows} | inbox.producers_of(tx, name, producer)
    if not known:
        raise NotFound(f"or session {name}")
    if len(known) > 1:
        raise BadInput(
            f"Several producers have a session of that name. Pick one with --producer: {', '.join(sorted(known))}."
        )
    return _found(rows, {(known.pop(), name)})


def forget(kept: Kept, found: Found, *, now: datetime, abandoned: bool = False) -> tuple[Traces, Found]:
    """Forgets `found`. Returns what could not be removed, and what to call it with again unless `Traces.is_all`.

    Args:
        kept: where the records are.
        found: what `find` found, or the last call returned; it must be settled.
        now: the time that others are told.
        abandoned: forget unsettled ones too.

    Raises:
        StorageUnavailable: repeating the call does the rest.
    """
    traces, left = Traces(), list[Subject]()
    for parts in batches(found.parts, _CLARIFICATIONS):
        step = partial(_forget_clarifications, parts, now=now, abandoned=abandoned)
        some, refused = in_step(kept, step)
        traces += some
        left += refused
    found = replace(found, parts=tuple(left))
    if traces.is_all(abandoned=abandoned):
        for step_ in _rest(kept, found.subject, even_waiting=abandoned):
            traces += in_step(kept, step_)
    if traces.is_all(abandoned=abandoned):
        traces += in_step(kept, partial(_forget_sessions, found.subject, even_waiting=abandoned))
        with kept.read_only() as tx:
            traces += Traces(elsewhere=_elsewhere(tx, found.subject))
        kept.purge()
    return traces, found


def in_step(kept: Kept, work: Callable[[Tx], _T]) -> _T:
    """Runs a transaction, and leaves as much time to others: what waits for SQLite's lock looks for it only now and then.

    Raises:
        StorageMoved: the database moved to another one.
    """
    began = time.monotonic()
    result = kept.change(partial(opening.here, kept.name, work))
    time.sleep(time.monotonic() - began)
    return result


def _forget_clarifications(
    parts: Sequence[Subject], tx: Tx, *, now: datetime, abandoned: bool
) -> tuple[Traces, Sequence[Subject]]:
    """Forgets clarifications, but for those of which something is on its way, or for which an agent waits by now: returns
    these, too.

    Keeps names that prevent repetition (ids of events, keys of messages); removes texts and people. Messages in Slack are
    queued for erasing.
    """
    ids = sorted(_joined(parts).clarifications)
    ledger.hold(tx, ids)
    held = _found(tx.rows("select id, producer, body from clarifications where id in :ids", ids=ids))
    if unsettled := tuple(each for each in held.unsettled if each.is_open or not abandoned):
        names = {each.id for each in unsettled}
        stay = [part for part in parts if part.clarifications & names]
        go = [part for part in parts if part not in stay]
        traces, refused = (
            _forget_clarifications(go, tx, now=now, abandoned=abandoned) if go else (Traces(), ())
        )
        return traces + Traces(unsettled=unsettled), [*stay, *refused]
    subject = _joined([*parts, *held.parts])  # with what asked later rounds
    traces = _forget_shown(subject, messages.of(tx, ids), incidents.of(tx, ids), tx, even_waiting=abandoned)
    if not traces.is_all(abandoned=abandoned):
        return (traces, parts) if len(parts) == 1 else _forget_each(parts, tx, now=now, abandoned=abandoned)
    push.forget(tx, subject)
    questions.forget(tx, subject)
    replies.forget(tx, ids)
    mailing.forget(tx, ids)
    receipts = log.forget(tx, subject)
    may_go = partial(_may_go, abandoned=abandoned)
    ledger.rewrite(tx, ids, lambda raw: forgotten(raw) if may_go(raw) else raw, FORGOTTEN, now)
    tx.tell("forgotten")
    return traces + Traces(receipts=receipts), ()


def _forget_each(
    parts: Sequence[Subject], tx: Tx, *, now: datetime, abandoned: bool
) -> tuple[Traces, Sequence[Subject]]:
    traces, refused = Traces(), list[Subject]()
    for part in parts:
        some, left = _forget_clarifications([part], tx, now=now, abandoned=abandoned)
        traces += some
        refused += left
    return traces, refused


def _rest(kept: Kept, subject: Subject, *, even_waiting: bool) -> Iterator[Callable[[Tx], Traces]]:
    """Yields the steps that forget what only mentions the clarifications, or belongs to the sessions."""
    with kept.read_only() as tx:
        about = messages.find_about(tx, subject)
        raised = incidents.find_about(tx, subject, about)
        texts, onces = memory.find_about(tx, subject)
        events = inbox.events_of(tx, subject)
    # First the incidents, which are found by their messages.
    for some in batches(sorted(raised), _ROWS):
        yield partial(_forget_shown, Subject(), (), some, even_waiting=even_waiting)
    for keys in batches(sorted(about), _ROWS):
        yield partial(_forget_shown, Subject(), keys, (), even_waiting=even_waiting)
    for some_texts in batches(texts, _ROWS):
        yield partial(_forget_memory, some_texts, ())
    for some_onces in batches(onces, _ROWS):
        yield partial(_forget_memory, (), some_onces)
    for ids in batches(events, _ROWS):
        yield partial(_forget_events, ids, even_waiting=even_waiting)


def _forget_shown(
    subject: Subject, keys: Collection[str], raised: Collection[int], tx: Tx, *, even_waiting: bool
) -> Traces:
    """Forgets messages, incidents, and the events of `subject`. Changes nothing if a message is in flight, or an event waits
    (unless `even_waiting`). A page is erased if all its incidents are forgotten, otherwise redrawn.
    """
    paged = pages.find_about(tx, raised)
    about = {*keys, *paged.alone}
    traces = Traces(
        in_flight=messages.in_flight_of(tx, about),
        waiting=inbox.waiting_of(tx, subject),
        pagers=paged.outside,
        untaken=incidents.open_among(tx, raised),
    )
    if not traces.is_all(abandoned=even_waiting):
        return Traces(traces.in_flight, traces.waiting)
    removal.queue(tx, messages.forget(tx, about))
    messages.draw_again(tx, paged.shared)
    memory.forget_asked(tx, about)
    incidents.forget(tx, raised)
    inbox.forget(tx, subject)
    return traces


def _forget_memory(texts: Sequence[str], onces: Sequence[str], tx: Tx) -> Traces:
    memory.forget(tx, texts, onces)
    return Traces()


def _forget_events(ids: Sequence[int], tx: Tx, *, even_waiting: bool) -> Traces:
    traces = Traces(waiting=inbox.waiting_among(tx, ids))
    if traces.is_all(abandoned=even_waiting):
        inbox.forget_events(tx, ids)
    return traces


def _forget_sessions(subject: Subject, tx: Tx, *, even_waiting: bool) -> Traces:
    sessions = Subject(sessions=subject.sessions)
    traces = Traces(waiting=inbox.waiting_of(tx, sessions))
    if traces.is_all(abandoned=even_waiting):
        push.forget(tx, sessions)
        inbox.forget(tx, sessions)
        tx.tell("forgotten")
    return traces


def erasures(kept: Kept) -> Mapping[str, list[Pair]]:
    """Returns what is to be erased from Slack, what was, and what could not be, by state."""
    with kept.read_only() as tx:
        return removal.by_state(tx)


def is_logged(kept: Kept) -> bool:
    """Returns whether the log of decisions says which receipts were forgotten: a running bot appends that."""
    with kept.read_only() as tx:
        return log.is_told(tx)


def _found(rows: Sequence[Row], sessions: Iterable[Pair] = ()) -> Found:
    records = {row["id"]: ledger.record_of(row["body"]) for row in rows}
    parts = [_part(name, record) for name, record in sorted(records.items())]
    unsettled = tuple(record for record in records.values() if record is not None and is_unsettled(record))
    return Found(
        Subject(frozenset(records), frozenset(sessions)),
        tuple(parts),
        unsettled,
        tuple(name for name, record in records.items() if record is None),
    )


def _joined(parts: Iterable[Subject]) -> Subject:
    subjects = list(parts)
    return Subject(
        clarifications=frozenset().union(*(each.clarifications for each in subjects)),
        events=frozenset().union(*(each.events for each in subjects)),
        tokens=frozenset().union(*(each.tokens for each in subjects)),
    )


def _part(clarification: str, record: Clarification | None) -> Subject:
    """Returns a clarification with what asked each of its rounds."""
    events, tokens = set[Pair](), set[Pair]()
    if record is not None:
        for each in (one.question for one in record.rounds):
            if each.producer is not None:
                events |= _named(each.producer, each.event_id)
                tokens |= _named(each.producer, each.reply_token)
    return Subject(frozenset({clarification}), events=frozenset(events), tokens=frozenset(tokens))


def _named(producer: str, name: str | None) -> set[Pair]:
    return set() if name is None else {(producer, name)}


def _may_go(item: Raw, *, abandoned: bool) -> bool:
    """Whether a record may be forgotten that no agent is seen to wait for: it may be unreadable."""
    return abandoned or item.get("status") in list(DONE) or parse(item) is not None


def _elsewhere(tx: Tx, subject: Subject) -> Mapping[str, Sequence[str]]:
    """Asks the integrations, also those that are no longer configured."""
    found = dict[str, Sequence[str]]()
    for each in integrations.installed():
        try:
            found[each.name] = () if each.keeps is None else tuple(each.keeps(tx, subject))
        except Exception:  # noqa: BLE001 - others wrote it
            _log.exception("an integration does not say what others keep", integration=each.name)
            found[each.name] = ("places that the log tells of",)
    return {name: places for name, places in found.items() if places}


_upkeep_log = structlog.get_logger("clarify.retention")
_DAY = timedelta(days=1)
_BATCH = 200  # rows per transaction
_OVER_AT_ONCE = 50  # with what hangs on them
# What is over. A question stays while its key counts, and what Slack may be about to show.
_OVER = """
  select id, closed, issue, number from clarifications
  where closed < :horizon and (closed, issue, number) > (:closed, :issue, :number)
    and not exists (select 1 from questions where clarification = clarifications.id and expires_at >= :keys_since)
    and not exists (select 1 from messages where clarification = clarifications.id and intent_at is not null)
  order by closed, issue, number limit :most"""
# In this order, because rows protect the rows that they belong to.
_SWEEPS = (
    inbox.SWEEP_EVENTS,
    messages.SWEEP_SHOWN,
    messages.SWEEP_NEVER_SHOWN,
    push.SWEEP,
    *memory.SWEEPS,
    incidents.SWEEP,
    messages.SWEEP_PAGES,
    pages.SWEEP,
    roster.SWEEP,
    inbox.SWEEP_SESSIONS,
    removal.SWEEP,
)


@dataclass(kw_only=True, eq=False)
class Upkeep:
    """Runs the daily clean-up. `index`: what still needs something, filled before `run`. `keep`: how long the storage
    keeps finished things; None means forever. `sweeps`: rows of other packages to delete. `forget_decisions`
    deletes what the log need not keep any more.
    """

    store: Store
    index: Iterable[Summary]
    clock: Clock
    keep: timedelta | None
    sweeps: Sequence[Sweep] = ()
    forget_decisions: Callable[[], Awaitable[None]] | None = None

    async def run(self) -> None:
        """Cleans up now and then daily, until cancelled."""
        while True:
            await self.tidy()
            await self.clock.sleep(_DAY.total_seconds())

    async def tidy(self) -> None:
        """Cleans up once. Failures are logged and retried the next day."""
        if self.keep is not None:
            await self._sweep(self.keep)
        if self.forget_decisions is not None:
            await self.forget_decisions()

    async def _sweep(self, keep: timedelta) -> None:
        now = self.clock.now()
        needed = Subject(
            frozenset(each.id for each in self.index), frozenset(session_of(each) for each in self.index)
        )
        horizon = (now - keep).timestamp()
        try:
            gone = await sweep_all(self.store, needed, horizon, now.timestamp(), self.sweeps)
        except StorageUnavailable as error:
            _upkeep_log.warning("cannot delete old rows", reason=str(error))
            return
        if gone:
            _upkeep_log.info("deleted old rows", **gone)


async def sweep_all(
    store: Store, needed: Subject, horizon: float, now: float, more: Sequence[Sweep] = ()
) -> Counter[str]:
    """Deletes rows finished before `horizon` (seconds since 1970) that are not `needed`. Returns the number of rows
    by table.

    Raises:
        StorageUnavailable: some rows may already be deleted.
    """
    is_needed = partial(_is_about, needed)
    gone: Counter[str] = Counter(clarifications=await _delete_over(store, horizon, now))
    for rule in (*_SWEEPS, *more):
        gone[rule.table] += await _delete(store, rule, is_needed, horizon=horizon, now=now)
    await store.give_back()
    return +gone


async def _delete_over(store: Store, horizon: float, now: float) -> int:
    """Deletes clarifications that were over before `horizon`. Returns their number."""
    gone, last = 0, {"closed": 0.0, "issue": 0, "number": 0}
    keys_since = now - KEYS_KEPT.total_seconds()
    while rows := await store.read(_OVER, horizon=horizon, keys_since=keys_since, most=_OVER_AT_ONCE, **last):
        last = {name: rows[-1][name] for name in last}
        ids = [row["id"] for row in rows]
        gone += await store.write(partial(ledger.delete, clarifications=ids, over_before=horizon))
    return gone


async def _delete(
    store: Store, rule: Sweep, is_needed: Callable[[Row], bool], *, horizon: float, now: float
) -> int:
    """Deletes the rows of one table, in small transactions that let other writers in. Returns their number."""
    gone, after = 0, rule.first
    while rows := await store.read(rule.find, after=after, horizon=horizon, most=_BATCH):
        after = rows[-1]["name"]
        names = [row["name"] for row in rows if not is_needed(row)]
        if names:
            gone += await store.write(_deleting(rule, names, horizon, now))
    return gone


def _deleting(rule: Sweep, names: Sequence[object], horizon: float, now: float) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        going = _ripe(tx, rule.table, names, horizon, now) if rule.timeless else names
        if rule.locked is not None:
            going = [name for name in going if tx.lock(f"{rule.locked}{name}")]
        count = 0
        for statement in rule.delete if going else ():
            count = tx.run(statement, names=going)
        return count

    return work


def _ripe(tx: Tx, table: str, names: Sequence[object], horizon: float, now: float) -> Sequence[object]:
    """Returns the names noted as finished before `horizon`. Notes the others now."""
    tx.many(
        "insert into over (kind, name, since) values (:kind, :name, :now) on conflict (kind, name) do nothing",
        [{"kind": table, "name": name, "now": now} for name in names],
    )
    rows = tx.rows(
        "delete from over where kind = :kind and since < :horizon and name in :names returning name",
        kind=table,
        horizon=horizon,
        names=names,
    )
    return [row["name"] for row in rows]


def _is_about(needed: Subject, row: Row) -> bool:
    """Returns whether a row that a `Sweep` found belongs to something needed."""
    found = dict(row)
    return (
        found.get("clarification") in needed.clarifications
        or (found.get("producer"), found.get("session_id")) in needed.sessions
        or needed.is_in(found.get("said"))
    )


@dataclass(frozen=True, slots=True)
class Removed:
    """How much was deleted, or had the person removed."""

    home: int = 0
    texts: int = 0
    overrides: int = 0
    pages: int = 0
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Remains:
    """What still names the person. `decided`: the ids of closed questions; `unsettled`: of those that agents wait for; a
    later call removes them there. `overrides`: how many still apply.
    """

    decided: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    overrides: int = 0


def forget_person(
    kept: Kept, user: str, names: Collection[str], *, now: datetime, forget_viewer: Callable[[Tx, str], bool]
) -> tuple[Removed, Remains]:
    """Forgets a Slack user id.

    Args:
        kept: where the records are.
        user: their Slack user id.
        names: what agents are told instead of it, besides what their decisions say.
        now: overrides that ended before are deleted.
        forget_viewer: `bot.home.forget_viewer`.

    Raises:
        StorageUnavailable: repeating the call does the rest.
    """
    with kept.read_only() as tx:
        texts, onces = memory.find_naming(tx, user)
        entries = incidents.naming(tx, user)
        found = _records(tx, ledger.naming(tx, user))
        names = {*names, *(name for record in found for name in names_of(record, user))}
        named = ledger.naming(tx, user, names)
    home = in_step(kept, lambda tx: forget_viewer(tx, user))
    for some in batches(texts, _ROWS):
        in_step(kept, partial(_forget_texts, some, ()))
    for some in batches(onces, _ROWS):
        in_step(kept, partial(_forget_texts, (), some))
    for numbers in batches(entries, _ROWS):
        in_step(kept, partial(_forget_entries, numbers, user))
    overrides, planned = in_step(kept, lambda tx: roster.forget_person(tx, user, now))
    questions = 0
    for ids in batches(named, _RECORDS):
        questions += in_step(kept, partial(_forget_in_records, ids, user, names, now))
    in_step(kept, lambda tx: tx.tell("forgotten"))
    kept.purge()
    with kept.read_only() as tx:
        left = list(_records(tx, ledger.naming(tx, user, names)))
    remains = Remains(
        tuple(record.id for record in left if not is_unsettled(record)),
        tuple(record.id for record in left if is_unsettled(record)),
        planned,
    )
    return Removed(int(home), len(texts) + len(onces), overrides, len(entries), questions), remains


def _forget_texts(texts: Collection[str], onces: Collection[str], tx: Tx) -> None:
    memory.forget(tx, list(texts), list(onces))


def _forget_entries(entries: Collection[int], user: str, tx: Tx) -> None:
    incidents.forget_person(tx, list(entries), user)


def _forget_in_records(ids: Collection[str], user: str, names: Collection[str], now: datetime, tx: Tx) -> int:
    ledger.hold(tx, ids)
    return ledger.rewrite(tx, ids, lambda raw: without_person(raw, user, names), "", now)


def _records(tx: Tx, ids: list[str]) -> Iterator[Clarification]:
    for some in batches(ids, _ROWS):
        for row in tx.rows("select body from clarifications where id in :ids", ids=some):
            if (record := ledger.record_of(row["body"])) is not None:
                yield record
