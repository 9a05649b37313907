"""Keeps in memory a summary of each clarification that still needs something, by issue, and the records of the latest.

All others stay in their ledgers, so that memory does not grow with the number of questions ever asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import inf

from core.aaep import Kind, whole_characters
from core.clarification import DONE, Clarification, ReplyState, Status, Why, parse_id
from core.errors import ClarifyError
from core.ledger import FileLedger, Ledger
from core.records import Raw, digest_of, identity, is_unsettled, parse

TOPIC_LIMIT = 200
_MOST_RECORDS = 1000
_LARGEST_RECORD = 4096  # characters that were said in it
OWN_THREAD = ""  # in place of a producer: a question between agents is a session of its own
Session = tuple[str, str]  # producer, session id


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a clarification without reading its ledger. Times are on our clock.

    `topic` has at most 200 characters. `nudges` are those about the latest question, which was asked at `asked_last`.
    `taken_by`, `handed_to`, and `taken_from`, who had it before, are Slack user ids. `via`, `held_back`: see `Aaep`. `kind`:
    the first kind of answer that it takes.
    """

    id: str
    issue: int
    status: Status
    round: int
    digest: str
    created: datetime
    asked_last: datetime
    expires_at: datetime | None
    producer: str | None
    agent_id: str | None
    session_id: str | None
    reply: ReplyState | None
    adoptable: bool
    from_: str = ""
    to: str = ""
    topic: str = ""
    blocking: bool = True
    stale_after: datetime | None = None
    nudges: int = 0
    escalated_at: datetime | None = None
    escalated_for: Why | None = None
    taken_by: str | None = None
    taken_from: str | None = None
    taken_at: datetime | None = None
    handed_to: str | None = None
    max_rounds: int = 5
    via: str | None = None
    held_back: bool = False
    is_direct: bool = False
    person: str | None = None
    unclaimed_at: datetime | None = None
    escalates: bool = True
    needed: int = 1  # how many different people have to accept, and how many did
    accepted: int = 0
    kind: Kind = "freetext"

    @property
    def is_open(self) -> bool:
        return self.status in {"pending", "stale", "escalated"}

    @property
    def needs_something(self) -> bool:
        """Open, or its reply is on its way or not confirmed."""
        if self.reply == "unclaimed":
            return self.is_open
        return (
            self.status not in DONE
            or self.adoptable
            or self.reply in {"sending", "waiting", "delivered", "unconfirmed"}
        )


def session_of(seen: Summary | Clarification) -> Session:
    """The producer's session that asked; without one the question is its own session, under its own id."""
    asked = seen if isinstance(seen, Summary) else seen.asked
    if asked.producer is None or asked.session_id is None:
        return OWN_THREAD, seen.id
    return asked.producer, asked.session_id


def summarize(record: Clarification) -> Summary:
    asked = record.asked
    return Summary(
        id=record.id,
        issue=record.issue_number,
        status=record.status,
        round=record.round,
        digest=digest_of(record),
        created=record.created,
        expires_at=asked.expires_at,
        producer=_whole(asked.producer),
        agent_id=whole_characters(asked.agent_id or record.from_),
        session_id=_whole(asked.session_id),
        reply=asked.reply,
        adoptable=record.is_adoptable,
        from_=whole_characters(record.from_),
        to=whole_characters(record.to),
        topic=whole_characters(record.topic[:TOPIC_LIMIT]),
        blocking=record.blocking,
        asked_last=record.asked_last,
        stale_after=record.stale_after,
        nudges=record.nudges,
        escalated_at=asked.escalated_at,
        escalated_for=asked.escalated_for,
        taken_by=asked.taken_by.user if asked.taken_by else None,
        taken_from=asked.taken_from,
        taken_at=asked.taken_by.at if asked.taken_by else None,
        handed_to=asked.handed_to.user if asked.handed_to else None,
        max_rounds=record.max_rounds,
        via=asked.via,
        held_back=asked.held_back is not None,
        is_direct=asked.direct is not None,
        person=asked.direct.person if asked.direct else None,
        unclaimed_at=record.unclaimed_at,
        escalates=asked.escalates,
        needed=asked.needed,
        accepted=len(asked.approvals or ()),
        kind=asked.kinds[0] if asked.kinds else "freetext",
    )


def is_late(seen: Summary | Clarification, now: datetime) -> bool:
    """Whether an open one waits for too long: it is overdue, was reminded of, or is escalated."""
    overdue = seen.stale_after is not None and seen.stale_after <= now
    return overdue or seen.nudges > 0 or seen.status in {"stale", "escalated"}


