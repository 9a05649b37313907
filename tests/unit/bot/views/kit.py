"""What the tests of the views share: events, incidents of pages, and messages that Slack takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pytest

from bot.home import Admitted, Snapshot, chosen
from bot.routing import audience_of
from bot.views import forms, notices
from bot.views.blockkit import Draft
from bot.views.card import card, plain_card
from bot.views.lists import (
    Offer,
    choice_of,
    decision_row,
    home,
    listing,
    past_row,
    rollup,
    rollup_modal,
    which_question,
)
from bot.views.lists import row as list_row
from bot.views.page import PageContent, PageItem, outside_words, page_card
from bot.views.render import RenderedMessage, Renderer
from bot.views.wording import Verbosity
from core.aaep import Event, parse_event
from core.clarification import Clarification, Entry
from core.summary import PastDecision, page_of
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, judge_message, labels, shown
from tests.unit.bot.strategies import NOW


def judged(draft: Draft) -> RenderedMessage:
    message = RENDERER.message(draft)
    judge_message(message)
    return message


@dataclass(frozen=True)
class Said:
    """What a message of a record says: `both` in its blocks and aloud, `blocks` and `aloud` in one of these, `hidden` in
    neither; its buttons, where they are named, and its menu.
    """

    record: Clarification
    both: tuple[str, ...]
    blocks: Sequence[str]
    aloud: Sequence[str]
    hidden: Sequence[str]
    buttons: list[str] | None
    menu: list[str]
    options: dict[str, Any]

    def judge(self, message: RenderedMessage) -> None:
        seen = shown(message.blocks)
        assert [each for each in (*self.both, *self.blocks) if each not in seen] == []
        assert [each for each in (*self.both, *self.aloud) if each not in message.text] == []
        assert [each for each in self.hidden if each in seen] == []
        assert self.buttons is None or labels(message.blocks) == self.buttons
        assert menu(message) == self.menu


def row(
    record: Clarification,
    *both: str,
    blocks: Sequence[str] = (),
    aloud: Sequence[str] = (),
    hidden: Sequence[str] = (),
    buttons: list[str] | None = None,
    menu: Sequence[str] = (),
    **options: Any,
) -> Any:
    """A row of a table, by what is said first."""
    case = Said(record, both, blocks, aloud, hidden, buttons, [*menu], options)
    return pytest.param(case, id=(*both, *blocks, " ".join(buttons or ()))[0] or "-")


def menu(message: RenderedMessage) -> list[str]:
    selects = [item for item in walk(message.blocks) if item.get("type") == "static_select"]
    return [option["text"]["text"] for each in selects for option in each["options"]]


def event(kind: str, **fields: Any) -> Event:
    """An event `agent.{kind}` of the planner; `fields` are added, or replace others."""
    raw = {
        "type": f"aaep:agent.{kind}",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "planner"},
        "urgency": "critical",
        **fields,
    }
    return parse_event(raw, NOW)


def told_why(record: Clarification, words: str) -> Clarification:
    """The record escalated, in any words."""
    entry = Entry.model_validate(
        {"round": 1, "from": "clarify-bot", "type": "escalation", "body": words, "timestamp": NOW}
    )
    return record.model_copy(update={"status": "escalated", "thread": (*record.thread, entry)})


def item(number: int = 1, **more: Any) -> PageItem:
    """An incident: the planner stopped."""
    fields: dict[str, Any] = {
        "incident": number,
        "kind": "errored",
        "title": f"planner stopped {number}",
        "reason": "permanent",
    }
    return PageItem(**(fields | more))


def about(record: Clarification, **more: Any) -> PageItem:
    """An incident: a question needs a human."""
    fields: dict[str, Any] = {"kind": "escalated", "title": "x", "clarification": record.id, "record": record}
    return item(**(fields | more))


def content(*items: PageItem, count: int | None = None, **more: Any) -> PageContent:
    left = sum(each.state != "closed" for each in items)
    count = len(items) if count is None else count
    return PageContent(7, NOW, items, count, left if count == len(items) else count, **more)


def drafts_of(record: Clarification) -> Iterator[Draft]:
    """Every message about a question, as it stands."""
    for verbosity in get_args(Verbosity):
        yield card(record, verbosity=verbosity, posted_to_fallback="C0GOOD")
    yield card(record, shrinks=True)
    yield plain_card(record)
    paged = about(record, state="live" if record.is_open else "closed")
    yield from (page_card(content(paged)), page_card(content(paged, item(2, body=record.question))))
    yield page_card(content(paged).bare())
    yield listing("Open", page_of([list_row(record, Offer(answer=True), 1)], 1, 1), query="x")
    yield choice_of("Open", [record], "")
    if record.is_open:
        yield notices.nudge(record, ["U0GOOD"])
        yield notices.taken_over(record, "U0GOOD", None)
        yield rollup([record], 3, NOW, record.asked.agent_name or record.from_)
        yield which_question([record, record.model_copy(update={"id": "CLR-42-009"})], "1")
    else:
        yield notices.nudge_over(record, None)


def windows_of(record: Clarification, renderer: Renderer = RENDERER) -> Iterator[dict[str, Any]]:
    """The first pages of every window about a question, and its Home tab."""
    yield from first_pages(lambda page: renderer.view(forms.full_view(record, page=page)))
    if record.is_open:
        yield from first_pages(lambda page: renderer.accept_modal(record, page))
        yield renderer.answer_modal(record)
        yield renderer.view(forms.plain_answer_modal(record))
        yield renderer.view(rollup_modal(page_of([record], 1, 1)))
    every = Admitted(frozenset({audience_of(record)}))
    yield renderer.view(home(chosen(Snapshot(1, [record]), "U0GOOD", every, {})))


def first_pages(window: Callable[[int], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for page in range(1, 4):
        yield (view := window(page))
        if "Next" not in labels(view):
            return


def outside(record: Clarification) -> Iterator[str]:
    """What pagers outside Slack say of a question."""
    paged = about(record, state="live" if record.is_open else "closed")
    yield from (*outside_words(content(paged)), *outside_words(content(paged, item(2))))


def notice_drafts(said: str) -> Iterator[Draft]:
    named = {"producer": {"agent_id": "planner", "agent_name": said}}
    texts = dict.fromkeys(
        ("summary_normal", "error_message", "remediation_hint", "error_code", "error_category"), said
    )
    yield notices.error_notice(event("session.errored", **named, **texts))
    yield notices.error_notice(event("session.errored", error_message=said))
    yield notices.session_notice(event("session.completed", **named, output_summary=said))
    yield notices.session_notice(
        event("session.cancelled", **named, cancelled_by=said, cancellation_reason=said, summary_normal=said)
    )
    yield notices.generic_notice(event("custom.thing", **named, **{said: said}, session_id=said))
    yield notices.generic_notice(event("custom.thing", summary_normal=said))
    broken = {"question": said, "context": said, "choices": [said, {"label": said}]}
    yield notices.generic_notice(event("awaiting.clarification", **named, **broken))
    asks = {
        "action": said,
        "consequence": said,
        "risk_level": said,
        "reversibility": said,
        "default_decision": said,
    }
    yield notices.generic_notice(event("awaiting.confirmation", **named, **asks, extra_context={said: said}))
    handoff = notices.Handoff(said, said, said, "human", said, said, said)
    yield notices.handoff_card(handoff, item())
    yield page_card(content(item(title=notices.handoff_title(handoff), body=notices.handoff_body(handoff))))
    yield notices.tools_notice([notices.ToolLine(said, said, said), notices.ToolLine(said, "success", said)])
    past = PastDecision("CLR-1-001", NOW, said, "closed", said, "", None, ())
    yield listing("Decisions", page_of([decision_row(past_row(past))], 1, 1), query="x")
