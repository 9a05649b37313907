"""What tests and demos call on a workspace: act as a person, read what is shown, wait, make faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from . import controls
from .board import Board
from .context import Ack, Call, Context, Shown
from .controls import ControlError
from .faults import Faults
from .link import Link
from .modals import Views
from .people import SELECTS, Outcome, People
from .state import Channel, Ephemeral, Json, Message, State, User, View
from .traffic import Traffic

T = TypeVar("T")


class Acting:
    """Every action names the acting user and the channel by id. What cannot be done raises `ControlError`."""

    def __init__(self, context: Context, board: Board, views: Views, link: Link, people: People) -> None:
        self.context = context
        self.board = board
        self.view_desk = views
        self.link = link
        self.people = people

    @property
    def state(self) -> State:
        """Everything there is; tests may seed it further."""
        return self.context.state

    @property
    def faults(self) -> Faults:
        return self.context.faults

    @property
    def calls(self) -> list[Call]:
        """Every Web API call so far."""
        return self.context.calls

    @property
    def acks(self) -> list[Ack]:
        """Every envelope sent so far, with its latency or why it failed."""
        return self.context.acks

    @property
    def traffic(self) -> Traffic:
        """What the page's panel shows; `note` and `aaep` add to it."""
        return self.context.traffic

    # Acting

    async def click(
        self, user: str, channel: str, ts: str, action_id: str | None = None, *, label: str | None = None
    ) -> Outcome:
        """Press a button of a message, by its action_id or by the words on it."""
        shown = self.shown(user, channel, ts)
        control = controls.find(shown.blocks, action_id or label, kinds={"button"})
        return await self.people.press(user, shown, control)

    async def select(self, user: str, channel: str, ts: str, label: str | None, option: Any) -> Outcome:
        """Choose in a select, menu, radio or checkbox group of a message (a list of options for several)."""
        shown = self.shown(user, channel, ts)
        control = controls.find(shown.blocks, label, kinds=SELECTS)
        return await self.people.press(user, shown, control, option)

    async def post(
        self, user: str, channel: str, text: str, thread_ts: str | None = None, *, broadcast: bool = False
    ) -> Message:
        """Say something in a channel or thread; names (`@ade`) and links become marks as in Slack."""
        return self.people.post(user, self.channel(channel), text, thread_ts, broadcast=broadcast)

    async def edit(self, user: str, channel: str, ts: str, text: str) -> None:
        self.people.edit(user, self.message(channel, ts), text)

    async def delete_message(self, user: str, channel: str, ts: str) -> None:
        self.people.delete(user, self.message(channel, ts))

    async def submit_view(self, user: str, values: dict[str, Any] | None = None) -> Outcome:
        """Fill in the modal on top by label, block_id or action_id, and submit it."""
        return await self.people.submit(user, values or {})

    async def click_in_view(
        self, user: str, action_id: str | None = None, *, label: str | None = None
    ) -> Outcome:
        """Press a button of the modal on top, or of the Home tab where no modal is open."""
        view = self.view(user)
        control = controls.find(view.payload["blocks"], action_id or label, kinds={"button"})
        return await self.people.press_in_view(user, view, control)

    async def select_in_view(self, user: str, label: str | None, option: Any) -> Outcome:
        """Choose in an element of the modal on top (or the Home tab) that reports at once."""
        view = self.view(user)
        control = controls.find(view.payload["blocks"], label, kinds=SELECTS)
        return await self.people.press_in_view(user, view, control, option)

    async def choose_user(self, user: str, view: View | str | None, user_id: str) -> Outcome:
        """Choose a person in a view's list of people (`view`: it or its id, None: the one shown).

        In an input block the choice waits for `submit_view`; elsewhere it is sent at once.
        """
        shown = self.view(user, view)
        control = controls.find(shown.payload["blocks"], None, kinds={"users_select"})
        return await self.people.press_in_view(user, shown, control, user_id)

    async def close_view(self, user: str, *, everything: bool = False) -> Outcome:
        return await self.people.close(user, everything=everything)

    async def command(
        self, user: str, channel: str, command: str, text: str = "", *, thread_ts: str | None = None
    ) -> Outcome:
        """Type a slash command. In a thread Slack takes none, and says so."""
        return await self.people.command(
            user, self.channel(channel), command, text, thread=thread_ts is not None
        )

    async def shortcut(self, user: str, callback_id: str, message_ts: str, channel: str) -> Outcome:
        """Choose a message shortcut in the menu of a message; ephemeral messages have none."""
        return await self.people.shortcut(user, callback_id, self.message(channel, message_ts))

    async def open_home(self, user: str, tab: str = "home") -> None:
        """Look at a tab of the app: `home` or `messages`; the app gets `app_home_opened`."""
        self.people.open_home(user, tab)

    async def press_home(self, user: str, label_or_action_id: str) -> Outcome:
        """Press a button of the user's Home tab, whatever modal may be open."""
        home = self.home(user)
        if home is None:
            msg = f"nothing was published on {user}'s Home tab"
            raise ControlError(msg)
        control = controls.find(home.payload["blocks"], label_or_action_id, kinds={"button"})
        return await self.people.press_in_view(user, home, control)

    async def press_ephemeral(self, user: str, ephemeral: Ephemeral | str, label: str) -> Outcome:
        """Press a button of a message that only this user sees: by its words or action_id (a str: its ts)."""
        ts = ephemeral if isinstance(ephemeral, str) else ephemeral.ts
        shown = self.state.ephemeral(user, ts)
        if shown is None:
            msg = f"{user} sees no ephemeral message {ts}; there are: {[e.ts for e in self.ephemerals(user)]}"
            raise ControlError(msg)
        control = controls.find(shown.blocks, label, kinds={"button"})
        return await self.people.press(user, shown, control)

    def set_presence(self, user: str, presence: Literal["active", "away"]) -> None:
        """Be there or be away, as `users.getPresence` tells; no event goes with it."""
        if presence not in {"active", "away"}:
            msg = f"presence {presence!r}: expected active or away"
            raise ControlError(msg)
        self.state.users[user].presence = presence
        self.context.changes.notify("sidebar")

    def join(self, user: str, channel: str) -> None:
        self.board.join(self.channel(channel), user)

    def leave(self, user: str, channel: str) -> None:
        self.board.leave(self.channel(channel), user)

    def archive(self, channel: str, by: str = "U0FOLAKE", *, undo: bool = False) -> None:
        self.board.archive(self.channel(channel), by, undo=undo)

    def change_user(self, user: str, **changes: Any) -> None:
        """Give a person's fields other values, `deleted=True` for instance; the app gets `user_change`."""
        self.board.change_user(self.state.users[user], changes)

    def change_group(self, group: str, users: list[str]) -> None:
        """Give a user group other members; the app gets `subteam_members_changed`."""
        self.board.change_group(self.state.groups[group], users)

    def disable_group(self, group: str, *, undo: bool = False) -> None:
        """Disable a user group, as its owner or an admin may; the app gets `subteam_updated`."""
        self.board.disable_group(self.state.groups[group], disabled=not undo)

    def join_enterprise(self, enterprise: str, *, org_wide: bool = False) -> None:
        """Make the workspace one of an Enterprise Grid organization; `org_wide`: the app is installed for all of it.

        The people of the workspace belong to the organization, others where their `enterprise_id` says so.
        """
        self.state.enterprise, self.state.org_wide = enterprise, org_wide
        for user in self.state.users.values():
            if user.team_id == self.state.team["id"]:
                user.enterprise_id = enterprise

    def emit(self, event: Json) -> None:
        """Send any event to the app, for what the workspace has no action for."""
        self.board.emit(event)

    # Seeding

    def add_user(self, user: User) -> User:
        self.state.users[user.id] = user
        self.context.changes.notify("sidebar")
        return user

    def add_channel(self, channel: Channel) -> Channel:
        self.state.channels[channel.id] = channel
        self.context.changes.notify("sidebar")
        return channel

    # Reading

    def channel(self, channel: str) -> Channel:
        found = self.state.channels.get(channel)
        if found is None:
            msg = f"no channel {channel}; there are {sorted(self.state.channels)}"
            raise ControlError(msg)
        return found

    def message(self, channel: str, ts: str) -> Message:
        found = self.channel(channel).messages.get(ts)
        if found is None:
            msg = f"no message {ts} in {channel}"
            raise ControlError(msg)
        return found

    def shown(self, user: str, channel: str, ts: str) -> Message | Ephemeral:
        """The message that the user sees under this ts, an ephemeral one included."""
        return self.state.ephemeral(user, ts) or self.message(channel, ts)

    def messages(self, channel: str) -> list[Message]:
        """All messages of a channel, replies included, oldest first."""
        return list(self.channel(channel).messages.values())

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Root and replies, oldest first."""
        return self.channel(channel).thread(ts)

    def direct(self, user: str) -> list[Message]:
        """The direct conversation of the bot and this user; empty where there is none."""
        channel = self.state.direct_message(user)
        return list(channel.messages.values()) if channel else []

    def ephemerals(self, user: str) -> list[Ephemeral]:
        return [e for e in self.state.ephemerals if e.user == user]

    def views(self, user: str) -> list[View]:
        """The user's open modals, the one on top last."""
        return list(self.state.views_of(user))

    def home(self, user: str) -> View | None:
        """What was last published on the user's Home tab."""
        return self.state.homes.get(user)

    def permalink(self, channel: str, ts: str) -> str:
        """The link that `chat.getPermalink` gives; it opens the page at the message."""
        return self.state.permalink(self.message(channel, ts))

    def errors(self, user: str) -> list[Shown]:
        """What this person saw fail."""
        return [shown for shown in self.context.shown if shown.user == user]

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 60.0) -> T:
        """The predicate's first truthy value; it is asked again at every change of the workspace.

        Raises:
            TimeoutError: with the last calls and envelopes, to see what happened instead.
        """
        try:
            return await self.context.changes.wait(predicate, timeout)
        except TimeoutError:
            calls = [f"{call.method} {call.outcome}" for call in self.calls[-8:]]
            acks = [f"{ack.payload_type} {ack.failure or 'acknowledged'}" for ack in self.acks[-8:]]
            msg = f"nothing satisfied the condition within {timeout} s; last calls: {calls}; last envelopes: {acks}"
            raise TimeoutError(msg) from None

    # Faults of the sockets; those of the Web API: `faults.add`

    def cut_sockets(self) -> None:
        """Cut every Socket Mode connection without a close frame."""
        self.link.cut()

    def half_open(self) -> None:
        """Present connections stay open but are dead: nothing is sent, pings go unanswered."""
        self.link.half_open()

    def reject_wss(self, times: int = 1) -> None:
        """The next upgrades are refused with HTTP 403."""
        self.link.reject(times)

    async def disconnect_sockets(self, reason: str = "refresh_requested") -> None:
        """Ask the app to reconnect, as Slack does every few hours (`warning`, `refresh_requested`, `link_disabled`)."""
        await self.link.disconnect(reason)

    def view(self, user: str, asked: View | str | None = None) -> View:
        """The view asked for, as it is now; else the modal on top; else the Home tab."""
        if asked is not None:
            view = self.state.view(asked if isinstance(asked, str) else asked.id)
            if view is None or view.user != user:
                msg = f"{user} does not have this view open (any more)"
                raise ControlError(msg)
            return view
        views = self.state.views_of(user)
        view = views[-1] if views else self.state.homes.get(user)
        if view is None:
            msg = f"{user} has neither a modal nor a Home tab open"
            raise ControlError(msg)
        return view
