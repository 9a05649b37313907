from __future__ import annotations

from typing import Any

import pytest

from bot.errors import RenderError
from bot.views.blockkit import check_message, check_view
from workspace.rules import check_message as workspace_message


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": plain(text), **more}


def button(**more: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": "a", "text": plain("ok"), **more}


def actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def select(options: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "static_select", "action_id": "s", "placeholder": plain("p"), "options": options}


OPTION = {"text": plain("x"), "value": "1"}


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([], "0 blocks"),
        ([section("x")] * 51, "51 blocks"),
        ([section("😀" * 1501)], "text of section has 3002"),
        ([{"type": "header", "text": plain("x" * 151)}], "text of header has 151"),
        ([actions()], "0 elements in actions"),
        ([actions(button(text=plain("x" * 76)))], "text of button has 76"),
        ([actions(button(), button())], "action_ids are not unique"),
        ([section("x", block_id="b"), section("y", block_id="b")], "block_ids are not unique"),
        ([section("x" * 3000)] * 4, "12001 characters in all"),
    ],
)
def test_check_message_refuses_what_slack_refuses(blocks: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(RenderError, match=says):
        check_message("x", blocks)


@pytest.mark.parametrize("text", ["", "x" * 4001])
def test_check_message_refuses_text_that_no_update_takes(text: str) -> None:
    with pytest.raises(RenderError, match="text has"):
        check_message(text, [section("x")])


def test_check_message_passes_what_is_right() -> None:
    blocks = [section("x" * 3000), actions(button(), select([OPTION]))]
    check_message("x" * 4000, blocks)
    assert workspace_message({"text": "x", "blocks": blocks}) == []


def test_check_message_never_repeats_the_content() -> None:
    with pytest.raises(RenderError) as caught:
        check_message("text", [section("secret " * 1000)])
    assert "secret" not in str(caught.value)


def view(**more: Any) -> dict[str, Any]:
    return {"type": "modal", "title": plain("t"), "blocks": [section("x")], **more}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (view(title=plain("x" * 25)), "title of modal has 25"),
        (view(blocks=[section("x")] * 101), "101 blocks"),
        (view(private_metadata="x" * 3001), "private_metadata of modal has 3001"),
        (view(blocks=[section("\u2603" * 3000)] * 15), "more than 240000 bytes"),
    ],
)
def test_check_view_refuses_what_slack_refuses(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(RenderError, match=says):
        check_view(wrong)
