from __future__ import annotations

from typing import Any

import pytest

from bot.workspace.rules import check_message, check_view
from tests.unit.bot.workspace.kit import actions, button, modal, option, plain, select, text_input

Json = dict[str, Any]


def mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def section(text: str = "hello", **more: Any) -> Json:
    return {"type": "section", "text": mrkdwn(text), **more}


def number(**more: Any) -> Json:
    element = {"type": "number_input", "action_id": "n", "is_decimal_allowed": True} | more
    return {"type": "input", "block_id": "n", "label": plain("Number"), "element": element}


def confirm(**more: Any) -> Json:
    return {
        "title": plain("Sure?"),
        "text": plain("Really?"),
        "confirm": plain("Yes"),
        "deny": plain("No"),
    } | more


RIGHT = {
    "text only": {"text": "hello"},
    "longest post": {"text": "x" * 40_000},
    "section": {"blocks": [section("x" * 3000)]},
    "fields": {"blocks": [{"type": "section", "fields": [mrkdwn("x")] * 10}]},
    "verbatim": {"blocks": [{"type": "section", "text": mrkdwn("x") | {"verbatim": True}}]},
    "header": {"blocks": [{"type": "header", "text": plain("x" * 150)}]},
    "context": {"blocks": [{"type": "context", "elements": [mrkdwn("x")] * 10}]},
    "25 buttons": {"blocks": [actions(*[button(action_id=f"a{i}") for i in range(25)])]},
    "button with all": {
        "blocks": [
            actions(
                button(value="x" * 2000, style="primary", confirm=confirm(), accessibility_label="x" * 75)
            )
        ]
    },
    "link button": {"blocks": [actions(button(url="https://example.org/x"))]},
    "100 options": {"blocks": [actions(select(*[option("o", str(i)) for i in range(100)]))]},
    "accessory": {"blocks": [section(accessory=button())]},
    "same action_id in two blocks": {"blocks": [actions(button()), actions(button())]},
    "input in a message": {"blocks": [text_input()]},
    "divider": {"blocks": [{"type": "divider"}]},
    "50 blocks": {"blocks": [{"type": "divider"}] * 50},
    "rich text": {
        "blocks": [
            {
                "type": "rich_text",
                "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}],
            }
        ]
    },
    "budget": {"blocks": [section("x" * 2750)] * 4},
}

