"""What others did to a ledger file, and what the file is to hold. Pure.

Three are compared: what the bridge last wrote or read (`Base`), the file, and the record. Only what changed from the base
to the file is somebody's act: a file that is like the base, or like the record, is merely old.

Formats and rules: the Clarification Protocol (architecture §5), design.md → Ledger file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.clarification import OPEN, Clarification
from core.matching import author_of
from core.records import Halved, InvalidRecord, Raw, Stray, identity, is_forgotten, parse, why_invalid

_FIELDS = ("id", "issueNumber", "from", "to", "topic", "blocking", "maxRounds", "created", "aaep")
_NEXT = {"question": "pending", "answer": "answered", "resolution": "resolved", "escalation": "escalated"}


@dataclass(frozen=True, slots=True)
class Seen:
    """Digests of a record: of what nobody changes, and of each entry of its thread."""

    fixed: str
    status: str
    entries: tuple[str, ...]

    @classmethod
    def of(cls, item: Raw) -> Seen:
        """Returns those of a record as a ledger holds it."""
        return cls(
            _digest({name: _plain(item.get(name)) for name in _FIELDS}),
            str(item.get("status")),
            tuple(_entry_digest(each) for each in _thread(item)),
        )

    def as_json(self) -> list[Any]:
        return [self.fixed, self.status, list(self.entries)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Seen:
        return cls(value[0], value[1], tuple(value[2]))


Base = Mapping[str, Sequence[Seen | None]]
"""By record: the states in which the bridge may have left it in the file, the last one last; None: not in it."""


@dataclass(frozen=True, slots=True)
class Opens:
    """A clarification that another implementation began. `is_ours`: its id is that of another one, which keeps it."""

    item: Raw
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Adds:
    """Entries that another implementation added to a clarification's thread, in order."""

    clarification: str
    entries: Sequence[Raw]


@dataclass(frozen=True, slots=True)
class Moves:
    """A status that another implementation set, without an entry that explains it."""

    clarification: str
    status: str


@dataclass(frozen=True, slots=True)
class Rewrites:
    """Something was changed that nobody may change. It is undone."""

    clarification: str


@dataclass(frozen=True, slots=True)
class Removes:
    """A record was removed. It is put back."""

    clarification: str


Act = Opens | Adds | Moves | Rewrites | Removes


def acts(base: Base, file: Sequence[Any], record: Sequence[Any]) -> Iterator[Act]:
    """Yields what others did to a file's records, in its order; then what they removed."""
    ours = {identity(item): item for item in record}
    there = set[str]()
    for item in file:
        if not _is_record(item) or (name := identity(item)) in there:
            continue
        there.add(name)
        left = base.get(name, (None,))
        was = [each for each in left if each is not None]
        if name not in ours:
            # One that has no question yet is nothing: another implementation may write that next.
            if item.get("status") is not None and _asks(item) and not any(each.entries for each in was):
                yield Opens(item)
        elif is_forgotten_item(ours[name]):
            continue
        elif None in left and not _same_question(item, ours[name]):
            yield Opens(item, is_ours=True)
        else:
            yield from _done_to(name, item, was, Seen.of(ours[name]))
    yield from (
        Removes(name)
        for name, left in base.items()
        if name in ours and name not in there and None not in left
    )


def _done_to(name: str, item: Raw, was: Sequence[Seen], now: Seen) -> Iterator[Act]:
    """`was`: empty if we no longer know what the bridge left; then only what the record lacks counts."""
    seen, thread = Seen.of(item), _thread(item)
    known = [*was, now]
    if seen in known:
        return
    if was:
        kept = [len(each.entries) for each in was if seen.entries[: len(each.entries)] == each.entries]
        if not kept or not any(seen.fixed == each.fixed for each in known):
            yield Rewrites(name)
            return
        start = max(kept)
    else:
        start = 0
    added = thread[start:]
    held = set(now.entries)
    if news := [entry for entry in added if _entry_digest(entry) not in held]:
        yield Adds(name, news)
    is_explained = bool(added) and seen.status == _NEXT.get(str(added[-1].get("type")))
    if not was or is_explained or any(seen.status == each.status for each in known):
        return
    yield Moves(name, seen.status) if may_move(now.status, seen.status) else Rewrites(name)


