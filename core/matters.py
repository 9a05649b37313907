"""Whether a question is one that a record holds already, or asks the same matter again. Pure."""

from __future__ import annotations

from core.clarification import UNDELIVERED, Ask, Clarification


def is_known(record: Clarification, ask: Ask) -> bool:
    """Whether this record holds the very question of `ask`, in any round: same session, token and words.

    Some producers use a token again for another question: dropping that would leave it unseen.
    """
    asked = record.asked
    if (asked.producer, asked.session_id) != (ask.producer, ask.session_id):
        return False
    tokens = {asked.reply_token, *(past.get("replyToken") for past in asked.earlier)}
    return ask.reply_token in tokens and any(
        entry.type == "question" and entry.body == ask.question for entry in record.thread
    )


def is_same_matter(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` repeats what an answered, not yet resolved record of the same session asked."""
    if record.status != "answered" or record.asked.session_id != ask.session_id:
        return False
    if record.asked.reply in UNDELIVERED:  # it cannot follow up on what it was not told yet
        return False
    if record.asked.producer != ask.producer:
        return False
    return (ask.topic is not None and ask.topic == record.topic) or _words(ask.question) == _words(
        record.question
    )


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
