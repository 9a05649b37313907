"""The words of an escalation: all that somebody who was woken needs to decide, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.clarification import Clarification, Why

LIMIT = 1500
_POSITION = 300
_SHOWN = 6
_REASONS: dict[Why, str] = {
    "stale": "Nobody answered in time, nor after a reminder.",
    "stuck": "The same is being said again; it does not get on by itself.",
    "deadlocked": "Agents wait for each other in a circle; it takes a person to break it.",
    "rounds exhausted": "Rounds exhausted: asked again after {rounds} rounds.",
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
    others = [other for other in others if other.id != record.id]
    sides = _sides(record, others[:_SHOWN])
    tail = [f"And {len(others) - _SHOWN} more."] if len(others) > _SHOWN else []
    tail += [*_options(record), *_otherwise(record)]
    around = sum(len(line) + 1 for line in (*head, *tail)) + sum(len(who) + len(": “”\n") for who, _ in sides)
    each = min(_POSITION, (LIMIT - around) // len(sides))
    return "\n".join([*head, *(f"{who}: “{_clip(said, each)}”" for who, said in sides), *tail])


def _sides(record: Clarification, others: Sequence[Clarification]) -> list[tuple[str, str]]:
    """Who speaks, and what they said last."""
    sides = [(f"{record.from_} asks {record.to}", record.question)]
    answers = [entry for entry in record.thread if entry.type == "answer"]
    if answers:
        sides.append((f"{answers[-1].from_} answered", answers[-1].body))
    sides += [(f"{other.id}, {other.from_} asks {other.to}", other.question) for other in others]
    return [(_clip(who, 50), said) for who, said in sides]


def _options(record: Clarification) -> list[str]:
    labels = [_clip(option.label, 60) for option in record.asked.choices]
    return [f"Options: {_clip(' · '.join(labels), 200)}"] if labels else []


def _otherwise(record: Clarification) -> list[str]:
    default = record.asked.default_response
    return [f"Assumed otherwise: {_clip(default, 100)}"] if default else []


def _clip(text: str, limit: int) -> str:
    """On one line, so that nobody's words look like a line of ours."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"
