"""What went over the wires, for the panel beside the chat: Slack calls, what Slack sent, AAEP events and replies.

| direction | who tells of it |
| --- | --- |
| bot→slack | the Web API, once a call was carried out |
| slack→bot | the link, once an event, click, command or modal was acknowledged or was not |
| agent→bot, bot→agent | whoever plays the agent: `aaep` here, or `POST /control/traffic` from another process |

Bounded, in memory, never a token: see `redacted`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from aiohttp import web

from .changes import Changes
from .state import Json, State
from .summaries import about_aaep, about_call, about_payload

if TYPE_CHECKING:
    from .context import Ack, Call

Direction = Literal["agent→bot", "bot→agent", "bot→slack", "slack→bot"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
KEPT = 300
_SECRET_NAME = re.compile(r"token|secret|authorization|password|response_url|trigger_id", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:xox[a-z]|xapp)-[\w-]+|\bBearer\s+\S+", re.IGNORECASE)
_HIDDEN = "•••"
_MOST = 8000


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
        return whole if len(whole) <= _MOST else f"{whole[:_MOST]}\n…"


class Traffic:
    """The last `KEPT` lines. `state` gives channels and people their names."""

    def __init__(self, state: State, changes: Changes, *, keep: int = KEPT) -> None:
        self._state = state
        self._changes = changes
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
        """Show one more line. Words are shown as they are, without tokens; `body` is what was sent, shown on demand.

        Raises:
            ValueError: a direction that there is none of.
        """
        if direction not in DIRECTIONS:
            msg = f"direction {direction!r}: expected one of {', '.join(DIRECTIONS)}"
            raise ValueError(msg)
        self._count += 1
        title, detail, failure = (_SECRET.sub(_HIDDEN, text) for text in (title, detail, failure))
        at = self._state.clock()
        line = Line(self._count, at, direction, title, detail, failure, seconds, body)
        last = self._lines[-1] if self._lines else None
        if last is not None and _same(last, line):
            self._lines.pop()
            line = replace(line, times=last.times + 1)
        self._lines.append(line)
        self._changes.notify("record")

    def called(self, call: Call) -> None:
        """A Web API call and how it went."""
        failure = "" if call.outcome == "ok" else call.outcome
        detail = about_call(call.args, self._state)
        self.note("bot→slack", call.method, detail, failure=failure, seconds=call.seconds, body=call.args)

    def delivered(self, ack: Ack, payload: Json | None = None) -> None:
        """What Slack sent, and how long the app took to acknowledge it."""
        title, detail = about_payload(payload, self._state) if payload else (ack.payload_type, "")
        failure = "" if ack.ok else str(ack.failure).replace("_", " ")
        if ack.attempt:
            title = f"{title}, try {ack.attempt + 1}"
        body = payload if ack.response is None else {"sent": payload, "acknowledged with": ack.response}
        self.note("slack→bot", title, detail, failure=failure, seconds=ack.seconds, body=body)

    def aaep(self, direction: Direction, message: Mapping[str, Any], refused: str = "") -> None:
        """An AAEP event or reply as it went over the wire; `refused`: why the other side did not take it."""
        title, detail = about_aaep(message)
        self.note(direction, title, detail, failure=refused, body=dict(message))

    # From other processes

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/control/traffic", self._posted)

    async def _posted(self, request: web.Request) -> web.Response:
        """`{direction, title, detail?, failure?, body?}`, or `{direction, message}` with an AAEP message."""
        try:
            body = json.loads(await request.text())
            direction, message = body["direction"], body.get("message")
            if isinstance(message, dict):
                self.aaep(direction, message)
            else:
                detail, failure = str(body.get("detail") or ""), str(body.get("failure") or "")
                self.note(direction, str(body["title"]), detail, failure=failure, body=body.get("body"))
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response({})


def _same(one: Line, other: Line) -> bool:
    """Whether two lines say the same, as calls do that only look whether the other side is there."""
    return (one.direction, one.title, one.detail, one.failure) == (
        other.direction,
        other.title,
        other.detail,
        other.failure,
    )


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
        opened = _opened(value)
        return _SECRET.sub(_HIDDEN, value) if opened is None else redacted(opened)
    return value


def _opened(text: str) -> Any:
    """What a string holds that is a JSON object or list, as forms carry blocks; None for all other strings."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
