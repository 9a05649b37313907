"""What Slack sends, decoded: clicks, modals, commands, shortcuts, and what is said. Pure.

Sources: docs.slack.dev, "block_actions payload", "view_submission payload", "message event" and its subtypes. A modal
carries the press that opened it, and where, as JSON in `private_metadata` (≤ 3000 characters). A reply has a `thread_ts`
that is not its own `ts`; replies that were also sent to the channel have the subtype `thread_broadcast`, those with files
`file_share`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from bot.errors import BadPress
from bot.people import Person
from bot.slack import mrkdwn
from bot.slackapi import Place
from bot.views.codec import Press
from bot.views.pagecodec import PagePress
from bot.views.seal import unseal

Json = Mapping[str, Any]
Kind = Literal["said", "edited", "deleted", "aside", "dm"]
KINDS: frozenset[str] = frozenset(get_args(Kind))
_SPOKEN = frozenset({None, "thread_broadcast", "file_share"})


@dataclass(frozen=True, slots=True)
class Spot:
    """What a control that was pressed stands on. `installation`: whose control it is; empty: of a release whose controls
    did not say. `channel` and `ts`: its message; empty where it stands on none that we could find again: what one
    person alone was shown, a modal, a Home tab.
    """

    installation: str
    channel: str = ""
    ts: str = ""


@dataclass(frozen=True, slots=True)
class Click:
    """One press of a control by a person. `view_id` and `callback` where it was pressed in a modal.

    `response_url` answers it; `whispered`: it was pressed in a message that this person alone sees, so that is the
    only way.
    """

    press: Press
    person: Person
    place: Place
    spot: Spot
    trigger: str
    view_id: str | None = None
    callback: str | None = None
    response_url: str = ""
    whispered: bool = False


@dataclass(frozen=True, slots=True)
class Touch:
    """A press of a control whose `value` is not a `Press`; otherwise as `Click`."""

    value: str
    person: Person
    place: Place
    spot: Spot
    trigger: str
    view_id: str | None = None
    callback: str | None = None
    response_url: str = ""
    whispered: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A slash command, in Slack's markup."""

    text: str
    person: Person
    place: Place
    response_url: str


@dataclass(frozen=True, slots=True)
class Use:
    """A message shortcut: the message's text in Slack's markup, and who wrote it (empty where no person did)."""

    text: str
    author: str
    ts: str
    person: Person
    place: Place
    response_url: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted modal. `values` as in view.state.values; `opened_by`: for whom it was opened, empty if not known."""

    press: Press
    person: Person
    place: Place
    spot: Spot
    values: Mapping[str, Any]
    opened_by: str = ""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The submitted modal behind Hand to…: `user` was chosen (empty: nobody) by `person`; otherwise as `Submission`."""

    press: PagePress
    user: str
    person: Person
    place: Place
    spot: Spot
    opened_by: str = ""


def click_of(body: Json) -> Click:
    """A block_actions payload.

    Raises:
        BadPress: it is not one of our controls, or of another release.
    """
    touch = touch_of(body)
    press = Press.unpack(touch.value)
    view, place = _object(body.get("view")), touch.place
    if view:
        place = _origin(view).place
    return Click(
        press,
        touch.person,
        place,
        touch.spot,
        touch.trigger,
        touch.view_id,
        touch.callback,
        touch.response_url,
        touch.whispered,
    )


def touch_of(body: Json) -> Touch:
    """A block_actions payload, whatever its control carries."""
    action = _object((body.get("actions") or [{}])[0])
    chosen = _object(action.get("selected_option"))
    view, container = _object(body.get("view")), _object(body.get("container"))
    installation, value = unseal(str(action.get("value") or chosen.get("value") or ""))
    whispered = bool(container.get("is_ephemeral"))
    return Touch(
        value,
        _person(body),
        _place(body),
        Spot(installation) if view or whispered else _spot(body, installation),
        _trigger(body),
        str(view.get("id")) if view else None,
        str(view.get("callback_id")) if view else None,
        str(body.get("response_url") or ""),
        whispered,
    )


