"""Reads what a person wrote in Slack as plain text, and what they sent along with it: pasted tables and forwarded messages. Pure.

Slack's markup is removed, nothing else changed. A message's `text` holds `<@U…>`, `<#C…|name>`, `<!here>`,
`<!subteam^S…|@name>`, `<!date^…|words>`, `<url|label>`, and `&amp;`, `&lt;`, `&gt;` for the characters themselves.

Slack delivers tables and forwarded messages in `attachments`, never in `text`, and files in `files`. A table is a block of an
attachment whose `fallback` says nothing; a forwarded message is an attachment with `is_share`, its author and its `text`.
Previews of links are attachments, too: they are no part of what the person wrote, come later as a change of the message, and
say what they preview.

Sources: docs.slack.dev, "Formatting message text", "Table block" and "Rich text block"; recorded events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_BLANKS = (
    r"(?:(?<![ \t])[ \t]+)?"  # tried at a run's first blank only: at each of 40,000, it would take seconds
)
_MARK = re.compile(r"<((?:[@#!]|[a-z][a-z0-9+.-]*:)[^<>\n]*)>")
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>\n]*)?>")
_GROUP = re.compile(r"<!subteam\^")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
Json = Mapping[str, Any]
_PREVIEW = ("from_url", "original_url", "app_unfurl_url", "is_app_unfurl", "is_msg_unfurl")
_BAR = re.compile(r"<[^<>]*>|\|")  # a mention or a link has a bar of its own
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


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


class Attached(NamedTuple):
    """What was sent along with a message. `text`: what can be read as text, in Slack's markup; `files`: whether there is
    anything else, such as a file.
    """

    text: str
    files: bool


def attached_to(message: Json) -> Attached:
    """Returns what a person sent along with a message, without previews of links."""
    said = list(_tables(message))
    files = bool(message.get("files"))
    for each in _objects(message.get("attachments")):
        if each.get("is_share"):
            words = _forwarded(each)
            files |= bool(each.get("files"))
        elif any(each.get(name) for name in _PREVIEW):
            continue
        else:
            words = "\n\n".join(_tables(each))
        said.append(words)
        files |= not words
    return Attached("\n\n".join(filter(None, said)), files)


def _forwarded(shared: Json) -> str:
    """Returns a forwarded message as a quotation with its author; empty if it has no text."""
    originals = [_object(each.get("message")) for each in _objects(shared.get("message_blocks"))]
    blocks = [block for original in originals for block in _objects(original.get("blocks"))]
    words = str(shared.get("text") or "") or "\n".join(
        _rich(block) for block in blocks if block.get("type") == "rich_text"
    )
    tables = [table for each in (shared, *originals) for table in _tables(each)]
    tables += [
        table
        for original in originals
        for each in _objects(original.get("attachments"))
        for table in _tables(each)
    ]
    body = "\n\n".join(filter(None, [words.strip(), *tables]))
    if not body:
        return ""
    quoted = "\n".join(f"&gt; {line}".rstrip() for line in body.splitlines())
    return f"Forwarded from {_author(shared)}:\n{quoted}"


def _author(shared: Json) -> str:
    name = _escaped(str(shared.get("author_name") or "")).replace("|", " ")
    user = shared.get("author_id")
    if not isinstance(user, str):
        return name or "an unknown author"
    return f"<@{user}|{name}>" if name else f"<@{user}>"


def _tables(holder: Json) -> Iterator[str]:
    """Yields the tables among the blocks of a message or attachment, each with a line for each row."""
    for block in _objects(holder.get("blocks")):
        if block.get("type") in {"table", "data_table"}:
            rows = (row for row in block.get("rows") or () if isinstance(row, list))
            lines = (" | ".join(_cell(_object(cell)) for cell in row) for row in rows)
            if table := "\n".join(line for line in lines if line.strip(" |")):
                yield table


def _cell(cell: Json) -> str:
    """Returns a cell in one line. As in Markdown, a bar in it gets a backslash."""
    words = _rich(cell) if cell.get("type") == "rich_text" else _escaped(_plain(cell))
    return _BAR.sub(lambda found: "\\|" if found[0] == "|" else found[0], " ".join(words.split()))


def _plain(cell: Json) -> str:
    return str(next((cell[name] for name in ("text", "value") if cell.get(name) is not None), ""))


def _rich(block: Json) -> str:
    """Returns rich text in the markup of a message's text, without its styles."""
    return "\n".join(_parts(block.get("elements")))


def _parts(elements: object) -> Iterator[str]:
    for element in _objects(elements):
        if element.get("type") == "rich_text_list":
            yield from (f"• {_inline(item.get('elements'))}" for item in _objects(element.get("elements")))
        else:
            yield _inline(element.get("elements"))


def _inline(elements: object) -> str:
    return "".join(map(_element, _objects(elements)))


def _element(element: Json) -> str:
    text = _escaped(str(element.get("text") or ""))
    match element.get("type"):
        case "user":
            text = f"<@{element.get('user_id')}>"
        case "usergroup":
            text = f"<!subteam^{element.get('usergroup_id')}>"
        case "channel":
            text = f"<#{element.get('channel_id')}>"
        case "broadcast":
            text = f"<!{element.get('range')}>"
        case "link":
            text = f"<{element.get('url')}|{text}>" if text else f"<{element.get('url')}>"
        case "emoji":
            text = f":{element.get('name')}:"
        case "date" | "color":
            text = text or _escaped(str(element.get("fallback") or element.get("value") or ""))
    return text


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
