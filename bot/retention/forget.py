"""Everything of a session, or of one clarification, is forgotten: in the ledgers, the archive, the storage, Slack.

Beside a running bot, through the same locks; killed anywhere, the same call does the rest. Nothing that somebody
still waits for is touched: that has to be abandoned first. Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bot import webhooks
from bot.delivery import erasing, memory, messages, replies
from bot.errors import StorageUnavailable
from bot.github import sync as github
from bot.oncall import incidents, pages
from bot.producers import inbox, push
from bot.storage import beside
from bot.storage.store import Tx
from core.clarification import DONE, ID, Clarification
from core.errors import BadInput, LedgerUnreadable, NotFound
from core.files import read_regular
from core.ledger import FileLedger
from core.records import (
    Raw,
    Stray,
    Subject,
    decode,
    forget_in,
    identity,
    is_of_session,
    is_unsettled,
    parse,
)

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """What is meant by a name. `session`: with its producer; None: one clarification alone.

    `unsettled`: those that somebody still waits for; `unknown`: files of the ledgers that cannot be read.
    """

    subject: Subject
    issues: frozenset[int]
    session: Pair | None = None
    unsettled: tuple[Clarification, ...] = ()
    unknown: tuple[Path, ...] = ()

    @property
    def ids(self) -> list[str]:
        return sorted(self.subject.clarifications)


@dataclass(frozen=True, slots=True)
class Traces:
    """What the storage cannot reach itself. `in_flight`: messages being posted just now: nothing was changed, try again.
    `waiting`: events that are not worked off yet. `pagers`: pages that went outside Slack. `untaken`: what somebody
    still has to take, now without its words. `comments`: on GitHub.
    """

    in_flight: int = 0
    waiting: int = 0
    pagers: int = 0
    untaken: int = 0
    comments: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gathered:
    ids: set[str] = field(default_factory=set)
    issues: set[int] = field(default_factory=set)
    events: set[Pair] = field(default_factory=set)
    tokens: set[Pair] = field(default_factory=set)
    producers: set[str] = field(default_factory=set)
    unsettled: dict[str, Clarification] = field(default_factory=dict)


def look(upkeep: FileLedger, database: Path, name: str, producer: str | None = None) -> Found:
    """What `name` means: the id of a clarification, else of a session.

    Raises:
        NotFound: nothing of that name is there. BadInput: sessions of several producers have it.
        LedgerUnreadable: the ledger of a clarification cannot be read; StorageUnavailable: nor the storage.
    """
    if match := ID.fullmatch(name):
        return _one(upkeep, name, int(match[1]))
    gathered, unknown = _Gathered(), []
    for issue, paths in upkeep.files().items():
        for path in paths:
            try:
                items = _items(path, issue)
            except ValueError:
                unknown.append(path)
                continue
            for item in items:
                if is_of_session(item, name, producer):
                    _gather(gathered, issue, item)
    known = gathered.producers | _known(database, name, producer)
    if not known:
        raise NotFound(f"or session {name}")
    if len(known) > 1:
        raise BadInput(
            f"Sessions of several producers are called so: say which, with --producer: {', '.join(sorted(known))}."
        )
    session = (known.pop(), name)
    return _found(gathered, frozenset({session}), session, tuple(unknown))


def forget(upkeep: FileLedger, database: Path, found: Found, *, abandoned: bool = False) -> Traces:
    """Forget it. Call it again where the traces tell of messages in flight, or of events that wait.

    Args:
        upkeep: of the ledgers.
        database: the storage; it need not be there.
        found: what `look` found, and is settled.
        abandoned: also what is on its way.

    Raises:
        LockTimeout, LedgerUnwritable, StorageUnavailable: as they say; the same call does the rest.
    """
    for issue in sorted(found.issues):
        upkeep.rewrite(issue, partial(_rewritten, found, abandoned))
    if not database.exists():
        return Traces()
    with beside.changing(database) as tx:
        traces = forget_rows(tx, found.subject, even_waiting=abandoned)
    emptied = beside.empty_log(database)
    erasing.ring(database)
    if not emptied and not traces.in_flight and (abandoned or not traces.waiting):
        raise StorageUnavailable(
            f"It is forgotten, but {database}-wal still holds it while somebody reads: give the same command again."
        )
    return traces


def forget_rows(tx: Tx, subject: Subject, *, even_waiting: bool = False) -> Traces:
    """Forget what the storage holds; nothing is changed where messages are in flight, or events wait (unless
    `even_waiting`).

    Names that keep things from being done twice (ids of events, keys of messages) stay; words and people go. What stands
    in Slack is to be erased. A page is erased where all that it is about goes; else it is drawn again.
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
    if traces.in_flight or (traces.waiting and not even_waiting):
        return traces
    erasing.want(tx, messages.forget(tx, about))
    messages.draw_again(tx, paged.shared)
    memory.forget(tx, subject, about)
    incidents.forget(tx, raised)
    inbox.forget(tx, subject)
    push.forget(tx, subject)
    replies.forget(tx, subject.clarifications)
    webhooks.forget(tx, subject.clarifications)
    return traces


