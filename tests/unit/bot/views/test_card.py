"""The cards of questions: what they say, in blocks and aloud, their controls, and that Slack takes whatever is asked."""

from __future__ import annotations

import html
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.views import inert, phrases
from bot.views.blockkit import classic
from bot.views.codec import Press, unseal
from bot.views.forms import full_view
from bot.views.page import page_card
from bot.views.wording import round_of
from core.clarification import (
    Answer,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    Holder,
    ReplyState,
    Why,
    round_with,
)
from core.escalation import escalation_words
from core.matching import followed_up
from core.transitions import abandoned, amended, answered, escalated, handed, reply_settled, resolved, taken
from tests.kit.times import walk
from tests.unit.bot.judges import (
    RENDERER,
    full_text,
    judge_message,
    judge_view,
    labels,
    numbered,
    shown,
    solid,
)
from tests.unit.bot.strategies import (
    CONTEXT,
    NOW,
    QUESTION,
    SLA,
    ask_of,
    open_records,
    record_of,
    settled_records,
)
from tests.unit.bot.views.kit import Said, about, content, menu, row

LATER = NOW + timedelta(minutes=1)
TOO = "architect (an agent) was asked too; the first answer counts."
HELD = "Shown to people because: engineer may not ask architect: its workflow allows nobody."
IN_SLACK = Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD")
VERBOSITY = st.sampled_from(["terse", "normal", "detailed"])
many = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHORT = [{"value": "60", "label": "Age 60"}, {"value": "65", "label": "Age 65 (standard)"}]
TWINS = [{"value": "a", "label": "Same"}, {"value": "b", "label": "same"}]
MANY = [{"value": str(n), "label": f"Choice {n}"} for n in range(6)]
LARGEST: dict[str, Any] = {
    "question": "𝔔" * QUESTION, "context": "𝔎" * CONTEXT, "default_response": "𝔇" * CONTEXT,
    "summary_detailed": "𝔖" * QUESTION,
}  # fmt: skip
GOOD = Holder(user="U0GOOD", team="T1", at=LATER)
CHOICES_ONLY: dict[str, Any] = {"accepted_response_kinds": ["multiple_choice"]}
ALL_KINDS: dict[str, Any] = {"accepted_response_kinds": ["multiple_choice", "yes_no", "numeric", "freetext"]}
SOMEBODY = Holder(user="<!channel>", at=LATER)


def kinds(*names: str, **more: Any) -> Clarification:
    return record_of(accepted_response_kinds=list(names), **more)


def labelled(*labels: str) -> list[dict[str, str]]:
    return [{"value": str(n), "label": label} for n, label in enumerate(labels)]


def answer(record: Clarification, said: str = "Age 65 (standard)", by: Decider = IN_SLACK) -> Clarification:
    return answered(record, Answer("65", said), by, LATER)


def again(record: Clarification, question: str) -> Clarification:
    """The answered record, asked once more."""
    event = {
        "type": "aaep:agent.awaiting.clarification",
        "event_id": "evt_2",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "retirement-planner"},
        "reply_token": "rpl_2",
        "timeout_seconds": 300,
        "question": question,
    }
    return followed_up(record, ask_of(event), NOW, SLA)


def put_to(to: str, held_back: str | None = None, **fields: Any) -> Clarification:
    """Of an agent without a name."""
    record = record_of(**({"producer": {"agent_id": "engineer"}} | fields))
    asked = round_with(record.current, held_back=held_back)
    return record.model_copy(update={"to": to, "rounds": (asked,)})


def passed_on(why: Why, words: str | None = None, **fields: Any) -> Clarification:
    record = kinds("yes_no", **fields)
    return escalated(record, why, escalation_words(record, why) if words is None else words, LATER)


def needing_two(record: Clarification) -> Clarification:
    return amended(record, approvals_needed=2)


def closed_elsewhere(record: Clarification) -> Clarification:
    """Another implementation closed what we had an answer to."""
    asked = round_with(record.current, closed="session ended")
    return record.model_copy(update={"status": "abandoned", "resolved_at": NOW, "rounds": (asked,)})


