"""Events as the schema wants them, as found in the wild, and any JSON at all; replies as the schema wants them."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import aaep
from core.aaep import Event, NotAnEvent, core_type, parse_event, reply_to
from core.clarification import Ask, Choice, Question, Response

RECEIVED = datetime(2026, 5, 24, 14, 23, tzinfo=UTC)
SENT = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)
SCHEMA = json.loads(
    Path(__file__).with_name("schemas").joinpath("clarification.reply.schema.json").read_text()
)
VALID = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
EVENT: dict[str, Any] = {
    "@context": "https://aaep-protocol.org/context/v1",
    "type": "aaep:agent.awaiting.clarification",
    "event_id": "evt_1",
    "session_id": "sess_1",
    "timestamp": "2026-05-24T14:22:00Z",
    "producer": {"agent_id": "planner", "agent_name": "Planner"},
    "urgency": "critical",
    "question": "Which database?",
    "summary_normal": "Which database is it?",
    "reply_token": "rpl_1",
    "timeout_seconds": 300,
    "accepted_response_kinds": ["multiple_choice"],
    "choices": [{"value": "pg", "label": "Postgres"}, {"value": "my", "label": "MySQL"}],
}
TWO = (Choice("pg", "Postgres"), Choice("my", "MySQL"))
GONE = object()


def read(**changes: Any) -> Event:
    return parse_event({k: v for k, v in (EVENT | changes).items() if v is not GONE}, RECEIVED)


def question(**changes: Any) -> Ask:
    found = read(**changes).question
    assert found is not None
    return found


def test_event_by_the_schema_has_no_problems() -> None:
    event = read(correlation_id="corr_1", sequence_number=7, context="We migrate.", default_response="pg")
    assert event.problems == ()
    assert (event.type, event.event_id, event.session_id) == (
        "agent.awaiting.clarification",
        "evt_1",
        "sess_1",
    )
    assert (event.timestamp, event.agent_id, event.agent_name) == (SENT, "planner", "Planner")
    assert (event.critical, event.sequence_number, event.correlation_id) == (True, 7, "corr_1")
    asked = Question(
        agent_name="Planner",
        session_id="sess_1",
        event_id="evt_1",
        reply_token="rpl_1",
        correlation_id="corr_1",
        asked_at=SENT,
        kinds=("multiple_choice",),
        choices=TWO,
        context="We migrate.",
        default_response="pg",
    )
    assert event.question == Ask("planner", "Which database?", "human", None, blocking=True, asked=asked)
    assert event.timeout_seconds == 300


@pytest.mark.parametrize(
    ("changes", "kinds", "choices"),
    [
        ({}, ("multiple_choice",), TWO),
        ({"accepted_response_kinds": GONE}, ("multiple_choice",), TWO),
        ({"accepted_response_kinds": GONE, "choices": GONE}, ("freetext",), ()),
                ({"accepted_response_kinds": "yes_no"}, ("yes_no",), TWO),
        ({"accepted_response_kinds": ["numeric", "yes_no"], "choices": GONE}, ("yes_no", "numeric"), ()),
                ({"accepted_response_kinds": ["slider", 7, "freetext"]}, ("freetext",), TWO),
                ({"choices": []}, ("freetext",), ()),
        ({"choices": GONE, "options": ["Staging", "Production"], "accepted_response_kinds": GONE},
         ("multiple_choice",), (Choice("Staging", "Staging"), Choice("Production", "Production"))),
                ({"choices": "Staging", "options": ["a"]}, ("multiple_choice",), (Choice("a", "a"),)),
        ({"choices": ["a", 1, 2.5, {"value": "v"}, {"label": "l"}, {}, None, True, ""]}, ("multiple_choice",),
         (Choice("a", "a"), Choice("1", "1"), Choice("2.5", "2.5"), Choice("v", "v"), Choice("l", "l"))),
        ({"choices": ["a", "a"]}, ("multiple_choice",), (Choice("a", "a"),)),
        ({"free_form_allowed": True}, ("multiple_choice", "freetext"), TWO),
            ],
)  # fmt: skip
def test_kinds_and_choices_as_found(
    changes: Any, kinds: tuple[str, ...], choices: tuple[Choice, ...]
) -> None:
    asked = question(**changes).asked
    assert (asked.kinds, asked.choices) == (kinds, choices)


@pytest.mark.parametrize(
    ("changes", "several"),
    [({"multi_select": True}, True), ({"multi_select": 1}, False), ({}, False), ({"multi_select": True, "choices": GONE}, False)],
)  # fmt: skip
def test_multi_select_as_found(changes: Any, several: bool) -> None:
    assert question(**changes).asked.multi_select is several


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (300, 300), (1, 1), (0.4, 1), (30.9, 30), ("60", 60), (" 60 ", 60), (86_400, 86_400), (10**7, 10**7),
        (0, None), (-5, None), (10**9, None), (10**400, None), (math.nan, None), (math.inf, None), ("nan", None),
        ("soon", None), (None, None), (True, None), ([300], None), ({}, None), (GONE, None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_timeout_as_found(value: object, seconds: int | None) -> None:
    event = read(timeout_seconds=value)
    assert event.question is not None
    assert event.timeout_seconds == seconds
    assert bool(event.problems) is (seconds is None)


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ("2026-05-24T14:22:00Z", SENT), ("2026-05-24T16:22:00+02:00", SENT), ("2026-05-24T14:22:00", SENT),
        ("2026-05-24T14:22:00.000000Z", SENT), ("2026-05-24 14:22:00Z", SENT),
        ("24.5.2026", RECEIVED), ("", RECEIVED), (1779632520, RECEIVED), (None, RECEIVED), (GONE, RECEIVED),
        ("0001-01-01T00:00:00+14:00", RECEIVED), ("9999-12-31T23:59:59-12:00", RECEIVED), ("9999-12-31T23:59:59Z", RECEIVED),
        ("0001-01-01T00:00:00Z", RECEIVED), ("2026-05-24T14:22:60Z", RECEIVED), ({}, RECEIVED),
    ],
)  # fmt: skip
def test_timestamp_as_found(value: object, read_as: datetime) -> None:
    event = read(timestamp=value)
    assert event.timestamp == read_as
    assert ("timestamp not RFC 3339" in event.problems) is (read_as == RECEIVED)


@pytest.mark.parametrize(
    ("raw", "core"),
    [
        ("aaep:agent.session.errored", "agent.session.errored"),
        ("agent.session.errored", "agent.session.errored"),
        ("https://aaep-protocol.org/ns/v1#agent.session.errored", "agent.session.errored"),
        ("https://evil.example/aaep-protocol.org/agent.session.errored",) * 2,
        ("x:agent.session.errored",) * 2,
    ],
)
def test_type_compact_or_uri(raw: str, core: str) -> None:
    assert core_type(raw) == core


@pytest.mark.parametrize(
    ("changes", "critical"),
    [
        ({}, True), ({"urgency": "normal"}, True),         ({"type": "agent.session.errored", "urgency": GONE}, True),
        ({"type": "x:own.event", "urgency": "critical"}, True),
        ({"type": "x:own.event", "urgency": "normal"}, False),
        ({"type": "agent.tool.completed", "urgency": GONE}, False),
            ],
)  # fmt: skip
def test_critical(changes: Any, critical: bool) -> None:
    assert read(**changes).critical is critical


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"question": GONE, "summary_normal": GONE}, "question missing"),
        ({"reply_token": GONE}, "reply_token missing"),
    ],
)
def test_question_that_cannot_be_answered_is_still_critical(changes: Any, problem: str) -> None:
    event = read(**changes)
    assert event.question is None
    assert event.critical
    assert problem in event.problems


def test_question_without_words_of_its_own_has_the_summarys() -> None:
    assert question(question=GONE).question == "Which database is it?"


def test_ids_that_are_missing_are_stable() -> None:
    bare = {"event_id": GONE, "session_id": GONE, "producer": "planner"}
    one, two = read(**bare), read(**bare)
    assert (one.event_id, one.session_id, one.agent_id) == (two.event_id, two.session_id, "unknown-agent")
    assert one.event_id.startswith("evt_")
    assert read(**bare, question="Other?").event_id != one.event_id
    assert len(one.problems) == 3


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("pg", "pg"),
        (True, "yes"),
        (False, "no"),
        (None, None),
        ([], None),
    ],
)
def test_default_response_as_found(value: object, words: str | None) -> None:
    assert question(default_response=value).asked.default_response == words


def test_half_characters_are_replaced_everywhere_that_is_used() -> None:
    event = read(question="Who\ud83d?", event_id="evt_\udc00", choices=["\ud83d", "b"])
    assert event.question is not None
    assert (event.question.question, event.event_id) == ("Who\ufffd?", "evt_\ufffd")
    assert event.question.asked.choices[0].value == "\ufffd"


def test_summary_is_the_normal_one_or_the_nearest_there_is() -> None:
    assert read(summary_terse="t", summary_normal="n", summary_detailed="d").summary() == "n"
    assert read(summary_terse="t", summary_normal=GONE, summary_detailed="d").summary() == "t"
    assert read(summary_normal="", summary_detailed="d").summary() == "d"
    assert read(summary_normal=GONE).summary() is None


@pytest.mark.parametrize(
    ("extensions", "found"),
    [
        ({"agentx": {"issue": 4}}, {"issue": 4}),
        ({"agentx": 4}, {}),
        (None, {}),
        (GONE, {}),
    ],
)
def test_extension(extensions: object, found: dict[str, int]) -> None:
    assert read(extensions=extensions).extension("agentx") == found


@pytest.mark.parametrize(
    "junk", [None, 7, "x", [], [EVENT], True, {}, {"type": None}, {"type": ""}, {"type": ["x"]}]
)
def test_no_event_at_all(junk: object) -> None:
    with pytest.raises(NotAnEvent):
        parse_event(junk, RECEIVED)


def test_nested_too_deeply() -> None:
    nest: dict[str, Any] = {}
    for _ in range(100_000):
        nest = {"x": nest}
    try:
        with pytest.raises(NotAnEvent):
            parse_event({"type": "agent.handoff.requested", "x": nest}, RECEIVED)
    finally:
        while nest:  # taken apart by hand: so deep, its deletion would recurse
            nest = nest["x"]


TEXT = st.text() | st.sampled_from(["\ud800", "x" * 5000, "critical", "2026-05-24T14:22:00Z", "NaN"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FIELDS = [*EVENT, "options", "multi_select", "free_form_allowed", "default_response", "context", "sequence_number",
          "extensions", "correlation_id", "summary_terse"]  # fmt: skip


@settings(max_examples=20)
@given(JSON)
def test_any_json_is_an_event_or_not_one(obj: object) -> None:
    try:
        parse_event(obj, RECEIVED)
    except NotAnEvent:
        return


@settings(max_examples=15)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from(sorted(aaep.CRITICAL_TYPES)))
def test_event_with_any_fields_is_read(fields: dict[str, object], kind: str) -> None:
    event = parse_event(EVENT | fields | {"type": kind}, RECEIVED)
    assert event.critical
    assert event.timestamp.tzinfo is UTC
    for text in (event.event_id, event.session_id, event.agent_id):
        text.encode()
    if event.question is not None:
        asked = event.question.asked
        assert asked.kinds
        assert "multiple_choice" not in asked.kinds or asked.choices
        event.question.question.encode()
    event.summary()
    event.extension("agentx")
    assert parse_event(json.loads(json.dumps(event.raw)), RECEIVED).event_id == event.event_id


@given(
    st.text(min_size=1, max_size=200) | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False),
    st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - as Hypothesis wants its limits
    st.none() | st.text(max_size=600),
    st.none() | st.text(max_size=20),
)  # fmt: skip
def test_reply_is_valid_by_the_schema(
    response: Response, at: datetime, decided_by: str | None, correlation: str | None
) -> None:
    reply = reply_to(
        confirms=False,
        reply_token="rpl_1",
        response=response,
        subscription_id="sub_1",
        answered_at=at,
        decided_by=decided_by,
        correlation_id=correlation,
    )
    VALID.validate(reply)
    assert reply["response"] is response
    assert ("decided_by" in reply, "correlation_id" in reply) == (bool(decided_by), bool(correlation))
