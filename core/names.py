"""The words of others: whole, within a sentence of ours so that they can neither end it nor go on with it, and told apart from
texts that people see as the same: a label that looks like another one, or like a button's.

Confusable characters: UTS #39, §4. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import cache

import regex

# A name that cannot be read as part of our sentence: up to three words of letters and digits, all of them Latin or all of
# another script, so that no letter passes for another.
_LATIN = r"[A-Za-z0-9À-ÖØ-öø-ɏ]"
_FOREIGN = r"(?:(?![A-Za-zÀ-ɏ])[^\W_])"
_WITHIN = r"[._@/#+-]"
_BARE = re.compile(
    "|".join(
        rf"(?:(?:agent|ledger|user):)?{letter}(?:{letter}|{_WITHIN}(?={letter})){{0,255}}"
        rf"(?: {letter}(?:{letter}|{_WITHIN}(?={letter})){{0,79}}){{0,2}}"
        for letter in (_LATIN, _FOREIGN)
    )
)
# The beginnings of words with which the bot says how a question stands, and what is at stake.
_OURS = re.compile(
    r"(?:^|[^a-z])(?:accept|answer|approv|ask|claim|clarify|clos|confirm|decid|escalat|expir|irrevers|reject|remind|revers"
    r"|risk|undo|verif|wait|warn|withdr|(?:high|low|medium|needs?|no|one|safe|yes)(?![a-z]))",
    re.IGNORECASE,
)
_WORD = re.compile(r"[!#-~]{1,300}…?")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTATION = str.maketrans('“”„‟❝❞〝〞〟＂«»″"', "‘’’’‘’‘’’'‘’′'")


def whole_characters(text: str) -> str:
    """Returns `text` with U+FFFD for lone surrogates, which UTF-8 cannot encode."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def quoted(words: str) -> str:
    """Returns words in quotation marks; those within become single ones, so that they do not end it."""
    return f"“{in_quotation(words)}”"


def in_quotation(words: str) -> str:
    """Returns words as they stand between quotation marks of ours."""
    return words.translate(_QUOTATION)


def is_bare(name: str) -> bool:
    """Returns whether a name can stand in a sentence of ours as it is. Any other is `quoted`."""
    whole = name.removesuffix("…")  # where it was cut
    is_plain = unicodedata.is_normalized("NFKC", whole) and _BARE.fullmatch(whole) is not None
    return is_plain and _OURS.search(whole) is None


def is_word(value: str) -> bool:
    """Returns whether a value is one word, which can end a sentence of ours as it is."""
    return _WORD.fullmatch(value) is not None


def named(name: str) -> str:
    """Returns a name for a sentence of ours: as it is, or quoted."""
    return name if is_bare(name) else quoted(name)


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
