"""Acting as a person: what they press, choose, fill in, type. Slack's client and server in one.

Interactions are sent once and never again. Where the app does not acknowledge in time the person sees an
error, which is recorded (`Context.shown`), and the outcome says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import controls
from .board import Board
from .context import Ack, Context
from .controls import Control, ControlError
from .interactions import Interactions
from .link import Link
from .modals import Views
from .state import Channel, Ephemeral, Json, Message, View
from .writing import compose

_NOT_RESPONDING = "We had some trouble connecting. Try again?"
_COMMAND_FAILED = "{command} failed with the error “dispatch_failed”"
_COMMAND_UNKNOWN = "{command} is not a valid command. In Slack, all messages that start with the “/” character are interpreted as commands."
_NO_COMMANDS_HERE = "{command} is not supported in threads. Sorry!"
SELECTS = {
    "static_select", "radio_buttons", "overflow", "checkboxes", "multi_static_select", "users_select",
    "multi_users_select",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How an action went: acknowledged or not; `errors` are those shown in a modal, by block_id."""

    ok: bool
    error: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None


class People:
    """One method per thing that a person can do."""

    def __init__(
        self, context: Context, board: Board, views: Views, link: Link, interactions: Interactions
    ) -> None:
        self._context = context
        self._state = context.state
        self._board = board
        self._views = views
        self._link = link
        self._make = interactions

    # Messages

    def post(
        self, user: str, channel: Channel, text: str, thread_ts: str | None = None, **more: Any
    ) -> Message:
        """Say something; `broadcast=True` sends a reply to the channel as well."""
        self._may_write(user, channel)
        if thread_ts is not None and not channel.thread(thread_ts):
            msg = f"no thread {thread_ts} in {channel.id}"
            raise ControlError(msg)
        written = compose(self._state, text)
        msg_id = self._state.next_id("client-")
        message = Message(channel.id, "", user, written, thread_ts=thread_ts, client_msg_id=msg_id, **more)
        return self._board.post(channel, message)

    def edit(self, user: str, message: Message, text: str) -> None:
        self._own(user, message)
        self._board.change(message, user, {"text": compose(self._state, text)})

    def delete(self, user: str, message: Message) -> None:
        self._own(user, message)
        self._board.delete(message)

    # Controls

    async def press(
        self, user: str, shown: Message | Ephemeral, control: Control, entered: Any = None
    ) -> Outcome:
        """Use a control of a message; `entered` is the option or text, None for a button."""
        self._may_see(user, shown)
        self._check_person(control, entered)
        value = self._keep((user, shown.channel, shown.ts), control, entered)
        held = self._state.chosen.get((user, shown.channel, shown.ts), {})
        state = controls.state_values(shown.blocks, held)
        payload = self._make.block_action_in_message(user, shown, control, value, state)
        return await self._interact(user, payload)

    async def press_in_view(self, user: str, view: View, control: Control, entered: Any = None) -> Outcome:
        """Use a control of an open modal or of the Home tab.

        What stands in an input block is kept for later and not sent, unless the block says `dispatch_action`.
        """
        self._check_person(control, entered)
        value = controls.encode(control.element, entered) if control.kind != "button" else {"type": "button"}
        if control.kind != "button":
            view.values.setdefault(control.block_id, {})[control.action_id] = value
            if control.is_input and not control.block.get("dispatch_action"):
                return Outcome(ok=True)
        return await self._interact(user, self._make.block_action_in_view(user, view, control, value))

    async def submit(self, user: str, entered: dict[str, Any]) -> Outcome:
        """Fill in the modal on top by label, block_id or action_id, and submit it."""
        view = self._top(user)
        if "submit" not in view.payload:
            msg = f"the modal on top of {user}'s has no submit button (yet)"
            raise ControlError(msg)
        values = self._fill(view, entered)
        fields = [c for c in controls.controls(view.payload["blocks"]) if c.is_input]
        complaints = {
            c.block_id: text
            for c in fields
            if (text := controls.complaint(c, values[c.block_id][c.action_id])) is not None
        }
        view.values = values
        if complaints:
            self._views.refuse(view, complaints)
            return Outcome(ok=False, error="not sent: the form has errors", errors=complaints)
        ack = await self._link.deliver(
            "interactive", self._make.view_submission(user, view, values), accepts_response=True
        )
        if not ack.ok:
            return self._failed(user, ack, _NOT_RESPONDING)
        return self._submitted(user, view, ack)

    async def close(self, user: str, *, everything: bool = False) -> Outcome:
        """Cancel the modal on top, or close all of them; the app hears of it where it asked to."""
        closed = [self._top(user)]
        if everything:
            closed = self._views.clear(user)
        else:
            self._views.pop(user)
        outcome = Outcome(ok=True)
        for view in reversed(closed):
            if view.payload.get("notify_on_close"):
                payload = self._make.view_closed(user, view, cleared=everything)
                ack = await self._link.deliver("interactive", payload)
                outcome = Outcome(ok=ack.ok, error=ack.failure or "", seconds=ack.seconds)
        return outcome

    async def command(
        self, user: str, channel: Channel, command: str, text: str, *, thread: bool = False
    ) -> Outcome:
        """Type a slash command; in threads there are none."""
        if thread:
            return self._refused(user, _NO_COMMANDS_HERE.format(command=command))
        if command not in self._state.app.commands:
            return self._refused(user, _COMMAND_UNKNOWN.format(command=command))
        payload = self._make.slash_command(user, channel, command, text)
        ack = await self._link.deliver("slash_commands", payload, accepts_response=True)
        if not ack.ok:
            return self._failed(user, ack, _COMMAND_FAILED.format(command=command))
        self._make.command_response(user, channel, ack.response)
        return Outcome(ok=True, seconds=ack.seconds)

    async def shortcut(self, user: str, callback_id: str, message: Message) -> Outcome:
        """Choose a shortcut of the app in a message's menu; the app need not be in the conversation."""
        self._may_see(user, message)
        known = [s.callback_id for s in self._state.app.shortcuts]
        if callback_id not in known:
            msg = f"the app has no message shortcut {callback_id}; there are: {known}"
            raise ControlError(msg)
        if message.subtype == "tombstone":
            msg = f"message {message.ts} was deleted: it has no menu"
            raise ControlError(msg)
        return await self._interact(user, self._make.message_shortcut(user, callback_id, message))

    def open_home(self, user: str, tab: str = "home") -> None:
        """Look at a tab of the app: `home` or `messages`."""
        self._make.home_opened(user, tab)

    # What is shared

    async def _interact(self, user: str, payload: Json) -> Outcome:
        ack = await self._link.deliver("interactive", payload)
        return Outcome(ok=True, seconds=ack.seconds) if ack.ok else self._failed(user, ack, _NOT_RESPONDING)

    def _failed(self, user: str, ack: Ack, text: str) -> Outcome:
        self._context.show_error(user, text, ack.failure or "")
        return Outcome(ok=False, error=ack.failure or "")

    def _refused(self, user: str, text: str) -> Outcome:
        self._context.show_error(user, text, "refused by Slack")
        return Outcome(ok=False, error=text)

    def _keep(self, key: tuple[str, str, str], control: Control, entered: Any) -> Json:
        """What the element now holds; remembered for this person, so that later payloads' `state` has it."""
        if control.kind == "button":
            return {"type": "button"}
        value = controls.encode(control.element, entered)
        if control.kind != "overflow":
            self._state.chosen.setdefault(key, {}).setdefault(control.block_id, {})[control.action_id] = value
        return value

    def _fill(self, view: View, entered: dict[str, Any]) -> Json:
        """The modal's `state.values` with what was entered; unknown names are an error of the caller."""
        blocks = view.payload["blocks"]
        values = controls.state_values(blocks, view.values)
        for name, value in entered.items():
            control = controls.find(blocks, name)
            self._check_person(control, value)
            values[control.block_id][control.action_id] = controls.encode(control.element, value)
        return values

    def _submitted(self, user: str, view: View, ack: Ack) -> Outcome:
        """Do what the acknowledgement of a view_submission asks for; see `Interactions.view_response`."""
        problem = self._make.view_response(user, view, ack.response)
        if problem:
            self._context.show_error(user, _NOT_RESPONDING, problem)
            return Outcome(ok=False, error=problem, seconds=ack.seconds)
        return Outcome(ok=not view.errors, errors=dict(view.errors), seconds=ack.seconds)

    def _top(self, user: str) -> View:
        views = self._state.views_of(user)
        if not views:
            msg = f"{user} has no modal open"
            raise ControlError(msg)
        return views[-1]

    def _may_write(self, user: str, channel: Channel) -> None:
        if user not in channel.members or channel.is_archived or self._state.users[user].deleted:
            msg = f"{user} cannot write in {channel.id}: not a member, archived, or deactivated"
            raise ControlError(msg)

    def _may_see(self, user: str, shown: Message | Ephemeral) -> None:
        channel = self._state.channels[shown.channel]
        if isinstance(shown, Message) and user not in channel.members:
            msg = f"{user} does not see {shown.channel}: not a member"
            raise ControlError(msg)

    def _check_person(self, control: Control, entered: Any) -> None:
        """Slack's list of people offers nobody who is unknown or deactivated."""
        if control.kind not in {"users_select", "multi_users_select"} or not entered:
            return
        for user_id in [entered] if isinstance(entered, str) else entered:
            person = self._state.users.get(user_id)
            if person is None or person.deleted:
                msg = f"no person {user_id!r} to choose; there are: {[u.id for u in self._state.users.values() if not u.deleted]}"
                raise ControlError(msg)

    def _own(self, user: str, message: Message) -> None:
        if message.user != user:
            msg = f"message {message.ts} is {message.user}'s, not {user}'s"
            raise ControlError(msg)
