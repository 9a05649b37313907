"""What is shown besides cards: errors, broken and unknown critical events, tool results, ends of sessions; and who
is paged for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.messages import Fresh, Messages
from bot.delivery.pages import NewIncident
from bot.oncall.incidents import Incidents
from bot.producers.inbox import Item, Trouble
from bot.settings.model import Settings
from bot.views import inert
from bot.views.handoff import handoff_body, handoff_of, handoff_title
from bot.views.locale import hinted
from bot.views.notices import agent_of
from bot.views.render import Message, Renderer
from bot.views.toollines import ToolLine
from core import aaep
from core.clarification import Clarification
from core.errors import LedgerUnreadable
from core.records import Oddity

# Shown where a thread is there already.
_IN_THREADS = frozenset({aaep.TOOL_COMPLETED, aaep.COMPLETED, aaep.CANCELLED})
_LINES_KEPT = 50
_FIELDS = 300  # characters
_log = structlog.get_logger("clarify.ledger")


class Notifier:
    def __init__(
        self,
        *,
        settings: Settings,
        incidents: Incidents,
        delivery: Delivery,
        messages: Messages,
        renderer: Renderer,
    ) -> None:
        self._settings = settings
        self._incidents = incidents
        self._delivery = delivery
        self._messages = messages
        self._renderer = renderer
        self._named: dict[
            str, str
        ] = {}  # records that cannot be read, as they were when the log told of them

    async def event(self, item: Item) -> None:
        """Show what an event says, where it has to be seen or helps to decide. Idempotent.

        Raises:
            StorageUnavailable: it could not be stored; nothing was shown.
        """
        item = replace(item, event=hinted(item.event))
        event = item.event
        if event.type == aaep.ERRORED:
            await self._notice(item, self._renderer.error_notice(event), critical=True)
            await self._page_error(item)
        elif event.type == aaep.HANDOFF:
            await self._handoff(item)
        elif event.critical and event.question is None:
            await self._notice(item, self._renderer.generic_notice(event), critical=True)
            if event.type in {aaep.CLARIFICATION, aaep.CONFIRMATION}:
                await self._page_event(item)
        elif event.type in _IN_THREADS and await self._messages.thread_of(item.producer, event.session_id):
            if event.type == aaep.TOOL_COMPLETED:
                await self._tool(item)
            else:
                await self._notice(item, self._renderer.session_notice(event), critical=False)

    async def trouble(self, trouble: Trouble) -> None:
        """Something critical may not have come in: somebody has to look."""
        title = f"Producer {trouble.producer}: something was not taken in"
        await self._incidents.raise_(
            NewIncident(trouble.key, trouble.summary, title, agent_id=trouble.agent_id)
        )

    async def not_worked_off(self, item: Item) -> None:
        """An event met a fault of ours: it is kept, and somebody has to look after the agent."""
        event = item.event
        reason = f"A fault in clarify-bot: event {event.event_id} ({event.type}) could not be worked off; see the log"
        title = f"{agent_of(event)} sent something that was not shown"
        incident = NewIncident(
            f"failed:{item.producer}:{event.event_id}", reason, title, agent_id=event.agent_id
        )
        await self._incidents.raise_(incident)

    async def ledger_unreadable(self, error: LedgerUnreadable, agent_id: str | None) -> None:
        name = error.aside.name if error.aside else f"issue-{error.issue}.json"
        incident = NewIncident(
            f"ledger:{name}",
            str(error),
            f"The ledger of issue {error.issue} cannot be read",
            agent_id=agent_id,
        )
        await self._incidents.raise_(incident)

    async def record_unreadable(self, odd: Oddity) -> None:
        """One record of a ledger that others write: told once; in the log again when it changed and still is odd.

        Raises:
            StorageUnavailable: the page could not be stored.
        """
        file, fields = f"issue-{odd.issue}.json", ", ".join(odd.fields)[:_FIELDS]
        key = f"ledger:{file}:{odd.name}"
        if self._named.get(key) == odd.digest:
            return
        _log.warning("a ledger record cannot be read", file=file, id=odd.name, fields=fields)
        if not odd.is_over:
            reason = f"Record {odd.name} of {file} cannot be read, so that its question waits unseen. At fault: {fields}"
            incident = NewIncident(
                key, reason, f"A record of issue {odd.issue} cannot be read", agent_id=odd.agent_id
            )
            await self._incidents.raise_(incident)
        self._named[key] = odd.digest

    async def question_changed(self, record: Clarification) -> None:
        """Another program changed what an agent asked: told once a round.

        Raises:
            StorageUnavailable: the page could not be stored.
        """
        file = f"issue-{record.issue_number}.json"
        _log.error("a question was changed by another program; it is closed", file=file, id=record.id)
        reason = f"What {file} says is not what the agent asked. It is closed, and the agent gets no reply"
        key = f"ledger:{file}:{record.id}:changed:{record.round}"
        incident = NewIncident(
            key,
            reason,
            f"{record.id} was changed by another program",
            agent_id=record.asked.agent_id or record.from_,
        )
        await self._incidents.raise_(incident)

    async def consent_refused(self, record: Clarification, by: str) -> None:
        """Another program wrote into a ledger that an action was accepted: told in the thread, once a round.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        asked, message = record.asked, self._renderer.consent_notice(record, by)
        words = {"text": message.text, "blocks": message.blocks, "more": message.more}
        await self._delivery.notify(
            Fresh(
                key=f"notice:consent:{record.id}:{record.round}",
                kind="notice",
                target=self._settings.route_for(asked.agent_id or record.from_).channel,
                clarification=record.id,
                producer=asked.producer,
                session_id=asked.session_id,
                body={**words, "opens_thread": False, "broadcast": False, "needed": True},
                wanted="notice",
            )
        )

    async def _handoff(self, item: Item) -> None:
        """Its card, and the page that it follows: paged first, since the card's controls are the page's. How urgent it
        is by the agent's own word is told, and changes nothing: critical events are never held back.
        """
        handoff, event = handoff_of(item.event), item.event
        key = f"{item.producer}:{event.event_id}"
        incident = NewIncident(
            f"handoff:{key}",
            "Handoff requested",
            handoff_title(handoff),
            handoff_body(handoff),
            agent_id=event.agent_id,
        )
        await self._incidents.raise_(incident)
        await self._show(item, "handoff", {"handoff": handoff.as_json()}, critical=True)

    async def _notice(self, item: Item, message: Message, *, critical: bool) -> None:
        words = {"text": message.text, "blocks": message.blocks, "more": message.more}
        await self._show(item, "notice", words, critical=critical)

    async def _show(self, item: Item, kind: str, words: Mapping[str, Any], *, critical: bool) -> None:
        standing = {"opens_thread": critical, "broadcast": critical, "needed": critical}
        await self._delivery.notify(
            Fresh(
                key=f"notice:{item.producer}:{item.event.event_id}",
                kind=kind,
                target=self._settings.route_for(item.event.agent_id).channel,
                producer=item.producer,
                session_id=item.event.session_id,
                body={**words, **standing},
                wanted=kind,
            )
        )

    async def _page_error(self, item: Item) -> None:
        event = item.event
        category = event.text("error_category") or "unknown"
        if not self._settings.monitor.pages_error(category):
            return
        title = f"{agent_of(event)}: session ended with an error"
        body = event.summary() or event.text("error_message") or ""
        if hint := event.text("remediation_hint"):
            body = f"{body}\nWhat to do: {inert.plain(hint)}".strip()
        incident = NewIncident(
            f"errored:{item.producer}:{event.event_id}",
            f"Error category {category}",
            title,
            body,
            agent_id=event.agent_id,
        )
        await self._incidents.raise_(incident)

    async def _page_event(self, item: Item) -> None:
        """Something is asked that nobody can answer from Slack: a human has to go to the agent."""
        event = item.event
        title = f"{agent_of(event)} asks something that cannot be answered here"
        wrong = ", ".join(event.problems)
        reason = (
            f"Its question breaks the protocol: {wrong}"
            if wrong
            else "There is no way to answer it from Slack"
        )
        body = event.text("action") or event.summary() or ""
        incident = NewIncident(
            f"event:{item.producer}:{event.event_id}", reason, title, body, agent_id=event.agent_id
        )
        await self._incidents.raise_(incident)

    async def _tool(self, item: Item) -> None:
        """Into the session's thread: failures each as a notice, successes folded into one."""
        event = item.event
        duration = event.raw.get("duration_ms")
        line = ToolLine(
            tool=event.text("tool") or "unnamed",
            status=event.text("status") or "unknown",
            summary=_result(event),
            duration_ms=duration if isinstance(duration, int) and not isinstance(duration, bool) else None,
        )
        if line.status != "success":
            await self._notice(item, self._renderer.tools_notice([line]), critical=False)
            return
        await self._fold(item, line)

    async def _fold(self, item: Item, line: ToolLine) -> None:
        key = f"tools:{item.producer}:{item.event.session_id}"
        row = await self._messages.get(key)
        past = (row.body or {}) if row is not None else {}
        if item.event.event_id in past.get("events", []):
            return
        kept = [*past.get("lines", []), [line.tool, line.status, line.summary[:500], line.duration_ms]][
            -_LINES_KEPT:
        ]
        message = self._renderer.tools_notice([ToolLine(*values) for values in kept])
        events = [*past.get("events", []), item.event.event_id][-_LINES_KEPT:]
        body = {"text": message.text, "blocks": message.blocks, "lines": kept, "events": events}
        await self._delivery.notify(
            Fresh(
                key=key,
                kind="tools",
                target=self._settings.route_for(item.event.agent_id).channel,
                producer=item.producer,
                session_id=item.event.session_id,
                body=body,
                wanted=json.dumps(events)[-200:],
            )
        )


def _result(event: aaep.Event) -> str:
    """What a tool's result says: the error first, where the summary leaves it out; a long summary is cut."""
    summary, error = event.summary() or "", event.text("error_message") or ""
    return summary if error in summary else f"{error} · {summary}" if summary else error
