"""Keeps summaries of the clarifications that still need something in memory, by session.

Memory grows neither with every question ever asked nor with the length of what is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from core.clarification import Clarification
from core.errors import ClarifyError
from core.ledger import Ledger
from core.summary import Seen, Summary, summary_of

OWN_THREAD = ""  # in place of a producer: a question between agents is a session of its own
Session = tuple[str, str]  # producer, session id


def session_of(record: Seen) -> Session:
    """Returns the session that asked, or, for a question between agents, a session of its own."""
    if record.producer is None or record.session_id is None:
        return OWN_THREAD, record.id
    return record.producer, record.session_id


class Index:
    """All clarifications that need something, kept up to date from ledger contents."""

    def __init__(self) -> None:
        self._by_id: dict[str, Summary] = {}
        # Most have one: a tuple takes a fifth of a dict.
        self._of_session: dict[Session, tuple[str, ...]] = {}
        self._waiting = Counter[str | None]()

    def put(self, seen: Seen) -> Summary:
        """Stores the current state of a clarification. Returns it as it is kept."""
        record = summary_of(seen)
        known = self._by_id.get(record.id)
        if known is not None:
            self._waiting[known.producer] -= _waits(known)
        self._waiting[record.producer] += _waits(record)
        if known is not None and not (record.needs_something and session_of(known) == session_of(record)):
            self._take_out(session_of(known), known.id)
            known = None
        if not record.needs_something:
            self._by_id.pop(record.id, None)
            return record
        if known is None:
            session = session_of(record)
            self._of_session[session] = (*self._of_session.get(session, ()), record.id)
        self._by_id[record.id] = record
        return record

    def _take_out(self, session: Session, clarification: str) -> None:
        if left := tuple(name for name in self._of_session.pop(session) if name != clarification):
            self._of_session[session] = left

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Summary]:
        return iter(list(self._by_id.values()))

    def get(self, clarification_id: str) -> Summary | None:
        """Returns what is known of a clarification that still needs something."""
        return self._by_id.get(clarification_id)

    async def find(self, clarification_id: str, ledger: Ledger) -> Clarification:
        """Returns a record: one that is known here as `Ledger.whole` does, any other as last written.

        Raises:
            NotFound, BadInput: there is no record with that id.
            LedgerUnreadable, LockTimeout: its ledger cannot be read now.
        """
        known = self._by_id.get(clarification_id)
        return await (ledger.find(clarification_id) if known is None else ledger.whole(known))

    async def readable(self, some: Iterable[Seen], ledger: Ledger) -> list[Clarification]:
        """Returns those of some records that can be read now, for a list.

        Raises:
            ClarifyError: none can; of the last one, as `find`.
        """
        found: list[Clarification] = []
        why: ClarifyError | None = None
        for each in some:
            try:
                found.append(await self.find(each.id, ledger))
            except ClarifyError as error:
                why = error
        if why is not None and not found:
            raise why
        return found

    def waiting_of(self, producer: str) -> int:
        """Returns how many questions that a caller asked directly are open."""
        return self._waiting[producer]

    def of_session(self, producer: str, session_id: str) -> list[Summary]:
        """Returns those of a session (see `session_of`) that still need something, oldest first."""
        found = [self._by_id[name] for name in self._of_session.get((producer, session_id), ())]
        return sorted(found, key=lambda record: (record.created, record.id))


def _waits(record: Summary) -> bool:
    return record.is_open and record.is_direct
