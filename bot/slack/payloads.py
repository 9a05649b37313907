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
from bot.desk import Person
from bot.errors import BadPress
from bot.ports import Place

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Click:
    """One press of a control by a person. `view_id` and `callback` where it was pressed in a modal."""

    press: Press
    person: Person
    place: Place
    trigger: str
    view_id: str | None = None
    callback: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted modal. `values` as in view.state.values."""

    press: Press
    person: Person
    place: Place
    values: Mapping[str, Any]


def click_of(body: Json) -> Click:
    """A block_actions payload.

    Raises:
        BadPress: it is not one of our controls, or of another release.
    """
    action = _object((body.get("actions") or [{}])[0])
    chosen = _object(action.get("selected_option"))
    press = Press.unpack(str(action.get("value") or chosen.get("value") or ""))
    view = _object(body.get("view"))
    if view:
        _, place = _opened_from(view)
        return Click(
            press, _person(body), place, _trigger(body), str(view.get("id")), str(view.get("callback_id"))
        )
    return Click(press, _person(body), _place(body), _trigger(body))


def submission_of(body: Json) -> Submission:
    """A view_submission payload.

    Raises:
        BadPress: the modal is not one of ours, or of another release.
    """
    view = _object(body.get("view"))
    press, place = _opened_from(view)
    return Submission(press, _person(body), place, _object(_object(view.get("state")).get("values")))


def place_of(body: Json) -> tuple[Person, Place] | None:
    """Who acted where, in an interaction that cannot be read otherwise; None where there is no place."""
    place = _place(body)
    return (_person(body), place) if place.channel else None


def opened_from(view: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """A view that remembers the place that it was opened from."""
    origin = {
        "press": view.get("private_metadata") or "",
        "channel": place.channel,
        "thread": place.thread_ts,
    }
    return {**view, "private_metadata": json.dumps(origin)}


def _opened_from(view: Json) -> tuple[Press, Place]:
    try:
        origin = json.loads(str(view.get("private_metadata")))
        channel, thread, packed = origin["channel"], origin.get("thread"), origin["press"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadPress(
            "A modal does not say where it was opened: it is not ours, or of another release."
        ) from None
    return Press.unpack(str(packed)), Place(str(channel), None if thread is None else str(thread))


def _person(body: Json) -> Person:
    """The team is where the person is at home, which tells external people (Slack Connect)."""
    user = _object(body.get("user"))
    team = user.get("team_id") or _object(body.get("team")).get("id") or ""
    return Person(str(team), str(user.get("id") or ""))


def _place(body: Json) -> Place:
    """Speak in the message's thread; a card outside of one is the first message of its thread."""
    container, message = _object(body.get("container")), _object(body.get("message"))
    channel = container.get("channel_id") or _object(body.get("channel")).get("id") or ""
    thread = message.get("thread_ts") or container.get("thread_ts")
    return Place(str(channel), None if thread is None else str(thread))


def _trigger(body: Json) -> str:
    return str(body.get("trigger_id") or "")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
