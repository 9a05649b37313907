"""Tells texts that people see as the same: a label that looks like another one, or like a button's.

Confusable characters: UTS #39, §4. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from functools import cache

import regex

# Characters without ink: controls, formatting and filler characters, noncharacters, the blank of Braille.
_INVISIBLE = regex.compile(
    r"[\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}\u2800]"
)
_MARK, _NO_WORD = regex.compile(r"\p{M}"), regex.compile(r"[^\p{L}\p{N}|]")
_LONGEST = 100  # characters of a text that may be taken for a button
_DIRECTION_MARK = "\u200e"  # the table puts some around right-to-left letters


def skeleton(text: str) -> str:
    """Returns what is left of a text for the eye: texts with the same skeleton look the same. Empty: nothing is visible."""
    return _without_ink(unicodedata.normalize("NFD", text)).translate(_prototypes())


def resembles(text: str, others: Collection[str]) -> bool:
    """Returns whether people could take a text for one of `others`, which are short and in Latin letters.

    This is looser than `skeleton`: case, accents, blanks, punctuation and emoji do not count.
    """
    return _bare(text) in _all_bare(frozenset(others))


def first_double(labels: Sequence[str]) -> tuple[int, int] | None:
    """Returns the places of two labels that look the same, or None."""
    seen: dict[str, int] = {}
    for place, label in enumerate(labels):
        if (before := seen.setdefault(skeleton(label), place)) != place:
            return before, place
    return None


def is_disguised(char: str) -> bool:
    """Returns whether a character looks like an ASCII character that it is not."""
    return not char.isascii() and _latin(char).isascii()


@cache
def _all_bare(texts: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_bare, texts))


def _bare(text: str) -> str:
    shown = _MARK.sub("", _INVISIBLE.sub("", unicodedata.normalize("NFKD", text).casefold()))
    if len(words := _NO_WORD.sub("", shown)) > _LONGEST:
        return words  # no button has so much text
    seen = "".join(map(_latin, shown)).casefold()
    # A capital i is an l to the eye.
    return "".join(char for char in seen if char.isalnum()).replace("i", "l")


def _latin(char: str) -> str:
    """Returns what a character looks like; in Latin letters, if it does as a capital letter."""
    seen = _prototypes().get(ord(char), char)
    if seen.isascii() or len(capital := char.upper()) > 1:
        return seen
    as_capital = _prototypes().get(ord(capital), capital)
    return as_capital if as_capital.isascii() else seen


def _without_ink(text: str) -> str:
    return " ".join(_INVISIBLE.sub("", " ".join(text.split())).split())


@cache
def _prototypes() -> dict[int, str]:
    """Returns what each confusable character looks like, by its code point."""
    from confusable_homoglyphs.confusables import confusables_data  # noqa: PLC0415 - slow to import

    # The table has both directions: a character with one entry looks like that, one with several is looked like.
    alike = {char: [each["c"] for each in listed] for char, listed in confusables_data.items()}
    found: dict[int, str] = {}
    for char, listed in alike.items():
        source, target = char.strip(_DIRECTION_MARK), listed[0]
        is_pair = alike[target] == [char]
        if len(source) == len(listed) == 1 and (not is_pair or len(target) > 1 or target < char):
            found[ord(source)] = target.strip(_DIRECTION_MARK)
    return found
