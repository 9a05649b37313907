"""Makes agents' words inert (no links, mentions or markup), and writes the bot's own mentions and dates.

Slack parses `<@U…>`, `<!channel>`, `<url|label>` wherever mrkdwn is allowed, and in the top-level `text`.
Agents' words therefore go into `plain_text` objects (`plain`, `line`), into the top-level text escaped
(`fallback`), and only where a layout forces it into mrkdwn (`escape`). Source: docs.slack.dev, "Formatting
message text". Pure.

Sizes are UTF-16 units, of which there are never fewer than code points: what keeps a limit here keeps it
whichever way Slack counts.

Right-to-left text stands in isolates (UAX #9), so that neither it nor what is beside it reorders the other. An isolate
ends with its paragraph: text of several lines has one in each. Left-to-right text stays as it is, byte for byte.

What somebody is asked to approve goes through `visible` instead: nothing in it may be invisible, or pushed out of sight.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeGuard

import regex

TEXT_LIMIT = 4000
NO_LIMIT = 10**9
BLANK = "(blank)"
_LINE_ENDS = re.compile("\r\n|[\r\u0085\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_TORN_ENTITY = re.compile(r"&[a-z]{0,3}$")
_TORN_END = re.compile(r"^[a-z]{0,3};")
_ENTITY = re.compile(r"&(?:amp|lt|gt);")
_USER = re.compile(r"[UW][A-Z0-9]{1,30}")
_GROUP = re.compile(r"S[A-Z0-9]{1,30}")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{1,30}")
_DATE = re.compile(r"<!date\^\d+\^[^|<>]*\|([^<>]*)>")
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:[/?#][!-~]*)?", re.IGNORECASE)
_URL_LIMIT = 3000
# What is not seen, though programs read it: controls, formatting and filler characters (Default_Ignorable), what is no
# character, the blank of Braille. Emoji keep the joiners and selectors that they are made of, and scripts that join their letters theirs.
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
_MOST_ALIKE = 5  # hidden characters: more of the same are counted
_EMBEDDINGS = re.compile("[\u202a-\u202e]")
_DIRECTING = "\u061c\u200e\u200f\u2066\u2067\u2068\u2069"
_LONG_RUN = 32  # columns of blanks: more of them could push what follows out of sight
_TAB = 4  # columns
_BLANKS = regex.compile(r"[^\S\n]{9,}|(?:[^\S\n]*\n){6,}")
_LIKE_VALUES = frozenset(
    ["true", "false", "yes", "no", "on", "off", "null", "none", "nil", "undefined"]
    + [sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")]
)
_LIKE_NUMBER = re.compile(r"[+-]?(?:\d[\d,_]*)?(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)
_HEAD_AND_TAIL = 60  # characters: with less room a text has no tail
_MARKED = 50  # characters of what says how much is left out
_CLUSTER = regex.compile(r"\X")  # what is seen as one character (UAX #29)
_LONGEST_CLUSTER = 64
_DEEPEST_OUTLINE = 8
_RLI, _FSI, _PDI = "\u2067", "\u2068", "\u2069"
_OPENERS = "\u2066" + _RLI + _FSI
_ISOLATES = re.compile("[\u2066-\u2069]")
# Hebrew, Arabic, Syriac, Thaana, N'Ko and their like with their marks and digits; RLM; presentation forms; old scripts.
_RTL = re.compile("[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_LETTER = re.compile(r"[^\W\d_]")
_DEEPEST_ISOLATE = 8
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
    if text.isascii() and text.isprintable():  # the most
        return text
    return _balanced(_CONTROLS.sub("", _LINE_ENDS.sub("\n", _SURROGATES.sub("\ufffd", text))))


def cleaned_line(text: str) -> str:
    """`cleaned` on one line."""
    return " ".join(cleaned(text).split())


def plain(text: str) -> str:
    """For plain_text objects: `cleaned`, and right-to-left text kept apart from what stands beside it (`isolate`)."""
    return isolate(cleaned(text))


def line(text: str, limit: int = NO_LIMIT) -> str:
    """`plain` on one line, or its beginning: headings, buttons, options."""
    return clip(isolate(cleaned_line(text)), limit)


def named(text: str, limit: int = NO_LIMIT) -> str:
    """`line`, or a word for it where nothing that can be seen is left of it."""
    return line(text, limit) or BLANK


def visible(text: str, *, prose: bool = False) -> str:
    """For what is approved: `plain`, but what nobody sees is shown by its number (U+200B as `<U+200B>`), and so are long
    runs of blanks (`⟨3,000 spaces⟩`), which could push what follows out of sight.

    `prose`: what says how right-to-left words stand is treated as `plain` does; a command or a value needs none of it.
    """
    return isolate(_uncovered(text, prose=prose))


def visible_line(text: str, limit: int = NO_LIMIT, *, prose: bool = False) -> str:
    """`visible` on one line, with a backslash and a letter for line ends and tabs; or its beginning."""
    shown = _uncovered(text, prose=prose).replace("\n", "\\n").replace("\t", "\\t")
    return clip(isolate(shown), limit)


def value_words(value: object, *, prose: bool = False) -> str:
    """A value on one line so that its type shows: a string stands in quotes where it could be taken for something else."""
    if isinstance(value, str):
        is_odd = is_mistakable(value) or (not prose and has_hidden(value))
        return visible_line(_quoted(value) if is_odd else value, prose=prose)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "(none)"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    return visible_line(json.dumps(value, ensure_ascii=False), prose=prose)


def is_mistakable(text: str) -> bool:
    """Whether a string could be taken for a number, for nothing, for something nested, or for words of ours."""
    if (
        not text
        or text != text.strip()
        or text[0] in '"([{'
        or any(each in text for each in ("\n", "\t", " → "))
    ):
        return True
    return text.casefold() in _LIKE_VALUES or _LIKE_NUMBER.fullmatch(text) is not None


def has_hidden(text: str) -> bool:
    """Whether there is anything in it that nobody sees."""
    return not (text.isascii() and text.isprintable()) and any(
        found["hidden"] for found in _HIDDEN.finditer(text)
    )


def name_words(name: str, limit: int = NO_LIMIT, *, prose: bool = False) -> str:
    """A name of a value on one line, or its beginning; in quotes where it could be taken for more than a name."""
    is_odd = not name or name != name.strip() or name[0] == "-" or any(each in name for each in ':"\n\t›│')
    is_odd = is_odd or (not prose and has_hidden(name))
    return visible_line(_quoted(name) if is_odd else name, limit, prose=prose)


def escape(text: str) -> str:
    """For mrkdwn: nothing in it mentions, links, or formats. `verbatim`, or `parse: none`, is still wanted."""
    for pattern, stand_in in _FORMATTING:
        text = pattern.sub(stand_in, text)
    return _escaped(plain(text))


def escaped_line(text: str, limit: int) -> str:
    """`named`, escaped, in at most `limit` as it is sent."""
    return clip_escaped(escape(named(text)), limit)


def fallback(text: str, limit: int = TEXT_LIMIT) -> str:
    """For the top-level `text` (sent with `mrkdwn: false`, `parse: none`): escaped, at most `limit`."""
    return clip_escaped(_escaped(plain(text)), limit)


def size(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def clip(text: str, limit: int) -> str:
    """`text`, or its beginning and "…", in at most `limit`; never inside what is seen as one character."""
    return _ended(lambda room: _prefix(text, room), limit) if size(text) > limit else text


def clip_escaped(text: str, limit: int) -> str:
    """`clip` for escaped text: never inside an entity."""
    if size(text) <= limit:
        return text
    return _ended(lambda room: _TORN_ENTITY.sub("", _prefix(text, room)), limit)


def clip_rows(text: str, rows: int, width: int = 90) -> str:
    """`text`, or its beginning and "…" where it would take many more rows than `rows` on a screen of `width`."""
    if sum(_rows(text, width)) <= rows + 2:  # to hide two rows saves nothing
        return text
    return clip(text, size(_first_rows(text, rows, width).rstrip()) + 1)


def excerpt(
    text: str, limit: int = NO_LIMIT, rows: int = NO_LIMIT, width: int = 90, *, escaped: bool = False
) -> str:
    """`text`, or where it is too long its beginning and its end, with how much is left out between them.

    Args:
        text: plain, or escaped.
        limit: of its size.
        rows: that it should take on a screen, about.
        width: of that screen, in characters.
        escaped: whether entities in it stand for one character.
    """
    if size(text) <= limit and sum(_rows(text, width)) <= rows + rows // 2:  # to hide a few saves nothing
        return text
    if limit < _HEAD_AND_TAIL + _MARKED:
        return clip_escaped(text, limit) if escaped else clip(text, limit)
    room = min(limit, rows * width + _MARKED) - _MARKED
    while True:
        head = _first_rows(_prefix(text, room * 2 // 3), rows - rows // 3, width)
        head = _TORN_ENTITY.sub("", head).rstrip()
        tail = text[len(text) - len(_last_rows(_suffix(text, room // 3), rows // 3, width)) :]
        if _TORN_ENTITY.search(text[: len(text) - len(tail)]):
            tail = _TORN_END.sub("", tail)
        hidden = text[len(head) : len(text) - len(tail)]
        shown = f"{isolate(head)}\n{_left_out(hidden, escaped=escaped)}\n{isolate(tail)}"
        if size(shown) <= limit:
            return shown
        room -= size(shown) - limit  # isolates that were torn got ends of their own


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


def shared(texts: Sequence[str], budget: int, cut: Callable[[str, int], str] = clip) -> list[str]:
    """The texts within `budget` together: whole where one needs no more than a fair share, else cut to it."""
    given = shares(list(map(size, texts)), budget)
    return [cut(text, share) for text, share in zip(texts, given, strict=True)]


def shares(needs: Sequence[int], budget: int) -> list[int]:
    """How much of `budget` each gets: what it needs, or where that is more than a fair share, no more than this."""
    given = [0] * len(needs)
    left = max(0, budget)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], left // (len(needs) - rank))
        left -= given[index]
    return given


def outline(value: object, limit: int) -> str:
    """Structured content that an agent sends along as `key: value` lines that people (and screen readers) can read:
    nested ones indented, clipped to `limit`; empty where there is nothing.
    """
    return clip("\n".join(_outlined(value, 0)), limit)


def is_user(text: str | None) -> TypeGuard[str]:
    """Whether this is a Slack user id."""
    return bool(text and _USER.fullmatch(text))


def is_group(text: str | None) -> TypeGuard[str]:
    """Whether this is a Slack user group's id."""
    return bool(text and _GROUP.fullmatch(text))


