"""The words of an escalation: all that somebody who was woken needs to decide, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.clarification import Clarification, Why

LIMIT = 1500
_POSITION = 300
_OTHERS = 6
_REASONS: dict[Why, str] = {
    "stale": "Nobody answered in time, nor after a reminder.",
    "stuck": "The same is being said again; it does not get on by itself.",
    "deadlocked": "Agents wait for each other in a circle; none of them goes on before this is answered.",
    "rounds exhausted": "Rounds exhausted: asked again after {rounds} rounds.",
    "by hand": "Somebody passed this on to the person on call.",
}


def escalation_words(record: Clarification, why: Why, others: Sequence[Clarification] = ()) -> str:
    """Why it was escalated, its topic, each side's position in its own words, and the options on the table.

    One line each, at most 1500 characters in all.

    Args:
        record: the clarification as it stands, the latest question in it.
        why: the reason.
        others: those that it is in a circle with, or that ask the same in the other direction.
    """
    head = [_REASONS[why].format(rounds=record.max_rounds)]
    if record.topic.strip():
        head.append(f"Topic: {_clip(record.topic, 200)}")
    tail = [*_options(record), *_otherwise(record)]
    sides = _positions(record, others)
    room = LIMIT - sum(len(line) + 1 for line in (*head, *tail))
    each = min(_POSITION, room // max(1, len(sides)) - _LABEL - 1)
    return "\n".join(
        [*head, *(f"{_clip(who, _LABEL - 4)}: “{_clip(said, each)}”" for who, said in sides), *tail]
    )


_LABEL = 84  # who speaks, and the marks around what is said


def _positions(record: Clarification, others: Sequence[Clarification]) -> list[tuple[str, str]]:
    sides = [(f"{record.from_} asks {record.to}", record.question)]
    answers = [entry for entry in record.thread if entry.type == "answer"]
    if answers:
        sides.append((f"{answers[-1].from_} answered", answers[-1].body))
    shown = [other for other in others if other.id != record.id]
    sides += [(f"{other.id}: {other.from_} asks {other.to}", other.question) for other in shown[:_OTHERS]]
    if len(shown) > _OTHERS:
        sides.append(("And", f"{len(shown) - _OTHERS} more"))
    return sides


def _options(record: Clarification) -> list[str]:
    labels = [_clip(option.label, 60) for option in record.asked.choices]
    return [f"Options: {_clip(' · '.join(labels), 250)}"] if labels else []


def _otherwise(record: Clarification) -> list[str]:
    default = record.asked.default_response
    return [f"Assumed otherwise: {_clip(default, 150)}"] if default else []


def _clip(text: str, limit: int) -> str:
    """On one line, so that nobody's words look like a line of ours."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"
