"""Makes agents' text inert (no links, mentions or markup), and writes the bot's own mentions and dates.

Slack parses `<@U…>`, `<!channel>`, `<url|label>` in mrkdwn and in the top-level `text`. Agents' text therefore goes
into `plain_text` objects (`plain`, `line`), escaped into the top-level text (`fallback`), and into mrkdwn (`escape`)
only if the layout requires it. Source: docs.slack.dev, "Formatting message text". Pure.

Sizes are UTF-16 units. There are never fewer of those than code points, so a limit holds whichever way Slack counts.

Right-to-left text is put into isolates (UAX #9), so that it and its surroundings cannot reorder each other. An
isolate ends with its paragraph, so each line gets its own. Left-to-right text stays unchanged, byte for byte.

Text to approve goes through `visible` instead: nothing in it may be invisible or pushed out of sight.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeGuard

import regex

from core.names import in_quotation, is_bare, is_word

TEXT_LIMIT = 4000
NO_LIMIT = 10**9
BLANK = "(blank)"
_LINE_ENDS = re.compile("\r\n|[\r\u0085\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_TORN_ENTITY = re.compile(r"&[a-z]{0,3}$")
_USER = re.compile(r"[UW][A-Z0-9]{1,30}")
_GROUP = re.compile(r"S[A-Z0-9]{1,30}")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{1,30}")
_DATE = re.compile(r"<!date\^\d+\^[^|<>]*\|([^<>]*)>")
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:[/?#][!-~]*)?", re.IGNORECASE)
_URL_LIMIT = 3000
# Invisible but read by programs: controls, formatting and filler characters (Default_Ignorable), noncharacters, the
# blank of Braille. Emoji keep their joiners and selectors, and joining scripts their joiners.
_JOINING = (
    r"[\p{Arabic}\p{Syriac}\p{Mongolian}\p{Devanagari}\p{Bengali}\p{Gurmukhi}\p{Gujarati}\p{Oriya}\p{Tamil}"
    r"\p{Telugu}\p{Kannada}\p{Malayalam}\p{Sinhala}]"
)
_HIDDEN = regex.compile(
    r"(?V1)(?<=\p{Extended_Pictographic}\p{EMod}?\uFE0F?)\u200D(?=\p{Extended_Pictographic})"
    r"|(?<=\p{Extended_Pictographic})\uFE0F|(?<=[0-9#*])\uFE0F(?=\u20E3)"
    rf"|(?<={_JOINING})[\u200C\u200D](?={_JOINING})"
    r"|(?P<hidden>[\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}"
    r"\u2028\u2029\u2800--[\n\t]])(?P=hidden)*"
)
_MOST_ALIKE = 5  # repeated hidden characters; more are counted
_EMBEDDINGS = re.compile("[\u202a-\u202e]")
_DIRECTING = "\u061c\u200e\u200f\u2066\u2067\u2068\u2069"
_NO_DIRECTION = dict.fromkeys(map(ord, _DIRECTING))
BAR = "│ "  # before each line of several that others wrote, where only text fits
_LONG_RUN = 32  # columns of blanks; longer runs could push text out of sight
_TAB = 4  # columns
_BLANKS = regex.compile(r"[^\S\n]{9,}|(?:[^\S\n]*\n){6,}")
_LIKE_VALUES = frozenset(
    ["true", "false", "yes", "no", "on", "off", "null", "none", "nil", "undefined"]
    + [sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")]
)
_LIKE_NUMBER = re.compile(r"[+-]?(?:\d[\d,_]*)?(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)
_HEAD_AND_TAIL = 60  # characters; a shorter text has no tail
_ROW = 90  # characters of a row on a screen
_MARKED = 50  # characters for saying how much is left out
_CLUSTER = regex.compile(r"\X")  # one visible character (UAX #29)
_LONGEST_CLUSTER = 64
_RLI, _FSI, _PDI = "\u2067", "\u2068", "\u2069"
_OPENERS = "\u2066" + _RLI + _FSI
_ISOLATES = re.compile("[\u2066-\u2069]")
# Hebrew, Arabic, Syriac, Thaana, N'Ko and related scripts with their marks and digits; RLM; presentation forms; old
# scripts.
_RTL = re.compile("[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_LETTER = re.compile(r"[^\W\d_]")
_DEEPEST_ISOLATE = 8
# Look-alikes for Slack's formatting characters. Invisible separators are not reliable.
_FORMATTING = (
    (re.compile(r"(?<![^\W_])\*|\*(?![^\W_])"), "∗"),
    (re.compile(r"(?<![^\W_])_|_(?![^\W_])"), "ˍ"),
    (re.compile(r"(?<![^\W_])~|~(?![^\W_])"), "∼"),
    (re.compile(r"`"), "ˋ"),
    (re.compile(r"^([^\S\n]*)>", re.MULTILINE), r"\1›"),
    (re.compile(r":(?=[a-z0-9_+'-]+:)"), "꞉"),
)
_STYLED = re.compile("|".join(each.pattern for each, _ in _FORMATTING[:2]))
_STOOD_IN_FOR = str.maketrans("∗ˍ∼ˋ꞉", "*_~`:")
_LINK = re.compile(r"<https?://[^|<>]+\|([^<>]*)>")


def cleaned(text: str) -> str:
    """Removes control characters except newline and tab, bidi overrides and embeddings, unbalanced isolates, lone
    surrogates. For text that programs read; people are shown `plain`. May return an empty text.
    """
    if text.isascii() and text.isprintable():  # the usual case
        return text
    return _balanced(_CONTROLS.sub("", _LINE_ENDS.sub("\n", _SURROGATES.sub("\ufffd", text))))


def cleaned_line(text: str) -> str:
    """Returns `cleaned` on one line."""
    return " ".join(cleaned(text).split())


def plain(text: str) -> str:
    """Returns `cleaned` text for plain_text objects, with right-to-left text isolated (`isolate`)."""
    return isolate(cleaned(text))


def line(text: str, limit: int = NO_LIMIT) -> str:
    """Returns `plain` on one line, clipped: for headings, buttons, options."""
    return clip(isolate(cleaned_line(text)), limit)


def named(text: str, limit: int = NO_LIMIT) -> str:
    """Returns `line`, or a placeholder if nothing visible is left."""
    return line(text, limit) or BLANK


def quoted(text: str, limit: int = NO_LIMIT) -> str:
    """Returns `named` in quotation marks, at most `limit` within them: the words of others in a sentence of ours."""
    return f"“{named(in_quotation(text), limit)}”"


def quoted_escaped(text: str, limit: int) -> str:
    """Returns the same, escaped, with at most `limit` as sent within the quotation marks."""
    return f"“{escaped_line(in_quotation(text), limit)}”"


def as_name(text: str, limit: int = NO_LIMIT) -> str:
    """Returns the name of an agent, a tool and the like on one line, clipped; quoted if it could be read as more than a name.
    Empty if nothing visible is left.
    """
    name = line(text, limit)
    return name if not name or is_bare(name) else quoted(text, limit)


def as_value(text: str, limit: int = NO_LIMIT) -> str:
    """Returns a short value that ends a sentence, on one line, clipped; quoted if it could be read as more than a value. Empty
    if nothing visible is left.
    """
    value = line(text, limit)
    return value if not value or is_bare(value) or is_word(value) else quoted(text, limit)


def with_bar(text: str, indent: str = "") -> str:
    """Returns text with a bar before each line."""
    return "\n".join(f"{indent}{BAR}{each}" for each in text.split("\n"))


def visible(text: str, *, prose: bool = False) -> str:
    """Returns text to approve: like `plain`, but with invisible characters as numbers (U+200B as `<U+200B>`) and long
    runs of blanks, which could push text out of sight, as `⟨3000 spaces⟩`.

    The line ends of a text that has only CRLF are not shown (`ends_with_crlf`); in any other, carriage returns are.

    `prose`: keep the direction marks of right-to-left text, as `plain` does, and show every CRLF as a line end; commands and
    values need neither.
    """
    if ends_with_crlf(text):
        text = text.replace("\r\n", "\n")
    return isolate(_uncovered(text, prose=prose))


def ends_with_crlf(text: str) -> bool:
    """Returns whether each line of the text ends with CRLF, as on Windows."""
    return 0 < text.count("\r\n") == text.count("\r") == text.count("\n")


def visible_line(text: str, limit: int = NO_LIMIT, *, prose: bool = False) -> str:
    """Returns `visible` on one line, with line ends and tabs escaped, clipped."""
    shown = _uncovered(text, prose=prose).replace("\n", "\\n").replace("\t", "\\t")
    return clip(isolate(shown), limit)


def value_words(value: object) -> str:
    """Returns a value on one line with its type recognizable: an ambiguous string is quoted."""
    if isinstance(value, str):
        return visible_line(_quoted(value) if is_mistakable(value) or has_hidden(value) else value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "(none)"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    return visible_line(json.dumps(value, ensure_ascii=False))


def is_mistakable(text: str) -> bool:
    """Returns whether a string could be taken for a number, an empty or nested value, or our own words."""
    if (
        not text
        or text != text.strip()
        or text[0] in '"([{'
        or any(each in text for each in ("\n", "\t", " → ", " ⏎ ", " · "))
    ):
        return True
    return text.casefold() in _LIKE_VALUES or _LIKE_NUMBER.fullmatch(text) is not None


def has_hidden(text: str) -> bool:
    """Returns whether the text contains invisible characters."""
    return not (text.isascii() and text.isprintable()) and any(
        found["hidden"] for found in _HIDDEN.finditer(text)
    )


def name_words(name: str, limit: int = NO_LIMIT) -> str:
    """Returns a value's name on one line, clipped; quoted if it could be taken for more than a name."""
    is_odd = not name or name != name.strip() or name[0] == "-" or any(each in name for each in ':"\n\t›│')
    return visible_line(_quoted(name) if is_odd or has_hidden(name) else name, limit)


