"""Slack's limits on blocks, elements, messages and views: what is taken, what is refused, and where it was wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workspace.kit import (
    Json,
    actions,
    button,
    home,
    modal,
    mrkdwn,
    option,
    plain,
    section,
    select,
    text_input,
)
from workspace.rules import check_message, check_view, message_problems

DIVIDER = {"type": "divider"}


def fields(*texts: Json) -> Json:
    return {"type": "section", "fields": list(texts)}


def header(text: Json) -> Json:
    return {"type": "header", "text": text}


def context(*elements: Json) -> Json:
    return {"type": "context", "elements": list(elements)}


def field(element: Json, **more: Any) -> Json:
    """An input block."""
    return {"type": "input", "block_id": "n", "label": plain("Number"), "element": element} | more


def number(**more: Any) -> Json:
    return field({"type": "number_input", "action_id": "n", "is_decimal_allowed": True} | more)


def asking(**more: Any) -> Json:
    """A button that asks once more."""
    sure = {"title": plain("Sure?"), "text": plain("?"), "confirm": plain("Yes"), "deny": plain("No")}
    return actions(button(confirm=sure | more))


def chosen(kind: str, count: int) -> Json:
    return actions({"type": kind, "options": [option("o", str(n)) for n in range(count)]})


def buttons(count: int) -> Json:
    return actions(*[button(action_id=f"a{n}") for n in range(count)])


def rich(*parts: Json) -> Json:
    return {"type": "rich_text", "elements": list(parts)}


def words(*elements: Any, kind: str = "section", **more: Any) -> Json:
    """A part of a rich text; strings are its texts."""
    made = [{"type": "text", "text": each} if isinstance(each, str) else each for each in elements]
    return {"type": f"rich_text_{kind}", "elements": made} | more


def listed(*items: Json, **more: Any) -> Json:
    return {"type": "rich_text_list", "style": "bullet", "elements": list(items)} | more


def cell(text: str = "x") -> Json:
    return {"type": "raw_text", "text": text}


def amount(**more: Any) -> Json:
    return {"type": "raw_number", "value": 1204.5, "text": "1,204.5"} | more


def table(*rows: Any, **more: Any) -> Json:
    return {"type": "table", "rows": list(rows) or [[cell()]]} | more


def data_table(*rows: Any, **more: Any) -> Json:
    return {"type": "data_table", "caption": "c", "rows": list(rows) or [[cell()], [amount()]]} | more


def container(*children: Json, **more: Any) -> Json:
    return {"type": "container", "title": plain("More"), "child_blocks": list(children) or [DIVIDER]} | more


def alert(**more: Any) -> Json:
    return {"type": "alert", "text": mrkdwn("x")} | more


INLINE: list[Json] = [
    {"type": "text", "text": "x", "style": {"bold": True, "italic": True, "strike": True, "code": True}},
    {"type": "link", "url": "https://x.org", "text": "x"},
    {"type": "link", "url": "https://x.org"},
    {"type": "emoji", "name": "wave", "unicode": "1f44b"},
    {"type": "user", "user_id": "U1"},
    {"type": "usergroup", "usergroup_id": "S1"},
    {"type": "channel", "channel_id": "C1"},
    {"type": "team", "team_id": "T1"},
    {"type": "broadcast", "range": "here"},
    {"type": "color", "value": "#F405B3"},
    {
        "type": "date",
        "timestamp": 1_700_000_000,
        "format": "{date}",
        "fallback": "then",
        "url": "https://x.org",
    },
]

# Blocks of a message, and a part of what is said to be wrong with them: "" where nothing is.
BLOCKS: dict[str, tuple[Any, str]] = {
    "longest section": ([section("x" * 3000)], ""),
    "section too long": ([section("x" * 3001)], "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
    "section empty text": ([section("")], "/blocks/0/text/text"),
    "section of nothing": ([{"type": "section"}], "missing required field: text"),
    "unknown field": ([section(colour="red")], "colour"),
    "verbatim": ([{"type": "section", "text": mrkdwn("x") | {"verbatim": True}}], ""),
    "accessory": ([section(accessory=button())], ""),
    "10 fields": ([fields(*[mrkdwn("x" * 200)] * 10)], ""),
    "11 fields": ([fields(*[mrkdwn("x")] * 11)], "no more than 10 items"),
    "header too long": ([header(plain("x" * 151))], "/blocks/0/text/text"),
    "10 context elements": ([context(*[mrkdwn("x")] * 10)], ""),
    "11 context elements": ([context(*[mrkdwn("x")] * 11)], "no more than 10 items"),
    "image": ([{"type": "image", "image_url": "https://x.org/i.png", "alt_text": ""}], ""),
    "image from nowhere": ([{"type": "image", "alt_text": "x"}], "exactly one of image_url and slack_file"),
    "25 buttons": ([buttons(25)], ""),
    "26 buttons": ([buttons(26)], "no more than 25 items"),
    "no buttons": ([actions()], "/blocks/0/elements"),
    "button with all": ([actions(button("x" * 75, value="x" * 2000, style="primary", accessibility_label="x" * 75, url="https://x.org"))], ""),
    "button text too long": ([actions(button("x" * 76))], "less than 76"),
    "button value too long": ([actions(button(value="x" * 2001))], "less than 2001"),
    "button value empty": ([actions(button(value=""))], "more than 0"),
    "button url": ([actions(button(url="javascript:alert(1)"))], "valid URL"),
    "action_id too long": ([actions(button(action_id="x" * 256))], "less than 256"),
    "same action_id twice": ([actions(button(), button())], "action_id must be unique"),
    "same action_id in two blocks": ([actions(button()), actions(button())], ""),
    "same block_id twice": ([section(block_id="x"), section(block_id="x")], "block_id must be unique"),
    "block_id too long": ([section(block_id="x" * 256)], "less than 256"),
    "confirm": ([asking(style="danger")], ""),
    "confirm too long": ([asking(title=plain("x" * 101))], "less than 101"),
    "confirm lacks deny": ([asking(deny=None)], "missing required field: deny"),
    "100 options": ([actions(select(*[option("o", str(n)) for n in range(100)]))], ""),
    "101 options": ([actions(select(*[option("o", str(n)) for n in range(101)]))], "no more than 100"),
    "no options": ([actions(select())], "no less than 1"),
    "options and groups": ([actions(select(option("x", "v"), option_groups=[]))], "exactly one of options and option_groups"),
    "option value too long": ([actions(select(option("x", "v" * 151)))], "less than 151"),
    "option values alike": ([actions(select(option("x", "v"), option("y", "v")))], "values must be unique"),
    "initial offered": ([actions(select(option("x", "v"), initial_option=option("x", "v")))], ""),
    "initial not offered": ([actions(select(option("x", "v"), initial_option=option("z", "z")))], "must be one of the options"),
    "11 radios": ([chosen("radio_buttons", 11)], "no more than 10"),
    "6 in overflow": ([chosen("overflow", 6)], "no more than 5"),
    "no date": ([actions({"type": "datepicker", "initial_date": "soon"})], "YYYY-MM-DD"),
    "text input in actions": ([actions({"type": "plain_text_input"})], "unsupported type"),
    "input in a message": ([text_input()], ""),
    "two with focus": ([text_input("a", focus_on_load=True), text_input("b", focus_on_load=True)], "focus_on_load"),
    "50 blocks": ([DIVIDER] * 50, ""),
    "51 blocks": ([DIVIDER] * 51, "/blocks"),
    "unknown block": ([{"type": "carousel_of_joy"}], "/blocks/0/type"),
    "rich text": ([rich(words(*INLINE), listed(words("x"), style="ordered", offset=3, indent=8, border=1), words("x", kind="quote", border=0), words("x", kind="preformatted", border=1, language="sql"))], ""),
    "rich text of nothing": ([rich()], ""),
    "unknown part of rich text": ([rich({"type": "rich_text_poem", "elements": []})], "unsupported type: rich_text_poem [json-pointer:/blocks/0/elements/0/type]"),
    "unknown element": ([rich(words({"type": "mrkdwn", "text": "x"}))], "unsupported type: mrkdwn [json-pointer:/blocks/0/elements/0/elements/0/type]"),
    "empty text": ([rich(words(""))], "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]"),
    "unknown style": ([rich(words({"type": "text", "text": "x", "style": {"loud": True}}))], "loud [json-pointer:/blocks/0/elements/0/elements/0/style]"),
    "style no boolean": ([rich(words({"type": "text", "text": "x", "style": {"bold": "yes"}}))], "must be a boolean"),
    "link to nowhere": ([rich(words({"type": "link", "url": "javascript:alert(1)"}))], "must be a valid URL"),
    "range of a broadcast": ([rich(words({"type": "broadcast", "range": "world"}))], "must be one of here, channel, everyone"),
    "date without a format": ([rich(words({"type": "date", "timestamp": 1}))], "missing required field: format"),
    "list in a list": ([rich(listed(listed(words("x"))))], "unsupported type: rich_text_list [json-pointer:/blocks/0/elements/0/elements/0/type]"),
    "list of nothing": ([rich(listed())], "no less than 1 items"),
    "list style": ([rich(listed(words("x"), style="dashes"))], "must be one of bullet, ordered"),
    "mention in code": ([rich(words({"type": "user", "user_id": "U1"}, kind="preformatted"))], "unsupported type: user"),
    "border": ([rich(words("x", kind="quote", border=2))], "must be between 0 and 1"),
    "table": ([table(*[[cell(), amount(), rich(words("x"))] + [cell()] * 17] * 100, column_settings=[None, {"align": "right"}, {"is_wrapped": True}])], ""),
    "101 rows": ([table(*[[cell()]] * 101)], "no more than 100 items allowed [json-pointer:/blocks/0/rows]"),
    "21 cells": ([table([cell()] * 21)], "no more than 20 items allowed [json-pointer:/blocks/0/rows/0]"),
    "no rows": ([{"type": "table", "rows": []}], "no less than 1 items"),
    "empty cell": ([table([cell("")])], "must be more than 0 characters [json-pointer:/blocks/0/rows/0/0/text]"),
    "mrkdwn cell": ([table([mrkdwn("x")])], "unsupported type: mrkdwn [json-pointer:/blocks/0/rows/0/0/type]"),
    "number without text": ([table([amount(text=None)])], "missing required field: text"),
    "number no number": ([table([amount(value="1")])], "must be a number"),
    "align": ([table(column_settings=[{"align": "justify"}])], "must be one of left, center, right"),
    "21 settings": ([table(column_settings=[None] * 21)], "no more than 20 items"),
    "text of a table": ([table([cell("x" * 10_000)])], ""),
    "too much text in a table": ([table([cell("x" * 10_000), cell()])], "no more than 10000 characters"),
    "data table": ([data_table(*[[cell(), amount()]] * 101, page_size=100, row_header_column_index=1)], ""),
    "102 rows of data": ([data_table(*[[cell()]] * 102)], "no more than 101 items"),
    "data of a header": ([data_table([cell()])], "no less than 2 items"),
    "rich header": ([data_table([rich(words("x"))], [cell()])], "unsupported type: rich_text [json-pointer:/blocks/0/rows/0/0/type]"),
    "rows of two lengths": ([data_table([cell()], [cell(), cell()])], "same number of cells"),
    "no caption": ([data_table(caption=None)], "missing required field: caption"),
    "page of nothing": ([data_table(page_size=0)], "must be between 1 and 100"),
    "two tables": ([table(), data_table()], "invalid_attachments: only_one_table_allowed"),
    "two tables, one in a container": ([table(), container(table())], "invalid_attachments: only_one_table_allowed"),
    "container": ([container(section(), table(), subtitle=mrkdwn("x"), width="full", is_collapsible=True, default_collapsed=True)], ""),
    "rich text in a container": ([container(rich())], "unsupported type: rich_text [json-pointer:/blocks/0/child_blocks/0/type]"),
    "container with a rich title": ([container(title=None, rich_text_title=rich(words("x")), has_header_divider=True)], ""),
    "container without a title": ([container(title=None)], "missing required field: title"),
    "container title too long": ([container(title=plain("x" * 151))], "less than 151"),
    "11 children": ([container(*[DIVIDER] * 11)], "no more than 10 items allowed [json-pointer:/blocks/0/child_blocks]"),
    "no children": ([container() | {"child_blocks": []}], "no less than 1 items"),
    "container in a container": ([container(container())], "unsupported type: container [json-pointer:/blocks/0/child_blocks/0/type]"),
    "wrong in a container": ([container(section("x" * 3001))], "/blocks/0/child_blocks/0/text/text"),
    "same block_id in a container": ([section(block_id="x"), container(section(block_id="x"))], "block_id must be unique"),
    "width": ([container(width="huge")], "must be one of narrow, standard, wide, full"),
    "collapsed for good": ([container(default_collapsed=True)], "requires is_collapsible to be true"),
    "divider that collapses": ([container(is_collapsible=True, has_header_divider=True)], "cannot be set when is_collapsible is true"),
    "alert in a message": ([alert()], "unsupported type: alert"),
    "budget": ([section("x" * 2750)] * 4, ""),
    "over budget": ([section("x" * 2751)] * 4, "msg_blocks_too_long"),
}  # fmt: skip
VIEWS: dict[str, tuple[Json, str]] = {
    "modal": (modal(text_input(multiline=True, min_length=1, max_length=3000)), ""),
    "100 blocks": (modal(*[DIVIDER] * 100), ""),
    "101 blocks": (modal(*[DIVIDER] * 101), "no more than 100 items allowed [json-pointer:/view/blocks]"),
    "longest metadata": (modal(section(), private_metadata="x" * 3000, callback_id="x" * 255), ""),
    "metadata too long": (modal(section(), private_metadata="x" * 3001), "/view/private_metadata"),
    "home": (home(section()), ""),
    "submit on home": (home(submit=plain("x")), "submit"),
    "rich text in a modal": (modal(rich(words("x"))), ""),
    "table in a modal": (modal(table()), "unsupported type: table [json-pointer:/view/blocks/0/type]"),
    "container on home": (home(container()), "unsupported type: container"),
    "alert": (modal(alert(level="warning")), ""),
    "alert on home": (home(alert()), "unsupported type: alert"),
    "level of an alert": (modal(alert(level="fatal")), "must be one of default, info, warning, error, success"),
    "no type": ({"blocks": []}, "/view/type"),
    "title too long": (modal(section(), title=plain("x" * 25)), "/view/title/text"),
    "title missing": ({"type": "modal", "blocks": []}, "missing required field: title"),
    "input without submit": ({"type": "modal", "title": plain("x"), "blocks": [text_input()]}, "missing required field: submit"),
    "unknown field": (modal(section(), colour="red"), "colour"),
    "max_length": (modal(text_input(max_length=3001)), "between 1 and 3000"),
    "min over max": (modal(text_input(min_length=5, max_length=4)), "min_length"),
    "initial too long": (modal(text_input(max_length=3, initial_value="xxxx")), "less than 4"),
    "label missing": (modal(field({"type": "plain_text_input"}, label=None)), "missing required field: label"),
    "number": (modal(number(min_value="1", max_value="2.5", initial_value="2")), ""),
    "decimal missing": (modal(field({"type": "number_input"})), "is_decimal_allowed"),
    "bound no number": (modal(number(min_value="one")), "must be a number"),
    "min over max number": (modal(number(min_value="2", max_value="1")), "max_value"),
    "initial out of bounds": (modal(number(max_value="1", initial_value="2")), "between min_value and max_value"),
    "button in input": (modal(field(button())), "unsupported type"),
    "too big": (modal(*[section("é" * 3000) for _ in range(50)]), "bytes"),
}  # fmt: skip


def judged(found: list[str], expected: str) -> None:
    assert any(expected in problem for problem in found) if expected else not found, found


@pytest.mark.parametrize(("blocks", "expected"), BLOCKS.values(), ids=BLOCKS)
def test_blocks_of_a_message(blocks: Any, expected: str) -> None:
    judged(check_message({"blocks": blocks}), expected)


@pytest.mark.parametrize(("view", "expected"), VIEWS.values(), ids=VIEWS)
def test_views(view: Json, expected: str) -> None:
    judged(check_view(view), expected)


@pytest.mark.parametrize(
    ("payload", "update", "expected"),
    [
        ({"text": "x" * 40_000}, False, ""),
        ({"text": "x" * 40_001}, False, "msg_too_long"),
        ({"text": "x" * 4000}, True, ""),
        ({"text": "x" * 4001}, True, "msg_too_long"),
        ({"text": 1}, False, "invalid_arguments"),
        ({}, False, "no_text"),
    ],
)
def test_text_of_a_message(payload: Json, update: bool, expected: str) -> None:
    judged(check_message(payload, update=update), expected)


def test_blocks_that_a_workspace_does_not_have_are_refused_as_unknown_ones() -> None:
    payload = {"blocks": [section(), container()]}
    (problem,) = message_problems(payload, without={"container"})
    assert problem.code == "invalid_blocks"
    assert str(problem) == "unsupported type: container [json-pointer:/blocks/1/type]"
    (problem,) = message_problems({"blocks": [container(table())]}, without={"table"})
    assert str(problem) == "unsupported type: table [json-pointer:/blocks/0/child_blocks/0/type]"
    assert check_view(modal(alert()), without={"alert"}) == [
        "unsupported type: alert [json-pointer:/view/blocks/0/type]"
    ]
