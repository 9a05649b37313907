"""Decodes what Slack sends: clicks, modals, commands, shortcuts and messages. Pure.

Sources: docs.slack.dev, "block_actions payload", "view_submission payload", "message event" and its subtypes. A modal
carries the control that opened it, and its place, as JSON in `private_metadata` (≤ 3000 characters). A reply's `thread_ts`
differs from its `ts`; replies that were also sent to the channel have the subtype `thread_broadcast`, those with files
`file_share`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from bot.errors import BadPress
from bot.people.access import Person, lookup_deadline
from bot.slack import mrkdwn
from bot.slack.mrkdwn import attached_to
from bot.slackapi import Place
from bot.views.codec import unseal

Json = Mapping[str, Any]
Kind = Literal["said", "edited", "deleted", "aside", "dm"]
Surface = Literal["message", "ephemeral", "modal", "home"]
KINDS: frozenset[str] = frozenset(get_args(Kind))
_SPOKEN = frozenset({None, "thread_broadcast", "file_share"})
_NOWHERE = Place("")


@dataclass(frozen=True, slots=True)
class ControlOrigin:
    """Where a clicked control is. `installation`: whose control it is; empty if it has no seal, so is nobody's. `channel` and
    `ts`: its message; empty for ephemeral messages, modals and Home tabs.
    """

    installation: str
    channel: str = ""
    ts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """A person's click on a control. `action`: its action_id; `value`: its payload, without its seal; empty if it has none.

    `surface`: where the control is; an ephemeral message can be changed only through the `response_url`. `view_id` and
    `callback`: the modal's.
    """

    value: str
    person: Person
    place: Place
    control: ControlOrigin
    action: str = ""
    trigger: str = ""
    response_url: str = ""
    surface: Surface = "message"
    view_id: str = ""
    callback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A slash command, or a message shortcut. `text`: the typed or the message's text, in Slack's markup.

    Of a shortcut: `ts` of the message, `by_person` whether a person wrote it, `attached` and `files` as in `MessageEvent`;
    `place` is its thread.
    """

    text: str
    person: Person
    place: Place
    response_url: str
    ts: str = ""
    by_person: bool = True
    attached: str = ""
    files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A submitted modal. `callback`: its callback_id; `value`: the payload of the control that opened it, at `place`, without
    its seal; empty if it has none. `values` as in view.state.values; `opened_by`: the user it was opened for, empty if not
    known.
    """

    callback: str
    value: str
    person: Person
    place: Place
    control: ControlOrigin
    values: Mapping[str, Any]
    opened_by: str

    def chosen_user(self) -> str:
        """Returns the user chosen in the modal, or an empty string."""
        for block in self.values.values():
            for element in _object(block).values():
                if user := _object(element).get("selected_user"):
                    return str(user)
        return ""


def person_of(body: Json, home_team: str) -> Person:
    """Returns who clicked, submitted a modal, or used a shortcut or command, with the deadline for looking them up.

    Their home team tells external people (Slack Connect); `home_team` if Slack names none.
    """
    user, user_id = _object(body.get("user")), body.get("user_id")  # a command has only ids
    team = user.get("team_id") or _object(body.get("team")).get("id") or body.get("team_id") or home_team
    return Person(str(team), str(user.get("id") or user_id or ""), lookup_deadline())


def click_of(body: Json, person: Person) -> Click:
    """Decodes a block_actions payload, but not its control's value.

    `place` is a thread only if its message is shown nowhere else. A thread's root, or a reply that was also sent to the
    channel, is in the channel.
    """
    action = _object((body.get("actions") or [{}])[0])
    view, container, message = (_object(body.get(name)) for name in ("view", "container", "message"))
    packed = action.get("value") or _object(action.get("selected_option")).get("value")
    installation, value = _unsealed(str(packed or ""))
    channel = str(container.get("channel_id") or _object(body.get("channel")).get("id") or "")
    ts = container.get("message_ts") or message.get("ts") or ""
    thread = message.get("thread_ts") or container.get("thread_ts")
    if message.get("subtype") == "thread_broadcast" or thread == (message.get("ts") or ts):
        thread = None
    click = Click(
        value=value,
        person=person,
        place=Place(channel, None if thread is None else str(thread)),
        control=ControlOrigin(installation, channel, str(ts)),
        action=str(action.get("action_id") or ""),
        trigger=str(body.get("trigger_id") or ""),
        response_url=str(body.get("response_url") or ""),
    )
    if not view and not container.get("is_ephemeral"):
        return click
    # Of what is shown elsewhere, Slack names no message of ours.
    click = replace(click, control=ControlOrigin(installation), surface="ephemeral")
    if view.get("type") == "home":
        if action.get("type") == "plain_text_input":  # an input, which carries no seal
            installation, value = _unsealed(str(view.get("private_metadata")))[0], str(packed or "")
        return replace(click, value=value, control=ControlOrigin(installation), surface="home")
    if view:
        place, callback = _origin(view).place, str(view.get("callback_id"))
        return replace(click, place=place, surface="modal", view_id=str(view.get("id")), callback=callback)
    return click


def command_of(body: Json, person: Person) -> Invocation:
    """Decodes a slash command."""
    return Invocation(
        text=str(body.get("text") or ""),
        person=person,
        place=Place(str(body.get("channel_id") or "")),
        response_url=str(body.get("response_url") or ""),
    )


def shortcut_of(body: Json, person: Person) -> Invocation:
    """Decodes a message_action payload."""
    message = _object(body.get("message"))
    ts = str(message.get("ts") or body.get("message_ts") or "")
    channel = str(_object(body.get("channel")).get("id") or "")
    attached = attached_to(message)
    return Invocation(
        text=str(message.get("text") or ""),
        person=person,
        place=Place(channel, str(message.get("thread_ts") or ts)),
        response_url=str(body.get("response_url") or ""),
        ts=ts,
        by_person=bool(message.get("user")) and not message.get("bot_id"),
        attached=attached.text,
        files=attached.files,
    )


def submission_of(body: Json, person: Person) -> Submission:
    """Decodes a view_submission payload."""
    view = _object(body.get("view"))
    origin = _origin(view)
    return Submission(
        callback=str(view.get("callback_id") or ""),
        value=origin.packed,
        person=person,
        place=origin.place,
        control=ControlOrigin(origin.installation),
        values=_object(_object(view.get("state")).get("values")),
        opened_by=origin.user,
    )


def opened_from(view: Mapping[str, Any], place: Place, person: Person) -> dict[str, Any]:
    """Adds to a view the place that it was opened from, and for whom."""
    origin = {
        "press": view.get("private_metadata") or "",
        "channel": place.channel,
        "thread": place.thread_ts,
        "user": person.user,
    }
    return {**view, "private_metadata": json.dumps(origin)}


@dataclass(frozen=True, slots=True)
class _Origin:
    """What `opened_from` stored, without the seal; empty for a modal that is not ours."""

    installation: str = ""
    packed: str = ""
    place: Place = _NOWHERE
    user: str = ""


def _origin(view: Json) -> _Origin:
    try:
        origin = json.loads(str(view.get("private_metadata")))
        channel, thread, sealed = origin["channel"], origin.get("thread"), origin["press"]
        user = origin.get("user")
    except (ValueError, KeyError, TypeError, AttributeError):
        return _Origin()
    installation, packed = _unsealed(str(sealed))
    place = Place(str(channel), None if thread is None else str(thread))
    return _Origin(installation, packed, place, str(user or ""))


def _unsealed(text: str) -> tuple[str, str]:
    """Returns whose control it is and what it carries. One without a seal is nobody's and says nothing, whatever it carries."""
    try:
        return unseal(text)
    except BadPress:
        return "", ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """A reply in a thread, or its edit or deletion. `text` is in Slack's markup, after an edit the new text.

    `aside`: a message in a channel that mentions the bot. `dm`: a direct message to it. `thread_ts` is empty outside of
    threads. `missed`: found in the history, so it may be older than the open question. `parent`: the author of the thread's
    root, if Slack names them. `attached`: what was sent along as text, in Slack's markup (`bot.slack.mrkdwn`); `files`:
    whether anything else was, such as a file. `edited`: the `ts` of an edit.
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
    attached: str = ""

    @property
    def key(self) -> str:
        """Identifies a message, whether it comes as an event, as a repeated event, or from the history."""
        place = f"{self.channel}:{self.ts}"
        if self.edited:
            return f"edited:{place}:{self.edited}"
        return f"{self.kind}:{place}" if self.kind in {"edited", "deleted"} else place

    @property
    def thread(self) -> tuple[str, str]:
        return self.channel, self.thread_ts

    @property
    def place(self) -> Place:
        return Place(self.channel, self.thread_ts or None)

    @property
    def at(self) -> datetime:
        """When it was written or last edited."""
        return moment(self.edited or self.ts)

    def body(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> MessageEvent:
        """Returns the event from its `body`."""
        return cls(**body)


def moment(ts: str) -> datetime:
    """Slack's `ts` (seconds since 1970, a point, six digits) as a time.

    Raises:
        ValueError: it is not of that form.
    """
    seconds, _, micros = ts.partition(".")
    since = timedelta(microseconds=int(micros.ljust(6, "0")[:6] or 0))
    return datetime.fromtimestamp(int(seconds), UTC) + since


def message_event(event: Mapping[str, Any], bot_user: str = "") -> MessageEvent | None:
    """Decodes a `message` or `app_mention` event: a person's reply in a thread, or a message to the bot; else None. Both
    events of one message give the same.
    """
    subtype, channel = event.get("subtype"), event.get("channel")
    if not isinstance(channel, str) or _object(event.get("message")).get("bot_id"):
        return None
    if subtype == "message_changed":
        return _changed(channel, _object(event.get("previous_message")), _object(event.get("message")))
    if subtype == "message_deleted":
        return _without_text(
            _in_thread(_from_person(channel, _object(event.get("previous_message")), "deleted"))
        )
    if subtype not in _SPOKEN:
        return None
    if event.get("channel_type") == "im" or channel.startswith("D"):
        return _from_person(channel, event, "dm")
    found = _in_thread(_from_person(channel, event, "said"))
    if found is None and bot_user in mrkdwn.people_in(str(event.get("text") or "")):
        found = _from_person(channel, event, "aside")
    return found


def missed_event(channel: str, message: Mapping[str, Any]) -> MessageEvent | None:
    """Decodes a message from the history: a person's reply in a thread, or a direct message to the bot; else None.

    An edited message counts as its edit, since the history does not show its first text.
    """
    if message.get("subtype") not in _SPOKEN:
        return None
    found = _in_thread(_from_person(channel, message, "edited" if message.get("edited") else "said"))
    if channel.startswith("D") and (found is None or found.kind == "said"):
        found = _from_person(channel, message, "dm")
    return replace(found, missed=True) if found is not None else None


def deleted_message(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the channel and ts of a deleted message, of any author. A message with replies leaves a tombstone."""
    message = _object(event.get("message"))
    ts = event.get("deleted_ts") or (message.get("ts") if message.get("subtype") == "tombstone" else None)
    channel = event.get("channel")
    return (channel, ts) if isinstance(channel, str) and isinstance(ts, str) else None


