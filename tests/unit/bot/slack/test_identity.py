from __future__ import annotations

import pytest

from bot.slack.identity import Mode, decided_by, needs_email

SLACK = "user:slack/T1/U1"


@pytest.mark.parametrize(
    ("mode", "email", "table", "expected"),
    [
        ("slack_id", None, {}, SLACK),
        ("slack_id", "ade@example.com", {}, SLACK),
        ("slack_id", None, {"U1": "user:ade"}, "user:ade"),
        ("slack_id", None, {"U2": "user:folake"}, SLACK),
        ("email", "ade@example.com", {}, "user:ade@example.com"),
        ("email", "ade@example.com", {"U1": "user:ade"}, "user:ade"),
        ("email", None, {}, SLACK),
        ("email", "", {}, SLACK),
        ("email", "a" * 251 + "@b", {}, SLACK),
        ("email", "a" * 249 + "@b", {}, "user:" + "a" * 249 + "@b"),
    ],
)
def test_decided_by(mode: Mode, email: str | None, table: dict[str, str], expected: str) -> None:
    found = decided_by(team="T1", user="U1", mode=mode, email=email, table=table)
    assert found == expected
    assert len(found) <= 256


@pytest.mark.parametrize(
    ("mode", "table", "needed"),
    [("slack_id", {}, False), ("email", {}, True), ("email", {"U1": "user:ade"}, False)],
)
def test_needs_email(mode: Mode, table: dict[str, str], needed: bool) -> None:
    assert needs_email("U1", mode, table) is needed
