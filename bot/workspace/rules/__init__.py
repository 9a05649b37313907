"""Slack's rules for what may be posted or shown: blocks, views, texts. Pure; nothing here keeps state.

Written from the Block Kit reference and from what Slack answered to those who broke it. Where Slack's
documents leave a limit open, the tightest one seen refused is taken. `check_message` and `check_view` are
also a judge of payloads that never meet this workspace.
"""

from __future__ import annotations

import json
from typing import Any

from .blocks import HOME, MESSAGE, MODAL, check_blocks
from .text import Json, Problem, Report

__all__ = ["Problem", "check_message", "check_view", "message_problems"]

POST_TEXT, UPDATE_TEXT = 40_000, 4_000
MESSAGE_BLOCKS, VIEW_BLOCKS = 50, 100
# Undocumented: refusals were seen from about 11 000 to 13 000 characters on.
TEXT_BUDGET = 11_000
VIEW_BYTES = 250_000
_MODAL_FIELDS = {
    "type", "title", "blocks", "close", "submit", "private_metadata", "callback_id", "clear_on_close",
    "notify_on_close", "external_id", "submit_disabled",
}  # fmt: skip
_HOME_FIELDS = {"type", "blocks", "private_metadata", "callback_id", "external_id"}
_NEEDS_SUBMIT = "input"


def check_message(payload: Json, *, update: bool = False) -> list[str]:
    """What Slack would refuse in the `text` and `blocks` of a message; empty where nothing.

    `update`: judged as the payload of `chat.update`, which takes less text than `chat.postMessage`.
    """
    return [f"{p.code}: {p}" for p in message_problems(payload, update=update)]


def message_problems(payload: Json, *, update: bool = False) -> list[Problem]:
    """As `check_message`, each problem with the error code that Slack names."""
    report = Report()
    text = payload.get("text")
    if text is not None and not isinstance(text, str):
        return [Problem("invalid_arguments", "/text", "must be a string")]
    if not (text or "").strip() and not payload.get("blocks") and not update:
        return [Problem("no_text", "/text", "text or blocks are required")]
    most = UPDATE_TEXT if update else POST_TEXT
    if text and len(text) > most:
        report.problems.append(Problem("msg_too_long", "/text", f"must be less than {most + 1} characters"))
    if payload.get("blocks") is not None:
        check_blocks(report, payload, "", MESSAGE, MESSAGE_BLOCKS)
        _budget(report, payload["blocks"])
    _focus(report, "/blocks")
    return report.problems


def check_view(view: Json) -> list[str]:
    """What Slack would refuse in a modal or a Home tab; empty where nothing."""
    report = Report(code="invalid_arguments")
    kind = view.get("type")
    if kind not in {MODAL, HOME}:
        report.add("/view/type", "must be modal or home")
        return [str(problem) for problem in report.problems]
    report.known(view, _MODAL_FIELDS if kind == MODAL else _HOME_FIELDS, "/view")
    report.string(view, "private_metadata", "/view", 3000, least=0)
    report.string(view, "callback_id", "/view", 255, least=0)
    report.string(view, "external_id", "/view", 255, least=0)
    if kind == MODAL:
        _modal(report, view)
    check_blocks(report, view, "/view", str(kind), VIEW_BLOCKS)
    _focus(report, "/view/blocks")
    if len(json.dumps(view, ensure_ascii=False).encode()) > VIEW_BYTES:
        report.add("/view", f"must be less than {VIEW_BYTES + 1} bytes")
    return [str(problem) for problem in report.problems]


def _modal(report: Report, view: Json) -> None:
    report.text(view, "title", "/view", 24, required=True)
    report.text(view, "submit", "/view", 24)
    report.text(view, "close", "/view", 24)
    for name in ("clear_on_close", "notify_on_close", "submit_disabled"):
        report.boolean(view, name, "/view")
    blocks = view.get("blocks")
    kinds = (
        {block.get("type") for block in blocks if isinstance(block, dict)}
        if isinstance(blocks, list)
        else set()
    )
    if _NEEDS_SUBMIT in kinds and "submit" not in view:
        report.add("/view", "missing required field: submit (a view with an input block needs it)")


def _focus(report: Report, pointer: str) -> None:
    if report.focused > 1:
        report.add(pointer, "only one element may have focus_on_load")


def _budget(report: Report, blocks: Any) -> None:
    """All text of all blocks together."""
    total = _characters(blocks)
    if total > TEXT_BUDGET:
        problem = Problem(
            "msg_blocks_too_long", "/blocks", f"{total} characters of text, at most {TEXT_BUDGET}"
        )
        report.problems.append(problem)


def _characters(value: Any) -> int:
    if isinstance(value, dict):
        own = len(value["text"]) if isinstance(value.get("text"), str) else 0
        return own + sum(_characters(item) for item in value.values() if not isinstance(item, str))
    return sum(_characters(item) for item in value) if isinstance(value, list) else 0
