"""The methods of the Web API, strict as Slack: what each takes, refuses and answers.

Sources: docs.slack.dev, the methods' pages. Each method is a function from an `ApiCall` to
the answer without its `ok`; what is refused raises `ApiError`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Never

from . import rules
from .board import Board
from .context import Context
from .delivery import Link
from .payloads import channel_json, message_json, user_json, view_json
from .state import Channel, Ephemeral, Json, Message, Trigger, User, View

POST_CUT = 40_000
METADATA_BYTES = 16_000
MOST_VIEWS = 3


class ApiError(Exception):
    """A refusal as Slack words it; `extra` goes into the answer beside `error`."""

    def __init__(self, code: str, *, messages: Iterable[str] = (), **extra: Any) -> None:
        super().__init__(code)
        self.code = code
        self.body: Json = {"ok": False, "error": code, **extra}
        if said := [f"[ERROR] {text}" for text in messages]:
            self.body["response_metadata"] = {"messages": said}


def _invalid(problem: str) -> Never:
    raise ApiError("invalid_arguments", messages=[problem])


class ApiCall:
    """One call by the app: its arguments, the scopes of its token, and what it works on.

    Arguments come as JSON, as a form or in the query; forms carry JSON in strings.
    """

    def __init__(
        self, context: Context, board: Board, link: Link, values: Mapping[str, Any], scopes: frozenset[str]
    ) -> None:
        self.context = context
        self.state = context.state
        self.board = board
        self.link = link
        self.app = context.state.app
        self.me = context.state.app.bot_user
        self.scopes = scopes
        self.values = {name: value for name, value in values.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def need(self, scope: str) -> None:
        """Raises `missing_scope` if the token lacks it."""
        if scope not in self.scopes:
            raise ApiError("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    def text(self, name: str, default: str | None = None) -> str:
        """A string; a required one where there is no default."""
        value = self.values.get(name, default)
        if value is None or (value == "" and default is None):
            _invalid(f"missing required field: {name}")
        if not isinstance(value, str | int | float):
            _invalid(f"must be a string [json-pointer:/{name}]")
        return str(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return str(self.values.get(name, default)).lower() in {"1", "true"}

    def structure(self, name: str, error: str = "invalid_arguments") -> Any:
        """A JSON value, also when it comes as a string that holds JSON; None where it is missing."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else None
        except ValueError:
            raise ApiError(error) from None

    def limit(self, default: int, most: int) -> int:
        try:
            limit = int(self.values.get("limit", default))
        except (TypeError, ValueError):
            _invalid("must be a number [json-pointer:/limit]")
        if limit < 1:
            raise ApiError("invalid_limit")
        return min(limit, most)

    def channel(self, name: str = "channel") -> Channel:
        """A conversation that the app can see: private ones only from inside."""
        channel = self.state.channels.get(self.text(name))
        if channel is None or (channel.kind != "channels" and self.me not in channel.members):
            raise ApiError("channel_not_found")
        return channel

    def entered_channel(self, name: str = "channel") -> Channel:
        """One that the app is in, and that takes messages."""
        channel = self.channel(name)
        if channel.is_archived:
            raise ApiError("is_archived")
        if self.me not in channel.members:
            raise ApiError("not_in_channel")
        return channel

    def person(self, name: str = "user") -> User:
        user = self.state.users.get(self.text(name))
        if user is None:
            raise ApiError("user_not_found")
        return user

    def message(self, channel: Channel, name: str = "ts") -> Message:
        message = channel.messages.get(self.text(name))
        if message is None or message.subtype == "tombstone":
            raise ApiError("message_not_found")
        return message

    def own_message(self, channel: Channel, error: str) -> Message:
        message = self.message(channel)
        if message.user != self.me:
            raise ApiError(error)
        return message

    def root(self, channel: Channel) -> str | None:
        """The thread's root; a reply or nothing at all is no root. If it was deleted, the message lands in the channel."""
        thread_ts = self.text("thread_ts", "") or None
        if thread_ts in channel.deleted:
            return None
        root = channel.messages.get(thread_ts or "")
        if thread_ts and (root is None or root.thread_ts):
            raise ApiError("thread_not_found")
        return thread_ts

    def channel_json(self, channel: Channel) -> Json:
        return channel_json(self.state, channel, viewer=self.me)

    def cursor(self) -> str:
        """What the cursor stands for, "" without one; `invalid_cursor` for anything that `_next` did not make."""
        cursor = self.text("cursor", "")
        if not cursor:
            return ""
        try:
            prefix, _, value = base64.b64decode(cursor, validate=True).decode().partition(":")
            float(value)
        except ValueError:
            prefix = ""
        if prefix != "next":
            raise ApiError("invalid_cursor")
        return value

    def page(self, name: str, items: list[Any], *, default: int = 100) -> Json:
        """The items that cursor and limit ask for as `name`, and the cursor of what follows ("" at the end)."""
        limit, start = self.limit(default, 1000), int(self.cursor() or 0)
        more = start + limit < len(items)
        following = _next(start + limit) if more else ""
        return {name: items[start : start + limit], "response_metadata": {"next_cursor": following}}


