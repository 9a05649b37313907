"""Agents' words made inert, and the few live things that the bot itself writes.

Slack parses `<@U…>`, `<!channel>`, `<url|label>` wherever mrkdwn is allowed, and in the top-level `text`.
Agents' words therefore go into `plain_text` objects (`plain`, `line`), into the top-level text escaped
(`fallback`), and only where a layout forces it into mrkdwn (`escape`). Source: docs.slack.dev, "Formatting
message text". Pure.

Sizes are UTF-16 units, of which there are never fewer than code points: what keeps a limit here keeps it
whichever way Slack counts.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from bot.views import bidi
from bot.views.bidi import balanced, ended

TEXT_LIMIT = 4000
isolate = bidi.isolate
_LINE_ENDS = re.compile("\r\n|[\r\u0085\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TORN_ENTITY = re.compile(r"&[a-z]{0,3}$")
_USER = re.compile(r"[UW][A-Z0-9]{1,30}")
_GROUP = re.compile(r"S[A-Z0-9]{1,30}")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{1,30}")
_DATE = re.compile(r"<!date\^\d+\^[^|<>]*\|([^<>]*)>")
_LONGEST_CLUSTER = 64
_ZWJ = "\u200d"
# Look-alikes for what Slack would read as formatting: certain, where invisible separators are not.
_FORMATTING = (
    (re.compile(r"(?<![^\W_])\*|\*(?![^\W_])"), "∗"),
    (re.compile(r"(?<![^\W_])_|_(?![^\W_])"), "ˍ"),
    (re.compile(r"(?<![^\W_])~|~(?![^\W_])"), "∼"),
    (re.compile(r"`"), "ˋ"),
    (re.compile(r"^(\s*)>", re.MULTILINE), r"\1›"),
    (re.compile(r":(?=[a-z0-9_+'-]+:)"), "꞉"),
)


def cleaned(text: str) -> str:
    """No control characters but newline and tab, no bidi overrides or embeddings, no unbalanced isolates, no lone
    surrogates. For what programs read; people are shown `plain`. May be empty.
    """
    text = _CONTROLS.sub("", _LINE_ENDS.sub("\n", _SURROGATES.sub("\ufffd", text)))
    return balanced(text)


def cleaned_line(text: str) -> str:
    """`cleaned` on one line."""
    return " ".join(cleaned(text).split())


def plain(text: str) -> str:
    """For plain_text objects: `cleaned`, and right-to-left text kept apart from what stands beside it (`isolate`)."""
    return isolate(cleaned(text))


def line(text: str) -> str:
    """`plain` on one line: headings, buttons, options."""
    return isolate(cleaned_line(text))


def escape(text: str) -> str:
    """For mrkdwn: nothing in it mentions, links, or formats. `verbatim`, or `parse: none`, is still wanted."""
    for pattern, stand_in in _FORMATTING:
        text = pattern.sub(stand_in, text)
    return _escaped(plain(text))


def fallback(text: str, limit: int = TEXT_LIMIT) -> str:
    """For the top-level `text` (sent with `mrkdwn: false`, `parse: none`): escaped, at most `limit`."""
    return clip_escaped(_escaped(plain(text)), limit)


def size(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def clip(text: str, limit: int) -> str:
    """`text`, or its beginning and "…", in at most `limit`; never inside what is seen as one character."""
    return ended(lambda room: _prefix(text, room), limit) if size(text) > limit else text


def clip_rows(text: str, rows: int, width: int = 90) -> str:
    """`text`, or its beginning and "…" where it would take many more rows than `rows` on a screen of `width`."""
    lines = text.split("\n")
    needs = [max(1, math.ceil(size(line) / width)) for line in lines]
    if sum(needs) <= rows + 2:  # to hide two rows saves nothing
        return text
    head = ""
    for line, need in zip(lines, needs, strict=True):
        if need > rows:
            head += _whole_words(line, rows * width)
            break
        head, rows = f"{head}{line}\n", rows - need
    return clip(text, size(head.rstrip()) + 1)


def clip_escaped(text: str, limit: int) -> str:
    """`clip` for escaped text: never inside an entity."""
    if size(text) <= limit:
        return text
    return ended(lambda room: _TORN_ENTITY.sub("", _prefix(text, room)), limit)


def split(text: str, limit: int) -> list[str]:
    """`text` in pieces of at most `limit`, at line ends or spaces where there are any; joined they are it."""
    pieces: list[str] = []
    while size(text) > limit:
        head = _prefix(text, limit)
        for end in ("\n", " "):
            at = head.rfind(end, len(head) // 2)
            if at >= 0:
                head = head[: at + 1]
                break
        pieces.append(head)
        text = text[len(head) :]
    return [*pieces, text] if text else pieces


def split_unescaped(text: str, limit: int) -> list[str]:
    """`plain` and `split`, unescaped: each piece, once it is escaped, at most `limit` (of at least 10)."""
    text = plain(text)
    # What is torn out of an isolate gets one of its own when it is sent.
    room = limit if limit < 20 or text.isascii() else limit - 4
    return [fit for piece in split(text, room) for fit in _fitting(piece, limit)]


def split_live(text: str, limit: int) -> list[str]:
    """Words of the bot's own, live parts and entities among them, in pieces that tear none of these."""
    pieces: list[str] = []
    while size(text) > limit:
        head = _TORN_ENTITY.sub("", _prefix(text, limit))
        end = (
            head.rfind("\n") + 1 or (head.rfind("<") if head.rfind("<") > head.rfind(">") else 0) or len(head)
        )
        pieces.append(head[:end])
        text = text[end:]
    return [*pieces, text] if text else pieces


