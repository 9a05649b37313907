"""What went over the wires, for the panel beside the chat: Slack calls, what Slack sent, AAEP events and replies.

| direction | who tells of it |
| --- | --- |
| bot→slack | the Web API, once a call was carried out |
| slack→bot | the link, once an event, click, command or modal was acknowledged or was not |
| agent→bot, bot→agent | the party that plays the agent |

Bounded, in memory, never a token: see `redacted`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Literal

from .state import Json, State

if TYPE_CHECKING:
    from .context import Ack, Call

Direction = Literal["agent→bot", "bot→agent", "bot→slack", "slack→bot"]
# Where the arrow is, between which two parties, and which way it points.
PLACES: dict[Direction, tuple[str, str]] = {
    "agent→bot": ("agent", "right"),
    "bot→agent": ("agent", "left"),
    "bot→slack": ("slack", "right"),
    "slack→bot": ("slack", "left"),
}
KEPT = 300
_SECRET_NAME = re.compile(r"token|secret|authorization|password|response_url|trigger_id", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:xox[a-z]|xapp)-[\w-]+|\bBearer\s+\S+", re.IGNORECASE)
_HIDDEN = "•••"
_LONGEST_BODY, _LONGEST_LINE = 8000, 140


@dataclass(frozen=True)
class Line:
    """One thing that was sent. `seconds`: until its answer, None where none is known; `failure`: "" if it went well."""

    number: int
    time: float
    direction: Direction
    title: str
    detail: str = ""
    failure: str = ""
    seconds: float | None = None
    body: object = None
    times: int = 1  # how often in a row: only the last of them is kept

    def text(self) -> str:
        """What was sent, as JSON for people, without secrets and cut to a readable length; "" where unknown."""
        if self.body is None:
            return ""
        whole = json.dumps(redacted(self.body), indent=2, ensure_ascii=False, default=str)
        return whole if len(whole) <= _LONGEST_BODY else f"{whole[:_LONGEST_BODY]}\n…"

    @property
    def lane(self) -> str:
        """The party beside the app: agent or slack."""
        return PLACES[self.direction][0]

    @property
    def heading(self) -> str:
        return PLACES[self.direction][1]

    @property
    def took(self) -> str:
        """The duration in words; "" where none is known."""
        if self.seconds is None:
            return ""
        if self.seconds < 0.001:
            return "<1 ms"
        return f"{self.seconds * 1000:.0f} ms" if self.seconds < 1 else f"{self.seconds:.1f} s"

    def at(self, zone: tzinfo | None) -> datetime:
        return datetime.fromtimestamp(self.time, zone)

    def spoken(self, app: str) -> str:
        """Who told whom, for screen readers."""
        other = "agent" if self.lane == "agent" else "Slack"
        return f"{app} to {other}" if self.direction.startswith("bot") else f"{other} to {app}"

    def says_the_same(self, other: Line) -> bool:
        """As calls do that only look whether the other side is there."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("direction", "title", "detail", "failure")
        )


class Traffic:
    """The last `keep` lines. `state` gives channels and people their names; `changed` is told of every line."""

    def __init__(self, state: State, changed: Callable[[], object], *, keep: int = KEPT) -> None:
        self._state = state
        self._changed = changed
        self._lines: deque[Line] = deque(maxlen=keep)
        self._count = 0

    @property
    def lines(self) -> list[Line]:
        """Oldest first."""
        return list(self._lines)

    def line(self, number: int) -> Line | None:
        return next((line for line in self._lines if line.number == number), None)

    def note(
        self,
        direction: Direction,
        title: str,
        detail: str = "",
        *,
        failure: str = "",
        seconds: float | None = None,
        body: object = None,
    ) -> None:
        """Show one more line. Words are shown as they are, without tokens; `body` is what was sent, shown on demand."""
        self._count += 1
        title, detail, failure = (_SECRET.sub(_HIDDEN, text) for text in (title, detail, failure))
        line = Line(self._count, self._state.clock(), direction, title, detail, failure, seconds, body)
        if self._lines and self._lines[-1].says_the_same(line):
            line = replace(line, times=self._lines.pop().times + 1)
        self._lines.append(line)
        self._changed()

    def called(self, call: Call) -> None:
        """A Web API call and how it went."""
        failure = "" if call.outcome == "ok" else call.outcome
        detail = about_call(call.args, self._state)
        self.note("bot→slack", call.method, detail, failure=failure, seconds=call.seconds, body=call.args)

    def delivered(self, ack: Ack, payload: Json) -> None:
        """What Slack sent, and how long the app took to acknowledge it."""
        title, detail = about_payload(payload, self._state)
        failure = "" if ack.ok else str(ack.failure).replace("_", " ")
        if ack.attempt:
            title = f"{title}, try {ack.attempt + 1}"
        body = payload if ack.response is None else {"sent": payload, "acknowledged with": ack.response}
        self.note("slack→bot", title, detail, failure=failure, seconds=ack.seconds, body=body)

    def aaep(self, direction: Direction, message: Mapping[str, Any], refused: str = "") -> None:
        """An AAEP event or reply as it went over the wire; `refused`: why the other side did not take it."""
        title, detail = about_aaep(message)
        self.note(direction, title, detail, failure=refused, body=dict(message))


