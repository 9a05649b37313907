"""The words of an escalation: all that somebody who was woken needs to decide, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core import answers
from core.clarification import Clarification, Why

LIMIT = 1500
_POSITION = 300
_WHO, _ANSWERED = 60, " answered"
_SHOWN = 6  # lines of others
_REASONS: dict[Why, str] = {
    "stale": "Nobody answered in time, nor after a reminder.",
    "stuck": "The same is being said again; it does not get on by itself.",
    "deadlocked": "Agents wait for each other in a circle; it takes a person to break it.",
    "rounds exhausted": "Rounds exhausted: asked again after {rounds} rounds.",
    "agent failed": "The agent that was asked could not answer, twice.",
    "by hand": "Somebody passed this on to the person on call.",
}


def escalation_words(
    record: Clarification, why: Why, others: Sequence[Clarification] = (), reason: str | None = None
) -> str:
    """Why it was escalated, its topic, each side's position in its own words, and the options on the table.

    One line each, at most 1500 characters in all.

    Args:
        record: the clarification as it stands, the latest question in it.
        why: the reason.
        others: those that it is in a circle with, or that ask the same in the other direction.
        reason: what is known more exactly than by `why`.
    """
    head = [_clip(reason, _POSITION) if reason else _REASONS[why].format(rounds=record.max_rounds)]
    if record.topic.strip():
        head.append(f"Topic: {_clip(record.topic, 150)}")
    sides, untold = _sides(record, [other for other in others if other.id != record.id])
    tail = [f"And {untold} more."] if untold else []
    tail += [*_options(record), *_otherwise(record)]
    around = sum(len(line) + 1 for line in (*head, *tail)) + sum(len(who) + len(": “”\n") for who, _ in sides)
    each = min(_POSITION, (LIMIT - around) // len(sides))
    return "\n".join([*head, *(f"{who}: “{_clip(said, each)}”" for who, said in sides), *tail])


def _sides(record: Clarification, others: Sequence[Clarification]) -> tuple[list[tuple[str, str]], int]:
    """Who speaks and what they said last; how many of `others` are left out, so that each still says something."""
    sides = [_question(record), *_answer(record)]
    room = len(sides) + _SHOWN
    for told, other in enumerate(others):
        lines = _of_other(other, record)
        if len(sides) + len(lines) > room:
            return sides, len(others) - told
        sides += lines
    return sides, 0


def _of_other(other: Clarification, record: Clarification) -> list[tuple[str, str]]:
    """What was said in another one; a question that was said already is not said again."""
    named = f"{other.id}, "
    answer = _answer(other, named)
    is_over = bool(answer) or not other.is_open
    return answer if is_over and _asked(other) == _asked(record) else [_question(other, named), *answer]


def _asked(record: Clarification) -> tuple[str, str, str]:
    return record.from_, record.to, _one_line(record.question)


def _question(record: Clarification, prefix: str = "") -> tuple[str, str]:
    return _clip(f"{prefix}{record.from_} asks {record.to}", _WHO), record.question


def _answer(record: Clarification, prefix: str = "") -> list[tuple[str, str]]:
    last = next((entry for entry in reversed(record.thread) if entry.type == "answer"), None)
    if last is None:
        return []
    return [(f"{_clip(prefix + last.from_, _WHO - len(_ANSWERED))}{_ANSWERED}", last.body)]


def _options(record: Clarification) -> list[str]:
    if wanted := record.asked.confirmation:
        way_back = ", irreversible" if wanted.is_irreversible else ""
        risk = _clip(wanted.risk_level or "not said", 60)
        return [f"Options: {' · '.join(wanted.allowed)} (risk: {risk}{way_back})"]
    labels = [_clip(option.label, 60) for option in record.asked.choices]
    return [f"Options: {_clip(' · '.join(labels), 200)}"] if labels else []


def _otherwise(record: Clarification) -> list[str]:
    default = answers.default_label(record.asked)
    return [f"Assumed otherwise: {_clip(default, 100)}"] if default else []


def _clip(text: str, limit: int) -> str:
    """On one line, so that nobody's words look like a line of ours."""
    words = _one_line(text)
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
