"""Who judges a payload besides ourselves: the local workspace's rules, and slack_sdk's models."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View

from bot.views import inert
from bot.views.forms import full_view
from bot.views.render import RenderedMessage, Renderer
from core.clarification import Clarification
from tests.kit.times import DATE, judge_times, walk
from workspace.rules import check_message, check_view

OURS = "0123456789abcdef"  # the id of the installation
RENDERER = Renderer(OURS)
OWN = re.compile(rf"<@U0(?:GOOD|OTHER)>|<#C0GOOD>|{DATE}")
LINKED = "https://github.com/acme/"  # what tests' lists allow
NEVER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
STRAY = re.compile(r"[<>]|&(?!amp;|lt;|gt;)")


def judge_message(message: RenderedMessage) -> None:
    """Slack takes it as a post and as an update, and nothing in it is live but the bot's own."""
    payload = {"text": message.text, "blocks": message.blocks}
    assert check_message(payload) == []
    assert check_message(payload, update=True) == []
    assert 0 < len(message.text) <= 4000
    for block in Block.parse_all(message.blocks):
        assert isinstance(block, Block)
        block.to_dict()
    assert len({block["block_id"] for block in message.blocks}) == len(message.blocks)
    actions = [item["action_id"] for item in walk(message.blocks) if "action_id" in item]
    assert len(set(actions)) == len(actions)
    judge_words(message.blocks)
    judge_live(message.text)
    judge_times(message.blocks)
    assert "<!date" not in message.text  # Slack formats nothing there
    for piece in message.more:
        assert not NEVER.search(piece)
        assert piece.strip()
        judge_times({"text": piece})
        assert len(inert.fallback(piece, 10**9).encode("utf-16-le")) // 2 <= 3900


def judge_view(view: dict[str, Any]) -> None:
    """Slack takes it as a modal, and nothing in it is live but the bot's own."""
    assert check_view(view) == []
    View(**view).to_dict()
    assert len(json.dumps(view)) <= 250_000
    judge_words(view)
    judge_times(view)


def judge_words(payload: Any) -> None:
    json.dumps(payload, ensure_ascii=False).encode()
    for item in walk(payload):
        assert item.get("type") != "section" or item["expand"], "Slack may hide some of it behind “see more”"
        if item.get("type") == "mrkdwn":
            judge_live(item["text"])
        elif item.get("type") in {
            "plain_text",
            "raw_text",
            "text",
        }:  # all but the first in what is shown as it stands
            assert not NEVER.search(item["text"])
            assert item["text"].strip() if item["type"] == "plain_text" else item["text"]
        elif item.get("type") == "rich_text":
            blocks = payload["blocks"] if isinstance(payload, dict) else payload
            assert shown(item).strip() or item not in blocks  # only a cell may be blank
        elif item.get("type") == "link":
            assert set(item) <= {"type", "url", "style"}  # no label: it shows where it leads
            assert item["url"].startswith(LINKED)


def judge_live(text: str) -> None:
    assert not STRAY.search(OWN.sub("", text))
    assert not NEVER.search(text)


def labels(payload: Any) -> list[str]:
    """What the buttons say, in their order, and what the menus behind three dots offer."""
    return [
        each["text"]["text"]
        for item in walk(payload)
        if item.get("type") in {"button", "overflow"}
        for each in item.get("options", [item])
    ]


def shown(payload: Any) -> str:
    """All that a message or view shows, joined by newlines."""
    said = (item["url"] if item.get("type") == "link" else item.get("text") for item in walk(payload))
    return "\n".join(text for text in said if isinstance(text, str))


def numbered(payload: Any) -> str:
    """All that blocks show, with the numbers that Slack puts before the items of a list."""
    payload = copy.deepcopy(payload)
    for item in walk(payload):
        if item.get("type") == "rich_text_list" and item["style"] == "ordered":
            for number, each in enumerate(item["elements"], item.get("offset", 0) + 1):
                each["elements"].insert(0, {"type": "text", "text": f"{number}. "})
    return shown(payload)


def solid(text: str) -> str:
    """The letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def is_within(part: str, whole: str) -> bool:
    """Whether all of `part` is in `whole`, in order."""
    left = iter(whole)
    return all(char in left for char in part)


def full_text(record: Clarification) -> str:
    """All pages of View full, joined; Slack takes each of them."""
    parts: list[str] = []
    for page in range(1, 100):
        view = RENDERER.view(full_view(record, page=page))
        judge_view(view)
        parts += [
            shown(block) for block in view["blocks"] if block["type"] in ("section", "rich_text", "alert")
        ]
        if "Next" not in labels(view):
            return "".join(parts)
    raise AssertionError("View full does not end")
