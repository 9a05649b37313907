"""Forgets a session or a clarification: in the records, the rest of the storage, and Slack.

Works beside a running bot, in one transaction. If it is killed, the same call does the rest. Open questions are
skipped: close them first. Blocking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from bot import github, outbox
from bot.decisions import log
from bot.delivery import erasing, memory, messages, replies
from bot.oncall import incidents, pages
from bot.producers import inbox, push, questions
from bot.retention.backup import Kept
from bot.storage import ledger
from bot.storage.tx import Row, Tx, batches
from core.bus import FORGOTTEN
from core.clarification import DONE, ID, Clarification, parse_id
from core.errors import BadInput, NotFound
from core.records import Raw, Subject, forgotten, is_forgotten, is_unsettled, parse

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """The clarifications and sessions with a name. `unsettled`: those still waiting for something; `unknown`: the ids of
    unreadable ones.
    """

    subject: Subject
    unsettled: tuple[Clarification, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def issues(self) -> list[int]:
        return sorted({parse_id(each)[0] for each in self.subject.clarifications})

    @property
    def ids(self) -> list[str]:
        return sorted(self.subject.clarifications)

    @property
    def session(self) -> Pair | None:
        """The session with its producer, or None if the name is a clarification's."""
        return next(iter(self.subject.sessions), None)


@dataclass(frozen=True, slots=True)
class Traces:
    """What could not be removed. `in_flight`: messages being posted right now; nothing was changed, so try again.
    `waiting`: events not processed yet. `pagers`: pages sent outside Slack. `untaken`: incidents that are still
    unclaimed, now without their text. `comments`: on GitHub. `receipts`: deleted here, but agents and webhooks may have copies.
    """

    in_flight: int = 0
    waiting: int = 0
    pagers: int = 0
    untaken: int = 0
    comments: tuple[str, ...] = ()
    receipts: int = 0

    def is_all(self, *, abandoned: bool) -> bool:
        """Returns whether everything possible was done."""
        return not self.in_flight and (abandoned or not self.waiting)


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


def forget(kept: Kept, found: Found, *, now: datetime, abandoned: bool = False) -> Traces:
    """Forgets `found`. Call it again unless `Traces.is_all`.

    Args:
        kept: where the records are.
        found: what `find` found; it must be settled.
        now: the time that others are told.
        abandoned: forget unsettled ones too.

    Raises:
        StorageUnavailable: repeating the call does the rest.
    """

    def work(tx: Tx) -> Traces:
        ledger.hold(tx, found.ids)
        traces = forget_rows(tx, found.subject, even_waiting=abandoned)
        if traces.is_all(abandoned=abandoned):  # otherwise nothing was changed
            may_go = partial(_may_go, abandoned=abandoned)
            ledger.rewrite(tx, found.ids, lambda raw: forgotten(raw) if may_go(raw) else raw, FORGOTTEN, now)
            tx.tell("forgotten")
        return traces

    traces = kept.change(work)
    if traces.is_all(abandoned=abandoned):
        kept.purge()
    return traces


def forget_rows(tx: Tx, subject: Subject, *, even_waiting: bool = False) -> Traces:
    """Forgets what the storage holds. Changes nothing if messages are in flight, or events wait (unless
    `even_waiting`).

    Keeps names that prevent repetition (ids of events, keys of messages); removes texts and people. Messages in Slack
    are queued for erasing. A page is erased if all its subjects are forgotten, otherwise redrawn.
    """
    about = messages.find_about(tx, subject)
    raised = incidents.find_about(tx, subject, about)
    paged = pages.find_about(tx, raised)
    about |= paged.alone
    traces = Traces(
        in_flight=messages.in_flight_of(tx, about),
        waiting=inbox.waiting_of(tx, subject),
        pagers=paged.outside,
        untaken=incidents.open_among(tx, raised),
        comments=github.comments_about(tx, subject),
    )
    if not traces.is_all(abandoned=even_waiting):
        return traces
    erasing.queue(tx, messages.forget(tx, about))
    messages.draw_again(tx, paged.shared)
    memory.forget(tx, subject, about)
    incidents.forget(tx, raised)
    inbox.forget(tx, subject)
    push.forget(tx, subject)
    questions.forget(tx, subject)
    replies.forget(tx, subject.clarifications)
    outbox.forget(tx, subject.clarifications)
    return replace(traces, receipts=log.forget(tx, subject))


def erasures(kept: Kept) -> Mapping[str, list[Pair]]:
    """Returns what is to be erased from Slack, what was, and what could not be, by state."""
    with kept.read_only() as tx:
        return erasing.by_state(tx)


def is_logged(kept: Kept) -> bool:
    """Returns whether the log of decisions says which receipts were forgotten: a running bot appends that."""
    with kept.read_only() as tx:
        return log.is_told(tx)


def forgotten_in(kept: Kept, found: Found, *, known: bool) -> dict[int, set[str]]:
    """Returns the records of `found` that are forgotten by now, by issue: ledger files may still contain them. `known`: only
    those that the bridge knows from the files.
    """
    with kept.read_only() as tx:
        sql = (
            "select id, clarifications.issue as issue, body, base from clarifications"
            " left join bridge on bridge.issue = clarifications.issue where id in :ids order by clarifications.issue"
        )
        rows = [row for ids in batches(found.ids) for row in tx.rows(sql, ids=ids)]
    names: dict[int, set[str]] = {row["issue"]: set() for row in rows}
    for row in rows:
        record = ledger.record_of(row["body"])
        is_gone = record is not None and is_forgotten(record)
        if is_gone and (not known or row["id"] in json.loads(row["base"] or "{}")):
            names[row["issue"]].add(row["id"])
    return names


def has_files(kept: Kept, found: Found) -> bool:
    """Returns whether ledger files contain it, or did."""
    with kept.read_only() as tx:
        return tx.one("select 1 from bridge where issue in :issues limit 1", issues=found.issues) is not None


def _found(rows: Sequence[Row], sessions: Iterable[Pair] = ()) -> Found:
    records = {row["id"]: ledger.record_of(row["body"]) for row in rows}
    known = [record for record in records.values() if record is not None]
    asked = list(_asked(known))
    subject = Subject(
        clarifications=frozenset(records),
        sessions=frozenset(sessions),
        events=frozenset(_named(asked, "eventId")),
        tokens=frozenset(_named(asked, "replyToken")),
    )
    unsettled = tuple(record for record in known if is_unsettled(record))
    return Found(subject, unsettled, tuple(name for name, record in records.items() if record is None))


def _asked(records: Iterable[Clarification]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields what asked each of their rounds, with its producer."""
    for record in records:
        now = {"eventId": record.asked.event_id, "replyToken": record.asked.reply_token}
        for each in (*record.asked.earlier, now):
            if (producer := each.get("producer", record.producer)) is not None:
                yield producer, each


def _named(asked: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> Iterator[Pair]:
    return ((producer, each[name]) for producer, each in asked if isinstance(each.get(name), str))


def _may_go(item: Raw, *, abandoned: bool) -> bool:
    record = parse(item)
    if record is None:
        return abandoned or item.get("status") in list(DONE)
    return not record.is_open and (abandoned or not is_unsettled(record))
