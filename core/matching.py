"""Decides what a question or an event means for existing clarifications. Pure.

* A question is a duplicate, a follow-up (the next round) or new.
* A session's event confirms that an answer arrived, or closes what is open.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core import aaep
from core.clarification import (
    HUMAN,
    UNDELIVERED,
    US,
    Ask,
    Attention,
    Clarification,
    CloseReason,
    ReplyState,
    agent_key,
    one_line,
)
from core.clock import iso
from core.escalation import escalation_words
from core.summary import Seen
from core.transitions import (
    abandoned,
    amended,
    asking,
    changed_to,
    escalated,
    new_entry,
    renewed,
    reply_settled,
    resolved,
    stale_after,
    went_on,
)

_NO_CONSENT = "Only people in Slack can approve this. It is open again."
_NAME = 256  # characters of `author_of`
_UNPROVEN = frozenset({"sending", "delivered", "unconfirmed"})


def session_asking(asking: Ask | Clarification) -> tuple[str, str]:
    """Returns the session that asks: a producer's, or, with "" as the producer, who asks whom about what."""
    asked, asker = asking.asked, asking.from_ if isinstance(asking, Clarification) else asking.agent_id
    if asked.reply_token is not None and asked.producer is not None and asked.session_id is not None:
        return asked.producer, asked.session_id
    between = json.dumps([agent_key(asker), agent_key(asking.to), _words(asking.topic or "")])
    return "", hashlib.blake2b(between.encode(), digest_size=12).hexdigest()


def is_duplicate(record: Clarification, ask: Ask) -> bool:
    """Returns whether this record already has the question of `ask`, in any round: same session, reply token and text.

    The token alone is not enough: some producers reuse it for another question, which people must see. Without a token
    (asked by hand or by a program), only the same `event_id` makes a duplicate.
    """
    asked = record.asked
    if ask.asked.reply_token is None:
        event_ids = [each.question.event_id for each in record.rounds]
        return ask.asked.event_id is not None and ask.asked.event_id in event_ids
    if (asked.producer, asked.session_id) != (ask.asked.producer, ask.asked.session_id):
        return False
    tokens = [each.question.reply_token for each in record.rounds]
    questions = [e.body for e in record.thread if e.type == "question" and e.from_ != US]
    return (ask.asked.reply_token, ask.question) in zip(tokens, questions, strict=False)


def is_follow_up(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` is the next round of an answered, not yet resolved record: of the same session, or, between agents,
    with the same asker, target and topic.

    Confirmations are never follow-ups, because each approval is for one action; nor are questions that agents ask
    directly.
    """
    stand_alone = (ask.asked.direct, record.asked.direct, ask.asked.confirmation, record.asked.confirmation)
    if any(each is not None for each in stand_alone):
        return False
    if ask.asked.reply_token is None:
        return record.status == "answered" and _is_between(record, ask)
    if record.status != "answered" or record.asked.session_id != ask.asked.session_id:
        return False
    if record.delivery.reply in UNDELIVERED:  # the agent does not have the answer yet
        return False
    if record.asked.producer != ask.asked.producer:
        return False
    return (ask.topic is not None and ask.topic == record.topic) or _words(ask.question) == _words(
        record.question
    )


def is_with_people(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` continues a clarification that was escalated because its rounds were used up."""
    used_up = record.status == "escalated" and record.attention.escalated_for == "rounds exhausted"
    return used_up and ask.asked.reply_token is None and _is_between(record, ask)


def rounds_before(records: Sequence[Clarification], ask: Ask, limit: int) -> list[Clarification]:
    """Returns a session's earlier clarifications with the same role and topic if they used up `limit` rounds, else none.

    If each answer closes its clarification, no single one reaches its last round. An escalation restarts the count.
    """
    if ask.asked.reply_token is None or ask.topic is None or ask.asked.held_back is not None:
        return []
    if agent_key(ask.to) == HUMAN:
        return []
    session = (ask.asked.producer, ask.asked.session_id)
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


def _is_between(record: Clarification, ask: Ask) -> bool:
    """Whether a record, not from a producer's event, has the same asker, target and topic."""
    return (
        record.asked.reply_token is None
        and agent_key(record.from_) == agent_key(ask.agent_id)
        and agent_key(record.to) == agent_key(ask.to)
        and ask.topic is not None
        and _words(record.topic) == _words(ask.topic)
    )


def _words(text: str) -> str:
    return one_line(text.casefold())


def author_of(named: str) -> str:
    """Returns the author that another program named: `agent:` and a role, or `ledger:` and the name as written."""
    role = named.removeprefix("agent:")
    is_role = role.strip() and ":" not in role and "@" not in role and agent_key(role) != HUMAN
    return (f"agent:{role}" if is_role else f"ledger:{named.removeprefix('ledger:')}")[:_NAME]


def is_same(one: Clarification, other: Clarification) -> bool:
    """Returns whether two records are the same clarification: same asker, question and time, however they are written. Ids don't
    tell, because each implementation assigns its own.
    """

    def begun(record: Clarification) -> tuple[object, ...]:
        asked = [entry.body for entry in record.thread[:1]]
        return author_of(record.from_), iso(record.created), record.topic, asked

    return begun(one) == begun(other)


def followed_up(record: Clarification, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """Records a follow-up as the next round; escalates it if the rounds are used up."""
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    asked_again: dict[str, Any] = {
        "round": number,
        "thread": (*record.thread, new_entry(number, ask.agent_id, "question", ask.question, now)),
        "stale_after": stale_after(now, ask.asked.sla(sla), ask.asked.expires_at),
        "rounds": (*record.earlier, record.current, asking(ask)),
    }
    if not exhausted:
        return changed_to(record, "pending", **asked_again)
    again = record.model_copy(update=asked_again)
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)


def reopened(record: Clarification, now: datetime, sla: timedelta) -> Clarification:
    """Opens an approval again, as a new round, because what was answered does not count. Escalates it if the rounds are used
    up.
    """
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    thread = (
        *record.thread,
        new_entry(record.round, US, "resolution", _NO_CONSENT, now),
        new_entry(number, US, "question", record.question, now),
    )
    again = renewed(
        amended(record, attention=Attention(), receipt=None),
        status="pending",
        round=number,
        resolved_at=None,
        stale_after=stale_after(now, sla, record.expires_at),
        thread=thread,
    )
    if not exhausted:
        return again
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)


