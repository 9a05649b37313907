"""Turns drafts into Block Kit through the templates. The only loader of the message templates.

The other modules of this folder decide what is shown, and in which order. The templates have a macro per kind of part, which
decides how it looks. The result is sealed and checked before sending.

Addresses in an agent's text become links only here (`linked`), and only if `links` of the producer that asked allows it. They are
shown in full, in the spelling that the browser opens: no label can hide where they lead. Everything else stays text.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import structlog
from jinja2 import PackageLoader, StrictUndefined
from jinja2.nativetypes import NativeEnvironment

from bot.errors import BadPress, RenderError
from bot.settings.addresses import WebUrl, link_pattern, link_url
from bot.settings.model import ProducerSettings
from bot.views import blockkit, card, forms
from bot.views.blockkit import (
    NOT_IN_MESSAGES,
    Block,
    Context,
    Draft,
    Items,
    Lines,
    Part,
    Rich,
    RichElement,
    Run,
    Runs,
    Section,
    View,
    Words,
    classic,
    newer,
)
from bot.views.codec import seal, seal_controls
from bot.views.wording import Verbosity
from core.clarification import Clarification, Question

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
_log = structlog.get_logger("clarify.render")
_NOT_WHOLE = "Slack cannot show all of this, so it cannot be accepted here. Reject it, or have the agent ask for less at a time."
_NO_VALUE: tuple[object, ...] = (None, "", [], {})
_encoded = json.JSONEncoder(sort_keys=True).encode


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


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """A message. `text` (≤ 4000) is read aloud and shown in notifications; it is escaped and sent with `mrkdwn:
    false, parse: "none"`. `more`: if `text` is only the beginning, the whole in pieces for the thread, plain text (≤
    3900 each once escaped).
    """

    text: str
    blocks: list[dict[str, Any]]
    more: tuple[str, ...] = ()


class _Layouts(NativeEnvironment):
    """Templates whose macros return their one value, never text to be parsed."""

    @staticmethod
    def concat(values: Iterable[Any]) -> Any:
        (value,) = values
        return value


def _given(block: Block) -> Block:
    """Removes keys without a value."""
    return {key: value for key, value in block.items() if value not in _NO_VALUE}


def _each(macro: Callable[[Any], Block], items: Iterable[Any]) -> list[Block]:
    return [macro(item) for item in items]


@functools.cache
def _layouts() -> Mapping[str, Callable[..., Any]]:
    """Returns the templates' macros by name. Cached: compiling takes longer than most messages."""
    made = _Layouts(
        loader=PackageLoader("templates", package_path=""), undefined=StrictUndefined, auto_reload=False
    )
    made.globals.update(given=_given, each=_each)
    module = made.get_template("slack/blocks.json.j2").module
    return {name: macro for name, macro in vars(module).items() if callable(macro)}


class Renderer:
    """Lays out every message and modal. Pure except for reading the templates once.

    `installation`: our id, which seals every control. `links_of`: what may be clicked in an agent's text.
    """

    def __init__(self, installation: str, links_of: LinksOf = lambda _: NO_LINKS) -> None:
        self._installation = installation
        self._links_of = links_of
        self._layouts = _layouts()

    def card(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        verbosity: Verbosity = "normal",
        posted_to_fallback: str | None = None,
        asks_an_agent: bool = False,
        shrinks: bool = False,
    ) -> RenderedMessage:
        """Returns the card of a question (`bot.views.card`). Falls back to plain text if it cannot be laid out:
        people must see it, whatever an agent put into it.
        """
        try:
            return self.message(
                card.card(
                    record,
                    round=round,
                    verbosity=verbosity,
                    posted_to_fallback=posted_to_fallback,
                    asks_an_agent=asks_an_agent,
                    shrinks=shrinks,
                )
            )
        except Exception:  # noqa: BLE001 - logged with the id
            _log.exception("cannot lay out a card; showing plain text", clarification=record.id)
        return self.message(card.plain_card(record, round))

    def shows_whole(self, record: Clarification, verbosity: Verbosity = "normal") -> bool:
        """Returns whether the card of an open question shows everything that is decided on (`bot.views.card.shows_whole`). One
        that cannot be laid out does not: people see plain text.
        """
        try:
            self.message(card.card(record, verbosity=verbosity))
        except Exception:  # noqa: BLE001 - logged where it is shown
            return False
        return card.shows_whole(record, verbosity)

    def answer_modal(self, record: Clarification, locale: str = "", reader: str = "") -> dict[str, Any]:
        """Returns the modal behind Answer… or, if it cannot be laid out, how to answer without it. `reader`: a Slack user, and
        their `locale`.
        """
        try:
            return self.view(forms.answer_modal(record, locale, reader))
        except (RenderError, BadPress):
            _log.exception("cannot lay out a question as a form", clarification=record.id)
        return self.view(forms.plain_answer_modal(record))

    def accept_modal(self, record: Clarification, page: int, locale: str = "") -> dict[str, Any]:
        """Returns the modal behind Accept on a cut card. If it cannot be laid out, the modal says that this cannot be
        accepted.
        """
        try:
            return self.view(forms.accept_modal(record, page, locale))
        except (RenderError, BadPress):
            _log.exception("cannot lay out an action for approval", clarification=record.id)
        return self.view(forms.message_modal("Not accepted", _NOT_WHOLE))

    def message(self, draft: Draft) -> RenderedMessage:
        """Returns a message for Slack.

        Raises:
            RenderError: it breaks one of Slack's limits: a fault of ours.
        """
        blocks = classic(self._laid_out(draft.parts, draft.asked), NOT_IN_MESSAGES)
        for index, block in enumerate(blocks):
            # Shows changes without a new revision, as other writers of ledgers need not count.
            digest = hashlib.sha256(_encoded(block).encode()).hexdigest()[:8]
            block["block_id"] = f"{draft.stem}.{digest}.{index}"
        blockkit.check_message(draft.text, blocks)
        if kinds := newer(blocks):
            blockkit.check_message(draft.text, classic(blocks, kinds))
        return RenderedMessage(draft.text, blocks, draft.more)

    def view(self, view: View) -> dict[str, Any]:
        """Returns a modal or the Home tab for Slack.

        Raises:
            RenderError: it breaks one of Slack's limits: a fault of ours.
        """
        press = seal(self._installation, view.press) if view.press else view.press
        made: dict[str, Any] = self._layouts["view"](
            replace(view, press=press), self._laid_out(view.parts, view.asked)
        )
        blockkit.check_view(made)
        if kinds := newer(made["blocks"]):
            blockkit.check_view({**made, "blocks": classic(made["blocks"], kinds)})
        return made

    def _laid_out(self, parts: Iterable[Part], asked: Question | None) -> list[Block]:
        """Returns the blocks of the parts, without empty rows."""
        links = NO_LINKS if asked is None else self._links_of(asked)
        blocks = [self._layouts[part.kind](part) for part in linked(parts, links) if part]
        seal_controls(self._installation, blocks)
        return blocks
