"""Decides what a question, an event or another writer's entry means for existing clarifications. Pure.

* A question: is it a duplicate, a follow-up (the next round) or a new one?
* A session's event: does it confirm what was answered, or void what is open?
* An answer that another implementation wrote into a ledger is adopted or rejected. It never counts as a person's,
  whatever name it carries, and accepts no confirmation: any program that can write to the folder may have written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core import aaep
from core.answers import from_text
from core.clarification import (
    CHANGED,
    HUMAN,
    NOT_REMINDED,
    UNDELIVERED,
    US,
    Answer,
    AnsweredBy,
    Ask,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    ReplyState,
    abandoned,
    agent_key,
    changed_to,
    escalated,
    facts_of,
    first_reply_state,
    given,
    new_entry,
    one_line,
    renewed,
    reply_settled,
    resolved,
    stale_after,
    went_on,
)
from core.errors import AnswerRejected
from core.escalation import escalation_words

MISFIT = "The answer does not fit the question, which is open again."
NO_CONSENT = "Only people in Slack can approve this. It is open again."
_NAME = 256  # characters of `decided_by`
_UNANSWERED: dict[str, Any] = dict.fromkeys(
    (
        "response",
        "label",
        "rationale",
        "decided_by",
        "answered_at",
        "answered_by",
        "reply",
        "reply_note",
        "seal",
    )
)
_UNPROVEN = frozenset({"sending", "delivered", "unconfirmed"})


def is_duplicate(record: Clarification, ask: Ask) -> bool:
    """Whether this record holds the very question of `ask`, in any round: same session, token and words.

    A program that asks again with the same `event_id` means the same question. Some producers use a token again for
    another one: dropping that would leave it unseen.
    """
    asked = record.asked
    if (
        ask.reply_token is None
    ):  # asked by hand or by a program: asked twice means two questions, unless `event_id` says otherwise
        return ask.event_id is not None and ask.event_id in _event_ids(record)
    if (asked.producer, asked.session_id) != (ask.producer, ask.session_id):
        return False
    tokens = [*(past.get("replyToken") for past in asked.earlier), asked.reply_token]
    questions = [e.body for e in record.thread if e.type == "question" and e.from_ != US]
    if len(tokens) == len(questions):
        return (ask.reply_token, ask.question) in zip(tokens, questions, strict=True)
    # Another implementation asked further in it, without a token: nobody knows which words belong to which.
    return ask.reply_token in tokens and ask.question in questions


def is_follow_up(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` goes on with what an answered, not yet resolved record asked: of the same session, or, between
    agents, by the same one to the same one about the same topic.

    A confirmation never does: consent is given to one action once, whatever was said before. Nor does a question that
    was asked directly: each is a clarification of its own.
    """
    stand_alone = (ask.direct, record.asked.direct, ask.confirmation, record.asked.confirmation)
    if any(each is not None for each in stand_alone):
        return False
    if ask.reply_token is None:
        return record.status == "answered" and _is_between(record, ask)
    if record.status != "answered" or record.asked.session_id != ask.session_id:
        return False
    if record.asked.reply in UNDELIVERED:  # it cannot follow up on an answer that it has not got yet
        return False
    if record.asked.producer != ask.producer:
        return False
    return (ask.topic is not None and ask.topic == record.topic) or _words(ask.question) == _words(
        record.question
    )


