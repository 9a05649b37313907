"""Turns drafts into Block Kit through the templates. The only loader of the message templates.

The other modules of this folder decide what is shown, and in which order. The templates have a macro per kind of
part, which decides how it looks. The result is sealed and checked before sending.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from jinja2 import PackageLoader, StrictUndefined
from jinja2.nativetypes import NativeEnvironment

from bot.errors import BadPress, RenderError
from bot.views import blockkit, card, forms
from bot.views.blockkit import NOT_IN_MESSAGES, Block, Draft, Part, View, classic, newer
from bot.views.codec import seal, seal_controls
from bot.views.links import NO_LINKS, LinksOf, linked
from bot.views.wording import Verbosity
from core.clarification import Clarification, Question

_log = structlog.get_logger("clarify.render")
_NOT_WHOLE = "Slack cannot show all of this, so it cannot be accepted here. Reject it, or have the agent ask for less at a time."
_NO_VALUE: tuple[object, ...] = (None, "", [], {})
_encoded = json.JSONEncoder(sort_keys=True).encode


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