def may_move(now: str, to: str) -> bool:
    """Whether another implementation may set a status without a word."""
    if to == "resolved":
        return now == "answered"
    return now in OPEN and (to == "abandoned" or (to == "escalated" and now != "escalated"))


def opening(item: Raw) -> Clarification | None:
    """Returns a clarification of others as it began: its question alone, asked by an agent. Whatever else a file says of it
    has to compete like any other entry, and what only we know it cannot say. None: it cannot be read.
    """
    first = next(iter(_thread(item)), {})
    asker = author_of(str(item["from"])).removeprefix("agent:")
    begun = {"status": "pending", "round": 1, "resolvedAt": None, "revision": 1}
    thread = [{**first, "from": asker, "round": 1}]
    known = {name: each for name, each in item.items() if name != "aaep"}
    kind = Halved if isinstance(item, Halved) else dict
    return parse(kind({**known, **begun, "from": asker, "thread": thread}))


def rendered(file: Raw, record: Raw) -> Raw:
    """Returns what a file is to hold: the records as they are, and whatever else others wrote into it."""
    ours = {identity(item): item for item in record["clarifications"]}
    items: list[Any] = []
    done = set[str]()
    for item in file.get("clarifications", ()):
        name = identity(item)
        if name in ours and name not in done:
            items.append(_joined(item, ours[name]))
            done.add(name)
        else:
            items.append(dict(item) if isinstance(item, Stray) else item)
    items += [item for name, item in ours.items() if name not in done]
    return {**file, **{key: each for key, each in record.items() if key not in file}, "clarifications": items}


def _joined(theirs: Raw, ours: Raw) -> Raw:
    """Returns our record with the fields that only others know, which go when it is forgotten. One of theirs that only had
    its id leaves none.
    """
    if is_forgotten_item(ours) or any(
        theirs.get(name) != ours.get(name) for name in ("from", "created", "topic")
    ):
        return ours
    kept = _OURS - {"aaep"}  # which we keep where we have none, though we never read it
    return {**{key: each for key, each in theirs.items() if key not in ours and key not in kept}, **ours}


def _asks(item: Raw) -> bool:
    return next((each.get("type") for each in _thread(item)), None) == "question"


_OURS = frozenset({*_FIELDS, "status", "round", "staleAfter", "resolvedAt", "thread", "revision"})


def is_forgotten_item(item: Raw) -> bool:
    """Whether the contents of a record were removed."""
    found = parse(item)
    return found is not None and is_forgotten(found)


def base_of(file: Iterable[Any]) -> dict[str, Seen]:
    """Returns what the bridge remembers of a file that it wrote or read."""
    return {identity(item): Seen.of(item) for item in file if _is_record(item)}


def unreadable(issue: int, file: Sequence[Any]) -> list[InvalidRecord]:
    """Returns why items of a file that are meant as records cannot be read: nobody sees their questions."""
    odd = [(at, item) for at, item in enumerate(file, 1) if isinstance(item, dict) and not _is_record(item)]
    found = [why_invalid(issue, at, item) for at, item in odd if item.get("status") is not None]
    return [each for each in found if each is not None]


def _is_record(item: object) -> bool:
    """Whether an item is a record of the protocol, whatever stands in the part that only we know."""
    if not isinstance(item, dict) or isinstance(item, Stray) or not isinstance(item.get("from"), str):
        return False
    return parse({name: each for name, each in item.items() if name != "aaep"}) is not None


def _same_question(one: Raw, other: Raw) -> bool:
    """Whether two records with one id are the same clarification."""
    first, second = _thread(one)[:1], _thread(other)[:1]
    same = all(one.get(name) == other.get(name) for name in ("from", "created"))
    return same and [_entry_digest(each) for each in first] == [_entry_digest(each) for each in second]


def _thread(item: Raw) -> list[Raw]:
    found = item.get("thread")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _entry_digest(entry: Raw) -> str:
    author = author_of(str(entry.get("from"))).removeprefix("agent:")
    return _digest([entry.get("round"), author, entry.get("type"), entry.get("body")])


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=9).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a value without what may be left out or written differently: nulls, and 1.0 for 1."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
