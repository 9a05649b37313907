"""What may become of records when our code writes them, judged from the outside: plain JSON, none of core's code.

The table of statuses is the design's ("Status"), written down once more.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.ledgerfiles import as_item

Raw = dict[str, Any]
LEGAL = {
    ("pending", "answered"),
    ("pending", "escalated"),
    ("pending", "abandoned"),
    ("stale", "pending"),
    ("stale", "answered"),
    ("stale", "escalated"),
    ("stale", "abandoned"),
    ("answered", "resolved"),
    ("answered", "pending"),
    ("answered", "escalated"),
    ("escalated", "resolved"),
    ("escalated", "abandoned"),
}
OPEN, DONE = {"pending", "stale", "escalated"}, {"resolved", "abandoned"}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_RECORD = _set(
    "id issueNumber from to topic blocking status round maxRounds created staleAfter resolvedAt thread revision aaep"
)
_FIXED = ("id", "issueNumber", "from", "to", "topic", "blocking", "maxRounds", "created")
_ANSWER = ("response", "label", "decidedBy", "answeredAt", "answeredBy")
# What may change of `aaep` while the question stays the same.
_NEWS = _set("reply replyNote wentOnAt closed nudges nudgedAt escalatedAt escalatedFor takenBy handedTo") | {
    *_ANSWER
}


@dataclass(frozen=True)
class Change:
    """What one write made of one record; `before` is None for a new one. `by`: who wrote it."""

    by: object
    before: Raw | None
    after: Raw


class Witness:
    """Sees every version of every record in the order in which they were written, and says what was wrong."""

    def __init__(self) -> None:
        self.latest: dict[str, Raw] = {}
        self.faults: list[str] = []
        self.changes: list[Change] = []  # since it was last cleared
        # Questions on record by issue, session, token and words, and those that somebody began to ask.
        self.asked: set[tuple[int, str, str, str]] = set()
        self.tried: set[tuple[int, str, str, str]] = set()
        self._guard = threading.Lock()

    def saw(self, written: Iterable[Raw], by: object) -> None:
        with self._guard:
            for after in map(_as_read, written):
                before = self.latest.get(after["id"])
                self.faults += [f"{after['id']}: {fault}" for fault in judge(before, after)]
                if before is None:
                    self._number(after)
                self.latest[after["id"]] = after
                self.changes.append(Change(by, before, after))

    def records(self) -> list[Raw]:
        """In the order of issues and numbers."""
        return sorted(self.latest.values(), key=_place)

    def record(self, named: str) -> Raw:
        return self.latest[named]

    def _number(self, new: Raw) -> None:
        """The numbers of an issue begin with 1, and none is left out or given twice."""
        issue, count = (
            new["issueNumber"],
            sum(one["issueNumber"] == new["issueNumber"] for one in self.records()),
        )
        if new["id"] != f"CLR-{issue}-{count + 1:03d}":
            self.faults.append(f"{new['id']} is number {count + 1} of issue {issue}")


def _as_read(written: Raw) -> Raw:
    """As the next one reads it."""
    return as_item(json.loads(json.dumps(written)))


def _place(record: Raw) -> tuple[int, int]:
    _, issue, number = record["id"].split("-")
    return int(issue), int(number)


def judge(before: Raw | None, after: Raw) -> list[str]:
    """What is wrong with a write that found `before` and left `after`."""
    return _judge_new(after) if before is None else _judge_record(before, after)


def _judge_new(new: Raw) -> list[str]:
    """It waits for an answer, or is with people from the start, since the matter has used up its rounds before."""
    ways = {"pending": ["question"], "escalated": ["question", "escalation"]}
    faults = []
    if [entry["type"] for entry in new["thread"]] != ways.get(new["status"]) or new["resolvedAt"] is not None:
        faults.append(f"a new one is {new['status']}")
    if new["round"] != 1 or any(entry["round"] != 1 for entry in new["thread"]) or new["maxRounds"] < 1:
        faults.append("a new one does not begin with round 1")
    return faults + ([] if new["revision"] >= 1 else ["a new one has no revision"])


def _judge_record(old: Raw, new: Raw) -> list[str]:
    faults = _lost(old, new, _RECORD, "the record")
    faults += [f"{key} changed" for key in _FIXED if old[key] != new[key]]
    if new["revision"] <= old["revision"]:
        faults.append(f"revision went from {old['revision']} to {new['revision']}")
    if (new["resolvedAt"] is not None) != (new["status"] in DONE):
        faults.append(f"resolvedAt is {new['resolvedAt']} of one that is {new['status']}")
    kept, added = new["thread"][: len(old["thread"])], new["thread"][len(old["thread"]) :]
    if kept != old["thread"]:
        return [*faults, "an entry of the thread was lost or changed"]
    faults += _judge_rounds(old, new, added) + _judge_entries(old, new, added)
    return faults + _judge_path(old, new, added) + _judge_aaep(old, new, added)


def _judge_rounds(old: Raw, new: Raw, added: list[Raw]) -> list[str]:
    faults = []
    asked = [one["type"] for one in added].count("question")
    if not old["round"] <= new["round"] <= old["round"] + asked or asked > 1:
        faults.append(f"round went from {old['round']} to {new['round']} by {asked} questions")
    if new["round"] > max(new["maxRounds"], old["round"]):
        faults.append(f"round {new['round']} of {new['maxRounds']}")
    if any(one["round"] not in {old["round"], new["round"]} for one in added):
        faults.append("an entry of no round")
    if any(one["round"] != new["round"] for one in added if one["type"] in {"question", "answer"}):
        faults.append("a question or answer of another round")
    return faults


def _judge_entries(old: Raw, new: Raw, added: list[Raw]) -> list[str]:
    """Every change of the status has its entry, and no question has two answers."""
    kinds = [one["type"] for one in added]
    faults = []
    if "answer" in kinds:
        if kinds.count("answer") > 1 or (old["status"] not in OPEN) or _has_answer(old["thread"]):
            faults.append("an answer to what was answered or closed")
        if new["status"] in OPEN or new["aaep"].get("response") is None:
            faults.append("an answer that is not kept")
    needs = {"answered": "answer", "escalated": "escalation", "abandoned": "resolution"}
    needed = needs.get(new["status"])
    if old["status"] != new["status"] and needed not in {None, *kinds}:
        faults.append(f"{new['status']} without {needed}")
    if old["status"] == "answered" and new["status"] == "pending" and "question" not in kinds:
        faults.append("pending again without a question")
    return faults


def _has_answer(thread: list[Raw]) -> bool:
    """Whether the latest question has one."""
    kinds = [one["type"] for one in thread]
    last = max((place for place, kind in enumerate(kinds) if kind == "question"), default=-1)
    return "answer" in kinds[last + 1 :]


def _judge_path(old: Raw, new: Raw, added: list[Raw]) -> list[str]:
    """The statuses that the entries speak of, each step one of the table."""
    path = [old["status"]]
    for entry in added:
        there = path[-1]
        leads = {
            "question": "pending",
            "answer": "resolved" if there == "escalated" else "answered",
            "escalation": "escalated",
            "resolution": "abandoned" if new["status"] == "abandoned" else "resolved",
        }
        path.append(leads[entry["type"]])
    path.append(new["status"])
    steps = [(one, other) for one, other in itertools.pairwise(path) if one != other]
    return [f"{one} became {other}" for one, other in steps if (one, other) not in LEGAL]


def _judge_aaep(old: Raw, new: Raw, added: list[Raw]) -> list[str]:
    one, other = old["aaep"], new["aaep"]
    if other.get("earlier", []) != one.get("earlier", []):
        return _judge_next(one, other, added)
    fixed = (set(one) | set(other)) - _NEWS
    faults = [f"aaep.{key} changed" for key in sorted(fixed) if one.get(key) != other.get(key)]
    answered = any(entry["type"] == "answer" for entry in added)
    if one.get("response") is not None and not answered:
        faults += [f"aaep.{key} of an answer changed" for key in _ANSWER if one.get(key) != other.get(key)]
        if one.get("reply") == "confirmed" != other.get("reply"):
            faults.append("a confirmed reply is not confirmed any more")
    if other.get("reply") is not None and other.get("response") is None:
        faults.append(f"the reply to an open question is {other['reply']}")
    return faults


def _judge_next(one: Raw, other: Raw, added: list[Raw]) -> list[str]:
    """A next question: what the one before was is kept, with its answer."""
    if not any(entry["type"] == "question" for entry in added):
        return ["aaep.earlier changed without a question"]
    kept = {key: value for key, value in one.items() if key != "earlier" and value is not None}
    *before, last = other["earlier"]
    if before != one.get("earlier", []) or any(last.get(key) != value for key, value in kept.items()):
        return ["what the round before was is lost"]
    return [] if other.get("response") is None and other.get("reply") is None else ["an answer nobody gave"]


def _lost(old: Raw, new: Raw, known: frozenset[str], where: str) -> list[str]:
    lost = [key for key in old if key not in known and (key not in new or new[key] != old[key])]
    return [f"{', '.join(lost)} of {where} lost"] if lost else []
