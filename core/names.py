"""The words of others: whole, and within a sentence of ours so that they can neither end it nor go on with it. Pure."""

from __future__ import annotations

import re
import unicodedata

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
