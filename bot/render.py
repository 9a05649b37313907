"""Records and events → templates → Block Kit that Slack takes. The only loader of the message templates.

What is shown is decided by `bot.card`, `bot.forms` and `bot.notices`; the templates lay it out and every
value in them is JSON-encoded; the result is parsed and checked before it leaves.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bot import blockkit, codec, inert
from bot.blockkit import SECTION, TITLE, Block
from bot.card import open_card, pieces, settled_card
from bot.forms import MODAL_TEXT_LIMIT, answer_form, full_page
from bot.readout import open_text, settled_text
from bot.rounds import Verbosity, round_of, words
from bot.submission import VALUE_ACTION
from core.clarification import Clarification


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `text` (≤ 4000) is read aloud and shown in notifications; it is escaped and goes out
    with `mrkdwn: false, parse: "none"`. `more`: the whole in pieces (≤ 3900 each, escaped as well), to be
    posted into the thread where `text` holds only the beginning.
    """

    text: str
    blocks: list[dict[str, Any]]
    more: tuple[str, ...] = ()


class Renderer:
    """Builds every message and modal. Pure but for the templates, which are read once."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("templates", package_path=""),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
        )

    def card(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        verbosity: Verbosity = "normal",
        posted_to_fallback: str | None = None,
    ) -> Message:
        """The card of one round: the current one, or an earlier one, which is always closed.

        Args:
            record: as found in the ledger.
            round: from 1; None is the current one.
            verbosity: of the route.
            posted_to_fallback: the channel id that this card was meant for, where it could not be used.

        Raises:
            RenderError: the result breaks a limit of Slack's: a fault of ours.
        """
        shown = round_of(record, round)
        if shown.stage == "open":
            text, more = open_text(shown)
            card = open_card(shown, verbosity, text, posted_to_fallback)
        else:
            text, more = settled_text(shown), ()
            card = settled_card(shown, text)
        return self._message(text, more, f"{record.id}.{record.revision}", "card", card=card)

    def answer_modal(self, record: Clarification) -> dict[str, Any]:
        """The modal behind Answer…: the current round's question in full, and its inputs."""
        form = answer_form(round_of(record))
        return self._view(
            "answer_modal",
            form=form,
            callback_id=codec.ANSWER_CALLBACK,
            value_action=VALUE_ACTION,
            text_limit=MODAL_TEXT_LIMIT,
        )

    def full_view(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        page: int = 1,
    ) -> dict[str, Any]:
        """The modal behind View full: everything, in pages where one view cannot hold it."""
        shown = round_of(record, round)
        return self._view("full_modal", page=full_page(shown, page), callback_id=codec.VIEW_CALLBACK)

    def loading_modal(self) -> dict[str, Any]:
        """What is opened within the trigger's 3 seconds, to be filled later."""
        return self.message_modal("One moment", "Loading…")

    def message_modal(self, title: str, text: str) -> dict[str, Any]:
        """A modal that says something."""
        sections = pieces(words(text), SECTION)[: blockkit.VIEW_BLOCKS]
        return self._view(
            "text_modal", title=inert.clip(inert.line(title) or "Notice", TITLE), sections=sections
        )

    def _message(self, text: str, more: tuple[str, ...], stem: str, template: str, **model: Any) -> Message:
        blocks: list[Block] = self._json(template, model)
        for index, block in enumerate(blocks):
            block["block_id"] = f"{stem}.{_digest(block)}.{index}"
        blockkit.check_message(text, blocks)
        return Message(text, blocks, more)

    def _view(self, template: str, **model: Any) -> dict[str, Any]:
        view: dict[str, Any] = self._json(template, model)
        blockkit.check_view(view)
        return view

    def _json(self, template: str, model: dict[str, Any]) -> Any:
        return json.loads(self._templates.get_template(f"slack/{template}.json.j2").render(model))


def _digest(block: Block) -> str:
    """Tells apart what changed without a new revision: other writers of ledgers need not count."""
    return hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest()[:8]
