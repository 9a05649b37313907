"""What every Web API method shares: its arguments, its caller, its errors."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.workspace.board import Board
from bot.workspace.context import Context
from bot.workspace.link import Link
from bot.workspace.modals import Views
from bot.workspace.state import Channel, Json, User


class ApiError(Exception):
    """A refusal as Slack words it; `extra` goes into the answer beside `error`."""

    def __init__(self, code: str, *, messages: list[str] | None = None, **extra: Any) -> None:
        super().__init__(code)
        self.code = code
        self.body: Json = {"ok": False, "error": code, **extra}
        if messages:
            self.body["response_metadata"] = {"messages": [f"[ERROR] {text}" for text in messages]}


class Args:
    """A call's arguments, sent as JSON, as a form or in the query; forms carry JSON in strings."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def raw(self) -> Json:
        return {name: value for name, value in self._values.items() if name != "token"}

    def text(self, name: str, default: str | None = None) -> str:
        """A string; a required one where there is no default."""
        value = self._values.get(name, default)
        if value is None or (value == "" and default is None):
            raise ApiError("invalid_arguments", messages=[f"missing required field: {name}"])
        if not isinstance(value, str | int | float):
            raise ApiError("invalid_arguments", messages=[f"must be a string [json-pointer:/{name}]"])
        return str(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name, default)
        return value if isinstance(value, bool) else str(value).lower() in {"1", "true"}

    def number(self, name: str, default: int) -> int:
        try:
            return int(self._values.get(name, default))
        except (TypeError, ValueError):
            raise ApiError(
                "invalid_arguments", messages=[f"must be a number [json-pointer:/{name}]"]
            ) from None

    def structure(self, name: str, error: str = "invalid_arguments") -> Any:
        """A JSON value, also when it comes as a string that holds JSON; None where it is missing."""
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            raise ApiError(error) from None


@dataclass(frozen=True)
class Caller:
    """Whose token it is: `scopes` were given to it."""

    user: str
    scopes: frozenset[str]

    def need(self, scope: str) -> None:
        """Raises `missing_scope` if the token lacks it."""
        if scope not in self.scopes:
            provided = ",".join(sorted(self.scopes))
            raise ApiError("missing_scope", needed=scope, provided=provided)


@dataclass(frozen=True)
class Office:
    """What the methods work with."""

    context: Context
    board: Board
    link: Link
    views: Views
    link_url: Callable[[], str]

    def channel(self, channel_id: str, caller: Caller) -> Channel:
        """A conversation that the caller can see: private ones only from inside."""
        channel = self.context.state.channels.get(channel_id)
        hidden = channel is not None and channel.kind != "channels" and caller.user not in channel.members
        if channel is None or hidden:
            raise ApiError("channel_not_found")
        return channel

    def person(self, user_id: str) -> User:
        user = self.context.state.users.get(user_id)
        if user is None:
            raise ApiError("user_not_found")
        return user


Handler = Callable[[Office, Caller, Args], Awaitable[Json]]


@dataclass(frozen=True)
class Method:
    """One method: what it needs (`scope` where it is always the same), how often it may be called."""

    handler: Handler
    scope: str | None = None
    tier: str = "tier3"
    auth: bool = True
    app_token: bool = False


def page(items: list[Json], args: Args, *, default: int, most: int) -> tuple[list[Json], str]:
    """The items that cursor and limit ask for, and the cursor of what follows ("" at the end)."""
    limit = args.number("limit", default)
    if limit < 1:
        raise ApiError("invalid_limit")
    limit = min(limit, most)
    start = decode_cursor(args.text("cursor", ""))
    chosen = items[start : start + limit]
    more = start + limit < len(items)
    return chosen, encode_cursor(start + limit) if more else ""


def encode_cursor(value: int | str) -> str:
    return base64.b64encode(f"next:{value}".encode()).decode()


def decode_cursor(cursor: str) -> int:
    """Raises `invalid_cursor` for anything that `encode_cursor` did not make."""
    return int(cursor_value(cursor, default="0"))


def cursor_value(cursor: str, default: str = "") -> str:
    if not cursor:
        return default
    try:
        prefix, _, value = base64.b64decode(cursor, validate=True).decode().partition(":")
        float(value)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise ApiError("invalid_cursor") from None
    if prefix != "next":
        raise ApiError("invalid_cursor")
    return value