WRONG = {
    "nothing": ({}, "no_text"),
    "too long a post": ({"text": "x" * 40_001}, "msg_too_long"),
    "text no string": ({"text": 1}, "invalid_arguments"),
    "51 blocks": ({"blocks": [{"type": "divider"}] * 51}, "/blocks"),
    "blocks no list": ({"blocks": {"type": "divider"}}, "/blocks"),
    "block no object": ({"blocks": ["x"]}, "/blocks/0"),
    "unknown block": ({"blocks": [{"type": "carousel_of_joy"}]}, "/blocks/0/type"),
    "unknown field": ({"blocks": [section(colour="red")]}, "colour"),
    "section too long": ({"blocks": [section("x" * 3001)]}, "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
    "section empty text": ({"blocks": [section("")]}, "/blocks/0/text/text"),
    "section of nothing": ({"blocks": [{"type": "section"}]}, "missing required field: text"),
    "field too long": ({"blocks": [{"type": "section", "fields": [mrkdwn("x" * 2001)]}]}, "/blocks/0/fields/0/text"),
    "11 fields": ({"blocks": [{"type": "section", "fields": [mrkdwn("x")] * 11}]}, "no more than 10 items"),
    "header mrkdwn": ({"blocks": [{"type": "header", "text": mrkdwn("x")}]}, "must be plain_text"),
    "header too long": ({"blocks": [{"type": "header", "text": plain("x" * 151)}]}, "/blocks/0/text/text"),
    "text a string": ({"blocks": [{"type": "section", "text": "x"}]}, "must be a text object"),
    "verbatim on plain": ({"blocks": [{"type": "section", "text": plain("x") | {"verbatim": True}}]}, "verbatim"),
    "emoji on mrkdwn": ({"blocks": [{"type": "section", "text": mrkdwn("x") | {"emoji": True}}]}, "emoji"),
    "11 context elements": ({"blocks": [{"type": "context", "elements": [mrkdwn("x")] * 11}]}, "no more than 10 items"),
    "no context elements": ({"blocks": [{"type": "context", "elements": []}]}, "no less than 1 items"),
    "button in context": ({"blocks": [{"type": "context", "elements": [button()]}]}, "/blocks/0/elements/0"),
    "26 buttons": ({"blocks": [actions(*[button(action_id=f"a{i}") for i in range(26)])]}, "no more than 25 items"),
    "no buttons": ({"blocks": [actions()]}, "/blocks/0/elements"),
    "button text too long": ({"blocks": [actions(button("x" * 76))]}, "less than 76"),
    "button mrkdwn": ({"blocks": [actions(button() | {"text": mrkdwn("x")})]}, "must be plain_text"),
    "button value too long": ({"blocks": [actions(button(value="x" * 2001))]}, "less than 2001"),
    "button value empty": ({"blocks": [actions(button(value=""))]}, "more than 0"),
    "button value no string": ({"blocks": [actions(button(value=1))]}, "must be a string"),
    "button style": ({"blocks": [actions(button(style="default"))]}, "must be one of danger, primary"),
    "button url": ({"blocks": [actions(button(url="javascript:alert(1)"))]}, "valid URL"),
    "button url too long": ({"blocks": [actions(button(url="https://x/" + "x" * 3000))]}, "less than 3001"),
    "action_id too long": ({"blocks": [actions(button(action_id="x" * 256))]}, "less than 256"),
    "same action_id twice": ({"blocks": [actions(button(), button())]}, "action_id must be unique"),
    "same block_id twice": ({"blocks": [section(block_id="x"), section(block_id="x")]}, "block_id must be unique"),
    "block_id too long": ({"blocks": [section(block_id="x" * 256)]}, "less than 256"),
    "confirm too long": ({"blocks": [actions(button(confirm=confirm(title=plain("x" * 101))))]}, "less than 101"),
    "confirm text too long": ({"blocks": [actions(button(confirm=confirm(text=plain("x" * 301))))]}, "less than 301"),
    "confirm button too long": ({"blocks": [actions(button(confirm=confirm(deny=plain("x" * 31))))]}, "less than 31"),
    "confirm lacks deny": ({"blocks": [actions(button(confirm={"title": plain("x")}))]}, "missing required field: deny"),
    "101 options": ({"blocks": [actions(select(*[option("o", str(i)) for i in range(101)]))]}, "no more than 100"),
    "no options": ({"blocks": [actions(select())]}, "no less than 1"),
    "option text too long": ({"blocks": [actions(select(option("x" * 76, "v")))]}, "less than 76"),
    "option value too long": ({"blocks": [actions(select(option("x", "v" * 151)))]}, "less than 151"),
    "option values alike": ({"blocks": [actions(select(option("x", "v"), option("y", "v")))]}, "values must be unique"),
    "initial not offered": (
        {"blocks": [actions(select(option("x", "v"), initial_option=option("z", "z")))]},
        "must be one of the options",
    ),
    "placeholder too long": ({"blocks": [actions(select(option("x", "v"), placeholder=plain("x" * 151)))]}, "less than 151"),
    "11 radios": (
        {"blocks": [actions({"type": "radio_buttons", "options": [option("x", str(i)) for i in range(11)]})]},
        "no more than 10",
    ),
    "6 in overflow": (
        {"blocks": [actions({"type": "overflow", "options": [option("x", str(i)) for i in range(6)]})]},
        "no more than 5",
    ),
    "text input in actions": ({"blocks": [actions({"type": "plain_text_input"})]}, "unsupported type"),
    "number input as accessory": ({"blocks": [section(accessory={"type": "number_input"})]}, "unsupported type"),
    "multi select in actions": ({"blocks": [actions({"type": "multi_static_select"})]}, "unsupported type"),
    "two with focus": (
        {"blocks": [text_input("a", focus_on_load=True), text_input("b", focus_on_load=True)]},
        "focus_on_load",
    ),
    "over budget": ({"blocks": [section("x" * 2751)] * 4}, "msg_blocks_too_long"),
}  # fmt: skip


@pytest.mark.parametrize("payload", RIGHT.values(), ids=RIGHT)
def test_check_message_accepts(payload: Json) -> None:
    assert check_message(payload) == []


@pytest.mark.parametrize(("payload", "expected"), WRONG.values(), ids=WRONG)
def test_check_message_refuses(payload: Json, expected: str) -> None:
    found = check_message(payload)
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(("length", "right"), [(4000, True), (4001, False)])
def test_check_message_update_limit(length: int, right: bool) -> None:
    assert (check_message({"text": "x" * length}, update=True) == []) is right


RIGHT_VIEWS = {
    "modal": modal(text_input(multiline=True, min_length=1, max_length=3000)),
    "no submit without inputs": {"type": "modal", "title": plain("x"), "blocks": [section()]},
    "100 blocks": modal(*[{"type": "divider"}] * 100),
    "metadata": modal(section(), private_metadata="x" * 3000, callback_id="x" * 255),
    "number": modal(number(min_value="1", max_value="2.5", initial_value="2")),
    "home": {"type": "home", "blocks": [section()]},
}
WRONG_VIEWS = {
    "no type": ({"blocks": []}, "/view/type"),
    "title too long": (modal(section(), title=plain("x" * 25)), "/view/title/text"),
    "submit too long": (modal(section(), submit=plain("x" * 25)), "/view/submit/text"),
    "close too long": (modal(section(), close=plain("x" * 25)), "/view/close/text"),
    "title missing": ({"type": "modal", "blocks": []}, "missing required field: title"),
    "101 blocks": (
        modal(*[{"type": "divider"}] * 101),
        "no more than 100 items allowed [json-pointer:/view/blocks]",
    ),
    "metadata too long": (modal(section(), private_metadata="x" * 3001), "/view/private_metadata"),
    "callback_id too long": (modal(section(), callback_id="x" * 256), "/view/callback_id"),
    "input without submit": (
        {"type": "modal", "title": plain("x"), "blocks": [text_input()]},
        "missing required field: submit",
    ),
    "unknown field": (modal(section(), colour="red"), "colour"),
    "max_length": (modal(text_input(max_length=3001)), "between 1 and 3000"),
    "min over max": (modal(text_input(min_length=5, max_length=4)), "min_length"),
    "initial too long": (modal(text_input(max_length=3, initial_value="xxxx")), "less than 4"),
    "label missing": (
        modal({"type": "input", "element": {"type": "plain_text_input"}}),
        "missing required field: label",
    ),
    "decimal missing": (
        modal({"type": "input", "label": plain("x"), "element": {"type": "number_input"}}),
        "is_decimal_allowed",
    ),
    "bound no string": (modal(number(min_value=1)), "must be a string"),
    "bound no number": (modal(number(min_value="one")), "must be a number"),
    "bound not whole": (modal(number(min_value="1.5", is_decimal_allowed=False)), "must be a whole number"),
    "min over max number": (modal(number(min_value="2", max_value="1")), "max_value"),
    "button in input": (
        modal({"type": "input", "label": plain("x"), "element": button()}),
        "unsupported type",
    ),
    "markdown in a modal": (modal({"type": "markdown", "text": "x"}), "unsupported type"),
    "submit on home": ({"type": "home", "blocks": [], "submit": plain("x")}, "submit"),
    "too big": (modal(*[section("é" * 3000) for _ in range(50)]), "bytes"),
}


@pytest.mark.parametrize("view", RIGHT_VIEWS.values(), ids=RIGHT_VIEWS)
def test_check_view_accepts(view: Json) -> None:
    assert check_view(view) == []


@pytest.mark.parametrize(("view", "expected"), WRONG_VIEWS.values(), ids=WRONG_VIEWS)
def test_check_view_refuses(view: Json, expected: str) -> None:
    found = check_view(view)
    assert any(expected in problem for problem in found), found
