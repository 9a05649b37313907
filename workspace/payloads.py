"""Slack's JSON for what the state holds: messages, users, channels, views. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .state import Channel, Ephemeral, Json, Message, State, User, UserGroup, View


def message_json(state: State, message: Message, *, metadata: bool = False) -> Json:
    """A message as `conversations.history` gives it; `metadata` only where it was asked for."""
    body: Json = {"type": "message", "user": message.user, "ts": message.ts, "text": message.text}
    if message.subtype:
        body["subtype"] = message.subtype
    if message.subtype == "tombstone":
        body["hidden"] = True
    if message.client_msg_id:
        body["client_msg_id"] = message.client_msg_id
    body |= _author_fields(state, message)
    if message.blocks:
        body["blocks"] = message.blocks
    if message.attachments:
        body["attachments"] = message.attachments
    if message.files:
        body["files"] = message.files
    if message.edited:
        body["edited"] = message.edited
    if metadata and message.metadata:
        body["metadata"] = message.metadata
    return body | _thread_fields(state, message)


def pasted_table(rows: Sequence[Sequence[str]]) -> Json:
    """The attachment that Slack makes of a table that a person pasted; its text stands nowhere else."""
    cells = [[{"type": "raw_text", "text": cell} for cell in row] for row in rows]
    table = {"type": "table", "block_id": "table", "rows": cells}
    return {"id": 1, "blocks": [table], "fallback": "[no preview available]"}


def forwarded(state: State, message: Message) -> Json:
    """The attachment that Slack makes of a message that a person forwards, with its tables and files."""
    author = state.users.get(message.user)
    name = author.real_name if author is not None else message.user
    content = [
        {"type": "rich_text", "elements": []},
        *(b for a in message.attachments for b in a.get("blocks", [])),
    ]
    shared: Json = {
        "id": 1,
        "ts": message.ts,
        "is_share": True,
        "is_msg_unfurl": True,
        "channel_id": message.channel,
        "channel_team": state.team["id"],
        "author_id": message.user,
        "author_name": name,
        "author_subname": name,
        "from_url": state.permalink(message),
        "text": message.text,
        "mrkdwn_in": ["text"],
        "fallback": f"{name}: {message.text}",
        "message_blocks": [
            {
                "team": state.team["id"],
                "channel": message.channel,
                "ts": message.ts,
                "message": {"blocks": content},
            }
        ],
    }
    return shared | ({"files": message.files} if message.files else {})


def uploaded(state: State, name: str) -> Json:
    """A file as messages carry it; the workspace keeps no content."""
    return {"id": state.next_id("F"), "name": name, "title": name, "mode": "hosted", "size": 0}


def _author_fields(state: State, message: Message) -> Json:
    team = state.team["id"]
    if message.bot_id:
        app = state.app
        profile = {
            "id": app.bot_id,
            "deleted": False,
            "name": app.name,
            "updated": 0,
            "app_id": app.id,
            "user_id": app.bot_user,
            "icons": {},
            "team_id": team,
        }
        return {"bot_id": message.bot_id, "app_id": state.app.id, "team": team, "bot_profile": profile}
    if message.user not in state.users:
        return {}
    theirs = state.users[message.user].team_id
    return {"team": theirs} | ({"user_team": theirs, "source_team": theirs} if theirs != team else {})


def _thread_fields(state: State, message: Message) -> Json:
    channel = state.channels[message.channel]
    if message.thread_ts:
        root = channel.messages.get(message.thread_ts)
        fields: Json = {"thread_ts": message.thread_ts}
        if root is not None:
            fields["parent_user_id"] = root.user
        if message.broadcast and root is not None:
            fields["root"] = message_json(state, root)
        return fields
    replies = channel.replies.get(message.ts, [])
    if not replies:
        return {}
    repliers = list(dict.fromkeys(channel.messages[ts].user for ts in replies))
    return {
        "thread_ts": message.ts,
        "reply_count": len(replies),
        "reply_users_count": len(repliers),
        "latest_reply": replies[-1],
        "reply_users": repliers[:5],
        "is_locked": False,
        "subscribed": True,
    }


def ephemeral_json(state: State, message: Ephemeral) -> Json:
    body: Json = {
        "type": "message",
        "subtype": "bot_message",
        "user": state.app.bot_user,
        "bot_id": state.app.bot_id,
        "ts": message.ts,
        "text": message.text,
        "is_ephemeral": True,
    }
    if message.blocks:
        body["blocks"] = message.blocks
    if message.thread_ts:
        body["thread_ts"] = message.thread_ts
    return body


def user_json(state: State, user: User, *, email: bool, locale: bool = False) -> Json:
    """A person as `users.info` gives it; `email` where the token's scopes show it, `locale` where the caller asks for it."""
    body: Json = {
        "id": user.id,
        "team_id": user.team_id,
        "name": user.name,
        "deleted": user.deleted,
        "profile": _profile(state, user, email=email),
        "is_bot": user.is_bot,
        "is_app_user": False,
        "updated": user.updated,
    }
    if user.deleted:
        return body
    if locale:
        body["locale"] = user.locale
    if user.team_id != state.team["id"]:
        body["is_stranger"] = user.is_stranger
    if user.enterprise_id:
        body["enterprise_user"] = {
            "id": user.global_id or user.id,
            "enterprise_id": user.enterprise_id,
            "enterprise_name": user.enterprise_id,
            "is_admin": False,
            "is_owner": False,
            "teams": [user.team_id],
        }
    return body | {
        "real_name": user.real_name,
        "tz": user.tz,
        "tz_label": user.tz,
        "tz_offset": 0,
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "is_restricted": user.is_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
    }


