"""Reads, writes and redacts records, each as JSON of the Clarification Protocol (architecture §5).

Keeps unknown fields. `Book` holds the records that a decision reads, inside its transaction.

`forgotten` removes the contents of a record, and keeps who asked whom when, and how it ended. It keeps only the fields
listed here, so unknown ones are removed too. Repeating it changes nothing.

`record_json` is a clarification as programs see it: with `--json`, and at `/clarifications`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, get_args

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from core.approvals import approved_by
from core.clarification import (
    DONE,
    ID,
    PART_OF,
    PARTS,
    UNDELIVERED,
    US,
    AnsweredBy,
    Clarification,
    CloseReason,
    Record,
    Round,
    answer_of,
    parse_id,
    round_with,
)
from core.clock import iso
from core.errors import NotFound
from core.matching import author_of
from core.names import whole_characters

Raw = dict[str, Any]
PLAUSIBLE = 999_999_999  # the highest number of a record that we count on from

_ID_IN_TEXT = re.compile(r"CLR-\d+-\d+")

FORGOTTEN = "(forgotten)"
_CLOSE_REASONS = frozenset({*get_args(CloseReason), "resolved elsewhere"})
_KEPT_OF_RECORD = (
    "id",
    "issueNumber",
    "blocking",
    "status",
    "round",
    "maxRounds",
    "created",
    "staleAfter",
    "resolvedAt",
    "revision",
)
_KEPT_OF_ROUND = (
    "producer",
    "agent_id",
    "session_id",
    "event_id",
    "reply_token",
    "asked_at",
    "received_at",
    "expires_at",
    "kinds",
    "multi_select",
    "answered_at",
    "reply",
    "went_on_at",
    "nudges",
    "nudged_at",
    "escalated_at",
    "escalated_for",
    "via",
    "sla_minutes",
)
_JSON_FIELDS = (
    "id",
    "issueNumber",
    "from",
    "to",
    "topic",
    "blocking",
    "status",
    "round",
    "maxRounds",
    "created",
    "staleAfter",
    "resolvedAt",
    "revision",
)


class Receipts(Protocol):
    """Checks the receipts of decisions (`core.receipts`). Safe to use from several threads."""

    def agrees(self, record: Clarification) -> bool:
        """Whether a record says what its receipt says, which has our signature: also True if it was signed with a key that
        we do not know, or if there is none.
        """


class Signer(Receipts, Protocol):
    """Signs them, too."""

    def made(self, record: Clarification) -> str | None:
        """Returns the receipt of the round that ended; None: it gets none, or the key cannot be read now."""

    def owes(self, record: Clarification) -> bool:
        """Whether the round ended without a receipt since receipts are made, and the key can be read."""


class Book:
    """The records that a decision reads, inside its transaction. The ledger writes what was `put` when it returns."""

    def __init__(
        self,
        records: Iterable[Clarification] = (),
        *,
        issue: int = 0,
        highest: int = 0,
        signer: Signer | None = None,
    ) -> None:
        """`issue`: the one that is asked about, and `highest` its highest number that was ever given out. `signer`: signs the
        receipts of rounds that end; None: this process has no key.
        """
        self.issue = issue
        self.highest = highest
        self.signer = signer
        self.read = {record.id: record for record in records}
        self.changed: list[Clarification] = []
        self._now = dict(self.read)

    @property
    def records(self) -> list[Clarification]:
        """All records, the oldest first."""
        return list(self._now.values())

    @property
    def written(self) -> list[Clarification]:
        """The records that were put, each in its latest state."""
        return [self._now[name] for name in dict.fromkeys(record.id for record in self.changed)]

    def get(self, clarification_id: str) -> Clarification:
        """Returns one record.

        Raises:
            NotFound: no such record.
        """
        try:
            return self._now[clarification_id]
        except KeyError:
            raise NotFound(clarification_id) from None

    def owes_receipt(self, record: Clarification) -> bool:
        """Whether `put` with `owed` would add a receipt."""
        signer = self.signer
        rounds = (record, *(then for _, then in unsigned_rounds(record)))
        return signer is not None and any(map(signer.owes, rounds))

    def put(self, record: Clarification, *, owed: bool = False) -> Clarification:
        """Adds a record, or replaces the one with its id. Signs its receipt if its round ends. `owed`: also those of rounds
        that ended without one.
        """
        before = self._now.get(record.id)
        record = self._with_receipt(record, before, owed=owed)
        if before is None:
            number = parse_id(record.id)[1]
            if number <= PLAUSIBLE:  # higher ones were made up: counting from there would leave no room
                self.highest = max(self.highest, number)
        elif record.revision <= before.revision:
            record = record.model_copy(update={"revision": before.revision + 1})
        if before is None or agrees(before, None):
            _mark(record)
        self._now[record.id] = record
        self.changed.append(record)
        return record

    def _with_receipt(
        self, record: Clarification, before: Clarification | None, *, owed: bool
    ) -> Clarification:
        """Adds the receipt of a round that ends with this write, or those that are `owed`."""
        signer, signed = self.signer, dict[int, str | None]()
        if signer is None:
            return record
        for place, then in unsigned_rounds(record) if owed else ():
            if signer.owes(then):
                signed[place] = signer.made(then)
        if not record.is_open and record.current.receipt is None:
            ends = before is None or before.is_open
            if ends or (owed and signer.owes(record)):
                signed[len(record.rounds) - 1] = signer.made(record)
        return _with_receipts(record, signed) if any(signed.values()) else record

    def next_seq(self) -> int:
        """Gives out the number of a new record: never one that was used before."""
        self.highest += 1
        return self.highest


class Halved(Raw):
    """A record whose texts may contain lone surrogates, which `parse` reads as U+FFFD."""


def parse(item: object) -> Clarification | None:
    """Returns a record, or None if it is invalid."""
    try:
        return Clarification.model_validate(_whole(item) if isinstance(item, Halved) else item)
    except ValidationError:
        return None


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {whole_characters(name): _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return whole_characters(value) if isinstance(value, str) else value


def dump(record: Clarification) -> Raw:
    """Returns a record's JSON."""
    raw = _as_written(record)
    rounds = [_set(each) for each in raw.pop("rounds")]
    return raw | {"rounds": rounds} if rounds else raw


