"""Records and events → templates → Block Kit that Slack takes. The only loader of the message templates.

What is shown is decided by `bot.views.card`, `bot.views.forms` and `bot.views.notices`; the templates lay it out and every
value in them is JSON-encoded; the result is parsed and checked before it leaves.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined

from bot.errors import BadPress, RenderError
from bot.views import blockkit, codec, inert, notices
from bot.views.blockkit import SECTION, TITLE, Block
from bot.views.card import open_card, settled_card
from bot.views.forms import answer_form, full_page
from bot.views.handoff import Handoff, handoff_notice
from bot.views.home import CALLBACK as HOME_CALLBACK
from bot.views.home import Home
from bot.views.listing import Listing
from bot.views.locale import directed
from bot.views.nudge import Nudge, nudge, nudge_over, rollup_nudge, rollup_nudge_over
from bot.views.pagecard import page_card
from bot.views.pagecodec import HAND_ACTION, HAND_BLOCK, HAND_CALLBACK, PagePress
from bot.views.pagesheet import Matter, Sheet
from bot.views.pagetext import page_text
from bot.views.parts import pieces
from bot.views.readout import open_text, plain_text, settled_text
from bot.views.rollup import WHICH, listing, rollup, which
from bot.views.rounds import Round, Verbosity, round_of, words
from bot.views.seal import seal, seal_controls
from bot.views.submission import VALUE_ACTION
from bot.views.toollines import ToolLine, told
from core.aaep import Event
from core.clarification import Clarification

_log = structlog.get_logger("clarify.render")


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
def _templates() -> Environment:
    """All message templates, compiled: once, for that takes longer than most messages."""
    made = Environment(
        loader=PackageLoader("templates", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    for name in made.list_templates(filter_func=lambda name: name.startswith("slack/")):
        made.get_template(name)
    return made


class Renderer:
    """Builds every message and modal. Pure but for the templates, which are read once.

    `installation`: our id, with which every control is sealed; empty: none is, as in releases before there were seals.
    """

    def __init__(self, installation: str = "") -> None:
        self._installation = installation
        self._templates = _templates()

    def card(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        verbosity: Verbosity = "normal",
        posted_to_fallback: str | None = None,
        asks_an_agent: bool = False,
    ) -> Message:
        """The card of one round: the current one, or an earlier one, which is always closed.

        Args:
            record: as found in the ledger.
            round: from 1; None is the current one.
            verbosity: of the route.
            posted_to_fallback: the channel id that this card was meant for, where it could not be used.
            asks_an_agent: an agent is asked for the answer, too.

        What cannot be laid out is shown as plain text: it has to be seen, whatever an agent put into it.
        """
        shown = replace(round_of(directed(record), round), asks_an_agent=asks_an_agent)
        try:
            return self._laid_out(shown, verbosity, posted_to_fallback)
        except Exception:  # noqa: BLE001 - told with where
            _log.exception("a card cannot be laid out; it is shown as plain text", clarification=record.id)
        said, more = plain_text(shown)
        return self._message(
            inert.fallback(said), more, "plain", "tools", sections=pieces(inert.plain(said), SECTION)
        )

    def _laid_out(self, shown: Round, verbosity: Verbosity, posted_to_fallback: str | None) -> Message:
        record = shown.record
        if shown.stage == "open":
            text, more = open_text(shown)
            card = open_card(shown, verbosity, text, posted_to_fallback)
        else:
            text, more = settled_text(shown), ()
            card = settled_card(shown, text)
        return self._message(text, more, f"{record.id}.{record.revision}", "card", card=card)

    def answer_modal(self, record: Clarification) -> dict[str, Any]:
        """The modal behind Answer…: the current round's question in full, and its inputs."""
        shown = round_of(directed(record))
        try:
            form = answer_form(shown)
            return self._view(
                "answer_modal",
                form=form,
                callback_id=codec.ANSWER_CALLBACK,
                value_action=VALUE_ACTION,
                text_limit=form.text_limit,
            )
        except (RenderError, BadPress):
            _log.exception("a question cannot be laid out as a form", clarification=record.id)
            return self.message_modal("Answer", f"Answer in the thread, please.\n{plain_text(shown)[0]}")

    def full_view(
        self,
        record: Clarification,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
        page: int = 1,
    ) -> dict[str, Any]:
        """The modal behind View full: everything, in pages where one view cannot hold it."""
        shown = round_of(directed(record), round)
        return self._view("full_modal", page=full_page(shown, page), callback_id=codec.VIEW_CALLBACK)

    def message_modal(self, title: str, text: str) -> dict[str, Any]:
        """A modal that says something."""
        sections = pieces(words(text), SECTION)[: blockkit.VIEW_BLOCKS]
        return self._view(
            "text_modal", title=inert.clip(inert.line(title) or "Notice", TITLE), sections=sections
        )

    def error_notice(self, event: Event) -> Message:
        """`agent.session.errored`: what went wrong, what to do, where to read more."""
        return self._notice(notices.error_notice(event))

    def generic_notice(self, event: Event) -> Message:
        """Any critical event that no card can show."""
        return self._notice(notices.generic_notice(event))

    def unrecorded_notice(self, event: Event, reason: str) -> Message:
        """A critical event that cannot be recorded yet, and why."""
        return self._notice(notices.unrecorded_notice(event, reason))

    def ledgers_refuse(self, reason: str) -> Message:
        """Ledgers cannot be written: the head of the thread with what was asked meanwhile."""
        return self._notice(notices.ledgers_refuse(reason))

    def ledgers_again(self) -> Message:
        """All of it could be recorded."""
        return self._notice(notices.ledgers_again())

    def storage_began(self, path: str, count: int) -> Message:
        """The storage is new, beside ledgers in which `count` questions are open."""
        return self._notice(notices.storage_began(path, count))

    def handoff_card(self, handoff: Handoff, matter: Matter) -> Message:
        """The card of a handoff; `matter` is what on-call is paged for, as it stands."""
        return self._notice(handoff_notice(handoff, matter))

    def session_notice(self, event: Event) -> Message:
        """A session that was completed or cancelled."""
        return self._notice(notices.session_notice(event))

    def consent_notice(self, record: Clarification, by: str) -> Message:
        """That another program wrote an acceptance into a ledger, which does not count."""
        return self._notice(notices.consent_notice(record, by))

    def tools_notice(self, lines: Sequence[ToolLine]) -> Message:
        """Several tool results in one message: failures each on a line, successes folded."""
        said = told(lines)
        return self._message(inert.fallback(said), (), "tools", "tools", sections=pieces(said, 2000))

    def nudge(self, record: Clarification, answerers: Sequence[str]) -> Message:
        """The reminder of an open question; of its route's `answerers`, users and groups are called."""
        return self._nudge(nudge(directed(record), answerers))

    def nudge_over(self, record: Clarification, round: int | None) -> Message:  # noqa: A002 - the protocol's word
        """The reminder of a round that takes no answer any more."""
        return self._nudge(nudge_over(directed(record), round))

    def rollup_nudge_over(self, agent: str) -> Message:
        """The reminder of a roll-up card that has no open question any more."""
        return self._nudge(rollup_nudge_over(agent))

    def rollup_nudge(
        self, agent: str, count: int, oldest_deadline: datetime | None, answerers: Sequence[str]
    ) -> Message:
        """The reminder of `count` open questions on a roll-up card."""
        return self._nudge(rollup_nudge(agent, count, oldest_deadline, answerers))

    def page_card(self, sheet: Sheet) -> Message:
        """A page to whoever is on call: what has to be taken, all that is needed to decide it, the controls.

        Raises:
            RenderError: the result breaks a limit of Slack's: a fault of ours.
        """
        text, more = page_text(sheet)
        return self._message(text, more, f"page.{sheet.page}", "page", page=page_card(sheet, text))

    def hand_modal(self, press: PagePress, what: str) -> dict[str, Any]:
        """The modal behind Hand to…; `what` is handed over, one line."""
        return self._view(
            "hand_modal",
            callback_id=HAND_CALLBACK,
            press=press.pack(),
            text=f"Hand over {inert.clip(inert.line(what), 200)}. The person gets a page at once.",
            block=HAND_BLOCK,
            action=HAND_ACTION,
        )

    def rollup(
        self, records: Sequence[Clarification], count: int, oldest_deadline: datetime | None, agent: str
    ) -> Message:
        """One card in place of many: `records` are the most urgent (none: all are closed), `count` all of them."""
        card = rollup([directed(each) for each in records], count, oldest_deadline, agent)
        return self._message(card.text, (), "rollup", "rollup", rollup=card)

    def rollup_modal(self, records: Sequence[Clarification], page: int, total: int) -> dict[str, Any]:
        """Page `page` (from 1, `rollup.PAGE_SIZE` each) of `total` open questions; `records` are the page's."""
        return self._view(
            "rollup_modal",
            listing=listing([directed(each) for each in records], page, total),
            callback_id=codec.LIST_CALLBACK,
        )

    def home(self, home: Home) -> dict[str, Any]:
        """The Home tab of one person."""
        return self._view("home", home=home, callback_id=HOME_CALLBACK)

    def which_question(self, records: Sequence[Clarification], text_id: str) -> Message:
        """Asks which of several open questions a reply belongs to; `text_id` names the waiting reply."""
        asked = which([directed(each) for each in records], text_id)
        return self._message(asked.text, (), "which", "which", which=asked, title=WHICH)

    def _nudge(self, said: Nudge) -> Message:
        return self._message(said.text, (), "nudge", "nudge", nudge=said)

    def command_answer(self, answer: Listing) -> Message:
        """What a command answers with: words, or clarifications in rows with their buttons."""
        return self._message(answer.text, (), "listing", "listing", listing=answer)

    def _notice(self, notice: notices.Notice) -> Message:
        fitted = notices.laid(notice)
        return self._message(fitted.text, fitted.more, "notice", "notice", notice=fitted)

    def _message(self, text: str, more: tuple[str, ...], stem: str, template: str, **model: Any) -> Message:
        blocks: list[Block] = self._json(template, model)
        if self._installation:
            seal_controls(self._installation, blocks)
        for index, block in enumerate(blocks):
            block["block_id"] = f"{stem}.{_digest(block)}.{index}"
        blockkit.check_message(text, blocks)
        return Message(text, blocks, more)

    def _view(self, template: str, **model: Any) -> dict[str, Any]:
        view: dict[str, Any] = self._json(template, model)
        if self._installation:
            seal_controls(self._installation, view["blocks"])
            if view.get("private_metadata"):
                view["private_metadata"] = seal(self._installation, view["private_metadata"])
        blockkit.check_view(view)
        return view

    def _json(self, template: str, model: dict[str, Any]) -> Any:
        return json.loads(self._templates.get_template(f"slack/{template}.json.j2").render(model))


def _digest(block: Block) -> str:
    """Tells apart what changed without a new revision: other writers of ledgers need not count."""
    return hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest()[:8]
