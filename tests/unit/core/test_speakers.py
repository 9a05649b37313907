from __future__ import annotations

import pytest

from core.workflow import Speaker


@pytest.mark.parametrize(
    ("agents", "name", "event", "role"),
    [
        (None, "anybody", True, True),
        ((), "anybody", False, False),
        ((), "planner", True, True),  # its own name
        ((), "Planner ", False, True),
        (("mailer",), "planner", True, True),
        (("mailer",), "mailer", True, True),
        (("mailer",), "MAILER", False, True),
        (("Mailer",), "mailer", False, True),
        (("mailer",), "mailer-2", False, False),
        (("mailer-*", "post"), "mailer-2", True, True),
        (("mailer-*", "post"), "post", True, True),
        (("mailer-*", "post"), "the mailer-2", False, False),
        (("*",), "anybody", True, True),
    ],
)
def test_speaker_may_be(agents: tuple[str, ...] | None, name: str, event: bool, role: bool) -> None:
    speaker = Speaker("planner", agents)
    assert (speaker.may_be(name), speaker.may_be_role(name)) == (event, role)