def _next(value: int | str) -> str:
    return base64.b64encode(f"next:{value}".encode()).decode()


@dataclass(frozen=True)
class Method:
    """One method: what it needs (`scope` where it is always the same)."""

    handler: Callable[[ApiCall], Json]
    scope: str | None
    app_token: bool


METHODS: dict[str, Method] = {}
_Handler = Callable[[ApiCall], Json]


def method(name: str, scope: str | None = None, *, app_token: bool = False) -> Callable[[_Handler], _Handler]:
    def add(handler: _Handler) -> _Handler:
        METHODS[name] = Method(handler, scope, app_token)
        return handler

    return add


# chat


@method("chat.postMessage", "chat:write")
def post_message(call: ApiCall) -> Json:
    channel = _writable(call)
    text, blocks = _content(call, call.text("text", "")[:POST_CUT])
    message = Message(
        channel.id,
        "",
        call.me,
        text,
        blocks or [],
        thread_ts=call.root(channel),
        bot_id=call.app.bot_id,
        metadata=_metadata(call),
        broadcast=call.flag("reply_broadcast"),
        mrkdwn=call.flag("mrkdwn", default=True),
    )
    stored = call.board.post(channel, message)
    body = message_json(call.state, stored, metadata=True)
    return {"channel": channel.id, "ts": stored.ts, "message": body}


@method("chat.update", "chat:write")
def update_message(call: ApiCall) -> Json:
    channel = call.channel()
    message = call.own_message(channel, "cant_update_message")
    if channel.is_archived:
        raise ApiError("is_archived")
    text, blocks = _content(call, call.text("text", ""), update=True)
    changes: dict[str, Any] = {}
    if "text" in call:
        changes = {"text": text, "blocks": blocks or []}
    elif blocks is not None:
        changes = {"blocks": blocks}
    if "metadata" in call:
        changes["metadata"] = _metadata(call)
    if call.flag("reply_broadcast") and message.thread_ts:
        changes |= {"broadcast": True, "subtype": "thread_broadcast"}
    call.board.change(message, call.me, changes)
    body = message_json(call.state, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": body}


@method("chat.delete", "chat:write")
def delete_message(call: ApiCall) -> Json:
    channel = call.channel()
    message = call.own_message(channel, "cant_delete_message")
    call.board.delete(message)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.postEphemeral", "chat:write")
def post_ephemeral(call: ApiCall) -> Json:
    channel = _writable(call)
    user = call.person().id
    if user not in channel.members:
        raise ApiError("user_not_in_channel")
    text, blocks = _content(call, call.text("text", "")[:POST_CUT])
    thread_ts = call.text("thread_ts", "") or None
    stored = call.board.whisper(Ephemeral(user, channel.id, "", text, blocks or [], thread_ts))
    return {"message_ts": stored.ts}


@method("chat.getPermalink")
def get_permalink(call: ApiCall) -> Json:
    channel = call.channel()
    return {
        "channel": channel.id,
        "permalink": call.state.permalink(call.message(channel, "message_ts")),
    }


def _writable(call: ApiCall) -> Channel:
    """The channel, a user id standing for the direct conversation with that person.

    A conversation with somebody who was deactivated since goes on taking messages, which nobody reads
    (python-slack-sdk issue 1156): an app has to look at `users.info`.
    """
    person = call.state.users.get(call.text("channel"))
    if person is None:
        return call.entered_channel()
    unopened = call.state.direct_message(person.id) is None
    if (person.deleted and unopened) or person.id == call.me:
        raise ApiError("channel_not_found")
    return call.board.open_direct(person.id)


def _content(call: ApiCall, text: str, *, update: bool = False) -> tuple[str, list[Json] | None]:
    """Text and blocks, checked against Slack's rules; blocks are None where none were sent."""
    blocks = call.structure("blocks", "invalid_blocks_format")
    if blocks is not None and not isinstance(blocks, list):
        raise ApiError("invalid_blocks_format")
    if call.structure("attachments", "invalid_attachments"):
        raise ApiError("invalid_attachments")
    if not text.strip() and not blocks and not (update and "metadata" in call and "text" not in call):
        raise ApiError("no_text")
    payload = {"text": text} if blocks is None else {"text": text, "blocks": blocks}
    without = call.context.options.without_blocks
    problems = rules.message_problems(payload, update=update, without=without)
    if problems:
        code = problems[0].code
        texts = [str(problem) for problem in problems if problem.code == code]
        if code == "invalid_blocks":
            raise ApiError(code, messages=texts, errors=texts)
        raise ApiError(code, messages=texts if code == "invalid_attachments" else ())
    return text, blocks


def _metadata(call: ApiCall) -> Json | None:
    metadata = call.structure("metadata", "invalid_metadata_format")
    if metadata is None:
        return None
    event_type = metadata.get("event_type") if isinstance(metadata, dict) else None
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    if not isinstance(event_type, str) or not isinstance(payload, dict):
        raise ApiError("invalid_metadata_format")
    if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,255}", event_type) or len(metadata) > 2:
        raise ApiError("invalid_metadata_schema")
    if len(json.dumps(payload).encode()) > METADATA_BYTES:
        raise ApiError("metadata_too_large")
    return {"event_type": event_type, "event_payload": payload}