def urgency(seen: Summary | Clarification) -> tuple[float, float]:
    """The sort key of open clarifications: least time left first, those that never expire last; older ones first.

    Numbers, since thousands of them sort many times faster than moments.
    """
    ends = (seen if isinstance(seen, Summary) else seen.asked).expires_at
    return inf if ends is None else ends.timestamp(), seen.created.timestamp()


def _whole(text: str | None) -> str | None:
    return None if text is None else whole_characters(text)


def _size(record: Clarification) -> int:
    """About how many characters a record holds; what an action is done with can be any number."""
    asked = record.asked
    said = sum(len(entry.body) for entry in record.thread) + len(asked.context or "")
    return said if not (asked.arguments or asked.extra_context) else _LARGEST_RECORD + 1


class Index:
    """The summaries of all clarifications that need something, kept up to date from ledger contents."""

    def __init__(self) -> None:
        self._by_issue: dict[int, dict[str, Summary]] = {}
        self._by_session: dict[Session, dict[str, Summary]] = {}
        self._records: OrderedDict[str, Clarification] = OrderedDict()

    def keep(self, record: Clarification) -> None:
        """Keep the record itself, if it needs something and is not large; `put` its summary first."""
        self._records.pop(record.id, None)
        if self.get(record.id, record.issue_number) is None or _size(record) > _LARGEST_RECORD:
            return
        self._records[record.id] = record
        if len(self._records) > _MOST_RECORDS:
            self._records.popitem(last=False)

    def record(self, clarification_id: str) -> Clarification | None:
        """The record, if it is kept and as its summary says; else it is in its ledger."""
        record = self._records.get(clarification_id)
        if record is None or (known := self.get(clarification_id, record.issue_number)) is None:
            return None
        return record if known.digest == digest_of(record) else None

    def put(self, summary: Summary) -> None:
        """Take in one record as it is now."""
        if not summary.needs_something:
            self._forget(summary)
            return
        self._by_issue.setdefault(summary.issue, {})[summary.id] = summary
        self._by_session.setdefault(session_of(summary), {})[summary.id] = summary

    def _forget(self, summary: Summary) -> None:
        kept = self._by_issue.get(summary.issue, {})
        kept.pop(summary.id, None)
        if not kept:
            self._by_issue.pop(summary.issue, None)
        self._records.pop(summary.id, None)
        session = session_of(summary)
        of_session = self._by_session.get(session, {})
        of_session.pop(summary.id, None)
        if not of_session:
            self._by_session.pop(session, None)

    def __iter__(self) -> Iterator[Summary]:
        for kept in list(self._by_issue.values()):
            yield from list(kept.values())

    def get(self, clarification_id: str, issue: int | None = None) -> Summary | None:
        """`issue`: the issue whose ledger has it, if it differs from the one in the id."""
        issue = parse_id(clarification_id)[0] if issue is None else issue
        return self._by_issue.get(issue, {}).get(clarification_id)

    def of_issue(self, issue: int) -> list[Summary]:
        """What an issue still needs."""
        return list(self._by_issue.get(issue, {}).values())

    def of_session(self, producer: str, session_id: str) -> list[Summary]:
        """What a session (see `session_of`) still needs, the oldest first."""
        found = self._by_session.get((producer, session_id), {}).values()
        return sorted(found, key=lambda summary: (summary.created, summary.id))


@dataclass(slots=True)
class Scan:
    """All that needs something; the ids of all records; the ledgers that could not be read, with why; the highest issue
    number, archived or not.
    """

    summaries: list[Summary] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    troubles: list[ClarifyError] = field(default_factory=list)
    highest_issue: int = 0


async def scan(ledger: Ledger, last_issue: int = 0) -> Scan:
    """Read every live ledger, as on a start. A ledger that cannot be read does not stop the others.

    `last_issue`: the reserved number that the storage knows to be given out last.
    """
    found = Scan()
    found.highest_issue, found.troubles = await ledger.load(last_issue, partial(_take, ledger, found))
    return found


def scan_now(ledger: FileLedger, last_issue: int = 0) -> Scan:
    """`scan`, blocking."""
    found = Scan()
    found.highest_issue, found.troubles = ledger.load_now(last_issue, partial(_take, ledger, found))
    return found


def _take(ledger: Ledger, found: Scan, items: list[Raw]) -> bool:
    """Adds what needs something. Where something is wrong with a record, the watch looks again, and reports it; what was
    changed after it was settled needs nothing.
    """
    found.names.update(map(identity, items))
    records = [record for item in items if (record := parse(item)) is not None]
    good = [record for record in records if not ledger.seals.is_tampered(record)]
    found.summaries += [summary for record in good if (summary := summarize(record)).needs_something]
    return len(good) < len(items) or any(
        is_unsettled(record) and not ledger.seals.verify_question(record) for record in good
    )
