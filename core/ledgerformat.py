"""Reads and writes the contents of ledger files: records of an issue in the Clarification Protocol's format (architecture §5).

What only this project knows of a record stands in one object there, `aaep`: the current round, without its parts, and with
those before it as `earlier`. What other programs add stays as it is: unknown fields, and items that are no records of the issue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from core.clarification import DONE, ID, PARTS, Clarification, Confirmation, Record, Round
from core.records import Halved, Raw, forgotten, parse, read_json

_NAME = 60  # characters of an id that are shown


def _placed(model: type[Record], *path: str) -> dict[str, tuple[str, ...]]:
    """Returns where a round has each field of one of its parts, by both of its names."""
    fields = model.model_fields.items()
    return {name: path for field, info in fields for name in (field, info.alias or field)}


_NESTED = frozenset({*PARTS, "wanted"})
_PATHS = {name: path for part, model in PARTS.items() for name, path in _placed(model, part).items()}
_PATHS |= _placed(Confirmation, "question", "wanted")
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


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
    `is_over`: its own status says that it is finished.
    """

    issue: int
    name: str
    fields: tuple[str, ...]
    agent_id: str | None
    is_over: bool


def decode(content: bytes, issue: int | None = None) -> Raw:
    """Decodes a ledger. With `issue`, marks objects that are not its records (see `Stray`).

    Raises:
        ValueError: not a ledger; the message says why, without content.
    """
    raw, is_halved = read_json(content)
    if not isinstance(raw, dict) or not isinstance(raw.get("clarifications"), list):
        raise ValueError('expected an object with a list "clarifications"')  # noqa: TRY004 - one error for "no ledger"
    if issue is not None:
        raw["clarifications"] = list(_marked(issue, raw["clarifications"], is_halved=is_halved))
    return raw


def _marked(issue: int, items: list[Any], *, is_halved: bool) -> Iterator[Any]:
    """Yields the items with strays marked. If several have the same id, the first one counts, as in every lookup."""
    taken: set[str] = set()
    for item in items:
        match = ID.fullmatch(name) if (name := identity(item)) else None
        if match is None:
            yield item
        elif int(match[1]) != issue or name in taken:
            yield Stray(item)
        elif item.get("issueNumber", item.get("issue_number", issue)) not in (issue, str(issue)):
            yield Stray(item, "issueNumber")
        else:
            yield Halved(item) if is_halved else item
        taken.add(name)


def encode(raw: Raw) -> bytes:
    """Returns the contents of a ledger file."""
    try:
        return to_json(raw, indent=2)  # the same output as json, many times faster with an indent
    except ValueError:
        # See `core.records.packed`.
        return json.dumps(raw, indent=2).encode()


def as_item(raw: Raw) -> Raw:
    """Returns the JSON of a record as a ledger holds it."""
    item = {name: each for name, each in raw.items() if name != "rounds"}
    if rounds := raw.get("rounds"):
        *earlier, current = map(_flat, rounds)
        item["aaep"] = {**current, "earlier": earlier}
    return Halved(item) if isinstance(raw, Halved) else item


def as_raw(item: Raw) -> Raw:
    """Returns an item of a ledger as our record's JSON. A broken earlier round counts as empty."""
    raw = {name: each for name, each in item.items() if name not in {"aaep", "rounds"}}
    asked = item.get("aaep")
    if isinstance(asked, dict):
        current = {name: each for name, each in asked.items() if name != "earlier"}
        past = asked.get("earlier")
        raw["rounds"] = [*map(_past, past if isinstance(past, list) else []), _in_parts(current)]
    elif asked is not None:
        raw["rounds"] = None  # it is no record then
    return Halved(raw) if isinstance(item, Halved) else raw


def _flat(asked: Raw) -> Raw:
    """Returns a round's JSON without its parts: the names of their fields are unique."""
    own: Raw = {name: each for name, each in asked.items() if name not in PARTS}
    for part in PARTS:
        own |= asked.get(part, {})
    own |= own.pop("wanted", {})
    return own


def _in_parts(asked: Raw) -> Raw:
    found: Raw = {}
    for name, each in asked.items():
        if name in _NESTED:  # another program's field: a flat round has no parts
            continue
        place = found
        for part in _PATHS.get(name, ()):
            place = place.setdefault(part, {})
        place[name] = each
    return found


def _past(asked: object) -> object:
    past = _in_parts(asked) if isinstance(asked, dict) else asked
    try:
        Round.model_validate(past)
    except ValidationError:
        return {"question": {"kinds": []}}
    return past


def read_item(item: object) -> Clarification | None:
    """Returns the record of an item of a ledger; None: it is none."""
    return parse(as_raw(item)) if isinstance(item, dict) else None


def blanked(item: object) -> Raw:
    """Returns an item of a ledger without its contents; unchanged if it has none (`core.records.forgotten`)."""
    raw = as_raw(item) if isinstance(item, dict) else {}
    gone = forgotten(raw)
    return as_item(gone) if gone != raw or not isinstance(item, dict) else item


def identity(item: object) -> str:
    """Returns the id of an item, as written; empty: it has none."""
    return str(item.get("id")) if isinstance(item, dict) else ""


def why_invalid(issue: int, position: int, item: object) -> InvalidRecord | None:
    """Returns why an item of a ledger (`position` from 1) is not a record, without its contents, or None if it is one."""
    fields = {item.field} if isinstance(item, Stray) else set()
    try:
        Clarification.model_validate(as_raw(item) if isinstance(item, dict) else item)
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
    )


def _field(path: tuple[int | str, ...]) -> str:
    """Returns the path of an invalid field, without unusual keys: they may be contents."""
    if path[:1] == ("rounds",):
        path = ("aaep", *(part for part in path[2:] if part not in _NESTED))
    known = [str(part) for part in path if isinstance(part, int) or _FIELD.fullmatch(part)]
    return ".".join(known[:3]) or "record"
