"""Isolates: which text gets them, where they begin and end, what a cut leaves of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.views import inert
from bot.views.locale import hinted, reads_rtl
from core.aaep import parse_event
from tests.unit.bot.strategies import words

RLI, FSI, PDI = "\u2067", "\u2068", "\u2069"


@pytest.mark.parametrize(
    ("text", "rtl", "expected"),
    [
        ("as it is", False, "as it is"),
        ("as it is", True, "as it is"),
        ("naïve 你好 한글 😀 2+2", True, "naïve 你好 한글 😀 2+2"),
        ("", True, ""),
        ("שלום", False, f"{FSI}שלום{PDI}"),
        ("مرحبا", True, f"{RLI}مرحبا{PDI}"),
        ("API של שלום", True, f"{RLI}API של שלום{PDI}"),
        ("5 - 3", False, "5 - 3"),
        ("5 - 3", True, f"{RLI}5 - 3{PDI}"),
        ("a \u200f b", False, f"{FSI}a \u200f b{PDI}"),
        ("שלום\nas it is\n\n  עולם ", False, f"{FSI}שלום{PDI}\nas it is\n\n  {FSI}עולם{PDI} "),
        (f"Context: {FSI}שלום{PDI}", False, f"Context: {FSI}שלום{PDI}"),
        (f"{FSI}שלום{PDI} עולם", False, f"{FSI}{FSI}שלום{PDI} עולם{PDI}"),
        (f"שלום{PDI} עולם{RLI}", False, f"{FSI}שלום עולם{PDI}"),
    ],
)
def test_isolate_is_for_what_reads_from_right_to_left(text: str, rtl: bool, expected: str) -> None:
    assert inert.isolate(text, rtl=rtl) == expected
    assert inert.isolate(expected, rtl=rtl) == expected


@given(st.text(st.characters(max_codepoint=0x58F)))
def test_left_to_right_text_stays_byte_for_byte(text: str) -> None:
    assert inert.isolate(text) == text


@given(words(300))
def test_plain_said_twice_is_plain_said_once(text: str) -> None:
    for make in (inert.plain, inert.line):
        assert make(make(text)) == make(text)


def test_override_in_a_name_reorders_no_words_of_ours() -> None:
    said = f"Answered by {inert.line(chr(0x202E) + 'evil ' + chr(0x2067) + 'שלום')}. Reply: yes"
    assert said == f"Answered by {FSI}evil שלום{PDI}. Reply: yes"


@pytest.mark.parametrize("limit", range(1, 20))
@pytest.mark.parametrize(
    "text", ["שלום עולם, שלום לכולם ועוד מילים", "abc\nשלום עולם, שלום לכולם", f"{RLI}ab\u2066cd{FSI}ef{PDI}gh{PDI}ij{PDI}kl mn"]
)  # fmt: skip
def test_cut_closes_what_it_tears(text: str, limit: int) -> None:
    cut = inert.clip(inert.plain(text), limit)
    assert inert.size(cut) <= limit
    assert cut.rstrip(PDI).endswith("…")
    assert inert.cleaned(cut) == cut, "an isolate without its end"
    if "ש" in cut:
        assert FSI in cut


def test_label_of_an_option_counts_its_isolates() -> None:
    label = inert.clip(inert.line("שלום " * 40), 75)
    assert inert.size(label) <= 75
    assert (label[0], label[-2:]) == (FSI, f"…{PDI}")


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({"text_direction": "rtl"}, True),
        ({"text_direction": "rtl", "primary_language": "en"}, True),
        ({"text_direction": "auto", "primary_language": "he"}, False),
        ({"text_direction": "ltr", "primary_language": "ar-SA"}, True),
        ({"primary_language": "he-IL"}, True),
        ({"primary_language": "az-Arab"}, True),
        ({"primary_language": "ar-Latn"}, False),
        ({"primary_language": "en", "script": "Hebr"}, True),
        ({"primary_language": "en-US"}, False),
        ({"primary_language": 7}, False),
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
    plain = parse_event(raw, datetime(2026, 5, 24, tzinfo=UTC))
    assert hinted(plain) is plain
    told = hinted(parse_event(raw | {"localization_hints": {"primary_language": "he"}}, plain.timestamp))
    assert told.text("summary_normal") == told.agent_name == f"{RLI}API של שלום{PDI}"
    assert (told.text("error_category"), told.text("error_uri")) == ("quota", "https://example.org/")
    assert told.raw["packaged_context"] == {f"{RLI}API של{PDI}": [f"{RLI}7{PDI}", 7, False, True]}
    json.dumps(dict(told.raw))