def _changed(channel: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> MessageEvent | None:
    """Decodes an edit, if it changed what the person wrote."""
    # Unfurled links and new replies change a message, too.
    if _reads_the_same(before, now) and now.get("subtype") != "tombstone":
        return None
    if now.get("subtype") not in _SPOKEN:
        return _without_text(
            _in_thread(_from_person(channel, now if now.get("thread_ts") else before, "edited"))
        )
    if channel.startswith("D"):
        return _from_person(channel, now, "edited")
    return _in_thread(_from_person(channel, {"thread_ts": before.get("thread_ts"), **now}, "edited"))


def _reads_the_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if before.get("text") != now.get("text"):
        return False
    return before.get("edited") == now.get("edited") or attached_to(before).text == attached_to(now).text


def _from_person(channel: str, message: Mapping[str, Any], kind: Kind) -> MessageEvent | None:
    """Decodes a person's message; None if a bot or Slackbot wrote it."""
    user, ts, thread = message.get("user"), message.get("ts"), message.get("thread_ts")
    if not (isinstance(user, str) and isinstance(ts, str)) or message.get("bot_id") or user == "USLACKBOT":
        return None
    team = message.get("user_team") or message.get("source_team") or message.get("team")
    attached = attached_to(message)
    return MessageEvent(
        kind,
        channel,
        "" if thread == ts else str(thread or ""),
        ts,
        user,
        team=str(team or ""),
        text=str(message.get("text") or ""),
        parent=str(message.get("parent_user_id") or ""),
        files=attached.files,
        attached=attached.text,
        edited=str(_object(message.get("edited")).get("ts") or "") if kind == "edited" else "",
    )


def _in_thread(found: MessageEvent | None) -> MessageEvent | None:
    return found if found is not None and found.thread_ts else None


def _without_text(found: MessageEvent | None) -> MessageEvent | None:
    """Returns the event without its text."""
    return found and MessageEvent(found.kind, found.channel, found.thread_ts, found.ts, found.user)