def _set(asked: Raw) -> Raw:
    """Returns the fields of a round and its parts that are set."""
    nested = PARTS.keys() | {"wanted"}
    return {name: _set(each) if name in nested else each for name, each in asked.items() if each is not None}


def packed(raw: Raw) -> str:
    """Returns a record's JSON as its row has it."""
    try:
        return to_json(raw).decode()
    except ValueError:
        # Another program's field is nested deeply, or has a lone surrogate that needs an escape.
        return json.dumps(raw)


def unpacked(text: str) -> Raw:
    """Returns the JSON of a row.

    Raises:
        ValueError: it is none.
    """
    raw, is_halved = read_json(text)
    if not isinstance(raw, dict):
        raise ValueError("expected an object")  # noqa: TRY004 - one error for "no record"
    return Halved(raw) if is_halved else raw


def read_json(text: str | bytes) -> tuple[Any, bool]:
    """Returns JSON, and whether its texts may contain lone surrogates (`Halved`).

    Raises:
        ValueError: it is none; the message does not quote it.
    """
    try:
        return from_json(text), False  # the same result as json, in half the time
    except ValueError:
        pass  # `json` also reads other encodings, lone surrogates and deep nesting
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        raise ValueError(f"{len(text)} bytes that are not JSON") from None


def closed_at(record: Clarification) -> datetime | None:
    """Returns the time of the last change of a finished record; None: it is open, or its reply is not sent yet."""
    unclaimed = record.delivery.reply == "unclaimed"
    if (record.status not in DONE and not unclaimed) or record.delivery.reply in UNDELIVERED:
        return None
    moments = [record.created, record.resolved_at, *(entry.timestamp for entry in record.thread)]
    return max(moment for moment in (*moments, record.delivery.went_on_at) if moment is not None)


def agrees(record: Clarification, receipts: Receipts | None) -> bool:
    """Whether a record says what the receipts of its rounds say, checked once for each object. True if it has none, and for
    what this process wrote. `receipts`: None: it cannot be checked, so only these count.
    """
    if getattr(record, "_agrees", False):
        return True
    rounds = list(signed_rounds(record))
    if rounds and (receipts is None or not all(map(receipts.agrees, rounds))):
        return False
    _mark(record)
    return True


def _with_receipts(record: Clarification, signed: Mapping[int, str | None]) -> Clarification:
    """Returns a record with the receipts of its rounds, by their place."""
    rounds = list(record.rounds)
    for place, receipt in signed.items():
        rounds[place] = round_with(rounds[place], receipt=receipt)
    return record.model_copy(update={"rounds": tuple(rounds)})


def _mark(record: Clarification) -> None:
    object.__setattr__(record, "_agrees", True)


