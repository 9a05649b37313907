"""What is common to all that parties do to clarifications, and how it is told whether it came out right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from core.answers import from_text
from core.clarification import Answer, Clarification, Decider, NotOpen
from core.errors import ClarifyError
from tests.unit.core.parties import Party
from tests.unit.core.witness import DONE, OPEN, Raw, Witness, when

MINUTE = timedelta(minutes=1)
Time = Literal["now", "early", "expired"]


class Move(ABC):
    """`alone`: nobody else moves meanwhile, so that it can be said what must come of it."""

    @abstractmethod
    async def make(self, party: Party, witness: Witness, alone: bool) -> None: ...


def expect(true: object, *what: object) -> None:
    if not true:
        raise AssertionError(*what)


def pick(witness: Witness, which: int, likely: Callable[[Raw], bool] = lambda _: False) -> Raw | None:
    """One of the records: those that are `likely` first, of these the latest."""
    records = witness.records()[::-1]
    records.sort(key=lambda one: not likely(one))
    return records[which % len(records)] if records else None


def is_open(record: Raw) -> bool:
    return record["status"] in OPEN


def is_answered(record: Raw) -> bool:
    return bool(record["status"] == "answered")


def waits_for_reply(record: Raw) -> bool:
    """Its producer was answered, or is about to be."""
    return (record.get("aaep") or {}).get("reply") is not None


def is_answered_elsewhere(record: Raw) -> bool:
    asked = record.get("aaep") or {}
    waits = asked.get("replyToken") is not None and asked.get("response") is None
    return waits and record["status"] in {"answered", "resolved"}


def kept(record: Clarification, witness: Witness) -> None:
    """What a call returned is in the file, whatever others did since."""
    there = witness.record(record.id)
    bodies = [(entry.type, entry.from_, entry.body) for entry in record.thread]
    found = [(entry["type"], entry["from"], entry["body"]) for entry in there["thread"]]
    expect(found[: len(bodies)] == bodies and there["revision"] >= record.revision, record.id, "not kept")


def refused(error: ClarifyError, before: Raw, witness: Witness, alone: bool, codes: set[str]) -> None:
    """It was refused for a reason that there is; at most its time was found to have run out."""
    if error.code not in codes:
        raise error
    if not alone:
        return
    changed = [(change.after["id"], change.after["status"]) for change in witness.changes]
    expect(changed in ([], [(before["id"], "abandoned")]), changed, error)
    if isinstance(error, NotOpen) and error.code != "SUPERSEDED":
        expect(changed or before["status"] in {*DONE, "answered"}, before["status"], error)


def ran_out(record: Raw, at: datetime) -> bool:
    expires = (record.get("aaep") or {}).get("expiresAt")
    return expires is not None and when(expires) <= at


def words_for(record: Raw, *, fits: bool) -> str:
    kinds = (record.get("aaep") or {}).get("kinds", ["freetext"])
    if "freetext" in kinds:
        return "As you like it" if fits else "  "
    return ("yes" if "yes_no" in kinds else "2") if fits else "perhaps"


def reader(text: str) -> Callable[[Clarification], Answer]:
    return lambda record: from_text(record.asked, text)


def person(number: int) -> Decider:
    return Decider(f"user:slack/T1/U{number}", "slack", "T1", f"U{number}")


def time_of(at: Time, record: Raw, party: Party) -> datetime:
    expires = (record.get("aaep") or {}).get("expiresAt")
    late = when(expires) + MINUTE if expires else party.clock.now()
    return {"now": party.clock.now(), "early": party.clock.now() - 5 * MINUTE, "expired": late}[at]
