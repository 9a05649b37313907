"""Keeps the clarifications that still need something in memory, by session.

The others stay in their ledgers, and so do long texts, so that memory does not grow with every question ever asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from core.clarification import Clarification
from core.errors import ClarifyError
from core.ledger import Ledger
from core.records import Outline, outline

_LONGEST_TEXTS = 4096  # characters of a record that is kept whole
OWN_THREAD = ""  # in place of a producer: a question between agents is a session of its own
Session = tuple[str, str]  # producer, session id
_Key = TypeVar("_Key")
_NO_FIELDS_GIVEN: set[str] = set()
_NO_UNKNOWN_FIELDS: dict[str, object] = {}


def session_of(record: Clarification) -> Session:
    """Returns the session that asked, or, for a question between agents, a session of its own."""
    if record.producer is None or record.session_id is None:
        return OWN_THREAD, record.id
    return record.producer, record.session_id


def _is_long(record: Clarification) -> bool:
    """Returns whether a record is too large to keep whole: arguments and forms can have any size."""
    asked = record.asked
    if asked.arguments or asked.extra_context or (asked.direct is not None and asked.direct.form is not None):
        return True
    said = len(record.topic) + len(asked.context or "") + len(asked.summary_detailed or "")
    return said + sum(len(entry.body) for entry in record.thread) > _LONGEST_TEXTS


def kept(record: Clarification) -> Clarification:
    """Returns the record as it is kept in memory: an `Outline` where its texts are long."""
    record = outline(record) if not isinstance(record, Outline) and _is_long(record) else record
    # In each model pydantic keeps a set of the fields that were given, a third of its memory, and a dict of unknown ones.
    # Nothing here asks for the first, and most have none of the second. A copy gets its own.
    for model in (record, record.aaep, *record.thread, *record.asked.choices, record.asked.direct):
        if model is not None:
            object.__setattr__(model, "__pydantic_fields_set__", _NO_FIELDS_GIVEN)
            if not model.__pydantic_extra__:
                object.__setattr__(model, "__pydantic_extra__", _NO_UNKNOWN_FIELDS)
    return record


async def whole(record: Clarification, ledger: Ledger) -> Clarification:
    """Returns the record with its long texts, reading its ledger if they were left out.

    Raises:
        NotFound, LedgerUnreadable, LockTimeout: it cannot be read.
    """
    return await ledger.find(record.id) if isinstance(record, Outline) else record


async def as_read(record: Clarification, ledger: Ledger) -> Clarification:
    """Returns the record with its long texts, or without them if its ledger cannot be read now."""
    try:
        return await whole(record, ledger)
    except ClarifyError:
        return record


class Index:
    """All clarifications that need something, kept up to date from ledger contents."""

    def __init__(self) -> None:
        self._by_id: dict[str, Clarification] = {}
        # Most have one: a tuple takes a fifth of a dict.
        self._of_session: dict[Session, tuple[str, ...]] = {}
        self._waiting = Counter[str | None]()

    def put(self, record: Clarification) -> Clarification:
        """Stores the current state of a record. Returns it as it is kept."""
        known = self._by_id.get(record.id)
        if known is not None:
            self._waiting[known.producer] -= _waits(known)
        self._waiting[record.producer] += _waits(record)
        if known is not None and not (record.needs_something and session_of(known) == session_of(record)):
            _take_out(self._of_session, session_of(known), known.id)
            known = None
        if not record.needs_something:
            self._by_id.pop(record.id, None)
            return record
        if known is None:
            _add(self._of_session, session_of(record), record.id)
        record = self._by_id[record.id] = kept(record)
        return record

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Clarification]:
        return iter(list(self._by_id.values()))

    def get(self, clarification_id: str) -> Clarification | None:
        """Returns a record that still needs something; its long texts may be missing."""
        return self._by_id.get(clarification_id)

    async def find(self, clarification_id: str, ledger: Ledger) -> Clarification:
        """Returns a whole record, from memory or from the ledger.

        Raises:
            NotFound, BadInput: there is no record with that id.
            LedgerUnreadable, LockTimeout: its ledger cannot be read now.
        """
        known = self._by_id.get(clarification_id)
        if known is None:
            return await ledger.find(clarification_id)
        return await whole(known, ledger)

    def waiting_of(self, producer: str) -> int:
        """Returns how many questions that a caller asked directly are open."""
        return self._waiting[producer]

    def of_session(self, producer: str, session_id: str) -> list[Clarification]:
        """Returns the records of a session (see `session_of`) that still need something, oldest first."""
        found = [self._by_id[name] for name in self._of_session.get((producer, session_id), ())]
        return sorted(found, key=lambda record: (record.created, record.id))


def _waits(record: Clarification) -> bool:
    return record.is_open and record.is_direct


def _add(groups: dict[_Key, tuple[str, ...]], key: _Key, clarification: str) -> None:
    groups[key] = (*groups.get(key, ()), clarification)


def _take_out(groups: dict[_Key, tuple[str, ...]], key: _Key, clarification: str) -> None:
    if left := tuple(name for name in groups.pop(key) if name != clarification):
        groups[key] = left
