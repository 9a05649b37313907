"""A decided question says the same wherever it stands: its card, its line in the channel, its page, lists."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bot.cli.records import table, whole
from bot.views.card import card
from bot.views.forms import full_view
from bot.views.lists import Offer, listing, row, row_of
from bot.views.notices import nudge_over
from bot.views.page import page_card
from bot.views.tables import Cell, Table
from bot.views.wording import DEFAULT, round_of
from core.clarification import Answer, Approval, Clarification, Decider, Direct, Edit
from core.summary import page_of
from core.transitions import abandoned, amended, answered, escalated
from tests.unit.bot.judges import RENDERER, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, direct, record_of, settled_records
from tests.unit.bot.views.kit import about, content, judged

AT = NOW + timedelta(minutes=5)
ADE = Decider("user:ade", "slack", "T1", "U0GOOD")
SHELL = Decider("user:os/root@<!here>", "shell")
LONG = "It depends.\n" + "word " * 60


def approval(**news: Any) -> Clarification:
    """A direct request for approval: two people, of whom one edited the arguments and then approved them."""
    first = Approval(user="U0OTHER", decided_by="user:bea", at=NOW, digest="", rationale="only the EU")
    edit = Edit(changed={"to": "eu"}, user="U0OTHER", decided_by="user:bea", at=NOW)
    record = record_of(
        type="aaep:agent.awaiting.confirmation",
        action="Send the *newsletter*",
        consequence="Mail cannot be called back.",
        default_decision="reject",
        risk_level="high",
        irreversible=True,
    )
    wanted = record.current.confirmation
    assert wanted is not None
    fields = {
        "approvals_needed": 2,
        "approvals": (first,),
        "edits": (edit,),
        "direct": Direct(kind="approval"),
        "wanted": wanted.copied(sent={"to": "all", "note": "n" * 400}, editable=True),
    }
    return amended(record, **fields | news)


def decide(
    record: Clarification, response: Any, label: str, why: str | None, by: Decider = ADE
) -> Clarification:
    return answered(record, Answer(response, label, why), by, AT)


APPROVED = decide(approval(), "accept", "Accept", "Go <ahead>")
REJECTED = decide(approval(approvals=None), "reject", "Reject", "Too late", SHELL)
ANSWERED = decide(record_of(), "65", "Age *65*", None)
AT_LENGTH = decide(record_of(), LONG, LONG, None)

# How it was decided and by whom, in the bot's own mrkdwn; and what else its card keeps.
KINDS = [
    pytest.param(
        APPROVED,
        "Approved by <@U0OTHER> and <@U0GOOD>",
        (
            "Risk: high. Irreversible: it cannot be undone",
            "Reason: Go",
            "only the EU",
            "Arguments edited by <@U0OTHER>",
            "to: eu",
        ),
        id="approved",
    ),
    pytest.param(
        REJECTED,
        "Rejected by user:os/root@&lt;!here&gt;",
        ("Risk: high. Irreversible: it cannot be undone", "Reason: Too late"),
        id="rejected",
    ),
    pytest.param(ANSWERED, "Answered: “Age 65” by <@U0GOOD>", (), id="answered"),
    pytest.param(AT_LENGTH, "Answered: “It depends. word word", (), id="answered at length"),
]


@pytest.mark.parametrize(("record", "title", "kept"), KINDS)
@pytest.mark.parametrize("shrinks", [False, True], ids=["card", "line"])
def test_decided_card_and_its_line_keep_title_stakes_and_reason(
    record: Clarification, title: str, kept: tuple[str, ...], shrinks: bool
) -> None:
    message = judged(card(record, shrinks=shrinks))
    is_below = record is AT_LENGTH and not shrinks
    aloud = "Answered by <@U0GOOD>" if record is AT_LENGTH else title
    title = aloud if is_below else title
    seen = shown(message.blocks)
    assert f"*{title}" in seen
    assert message.text.splitlines()[1].startswith(aloud.replace("∗", "*"))
    for part in kept:
        assert part in (re.sub("Reason: “([^”]*)”", r"Reason: \1", seen) if shrinks else seen)
        assert part in message.text
    assert labels(message.blocks) == ([] if is_below else ["View full"])
    assert (len(message.blocks) == 1) is shrinks
    assert [each["type"] for each in message.blocks if each["type"] in ("header", "actions")] == []


PLAIN = record_of(accepted_response_kinds=["yes_no"])


def beyond_the_card(record: Clarification) -> set[str]:
    """The words of View full that the card has not. The thread below it has those of the question and the answer once more."""
    seen, whole = shown(RENDERER.card(record).blocks), shown(RENDERER.view(full_view(record))["blocks"])
    whole = whole.rpartition("\nThread:\n")[0] or whole
    whole = whole.replace("Answer:\n", "").replace(DEFAULT, "")
    return set(re.findall(r"\w+", whole)) - set(re.findall(r"\w+", seen))


@pytest.mark.parametrize(
    "record",
    [
        PLAIN,
        record_of(question="Go?"),
        direct(action="Restart *web*", arguments={"host": "web-1", "force": True}),
        direct(action="Restart", consequence="It is away for a minute."),
    ],
)
def test_view_full_is_left_out_where_the_card_shows_everything(record: Clarification) -> None:
    is_approval = record.current.confirmation is not None
    decided = decide(record, "accept" if is_approval else True, "Accept" if is_approval else "Yes", None)
    assert labels(judged(card(decided)).blocks) == []
    assert beyond_the_card(decided) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settled_records())
def test_card_without_view_full_shows_every_word_of_it(record: Clarification) -> None:
    if round_of(record).decided and "View full" not in labels(RENDERER.card(record).blocks):
        assert beyond_the_card(record) == set()


@pytest.mark.parametrize(
    "record",
    [
        record_of(context="Savings."),
        record_of(default_response="65"),
        record_of(summary_detailed="All of it."),
        record_of(choices=[{"value": "65", "label": "Age 65"}]),
        record_of(question=f"{'word ' * 300}?"),
        direct(action="Restart", arguments={"command": "reboot"}),
        direct(action="Restart", arguments={"host": "web  1"}),
        direct(action="Restart", arguments={"host": "web-1", "why": "x" * 100}),
        direct(action="Restart", context="It hangs."),
        escalated(PLAIN, "stuck", "It says the same again.", NOW),
        approval(),
    ],
)
def test_view_full_is_there_where_the_card_leaves_something_out(record: Clarification) -> None:
    response = "65" if record.current.confirmation is None else "accept"
    decided = decide(record, response, response, None)
    for shrinks in (False, True):
        assert labels(judged(card(decided, shrinks=shrinks)).blocks) == ["View full"]


@pytest.mark.parametrize(("record", "title", "kept"), KINDS)
def test_page_of_a_decided_question_is_its_card(
    record: Clarification, title: str, kept: tuple[str, ...]
) -> None:
    quiet = amended(record, reply=None)
    own = judged(card(quiet))
    item = about(record, state="closed").with_question(record, "https://x.slack.com/p1")
    page = judged(page_card(content(item)))
    for state in ("Sending to the agent", "Not picked up by the agent yet"):
        assert state not in page.text, "it is final, and would say so for ever"
    outcome = title.partition(" ")[0].rstrip(":").lower()
    menu = labels(own.blocks)
    assert shown(page.blocks[:1]).endswith(f"was waiting · CLR-42-001 · {outcome}")
    same = [{**block, "block_id": ""} for block in own.blocks[1:]]
    assert [{**block, "block_id": ""} for block in page.blocks[1:-1]] == same
    assert page.text.partition("\n")[2] == own.text.partition("\n")[2]
    assert labels(page.blocks) == [*menu, "Go to the question"]


@pytest.mark.parametrize("record", [APPROVED, ANSWERED, abandoned(record_of(), "expired", NOW)])
def test_reminder_and_page_in_the_thread_of_the_card_do_not_say_again_how_it_ended(
    record: Clarification,
) -> None:
    item = replace(about(record, state="closed").with_question(record, None), is_below_card=True)
    for draft in (nudge_over(record, 1), page_card(content(item))):
        message = judged(draft)
        assert len(message.blocks) == 1
        assert "retirement-planner" in message.text
        assert not re.search("by <@|Which retirement|newsletter|Expired", message.text)


def test_page_about_the_answer_of_a_decided_question_says_why_until_that_is_over() -> None:
    refused = {"kind": "refused", "title": "The agent refused an answer", "reason": "unknown token"}
    open_ = judged(page_card(content(about(ANSWERED, **refused))))
    for said in (shown(open_.blocks), open_.text):
        assert "Answered: “Age" in said
        assert "Why: unknown token" in said
    assert labels(open_.blocks) == ["View full", "Take", "Hand to…", "Snooze", "Not mine"]
    taken = judged(page_card(content(about(ANSWERED, state="taken", who="U0GOOD", **refused))))
    assert "Claimed by <@U0GOOD>" in shown(taken.blocks)
    over = judged(page_card(content(about(ANSWERED, state="closed", **refused))))
    assert "Why" not in over.text
    assert labels(over.blocks) == ["View full"]


@pytest.mark.parametrize(("record", "title", "kept"), KINDS)
def test_lists_name_all_who_decided(record: Clarification, title: str, kept: tuple[str, ...]) -> None:
    line = judged(listing("Issue 42", page_of([row(record, Offer(), 0)], 1, 8), query="#42"))
    lowered = title[0].lower() + title[1:]
    assert lowered in shown(line.blocks)
    assert lowered.replace("∗", "*") in line.text


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (APPROVED, "approved by user:bea and user:ade"),
        (REJECTED, "rejected by user:os/root@<!here>"),
        (ANSWERED, "answered: “Age *65*” by user:ade"),
        (APPROVED.model_copy(update={"status": "resolved"}), "approved by user:bea and user:ade"),
        (record_of(), "open"),
        (abandoned(record_of(), "cancelled", NOW), "Cancelled: the agent no longer needs an answer"),
    ],
)
def test_shell_lists_say_how_it_stands_or_was_decided(record: Clarification, said: str) -> None:
    found = table([row_of(round_of(record))], AT, "")
    assert isinstance(found, Table)
    (cells,) = found.rows
    assert isinstance(cells[1], Cell)
    assert cells[1].text == said
    if round_of(record).decided is not None:
        head = next(iter(whole(record, AT)))
        assert isinstance(head, Cell)
        assert f" · {said} · " in head.text


def test_shell_shows_what_was_decided_on() -> None:
    said = [each if isinstance(each, str) else getattr(each, "text", "") for each in whole(APPROVED, AT)]
    for part in (
        "Risk: high. Irreversible: it cannot be undone.",
        "to: eu",
        "Edited by user:bea · 2026-05-24 14:22 UTC",
        "to: all → eu",
        "Approved by user:bea · 2026-05-24 14:22 UTC: only the EU",
    ):
        assert part in "\n".join(said)
    assert "Risk" not in "\n".join(str(each) for each in whole(ANSWERED, AT))


def test_answer_that_the_title_shortens_is_whole_below_it() -> None:
    message = judged(card(AT_LENGTH))
    for said in (shown(message.blocks), message.text):
        assert LONG.strip() in said.replace("│ ", "")
    assert "Answer: " not in judged(card(decide(record_of(), "65", "65", None))).text


def test_view_full_has_the_original_and_the_approved_arguments_and_who_changed_them() -> None:
    view = RENDERER.view(full_view(APPROVED))
    judge_view(view)
    seen = shown(view)
    parts = (
        "*Approved by <@U0OTHER> and <@U0GOOD>*, <!date^",
        "Reason: Go <ahead>",
        "The arguments as approved:",
        "to: eu",
        "Edited by <@U0OTHER>, <!date^",
        "to: all → eu",
        "The original arguments, as the agent sent them:",
        "to: all",
        "Approved by <@U0OTHER>, <!date^",
        "only the EU",
    )
    places = [seen.index(part) for part in parts[:6]]
    assert places == sorted(places)
    assert [part for part in parts if part not in seen] == []
    rejected = shown(RENDERER.view(full_view(REJECTED)))
    assert "The arguments as edited:" in rejected
    assert "as approved" not in rejected
