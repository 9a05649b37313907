"""Waits for an answer. If no bot runs, also runs the target's responder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from bot.cli.running import Shell, WaitedTooLong
from bot.errors import ConfigurationError
from bot.settings.model import duration
from core.clarification import Clarification, agent_key
from core.errors import AgentError, BadInput
from core.hub import Dispatcher


def seconds_of(text: str | None, option: str = "--timeout") -> float | None:
    """Returns an option such as `--timeout` in seconds, or None if not given.

    Raises:
        BadInput: not a duration.
    """
    if text is None:
        return None
    try:
        return duration(text).total_seconds()
    except ValueError:
        raise BadInput(f"{option} {text[:40]!r}: expected a duration such as 90s, 30m or 1h30m.") from None


async def answered(shell: Shell, record: Clarification, seconds: float | None) -> Clarification:
    """Returns the record once its current round has an answer.

    Raises:
        Closed, Superseded: it was closed, or got a new round, without an answer.
        AgentError: the time is over; a responder failed, and people have the question now.
        WaitedTooLong: the time is over.
    """
    async with _responding(shell, record):
        try:
            return await shell.hub.wait(record.id, timeout=seconds, round=record.round)
        except TimeoutError:
            now = await shell.ledger.find(record.id)
            said = failure(now)
            if said is not None:
                raise AgentError(
                    f"{said} {record.id} was escalated to people and has no answer yet."
                ) from None
            raise WaitedTooLong(
                f"{record.id} has no answer after {seconds:g} s; it stays {now.status}."
            ) from None


def failure(record: Clarification) -> str | None:
    """Returns how a responder failed, if the question was escalated for that, else None."""
    if record.status != "escalated" or record.attention.escalated_for != "agent failed":
        return None
    said = next((entry.body for entry in reversed(record.thread) if entry.type == "escalation"), "")
    return (said.splitlines() or [""])[0].removeprefix(f"{AgentError.code}: ")


def is_served_here(shell: Shell, record: Clarification) -> bool:
    """Whether the target has a responder that this command must run, since no bot does."""
    kinds = {agent_key(role): each.kind for role, each in shell.settings.responders.items()}
    kind = kinds.get(agent_key(record.to))
    return kind in {"command", "http"} and not shell.has_bot


@asynccontextmanager
async def _responding(shell: Shell, record: Clarification) -> AsyncIterator[None]:
    """Runs the target's responder during the block, unless a bot does."""
    if not (record.is_open and is_served_here(shell, record)):
        yield
        return
    from bot.responders import responders_of  # noqa: PLC0415 - brings an HTTP client

    settings = shell.settings
    key = agent_key(record.to)
    asked = {role: table for role, table in settings.responders.items() if agent_key(role) == key}
    try:
        responders = responders_of(asked, settings.by_variable, settings.folder)
    except ConfigurationError as error:
        shell.out.note(f"{error}; waiting for someone else to answer.")
        yield
        return
    dispatcher = Dispatcher(
        responders=responders,
        router=shell.router,
        ledger=shell.ledger,
        clock=shell.clock,
        working=shell.watchers.working,
    )

    def heard(changed: Clarification) -> None:
        shell.watchers.record_changed(changed)
        if changed.id == record.id:
            dispatcher.record_changed(changed)
            if (said := failure(changed)) is not None:
                shell.out.note(f"{said} Escalated to people; still waiting.")

    dispatcher.record_changed(record)
    shell.listeners.append(heard)
    try:
        async with _beside(dispatcher.run(), shell.watchers.run()):
            yield
    finally:
        shell.listeners.remove(heard)


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` during the block; an error in it ends the block, too."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as broken:
        raise broken.exceptions[0] from None