def as_of(record: Clarification, place: int) -> Clarification:
    """Returns a record as of the end of an earlier round: `place` in `earlier`."""
    # We ask again within a round if an answer does not count.
    asks = [at for at, entry in enumerate(record.thread) if entry.type == "question" and entry.from_ != US]
    thread = record.thread[: asks[place + 1]] if place + 1 < len(asks) else record.thread
    return record.model_copy(
        update={
            "round": thread[-1].round if thread else place + 1,
            "thread": thread,
            "status": "answered",
            "resolved_at": None,
            "rounds": record.rounds[: place + 1],
        }
    )


def signed_rounds(record: Clarification) -> Iterator[Clarification]:
    """Yields the record as of the end of each round that has a receipt."""
    for place, past in enumerate(record.earlier):
        if past.receipt is not None:
            yield as_of(record, place)
    if record.current.receipt is not None:
        yield record


def unsigned_rounds(record: Clarification) -> Iterator[tuple[int, Clarification]]:
    """Yields the earlier rounds that have no receipt: the place, and the record as of their end."""
    for place, past in enumerate(record.earlier):
        if past.receipt is None:
            yield place, as_of(record, place)


@dataclass(frozen=True, slots=True)
class Subject:
    """Clarifications to forget or to keep, and their sessions, events and reply tokens, each as (producer, name). Without
    sessions if a single clarification is to be forgotten.
    """

    clarifications: frozenset[str] = frozenset()
    sessions: frozenset[tuple[str, str]] = frozenset()
    events: frozenset[tuple[str, str]] = frozenset()
    tokens: frozenset[tuple[str, str]] = frozenset()

    def is_in(self, text: str | None) -> bool:
        """Whether a text names one of the clarifications."""
        return any(each in self.clarifications for each in _ID_IN_TEXT.findall(text or ""))


def is_unsettled(record: Clarification) -> bool:
    """Whether an agent still waits for an answer or its delivery."""
    return record.is_open or record.delivery.reply in UNDELIVERED


def is_direct(record: Clarification) -> bool:
    """Whether an agent asked it directly; also True for every forgotten record, which does not tell."""
    return record.asked.direct is not None or is_forgotten(record)


def is_forgotten(record: Clarification) -> bool:
    """Whether the contents of a record were removed."""
    return bool(record.current.forgotten)


def forgotten(item: object) -> Raw:
    """Returns an item of a ledger without its contents; unchanged if it has none."""
    raw = item if isinstance(item, dict) else {}
    record = parse(raw)
    if record is None:
        return _placeholder(raw)
    kept = _only(_as_written(record), _KEPT_OF_RECORD)
    kept |= {"from": _role(record.from_), "to": _role(record.to), "topic": FORGOTTEN}
    kept["thread"] = [_forgotten_entry(entry, record) for entry in _as_written(record)["thread"]]
    kept["rounds"] = [_set(_as_written(_forgotten_round(each))) for each in record.rounds]
    if parse(kept) == record:
        return raw
    return kept | {"revision": record.revision + 1}


def names_of(record: Clarification, user: str) -> Iterator[str]:
    """Yields what agents were told as the name of a Slack user who decided."""
    for each in record.rounds:
        if (
            (by := each.given.answered_by) is not None
            and by.user == user
            and each.given.decided_by is not None
        ):
            yield each.given.decided_by
        yield from (one.decided_by for one in each.consent.approvals or () if one.user == user)
        yield from (one.decided_by for one in each.consent.edits or () if one.user == user)


def without_person(item: Raw, user: str, names: Collection[str]) -> Raw:
    """Returns a record without a person where no receipt names them: as who claimed it, was handed it, escalated it, or tried
    to decide and was refused. Unchanged if it is unsettled or has none of that.

    `user`: their Slack user id; `names`: what agents are told instead.
    """
    record = parse(item)
    if record is None or is_unsettled(record):
        return item
    rounds = tuple(_without_person(each, user) for each in record.rounds)
    thread = tuple(
        entry.copied(from_=FORGOTTEN)
        if entry.type == "escalation" and (entry.from_ in names or entry.from_.endswith(f"/{user}"))
        else entry
        for entry in record.thread
    )
    changed = record.copied(rounds=rounds, thread=thread)
    return item if changed == record else dump(changed)


def _without_person(asked: Round, user: str) -> Round:
    attention, refusals = asked.attention, asked.consent.refusals
    holders = {"taken_by": attention.taken_by, "handed_to": attention.handed_to}
    news: dict[str, Any] = {name: None for name, each in holders.items() if each and each.user == user}
    if attention.taken_from == user:
        news["taken_from"] = None
    if refusals:
        news["refusals"] = tuple(
            each.copied(user=None, team=None, by=FORGOTTEN) if each.user == user else each
            for each in refusals
        )
    return round_with(asked, **news)


