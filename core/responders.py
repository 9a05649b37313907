"""How a role answers: the port that a responder fills, and what it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from core.aaep import Kind
from core.clarification import Clarification, Entry, Option
from core.clock import iso

_NAME = 80


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What a responder is told of a clarification. Its words are in no `repr`: they have no place in logs.

    `thread` holds all rounds so far, the question too. `answer_by` is on our clock; None: it never expires.
    `attempt` counts from 1; `last_error` says what was wrong with the attempt before.
    """

    clarification: str
    issue: int
    from_: str
    to: str
    topic: str = field(repr=False)
    question: str = field(repr=False)
    blocking: bool
    round: int
    max_rounds: int
    context: str | None = field(repr=False)
    kinds: tuple[Kind, ...]
    choices: tuple[Option, ...] = field(repr=False)
    thread: tuple[Entry, ...] = field(repr=False)
    answer_by: datetime | None
    attempt: int
    last_error: str | None = field(repr=False)

    @property
    def role(self) -> str:
        """The target's name as one line for people."""
        return role_name(self.to)

    def as_json(self) -> dict[str, Any]:
        """The message to a responder: JSON types only."""
        return {
            "clarificationId": self.clarification,
            "issueNumber": self.issue,
            "from": self.from_,
            "to": self.to,
            "topic": self.topic,
            "question": self.question,
            "blocking": self.blocking,
            "round": self.round,
            "maxRounds": self.max_rounds,
            "context": self.context,
            "acceptedResponseKinds": list(self.kinds),
            "choices": [{"value": choice.value, "label": choice.label} for choice in self.choices],
            "thread": [_entry(entry) for entry in self.thread],
            "answerBy": iso(self.answer_by) if self.answer_by else None,
            "attempt": self.attempt,
            "lastError": self.last_error,
        }


class Responder(Protocol):
    async def answer(self, inquiry: Inquiry) -> str:
        """The answer in words, as a person would type it.

        Cancelled, it stops whatever it started.

        Raises:
            AgentError: there is none that can be used. The message begins with the role and says what happened,
                without what was asked or answered.
        """
        ...


def inquiry_of(record: Clarification, attempt: int = 1, last_error: str | None = None) -> Inquiry:
    """What the target of `record` is asked in its current round (pure)."""
    asked = record.asked
    return Inquiry(
        clarification=record.id,
        issue=record.issue_number,
        from_=record.from_,
        to=record.to,
        topic=record.topic,
        question=record.question,
        blocking=record.blocking,
        round=record.round,
        max_rounds=record.max_rounds,
        context=asked.context,
        kinds=asked.kinds,
        choices=asked.choices,
        thread=record.thread,
        answer_by=record.expires_at,
        attempt=attempt,
        last_error=last_error,
    )


def role_name(role: str) -> str:
    """A role on one line, at most 80 characters: another implementation may write anything there."""
    line = " ".join("".join(char if char.isprintable() else " " for char in role).split())
    return line if len(line) <= _NAME else line[: _NAME - 1] + "…"


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "round": entry.round,
        "from": entry.from_,
        "type": entry.type,
        "body": entry.body,
        "timestamp": iso(entry.timestamp),
    }
