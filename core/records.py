"""Reads, writes, seals and redacts ledger contents, in the Clarification Protocol's format (architecture §5).

Keeps unknown fields, and never removes records. `Book` holds the records of one issue inside a transaction.

Other programs write the ledgers too, and could put any name on an answer. So `Seals` seals records with a key in our
private folder. The seal of an open question shows that people see what the agent asked, and that the reply goes back to
that agent. The seal of a decision replaces it and covers both. A person's answer without a seal counts as another
program's. If a decision does not match its seal, another program changed it: people see a warning, agents get nothing.

`forgotten` removes the contents of a record, and keeps who asked whom when, and how it ended. It keeps only the fields
listed here, so unknown ones are removed too. Repeating it changes nothing.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from core.aaep import whole_characters
from core.clarification import CHANGED, DONE, ID, TOPIC_LIMIT, UNDELIVERED, US, Aaep, Clarification, Holder
from core.clock import iso
from core.errors import NotFound
from core.files import read_regular

_log = logging.getLogger("clarify.ledger")

Raw = dict[str, Any]
_NAME = 60
_LONG_FIELDS = (
    "context",
    "default_response",
    "summary_terse",
    "summary_detailed",
    "action",
    "consequence",
    "extra_context",
    "edits",
    "refusals",
    "reply_note",
)
_PLAUSIBLE = 999_999_999
_MOST_KEPT = 512  # ledgers in OwnRecords
_LARGEST_KEPT = 65_536  # bytes of a ledger in OwnRecords
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_ALIASES = {name: field.alias or name for name, field in Aaep.model_fields.items()}
_OURS = frozenset(_ALIASES.values())
_WHOLE_FLOAT = re.compile(r"\d\.0(?!\d)|\de\+")  # also matches in texts, which does no harm

SEAL_KEY = "seal.key"
KEY_LENGTH = 32
_ID_IN_TEXT = re.compile(r"CLR-\d+-\d+")
_QUESTION_SEAL = "questionSeal"
_HAS_DECISION = frozenset({"answered", "resolved"})
# What people read to decide, and where the reply goes. Seals leave out fields that are not set, so new ones can be added.
_QUESTION_FIELDS = frozenset(
    {
        "producer",
        "agent_id",
        "agent_name",
        "session_id",
        "reply_token",
        "correlation_id",
        "expires_at",
        "kinds",
        "multi_select",
        "context",
        "default_response",
        "summary_terse",
        "summary_detailed",
        "action",
        "consequence",
        "risk_level",
        "irreversible",
        "reversibility",
        "default_decision",
        "allowed_replies",
        "extra_context",
        "held_back",
        "rtl",
        "direct",
        "claimed_risk",
        "approvals_needed",
        "approvals",
        "lapsed",
        "edits",
        "reason_wanted",
        "requested_by",
        "four_eyes",
    }
)
# What the seal of a decision covers: all but what follows a decision, such as its delivery.
_DECISION_FIELDS = _QUESTION_FIELDS | {
    "event_id",
    "asked_at",
    "received_at",
    "via",
    "response",
    "label",
    "rationale",
    "decided_by",
    "answered_at",
    "answered_by",
}
# `2:round:entries:digest`: the decided round, and how many entries of the thread the seal covers. Earlier releases wrote
# only a digest, which covers less.
_DECISION_SEAL = re.compile(r"2:([0-9]{1,9}):([0-9]{1,9}):[0-9a-f]{64}")
# `2:revision:digest`: the record's revision when its question was sealed. Earlier releases wrote only a digest.
_QUESTION_SEAL_OF = re.compile(r"2:([0-9]{1,15}):[0-9a-f]{64}")

FORGOTTEN = "(forgotten)"
_FORGOTTEN_MARK = "forgotten"
_CLOSE_REASONS = frozenset(
    {
        "expired",
        "cancelled",
        "session ended",
        "requester moved on",
        "by hand",
        "withdrawn",
        "resolved elsewhere",
        CHANGED,
    }
)
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
_KEPT_OF_AAEP = (
    "producer",
    "agentId",
    "sessionId",
    "eventId",
    "replyToken",
    "askedAt",
    "receivedAt",
    "expiresAt",
    "kinds",
    "multiSelect",
    "answeredAt",
    "reply",
    "wentOnAt",
    "nudges",
    "nudgedAt",
    "escalatedAt",
    "escalatedFor",
    "via",
    "slaMinutes",
)


Own = Mapping[str, tuple[Raw, Clarification]]


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


class OwnRecords:
    """The records that this process wrote last, by issue and id, with their JSON. `parse` returns them without reading
    and checking the JSON again. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._by_issue: OrderedDict[int, dict[str, tuple[Raw, Clarification]]] = OrderedDict()

    def note(self, issue: int, written: Own, size: int) -> None:
        """Keeps the records `written` to a ledger of `size` bytes, unless it is large."""
        if size > _LARGEST_KEPT:
            self.forget(issue)
            return
        self._by_issue[issue] = self._by_issue.get(issue, {}) | dict(written)
        self._by_issue.move_to_end(issue)
        while len(self._by_issue) > _MOST_KEPT:
            self._by_issue.popitem(last=False)

    def forget(self, issue: int) -> None:
        """Drops the records of an issue: another process wrote its ledger, and may have forgotten them on purpose."""
        self._by_issue.pop(issue, None)

    def parse(self, issue: int, item: object) -> Clarification | None:
        """Returns what `parse` would; faster if this process wrote the item."""
        raw, record = self._by_issue.get(issue, {}).get(identity(item), (None, None))
        return record if raw == item and not isinstance(item, Stray) else parse(item)


