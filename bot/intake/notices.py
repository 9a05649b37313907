"""Notifies people of anything but questions, and pages on-call for it.

`Teller` tells operators, the thread of a clarification, or the person on call. `Notices` posts what producers and ledgers report:
errors, events without a card, handoffs, tool results, ends of sessions, ledgers that cannot be read or written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from bot.ask.inbox import Incoming
from bot.ask.receiver import StreamTrouble
from bot.decisions.chain import claims_in
from bot.oncall.incidents import Incidents
from bot.settings.model import Settings
from bot.show.delivery import Delivery
from bot.show.messages import Fresh, Messages
from bot.views import inert
from bot.views.blockkit import Draft
from bot.views.locale import hinted
from bot.views.notices import (
    ToolLine,
    agent_of,
    another_key_notice,
    checkpoint_notice,
    error_notice,
    generic_notice,
    handoff_body,
    handoff_of,
    handoff_title,
    key_notice,
    plain_notice,
    session_notice,
    tampered_notice,
    tools_notice,
)
from bot.views.render import Renderer
from core import aaep
from core.aaep import Event
from core.clarification import Clarification
from core.errors import LedgerUnreadable
from core.escalation import NewIncident

_log = structlog.get_logger("clarify.ledger")
# Posted only if the session has a thread.
_IN_THREADS = frozenset({aaep.TOOL_COMPLETED, aaep.COMPLETED, aaep.CANCELLED})
_LINES_KEPT = 50
_FIELDS = 300  # characters
_SEPARATELY = 5  # records that get a message each


def content(renderer: Renderer, draft: Draft, **more: object) -> dict[str, Any]:
    """Returns the stored body of a message made from `draft`."""
    message = renderer.message(draft)
    return {"text": message.text, "blocks": message.blocks, "more": message.more, **more}


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Teller:
    """Sends each notice once, identified by its `name`. A notice is stored when a method returns; each method raises
    StorageUnavailable if it could not be stored.
    All texts are shown as they are: nothing in them can link, mention or format.
    """

    settings: Settings
    incidents: Incidents
    delivery: Delivery
    renderer: Renderer

    async def operators(self, name: str, heading: str, texts: Sequence[str]) -> None:
        """Posts to the fallback channel."""
        await self.delivery.notify(self.for_operators(name, plain_notice(heading, texts)))

    async def thread(self, record: Clarification, name: str, heading: str, texts: Sequence[str]) -> None:
        """Posts to the thread of a clarification, once a round."""
        asked = record.asked
        body = content(
            self.renderer, plain_notice(heading, texts), opens_thread=False, broadcast=False, needed=True
        )
        notice = Fresh(
            key=f"notice:{name}:{record.id}:{record.round}",
            kind="notice",
            target=self.settings.route_for(asked.agent_id or record.from_).channel,
            clarification=record.id,
            producer=asked.producer,
            session_id=asked.session_id,
            body=body,
            wanted="notice",
        )
        await self.delivery.notify(notice)

    async def page(self, incident: NewIncident) -> None:
        """Pages on-call, once for an incident's key."""
        await self.incidents.raise_(incident)

    def for_operators(self, name: str, draft: Draft, channel: str | None = None) -> Fresh:
        """Returns a notice for `channel`, or else for the fallback channel."""
        return Fresh(
            key=f"notice:{name}",
            kind="notice",
            target=channel or self.settings.slack.fallback_channel or self.settings.route_for("").channel,
            body=content(self.renderer, draft, needed=True),
            wanted="notice",
        )


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Notices:
    """Posts notices and pages on-call. Each method is idempotent, durable when it returns, and raises StorageUnavailable if
    nothing was stored.
    """

    settings: Settings
    incidents: Incidents
    delivery: Delivery
    messages: Messages
    renderer: Renderer
    teller: Teller

    async def event(self, item: Incoming) -> None:
        """Posts an event that people must see or that helps them decide."""
        item = replace(item, event=hinted(item.event))
        event = item.event
        if event.type == aaep.ERRORED:
            await self._notice(item, error_notice(event), critical=True)
            await self._page_error(item)
        elif event.type == aaep.HANDOFF:
            await self._handoff(item)
        elif event.critical and event.question is None:
            await self._notice(item, generic_notice(event), critical=True)
            if event.type in {aaep.CLARIFICATION, aaep.CONFIRMATION}:
                await self._page_unanswerable(item)
        elif event.type in _IN_THREADS and await self.messages.thread_of(item.producer, event.session_id):
            if event.type == aaep.TOOL_COMPLETED:
                await self._tool(item)
            else:
                await self._notice(item, session_notice(event), critical=False)

    async def event_lost(self, trouble: StreamTrouble) -> None:
        """Pages on-call because something critical may not have been stored."""
        title = f"Producer {trouble.producer}: an event was not processed"
        await self._page(trouble.key, trouble.summary, title, agent_id=trouble.agent_id)

    async def not_processed(self, item: Incoming) -> None:
        """Pages on-call because an event could not be processed, through a fault of ours. The event is kept."""
        event = item.event
        reason = f"Error in clarify-bot: could not process event {_fact(event.event_id)} ({_fact(event.type)}). See the log"
        title = f"{agent_of(event)} sent an event that was not shown"
        await self._page(f"failed:{_key(item)}", reason, title, agent_id=event.agent_id)

    async def ledger_unreadable(self, error: LedgerUnreadable) -> None:
        """Pages on-call about an unreadable record."""
        await self._page(f"ledger:{error.name}", str(error), f"{error.what} cannot be read", agent_id=None)

    async def records_tampered(self, issue: int, ids: Sequence[str]) -> None:
        """Posts to the fallback channel, once for each record, that it does not agree with its receipt. More than five share
        one message.
        """
        news = [each for each in ids if await self.messages.get(f"notice:tampered:{each}") is None]
        if not news:
            return
        _log.error("records do not agree with their receipts", issue=issue, ids=news[:_SEPARATELY])
        for part in [[each] for each in news] if len(news) <= _SEPARATELY else [news]:
            name = part[0] if len(part) == 1 else f"{issue}:{_digest(part)}"
            await self.delivery.notify(
                self.teller.for_operators(f"tampered:{name}", tampered_notice(issue, part))
            )

    async def key_unreadable(self, trouble: str) -> None:
        """Posts to the fallback channel that the signing key cannot be read, so that receipts have to wait."""
        name = _digest([trouble])
        await self.delivery.notify(self.teller.for_operators(f"key:{name}", key_notice(trouble)))

    async def another_key(self, kid: str) -> None:
        """Posts to the fallback channel that another key signs, which the key before did not announce."""
        await self.delivery.notify(self.teller.for_operators(f"another-key:{kid}", another_key_notice(kid)))

    def checkpoint(self, entry: str, channel: str | None) -> Fresh:
        """Returns the message with a checkpoint of the log of decisions, for the fallback channel if there is no `channel`."""
        claims = claims_in(entry)
        draft = checkpoint_notice(entry, claims["head"])
        return self.teller.for_operators(f"checkpoint:{claims['seq']}", draft, channel)

    async def _page(self, key: str, reason: str, title: str, body: str = "", *, agent_id: str | None) -> None:
        await self.incidents.raise_(NewIncident(key, reason, title, body, agent_id))

    async def _handoff(self, item: Incoming) -> None:
        """Shows a handoff's card, and pages on-call. The card is stored first: in its channel it is the page, too. How
        urgent the agent says it is changes nothing: critical events are never held back.
        """
        handoff = handoff_of(item.event)
        title, body = handoff_title(handoff), handoff_body(handoff)
        card = self._fresh(item, "handoff", {"handoff": handoff.as_json()}, critical=True)
        await self.messages.want([card])
        await self._page(
            f"handoff:{_key(item)}", "Handoff requested", title, body, agent_id=item.event.agent_id
        )
        await self.delivery.send_stored(card.key)

    async def _notice(self, item: Incoming, draft: Draft, *, critical: bool) -> None:
        await self.delivery.notify(
            self._fresh(item, "notice", content(self.renderer, draft), critical=critical)
        )

    def _fresh(self, item: Incoming, kind: str, words: Mapping[str, Any], *, critical: bool) -> Fresh:
        standing = {"opens_thread": critical, "broadcast": critical, "needed": critical}
        return self._in_thread(item, f"notice:{_key(item)}", kind, {**words, **standing}, kind)

    def _in_thread(self, item: Incoming, key: str, kind: str, body: dict[str, Any], wanted: str) -> Fresh:
        return Fresh(
            key=key,
            kind=kind,
            target=self.settings.route_for(item.event.agent_id).channel,
            producer=item.producer,
            session_id=item.event.session_id,
            body=body,
            wanted=wanted,
        )

    async def _page_error(self, item: Incoming) -> None:
        event = item.event
        category = event.text("error_category") or "unknown"
        if not self.settings.monitor.pages_error(category):
            return
        title = f"{agent_of(event)}: session ended with an error"
        body = event.summary() or event.text("error_message") or ""
        if hint := event.text("remediation_hint"):
            body = f"{body}\nWhat to do: {inert.plain(hint)}".strip()
        await self._page(
            f"errored:{_key(item)}", f"Error category {_fact(category)}", title, body, agent_id=event.agent_id
        )

    async def _page_unanswerable(self, item: Incoming) -> None:
        """Pages on-call because a question cannot be answered from Slack: a person must go to the agent."""
        event = item.event
        title = f"{agent_of(event)} asks something that cannot be answered in Slack"
        wrong = ", ".join(event.problems)
        reason = (
            f"The question does not follow the protocol: {wrong}"
            if wrong
            else "It cannot be answered from Slack"
        )
        body = event.text("action") or event.summary() or ""
        await self._page(f"event:{_key(item)}", reason, title, body, agent_id=event.agent_id)

    async def _tool(self, item: Incoming) -> None:
        """Posts a tool result to the session's thread: each failure as a notice, successes folded into one."""
        event = item.event
        duration = event.raw.get("duration_ms")
        line = ToolLine(
            tool=event.text("tool") or "unnamed",
            status=event.text("status") or "unknown",
            summary=_result(event),
            duration_ms=duration if isinstance(duration, int) and not isinstance(duration, bool) else None,
        )
        if line.status == "success":
            await self._fold(item, line)
        else:
            await self._notice(item, tools_notice([line]), critical=False)

    async def _fold(self, item: Incoming, line: ToolLine) -> None:
        key = f"tools:{item.producer}:{item.event.session_id}"
        row = await self.messages.get(key)
        past = (row.body or {}) if row is not None else {}
        if item.event.event_id in past.get("events", []):
            return
        lines = [*past.get("lines", []), [line.tool, line.status, line.summary[:500], line.duration_ms]]
        events = [*past.get("events", []), item.event.event_id][-_LINES_KEPT:]
        message = self.renderer.message(tools_notice([ToolLine(*values) for values in lines[-_LINES_KEPT:]]))
        body = {
            "text": message.text,
            "blocks": message.blocks,
            "lines": lines[-_LINES_KEPT:],
            "events": events,
        }
        fresh = self._in_thread(item, key, "tools", body, json.dumps(events)[-200:])
        await self.delivery.notify(fresh)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.blake2b(" ".join(texts).encode(), digest_size=8).hexdigest()


def _fact(text: str) -> str:
    return inert.as_value(text, _FIELDS)


def _key(item: Incoming) -> str:
    return f"{item.producer}:{item.event.event_id}"


def _result(event: Event) -> str:
    """Returns the text of a tool's result: its summary, after the error if the summary does not contain it."""
    summary, error = event.summary() or "", event.text("error_message") or ""
    return summary if error in summary else f"{error} · {summary}" if summary else error