@method("blocks.validate")
def validate_blocks(call: ApiCall) -> Json:
    """Judges blocks, a message or a view without posting it. The answer depends on neither the app nor the workspace."""
    given = [name for name in ("blocks", "message", "view") if name in call]
    if len(given) != 1:
        _invalid("exactly one of blocks, message, or view is required")
    problems = rules.check_schema(given[0], call.structure(given[0]))
    if problems:
        errors = [
            {"pointer": each.pointer, "code": "failed_constraint", "message": each.text} for each in problems
        ]
        raise ApiError(f"invalid_{given[0]}", errors=errors)
    return {}


# conversations


@method("conversations.history")
def history(call: ApiCall) -> Json:
    """Newest first; replies only where they were broadcast to the channel too."""
    channel, within = _readable(call), _bounds(call)
    shown = [m for m in channel.messages.values() if m.thread_ts is None or m.broadcast]
    cursor = call.cursor()
    found = [m for m in reversed(shown) if within(m) and (not cursor or m.ts <= cursor)]
    more = {"pin_count": 0, "channel_actions_ts": None, "channel_actions_count": 0}
    return _messages(call, found) | more


@method("conversations.replies")
def replies(call: ApiCall) -> Json:
    """Oldest first: the root (on the first page, whatever the bounds say), then its replies."""
    channel = _readable(call)
    ts = call.text("ts")
    asked = channel.messages.get(ts)
    if asked is None:
        raise ApiError("thread_not_found")
    if asked.thread_ts:
        return _messages(call, [asked])
    root, *rest = channel.thread(ts)
    within, cursor = _bounds(call), call.cursor()
    found = [m for m in rest if within(m) and m.ts >= cursor]
    return _messages(call, found if cursor else [root, *found])


@method("conversations.info")
def conversation_info(call: ApiCall) -> Json:
    channel = call.channel()
    call.need(f"{channel.kind}:read")
    count = {"num_members": len(channel.members)} if call.flag("include_num_members") else {}
    return {"channel": call.channel_json(channel) | count}


@method("conversations.members")
def members(call: ApiCall) -> Json:
    channel = call.channel()
    call.need(f"{channel.kind}:read")
    return call.page("members", channel.members)


@method("conversations.open")
def open_conversation(call: ApiCall) -> Json:
    call.need("im:write")
    users = [user for user in call.text("users").split(",") if user]
    if len(users) != 1:
        raise ApiError("too_many_users" if users else "users_list_not_supplied")
    person = call.state.users.get(users[0])
    if person is None:
        raise ApiError("user_not_found")
    if person.deleted:
        raise ApiError("user_disabled")
    if person.is_bot:
        raise ApiError("cannot_dm_bot")
    was_open = call.state.direct_message(person.id) is not None
    channel = call.board.open_direct(person.id)
    body: Json = {"channel": call.channel_json(channel) if call.flag("return_im") else {"id": channel.id}}
    return body | ({"no_op": True, "already_open": True} if was_open else {})


