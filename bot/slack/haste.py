"""Slack waits three seconds for an acknowledgement: what one interaction may spend on asking Slack who somebody is.

All look-ups of an interaction share one allowance. What waiting for a ledger's lock needs is left of the three seconds;
beyond the allowance nothing is taken, and the person is told so. Work after the acknowledgement is in no hurry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.commands.ports import Roster, Turn
from bot.errors import SlackUnreachableError

_T = TypeVar("_T")
LOOK_UPS = 0.8  # seconds: with two for a ledger's lock they leave 0.2 for writing and acknowledging


@dataclass(slots=True)
class _Allowance:
    left: float


_current: ContextVar[_Allowance | None] = ContextVar("allowance of look-ups", default=None)


@contextmanager
def hurried(seconds: float | None = None) -> Iterator[None]:
    """Inside, and in what is started from inside, look-ups have `seconds` (None: LOOK_UPS) in all."""
    token = _current.set(_Allowance(LOOK_UPS if seconds is None else seconds))
    try:
        yield
    finally:
        _current.reset(token)


async def unhurried(work: Coroutine[Any, Any, _T]) -> _T:
    """`work` with no such limit."""
    _current.set(None)  # of the task that this runs in
    return await work


async def within(look_up: Awaitable[_T]) -> _T:
    """A look-up's result, if it comes while there is allowance left.

    Raises:
        SlackUnreachableError: it did not. The look-up itself goes on where it is shared (`people.People`).
    """
    allowance = _current.get()
    if allowance is None:
        return await look_up
    begun = time.monotonic()
    try:
        async with asyncio.timeout(max(0.0, allowance.left)):
            return await look_up
    except TimeoutError:
        raise SlackUnreachableError("Slack did not tell in time who somebody is") from None
    finally:
        allowance.left -= time.monotonic() - begun


class HurriedRoster:
    """A roster whose look-ups count, too. Raises SlackUnreachableError where the allowance does not suffice."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        return await within(self._roster.on_call(policy_name))

    async def who(self, policy_name: str) -> Turn:
        return await within(self._roster.who(policy_name))