def is_channel(text: str | None) -> TypeGuard[str]:
    """Whether this is a Slack conversation id."""
    return bool(text and _CHANNEL.fullmatch(text))


def mention(user: str) -> str:
    """`<@U…>`; a ValueError where it is no such id."""
    return f"<@{_id(user, is_user, 'user id, such as U0123ABC')}>"


def person(name: str, limit: int = 100) -> str:
    """A mention of a Slack user; any other name escaped, in at most `limit`."""
    return mention(name) if is_user(name) else escaped_line(name, limit)


def group(usergroup: str) -> str:
    """`<!subteam^S…>`; a ValueError where it is no such id."""
    return f"<!subteam^{_id(usergroup, is_group, 'user group id, such as S0123ABC')}>"


def channel(conversation: str) -> str:
    """`<#C…>`; a ValueError where it is no such id."""
    return f"<#{_id(conversation, is_channel, 'channel id, such as C0123ABC')}>"


def mentions(people: Sequence[str]) -> list[str]:
    """A mention for each user and user group among these (of the first twenty: more would be a list, not a call)."""
    named = (
        mention(each) if is_user(each) else group(each) for each in people if is_user(each) or is_group(each)
    )
    return list(named)[:20]


def _id(text: str, fits: Callable[[str], bool], expected: str) -> str:
    if not fits(text):
        raise ValueError(f"expected a Slack {expected}")
    return text