class Book:
    """The records of one issue inside a transaction. The ledger writes what was `put` when the decision returns."""

    def __init__(
        self,
        issue: int,
        raw: Raw,
        highest: Callable[[], int],
        seals: Seals,
        parsed: Callable[[object], Clarification | None] | None = None,
        *,
        receipts: Signer | None = None,
    ) -> None:
        """`highest`: returns the highest number given out so far, as known outside the file; `parsed`: replaces `parse`;
        `receipts`: signs the receipts of rounds that end; None: this process has no key.
        """
        self.issue = issue
        self.raw = raw
        self.seals = seals
        self.receipts = receipts
        self.changed: list[Clarification] = []
        self.written: dict[str, tuple[Raw, Clarification]] = {}
        self.numbered = 0  # the number given out, if any
        self._highest = highest
        self._parse = parsed or parse
        # Both by `id`, with the object itself, so that its id is not reused.
        self._read: dict[int, tuple[object, Clarification | None]] = {}
        self._verified: dict[int, tuple[Clarification, bool | None]] = {}

    @property
    def records(self) -> list[Clarification]:
        """All valid records, in the order of the file."""
        return [record for item in self._items if (record := self._parsed(item)) is not None]

    def verify_question(self, record: Clarification) -> bool | None:
        """Returns `Seals.verify_question`, called once for each record object."""
        known = self._verified.get(id(record))
        if known is None:
            known = self._verified[id(record)] = record, self.seals.verify_question(record)
        return known[1]

    def get(self, clarification_id: str) -> Clarification:
        """Returns one record.

        Raises:
            NotFound: no such record, or it is invalid.
        """
        for item in self._items:
            if identity(item) == clarification_id and (record := self._parsed(item)):
                return record
        raise NotFound(clarification_id)

    def put(self, record: Clarification, *, owed: bool = False) -> Clarification:
        """Adds a record, or replaces the one with its id. Seals its question or decision, and signs its receipt if its
        round ends, unless another program had changed it before. `owed`: also those of rounds that ended without one.
        """
        before = next((self._parsed(item) for item in self._items if identity(item) == record.id), None)
        is_ours = before is None or self.verify_question(before)
        if is_ours:
            record = self.seals.holder_sealed(record, before)
        raw = _as_written(record)
        if is_ours and (before is None or self.seals.verify_answer(before)):
            record = self._with_receipt(self.seals.sealed(record, raw), before, raw, owed=owed)
            self.seals.mark_verified(record)
        elif is_ours:
            record = self.seals.question_sealed(record, raw)
        return self._store(record, raw)

    def _with_receipt(
        self, record: Clarification, before: Clarification | None, raw: Raw, *, owed: bool
    ) -> Clarification:
        """Adds the receipt of a round that ends with this write, or those that are `owed`. `raw`: gets them, too."""
        signer, asked = self.receipts, record.asked
        if signer is None:
            return record
        for place in self._owed(record) if owed else ():
            receipt = signer.made(as_of(record, place))
            earlier = tuple(
                {**past, "receipt": receipt} if at == place else past for at, past in enumerate(asked.earlier)
            )
            asked = asked.model_copy(update={"earlier": earlier})
            raw["aaep"]["earlier"][place] = earlier[place]
        if not record.is_open and asked.receipt is None:
            ends = before is None or before.is_open
            receipt = signer.made(record) if ends or (owed and signer.owes(record)) else None
            asked = asked.model_copy(update={"receipt": receipt})
            raw["aaep"]["receipt"] = receipt
        return record if asked is record.asked else record.model_copy(update={"aaep": asked})

    def _owed(self, record: Clarification) -> list[int]:
        """Returns the places of earlier rounds that are owed a receipt."""
        signer = self.receipts
        return [
            place
            for place, then in unsigned_rounds(record)
            if signer is not None and signer.owes(then) and self.seals.verify_answer(then)
        ]

    def owes_receipt(self, record: Clarification) -> bool:
        """Whether `put` with `owed` would add receipts: a round ended elsewhere, or while there was no key."""
        if self.receipts is None or not (self.receipts.owes(record) or self._owed(record)):
            return False
        is_ours = self.verify_question(record) and self.seals.verify_answer(record)
        return bool(is_ours) and not self.seals.is_tampered(record)

    def _parsed(self, item: object) -> Clarification | None:
        """Returns `parse` of an item, called once for each."""
        known = self._read.get(id(item))
        if known is None:
            known = self._read[id(item)] = item, self._parse(item)
        return known[1]

    def _store(self, record: Clarification, raw: Raw) -> Clarification:
        dumped = _tidied(raw)
        object.__setattr__(record, "_digest", dumped)
        for position, item in enumerate(self._items):
            if identity(item) == record.id:
                self._items[position] = dumped
                break
        else:
            self._items.append(dumped)
        self.changed.append(record)
        self.written[record.id] = dumped, record
        return record

    def next_seq(self) -> int:
        """Returns a number for a new record: by the file's length, as other programs count, but never one used before."""
        pattern = re.compile(rf"CLR-{self.issue}-([0-9]{{3,15}})")
        used = {int(match.group(1)) for item in self._items if (match := pattern.fullmatch(identity(item)))}
        # Ignores implausibly high numbers, which another program made up: counting from there would leave no room.
        number = max(len(self._items), self._highest(), *(each for each in used if each <= _PLAUSIBLE)) + 1
        while number in used:
            number += 1
        self.numbered = number
        return number

    @property
    def _items(self) -> list[Any]:
        items: list[Any] = self.raw["clarifications"]
        return items