def ended_by(status: str) -> Clarification:
    """Closed by another implementation."""
    entry = Entry(round=1, from_="<!channel> lead", type="resolution", body="Not needed.", timestamp=LATER)
    record = put_to("architect")
    return record.model_copy(update={"status": status, "rounds": (), "thread": (*record.thread, entry)})


def choices(count: int, length: int) -> list[dict[str, str]]:
    return [{"value": f"v{n}", "label": f"Nr {n} " + "𝔏" * length} for n in range(1, count + 1)]


WHICH = kinds("multiple_choice", choices=SHORT)
ANSWERED = answer(WHICH)
REPLIED: tuple[tuple[ReplyState, str | None, str], ...] = (
    ("sending", None, "Sending to the agent…"),
    ("delivered", None, "Delivered"),
    ("confirmed", None, "Delivered; the agent has resumed"),
    ("unconfirmed", None, "Sent, but not confirmed"),
    ("refused", "unknown token", "The agent refused the answer: “unknown token”"),
    ("refused", None, "The agent refused the answer"),
    ("too_late", None, "Too late: the agent was no longer waiting for this answer"),
)
CLOSED: tuple[tuple[CloseReason, str | None, str], ...] = (
    ("expired", "65", "Expired. The agent used its default: “65”"),
    ("expired", None, "Expired. The agent had no default"),
    ("cancelled", None, "Cancelled: the agent no longer needs an answer"),
    ("session ended", None, "Closed: the agent's session ended"),
    ("requester moved on", None, "Closed: the agent moved on without an answer"),
)
DETAILS = record_of("t", context="Savings.", default_response="65", summary_detailed="All of it.")
STUCK = "It says the same again.\nCLR-7-001: b asks a: “No, you.”"
BY_HAND = escalated(record_of(), "by hand", "", NOW)
CARDS = (
    # By the kinds of answers.
    row(kinds("yes_no"), buttons=["Yes", "No", "Take"]),
    row(kinds("freetext"), buttons=["Answer…", "Take"]),
    row(kinds("yes_no", "freetext"), buttons=["Yes", "No", "Answer…", "Take"]),
    row(kinds("multiple_choice", "numeric", choices=SHORT), buttons=["Age 60", "Age 65 (standard)", "Answer…", "Take"]),
    row(kinds("multiple_choice", "yes_no", choices=SHORT), buttons=["Age 60", "Age 65 (standard)", "Yes", "No", "Take"]),
    row(kinds("multiple_choice", choices=MANY), buttons=["Take"], menu=[f"{n + 1}. Choice {n}" for n in range(6)]),
    row(kinds("multiple_choice", choices=TWINS), buttons=["Take"], menu=["1. Same", "2. same"]),
    # Labels that could be taken for another choice's, or for a button of the bot.
    row(kinds("multiple_choice", choices=labelled("Take", "T\u0430ke it")), buttons=["Take"], menu=["1. “Take” (0)", "2. T\u0430ke it"]),
    row(kinds("multiple_choice", choices=labelled("T\u0430ke", "Go")), buttons=["Take"], menu=["1. “T<U+0430>ke” (0)", "2. Go"]),
    row(kinds("multiple_choice", choices=labelled("Ta\u200bke", "Go")), buttons=["Take"], menu=["1. “Ta<U+200B>ke” (0)", "2. Go"]),
    row(kinds("multiple_choice", choices=labelled("Accept", "Go")), buttons=["Take"], menu=["1. “Accept” (0)", "2. Go"]),
    row(kinds("multiple_choice", choices=labelled("Go", "Go")), buttons=["Take"], menu=["1. “Go” (0)", "2. “Go” (1)"]),
    row(kinds("multiple_choice", choices=labelled("Да", "Да ")), buttons=["Take"], menu=["1. “Да” (0)", "2. “Да ” (1)"]),
    row(record_of(options=["Go", "G\u043e"]), buttons=["Take"], menu=["1. “Go”", "2. “G<U+043E>”"]),
    row(kinds("multiple_choice", choices=labelled("Yes", "No")), buttons=["Yes", "No", "Take"]),
    row(kinds("multiple_choice", "yes_no", choices=labelled("yes", "Later")), buttons=["Yes", "No", "Take"],
        menu=["1. “yes” (0)", "2. Later"]),
    row(kinds("multiple_choice", choices=SHORT, multi_select=True), buttons=["Answer…", "Take"]),
    row(record_of(options=["Staging", "Production"]), buttons=["Staging", "Production", "Take"]),
    row(record_of(), buttons=["Answer…", "Take"]),
    # By how much it is to say.
    row(DETAILS, blocks=["Which retirement age", "Answer by"], verbosity="terse",
         hidden=["Context:", "Details:", "assumes", "thread", "Topic"]),
    row(DETAILS, blocks=["Context: Savings.", "uses its default: “65”", "Or in this thread: reply with", "Topic: “t”"],
         hidden=["Details:"]),
    row(DETAILS, blocks=["Context: Savings.", "Details: All of it.", "uses its default: “65”"], verbosity="detailed"),
    # What happens without an answer.
    row(record_of(default_response="65"), "If no one answers, the agent uses its default: “65”"),
    row(record_of(default_response=False), "If no one answers, the agent uses its default: “no”"),
    row(record_of(), "If no one answers, the agent decides on its own"),
    row(record_of(timeout_seconds=None), blocks=["No time limit"]),
    # Where it stands, and whom it is put to.
    row(record_of(), blocks=["Posted here because <#C0GOOD> could not be used."], posted_to_fallback="C0GOOD"),
    row(record_of(), blocks=["Posted here instead of #general <!here>."], posted_to_fallback="#general <!here>"),
    row(put_to("human"), "engineer asks · CLR-42-001", "Producer: p"),
    row(put_to("architect"), "engineer asks architect · CLR-42-001", hidden=[TOO]),
    row(put_to(" the\narchitect "), "asks the architect · CLR-42-001"),
    row(put_to("architect", HELD.partition(": ")[2]), HELD),
    *(row(put_to("architect"), TOO, asks_an_agent=True, verbosity=each) for each in ("terse", "normal", "detailed")),
    row(put_to("human"), hidden=["was asked too"], asks_an_agent=True),
    # Escalated: why, and the rest under View full.
    row(passed_on("stale"), "Escalated. No answer, even after a reminder.", buttons=["Yes", "No", "Take"]),
    row(passed_on("stuck", STUCK), "Escalated. It says the same again.", buttons=["Yes", "No", "View full", "Take"]),
    row(passed_on("deadlocked"), "Escalated. Agents are waiting for each other in a loop.",
         buttons=["Yes", "No", "View full", "Take"]),
    row(passed_on("by hand", "Legal has to see this."), "Escalated. Legal has to see this.", buttons=["Yes", "No", "Take"]),
    row(passed_on("by hand", "it is urgent"), "Escalated. It is urgent.", buttons=["Yes", "No", "Take"]),
    row(passed_on("rounds exhausted", " "), "Escalated. Rounds exhausted: a follow-up was asked after 5 rounds.", buttons=["Yes", "No", "Take"]),
    row(kinds("yes_no").model_copy(update={"status": "escalated"}), "Escalated: this needs a person now.",
         buttons=["Yes", "No", "Take"]),
    # Who has it, and who may take it.
    row(taken(passed_on("stale"), GOOD), "Claimed by <@U0GOOD>", aloud=["Claimed by <@U0GOOD>."]),
    row(handed(passed_on("stale"), GOOD), "Handed to <@U0GOOD>, not claimed yet"),
    row(taken(passed_on("stale"), SOMEBODY), "Claimed by &lt;!channel&gt;"),
    row(taken(record_of(), GOOD), buttons=["Answer…", "Take over", "Release"]),
    row(taken(record_of(), SOMEBODY), buttons=["Answer…", "Take over", "Release"]),
    row(handed(BY_HAND, GOOD), buttons=["Answer…", "Take"]),
    row(taken(BY_HAND, GOOD), buttons=["Answer…", "Take over"]),
    row(needing_two(kinds("yes_no")), buttons=["Yes", "No"]),
    # Answered: who, what, when, and where the reply stands.
    row(ANSWERED, "Answered: “Age 65 (standard)” by <@U0GOOD>", "24 May 2026, 14:23 UTC", buttons=["View full"]),
    *(
        row(settled, words, buttons=["View full"])
        for state, note, words in REPLIED
        for settled in (reply_settled(ANSWERED, state, note), resolved(reply_settled(ANSWERED, state, note), NOW))
    ),
    *(
        row(answer(record_of(), by=Decider("user:os/<!channel>@host", *more)), blocks=["user:os/&lt;!channel&gt;@host"],
             aloud=["user:os/&lt;!channel&gt;@host"])
        for more in (("shell",), ("slack", "T1", "<@U0EVIL>"))
    ),
    # Closed: why, and by whom.
    *(row(abandoned(kinds("yes_no", default_response=given), why, NOW), words, buttons=[]) for why, given, words in CLOSED),
    row(closed_elsewhere(answer(record_of())), "Answered: “Age 65 (standard)” by <@U0GOOD>", "Closed: the agent's session ended"),
    row(ended_by("resolved"), "Closed: “Not needed.”", "lead"),
    row(ended_by("abandoned"), "Closed: “Not needed.”", "lead"),
)  # fmt: skip


