"""The words about one round of a clarification: what was asked, how it stands, what to know before deciding.

The card, its fallback text, the modals, lists and pages all take their words from here, so that they agree. Risk,
reversibility and what silence does are always said in words, never by colour alone (AAEP §6.4). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal

from bot.views import inert
from bot.views.arguments import argument_words, main_argument, outline
from bot.views.blockkit import ACCEPT, BUTTONS, NO, REJECT, SIGN, YES, Alert, Level, Words, alerts, live_words
from bot.views.markdown import Quote, plain
from core import answers
from core.approvals import RISKS
from core.clarification import (
    HUMAN,
    NOT_GIVEN,
    UNKNOWN,
    US,
    Approval,
    Choice,
    Clarification,
    Confirmation,
    Decision,
    Edit,
    Entry,
    EntryType,
    OfRound,
    Question,
    Round,
    Why,
    agent_key,
)
from core.escalation import reason_words
from core.matching import author_of
from core.names import is_disguised, resembles, skeleton
from core.summary import Decided, DecidedBy, decided_of

Stage = Literal["open", "answered", "closed"]
Verbosity = Literal["terse", "normal", "detailed"]

NAME_LIMIT = 80
ID_LIMIT = 40
DECIDED = 120  # of an answer in words, where its line says how it was decided
_WORD, _WHO, _LEAST = 40, 100, 20
ACTION, CONSEQUENCE, CONTEXT, DETAILS = "Action: ", "Consequence: ", "Context: ", "Details: "
QUESTION, SUMMARY, REASON = "Question: ", "Summary: ", "Reason: "
DEFAULT = "If no one answers, the agent uses its default: "
HOW_TO_COMMENT = "Start with note: to comment without answering."
ASK_AGAIN = "Accept this?"
_REPLY_WORDS = {
    "sending": "Sending to the agent…",
    "delivered": "Delivered",
    "confirmed": "Delivered; the agent has resumed",
    "unconfirmed": "Sent, but not confirmed",
    "refused": "The agent refused the answer",
    "too_late": "Too late: the agent was no longer waiting for this answer",
    "waiting": "Not picked up by the agent yet",
    "unclaimed": "The agent never picked it up",
}
_CLOSED_WORDS = {
    "cancelled": "Cancelled: the agent no longer needs an answer",
    "session ended": "Closed: the agent's session ended",
    "requester moved on": "Closed: the agent moved on without an answer",
    "by hand": "Closed without an answer",
    "withdrawn": "Withdrawn: the agent no longer needs an answer",
}
# For these, the card shows all of the escalation's text but the reason anyway: the question, the topic, the options.
_SHOWN_BY_CARD: frozenset[Why] = frozenset({"stale", "too few people", "by hand"})
LABELS: dict[Decision, str] = {"accept": ACCEPT, "reject": REJECT}
_UNDO = {
    "irreversible": "Irreversible: it cannot be undone",
    "reversible_with_effort": "Reversible, with effort",
    "reversible": "Reversible",
}
_DEFAULTS: dict[Decision | None, str] = {
    "accept": "the agent goes ahead as if this were approved",
    "reject": "this counts as rejected, and the agent does not go ahead",
    None: "the agent has not said what it will do",
}
_EXPIRED_CONFIRMATION: dict[Decision, str] = {
    "accept": "Expired. The agent used its default: go ahead",
    "reject": "Expired. The agent used its default: do not go ahead",
}
_WARNING = (
    "Warning: if no one answers, the agent does this although it cannot be undone. "
    "The protocol requires silence to reject it; this agent breaks that rule."
)
_BY_A_PERSON = frozenset({None, "by hand", "resolved elsewhere"})
_SLACK_NAME = re.compile(r"user:slack/[^/]+/([UW][A-Z0-9]+)")


# For a record that does not agree with its receipt.
TAMPERED = (
    "Tampered with: this was changed after it was decided. The bot no longer hands it out as an answer."
)


@dataclass(frozen=True)
class ShownRound(OfRound):
    """One round of a clarification: `record` with the `current`, `question` and `answer` of round `number`.

    `asks_an_agent`: the target is an agent that a command or an endpoint asks, too.
    """

    record: Clarification
    number: int
    current: Round
    question: str
    answer: Entry | None
    stage: Stage
    asks_an_agent: bool = False

    @cached_property
    def agent(self) -> str:
        """The agent's name on one line, as plain text."""
        return self.agent_within(NAME_LIMIT)

    def agent_within(self, limit: int) -> str:
        named = self.asked.agent_name or self.asked.agent_id or self.record.from_
        return name_of(named, limit)

    @cached_property
    def target(self) -> str:
        """The target's name on one line, as plain text; empty for people in general."""
        return self.target_within(NAME_LIMIT)

    def target_within(self, limit: int) -> str:
        return "" if agent_key(inert.line(self.record.to)) == HUMAN else inert.as_name(self.record.to, limit)

    @property
    def producer(self) -> str:
        """`Producer: ` and the name of the producer that asked, unless the agent is shown by it: what else an agent calls itself is only its
        own claim. Empty if no producer asked.
        """
        named = (self.asked.agent_name, self.asked.agent_id or self.record.from_)
        producer = inert.as_name(self.asked.producer or "", NAME_LIMIT)
        shown = next(filter(None, named), "")
        is_shown = not producer or agent_key(shown) == agent_key(self.asked.producer or "")
        return "" if is_shown else f"Producer: {producer}"

    @property
    def id(self) -> str:
        """The clarification's id, clipped for a heading."""
        return inert.clip(self.record.id, ID_LIMIT)

    @property
    def wanted(self) -> Confirmation | None:
        """The action to approve; None for a question."""
        return self.current.confirmation

    @property
    def context(self) -> str:
        """The background that the agent gave, or an empty text."""
        return inert.plain(self.asked.context or "").strip()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The choices' labels on one line each, as plain text, never empty; quoted and spelled out where confusing."""
        return tuple(
            _spelled_out(each, by_letter=self._doubles[skeleton(each.label)] != (True, False))
            if each.label in self.confusing
            else inert.named(each.label)
            for each in self._choices
        )

    @cached_property
    def confusing(self) -> frozenset[str]:
        """The agent's labels that people could take for another choice's, or for a button of the bot on this card."""
        buttons = BUTTONS | {YES, NO} if "yes_no" in self.asked.kinds else BUTTONS
        labels = [each.label for each in self._choices]
        return frozenset(
            label for label in labels if self._doubles[skeleton(label)][0] or resembles(label, buttons)
        )

    @cached_property
    def _doubles(self) -> dict[str, tuple[bool, bool]]:
        """For each way that labels look: whether several look like this, and whether they are different texts."""
        alike: dict[str, list[str]] = {}
        for each in self._choices:
            alike.setdefault(skeleton(each.label), []).append(inert.cleaned_line(each.label))
        return {look: (len(texts) > 1, len(set(texts)) > 1) for look, texts in alike.items()}

    @property
    def _choices(self) -> Sequence[Choice]:
        return self.asked.choices if "multiple_choice" in self.asked.kinds else ()

    @cached_property
    def numbered(self) -> str:
        """All choices in full, numbered, one per line, with the agent's descriptions."""
        about = self.described or ("",) * len(self.labels)
        said = (
            f"{label}: {words}" if words else label for label, words in zip(self.labels, about, strict=True)
        )
        return "\n".join(f"{n}. {each}" for n, each in enumerate(said, 1))

    @cached_property
    def described(self) -> tuple[str, ...]:
        """The agent's descriptions of the choices, on one line each; empty if there are none."""
        direct = self.asked.direct
        if direct is None or len(direct.descriptions) != len(self.labels):
            return ()
        return tuple(inert.line(plain(each or "")) for each in direct.descriptions)

    @property
    def reminded_at(self) -> datetime | None:
        """When its answerers were reminded last, if they were."""
        return self.attention.nudged_at if self.is_current and self.record.nudges else None

    @property
    def is_current(self) -> bool:
        return self.number >= self.record.round

    @property
    def topic(self) -> str:
        """The topic, unless the question's beginning or the summary already says it."""
        topic = inert.cleaned_line(self.record.topic)
        known = (self.question, self.asked.summary_terse or "")
        told = map(inert.cleaned_line, known)
        return "" if any(text.startswith(topic.rstrip("…")) for text in told) else inert.line(topic)

    @property
    def answer_label(self) -> str:
        """The answer as people read it, or an empty text."""
        if self.given.label is not None:
            return words(self.given.label)
        if self.given.response is not None:
            return words(answers.describe(self.given.response))
        return words(self.answer.body) if self.answer else ""

    @property
    def verb(self) -> str:
        """What the agent does: asks, or asks for approval."""
        verb = "asks" if self.stage == "open" else "asked"
        return verb if self.current.confirmation is None else f"{verb} for approval"

    @property
    def reason(self) -> str:
        """The decider's reason, or an empty text."""
        return words(self.given.rationale) if self.given.rationale else ""

    @property
    def answered_at(self) -> datetime | None:
        return self.given.answered_at or (self.answer.timestamp if self.answer else None)

    @cached_property
    def decided(self) -> Decided | None:
        """How it was decided and by whom, or None if it was not."""
        if self.stage != "answered":
            return None
        name, by = self.given.decided_by, self.given.answered_by
        if not name and self.answer is not None and self.answer.from_:
            name = author_of(self.answer.from_)  # other implementations name agents by their bare role
        user = by.user if by and by.surface == "slack" and inert.is_user(by.user) else None
        decided = decided_of(
            self.current, DecidedBy(inert.line(name or "", 256) or "someone", user), self.answer_label
        )
        form, given = self.asked.form, self.given.response
        if form is not None:
            decided = replace(decided, times=form.times(form.values(given)))
        return decided

    def closed_by(self, limit: int) -> Words | None:
        """Returns who closed it by hand, here or through another implementation, as a mention or a name of at most `limit`;
        None if nobody did.
        """
        by_hand = self.is_current and self.current.closed in _BY_A_PERSON and self.stage == "closed"
        entry = _last(self.record, "resolution", self.record.round) if by_hand else None
        if entry is None or entry.from_ == US:
            return None
        named = _SLACK_NAME.fullmatch(entry.from_)
        if named and inert.is_user(named[1]):
            return Words(inert.mention(named[1]), live=True)
        return Words(inert.line(entry.from_, limit) or "someone")

    def why_closed(self, limit: int) -> str:
        """Returns why it takes no answer any more, with at most `limit` of the agent's own words."""
        if not self.is_current:
            return f"Closed: asked again in round {self.number + 1}"
        reason = self.current.closed
        last = _last(self.record, "resolution", self.record.round)
        if reason == "expired":
            said = expired_words(self.wanted) if self.wanted else ""
            quoted = partial(inert.quoted, limit=limit)
            return said or f"Expired. The agent {fallback_words(self.asked, quoted)}"
        why = last.body.removeprefix("Abandoned: withdrawn.").strip() if last else ""
        if reason == "withdrawn" and why:
            return f"Withdrawn: {inert.quoted(why, limit)}"
        if reason in _CLOSED_WORDS:
            return _CLOSED_WORDS[reason]
        if reason and reason != "resolved elsewhere":
            return f"Closed: {inert.quoted(reason, limit)}"
        return f"Closed: {inert.quoted(last.body, limit)}" if last else "Closed without an answer"

    def escalation_words(self, limit: int) -> str:
        """Returns why a human is needed now, with each side's position; empty unless escalated."""
        if self.record.status != "escalated":
            return ""
        said = inert.clip(self.escalation, limit)
        return f"Escalated. {said}" if said else self.escalation_reason(limit)

    def escalation_reason(self, limit: int) -> str:
        """Returns why a human is needed now, in one line; empty unless escalated."""
        if self.record.status != "escalated":
            return ""
        why = self.attention.escalated_for
        reason = self.escalation.partition("\n")[0] or (reason_words(self.record, why) if why else "")
        said = capital(inert.line(reason, limit))
        return f"Escalated. {inert.sentence(said)}" if said else "Escalated: this needs a person now."

    def reason_hides(self, limit: int) -> bool:
        """Returns whether `escalation_reason` leaves out text that the card does not show elsewhere."""
        if self.record.status != "escalated":
            return False
        reason, _, rest = self.escalation.partition("\n")
        return inert.size(inert.line(reason)) > limit or (
            bool(rest) and self.attention.escalated_for not in _SHOWN_BY_CARD
        )

    @property
    def has_one_side(self) -> bool:
        """Whether an escalation's text, after the reason, only repeats the question."""
        answered = any(entry.type == "answer" for entry in self.record.thread)
        return self.attention.escalated_for in _SHOWN_BY_CARD and not answered

    def instead_words(self, limit: int) -> list[str]:
        """Returns that a question comes from a ledger file, why people see a question to an agent, and who else is asked: up to
        three sentences.
        """
        if self.stage != "open":
            return []
        said = [FROM_A_FILE] if self.asked.from_file else []
        if not self.target:
            return said
        if why := inert.line(self.asked.held_back or ""):
            said.append(f"Shown to people because: {inert.clip(why, limit)}")
        if self.asks_an_agent:
            said.append(f"{self.target} (an agent) was asked too; the first answer counts.")
        return said

    @property
    def holder(self) -> str:
        """Who has claimed an open question, or to whom it was handed: live for Slack users, escaped; or an empty
        text.
        """
        if self.stage != "open":
            return ""
        if self.attention.taken_by:
            return f"Claimed by {inert.person(self.attention.taken_by.user)}"
        return (
            f"Handed to {inert.person(self.attention.handed_to.user)}, not claimed yet"
            if self.attention.handed_to
            else ""
        )

    @property
    def escalation(self) -> str:
        """The latest escalation's text."""
        last = _last(self.record, "escalation", None)
        return inert.plain(last.body).strip() if last else ""

    def subject(self, limit: int) -> Quote:
        """Returns the question in short; of an action what is done, the consequence and the main argument, each on a line after
        its label. `limit`: of each in the agent's words.
        """
        if self.wanted is None:
            return Quote(inert.clip(words(self.question), limit))
        said = [
            f"{each.label}{inert.line(each.plain, limit)}"
            for each in (action_of(self.wanted), consequence_of(self.wanted))
            if each.text
        ]
        with_what = main_argument(self.current.arguments, limit)
        return Quote("\n".join(filter(None, (*said, with_what))), is_data=True)

    @property
    def plain_question(self) -> str:
        """The question, or the action, without markup."""
        return plain(words(self.question)) if self.wanted is None else asked_words(self.question)

    def brief_line(self, limit: int) -> str:
        """Returns the question or the action, and the main argument, on one line in quotation marks, of about `limit`."""
        said = [self.plain_question, main_argument(self.current.arguments, limit) if self.wanted else ""]
        room = inert.shares(list(map(inert.size, said)), limit)
        return " · ".join(
            inert.quoted(each, max(_LEAST, most)) for each, most in zip(said, room, strict=True) if each
        )

    @property
    def reply_words(self) -> str:
        """The state of the reply to the agent; empty if there is none."""
        if self.delivery.reply is None:
            return ""
        note = inert.line(self.delivery.reply_note or "", 300)
        if self.delivery.reply == "sending" and note:
            return f"{inert.sentence(note)} Trying again."
        said = _REPLY_WORDS[self.delivery.reply]
        return (
            f"{said}: {inert.quoted(note)}"
            if note and self.delivery.reply in ("refused", "too_late")
            else said
        )

    def default_words(self, limit: int) -> str:
        """Returns what happens if no one answers, with at most `limit` of the agent's own words."""
        if self.wanted:
            return silence_words(self.wanted)
        if default := default_of(self.asked):
            return f"{DEFAULT}{inert.quoted(default, limit)}"
        if self.asked.expires_at is None:
            return ""
        return "If no one answers, the agent decides on its own"

    def until_aloud(self, limit: int, left: str = "") -> str:
        """Returns the deadline for places where Slack formats nothing, and what happens then; `left`: how long that is."""
        until = (
            f"Answer by {inert.utc(self.asked.expires_at)}{left}."
            if self.asked.expires_at
            else "There is no time limit."
        )
        default = "" if self.wanted else inert.sentence(self.default_words(limit))
        return f"{until} {default}".rstrip()

    @property
    def change_heading(self) -> str:
        """Who changed the arguments last: live, escaped. Empty if nobody did."""
        edits = self.consent.edits or ()
        if not edits:
            return ""
        last = edits[-1]
        number = f" (version {len(edits) + 1})" if len(edits) > 1 else ""
        lapsed = ", ".join(_accepter(each) for each in last.lapsed)
        since = f"; the approval of {lapsed} no longer counts" if lapsed else ""
        return f"Arguments edited by {_accepter(last)}{number}{since}:"

    @property
    def accepted_before(self) -> str:
        """What those who approved first had to say or, if it was rejected then, who they are: live, escaped. Empty if
        there is nothing to add.
        """
        said = [
            each for each in self.consent.approvals or () if each.rationale or not self.current.is_consent
        ]
        by = ", ".join(_accepter(each, each.rationale) for each in said)
        return f"{'Comments' if self.current.is_consent else 'Earlier approvals'}: {by}" if by else ""

    @property
    def people_words(self) -> str:
        """The only person who may answer, whom the agent works for and who may not approve (`requester_words`), and, if
        several people must approve, who did: live, escaped. Otherwise an empty text.
        """
        asked = self.asked
        person = asked.direct.person if asked.direct is not None else None
        asks = f"This question is for {inert.person(person)}." if person else ""
        return " ".join(filter(None, (asks, self.requester_words(), self._approvals_words)))

    @property
    def _approvals_words(self) -> str:
        if self.asked.needed == 1:
            return ""
        by = [_accepter(each, each.rationale) for each in self.consent.approvals or ()]
        if not by:
            return f"Needs {self.asked.needed} approvals (0 of {self.asked.needed})."
        approved = f"Approved by {', '.join(by)} ({len(by)} of {self.asked.needed}). {self.more_approvals}"
        return " ".join(filter(None, (approved, self.lapsed_words)))

    @property
    def missing_words(self) -> str:
        """How many more people must approve, for a reminder; empty if one is enough."""
        if self.asked.needed == 1:
            return ""
        return f"{self.more_approvals[:-1]} ({self.asked.needed - self.current.missing} of {self.asked.needed} so far)."

    @property
    def too_few_words(self) -> str:
        """A warning if fewer people may answer than must approve; otherwise an empty text."""
        if self.consent.too_few is None or self.consent.too_few >= self.asked.needed:
            return ""
        may = {0: "no one", 1: "only 1 person"}.get(
            self.consent.too_few, f"only {self.consent.too_few} people"
        )
        what = "1 approval" if self.asked.needed == 1 else f"{self.asked.needed} approvals"
        besides = "" if self.asked.four_eyes is None else " by people other than the one the agent works for"
        return f"This needs {what}{besides}, but {may} could answer when it was asked."

    @property
    def more_approvals(self) -> str:
        """How many more people must approve, as a sentence."""
        many = "One more person" if self.current.missing == 1 else f"{self.current.missing} more people"
        return f"{many} must approve."

    @property
    def lapsed_words(self) -> str:
        """Whose approval no longer counts, because they may no longer answer: live, escaped. Empty if all count."""
        again = {each.user for each in self.consent.approvals or ()}
        gone = [each for each in self.consent.lapsed or () if each.user not in again]
        if not gone:
            return ""
        by = listed(list(dict.fromkeys(_accepter(each) for each in gone)))
        many = (
            "The approval of {} no longer counts" if len(gone) == 1 else "The approvals of {} no longer count"
        )
        return f"{many.format(by)}, because they can no longer answer this."

    def requester_words(self, named: Callable[[str], str] = inert.person) -> str:
        """Returns who may not approve, and why, and whom the agent says it works for: live, escaped. Otherwise an empty text.
        `named`: words a user id or an e-mail address.
        """
        requester, barred = self.asked.requested_by, self.asked.barred
        claim = (
            f"Asked for {named(requester.by)}, says the agent." if requester and not requester.pinned else ""
        )
        may_not = ""
        if self.asked.lacks_requester:
            may_not = "No one can approve this: someone other than the person the agent works for must, and who that is isn't configured."
        elif barred is not None:
            may_not = f"{named(barred.by)} can't approve this, because the agent works for them."
        return " ".join(filter(None, (claim, may_not)))


