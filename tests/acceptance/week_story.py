"""What a simulated week tells: every change of a clarification, every act of a person; and the clock that jumps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from core.clarification import Ask, Confirmation
from tests.acceptance.week_plan import Question
from tests.kit.builders import ask


@dataclass(frozen=True)
class Change:
    """A clarification as it was written at `at` (true time), when the bot's clock said `wall`."""

    at: float
    wall: datetime
    id: str
    status: str
    round: int
    nudges: int
    asked_last: datetime
    expires_at: datetime | None
    stale_after: datetime | None
    escalated_at: str | None
    escalated_for: str | None
    taken_by: str | None
    handed_to: str | None
    needed: int
    accepted: tuple[str, ...]
    response: str | None
    decided: str | None


@dataclass(frozen=True)
class CardAct:
    """What somebody did with a card. `confirmed`: they were told that it was done, or nothing else."""

    began: float
    at: float
    user: str
    verb: str
    clarification: str
    confirmed: bool


@dataclass(frozen=True)
class Act:
    """What somebody did with a page. `confirmed`: they were told that it was done; else nobody knows."""

    began: float
    at: float
    user: str
    verb: str
    page: int
    confirmed: bool


@dataclass
class Story:
    """What happened, as everybody but the bot saw it."""

    changes: dict[str, list[Change]] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    card_acts: list[CardAct] = field(default_factory=list)
    lives: list[tuple[float, float]] = field(default_factory=list)
    active: dict[str, list[float]] = field(
        default_factory=dict
    )  # when somebody did something in their direct messages
    jumps: list[tuple[float, float]] = field(default_factory=list)


class WeekClock:
    """What the machine says: true time, and all the jumps so far."""

    def __init__(self, beginning: datetime) -> None:
        self._beginning = beginning
        self.offset = 0.0

    def now(self) -> datetime:
        return self._beginning + timedelta(seconds=asyncio.get_running_loop().time() + self.offset)

    def steady(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def jump(self, by: float) -> None:
        self.offset += by


def ask_of(question: Question, number: int, now: datetime) -> Ask:
    expires = None if question.ttl is None else now + timedelta(seconds=question.ttl)
    words = f"Which way {question.number * 7919} for part {question.number}, asked {number} times?"
    return ask(
        agent_id=question.agent,
        session_id=question.session,
        event_id=f"e{question.number}.{number}",
        reply_token="",
        asked_at=now,
        received_at=now,
        expires_at=expires,
        question=words,
        topic=f"part {question.number}",
        kinds=("confirmation",) if question.needs else ("freetext",),
        wanted=Confirmation(action=f"do part {question.number}") if question.needs else None,
        approvals_needed=question.needs if question.needs > 1 else None,
    )


def change_of(item: dict[str, Any], at: float, wall: datetime) -> Change:
    asked = item.get("aaep") or {}
    questions = [entry["timestamp"] for entry in item["thread"] if entry["type"] == "question"]
    return Change(
        at,
        wall,
        item["id"],
        item["status"],
        item["round"],
        asked.get("nudges", 0),
        _moment(questions[-1]) or wall,
        _moment(asked.get("expiresAt")),
        _moment(item.get("staleAfter")),
        asked.get("escalatedAt"),
        asked.get("escalatedFor"),
        (asked.get("takenBy") or {}).get("user"),
        (asked.get("handedTo") or {}).get("user"),
        asked.get("approvalsNeeded") or 1,
        tuple(each["user"] for each in asked.get("approvals") or ()),
        asked.get("response"),
        (asked.get("answeredBy") or {}).get("user"),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def differs(one: Change, other: Change) -> bool:
    facts = ("status", "round", "nudges", "taken_by", "handed_to", "escalated_at", "accepted")
    return any(getattr(one, name) != getattr(other, name) for name in facts)
