from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.commands import grammar
from bot.commands.grammar import Board
from bot.commands.lists import board_lines
from bot.errors import BadPress
from bot.views.blockkit import Draft
from bot.views.codec import ListPress
from bot.views.lists import LINES, PAGE_SIZE, Offer, board, listing, page_of, row, said, unread
from bot.views.render import Renderer
from core.agents import SessionFact
from core.clarification import Clarification, Holder, escalated, taken
from core.index import Summary
from tests.unit.bot.judges import judge_message, labels, shown, walk
from tests.unit.bot.strategies import NOW, open_records, record_of, settled_records, words

RENDERER = Renderer()
LINK = "https://local.slack.example/archives/C0GOOD/p1"


@settings(max_examples=12, deadline=None)
@given(found=st.lists(open_records() | settled_records(), min_size=1, max_size=PAGE_SIZE), may=st.booleans())
def test_any_page_of_any_questions_is_taken_and_inert(found: list[Clarification], may: bool) -> None:
    rows = [row(each, Offer(answer=may, take=may), n) for n, each in enumerate(found)]

    judge_message(RENDERER.message(listing("Open", rows, page=1, total=99, query="", notes=["1 for you"])))


@settings(max_examples=20, deadline=None)
@given(text=words(4000))
@example("1" * 4000)
def test_whatever_is_typed_gets_an_inert_answer(text: str) -> None:
    command = grammar.parse(text)

    if isinstance(command, grammar.Hint):
        judge_message(RENDERER.message(said(command.text, live=False)))


@pytest.mark.parametrize("topic", [None, *grammar.VERBS])
def test_help_fits_and_has_an_example(topic: str | None) -> None:
    message = RENDERER.message(said(grammar.help_text(topic), heading="Help", live=False))

    judge_message(message)
    assert topic is None or "Example: “/clarify" in message.text


def test_row_of_an_escalated_one_offers_take_and_names_its_holder() -> None:
    record = escalated(record_of(), "stale", "Nobody answered.", NOW)
    message = RENDERER.message(_one(record, Offer(answer=True, take=True, link=LINK)))
    assert labels(message.blocks) == ["Answer…", "View full", "Take"]
    assert f"<{LINK}|{record.id}>" in shown(message.blocks)
    assert "escalated (stale)" in message.text

    held = taken(record, Holder(user="U0GOOD", at=NOW))
    message = RENDERER.message(_one(held, Offer(answer=True)))
    assert labels(message.blocks) == ["Answer…", "View full"]
    assert "Taken by <@U0GOOD>" in message.text
    judge_message(message)


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://x.example/|<!channel>", "https://x.example/a b"]
)
def test_what_is_no_address_is_no_link(link: str) -> None:
    message = RENDERER.message(_one(record_of(), Offer(link=link)))
    judge_message(message)
    assert link not in shown(message.blocks)


def test_unreadable_ledger_leaves_the_row_without_controls() -> None:
    message = RENDERER.message(listing("Open", [unread("CLR-1-001", "")], page=1, total=1, query=""))
    assert labels(message.blocks) == []
    assert "cannot be read" in message.text


@pytest.mark.parametrize(
    ("page", "total", "turns"),
    [(1, 8, []), (1, 9, ["Next"]), (2, 9, ["Previous"]), (2, 24, ["Previous", "Next"])],
)
def test_pages_have_what_turns_them(page: int, total: int, turns: list[str]) -> None:
    answer = listing("Open", [row(record_of(), Offer(), 0)], page=page, total=total, query="#42")
    blocks = RENDERER.message(answer).blocks
    buttons = [each for each in walk(blocks) if each.get("action_id", "").startswith("list.page")]
    assert labels(buttons) == turns
    presses = [ListPress.unpack(each["value"]) for each in buttons]
    assert all(press.arg == "#42" for press in presses)
    assert [press.number for press in presses] == [page + (1 if turn == "Next" else -1) for turn in turns]


@pytest.mark.parametrize(("asked", "total", "page"), [(0, 0, 1), (9, 9, 2), (2, 16, 2), (3, 16, 2)])
def test_page_of_stays_within_what_is_there(asked: int, total: int, page: int) -> None:
    assert page_of(asked, total) == page


def test_board_of_many_lines_is_paged() -> None:
    answer = board("Agents", [f"agent {n}" for n in range(LINES + 1)], page=7, query="agents")
    assert "page 2 of 2" in answer.text
    assert f"agent {LINES}" in answer.text
    judge_message(RENDERER.message(answer))


@pytest.mark.parametrize(
    "text", ["", "1|page", "2|page|1|stale", "1|drop|1|x", "1|page|x|stale", "1|page|1|" + "x" * 200]
)
def test_list_press_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadPress):
        ListPress.unpack(text)


@pytest.mark.parametrize(
    "press", [ListPress("page", "#42", 3), ListPress("take", "CLR-42-001"), ListPress("page", "", 1)]
)
def test_list_press_comes_back_as_packed(press: ListPress) -> None:
    assert ListPress.unpack(press.pack()) == press


def _one(record: Clarification, offer: Offer) -> Draft:
    return listing(record.id, [row(record, offer, 0)], page=1, total=1, query=record.id)


@pytest.mark.parametrize(
    "name", ["x" * 400, "&" * 400, "<@U1>*" * 80, "é" * 400], ids=["x", "&", "live", "é"]
)
def test_page_of_a_board_fits_and_is_read_aloud_to_its_end(name: str) -> None:
    waits = [Summary(id=f"CLR-{10**8 + n}-001", issue=1, status="pending", round=1, digest="d", created=NOW,
                     expires_at=None, producer="p", agent_id=f"{n}{name}", session_id=f"s{n}", reply=None,
                     adoptable=False, from_=f"{n % 4}{name}", to=f"{n}{name}", topic="t", blocking=True)
             for n in range(60)]  # fmt: skip
    facts = [
        SessionFact("p", f"s{n}", f"{n % 4}{name}", f"{n % 4}{name}", 10**8, False, NOW) for n in range(60)
    ]

    for kind in ("agents", "ready"):
        lines = board_lines(Board(kind), waits, facts)
        message = RENDERER.message(board("Agents", lines, page=1, query=kind))
        judge_message(message)
        assert not message.text.endswith("…")


@pytest.mark.parametrize("said_by_agents", ["x" * 4000, "&<>" * 1300, "é" * 4000], ids=["x", "&", "é"])
def test_list_of_the_longest_questions_fits(said_by_agents: str) -> None:
    found = [
        taken(escalated(record_of(question=said_by_agents, producer={"agent_id": said_by_agents}), "stale", "W.", NOW),
              Holder(user="U0GOOD", at=NOW))
        for _ in range(PAGE_SIZE)
    ]  # fmt: skip
    rows = [row(each, Offer(answer=True, take=True), n) for n, each in enumerate(found)]

    message = RENDERER.message(listing("Open", rows, page=1, total=99, query="", notes=["8"]))
    judge_message(message)
    assert "&" in said_by_agents or message.text.count(found[0].id) == PAGE_SIZE  # read aloud to its end