def round_of(record: Clarification, number: int | None = None) -> ShownRound:
    """Returns a round of `record`: the current one, or an earlier one (from 1)."""
    if number is None or not 0 < number < record.round:
        answered = not record.is_open and (
            record.given.response is not None or _last(record, "answer", record.round) is not None
        )
        stage: Stage = "open" if record.is_open else "answered" if answered else "closed"
        answer = _last(record, "answer", record.round) if answered else None
        return ShownRound(record, record.round, record.current, record.question, answer, stage)
    earlier = record.earlier
    past = earlier[number - 1] if number <= len(earlier) else UNKNOWN
    question = _last(record, "question", number)
    answer = _last(record, "answer", number)
    known = past.given.response is not None or answer is not None
    return ShownRound(
        record, number, past, question.body if question else "", answer, "answered" if known else "closed"
    )


def _spelled_out(choice: Choice, *, by_letter: bool) -> str:
    """Returns a confusing label in quotes, with its value if that differs. `by_letter`: letters that only look like Latin
    ones are shown by number.
    """
    shown = inert.visible_line(choice.label)
    if by_letter:
        shown = "".join(f"<U+{ord(char):04X}>" if is_disguised(char) else char for char in shown)
    value = "" if choice.value == choice.label else f" ({inert.visible_line(choice.value)})"
    return f"“{shown}”{value}"


