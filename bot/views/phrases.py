"""What the bot tells one person about a click, a command, a modal or a message, and how it reacts to it: short sentences, mostly
shown as ephemerals. Fixed English, friendly and exact.

Each is mrkdwn, sent with `parse: "none"` and no `link_names`. Only the bot's own mentions and dates are live;
everything else is escaped and clipped. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bot.errors import RepliesUnread, SlackError
from bot.views import inert
from bot.views.blockkit import RELEASE, TAKE_OVER
from bot.views.wording import (
    HOW_TO_COMMENT,
    ShownRound,
    dated,
    decided_words,
    fallback_words,
    listed,
    round_of,
)
from core import answers
from core.clarification import HUMAN, Clarification, Question, agent_key
from core.errors import (
    AnswerRejected,
    BadInput,
    LedgerInDoubt,
    LedgersAway,
    LockTimeout,
    NotCounted,
    NotFound,
    Tampered,
)
from core.transitions import ArgumentsChanged, NotOpen, Superseded

View = dict[str, Any]
_log = logging.getLogger("clarify.slack")

BUSY = "Busy: someone else is writing to this question right now. Nothing was changed. Please try again."
LEDGERS_AWAY = (
    "Questions and answers cannot be read or saved right now, so nothing was changed. "
    "Please try again later. If it goes on, tell the people who run clarify-bot."
)
EDITED = (
    "Editing or deleting a reply does not change the answer: the agent gets what you sent first. "
    "If it was wrong, tell the agent's owner."
)
STALE_CARD = "This card is out of date: the question has been asked again. Please answer on its newest card."
ARGUMENTS_CHANGED = (
    "The arguments have changed since you saw them, so nothing was recorded. "
    "Please read them on the newest card and decide again."
)
UNREADABLE_PRESS = (
    "This button is from another version of clarify-bot. Please use the question's newest card."
)
NO_OPEN_QUESTION = "No question is open in this thread."
PEOPLE_UNKNOWN = "Slack did not say who you are, so nothing was recorded. Please try again in a moment."
STORAGE_FAILED = "Your answer could not be saved, so it does not count. Please try again in a moment."
NOT_SURE = "The database went away just then, so I don't know yet whether this was saved. The card will show it as soon as I know."
REPLIES_UNREAD = (
    "I just started and am still checking whether someone answered this question before. "
    "Nothing was changed. Please try again in a few seconds."
)
FILE_ONLY = "A file alone is not an answer. Please write the answer in words."
LEFT_OUT = "The file or attachment did not go with it: agents get text only."
NO_ATTACHMENT_TO_COMMANDS = (
    "Nothing was changed: a command takes no attachments. To send a table or a forwarded message to an agent, "
    "reply with it in the question's thread."
)
ANSWERS_NOTHING = "I don't know which question this answers, so nothing was recorded. Please reply in the question's thread."
NOT_KEPT = (
    "Your reply could not be saved, so it does not count yet. I'll read it again as soon as the storage works; "
    "you don't need to repeat it."
)
NOT_KEPT_HERE = "This could not be saved, so nothing was done. If nothing happens within a few minutes, please send it again."
_READ_LATE = "I could only read it in Slack after the decision, so it did not count."
OTHER_BOT = "another bot is connected to the same Slack app and receives some of its clicks and replies"
ANOTHERS = (
    "Another installation of clarify-bot posted this, so your click had no effect. If two bots share this Slack app, "
    "click again: Slack may send it to the other one. If the message is old, look for the question's newest card."
)
UNKNOWN_CARD = (
    "I don't recognize this message, so your click had no effect. If the question is still open, "
    "answer it on its newest card; “/clarify” lists the open questions."
)
NOT_YOUR_WINDOW = "This window was opened for someone else, so nothing was recorded."
ANOTHERS_THREAD = (
    "I don't recognize the message that starts this thread, so your reply did not reach an agent. If another installation "
    "of clarify-bot posted it, use its buttons. If the question is still open, answer it on its newest card; “/clarify” "
    "lists the open questions."
)
_QUOTED, _NAME, _WHY = 200, 100, 300
# The message for an error, and whether something may have been recorded.
_FIXED: tuple[tuple[type[Exception], str, bool], ...] = (
    (ArgumentsChanged, ARGUMENTS_CHANGED, True),
    (Superseded, STALE_CARD, True),
    (LedgerInDoubt, NOT_SURE, True),
    (LedgersAway, LEDGERS_AWAY, False),
    (LockTimeout, BUSY, False),
    (RepliesUnread, REPLIES_UNREAD, False),
    (SlackError, PEOPLE_UNKNOWN, False),
)


@dataclass(frozen=True, slots=True)
class Tell:
    """A message to the person alone, as `blocks` if there are any. Without text, the card shows it."""

    text: str = ""
    blocks: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Nothing was recorded, and Slack must not get an acknowledgement. With `busy`, telling the person is enough once
    the message is known to have arrived.
    """

    text: str
    blocks: list[dict[str, Any]] | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class OpenModal:
    """Shows a modal, or another page of one."""

    view: View