@pytest.mark.parametrize("each", CARDS)
def test_card(each: Said) -> None:
    message = RENDERER.card(each.record, **each.options)
    judge_message(message)
    each.judge(message)


def test_text_read_aloud_stands_alone() -> None:
    record = record_of(
        choices=SHORT, context="Savings.", default_response="65",
        accepted_response_kinds=["multiple_choice", "numeric"],
    )  # fmt: skip
    message = RENDERER.card(record)
    assert message.more == ()
    assert message.text == (
        "retirement-planner asks · CLR-42-001.\n“Which retirement age should I plan for?”\n"
        "Choices:\n│ 1. Age 60\n│ 2. Age 65 (standard)\n"
        "Context: Savings.\n"
        "Answer by 24 May 2026, 14:27 UTC. If no one answers, the agent uses its default: “Age 65 (standard)”. Producer: p.\n"
        "Or in this thread: reply with the number of a choice, like 1, or its label, or a number, like 1200 or 12.5. "
        "Start with note: to comment without answering."
    )


def test_text_too_long_begins_and_points_to_the_thread() -> None:
    question = " ".join(f"word{n}" for n in range(1500))
    message = RENDERER.card(kinds("yes_no", question=question, default_response="no"))
    assert message.text.startswith("retirement-planner asks · CLR-42-001.\n│ word0 word1")
    assert "reply with yes or no. Start with note: to comment without answering." in message.text
    assert message.text.endswith("\nThis is only the beginning. The full text is in the thread.")
    assert question in "".join(message.more).replace("│ ", "")
    assert "View full" in labels(message.blocks)