def redacted(value: Any) -> Any:
    """The same without secrets: by the name that a value goes by, and by how it looks. JSON in strings is opened."""
    if isinstance(value, Mapping):
        return {
            name: _HIDDEN if _SECRET_NAME.search(str(name)) else redacted(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    if isinstance(value, str):
        opened = _opened(value) if value[:1] in {"{", "["} else None  # as forms carry blocks
        return _SECRET.sub(_HIDDEN, value) if opened is None else redacted(opened)
    return value


def _opened(value: object) -> Any:
    """What a string of JSON holds; anything else as it is, None for a string that is none."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None


# One line of words for what went over a wire


def about_call(args: Mapping[str, Any], state: State) -> str:
    """What a Web API call is about: where, and its beginning."""
    named = (args.get(name) for name in ("channel", "channel_id", "user_id", "user"))
    said = args.get("text") or args.get("initial_comment") or args.get("filename")
    place = _place(str(next(filter(None, named), "")), state)
    return _joined(place, str(said or "") or _title_of(args.get("view")))


def about_payload(payload: Json, state: State) -> tuple[str, str]:
    """Title and detail of what Slack sends to the app: an event, a click, a command, a modal, a shortcut."""
    if "command" in payload:
        person = _person(payload.get("user_id", ""), state)
        return f"{payload['command']} {payload.get('text', '')}".strip(), person
    if "event" in payload:
        return _about_event(payload["event"], state)
    person = _person(payload.get("user", {}).get("id", ""), state)
    kind = str(payload.get("type", ""))
    if kind == "block_actions" and payload.get("actions"):
        action = payload["actions"][0]
        return "click" if action["type"] == "button" else "choice", _joined(_pressed(action), person)
    what = _title_of(payload["view"]) if "view" in payload else str(payload.get("callback_id", ""))
    return kind, _joined(what, person)


def about_aaep(message: Mapping[str, Any]) -> tuple[str, str]:
    """Title and detail of an AAEP message: its type without what all of them share, and what it says."""
    kind = str(message.get("type") or "message").removeprefix("aaep:").removeprefix("agent.")
    names = ("question", "action", "response", "decision", "summary_normal", "reason", "error_message")
    said = next((message[name] for name in names if name in message), "")
    words = "" if said is None else said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return kind, _joined(words, str(message.get("decided_by") or ""))


def _joined(*parts: str) -> str:
    line = " ".join(" · ".join(part for part in parts if part).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _about_event(event: Mapping[str, Any], state: State) -> tuple[str, str]:
    kind = str(event.get("subtype") or event["type"])  # "message_changed" says it all
    place = _place(str(event.get("channel") or ""), state)
    user = event.get("user")
    person = _person(user, state) if isinstance(user, str) else ""
    return kind, _joined(
        place, person, str(event.get("text") or (event.get("message") or {}).get("text") or "")
    )


def _pressed(action: Mapping[str, Any]) -> str:
    """The words on what was pressed or chosen."""
    option = action.get("selected_option") or {}
    text = action.get("text") or option.get("text") or {}
    return str(text.get("text") or action.get("selected_user") or action.get("action_id", ""))


def _title_of(view: object) -> str:
    view = _opened(view)
    if not isinstance(view, Mapping):
        return ""
    title = view.get("title") or {}
    return str(title.get("text") or {"home": "Home tab"}.get(str(view.get("type")), ""))


def _place(place: str, state: State) -> str:
    channel = state.channels.get(place)
    if channel is None:
        return _person(place, state)
    if not channel.is_im:
        return f"#{channel.name}"
    return f"DM with {' '.join(_person(m, state) for m in channel.members if not state.users[m].is_bot)}"


def _person(user: str, state: State) -> str:
    known = state.users.get(user)
    return known.real_name if known else user