def web_address(url: str | None) -> str:
    """`url` where it is a plain http(s) link without a user part; else empty."""
    return url if url and len(url) <= _URL_LIMIT and _URL.fullmatch(url) else ""


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


def isolate(text: str, *, rtl: bool = False) -> str:
    """`text` so that it can stand beside other words without reordering them, or being reordered by them.

    Args:
        text: any; isolates of its own are kept in pairs only, and what they hold needs no other.
        rtl: whether it is known to read from right to left; else its first letter says.
    """
    if not rtl and (text.isascii() or not _RTL.search(text)):
        return text
    return "\n".join(_isolated(each, rtl=rtl) for each in _balanced(text).split("\n"))


def _isolated(line: str, *, rtl: bool) -> str:
    body = line.strip()
    outside = _outside(body)
    # Without a letter only its event says how it reads.
    if not _RTL.search(outside) and not (rtl and outside.strip() and not _LETTER.search(outside)):
        return line
    return line.replace(body, f"{_RLI if rtl else _FSI}{body}{_PDI}", 1)


def _outside(body: str) -> str:
    """What stands in no isolate; `body` is balanced."""
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
    """Isolates (U+2066–2069) only in pairs, paragraph by paragraph, as the bidi algorithm reads them."""
    if not _ISOLATES.search(text):
        return text
    return "\n".join(_without(each, *_unpaired(each)) for each in text.split("\n"))


def _unpaired(paragraph: str) -> tuple[list[int], list[int]]:
    """Where isolates begin that do not end in this paragraph, and where one ends that never began."""
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
    """`prefix(room)` with "…" at its end, in at most `limit`; an isolate that it tears is closed behind the "…"."""
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
    """The longest beginning within `limit` that tears no cluster (one of 64 characters or more is torn)."""
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
    """The longest end within `limit` that tears no cluster."""
    if (total := size(text)) <= limit:
        return text
    at = len(_prefix(text, total - limit))
    while size(text[at:]) > limit:
        found = _CLUSTER.match(text, at)
        at = found.end() if found else len(text)
    return text[at:]


