"""Agents ask agents: the Clarification Protocol, for whoever has a router and its ledger.

`Hub` asks, waits and answers. The target may be a responder, another agent that asks what is waiting for it, or a person in
Slack. Workflow files define who may ask whom (`core.workflow`).

A responder answers for a role: a command or an HTTP endpoint (`Responder` is the port). `Dispatcher` sends questions to the
responders of their roles: it tries twice, then escalates to people. The first valid answer wins, from a responder or a
person: when a question is answered, closed, escalated or asked again, its responder is stopped. The limit on concurrent work
is per role, so that no role waits for another.

What can go wrong is drawn in `core.errors`; every error has a stable `code`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any, Protocol

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
    agent_key,
    answer_of,
    has_expired,
    one_line,
    parse_id,
)
from core.clock import Clock, backoff, iso
from core.errors import (
    AgentError,
    AnswerRejected,
    BadInput,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    ScopeViolation,
    Tampered,
    TooLong,
)
from core.escalation import escalation_words
from core.ledger import Ledger
from core.names import whole_characters
from core.router import BODY_LIMIT, Router
from core.summary import Seen, Summary, summary_of
from core.transitions import Closed, MaxRoundsExceeded, NotOpen, Superseded
from core.workflow import ROLE_LIMIT, Scopes, is_role, role_name

_log = logging.getLogger("clarify.responders")
CONTEXT_LIMIT = 4096  # as in AAEP
HIGHEST_ISSUE = 100_000  # above, numbers are for sessions that name no issue
_HIGHEST_NUMBER = 10**9
_LOOK_EVERY = 1.0  # seconds, if no notice of a write arrives
RETRY_AFTER = 30.0  # seconds
_ATTEMPTS = 2
_PAUSE, _LONGEST_PAUSE = 1.0, 5.0  # seconds between tries at a locked ledger
_Working = Callable[[Summary, bool], None]


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


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The question to a responder: the current round of a clarification. Its text is not in `repr`, to keep it out of logs.

    `attempt` counts from 1; `last_error` says what was wrong with the previous attempt.
    """

    record: Clarification = field(repr=False)
    attempt: int = 1
    last_error: str | None = field(default=None, repr=False)

    @property
    def role(self) -> str:
        """The target's name as one line for people."""
        return role_name(self.record.to)

    def as_json(self) -> dict[str, Any]:
        """The message to a responder: JSON types only. `answerBy` is on our clock; None: it never expires."""
        record, asked = self.record, self.record.asked
        return {
            "clarificationId": record.id,
            "issueNumber": record.issue_number,
            "from": record.from_,
            "to": record.to,
            "topic": record.topic,
            "question": record.question,
            "blocking": record.blocking,
            "round": record.round,
            "maxRounds": record.max_rounds,
            "context": asked.context,
            "acceptedResponseKinds": list(asked.kinds),
            "choices": [{"value": choice.value, "label": choice.label} for choice in asked.choices],
            "thread": [entry.as_json() for entry in record.thread],
            "answerBy": iso(record.expires_at) if record.expires_at else None,
            "attempt": self.attempt,
            "lastError": self.last_error,
        }


class Responder(Protocol):
    async def answer(self, inquiry: Inquiry) -> str:
        """Returns the answer in words, as a person would type it. If cancelled, it stops what it started.

        Raises:
            AgentError: it has no usable answer. The message begins with the role and says what happened, without quoting
                question or answer.
        """
        ...


class _NoLongerNeeded(Exception):
    """The question does not need a responder any more."""


@dataclass(eq=False, slots=True)
class _Job:
    """Work on one round of a clarification; `record` is from when the work began."""

    record: Summary
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    writing: bool = False
    stopped: bool = False
    begun: bool = False
    lost: bool = False  # its ledger is gone: its next change counts as new

    def stop(self) -> None:
        """Stop at once, but never interrupt a write: the ledger decides whether it still counts."""
        if not self.stopped:
            self.stopped = True
            if self.task is not None and not self.writing:
                self.task.cancel()


