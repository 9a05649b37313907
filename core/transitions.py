"""The legal changes of a clarification. Pure.

Statuses and transitions: the Clarification Protocol's §6.1, as made exact in the project's design. Every change returns a new
record; `core.router` decides which change to make. Those that need an open one raise AlreadyAnswered or Closed
(`check_open`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from core.clarification import (
    FREE_TEXT,
    US,
    Answer,
    AnsweredBy,
    Ask,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    EntryType,
    Given,
    Holder,
    Question,
    ReplyState,
    Round,
    Status,
    Why,
    one_line,
    round_with,
)
from core.errors import ClarifyError, IllegalTransition, NotToldApart

TRANSITIONS: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"answered", "stale", "escalated", "abandoned"}),
    "stale": frozenset({"pending", "answered", "escalated", "abandoned"}),
    "answered": frozenset({"pending", "resolved", "escalated"}),
    "escalated": frozenset({"resolved", "abandoned"}),
    "resolved": frozenset(),
    "abandoned": frozenset(),
}
_NOT_HELD = {"taken_by": None, "taken_from": None, "handed_to": None}


class MaxRoundsExceeded(ClarifyError):
    """The question was recorded and escalated: `record` is its state now."""

    code = "MAX_ROUNDS_EXCEEDED"

    def __init__(self, record: Clarification) -> None:
        super().__init__(f"{record.id} has used all {record.max_rounds} rounds and was escalated to on-call.")
        self.record = record


class NotOpen(ClarifyError):
    """The clarification can no longer be answered. `record` is its state under the lock."""

    code = "NOT_OPEN"

    def __init__(self, record: Clarification) -> None:
        super().__init__(f"{record.id} is {record.status} and no longer takes an answer.")
        self.record = record


class AlreadyAnswered(NotOpen):
    code = "ALREADY_ANSWERED"


class Superseded(NotOpen):
    code = "SUPERSEDED"


class ArgumentsChanged(Superseded):
    """Another person edited the arguments after this person saw them."""

    code = "ARGUMENTS_CHANGED"


class Closed(NotOpen):
    code = "CLOSED"


class ApprovedMeanwhile(NotToldApart):
    """Someone accepted after it was looked up who did. `record` is its state under the lock."""

    def __init__(self, record: Clarification) -> None:
        super().__init__(record.id, is_about="who approved before you")
        self.record = record


class NotAnswered(IllegalTransition):
    """A follow-up came before the answer. Has the code of IllegalTransition."""

    def __init__(self, record: Clarification) -> None:
        super().__init__(record.id, record.status, "pending")
        self.args = (f"{record.id} is {record.status}. You can ask a follow-up once it is answered.",)
        self.record = record


def opened(issue: int, seq: int, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """Returns a new clarification, round 1. `sla`: the time to the first reminder, unless the question has its own."""
    return Clarification(
        id=f"CLR-{issue}-{seq:03d}",
        issue_number=issue,
        from_=ask.agent_id,
        to=ask.to,
        topic=ask.topic or ask.asked.summary_terse or one_line(ask.question, 200),
        blocking=ask.blocking,
        status="pending",
        max_rounds=ask.max_rounds or (5 if ask.blocking else 6),
        created=now,
        stale_after=stale_after(now, ask.asked.sla(sla), ask.asked.expires_at),
        thread=(new_entry(1, ask.agent_id, "question", ask.question, now),),
        revision=1,
        rounds=(asking(ask),),
    )


def nudged(record: Clarification, now: datetime, sla: timedelta) -> Clarification:
    """Records a reminder of an open one at `now` and restarts the time to the next step.

    Raises:
        IllegalTransition: it was escalated.
    """
    check_open(record)
    if record.status == "escalated":
        raise IllegalTransition(record.id, record.status, "pending")
    latest, sla = escalation_limit(record.asked_last, record.expires_at), record.sla(sla)
    later = now + sla if latest is None else max(now, min(now + sla, latest))
    at = max(now, record.asked_last)  # so that it counts for this question, though a clock went back
    counted = amended(record, nudges=record.nudges + 1, nudged_at=at)
    return renewed(counted, status="pending", stale_after=later)


def escalated(record: Clarification, why: Why, words: str, now: datetime, by: str = US) -> Clarification:
    """Escalates to on-call. `words` (plain text) go into the thread.

    Raises:
        IllegalTransition: it is already, or closed.
    """
    return changed_to(
        amended(record, escalated_at=now, escalated_for=why, **_NOT_HELD),
        "escalated",
        thread=(*record.thread, new_entry(record.round, by, "escalation", words, now)),
    )


def held_back(record: Clarification, reason: str) -> Clarification:
    """Records that people are asked instead of the target, for `reason`. Keeps the status."""
    return renewed(amended(record, held_back=reason))


def taken(record: Clarification, holder: Holder, before: str | None = None) -> Clarification:
    """Records who claimed an open one. `before`: the previous holder, who gets a message."""
    return _held(record, taken_by=holder, taken_from=before)


def taken_over(record: Clarification, holder: Holder) -> Clarification:
    """Records who took an open one over; the previous holder gets a message."""
    before = record.attention.taken_by
    return taken(record, holder, before.user if before is not None and before.user != holder.user else None)


def claimed(record: Clarification, holder: Holder) -> Clarification:
    """Records who claimed an open one. Returns the record unchanged if someone holds it already."""
    check_open(record)
    return record if record.attention.taken_by is not None else taken(record, holder)


def handed(record: Clarification, holder: Holder) -> Clarification:
    """Records whom an open one was handed to."""
    return _held(record, handed_to=holder)


def released(record: Clarification, user: str) -> Clarification:
    """Records that `user` released an open one. Returns the record unchanged if they have not claimed it, or if it is
    escalated: then the pager takes it back.
    """
    check_open(record)
    return record if record.claimed_by != user or record.status == "escalated" else _held(record)


def left(record: Clarification, user: str) -> Clarification:
    """Records that `user` is gone, who claimed an open one or was handed it. Returns the record unchanged if they do not
    hold it.
    """
    check_open(record)
    return _held(record) if (record.claimed_by or record.offered_to) == user else record


def _held(record: Clarification, **by: Any) -> Clarification:
    """Records who has an open one: by default, no one. Keeps the status."""
    check_open(record)
    return renewed(amended(record, **(_NOT_HELD | by)))


def answered(record: Clarification, answer: Answer, decider: Decider, at: datetime) -> Clarification:
    """Records the first answer to an open one, given by a person or agent at `at`."""
    check_open(record)
    asked = record.asked
    at = max(at, record.asked_last)  # by another clock, Slack's, it may come out earlier
    # Other implementations know agents by their bare role.
    who = decider.decided_by.removeprefix("agent:")
    entry = new_entry(record.round, who, "answer", answer.words, at)
    given = given_by(decider, answer, at)
    was_escalated = record.status == "escalated"
    return changed_to(
        amended(record, given=given, reply=first_reply_state(asked)),
        "resolved" if was_escalated else "answered",
        thread=(*record.thread, entry),
        resolved_at=at if was_escalated else None,
    )


def first_reply_state(asked: Question) -> ReplyState | None:
    """Returns the reply's state right after an answer, or None if no agent waits for one."""
    if not asked.reply_token:
        return None
    return "sending" if asked.direct is None else "waiting"