@dataclass(frozen=True, slots=True)
class SessionNews:
    """An event of a session. `sent`: its time on the producer's clock; `at`: on ours; `left_awaiting`: the session left
    `awaiting_input`.
    """

    producer: str
    session_id: str
    type: str
    sent: datetime
    at: datetime
    left_awaiting: bool = False


def concerns(news: SessionNews, known: Seen) -> bool:
    """Whether an event may change a clarification of its session. `after_event` decides, under the lock."""
    voids = news.left_awaiting or news.type in aaep.SESSION_ENDS
    return known.reply in _UNPROVEN or (known.is_open and voids)


def after_event(records: list[Clarification], news: SessionNews, now: datetime) -> list[Clarification]:
    """Returns the changed records of a session after an event. `records`: those that need something, or ended since.

    Any event after an answer confirms that answer. The end of the session closes all open questions. Leaving
    `awaiting_input` closes the open question if there is exactly one, and no answer explains the event: otherwise the
    agent may still be waiting.
    """
    changed = [
        _went_on(record, news, now)
        for record in records
        if record.delivery.reply in _UNPROVEN
        and record.delivery.went_on_at is None
        and _follows(record, news)
    ]
    waiting = [record for record in records if record.is_open and _asked_before(record, news)]
    if news.type in aaep.SESSION_ENDS:
        reason: CloseReason = "cancelled" if news.type == aaep.CANCELLED else "session ended"
        changed += [abandoned(record, reason, now) for record in waiting]
    elif (
        news.left_awaiting
        and len(waiting) == 1
        and not changed
        and not any(_answered_since(r, news) for r in records)
    ):
        changed.append(abandoned(waiting[0], "requester moved on", now))
    return changed


def _went_on(record: Clarification, news: SessionNews, now: datetime) -> Clarification:
    """Records that the session went on. Confirms the answer unless it is still being sent."""
    after = went_on(record, news.at)
    return (
        after if after.delivery.reply == "sending" else settled(after, "delivered", None, now, resolve=True)
    )


def settled(
    record: Clarification, state: ReplyState, note: str | None, now: datetime, *, resolve: bool
) -> Clarification:
    """Sets the state of the reply: `confirmed` for `delivered` or `unconfirmed` if the session went on since. Resolves
    the record if it is confirmed this way, or with `resolve`.
    """
    proven = record.delivery.went_on_at is not None and state in {"delivered", "unconfirmed"}
    after = reply_settled(record, "confirmed" if proven else state, None if proven else note)
    return resolved(after, now) if (resolve or proven) and after.status == "answered" else after


def _follows(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.given.answered_at
    return answered_at is not None and news.at >= answered_at


def _answered_since(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.given.answered_at
    return answered_at is not None and answered_at > news.at and _asked_before(record, news)


def _asked_before(record: Clarification, news: SessionNews) -> bool:
    """Compares two times of the producer's own clock."""
    asked_at = record.asked.asked_at
    return asked_at is None or asked_at <= news.sent
