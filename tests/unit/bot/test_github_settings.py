from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bot.settings.model import GithubSettings

GOOD: dict[str, Any] = {"repo": "acme/app", "token_env": "GITHUB_TOKEN"}


def test_github_settings_have_defaults() -> None:
    made = GithubSettings.model_validate(GOOD)

    assert made.api_url == "https://api.github.com"
    assert made.mention is None
    assert made.comments_per_second == 1.0


@pytest.mark.parametrize(
    "more",
    [
        {"repo": "a-b/c.d_e"},
        {"mention": "@ada"},
        {"mention": "@acme/on-call"},
        {"mention": "@ada_acme"},
        {"api_url": "https://git.example.com/api/v3/"},
        {"api_url": "http://127.0.0.1:9"},
        {"api_url": "http://localhost:9"},
        {"comments_per_second": 0.2},
    ],
    ids=str,
)
def test_github_settings_take(more: dict[str, Any]) -> None:
    GithubSettings.model_validate(GOOD | more)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"repo": "acme"}, "owner/name"),
        ({"repo": "acme/.."}, "owner/name"),
        ({"repo": "acme/app/x"}, "owner/name"),
        ({"repo": "acme/app\n"}, "owner/name"),
        ({"repo": "https://github.com/acme/app"}, "owner/name"),
        ({"mention": "ada"}, "@user"),
        ({"mention": "@a/b/c"}, "@user"),
        ({"mention": "@a b"}, "@user"),
        ({"token_env": "ghp_secret"}, "environment variable"),
        ({"api_url": "http://api.github.com"}, "unencrypted"),
        ({"api_url": "ftp://x"}, "http"),
        ({"comments_per_second": 0}, "greater than 0"),
        ({"labels": True}, "Extra"),
    ],
    ids=str,
)
def test_github_settings_refuse(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        GithubSettings.model_validate(GOOD | more)

    assert "ghp_secret" not in str(refused.value)
