"""Takes in the ledger files that are older than a new, empty database, once, before producers connect.

An operator who lost a database begins with a new one beside the old files. Without their records, a producer that repeats
its events would have its questions shown and answered twice. So records keep their ids and tokens, and their numbers stay
used. But whoever can write the folder may have written them:

- A round that ended counts as a person's decision only with a valid receipt, and in the words of that alone. Otherwise its
  answer counts as that of `ledger:` and the name, and an approval as closed.
- An approval that was still to be sent is asked again, with a receipt or without: none says to which token it belongs.
- An open question says on its card that it comes from a ledger file. Who claimed it, accepted it first or changed its
  arguments has no receipt yet, and is asked again.

Only the lost database knew where messages are and which replies may have arrived. So each card counts as a post of unknown
outcome, which is looked up before it is posted again, and each unfinished reply as one that may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from bot.decisions import log
from bot.delivery.memory import mark
from bot.delivery.messages import TAKEN_UP, Fresh, card_of, doubt, put, put_cards
from bot.intake.notices import content
from bot.integrations.ledgerfiles.acts import Seen, is_too_long, name_of, named
from bot.integrations.ledgerfiles.bridge import FOLDER, REMEMBER, Bridge, remembered
from bot.integrations.ledgerfiles.owner import NOT_EMPTY, owner_of
from bot.producers.inbox import Session, know_sessions, reserve_above
from bot.routing import Audiences
from bot.signing import PublicKeys
from bot.storage.ledger import fill
from bot.storage.tx import Tx
from bot.views.notices import storage_began
from bot.views.render import Renderer
from core.answers import decision_in
from core.archive import FIRST_RESERVED, HIGHEST
from core.clarification import (
    DONE,
    ID,
    UNDELIVERED,
    AnsweredBy,
    Clarification,
    Consent,
    DeliveryState,
    Entry,
    Given,
    Round,
    Status,
    round_with,
)
from core.errors import ClarifyError, LedgersAway
from core.files import read_regular, reason
from core.ledgerfiles import LedgerFiles
from core.ledgerformat import Stray, decode, read_item
from core.matching import author_of, reopened
from core.records import Book, Raw, as_of, dump, forgotten, is_forgotten, parse
from core.transitions import amended

_log = structlog.get_logger("clarify.ledger")
_KEY = "notice:storage-began"
_LOCK = 2.0  # seconds
# What people did to an open question, and its answer: no receipt proves them.
_NOTHING: dict[str, Any] = {
    "given": Given(),
    "delivery": DeliveryState(),
    "consent": Consent(),
    "receipt": None,
}
_NOTHING |= dict.fromkeys(("taken_by", "taken_from", "handed_to"))


async def take_in(
    *,
    bridge: Bridge,
    keys: PublicKeys | None,
    audiences: Audiences,
    renderer: Renderer,
    storage: Path,
    sla: timedelta,
    channel: str,
) -> bool:
    """Fills a new, empty database from the ledger files, in one transaction; returns whether it did. Call it before the
    ledger is scanned. `keys`: those that receipts are checked with. `storage`, `channel`: the database's name, and where people
    are told of it. `sla`: how long until a question in the files is stale.

    Raises:
        StorageUnavailable: nothing was stored.
    """
    store = bridge.store
    if await store.read_one(NOT_EMPTY) is not None:
        return False
    taking = _Taking(bridge.files, keys or PublicKeys(), sla, bridge.clock.now())
    try:
        if (former := await asyncio.to_thread(taking.read)) is None:
            return False
    except (LedgersAway, OSError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        _log.warning("no earlier ledgers are taken in", reason=why)
        return False
    records = taking.records
    needed = [record for record in records if record.needs_something]
    cards = [record for record in needed if record.rounds and audiences.shows(record)]
    notices = []
    if records:
        count = sum(record.is_open for record in needed)
        _log.warning(
            "new storage beside existing ledgers; taking them in",
            storage=str(storage),
            records=len(records),
            open=count,
            installation=former,
        )
        body = content(renderer, storage_began(str(storage), count), needed=True)
        notices = [Fresh(key=_KEY, kind="notice", target=channel, body=body, wanted="notice")]

    def work(tx: Tx) -> None:
        fill(tx, taking.records, taking.highest)
        log.take_in(tx, taking.records, store.horizon, taking.now)
        # The folder is to be ours from now on; a kill before it is does not change that.
        tx.many(REMEMBER, [*taking.bases, remembered(FOLDER, [], None)])
        bridge.begin_anew(tx)
        reserved = [each for each in taking.highest if FIRST_RESERVED <= each <= HIGHEST]
        reserve_above(tx, max(reserved, default=FIRST_RESERVED - 1))
        know_sessions(tx, _sessions(records))
        _put(tx, audiences, cards, former)
        put(tx, notices)

    await store.write(work)
    return bool(records)


def _put(tx: Tx, audiences: Audiences, records: Sequence[Clarification], former: str) -> None:
    """Stores cards that may be in Slack. In each channel, thread replies are read again from its oldest question on.
    `former`: the installation that posted them, empty if unknown.
    """
    marks: dict[str, float] = {}
    for record in records:
        card, asked_at = card_of(audiences, record), record.asked_last.timestamp()
        put_cards(tx, [card])
        doubt(tx, card.key, card.target, asked_at, f"{TAKEN_UP}{former}")
        marks[card.target] = min(asked_at, marks.get(card.target, asked_at))
    for channel, at in marks.items():
        mark(tx, channel, f"{at:.6f}")


def _sessions(records: Sequence[Clarification]) -> list[Session]:
    """Returns every session that asked something. The highest issue counts: one of the reserved range is found only by its
    session.
    """
    found = dict[tuple[str, str], Session]()
    for record in sorted(records, key=lambda each: each.issue_number):
        asked = record.asked
        if asked.producer is not None and asked.session_id is not None:
            agent = asked.agent_id or record.from_
            found[asked.producer, asked.session_id] = Session(
                asked.producer, asked.session_id, agent, asked.agent_name, record.issue_number
            )
    return list(found.values())


@dataclass(eq=False, repr=False)  # holds what was asked
class _Taking:
    """Reads the files, live and archived, and says of each record what counts. Blocking."""

    files: LedgerFiles
    keys: PublicKeys
    sla: timedelta
    now: datetime
    records: list[Clarification] = field(default_factory=list)
    highest: dict[int, int] = field(default_factory=dict)  # number that was given out, by issue
    bases: list[Mapping[str, object]] = field(default_factory=list)

    def read(self) -> str | None:
        """Reads all of it. Returns the installation that wrote them, empty if unknown; None: there is no folder. If its disk is
        only mounted later, it is another installation's.

        Raises:
            LedgersAway, OSError: the folder cannot be read.
        """
        if not self.files.is_there():
            return None
        for issue, paths in self.files.by_issue().items():
            self._take(issue, paths)
        return owner_of(self.files)

    def _take(self, issue: int, paths: Sequence[Path]) -> None:
        state, numbers = self.files.state(issue), {0}
        book = Book(issue=issue)
        usual = self.files.archive.path(issue) if state is None else self.files.path(issue)
        base: dict[str, Seen] = {}
        known = set[str]()
        for path in sorted(paths, key=lambda each: each != usual):
            for name, item in named(self._items(issue, path)):
                if (match := ID.fullmatch(name)) and int(match[2]) <= HIGHEST:  # others leave no room
                    numbers.add(int(match[2]))
                try:
                    found = None if isinstance(item, Stray) else read_item(item)
                    if found is None or name in known or name != name_of(item):
                        continue
                    if not found.rounds and is_too_long(item):
                        continue  # the bridge tells of it when it comes to it
                    taken = self._taken(found.model_copy(update={"id": name}))
                    seen = _as_read(item, taken)
                except Exception:  # noqa: BLE001 - one odd record must not stop the start
                    _log.exception("a ledger has a record that cannot be taken in", file=path.name)
                    continue
                record = book.put(taken)
                known.add(record.id)
                if path == usual:
                    base[record.id] = seen
        if not book.changed:
            return
        self.highest[issue] = max(numbers)
        self.records += book.changed
        # Without the file's state: it is written once more, with what became of its records.
        self.bases.append(remembered(issue, [base], None))

    def _items(self, issue: int, path: Path) -> list[Any]:
        """Returns what a file holds; nothing if it cannot be read: the bridge tells of it when it comes to it."""
        try:
            items: list[Any] = self._decoded(issue, path)["clarifications"]
        except (ClarifyError, OSError, ValueError) as error:
            _log.warning("ledger skipped", file=path.name, reason=str(error))
            return []
        return items

    def _decoded(self, issue: int, path: Path) -> Raw:
        try:
            return decode(read_regular(path), issue)
        except ValueError:
            if path != self.files.path(issue):
                raise
            with self.files.hold(issue, _LOCK) as check:  # another program may be half way through writing it
                return self.files.open(issue, check)

    def _taken(self, record: Clarification) -> Clarification:
        """Returns a record as it counts."""
        if not record.rounds:
            asker = author_of(record.from_).removeprefix("agent:")
            thread = tuple(
                _entry(each, asker if each.type == "question" else _writer(each.from_))
                for each in record.thread
            )
            return record.model_copy(update={"from_": asker, "thread": thread})
        if is_forgotten(record):
            return _blank(record)
        record, proven = self._rounds_checked(record)
        is_proven = not record.is_open and self.keys.proves(record)
        if is_proven:
            proven.add(record.round)
        ended = {each.round: each for each in self._proven(record, proven)}
        thread = tuple(
            each.model_copy(update={"body": _proven_words(ended[each.round], each.body)})
            if each.round in ended and each.type == "answer"
            else _entry(each, _writer(each.from_))
            for each in record.thread
        )
        record = record.model_copy(update={"thread": thread})
        if is_proven and record.asked.is_confirmation and record.delivery.reply in UNDELIVERED:
            # Its receipt does not say to which token it goes.
            return reopened(amended(record, **_NOTHING, from_file=True), self.now, self.sla)
        if is_proven:
            return amended(record, label=_proven_words(record, record.given.label or ""))
        return _begun(record) if record.is_open or _is_undecided(record) else self._unproven(record)

    def _proven(self, record: Clarification, rounds: Collection[int]) -> Iterator[Clarification]:
        """Yields the record as of the end of each proven round."""
        for place in range(len(record.earlier)):
            if (then := as_of(record, place)).round in rounds:
                yield then
        if record.round in rounds:
            yield record

    def _rounds_checked(self, record: Clarification) -> tuple[Clarification, set[int]]:
        """Returns a record with its earlier rounds as they count, and the numbers of those that have a valid receipt."""
        proven = set[int]()
        rounds = list(record.rounds)
        for place, past in enumerate(record.earlier):
            then = as_of(record, place)
            if self.keys.proves(then):
                proven.add(then.round)
            else:
                rounds[place] = _past(past)
        return record.model_copy(update={"rounds": tuple(rounds)}), proven

    def _unproven(self, record: Clarification) -> Clarification:
        """Returns a record whose round ended without a valid receipt."""
        if record.given.response is None or not _decides(record.current):
            by = None if record.given.response is None else author_of(record.given.decided_by or "")
            surface = None if by is None else AnsweredBy(surface="ledger")
            return amended(record, receipt=None, decided_by=by, answered_by=surface)
        waits = record.delivery.reply in UNDELIVERED
        _log.warning("an approval has no valid receipt", id=record.id, asked_again=waits)
        if waits:
            return reopened(amended(record, **_NOTHING, from_file=True), self.now, self.sla)
        return amended(record, **_NOTHING, closed="resolved elsewhere")


def _begun(record: Clarification) -> Clarification:
    """Returns an open question. An answer that stands after it in the file alone is left to the bridge: it competes like any
    other.
    """
    status: Status = record.status
    thread = record.thread
    if not record.is_open:
        status = "pending"
        last = max(at for at, each in enumerate(thread) if each.type == "question")
        thread = thread[: last + 1]
    update = {"status": status, "resolved_at": None, "thread": thread}
    return amended(record.model_copy(update=update), **_NOTHING, closed=None, from_file=True)


def _decides(current: Round) -> bool:
    """Whether an answer may be a decision about an action; what kind of question it was, the file alone says."""
    return current.question.is_confirmation or (
        isinstance(current.given.response, str) and decision_in(current.given.response) is not None
    )


def _proven_words(then: Clarification, text: str) -> str:
    """Returns the words of an answer, or, if they are not those of the response that the receipt proves, that."""
    asked, response = then.asked, then.given.response
    if asked.is_confirmation:
        fits = decision_in(text) == response
    elif isinstance(response, bool):
        fits = text.strip().casefold() == ("yes" if response else "no")
    elif isinstance(response, str) and "multiple_choice" not in asked.kinds:
        fits = text.strip() == response.strip()
    else:
        fits = True
    return text if fits else str(response)


def _blank(record: Clarification) -> Clarification:
    """Returns a record that says that it was forgotten, without what it may say beside."""
    bare = parse(forgotten(dump(record))) or record
    bare = amended(bare, **_NOTHING)
    bare = bare.model_copy(update={"rounds": bare.rounds[-1:]})
    return bare if bare.status in DONE else bare.model_copy(update={"status": "abandoned"})


def _is_undecided(record: Clarification) -> bool:
    """Whether another program ended a question of ours, which our own fields do not know of."""
    has_question = any(each.type == "question" for each in record.thread)
    return record.given.response is None and record.current.closed is None and has_question


def _past(current: Round) -> Round:
    """Returns an earlier round that has no valid receipt."""
    if current.given.response is None:
        return round_with(current, receipt=None)
    if current.question.is_confirmation:
        return round_with(current, receipt=None, response=None, label=None)
    by, surface = author_of(str(current.given.decided_by)), AnsweredBy(surface="ledger")
    return round_with(current, receipt=None, decided_by=by, answered_by=surface)


def _as_read(item: Raw, record: Clarification) -> Seen:
    """Returns what the bridge knows of a record's place in the file: what of it was taken."""
    if len(record.thread) < len(item["thread"]):
        item = {**item, "status": record.status, "thread": item["thread"][: len(record.thread)]}
    return Seen.of(item)


def _writer(name: str) -> str:
    """Returns the author of an entry: `ledger:` and the name if it is not an agent's."""
    by = author_of(name)
    return by if by.startswith("ledger:") else name


def _entry(entry: Entry, by: str) -> Entry:
    return entry if entry.from_ == by else entry.model_copy(update={"from_": by})