def erasures(database: Path) -> Mapping[str, list[Pair]]:
    """What is to be erased from Slack, what was, and what could not be, by state."""
    if not database.exists():
        return {}
    with beside.looking(database, current=True) as tx:
        return erasing.by_state(tx)


def asides(upkeep: FileLedger, found: Found) -> list[Path]:
    """Files that were set aside since they could not be read, and may hold some of it."""
    return [
        path
        for issue in sorted(found.issues)
        for path in upkeep.directory.glob(f"issue-{issue}.json.unreadable-*")
    ]


def _one(upkeep: FileLedger, name: str, issue: int) -> Found:
    gathered = _Gathered()
    for path in upkeep.files().get(issue, []):
        try:
            items = _items(path, issue)
        except ValueError as error:
            raise LedgerUnreadable(issue, path, str(error), None) from None
        for item in items:
            if identity(item) == name:
                _gather(gathered, issue, item)
    if not gathered.ids:
        raise NotFound(name)
    return _found(gathered, frozenset(), None, ())


def _found(
    gathered: _Gathered,
    sessions: frozenset[Pair],
    session: Pair | None,
    unknown: tuple[Path, ...],
) -> Found:
    subject = Subject(
        frozenset(gathered.ids), sessions, frozenset(gathered.events), frozenset(gathered.tokens)
    )
    unsettled = tuple(gathered.unsettled.values())
    return Found(subject, frozenset(gathered.issues), session, unsettled, unknown)


def _gather(gathered: _Gathered, issue: int, item: Raw) -> None:
    gathered.issues.add(issue)
    if ID.fullmatch(identity(item)) and not isinstance(item, Stray):
        gathered.ids.add(identity(item))
    for asked in _rounds(item):
        producer = asked.get("producer")
        if isinstance(producer, str):
            gathered.producers.add(producer)
            gathered.events.update(_pair(producer, asked.get("eventId")))
            gathered.tokens.update(_pair(producer, asked.get("replyToken")))
    record = parse(item)
    if record is not None and is_unsettled(record):
        gathered.unsettled[record.id] = record


def _rounds(item: Raw) -> Iterator[Mapping[str, Any]]:
    asked = item.get("aaep")
    if isinstance(asked, dict):
        yield asked
        earlier = asked.get("earlier")
        yield from (past for past in earlier if isinstance(past, dict)) if isinstance(earlier, list) else ()


def _pair(producer: str, name: object) -> list[Pair]:
    return [(producer, name)] if isinstance(name, str) else []


def _rewritten(found: Found, abandoned: bool, raw: Raw) -> bool:  # noqa: FBT001 - bound by `partial`
    """Under the lock: what was asked since stays, as it is somebody's who waits."""
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


def _items(path: Path, issue: int) -> list[Any]:
    items: list[Any] = decode(read_regular(path), issue)["clarifications"]
    return items


def _known(database: Path, session: str, producer: str | None) -> set[str]:
    """The producers that the storage knows to have such a session: it may have asked nothing."""
    if not database.exists():
        return set()
    with beside.looking(database, current=True) as tx:
        return inbox.producers_of(tx, session, producer)
