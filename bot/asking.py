"""Events of the inbox as the router takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from bot.producers.inbox import Item, declared_issue
from bot.views.locale import reads_rtl
from core.aaep import Event
from core.clarification import HUMAN, Ask, agent_key
from core.errors import BadInput, ClarifyError, ScopeViolation
from core.hub import HIGHEST_ISSUE, TOPIC_LIMIT, check_role, check_text
from core.router import BODY_LIMIT
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
    """A question event as the router takes it. Consent is people's: a confirmation is never put to an agent."""
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
        to=to if isinstance(to, str) and to.strip() and not question.confirmation else HUMAN,
        topic=topic if isinstance(topic, str) and topic else None,
        blocking=agentx.get("blocking") is not False,
        held_back=None if question.confirmation else _misput(event),
        rtl=reads_rtl(event.raw.get("localization_hints")) or None,
        confirmation=question.confirmation,
    )


def _misput(event: Event) -> str | None:
    """Why it cannot be told which agent is asked, or about which issue; None: nothing is wrong with it."""
    agentx = event.extension("agentx")
    to, issue = agentx.get("to"), agentx.get("issue")
    if to is not None and not (isinstance(to, str) and to.strip()):
        return "The target (to) is no role."
    if to is None or agent_key(to) == HUMAN or issue is None or declared_issue(event) is not None:
        return None
    return f"The issue that it names is not a whole number from 1 to {HIGHEST_ISSUE}."


def between_agents(asking: Ask) -> bool:
    """Whether it is put to another agent, not to people."""
    return agent_key(asking.to) != HUMAN


def within(asking: Ask, scopes: Scopes) -> Ask:
    """A question with the limits of the workflow that lets it be asked. Blocking: workflows are files.

    An event is never refused: one that no workflow allows, or that is too long for an agent, is held back from its
    target and put to people.
    """
    if not between_agents(asking) or asking.held_back is not None:
        return asking
    try:
        limits = scopes.check(asking.agent_id, asking.to, blocking=asking.blocking)
        check_role("target (to)", asking.to)
        check_text("topic", asking.topic or "", TOPIC_LIMIT, may_be_empty=True)
        check_text("question", asking.question, BODY_LIMIT)
    except (ScopeViolation, BadInput) as error:
        return replace(asking, held_back=str(error))
    return replace(asking, max_rounds=limits.max_rounds, sla=limits.sla)
