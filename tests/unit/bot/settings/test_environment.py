from __future__ import annotations

import os

import pytest

from bot.settings.load import os_identity
from tests.unit.bot.settings.parsing import ENVIRON, FULL, parse, problems


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"SLACK_BOT_TOKEN": ""},
            "slack.mode: SLACK_BOT_TOKEN is not set in the environment",
        ),
        (
            {"SLACK_BOT_TOKEN": "xapp-9"},
            "slack.mode: SLACK_BOT_TOKEN must begin with xoxb-",
        ),
        ({"PLANNER_TOKEN": ""}, "producers[0].token_env: PLANNER_TOKEN is not set"),
        (
            {"SLACK_API_URL": "http://example.com/api"},
            "SLACK_API_URL (environment): would send the Slack token",
        ),
        ({"SLACK_API_URL": "slack"}, "SLACK_API_URL (environment): expected a base URL"),
        (
            {"PAGER_URL": "xapp-9://nobody"},
            "on_call[0].steps[1].notify: PAGER_URL must be a URL that apprise can notify",
        ),
    ],
)
def test_settings_name_the_variable_and_who_asked(environ: dict[str, str], expected: str) -> None:
    lines = problems(FULL, ENVIRON | environ)
    assert len(lines) == 1
    assert expected in lines[0]
    assert "xapp-9" not in lines[0]


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("https://watch.example.com/ping/7?key=hush", True),
        ("ftp://hush", False),
        ("https://hush:0", False),
        ("https://[hush", False),
        ("hush", False),
    ],
)
def test_settings_take_a_heartbeat_for_the_web_only(url: str, fits: bool) -> None:
    source = '[slack]\nfallback_channel = "C1"\n[monitor]\nheartbeat_env = "BEAT"\nheartbeat_every = "30s"'
    if fits:
        settings = parse(source, ENVIRON | {"BEAT": f" {url} "})
        assert settings.heartbeat_url is not None
        assert settings.heartbeat_url.get_secret_value() == url
        assert "hush" not in repr(settings)
    else:
        (line,) = problems(source, ENVIRON | {"BEAT": url})
        assert line.startswith("clarify.toml:4: monitor.heartbeat_env: BEAT must be a URL")
        assert "hush" not in line


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
def test_settings_say_nothing_of_a_pager_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    secret = "slack://hush-hush"
    (line,) = problems(FULL, ENVIRON | {"PAGER_URL": secret})
    parse(FULL, ENVIRON | {"PAGER_URL": "json://user:hush@localhost"})
    assert "hush" not in line + caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("secret", ["whsec_", "whsec_%%"])
def test_settings_refuse_a_secret_that_signs_nothing(secret: str) -> None:
    hook = '[[webhooks]]\nurl = "http://a/b"\nsecret_env = "HOOK"'
    said = " ".join(problems(hook, ENVIRON | {"HOOK": secret}))
    assert "webhooks[0].secret_env: HOOK must be a secret, with base64" in said
    assert "%%" not in said


def test_settings_of_http_mode_ask_for_the_signing_secret() -> None:
    source = '[slack]\nmode = "http"\nfallback_channel = "C1"'
    lines = problems(source, {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert lines == ("clarify.toml:2: slack.mode: SLACK_SIGNING_SECRET is not set in the environment",)
    assert parse(source).signing_secret is not None


def test_settings_api_url_ends_with_a_slash() -> None:
    source = '[slack]\nfallback_channel = "C1"'
    url = "http://127.0.0.1:99/api"
    assert parse(source, ENVIRON | {"SLACK_API_URL": url}).slack_api_url == url + "/"


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
def test_settings_show_no_secrets() -> None:
    settings = parse(FULL)
    for secret in ENVIRON.values():
        assert secret not in repr(settings)
        assert secret not in str(settings.model_dump())


def test_os_identity_is_not_what_a_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os_identity()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert os_identity() == before
    assert "somebody-else" not in before


def test_os_identity_of_a_user_without_a_name_is_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert os_identity().startswith("user:os/3999999999@")
