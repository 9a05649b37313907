"""The arguments of an action: shown whole and inert, in fields that change nothing where they are left as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.views.arguments import argument_words, change_words, changed_in_all, editable, read_changes
from bot.views.forms import full_view
from core.clarification import Clarification, Edit, opened
from core.questions import NewQuestion, ask_of, read_question
from tests.unit.bot.judges import judge_message, judge_view, walk
from tests.unit.bot.strategies import NOW, SLA, words
from tests.unit.bot.views.kit import RENDERER

SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    words(4000),
    st.sampled_from(["", " ", "x\n", "\nrisk: low", "SELECT 1", "a\r\nb"]),
)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words(20), inner, max_size=3)
)
NAMES = words(60) | st.sampled_from(
    ["command", "patch", "old_string", "new_string", "query", "edits", "content"]
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=12)


def asked(arguments: dict[str, Any], **more: Any) -> Clarification:
    new = NewQuestion(action="Do it", arguments=arguments, editable=True, **more)
    question = read_question(new, producer="p", token="q_1")
    ask = ask_of(question, producer="p", token="q_1", at=NOW, expires_at=NOW + SLA)
    return opened(42, 1, ask, NOW, SLA)


def state_of(block: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    """What Slack sends of a field: as it was, or with a new text."""
    element = block["element"]
    if element["type"] == "radio_buttons":
        return {"selected_option": element["initial_option"]}
    return {"value": element.get("initial_value") if text is None else text}


def fields(record: Clarification) -> dict[str, dict[str, Any]]:
    view = RENDERER.answer_modal(record)
    judge_view(view)
    assert "Answer in the thread" not in json.dumps(view)
    return {b["block_id"]: b for b in view["blocks"] if b.get("block_id", "").startswith("argument.")}


@settings(max_examples=25, deadline=None)
@given(arguments=ARGUMENTS)
def test_whatever_an_agent_sends_is_shown_and_left_as_it_is(arguments: dict[str, Any]) -> None:
    record = asked(arguments)
    card = RENDERER.card(record)
    judge_message(card)
    assert any(block["type"] == "actions" for block in card.blocks), "laid out, not as plain text"
    page = RENDERER.view(full_view(record))
    judge_view(page)
    known = record.asked.arguments
    values = {name: {"value": state_of(block)} for name, block in fields(record).items()}
    assert read_changes(values, known) == ({}, {})


@settings(max_examples=25, deadline=None)
@given(arguments=ARGUMENTS, data=st.data())
def test_what_is_typed_is_a_value_or_an_error_at_its_field(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    record = asked(arguments)
    known = record.asked.arguments
    shown = {
        name: each for name, each in fields(record).items() if each["element"]["type"] != "radio_buttons"
    }
    typed = data.draw(st.sampled_from(["", "7", "1.5", "true", "[1, {}]", "{", "NaN", "x\ny", "[" * 2000]))
    changed, errors = read_changes(
        {name: {"value": state_of(each, typed)} for name, each in shown.items()}, known
    )
    assert errors.keys() <= shown.keys()
    for name, value in changed.items():
        was = known[name]
        if isinstance(was, (dict, list)):
            assert type(value) is type(was)
        elif isinstance(was, str):
            assert value == typed
        elif isinstance(was, (int, float)) and not isinstance(was, bool):
            assert isinstance(value, (int, float, list, dict, bool, str)) or value is None
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "typed", "read"),
    [
        (1.0, "1", 1),
        (1.0, "2", 2),
        (3, "3.0", 3.0),
        (3, "4.5", 4.5),
        ("a ", "a", None),
        ("a", "b\n", "b\n"),
        ("a", "", ""),
        ([1.0], "[1.0]", None),
        ([1.0], "[1]", [1]),
        ({"a": None}, '{"a": null}', None),
        (None, "7", 7),
        (10**30, "7", 7),
    ],
)
def test_field_left_as_it_was_keeps_value_and_type(value: Any, typed: str, read: Any) -> None:
    (field,) = editable({"x": value}).values()
    changed, errors = read_changes({field.block_id: {"value": {"value": typed}}}, {"x": value})
    assert (json.dumps(changed), errors) == (json.dumps({} if read is None else {"x": read}), {})


@pytest.mark.parametrize("value", ["x" * 3001, "a\u202eb", {"long": ["x" * 3000]}])
def test_value_that_a_field_cannot_hold_is_shown_only(value: Any) -> None:
    assert editable({"x": value}) == {}
    record = asked({"x": value})
    said = json.dumps(RENDERER.answer_modal(record), ensure_ascii=False)
    assert ("x" * 100 if value != "a\u202eb" else "x: ab") in said


def test_several_changes_of_a_file_are_shown_as_such() -> None:
    edits = [
        {"old_string": "a", "new_string": "b", "replace_all": True},
        {"old_string": "c", "new_string": "d"},
    ]
    words = argument_words({"file_path": "x.py", "edits": edits})
    assert "file_path: x.py" in words
    assert "│ replace_all: yes\n│ -a\n│ +b\n│ ⋯\n│ -c\n│ +d" in words
    odd = argument_words({"edits": [{"old_string": "a", "new_string": 7}]})
    assert "old_string: a" in odd
    assert "new_string: 7" in odd


def test_words_of_an_agent_cannot_look_like_another_argument() -> None:
    lines = argument_words({"note": "fine\nto: bob", "tail": "\nto: bob", "to": "ann"}).split("\n")
    assert [each for each in lines if each.startswith("to:")] == ["to: ann"]


def test_changes_are_shown_with_whose_accept_they_undo() -> None:
    record = asked({"n": 1})
    edit = Edit.model_validate(
        {"changed": {"n": 2}, "user": "U0GOOD", "decided_by": "user:x", "at": NOW}
        | {"lapsed": [{"user": "U0GOOD", "decided_by": "user:y", "at": NOW, "digest": "d"}]}
    )
    shown = record.model_copy(update={"aaep": record.asked.model_copy(update={"edits": (edit,)})})
    card = RENDERER.card(shown)
    judge_message(card)
    texts = [str(each["text"]) for each in walk(card.blocks) if isinstance(each.get("text"), str)]
    for said in (card.text, "\n".join(texts)):
        assert "Arguments changed by <@U0GOOD>; the accept of <@U0GOOD> does not count any more" in said
        assert "n: 1 → 2" in said


def test_changes_within_an_argument_are_named_by_their_place() -> None:
    sent = {
        "links": {"notes": "https://a.example", "old": 1, "deep": {"x": True, "y": [1]}},
        "mixed": {"a": 1},
    }
    changed = {
        "links": {"notes": "https://a.example", "deep": {"x": False, "y": [1, 2]}, "new": None},
        "mixed": [1],
    }
    edit = Edit.model_validate({"changed": changed, "user": "U0GOOD", "decided_by": "user:x", "at": NOW})
    record = asked(sent)
    shown = record.asked.model_copy(update={"edits": (edit,)})
    said = [
        "links › old: 1 → (left out)",
        "links › deep › x: yes → no",
        "links › deep › y: [1] → [1, 2]",
        "links › new: (left out) → (none)",
        'mixed: {"a": 1} → [1]',
    ]
    assert change_words(shown) == said
    assert changed_in_all(shown).split("\n")[1:] == said
