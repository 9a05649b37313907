"""Writing into conversations: post, change, delete, whisper, join. Every change is told to app and pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .context import Context
from .events import Events
from .payloads import group_json, message_json, user_json
from .state import Channel, Ephemeral, Json, Message, User, UserGroup


class Board:
    """The one writer of channels; whoever calls has checked that it may be done."""

    def __init__(self, context: Context, events: Events) -> None:
        self._context = context
        self._state = context.state
        self._events = events

    def post(self, channel: Channel, message: Message) -> Message:
        """Store a new message; its `ts` is given here. A reply is filed under its root."""
        stored = replace(message, ts=self._state.next_ts(), blocks=self.with_ids(message.blocks))
        if stored.thread_ts and stored.broadcast:
            stored.subtype = "thread_broadcast"
        channel.messages[stored.ts] = stored
        if stored.thread_ts:
            channel.replies.setdefault(stored.thread_ts, []).append(stored.ts)
        self._events.posted(stored)
        self._changed(channel)
        return stored

    def change(self, message: Message, editor: str, changes: dict[str, Any]) -> None:
        """Apply `changes` to a message's fields and mark it as edited by `editor`."""
        previous = message_json(self._state, message)
        if "blocks" in changes:
            changes["blocks"] = self.with_ids(changes["blocks"])
        for name, value in changes.items():
            setattr(message, name, value)
        message.edited = {"user": editor, "ts": self._state.next_ts()}
        self._events.changed(message, previous)
        self._changed(self._state.channels[message.channel])

    def delete(self, message: Message) -> None:
        """Take a message away; a root with replies leaves a tombstone, as in Slack."""
        channel = self._state.channels[message.channel]
        previous = message_json(self._state, message)
        if channel.replies.get(message.ts):
            channel.messages[message.ts] = Message(
                channel.id, message.ts, "USLACKBOT", "This message was deleted.", subtype="tombstone"
            )
        else:
            del channel.messages[message.ts]
            if message.thread_ts:
                channel.replies[message.thread_ts].remove(message.ts)
        self._events.deleted(message, previous)
        self._changed(channel)

    def whisper(self, message: Ephemeral) -> Ephemeral:
        """Show a message to one person only; its `ts` is given here."""
        stored = replace(message, ts=self._state.next_ts(), blocks=self.with_ids(message.blocks))
        self._state.ephemerals.append(stored)
        self._context.changes.notify(f"user:{stored.user}")
        return stored

    def unwhisper(self, message: Ephemeral) -> None:
        self._state.ephemerals.remove(message)
        self._context.changes.notify(f"user:{message.user}")

    def join(self, channel: Channel, user: str) -> None:
        if user not in channel.members:
            channel.members.append(user)
            self._events.joined(channel, user)
            self._changed(channel)

    def leave(self, channel: Channel, user: str) -> None:
        """`user` leaves or is removed; the app is told where it was a member until now."""
        if user in channel.members:
            self._events.joined(channel, user, left=True)
            if user == self._state.app.bot_user:
                self._events.about_channel(channel, "channel_left", user)
            channel.members.remove(user)
            self._changed(channel)

    def archive(self, channel: Channel, by: str, *, undo: bool = False) -> None:
        channel.is_archived = not undo
        self._events.about_channel(channel, "channel_unarchive" if undo else "channel_archive", by)
        self._changed(channel)

    def change_user(self, user: User, changes: dict[str, Any]) -> None:
        """Apply `changes` to a person's fields and tell the app (`user_change`)."""
        for name, value in changes.items():
            setattr(user, name, value)
        user.updated = int(self._context.now())
        ts = self._state.next_ts()
        body = user_json(self._state, user, email=True)
        self._events.emit({"type": "user_change", "user": body, "cache_ts": user.updated, "event_ts": ts})
        self._context.changes.notify("sidebar")

    def disable_group(self, group: UserGroup, *, disabled: bool) -> None:
        """Disable a user group, or enable it again, and tell the app (`subteam_updated`)."""
        group.disabled = disabled
        body = group_json(self._state, group, users=True)
        self._events.emit({"type": "subteam_updated", "subteam": body, "event_ts": self._state.next_ts()})

    def change_group(self, group: UserGroup, users: list[str]) -> None:
        """Give a user group other members and tell the app (`subteam_members_changed`)."""
        event: Json = {
            "type": "subteam_members_changed",
            "subteam_id": group.id,
            "team_id": self._state.team["id"],
            "added_users": [u for u in users if u not in group.users],
            "removed_users": [u for u in group.users if u not in users],
            "event_ts": self._state.next_ts(),
        }
        group.users = users
        self._events.emit(event)

    def open_direct(self, user: str) -> Channel:
        """The direct conversation of the bot and `user`; made if there is none."""
        channel = self._state.direct_message(user)
        if channel is None:
            members = [user, self._state.app.bot_user]
            name = self._state.users[user].name
            created = int(self._context.now())
            channel = Channel(self._state.next_id("D"), name, members, is_im=True, created=created)
            self._state.channels[channel.id] = channel
            self._events.emit(
                {"type": "im_created", "user": user, "channel": {"id": channel.id, "created": created}}
            )
            self._changed(channel)
        return channel

    def emit(self, event: Json) -> None:
        self._events.emit(event)

    def with_ids(self, blocks: list[Json]) -> list[Json]:
        """Blocks as Slack stores them: each has a block_id, each interactive element an action_id."""
        return [self._with_ids(block) for block in blocks]

    def _with_ids(self, block: Json) -> Json:
        named = {"block_id": self._state.next_id("b"), **block}
        for place in ("accessory", "element"):
            if isinstance(named.get(place), dict) and "type" in named[place]:
                named[place] = {"action_id": self._state.next_id("a"), **named[place]}
        if named.get("type") == "actions":
            named["elements"] = [{"action_id": self._state.next_id("a"), **e} for e in named["elements"]]
        return named

    def _changed(self, channel: Channel) -> None:
        self._context.changes.notify(f"channel:{channel.id}", "sidebar")