def escape(text: str) -> str:
    """Escapes text for mrkdwn: it cannot mention, link or format. Still send it with `verbatim` or `parse: none`."""
    for pattern, stand_in in _FORMATTING:
        text = pattern.sub(stand_in, text)
    return _escaped(plain(text))


def escaped_line(text: str, limit: int) -> str:
    """Returns `named`, escaped, in at most `limit` as sent."""
    return clip_escaped(escape(named(text)), limit)


def fallback(text: str, limit: int = TEXT_LIMIT) -> str:
    """Returns escaped text for the top-level `text` (sent with `mrkdwn: false`, `parse: none`), at most `limit`."""
    return clip_escaped(_escaped(plain(text)), limit)


def size(text: str) -> int:
    """Returns the length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def clip(text: str, limit: int) -> str:
    """Returns `text`, or its beginning and "…", in at most `limit`; never cuts within a visible character."""
    return _ended(lambda room: _prefix(text, room), limit) if size(text) > limit else text


def clip_escaped(text: str, limit: int) -> str:
    """`clip` for escaped text: never cuts within an entity."""
    if size(text) <= limit:
        return text
    return _ended(lambda room: _TORN_ENTITY.sub("", _prefix(text, room)), limit)


def excerpt(text: str, limit: int = NO_LIMIT, rows: int = NO_LIMIT) -> str:
    """Returns `text` or, if it is too long, its beginning and end with the size of the gap.

    Args:
        text: plain.
        limit: of its size.
        rows: that it should take on a screen, about.
    """
    if size(text) <= limit and sum(_rows(text)) <= rows + rows // 2:  # hiding a few rows saves nothing
        return text
    if limit < _HEAD_AND_TAIL + _MARKED:
        return clip(text, limit)
    room = min(limit, rows * _ROW + _MARKED) - _MARKED
    while True:
        head = _first_rows(_prefix(text, room * 2 // 3), rows - rows // 3).rstrip()
        tail = text[len(text) - len(_last_rows(_suffix(text, room // 3), rows // 3)) :]
        hidden = text[len(head) : len(text) - len(tail)]
        begun = _begun(text, len(text) - len(tail))
        shown = f"{isolate(head)}\n{_left_out(hidden)}\n{begun}{isolate(tail)}"
        if size(shown) <= limit:
            return shown
        room -= size(shown) - limit  # isolates that were cut were closed again


def _begun(text: str, at: int) -> str:
    """Returns what stands before the rest of a line that begins before `at`: the line's bar, and "…"; empty at its start."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return f"{bar_of(before)}…" if before else ""


