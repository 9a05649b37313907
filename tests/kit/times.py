"""Every time that people see in Slack is in their own time zone: told to Slack as a date, never spelled out where Slack formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from workspace import Workspace

DATE = (
    r"<!date\^\d+\^(?:\{date_short_pretty\} at \{time\}|\{time\} \{date_short_pretty\})"
    r"\|\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC>"
)
_DATE = re.compile(DATE)
_SPELLED_OUT = re.compile(r"\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC")
# As sent. In mrkdwn, Slack could format it.
_OF_A_FORM = re.compile(r"(?:19[7-9]\d|[2-9]\d{3})-\d\d-\d\d \d\d.\d\d(?:.\d\d)? UTC")


def judge_times(payload: Any) -> None:
    """Blocks or a view: every time is Slack's own date, in mrkdwn, the only place where Slack formats it."""
    for item in walk(payload):
        if isinstance(text := item.get("text"), str):
            assert not _SPELLED_OUT.search(_DATE.sub("", text)), text
            unfit = _OF_A_FORM if item.get("type") == "mrkdwn" else _DATE
            assert not unfit.search(text), text


def judge_all(workspace: Workspace) -> None:
    """All that a bot posted, changed, opened and whispered: as `judge_times`. In the text beside blocks, Slack formats nothing."""
    for call in workspace.calls:
        for name in ("blocks", "view"):
            if payload := call.args.get(name):
                judge_times(json.loads(payload) if isinstance(payload, str) else payload)
        if call.args.get("blocks"):
            _judge_text(str(call.args.get("text")))
    for told in workspace.state.ephemerals:  # not all of them came in by a call
        judge_times(told.blocks or {"type": "mrkdwn", "text": told.text})
        if told.blocks:
            _judge_text(told.text)


def _judge_text(text: str) -> None:
    assert "<!date" not in text, text


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every object in a payload."""
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from walk(child)