def _forgotten_round(asked: Round) -> Round:
    values = {name: getattr(getattr(asked, part), name) for name, part in PART_OF.items()}
    kept = {name: values[name] for name in _KEPT_OF_ROUND}
    if kept["reply"] in UNDELIVERED:
        kept["reply"] = "unconfirmed"  # it may have been sent, and is not sent again
    kept |= {name: FORGOTTEN for name in ("response", "label") if values[name] is not None}
    if (decided := asked.given.decided_by) is not None:
        kept["decided_by"] = decided if decided.startswith("agent:") else FORGOTTEN
    if (by := asked.given.answered_by) is not None:
        kept["answered_by"] = AnsweredBy(surface=by.surface)
    if asked.closed is not None:
        kept["closed"] = asked.closed if asked.closed in _CLOSE_REASONS else FORGOTTEN
    return round_with(Round(forgotten=True), **kept)


def _forgotten_entry(entry: Mapping[str, Any], record: Clarification) -> Raw:
    author = str(entry["from"])
    is_agent = author in {record.from_, record.to, US} or author.startswith("agent:")
    return {
        "round": entry["round"],
        "from": _role(author) if is_agent else FORGOTTEN,
        "type": entry["type"],
        "body": FORGOTTEN,
        "timestamp": entry["timestamp"],
    }


def _role(name: str) -> str:
    """Returns an agent's role unchanged, and FORGOTTEN for a person."""
    return FORGOTTEN if name.startswith("user:") or "@" in name else name


def _placeholder(raw: Raw) -> Raw:
    """Returns a record to replace an invalid one: without contents, but its number stays used."""
    name = raw.get("id")
    if not isinstance(name, str) or (match := ID.fullmatch(name)) is None:
        return {"status": "abandoned", "forgotten": True}
    return {
        "id": name,
        "issueNumber": int(match[1]),
        "from": FORGOTTEN,
        "to": FORGOTTEN,
        "topic": FORGOTTEN,
        "blocking": False,
        "status": "abandoned",
        "round": 1,
        "maxRounds": 1,
        "created": "1970-01-01T00:00:00.000Z",
        "staleAfter": None,
        "resolvedAt": None,
        "thread": [],
        "revision": 1,
    }


def _as_written(record: Record) -> Raw:
    return record.model_dump(mode="json", by_alias=True)


def _only(raw: Mapping[str, Any], names: Iterable[str]) -> Raw:
    return {name: raw[name] for name in names if raw.get(name) is not None or name in _KEPT_OF_RECORD}


def record_json(record: Clarification) -> dict[str, Any]:
    """Returns the ledger's own fields and the latest answer: text, what the agent got, who, when, how. For a form
    also `schema`. Omits the reply token and what only producers and we need.
    """
    raw = record.model_dump(mode="json", by_alias=True)
    asked, answer = record.asked, answer_of(record)
    return {field: raw[field] for field in _JSON_FIELDS} | {
        "thread": [entry.as_json() for entry in record.thread],
        "question": record.question,
        "context": asked.context,
        "acceptedResponseKinds": list(asked.kinds),
        "choices": [{"value": each.value, "label": each.label} for each in asked.choices],
        "confirmation": _consent_json(record),
        "expiresAt": _moment(asked.expires_at),
        "via": asked.via,
        "heldBack": asked.held_back,
        "escalatedFor": record.attention.escalated_for if record.status == "escalated" else None,
        "answer": answer.body if answer else None,
        "response": record.given.response,
        "rationale": record.given.rationale,
        "decidedBy": record.given.decided_by or (author_of(answer.from_) if answer else None),
        "answeredAt": _moment(record.given.answered_at or (answer.timestamp if answer else None)),
        "answeredThrough": record.given.answered_by.surface if record.given.answered_by else None,
        "receipt": record.current.receipt,
        **({"schema": asked.direct.form} if asked.direct and asked.direct.form else {}),
    }


def _consent_json(record: Clarification) -> dict[str, Any] | None:
    """Returns the action to approve, or None for a question."""
    wanted = record.current.confirmation
    if wanted is None:
        return None
    return {
        "action": wanted.action,
        "consequence": wanted.consequence,
        "riskLevel": wanted.risk_level,
        "irreversible": wanted.irreversible,
        "reversibility": wanted.reversibility,
        "defaultDecision": wanted.default_decision,
        "allowedReplies": list(wanted.allowed),
        "extraContext": wanted.extra_context or {},
        "arguments": record.current.arguments,
        "approvedBy": approved_by(record.current),
        "approvalsNeeded": record.asked.needed,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
