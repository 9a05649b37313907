"""What people do with controls, modals, commands and shortcuts: the payload, the app's answer, what becomes of it.

Interactions are sent once and never again. Where the app does not acknowledge in time the person sees an error, which
is recorded (`Context.shown`), and the outcome says so. Sources: docs.slack.dev, "block_actions", "view_submission",
"view_closed", "Shortcuts interaction payloads", "app_home_opened", "Slash commands"; bolt-js `MessageShortcut` for the
fields that the documents leave out.

`POST /response/{key}` is what an app does with a `response_url`. Five uses within thirty minutes.

| body | with a message that was clicked | of a command or a message shortcut |
| --- | --- | --- |
| `replace_original` | other content in its place; an ephemeral one stays ephemeral | a new message: there is no original |
| `delete_original` | it is gone | nothing |
| `response_type: in_channel` | a new message for all | the same |
| none of them, `ephemeral` | a new message for the person alone | the same |

Source: docs.slack.dev, "Handling user interaction"; that a command's url replaces nothing: bolt-python issue
1268. Apps should say `replace_original` either way: without it clients were seen to do both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from . import controls, rules
from .board import Board
from .context import Ack, Call, Context
from .controls import Control, ControlError
from .delivery import Events, Link
from .payloads import message_json, person_json, view_json
from .state import Channel, Ephemeral, Json, Message, ResponseUrl, View

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


class Interactions:
    """One method per thing that a person can do; what cannot be done raises `ControlError`."""

    def __init__(self, context: Context, board: Board, events: Events, link: Link) -> None:
        self._context = context
        self._state = context.state
        self._board = board
        self._events = events
        self._link = link

    async def press(
        self, user: str, shown: Message | Ephemeral, control: Control, entered: Any = None
    ) -> Outcome:
        """Use a control of a message; `entered` is the option or text, None for a button."""
        self._may_see(user, shown)
        self._check_person(control, entered)
        held = self._state.chosen.setdefault((user, shown.channel, shown.ts), {})
        value = _hold(held, control, entered)
        state = controls.state_values(shown.blocks, held)
        return await self._interact(user, self.block_action_in_message(user, shown, control, value, state))

    async def press_in_view(self, user: str, view: View, control: Control, entered: Any = None) -> Outcome:
        """Use a control of an open modal or of the Home tab.

        What stands in an input block is kept for later and not sent, unless the block says `dispatch_action`.
        """
        self._check_person(control, entered)
        value = _hold(view.values, control, entered)
        if control.is_input and not control.block.get("dispatch_action"):
            return Outcome(ok=True)
        payload = self._base("block_actions", user) | {
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._board.trigger(user),
            "view": view_json(self._state, view, controls.state_values(view.payload["blocks"], view.values)),
            "actions": [self._action(control, value)],
        }
        return await self._interact(user, payload)

    async def submit(self, user: str, entered: dict[str, Any]) -> Outcome:
        """Fill in the modal on top by label, block_id or action_id, and submit it."""
        view = self._top(user)
        if "submit" not in view.payload:
            msg = f"the modal on top of {user}'s has no submit button"
            raise ControlError(msg)
        blocks = view.payload["blocks"]
        values = controls.state_values(blocks, view.values)
        for name, value in entered.items():
            control = controls.find(blocks, name)
            self._check_person(control, value)
            values[control.block_id][control.action_id] = controls.encode(control.element, value)
        complaints = {
            c.block_id: text
            for c in controls.controls(blocks)
            if c.is_input and (text := controls.complaint(c, values[c.block_id][c.action_id])) is not None
        }
        view.values = values
        if complaints:
            self._board.refuse_view(view, complaints)
            return Outcome(ok=False, error="not sent: the form has errors", errors=complaints)
        payload = self._base("view_submission", user) | {
            "trigger_id": self._board.trigger(user),
            "view": view_json(self._state, view, values),
            "response_urls": [],
        }
        ack = await self._link.deliver("interactive", payload, accepts_response=True)
        if not ack.ok:
            return self._failed(user, ack, _NOT_RESPONDING)
        if problem := self._answered_view(user, view, ack.response):
            self._context.show_error(user, _NOT_RESPONDING, problem)
            return Outcome(ok=False, error=problem, seconds=ack.seconds)
        return Outcome(ok=not view.errors, errors=dict(view.errors), seconds=ack.seconds)

    async def close(self, user: str, *, everything: bool = False) -> Outcome:
        """Cancel the modal on top, or close all of them; the app hears of it where it asked to."""
        closed = [self._top(user)]
        if everything:
            closed = self._board.close_views(user)
        else:
            self._board.close_view(closed[0])
        outcome = Outcome(ok=True)
        for view in reversed(closed):
            if view.payload.get("notify_on_close"):
                body = {"view": view_json(self._state, view, {}), "is_cleared": everything}
                ack = await self._link.deliver("interactive", self._base("view_closed", user) | body)
                outcome = Outcome(ok=ack.ok, error=ack.failure or "", seconds=ack.seconds)
        return outcome

    async def command(
        self, user: str, channel: Channel, command: str, text: str, *, thread: bool = False
    ) -> Outcome:
        """Type a slash command; in threads there are none."""
        if thread or command not in self._state.app.commands:
            said = (_NO_COMMANDS_HERE if thread else _COMMAND_UNKNOWN).format(command=command)
            self._context.show_error(user, said, "refused by Slack")
            return Outcome(ok=False, error=said)
        payload = {
            "token": "local-verification",
            "team_id": self._state.team["id"],
            "team_domain": self._state.team["domain"],
            "channel_id": channel.id,
            "channel_name": _spoken(channel),
            "user_id": user,
            "user_name": self._state.users[user].name,
            "command": command,
            "text": text,
            "api_app_id": self._state.app.id,
            "is_enterprise_install": str(self._state.org_wide).lower(),
            "response_url": self._response_url(user, channel, None),
            "trigger_id": self._board.trigger(user),
        }
        ack = await self._link.deliver("slash_commands", payload, accepts_response=True)
        if not ack.ok:
            return self._failed(user, ack, _COMMAND_FAILED.format(command=command))
        if ack.response:
            self._answered_command(user, channel, ack.response)
        return Outcome(ok=True, seconds=ack.seconds)

    async def shortcut(self, user: str, callback_id: str, message: Message) -> Outcome:
        """Choose a shortcut of the app in a message's menu; the app need not be in the conversation.

        The whole message comes along; the response_url answers, it replaces nothing.
        """
        self._may_see(user, message)
        known = [s.callback_id for s in self._state.app.shortcuts]
        if callback_id not in known:
            msg = f"the app has no message shortcut {callback_id}; shortcuts: {known}"
            raise ControlError(msg)
        if message.subtype == "tombstone":
            msg = f"message {message.ts} was deleted and has no menu"
            raise ControlError(msg)
        channel = self._state.channels[message.channel]
        payload = self._base("message_action", user) | {
            "callback_id": callback_id,
            "trigger_id": self._board.trigger(user),
            "response_url": self._response_url(user, channel, None),
            "action_ts": self._state.next_ts(),
            "message_ts": message.ts,
            "channel": {"id": channel.id, "name": _spoken(channel)},
            "message": message_json(self._state, message),
        }
        return await self._interact(user, payload)

    def open_home(self, user: str, tab: str) -> None:
        """`app_home_opened`, every time; with the `view` once a Home tab was published for this person."""
        event: Json = {
            "type": "app_home_opened",
            "user": user,
            "channel": self._board.open_direct(user).id,
            "tab": tab,
            "event_ts": self._state.next_ts(),
        }
        home = self._state.homes.get(user)
        if home is not None and tab == "home":
            event["view"] = view_json(self._state, home)
        self._events.emit(event)

    # Payloads

    def block_action_in_message(
        self, user: str, shown: Message | Ephemeral, control: Control, value: Json, state: Json
    ) -> Json:
        """What is sent of a press on a message's control: `value` is its own, `state` what all of them hold."""
        container: Json = {
            "type": "message",
            "message_ts": shown.ts,
            "channel_id": shown.channel,
            "is_ephemeral": isinstance(shown, Ephemeral),
        }
        if shown.thread_ts:
            container["thread_ts"] = shown.thread_ts
        channel = self._state.channels[shown.channel]
        payload = self._base("block_actions", user) | {
            "container": container,
            "trigger_id": self._board.trigger(user),
            "channel": {"id": channel.id, "name": _spoken(channel)},
            "state": {"values": state},
            "response_url": self._response_url(user, channel, shown),
            "actions": [self._action(control, value)],
        }
        if isinstance(shown, Message):  # an ephemeral message is not sent along
            payload["message"] = message_json(self._state, shown)
        return payload

    def _base(self, kind: str, user: str) -> Json:
        team = {"id": self._state.team["id"], "domain": self._state.team["domain"]}
        enterprise = self._state.enterprise
        return {
            "type": kind,
            "team": None if self._state.org_wide else team,
            "user": person_json(self._state, user),
            "api_app_id": self._state.app.id,
            "token": "local-verification",
            "enterprise": {"id": enterprise, "name": enterprise} if enterprise else None,
            "is_enterprise_install": self._state.org_wide,
        }

    def _action(self, control: Control, value: Json) -> Json:
        kept = ("text", "value", "style", "url") if control.kind == "button" else ("placeholder", "confirm")
        return {
            "type": control.kind,
            "action_id": control.action_id,
            "block_id": control.block_id,
            "action_ts": self._state.next_ts(),
            **value,
            **{name: control.element[name] for name in kept if name in control.element},
        }

    # What the app's acknowledgement asks for

    async def _interact(self, user: str, payload: Json) -> Outcome:
        ack = await self._link.deliver("interactive", payload)
        return Outcome(ok=True, seconds=ack.seconds) if ack.ok else self._failed(user, ack, _NOT_RESPONDING)

    def _failed(self, user: str, ack: Ack, text: str) -> Outcome:
        self._context.show_error(user, text, ack.failure or "")
        return Outcome(ok=False, error=ack.failure or "")

    def _answered_command(self, user: str, channel: Channel, response: Any) -> None:
        """Show the text or message that came with it, to the person alone by default."""
        body: Json = {"text": response} if isinstance(response, str) else response
        problems = rules.message_problems(body, without=self._context.options.without_blocks)
        if problems:
            said = f"The command's response was invalid: {problems[0]}"
            self._context.show_error(user, said, "invalid response")
        else:
            self._say(user, channel, body)

    def _answered_view(self, user: str, view: View, response: Any) -> str:
        """Close, update or push views, or show errors; what was wrong with the response, "" where nothing."""
        asked = response if isinstance(response, dict) else {}
        action, new = asked.get("response_action"), asked.get("view")
        if action == "errors":
            return self._show_errors(view, asked.get("errors"))
        if action is None:
            view.errors = {}
            self._board.close_view(view)
        elif action == "clear":
            self._board.close_views(user)
        elif action not in {"update", "push"} or not isinstance(new, dict):
            return f"response_action {action!r}: expected errors, update, push or clear, with a view"
        elif problems := rules.check_view(new, without=self._context.options.without_blocks):
            return f"response_action {action}: {problems[0]}"
        elif action == "update":
            self._board.update_view(view, new)
        else:
            self._board.push_view(user, new)
        return ""

    def _show_errors(self, view: View, errors: Any) -> str:
        inputs = {block["block_id"] for block in view.payload["blocks"] if block["type"] == "input"}
        if not isinstance(errors, dict) or not errors or not set(errors) <= inputs:
            return f"response_action errors: must map some of the input blocks to texts: {sorted(inputs)}"
        self._board.refuse_view(view, {block_id: str(text) for block_id, text in errors.items()})
        return ""

    # What the app does with a response_url

    async def respond(self, request: web.Request) -> web.Response:
        """Serves `POST /response/{key}`."""
        try:
            body = json.loads(await request.text())
        except ValueError:
            body = None
        args = body if isinstance(body, dict) else {}
        fault = self._context.faults.take("response_url")
        if fault is not None and fault.name == "5xx":
            outcome, status, args = fault.name, int(fault.detail), {}
            response = web.Response(status=status, text="no response")
        else:
            outcome = "invalid_payload" if body is not args else self._use(request.match_info["key"], args)
            status = {"ok": 200, "used_url": 404, "expired_url": 404}.get(outcome, 400)
            response = web.json_response({"ok": False, "error": outcome}, status=status)
        self._context.record_call(Call("response_url", args, self._context.now(), outcome, status))
        return web.Response(text="ok") if outcome == "ok" else response

    def _response_url(self, user: str, channel: Channel, shown: Message | Ephemeral | None) -> str:
        """A new response_url for one interaction."""
        key = self._state.next_id("r")
        self._state.responses[key] = ResponseUrl(
            user,
            channel.id,
            self._context.now() + self._context.options.response_lifetime,
            message_ts=shown.ts if shown else None,
        )
        return f"{self._state.team['url']}response/{key}"

    def _use(self, key: str, body: Json) -> str:
        url = self._state.responses.get(key)
        if url is None or self._context.now() > url.expires:
            return "expired_url"
        if url.uses >= self._context.options.response_uses:
            return "used_url"
        without = self._context.options.without_blocks
        problems = [] if body.get("delete_original") else rules.message_problems(body, without=without)
        if problems:
            return problems[0].code
        url.uses += 1
        self._apply(url, body)
        return "ok"

    def _apply(self, url: ResponseUrl, body: Json) -> None:
        channel = self._state.channels[url.channel]
        text, blocks = str(body.get("text") or ""), body.get("blocks") or []
        whisper = self._state.ephemeral(url.user, url.message_ts or "")
        message = channel.messages.get(url.message_ts or "")
        if message is not None and message.subtype == "tombstone":
            message = None
        if body.get("delete_original"):
            if whisper is not None:
                self._board.unwhisper(whisper)
            elif message is not None:
                self._board.delete(message)
        elif body.get("replace_original") and whisper is not None:
            self._board.change_whisper(whisper, text, blocks)
        elif body.get("replace_original") and message is not None:
            self._board.change(message, self._state.app.bot_user, {"text": text, "blocks": blocks})
        else:
            # In the channel unless the app names the thread (bolt-js issue 963).
            self._say(url.user, channel, body, body.get("thread_ts"))

    def _say(self, user: str, channel: Channel, body: Json, thread_ts: str | None = None) -> None:
        """A message by the app, member or not: to all where it says `in_channel`, else to one person."""
        text, blocks = str(body.get("text") or ""), body.get("blocks") or []
        if body.get("response_type") == "in_channel":
            app = self._state.app
            message = Message(channel.id, "", app.bot_user, text, blocks, thread_ts, bot_id=app.bot_id)
            self._board.post(channel, message)
        else:
            self._board.whisper(Ephemeral(user, channel.id, "", text, blocks, thread_ts))

    # Who may do what

    def _top(self, user: str) -> View:
        views = self._state.views_of(user)
        if not views:
            msg = f"{user} has no modal open"
            raise ControlError(msg)
        return views[-1]

    def _may_see(self, user: str, shown: Message | Ephemeral) -> None:
        channel = self._state.channels[shown.channel]
        if isinstance(shown, Message) and user not in channel.members:
            msg = f"{user} cannot see {shown.channel}: not a member"
            raise ControlError(msg)

    def _check_person(self, control: Control, entered: Any) -> None:
        """Slack's list of people offers nobody who is unknown or deactivated."""
        if control.kind not in {"users_select", "multi_users_select"} or not entered:
            return
        offered = [u.id for u in self._state.users.values() if not u.deleted]
        for user_id in [entered] if isinstance(entered, str) else entered:
            if user_id not in offered:
                msg = f"no person {user_id!r} to choose. People: {offered}"
                raise ControlError(msg)


def _hold(values: Json, control: Control, entered: Any) -> Json:
    """What the element now holds; kept, so that later payloads' `state` has it."""
    if control.kind == "button":
        return {"type": "button"}
    value = controls.encode(control.element, entered)
    if control.kind != "overflow":
        values.setdefault(control.block_id, {})[control.action_id] = value
    return value


def _spoken(channel: Channel) -> str:
    """What interactions call a conversation: only public channels go by their name."""
    if channel.is_im:
        return "directmessage"
    return "privategroup" if channel.is_private else channel.name
