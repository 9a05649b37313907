"""Forgets a session or a clarification: in the records, the rest of the storage, and Slack.

Works beside a running bot, in one transaction. If it is killed, the same call does the rest. Open questions are
skipped: close them first. Blocking.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bot import github, outbox
from bot.decisions import log
from bot.delivery import erasing, memory, messages, replies
from bot.oncall import incidents, pages
from bot.producers import inbox, push, questions
from bot.retention.backup import Kept
from bot.storage import ledger
from bot.storage.tx import Tx
from core.clarification import DONE, ID, Clarification
from core.errors import BadInput, LedgerUnreadable, NotFound
from core.records import (
    Raw,
    Stray,
    Subject,
    decode,
    forget_in,
    forgotten,
    identity,
    is_of_session,
    is_unsettled,
    parse,
)

Pair = tuple[str, str]
_PAGE = 500  # ledgers read at once
_Items = Sequence[tuple[int, Raw]]  # of ledgers, with their issues


@dataclass(frozen=True, slots=True)
class Found:
    """The clarifications and sessions with a name, and the issues whose ledgers contain them.

    `unsettled`: those still waiting for something; `unknown`: the names of unreadable ledgers.
    """

    subject: Subject
    issues: frozenset[int]
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
        LedgerUnreadable: the clarification's ledger cannot be read.
        StorageUnavailable: the storage cannot be read.
    """
    with kept.read_only() as tx:
        if match := ID.fullmatch(name):
            return _one(tx, name, int(match[1]))
        items, unknown = list[tuple[int, Raw]](), list[str]()
        for issue, listed in _ledgers(tx):
            if listed is None:
                unknown.append(f"issue-{issue}")
            else:
                items += [(issue, item) for item in listed if is_of_session(item, name, producer)]
        known = {whose for whose, _ in _asked(items)} | inbox.producers_of(tx, name, producer)
    if not known:
        raise NotFound(f"or session {name}")
    if len(known) > 1:
        raise BadInput(
            f"Several producers have a session of that name. Pick one with --producer: {', '.join(sorted(known))}."
        )
    return _found(items, {(known.pop(), name)}, unknown)


def forget(kept: Kept, found: Found, *, abandoned: bool = False) -> Traces:
    """Forgets `found`. Call it again unless `Traces.is_all`.

    Args:
        kept: where the records are.
        found: what `find` found; it must be settled.
        abandoned: forget unsettled ones too.

    Raises:
        StorageUnavailable: repeating the call does the rest.
    """

    def work(tx: Tx) -> Traces:
        ledger.hold(tx, sorted(found.issues))
        traces = forget_rows(tx, found.subject, even_waiting=abandoned)
        if traces.is_all(abandoned=abandoned):  # otherwise nothing was changed
            for issue in sorted(found.issues):
                ledger.rewrite(tx, issue, partial(_rewritten, found, abandoned))
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
        rows = tx.rows(
            "select ledgers.issue as issue, body, base from ledgers left join bridge on bridge.issue = ledgers.issue"
            " where ledgers.issue in :issues order by ledgers.issue",
            issues=sorted(found.issues),
        )
    return {
        row["issue"]: {
            name
            for item in _records(row["issue"], row["body"]) or ()
            if (name := identity(item)) in found.subject.clarifications
            and forgotten(item) == item
            and (not known or name in json.loads(row["base"] or "{}"))
        }
        for row in rows
    }


def has_files(kept: Kept, found: Found) -> bool:
    """Returns whether ledger files contain it, or did."""
    with kept.read_only() as tx:
        issues = sorted(found.issues)
        return tx.one("select 1 from bridge where issue in :issues limit 1", issues=issues) is not None


def _ledgers(tx: Tx) -> Iterator[tuple[int, list[Raw] | None]]:
    """Yields each issue with its records, or None if they cannot be read."""
    last = 0
    page = "select issue, body from ledgers where issue > :last order by issue limit :most"
    while rows := tx.rows(page, last=last, most=_PAGE):
        for row in rows:
            last = row["issue"]
            yield last, _records(last, row["body"])


def _records(issue: int, body: str) -> list[Raw] | None:
    try:
        items: list[Raw] = decode(body.encode(), issue)["clarifications"]
    except ValueError:
        return None
    return items


def _one(tx: Tx, name: str, issue: int) -> Found:
    row = tx.one("select body from ledgers where issue = :issue", issue=issue)
    items = [] if row is None else _records(issue, row["body"])
    if items is None:
        raise LedgerUnreadable(issue, Path(f"issue-{issue}"), "it is not a ledger", None)
    found = _found([(issue, item) for item in items if identity(item) == name])
    if not found.ids:
        raise NotFound(name)
    return found


def _found(items: _Items, sessions: Iterable[Pair] = (), unknown: Iterable[str] = ()) -> Found:
    asked = list(_asked(items))
    ids = [identity(item) for _, item in items if not isinstance(item, Stray)]
    records = (parse(item) for _, item in items)
    subject = Subject(
        clarifications=frozenset(each for each in ids if ID.fullmatch(each)),
        sessions=frozenset(sessions),
        events=frozenset(_named(asked, "eventId")),
        tokens=frozenset(_named(asked, "replyToken")),
    )
    unsettled = {record.id: record for record in records if record is not None and is_unsettled(record)}
    issues = frozenset(issue for issue, _ in items)
    return Found(subject, issues, tuple(unsettled.values()), tuple(unknown))


def _asked(items: _Items) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields what asked each of their rounds, with its producer."""
    for _, item in items:
        asked = item.get("aaep")
        rounds = [asked, *_earlier(asked)] if isinstance(asked, dict) else []
        yield from ((each["producer"], each) for each in rounds if isinstance(each.get("producer"), str))


def _earlier(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    earlier = asked.get("earlier")
    return [past for past in earlier if isinstance(past, dict)] if isinstance(earlier, list) else []


def _named(asked: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> Iterator[Pair]:
    return ((producer, each[name]) for producer, each in asked if isinstance(each.get(name), str))


def _rewritten(found: Found, abandoned: bool, raw: Raw) -> bool:  # noqa: FBT001 - bound by `partial`
    """Rewrites the records under the lock. Keeps what was asked in the meantime: its agent is waiting."""
    is_meant: Callable[[object], bool]
    if found.session is None:
        is_meant = lambda item: identity(item) in found.subject.clarifications  # noqa: E731
    else:
        producer, session = found.session
        is_meant = partial(is_of_session, session=session, producer=producer)
    items = raw["clarifications"]
    places = [
        place for place, item in enumerate(items) if is_meant(item) and _may_go(item, abandoned=abandoned)
    ]
    return forget_in(raw, places)


def _may_go(item: Raw, *, abandoned: bool) -> bool:
    record = parse(item)
    if record is None:
        return abandoned or item.get("status") in list(DONE)
    return not record.is_open and (abandoned or not is_unsettled(record))
