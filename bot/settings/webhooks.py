"""The `[[webhooks]]` tables: who is told of the five lifecycle events."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator

from bot.settings.table import EnvironmentName, Table

_PREFIX = "whsec_"
Event = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
]


def _hook(value: str) -> str:
    """A web address; its text is not repeated, since its path or query is often the secret."""
    expected = "expected a URL that starts with http:// or https:// and has a host, without # and a user name"
    try:
        parts = urlsplit(value)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(expected) from error
    if not fits or re.search(r"\s", value) or parts.username is not None or parts.fragment:
        raise ValueError(expected)
    return value


def signing_key(secret: str) -> bytes:
    """The key of a secret: after `whsec_` it is base64, anything else is taken as it is. Empty: it cannot be one."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


class WebhookSettings(Table):
    """Where to; `secret_env` names the variable with the secret that signs it. `events`: all five, or some of them."""

    url: Annotated[str, AfterValidator(_hook)]
    secret_env: EnvironmentName
    events: tuple[Event, ...] = ()
