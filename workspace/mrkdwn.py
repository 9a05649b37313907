"""Slack's mrkdwn as safe HTML, and what a person types as mrkdwn. Pure.

What is not one of the marks known here is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from .state import State

# Marks that are already HTML wait behind these two private characters until the rest is formatted.
_OPEN, _CLOSE = "\ue000", "\ue001"
_HELD = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_TOKEN = re.compile(r"```(?P<block>.+?)```|`(?P<code>[^`\n]+)`|<(?P<mark>[^<>\n]+)>", re.DOTALL)
_BARE = re.compile(rf"https?://[^\s<>{_OPEN}{_CLOSE}]*[^\s<>{_OPEN}{_CLOSE}.,;:!?)\]'\"*_~]")
_STYLES = (("*", "strong"), ("_", "em"), ("~", "s"))
_EMOJI = re.compile(r":([a-z0-9_+-]+):")
EMOJIS = {
    "warning": "⚠️", "white_check_mark": "✅", "heavy_check_mark": "✔️", "x": "❌", "no_entry": "⛔", "bell": "🔔",
    "hourglass": "⌛", "hourglass_flowing_sand": "⏳", "alarm_clock": "⏰", "question": "❓", "grey_question": "❔",
    "exclamation": "❗", "rotating_light": "🚨", "thumbsup": "👍", "+1": "👍", "thumbsdown": "👎", "-1": "👎",
    "eyes": "👀", "robot_face": "🤖", "wrench": "🔧", "hammer_and_wrench": "🛠️", "information_source": "ℹ️",
    "memo": "📝", "speech_balloon": "💬", "lock": "🔒", "zzz": "💤", "tada": "🎉", "fire": "🔥", "wave": "👋",
    "red_circle": "🔴", "large_green_circle": "🟢", "large_yellow_circle": "🟡", "large_blue_circle": "🔵",
    "white_circle": "⚪", "point_right": "👉", "clock1": "🕐", "stopwatch": "⏱️", "construction": "🚧",
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """What ids are called; `now` is for dates like "today", `viewer` for whom links to messages open."""

    users: Mapping[str, str]
    channels: Mapping[str, str]
    groups: Mapping[str, str]
    now: datetime
    archives: str = ""
    viewer: str = ""

    def local(self, url: str) -> str | None:
        """The page's own address for a link to one of this workspace's messages; None for all others."""
        if not self.archives or not url.startswith(self.archives):
            return None
        path = url.removeprefix(self.archives)
        return f"/archives/{path}{'&' if '?' in path else '?'}as={self.viewer}"


def to_html(text: str, names: Names, *, verbatim: bool = False) -> Markup:
    """HTML for mrkdwn; bare URLs become links unless `verbatim`."""
    held: list[Markup] = []

    def hold(html: Markup) -> str:
        held.append(html)
        return f"{_OPEN}{len(held) - 1}{_CLOSE}"

    def token(match: re.Match[str]) -> str:
        if match["block"] is not None:
            return hold(Markup("<pre>{}</pre>").format(_shown(match["block"].strip("\n"))))
        if match["code"] is not None:
            return hold(Markup("<code>{}</code>").format(_shown(match["code"])))
        return hold(_mark(match["mark"], names))

    clean = _TOKEN.sub(token, text.replace(_OPEN, "").replace(_CLOSE, ""))
    if not verbatim:
        clean = _BARE.sub(lambda match: hold(link(unescape(match[0]), unescape(match[0]), names)), clean)
    lines = clean.split("\n")
    html = _lines([str(escape(unescape(line))) for line in lines])
    return Markup(_HELD.sub(lambda match: str(held[int(match[1])]), html))  # noqa: S704 — every part was escaped above


def plain_to_html(text: str) -> Markup:
    """plain_text as HTML: emoji and line breaks, nothing else."""
    return Markup("<br>").join(Markup(_emoji(str(escape(line)))) for line in text.split("\n"))  # noqa: S704 — escaped


def to_words(text: str, names: Names) -> str:
    """Mrkdwn as one line of plain words: for screen readers and previews."""
    apart = re.sub(r"</?(?:br|blockquote|pre)>", " ", str(to_html(text, names)))
    return " ".join(Markup(apart).striptags().split())  # noqa: S704 - escaped


def _shown(text: str) -> str:
    """Code shows marks as their bare addresses."""
    return unescape(re.sub(r"<([^<>|\n]+)(?:\|[^<>\n]*)?>", r"\1", text))


def _lines(lines: list[str]) -> str:
    """Lines joined by breaks; runs of quoted lines (`>`) in one blockquote."""
    parts: list[str] = []
    quote: list[str] = []
    for line in [*lines, None]:
        if line is not None and line.startswith("&gt;"):
            quote.append(_styled(line.removeprefix("&gt;").lstrip()))
            continue
        if quote:
            parts.append(f"<blockquote>{'<br>'.join(quote)}</blockquote>")
            quote = []
        if line is not None:
            parts.append(_styled(line))
    return re.sub(r"(</blockquote>)<br>|<br>(<blockquote>)", r"\1\2", "<br>".join(parts))


def _styled(line: str) -> str:
    for sign, tag in _STYLES:
        mark = re.escape(sign)
        pattern = rf"(?<![\w{mark}]){mark}(\S(?:[^{mark}]*\S)?){mark}(?![\w{mark}])"
        line = re.sub(pattern, rf"<{tag}>\1</{tag}>", line)
    return _emoji(line)


def _emoji(line: str) -> str:
    return _EMOJI.sub(lambda match: EMOJIS.get(match[1], match[0]), line)


def _mark(mark: str, names: Names) -> Markup:
    target, _, label = mark.partition("|")
    kind, rest = target[:1], target[1:]
    if kind == "@":
        return mention(f"@{names.users.get(rest, label or rest)}")
    if kind == "#":
        return mention(f"#{label or names.channels.get(rest, rest)}")
    if kind == "!":
        return _special(rest, unescape(label), names)
    return link(unescape(target), unescape(label) or unescape(target), names)


def _special(command: str, label: str, names: Names) -> Markup:
    name, _, rest = command.partition("^")
    if name == "subteam":
        return mention(f"@{names.groups.get(rest, label or rest)}")
    if name == "date":
        stamp, _, form = rest.partition("^")
        return date(stamp, form.partition("^")[0], label, names.now)
    return mention(f"@{name}")


def mention(name: str) -> Markup:
    """A name as Slack highlights it."""
    return Markup('<span class="mention">{}</span>').format(name)


def link(target: str, label: str, names: Names) -> Markup:
    """A link to a web or mail address, or to a message here; any other target is shown as text."""
    if local := names.local(target):
        return Markup('<a href="{}">{}</a>').format(local, label)
    if not re.match(r"(https?://|mailto:)", target, re.IGNORECASE):
        return Markup("&lt;{}&gt;").format(target)
    words = label.removeprefix("mailto:")
    return Markup('<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>').format(target, words)


def date(stamp: str, form: str, fallback: str, now: datetime) -> Markup:
    """`<!date^…>`, or a date in rich text, in the time zone of `now`."""
    if not stamp.isdigit():
        return escape(fallback)
    at = datetime.fromtimestamp(int(stamp), now.tzinfo)
    words = re.sub(
        r"\{(\w+)\}", lambda match: _PARTS[match[1]](at, now) if match[1] in _PARTS else match[0], form
    )
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), f"{at:%A %d %B %Y %H:%M:%S}", words
    )


def _pretty(form: Callable[[datetime, datetime], str]) -> Callable[[datetime, datetime], str]:
    def show(at: datetime, now: datetime) -> str:
        days = (at.date() - now.date()).days
        return {-1: "yesterday", 0: "today", 1: "tomorrow"}.get(days) or form(at, now)

    return show


def _ago(at: datetime, now: datetime) -> str:
    seconds = int((at - now).total_seconds())
    count, unit = next(
        (abs(seconds) // n, u)
        for n, u in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
        if abs(seconds) >= n or n == 1
    )
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def _form(strftime: str) -> Callable[[datetime, datetime], str]:
    """As `strftime`, with `%-d` for a day without its zero."""
    return lambda at, _now: at.strftime(strftime.replace("%-d", str(at.day)))


_DATES = {"date": "%B %-d, %Y", "date_short": "%b %-d, %Y", "date_long": "%A, %B %-d, %Y"}
_PARTS: dict[str, Callable[[datetime, datetime], str]] = {
    "date_num": _form("%Y-%m-%d"),
    "date_slash": _form("%d/%m/%Y"),
    "date_long_full": _form("%B %-d, %Y"),
    "day_divider_pretty": _pretty(_form("%A, %B %-d")),
    **{name: _form(form) for name, form in _DATES.items()},
    **{f"{name}_pretty": _pretty(_form(form)) for name, form in _DATES.items()},
    "time": _form("%H:%M"),
    "time_secs": _form("%H:%M:%S"),
    "ago": _ago,
}


# What a person types, as Slack stores it: escaped, with mentions, channels and links marked up


# Marks as the composer makes them, and addresses.
_TYPED = re.compile(
    r"<(?:@[UW][A-Z0-9]+|#C[A-Z0-9]+(?:\|[^<>|]*)?|!subteam\^S[A-Z0-9]+(?:\|[^<>|]*)?|!(?:here|channel|everyone))>"
    r"|https?://[^\s<>|]+[^\s<>|.,;:!?)\]'\"]"
)
_NAMED = re.compile(r"(?<![\w@])@([A-Za-z][\w.-]*)|(?<![\w#])#([a-z0-9][\w-]*)")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def compose(state: State, typed: str) -> str:
    """Typed text as Slack stores it. Marks as the composer makes them (`<@U…>`) stay; `@name`, `#name`, URLs become marks."""
    parts, end = [], 0
    for found in _TYPED.finditer(typed):
        said = found.group()
        kept = said if said.startswith("<") else f"<{_escape(said)}>"
        parts += [_with_names(state, typed[end : found.start()]), kept]
        end = found.end()
    return "".join([*parts, _with_names(state, typed[end:])])


def _with_names(state: State, text: str) -> str:
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

    return _NAMED.sub(mark, _escape(text))
