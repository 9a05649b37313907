"""A record without what was said in it: who asked whom when, and how it ended, stay for everybody who reads the file.

What is kept is listed here; all else goes, unknown fields too. Pure, and the same when it is done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.book import Raw, parse
from core.clarification import ID, US, Clarification

FORGOTTEN = "(forgotten)"
_MARK = "forgotten"
_REASONS = frozenset(
    {"expired", "cancelled", "session ended", "requester moved on", "by hand", "resolved elsewhere"}
)
_RECORD = (
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
_AAEP = (
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


def is_of_session(item: object, session: str, producer: str | None = None) -> bool:
    """Whether an item of a ledger's list came from a session, of any producer if none is named."""
    asked = item.get("aaep") if isinstance(item, dict) else None
    if not isinstance(asked, dict) or asked.get("sessionId") != session:
        return False
    return producer is None or asked.get("producer") == producer


def is_unsettled(record: Clarification) -> bool:
    """Whether somebody still waits: for an answer, or for one that is on its way."""
    return record.is_open or record.asked.reply == "sending" or record.is_adoptable


def forgotten(item: object) -> Raw:
    """An item of a ledger's list without content. One that is forgotten already comes back equal."""
    raw = item if isinstance(item, dict) else {}
    record = parse(raw)
    if record is None:
        return _placeholder(raw)
    kept = _only(_as_written(record), _RECORD)
    kept |= {"from": _role(record.from_), "to": _role(record.to), "topic": FORGOTTEN}
    kept["thread"] = [_entry(entry, record) for entry in _as_written(record)["thread"]]
    if record.aaep is not None:
        kept["aaep"] = _aaep(_as_written(record)["aaep"])
    if parse(kept) == record:
        return raw  # it says no more than that
    return kept | {"revision": record.revision + 1}


def forget_in(raw: Raw, wanted: Iterable[int]) -> bool:
    """Forget the items at some places of a ledger's list; whether that changed anything."""
    items, changed = raw["clarifications"], False
    for place in wanted:
        after = forgotten(items[place])
        changed |= after != items[place]
        items[place] = after
    return changed


def _aaep(asked: Mapping[str, Any]) -> Raw:
    kept = _only(asked, _AAEP) | {_MARK: True}
    if kept.get("reply") == "sending":
        kept["reply"] = "unconfirmed"  # it may have been sent; it will not be sent again
    for name in ("response", "label"):
        if asked.get(name) is not None:
            kept[name] = FORGOTTEN
    if isinstance(closed := asked.get("closed"), str):
        kept["closed"] = closed if closed in _REASONS else FORGOTTEN
    if isinstance(decided := asked.get("decidedBy"), str):
        kept["decidedBy"] = decided if decided.startswith("agent:") else FORGOTTEN
    if isinstance(by := asked.get("answeredBy"), dict):
        kept["answeredBy"] = {"surface": by.get("surface", "")}
    kept["earlier"] = [_aaep(past) for past in asked.get("earlier") or () if isinstance(past, dict)]
    return kept


def _entry(entry: Mapping[str, Any], record: Clarification) -> Raw:
    named = {record.from_, record.to, US}
    who = str(entry["from"])
    return {
        "round": entry["round"],
        "from": _role(who) if who in named or who.startswith("agent:") else FORGOTTEN,
        "type": entry["type"],
        "body": FORGOTTEN,
        "timestamp": entry["timestamp"],
    }


def _role(name: str) -> str:
    """The roles of agents stay; people do not."""
    return FORGOTTEN if name.startswith("user:") or "@" in name else name


def _placeholder(raw: Raw) -> Raw:
    """For what cannot be read: whatever is in it goes, its number stays taken."""
    name = raw.get("id")
    if not isinstance(name, str) or (match := ID.fullmatch(name)) is None:
        return {"status": "abandoned", _MARK: True}
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
    return {name: raw[name] for name in names if raw.get(name) is not None or name in _RECORD}
