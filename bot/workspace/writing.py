"""What a person types, as Slack stores it: escaped, with mentions, channels and links marked up. Pure."""

from __future__ import annotations

import re

from .state import State

_URL = re.compile(r"https?://[^\s<>|]+[^\s<>|.,;:!?)\]'\"]")
_MARK = re.compile(
    r"<(?:@[UW][A-Z0-9]+|#C[A-Z0-9]+(?:\|[^<>|]*)?|!subteam\^S[A-Z0-9]+(?:\|[^<>|]*)?|!(?:here|channel|everyone))>"
)
_NAMED = re.compile(r"(?<![\w@])@([A-Za-z][\w.-]*)|(?<![\w#])#([a-z0-9][\w-]*)")


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def compose(state: State, typed: str) -> str:
    """Typed text as Slack stores it. Marks as the composer makes them (`<@U…>`) stay; `@name`, `#name`, URLs become marks."""
    parts, end = [], 0
    for mark in _MARK.finditer(typed):
        parts += [_plain(state, typed[end : mark.start()]), mark.group()]
        end = mark.end()
    return "".join([*parts, _plain(state, typed[end:])])


def _plain(state: State, text: str) -> str:
    parts, end = [], 0
    for url in _URL.finditer(text):
        parts += [_names(state, text[end : url.start()]), f"<{escape(url.group())}>"]
        end = url.end()
    return "".join([*parts, _names(state, text[end:])])


def _names(state: State, text: str) -> str:
    people = {
        name.lower(): u.id for u in state.users.values() for name in (u.name, u.real_name) if not u.deleted
    }
    groups = {g.handle: g.id for g in state.groups.values()}
    rooms = {c.name: c.id for c in state.channels.values() if not c.is_im}

    def mark(match: re.Match[str]) -> str:
        person, room = match.groups()
        if person and person in {"here", "channel", "everyone"}:
            return f"<!{person}>"
        if person and person.lower() in people:
            return f"<@{people[person.lower()]}>"
        if person and person in groups:
            return f"<!subteam^{groups[person]}>"
        if room and room in rooms:
            return f"<#{rooms[room]}|{room}>"
        return match.group()

    return _NAMED.sub(mark, escape(text))
