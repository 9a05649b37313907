from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.producers.sse import droppable, may_be_critical
from core.aaep import IGNORED_TYPES, NotAnEvent, parse_event
from tests.unit.bot.producers.parties import NOW, event, question


@pytest.mark.parametrize("kind", ["agent.output.streaming", "agent.progress.updated"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"chunk": 'He said "type" and \\ {"x": [1]} é \n', "position": 3, "complete": False},
        {"@context": ["https://aaep-protocol.org/context/v1", "https://example.org/x"]},
        {"sequence_number": 12, "urgency": "background", "percent": 12.5, "ok": True, "none": None},
        {"type": "https://aaep-protocol.org/vocabulary/v1#agent.output.streaming"},
    ],
)
def test_skim_drops_what_nobody_is_shown(kind: str, indent: int | None, fields: dict[str, Any]) -> None:
    assert droppable(json.dumps(event(kind, **fields), indent=indent))
    assert droppable(json.dumps(event(kind, **fields), indent=indent, ensure_ascii=False))


STREAMING = json.dumps(event("agent.output.streaming"))


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(question()),
        json.dumps(event("agent.output.streaming", urgency="critical")),
        json.dumps(event("agent.output.streaming", urgency="critical")).replace("critical", "\\u0063ritical"),
        json.dumps(event("agent.tool.completed", result={"type": "aaep:agent.output.streaming"})),
        json.dumps({"nested": {"type": "aaep:agent.output.streaming"}, **question()}),
        json.dumps({"list": [{"type": "aaep:agent.output.streaming"}], **question()}),
        json.dumps({"text": '"type": "aaep:agent.output.streaming"', **question()}),
        STREAMING[:-1] + ', "type": "aaep:agent.awaiting.clarification"}',
        STREAMING[:-1] + ', "\\u0074ype": "aaep:agent.awaiting.clarification"}',
        STREAMING[:-1] + ', "type": "medai:patient.consulted"}',
        STREAMING + json.dumps(question()),
        '{"type": "aaep:agent.output.streamingx"}',
        '{"type": "x:aaep:agent.output.streaming"}',
        '["type", "aaep:agent.output.streaming"]',
        "",
        "{}",
        "ping",
    ],
)
def test_skim_never_drops_anything_else(data: str) -> None:
    assert not droppable(data)


KEYS = st.one_of(st.sampled_from(["type", "urgency", "@context", "x", '"type"']), st.text(max_size=5))
VALUES = st.one_of(
    st.sampled_from(
        [
            "aaep:agent.output.streaming",
            "aaep:agent.progress.updated",
            "agent.output.streaming",
            "aaep:agent.awaiting.clarification",
            "critical",
            "normal",
            '"type":"aaep:agent.output.streaming"',
            '{"type": "aaep:agent.output.streaming"}',
            '\\"',
        ]
    ),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    st.text(max_size=8),
)
JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)


def encoded(text: str, escape: set[int]) -> str:
    """A JSON string with some of its characters escaped, as a producer may."""
    return (
        '"'
        + "".join(
            f"\\u{ord(c):04x}" if i in escape and ord(c) < 0xFFFF else json.dumps(c)[1:-1]
            for i, c in enumerate(text)
        )
        + '"'
    )


@st.composite
def objects(draw: st.DrawFn) -> str:
    """JSON objects with members in any order, names twice, and needless escapes."""
    droppable_type = st.just(("type", "aaep:agent.output.streaming"))
    members = draw(st.lists(st.tuples(KEYS, JSON) | droppable_type, min_size=1, max_size=6))
    escape = draw(st.sets(st.integers(0, 6), max_size=2))
    space = draw(st.sampled_from(["", " ", "\n  "]))
    parts = [
        f"{space}{encoded(key, escape)}{space}:{space}"
        + (encoded(value, escape) if isinstance(value, str) else json.dumps(value))
        for key, value in members
    ]
    return "{" + ",".join(parts) + space + "}"


@settings(deadline=None)
@given(objects())
def test_skim_drops_only_what_parsing_would_drop(data: str) -> None:
    if droppable(data):
        try:
            read = parse_event(json.loads(data), NOW)
        except NotAnEvent:
            pytest.fail("dropped what is not an event")
        assert read.type in IGNORED_TYPES
        assert not read.critical


@pytest.mark.parametrize(
    ("text", "critical"),
    [
        ('{"type": "aaep:agent.awaiting.clarification", broken', True),
        ('{"urgency" : "critical", ', True),
        ("agent.handoff.requested", True),
        ("ping", False),
        ('{"type": "aaep:agent.output.streaming", broken', False),
    ],
)
def test_skim_sees_that_broken_text_may_be_critical(text: str, critical: bool) -> None:
    assert may_be_critical(text) is critical