def bar_of(text: str) -> str:
    """Returns the bar for the rest of a text's last line, which goes on elsewhere; empty if it has none, or has ended."""
    return BAR if text[text.rfind("\n") + 1 :].lstrip(" ").startswith(BAR) else ""


def with_bars(pieces: Iterable[str]) -> list[str]:
    """Returns the pieces of a text: a line that goes on in the next keeps its bar."""
    found: list[str] = []
    for each in pieces:
        found.append(f"{bar_of(found[-1]) if found else ''}{each}")
    return found


def split(text: str, limit: int) -> list[str]:
    """Splits `text` into pieces of at most `limit`, at line ends or spaces if possible. Joined, they are the text."""
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
    """Splits `plain` text, unescaped, into pieces of at most `limit` (at least 10) once escaped."""
    text = plain(text)
    # A piece cut from an isolate gets its own isolate when it is sent.
    room = limit if limit < 20 or text.isascii() else limit - 4
    return [fit for piece in split(text, room) for fit in _fitting(piece, limit)]


def split_live(text: str, limit: int) -> list[str]:
    """Splits the bot's own mrkdwn without cutting mentions, links or entities."""
    pieces: list[str] = []
    while size(text) > limit:
        head = _TORN_ENTITY.sub("", _prefix(text, limit))
        end = (
            head.rfind("\n") + 1 or (head.rfind("<") if head.rfind("<") > head.rfind(">") else 0) or len(head)
        )
        pieces.append(head[:end])
        text = text[end:]
    return [*pieces, text] if text else pieces


