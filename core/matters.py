"""Whether a question is one that a record holds already, or asks the same matter again. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.clarification import UNDELIVERED, Ask, Clarification
from core.deadlock import HUMAN, agent_key
from core.transitions import US


def is_known(record: Clarification, ask: Ask) -> bool:
    """Whether this record holds the very question of `ask`, in any round: same session, token and words.

    A program that asks again with the same `event_id` means the same question. Some producers use a token again for
    another one: dropping that would leave it unseen.
    """
    asked = record.asked
    if ask.reply_token is None:  # asked by hand or by a program: whoever asks twice wants two, or says so
        return ask.event_id is not None and ask.event_id in _event_ids(record)
    if (asked.producer, asked.session_id) != (ask.producer, ask.session_id):
        return False
    tokens = [*(past.get("replyToken") for past in asked.earlier), asked.reply_token]
    questions = [e.body for e in record.thread if e.type == "question" and e.from_ != US]
    if len(tokens) == len(questions):
        return (ask.reply_token, ask.question) in zip(tokens, questions, strict=True)
    # Another implementation asked further in it, without a token: nobody can tell which words came with which.
    return ask.reply_token in tokens and ask.question in questions


def is_same_matter(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` goes on with what an answered, not yet resolved record asked: of the same session, or, between
    agents, by the same one to the same one about the same topic.

    A confirmation never does: consent is given to one action once, whatever was said before.
    """
    if ask.confirmation is not None or "confirmation" in record.asked.kinds:
        return False
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


def is_with_people(record: Clarification, ask: Ask) -> bool:
    """Whether the matter that one agent asks another about was passed on to people when its rounds were used up, and
    still is with them.
    """
    used_up = record.status == "escalated" and record.asked.escalated_for == "rounds exhausted"
    return used_up and ask.reply_token is None and _is_between(record, ask)


def gone_round(records: Sequence[Clarification], ask: Ask, limit: int) -> list[Clarification]:
    """What a session asked a role about one topic before, if that took as many rounds as its workflow allows.

    Where each answer closes its clarification, no single one ever comes to its last round. What people were brought
    in for begins anew after them.
    """
    if ask.reply_token is None or ask.topic is None or ask.held_back is not None:
        return []
    if agent_key(ask.to) == HUMAN:
        return []
    session = (ask.producer, ask.session_id)
    before = [
        record
        for record in records
        if (record.asked.producer, record.asked.session_id) == session
        and agent_key(record.to) == agent_key(ask.to)
        and record.topic == ask.topic
    ]
    for position, record in reversed(list(enumerate(before, 1))):
        if any(entry.type == "escalation" for entry in record.thread):
            before = before[position:]
            break
    return before if sum(record.round for record in before) >= limit else []


def _goes_on(record: Clarification, ask: Ask) -> bool:
    return record.status == "answered" and _is_between(record, ask)


def _is_between(record: Clarification, ask: Ask) -> bool:
    """Whether a record is what the same agent asked the same one about the same topic, not by an event."""
    return (
        record.asked.reply_token is None
        and agent_key(record.from_) == agent_key(ask.agent_id)
        and agent_key(record.to) == agent_key(ask.to)
        and ask.topic is not None
        and _words(record.topic) == _words(ask.topic)
    )


def _event_ids(record: Clarification) -> list[object]:
    return [*(past.get("eventId") for past in record.asked.earlier), record.asked.event_id]


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