class Stray(Raw):
    """An object in a ledger that is not one of its records: its id belongs to another issue, or is used twice. `field`:
    the wrong field. The object stays unchanged.
    """

    def __init__(self, item: Raw, field: str = "id") -> None:
        super().__init__(item)
        self.field = field


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """An invalid record. `name`: its id, or its position in the file if it has none; `fields`: the invalid ones;
    `is_over`: its own status says that it is finished; `digest`: changes with its content.
    """

    issue: int
    name: str
    fields: tuple[str, ...]
    agent_id: str | None
    is_over: bool
    digest: str


class Halved(Raw):
    """An object in a ledger whose texts may contain lone surrogates, which `parse` reads as U+FFFD."""


def parse(item: object) -> Clarification | None:
    """Returns an item of a ledger as a record, or None if it is invalid: then `why_invalid` says why."""
    if isinstance(item, Stray):
        return None
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


def why_invalid(issue: int, position: int, item: object) -> InvalidRecord | None:
    """Returns why an item of a ledger (`position` from 1) is not a record, without its contents, or None if it is one."""
    fields = {item.field} if isinstance(item, Stray) else set()
    try:
        Clarification.model_validate(item)
    except ValidationError as error:
        fields |= {_field(problem["loc"]) for problem in error.errors()}
    if not fields:
        return None
    raw: Raw = item if isinstance(item, dict) else {}
    named, agent = raw.get("id"), raw.get("from")
    name = named[:_NAME] if isinstance(named, str) and named.strip() else f"record {position}"
    return InvalidRecord(
        issue,
        f"{name} (record {position})" if isinstance(item, Stray) else name,
        tuple(sorted(fields)),
        agent if isinstance(agent, str) else None,
        raw.get("status") in list(DONE),
        digest(item),
    )


def _field(path: tuple[int | str, ...]) -> str:
    """Returns the path of an invalid field, without unusual keys: they may be contents."""
    known = [str(part) for part in path if isinstance(part, int) or _FIELD.fullmatch(part)]
    return ".".join(known[:3]) or "record"


def dump(record: Clarification) -> Raw:
    """Returns a record as the ledger file stores it."""
    return _tidied(_as_written(record))


def _tidied(raw: Raw) -> Raw:
    """Removes our own fields that are not set."""
    if raw.get("aaep") is not None:
        raw["aaep"] = {
            key: value for key, value in raw["aaep"].items() if value is not None or key not in _OURS
        }
        for name in ("takenBy", "handedTo"):
            if (holder := raw["aaep"].get(name)) is not None and holder["seal"] is None:
                del holder["seal"]
    else:
        raw.pop("aaep", None)
    return raw


def digest(item: object) -> str:
    """Returns a digest of a record's content, without the seal of its question, which adds nothing. Any writer's change
    changes it.
    """
    asked = item.get("aaep") if isinstance(item, dict) else None
    if isinstance(item, dict) and isinstance(asked, dict) and _QUESTION_SEAL in asked:
        item = item | {"aaep": {name: each for name, each in asked.items() if name != _QUESTION_SEAL}}
    return hashlib.blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=12).hexdigest()


