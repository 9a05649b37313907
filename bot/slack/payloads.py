"""What Slack sends, decoded into what the desk understands. Pure.

Sources: docs.slack.dev, "block_actions payload", "view_submission payload", "message event". A modal carries the
press that opened it, and where, as JSON in `private_metadata` (≤ 3000 characters).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.codec import Press
from bot.errors import BadPress
from bot.pagecodec import PagePress
from bot.people import Person
from bot.ports import Place, Spot
from bot.seal import unseal

Json = Mapping[str, Any]


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
