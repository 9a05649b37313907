"""What is said in Slack threads, as far as it can be an answer. Pure.

Sources: docs.slack.dev, "message event" and its subtypes. A reply has a `thread_ts` that is not its own `ts`; replies
that were also sent to the channel have the subtype `thread_broadcast`, those with files `file_share`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from bot.slack import mrkdwn

Kind = Literal["said", "edited", "deleted", "aside", "dm"]
KINDS: frozenset[str] = frozenset(get_args(Kind))
_SPOKEN = frozenset({None, "thread_broadcast", "file_share"})


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply in a thread, or its edit or deletion. `text` is in Slack's markup, after an edit as it is now.

    `aside`: a message in a channel that mentions the bot. `dm`: a direct message to it; `thread_ts` is empty where
    either is in no thread. `missed`: found in the history, not heard live. `parent`: who wrote the thread's first message,
    where Slack says so. `files`: it comes with some. `edited`: the `ts` of an edit.
    """

    kind: Kind
    channel: str
    thread_ts: str
    ts: str
    user: str
    team: str = ""
    text: str = ""
    missed: bool = False
    parent: str = ""
    files: bool = False
    edited: str = ""

    @property
    def key(self) -> str:
        """The same for one message however it comes: as an event, again, or by history."""
        place = f"{self.channel}:{self.ts}"
        if self.edited:
            return f"edited:{place}:{self.edited}"
        return f"{self.kind}:{place}" if self.kind in {"edited", "deleted"} else place

    @property
    def thread(self) -> tuple[str, str]:
        return self.channel, self.thread_ts

    def body(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Heard:
        """What `body` gave."""
        return cls(**body)


def heard(event: Mapping[str, Any], bot_user: str = "") -> Heard | None:
    """A `message` or `app_mention` event, if it concerns a person's reply in a thread or was said to the bot; None
    for all else. Both events about one message give the same.
    """
    subtype, channel = event.get("subtype"), event.get("channel")
    if not isinstance(channel, str):
        return None
    if subtype == "message_changed":
        return _changed(channel, _object(event.get("previous_message")), _object(event.get("message")))
    if subtype == "message_deleted":
        return _about(channel, _object(event.get("previous_message")), "deleted")
    if event.get("channel_type") == "im" or channel.startswith("D"):
        return _to_us(channel, event, "dm")
    return said(channel, event) or _mention(channel, event, bot_user)


def _changed(channel: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Heard | None:
    """An edit, if it changed what was said."""
    # Unfurled links and new replies change a message too; its words stay.
    if before.get("text") == now.get("text") and now.get("subtype") != "tombstone":
        return None
    if channel.startswith("D") and (direct := _to_us(channel, now, "dm")) is not None:
        return _as_now(replace(direct, kind="edited"), now)
    found = _about(channel, now if now.get("thread_ts") else before, "edited")
    return _as_now(found, now) if found is not None and now.get("subtype") in _SPOKEN else found


def _mention(channel: str, event: Mapping[str, Any], bot_user: str) -> Heard | None:
    """A message that is no reply in a thread, and mentions the bot."""
    mentioned = bot_user in mrkdwn.people_in(str(event.get("text") or ""))
    in_thread = event.get("thread_ts") not in {None, event.get("ts")}
    return _to_us(channel, event, "aside") if mentioned and not in_thread else None


def gone(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """The channel and ts of a message that was deleted, whoever's it was. One with replies leaves a tombstone."""
    message = _object(event.get("message"))
    ts = event.get("deleted_ts") or (message.get("ts") if message.get("subtype") == "tombstone" else None)
    channel = event.get("channel")
    return (channel, ts) if isinstance(channel, str) and isinstance(ts, str) else None


def said(channel: str, message: Mapping[str, Any], *, missed: bool = False) -> Heard | None:
    """A message, live or from the history, if it is a person's reply in a thread."""
    if message.get("subtype") not in _SPOKEN:
        return None
    found = _about(channel, message, "said")
    if found is None:
        return None
    return Heard(
        "said",
        channel,
        found.thread_ts,
        found.ts,
        found.user,
        team=_team(message),
        text=str(message.get("text") or ""),
        missed=missed,
        parent=str(message.get("parent_user_id") or ""),
        files=bool(message.get("files")),
    )


def missed(channel: str, message: Mapping[str, Any]) -> Heard | None:
    """A message from the history, if it is a person's reply in a thread or a direct message to the bot.

    What an edited one said at first, nobody can tell: it is heard as the edit.
    """
    if message.get("edited") and message.get("subtype") in _SPOKEN:
        edit = _about(channel, message, "edited")
        if edit is not None:
            return replace(_as_now(edit, message), missed=True)
    if not channel.startswith("D"):
        return said(channel, message, missed=True)
    found = _to_us(channel, message, "dm")
    return replace(found, missed=True) if found is not None else None


def _to_us(channel: str, message: Mapping[str, Any], kind: Literal["aside", "dm"]) -> Heard | None:
    """A person's message to the bot itself, in a thread or not."""
    user, ts = message.get("user"), message.get("ts")
    if message.get("subtype") not in _SPOKEN or not (isinstance(user, str) and isinstance(ts, str)):
        return None
    if message.get("bot_id") or user == "USLACKBOT":
        return None
    thread = str(message.get("thread_ts") or "")
    text = str(message.get("text") or "")
    where = "" if thread == ts else thread
    return Heard(kind, channel, where, ts, user, _team(message), text, files=bool(message.get("files")))


def _as_now(edit: Heard, message: Mapping[str, Any]) -> Heard:
    """An edit with what the message says since."""
    return replace(
        edit,
        team=_team(message),
        text=str(message.get("text") or ""),
        files=bool(message.get("files")),
        edited=str(_object(message.get("edited")).get("ts") or ""),
    )


def _team(message: Mapping[str, Any]) -> str:
    return str(message.get("user_team") or message.get("source_team") or message.get("team") or "")


def _about(
    channel: str, message: Mapping[str, Any], kind: Literal["said", "edited", "deleted"]
) -> Heard | None:
    user, ts, thread_ts = message.get("user"), message.get("ts"), message.get("thread_ts")
    if not (isinstance(user, str) and isinstance(ts, str) and isinstance(thread_ts, str)):
        return None
    if message.get("bot_id") or user == "USLACKBOT" or ts == thread_ts:
        return None
    return Heard(kind, channel, thread_ts, ts, user)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
