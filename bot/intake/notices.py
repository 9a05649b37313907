"""Notifies people of anything but questions, and pages on-call for it.

`Teller` tells operators, the thread of a clarification, or the person on call. `Notices` posts what producers and ledgers report:
errors, events without a card, handoffs, tool results, ends of sessions, ledgers that cannot be read or written.

`Channels` finds the channels that the bot needs but cannot post in, and tells people once, where they can still be reached. If a
channel was archived or deleted, or the bot was removed from it, the fallback channel says so. If that is lost, too, the people on
call get a direct message. Once the channel can be used again, the message says so. The open questions of a lost channel move to the
fallback channel at once. An event from Slack only makes the bot look: it reports what Slack answers then. So a start finds what
happened meanwhile, and an event that comes late or twice changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.ask.inbox import Incoming, counter, set_counter
from bot.ask.receiver import StreamTrouble
from bot.decisions.chain import claims_in
from bot.errors import SlackRefusedError, SlackUnreachableError, StorageUnavailable
from bot.oncall.incidents import Incidents
from bot.settings.load import Place as Key
from bot.settings.load import dotted
from bot.settings.model import Settings, parse_target
from bot.show.delivery import Delivery, word
from bot.show.messages import Fresh, Messages
from bot.show.messenger import Messenger
from bot.slackapi import PLACE, Place, ask
from bot.storage.store import Store
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
from core.clock import Clock, backoff
from core.errors import ClarifyError, LedgerUnreadable
from core.escalation import NewIncident

_log = structlog.get_logger("clarify.notices")
# Posted only if the session has a thread.
_IN_THREADS = frozenset({aaep.TOOL_COMPLETED, aaep.COMPLETED, aaep.CANCELLED})
_LINES_KEPT = 50
_FIELDS = 300  # characters
_SEPARATELY = 5  # records that get a message each
_RETRY, _LONGEST_RETRY = 1.0, 60.0  # seconds
_WHY = {
    "is_archived": ("was archived", "Unarchive it"),
    "not_in_channel": ("doesn't have the bot as a member", "Type `/invite @clarify` in it"),
}
_GONE = (
    "was deleted, or is private and doesn't have the bot as a member",
    "If it is still there, type `/invite @clarify` in it",
)


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


def needed_channels(settings: Settings) -> dict[str, list[str]]:
    """Returns the channels that the configuration names, each with its keys."""
    found: dict[str, list[str]] = {}
    for key, channel in _named(settings):
        if channel is not None and channel.startswith(("C", "G")):
            found.setdefault(channel, []).append(dotted(key))
    return found


def _named(settings: Settings) -> Iterator[tuple[Key, str | None]]:
    yield ("slack", "fallback_channel"), settings.slack.fallback_channel
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "channel"), route.channel
    for role, responder in settings.responders.items():
        yield ("responders", role, "channel"), responder.channel
    for index, policy in enumerate(settings.on_call):
        for step in policy.steps:
            for kind, name in map(parse_target, step.notify):
                yield ("on_call", index, "steps"), name if kind == "channel" else None
    yield from settings.channels_of_integrations
    if settings.trust.checkpoint is not None:
        yield ("trust", "checkpoint", "channel"), settings.trust.checkpoint.channel


@dataclass(kw_only=True, eq=False, repr=False)
class Channels:
    """Looks at channels when asked to: `run` until cancelled. Every bot looks, for /readyz; only the one that leads tells people.

    on_call: returns the users on call for the default route.
    lost: the channels that the bot cannot use, each with Slack's code for why.
    """

    settings: Settings
    web: AsyncWebClient
    messenger: Messenger
    delivery: Delivery
    on_call: Callable[[], Awaitable[Collection[str]]]
    store: Store
    clock: Clock

    def __post_init__(self) -> None:
        self.lost: dict[str, str] = {}
        self._needed = needed_channels(self.settings)
        self._due = set(self._needed)
        self._awake = asyncio.Event()
        self._awake.set()
        self._tells = False

    def look_at(self, channel: str) -> None:
        """Have a channel looked at, if the bot needs it."""
        if channel in self._needed:
            self._due.add(channel)
            self._awake.set()

    def look_at_all(self) -> None:
        self._due.update(self._needed)
        self._awake.set()

    def begin_to_tell(self) -> None:
        """Have all channels looked at, and people told of the lost ones, from now on."""
        self._tells = True
        self.look_at_all()

    def trouble(self) -> str | None:
        """Returns which channels are lost, and why; None: none is."""
        found = (
            f"{channel} ({', '.join(self._needed[channel])}): {code}" for channel, code in self.lost.items()
        )
        return "; ".join(found) or None

    async def run(self) -> None:
        failures = 0
        while True:
            await self._awake.wait()
            self._awake.clear()
            due, self._due = self._due, set()
            try:
                await self._look(due)
                failures = 0
            except (SlackUnreachableError, StorageUnavailable, ClarifyError) as error:
                _log.warning("looking at channels later", reason=str(error))
                self._due |= due
                self._awake.set()
                await self.clock.sleep(backoff(failures, first=_RETRY, longest=_LONGEST_RETRY))
                failures += 1

    async def _look(self, due: Collection[str]) -> None:
        for channel in due:
            self._note(channel, await self._refusal(channel))
        if not self._tells:
            return
        for channel in due:
            if (code := self.lost.get(channel)) is not None:
                await self._tell_lost(channel, code)
            else:
                await self._tell_back(channel)

    def _note(self, channel: str, code: str | None) -> None:
        before = self.lost.pop(channel, None)
        if code is not None:
            self.lost[channel] = code
        if code is not None and code != before:
            _log.error("cannot post in a channel", channel=channel, reason=code)
        elif code is None and before is not None:
            _log.info("a channel can be used again", channel=channel)

    async def _refusal(self, channel: str) -> str | None:
        """Returns Slack's code for why the bot cannot post in a channel, or None."""
        try:
            call = partial(self.web.conversations_info, channel=channel)
            found = (await ask("conversations.info", call))["channel"]
        except SlackRefusedError as error:
            if error.code not in PLACE:  # it says nothing about the channel
                _log.warning("Slack does not tell about a channel", channel=channel, reason=error.code)
                return self.lost.get(channel)
            return error.code
        if found.get("is_archived"):
            return "is_archived"
        return "not_in_channel" if found.get("is_member") is False else None

    async def _tell_lost(self, channel: str, code: str) -> None:
        since = await counter(self.store, _counter(channel))
        if since is None:
            since = int(self.clock.now().timestamp() * 1000)
            await set_counter(self.store, _counter(channel), since)
        why = _WHY.get(code, _GONE)
        keys = ", ".join(f"`{each}`" for each in self._needed[channel])
        elsewhere = None if (fallback := self.settings.slack.fallback_channel) in self.lost else fallback
        said = f"*{inert.channel(channel)} {why[0]}, so the bot cannot post there.*"
        if elsewhere is not None:
            said += " What is open there is shown in the fallback channel, and so is what comes next."
        said += f" {why[1]}, or name another channel in clarify.toml ({keys}) and restart the bot."
        for place in await self._told(channel, since) or await self._places(elsewhere):
            await self.delivery.notify(
                word(_trouble_key(channel, since, place), Place(place), said, wanted=code)
            )
        await self.messenger.leave(channel, code, elsewhere)

    async def _tell_back(self, channel: str) -> None:
        since = await counter(self.store, _counter(channel))
        if since is None:
            return
        said = f"The bot can post in {inert.channel(channel)} again. What was moved stays where it is, with its threads."
        for place in await self._told(channel, since):
            await self.delivery.notify(
                word(_trouble_key(channel, since, place), Place(place), said, wanted="again")
            )
        await set_counter(self.store, _counter(channel), None)

    async def _told(self, channel: str, since: int) -> list[str]:
        """Returns where people were told that a channel is lost."""
        stored = await self.delivery.messages.beginning(f"word:{_trouble_key(channel, since, '')}")
        return [each.target for each in stored]

    async def _places(self, fallback: str | None) -> Collection[str]:
        """Returns where to tell people now: the fallback channel, else the people on call, else any usable channel."""
        if fallback is not None:
            return [fallback]
        return await self.on_call() or [each for each in self._needed if each not in self.lost][:1]


def _counter(channel: str) -> str:
    """The counter that holds since when a channel is lost, in milliseconds since 1970."""
    return f"channel lost: {channel}"


def _trouble_key(channel: str, since: int, place: str) -> str:
    return f"channel:{channel}:{since}:{place}"
