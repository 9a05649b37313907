"""The top-level `text` of a card: what a screen reader reads aloud and a notification shows.

It stands alone. Where 4000 characters do not hold all of it, it begins, says that the whole follows in
the thread, and `more` is the whole in pieces, as plain text. All else here is escaped already. Pure.
"""

from __future__ import annotations

from bot.views import consent, inert
from bot.views.rounds import (
    HOW_TO_COMMENT,
    Round,
    closed_words,
    default_words,
    escalation_reason,
    holder_words,
    instead_words,
    reply_words,
    sentence,
    words,
)
from core import answers
from core.aaep import Confirmation

PIECE = 3900
POINTER = "This is only the beginning; the whole follows in the thread."
_DEFAULT_LIMIT = 300
_INSTEAD_LIMIT = 500
_PLAIN = 1200
_NO_LIMIT = 10**9
_MOST_PIECES = 20  # more than the longest question that AAEP allows; beyond, View full has to do
_REST = "The rest stands under View full."


def open_text(shown: Round, pointer: str = POINTER) -> tuple[str, tuple[str, ...]]:
    """Text and `more` of a question that waits for its answer; `pointer` says where the whole is."""
    # The stakes come before the agent's own words: however long these are, and wherever this is cut, they stay.
    head = " ".join(filter(None, (inert.fallback(_head(shown), 500), inert.fallback(_stakes(shown), 1200))))
    body = inert.fallback(_body(shown), _NO_LIMIT)
    tail = inert.fallback(
        f"{_deadline(shown, _DEFAULT_LIMIT)}\n{answers.hint(shown.asked)} {HOW_TO_COMMENT}", 900
    )
    for line in instead_words(shown, _INSTEAD_LIMIT):
        tail = f"{tail}\n{inert.fallback(sentence(line), 2 * _INSTEAD_LIMIT)}"
    if held := holder_words(shown):
        tail = f"{tail}\n{sentence(held)}"
    whole = f"{head} {body}\n{tail}"
    if inert.size(whole) <= inert.TEXT_LIMIT and not _clips_default(shown):
        return whole, ()
    room = inert.TEXT_LIMIT - inert.size(head) - inert.size(tail) - len(pointer) - 3
    text = f"{head} {_beginning(shown, body, room)}\n{pointer}\n{tail}"
    return text, tuple(whole_pieces(shown))


def settled_text(shown: Round) -> str:
    """Text of a question that takes no answer any more. Who answered is the only live part."""
    asked = inert.fallback(f"{_says(shown)} ({shown.record.id}): {words(shown.question)}", 1500)
    if shown.stage == "closed":
        return f"{asked}\n{inert.fallback(sentence(closed_words(shown, 1500)), 1800)}{_closed_by(shown)}"
    who = inert.mention(shown.slack_user) if shown.slack_user else inert.fallback(shown.answered_by, 300)
    when = f" on {inert.utc(shown.answered_at)}" if shown.answered_at else ""
    state = inert.fallback(_state(shown), 800)
    answer = inert.fallback("\n".join(filter(None, (shown.answer_label, shown.reason))), 1000)
    return f"{asked}\nAnswered by {who}{when}: {answer}" + (f"\n{state}" if state else "")


def whole_pieces(shown: Round) -> list[str]:
    """All of an open question in pieces for the thread, plain; each at most 3900 as it is sent."""
    parts = (
        " ".join(filter(None, (_head(shown), _stakes(shown), _body(shown)))),
        _deadline(shown, _NO_LIMIT),
    )
    found = [piece for piece in inert.split_unescaped("\n".join(filter(None, parts)), PIECE) if piece.strip()]
    return found if len(found) <= _MOST_PIECES else [*found[: _MOST_PIECES - 1], _REST]


def plain_text(shown: Round) -> tuple[str, tuple[str, ...]]:
    """For what cannot be laid out: text (not escaped) with the id, the question and how to answer, and `more`."""
    standing = answers.hint(shown.asked) if shown.stage == "open" else closed_words(shown, _DEFAULT_LIMIT)
    question = words(shown.question)
    begun = inert.clip(question, _PLAIN)
    tail = (POINTER, standing) if begun != question else (standing,)
    text = "\n".join((f"{_says(shown)} ({inert.clip(shown.record.id, 80)}):", begun, *filter(None, tail)))
    return text, tuple(whole_pieces(shown)) if begun != question else ()


def _head(shown: Round) -> str:
    again = f", round {shown.number}" if shown.number > 1 else ""
    urgent = escalation_reason(shown, 200)
    return f"{urgent + ' ' if urgent else ''}{_says(shown)} ({shown.record.id}{again}):"


def _stakes(shown: Round) -> str:
    """How grave a confirmation is, and what silence does; empty of a question."""
    wanted = shown.asked.confirmation
    return consent.stakes_words(wanted) if wanted else ""


def _says(shown: Round) -> str:
    return f"{shown.agent} {shown.verb} {shown.target}" if shown.target else f"{shown.agent} {shown.verb}"


def _beginning(shown: Round, body: str, room: int) -> str:
    """What `room` holds of the escaped body; of a confirmation a part of each of its parts."""
    wanted = shown.asked.confirmation
    if wanted is None:
        return inert.clip_escaped(body, room)
    parts = [inert.fallback(part, _NO_LIMIT) for part in _consent_parts(wanted)]
    given = inert.shares([inert.size(part) for part in parts], room - len(parts))
    return "\n".join(inert.clip_escaped(part, share) for part, share in zip(parts, given, strict=True))


def _consent_parts(wanted: Confirmation) -> list[str]:
    """A confirmation in the agent's own words."""
    said = (consent.action_words(wanted), consent.consequence_words(wanted), consent.extra_words(wanted))
    return [part for part in said if part]


def _body(shown: Round) -> str:
    if shown.asked.confirmation:
        return "\n".join(_consent_parts(shown.asked.confirmation))
    parts = [words(shown.question)]
    if shown.labels:
        parts.append("Choices (several may be chosen):" if shown.asked.multi_select else "Choices:")
        parts.append(shown.numbered)
    if context := inert.plain(shown.asked.context or "").strip():
        parts.append(f"Context: {context}")
    return "\n".join(parts)


def _deadline(shown: Round, limit: int) -> str:
    expires = shown.asked.expires_at
    until = f"Answer by {inert.utc(expires)}." if expires else "There is no time limit."
    default = "" if shown.asked.confirmation else default_words(shown.asked, limit)
    return f"{until} {sentence(default)}" if default else until


def _clips_default(shown: Round) -> bool:
    return inert.size(answers.default_label(shown.asked)) > _DEFAULT_LIMIT


def _closed_by(shown: Round) -> str:
    entry = shown.closed_by
    if entry is None:
        return ""
    who = inert.mention(shown.closer) if shown.closer else inert.fallback(inert.line(entry.from_), 300)
    return f"\nBy {who or 'somebody'}."


def _state(shown: Round) -> str:
    parts = [reply_words(shown.asked)]
    if shown.is_current and shown.record.status == "abandoned":
        parts.append(closed_words(shown, 300))
    return " ".join(sentence(part) for part in parts if part)
