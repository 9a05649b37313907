"""Several questions in one message: commands' answers, roll-up cards and their list, which question was meant."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.home import Admitted, Snapshot, chosen
from bot.routing import Audience
from bot.views.blockkit import Draft
from bot.views.codec import HomePress, ListPress, Press, unseal
from bot.views.lists import (
    PAGE_SIZE,
    PAGE_SIZES,
    ROLLUP_PAGE,
    STRANGER,
    UNSURE,
    DutyLine,
    ListRow,
    Offer,
    QuestionRow,
    home,
    listing,
    rollup,
    rollup_modal,
    row,
    unread,
    which_question,
)
from bot.views.render import Renderer
from core.clarification import Clarification, Holder
from core.index import BlockedOn
from core.summary import Decided, DecidedBy, ListPage, page_of
from core.transitions import escalated, taken
from tests.kit.clocks import START
from tests.kit.times import judge_times, walk
from tests.unit.bot.judges import NEVER, RENDERER, judge_message, judge_view, labels, shown
from tests.unit.bot.records import ADE, BEA, agent, asked, ready, words
from tests.unit.bot.strategies import NOW, open_records, record_of
from tests.unit.bot.views.kit import judged
from workspace.rules import check_view

LINK = "https://local.slack.example/archives/C0GOOD/p1"
PLANNER = Admitted(frozenset({Audience("planner")}))
HOSTILE = "<!channel> *now* <@U0GOOD> <https://evil.example|x> \u202e`code`\x00" + "𝔔" * 5000
_LIVE = re.compile(r"<@U0[A-Z0-9]+>|<!date\^\d+\^[^|]*\|[^<>]*>")


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


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return RENDERER


def answer(seq: int, question: str, decided: Decided) -> tuple[Audience, QuestionRow]:
    return Audience("planner"), QuestionRow(f"CLR-1-{seq:03d}", "planner", question, START, decided)


def view(renderer: Renderer, snapshot: Snapshot, admitted: Admitted = PLANNER) -> dict[str, Any]:
    shown = chosen(snapshot, ADE, admitted, {"inbox": 2, "taken": 2, "agents": 2})
    return renderer.view(home(shown))


def judge(made: dict[str, Any]) -> None:
    """Slack takes it, and nothing in it is live but the bot's own."""
    assert check_view(made) == []
    judge_times(made)
    actions = [item["action_id"] for item in walk(made) if "action_id" in item]
    assert len(set(actions)) == len(actions)
    for item in walk(made):
        if item.get("type") == "mrkdwn":
            assert item["verbatim"] is True
            assert not re.search("[<>]", _LIVE.sub("", item["text"]))
        if isinstance(item.get("text"), str):
            assert not NEVER.search(item["text"])
    json.dumps(made, ensure_ascii=False).encode()


def full(text: str) -> Snapshot:
    """More of everything than fits on a page, each with words as long and as bad as they come."""
    until = START + timedelta(hours=1)
    questions = [
        asked(seq, topic=text, expires_at=until, taken_by=ADE, round=3, status="escalated")
        for seq in range(1, 40)
    ]
    agents = tuple(
        agent(
            "planner",
            name=text,
            status="blocked",
            depth=depth,
            waits=tuple(BlockedOn("CLR-42-001", f"{text}{n}", START, escalated=False) for n in range(20)),
        )
        for depth in range(40)
    )
    return Snapshot(
        1,
        questions,
        agents=agents,
        ready=tuple(ready("planner", text, ("CLR-42-001",) * (n % 9), name=text) for n in range(40)),
        duties=tuple(DutyLine(text, (ADE, BEA) * 30, text, until) for _ in range(40)),
        answers=tuple(
            answer(n, text, Decided("answered", (DecidedBy(text, BEA if n % 2 else None),), text))
            for n in range(40)
        ),
    )


@pytest.mark.parametrize("text", ["Deploy?", HOSTILE, "", " \n "], ids=["plain", "hostile", "empty", "blank"])
def test_tab_with_more_than_fits_is_taken_by_slack(renderer: Renderer, text: str) -> None:
    made = view(renderer, full(text), admitted=Admitted(frozenset({Audience("planner")}), unsure=True))

    judge(made)
    assert len(made["blocks"]) <= 100
    rows = sum(block["type"] in {"section", "context"} for block in made["blocks"]) - 1
    assert rows == sum(PAGE_SIZES.values()) + PAGE_SIZES["answers"]  # which take two each


def test_tab_of_a_quiet_day_says_so(renderer: Renderer) -> None:
    made = view(renderer, Snapshot(1))

    judge(made)
    said = words(made)
    for sentence in (
        "No questions are waiting for you.",
        "You haven't claimed any questions.",
        "None of the agents you answer is running.",
    ):
        assert sentence in said
    for sentence in (
        "None of the sessions you answer is running.",
        "No on-call policy is configured.",
        "No decisions yet.",
    ):
        assert sentence in said
    assert labels(made) == []