class Dispatcher:
    """Sends each clarification that `record_changed` reports to its role's responder, while `run` runs.

    Args:
        responders: by role, in any spelling.
        ledger: read before each attempt, so that a late `record_changed` does no harm.
        scopes: questions by other implementations are held back if no workflow allows them; None: not checked.
        working: called when a responder begins (True) and ends (False) work on a clarification. It must not raise.
        at_once: the most responders of one role at a time.
    """

    def __init__(
        self,
        *,
        responders: Mapping[str, Responder],
        router: Router,
        ledger: Ledger,
        clock: Clock,
        scopes: Scopes | None = None,
        working: _Working = lambda *_: None,
        at_once: int = 8,
    ) -> None:
        self._responders = {agent_key(role): responder for role, responder in responders.items()}
        self._names = {agent_key(role): role_name(role) for role in responders}
        self._router = router
        self._ledger = ledger
        self._clock = clock
        self._scopes = scopes
        self._working = working
        self._slots = {role: asyncio.Semaphore(at_once) for role in self._responders}
        self._waiting: dict[str, Summary] = {}  # by clarification
        self._ended: dict[
            str, tuple[int, int]
        ] = {}  # by waiting clarification: round and nudges when its work ended
        self._jobs: dict[str, _Job] = {}
        self._group: asyncio.TaskGroup | None = None  # of the jobs; None: it does not run

    def record_changed(self, record: Seen) -> None:
        """Begin, continue or stop the work on a clarification that changed."""
        if agent_key(record.to) not in self._responders:
            return
        job = self._jobs.get(record.id)
        if not record.is_with_target or record.is_held_back:
            self._waiting.pop(record.id, None)
            self._ended.pop(record.id, None)
            if job is not None:
                job.stop()
            return
        self._waiting[record.id] = summary_of(record)
        if job is not None and job.record.round != record.round:
            job.stop()  # the next round begins when this has ended
        self._begin(record.id)

    async def run(self) -> None:
        """Run responders until cancelled; returns when all of them are stopped."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for clarification in self._waiting:
                    self._begin(clarification)
                await asyncio.Event().wait()
            finally:
                self._group = None

    def _begin(self, clarification: str) -> None:
        """Begins work if it must: it waits, and no work is running or has ended since it was asked or nudged."""
        waiting = self._waiting.get(clarification)
        if self._group is None or waiting is None or clarification in self._jobs:
            return
        if self._ended.get(clarification) == (waiting.round, waiting.nudges):
            return
        job = self._jobs[clarification] = _Job(waiting)
        job.task = self._group.create_task(self._work(job), name=f"responder {clarification}")
        job.task.add_done_callback(lambda _: self._finish(job))  # also when it was stopped before it ran

    def _finish(self, job: _Job) -> None:
        clarification = job.record.id
        del self._jobs[clarification]
        if job.begun:
            self._working(job.record, False)  # noqa: FBT003 - a callback
        waiting = self._waiting.get(clarification)
        if waiting is None:
            return
        if job.stopped:
            self._begin(clarification)
        elif job.lost:
            del self._waiting[clarification]
        else:
            self._ended[clarification] = (job.record.round, waiting.nudges)

    async def _work(self, job: _Job) -> None:
        try:
            await self._have_answered(job)
        except asyncio.CancelledError:
            if not job.stopped:
                raise
            _log.info("%s: responder stopped, answer no longer needed", job.record.id)
        except (_NoLongerNeeded, NotOpen):
            _log.info("%s: already answered or closed", job.record.id)
        except (NotFound, LedgerUnreadable) as error:
            job.lost = True
            _log.error("%s: cannot read the ledger for a responder: %s", job.record.id, error)
        except Exception:  # noqa: BLE001 - one odd record must not stop the work on the others
            _log.exception("%s: cannot ask a responder", job.record.id)

    async def _have_answered(self, job: _Job) -> None:
        """Ask at most twice, then escalate."""
        said, hint = "", None
        for attempt in range(1, _ATTEMPTS + 1):
            if attempt > 1:
                await self._clock.sleep(RETRY_AFTER)
            try:
                await self._answer(job, await self._ask(job, attempt, hint))
            except AgentError as error:
                said = hint = str(error)
                _log.warning("%s: attempt %d failed: %s", job.record.id, attempt, said)
            except (AnswerRejected, BadInput) as error:
                # Keep the hint out of the log: it may quote question or answer.
                hint = str(error)
                misfit = f"{role_name(job.record.to)} gave an invalid answer"
                said = f"{misfit} ({hint})"
                _log.warning("%s: attempt %d failed: %s", job.record.id, attempt, misfit)
            else:
                return
        await self._pass_on(job, f"{AgentError.code}: {said}, even when asked twice.")

    async def _check(self, job: _Job, record: Clarification) -> None:
        """Hold back a question of another implementation that no workflow allows; our own were checked before."""
        if self._scopes is None or record.asked.via is not None or record.asked.producer is not None:
            return
        try:
            await asyncio.to_thread(self._scopes.check, record.from_, record.to, blocking=record.blocking)
        except ScopeViolation as error:
            reason = str(error)
            await self._write(job, lambda: self._router.hold_back(record.id, reason))
            raise _NoLongerNeeded from None

    async def _ask(self, job: _Job, attempt: int, hint: str | None) -> str:
        role = agent_key(job.record.to)
        async with self._slots[role]:
            record = await self._current(job)
            await self._check(job, record)
            inquiry = Inquiry(record, attempt, hint)
            if not job.begun:
                job.begun = True
                self._working(job.record, True)  # noqa: FBT003 - a callback
            return await _asked(self._responders[role], inquiry)

    async def _answer(self, job: _Job, text: str) -> None:
        record, at = job.record, self._clock.now()
        role = self._names[agent_key(record.to)]  # as configured, not as the asker spelled it
        await self._write(
            job,
            lambda: self._router.answer(
                record.id,
                lambda record: from_text(record.asked, text),
                Decider(f"agent:{role}", "responder"),
                at,
                round=record.round,
            ),
        )
        _log.info("%s: answered by %s", record.id, role)

    async def _pass_on(self, job: _Job, reason: str) -> None:
        words = escalation_words(await self._current(job), "agent failed", reason=reason)
        await self._write(
            job,
            lambda: self._router.escalate(
                job.record.id,
                "agent failed",
                words,
                only=lambda record: _still_waits(record, job.record.round),
            ),
        )

    async def _current(self, job: _Job) -> Clarification:
        """The current record; raises _NoLongerNeeded unless it still waits for this work."""
        while True:
            try:
                record = await self._ledger.find(job.record.id)
            except LockTimeout as error:
                _log.warning("%s: responder delayed: %s", job.record.id, error)
                await self._clock.sleep(_PAUSE)
            else:
                if not _still_waits(record, job.record.round) or has_expired(record, self._clock.now()):
                    raise _NoLongerNeeded
                return record

    async def _write(self, job: _Job, write: Callable[[], Awaitable[object]]) -> None:
        """Write, retrying until it succeeds: a busy ledger must not cause another call of the agent."""
        for failures in count():
            job.writing = True
            try:
                await write()
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("%s: responder's outcome not recorded yet, will retry: %s", job.record.id, error)
            else:
                return
            finally:
                job.writing = False
            if job.stopped:
                raise _NoLongerNeeded
            await self._clock.sleep(backoff(failures, first=_PAUSE, longest=_LONGEST_PAUSE))


async def _asked(responder: Responder, inquiry: Inquiry) -> str:
    """The responder's answer; raises AgentError for any exception."""
    try:
        return (await responder.answer(inquiry)).strip()
    except AgentError:
        raise
    except Exception as error:
        _log.exception("%s: responder of %s failed", inquiry.record.id, inquiry.role)
        raise AgentError(f"{inquiry.role} could not be asked ({type(error).__name__})") from error


def _still_waits(record: Clarification, number: int) -> bool:
    return record.is_with_target and record.round == number and record.asked.held_back is None
