"""Drafts → templates → Block Kit that Slack takes. The only loader of the message templates.

What is shown, and in which order, the other modules of this folder decide; the templates say how each part looks in Block
Kit, and every value in them is JSON-encoded; the result is sealed, parsed and checked before it leaves.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from bot.errors import BadPress, RenderError
from bot.views import blockkit, card, forms
from bot.views.blockkit import Block, Draft, Part, View
from bot.views.codec import seal, seal_controls
from bot.views.wording import Verbosity
from core.clarification import Clarification

_log = structlog.get_logger("clarify.render")
_NOT_WHOLE = "Slack cannot show all of this, so it cannot be accepted here. Reject it, or have the agent ask for less at a time."


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `text` (≤ 4000) is read aloud and shown in notifications; it is escaped and goes out
    with `mrkdwn: false, parse: "none"`. `more`: the whole in pieces, plain text (≤ 3900 each once escaped), to be
    posted into the thread where `text` holds only the beginning.
    """

    text: str
    blocks: list[dict[str, Any]]
    more: tuple[str, ...] = ()


@functools.cache
def _templates() -> tuple[Template, Template]:
    """The templates of messages and of views, compiled: once, for that takes longer than most messages."""
    made = Environment(
        loader=PackageLoader("templates", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    return made.get_template("slack/blocks.json.j2"), made.get_template("slack/view.json.j2")


class Renderer:
    """Lays out every message and modal. Pure but for the templates, which are read once.

    `installation`: our id, with which every control is sealed; empty: none is, as in releases before there were seals.
    """

    def __init__(self, installation: str = "") -> None:
        self._installation = installation
        self._blocks, self._view = _templates()

    def card(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        verbosity: Verbosity = "normal",
        posted_to_fallback: str | None = None,
        asks_an_agent: bool = False,
        shrinks: bool = False,
    ) -> Message:
        """The card of a question (`bot.views.card`).

        What cannot be laid out is shown as plain text: it has to be seen, whatever an agent put into it.
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
        except Exception:  # noqa: BLE001 - told with where
            _log.exception("cannot lay out a card; showing plain text", clarification=record.id)
        return self.message(card.plain_card(record, round))

    def answer_modal(self, record: Clarification) -> dict[str, Any]:
        """The modal behind Answer…, or how to answer without it where it cannot be laid out."""
        try:
            return self.view(forms.answer_modal(record))
        except (RenderError, BadPress):
            _log.exception("cannot lay out a question as a form", clarification=record.id)
        return self.view(forms.plain_answer_modal(record))

    def accept_modal(self, record: Clarification, page: int) -> dict[str, Any]:
        """The modal behind the Accept of a card that leaves out parts, or that this cannot be accepted where it cannot be
        laid out.
        """
        try:
            return self.view(forms.accept_modal(record, page))
        except (RenderError, BadPress):
            _log.exception("cannot lay out an action for approval", clarification=record.id)
        return self.view(forms.message_modal("Not accepted", _NOT_WHOLE))

    def message(self, draft: Draft) -> Message:
        """A message as Slack takes it.

        Raises:
            RenderError: it breaks a limit of Slack's: a fault of ours.
        """
        blocks: list[Block] = json.loads(self._blocks.render(parts=_shown(draft.parts)))
        if self._installation:
            seal_controls(self._installation, blocks)
        for index, block in enumerate(blocks):
            block["block_id"] = f"{draft.stem}.{_digest(block)}.{index}"
        blockkit.check_message(draft.text, blocks)
        return Message(draft.text, blocks, draft.more)

    def view(self, view: View) -> dict[str, Any]:
        """A modal, or the Home tab, as Slack takes it.

        Raises:
            RenderError: it breaks a limit of Slack's: a fault of ours.
        """
        made: dict[str, Any] = json.loads(self._view.render(view=view, parts=_shown(view.parts)))
        if self._installation:
            seal_controls(self._installation, made["blocks"])
            if view.press:
                made["private_metadata"] = seal(self._installation, view.press)
        blockkit.check_view(made)
        return made


def _shown(parts: tuple[Part, ...]) -> list[Part]:
    """Without rows that hold nothing."""
    return [part for part in parts if part]


def _digest(block: Block) -> str:
    """Tells apart what changed without a new revision: other writers of ledgers need not count."""
    return hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest()[:8]
