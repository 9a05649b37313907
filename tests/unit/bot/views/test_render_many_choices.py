"""Questions with more or longer choices than Slack's controls hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.views.forms import full_view
from bot.views.page import Matter, Sheet, page_card
from bot.views.render import Message, Renderer
from core.clarification import Clarification
from tests.unit.bot.judges import judge_message, judge_view, labels, shown, walk
from tests.unit.bot.strategies import CONTEXT, NOW, QUESTION, record_of

RENDERER = Renderer()
CHOICES_ONLY: dict[str, Any] = {"accepted_response_kinds": ["multiple_choice"]}
ALL_KINDS: dict[str, Any] = {"accepted_response_kinds": ["multiple_choice", "yes_no", "numeric", "freetext"]}
LONG: dict[str, Any] = {
    "question": "𝔔" * QUESTION, "context": "𝔎" * CONTEXT, "default_response": "𝔇" * CONTEXT,
    "summary_detailed": "𝔖" * QUESTION,
}  # fmt: skip


def choices(count: int, length: int) -> list[dict[str, str]]:
    return [{"value": f"v{n}", "label": f"Nr {n} " + "𝔏" * length} for n in range(1, count + 1)]


def page(record: Clarification) -> Sheet:
    return Sheet(7, NOW, (Matter(1, "escalated", "x", "why", clarification=record.id, record=record),), 1, 1)


def menu(message: Message) -> list[str]:
    selects = [item for item in walk(message.blocks) if item.get("type") == "static_select"]
    return [option["text"]["text"] for each in selects for option in each["options"]]


@pytest.mark.parametrize("kinds", [CHOICES_ONLY, ALL_KINDS], ids=["one kind", "all kinds"])
@pytest.mark.parametrize("around", [{}, LONG], ids=["short", "long"])
@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize(
    ("count", "length"),
    [(99, 40), (100, 1), (100, 70), (100, 1000), (101, 1), (500, 60), (5000, 10), (3, 20_000)],
)
def test_slack_takes_whatever_is_asked(
    count: int, length: int, several: bool, around: dict[str, Any], kinds: dict[str, Any]
) -> None:
    record = record_of(choices=choices(count, length), multi_select=several, **(around | kinds))
    with capture_logs() as logs:
        for verbosity in ("terse", "normal", "detailed"):
            message = RENDERER.card(record, verbosity=verbosity, posted_to_fallback="C0GOOD")
            judge_message(message)
            assert record.id in message.text
            assert record.id in shown(message.blocks)
        judge_message(RENDERER.message(page_card(page(record))))
        judge_message(RENDERER.message(page_card(page(record).bare())))
        judge_view(RENDERER.answer_modal(record))
        first = RENDERER.view(full_view(record))
        judge_view(first)
    assert logs == [], "something was shown as plain text only"
    menued = len(menu(message))
    assert menued == (count if 0 < count <= 100 and not several else 0)
    assert ("Answer…" in labels(message.blocks)) == (several or count > 100 or kinds is ALL_KINDS)
    assert len(message.more) <= 20


def test_card_lists_the_first_of_more_choices_than_a_menu_holds_and_says_where_the_others_are() -> None:
    message = RENDERER.card(record_of(choices=choices(101, 3), **CHOICES_ONLY))
    said = shown(message.blocks)
    assert "10. Nr 10 𝔏𝔏𝔏" in said
    assert "11. " not in said
    assert "… and 91 more under View full" in said
    assert labels(message.blocks) == ["Answer…", "View full"]


def test_what_cannot_be_laid_out_is_shown_as_plain_text_with_id_question_and_how_to_answer() -> None:
    # Another writer's round number, which no control's payload holds.
    record = record_of(question="Which <one>?", choices=choices(7, 3), **CHOICES_ONLY).model_copy(
        update={"round": 10**12}
    )
    with capture_logs() as logs:
        message = RENDERER.card(record)
    judge_message(message)
    for said in (message.text, shown(message.blocks)):
        assert record.id in said
        assert "the number of a choice (1)" in said
    assert "Which &lt;one&gt;?" in message.text
    assert "Which <one>?" in shown(message.blocks)
    assert [(line["log_level"], line["clarification"]) for line in logs] == [("error", record.id)]
    judge_view(RENDERER.answer_modal(record))


def test_page_that_cannot_be_laid_out_names_question_and_id() -> None:
    record = record_of(question="Which one?", choices=choices(7, 3), **CHOICES_ONLY)
    message = RENDERER.message(page_card(page(record).bare()))
    for said in (message.text, shown(message.blocks)):
        assert record.id in said
        assert "Which one?" in said
        assert "the number of a choice (1)" in said


@pytest.mark.parametrize("title", ["A card could not be posted", "The agent refused the answer"])
def test_page_about_a_question_names_it(title: str) -> None:
    record = record_of(question="Which one?")
    sheet = page(record)
    message = RENDERER.message(
        page_card(replace(sheet, matters=(replace(sheet.matters[0], kind="unplaceable", title=title),)))
    )
    for said in (message.text, shown(message.blocks)):
        assert f"{record.id}: {title}" in said
        assert "Which one?" in said
