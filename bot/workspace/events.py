"""The Events API: what happened, told to the app over Socket Mode, retried until acknowledged.

Source: docs.slack.dev, "The Events API". An event that is not acknowledged is sent again at once, after one
minute and after five; with no connection open its attempts fail, and the retries are all that is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .context import Context
from .link import Link, Retry
from .payloads import message_json
from .state import Channel, Json, Message

_CHANNEL_TYPES = {"channels": "channel", "groups": "group", "im": "im"}


class Events:
    """Builds event payloads and sees to their delivery."""

    def __init__(self, context: Context, link: Link) -> None:
        self._context = context
        self._link = link

    def emit(self, event: Json) -> None:
        """Send one event to the app, in the background, if the app subscribed to its type."""
        if event["type"] in self._context.options.events:
            self._context.spawn(self._deliver(self._wrap(event)), f"event {event['type']}")

    def posted(self, message: Message) -> None:
        """`message` (and `app_mention`) for a new message in a conversation that the bot is in."""
        channel = self._context.state.channels[message.channel]
        if not self._hears(channel):
            return
        body = message_json(self._context.state, message)
        self.emit(body | self._place(channel, message.ts))
        mention = f"<@{self._context.state.app.bot_user}>"
        if mention in message.text and not channel.is_im and not message.bot_id:
            mentioned = {k: v for k, v in body.items() if k != "subtype"}
            self.emit(mentioned | {"type": "app_mention", "channel": channel.id, "event_ts": message.ts})

    def changed(self, message: Message, previous: Json) -> None:
        """`message_changed`; `previous` is the message's JSON before the change."""
        now = message_json(self._context.state, message)
        self._about(message, "message_changed", {"message": now, "previous_message": previous})

    def deleted(self, message: Message, previous: Json) -> None:
        self._about(message, "message_deleted", {"deleted_ts": message.ts, "previous_message": previous})

    def joined(self, channel: Channel, user: str, *, left: bool = False) -> None:
        """`member_joined_channel` or `member_left_channel`; also when it is the bot itself."""
        if self._hears(channel) or user == self._context.state.app.bot_user:
            event: Json = {
                "type": "member_left_channel" if left else "member_joined_channel",
                "user": user,
                "channel": channel.id,
                "channel_type": "G" if channel.is_private else "C",
                "team": self._context.state.team["id"],
                "event_ts": self._context.state.next_ts(),
            }
            self.emit(event)

    def about_channel(self, channel: Channel, kind: str, user: str) -> None:
        """`channel_archive` and its like; for private channels Slack calls them `group_…`."""
        if self._hears(channel):
            ts = self._context.state.next_ts()
            name = kind.replace("channel_", "group_") if channel.is_private else kind
            who = "actor_id" if kind == "channel_left" else "user"
            self.emit({"type": name, "channel": channel.id, who: user, "event_ts": ts})

    def _about(self, message: Message, subtype: str, fields: Json) -> None:
        channel = self._context.state.channels[message.channel]
        if self._hears(channel):
            place = self._place(channel, self._context.state.next_ts())
            self.emit({"type": "message", "subtype": subtype, "hidden": True, **place, **fields})

    def _hears(self, channel: Channel) -> bool:
        return self._context.state.app.bot_user in channel.members

    def _place(self, channel: Channel, ts: str) -> Json:
        kind = _CHANNEL_TYPES[channel.kind]
        return {"channel": channel.id, "ts": ts, "event_ts": ts, "channel_type": kind}

    def _wrap(self, event: Json) -> Json:
        state = self._context.state
        authorization: dict[str, Any] = {
            "enterprise_id": state.enterprise or None,
            "team_id": None if state.org_wide else state.team["id"],
            "user_id": state.app.bot_user,
            "is_bot": True,
            "is_enterprise_install": state.org_wide,
        }
        return {
            "token": "local-verification",
            "team_id": state.team["id"],
            "context_team_id": state.team["id"],
            "context_enterprise_id": state.enterprise or None,
            "api_app_id": state.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": state.next_id("Ev"),
            "event_time": int(self._context.now()),
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": state.next_id("4-"),
        }

    async def _deliver(self, payload: Json) -> None:
        envelope_id, reason = self._context.state.next_id("env-"), ""
        for attempt, delay in enumerate((None, *self._context.options.retry_delays)):
            if delay:
                await asyncio.sleep(delay)
            ack = await self._link.deliver("events_api", payload, retry=Retry(envelope_id, attempt, reason))
            if ack.failure is None:
                return
            reason = ack.failure
