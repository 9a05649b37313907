"""Interaction payloads as Slack sends them, and what the app's acknowledgements do.

Source: docs.slack.dev, "block_actions", "view_submission", "view_closed", "Shortcuts interaction payloads",
"app_home_opened", "Slash commands"; bolt-js `MessageShortcut` for the fields that the documents leave out.
"""

from __future__ import annotations

from typing import Any

from . import controls, rules
from .board import Board
from .context import Context
from .controls import Control
from .events import Events
from .modals import Views
from .payloads import message_json, person_json, view_json
from .state import Channel, Ephemeral, Json, Message, ResponseUrl, View


class Interactions:
    """Builds payloads; `response_base` is where response_urls start."""

    def __init__(self, context: Context, board: Board, views: Views, events: Events) -> None:
        self._context = context
        self._state = context.state
        self._board = board
        self._views = views
        self._events = events
        self.response_base = ""

    def block_action_in_message(
        self, user: str, shown: Message | Ephemeral, control: Control, value: Json, state: Json
    ) -> Json:
        whisper = isinstance(shown, Ephemeral)
        container: Json = {
            "type": "message",
            "message_ts": shown.ts,
            "channel_id": shown.channel,
            "is_ephemeral": whisper,
        }
        if shown.thread_ts:
            container["thread_ts"] = shown.thread_ts
        channel = self._state.channels[shown.channel]
        payload = self._base("block_actions", user) | {
            "container": container,
            "trigger_id": self._views.trigger(user),
            "channel": {"id": channel.id, "name": _spoken(channel)},
            "state": {"values": state},
            "response_url": self.response_url(user, channel, shown),
            "actions": [self._action(control, value)],
        }
        if isinstance(shown, Message):  # an ephemeral message is not sent along
            payload["message"] = message_json(self._state, shown)
        return payload

    def block_action_in_view(self, user: str, view: View, control: Control, value: Json) -> Json:
        """From a modal or the Home tab: the view comes along; there is no channel and no response_url."""
        values = controls.state_values(view.payload["blocks"], view.values)
        return self._base("block_actions", user) | {
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._views.trigger(user),
            "view": view_json(self._state, view, values),
            "actions": [self._action(control, value)],
        }

    def message_shortcut(self, user: str, callback_id: str, message: Message) -> Json:
        """`message_action`: the whole message comes along; its response_url answers, it replaces nothing."""
        channel = self._state.channels[message.channel]
        return self._base("message_action", user) | {
            "callback_id": callback_id,
            "trigger_id": self._views.trigger(user),
            "response_url": self.response_url(user, channel, None),
            "action_ts": self._state.next_ts(),
            "message_ts": message.ts,
            "channel": {"id": channel.id, "name": _spoken(channel)},
            "message": message_json(self._state, message),
        }

    def view_submission(self, user: str, view: View, values: Json) -> Json:
        return self._base("view_submission", user) | {
            "trigger_id": self._views.trigger(user),
            "view": view_json(self._state, view, values),
            "response_urls": [],
        }

    def view_closed(self, user: str, view: View, *, cleared: bool) -> Json:
        body = {"view": view_json(self._state, view, {}), "is_cleared": cleared}
        return self._base("view_closed", user) | body

    def slash_command(self, user: str, channel: Channel, command: str, text: str) -> Json:
        who = self._state.users[user]
        return {
            "token": "local-verification",
            "team_id": self._state.team["id"],
            "team_domain": self._state.team["domain"],
            "channel_id": channel.id,
            "channel_name": _spoken(channel),
            "user_id": user,
            "user_name": who.name,
            "command": command,
            "text": text,
            "api_app_id": self._state.app.id,
            "is_enterprise_install": str(self._state.org_wide).lower(),
            "response_url": self.response_url(user, channel, None),
            "trigger_id": self._views.trigger(user),
        }

    def command_response(self, user: str, channel: Channel, response: Any) -> None:
        """Show what the acknowledgement of a command carries: text or a message, to the person alone by default."""
        if not response:
            return
        body: Json = {"text": response} if isinstance(response, str) else response
        problems = rules.check_message(body)
        if problems:
            self._context.show_error(
                user, f"The command's answer was refused: {problems[0]}", "invalid response"
            )
        elif body.get("response_type") == "in_channel":
            self.say(channel, body, None)
        else:
            text, blocks = str(body.get("text") or ""), body.get("blocks") or []
            self._board.whisper(Ephemeral(user, channel.id, "", text, blocks))

    def view_response(self, user: str, view: View, response: Any) -> str:
        """Do what a view_submission's acknowledgement asks for; what was wrong with it, "" where nothing."""
        action = response.get("response_action") if isinstance(response, dict) else None
        if action is None:
            view.errors = {}
            self._close(user, view)
            return ""
        if action == "clear":
            self._views.clear(user)
            return ""
        if action == "errors":
            return self._show_errors(view, response.get("errors"))
        if action not in {"update", "push"} or not isinstance(response.get("view"), dict):
            return f"response_action {action!r}: expected errors, update, push or clear, with a view"
        problems = rules.check_view(response["view"])
        if problems:
            return f"response_action {action}: {problems[0]}"
        if action == "update":
            self._views.update(view, response["view"])
        else:
            self._views.push(user, response["view"])
        return ""

    def home_opened(self, user: str, tab: str) -> None:
        """`app_home_opened`, every time; with the `view` once a Home tab was published for this person."""
        channel = self._board.open_direct(user)
        event: Json = {
            "type": "app_home_opened",
            "user": user,
            "channel": channel.id,
            "tab": tab,
            "event_ts": self._state.next_ts(),
        }
        home = self._state.homes.get(user)
        if home is not None and tab == "home":
            event["view"] = view_json(self._state, home)
        self._events.emit(event)

    def say(self, channel: Channel, body: Json, thread_ts: str | None) -> Message:
        """A message by the app into a conversation, member or not: what response_urls may do."""
        app = self._state.app
        text, blocks = str(body.get("text") or ""), body.get("blocks") or []
        message = Message(channel.id, "", app.bot_user, text, blocks, thread_ts=thread_ts, bot_id=app.bot_id)
        return self._board.post(channel, message)

    def response_url(self, user: str, channel: Channel, shown: Message | Ephemeral | None) -> str:
        """A new response_url for one interaction."""
        key = self._state.next_id("r")
        self._state.responses[key] = ResponseUrl(
            user,
            channel.id,
            self._context.now() + self._context.options.response_lifetime,
            message_ts=shown.ts if shown else None,
            thread_ts=shown.thread_ts if shown else None,
            is_ephemeral=isinstance(shown, Ephemeral),
        )
        return f"{self.response_base}/response/{key}"

    def _close(self, user: str, view: View) -> None:
        stack = self._state.views_of(user)
        if stack and stack[-1] is view:
            self._views.pop(user)

    def _show_errors(self, view: View, errors: Any) -> str:
        inputs = {block["block_id"] for block in view.payload["blocks"] if block["type"] == "input"}
        if not isinstance(errors, dict) or not errors or not set(errors) <= inputs:
            return f"response_action errors: expected a text for some of the input blocks {sorted(inputs)}"
        self._views.refuse(view, {block_id: str(text) for block_id, text in errors.items()})
        return ""

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
        element = control.element
        action: Json = {
            "type": control.kind,
            "action_id": control.action_id,
            "block_id": control.block_id,
            "action_ts": self._state.next_ts(),
            **value,
        }
        for name in (
            ("text", "value", "style", "url") if control.kind == "button" else ("placeholder", "confirm")
        ):
            if name in element:
                action[name] = element[name]
        return action


def _spoken(channel: Channel) -> str:
    """What interactions call a conversation: only public channels go by their name."""
    if channel.is_im:
        return "directmessage"
    return "privategroup" if channel.is_private else channel.name
