"""The arguments of an action: shown whole and inert, in fields that change nothing where they are left as they are."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.views import inert
from bot.views.arguments import (
    argument_words,
    change_words,
    changed_in_all,
    editable,
    main_argument,
    outline,
    read_changes,
)
from bot.views.blockkit import classic
from bot.views.card import shows_whole
from bot.views.forms import DECISION_BLOCK, full_view, read_submission
from bot.views.notices import nudge
from bot.views.page import outside_words, page_card
from bot.views.wording import action_of
from core.approvals import version_of
from core.clarification import Clarification, Edit, Round, round_with
from core.transitions import amended
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, judge_message, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, direct, words
from tests.unit.bot.views.kit import about, content
from workspace.controls import encode, initial

SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
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


def kinds_of(blocks: list[dict[str, Any]], text: str) -> list[str]:
    """The kinds of rich text elements that have this text."""
    return [
        each["type"] for each in walk(blocks) if {"text": text, "type": "text"} in each.get("elements", ())
    ]


def asked(arguments: dict[str, Any], **more: Any) -> Clarification:
    return direct(**{"action": "Do it", "arguments": arguments, "editable": True} | more)


def sent(arguments: dict[str, Any], schema: dict[str, Any] | None = None) -> Round:
    """A round with any arguments that people may change."""
    record = asked({"x": 1})
    wanted = record.current.confirmation
    assert wanted is not None
    return amended(record, wanted=wanted.copied(sent=arguments, arguments_schema=schema)).current


def state_of(block: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    """What Slack sends of a field: as it was, or with a new text."""
    element = block["element"]
    if element["type"] == "radio_buttons":
        return {"selected_option": element["initial_option"]}
    return {"value": element.get("initial_value") if text is None else text}


def fields(record: Clarification) -> dict[str, dict[str, Any]]:
    view = RENDERER.answer_modal(record)
    judge_view(view)
    assert "answer in the thread" not in json.dumps(view)
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
    values = {name: {"value": state_of(block)} for name, block in fields(record).items()}
    assert read_changes(values, record.current) == ({}, {})


@settings(max_examples=25, deadline=None)
@given(arguments=ARGUMENTS, data=st.data())
def test_what_is_typed_is_a_value_or_an_error_at_its_field(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    record = asked(arguments)
    known = record.current.arguments
    shown = {
        name: each for name, each in fields(record).items() if each["element"]["type"] != "radio_buttons"
    }
    typed = data.draw(st.sampled_from(["", "7", "1.5", "true", "[1, {}]", "{", "NaN", "x\ny", "[" * 2000]))
    changed, errors = read_changes(
        {name: {"value": state_of(each, typed)} for name, each in shown.items()}, record.current
    )
    assert errors.keys() <= shown.keys()
    for name, value in changed.items():
        was = known[name]
        if isinstance(was, (dict, list)):
            assert type(value) is type(was)
        elif isinstance(was, str):
            assert value == (typed.replace("\n", "\r\n") if inert.ends_with_crlf(was) else typed)
        elif isinstance(was, (int, float)) and not isinstance(was, bool):
            assert isinstance(value, (int, float))
            assert not isinstance(value, bool)
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "typed", "read"),
    [
        (1.0, "1", 1),
        (1.0, "2", 2),
        (3, "3.0", 3.0),
        (3, "4.5", 4.5),
        ("a ", "a", None),
        ("a ", " a", None),
        ("a", " a", " a"),
        ("a", "b\n", "b\n"),
        ("", "b", "b"),
        (" ", "", None),
        ([1.0], "[1.0]", None),
        ([1.0], "[1]", [1]),
        ({"a": None}, '{"a": null}', None),
        (None, "7", 7),
        (10**30, "7", 7),
    ],
)
def test_field_left_as_it_was_keeps_value_and_type(value: Any, typed: str, read: Any) -> None:
    (field,) = editable(sent({"x": value})).values()
    changed, errors = read_changes({field.block_id: {"value": {"value": typed}}}, sent({"x": value}))
    assert (json.dumps(changed), errors) == (json.dumps({} if read is None else {"x": read}), {})


@pytest.mark.parametrize("typed", ['"7"', "true", "null", "[7]"])
def test_large_number_stays_a_number(typed: str) -> None:
    (field,) = editable(sent({"x": 10**30})).values()
    changed, errors = read_changes({field.block_id: {"value": {"value": typed}}}, sent({"x": 10**30}))
    assert (changed, errors) == ({}, {field.block_id: "The agent sent a number; enter one, too."})


@pytest.mark.parametrize("value", ["a", 7, [1], {}, None])
def test_argument_that_is_cleared_is_an_error_at_its_field(value: Any) -> None:
    (field,) = editable(sent({"x": value})).values()
    assert not field.optional
    changed, errors = read_changes({field.block_id: {"value": {"value": None}}}, sent({"x": value}))
    assert (changed, list(errors)) == ({}, [field.block_id])


@pytest.mark.parametrize("value", ["x" * 3001, "a\u202eb", {"long": ["x" * 3000]}])
def test_value_that_a_field_cannot_hold_is_shown_only(value: Any) -> None:
    assert editable(sent({"x": value})) == {}
    record = asked({"x": value})
    said = json.dumps(RENDERER.answer_modal(record), ensure_ascii=False)
    assert ("x" * 100 if value != "a\u202eb" else r"x: \"a<U+202E>b\"") in said


def test_a_comparison_stands_before_the_texts_of_a_change() -> None:
    old, new = "def f():\n    return 1", "def f():\n    return 2"
    said = argument_words({"file_path": "x.py", "old_string": old, "new_string": new})
    assert said == (
        "Arguments:\n│ file_path: x.py\n"
        "Differences (- old_string, + new_string):\n│  def f():\n│ -    return 1\n│ +    return 2\n"
        "old_string:\n│ def f():\n│     return 1\nnew_string:\n│ def f():\n│     return 2"
    )
    several = argument_words(
        {"edits": [{"old": "a\nb", "new": "a\nc", "replace_all": True}, {"old": "d", "new": "e"}]}
    )
    assert "Differences in edits (- old, + new):\n│  a\n│ -b\n│ +c\n│ edits:\n" in several
    assert "replace_all: yes" in several
    assert "Differences" not in argument_words({"edits": [{"old_string": "a\nb", "new_string": 7}]})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("same\ntext", "same\ntext"),
        ("a", "b"),
        ("a\n" * 300, "a\n" * 301),
        ("a\n" * 20, "a\n" + "b\n" * 40),
        ("a", 7),
    ],
)
def test_no_comparison_that_tells_nothing(old: object, new: object) -> None:
    assert "Differences" not in argument_words({"old": old, "new": new})


def test_line_ends_of_windows_are_named_and_kept() -> None:
    record = asked({"content": "@echo off\r\nset A=1\r\n", "mixed": "a\r\nb\n"})
    said = argument_words(record.current.arguments)
    assert "│ content: (with CRLF line ends)\n│   │ @echo off\n│   │ set A=1" in said
    assert "│ mixed:\n│   │ a\\r\n│   │ b" in said
    block = fields(record)["argument.0"]
    assert "argument.1" not in fields(record), "its line ends would change"
    changed, errors = read_changes(
        {"argument.0": {"value": state_of(block, "@echo off\nset A=2\n")}}, record.current
    )
    assert (changed, errors) == ({"content": "@echo off\r\nset A=2\r\n"}, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ({}, ""),
        ("word", "word"),
        ({"a": 1, "b": True, "c": None, "d": []}, "a: 1\nb: yes\nc: (none)\nd: []"),
        (["x", "y"], "- x\n- y"),
        ({"k": "\u2067שלום\u2069"}, "k: \u2068שלום\u2069"),  # as an event of a right-to-left language has it
        ([{"a": 1, "b": 2}, {"a": 3}], "-\n  a: 1\n  b: 2\n-\n  a: 3"),
        ({"a": {"b": {"c": 1}}}, "a:\n  b:\n    c: 1"),
    ],
)
def test_other_structured_content_reads_as_arguments_do(value: object, text: str) -> None:
    assert outline(value) == text


def test_words_of_an_agent_cannot_look_like_another_argument() -> None:
    lines = argument_words({"note": "fine\nto: bob", "tail": "\nto: bob", "to": "ann"}).split("\n")
    assert [each for each in lines if each.startswith("│ to:")] == ["│ to: ann"]
    assert all(each.startswith("│ ") for each in lines[1:])


def test_changes_are_shown_with_whose_accept_they_undo() -> None:
    record = asked({"n": 1})
    edit = Edit.model_validate(
        {"changed": {"n": 2}, "user": "U0GOOD", "decided_by": "user:x", "at": NOW}
        | {"lapsed": [{"user": "U0GOOD", "decided_by": "user:y", "at": NOW, "digest": "d"}]}
    )
    shown = amended(record, edits=(edit,))
    card = RENDERER.card(shown)
    judge_message(card)
    texts = [str(each["text"]) for each in walk(card.blocks) if isinstance(each.get("text"), str)]
    for said in (card.text, "\n".join(texts)):
        assert "Arguments edited by <@U0GOOD>; the approval of <@U0GOOD> no longer counts" in said
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
    shown = round_with(record.current, edits=(edit,))
    said = [
        "links › old: 1 → (left out)",
        "links › deep › x: yes → no",
        "links › deep › y: [1] → [1, 2]",
        "links › new: (left out) → (none)",
        'mixed: {"a": 1} → [1]',
    ]
    assert change_words(shown) == said
    assert changed_in_all(shown).split("\n") == said


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (False, "x: no\n"),
        ("no", 'x: "no"\n'),
        ("false", 'x: "false"\n'),
        ("TRUE", 'x: "TRUE"\n'),
        (5, "x: 5\n"),
        ("5", 'x: "5"\n'),
        ("1,204.5", 'x: "1,204.5"\n'),
        ("4.1.2", "x: 4.1.2\n"),
        (None, "x: (none)\n"),
        ("(none)", 'x: "(none)"\n'),
        ("null", 'x: "null"\n'),
        ("", 'x: ""\n'),
        (" a", 'x: " a"\n'),
        ([], "x: []\n"),
        ({}, "x: {}\n"),
        ("[]", 'x: "[]"\n'),
        ('"5"', 'x: "\\"5\\""\n'),
        ("ann@example.com", "x: ann@example.com\n"),
    ],
)
def test_value_shows_its_type_where_it_could_be_mistaken(value: Any, told: str) -> None:
    assert told in argument_words({"x": value, "y": 1})
    message = RENDERER.card(asked({"x": value, "y": 1}))
    assert told in unescape(message.text)
    assert told in shown(message.blocks)


def test_no_two_values_look_alike() -> None:
    values: list[Any] = [
        True, False, None, 0, 1, 1.0, [], {}, "", " ", "a", "a ", "\n", "\\n", "a\nb", "a\\nb", "\x01", "a\x01", "a\u200b",
        "yes", "no", "Yes", "true", "false", "null", "none", "(none)", "0", "1", "1.0", "[]", "{}", '""', '"a"', "a\tb", "a\u3164",
        ["a"], ["a", 1], ["a", "1"], {"a": 1}, {"a": "1"}, {"a": None}, {"a": "(none)"}, "a → b",
    ]  # fmt: skip
    assert len({argument_words({"x": each}) for each in values}) == len(values)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\x01b\x1b\x7f", r"a\x01b\x1b\x7f"),
        ("a\u200bb\u3164\U000e0041\u00ad\u2800\u115f\u202e\ufe0f", "a<U+200B>b<U+3164><U+E0041><U+00AD><U+2800><U+115F><U+202E><U+FE0F>"),
        ("a\ufffe\U0001ffffb", "a<U+FFFE><U+1FFFF>b"),
        ("a\u200b" + "\U000e0041" * 400, "a<U+200B>⟨400 × <U+E0041>⟩"),
        ("a\rb\u2028c", r"a\rb<U+2028>c"),
        ("👩‍👩‍👧‍👦 ❤\ufe0f 1\ufe0f⃣ می\u200cخواهم", "👩‍👩‍👧‍👦 ❤\ufe0f 1\ufe0f⃣ می\u200cخواهم"),
        ("ls" + " " * 3000 + "rm -rf ~", "ls ⟨3000 spaces⟩ rm -rf ~"),
        ("ls" + "\n" * 400 + "rm -rf ~", "ls\n⟨400 line breaks⟩\nrm -rf ~"),
        ("ls" + "\n \t\u00a0" * 400 + "rm -rf ~", "ls\n⟨400 line breaks⟩\n \t\u00a0rm -rf ~"),
        ("a\n\n    b\tc\n", "a\n\n    b\tc\n"),
    ],
)  # fmt: skip
def test_what_nobody_sees_and_what_pushes_others_out_of_sight_is_told(text: str, told: str) -> None:
    assert inert.visible(text).replace("\u2068", "").replace("\u2069", "") == told
    for arguments in ({"command": text}, {"note": [text]}):
        said = full_text_of(asked(arguments))
        assert all(line.strip() in said for line in told.split("\n"))
    action = asked({}, action=text if text.strip() else "x").current.confirmation
    assert action is not None
    assert all(line.strip() in action_of(action).text for line in told.split("\n"))


def full_text_of(record: Clarification) -> str:
    every = shown(RENDERER.view(full_view(record))["blocks"])
    return every.replace("\u2068", "").replace("\u2069", "")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("a", "a\x01"),
        ("a\x01", r"a\x01"),
        ("a\r\nb", "a\nb"),
        ("a", "a\u200b"),
        ("5", 5),
        ("no", False),
        (None, "(none)"),
        ("x" * 900 + "a" + "x" * 900, "x" * 900 + "b" + "x" * 900),
        ([1] * 300 + [2] + [1] * 300, [1] * 300 + [3] + [1] * 300),
        ({"a": "\x01"}, {"a": r"\x01"}),
        (1, True),
    ],
)
def test_every_change_shows(was: Any, now: Any) -> None:
    edit = Edit.model_validate({"changed": {"x": now}, "user": "U0GOOD", "decided_by": "user:x", "at": NOW})
    record = asked({"x": was})
    (line,) = change_words(round_with(record.current, edits=(edit,)))
    before, _, after = line.partition(": ")[2].rpartition(" → ")
    assert before != after
    assert before
    assert max(map(len, (before, after))) <= 400


def test_short_arguments_are_lines_that_stand_together_and_the_rest_stays_as_it_is_written() -> None:
    arguments = {
        "command": "make deploy",
        "region": "eu-west-1",
        "note": "first\nforce: no",
        "links": {"survey": "https://a.example/1", "more": {"n": 3}},
        "force": True,
        "to": ["ann", "bob"],
        "bodies": ["x" * 80, "y"],
        "empty": {},
    }
    card = RENDERER.card(asked(arguments))
    judge_message(card)
    lines = [
        "region: eu-west-1",
        "links › survey: https://a.example/1",
        "links › more › n: 3",
        "force: yes",
        'to: ["ann", "bob"]',
        "empty: {}",
    ]
    said = shown(card.blocks)
    assert "\n".join(lines) in said
    assert "\n".join(map(inert.with_bar, lines)) in unescape(card.text)
    assert "note:\nfirst\nforce: no\nbodies:\nxxx" in said
    assert kinds_of(card.blocks, "first\nforce: no") == ["rich_text_quote"]
    lists = [each for each in walk(card.blocks) if each.get("type") == "rich_text_list"]
    assert lists
    assert all(each["border"] == 1 for each in lists)
    (code,) = (item for item in walk(card.blocks) if item.get("type") == "rich_text_preformatted")
    assert code["elements"][0]["text"] == "make deploy"
    assert "View full" not in labels(card.blocks)


def test_form_that_does_not_hold_all_offers_no_accept() -> None:
    record = asked({"body": "x" * 250_000, "to": "ann"})
    view = RENDERER.answer_modal(record)
    judge_view(view)
    (decision,) = (each for each in view["blocks"] if each.get("block_id") == "answer.decision")
    assert [each["value"] for each in decision["element"]["options"]] == ["reject"]
    assert "To see all of it and accept it, close this and click Accept on the card" in shown(view["blocks"])


def test_field_says_what_is_sent_and_what_it_does_not_show_at_a_glance_stands_beside_it() -> None:
    mail = "\n".join(f"line {n}" for n in range(60))
    record = asked({"a": "5", "b": False, "c": "x" + "\n" * 50 + "y", "d": "plain", "e": mail})
    found = [each for each in RENDERER.answer_modal(record)["blocks"] if each["type"] == "input"]
    hints = {each["label"]["text"]: each.get("hint", {}).get("text", "") for each in found}
    assert "Sent as text" in hints["a"]
    assert "Yes is sent as true" in hints["b"]
    assert hints["d"] == ""
    beside = shown([each for each in RENDERER.answer_modal(record)["blocks"] if each["type"] != "input"])
    assert "⟨50 line breaks⟩" in beside
    assert "line 59" in beside
    assert "plain" not in beside


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, ""),
        ({"note": "hm", "command": "ls\n\nrm -rf /srv"}, "command: ls ⏎ rm -rf /srv"),
        ({"path": "a.py", "old_string": "a", "new_string": "b"}, "Arguments: path: a.py · old_string: a ·…"),
        ({"to": "ann@example.com", "cc": None}, "Arguments: to: ann@example.com · cc: (n…"),
        ({"command": "x" * 99}, f"command: {'x' * 30}…"),
    ],
)
def test_main_argument_is_the_command_or_the_first_on_one_line(arguments: dict[str, Any], said: str) -> None:
    assert main_argument(arguments, 40) == said


def test_reminder_pages_and_pagers_outside_name_the_command() -> None:
    record = asked({"note": "hm", "command": "rm -rf /srv/old <!channel>"})
    many = content(about(record), about(asked({"command": "ls"})))
    reminder = RENDERER.message(nudge(record, []))
    judge_message(reminder)
    for said in (
        reminder.text,
        shown(reminder.blocks),
        RENDERER.message(page_card(many)).text,
        "\n".join(outside_words(many)),
        "\n".join(outside_words(content(about(record)))),
    ):
        assert "Do it" in said
        assert "command: rm -rf /srv/old" in said
    assert "<!channel>" not in reminder.text
    assert "<!channel>" not in RENDERER.message(page_card(many)).text


def test_arguments_that_unfold_have_not_been_seen() -> None:
    """All of it is in the message, but folded: Accept still opens the window, and an accept in words does not count."""
    command = "\n".join(f"step {n}" for n in range(100))
    record = asked({"command": command, "to": "ann", "cc": "bob"})
    card = RENDERER.card(record)
    judge_message(card)
    (fold,) = (item for item in walk(card.blocks) if item.get("type") == "container")
    assert fold["title"]["text"] == "Arguments in full"
    assert (fold["is_collapsible"], fold["default_collapsed"]) == (True, True)
    assert shown(fold["child_blocks"]) == "\n".join(argument_words(record.current.arguments).split("\n")[1:])
    assert not shows_whole(record)
    assert "clarify.review" in str(card.blocks)
    assert "clarify.accept" not in str(card.blocks)
    assert "Click Accept to see all of it" in shown(card.blocks)
    older = classic(card.blocks)
    assert "container" not in str(older)
    for blocks in (card.blocks, older):
        assert {"View full", "Accept"} <= set(labels(blocks))
        assert "step 0\nstep 1" in shown(blocks)
    assert "container" not in str(RENDERER.card(asked({"command": "ls"})).blocks)
    assert "container" not in str(RENDERER.card(asked({"command": "line\n" * 3000})).blocks), (
        "it fits no message"
    )


SHAPES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "enum": ["eu", "us"]},
        "level": {"enum": [1, 2, True]},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
        "plan": {"anyOf": [{"enum": ["free", "paid"], "type": "string"}, {"type": "null"}]},
        "note": {"type": ["string", "null"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "to": {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}}},
    },
    "required": ["region"],
}
SHAPED: dict[str, Any] = {
    "region": "eu", "level": True, "tags": ["b"], "plan": None, "note": None, "days": 3, "to": {"mail": "a@b.c"},
}  # fmt: skip


def submitted(record: Clarification, **entered: Any) -> dict[str, Any]:
    """What Slack sends of the modal: some fields filled in anew, the others as they were."""
    labels = {name: f"argument.{place}" for place, name in enumerate(record.current.arguments)}
    by_block = {labels[name]: each for name, each in entered.items()}
    values = {
        block: {
            "value": encode(each["element"], by_block[block])
            if block in by_block
            else initial(each["element"])
        }
        for block, each in fields(record).items()
    }
    decision = {"type": "radio_buttons", "selected_option": {"value": "accept"}}
    return values | {DECISION_BLOCK: {"value": decision}}


@pytest.mark.parametrize(
    ("entered", "changed"),
    [
        ({}, {}),
        ({"region": "us"}, {"region": "us"}),
        ({"level": "2"}, {"level": 2}),
        ({"level": "1"}, {"level": 1}),
        ({"tags": ["a", "c"]}, {"tags": ["a", "c"]}),
        ({"tags": []}, {"tags": []}),
        ({"plan": "free"}, {"plan": "free"}),
        ({"note": "12"}, {"note": "12"}),
        ({"note": ""}, {}),
        ({"days": "9"}, {"days": 9}),
        ({"to": '{"mail": "b@c.d"}'}, {"to": {"mail": "b@c.d"}}),
    ],
)
def test_menu_keeps_types(entered: dict[str, Any], changed: dict[str, Any]) -> None:
    record = asked(SHAPED, arguments_schema=SHAPES)
    answer = read_submission(submitted(record, **entered), record, version_of(record.current))
    assert json.dumps(answer.changed or {}) == json.dumps(changed)


def test_redacted_choice_is_not_offered() -> None:
    schema = {"properties": {"region": {"enum": ["eu", "us", "[redacted] 1"]}}}
    (field,) = editable(sent({"region": "eu"}, schema)).values()
    assert [label for label, _ in field.options] == ["eu", "us"]
    assert not editable(sent({"region": "[redacted] 1"}, schema))
