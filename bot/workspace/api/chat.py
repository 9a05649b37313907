"""`chat.*`: post, update, delete, whisper, link."""

from __future__ import annotations

import json
import re
from typing import Any

from bot.workspace import rules
from bot.workspace.payloads import message_json
from bot.workspace.state import Channel, Ephemeral, Json, Message

from .base import ApiError, Args, Caller, Method, Office

POST_CUT = 40_000
METADATA_BYTES = 16_000


async def post_message(office: Office, caller: Caller, args: Args) -> Json:
    channel = _writable(office, caller, args.text("channel"))
    text, blocks = _content(args, args.text("text", "")[:POST_CUT])
    message = Message(
        channel.id,
        "",
        caller.user,
        text,
        blocks or [],
        thread_ts=_root(channel, args),
        bot_id=office.context.state.app.bot_id,
        metadata=_metadata(args),
        broadcast=args.flag("reply_broadcast"),
        mrkdwn=args.flag("mrkdwn", default=True),
    )
    stored = office.board.post(channel, message)
    body = message_json(office.context.state, stored, metadata=True)
    return {"channel": channel.id, "ts": stored.ts, "message": body}


async def update(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    message = _message(channel, args.text("ts"))
    if channel.is_archived:
        raise ApiError("is_archived")
    if message.user != caller.user:
        raise ApiError("cant_update_message")
    text, blocks = _content(args, args.text("text", ""), update=True)
    changes: dict[str, Any] = {}
    if "text" in args:
        changes = {"text": text, "blocks": blocks or []}
    elif blocks is not None:
        changes = {"blocks": blocks}
    if "metadata" in args:
        changes["metadata"] = _metadata(args)
    if args.flag("reply_broadcast") and message.thread_ts:
        changes |= {"broadcast": True, "subtype": "thread_broadcast"}
    office.board.change(message, caller.user, changes)
    body = message_json(office.context.state, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": body}


async def delete(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    message = _message(channel, args.text("ts"))
    if message.user != caller.user:
        raise ApiError("cant_delete_message")
    office.board.delete(message)
    return {"channel": channel.id, "ts": message.ts}


async def post_ephemeral(office: Office, caller: Caller, args: Args) -> Json:
    channel = _writable(office, caller, args.text("channel"))
    user = office.person(args.text("user")).id
    if user not in channel.members:
        raise ApiError("user_not_in_channel")
    text, blocks = _content(args, args.text("text", "")[:POST_CUT])
    thread_ts = args.text("thread_ts", "") or None
    stored = office.board.whisper(Ephemeral(user, channel.id, "", text, blocks or [], thread_ts))
    return {"message_ts": stored.ts}


async def get_permalink(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    message = _message(channel, args.text("message_ts"))
    return {"channel": channel.id, "permalink": office.context.state.permalink(message)}


def _writable(office: Office, caller: Caller, channel_id: str) -> Channel:
    """The channel, a user id standing for the direct conversation with that person.

    A conversation with somebody who was deactivated since goes on taking messages, which nobody reads
    (python-slack-sdk issue 1156): an app has to look at `users.info`.
    """
    if channel_id in office.context.state.users:
        person = office.person(channel_id)
        unopened = office.context.state.direct_message(person.id) is None
        if (person.deleted and unopened) or person.id == caller.user:
            raise ApiError("channel_not_found")
        return office.board.open_direct(person.id)
    channel = office.channel(channel_id, caller)
    if channel.is_archived:
        raise ApiError("is_archived")
    if caller.user not in channel.members:
        raise ApiError("not_in_channel")
    return channel


def _message(channel: Channel, ts: str) -> Message:
    message = channel.messages.get(ts)
    if message is None or message.subtype == "tombstone":
        raise ApiError("message_not_found")
    return message


def _root(channel: Channel, args: Args) -> str | None:
    """The thread's root; a reply or nothing at all is no root."""
    thread_ts = args.text("thread_ts", "")
    if not thread_ts:
        return None
    root = channel.messages.get(thread_ts)
    if root is None or root.thread_ts:
        raise ApiError("thread_not_found")
    return thread_ts


def _content(args: Args, text: str, *, update: bool = False) -> tuple[str, list[Json] | None]:
    """Text and blocks, checked against Slack's rules; blocks are None where none were sent."""
    blocks = args.structure("blocks", "invalid_blocks_format")
    if blocks is not None and not isinstance(blocks, list):
        raise ApiError("invalid_blocks_format")
    attachments = args.structure("attachments", "invalid_attachments") or []
    if attachments:
        raise ApiError("invalid_attachments")
    payload: Json = {"text": text}
    if blocks is not None:
        payload["blocks"] = blocks
    if not text.strip() and not blocks and not (update and "metadata" in args and "text" not in args):
        raise ApiError("no_text")
    problems = rules.message_problems(payload, update=update)
    if problems:
        code = problems[0].code
        texts = [str(problem) for problem in problems if problem.code == code]
        if code == "invalid_blocks":
            raise ApiError(code, messages=texts, errors=texts)
        raise ApiError(code)
    return text, blocks


def _metadata(args: Args) -> Json | None:
    metadata = args.structure("metadata", "invalid_metadata_format")
    if metadata is None:
        return None
    event_type = metadata.get("event_type") if isinstance(metadata, dict) else None
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    if not isinstance(event_type, str) or not isinstance(payload, dict):
        raise ApiError("invalid_metadata_format")
    if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,255}", event_type) or set(metadata) - {
        "event_type",
        "event_payload",
    }:
        raise ApiError("invalid_metadata_schema")
    if len(json.dumps(payload).encode()) > METADATA_BYTES:
        raise ApiError("metadata_too_large")
    return {"event_type": event_type, "event_payload": payload}


METHODS = {
    "chat.postMessage": Method(post_message, "chat:write", "post"),
    "chat.update": Method(update, "chat:write", "tier3"),
    "chat.delete": Method(delete, "chat:write", "tier3"),
    "chat.postEphemeral": Method(post_ephemeral, "chat:write", "tier4"),
    "chat.getPermalink": Method(get_permalink, None, "special"),
}
