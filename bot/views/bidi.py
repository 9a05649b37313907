"""Right-to-left text among left-to-right words: isolates, so that neither reorders the other (UAX #9). Pure.

An isolate ends with its paragraph: text of several lines has one in each. Text without right-to-left characters stays
as it is, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_LRI, _RLI, _FSI, _PDI = "\u2066", "\u2067", "\u2068", "\u2069"
_OPENERS = _LRI + _RLI + _FSI
_ISOLATES = re.compile("[\u2066-\u2069]")
# Hebrew, Arabic, Syriac, Thaana, N'Ko and their like with their marks and digits; RLM; presentation forms; old scripts.
_RTL = re.compile("[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_LETTER = re.compile(r"[^\W\d_]")
_DEEPEST = 8


def isolate(text: str, *, rtl: bool | None = None) -> str:
    """`text` so that it can stand beside other words without reordering them, or being reordered by them.

    Args:
        text: any; isolates of its own are kept in pairs only, and what they hold needs no other.
        rtl: its direction, where it is known: True right to left, False left to right; None: as its first letter says.
    """
    if not rtl and not _RTL.search(text):
        return text
    opener = _FSI if rtl is None else _RLI if rtl else _LRI
    return "\n".join(_isolated(line, opener) for line in balanced(text).split("\n"))


def balanced(text: str) -> str:
    """Isolates (U+2066–2069) only in pairs, paragraph by paragraph, as the bidi algorithm reads them."""
    if not _ISOLATES.search(text):
        return text
    return "\n".join(_balanced_line(paragraph) for paragraph in text.split("\n"))


def ended(prefix: Callable[[int], str], limit: int) -> str:
    """`prefix(room)` with "…" at its end, in at most `limit`; an isolate that it tears is closed behind the "…"."""
    if limit <= 0:
        return ""
    for closers in range(min(_DEEPEST, limit)):
        head = prefix(limit - 1 - closers).rstrip()
        before, end, last = head.rpartition("\n")
        last = last.rstrip(_OPENERS)
        torn = sum(1 for _, pair in _paired(last) if pair is None)
        if torn <= closers:
            return f"{balanced(before)}{end}{_without_stray_ends(last)}…{_PDI * torn}"
    return balanced(prefix(limit - 1).rstrip()) + "…"


def _isolated(line: str, opener: str) -> str:
    body = line.strip()
    if not body or not _needs_one(body, opener):
        return line
    begin = line.index(body)
    return f"{line[:begin]}{opener}{body}{_PDI}{line[begin + len(body) :]}"


def _needs_one(body: str, opener: str) -> bool:
    """Whether anything in it reads from right to left outside of isolates, or only its event says so."""
    bare = _outside(body)
    if _RTL.search(bare):
        return True
    return opener == _RLI and bool(bare.strip()) and not _LETTER.search(bare)


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


def _paired(text: str) -> Iterator[tuple[int, int | None]]:
    """Where isolates of a paragraph begin and end; None: it is not ended in it."""
    opened: list[int] = []
    for at, char in enumerate(text):
        if char in _OPENERS:
            opened.append(at)
        elif char == _PDI and opened:
            yield opened.pop(), at
    yield from ((at, None) for at in opened)


def _balanced_line(text: str) -> str:
    kept = {at for pair in _paired(text) if None not in pair for at in pair}
    return "".join(char for at, char in enumerate(text) if at in kept or not _ISOLATES.match(char))


def _without_stray_ends(text: str) -> str:
    ends = {end for _, end in _paired(text)}
    return "".join(char for at, char in enumerate(text) if char != _PDI or at in ends)
