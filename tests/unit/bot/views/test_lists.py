"""Several questions in one message: commands' answers, roll-up cards and their list, which question was meant."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.views.blockkit import Draft
from bot.views.codec import ListPress, Press, unseal
from bot.views.lists import (
    PAGE_SIZE,
    ROLLUP_PAGE,
    ListRow,
    Offer,
    listing,
    rollup,
    rollup_modal,
    row,
    unread,
    which_question,
)
from core.clarification import Clarification, Holder
from core.summary import ListPage, page_of
from core.transitions import escalated, taken
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, judge_message, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, open_records, record_of
from tests.unit.bot.views.kit import judged

LINK = "https://local.slack.example/archives/C0GOOD/p1"


def test_rollup_counts_and_offers_the_first_five() -> None:
    records = [record_of(issue=n, question=f"Question {n}?") for n in range(1, 8)]
    message = judged(rollup(records, 27, NOW, "planner"))
    assert labels(message.blocks) == ["Answer…"] * 5 + ["Show all"]
    assert "planner: 27 open questions" in message.text
    assert "24 May 2026, 14:22 UTC" in message.text
    assert "Question 5?" in shown(message.blocks)
    assert "And 22 more." in message.text
    values = [Press.unpack(unseal(item["value"])[1]) for item in walk(message.blocks) if "value" in item]
    assert values[-1] == Press("list", "CLR-1-001", 1, "1")


@pytest.mark.parametrize(
    ("page", "total", "turns", "note"),
    [
        (1, 7, [], "7 open questions · page 1 of 1"),
        (2, 41, ["Previous", "Next"], "41 open questions · page 2 of 3"),
        (9, 41, ["Previous"], "41 open questions · page 3 of 3"),
    ],
)
def test_rollup_modal_turns_pages(page: int, total: int, turns: list[str], note: str) -> None:
    records = [record_of(issue=n) for n in range(1, total + 1)]
    view = RENDERER.view(rollup_modal(page_of(records, page, ROLLUP_PAGE)))
    judge_view(view)
    assert [label for label in labels(view) if label != "Answer…"] == turns
    assert note in shown(view)
    assert view["callback_id"] == "clarify.list"


@pytest.mark.parametrize(("count", "buttons"), [(2, 2), (10, 10), (11, 0), (120, 0)])
def test_which_question_asks_with_buttons_or_a_menu(count: int, buttons: int) -> None:
    records = [
        record_of(issue=n, question="Deploy to production now? " + "x" * 200) for n in range(1, count + 1)
    ]
    message = judged(which_question(records, "1716561732.123456"))
    assert message.text.startswith("Which question is this an answer to?\n1. CLR-1-001: “Deploy")
    assert len(labels(message.blocks)) == buttons
    values = [Press.unpack(unseal(item["value"])[1]) for item in walk(message.blocks) if "value" in item]
    assert len(values) == min(count, 100)
    assert {each.arg for each in values} == {"1716561732.123456"}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(open_records(), min_size=1, max_size=25, unique_by=lambda record: record.id))
def test_lists_are_taken_by_slack_and_inert(records: list[Clarification]) -> None:
    judge_message(
        RENDERER.message(rollup(records, len(records) + 7, records[0].asked.expires_at, records[0].from_))
    )
    judge_view(RENDERER.view(rollup_modal(ListPage(tuple(records[:20]), 2, 4, 61))))
    which = RENDERER.message(which_question(records, "1716561732.123456"))
    judge_message(which)
    values = [unseal(item["value"])[1] for item in walk(which.blocks) if "value" in item]
    assert [Press.unpack(value).clarification for value in values] == [record.id for record in records]


def test_row_of_an_escalated_one_offers_take_and_names_its_holder() -> None:
    record = escalated(record_of(), "stale", "Nobody answered.", NOW)
    message = RENDERER.message(_one(record, Offer(answer=True, take=True, link=LINK)))
    assert labels(message.blocks) == ["Answer…", "View full", "Take"]
    assert f"<{LINK}|{record.id}>" in shown(message.blocks)
    assert "escalated (overdue)" in message.text

    held = taken(record, Holder(user="U0GOOD", at=NOW))
    message = judged(_one(held, Offer(answer=True)))
    assert labels(message.blocks) == ["Answer…", "View full"]
    assert "Claimed by <@U0GOOD>" in message.text


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://x.example/|<!channel>", "https://x.example/a b"]
)
def test_what_is_no_address_is_no_link(link: str) -> None:
    message = judged(_one(record_of(), Offer(link=link)))
    assert link not in shown(message.blocks)


def test_unreadable_ledger_leaves_the_row_without_controls() -> None:
    message = RENDERER.message(listing("Open", _page(unread("CLR-1-001", "")), query=""))
    assert labels(message.blocks) == []
    assert "cannot be read" in message.text


@pytest.mark.parametrize(
    ("page", "pages", "turns"),
    [(1, 1, []), (1, 2, ["Next"]), (2, 2, ["Previous"]), (2, 3, ["Previous", "Next"])],
)
def test_pages_have_what_turns_them(page: int, pages: int, turns: list[str]) -> None:
    shown_here = ListPage((row(record_of(), Offer(), 0),), page, pages, 8 * pages)
    answer = listing("Open", shown_here, query="#42")
    blocks = RENDERER.message(answer).blocks
    buttons = [each for each in walk(blocks) if each.get("action_id", "").startswith("list.page")]
    assert labels(buttons) == turns
    presses = [ListPress.unpack(unseal(each["value"])[1]) for each in buttons]
    assert all(press.arg == "#42" for press in presses)
    assert [press.number for press in presses] == [page + (1 if turn == "Next" else -1) for turn in turns]


def _page(*rows: ListRow) -> ListPage[ListRow]:
    return page_of(rows, 1, PAGE_SIZE)


def _one(record: Clarification, offer: Offer) -> Draft:
    return listing(record.id, _page(row(record, offer, 0)), query=record.id)


@pytest.mark.parametrize("said_by_agents", ["x" * 4000, "&<>" * 1300, "é" * 4000], ids=["x", "&", "é"])
def test_list_of_the_longest_questions_fits(said_by_agents: str) -> None:
    found = [
        taken(escalated(record_of(question=said_by_agents, producer={"agent_id": said_by_agents}), "stale", "W.", NOW),
              Holder(user="U0GOOD", at=NOW))
        for _ in range(PAGE_SIZE)
    ]  # fmt: skip
    rows = [row(each, Offer(answer=True, take=True), n) for n, each in enumerate(found)]

    message = RENDERER.message(listing("Open", ListPage(tuple(rows), 1, 13, 99), query="", notes=["8"]))
    judge_message(message)
    assert "&" in said_by_agents or message.text.count(found[0].id) == PAGE_SIZE  # read aloud to its end
