"""From configuration to responders, and both ways to fail up to the words that people read at night."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import SecretStr

from bot.responders.build import responders_of
from bot.responders.command import CommandResponder
from bot.responders.http import HttpResponder
from bot.settings.responders import ResponderSettings
from core.dispatch import Inquiry

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def test_build_each_way_its_own() -> None:
    built = responders_of(
        {
            "architect": ResponderSettings.model_validate({"command": ["./ask"]}),
            "reviewer": ResponderSettings.model_validate(
                {"http": "http://127.0.0.1:1/ask", "token_env": "REVIEWER_TOKEN"}
            ),
            "security": ResponderSettings.model_validate({"people": "C0123"}),
        },
        {"REVIEWER_TOKEN": SecretStr("s3cret")},
        Path("/"),
        {},
    )
    assert {role: type(responder) for role, responder in built.items()} == {
        "architect": CommandResponder,
        "reviewer": HttpResponder,
    }


async def test_build_a_command_does_not_see_our_secrets(tmp_path: Path, inquiry: Inquiry) -> None:
    environ = {"SLACK_BOT_TOKEN": "xoxb-1", "REVIEWER_TOKEN": "s3cret", "HOME": "/home/agent"}
    settings = {
        "architect": ResponderSettings.model_validate({"command": [sys.executable, "-S", "-c", SHOW]})
    }
    built = responders_of(settings, {"REVIEWER_TOKEN": SecretStr("s3cret")}, tmp_path, environ)
    seen = json.loads(await built["architect"].answer(inquiry))
    assert seen["HOME"] == "/home/agent"
    assert not seen.keys() & {"SLACK_BOT_TOKEN", "REVIEWER_TOKEN"}