def is_with_people(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` continues a clarification that people still have, since its rounds were used up."""
    used_up = record.status == "escalated" and record.asked.escalated_for == "rounds exhausted"
    return used_up and ask.reply_token is None and _is_between(record, ask)


def rounds_before(records: Sequence[Clarification], ask: Ask, limit: int) -> list[Clarification]:
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
    return one_line(text.casefold())


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer that another program wrote into a ledger. `record`: without that program's claim of who gave it;
    `answer`: None if it does not fit the question, or is consent; `consents`: it is consent; `by`: who is named.
    """

    record: Clarification
    entry: Entry | None
    answer: Answer | None
    consents: bool
    by: str


def author_of(named: str) -> str:
    """Who answered, as another program names them: an agent by its role, anybody else as written in the ledger."""
    role = named.removeprefix("agent:")
    is_role = role.strip() and ":" not in role and "@" not in role and agent_key(role) != HUMAN
    return (f"agent:{role}" if is_role else f"ledger:{named.removeprefix('ledger:')}")[:_NAME]


def claim_of(record: Clarification, *, vouched: bool) -> Claim | None:
    """The answer that another program wrote for a waiting producer; None: there is none, or it is ours.

    `vouched`: whether what it says of who answered is true.
    """
    asked = record.asked
    if asked.response is not None:
        # An agent that asked directly fetches its answer again and again, whatever was written of its delivery.
        counts = asked.reply in UNDELIVERED or (asked.direct is not None and asked.is_consent)
        if vouched or not counts or record.status not in {"answered", "resolved"}:
            return None
        record = record.model_copy(update={"aaep": asked.model_copy(update=_UNANSWERED)})
    elif not record.is_adoptable:
        return None
    entry = record.answering_entry
    by = author_of(entry.from_ if entry else asked.decided_by or "")
    consents, answer = record.asked.is_confirmation and asked.response == "accept", None
    if entry is not None:
        try:
            answer = from_text(record.asked, entry.body)
        except AnswerRejected:
            answer = None
        if answer is not None and record.asked.is_confirmation and answer.response == "accept":
            consents, answer = True, None
    return Claim(record, entry, answer, consents, by)


def settled_claim(claim: Claim, now: datetime, sla: timedelta) -> Clarification:
    """The record after a claim: adopted if it can be used; otherwise open again, or still closed."""
    if claim.answer is not None and claim.entry is not None:
        return adopted(claim.record, claim.answer, claim.entry)
    if claim.consents or claim.entry is None or claim.entry.type == "answer":
        return reopened(claim.record, now, sla, NO_CONSENT if claim.consents else MISFIT)
    return not_usable(claim.record)


def is_misnamed(record: Clarification, *, vouched: bool) -> bool:
    """Whether another writer names a person as who answered what no producer waits for any more, or ever did."""
    asked = record.asked
    is_over = asked.response is not None and asked.reply not in UNDELIVERED and not record.is_open
    return not vouched and is_over and author_of(asked.decided_by or "") != asked.decided_by


def renamed(record: Clarification) -> Clarification:
    """The record with the name that another program gave, as far as it can be believed."""
    asked = record.asked
    entry = record.answering_entry
    by = author_of(asked.decided_by or (entry.from_ if entry else ""))
    news = {"decided_by": by, "answered_by": AnsweredBy(surface="ledger")}
    return renewed(record, aaep=asked.model_copy(update=news))


def disowned(record: Clarification, now: datetime) -> Clarification:
    """Closed, since another program changed what it asks: no answer to it counts, and no reply goes out."""
    entry = new_entry(record.round, US, "resolution", f"Abandoned: {CHANGED}.", now)
    asked = record.asked.model_copy(update={**_UNANSWERED, "closed": CHANGED})
    return renewed(record, status="abandoned", resolved_at=now, thread=(*record.thread, entry), aaep=asked)


def not_usable(record: Clarification) -> Clarification:
    """Another implementation resolved it with words that are no answer to the question: so it stays."""
    asked = record.asked.model_copy(update={"closed": "resolved elsewhere"})
    return renewed(record, aaep=asked)


def adopted(record: Clarification, answer: Answer, entry: Entry) -> Clarification:
    """An answer that another implementation wrote, made ready to be sent."""
    who = Decider(author_of(entry.from_), "ledger")
    news = given(answer, who, entry.timestamp) | {"reply": first_reply_state(record.asked)}
    return renewed(record, aaep=record.asked.model_copy(update=news))


def followed_up(record: Clarification, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """A follow-up after an answer: the next round, or escalated when rounds are used up."""
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    past = record.asked
    earlier = (
        *past.earlier,
        past.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"earlier"}),
    )
    asked_again: dict[str, Any] = {
        "round": number,
        "thread": (*record.thread, new_entry(number, ask.agent_id, "question", ask.question, now)),
        "stale_after": stale_after(now, ask.sla or sla, ask.expires_at),
        "aaep": facts_of(ask, earlier),
    }
    if not exhausted:
        return changed_to(record, "pending", **asked_again)
    again = record.model_copy(update=asked_again)
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)


def reopened(record: Clarification, now: datetime, sla: timedelta, words: str = MISFIT) -> Clarification:
    """Opens a question again because another program's answer cannot be used, for the reason in `words`.

    That takes a round; when rounds are used up, it is escalated.
    """
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    thread = (
        *record.thread,
        new_entry(record.round, US, "resolution", words, now),
        new_entry(number, US, "question", record.question, now),
    )
    again = renewed(
        record,
        status="pending",
        round=number,
        resolved_at=None,
        stale_after=stale_after(now, sla, record.expires_at),
        thread=thread,
        aaep=record.asked.model_copy(update=NOT_REMINDED),
    )
    if not exhausted:
        return again
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)


@dataclass(frozen=True, slots=True)
class SessionNews:
    """What an event means for its session's clarifications.

    `sent` is its time on the producer's clock, `at` on ours.
    """

    producer: str
    session_id: str
    type: str
    sent: datetime
    at: datetime
    left_awaiting: bool = False


def concerns(news: SessionNews, known: Clarification) -> bool:
    """Whether an event of its session may change a clarification. `after_event` decides how, under the lock. Pure."""
    voids = news.left_awaiting or news.type in aaep.SESSION_ENDS
    return known.asked.reply in _UNPROVEN or (known.is_open and voids)


def after_event(records: list[Clarification], news: SessionNews, now: datetime) -> list[Clarification]:
    """The records of one session that an event changes (pure).

    An answered one is confirmed by anything that follows its answer. An open one is void when the session ended, or
    when it left `awaiting_input` and exactly one was open at that time: with several nobody can tell which. An event
    that an answer explains voids nothing: the agent went on with that answer, and may still wait for another.
    """
    changed = [
        _went_on(record, news, now)
        for record in records
        if record.asked.reply in _UNPROVEN and record.asked.went_on_at is None and _follows(record, news)
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
    """The session went on. While the outcome of sending is open, that is only recorded: it may have timed out."""
    after = went_on(record, news.at)
    return after if after.asked.reply == "sending" else settled(after, "delivered", None, now, resolve=True)


def settled(
    record: Clarification, state: ReplyState, note: str | None, now: datetime, *, resolve: bool
) -> Clarification:
    """`delivered` or `unconfirmed`, with the session seen going on since, is `confirmed`."""
    proven = record.asked.went_on_at is not None and state in {"delivered", "unconfirmed"}
    settled = reply_settled(record, "confirmed" if proven else state, None if proven else note)
    return resolved(settled, now) if (resolve or proven) and settled.status == "answered" else settled


def _follows(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and news.at >= answered_at


def _answered_since(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and answered_at > news.at and _asked_before(record, news)


def _asked_before(record: Clarification, news: SessionNews) -> bool:
    """By the producer's own clock, which both times are of."""
    asked_at = record.asked.asked_at
    return asked_at is None or asked_at <= news.sent


def of_session(record: Clarification, news: SessionNews) -> bool:
    return record.asked.producer == news.producer and record.asked.session_id == news.session_id
