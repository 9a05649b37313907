from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.slack.payloads import MessageEvent, message_event, moment

REPLY = {
    "type": "message",
    "channel": "C1",
    "user": "U1",
    "team": "T1",
    "ts": "2.0",
    "thread_ts": "1.0",
    "text": "yes",
}
SAID = MessageEvent("said", "C1", "1.0", "2.0", "U1", "T1", "yes")


def changed(subtype: str, **parts: Any) -> dict[str, Any]:
    return {"type": "message", "subtype": subtype, "channel": "C1", "ts": "3.0", **parts}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (REPLY, SAID),
        (REPLY | {"subtype": "thread_broadcast"}, SAID),
        (REPLY | {"subtype": "file_share", "files": [{}]}, replace(SAID, files=True)),
        (REPLY | {"subtype": "channel_join"}, None),
        (REPLY | {"bot_id": "B1"}, None),
        (REPLY | {"user": "USLACKBOT"}, None),
        (REPLY | {"thread_ts": "2.0"}, None),
        ({k: v for k, v in REPLY.items() if k != "channel"}, None),
        (
            changed("message_changed", message=REPLY | {"text": "no"}, previous_message=REPLY),
            MessageEvent("edited", "C1", "1.0", "2.0", "U1", "T1", "no"),
        ),
        (
            changed(
                "message_changed",
                message=REPLY | {"text": "no", "edited": {"user": "U1", "ts": "3.0"}},
                previous_message=REPLY,
            ),
            MessageEvent("edited", "C1", "1.0", "2.0", "U1", "T1", "no", edited="3.0"),
        ),
        (changed("message_changed", message=REPLY | {"attachments": []}, previous_message=REPLY), None),
        (
            changed("message_changed", message=REPLY | {"bot_id": "B1", "text": "b"}, previous_message=REPLY),
            None,
        ),
        (
            changed("message_deleted", previous_message=REPLY),
            MessageEvent("deleted", "C1", "1.0", "2.0", "U1"),
        ),
        (changed("message_deleted"), None),
        ({}, None),
    ],
)
def test_heard(event: dict[str, Any], expected: MessageEvent | None) -> None:
    assert message_event(event) == expected


@pytest.mark.parametrize("what", [SAID, MessageEvent("edited", "C1", "1.0", "2.0", "U1")])
def test_heard_survives_the_storage(what: MessageEvent) -> None:
    assert MessageEvent.of(json.loads(json.dumps(what.body()))) == what


def test_heard_key_is_that_of_the_message_however_it_comes() -> None:
    assert SAID.key == MessageEvent("said", "C1", "1.0", "2.0", "U1", missed=True).key == "C1:2.0"


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1795300394.867926", datetime(2026, 11, 21, 22, 33, 14, 867926, tzinfo=UTC)),
        ("1795300394.0000019", datetime(2026, 11, 21, 22, 33, 14, 1, tzinfo=UTC)),
    ],
)
def test_moment_of_a_ts(ts: str, expected: datetime) -> None:
    assert moment(ts) == expected