def name_of(agent: str, limit: int = NAME_LIMIT) -> str:
    """Returns an agent's name on one line, as plain text."""
    return inert.as_name(agent, limit) or "An agent"


def words(text: str) -> str:
    """Returns `text` inert, or a placeholder if nothing visible is left."""
    shown = inert.plain(text)
    return shown if shown.strip() else inert.BLANK


def until_words(expires: datetime | None, before: str = "Answer by") -> Words:
    """Returns the deadline."""
    return Words(f"{before} {inert.deadline(expires)}", live=True) if expires else Words("No time limit")


def reminder_words(sent_at: datetime | None) -> tuple[Words, ...]:
    """Returns when people were reminded last, if they were."""
    return live_words(f"Reminder sent {inert.date(sent_at)}") if sent_at is not None else ()


def decided_words(decided: Decided, limit: int = DECIDED, *, with_answer: bool = True) -> str:
    """Returns how it was decided and by whom, in one line: live, escaped. `limit`: of an answer in words."""
    by = [_who(each.name, each.user) for each in decided.by]
    answer = dated(inert.quoted_escaped(plain(decided.answer), limit), decided) if with_answer else ""
    return _decided(decided, by, answer)


def dated(answer: str, decided: Decided) -> str:
    """Returns an answer, escaped, with the moments that a form asked for in the reader's time zone."""
    for said, moment in decided.times:
        answer = answer.replace(inert.escape(said), inert.date(moment))
    return answer