def digest_of(record: Clarification) -> str:
    """Returns `digest` of a record, computed once for each object. Until then, `_digest` holds the JSON as written."""
    known: str | Raw | None = getattr(record, "_digest", None)
    if not isinstance(known, str):
        known = digest(dump(record) if known is None else known)
        object.__setattr__(record, "_digest", known)
    return known


class Outline(Clarification):
    """A record without its long texts, for the index. Read the record from its ledger before you show it."""


def outline(record: Clarification) -> Outline:
    """Returns a record without its long texts."""
    asked = record.asked
    direct = asked.direct and asked.direct.model_copy(
        update={"arguments": None, "form": None, "default": None}
    )
    short = {name: _cut(getattr(asked, name)) for name in ("response", "label", "rationale", "receipt")}
    fields = {**dict.fromkeys(_LONG_FIELDS), **short, "direct": direct, "earlier": ()}
    thread = [entry.model_copy(update={"body": ""}) for entry in record.thread]
    found = Outline.model_construct(
        **{name: getattr(record, name) for name in Clarification.model_fields}
        | {"topic": record.short_topic, "thread": tuple(thread)}
        | {"aaep": record.aaep and asked.model_copy(update=fields)}
    )
    object.__setattr__(found, "_digest", digest_of(record))
    return found


def _cut(value: Any) -> Any:
    return value[:TOPIC_LIMIT] if isinstance(value, str) else value


def identity(item: object) -> str:
    return str(item.get("id")) if isinstance(item, dict) else ""


def encode(raw: Raw) -> bytes:
    try:
        return to_json(raw, indent=2)  # the same output as json, many times faster with an indent
    except ValueError:
        # Another program's field is nested deeply, or has a lone surrogate that needs an escape.
        return json.dumps(raw, indent=2).encode()


def decode(content: bytes, issue: int | None = None) -> Raw:
    """Decodes a ledger. With `issue`, marks objects that are not its records (see `Stray`).

    Raises:
        ValueError: not a ledger; the message says why, without content.
    """
    kind: type[Raw] = dict
    try:
        raw = from_json(content)  # the same result as json, in half the time
    except ValueError:
        raw, kind = _decode_oddly(content), Halved
    if not isinstance(raw, dict) or not isinstance(raw.get("clarifications"), list):
        raise ValueError('expected an object with a list "clarifications"')  # noqa: TRY004 - one error for "no ledger"
    if issue is not None:
        raw["clarifications"] = list(_marked(issue, raw["clarifications"], kind))
    return raw


def _marked(issue: int, items: list[Any], kind: type[Raw]) -> Iterator[Any]:
    """Yields the items with strays marked. If several have the same id, the first one counts, as in every lookup."""
    taken: set[str] = set()
    for item in items:
        match = ID.fullmatch(name) if (name := identity(item)) else None
        if match is None:
            yield item
        elif int(match[1]) != issue or name in taken:
            yield Stray(item)
        elif item.get("issueNumber", issue) not in (issue, str(issue)):
            yield Stray(item, "issueNumber")
        else:
            yield item if kind is dict else kind(item)
        taken.add(name)


