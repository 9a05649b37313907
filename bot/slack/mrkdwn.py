"""Turns what a person typed in Slack into plain text: removes Slack's markup, changes nothing else. Pure.

Source: docs.slack.dev, "Formatting message text". A message's `text` holds `<@U…>`, `<#C…|name>`, `<!here>`,
`<!subteam^S…|@name>`, `<!date^…|words>`, `<url|label>`, and `&amp;`, `&lt;`, `&gt;` for the characters themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BLANKS = (
    r"(?:(?<![ \t])[ \t]+)?"  # tried at a run's first blank only: at each of 40,000, it would take seconds
)
_MARK = re.compile(r"<((?:[@#!]|[a-z][a-z0-9+.-]*:)[^<>\n]*)>")
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>\n]*)?>")
_GROUP = re.compile(r"<!subteam\^")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}


def people_in(text: str) -> list[str]:
    """Returns the user ids that a message mentions, each once, in order."""
    return list(dict.fromkeys(_PERSON.findall(text)))


def mentions_someone(text: str, bot_user: str) -> bool:
    """Returns whether a message mentions a person or a user group, which makes it talk. The bot does not count."""
    return bool(_GROUP.search(text)) or any(user != bot_user for user in people_in(text))


def begins_with(text: str, user: str) -> bool:
    """Returns whether a message begins with a mention of `user`."""
    return re.match(rf"\s*<@{re.escape(user)}(?:\|[^<>\n]*)?>", text) is not None


def after(text: str, user: str) -> str:
    """Returns the text after the first mention of `user`; all other markup stays."""
    return re.split(rf"<@{re.escape(user)}(?:\|[^<>\n]*)?>[:,]?", text, maxsplit=1)[-1].strip()


def without(text: str, user: str) -> str:
    """Returns a message without the mentions of `user`; all other markup stays."""
    return re.sub(rf"{_BLANKS}<@{re.escape(user)}(?:\|[^<>\n]*)?>[:,]?[ \t]*", " ", text).strip()


def plain(text: str, name_of: Callable[[str], str | None] = lambda _: None, drop: str = "") -> str:
    """Returns the text as the person saw it while typing.

    Args:
        text: a message's `text`.
        name_of: a user id → a name to show, or None.
        drop: a user id (the bot's) whose mentions to leave out, with the spaces around them.
    """
    if drop:
        text = re.sub(rf"{_BLANKS}<@{re.escape(drop)}(?:\|[^<>\n]*)?>[:,]?[ \t]*", " ", text).strip(" \t")
    return _unescaped(_MARK.sub(lambda found: _read(found[1], name_of), text))


def _read(mark: str, name_of: Callable[[str], str | None]) -> str:
    body, _, label = mark.partition("|")
    if body.startswith("@"):
        return "@" + (name_of(body[1:]) or label or body[1:])
    if body.startswith("#"):
        return "#" + (label or body[1:])
    if body.startswith("!"):
        return _special(body[1:], label)
    address = body.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in (body, address):
        return address
    # Slack links a bare "example.com" as <http://example.com|example.com>.
    return label if _bare(body) == label.rstrip("/") else f"{label} ({address})"


def _special(body: str, label: str) -> str:
    name, _, rest = body.partition("^")
    if name in {"here", "channel", "everyone"}:
        return "@" + name
    if name == "subteam":
        return label if label.startswith("@") else "@" + (label or rest)
    return label or body


def _bare(url: str) -> str:
    return re.sub(r"^https?://", "", url).rstrip("/")


def _unescaped(text: str) -> str:
    return re.sub("&(?:amp|lt|gt);", lambda found: _ENTITIES[found[0]], text)