def shared(texts: Sequence[str], budget: int, cut: Callable[[str, int], str] = clip) -> list[str]:
    """Cuts the texts to `budget` together: each gets what it needs, up to a fair share."""
    given = shares(list(map(size, texts)), budget)
    return [cut(text, share) for text, share in zip(texts, given, strict=True)]


def shares(needs: Sequence[int], budget: int) -> list[int]:
    """Returns each one's part of `budget`: what it needs, up to a fair share."""
    given = [0] * len(needs)
    left = max(0, budget)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], left // (len(needs) - rank))
        left -= given[index]
    return given


def is_user(text: str | None) -> TypeGuard[str]:
    """Returns whether this is a Slack user id."""
    return bool(text and _USER.fullmatch(text))


def is_group(text: str | None) -> TypeGuard[str]:
    """Returns whether this is a Slack user group's id."""
    return bool(text and _GROUP.fullmatch(text))


def is_channel(text: str | None) -> TypeGuard[str]:
    """Returns whether this is a Slack conversation id."""
    return bool(text and _CHANNEL.fullmatch(text))


def mention(user: str) -> str:
    """Returns `<@U…>`. Raises ValueError if it is not a user id."""
    return f"<@{_id(user, is_user, 'user id, such as U0123ABC')}>"


def person(name: str, limit: int = 100) -> str:
    """Returns a mention of a Slack user; any other name escaped, in at most `limit`."""
    return mention(name) if is_user(name) else escaped_line(name, limit)


def group(usergroup: str) -> str:
    """Returns `<!subteam^S…>`. Raises ValueError if it is not a user group id."""
    return f"<!subteam^{_id(usergroup, is_group, 'user group id, such as S0123ABC')}>"


def channel(conversation: str) -> str:
    """Returns `<#C…>`. Raises ValueError if it is not a channel id."""
    return f"<#{_id(conversation, is_channel, 'channel id, such as C0123ABC')}>"


def mentions(people: Sequence[str]) -> list[str]:
    """Returns mentions of the first twenty users and user groups among these; more would be noise."""
    named = (
        mention(each) if is_user(each) else group(each) for each in people if is_user(each) or is_group(each)
    )
    return list(named)[:20]


def _id(text: str, fits: Callable[[str], bool], expected: str) -> str:
    if not fits(text):
        raise ValueError(f"expected a Slack {expected}")
    return text


def web_address(url: str | None) -> str:
    """Returns `url` if it is a plain http(s) link without user info, else an empty text."""
    return url if url and len(url) <= _URL_LIMIT and _URL.fullmatch(url) else ""


def date(moment: datetime) -> str:
    """Returns a date that Slack shows in each reader's time zone."""
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} at {{time}}|{utc(moment)}>"


