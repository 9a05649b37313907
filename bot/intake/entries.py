"""Imports what other programs wrote about clarifications. It counts like any other message, but can never approve an action (P5)."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog

from bot.errors import StorageUnavailable
from core.answers import TEXT_LIMIT, from_text
from core.clarification import Answer, Ask, Clarification, Decider, Entry, Question
from core.clock import Clock
from core.errors import (
    AnswerRejected,
    BadInput,
    ClarifyError,
    LedgerInDoubt,
    LedgersAway,
    LedgerUnwritable,
    LockTimeout,
)
from core.ledger import Ledger
from core.router import BODY_LIMIT, Router

_log = structlog.get_logger("clarify.entries")
NOT_NOW = (LockTimeout, LedgerUnwritable, LedgersAway, LedgerInDoubt, StorageUnavailable)
Counted = Literal["taken", "refused", "for people"]
"""What came of an entry: it was taken; it came second or does not fit; or it decides about an action, which only people do."""


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Entries:
    """Imports what programs wrote that are neither a producer nor a person: their names count as `agent:…` or `ledger:…`.

    Each method raises LockTimeout, LedgerUnwritable, LedgersAway, LedgerInDoubt or StorageUnavailable if it cannot do that now.
    """

    router: Router
    ledger: Ledger
    clock: Clock

    async def open(self, begun: Clarification) -> Clarification:
        """Opens a clarification that another program began, with only its question, and returns it. If its number is taken, it gets
        the next free one.

        Raises:
            BadInput: it contains more than a question.
        """
        if begun.rounds or begun.status != "pending" or [each.type for each in begun.thread] != ["question"]:
            raise BadInput("expected a new question")
        return await self.router.take_in(begun)

    async def add(self, record: Clarification, entry: Entry, by: Decider, *, abandons: bool) -> Counted:
        """Adds an entry to the thread. `abandons`: as a resolution, it closes the question without an answer."""
        limit = TEXT_LIMIT if entry.type == "answer" and record.asked.reply_token else BODY_LIMIT
        if len(entry.body) > limit:
            return "refused"
        if record.asked.is_confirmation and entry.type in {"answer", "resolution"}:
            self.router.note_refusal(record, by, "not in Slack", _decision(record, entry.body))
            return "for people"
        return await _counted(record, self._add(record, entry, by, abandons=abandons))

    async def _add(self, record: Clarification, entry: Entry, by: Decider, *, abandons: bool) -> None:
        body, at, router = entry.body, self.clock.now(), self.router
        meant = entry.round if "round" in entry.model_fields_set else None
        if entry.type == "question":
            asker = by.decided_by.removeprefix("agent:")
            ask = Ask(asker, body, record.to, record.topic, record.blocking, Question(received_at=at))
            await router.follow_up(record.id, ask)
        elif entry.type == "escalation":
            await router.escalate(record.id, "by hand", body or None, by)
        elif entry.type == "answer":
            await router.answer(record.id, partial(_read, body), by, at, meant)
        elif abandons:
            await router.abandon(record.id, by, body)
        else:
            await router.resolve(record.id, partial(_read, body), body, by, at, round=meant)

    async def move(self, record: Clarification, status: str, by: Decider) -> Counted:
        """Sets a status that no entry explains."""
        if status != "escalated" and record.asked.is_confirmation:
            return "refused"
        return await _counted(record, self._move(record, status, by))

    async def _move(self, record: Clarification, status: str, by: Decider) -> None:
        if status == "escalated":
            await self.router.escalate(record.id, "by hand", None, by)
        elif status == "resolved":
            await self.router.resolve(record.id, partial(_read, ""), "", by, self.clock.now())
        else:
            await self.router.abandon(record.id, by)


async def _counted(record: Clarification, act: Awaitable[None]) -> Counted:
    try:
        await act
    except NOT_NOW:
        raise
    except ClarifyError as error:
        _log.info("another program's entry does not count", id=record.id, reason=str(error))
        return "refused"
    return "taken"


def _decision(record: Clarification, body: str) -> str | None:
    """Returns what an entry says about an action, if it says anything."""
    with suppress(AnswerRejected):
        return str(from_text(record.asked, body).response)
    return None


def _read(body: str, record: Clarification) -> Answer:
    return from_text(record.asked, body)
