"""Messages about turns on call: whole in blocks and in the text alone, inert, and never too large for Slack."""

from __future__ import annotations

from dataclasses import replace

from bot.views.inert import TEXT_LIMIT, size
from bot.views.page import Note, PageItem, ShiftBegins, ShiftEnds, shift_card
from tests.kit.builders import NOW
from tests.unit.bot.judges import RENDERER

HOSTILE = "<!channel> *now* <@U0EVE> https://evil.example &"


def item(title: str = "Planner needs someone", body: str = "Tax") -> PageItem:
    return PageItem(1, "handoff", title, "why", body, since=NOW, link="https://acme.slack.com/archives/C1/p1")


def begins(*items: PageItem, count: int | None = None, notes: tuple[Note, ...] = ()) -> ShiftBegins:
    return ShiftBegins(
        "platform", NOW, ["U0ANN"], ["U0CYD"], "U0DEE", items, len(items) if count is None else count, notes
    )


def test_text_alone_says_all_that_the_blocks_say() -> None:
    taken = replace(item("Billing agent stopped"), state="taken", who="U0ANN")
    note = Note("U0ANN", "CLR-42-001", "see the logs")
    ends = ShiftEnds("data", ["U0BEN"], ["CLR-1-001"])
    message = RENDERER.message(shift_card([begins(item(), taken, notes=(note,))], [ends], NOW))
    assert "https://acme.slack.com/archives/C1/p1" in str(message.blocks)
    for part in (
        "You are no longer on call for data: <@U0BEN> took over. You still hold CLR-1-001.",
        "You are on call for platform until",
        "after <@U0ANN>. <@U0DEE> handed it over. On call with you: <@U0CYD>. Open now: 2.",
        "Planner needs someone: “Tax”",
        "Unclaimed",
        "Claimed by <@U0ANN>",
        "Note by <@U0ANN> on CLR-42-001: see the logs",
    ):
        assert part in message.text
        assert part in str(message.blocks)
    assert "There is more" not in message.text


def test_nobody_on_call_afterwards_is_said() -> None:
    message = RENDERER.message(shift_card([], [ShiftEnds("data", [], [])], NOW))
    assert "No one is on call now; pages go to the fallback channel." in message.text


def test_p8_others_words_are_inert() -> None:
    notes = (Note("U0ANN", HOSTILE, HOSTILE),)
    message = RENDERER.message(shift_card([begins(item(HOSTILE, HOSTILE), notes=notes)], [], NOW))
    for shown in (message.text, str(message.blocks)):
        assert "<!channel>" not in shown
        assert "<@U0EVE>" not in shown


def test_message_about_many_policies_and_items_fits_and_says_that_there_is_more() -> None:
    many = [begins(*[item("x" * 150, "y" * 300)] * 10, count=99) for _ in range(60)]
    message = RENDERER.message(shift_card(many, [ShiftEnds("data", ["U0BEN"], [])] * 60, NOW))
    assert size(message.text) <= TEXT_LIMIT
    assert len(message.blocks) <= 50
    assert "There is more." in str(message.blocks)
