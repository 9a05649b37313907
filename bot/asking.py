"""Events of the inbox as the router takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from bot.delivery.inbox import Item
from core.clarification import Ask
from core.deadlock import HUMAN, agent_key
from core.errors import ClarifyError, ScopeViolation
from core.workflow import Limits


class Scopes(Protocol):
    """What workflows let agents ask: `core.workflow.Scopes`."""

    def check(self, asker: str, target: str, *, blocking: bool) -> Limits: ...


def runs(items: list[Item]) -> list[list[Item]]:
    """Events in their order; questions of one issue that follow each other go into its ledger together."""
    grouped: list[list[Item]] = []
    for item in items:
        last = grouped[-1][-1] if grouped else None
        together = last is not None and item.event.question is not None and last.event.question is not None
        if together and last is not None and last.issue == item.issue:
            grouped[-1].append(item)
        else:
            grouped.append([item])
    return grouped


def ask(item: Item) -> Ask:
    """A question event as the router takes it."""
    event, question = item.event, item.event.question
    if question is None:
        raise ClarifyError(f"event {event.event_id} asks nothing")
    agentx = event.extension("agentx")
    topic, to = agentx.get("topic"), agentx.get("to")
    return Ask(
        producer=item.producer,
        agent_id=event.agent_id,
        agent_name=event.agent_name,
        session_id=event.session_id,
        event_id=event.event_id,
        reply_token=question.reply_token,
        correlation_id=event.correlation_id,
        asked_at=event.timestamp,
        received_at=item.received_at,
        expires_at=item.expires_at,
        question=question.text,
        kinds=question.kinds,
        choices=question.choices,
        multi_select=question.multi_select,
        context=question.context,
        default_response=question.default_response,
        summary_terse=event.text("summary_terse"),
        summary_detailed=event.text("summary_detailed"),
        to=to if isinstance(to, str) and to.strip() else HUMAN,
        topic=topic if isinstance(topic, str) and topic else None,
        blocking=agentx.get("blocking") is not False,
    )


def between_agents(asking: Ask) -> bool:
    """Whether it is put to another agent, not to people."""
    return agent_key(asking.to) != HUMAN


def within(asking: Ask, scopes: Scopes) -> Ask:
    """A question with the limits of the workflow that lets it be asked. Blocking: workflows are files.

    An event is never refused: one that no workflow allows is held back from its target and put to people.
    """
    if not between_agents(asking):
        return asking
    try:
        limits = scopes.check(asking.agent_id, asking.to, blocking=asking.blocking)
    except ScopeViolation as error:
        return replace(asking, held_back=str(error))
    return replace(asking, max_rounds=limits.max_rounds, sla=limits.sla)
