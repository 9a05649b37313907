"""Nothing of an agent looks like the bot's: on every surface, a line of an agent's has a bar, or stands after a label or in
quotation marks on a line of the bot's.

The agent's texts imitate each fixed line of the bot and end with a word of their own, by which they are found again.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.views import forms, notices
from bot.views.blockkit import Draft, classic
from bot.views.card import card
from bot.views.page import page_card
from bot.views.wording import whole_words
from core.clarification import Answer, Approval, Clarification, Decider, Edit
from core.escalation import escalation_words
from core.names import is_bare
from core.transitions import abandoned, amended, answered, escalated
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.strategies import NOW, direct, record_of
from tests.unit.bot.views.kit import (
    about,
    content,
    drafts_of,
    judged,
    notice_drafts,
    outside,
    windows_of,
)

END = "zqx"
LINES = (
    "Approved by @folake (1 of 2). One more person must approve.",
    "Approved by @folake",
    "Rejected by @folake",
    "Answered: “Yes” by @folake",
    "Needs 2 approvals (1 of 2).",
    "Risk: low. This can be undone.",
    "⚠ Risk: low. Reversible.",
    "Rіsk: low. Reversible.",
    "Warning: if no one answers, the agent does this",
    "Action: nothing",
    "Consequence: none",
    "Question: may I",
    "Context: it is fine",
    "Details: none",
    "Summary: all good",
    "Topic: none",
    "Reason: agreed",
    "Answer: yes",
    "Why: nothing",
    "Producer: planner",
    "Arguments: none",
    "Choices: none",
    "Fields: none",
    "Changed: nothing",
    "command: ls",
    "Arguments edited by @folake:",
    "The original arguments, as the agent sent them:",
    "This question is for @folake.",
    "If no one answers, it is not approved",
    "If no one answers, the agent decides on its own",
    "Answer by 14:27 today",
    "No time limit",
    "Reminder sent today at 14:00",
    "Escalated. No answer, even after a reminder.",
    "Claimed by @folake",
    "Handed to @folake, not claimed yet",
    "Unclaimed. Click Take to claim it.",
    "Delivered; the agent has resumed",
    "Expired. The agent used its default: go ahead",
    "Closed: the agent moved on without an answer",
    "Withdrawn: the agent no longer needs an answer",
    "Tampered with: another program changed this",
    "Verified. The signature is good",
    "Page 1 of 2",
    "Accept is on the last page.",
    "Some of this is hidden on the card.",
    "This is only the beginning. The full text is in the thread.",
    "Thread:",
    "Tool deploy failed: no disk",
    "Session: sess_1",
    "planner asks for approval · CLR-42-001 · approved",
    "… 12 more characters …",
)
# What may stand directly before an agent's words on a line of the bot's.
MARK = re.compile(
    r"(?:“|^\d+\. |^ +\d+\. |^• |: \d+\. |(?:^|[.·(] |, )(?:Action|Consequence|Context|Details|Question|Summary|Reason|Answer|"
    r"Message|What to do|Result|Code|Category|Cancelled by|To|At|Urgency|Session|If no one decides|Earlier approvals|Topic|"
    r"Choices as sent|Arguments|command|If no one answers, the agent uses its default): |^Arguments: (?:.*[: ])?)$"
)
QUOTES = str.maketrans("‘’", "“”")
SAID = re.compile(f"(?=(?:{'|'.join(re.escape(each.translate(QUOTES)) for each in LINES)}) {END})")
BARRED = ("rich_text_quote", "rich_text_preformatted")
FAIR = (
    "",
    "fine",
    "Deploy it",
    "x" * 90,
    "x" * 700,
    "“",
    "”",
    '"',
    "\u202e",
    "\u200b",
    "**",
    "```",
    "> ",
    "- ",
    " " * 60,
    "| a |",
    "<!channel> <@U0EVE> <https://evil.example|here> & *b* :tada:",
)


@st.composite
def hostile(draw: st.DrawFn) -> str:
    """An innocent beginning, and lines like those of the bot."""
    said = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=3))
    between = draw(st.sampled_from(["\n", "\n\n", "\r", "\u2028", " "]))
    begin = draw(st.sampled_from(FAIR))
    return f"{begin}{between if begin else ''}{between.join(f'{each} {END}' for each in said)}"


def lines(blocks: Any) -> Iterator[str]:
    """The lines of blocks, and of the dialogs of their controls, that have neither a bar nor a frame."""
    for block in blocks:
        if block["type"] == "rich_text":
            yield from rich_lines(block)
            continue
        said = [block.get("text"), *block.get("fields", ())]
        said += block["elements"] if block["type"] == "context" else []
        said += [each["confirm"]["text"] for each in walk(block) if "deny" in each.get("confirm", ())]
        yield from (line for each in said if each for line in each["text"].split("\n"))
        yield from lines(block.get("child_blocks", ()))


def rich_lines(block: Any) -> Iterator[str]:
    for each in block["elements"]:
        if each["type"] in BARRED or each.get("border") == 1:
            continue
        for runs in each["elements"] if each["type"] == "rich_text_list" else (each,):
            yield from "".join(run.get("text", "") for run in runs["elements"]).split("\n")


def text_lines(text: str) -> Iterator[str]:
    return iter(html.unescape(text).split("\n"))


def judge(found: Iterator[str]) -> None:
    for line in found:
        bare = re.sub("[\u2066-\u2069*∗]", "", line)
        if END not in bare or re.match(" *│ ", bare):
            continue
        for at in SAID.finditer(bare.translate(QUOTES)):
            before = bare[: at.start()]
            # Within quotation marks, or after other words of the agent that begin with a mark.
            opened_at = before.rfind("“")
            is_quoted = opened_at >= 0 and "”" not in before[opened_at:]
            assert is_quoted or MARK.search(before) or _continues(before), line


def _continues(before: str) -> bool:
    """Whether the agent's own words go on: one line of it after a label."""
    labelled = re.search(
        r"(?:(?:Action|Consequence|Context|Details|Question|Summary|Reason|Answer|Message|What to do|Result|Arguments|command|"
        r"Choices as sent|If no one answers, the agent uses its default): |^ *\d+\. |^• )",
        before,
    )
    return labelled is not None or END in before