@dataclass(frozen=True, slots=True)
class FieldErrors:
    """What to correct in a submitted modal: block_id → message."""

    errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Their answer is in `record`. The card shows it, but hardly an approval that needs more, so `text` says that.

    `left_out`: without something that they attached, which `text` says, too.
    """

    record: Clarification
    left_out: bool = False

    @property
    def text(self) -> str:
        if self.left_out:
            return f"{accepted(self.record)} {LEFT_OUT}"
        return accepted(self.record) if self.record.is_open else ""


Told = Tell | Unrecorded
Reaction = Told | OpenModal | FieldErrors | Recorded


def explained(error: Exception, clarification_id: str) -> Told:
    """Returns what to tell a person about an error. Logs it, without contents."""
    text, recorded = next(
        ((text, recorded) for kind, text, recorded in _FIXED if isinstance(error, kind)), ("", True)
    )
    match error:
        case _ if text:
            pass
        case NotOpen():
            text = closed(error.record)
        case AnswerRejected() | BadInput() | NotCounted() | Tampered():
            text = inert.escape(str(error))
        case NotFound():
            text = unknown_clarification(clarification_id)
        case _:
            text, recorded = STORAGE_FAILED, False
    if recorded:
        return Tell(text)
    _log.warning("nothing recorded for %s: %s", clarification_id, error)
    return Unrecorded(text, busy=isinstance(error, LockTimeout | RepliesUnread))


def already_answered(record: Clarification, number: int | None = None) -> str:
    """Says who answered first, what and when. `number`: the round in question; None: the last."""
    shown = round_of(record, number)
    return f"{_id(record)} was already {_decided(shown)}{_when(shown.answered_at)}."


def owned(record: Clarification, user: str) -> str:
    """Says who has claimed an open question, to `user`, who has just claimed or released it."""
    name, holder = _id(record), record.attention.taken_by
    if holder is None:
        return f"{name} is unclaimed now: everyone who may answer is reminded of it."
    if holder.user != user:
        return f"{inert.person(holder.user)} has claimed {name}. Nothing was changed; click {TAKE_OVER} on its card to claim it."
    if record.status == "escalated":
        return f"You claimed {name}. Its pages stop. Please answer it, or hand it over."
    return f"You claimed {name}: reminders go to you alone. Click {RELEASE} on its card to give it back."


def closed(record: Clarification) -> str:
    """Says why it takes no answer any more, or who answered."""
    shown = round_of(record)
    if shown.stage == "answered":
        return already_answered(record)
    if record.is_open:
        over = f"it expired{_when(record.asked.expires_at)}"
        return (
            f"{_id(record)} takes no new answers: {over}. Replies sent before that are still being collected."
        )
    why = {
        "expired": f"it expired{_when(record.asked.expires_at)}; the agent {fallback_words(record.asked, _quoted)}",
        "cancelled": "the agent's session was cancelled",
        "session ended": "the agent's session has ended",
        "requester moved on": "the agent has moved on without an answer",
        "by hand": f"it was closed without an answer{_closed_by(shown)}",
    }.get(record.current.closed or "")
    if why:
        return f"{_id(record)} no longer takes answers: {why}."
    return f"{_id(record)} no longer takes answers: it is {record.status}{_closed_by(shown)}."


def found_late(label: str, decided: str) -> str:
    """Says that a reply was in time but read after the decision. `decided`: from `closed` or `already_answered`."""
    return f"Your reply {_quoted(label)} was written in time, but {_READ_LATE} {decided}"


def asked_since(record: Clarification) -> str:
    """Says that a reply was written before this question was shown, so it does not answer it."""
    return (
        f"Your reply was written before {_id(record)} was asked, so it was not recorded. "
        "If you meant it as the answer, please send it again."
    )


def found_late_aloud(user: str, label: str, said_at: datetime, decided: str) -> str:
    """Says the same to everybody in the thread."""
    replied = f"{inert.mention(user)} replied {_quoted(label)} in time{_when(said_at)}"
    return f"{replied}, but {_READ_LATE} {decided}"


def not_allowed(why: str, answerers: Sequence[str]) -> str:
    """Says why a person may not answer, and who may. `answerers` as configured: `members`, U…, S…."""
    named = [_answerer(each) for each in answerers]
    may = f" These people can: {listed(named)}." if named else " No answerers are configured here."
    return f"You cannot answer this: {inert.escaped_line(why, _WHY)}.{may}"


def unseen_clarification(clarification: str) -> str:
    """Says that there is no such question for this person, and not whether there is one for others."""
    name = inert.escaped_line(clarification, 40)
    return f"There is no question {name}, or you are not in the channel where it was asked."


def unknown_clarification(clarification: str) -> str:
    return f"There is no question {inert.escaped_line(clarification, 40)}."


def accepted(record: Clarification) -> str:
    """Says that the answer was recorded, or is one of several approvals."""
    shown = round_of(record)
    if record.is_open:
        told = (
            f"Approval of {_id(record)} recorded.",
            shown.more_approvals,
            shown.lapsed_words,
        )
        return " ".join(filter(None, told))
    if _is_approval(shown):
        return f"{_id(record)} is {_decided(shown)}."
    return f"{_id(record)} is answered: {_answer(shown)}."


def unreadable_reply(asked: Question, hint: str | None = None) -> str:
    """Says how to answer, after an unreadable reply in the thread. `hint`: the particular problem, if known."""
    said = inert.escape(inert.clip(hint, 600)) if hint else inert.escape(answers.hint(asked))
    return f"I couldn't read that as an answer. {said} {HOW_TO_COMMENT}"


def edit_ignored(record: Clarification) -> str:
    """Says that editing or deleting a reply does not change the answer that it gave."""
    shown = round_of(record)
    if shown.stage != "answered":
        return EDITED
    if _is_approval(shown):
        return f"{EDITED} {_id(record)} stays {_decided(shown)}."
    return f"{EDITED} {_id(record)} stays answered with {_answer(shown)}."


def begin_with(bot_user: str, words: str) -> str:
    """Asks to start the message with the mention, if it is in the middle and words that change something follow."""
    bot, shown = inert.mention(bot_user), inert.escape(inert.line(words, 80))
    return f"Nothing was changed. If that was for me, start with the mention: “{bot} {shown}”, or type “/clarify {shown}”."


def waiting(status: str, on: Sequence[str], listed: Callable[[Sequence[str]], str]) -> str:
    """Says whom an agent waits for: `blocked on architect`, `waiting for a person`.

    Args:
        status: of the agent.
        on: the roles that it waits for; `human` stands for people.
        listed: turns names into a list ready to be shown.
    """
    agents = [each for each in on if agent_key(each) != HUMAN]
    if not agents:
        return "waiting for a person" if on else status
    return f"{status} on {listed(agents)}{' and a person' if len(agents) < len(on) else ''}"


def _closed_by(shown: ShownRound) -> str:
    who = shown.closed_by(_NAME)
    return f" by {who.mrkdwn}" if who else ""


def _is_approval(shown: ShownRound) -> bool:
    """Returns whether it was approved or rejected, rather than answered."""
    return shown.decided is not None and shown.decided.outcome != "answered"


def _answer(shown: ShownRound) -> str:
    said = _quoted(shown.answer_label)
    return dated(said, shown.decided) if shown.decided is not None else said


def _decided(shown: ShownRound) -> str:
    return decided_words(shown.decided, _QUOTED) if shown.decided is not None else "closed"


def _when(moment: datetime | None) -> str:
    return f" ({inert.date(moment)})" if moment else ""


def _answerer(entry: str) -> str:
    if entry == "members":
        return "full members of this workspace who are in the channel"
    return inert.group(entry) if inert.is_group(entry) else inert.person(entry, 40)


def _quoted(text: str) -> str:
    return inert.quoted_escaped(text, _QUOTED)


def _id(record: Clarification) -> str:
    return inert.escaped_line(record.id, 40)
