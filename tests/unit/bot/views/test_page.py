"""Pages, and messages about turns on call: whole in blocks and in the text alone, inert, and never too large for Slack."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.views import inert
from bot.views.codec import PagePress
from bot.views.forms import hand_modal
from bot.views.inert import TEXT_LIMIT, size
from bot.views.page import (
    LISTED,
    ItemState,
    Note,
    PageItem,
    ShiftBegins,
    ShiftEnds,
    outside_words,
    page_card,
    shift_card,
)
from core.clarification import Clarification
from core.transitions import amended
from tests.unit.bot.judges import RENDERER, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, record_of
from tests.unit.bot.views.kit import about, content, item, judged, told_why

CONTROLS = ["Take", "Hand to…", "Snooze", "Not mine"]


POSITIONS = "Stuck: the agents go round in circles.\nplanner: 65\nreviewer: 67\nOptions: 65, 67"
HOSTILE = "<!channel> *now* <@U0EVE> https://evil.example &"


def asking(**more: Any) -> PageItem:
    return about(told_why(record_of(), POSITIONS), **more)


def test_page_of_a_stale_question_does_not_say_the_question_twice() -> None:
    record = record_of()
    stale = amended(record, escalated_for="stale")
    found = told_why(stale, f"No answer, even after a reminder.\nplanner asks human: “{record.question}”")
    seen = shown(judged(page_card(content(about(found)))).blocks)
    assert "Why: No answer, even after a reminder." in seen
    assert seen.count(record.question) == 1


@pytest.mark.parametrize(
    ("more", "covered", "said", "controls"),
    [
        ({}, False, "", CONTROLS),
        ({"who": "U0GOOD", "handed": True}, False, "Handed to <@U0GOOD>", CONTROLS),
        ({"state": "taken", "who": "U0GOOD"}, False, "Claimed by <@U0GOOD>", ["Hand to…"]),
        (
            {"state": "snoozed", "until": NOW + timedelta(minutes=10), "asleep_by": "U0GOOD"},
            False,
            "Snoozed until",
            CONTROLS[:2],
        ),
        ({}, True, "Paged again below", []),
        ({"state": "closed", "who": "U0GOOD"}, False, "Seen by <@U0GOOD>", []),
    ],
)
def test_state_table(more: dict[str, Any], covered: bool, said: str, controls: list[str]) -> None:
    message = judged(page_card(content(item(**more), covered=covered)))
    assert said in message.text
    assert labels(message.blocks) == controls


def test_page_about_many_names_ten_and_counts_the_rest() -> None:
    message = judged(page_card(content(*(item(n) for n in range(1, 11)), count=199)))
    seen = shown(message.blocks)
    assert "Escalated: 199 waiting" in seen
    assert "And 189 more" in seen
    assert "And 189 more" in message.text
    for number in range(1, 11):
        assert f"planner stopped {number}" in seen
        assert f"planner stopped {number}" in message.text
    assert labels(message.blocks)[-4:] == ["Take all", *CONTROLS[1:]]
    assert labels(message.blocks)[:10] == ["Open"] * 10


def test_page_about_many_at_length_lists_what_fits_and_counts_the_rest() -> None:
    long = {"title": "& " * 60, "body": "& word " * 50, "since": NOW, "expires_at": NOW + timedelta(days=1)}
    message = judged(page_card(content(*(item(n, **long) for n in range(1, LISTED + 1)))))
    listed = labels(message.blocks).count("Open")
    assert 0 < listed < LISTED
    assert f"And {LISTED - listed} more." in message.text
    assert message.more == ()


@pytest.mark.parametrize(
    ("states", "note", "controls"),
    [(("taken", "taken"), " · claimed", CONTROLS[1:2]), (("taken", "live"), "", ["Take all", *CONTROLS[1:]])],
)
def test_page_about_many_offers_to_take_them_until_all_are_claimed(
    states: tuple[ItemState, ...], note: str, controls: list[str]
) -> None:
    items = [item(n, state=state, who="U0GOOD") for n, state in enumerate(states, 1)]
    message = judged(page_card(content(*items)))
    assert message.text.startswith(f"Escalated: 2 waiting{note}.")
    assert labels(message.blocks) == ["Open", "Open", *controls]


def test_outside_words_of_a_question_hold_its_context() -> None:
    record = told_why(record_of(context="He is 63 & <b>tired</b>.", default_response="at 67"), POSITIONS)
    _, body = outside_words(content(about(record)))
    assert "\nContext: He is 63 & <b>tired</b>.\nWhy: Stuck" in body
    assert "This is only the beginning" not in body


@pytest.mark.parametrize("long", ["question", "context", "why"])
def test_outside_words_too_long_push_nothing_out(long: str) -> None:
    said = {"question": "Which age?", "context": "He is 63.", "why": POSITIONS}
    said[long] = f"{said[long]} " + "𝔚" * 9000
    record = record_of(question=said["question"], context=said["context"], default_response="at 67")
    record = told_why(record, said["why"])
    _, body = outside_words(content(about(record)))
    for part in ("Which age?", "He is 63.", "Stuck: the agents", "at 67", "The full text is in Slack"):
        assert part in body
    assert inert.size(body) <= 3000


def test_largest_question_fits_and_the_whole_follows(largest: Clarification) -> None:
    record = told_why(largest, "𝔚" * 1500)
    message = judged(page_card(content(about(record))))
    assert "The full text is in this thread" in message.text
    assert message.more
    assert labels(message.blocks)[-4:] == CONTROLS
    judged(page_card(content(item(kind="escalated", record=record), covered=True)))


def test_hand_modal() -> None:
    view = RENDERER.view(hand_modal(PagePress("hand", 7), "CLR-42-001 <!channel>\n" + "x" * 4000))
    judge_view(view)


@pytest.mark.parametrize(
    ("title", "says"), [("A card could not be posted", "A card could not be posted"), ("", "is escalated")]
)
def test_page_about_a_question_names_it(title: str, says: str) -> None:
    """Also one that cannot be laid out as it is (`bare`)."""
    record = record_of(question="Which one?", accepted_response_kinds=["yes_no"])
    made = content(about(record, kind="unplaceable", title=title))
    message = judged(page_card(made if title else made.bare()))
    for said in (message.text, shown(message.blocks)):
        assert record.id in said
        assert says in said
        assert "Which one?" in said
        assert "eply with yes or no" in said


def open_item(title: str = "Planner needs someone", body: str = "Tax") -> PageItem:
    return PageItem(1, "handoff", title, "why", body, since=NOW, link="https://acme.slack.com/archives/C1/p1")


def begins(*items: PageItem, count: int | None = None, notes: tuple[Note, ...] = ()) -> ShiftBegins:
    return ShiftBegins(
        "platform", NOW, ["U0ANN"], ["U0CYD"], "U0DEE", items, len(items) if count is None else count, notes
    )


def test_text_alone_says_all_that_the_blocks_say() -> None:
    taken = replace(open_item("Billing agent stopped"), state="taken", who="U0ANN")
    note = Note("U0ANN", "CLR-42-001", "see the logs")
    ends = ShiftEnds("data", ["U0BEN"], ["CLR-1-001"])
    message = RENDERER.message(shift_card([begins(open_item(), taken, notes=(note,))], [ends], NOW))
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
    message = RENDERER.message(shift_card([begins(open_item(HOSTILE, HOSTILE), notes=notes)], [], NOW))
    for words in (message.text, str(message.blocks)):
        assert "<!channel>" not in words
        assert "<@U0EVE>" not in words


def test_message_about_many_policies_and_items_fits_and_says_that_there_is_more() -> None:
    many = [begins(*[open_item("x" * 150, "y" * 300)] * 10, count=99) for _ in range(60)]
    message = RENDERER.message(shift_card(many, [ShiftEnds("data", ["U0BEN"], [])] * 60, NOW))
    assert size(message.text) <= TEXT_LIMIT
    assert len(message.blocks) <= 50
    assert "There is more." in str(message.blocks)
