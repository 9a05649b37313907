"""Every kind of message with agents' words in a right-to-left language, and what is read aloud of each.

The agents' words here have no Latin letter, ours no Hebrew one: what is whose shows in any message.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bot.views import inert
from bot.views.codec import PagePress
from bot.views.forms import full_view, hand_modal, message_modal
from bot.views.lists import rollup, rollup_modal, which_question
from bot.views.locale import hinted, reads_rtl
from bot.views.notices import (
    ToolLine,
    error_notice,
    generic_notice,
    handoff_card,
    handoff_of,
    nudge,
    rollup_nudge,
    session_notice,
    tools_notice,
)
from bot.views.page import PageItem, outside_words, page_card
from bot.views.render import Message
from core.aaep import parse_event
from core.clarification import Answer, Clarification, Decider
from core.lists import page_of
from core.matching import followed_up
from core.transitions import abandoned, amended, answered
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.strategies import NOW, SLA, ask_of, record_of
from tests.unit.bot.views.kit import about, told_why
from tests.unit.bot.views.kit import content as any_content
from tests.unit.bot.views.kit import event as any_event
from tests.unit.bot.views.kit import item as any_item

# With what would turn round the words behind it: an override, an embedding, isolates that nobody ends or began.
NAME = "\u202eסוכן\u2067"
SAID = "\u202bהאם להמשיך (42)?\u2069 כן!"
LABELS = ("אדום", "ירוק", "כחול")
HEBREW = re.compile("[\u0590-\u05ff]")
STEERING = re.compile("[\u202a-\u202e]")
PICTURES = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]|:[a-z_]+:")
CLOCK = re.compile(r"\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d(?: UTC)?")
ISOLATED = re.compile("[\u2066-\u2068][^\u2066-\u2069\n]*\u2069")
event = functools.partial(any_event, session_id="1", producer={"agent_id": "7", "agent_name": NAME})
item = functools.partial(any_item, title=inert.line(SAID), reason=SAID, body=SAID)
content = functools.partial(any_content, mentions=("U0GOOD",))


def asks(*kinds: str, **fields: Any) -> Clarification:
    return record_of(
        producer={"agent_id": "7", "agent_name": NAME},
        question=SAID,
        topic=SAID,
        context=SAID,
        default_response=SAID,
        summary_terse=SAID,
        accepted_response_kinds=list(kinds or ["freetext"]),
        choices=[{"value": str(n), "label": label} for n, label in enumerate(LABELS)],
        **fields,
    )


def consent() -> Clarification:
    return record_of(
        type="aaep:agent.awaiting.confirmation",
        producer={"agent_id": "7", "agent_name": NAME},
        action=SAID,
        consequence=SAID,
        risk_level="high",
        irreversible=True,
        default_decision="accept",
        extra_context={SAID: SAID},
    )


def done(record: Clarification) -> Clarification:
    return answered(record, Answer(SAID, SAID), Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD"), NOW)


def right_to_left(record: Clarification) -> Clarification:
    """As its event says."""
    return amended(record, rtl=True)


def asking(**fields: Any) -> PageItem:
    return about(
        told_why(asks("multiple_choice"), SAID), title=inert.line(SAID), reason=SAID, body=SAID, **fields
    )


HANDOFF = handoff_of(
    event(
        "handoff.requested",
        reason=SAID,
        target_kind="human",
        target_uri=SAID,
        packaged_context={SAID: [SAID, {SAID: SAID}]},
    )
)
MESSAGES: dict[str, Callable[[], Message]] = {
    "card, free text": lambda: RENDERER.card(asks()),
    "card, yes or no": lambda: RENDERER.card(asks("yes_no", "freetext"), verbosity="detailed"),
    "card, choices": lambda: RENDERER.card(asks("multiple_choice")),
    "card, several choices": lambda: RENDERER.card(asks("multiple_choice", multi_select=True)),
    "card, answered": lambda: RENDERER.card(done(asks())),
    "card, expired": lambda: RENDERER.card(abandoned(asks(), "expired", NOW + timedelta(hours=1))),
    "card, escalated": lambda: RENDERER.card(told_why(asks(), SAID)),
    "card, confirmation": lambda: RENDERER.card(consent()),
    "card, confirmed": lambda: RENDERER.card(done(consent())),
    "page of a confirmation": lambda: RENDERER.message(page_card(
        content(item(kind="escalated", clarification="CLR-42-001", record=told_why(consent(), SAID)))
    )),
    "nudge, confirmation": lambda: RENDERER.message(nudge(consent(), [])),
    "error": lambda: RENDERER.message(error_notice(
        event("session.errored", summary_normal=SAID, error_message=SAID + SAID, remediation_hint=SAID, error_code=SAID)
    )),
    "unknown event": lambda: RENDERER.message(generic_notice(event("power.lost", summary_normal=SAID))),
    "broken question": lambda: RENDERER.message(generic_notice(
        event("awaiting.clarification", question=SAID, context=SAID, choices=[{"value": "1", "label": SAID}])
    )),
    "broken confirmation": lambda: RENDERER.message(generic_notice(
        event("awaiting.confirmation", action=SAID, consequence=SAID, extra_context={"1": SAID})
    )),
    "end of a session": lambda: RENDERER.message(session_notice(
        event("session.cancelled", summary_normal=SAID, cancelled_by=SAID, partial_result=SAID)
    )),
    "tools": lambda: RENDERER.message(tools_notice([ToolLine(SAID, "error", SAID, 5), ToolLine(SAID, "success", SAID, 5)])),
    "nudge": lambda: RENDERER.message(nudge(asks("multiple_choice"), ["U0GOOD"])),
    "nudge of many": lambda: RENDERER.message(rollup_nudge(NAME, 3, NOW, [])),
    "roll-up": lambda: RENDERER.message(rollup([asks(), asks("yes_no")], 3, NOW, NAME)),
    "which question": lambda: RENDERER.message(which_question([asks(), asks("yes_no")], "t1")),
    "handoff": lambda: RENDERER.message(handoff_card(HANDOFF, item(kind="handoff"))),
    "handoff, taken": lambda: RENDERER.message(handoff_card(HANDOFF, item(kind="handoff", state="closed", who="U0GOOD"))),
    "page": lambda: RENDERER.message(page_card(content(item()))),
    "page of a question": lambda: RENDERER.message(page_card(content(asking()))),
    "page, taken": lambda: RENDERER.message(page_card(content(asking(state="taken", who="U0GOOD")))),
    "page of many": lambda: RENDERER.message(page_card(content(asking(), item(incident=2)))),
}  # fmt: skip
VIEWS: dict[str, Callable[[], dict[str, Any]]] = {
    "answer modal": lambda: RENDERER.answer_modal(asks("multiple_choice", "freetext", "yes_no")),
    "answer modal, confirmation": lambda: RENDERER.answer_modal(consent()),
    "full view, confirmation": lambda: RENDERER.view(full_view(consent())),
    "full view": lambda: RENDERER.view(full_view(told_why(done(asks()), SAID))),
    "text modal": lambda: RENDERER.view(message_modal(SAID, SAID)),
    "hand modal": lambda: RENDERER.view(hand_modal(PagePress("hand", 1), inert.line(SAID))),
    "roll-up modal": lambda: RENDERER.view(rollup_modal(page_of([asks(), asks("yes_no")], 1, 20))),
}


def texts(payload: Any) -> list[str]:
    keys = ("text", "accessibility_label")
    return [item[key] for item in walk(payload) for key in keys if isinstance(item.get(key), str)]


def judge_sides(text: str) -> None:
    """What is theirs is in isolates, what is ours is outside, and nothing steers."""
    assert not STEERING.search(text)
    # A confirmation's words in the ledger begin with ours, which tell their direction.
    bare = re.sub("\u2068(Approve|Consequence): ", "\u2068", text)
    while ISOLATED.search(bare):
        assert not any(re.search("[A-Za-z]", found) for found in ISOLATED.findall(bare)), repr(text)
        bare = ISOLATED.sub("", bare)
    assert not HEBREW.search(bare), repr(text)
    assert not re.search("[\u2066-\u2069]", bare), repr(text)


def judge_blocks(payload: Any) -> None:
    """Nothing is told by a picture alone. Where Slack formats dates everybody sees their own time; elsewhere the zone is
    named.
    """
    for text in texts(payload):
        judge_sides(text)
        assert not PICTURES.search(re.sub("^⚠ (?=Risk: |Warning: )", "", text)), text
    for item in walk(payload):
        if isinstance(said := item.get("text"), str):
            bare = re.sub(r"<!date\^[^>]*>", "", said) if item.get("type") == "mrkdwn" else said
            assert all(found.endswith(" UTC") for found in CLOCK.findall(bare)), said
            assert item.get("type") != "mrkdwn" or not CLOCK.search(bare), said
        if item.get("type") == "button":  # a colour only ever says again what the words say
            assert re.search(r"\w", item["text"]["text"])


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_p8_right_to_left_words_reorder_none_of_ours_in_messages(kind: str) -> None:
    """What a screen reader says makes sense alone: complete sentences, dates spelled out, nothing that only an eye can tell."""
    message = MESSAGES[kind]()
    judge_blocks(message.blocks)
    for said in (message.text, *message.more):
        judge_sides(said)
    text = message.text
    assert HEBREW.search(text)
    assert all(found.endswith(" UTC") for found in CLOCK.findall(text))
    assert "<!date" not in text
    assert not PICTURES.search(text)
    assert not re.search(r"\.\s*\.(?!\.)|\.\u2069\.|\?\u2069\.|!\u2069\.", text), "doubled ends"
    assert text.replace("\u2069", "").rstrip()[-1] in ".!?…)”", repr(text[-60:])


@pytest.mark.parametrize("kind", sorted(VIEWS))
def test_p8_right_to_left_words_reorder_none_of_ours_in_modals(kind: str) -> None:
    view = VIEWS[kind]()
    assert any(map(HEBREW.search, texts(view)))
    judge_blocks(view)


@pytest.mark.parametrize("made", [asking, item])
def test_p8_right_to_left_words_reorder_none_of_ours_outside_slack(made: Callable[[], PageItem]) -> None:
    for text in outside_words(content(made())):
        judge_sides(text)


def test_words_of_a_question_read_the_way_its_event_says_in_earlier_rounds_too() -> None:
    """A beginning in another script would tell the wrong direction. What is kept of earlier rounds has the ledger's names."""
    choices = [{"value": str(n), "label": label} for n, label in enumerate(LABELS)]
    fields: dict[str, Any] = {"default_response": "API של הלקוח", "summary_detailed": "URL של הלקוח"}
    record = right_to_left(record_of(question="API של הלקוח?", choices=choices, **fields))
    expected = "\u2067API של הלקוח?\u2069"
    assert expected in RENDERER.card(record).text
    assert "\u2067אדום\u2069" in texts(RENDERER.card(record).blocks)
    assert expected in texts(RENDERER.answer_modal(record))
    assert expected in RENDERER.card(done(record)).text
    assert record.question == "API של הלקוח?"
    asked = {**event("awaiting.clarification").raw, "question": SAID, "reply_token": "rpl_2"}
    again = right_to_left(followed_up(done(record), ask_of(asked), NOW, SLA))
    whole = "\n".join(texts(RENDERER.view(full_view(again, round=1))))
    for said in ("API של הלקוח?", *fields.values()):
        assert f"\u2067{said}\u2069" in whole


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({"text_direction": "rtl"}, True),
        ({"text_direction": "ltr", "primary_language": "ar-SA"}, True),
        ({"primary_language": "he-IL"}, True),
        ({"primary_language": "ar-Latn"}, False),
        ({"primary_language": "en", "script": "Hebr"}, True),
        ({}, False),
        (None, False),
        ("rtl", False),
    ],
)
def test_hints_tell_the_direction(hints: Any, expected: bool) -> None:
    assert reads_rtl(hints) is expected


def test_event_of_a_right_to_left_language_has_its_words_isolated_and_its_codes_as_they_are() -> None:
    raw = {
        "type": "aaep:agent.session.errored",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "planner", "agent_name": "API של שלום"},
        "summary_normal": "API של שלום",
        "error_category": "quota",
        "error_uri": "https://example.org/",
        "packaged_context": {"API של": ["7", 7, False, True]},
    }
    plain = parse_event(raw, NOW)
    assert hinted(plain) is plain
    told = hinted(parse_event(raw | {"localization_hints": {"primary_language": "he"}}, plain.timestamp))
    assert told.text("summary_normal") == told.agent_name == "\u2067API של שלום\u2069"
    assert (told.text("error_category"), told.text("error_uri")) == ("quota", "https://example.org/")
    assert told.raw["packaged_context"] == {"\u2067API של\u2069": ["\u20677\u2069", 7, False, True]}
    json.dumps(dict(told.raw))