def _rows(text: str, width: int) -> list[int]:
    """How many rows of a screen each line takes."""
    return [max(1, math.ceil(size(line) / width)) for line in text.split("\n")]


def _first_rows(text: str, rows: int, width: int) -> str:
    """The lines that fill `rows`; of one that is longer its beginning."""
    head = ""
    for line, need in zip(text.split("\n"), _rows(text, width), strict=True):
        if need > rows:
            return head + _whole_words(line, rows * width)
        head, rows = f"{head}{line}\n", rows - need
    return head.removesuffix("\n")


def _last_rows(text: str, rows: int, width: int) -> str:
    """The lines at the end that fill `rows`; of one that is longer its end."""
    tail: list[str] = []
    for line, need in zip(reversed(text.split("\n")), reversed(_rows(text, width)), strict=True):
        if need > rows:
            end = _suffix(line, rows * width)
            _, space, rest = end[:20].partition(" ")
            tail += [rest + end[20:] if space else end] if rows else []
            break
        tail.append(line)
        rows -= need
    return "\n".join(reversed(tail))


def _left_out(hidden: str, *, escaped: bool) -> str:
    """How much is left out, in words."""
    characters = len(_ENTITY.sub(".", hidden)) if escaped else len(hidden)
    lines = max(0, hidden.count("\n") - 1)
    said = [f"{characters:,} more character{'' if characters == 1 else 's'}"]
    said += [f"{lines:,} more line{'' if lines == 1 else 's'}"] if lines else []
    return f"… {', '.join(said)} …"


def _uncovered(text: str, *, prose: bool) -> str:
    if text.isascii() and text.isprintable():  # the most, of many short values
        return _BLANKS.sub(_run_of_blanks, text)
    is_rtl = _RTL.search(text) is not None
    kept = _DIRECTING if prose and is_rtl else ""

    def by_number(found: regex.Match[str]) -> str:
        """A character that nobody sees, by its number; several of the same are counted."""
        if (char := found["hidden"]) is None or char in kept:
            return found[0]
        shown = _number(char)
        count = len(found[0])
        shown = f"⟨{count:,} × {shown}⟩" if count > _MOST_ALIKE else shown * count
        return f"{_FSI}{shown}{_PDI}" if is_rtl else shown  # so that it says nothing of the words beside it

    text = text.replace("\r\n", "\n")
    return _BLANKS.sub(_run_of_blanks, _HIDDEN.sub(by_number, _EMBEDDINGS.sub("", text) if kept else text))


def _number(char: str) -> str:
    if char == "\r":
        return "\\r"
    return f"\\x{ord(char):02x}" if ord(char) < 0xA0 else f"<U+{ord(char):04X}>"


def _run_of_blanks(found: regex.Match[str]) -> str:
    """A long run of blanks in words; a short one as it is."""
    run = found[0]
    if (ends := run.count("\n")) > 0:
        rest = run.rpartition("\n")[2]
        return f"\n⟨{ends:,} line breaks⟩\n{rest}"
    if len(run) + run.count("\t") * (_TAB - 1) <= _LONG_RUN:
        return run
    kind = "spaces" if run.strip(" ") == "" else "tabs" if run.strip("\t") == "" else "blanks"
    return f" ⟨{len(run):,} {kind}⟩ "


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _whole_words(text: str, limit: int) -> str:
    """The beginning of a line, up to the end of a word where one is near."""
    head = _prefix(text, limit)
    end = head.rfind(" ", max(0, len(head) - 20)) if not text[len(head) :][:1].isspace() else -1
    return head[:end] if end > 0 else head


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)


def _fitting(piece: str, limit: int) -> list[str]:
    if size(_escaped(plain(piece))) <= limit or size(piece) <= 1:
        return [piece]
    return [fit for half in split(piece, size(piece) // 2 + 1) for fit in _fitting(half, limit)]


def _outlined(value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if depth > _DEEPEST_OUTLINE:
        yield f"{indent}…"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if _is_simple(each):
                yield f"{indent}{name_words(str(key), prose=True)}: {_simple(each)}"
            else:
                yield f"{indent}{name_words(str(key), prose=True)}:"
                yield from _outlined(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, Mapping) and all(map(_is_simple, each.values())):
                yield f"{indent}- " + ", ".join(
                    f"{name_words(str(k), prose=True)}: {_simple(v)}" for k, v in each.items()
                )
            elif _is_simple(each):
                yield f"{indent}- {_simple(each)}"
            else:
                yield from _outlined(each, depth + 1)
    elif value is not None:
        yield indent + _simple(value)


def _is_simple(value: object) -> bool:
    if isinstance(value, list):
        return all(not isinstance(each, (Mapping, list)) for each in value)
    return not isinstance(value, Mapping)


def _simple(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_simple, value))
    return value_words(value, prose=True)
