"""One line of words for what went over a wire. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .state import Json, State

MOST = 140


def about_call(args: Mapping[str, Any], state: State) -> str:
    """What a Web API call is about: where, and its beginning."""
    named = (args.get(name) for name in ("channel", "channel_id", "user_id", "user"))
    place = _place(str(next(filter(None, named), "")), state)
    said = args.get("text") or args.get("initial_comment") or args.get("filename")
    words = str(said or "") or _title_of(args.get("view"))
    return clipped(" · ".join(part for part in (place, words) if part))


def about_payload(payload: Json, state: State) -> tuple[str, str]:
    """Title and detail of what Slack sends to the app: an event, a click, a command, a modal, a shortcut."""
    if "command" in payload:
        person = _person(payload.get("user_id", ""), state)
        return f"{payload['command']} {payload.get('text', '')}".strip(), person
    if payload.get("type") == "event_callback" or "event" in payload:
        return _about_event(payload["event"], state)
    person = _person(payload.get("user", {}).get("id", ""), state)
    kind = str(payload.get("type", ""))
    if kind == "block_actions" and payload.get("actions"):
        return "click" if payload["actions"][0]["type"] == "button" else "choice", clipped(
            f"{_pressed(payload['actions'][0])} · {person}"
        )
    if "view" in payload:
        return kind, clipped(" · ".join(part for part in (_title_of(payload["view"]), person) if part))
    return kind, clipped(" · ".join(part for part in (str(payload.get("callback_id", "")), person) if part))


def about_aaep(message: Mapping[str, Any]) -> tuple[str, str]:
    """Title and detail of an AAEP message: its type without what all of them share, and what it says."""
    kind = str(message.get("type") or "message").removeprefix("aaep:").removeprefix("agent.")
    said: Any = None
    for name in ("question", "action", "response", "decision", "summary_normal", "reason", "error_message"):
        if name in message:
            said = message[name]
            break
    words = said if isinstance(said, str) else "" if said is None else json.dumps(said, ensure_ascii=False)
    decided = message.get("decided_by")
    return kind, clipped(" · ".join(str(part) for part in (words, decided) if part))


def clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST else f"{line[: MOST - 1]}…"


def _about_event(event: Mapping[str, Any], state: State) -> tuple[str, str]:
    kind = str(event.get("subtype") or event["type"])  # "message_changed" says it all
    place = _place(str(event.get("channel") or ""), state)
    user = event.get("user")
    person = _person(user, state) if isinstance(user, str) else ""
    words = str(event.get("text") or (event.get("message") or {}).get("text") or "")
    return kind, clipped(" · ".join(part for part in (place, person, words) if part))


def _pressed(action: Mapping[str, Any]) -> str:
    """The words on what was pressed or chosen."""
    option = action.get("selected_option") or {}
    text = action.get("text") or option.get("text") or {}
    return str(text.get("text") or action.get("selected_user") or action.get("action_id", ""))


def _title_of(view: object) -> str:
    if isinstance(view, str):
        try:
            view = json.loads(view)
        except ValueError:
            return ""
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