def deadline(moment: datetime) -> str:
    """Returns such a date for use after "by": `14:27 today`."""
    return f"<!date^{int(moment.timestamp())}^{{time}} {{date_short_pretty}}|{utc(moment)}>"


def utc(moment: datetime) -> str:
    """Returns a date for places where Slack formats nothing: `24 May 2026, 14:27 UTC`."""
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def utc_dates(text: str) -> str:
    """Spells out the dates (`date`) in the bot's own words, for places where Slack formats nothing."""
    return _DATE.sub(r"\1", text)


def unformatted(text: str) -> str:
    """Returns the bot's own mrkdwn as text: dates spelled out, links as their labels, without markup or stand-ins for it."""
    return _STYLED.sub("", _LINK.sub(r"\1", utc_dates(text))).translate(_STOOD_IN_FOR)


def sentence(text: str) -> str:
    """Returns `text` with a full stop, unless it has an end of its own."""
    return text if not text or text.rstrip("\u2069”").endswith((".", "…", "!", "?", ":")) else f"{text}."


def isolate(text: str, *, rtl: bool = False) -> str:
    """Isolates right-to-left text, so that it and its surroundings cannot reorder each other.

    Args:
        text: any. Its own isolates stay if they are balanced; their content needs no other.
        rtl: whether it is known to read from right to left; otherwise its first letter decides.
    """
    if not rtl and (text.isascii() or not _RTL.search(text)):
        return text
    return "\n".join(_isolated(each, rtl=rtl) for each in _balanced(text).split("\n"))


def _isolated(line: str, *, rtl: bool) -> str:
    body = line.strip()
    outside = _outside(body)
    # Text without letters gets its direction from its event only.
    if not _RTL.search(outside) and not (rtl and outside.strip() and not _LETTER.search(outside)):
        return line
    return line.replace(body, f"{_RLI if rtl else _FSI}{body}{_PDI}", 1)


def _outside(body: str) -> str:
    """Returns the text outside isolates; `body` is balanced."""
    depth, found = 0, []
    for char in body:
        if char in _OPENERS:
            depth += 1
        elif char == _PDI:
            depth -= 1
        elif not depth:
            found.append(char)
    return "".join(found)


def _balanced(text: str) -> str:
    """Removes unpaired isolates (U+2066–2069), paragraph by paragraph, as the bidi algorithm reads them."""
    if not _ISOLATES.search(text):
        return text
    return "\n".join(_without(each, *_unpaired(each)) for each in text.split("\n"))


def _unpaired(paragraph: str) -> tuple[list[int], list[int]]:
    """Returns the positions of isolates left open in this paragraph, and of ends without a beginning."""
    torn, stray = list[int](), list[int]()
    for at, char in enumerate(paragraph):
        if char in _OPENERS:
            torn.append(at)
        elif char == _PDI and torn:
            torn.pop()
        elif char == _PDI:
            stray.append(at)
    return torn, stray


def _without(text: str, *places: Sequence[int]) -> str:
    left_out = {at for each in places for at in each}
    return "".join(char for at, char in enumerate(text) if at not in left_out) if left_out else text


def _ended(prefix: Callable[[int], str], limit: int) -> str:
    """Returns `prefix(room)` plus "…" in at most `limit`; closes an isolate that it cuts after the "…"."""
    if limit <= 0:
        return ""
    for closers in range(min(_DEEPEST_ISOLATE, limit)):
        before, end, last = prefix(limit - 1 - closers).rstrip().rpartition("\n")
        last = last.rstrip(_OPENERS)
        torn, stray = _unpaired(last)
        if len(torn) <= closers:
            return f"{_balanced(before)}{end}{_without(last, stray)}…{_PDI * len(torn)}"
    return _balanced(prefix(limit - 1).rstrip()) + "…"


def _prefix(text: str, limit: int) -> str:
    """Returns the longest beginning within `limit` that cuts no cluster (unless of 64 characters or more)."""
    head = text[:limit]
    if not head.isascii():
        head = head.encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore")
    end = len(head)
    if end in (0, len(text)) or text[end].isascii():
        return head
    start = max(0, end - _LONGEST_CLUSTER)
    at = max(found.start() for found in _CLUSTER.finditer(text, start, end + 1))
    return text[:at] if at > start else head


