"""Decides which addresses in an agent's text people may click, and finds them.

An address is clickable only if `links` of the producer that asked allows it. It is shown in full, in the spelling that the
browser opens: no label can hide where it leads. Everything else stays text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bot.settings.addresses import LONGEST_URL, WebUrl, link_pattern, link_url
from bot.views import inert

# Ends at blanks, quotation marks, brackets of other scripts, ideographic punctuation, and at isolates, which `inert` adds.
# Takes in all else: an address is judged whole, so that its harmless beginning is no link.
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9+.-])[Hh][Tt][Tt][Pp][Ss]://"
    r"[^\s<>\"“”„‟«»‹›‘’‚‛、。，；：！？「」『』（）【】《》〈〉\u2066-\u2069]+"
)
_AFTER = frozenset(".,:;!?'*_~…")  # belongs to the sentence at an address's end
_BRACKETS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Links:
    """What a producer's agents may link to."""

    patterns: tuple[WebUrl, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Links:
        """Reads `links` of a producer. Raises ValueError for an entry that is none."""
        return cls(tuple(map(link_pattern, patterns)))

    def allowed(self, url: str) -> str | None:
        """Returns the address to link to, which is also the text to show; None if it may not be clicked."""
        if not self.patterns or len(url) > LONGEST_URL or inert.has_hidden(url):
            return None
        try:
            found = link_url(url)
        except ValueError:
            return None
        return found.text if any(map(found.fits, self.patterns)) else None

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yields the text in pieces, each with whether it is an address to link to. No piece is empty."""
        at = 0
        if self.patterns:
            for start, end, url in find(text):
                if (address := self.allowed(url)) is not None:
                    if start > at:
                        yield text[at:start], False
                    yield address, True
                    at = end
        if at < len(text):
            yield text[at:], False


NO_LINKS = Links()
"""Allows nothing."""


def find(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields the https addresses in a text with their start and end, without the punctuation that follows them."""
    for found in _ADDRESS.finditer(text):
        url = _trimmed(found[0])
        if len(url) > len("https://"):
            yield found.start(), found.start() + len(url), url


def _trimmed(url: str) -> str:
    """Returns an address without punctuation at its end, and without brackets that were opened before it."""
    unopened = {close: url.count(close) - url.count(opening) for close, opening in _BRACKETS.items()}
    end = len(url)
    while end and (url[end - 1] in _AFTER or unopened.get(url[end - 1], 0) > 0):
        end -= 1
        if url[end] in unopened:
            unopened[url[end]] -= 1
    return url[:end]
