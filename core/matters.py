"""Whether a question is one that a record holds already, or asks the same matter again. Pure."""

from __future__ import annotations

from core.clarification import UNDELIVERED, Ask, Clarification
from core.deadlock import agent_key


def is_known(record: Clarification, ask: Ask) -> bool:
    """Whether this record holds the very question of `ask`, in any round: same session, token and words.

    Some producers use a token again for another question: dropping that would leave it unseen.
    """
    asked = record.asked
    if ask.reply_token is None:  # asked by hand or by a program: whoever asks twice wants two
        return False
    if (asked.producer, asked.session_id) != (ask.producer, ask.session_id):
        return False
    tokens = {asked.reply_token, *(past.get("replyToken") for past in asked.earlier)}
    return ask.reply_token in tokens and any(
        entry.type == "question" and entry.body == ask.question for entry in record.thread
    )


def is_same_matter(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` goes on with what an answered, not yet resolved record asked: of the same session, or, between
    agents, by the same one to the same one about the same topic.
    """
    if ask.reply_token is None:
        return _goes_on(record, ask)
    if record.status != "answered" or record.asked.session_id != ask.session_id:
        return False
    if record.asked.reply in UNDELIVERED:  # it cannot follow up on what it was not told yet
        return False
    if record.asked.producer != ask.producer:
        return False
    return (ask.topic is not None and ask.topic == record.topic) or _words(ask.question) == _words(
        record.question
    )


def _goes_on(record: Clarification, ask: Ask) -> bool:
    return (
        record.status == "answered"
        and record.asked.reply_token is None
        and agent_key(record.from_) == agent_key(ask.agent_id)
        and agent_key(record.to) == agent_key(ask.to)
        and ask.topic is not None
        and _words(record.topic) == _words(ask.topic)
    )


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