def _suffix(text: str, limit: int) -> str:
    """Returns the longest end within `limit` that cuts no cluster."""
    if (total := size(text)) <= limit:
        return text
    at = len(_prefix(text, total - limit))
    while size(text[at:]) > limit:
        found = _CLUSTER.match(text, at)
        at = found.end() if found else len(text)
    return text[at:]


def _rows(text: str) -> list[int]:
    """Returns how many rows of a screen each line takes."""
    return [max(1, math.ceil(size(line) / _ROW)) for line in text.split("\n")]


def _first_rows(text: str, rows: int) -> str:
    """Returns the first lines that fill `rows`; the last one may be cut."""
    head = ""
    for line, need in zip(text.split("\n"), _rows(text), strict=True):
        if need > rows:
            return head + _whole_words(line, rows * _ROW)
        head, rows = f"{head}{line}\n", rows - need
    return head.removesuffix("\n")


def _last_rows(text: str, rows: int) -> str:
    """Returns the last lines that fill `rows`; the first one may be cut."""
    tail: list[str] = []
    for line, need in zip(reversed(text.split("\n")), reversed(_rows(text)), strict=True):
        if need > rows:
            end = _suffix(line, rows * _ROW)
            _, space, rest = end[:20].partition(" ")
            tail += [rest + end[20:] if space else end] if rows else []
            break
        tail.append(line)
        rows -= need
    return "\n".join(reversed(tail))


def _left_out(hidden: str) -> str:
    """Returns how much is left out, in words."""
    characters = len(hidden)
    lines = max(0, hidden.count("\n") - 1)
    said = [f"{characters} more character{'' if characters == 1 else 's'}"]
    said += [f"{lines} more line{'' if lines == 1 else 's'}"] if lines else []
    return f"… {', '.join(said)} …"


def _uncovered(text: str, *, prose: bool) -> str:
    if text.isascii() and text.isprintable():  # the usual case for short values
        return _BLANKS.sub(_run_of_blanks, text)
    is_rtl = _RTL.search(text.translate(_NO_DIRECTION)) is not None
    kept = _DIRECTING if prose and is_rtl else ""

    def by_number(found: regex.Match[str]) -> str:
        """Returns an invisible character's number; repeated ones are counted."""
        if (char := found["hidden"]) is None or char in kept:
            return found[0]
        shown = _number(char)
        count = len(found[0])
        shown = f"⟨{count} × {shown}⟩" if count > _MOST_ALIKE else shown * count
        return (
            f"{_FSI}{shown}{_PDI}" if is_rtl else shown
        )  # isolated, so that its direction does not affect its surroundings

    if prose:
        text = text.replace("\r\n", "\n")
    return _BLANKS.sub(_run_of_blanks, _HIDDEN.sub(by_number, _EMBEDDINGS.sub("", text) if kept else text))


def _number(char: str) -> str:
    if char == "\r":
        return "\\r"
    return f"\\x{ord(char):02x}" if ord(char) < 0xA0 else f"<U+{ord(char):04X}>"


def _run_of_blanks(found: regex.Match[str]) -> str:
    """Returns a long run of blanks in words, a short one unchanged."""
    run = found[0]
    if (ends := run.count("\n")) > 0:
        rest = run.rpartition("\n")[2]
        return f"\n⟨{ends} line breaks⟩\n{rest}"
    if len(run) + run.count("\t") * (_TAB - 1) <= _LONG_RUN:
        return run
    kind = "spaces" if run.strip(" ") == "" else "tabs" if run.strip("\t") == "" else "blanks"
    return f" ⟨{len(run)} {kind}⟩ "


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _whole_words(text: str, limit: int) -> str:
    """Returns the beginning of a line, up to the end of a word if one is near."""
    head = _prefix(text, limit)
    end = head.rfind(" ", max(0, len(head) - 20)) if not text[len(head) :][:1].isspace() else -1
    return head[:end] if end > 0 else head


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)


def _fitting(piece: str, limit: int) -> list[str]:
    if size(_escaped(plain(piece))) <= limit or size(piece) <= 1:
        return [piece]
    return [fit for half in split(piece, size(piece) // 2 + 1) for fit in _fitting(half, limit)]