def test_long_default_is_whole_in_the_text_and_in_full() -> None:
    default = " ".join(f"word{n}" for n in range(400))
    record = record_of(default_response=default)
    message = RENDERER.card(record)
    assert default in message.text
    assert "View full" in labels(message.blocks)
    expired = abandoned(record, "expired", NOW)
    assert labels(RENDERER.card(expired).blocks) == ["View full"]
    assert default in shown(RENDERER.view(full_view(expired))).replace("\n", "")


@pytest.mark.parametrize(
    ("by", "who"),
    [
        ("user:slack/T1/U0GOOD", "<@U0GOOD>"),
        ("user:folake", "user:folake"),
        ("user:slack/T1/<!channel>", "user:slack/T1/&lt;!channel&gt;"),
    ],
)
def test_card_closed_by_hand_says_by_whom(by: str, who: str) -> None:
    record = abandoned(record_of(), "by hand", LATER, by)
    message = RENDERER.card(record)
    seen = shown(message.blocks)
    assert "Closed without an answer" in seen
    assert "By <@U0GOOD>" in seen if who.startswith("<@") else f"By {by}" in seen
    assert "Closed without an answer." in message.text
    assert f"By {who}." in message.text
    assert labels(message.blocks) == []
    assert (
        phrases.closed(record)
        == f"CLR-42-001 no longer takes answers: it was closed without an answer by {who}."
    )