def decided_plainly(decided: Decided, limit: int = DECIDED) -> str:
    """Returns the same as plain text, with names in place of mentions."""
    return _decided(decided, [_named(each.name) for each in decided.by], inert.quoted(decided.answer, limit))


def _who(name: str, user: str | None) -> str:
    """Returns a mention of a Slack user, or a name: live, escaped."""
    return inert.mention(user) if inert.is_user(user) else inert.escape(_named(name))


def _named(name: str) -> str:
    return inert.as_value(name, _WHO) or inert.BLANK


def _decided(decided: Decided, by: Sequence[str], answer: str) -> str:
    who = listed(by)
    said = f"{decided.outcome}: {answer}" if decided.outcome == "answered" and answer else decided.outcome
    return f"{said} by {who}"


def listed(names: Sequence[str]) -> str:
    """Returns names as in a sentence: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def default_of(asked: Question) -> str:
    """Returns what the agent assumes if no one answers; empty if it did not say, and for an approval (`silence_words`)."""
    return "" if asked.is_confirmation else inert.plain(answers.default_label(asked)).strip()


def fallback_words(asked: Question, quoted: Callable[[str], str]) -> str:
    """Returns what the agent did without an answer; `quoted` puts its default in quotation marks."""
    default = default_of(asked)
    return f"used its default: {quoted(default)}" if default else "had no default"


FROM_A_FILE = "From a ledger file: the bot's database is newer, so it cannot confirm what the agent asked."


def _last(record: Clarification, kind: EntryType, number: int | None) -> Entry | None:
    return next(
        (e for e in reversed(record.thread) if e.type == kind and (number is None or e.round == number)), None
    )


def risk_words(wanted: Confirmation) -> str:
    """Returns how grave it is and whether it can be undone, in two sentences, including what the agent did not say."""
    risk = risk_word(wanted.risk_level) or "the agent did not say"
    if wanted.claimed_risk:
        risk += f" (set by this route; the agent said {risk_word(wanted.claimed_risk)})"
    if wanted.is_direct and not wanted.is_irreversible:
        return f"Risk: {risk}."
    return f"Risk: {risk}. {_undo(wanted)}."


def stakes_words(wanted: Confirmation) -> str:
    """Returns what must be read whole, in one line: risk, way back, what silence does, and a warning if it must not
    do that.
    """
    silence = f"{silence_words(wanted)}."
    return " ".join(filter(None, (risk_words(wanted), silence, warning_words(wanted))))


def stakes_alerts(wanted: Confirmation) -> tuple[Alert, ...]:
    """Returns the stakes: how grave it is, whether it can be undone, and a warning if silence would trigger it. They are at
    the top of the card and of each window, and differ at a glance.
    """
    level: Level = "info" if wanted.risk_level == "low" else "warning"
    return alerts("error" if wanted.asks_twice else level, risk_words(wanted), warning_words(wanted))


def warning_words(wanted: Confirmation) -> str:
    """Returns a warning if silence would trigger something irreversible; otherwise an empty text."""
    return _WARNING if wanted.breaks_default_rule else ""


def silence_words(wanted: Confirmation) -> str:
    """Returns what happens if no one answers."""
    if wanted.is_direct and wanted.default_decision is None:
        return "If no one answers, it is not approved"
    return f"If no one answers, {_DEFAULTS[wanted.default_decision]}"


def expired_words(wanted: Confirmation) -> str:
    """Returns what happened after no one answered; empty if the agent did not say."""
    if wanted.is_direct and wanted.default_decision is None:
        return "Expired. No one approved it"
    return _EXPIRED_CONFIRMATION[wanted.default_decision] if wanted.default_decision else ""


def action_of(wanted: Confirmation) -> Quote:
    """Returns what is to be done."""
    return Quote(inert.visible(wanted.action, prose=True) or inert.BLANK, ACTION, exact=True)


def consequence_of(wanted: Confirmation) -> Quote:
    """Returns what follows from it, blank if the agent need not say."""
    if wanted.is_direct and wanted.consequence is None:
        return Quote("")
    return Quote(inert.visible(wanted.consequence or NOT_GIVEN, prose=True), CONSEQUENCE, exact=True)


def listed_words(current: Round, question: str, limit: int) -> str:
    """Returns an open question on one line of a list; an action after its stakes, with a sign where they are grave."""
    wanted = current.confirmation
    if wanted is None:
        return inert.quoted(plain(question), limit)
    stakes = f"{SIGN if wanted.asks_twice else ''}{risk_words(wanted)} "
    return f"{stakes}{inert.quoted(asked_words(question), max(_LEAST, limit - inert.size(stakes)))}"


def asked_words(question: str) -> str:
    """Returns what an approval asked for, without the word before it in the record."""
    return plain(question).removeprefix("Approve: ")


def extras_of(wanted: Confirmation) -> list[Quote]:
    """Returns what else the agent sent, in full: the question and the context if it asked directly, otherwise indented lines."""
    if wanted.is_direct:
        given = ((QUESTION, "question"), (CONTEXT, "context"))
        said = ((label, str((wanted.extra_context or {}).get(name) or "")) for label, name in given)
        return [Quote(inert.visible(text, prose=True), label, exact=True) for label, text in said if text]
    told = outline(wanted.extra_context) if wanted.extra_context else ""
    return [Quote(told, DETAILS, is_data=True)] if told.strip() else []


def whole_words(wanted: Confirmation, arguments: Mapping[str, Any]) -> list[str]:
    """Returns all of an action but the time: the stakes, what is done, the consequence, the arguments, other details."""
    risk = " ".join(filter(None, (risk_words(wanted), warning_words(wanted))))
    action, consequence = action_of(wanted), consequence_of(wanted)
    extras = (each.aloud for each in extras_of(wanted))
    said = (risk, action.aloud, consequence.aloud, argument_words(arguments), *extras)
    return [part for part in said if part]


def _accepter(by: Approval | Edit, why: str | None = None) -> str:
    """Returns who approved or edited, and why."""
    who = _who(by.decided_by, by.user)
    return f"{who} ({inert.quoted_escaped(why, 200)})" if why else who


def risk_word(level: str | None) -> str | None:
    """Returns how grave it is, in a word: one that the protocol does not know as the agent's; empty without one."""
    return level if not level or level in ("not said", *RISKS) else _unknown(level)


def undo_words(said: str | None) -> str:
    """Returns whether it can be undone, by the protocol's word for it; any other as the agent's."""
    return _UNDO.get(said or "") or f"Reversibility: {_unknown(said)}"


def _unknown(said: str | None) -> str:
    return f"unknown (the agent wrote {inert.quoted(said or '', _WORD)})"


def _undo(wanted: Confirmation) -> str:
    said = wanted.reversibility or ""
    if wanted.irreversible is True and said not in ("", "irreversible"):
        known = said.replace("_", " ") if said in _UNDO else inert.quoted(said, _WORD)
        return f"{_UNDO['irreversible']} (the agent also calls it {known})"
    if wanted.is_irreversible:
        return _UNDO["irreversible"]
    if said:
        return undo_words(said)
    return (
        "Reversible" if wanted.irreversible is False else "The agent did not say whether this can be undone"
    )