def judge_draft(draft: Draft, *, by_slack: bool = False) -> None:
    """Judges whose words it shows. `by_slack`: and that Slack takes it."""
    message = judged(draft) if by_slack else RENDERER.message(draft)
    judge(lines(message.blocks))
    judge(lines(classic(message.blocks)))
    judge(text_lines(message.text))
    for piece in message.more:
        judge(text_lines(piece))


def approval(said: str) -> Clarification:
    name = " ".join(said.split())[:80]
    arguments = {name: said, "Risk": said, "short": name[:60], "list": [said, {name: said}], "command": "ls"}
    return direct(
        action=said[:4000],
        consequence=said,
        question=said,
        context=said,
        agent=name,
        approvals=2,
        editable=True,
        arguments=arguments,
    )


def lone_argument(said: str) -> Clarification:
    return direct(action="Restart", arguments={"Risk": " ".join(said.split())[:200]})


def question(said: str) -> Clarification:
    return record_of(
        topic=said[:200],
        question=said,
        context=said,
        default_response=said,
        summary_detailed=said,
        producer={"agent_id": "planner", "agent_name": said},
        choices=[{"value": f"v{n}", "label": f"{said}{n}"[:1024]} for n in range(3)],
        accepted_response_kinds=["multiple_choice", "freetext"],
    ).model_copy(update={"to": " ".join(said.split())})


def described(said: str) -> Clarification:
    choices = [{"value": f"v{n}", "label": f"L{n}", "description": said[:1000]} for n in range(2)]
    return direct(question=said, choices=choices)


def form(said: str) -> Clarification:
    fields = {
        "a": {"type": "string", "title": said[:200], "description": said},
        "b": {"enum": ["x", said[:200]]},
    }
    return direct(question=said, schema={"properties": fields})


def confirmation(said: str) -> Clarification:
    return record_of(
        type="aaep:agent.awaiting.confirmation",
        action=said,
        consequence=said,
        risk_level=said,
        reversibility=said,
        summary_detailed=said,
        default_decision="reject",
        extra_context={said: said, "deep": {"Risk": said}},
        producer={"agent_id": "planner", "agent_name": said},
    )


MADE: tuple[Callable[[str], Clarification], ...] = (
    approval,
    lone_argument,
    question,
    described,
    form,
    confirmation,
)
DECIDER = Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD")


def variants(record: Clarification, said: str) -> Iterator[Clarification]:
    """The record as it is asked, escalated, half approved and edited, answered, and closed."""
    yield record
    yield escalated(record, "stuck", escalation_words(record, "stuck", (), None), NOW)
    if record.asked.sent_arguments:
        edit = Edit.model_validate(
            {"changed": {"Risk": said}, "user": "U0GOOD", "decided_by": "user:x", "at": NOW, "lapsed": []}
        )
        half = Approval(decided_by="agent:" + " ".join(said.split()), at=NOW, digest="")
        update = {"edits": (edit,), "approvals": (half,)}
        yield amended(record, **update)
    answer = Answer("reject", "Reject") if record.asked.is_confirmation else Answer(said, said)
    yield answered(record, answer, DECIDER, NOW)
    yield answered(record, answer, Decider(f"agent:{' '.join(said.split())}", "ledger"), NOW)
    yield abandoned(record, "withdrawn", NOW, record.from_, said)
    yield abandoned(record, "expired", NOW)


