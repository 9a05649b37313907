"""Agents ask agents: the Clarification Protocol, for whoever has a router and its ledger.

The target may be a responder, another agent that asks what is waiting for it, or a person in Slack. Workflow files define
who may ask whom (`core.workflow`).

What can go wrong is drawn in `core.errors`; every error has a stable `code`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from core.answers import from_text
from core.clarification import (
    DONE,
    TOPIC_LIMIT,
    Answer,
    Ask,
    Clarification,
    Decider,
    Question,
    Via,
    answer_of,
    one_line,
    parse_id,
)
from core.clock import Clock
from core.errors import BadInput, LockTimeout, Tampered, TooLong
from core.escalation import escalation_words
from core.ledger import Ledger
from core.names import whole_characters
from core.router import BODY_LIMIT, Router
from core.transitions import Closed, MaxRoundsExceeded, Superseded
from core.workflow import ROLE_LIMIT, Scopes, is_role

CONTEXT_LIMIT = 4096  # as in AAEP
HIGHEST_ISSUE = 100_000  # above, numbers are for sessions that name no issue
_HIGHEST_NUMBER = 10**9
_LOOK_EVERY = 1.0  # seconds, if no notice of a write arrives


def check_issue(issue: int) -> None:
    if type(issue) is not int or not 1 <= issue <= _HIGHEST_NUMBER:
        raise BadInput(f"The issue must be a whole number from 1 to {HIGHEST_ISSUE}.")
    if issue > HIGHEST_ISSUE:
        raise BadInput(f"Issue {issue} is reserved for sessions without an issue. Use 1 to {HIGHEST_ISSUE}.")


def check_role(what: str, role: str) -> None:
    if not isinstance(role, str):
        raise BadInput(f"The {what} must be a string.")
    if len(role) > ROLE_LIMIT:
        raise TooLong(what, len(role), ROLE_LIMIT)
    if not is_role(role):
        raise BadInput(f"The {what} must be a role: one line of 1 to {ROLE_LIMIT} printable characters.")


def check_question(question: str, context: str | None) -> None:
    check_text("question", question, BODY_LIMIT)
    check_text("context", context or "", CONTEXT_LIMIT, may_be_empty=True)


def limited(ask: Ask, scopes: Scopes) -> Ask:
    """Returns a question between agents with the limits of the workflow that allows it. Reads files.

    Raises:
        ScopeViolation, BlockingNotAllowed: no workflow does.
    """
    limits = scopes.check(ask.agent_id, ask.to, blocking=ask.blocking)
    sla_minutes = limits.sla and limits.sla / timedelta(minutes=1)
    return replace(ask.under(sla_minutes=sla_minutes), max_rounds=limits.max_rounds)


def check_reason(reason: str | None) -> None:
    check_text("reason", reason or "", BODY_LIMIT, may_be_empty=True)


def check_text(what: str, text: str, limit: int, *, may_be_empty: bool = False) -> None:
    if not isinstance(text, str):
        raise BadInput(f"The {what} must be a string.")
    if len(text) > limit:
        raise TooLong(what, len(text), limit)
    if not may_be_empty and not text.strip():
        raise BadInput(f"The {what} must not be empty: 1 to {limit} characters.")


@dataclass(kw_only=True, eq=False)
class Hub:
    """Ask, wait, answer. Use it in one event loop.

    Methods that change something raise LockTimeout, LedgerUnreadable or LedgerUnwritable as `Ledger.transact` does; then
    nothing was changed. Methods that take an id raise BadInput if it is malformed, NotFound if there is no such
    clarification.
    """

    router: Router
    ledger: Ledger
    scopes: Scopes
    clock: Clock
    via: Via = "http"

    async def request(self, issue: int, ask: Ask, key: str | None = None) -> Clarification:
        """Ask about an issue (1 to 100000). If the same agents had an answered clarification on the same topic, this is its next
        round.

        Asking again with the same `key` about the same issue returns the same question and writes nothing.

        Raises:
            BadInput: a role is no line of 1 to 80 characters (people are "human"), the topic has over 200 characters, the
                question none or over 2000, or its context over 4096; names the field.
            ScopeViolation, BlockingNotAllowed: its workflow does not allow it; nothing was written.
            MaxRoundsExceeded: the last round was over; the question was escalated to people.
            Tampered: it was asked before, and changed after it was decided.
        """
        check_issue(issue)
        check_role("requester (from)", ask.agent_id)
        check_role("target (to)", ask.to)
        check_text("topic", ask.topic or "", TOPIC_LIMIT, may_be_empty=True)
        check_question(ask.question, ask.asked.context)
        opened = await self.router.open(issue, await self._allowed(ask, key))
        if opened.how == "duplicate":
            await self.find(opened.record.id)
        return opened.record if opened.how == "new" else _within_rounds(opened.record)

    async def follow_up(
        self, clarification_id: str, question: str, context: str | None = None, key: str | None = None
    ) -> Clarification:
        """Ask a follow-up: the next round of an answered clarification, from the same agent.

        `key`: see `request`.

        Raises:
            BadInput: the question or context is too long or empty, or a producer's event asked, and only its events can
                follow up.
            NotAnswered: the previous question has no answer yet. Closed: it was resolved or abandoned.
            ScopeViolation, BlockingNotAllowed, MaxRoundsExceeded: as `request`.
        """
        check_question(question, context)
        record = await self.find(clarification_id)
        asked = Question(context=context)
        ask = Ask(record.from_, question, record.to, record.topic, record.blocking, asked)
        opened = await self.router.follow_up(clarification_id, await self._allowed(ask, key))
        return _within_rounds(opened.record)

    async def find(self, clarification_id: str) -> Clarification:
        """The current clarification.

        Raises:
            Tampered: it does not agree with the receipt of its decision.
        """
        record = await self.ledger.find(clarification_id)
        if await self.ledger.is_tampered(record):
            raise Tampered(clarification_id)
        return record

    async def wait(
        self,
        clarification_id: str,
        timeout: float | None = None,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification:
        """Wait for the answer to the question of `round`, through nudges and escalation; `answer_of` finds it in the result.

        `timeout` is in seconds, None: no limit; an existing answer is returned even with 0. `round` None: that of the latest
        question.

        Raises:
            Closed: there will be no answer.
            Superseded: the next question was asked without an answer to this one.
            TimeoutError: not within `timeout`.
            LedgerUnreadable: the ledger is broken.
        """
        meant = round

        def is_answered(record: Clarification) -> bool:
            nonlocal meant
            meant = record.round if meant is None else meant
            return has_answer(record, meant)

        return await self.until(clarification_id, is_answered, timeout)

    async def until(
        self, clarification_id: str, done: Callable[[Clarification], bool], timeout: float | None = None
    ) -> Clarification:
        """Wait until `done(clarification)`; it is called at once, then after every change.

        Raises:
            TimeoutError: not within `timeout` seconds. Also what `done` raises.
        """
        parse_id(clarification_id)
        async with self.ledger.woken(clarification_id) as woken:
            record = await self._look(clarification_id)
            async with asyncio.timeout(timeout):
                while record is None or not done(record):
                    await _set(woken)
                    record = await self._look(clarification_id)
        return record

    async def answer(
        self,
        clarification_id: str,
        text: str,
        decider: Decider,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification:
        """Answer it, as `Router.answer` does: the first valid answer wins. `round`: the round that is meant, if known.

        Raises:
            AnswerRejected, TooLong: `text` does not answer the question; with a hint.
            AlreadyAnswered, Closed, Superseded: with the record as it is.
        """
        return await self.router.answer(clarification_id, _reads(text), decider, self.clock.now(), round)

    async def resolve(
        self,
        clarification_id: str,
        text: str,
        decider: Decider,
        round: int | None = None,  # noqa: A002 - as above
    ) -> Clarification:
        """Close it with the decision, which is the answer if it is open. Raises what `answer` raises."""
        now = self.clock.now()
        return await self.router.resolve(clarification_id, _reads(text), text, decider, now, round=round)

    async def escalate(
        self, clarification_id: str, decider: Decider, reason: str | None = None
    ) -> Clarification:
        """Escalate an open one to the person on call, with a reason of at most 2000 characters.

        Raises:
            AlreadyAnswered, Closed: with the record as it is.
        """
        check_reason(reason)
        record = await self.find(clarification_id)
        said = one_line(reason or "")
        words = f"{said}\n{escalation_words(record, 'by hand')}" if said else None
        return await self.router.escalate(clarification_id, "by hand", words, decider)

    async def abandon(
        self, clarification_id: str, decider: Decider, reason: str | None = None
    ) -> Clarification:
        """Close an open one without an answer, with a reason of at most 2000 characters.

        Raises:
            AlreadyAnswered, Closed: with the record as it is.
        """
        check_reason(reason)
        return await self.router.abandon(clarification_id, decider, one_line(reason or ""))

    async def _look(self, clarification_id: str) -> Clarification | None:
        """The record; None if its ledger is being written and locked."""
        try:
            return await self.find(clarification_id)
        except LockTimeout:
            return None

    async def _allowed(self, ask: Ask, key: str | None) -> Ask:
        """Returns a question as it is recorded, if a workflow allows it."""
        ask = await asyncio.to_thread(limited, ask, self.scopes)
        context = ask.asked.context
        ask = ask.under(
            received_at=self.clock.now(),
            context=None if context is None else whole_characters(context),
            via=self.via,
            event_id=key,
        )
        return replace(
            ask,
            agent_id=one_line(ask.agent_id),
            question=whole_characters(ask.question),
            to=one_line(ask.to),
            topic=one_line(whole_characters(ask.topic or "")) or None,
        )


async def _set(woken: asyncio.Event) -> None:
    """Returns on a notice, or after a second, since notices can be lost."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_EVERY):
            await woken.wait()
    woken.clear()


def _within_rounds(record: Clarification) -> Clarification:
    if record.status == "escalated" and record.attention.escalated_for == "rounds exhausted":
        raise MaxRoundsExceeded(record)
    return record


def _reads(text: str) -> Callable[[Clarification], Answer]:
    return lambda record: from_text(record.asked, text)


def has_answer(record: Clarification, round: int) -> bool:  # noqa: A002 - the protocol's word
    """Whether the question of a round was answered.

    Raises:
        Closed, Superseded: it will get no answer.
    """
    if answer_of(record, round) is not None:
        return True
    if record.status in DONE:
        raise Closed(record)
    if round < record.round:
        raise Superseded(record)
    return False