def test_card_of_an_earlier_round_is_closed_with_its_own_words() -> None:
    first = answer(kinds("multiple_choice", question="First?", choices=SHORT))
    record = again(first, "Second?")
    past, now = RENDERER.card(record, round=1), RENDERER.card(record)
    assert "First?" in shown(past.blocks)
    assert "Answered: “Age 65 (standard)” by <@U0GOOD>" in shown(past.blocks)
    assert labels(past.blocks) == ["View full"]
    assert "Second?" in shown(now.blocks)
    assert labels(now.blocks) == ["Answer…", "Take"]
    assert "CLR-42-001 · round 2" in shown(now.blocks)
    assert RENDERER.card(record, round=2) == now


def test_card_asked_once_more_than_allowed_is_open_again() -> None:
    record = record_of(question="Round 1?")
    for number in range(2, 7):
        record = again(answer(record), f"Round {number}?")
    message = RENDERER.card(record)
    assert record.status == "escalated"
    assert labels(message.blocks) == ["Answer…", "View full", "Take"]
    assert "Round 6?" in shown(message.blocks)
    assert "Rounds exhausted" in message.text
    assert "Round 4?" in shown(RENDERER.card(record, round=4).blocks)


def test_card_blocks_are_new_with_every_change() -> None:
    record = record_of()
    revised = record.model_copy(update={"revision": 2})
    same_revision = record.model_copy(update={"status": "stale"})
    ids = [
        {block["block_id"] for block in RENDERER.card(each).blocks[:1]}
        for each in (record, revised, same_revision)
    ]
    assert len(set.union(*ids)) == 3


@pytest.mark.parametrize("asked", [CHOICES_ONLY, ALL_KINDS], ids=["one kind", "all kinds"])
@pytest.mark.parametrize(
    ("around", "several"), [({}, True), (LARGEST, False)], ids=["several, short", "one, long"]
)
@pytest.mark.parametrize(
    ("count", "length"),
    [(100, 300), (101, 1), (500, 60), (3, 20_000)],
)
def test_slack_takes_whatever_is_asked(
    count: int, length: int, several: bool, around: dict[str, Any], asked: dict[str, Any]
) -> None:
    record = record_of(choices=choices(count, length), multi_select=several, **(around | asked))
    with capture_logs() as logs:
        for verbosity in ("terse", "normal", "detailed"):
            message = RENDERER.card(record, verbosity=verbosity, posted_to_fallback="C0GOOD")
            judge_message(message)
            assert record.id in message.text
            assert record.id in shown(message.blocks)
        judge_message(RENDERER.message(page_card(content(about(record)))))
        judge_message(RENDERER.message(page_card(content(about(record)).bare())))
        judge_view(RENDERER.answer_modal(record))
        first = RENDERER.view(full_view(record))
        judge_view(first)
    assert logs == [], "something was shown as plain text only"
    menued = len(menu(message))
    assert menued == (count if 0 < count <= 100 and not several else 0)
    assert ("Answer…" in labels(message.blocks)) == (several or count > 100 or asked is ALL_KINDS)
    assert len(message.more) <= 20