def order_of(body: Json) -> Order:
    """A slash command."""
    person = Person(str(body.get("team_id") or ""), str(body.get("user_id") or ""))
    place = Place(str(body.get("channel_id") or ""))
    return Order(str(body.get("text") or ""), person, place, str(body.get("response_url") or ""))


def use_of(body: Json) -> Use:
    """A message_action payload. The place is the thread that the message is in, or begins."""
    message = _object(body.get("message"))
    ts = str(message.get("ts") or body.get("message_ts") or "")
    channel = str(_object(body.get("channel")).get("id") or "")
    author = "" if message.get("bot_id") else str(message.get("user") or "")
    place = Place(channel, str(message.get("thread_ts") or ts))
    url = str(body.get("response_url") or "")
    return Use(str(message.get("text") or ""), author, ts, _person(body), place, url)


def chosen_user(values: Mapping[str, Any]) -> str:
    """The one user that a submitted modal's select holds; empty where there is none."""
    for block in values.values():
        for element in _object(block).values():
            if user := _object(element).get("selected_user"):
                return str(user)
    return ""


def submission_of(body: Json) -> Submission:
    """A view_submission payload.

    Raises:
        BadPress: the modal is not one of ours, or of another release.
    """
    view = _object(body.get("view"))
    origin = _origin(view)
    return Submission(
        Press.unpack(origin.packed),
        _person(body),
        origin.place,
        Spot(origin.installation),
        _object(_object(view.get("state")).get("values")),
        origin.user,
    )


def handed_over(body: Json) -> HandedOver:
    """The submitted modal behind Hand to….

    Raises:
        BadPress: the modal is not one of ours, or of another release.
    """
    view = _object(body.get("view"))
    origin = _origin(view)
    user = chosen_user(_object(_object(view.get("state")).get("values")))
    press = PagePress.unpack(origin.packed)
    return HandedOver(press, user, _person(body), origin.place, Spot(origin.installation), origin.user)


def opened_from(view: Mapping[str, Any], place: Place, person: Person) -> dict[str, Any]:
    """A view that remembers the place that it was opened from, and for whom."""
    origin = {
        "press": view.get("private_metadata") or "",
        "channel": place.channel,
        "thread": place.thread_ts,
        "user": person.user,
    }
    return {**view, "private_metadata": json.dumps(origin)}


@dataclass(frozen=True, slots=True)
class _Origin:
    """What `opened_from` noted, with the press unsealed."""

    installation: str
    packed: str
    place: Place
    user: str


def _origin(view: Json) -> _Origin:
    try:
        origin = json.loads(str(view.get("private_metadata")))
        channel, thread, sealed = origin["channel"], origin.get("thread"), origin["press"]
        user = origin.get("user")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadPress(
            "A modal does not say where it was opened: it is not ours, or of another release."
        ) from None
    installation, packed = unseal(str(sealed))
    place = Place(str(channel), None if thread is None else str(thread))
    return _Origin(installation, packed, place, str(user or ""))


def name_team(body: dict[str, Any], home_team: str) -> None:
    """Let a click, modal, shortcut or command that names no team come from `home_team`."""
    user = body.get("user")
    if isinstance(user, dict):
        if not (user.get("team_id") or _object(body.get("team")).get("id")):
            user["team_id"] = home_team
    elif "command" in body and not body.get("team_id"):
        body["team_id"] = home_team


def _person(body: Json) -> Person:
    """The team is where the person is at home, which tells external people (Slack Connect)."""
    user = _object(body.get("user"))
    team = user.get("team_id") or _object(body.get("team")).get("id") or ""
    return Person(str(team), str(user.get("id") or ""))


def _place(body: Json) -> Place:
    """Where the person is who acted: in a thread only on a message that is shown nowhere else. One that begins a thread,
    or was also sent to the channel, stands in the channel.
    """
    container, message = _object(body.get("container")), _object(body.get("message"))
    thread = message.get("thread_ts") or container.get("thread_ts")
    if message.get("subtype") == "thread_broadcast" or thread == (
        message.get("ts") or container.get("message_ts")
    ):
        thread = None
    return Place(_channel(body), None if thread is None else str(thread))


