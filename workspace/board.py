"""The one writer of conversations, modals and Home tabs. Every change is told to the app and to the pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import controls
from .context import TAB, Context
from .delivery import Events
from .payloads import message_json
from .state import Channel, Ephemeral, Json, Message, Trigger, View


class Board:
    """Does what it is told: the caller has checked that it may be done, and that a view is right."""

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
        """Take a message away. A root with replies leaves a tombstone, which goes with the last of them, as in Slack."""
        channel = self._state.channels[message.channel]
        previous = message_json(self._state, message)
        if message.thread_ts is None:
            channel.deleted.add(message.ts)
        if channel.replies.get(message.ts):
            tombstone = Message(
                channel.id, message.ts, "USLACKBOT", "This message was deleted.", subtype="tombstone"
            )
            channel.messages[message.ts] = tombstone
            self._events.changed(tombstone, previous)
            self._changed(channel)
            return
        del channel.messages[message.ts]
        if message.thread_ts:
            channel.replies[message.thread_ts].remove(message.ts)
        self._events.deleted(message, previous)
        self._changed(channel)
        root = channel.messages.get(message.thread_ts or "")
        if root is not None and root.subtype == "tombstone" and not channel.replies.get(root.ts):
            self.delete(root)

    def whisper(self, message: Ephemeral) -> Ephemeral:
        """Show a message to one person only; its `ts` is given here."""
        stored = replace(message, ts=self._state.next_ts(), blocks=self.with_ids(message.blocks))
        self._state.ephemerals.append(stored)
        self._context.changes.notify(f"user:{stored.user}")
        return stored

    def change_whisper(self, message: Ephemeral, text: str, blocks: list[Json]) -> None:
        message.text, message.blocks = text, self.with_ids(blocks)
        self._context.changes.notify(f"user:{message.user}")

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

    def open_direct(self, user: str) -> Channel:
        """The direct conversation of the bot and `user`; made if there is none."""
        channel = self._state.direct_message(user)
        if channel is None:
            members = [user, self._state.app.bot_user]
            name = self._state.users[user].name
            created = int(self._context.now())
            channel = Channel(self._state.next_id("D"), name, members, is_im=True, created=created)
            self._state.channels[channel.id] = channel
            opened = {"id": channel.id, "created": created}
            self._events.emit({"type": "im_created", "user": user, "channel": opened})
            self._changed(channel)
        return channel

    # Modals and Home tabs, as people have them open

    def trigger(self, user: str) -> str:
        """A new trigger_id for `user`: good once, for `Options.trigger_lifetime`."""
        trigger_id = self._state.next_id("trigger.")
        expires = self._context.now() + self._context.options.trigger_lifetime
        self._state.triggers[trigger_id] = Trigger(user, expires, tab=TAB.get())
        return trigger_id

    def open_view(self, user: str, payload: Json, tab: str = "") -> View:
        """A new modal in place of whatever the user had open; `tab`: the browser tab that it shows in."""
        view = self._new_view(user, payload)
        view.tab = tab
        self._state.modals[user] = [view]
        self._redrawn(user)
        return view

    def push_view(self, user: str, payload: Json) -> View:
        """A new modal on top of the user's stack."""
        stack = self._state.modals.setdefault(user, [])
        view = self._new_view(user, payload)
        if stack:
            view.root_view_id, view.previous_view_id, view.tab = stack[0].id, stack[-1].id, stack[0].tab
        stack.append(view)
        self._redrawn(user)
        return view

    def update_view(self, view: View, payload: Json) -> None:
        """Other content in the same view; it gets a new hash, and what was entered is kept by ids."""
        view.payload = self._content(payload)
        view.values = controls.still_there(view.payload["blocks"], view.values)
        view.hash = self._state.next_id("h.")
        view.errors = {}
        self._redrawn(view.user, view)

    def publish_home(self, user: str, payload: Json) -> View:
        """The user's Home tab, new or updated."""
        home = self._state.homes.get(user)
        if home is None:
            home = self._state.homes[user] = self._new_view(user, payload)
            self._redrawn(user, home)
        else:
            self.update_view(home, payload)
        return home

    def close_view(self, view: View) -> None:
        """Close a modal if it is on top; the one below shows again."""
        stack = self._state.views_of(view.user)
        if stack and stack[-1] is view:
            stack.pop()
            self._redrawn(view.user)

    def close_views(self, user: str) -> list[View]:
        """Close all of the user's modals; the ones that were open, the one on top last."""
        closed = self._state.modals.pop(user, [])
        self._redrawn(user)
        return closed

    def refuse_view(self, view: View, errors: dict[str, str]) -> None:
        """Show errors at the view's inputs; the view stays open."""
        view.errors = errors
        self._redrawn(view.user)

    def _new_view(self, user: str, payload: Json) -> View:
        view_id = self._state.next_id("V")
        return View(view_id, user, self._content(payload), self._state.next_id("h."), view_id)

    def _content(self, payload: Json) -> Json:
        return {**payload, "blocks": self.with_ids(payload["blocks"])}

    def _redrawn(self, user: str, view: View | None = None) -> None:
        kind = "home" if view is not None and view.payload["type"] == "home" else "modal"
        self._context.changes.notify(f"{kind}:{user}")

    # What both share

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
        if named.get("type") == "container":
            named["child_blocks"] = self.with_ids(named["child_blocks"])
        return named

    def _changed(self, channel: Channel) -> None:
        self._context.changes.notify(f"channel:{channel.id}", "sidebar")