def test_card_lists_the_first_of_more_choices_than_a_menu_holds_and_says_where_the_others_are() -> None:
    message = RENDERER.card(record_of(choices=choices(101, 3), **CHOICES_ONLY))
    said = shown(message.blocks)
    assert "10. Nr 10 𝔏𝔏𝔏" in said
    assert "11. " not in said
    assert "… and 91 more under View full" in said
    assert labels(message.blocks) == ["Answer…", "View full", "Take"]


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
        assert "the number of a choice, like 1" in said
    assert "Which &lt;one&gt;?" in message.text
    assert "Which <one>?" in shown(message.blocks)
    assert [(line["log_level"], line["clarification"]) for line in logs] == [("error", record.id)]
    judge_view(RENDERER.answer_modal(record))


def choices_offered(payload: Any) -> set[str]:
    return {
        Press.unpack(unseal(item["value"])[1]).arg
        for item in walk(payload)
        if "|1|choice|" in str(item.get("value", ""))
    }


@many
@given(settled_records(), st.booleans())
def test_card_settled_is_taken_by_slack_inert_and_without_controls(
    record: Clarification, shrinks: bool
) -> None:
    message = RENDERER.card(record, shrinks=shrinks)
    judge_message(message)
    pressed = [
        Press.unpack(unseal(item["value"])[1]).verb for item in walk(message.blocks) if "value" in item
    ]
    assert set(pressed) <= {"view"}


@many
@given(open_records())
def test_choices_are_all_offered_and_readable_in_full(record: Clarification) -> None:
    labels = round_of(record).labels
    everything = full_text(record)
    for n, label in enumerate(labels, 1):
        assert f"{n}. {label}" in everything
    indexes = {str(n) for n in range(len(labels))}
    if labels and record.asked.multi_select:
        modal = RENDERER.answer_modal(record)
        block = next(each for each in modal["blocks"] if each.get("block_id") == "answer.choices")
        assert {option["value"] for option in block["element"]["options"]} == indexes
    else:
        assert choices_offered(RENDERER.card(record).blocks) == indexes


@many
@given(open_records())
def test_question_is_readable_in_full_wherever_a_card_cuts_it(record: Clarification) -> None:
    message = RENDERER.card(record, posted_to_fallback="C0GOOD")
    judge_message(message)
    question = solid(inert.plain(record.question))
    on_card = numbered(
        [block for block in message.blocks if block["type"] in ("section", "rich_text", "table")]
    )
    assert question in solid(full_text(record))
    if question not in solid(on_card):
        assert "View full" in str(message.blocks)
    if message.more:
        assert "The full text is in the thread" in message.text
        assert question in solid("".join(message.more)) or message.more[-1] == "The rest is under View full."
    else:
        assert question in solid(html.unescape(message.text))


def folds(payload: Any) -> list[dict[str, Any]]:
    return [item for item in walk(payload) if item.get("type") == "container"]


@pytest.mark.parametrize("marked", [False, True])
def test_context_that_is_cut_unfolds_in_the_message_and_is_behind_view_full(marked: bool) -> None:
    lines = [f"{'**Step**' if marked else 'Step'} {n}" for n in range(60)]
    message = RENDERER.card(record_of(context="\n".join(lines)))
    judge_message(message)
    (fold,) = folds(message.blocks)
    assert (fold["is_collapsible"], fold["default_collapsed"]) == (True, True)
    assert fold["title"]["text"] == "Context in full"
    told = shown(fold["child_blocks"])
    assert all(f"Step {n}" in told.replace("Step\n", "Step") for n in range(60))
    assert "**" not in told
    older = classic(message.blocks)
    assert folds(older) == []
    begun = shown(older).replace("Step\n", "Step")
    assert ["Step 0" in begun, "Step 30" in begun, "Step 59" in begun] == [True, False, True]
    for blocks in (message.blocks, older):
        assert "View full" in labels(blocks)


@pytest.mark.parametrize("context", ["Short.", "x" * 7000], ids=["whole", "too long"])
def test_context_that_is_whole_or_fits_no_message_does_not_unfold(context: str) -> None:
    assert folds(RENDERER.card(record_of(context=context)).blocks) == []
    assert folds(RENDERER.card(record_of(context="line\n" * 60), verbosity="terse").blocks) == []