def given_by(decider: Decider, answer: Answer, at: datetime) -> Given:
    """Returns what a record keeps of an answer."""
    return Given(
        response=answer.response,
        label=answer.label,
        rationale=answer.rationale,
        decided_by=decider.decided_by,
        answered_at=at,
        answered_by=AnsweredBy(surface=decider.surface, team=decider.team, user=decider.user),
    )


def abandoned(
    record: Clarification, reason: CloseReason, now: datetime, by: str = US, words: str = ""
) -> Clarification:
    """Closes it without an answer. Reason and words go into the thread."""
    entry = new_entry(record.round, by, "resolution", f"Abandoned: {reason}. {words}".rstrip(), now)
    return changed_to(
        amended(record, closed=reason),
        "abandoned",
        thread=(*record.thread, entry),
        resolved_at=now,
    )


def resolved(record: Clarification, now: datetime) -> Clarification:
    """Records that the requester took the answer."""
    return changed_to(record, "resolved", resolved_at=now)


def resolved_by_hand(record: Clarification, text: str, decider: Decider, at: datetime) -> Clarification:
    """Closes an answered clarification by hand, with words for its thread. A pending reply is still sent."""
    at = max(at, record.asked_last)
    entry = new_entry(record.round, decider.decided_by, "resolution", text, at)
    done = record if record.status == "resolved" else changed_to(record, "resolved", resolved_at=at)
    return done.model_copy(update={"thread": (*record.thread, entry)})


def reply_settled(record: Clarification, state: ReplyState, note: str | None) -> Clarification:
    """Sets the state of the reply to the producer. Keeps the status."""
    return renewed(amended(record, reply=state, reply_note=note))


def went_on(record: Clarification, at: datetime) -> Clarification:
    """Records that the session continued after the answer."""
    return renewed(amended(record, went_on_at=at))


def check_open(record: Clarification) -> None:
    """Raises unless the clarification is open.

    Raises:
        AlreadyAnswered: it has an answer.
        Closed: it was closed without one.
    """
    if not record.is_open:
        has_answer = record.given.response is not None or record.answer is not None
        raise AlreadyAnswered(record) if has_answer else Closed(record)


def changed_to(record: Clarification, status: Status, **update: Any) -> Clarification:
    if status not in TRANSITIONS[record.status]:
        raise IllegalTransition(record.id, record.status, status)
    return renewed(record, status=status, **update)


def renewed(record: Clarification, **update: Any) -> Clarification:
    return record.model_copy(update={"revision": record.revision + 1, **update})


def new_entry(number: int, by: str, kind: EntryType, body: str, at: datetime) -> Entry:
    return Entry(round=number, from_=by, type=kind, body=body, timestamp=at)


def amended(record: Clarification, **news: Any) -> Clarification:
    """Returns a record with `news` in its current round, and with the same revision. `news`: fields of a round or its parts."""
    return record.model_copy(update={"rounds": (*record.earlier, round_with(record.current, **news))})


def asking(ask: Ask) -> Round:
    """Returns the round that a question begins."""
    return FREE_TEXT.copied(question=ask.asked.copied(agent_id=ask.agent_id))  # validated at the door


def stale_after(now: datetime, sla: timedelta, expires_at: datetime | None) -> datetime:
    """The first nudge: after the SLA, and at most half of what is left of the question's timeout."""
    return now + (sla if expires_at is None else max(timedelta(0), min(sla, (expires_at - now) / 2)))


def nudge_limit(asked: datetime, expires: datetime | None) -> datetime | None:
    """When a nudge comes at the latest: at half of the question's own timeout. None: it has none."""
    return None if expires is None else asked + max(timedelta(0), expires - asked) / 2


def escalation_limit(asked: datetime, expires: datetime | None) -> datetime | None:
    """When a question is escalated at the latest: at three quarters of its own timeout. None: it has none."""
    return None if expires is None else asked + max(timedelta(0), expires - asked) * 3 / 4