def _decode_oddly(content: bytes) -> Any:
    """Decodes what only `json` reads: other encodings, lone surrogates, deep nesting."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{len(content)} bytes that are not JSON") from None


def closed_at(record: Clarification) -> datetime | None:
    """Returns the time of the last change of a finished record; None: it is open, or its reply is not sent yet."""
    unclaimed = record.asked.reply == "unclaimed"
    if (
        (record.status not in DONE and not unclaimed)
        or record.asked.reply in UNDELIVERED
        or record.is_adoptable
    ):
        return None
    moments = [record.created, record.resolved_at, *(entry.timestamp for entry in record.thread)]
    return max(moment for moment in (*moments, record.asked.went_on_at) if moment is not None)


def is_over(items: Iterable[object], now: datetime, after: timedelta) -> bool:
    """Whether all records of a ledger have been closed for `after`. An invalid one counts as open."""
    for item in items:
        if not isinstance(item, dict) or item.get("status") not in [*DONE, "answered"]:
            return False  # decides nearly all open ledgers, without parsing a record
        record = parse(item)
        over = closed_at(record) if record is not None else None
        if over is None or now - over < after:
            return False
    return True


def speaks_for_a_person(record: Clarification) -> bool:
    """Whether a record says that a person answered, or that an action was accepted: only our seal proves that."""
    asked = record.asked
    if asked.response is None:
        return False
    by_other = (asked.decided_by or "").startswith(("agent:", "ledger:"))
    return not by_other or asked.is_consent


class Seals:
    """Makes and checks seals. `key`: its bytes, or the private folder of its file; `shell`: whether an accept from the
    shell counts; `signs`: whether this process may seal at all.

    `receipts` checks the receipts of decisions; None: they count for nothing. A receipt outweighs the seal of its round:
    whoever can read the key of seals can make one that matches, but no receipt.
    """

    def __init__(self, key: Path | bytes, *, shell: bool = True, signs: bool = True) -> None:
        self._path = key / SEAL_KEY if isinstance(key, Path) else Path(SEAL_KEY)
        self._shell = shell
        self._signs = signs
        self._key = None if isinstance(key, Path) else key
        self._logged = False  # whether the log says why the key cannot be used
        self.receipts: Receipts | None = None

    def mark_verified(self, record: Clarification) -> None:
        """Marks a record object as sealed here: it is new, or comes from a record whose seals were verified."""
        is_whole = record.asked.closed != CHANGED  # what was decided before may be missing in it
        if self._signs and self._key is not None and is_whole:
            object.__setattr__(record, "_sealed_by", self)

    def is_verified(self, record: Clarification) -> bool:
        """Whether `mark_verified` marked this record object."""
        return getattr(record, "_sealed_by", None) is self

    @property
    def is_ready(self) -> bool:
        """Whether the key need not be read from its file first, which would block."""
        return self._key is not None or not self._signs

    def sealed(self, record: Clarification, raw: Raw | None = None) -> Clarification:
        """Seals the decision of a record (only once), else its question. Returns the record unchanged without a key.
        `raw`: the record's JSON, which gets the seal too.
        """
        asked = record.asked
        if asked.response is None or record.status not in _HAS_DECISION:
            return self.question_sealed(record, raw)
        if _is_decision_seal(asked.seal) or (key := self._sealing_key()) is None:
            return record
        raw = _as_written(record) if raw is None else raw
        seal = _decision_seal(key, record, record.round, len(record.thread), raw)
        raw["aaep"] |= {"seal": seal, _QUESTION_SEAL: None}
        return record.model_copy(
            update={"aaep": asked.model_copy(update={"seal": seal, "question_seal": None})}
        )

    def question_sealed(self, record: Clarification, raw: Raw | None = None) -> Clarification:
        """Seals the question of a record, if an agent waits for the reply and the decision is not sealed. Returns the
        record unchanged without a key. `raw`: see `sealed`.
        """
        asked = record.asked
        if asked.reply_token is None or _is_decision_seal(asked.seal):
            return record
        if (key := self._sealing_key()) is None:
            return record
        raw = _as_written(record) if raw is None else raw
        seal = raw["aaep"][_QUESTION_SEAL] = _question_seal(key, record, raw, record.revision)
        return record.model_copy(update={"aaep": asked.model_copy(update={"question_seal": seal})})

    def holder_sealed(self, record: Clarification, before: Clarification | None) -> Clarification:
        """Seals who claimed a record, or whom it was handed to, if that is not the same as in `before`."""
        name, holder = _holder(record)
        if holder is None or (before is not None and holder == _holder(before)[1]):
            return record
        if (key := self._sealing_key()) is None:
            return record
        sealed = holder.model_copy(update={"seal": _holder_seal(key, record, name, holder)})
        return record.model_copy(update={"aaep": record.asked.model_copy(update={name: sealed})})

    def token(self, *words: str, makes_key: bool = False) -> str | None:
        """Returns what no one can guess who does not know the key: 22 characters, the same for the same words. None: the key is
        unavailable. Blocks until the key is read. `makes_key`: make the key if there is none yet.
        """
        key = self._key or (self._sealing_key() if makes_key else self._read())
        if key is None:
            return None
        digest = hmac.digest(key, json.dumps(["token", *words]).encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode()[:22]

    def verify_holder(self, record: Clarification) -> bool:
        """Whether we wrote who claimed a record, or whom it was handed to. If another program named a person there, the
        bot would remind and page only that person.
        """
        name, holder = _holder(record)
        if holder is None or not self._signs or (key := self._key or self._read()) is None:
            return False
        return hmac.compare_digest(holder.seal or "", _holder_seal(key, record, name, holder))

    def verify_question(self, record: Clarification) -> bool | None:
        """Whether our seals on the question and the latest decision match, and the receipts say the same; None: the key is
        unavailable. True if there is no decision and no agent waits for a reply.
        """
        if self.is_verified(record):
            return True
        return self.agrees(record) and self._matches_seals(record)

    def agrees(self, record: Clarification) -> bool:
        """Whether a record says what the receipts of its rounds say. True if it has none."""
        if self.receipts is None or self.is_verified(record):
            return True
        return all(map(self.receipts.agrees, signed_rounds(record)))

    def _matches_seals(self, record: Clarification) -> bool | None:
        decided = _latest_decision(record)
        if not self._signs or (record.asked.reply_token is None and decided is None):
            return True
        key = self._key or self._read()
        if key is None:
            return None
        if decided is not None and not _matches(key, decided):
            return False
        if record.asked.reply_token is None or (decided is not None and decided.is_latest):
            return True
        seal = record.asked.question_seal or ""
        match = _QUESTION_SEAL_OF.fullmatch(seal)
        revision = int(match[1]) if match else None  # earlier releases left it out
        return hmac.compare_digest(seal, _question_seal(key, record, revision=revision))

    def is_tampered(self, record: Clarification) -> bool:
        """Whether another program changed a decision; False also if we cannot tell.

        Not tampered: an open question that another program changed (it is closed), and an answer that it gave (it
        counts as that program's). A settled question without a seal comes from an earlier release, unless an agent
        asked it directly, which earlier releases did not support.
        """
        return not self.agrees(record) or self.breaks_seal(record)

    def breaks_seal(self, record: Clarification) -> bool:
        """`is_tampered` by its seals alone, which takes a tenth of the time."""
        if self.is_verified(record):
            return False
        decided, asked = _latest_decision(record), record.asked
        if decided is None or not decided.is_latest:
            if record.is_open or asked.closed == CHANGED:
                return False
            if decided is None and (
                asked.direct is None if asked.question_seal is None else is_unsettled(record)
            ):
                return False
        return self._matches_seals(record) is False

    def verify_answer(self, record: Clarification) -> bool:
        """Whether an answer has the author that it names: it has our seal, or it names no person."""
        if not speaks_for_a_person(record):
            return True
        asked, by = record.asked, record.asked.answered_by
        # Never one of several approvals, nor under four eyes.
        by_shell = self._shell and asked.needed == 1 and asked.four_eyes is None
        if asked.is_consent and not by_shell and (by is None or by.surface != "slack"):
            return False
        if self.is_verified(record):
            return True
        key = (self._key or self._read()) if self._signs else None
        if key is None:
            return False
        decided = _latest_decision(record)
        if decided is not None and decided.is_latest:
            return _matches(key, decided)
        return hmac.compare_digest(asked.seal or "", _earlier_seal(key, record))

    def _sealing_key(self) -> bytes | None:
        return (self._key or self._create_key()) if self._signs else None

    def _read(self) -> bytes | None:
        """Returns the key, unless its file is missing or another user could have written it."""
        try:
            key, state = read_regular(self._path), self._path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._cannot_use(
                f"cannot be read: {error.strerror}; without it, people's answers cannot be verified"
            )
            return None
        if len(key) != KEY_LENGTH or state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
            self._cannot_use(
                f"is not used: expected {KEY_LENGTH} bytes, readable by the bot's user only (mode 0600)"
            )
            return None
        self._key = key
        return key

    def _cannot_use(self, why: str) -> None:
        """Logs the reason, but only once, since lists need the key for every record."""
        if not self._logged:
            self._logged = True
            _log.error("%s %s", self._path, why)

    def _create_key(self) -> bytes | None:
        draft = self._path.with_name(f"{SEAL_KEY}.{os.getpid()}.{secrets.token_hex(8)}")
        if not os.path.lexists(self._path):
            try:
                handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                try:
                    if os.write(handle, secrets.token_bytes(KEY_LENGTH)) < KEY_LENGTH:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(handle)
                finally:
                    os.close(handle)
                with suppress(FileExistsError):
                    os.link(draft, self._path)  # atomic; the first process wins
            except OSError as error:
                _log.error("cannot create %s: %s", self._path, error.strerror)
            finally:
                draft.unlink(missing_ok=True)
        return self._read()


@dataclass(frozen=True, slots=True)
class _Decision:
    """The latest sealed decision of a record. `record`: with the fields of that round; `entries`: how many entries of the
    thread the seal covers; `is_latest`: there is no later question.
    """

    record: Clarification
    round: int
    entries: int
    is_latest: bool


def _is_decision_seal(seal: object) -> bool:
    return isinstance(seal, str) and _DECISION_SEAL.fullmatch(seal) is not None


def _latest_decision(record: Clarification) -> _Decision | None:
    """Returns the latest sealed decision; None: there is none, or its seal is an earlier release's."""
    asked = record.asked
    if match := _DECISION_SEAL.fullmatch(asked.seal or ""):
        number, count = int(match[1]), int(match[2])
        # Other programs add rounds between agents and leave our fields unchanged.
        asked_again = asked.reply_token is None and any(
            entry.type == "question" for entry in record.thread[count:]
        )
        return _Decision(record, number, count, not asked_again)
    for place in range(len(asked.earlier) - 1, -1, -1):
        if match := _DECISION_SEAL.fullmatch(str(asked.earlier[place].get("seal"))):
            number, count = int(match[1]), int(match[2])
            return _Decision(_with_fields_of(record, place), number, count, is_latest=False)
    return None


def as_of(record: Clarification, place: int) -> Clarification:
    """Returns a record as of the end of an earlier round: `place` in `earlier`."""
    return _ended(_with_fields_of(record, place))


def _with_fields_of(record: Clarification, place: int) -> Clarification:
    """Returns a record with the fields of an earlier round; one that matches nothing if another program broke them."""
    asked, past = record.asked, record.asked.earlier[place]
    try:
        then = Aaep.model_validate({**past, "earlier": asked.earlier[:place]})
    except ValidationError:
        then = Aaep(seal=str(past.get("seal")), receipt=str(past.get("receipt")))
    return record.model_copy(update={"aaep": then})


def signed_rounds(record: Clarification) -> Iterator[Clarification]:
    """Yields the record as of the end of each round that has a receipt."""
    asked = record.asked
    for place, past in enumerate(asked.earlier):
        if past.get("receipt") is not None:
            yield as_of(record, place)
    if asked.receipt is None:
        return
    decided = _latest_decision(record)
    # Other programs add rounds between agents and leave our fields unchanged.
    is_over = decided is not None and decided.record is record and not decided.is_latest
    yield _ended(record) if is_over else record


def unsigned_rounds(record: Clarification) -> Iterator[tuple[int, Clarification]]:
    """Yields the earlier rounds that people decided and that have no receipt: the place, and the record as of their end."""
    for place, past in enumerate(record.asked.earlier):
        if past.get("receipt") is None and _is_decision_seal(past.get("seal")):
            yield place, as_of(record, place)


def sealed_revision(record: Clarification) -> int | None:
    """Returns the revision that we sealed last: other programs may count theirs. None: it has no seal of ours."""
    asked = record.asked
    if match := _QUESTION_SEAL_OF.fullmatch(asked.question_seal or ""):
        return int(match[1])
    return record.revision if asked.question_seal or _is_decision_seal(asked.seal) else None


def _ended(record: Clarification) -> Clarification:
    """Returns a record as of the end of the round in its own fields, by the seal of its decision."""
    match = _DECISION_SEAL.fullmatch(record.asked.seal or "")
    if match is None:
        return record
    number, count = int(match[1]), int(match[2])
    return record.model_copy(
        update={"round": number, "thread": record.thread[:count], "status": "answered", "resolved_at": None}
    )


def _matches(key: bytes, decided: _Decision) -> bool:
    """Whether a record still matches the seal of its decision, and has no later answer for that round."""
    record = decided.record
    after = record.thread[decided.entries :]
    if any(entry.type == "answer" and entry.round <= decided.round for entry in after):
        return False
    if decided.is_latest and (record.status not in _HAS_DECISION or record.round != decided.round):
        return False
    seal = _decision_seal(key, record, decided.round, decided.entries)
    return hmac.compare_digest(record.asked.seal or "", seal)


def _decision_seal(key: bytes, record: Clarification, number: int, count: int, raw: Raw | None = None) -> str:
    """Returns the seal of round `number`: over its question and decision, the rounds before it, and the first `count`
    entries of the thread. `raw`: the record's JSON, if known.
    """
    asked = record.asked
    sealed = {
        "id": record.id,
        "created": iso(record.created),
        "from": record.from_,
        "to": record.to,
        "topic": record.topic,
        "round": number,
        "thread": [
            [each.round, each.from_, each.type, each.body, iso(each.timestamp)]
            for each in record.thread[:count]
        ],
        "choices": [[each.value, each.label] for each in asked.choices],
        "aaep": _sealed_fields(asked, _DECISION_FIELDS, raw),
        # A receipt may follow later, and has a signature of its own.
        "earlier": [
            {name: each for name, each in past.items() if name != "receipt"} for past in asked.earlier
        ],
    }
    return f"2:{number}:{count}:{_mac(key, sealed)}"


def _mac(key: bytes, sealed: object) -> str:
    text = json.dumps(sealed, sort_keys=True)
    if _WHOLE_FLOAT.search(text):
        text = json.dumps(with_whole_numbers(sealed), sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _holder(record: Clarification) -> tuple[str, Holder | None]:
    """Returns the field and its value: who claimed the record, or else whom it was handed to."""
    asked = record.asked
    return ("taken_by", asked.taken_by) if asked.taken_by is not None else ("handed_to", asked.handed_to)


def _holder_seal(key: bytes, record: Clarification, name: str, holder: Holder) -> str:
    sealed = ["holder", record.id, iso(record.created), name, holder.user, holder.team, iso(holder.at)]
    return _mac(key, sealed)


def _earlier_seal(key: bytes, record: Clarification) -> str:
    """Returns an answer's seal as earlier releases made it."""
    asked, by = record.asked, record.asked.answered_by
    sealed = [
        record.id,
        iso(record.created),
        record.round,
        asked.reply_token,
        asked.is_confirmation,
        with_whole_numbers(asked.response),
        asked.label,
        asked.rationale,
        asked.decided_by,
        iso(asked.answered_at) if asked.answered_at else None,
        [by.surface, by.team, by.user] if by else None,
    ]
    return hmac.new(key, json.dumps(sealed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _sealed_fields(asked: Aaep, names: frozenset[str], raw: Raw | None) -> Raw:
    """Returns the fields in `names` that are set, by their Python names."""
    if raw is None or asked.approvals or asked.lapsed or asked.edits:  # `raw` has aliases inside these
        return asked.model_dump(mode="json", include=set(names), exclude_none=True)
    written = raw["aaep"]
    found = {name: each for name in names if (each := written[_ALIASES[name]]) is not None}
    for part in {"direct", "answered_by"} & found.keys():
        found[part] = {name: each for name, each in found[part].items() if each is not None}
    return found


def _question_seal(
    key: bytes, record: Clarification, raw: Raw | None = None, revision: int | None = None
) -> str:
    """Returns the seal of a question and of the agent that gets the reply. `raw`: the record's JSON, if known; `revision`:
    the record's when it is sealed.
    """
    asked = record.asked
    sealed = {
        "id": record.id,
        "created": iso(record.created),
        "from": record.from_,
        "to": record.to,
        "topic": record.topic,
        "question": record.question,
        "choices": [[each.value, each.label] for each in asked.choices],
        "aaep": _sealed_fields(asked, _QUESTION_FIELDS, raw),
    }
    if revision is None:
        return _mac(key, sealed)
    return f"2:{revision}:{_mac(key, sealed | {'revision': revision})}"


def with_whole_numbers(value: Any) -> Any:
    """Returns a JSON value with 1 for 1.0, as some programs write it."""
    if isinstance(value, dict):
        return {name: with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_of_session(item: object, session: str, producer: str | None = None) -> bool:
    """Whether an item of a ledger belongs to a session (of any producer if `producer` is None)."""
    asked = item.get("aaep") if isinstance(item, dict) else None
    if not isinstance(asked, dict) or asked.get("sessionId") != session:
        return False
    return producer is None or asked.get("producer") == producer


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
    return record.is_open or record.asked.reply in UNDELIVERED or record.is_adoptable


def is_direct(record: Clarification) -> bool:
    """Whether an agent asked it directly; also True for every forgotten record, which does not tell."""
    return record.asked.direct is not None or is_forgotten(record)


def is_forgotten(record: Clarification) -> bool:
    """Whether the contents of a record were removed."""
    return bool((record.asked.model_extra or {}).get(_FORGOTTEN_MARK))


def forgotten(item: object) -> Raw:
    """Returns an item of a ledger without its contents; unchanged if it has none."""
    raw = item if isinstance(item, dict) else {}
    record = parse(raw)
    if record is None:
        return _placeholder(raw)
    kept = _only(_as_written(record), _KEPT_OF_RECORD)
    kept |= {"from": _role(record.from_), "to": _role(record.to), "topic": FORGOTTEN}
    kept["thread"] = [_forgotten_entry(entry, record) for entry in _as_written(record)["thread"]]
    if record.aaep is not None:
        kept["aaep"] = _forgotten_aaep(_as_written(record)["aaep"])
    if parse(kept) == record:
        return raw
    return kept | {"revision": record.revision + 1}


def forget_in(raw: Raw, wanted: Iterable[int]) -> bool:
    """Forgets the items of a ledger at the indexes `wanted`. Returns whether that changed anything."""
    items, changed = raw["clarifications"], False
    for place in wanted:
        after = forgotten(items[place])
        changed |= after != items[place]
        items[place] = after
    return changed


def _forgotten_aaep(asked: Mapping[str, Any]) -> Raw:
    kept = _only(asked, _KEPT_OF_AAEP) | {_FORGOTTEN_MARK: True}
    if kept.get("reply") in UNDELIVERED:
        kept["reply"] = "unconfirmed"  # it may have been sent, and is not sent again
    for name in ("response", "label"):
        if asked.get(name) is not None:
            kept[name] = FORGOTTEN
    if isinstance(closed := asked.get("closed"), str):
        kept["closed"] = closed if closed in _CLOSE_REASONS else FORGOTTEN
    if isinstance(decided := asked.get("decidedBy"), str):
        kept["decidedBy"] = decided if decided.startswith("agent:") else FORGOTTEN
    if isinstance(by := asked.get("answeredBy"), dict):
        kept["answeredBy"] = {"surface": by.get("surface", "")}
    kept["earlier"] = [_forgotten_aaep(past) for past in asked.get("earlier") or () if isinstance(past, dict)]
    return kept


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
        return {"status": "abandoned", _FORGOTTEN_MARK: True}
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


def _as_written(record: Clarification) -> Raw:
    return record.model_dump(mode="json", by_alias=True)


def _only(raw: Mapping[str, Any], names: Iterable[str]) -> Raw:
    return {name: raw[name] for name in names if raw.get(name) is not None or name in _KEPT_OF_RECORD}