def _readable(call: ApiCall) -> Channel:
    channel = call.channel()
    call.need(f"{channel.kind}:history")
    if call.me not in channel.members:
        raise ApiError("not_in_channel")
    return channel


def _bounds(call: ApiCall) -> Callable[[Message], bool]:
    """Whether a message lies between `oldest` and `latest`; the bounds themselves only with `inclusive`."""
    oldest, latest = (call.text(name, "") for name in ("oldest", "latest"))
    low = _micros(oldest, "oldest") if oldest else 0
    high = _micros(latest, "latest") if latest else None
    if not call.flag("inclusive"):
        low, high = low + 1, None if high is None else high - 1
    return lambda message: low <= _micros(message.ts) and (high is None or _micros(message.ts) <= high)


def _micros(ts: str, name: str = "ts") -> int:
    seconds, _, fraction = ts.partition(".")
    try:
        return int(seconds) * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])
    except ValueError:
        raise ApiError(f"invalid_ts_{name}") from None


def _messages(call: ApiCall, found: list[Message]) -> Json:
    """One page of messages; the cursor names the first one of the next."""
    limit, metadata = call.limit(100, 999), call.flag("include_all_metadata")
    rest = found[limit:]
    rows = [message_json(call.state, m, metadata=metadata) for m in found[:limit]]
    body: Json = {"messages": rows, "has_more": bool(rest)}
    return body | ({"response_metadata": {"next_cursor": _next(rest[0].ts)}} if rest else {})


# The app, people, groups


@method("auth.test")
def auth_test(call: ApiCall) -> Json:
    """With an org-wide installation `team_id` is the organization's."""
    state = call.state
    return {
        "url": state.team["url"],
        "team": state.team["name"],
        "user": state.users[call.me].name,
        "team_id": state.enterprise if state.org_wide else state.team["id"],
        "user_id": call.me,
        "bot_id": call.app.bot_id,
        "is_enterprise_install": state.org_wide,
    } | ({"enterprise_id": state.enterprise} if state.enterprise else {})


@method("auth.teams.list")
def auth_teams(call: ApiCall) -> Json:
    """The workspaces that the token is good for."""
    team = {name: call.state.team[name] for name in ("id", "name")}
    return {"teams": [team], "response_metadata": {"next_cursor": ""}}


@method("apps.connections.open", "connections:write", app_token=True)
def connections_open(call: ApiCall) -> Json:
    return {"url": call.link.new_url()}


@method("users.info", "users:read")
def users_info(call: ApiCall) -> Json:
    user = call.person()
    if user.hidden:
        raise ApiError(user.hidden)
    email, locale = "users:read.email" in call.scopes, call.flag("include_locale")
    return {"user": user_json(call.state, user, email=email, locale=locale)}


@method("users.conversations")
def users_conversations(call: ApiCall) -> Json:
    """The channels that `user` is in (without one, the caller), of the `types` it asks for; public ones unless it says.
    Of private ones those that the caller is in, too. A token of an org-wide installation has to say of which workspace.
    """
    if call.state.org_wide and call.text("team_id", "") != call.state.team["id"]:
        raise ApiError("invalid_team" if "team_id" in call else "missing_argument")
    if call.limit(100, 1000) > 999:
        raise ApiError("invalid_limit")
    user = call.person().id if "user" in call else call.me
    kinds = {"public_channel": "channels", "private_channel": "groups", "im": "im"}
    wanted = [each for each in call.text("types", "public_channel").split(",") if each]
    if unknown := [each for each in wanted if each not in kinds]:
        _invalid(f"invalid type: {unknown[0]}")
    for each in wanted:
        call.need(f"{kinds[each]}:read")
    found = [
        call.channel_json(channel)
        for channel in call.state.channels.values()
        if user in channel.members
        and (channel.kind == "channels" or call.me in channel.members)
        and channel.kind in {kinds[each] for each in wanted}
        and not (channel.is_archived and call.flag("exclude_archived"))
    ]
    return call.page("channels", found)


@method("users.lookupByEmail", "users:read.email")
def lookup_by_email(call: ApiCall) -> Json:
    """Of deactivated people nothing is told."""
    email = call.text("email").lower()
    for user in call.state.users.values():
        if user.email and user.email.lower() == email and not (user.deleted or user.hidden):
            return {"user": user_json(call.state, user, email=True)}
    raise ApiError("users_not_found")


