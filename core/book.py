"""What is in a ledger file: the Clarification Protocol's format (architecture §5), read and written.

Unknown fields are kept, records are never removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from core.clarification import DONE, ID, Aaep, Clarification
from core.errors import NotFound
from core.seal import Seals, speaks_for_a_person

Raw = dict[str, Any]
_NAME = 60
_PLAUSIBLE = 999_999_999
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_OURS = frozenset(field.alias for field in Aaep.model_fields.values())


class Book:
    """The records of one issue inside a transaction: read, decide, `put`; written when the decision returns."""

    def __init__(
        self, issue: int, raw: Raw, highest: Callable[[], int] = int, seals: Seals | None = None
    ) -> None:
        """`highest()`: the highest number ever given out, as far as it is known beside the file. `seals`: None where
        what is written speaks for nobody.
        """
        self.issue = issue
        self.raw = raw
        self.changed: list[Clarification] = []
        self.numbered = 0  # the number given out, if any
        self._highest = highest
        self._seals = seals

    def sealed(self, record: Clarification) -> Clarification:
        """An answer that was given here, marked as ours."""
        return record if self._seals is None else self._seals.sealed(record)

    def vouches(self, record: Clarification) -> bool:
        """Whether its answer is by who it says: ours, or another writer's that speaks for no person."""
        return self._seals.vouch(record) if self._seals else not speaks_for_a_person(record)

    @property
    def records(self) -> list[Clarification]:
        """Every record that can be read, in the order of the file."""
        return [record for item in self._items if (record := parse(item)) is not None]

    def get(self, clarification_id: str) -> Clarification:
        """One record.

        Raises:
            NotFound: no such record, or it cannot be read.
        """
        for item in self._items:
            if identity(item) == clarification_id and (record := parse(item)):
                return record
        raise NotFound(clarification_id)

    def put(self, record: Clarification) -> Clarification:
        """Add a record, or replace the one with its id."""
        dumped = dump(record)
        for position, item in enumerate(self._items):
            if identity(item) == record.id:
                self._items[position] = dumped
                break
        else:
            self._items.append(dumped)
        self.changed.append(record)
        return record

    def next_seq(self) -> int:
        """A number for a new record: by the file's length, as others number, and never one used before."""
        pattern = re.compile(rf"CLR-{self.issue}-([0-9]{{3,15}})")
        used = {int(match.group(1)) for item in self._items if (match := pattern.fullmatch(identity(item)))}
        # One that leaves no room for many more was made up by somebody: it is not gone on from.
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
    """An object in a ledger's list that can be no record of it: its id is of another issue, or another one has it.
    `field` is at fault. It is kept as it is.
    """

    field = "id"


@dataclass(frozen=True, slots=True)
class Oddity:
    """A record that cannot be read. `name`: its id, or its place in the file where it has none; `fields`: which ones
    are at fault. `is_over`: it says itself that nothing waits for an answer. `digest` tells whether it changed.
    """

    issue: int
    name: str
    fields: tuple[str, ...]
    agent_id: str | None
    is_over: bool
    digest: str


def parse(item: object) -> Clarification | None:
    """A record, or None if it is not one: it is left in the file as it is. `oddity` says what is wrong with it."""
    if isinstance(item, Stray):
        return None
    try:
        return Clarification.model_validate(item)
    except ValidationError:
        return None


def oddity(issue: int, position: int, item: object) -> Oddity | None:
    """Why an item of a ledger's list (`position` from 1) is no record, without what it says; None: it is one."""
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
    return Oddity(
        issue,
        f"{name} (record {position})" if isinstance(item, Stray) else name,
        tuple(sorted(fields)),
        agent if isinstance(agent, str) else None,
        raw.get("status") in list(DONE),
        digest(item),
    )


def _field(path: tuple[int | str, ...]) -> str:
    """Where something is wrong, by names of the format only: others' keys may say something."""
    known = [str(part) for part in path if isinstance(part, int) or _FIELD.fullmatch(part)]
    return ".".join(known[:3]) or "record"


def dump(record: Clarification) -> Raw:
    """A record as the ledger file holds it."""
    raw = record.model_dump(mode="json", by_alias=True)
    if raw.get("aaep") is not None:
        raw["aaep"] = {
            key: value for key, value in raw["aaep"].items() if value is not None or key not in _OURS
        }
    else:
        raw.pop("aaep", None)
    return raw


def digest(item: object) -> str:
    """What a record says, in few characters: equal if and only if nothing changed, whoever wrote it."""
    return hashlib.blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=12).hexdigest()


def identity(item: object) -> str:
    return str(item.get("id")) if isinstance(item, dict) else ""


def encode(raw: Raw) -> bytes:
    try:
        return to_json(raw, indent=2)  # the same as json's, many times faster with an indent
    except (
        ValueError
    ):  # somebody else's field is nested deeply, or holds half a character that needs an escape
        return json.dumps(raw, indent=2).encode()


def decode(content: bytes, issue: int | None = None) -> Raw:
    """A ledger's bytes. With `issue`, objects that can be no record of it are marked (see `Stray`).

    Raises:
        ValueError: not a ledger; the message says why, without content.
    """
    try:
        raw = from_json(content)  # the same as json's, in half the time
    except ValueError:
        raw = _decode_oddly(content)
    if not isinstance(raw, dict) or not isinstance(raw.get("clarifications"), list):
        raise ValueError('expected an object with a list "clarifications"')  # noqa: TRY004 - one error for "no ledger"
    if issue is not None:
        raw["clarifications"] = list(_marked(issue, raw["clarifications"]))
    return raw


def _marked(issue: int, items: list[Any]) -> Iterator[Any]:
    """Of several with one id the first is meant: so all look it up, and others add at the end."""
    taken: set[str] = set()
    for item in items:
        match = ID.fullmatch(name) if (name := identity(item)) else None
        if match is None:
            yield item
        elif int(match[1]) != issue or name in taken:
            yield Stray(item)
        elif item.get("issueNumber", issue) not in (issue, str(issue)):
            yield _misnumbered(item)
        else:
            yield item
        taken.add(name)


def _misnumbered(item: Raw) -> Stray:
    stray = Stray(item)
    stray.field = "issueNumber"
    return stray


def _decode_oddly(content: bytes) -> Any:
    """What json reads beyond: other encodings, half characters, deep nesting."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{len(content)} bytes that are no JSON") from None
