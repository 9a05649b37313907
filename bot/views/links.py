"""Decides which addresses in an agent's text people may click, finds them, and makes them links.

An address is clickable only if `links` of the producer that asked allows it. It is shown in full, in the spelling that the
browser opens: no label can hide where it leads. Everything else stays text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from bot.settings.addresses import WebUrl, link_pattern, link_url
from bot.settings.model import ProducerSettings
from bot.views.blockkit import (
    Context,
    Items,
    Lines,
    Part,
    Rich,
    RichElement,
    Run,
    Runs,
    Section,
    Words,
)
from core.clarification import Question

# Ends at blanks, quotation marks, brackets of other scripts, ideographic punctuation, and at isolates, which `inert` adds.
# Takes in all else: an address is judged whole, so that its harmless beginning is no link.
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9+.-])[Hh][Tt][Tt][Pp][Ss]://"
    r"[^\s<>\"“”„‟«»‹›‘’‚‛、。，；：！？「」『』（）【】《》〈〉\u2066-\u2069]+"
)
_AFTER = frozenset(".,:;!?'*_~")  # belongs to the sentence at an address's end
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_MOST = 100  # addresses of a message or view that may be links: each takes time and room
_CUT = re.compile(r"[\s\u2066-\u2069]*…")  # after an address that may have gone on


@dataclass(frozen=True, slots=True)
class Links:
    """What a producer's agents may link to. `exact`: only as they wrote it, since people approve their text."""

    patterns: tuple[WebUrl, ...] = ()
    exact: bool = False

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Links:
        """Reads `links` of a producer. Raises ValueError for an entry that is none."""
        return cls(tuple(map(link_pattern, patterns)))

    def allowed(self, url: str) -> str | None:
        """Returns the address to link to, which is also the text to show; None if it may not be clicked. It is never longer
        than `url`, so that what fits a message still does.
        """
        if not self.patterns or not url.isascii():
            return None
        try:
            found = link_url(url)
        except ValueError:
            return None
        shown = found.text if len(found.text) <= len(url) else found.text.removesuffix("/")
        fits = len(shown) <= len(url) and any(map(found.fits, self.patterns))
        return shown if fits and (shown == url or not self.exact) else None

    def judged(self, text: str) -> Iterator[tuple[int, int, str | None]]:
        """Yields the addresses in a text with their start and end, each as what to link to, or None."""
        return ((start, end, self.allowed(url)) for start, end, url in find(text))


NO_LINKS = Links()
"""Allows nothing."""

LinksOf = Callable[[Question], Links]
"""Returns what may be linked to in an agent's question."""


def links_by_producer(producers: Iterable[ProducerSettings]) -> LinksOf:
    """Returns the rules of the configuration: those of the producer that asked, by the token or the stream that the question
    came with, whatever it says. Other programs' questions have no links.
    """
    by_name = {each.name: Links.of(each.links) for each in producers if each.links}

    def links_of(asked: Question) -> Links:
        if asked.producer is None or asked.reply_token is None:
            return NO_LINKS
        return replace(by_name.get(asked.producer, NO_LINKS), exact=asked.is_confirmation)

    return links_of


def linked(parts: Iterable[Part], links: Links) -> Iterator[Part]:
    """Yields the parts of a message or view with links to the addresses that `links` allows. Plain text with one becomes rich
    text; so none is made where only plain text can be: in headings, beside a button, in fields.
    """
    return chain.from_iterable(map(_Linker(links).part, parts)) if links.patterns else iter(parts)


@dataclass
class _Linker:
    """Makes links. `left`: how many more addresses it looks at."""

    links: Links
    left: int = _MOST

    def part(self, part: Part) -> tuple[Part, ...]:
        match part:
            case Rich():
                return (replace(part, elements=tuple(map(self._element, part.elements))),)
            case Section(words, None, ()):
                return (self._words(words) or part,)
            case Context():
                made: list[Part] = []
                for words in part.words:
                    if (rich := self._words(words)) is not None:
                        made.append(rich)
                    elif made and isinstance(last := made[-1], Context):
                        made[-1] = Context((*last.words, words))
                    else:
                        made.append(Context((words,)))
                return tuple(made)
            case _:
                return (part,)

    def _words(self, words: Words) -> Rich | None:
        """Returns plain text as rich text, if there is something to link to."""
        if words.live:
            return None
        runs = self._runs((Run(words.text),))
        return Rich((Lines(runs),)) if any(run.url for run in runs) else None

    def _element(self, element: RichElement) -> RichElement:
        if isinstance(element, Items):
            return replace(element, items=tuple(map(self._runs, element.items)))
        if element.kind == "preformatted":
            return element
        return replace(element, runs=self._runs(element.runs))

    def _runs(self, runs: Runs) -> Runs:
        """Returns the runs with addresses that are links. One that is partly code or in several styles stays text: a reader
        sees it as one.
        """
        judged = list(islice(self.links.judged("".join(run.text for run in runs)), self.left))
        self.left -= len(judged)
        made: list[Run] = []
        end = 0
        for run in runs:
            start, end, at = end, end + len(run.text), 0
            inside = [each for each in judged if start <= each[0] and each[1] <= end]
            for first, last, address in inside if "code" not in run.styles else ():
                if address is None:
                    continue
                made += [
                    replace(run, text=run.text[at : first - start]),
                    replace(run, text=address, url=address),
                ]
                at = last - start
            made.append(replace(run, text=run.text[at:]))
        return tuple(run for run in made if run.text)


def find(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields the https addresses in a text with their start and end, without the punctuation that follows them. Leaves out one
    at which the text was cut.
    """
    for found in _ADDRESS.finditer(text):
        url = _trimmed(found[0])
        if len(url) > len("https://") and not _CUT.match(text, found.end()):
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