@method("users.list", "users:read")
def users_list(call: ApiCall) -> Json:
    """Everybody, bots and deactivated accounts too, in pages. A token of an org-wide installation has to say of which
    workspace.
    """
    if call.state.org_wide and call.text("team_id", "") != call.state.team["id"]:
        raise ApiError("invalid_team" if "team_id" in call else "missing_argument")
    email = "users:read.email" in call.scopes
    users = [user for user in call.state.users.values() if not user.hidden]
    return call.page("members", [user_json(call.state, user, email=email) for user in users])


@method("users.getPresence", "users:read")
def get_presence(call: ApiCall) -> Json:
    """Of others: `presence`, and no more."""
    user = call.person()
    return {"presence": "away" if user.deleted else user.presence}


@method("usergroups.users.list", "usergroups:read")
def usergroups_users(call: ApiCall) -> Json:
    """A token of an org-wide installation has to say of which workspace."""
    if call.state.org_wide and call.text("team_id", "") != call.state.team["id"]:
        raise ApiError("invalid_team" if "team_id" in call else "missing_argument")
    group = call.state.groups.get(call.text("usergroup"))
    if group is None or (group.disabled and not call.flag("include_disabled")):
        raise ApiError("no_such_subteam")
    return {"users": list(group.users)}


# views; `hash` protects a view from being overwritten unseen


@method("views.open")
def open_view(call: ApiCall) -> Json:
    payload, trigger = _checked(call), _trigger(call)
    return {"view": view_json(call.state, call.board.open_view(trigger.user, payload, trigger.tab))}


@method("views.push")
def push_view(call: ApiCall) -> Json:
    payload, user = _checked(call), _trigger(call).user
    if len(call.state.views_of(user)) >= MOST_VIEWS:
        raise ApiError("push_limit_reached")
    return {"view": view_json(call.state, call.board.push_view(user, payload))}


@method("views.update")
def update_view(call: ApiCall) -> Json:
    view = _find(call)
    _check_hash(call, view)
    call.board.update_view(view, _checked(call, kind=str(view.payload["type"])))
    return {"view": view_json(call.state, view)}


@method("views.publish")
def publish_view(call: ApiCall) -> Json:
    user = call.person("user_id")
    payload = _checked(call, kind="home")
    if user.deleted or user.is_bot or not call.app.home_tab:
        raise ApiError("not_enabled")
    homes = call.state.homes
    _check_hash(call, homes.get(user.id))
    taken = [view.payload.get("external_id") for owner, view in homes.items() if owner != user.id]
    if payload.get("external_id") and payload["external_id"] in taken:
        raise ApiError("duplicate_external_id")
    return {"view": view_json(call.state, call.board.publish_home(user.id, payload))}


def _checked(call: ApiCall, kind: str = "modal") -> Json:
    """The view as it was sent, found right by the rules."""
    view = call.structure("view")
    if not isinstance(view, dict):
        _invalid("missing required field: view")
    if len(json.dumps(view, ensure_ascii=False).encode()) > rules.VIEW_BYTES:
        raise ApiError("view_too_large")
    problems = rules.check_view(view, without=call.context.options.without_blocks)
    if view.get("type") != kind:
        problems.insert(0, f"must be a view of type {kind} [json-pointer:/view/type]")
    if problems:
        raise ApiError("invalid_arguments", messages=problems)
    return view


def _check_hash(call: ApiCall, view: View | None) -> None:
    """A hash that was sent has to be the view's present one; a Home tab never published has none."""
    sent = call.text("hash", "")
    if sent and (view is None or sent != view.hash):
        raise ApiError("hash_conflict", **({"view": view_json(call.state, view)} if view else {}))


def _trigger(call: ApiCall) -> Trigger:
    """The trigger that was sent; good once, and for three seconds."""
    trigger = call.state.triggers.get(call.text("trigger_id"))
    if trigger is None:
        raise ApiError("invalid_trigger_id")
    if trigger.used:
        raise ApiError("exchanged_trigger_id")
    if call.context.now() > trigger.expires:
        raise ApiError("expired_trigger_id")
    trigger.used = True
    return trigger


def _find(call: ApiCall) -> View:
    view_id, external_id = call.text("view_id", ""), call.text("external_id", "")
    if not view_id and not external_id:
        _invalid("missing required field: view_id")
    view = call.state.view(view_id)
    if view is None and external_id:
        views = [v for stack in call.state.modals.values() for v in stack]
        view = next((v for v in views if v.payload.get("external_id") == external_id), None)
    if view is None:
        raise ApiError("not_found")
    return view