def test_row_of_a_question_says_all_that_counts_and_carries_its_buttons(renderer: Renderer) -> None:
    question = asked(
        7,
        topic="Deploy to production?",
        expires_at=START + timedelta(hours=1),
        round=2,
        status="escalated",
        taken_by=BEA,
    )
    made = view(renderer, Snapshot(1, [question]))

    row, buttons = made["blocks"][1:3]
    assert row["text"]["text"] == "“Deploy to production?”"
    facts = [field["text"] for field in row["fields"]]
    assert facts[0] == "CLR-42-007 · planner, round 2"
    assert facts[1].startswith("Answer by <!date^")
    assert facts[2] == f"Escalated · Claimed by <@{BEA}>"
    assert labels(buttons) == ["Answer…", "View full"]
    assert [HomePress.unpack(unseal(each["value"])[1]) for each in buttons["elements"]] == [
        HomePress("answer", "CLR-42-007", 2),
        HomePress("view", "CLR-42-007", 2),
    ]
    assert buttons["elements"][0]["accessibility_label"] == "Answer CLR-42-007"


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"taken_by": ADE}, "Claimed by you"),
        ({"handed_to": BEA, "status": "escalated"}, f"Escalated · Handed to <@{BEA}>"),
    ],
)
def test_row_of_a_question_says_who_has_it(renderer: Renderer, more: dict[str, Any], state: str) -> None:
    made = view(renderer, Snapshot(1, [asked(**more)]))

    assert made["blocks"][1]["fields"][-1]["text"] == state


def test_pages_are_turned_where_there_are_more(renderer: Renderer) -> None:
    made = view(renderer, Snapshot(1, [asked(seq) for seq in range(1, 26)]))

    assert "My inbox (25), page 2 of 3" in words(made)
    turns = [item for item in walk(made) if item.get("action_id", "").startswith("home.page")]
    assert [(each["text"]["text"], unseal(each["value"])[1]) for each in turns] == [
        ("Previous", "1|page|inbox|1"),
        ("Next", "1|page|inbox|3"),
    ]


def test_lines_of_agents_queue_duty_and_answers(renderer: Renderer) -> None:
    snapshot = Snapshot(
        1,
        agents=(
            agent("architect", status="clarifying", asked=("CLR-1-001",)),
            agent(
                "engineer",
                status="blocked",
                depth=1,
                waits=(BlockedOn("CLR-1-001", "architect", START, escalated=False),),
            ),
        ),
        ready=(
            ready("reviewer", "s2"),
            ready("engineer", "s1", ("CLR-1-001",)),
            ready("writer", "sess_0f3c9a77e1b24d5a"),
            ready("writer", "sess_b81"),
        ),
        duties=(DutyLine("platform", (BEA,), "rotation"), DutyLine("night", ())),
        answers=(
            answer(2, "Port?", Decided("answered", (DecidedBy("user:slack/T/U", BEA),), "8080")),
            answer(
                3,
                "Send it?",
                Decided("approved", (DecidedBy("user:slack/T/U", BEA), DecidedBy("user:os/<root>"))),
            ),
            answer(4, "Drop it?", Decided("rejected", (DecidedBy("u", ADE),), "Reject")),
        ),
    )
    everybody = Admitted(
        frozenset(
            {
                Audience("architect"),
                Audience("engineer"),
                Audience("reviewer"),
                Audience("planner"),
                Audience("writer"),
            }
        )
    )
    said = words(view(renderer, snapshot, admitted=everybody)).splitlines()

    assert "architect: clarifying (CLR-1-001)" in said
    assert "\u2003└ engineer: blocked on architect (CLR-1-001)" in said
    assert any(line.startswith("since <!date^") for line in said)
    assert "🟢 ready: reviewer" in said
    assert "⛔ blocked: engineer; waiting for CLR-1-001" in said
    assert "🟢 ready: writer, session sess_0f3c9a77…" in said
    assert "🟢 ready: writer, session sess_b81" in said
    assert said[said.index("platform:") + 1 : said.index("platform:") + 3] == [f"<@{BEA}>", "rotation"]
    assert said[said.index("night:") + 1].startswith("no one")
    for name, question, how in (
        ("CLR-1-002", "“Port?”", f"answered: “8080” by <@{BEA}>, <!date^"),
        ("CLR-1-003", "“Send it?”", f"approved by <@{BEA}> and user:os/&lt;root&gt;, <!date^"),
        ("CLR-1-004", "“Drop it?”", f"rejected by <@{ADE}>, <!date^"),
    ):
        first = said.index(question)
        assert said[first + 1 : first + 3] == [name, "planner"]
        assert said[first + 3].startswith(how)


@pytest.mark.parametrize(
    ("admitted", "note"),
    [(Admitted(frozenset(), unsure=True), UNSURE), (Admitted(frozenset()), STRANGER)],
)
def test_note_says_why_little_is_shown(renderer: Renderer, admitted: Admitted, note: str) -> None:
    made = view(renderer, Snapshot(1, [asked()]), admitted=admitted)

    judge(made)
    assert words(made["blocks"][0]) == note


def test_inbox_names_an_agent_as_its_card_does(renderer: Renderer) -> None:
    made = view(renderer, Snapshot(1, [asked(1, agent_name="The planner"), asked(2, agent_name=None)]))
    for named in ("CLR-42-001 · The planner", "CLR-42-002 · planner"):
        assert named in words(made)
