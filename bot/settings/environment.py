"""Reads the secrets that a configuration names from the environment, and checks them. Messages never show values."""

from __future__ import annotations

import base64
import binascii
import logging
import os
import pwd
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pydantic import SecretStr

from bot.settings.model import (
    PAGERS,
    feed_url,
    http_url,
    is_loopback,
    is_web_address,
    parse_target,
    url_host,
)
from bot.settings.problems import Place, Problem

SLACK_API_URL = "https://slack.com/api/"
_SLACK_VARIABLES = {  # mode → variables that it needs, with how their values begin
    "socket": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"},
    "http": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_SIGNING_SECRET": ""},
}
_SIGNING_PREFIX = "whsec_"


class WantedVariable(NamedTuple):
    """An environment variable that the key at `place` names; `fits` checks its value, `expected` describes it."""

    variable: str
    place: Place
    fits: Callable[[str], bool] = bool
    expected: str = "not be empty"


def read_environment() -> Mapping[str, str]:
    """Return the process's environment. The one place that touches it."""
    return dict(os.environ)


def os_identity() -> str:
    """Who decides in a shell: `user:os/{login}@{host}`. The login that the system knows, not what a variable says."""
    number = os.getuid()
    try:
        login = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container a user may have a number only
        login = str(number)
    return f"user:os/{login}@{socket.gethostname()}"[:256]


def slack_api_url(environ: Mapping[str, str]) -> str:
    """Return where Slack's Web API is; ends with a slash."""
    return (environ.get("SLACK_API_URL", "").strip() or SLACK_API_URL).rstrip("/") + "/"


def given_secrets(document: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, SecretStr]:
    """What the document asks for, by variable, as far as it is there."""
    values = {want.variable: environ.get(want.variable, "").strip() for want in wanted(document)}
    return {variable: SecretStr(value) for variable, value in values.items() if value}


def secret_problems(document: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Problem]:
    for want in wanted(document):
        value = environ.get(want.variable, "").strip()
        if not value:
            yield Problem(want.place, f"{want.variable} is not set in the environment")
        elif not want.fits(value):
            yield Problem(want.place, f"{want.variable} must {want.expected}")
    yield from _api_url_problems(slack_api_url(environ))


def _api_url_problems(url: str) -> Iterator[Problem]:
    try:
        checked = http_url(url)
    except ValueError as error:
        yield Problem((), f"SLACK_API_URL (environment): {error}")
        return
    if checked.startswith("http://") and not is_loopback(url_host(checked)):
        text = "would send the Slack token unencrypted; expected https://, or a loopback host"
        yield Problem((), f"SLACK_API_URL (environment): {text}")


def wanted(document: Mapping[str, Any]) -> Iterator[WantedVariable]:
    """Yield every variable that the document asks for: by Slack's mode, or by its name in a key. A name that is no proper
    one is told by the model's own check, and not repeated here.
    """
    slack = document.get("slack")
    mode = slack.get("mode", "socket") if isinstance(slack, dict) else "socket"
    for variable, prefix in _SLACK_VARIABLES.get(str(mode), {}).items():
        begins = partial(_begins_with, prefix)
        yield WantedVariable(variable, ("slack", "mode"), begins, f"begin with {prefix}")
    for place, value in _texts(document, ()):
        key = next(part for part in reversed(place) if isinstance(part, str))
        kind, name = parse_target(value)
        if key == "notify" and kind in PAGERS:
            want = WantedVariable(
                name, place[:-1], partial(_is_address, kind), f"be a URL that {kind} can notify"
            )
        elif key.endswith("_env") and "people" not in place:  # names of people are keys, too
            want = WantedVariable(value, place, *_FITS.get(key, ()))
        else:
            continue
        if want.variable.isascii() and want.variable.isidentifier() and want.variable.isupper():
            yield want


def _texts(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Every text of a document, and its place."""
    if isinstance(value, str):
        yield place, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _texts(each, (*place, key))


def _begins_with(prefix: str | tuple[str, ...], value: str) -> bool:
    return value.startswith(prefix)


def _is_address(kind: str, value: str) -> bool:
    return SERVICES[kind](value) is not None


def signing_key(secret: str) -> bytes:
    """The key of a secret: after `whsec_` it is base64, anything else is taken as it is. Empty: it cannot be one."""
    if not secret.startswith(_SIGNING_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _apprise_service(url: str) -> str | None:
    """The name of the service that `url` notifies, such as "PagerDuty"; None: it is no such URL.

    Judged without sending. It holds keys and passwords: it is looked at here, and never shown.
    """
    from apprise import Apprise  # noqa: PLC0415 - loads some hundred plugins: only where a pager is configured

    logger = logging.getLogger("apprise")
    was, logger.disabled = logger.disabled, True  # it logs the URL, with what is secret in it
    try:
        service = Apprise.instantiate(url, suppress_exceptions=True)
    finally:
        logger.disabled = was
    return None if service is None else str(getattr(service, "service_name", "") or "notification service")


_POSTGRES = (partial(_begins_with, ("postgresql://", "postgres://")), "begin with postgresql://")
_FITS: Mapping[
    str, tuple[Callable[[str], bool], str]
] = {  # by the key: whether a value fits, and what is expected
    "url_env": _POSTGRES,
    "listen_url_env": _POSTGRES,
    "heartbeat_env": (is_web_address, "be a URL with http:// or https:// and a host"),
    "secret_env": (lambda secret: bool(signing_key(secret)), "be a secret, with base64 after whsec_"),
    "ical_env": (
        lambda value: feed_url(value) is not None,
        "be the address of an iCalendar feed: https:// or webcal://, or http:// on a loopback host",
    ),
}
SERVICES: Mapping[str, Callable[[str], str | None]] = {"apprise": _apprise_service}
"""By the kind of a pager: the name of the service that an address is for; None: it is no address."""
