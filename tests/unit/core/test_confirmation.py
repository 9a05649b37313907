"""Confirmations as the schema wants them and as they are found: read, recorded, decided, and replied to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import answers
from core.aaep import Event, parse_event, reply_to
from core.clarification import Answer, Ask, Clarification, Confirmation, Decision, round_with
from core.errors import AnswerRejected
from core.escalation import escalation_words
from core.ledgerfiles import as_item, read_item
from core.matching import is_follow_up
from core.monitor import repetitions
from core.records import dump, parse
from core.transitions import amended, answered, reply_settled
from tests.kit.builders import ADE, NOW, ask, record

SCHEMA = json.loads(
    Path(__file__).with_name("schemas").joinpath("confirmation.reply.schema.json").read_text()
)
VALID = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
GONE = object()
EVENT: dict[str, Any] = {
    "@context": "https://aaep-protocol.org/context/v1",
    "type": "aaep:agent.awaiting.confirmation",
    "event_id": "evt_1",
    "session_id": "sess_1",
    "timestamp": "2026-05-24T14:22:00Z",
    "producer": {"agent_id": "planner"},
    "urgency": "critical",
    "action": "Transfer $500.",
    "consequence": "Funds move at once.",
    "reply_token": "rpl_1",
    "timeout_seconds": 300,
    "default_decision": "reject",
    "risk_level": "high",
    "irreversible": True,
}
BOTH: tuple[Decision, ...] = ("accept", "reject")
WANTED = Confirmation(
    action="Transfer $500.",
    consequence="Funds move at once.",
    risk_level="high",
    irreversible=True,
    default_decision="reject",
    allowed_replies=BOTH,
)
BARE = Confirmation(action="Save it.", consequence="It is saved.")


def read(**changes: Any) -> Event:
    return parse_event({key: value for key, value in (EVENT | changes).items() if value is not GONE}, NOW)


def wanted(**changes: Any) -> Confirmation:
    question = read(**changes).question
    assert question is not None
    assert question.asked.confirmation is not None
    return question.asked.confirmation


def consent(confirmation: Confirmation = WANTED, **more: Any) -> Ask:
    given: dict[str, Any] = {
        "question": confirmation.words,
        "kinds": ("confirmation",),
        "wanted": confirmation,
    }
    return ask(**(given | more))


def open_record(confirmation: Confirmation = WANTED) -> Clarification:
    return record(question=confirmation.words, kinds=("confirmation",), wanted=confirmation)


def test_event_by_the_schema_is_a_question_that_takes_accept_or_reject() -> None:
    event = read()
    assert event.problems == ()
    assert event.critical
    question = event.question
    assert question is not None
    asked = question.asked
    assert (asked.reply_token, event.timeout_seconds, asked.kinds) == ("rpl_1", 300, ("confirmation",))
    assert question.question == "Approve: Transfer $500.\nConsequence: Funds move at once."
    assert asked.default_response == "reject"
    assert asked.confirmation == WANTED


def test_event_asks_people_for_approval_whichever_agent_it_names() -> None:
    question = read(extensions={"agentx": {"to": "architect"}}).question
    assert question is not None
    assert question.to == "human"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"action": GONE, "summary_normal": "Confirm?"},
            "action missing",
        ),  # nobody accepts what was not said
        ({"action": "\u202e\u200b \x00"}, "action missing"),  # nobody would see it
        ({"reply_token": GONE}, "reply_token missing"),
        ({"allowed_replies": ["approve", "deny"]}, "neither accept nor reject is allowed"),
    ],
)
def test_broken_event_asks_nothing_and_says_why(changes: dict[str, Any], problem: str) -> None:
    event = read(**changes)
    assert event.question is None
    assert event.critical
    assert problem in event.problems


@pytest.mark.parametrize(
    ("changes", "field", "expected", "problem"),
    [
        ({"consequence": GONE}, "consequence", None, "consequence missing"),
        ({"default_decision": GONE}, "default_decision", None, "default_decision missing or unknown"),
        (
            {"default_decision": " Accept"},
            "default_decision",
            "accept",
            "default_decision accepts an irreversible action",
        ),
        ({"risk_level": "HIGH"}, "risk_level", "high", None),
        ({"risk_level": "severe"}, "risk_level", "severe", "risk_level has an unknown value"),
        ({"risk_level": 3}, "risk_level", "unreadable", "risk_level has an unknown value"),
        ({"irreversible": "true"}, "irreversible", True, "irreversible is neither true nor false"),
        ({"irreversible": "perhaps"}, "irreversible", True, "irreversible is neither true nor false"),
        ({"irreversible": GONE}, "irreversible", None, None),
        ({"reversibility": "reversible_with_effort"}, "reversibility", "reversible_with_effort", None),
        ({"reversibility": "hardly"}, "reversibility", "hardly", "reversibility has an unknown value"),
        ({"allowed_replies": ["reject", "accept"]}, "allowed", ("accept", "reject"), None),
        ({"allowed_replies": "accept"}, "allowed", ("accept", "reject"), None),
        (
            {"extra_context": {"a": {"b": [1, True, None]}}},
            "extra_context",
            {"a": {"b": [1, True, None]}},
            None,
        ),
    ],
)
def test_event_is_read_leniently(
    changes: dict[str, Any], field: str, expected: object, problem: str | None
) -> None:
    assert getattr(wanted(**changes), field) == expected
    assert read(**changes).problems == ((problem,) if problem else ())


@pytest.mark.parametrize(
    ("risk", "irreversible", "reversibility", "twice", "breaks"),
    [
        ("high", True, None, True, True),
        ("low", True, None, True, False),
        ("high", False, None, True, False),
        ("low", None, None, False, False),
        ("medium", None, "irreversible", True, True),
        ("medium", False, "irreversible", True, True),  # of two statements the graver one
        ("low", False, "reversible_with_effort", False, False),
        ("severe", None, None, True, False),
    ],
)
def test_stakes_decide_what_is_asked_twice_and_which_default_breaks_the_rule(
    risk: str | None, irreversible: bool | None, reversibility: str | None, twice: bool, breaks: bool
) -> None:
    found = BARE.copied(
        risk_level=risk, irreversible=irreversible, reversibility=reversibility, default_decision="accept"
    )
    assert (found.asks_twice, found.breaks_default_rule) == (twice, breaks)
    assert not found.copied(default_decision="reject").breaks_default_rule


def test_record_keeps_what_is_asked_and_reads_it_back() -> None:
    extra = {"account": "7821", "deep": {"a": [1, 2]}}
    full = WANTED.copied(reversibility="irreversible", allowed_replies=("reject",), extra_context=extra)
    kept = open_record(full)
    raw = json.loads(json.dumps(dump(kept)))
    assert as_item(raw)["aaep"] | {
        "action": "Transfer $500.", "consequence": "Funds move at once.", "riskLevel": "high", "irreversible": True,
        "reversibility": "irreversible", "defaultDecision": "reject", "allowedReplies": ["reject"],
        "extraContext": extra, "kinds": ["confirmation"],
    } == as_item(raw)["aaep"]  # fmt: skip
    again = parse(raw)
    assert again is not None
    assert again.current.confirmation == full
    assert read_item(as_item(raw)) == kept
    assert again.thread[0].body == "Approve: Transfer $500.\nConsequence: Funds move at once."


@pytest.mark.parametrize(
    ("said", "decision", "why"),
    [
        ("accept", "accept", None),
        ("  ACCEPT. ", "accept", None),
        ("reject: the amount is wrong", "reject", "the amount is wrong"),
        ("accept: " + "x" * 4096, "accept", "x" * 4096),
        ("accept:\n:tada: as we agreed\non Monday", "accept", ":tada: as we agreed\non Monday"),
        ("accept: 承認します", "accept", "承認します"),
        ("*Reject*", "reject", None),
        ("reject!", "reject", None),
        ("reject because it is late", "reject", "because it is late"),
        ("Reject, because of the date", "reject", "because of the date"),
        ("reject - not on a Friday", "reject", "not on a Friday"),
        ("reject please fix first", "reject", "please fix first"),
        ("reject\n\nplease fix\nfirst", "reject", "please fix\nfirst"),
        ("reject: @folake please fix first", "reject", "@folake please fix first"),
        ("reject：理由", "reject", "理由"),
        ("reject: -5 is below zero", "reject", "-5 is below zero"),
        ("reject: why on a Friday?", "reject", "why on a Friday?"),
        ("reject: I would accept it tomorrow", "reject", "I would accept it tomorrow"),
        ("reject :x:", "reject", None),
        ("reject :x: no tests", "reject", ":x: no tests"),
    ],
)
def test_thread_words_decide(said: str, decision: Decision, why: str | None) -> None:
    found = answers.from_text(open_record().asked, said)
    assert found == Answer(decision, decision.capitalize(), why)


@pytest.mark.parametrize(
    "said",
    [
        "yes", "no", "ok", "y", "true", "1", "sure", "👍", ":+1:", "accepted", "I accept", "accept it",
        "accept, but only 300", "accept or reject?", "accept reject", "approve", "", "do not accept", "accept\nreject: no",
        "accept?", "accept!", "accept and go", "accept - as we agreed", "accept : as we agreed", "accept:as we agreed",
        "accept\n: as we agreed", "accept.: as we agreed", "accept：as we agreed", "accept\nas we agreed", "accept:",
        "accept :x:", "accept :question:", "accept :thinking_face:", "accept :white_check_mark:", "accept:x:", "accept ❌",
        "*accept*", "_accept_", "~accept~", "`accept`", "```accept```", "> accept", "“accept”", "(accept", "acc\u200bept",
        "accept\u200b", "\u2060accept", "accept\ufe0f", "ａｃｃｅｐｔ", "аccept", "@folake accept", ":x: accept",
        "accept: :x:", "accept: :+1::skin-tone-3:", "accept: :承認:", "accept: 👍🏽", "accept: 🇳🇬", "accept: 1️⃣", "accept: ℹ️",
        "accept: ...", "accept: -", "accept: @folake", "accept: @here @channel", "accept: \u200b\u2060", "accept: \u3164",
        "accept: fine\nreject: no", "accept: reject",
        "reject?", "reject or accept?", "reject, or not", "reject if it is red", "reject, why?", "reject accept", "rejected",
        "Rejecting it would be wrong", "reject-list it", "reject's name is odd", "~reject~", "> reject", "“reject”", "I reject",
        "reject only the first\naccept the rest", "reject CLR-42-002", "Reject “clr-42-2”, not this one",
    ],
)  # fmt: skip
def test_words_that_only_sound_like_a_decision_are_asked_back(said: str) -> None:
    with pytest.raises(AnswerRejected, match=r"Reply with accept or reject"):
        answers.from_text(open_record().asked, said)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("accept :x:", "accept"),
        ("approve", "accept"),
        ("rejected", "reject"),
        ("> declined", "reject"),
        ("yes", None),
        ("@folake accept?", None),
    ],
)
def test_hint_names_the_decision_that_was_probably_meant(said: str, meant: Decision | None) -> None:
    assert answers.decision_in(said) == meant
    with pytest.raises(AnswerRejected) as told:
        answers.from_text(open_record().asked, said)
    assert ("If you mean" in str(told.value)) is (meant is not None)
    assert f"reply with just {meant}." in str(told.value) or meant is None


def test_hint_asks_for_no_bare_accept_where_a_reason_is_wanted() -> None:
    asked = round_with(open_record().current, reason_wanted=True)
    with pytest.raises(AnswerRejected, match="accept: and your reason") as told:
        answers.from_text(asked.question, "accept, fine")
    assert "just accept" not in str(told.value)


def test_decision_that_the_agent_does_not_take_is_not_made() -> None:
    asked = open_record(BARE.copied(allowed_replies=("reject",))).asked
    assert answers.hint(asked).startswith("Reply with reject; ")
    assert answers.from_text(asked, "reject").response == "reject"
    with pytest.raises(AnswerRejected, match="Reply with reject;"):
        answers.from_text(asked, "accept")
    with pytest.raises(AnswerRejected):
        answers.from_decision(record().asked, "accept")


@pytest.mark.parametrize("topic", [None, "money"])
def test_confirmation_asked_again_is_a_new_one(topic: str | None) -> None:
    done = answered(open_record(), Answer("accept", "Accept"), ADE, NOW)
    sent = done.model_copy(
        update={"topic": "money", "rounds": (round_with(done.current, reply="delivered"),)}
    )
    again = consent(reply_token="rpl_2", topic=topic)
    assert not is_follow_up(sent, again)
    assert not is_follow_up(sent, ask(reply_token="rpl_2", question=WANTED.words, topic="money"))
    plain = answered(record(topic="money"), Answer("yes", "yes"), ADE, NOW)
    heard = amended(plain, reply="delivered")
    assert is_follow_up(heard, ask(reply_token="rpl_2", topic="money"))
    assert not is_follow_up(heard, consent(reply_token="rpl_2", topic="money"))


@pytest.mark.parametrize(
    ("confirmation", "words"),
    [
        (WANTED, "Options: accept · reject (risk: high, irreversible)"),
        (BARE, "Options: accept · reject (risk: not said)"),
    ],
)
def test_escalation_says_the_options_and_the_stakes(confirmation: Confirmation, words: str) -> None:
    assert words in escalation_words(open_record(confirmation), "stale")


def reply(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "reply_token": "rpl_1", "response": "accept", "subscription_id": "sub_1", "decided_by": "user:ade",
        "answered_at": datetime(2026, 5, 24, 14, 25, tzinfo=UTC), "rationale": None, "correlation_id": None,
    }  # fmt: skip
    return reply_to(confirms=True, **(fields | changes))


@given(
    decision=st.sampled_from(["accept", "reject"]),
    rationale=st.none() | st.text(max_size=5000),
    decided_by=st.none() | st.text(max_size=300),
    correlation_id=st.none() | st.text(max_size=20),
)
def test_reply_is_valid(
    decision: str, rationale: str | None, decided_by: str | None, correlation_id: str | None
) -> None:
    made = reply(response=decision, rationale=rationale, decided_by=decided_by, correlation_id=correlation_id)
    VALID.validate(made)


def test_reply_carries_no_other_decision() -> None:
    with pytest.raises(ValueError, match="accept or reject"):
        reply(response="yes")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=15,
)


@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                "action", "consequence", "risk_level", "irreversible", "reversibility", "default_decision",
                "allowed_replies", "extra_context", "timeout_seconds", "reply_token",
            ]
        ),
        _json,
        max_size=6,
    )
)  # fmt: skip
def test_any_event_is_read_and_its_record_can_be_kept(changes: dict[str, Any]) -> None:
    question = read(**changes).question
    if question is None:
        return
    assert question.asked.confirmation is not None
    kept = open_record(question.asked.confirmation)
    text = json.dumps(dump(kept), allow_nan=False)
    again = parse(json.loads(text))
    assert again is not None
    assert again.current.confirmation == question.asked.confirmation


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_deep_context_is_kept_as_text_where_it_is_deep(wrap: Any) -> None:
    deep: Any = "the bottom"
    for _ in range(60):
        deep = wrap(deep)
    kept = wanted(extra_context={"deep": deep}).extra_context
    assert "the bottom" in json.dumps(kept)
    for _ in range(900):
        deep = wrap(deep)
    assert wanted(extra_context={"deep": deep}).extra_context


def dropping(table: str, rows: int = 40_000) -> Confirmation:
    return Confirmation(
        action=f"Drop the table “{table}” of production.",
        consequence=f"All {rows} rows are gone for ever.",
        risk_level="high",
    )


@pytest.mark.parametrize(
    ("second", "is_stuck"),
    [(dropping("items"), False), (dropping("orders"), True), (dropping("orders", 2), False)],
)
def test_consent_to_a_like_action_is_no_repetition_and_to_the_same_one_is(
    second: Confirmation, *, is_stuck: bool
) -> None:
    """An agent has to ask for each of them: only the same words again say that it goes round in circles."""
    first = answered(open_record(dropping("orders")), Answer("accept", "Accept"), ADE, NOW)
    first = reply_settled(first, "delivered", None)
    again = open_record(second).model_copy(update={"id": "CLR-42-002"})
    assert [each.clarification for each in repetitions([first, again])] == ["CLR-42-002"] * is_stuck