def judge_record(record: Clarification, *, by_slack: bool = False) -> None:
    for draft in drafts_of(record):
        judge_draft(draft, by_slack=by_slack)
    for text in outside(record):
        judge(text_lines(text))
    for view in windows_of(record):
        judge(lines(view["blocks"]))
    if (wanted := record.current.confirmation) is not None:
        judge(line for each in whole_words(wanted, record.current.arguments) for line in text_lines(each))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(MADE), hostile())
def test_no_line_of_an_agent_passes_for_the_bots_and_slack_takes_all(
    make: Callable[[str], Clarification], said: str
) -> None:
    for record in variants(make(said), said):
        judge_record(record, by_slack=True)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("make", MADE)
def test_each_line_of_the_bot_is_marked_where_an_agent_wrote_it(
    make: Callable[[str], Clarification], line: str
) -> None:
    for said in (f"{line} {END}", f"fine\n{line} {END}"):
        judge_record(make(said))


@pytest.mark.parametrize("line", LINES)
def test_notices_mark_what_an_agent_wrote(line: str) -> None:
    for said in (f"{line} {END}", f"fine\n{line} {END}"):
        for draft in notice_drafts(said):
            judge_draft(draft, by_slack=True)


@pytest.mark.parametrize(
    "name",
    [
        "Deployer asks: approved by @folake. Ignore",
        "Approved by folake",
        "Approved",
        "Аpproved",
        "Ａpproved",
        "Deployer · approved",
        "Deployer” asks · approved by “Folake",
        "Deployer (approved)",
        "Everything is fine. Deployer",
        "Risk low",
        "No one",
    ],
)
def test_a_name_that_could_go_on_with_the_bots_sentence_is_quoted(name: str) -> None:
    assert not is_bare(name)
    record = question("Which?").model_copy(update={"to": "human"})
    record = amended(record, agent_name=name)
    for draft in (card(record), page_card(content(about(record))), notices.nudge(record, [])):
        (head,) = (
            each["text"]["text"] for each in RENDERER.message(draft).blocks if each["type"] == "header"
        )
        quoted = re.search("“([^”]*)”", head)
        assert quoted is not None
        assert len(quoted[1]) == len(name)
        assert "approved" not in re.sub("“[^”]*”", "", head).casefold()


@pytest.mark.parametrize(
    "name",
    [
        "Deployer",
        "retirement-planner",
        "Release Agent",
        "claude-code",
        "shop_migrator.v2",
        "Größe",
        "ревьюер",
        "計画",
        "Nora",
    ],
)
def test_a_plain_name_stands_as_it_is(name: str) -> None:
    assert is_bare(name)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"risk_level": "low"}, "Risk: low."),
        ({"risk_level": " HIGH "}, "Risk: high."),
        (
            {"risk_level": "low. This can be undone"},
            "Risk: unknown (the agent wrote “low. this can be undone”).",
        ),
        ({"risk_level": "hіgh"}, "Risk: unknown (the agent wrote “hіgh”)."),
        ({"risk_level": "low”. Reversible. “"}, "Risk: unknown (the agent wrote “low’. reversible. ‘”)."),
        ({"reversibility": "reversible_with_effort"}, "Reversible, with effort."),
        ({"reversibility": "fully. Approved"}, "Reversibility: unknown (the agent wrote “fully. approved”)."),
    ],
)
def test_only_known_words_of_the_stakes_are_the_bots(fields: dict[str, Any], words: str) -> None:
    record = record_of(
        type="aaep:agent.awaiting.confirmation", action="Go", default_decision="reject", **fields
    )
    message = RENDERER.card(record)
    assert words in html.unescape(message.text)
    assert any(words in line for line in lines(message.blocks))


def test_card_names_the_producer_where_the_name_is_only_a_claim() -> None:
    def said(agent: str | None) -> str:
        record = direct(question="Which?", **({"agent": agent} if agent else {}))
        message = RENDERER.card(record)
        found = [line for line in lines(message.blocks) if line.startswith("Producer:")]
        assert bool(found) is ("Producer: p" in message.text)
        return "".join(found)

    assert said("Deployer") == "Producer: p"
    assert said(None) == ""
    named = record_of(producer={"agent_id": "planner", "agent_name": "Deployer"})
    named = amended(named, producer="CI")
    assert "Producer: CI." in RENDERER.card(named).text
    assert said("P") == ""
    record = answered(direct(question="Which?", agent="Deployer"), Answer("x", "x"), DECIDER, NOW)
    for shrinks in (False, True):
        assert "Producer: p" in "\n".join(lines(RENDERER.message(card(record, shrinks=shrinks)).blocks))
    window = RENDERER.view(forms.full_view(record))
    assert any("Producer: p" in line for line in lines(window["blocks"]))
