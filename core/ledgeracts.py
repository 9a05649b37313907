"""Finds out what others did to a ledger file, and what the file should contain. Pure.

It compares three states: what the bridge last wrote or read (`Base`), the file, and the record. Only a difference between base and
file is a change by someone else: a file that matches the base or the record is merely old.

Formats and rules: the Clarification Protocol (architecture §5); docs/agents/agent-to-agent.md → Ledger files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from core.clarification import DONE, ID, OPEN, Clarification, Entry
from core.clock import iso
from core.ledgerfiles import InvalidRecord, Stray, encode, identity, read_item, why_invalid
from core.matching import author_of, is_same
from core.records import Raw, dump, is_forgotten
from core.router import BODY_LIMIT

_LARGEST = 16 * BODY_LIMIT  # bytes of a new clarification of others, with its question alone
_NEXT = {
    "question": {"pending"},
    "answer": {"answered"},
    "resolution": {"resolved", "abandoned"},
    "escalation": {"escalated"},
}


@dataclass(frozen=True, slots=True)
class Seen:
    """Digests of a record, however it is spelled: of what nobody changes, and of each entry of its thread."""

    fixed: str
    status: str
    entries: tuple[str, ...]

    @classmethod
    def of(cls, item: Raw, record: Clarification | None = None) -> Seen:
        """Returns those of a record as a ledger holds it. `record`: what it says, if that is known."""
        if (record := record or _read(item)) is None:
            raise ValueError("not a record")
        fixed = [name_of(item), _author(record.from_), record.to, record.topic, record.blocking]
        fixed += [record.max_rounds, iso(record.created), _plain(item.get("aaep"))]
        return cls(_digest(fixed), record.status, tuple(map(_entry_digest, record.thread)))

    def as_json(self) -> list[Any]:
        return [self.fixed, self.status, list(self.entries)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Seen:
        return cls(value[0], value[1], tuple(value[2]))


Base = Mapping[str, Sequence[Seen | None]]
"""By record: the states in which the bridge may have left it in the file, the last one last; None: not in it."""


@dataclass(frozen=True, slots=True)
class Opens:
    """A clarification that another implementation began."""

    item: Raw


@dataclass(frozen=True, slots=True)
class Adds:
    """Entries that another implementation added to a clarification's thread, in order. `abandons`: the last entry says why the
    clarification is closed without an answer.
    """

    clarification: str
    entries: Sequence[Entry]
    abandons: bool = False


@dataclass(frozen=True, slots=True)
class Moves:
    """A status that another implementation set without an entry that explains it."""

    clarification: str
    status: str


@dataclass(frozen=True, slots=True)
class Rewrites:
    """A change to something that nobody may change. The bridge undoes it."""

    clarification: str


@dataclass(frozen=True, slots=True)
class Removes:
    """The removal of a record. The bridge restores it."""

    clarification: str


Act = Opens | Adds | Moves | Rewrites | Removes


def acts(base: Base, file: Sequence[Any], record: Sequence[Any]) -> Iterator[Act]:
    """Yields what others did to a file's records, in the file's order, then the removals."""
    ours = {identity(item): item for item in record}
    there = set[str]()
    for name, item in named(file):
        if name in there:
            continue
        if name in ours and item == ours[name]:  # so are nearly all: nothing of them needs to be read
            there.add(name)
            continue
        if (theirs := _read(item)) is None:
            continue
        there.add(name)
        left = base.get(name, (None,))
        was = [each for each in left if each is not None]
        if name not in ours:
            # One that has no question yet is nothing: another implementation may write that next.
            is_news = theirs.thread[:1] and theirs.thread[0].type == "question"
            if is_news and not any(each.entries for each in was) and not is_too_long(item):
                yield Opens(item)
        elif (now := read_item(ours[name])) is None or is_forgotten(now):
            continue
        elif None not in left or is_same(theirs, now):
            yield from _done_to(name, was, Seen.of(ours[name], now), Seen.of(item, theirs), theirs)
        elif not is_too_long(item):
            yield Opens(item)
    yield from (
        Removes(name)
        for name, left in base.items()
        if name in ours and name not in there and None not in left
    )


def _done_to(name: str, was: Sequence[Seen], now: Seen, seen: Seen, theirs: Clarification) -> Iterator[Act]:
    """`was`: empty if we no longer know what the bridge left; then only what the record lacks counts."""
    known = [*was, now]
    if seen in known:
        return
    start = 0
    if was:
        kept = [len(each.entries) for each in was if seen.entries[: len(each.entries)] == each.entries]
        if not kept or not any(seen.fixed == each.fixed for each in known):
            yield Rewrites(name)
            return
        start = max(kept)
    added = theirs.thread[start:]
    held = set(now.entries)
    if news := [entry for entry in added if _entry_digest(entry) not in held]:
        yield Adds(name, news, abandons=news[-1] is added[-1] and gives_up(theirs))
    is_explained = bool(added) and seen.status in _NEXT[added[-1].type]
    if not was or is_explained or any(seen.status == each.status for each in known):
        return
    yield Moves(name, seen.status) if may_move(now.status, seen.status) else Rewrites(name)


def gives_up(record: Clarification) -> bool:
    """Whether the last entry of a record says why it was closed without an answer."""
    return (
        record.status == "abandoned" and record.thread[-1:] != () and record.thread[-1].type == "resolution"
    )


def may_move(now: str, to: str) -> bool:
    """Returns whether another implementation may set this status without an entry."""
    if to == "resolved":
        return now == "answered"
    return now in OPEN and (to == "abandoned" or (to == "escalated" and now != "escalated"))


def opening(item: Raw) -> tuple[Clarification, Clarification]:
    """Returns a clarification of others as it began, and as it is. It begins with its question alone, asked by an agent.
    Whatever else a file says of it has to compete like any other entry, and what only we know it cannot say.
    """
    theirs = _read(item)
    assert theirs is not None  # noqa: S101 - `acts` opens nothing else
    asker = _author(theirs.from_)
    thread = tuple(each.model_copy(update={"from_": asker, "round": 1}) for each in theirs.thread[:1])
    begun = {"status": "pending", "round": 1, "resolved_at": None, "revision": 1, "thread": thread}
    return theirs.model_copy(update={**begun, "id": name_of(item), "from_": asker}), theirs


def rendered(file: Raw, record: Raw) -> Raw:
    """Returns what the file should contain: the records as they are, and everything else that others wrote."""
    ours = {identity(item): item for item in record["clarifications"]}
    items: list[Any] = []
    done = set[str]()
    for name, item in named(file.get("clarifications", ())):
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
    kept = _OURS - {"aaep"}  # which we keep where we have none, though we never read it
    more = {key: each for key, each in theirs.items() if key not in ours and key not in kept}
    if not more or (now := read_item(ours)) is None or is_forgotten(now):
        return ours
    # Whatever is wrong with the rest of theirs, it is the same one by these.
    begun = _read({**ours, **{key: theirs.get(key) for key in _BEGUN}, "thread": _thread(theirs)[:1]})
    return {**more, **ours} if begun is not None and is_same(begun, now) else ours


_BEGUN = ("from", "created", "topic")
_FIELDS = ("id", "issueNumber", *_BEGUN, "to", "blocking", "maxRounds", "aaep")
_OURS = frozenset({*_FIELDS, "status", "round", "staleAfter", "resolvedAt", "thread", "revision"})


def base_of(file: Sequence[Any]) -> dict[str, Seen]:
    """Returns what the bridge stores about a file that it wrote or read."""
    read = ((name, item, _read(item)) for name, item in named(file))
    return {name: Seen.of(item, record) for name, item, record in read if record is not None}


def unreadable(issue: int, file: Sequence[Any], known: Container[str]) -> dict[str, InvalidRecord]:
    """Returns why items of a file that are meant as records are left alone: nobody sees their questions. By what the bridge
    remembers them by. `known`: the ids of those that may be long.
    """
    found = list[InvalidRecord | None]()
    for at, (name, item) in enumerate(named(file), 1):
        if not isinstance(item, dict) or item.get("status") is None:
            continue
        if (record := _read(item)) is None:
            found.append(why_invalid(issue, at, item))
        elif name not in known and is_too_long(item):
            why = (f"too long, at most {BODY_LIMIT} characters",)
            found.append(InvalidRecord(issue, name, why, _author(record.from_), record.status in DONE))
    return {f"odd {each.name}": each for each in found if each is not None}


def finished_at(file: Sequence[Any]) -> float:
    """Returns when the records of a file were all finished, as it says itself; inf: they are not, or one cannot be read."""
    read = [_read(item) for item in file]
    return max(
        (each.last_change.timestamp() if each and each.status in DONE else inf for each in read), default=inf
    )


def is_too_long(item: Raw) -> bool:
    """Whether a new clarification of others is longer than agents may ask."""
    begun, _ = opening(item)
    return any(len(each.body) > BODY_LIMIT for each in begun.thread) or len(encode(dump(begun))) > _LARGEST


def named(file: Sequence[Any]) -> list[tuple[str, Any]]:
    """Returns the items of a file by their ids. One whose id is only another spelling of another's keeps it as written."""
    written = {identity(item) for item in file}
    return [(identity(item) if (name := name_of(item)) in written else name, item) for item in file]


def name_of(item: object) -> str:
    """Returns the id of an item as we spell it: other programs may pad its numbers otherwise."""
    match = ID.fullmatch(name := identity(item))
    return name if match is None else f"CLR-{int(match[1])}-{int(match[2]):03d}"


def _read(item: object) -> Clarification | None:
    """Returns what an item says, whatever stands in the part that only we know. None: it is no record of the protocol."""
    if not isinstance(item, dict) or isinstance(item, Stray):
        return None
    return read_item(type(item)({name: each for name, each in item.items() if name != "aaep"}))


def _thread(item: Raw) -> list[Any]:
    found = item.get("thread")
    return found if isinstance(found, list) else []


def _author(name: str) -> str:
    return author_of(name).removeprefix("agent:")


def _entry_digest(entry: Entry) -> str:
    return _digest([entry.round, _author(entry.from_), entry.type, entry.body])


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=9).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a value without what may be left out or written differently: nulls, and 1.0 for 1."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