def _spot(body: Json, installation: str) -> Spot:
    container = _object(body.get("container"))
    ts = container.get("message_ts") or _object(body.get("message")).get("ts") or ""
    return Spot(installation, _channel(body), str(ts))


def _channel(body: Json) -> str:
    return str(
        _object(body.get("container")).get("channel_id") or _object(body.get("channel")).get("id") or ""
    )


def _trigger(body: Json) -> str:
    return str(body.get("trigger_id") or "")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class MessageEvent:
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
    def of(cls, body: Mapping[str, Any]) -> MessageEvent:
        """What `body` gave."""
        return cls(**body)


def message_event(event: Mapping[str, Any], bot_user: str = "") -> MessageEvent | None:
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
    return thread_reply(channel, event) or _mention(channel, event, bot_user)


def _changed(channel: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> MessageEvent | None:
    """An edit, if it changed what was said."""
    # Unfurled links and new replies change a message too; its words stay.
    if before.get("text") == now.get("text") and now.get("subtype") != "tombstone":
        return None
    if channel.startswith("D") and (direct := _to_us(channel, now, "dm")) is not None:
        return _as_now(replace(direct, kind="edited"), now)
    found = _about(channel, now if now.get("thread_ts") else before, "edited")
    return _as_now(found, now) if found is not None and now.get("subtype") in _SPOKEN else found


def _mention(channel: str, event: Mapping[str, Any], bot_user: str) -> MessageEvent | None:
    """A message that is no reply in a thread, and mentions the bot."""
    mentioned = bot_user in mrkdwn.people_in(str(event.get("text") or ""))
    in_thread = event.get("thread_ts") not in {None, event.get("ts")}
    return _to_us(channel, event, "aside") if mentioned and not in_thread else None


def deleted_message(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """The channel and ts of a message that was deleted, whoever's it was. One with replies leaves a tombstone."""
    message = _object(event.get("message"))
    ts = event.get("deleted_ts") or (message.get("ts") if message.get("subtype") == "tombstone" else None)
    channel = event.get("channel")
    return (channel, ts) if isinstance(channel, str) and isinstance(ts, str) else None


def thread_reply(channel: str, message: Mapping[str, Any], *, missed: bool = False) -> MessageEvent | None:
    """A message, live or from the history, if it is a person's reply in a thread."""
    if message.get("subtype") not in _SPOKEN:
        return None
    found = _about(channel, message, "said")
    if found is None:
        return None
    return MessageEvent(
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


def missed_event(channel: str, message: Mapping[str, Any]) -> MessageEvent | None:
    """A message from the history, if it is a person's reply in a thread or a direct message to the bot.

    What an edited one said at first, nobody can tell: it is heard as the edit.
    """
    if message.get("edited") and message.get("subtype") in _SPOKEN:
        edit = _about(channel, message, "edited")
        if edit is not None:
            return replace(_as_now(edit, message), missed=True)
    if not channel.startswith("D"):
        return thread_reply(channel, message, missed=True)
    found = _to_us(channel, message, "dm")
    return replace(found, missed=True) if found is not None else None


def _to_us(channel: str, message: Mapping[str, Any], kind: Literal["aside", "dm"]) -> MessageEvent | None:
    """A person's message to the bot itself, in a thread or not."""
    user, ts = message.get("user"), message.get("ts")
    if message.get("subtype") not in _SPOKEN or not (isinstance(user, str) and isinstance(ts, str)):
        return None
    if message.get("bot_id") or user == "USLACKBOT":
        return None
    thread = str(message.get("thread_ts") or "")
    text = str(message.get("text") or "")
    where = "" if thread == ts else thread
    return MessageEvent(
        kind, channel, where, ts, user, _team(message), text, files=bool(message.get("files"))
    )


def _as_now(edit: MessageEvent, message: Mapping[str, Any]) -> MessageEvent:
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
) -> MessageEvent | None:
    user, ts, thread_ts = message.get("user"), message.get("ts"), message.get("thread_ts")
    if not (isinstance(user, str) and isinstance(ts, str) and isinstance(thread_ts, str)):
        return None
    if message.get("bot_id") or user == "USLACKBOT" or ts == thread_ts:
        return None
    return MessageEvent(kind, channel, thread_ts, ts, user)
