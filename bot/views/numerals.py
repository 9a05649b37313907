"""Writes the numbers in the bot's own words as the one person who reads them is used to: `1,204.5`, `1.204,5` or `1 204,5`.

What several people read keeps plain digits (`1204.5`): a comma or a point that groups them would be a decimal sign to others. So
does all that agents send, and what people approve: those numbers are never touched. Pure.

The signs are CLDR's, for the languages in which Slack can be used and their neighbours. A library with all of CLDR (Babel) would
be 36 MB for these few lines.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![\w.,-])(\d+)(?:\.(\d+))?(?![\w-])")
_POINT, _COMMA, _SPACE, _NARROW = ".,", ",.", "\u00a0,", "\u202f,"  # what groups digits, and the decimal sign
_SIGNS = {
    **dict.fromkeys(("en", "ja", "ko", "zh", "th", "he", "es-la", "es-419", "es-mx", "es-us"), _COMMA),
    **dict.fromkeys(("de", "es", "it", "nl", "pt", "da", "tr", "id", "vi", "ro", "el"), _POINT),
    **dict.fromkeys(("ru", "uk", "pl", "cs", "sk", "hu", "sv", "fi", "nb", "no", "pt-pt", "fr-ca"), _SPACE),
    **dict.fromkeys(("fr",), _NARROW),
    **dict.fromkeys(
        ("en-in", "en-za", "de-at", "de-ch", "fr-ch", "it-ch"), ""
    ),  # plain digits: they differ again
}
_FROM_FIVE_DIGITS = frozenset(["es", "it", "pl", "hu", "pt-pt"])  # 1204 stays as it is


def in_words(text: str, locale: str) -> str:
    """Returns the bot's own words with their numbers as in `locale` (`de-DE`). Unchanged if that is empty or unknown."""
    tag = locale.replace("_", "-").casefold()
    known = tag if tag in _SIGNS else tag.partition("-")[0]
    if not (signs := _SIGNS.get(known, "")):
        return text
    group, decimal = signs[0], signs[1]
    shortest = 5 if known in _FROM_FIVE_DIGITS else 4

    def written(found: re.Match[str]) -> str:
        whole = found[1] if len(found[1]) < shortest else f"{int(found[1]):,}".replace(",", group)
        return whole if found[2] is None else f"{whole}{decimal}{found[2]}"

    return _NUMBER.sub(written, text)
