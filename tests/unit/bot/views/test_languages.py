"""Every kind of message with agents' words in a right-to-left language, and what is read aloud of each.

The agents' words here have no Latin letter, ours no Hebrew one: what is whose shows in any message.
"""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.views import locale
from bot.views.blockkit import Draft
from bot.views.forms import full_view
from bot.views.locale import hinted, in_words, reads_rtl
from core.aaep import parse_event
from core.clarification import Answer, Clarification, Decider
from core.matching import followed_up
from core.transitions import abandoned, amended, answered
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.strategies import NOW, SLA, ask_of, record_of
from tests.unit.bot.views.kit import drafts_of, event, judged, notice_drafts, outside, told_why, windows_of

# With what would turn round the words behind it: an override, an embedding, isolates that nobody ends or began.
NAME = "\u202eסוכן\u2067"
SAID = "\u202bהאם להמשיך (42)?\u2069 כן!"
LABELS = ("אדום", "ירוק", "כחול")
HEBREW = re.compile("[\u0590-\u05ff]")
STEERING = re.compile("[\u202a-\u202e]")
PICTURES = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]|:[a-z_]+:")
CLOCK = re.compile(r"\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d(?: UTC)?")
ISOLATED = re.compile("[\u2066-\u2068][^\u2066-\u2069\n]*\u2069")
WORDS = "1204 asked, 1.3 on average (95 % within 2 hours), 1234567 characters."
_INTL = """
const written = {};
for (const tag of process.argv.slice(1)) {
  const format = new Intl.NumberFormat(tag, {minimumFractionDigits: 1});
  written[tag] = [1, 1204, 12040, 1234567].map((each) => format.format(each + 0.5));
}
console.log(JSON.stringify(written));
"""


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


RECORDS = {
    "question": asks("freetext", "yes_no"),
    "choices": asks("multiple_choice"),
    "several choices": asks("multiple_choice", multi_select=True),
    "answered": done(asks()),
    "expired": abandoned(asks(), "expired", NOW + timedelta(hours=1)),
    "escalated": told_why(asks(), SAID),
    "confirmation": consent(),
    "confirmation, escalated": told_why(consent(), SAID),
    "confirmed": done(consent()),
}


def texts(payload: Any) -> list[str]:
    keys = ("text", "accessibility_label")
    return [item[key] for item in walk(payload) for key in keys if isinstance(item.get(key), str)]


def judge_sides(text: str) -> None:
    """What is theirs is in isolates, what is ours is outside, and nothing steers."""
    assert not STEERING.search(text)
    # A confirmation's words in the ledger have ours between them; hidden characters stand as their numbers.
    bare = re.sub(r"Approve: | ?Consequence: |(&lt;|<)U\+[0-9A-F]+(&gt;|>)", "", text)
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
        assert not PICTURES.search(re.sub("(^|\n)(.*: )?⚠ (?=Risk: |Warning: )", "", text)), text
    for item in walk(payload):
        if isinstance(said := item.get("text"), str):
            bare = re.sub(r"<!date\^[^>]*>", "", said) if item.get("type") == "mrkdwn" else said
            assert all(found.endswith(" UTC") for found in CLOCK.findall(bare)), said
            assert item.get("type") != "mrkdwn" or not CLOCK.search(bare), said
        if item.get("type") == "button":  # a colour only ever says again what the words say
            assert re.search(r"\w", item["text"]["text"])


def judge_draft(draft: Draft) -> None:
    """What a screen reader says makes sense alone: complete sentences, dates spelled out, nothing that only an eye can tell."""
    message = judged(draft)
    judge_blocks(message.blocks)
    for said in (message.text, *message.more):
        judge_sides(said)
    text = message.text
    assert HEBREW.search(text)
    assert all(found.endswith(" UTC") for found in CLOCK.findall(text))
    assert not PICTURES.search(re.sub("(^|\n)(.*: )?⚠ (?=Risk: |Warning: )", "", text))
    assert not re.search(r"\.\s*\.(?!\.)|\.\u2069\.|\?\u2069\.|!\u2069\.", text), "doubled ends"


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_p8_right_to_left_words_reorder_none_of_ours(record: Clarification) -> None:
    for draft in drafts_of(record):
        judge_draft(draft)
    for view in windows_of(record):
        judge_blocks(view)
    for text in outside(record):
        judge_sides(text)


def test_p8_right_to_left_words_reorder_none_of_ours_in_notices() -> None:
    for draft in notice_drafts(SAID):
        judge_draft(draft)


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


@pytest.mark.parametrize(
    ("locale", "said"),
    [
        ("en-US", "1,204 asked, 1.3 on average (95 % within 2 hours), 1,234,567 characters."),
        ("de-DE", "1.204 asked, 1,3 on average (95 % within 2 hours), 1.234.567 characters."),
        ("es-ES", "1204 asked, 1,3 on average (95 % within 2 hours), 1.234.567 characters."),
        ("es-LA", "1,204 asked, 1.3 on average (95 % within 2 hours), 1,234,567 characters."),
        (
            "fr_FR",
            "1\u202f204 asked, 1,3 on average (95 % within 2 hours), 1\u202f234\u202f567 characters.",
        ),
        ("de-CH", WORDS),
        ("tlh", WORDS),
        ("", WORDS),
    ],
)
def test_numbers_are_written_as_in_the_locale(locale: str, said: str) -> None:
    assert in_words(WORDS, locale) == said


@pytest.mark.parametrize("text", ["CLR-42000-001", "v1.10.2", "2026-05-24", "1,204", "sha256", "1e5000x"])
def test_what_is_no_number_stays_as_it_is(text: str) -> None:
    assert in_words(text, "de-DE") == text


def test_signs_are_those_of_cldr(node_program: Path) -> None:
    """As Node writes them, which has CLDR. Slack calls the Spanish of Latin America es-LA, which is that of Laos elsewhere."""
    tags = {tag: "es-419" if tag == "es-la" else tag for tag, signs in locale._SIGNS.items() if signs}
    ran = subprocess.run(
        [node_program, "-e", _INTL, *tags.values()], capture_output=True, text=True, check=True
    )
    written = json.loads(ran.stdout)
    for tag, theirs in tags.items():
        ours = [in_words(text, tag) for text in ("1.5", "1204.5", "12040.5", "1234567.5")]
        assert ours == written[theirs], tag
