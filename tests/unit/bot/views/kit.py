"""What the tests of the views share: events, incidents of pages, and messages that Slack takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bot.views.blockkit import Draft
from bot.views.page import PageContent, PageItem
from bot.views.render import Message
from core.aaep import Event, parse_event
from core.clarification import Clarification, Entry
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, judge_message, labels, shown
from tests.unit.bot.strategies import NOW


def judged(draft: Draft) -> Message:
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

    def judge(self, message: Message) -> None:
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


def menu(message: Message) -> list[str]:
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
