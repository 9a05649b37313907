"""`conversations.*` and `users.conversations`: what there is, who is in it, what was said."""

from __future__ import annotations

from collections.abc import Callable

from bot.workspace.payloads import channel_json, message_json
from bot.workspace.state import Channel, Json, Message

from .base import ApiError, Args, Caller, Method, Office, cursor_value, encode_cursor, page

_TYPES = {"public_channel": "channels", "private_channel": "groups", "im": "im", "mpim": "mpim"}


async def history(office: Office, caller: Caller, args: Args) -> Json:
    """Newest first; replies only where they were broadcast to the channel too."""
    channel = _readable(office, caller, args)
    shown = [m for m in channel.messages.values() if m.thread_ts is None or m.broadcast]
    within = _bounds(args)
    found = [m for m in reversed(shown) if within(m)]
    cursor = cursor_value(args.text("cursor", ""))
    if cursor:
        found = [m for m in found if m.ts <= cursor]
    limit = _limit(args)
    chosen, rest = found[:limit], found[limit:]
    return _messages(office, args, chosen, encode_cursor(rest[0].ts) if rest else "") | {
        "pin_count": 0,
        "channel_actions_ts": None,
        "channel_actions_count": 0,
    }


async def replies(office: Office, caller: Caller, args: Args) -> Json:
    """Oldest first: the root (on the first page, whatever the bounds say), then its replies."""
    channel = _readable(office, caller, args)
    ts = args.text("ts")
    asked = channel.messages.get(ts)
    if asked is None:
        raise ApiError("thread_not_found")
    if asked.thread_ts:
        return _messages(office, args, [asked], "")
    root, *rest = channel.thread(ts)
    within = _bounds(args)
    found = [m for m in rest if within(m)]
    cursor = cursor_value(args.text("cursor", ""))
    found = [m for m in found if m.ts >= cursor] if cursor else [root, *found]
    limit = _limit(args)
    chosen, later = found[:limit], found[limit:]
    return _messages(office, args, chosen, encode_cursor(later[0].ts) if later else "")


async def info(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    caller.need(f"{channel.kind}:read")
    body = channel_json(office.context.state, channel, viewer=caller.user)
    if args.flag("include_num_members"):
        body["num_members"] = len(channel.members)
    return {"channel": body}


async def members(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    caller.need(f"{channel.kind}:read")
    rows: list[Json] = [{"id": member} for member in channel.members]
    chosen, cursor = page(rows, args, default=100, most=1000)
    return {"members": [row["id"] for row in chosen], "response_metadata": {"next_cursor": cursor}}


async def list_(office: Office, caller: Caller, args: Args) -> Json:
    """Public channels, and what else the bot is in, by `types`."""
    return _listed(office, caller, args, _visible(office, caller, args))


async def users_conversations(office: Office, caller: Caller, args: Args) -> Json:
    """Those that the bot (or `user`) is a member of."""
    member = args.text("user", caller.user)
    office.person(member)
    return _listed(office, caller, args, [c for c in _visible(office, caller, args) if member in c.members])


async def open_(office: Office, caller: Caller, args: Args) -> Json:
    caller.need("im:write")
    users = [user for user in args.text("users").split(",") if user]
    if len(users) != 1:
        raise ApiError("too_many_users" if users else "users_list_not_supplied")
    person = office.person(users[0])
    if person.deleted:
        raise ApiError("user_disabled")
    if person.is_bot:
        raise ApiError("cannot_dm_bot")
    was_open = office.context.state.direct_message(person.id) is not None
    channel = office.board.open_direct(person.id)
    body: Json = {"channel": {"id": channel.id}}
    if args.flag("return_im"):
        body["channel"] = channel_json(office.context.state, channel, viewer=caller.user)
    return body | ({"no_op": True, "already_open": True} if was_open else {})


async def join(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    if channel.is_archived:
        raise ApiError("is_archived")
    if channel.kind != "channels":
        raise ApiError("method_not_supported_for_channel_type")
    was_member = caller.user in channel.members
    office.board.join(channel, caller.user)
    body: Json = {"channel": channel_json(office.context.state, channel, viewer=caller.user)}
    return body | ({"warning": "already_in_channel"} if was_member else {})


def _visible(office: Office, caller: Caller, args: Args) -> list[Channel]:
    kinds = set()
    for name in args.text("types", "public_channel").split(","):
        if name.strip() not in _TYPES:
            raise ApiError("invalid_types")
        kinds.add(_TYPES[name.strip()])
    for kind in sorted(kinds):
        caller.need(f"{kind}:read")
    channels = office.context.state.channels.values()
    return [
        c
        for c in channels
        if c.kind in kinds
        and (c.kind == "channels" or caller.user in c.members)
        and not (c.is_archived and args.flag("exclude_archived"))
    ]


def _listed(office: Office, caller: Caller, args: Args, channels: list[Channel]) -> Json:
    rows = [channel_json(office.context.state, c, viewer=caller.user) for c in channels]
    chosen, cursor = page(rows, args, default=100, most=1000)
    return {"channels": chosen, "response_metadata": {"next_cursor": cursor}}


def _readable(office: Office, caller: Caller, args: Args) -> Channel:
    channel = office.channel(args.text("channel"), caller)
    caller.need(f"{channel.kind}:history")
    if caller.user not in channel.members:
        raise ApiError("not_in_channel")
    return channel


def _bounds(args: Args) -> Callable[[Message], bool]:
    """Whether a message lies between `oldest` and `latest`; the bounds themselves only with `inclusive`."""
    oldest, latest = (args.text(name, "") for name in ("oldest", "latest"))
    low = _micros(oldest, "oldest") if oldest else 0
    high = _micros(latest, "latest") if latest else None
    if not args.flag("inclusive"):
        low, high = low + 1, None if high is None else high - 1
    return lambda message: low <= _micros(message.ts) and (high is None or _micros(message.ts) <= high)


def _micros(ts: str, name: str = "ts") -> int:
    seconds, _, fraction = ts.partition(".")
    try:
        return int(seconds) * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])
    except ValueError:
        raise ApiError(f"invalid_ts_{name}") from None


def _limit(args: Args) -> int:
    limit = args.number("limit", 100)
    if limit < 1:
        raise ApiError("invalid_limit")
    return min(limit, 999)


def _messages(office: Office, args: Args, messages: list[Message], cursor: str) -> Json:
    metadata = args.flag("include_all_metadata")
    rows = [message_json(office.context.state, m, metadata=metadata) for m in messages]
    body: Json = {"messages": rows, "has_more": bool(cursor)}
    return body | ({"response_metadata": {"next_cursor": cursor}} if cursor else {})


METHODS = {
    "conversations.history": Method(history, None, "tier3"),
    "conversations.replies": Method(replies, None, "tier3"),
    "conversations.info": Method(info, None, "tier3"),
    "conversations.members": Method(members, None, "tier4"),
    "conversations.list": Method(list_, None, "tier2"),
    "conversations.open": Method(open_, None, "tier3"),
    "conversations.join": Method(join, "channels:join", "tier3"),
    "users.conversations": Method(users_conversations, None, "tier3"),
}