def _profile(state: State, user: User, *, email: bool) -> Json:
    """E-mail addresses of external people are never shown."""
    profile: Json = {
        "real_name": user.real_name,
        "real_name_normalized": user.real_name,
        "display_name": user.name,
        "display_name_normalized": user.name,
        "team": user.team_id,
    }
    if email and user.email and user.team_id == state.team["id"]:
        profile["email"] = user.email
    if user.is_bot:
        ours = user.id == state.app.bot_user
        profile |= {
            "bot_id": state.app.bot_id if ours else "B0OTHER",
            "api_app_id": state.app.id if ours else "",
        }
    return profile


def channel_json(state: State, channel: Channel, *, viewer: str) -> Json:
    """A conversation as `conversations.info` gives it to `viewer`."""
    if channel.is_im:
        peer = next(member for member in channel.members if member != viewer)
        return {
            "id": channel.id,
            "created": channel.created,
            "is_im": True,
            "is_org_shared": False,
            "is_archived": False,
            "user": peer,
            "context_team_id": state.team["id"],
            "is_user_deleted": state.users[peer].deleted,
            "priority": 0,
        }
    return {
        "id": channel.id,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_channel": not channel.is_private,
        "is_group": channel.is_private,
        "is_im": False,
        "is_mpim": False,
        "is_private": channel.is_private,
        "created": channel.created,
        "is_archived": channel.is_archived,
        "is_general": False,
        "is_shared": False,
        "is_ext_shared": any(state.users[u].team_id != state.team["id"] for u in channel.members),
        "is_member": viewer in channel.members,
        "context_team_id": state.team["id"],
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
    }


def group_json(state: State, group: UserGroup) -> Json:
    """A user group as `subteam_updated` tells of it."""
    return {
        "id": group.id,
        "team_id": state.team["id"],
        "is_usergroup": True,
        "name": group.name,
        "handle": group.handle,
        "description": "",
        "is_external": False,
        "date_delete": 1 if group.disabled else 0,
        "user_count": len(group.users),
        "users": list(group.users),
    }


def view_json(state: State, view: View, values: Json | None = None) -> Json:
    """A view as Slack answers with it and as interactions carry it."""
    sent: dict[str, Any] = view.payload
    return {
        "id": view.id,
        "team_id": state.team["id"],
        "type": sent["type"],
        "blocks": sent["blocks"],
        "private_metadata": sent.get("private_metadata", ""),
        "callback_id": sent.get("callback_id", ""),
        "state": {"values": values if values is not None else view.values},
        "hash": view.hash,
        "title": sent.get("title"),
        "clear_on_close": bool(sent.get("clear_on_close", False)),
        "notify_on_close": bool(sent.get("notify_on_close", False)),
        "close": sent.get("close"),
        "submit": sent.get("submit"),
        "previous_view_id": view.previous_view_id,
        "root_view_id": view.root_view_id,
        "app_id": state.app.id,
        "external_id": sent.get("external_id", ""),
        "app_installed_team_id": state.team["id"],
        "bot_id": state.app.bot_id,
    }


def person_json(state: State, user: str) -> Json:
    """The acting person as interactions carry them."""
    who = state.users[user]
    body = {"id": who.id, "username": who.name, "name": who.name}
    return body | ({"team_id": who.team_id} if who.team_id else {})
