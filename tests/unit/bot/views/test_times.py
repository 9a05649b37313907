"""Every kind of message and view: times are Slack's dates, which each reader sees in their zone; the text alone has UTC."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

import bot.views
from bot.commands.grammar import Board
from bot.home import Admitted, Snapshot, chosen
from bot.routing import Audience
from bot.views import card, figures, forms, inert, lists, notices, page, phrases, shifts, verify
from bot.views import home as tabs
from bot.views.blockkit import Draft, View, drafted
from bot.views.codec import PagePress
from bot.views.lists import QuestionRow
from core.agents import BlockedOn, ReadyItem
from core.clarification import Clarification, escalated, nudged
from core.digest import DigestBuilder
from core.lists import Decided, DecidedBy, PastDecision, page_of
from core.receipts import Checked, claims_of
from tests.kit.times import DATE
from tests.unit.bot.judges import RENDERER, judge_message, judge_view
from tests.unit.bot.records import agent
from tests.unit.bot.strategies import NOW, SLA, record_of
from tests.unit.bot.views.kit import about, content, event, item
from tests.unit.bot.views.test_decided import ANSWERED, APPROVED, approval

SOON = NOW + timedelta(hours=1)
LATE = nudged(record_of(), NOW, SLA)
PAGED = escalated(LATE, "stale", "No answer.", NOW)
AT_LENGTH = record_of(question="Which one? " + "word " * 2000)
PAST = PastDecision("CLR-1-001", NOW, "planner", "answered", "Go on?", "Yes", by=(DecidedBy("ann"),))
ERROR = event("session.errored", error_message="x")
LONG_PAGE = [
    item(n, body="& word " * 50, since=NOW, state="snoozed", until=SOON, asleep_by="U0GOOD", expires_at=SOON)
    for n in range(1, page.LISTED + 1)
]


def board_line(what: Any) -> str:
    return lists.session_line(what) if isinstance(what, ReadyItem) else lists.agent_line(what)


def board() -> Draft:
    blocked = BlockedOn("CLR-42-001", "person", NOW, escalated=False)
    planner = agent("planner", status="blocked", waits=(blocked,))
    session = ReadyItem("planner", None, "p", "s", 1, ("CLR-42-001",), NOW, None)
    return lists.board(
        "Agents", page_of([planner, session], 1, 9), board_line, query=Board("agents").kind, empty="-"
    )


def tab() -> View:
    blocked = BlockedOn("CLR-42-001", "person", NOW, escalated=False)
    snapshot = Snapshot(
        1,
        [PAGED],
        agents=(agent("retirement-planner", status="blocked", waits=(blocked,)),),
        duties=(tabs.DutyLine("platform", ("U0GOOD",), "rotation", SOON),),
        answers=(
            (
                Audience("planner"),
                QuestionRow("CLR-1-001", "planner", "x", NOW, Decided("answered", (DecidedBy("ann"),), "y")),
            ),
        ),
    )
    every = Admitted(frozenset({Audience("planner"), Audience("retirement-planner")}))
    return tabs.home(chosen(snapshot, "U0GOOD", every, {}))


def rows(*records: Clarification) -> Draft:
    found = [lists.row(each, lists.Offer(answer=True), n) for n, each in enumerate(records)]
    return lists.listing("Open questions", page_of(found, 1, 8), query="")


def shift() -> Draft:
    begins = shifts.ShiftBegins("platform", SOON, ["U0GOOD"], [], None, [item(since=NOW)], 1, [])
    return shifts.shift_card([begins], [shifts.ShiftEnds("data", ["U0GOOD"], [])], NOW)


def handoff() -> Draft:
    handed = notices.Handoff("planner", "s", "Tired", "human")
    return notices.handoff_card(handed, item(kind="handoff", state="snoozed", until=SOON))


# By function: what it makes, and whether that shows a time.
SAMPLES: dict[str, list[tuple[Draft | View, bool]]] = {
    "card": [
        (card.card(record_of()), True),
        (card.card(PAGED, verbosity="detailed"), True),
        (card.card(AT_LENGTH), True),
        (card.card(approval()), True),
        (card.card(APPROVED), True),
        (card.card(ANSWERED, shrinks=True), True),
    ],
    "plain_card": [(card.plain_card(record_of()), False)],
    "digest": [
        (
            figures.digest(
                DigestBuilder().result(), "Last 7 days", "UTC", counted=(), shown=inert.escape, notes=["A note."]
            ),
            False,
        )
    ],
    "answer_modal": [(forms.answer_modal(record_of()), True), (forms.answer_modal(approval()), True)],
    "plain_answer_modal": [(forms.plain_answer_modal(record_of()), False)],
    "full_view": [
        (forms.full_view(PAGED), True),
        (forms.full_view(record_of()), True),
        (forms.full_view(APPROVED), True),
    ],
    "accept_modal": [(forms.accept_modal(approval()), True)],
    "message_modal": [(forms.message_modal("Notice", "Done."), False)],
    "hand_modal": [(forms.hand_modal(PagePress("hand", 7), "CLR-42-001"), False)],
    "home": [(tab(), True)],
    "said": [
        (lists.said(f"Snoozed until {inert.date(SOON)}.", heading="On call"), True),
        (lists.said(phrases.already_answered(ANSWERED)), True),
    ],
    "listing": [(rows(PAGED, ANSWERED, AT_LENGTH), True)],
    "choice_of": [(lists.choice_of("Pick one", [PAGED], "#42"), True)],
    "board": [(board(), True)],
    "decisions": [
        (lists.decisions("Decisions: x", page_of([lists.decision_row(PAST, None)], 1, 8), query="search x"), True)
    ],
    "search_modal": [
        (
            lists.search_modal(
                lists.decisions("Decisions: x", page_of([lists.decision_row(PAST, None)], 1, 8), query="search x")
            ),
            True,
        )
    ],
    "rollup": [(lists.rollup([record_of()], 5, SOON, "planner", NOW), True)],
    "rollup_modal": [(lists.rollup_modal(page_of([record_of()], 1, 20)), False)],
    "which_question": [(lists.which_question([record_of()], "1.2"), False)],
    "error_notice": [(notices.error_notice(ERROR), False)],
    "generic_notice": [
        (notices.generic_notice(event("awaiting.confirmation", action=text, timeout_seconds=300)), True)
        for text in ("Deploy", "word " * 2000)
    ],
    "session_notice": [(notices.session_notice(event("session.completed")), False)],
    "unclaimed_notice": [(notices.unclaimed_notice(ANSWERED), False)],
    "callback_notice": [(notices.callback_notice(ANSWERED, "example.org", "404"), False)],
    "consent_notice": [(notices.consent_notice(approval(), "x"), False)],
    "tampered_notice": [(notices.tampered_notice(42, ["CLR-42-001"]), False)],
    "renumbered_notice": [(notices.renumbered_notice(42, {"CLR-42-001": "CLR-42-002"}), False)],
    "undone_notice": [(notices.undone_notice(42, ["CLR-42-001"], []), False)],
    "key_notice": [(notices.key_notice("cannot be read"), False)],
    "another_key_notice": [(notices.another_key_notice("kid"), False)],
    "checkpoint_notice": [(notices.checkpoint_notice("{}", 7), False)],
    "entry_notice": [(notices.entry_notice(ANSWERED, "agent:architect"), False)],
    "files_behind_notice": [(notices.files_behind_notice("ledgers", "No space left."), False)],
    "storage_began": [(notices.storage_began("clarify.db", 7), False)],
    "handoff_card": [(handoff(), True)],
    "tools_notice": [(notices.tools_notice([notices.ToolLine("grep", "error", duration_ms=1500)]), False)],
    "nudge": [(notices.nudge(LATE, ["U0GOOD"]), True)],
    "taken_over": [(notices.taken_over(record_of(), "U0GOOD", None), False)],
    "rollup_nudge": [(notices.rollup_nudge("planner", 5, SOON, ["U0GOOD"]), True)],
    "nudge_over": [(notices.nudge_over(ANSWERED, None), False)],
    "rollup_nudge_over": [(notices.rollup_nudge_over("planner"), False)],
    "page_card": [
        (page.page_card(content(about(PAGED, since=NOW))), True),
        (page.page_card(content(about(AT_LENGTH, since=NOW))), True),
        (page.page_card(content(about(ANSWERED, since=NOW, state="closed"))), True),
        (page.page_card(content(item(state="snoozed", until=SOON, asleep_by="U0GOOD"))), True),
        (page.page_card(content(item(), item(2, since=NOW))), True),
        (page.page_card(content(*LONG_PAGE)), True),
    ],
    "shift_card": [(shift(), True)],
    "verify_view": [
        (verify.verify_view(ANSWERED, 1, verify.Proof(Checked(None, "kid", claims_of(ANSWERED, "urn:x")))), True)
    ],
}  # fmt: skip


def kinds() -> Iterator[str]:
    """What makes a message or a view, by the name of the function."""
    for module in pkgutil.iter_modules(bot.views.__path__):
        for name, found in vars(import_module(f"bot.views.{module.name}")).items():
            makes = inspect.isfunction(found) and found.__annotations__.get("return") in {"Draft", "View"}
            if makes and not name.startswith("_") and found is not drafted:
                yield name


def test_every_kind_has_a_sample() -> None:
    assert set(SAMPLES) == set(kinds())


@pytest.mark.parametrize("kind", SAMPLES)
def test_times_are_dates_of_slack_in_blocks_and_utc_in_the_text_alone(kind: str) -> None:
    for sample, has_time in SAMPLES[kind]:
        if isinstance(sample, View):
            made = RENDERER.view(sample)
            judge_view(made)
            assert (dates(made["blocks"]) > 0) is has_time
        else:
            message = RENDERER.message(sample)
            judge_message(message)
            assert (dates(message.blocks) > 0) is has_time
            aloud = " UTC" in message.text or "left when this was sent" in message.text
            assert aloud is has_time


def dates(payload: Any) -> int:
    return len(re.findall(DATE, str(payload)))