def shares(needs: Sequence[int], budget: int) -> list[int]:
    """How much of `budget` each part gets: what it needs where that is no more than a fair share."""
    given = [0] * len(needs)
    left = max(0, budget)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], left // (len(needs) - rank))
        left -= given[index]
    return given


def is_user(text: str | None) -> bool:
    """Whether this is a Slack user id."""
    return bool(text and _USER.fullmatch(text))


def is_group(text: str | None) -> bool:
    """Whether this is a Slack user group's id."""
    return bool(text and _GROUP.fullmatch(text))


def is_channel(text: str | None) -> bool:
    """Whether this is a Slack conversation id."""
    return bool(text and _CHANNEL.fullmatch(text))


def mention(user: str) -> str:
    """`<@U…>`.

    Raises:
        ValueError: not a Slack user id.
    """
    if not is_user(user):
        raise ValueError("expected a Slack user id, such as U0123ABC")
    return f"<@{user}>"


def group(usergroup: str) -> str:
    """`<!subteam^S…>`.

    Raises:
        ValueError: not a Slack user group's id.
    """
    if not is_group(usergroup):
        raise ValueError("expected a Slack user group id, such as S0123ABC")
    return f"<!subteam^{usergroup}>"


def channel(conversation: str) -> str:
    """`<#C…>`.

    Raises:
        ValueError: not a Slack conversation id.
    """
    if not is_channel(conversation):
        raise ValueError("expected a Slack channel id, such as C0123ABC")
    return f"<#{conversation}>"


def date(moment: datetime) -> str:
    """A moment that every reader sees in their own time zone."""
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} at {{time}}|{utc(moment)}>"


def deadline(moment: datetime) -> str:
    """The same after "by": `14:27 today`."""
    return f"<!date^{int(moment.timestamp())}^{{time}} {{date_short_pretty}}|{utc(moment)}>"


def utc(moment: datetime) -> str:
    """A moment for where Slack formats nothing: `24 May 2026, 14:27 UTC`."""
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def utc_dates(text: str) -> str:
    """The bot's own words with its dates (`date`) spelled out, for where Slack formats nothing."""
    return _DATE.sub(r"\1", text)


def _escaped(text: str) -> str:
    return re.sub("[&<>]", lambda match: _ENTITIES[match[0]], text)


def _fitting(piece: str, limit: int) -> list[str]:
    if size(_escaped(plain(piece))) <= limit or size(piece) <= 1:
        return [piece]
    return [fit for half in split(piece, size(piece) // 2 + 1) for fit in _fitting(half, limit)]


def _whole_words(text: str, limit: int) -> str:
    """The beginning of a line, up to the end of a word where one is near."""
    head = _prefix(text, limit)
    end = head.rfind(" ", max(0, len(head) - 20)) if not text[len(head) :][:1].isspace() else -1
    return head[:end] if end > 0 else head


def _prefix(text: str, limit: int) -> str:
    """The longest beginning within `limit` that tears no cluster (a cluster of 64 or more is torn)."""
    head = text[:limit]
    if not head.isascii():
        head = head.encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore")
    end = len(head)
    for at in range(end, max(0, end - _LONGEST_CLUSTER), -1):
        if not _continues(text, at):
            return text[:at]
    return head


def _continues(text: str, at: int) -> bool:
    """Whether the character at `at` is seen as part of the one before."""
    if not 0 < at < len(text) or text[at].isascii():
        return False
    here, before = text[at], text[at - 1]
    if _ZWJ in (before, here) or unicodedata.category(here) in ("Mn", "Mc", "Me"):
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff" or "\U000e0020" <= here <= "\U000e007f":
        return True
    flags = re.search("[\U0001f1e6-\U0001f1ff]*$", text[max(0, at - _LONGEST_CLUSTER) : at])
    return "\U0001f1e6" <= here <= "\U0001f1ff" and bool(flags) and len(flags[0] if flags else "") % 2 == 1
