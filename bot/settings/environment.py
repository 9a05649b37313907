"""Reads and checks the secrets that a configuration names in the environment. Messages never show values."""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pydantic import SecretStr

from bot import integrations
from bot.settings.model import (
    http_url,
    is_loopback,
    is_web_address,
    parse_target,
    url_host,
)
from bot.settings.problems import Place, SettingsProblem

SLACK_API_URL = "https://slack.com/api/"
_SLACK_VARIABLES = {  # mode → required variables, with the beginnings of their values
    "socket": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"},
    "http": {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_SIGNING_SECRET": ""},
}
Fits = tuple[Callable[[str], bool], str]
_SIGNING_PREFIX = "whsec_"


class WantedVariable(NamedTuple):
    """An environment variable named by the key at `place`; `fits` checks its value, `expected` describes it."""

    variable: str
    place: Place
    fits: Callable[[str], bool]
    expected: str


def read_environment() -> Mapping[str, str]:
    """Returns the process's environment. The only place that reads it."""
    return dict(os.environ)


def os_identity() -> str:
    """Returns who decides in a shell: `user:os/{login}@{host}`, with the system's login name rather than a
    variable's.
    """
    number = os.getuid()
    try:
        login = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container, a user may have only a number
        login = str(number)
    return f"user:os/{login}@{socket.gethostname()}"[:256]


def slack_api_url(environ: Mapping[str, str]) -> str:
    """Returns the address of Slack's Web API, with a slash at the end."""
    return (environ.get("SLACK_API_URL", "").strip() or SLACK_API_URL).rstrip("/") + "/"


def given_secrets(document: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, SecretStr]:
    """Returns the secrets that the document names, by variable, as far as they are set."""
    values = {want.variable: environ.get(want.variable, "").strip() for want in wanted(document)}
    return {variable: SecretStr(value) for variable, value in values.items() if value}


def secret_problems(document: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[SettingsProblem]:
    for want in wanted(document):
        value = environ.get(want.variable, "").strip()
        if not value:
            yield SettingsProblem(want.place, f"{want.variable} is not set in the environment")
        elif not want.fits(value):
            yield SettingsProblem(want.place, f"{want.variable} must {want.expected}")
    yield from _api_url_problems(slack_api_url(environ))


def _api_url_problems(url: str) -> Iterator[SettingsProblem]:
    try:
        checked = http_url(url)
    except ValueError as error:
        yield SettingsProblem((), f"SLACK_API_URL (environment): {error}")
        return
    if checked.startswith("http://") and not is_loopback(url_host(checked)):
        text = "would send the Slack token unencrypted; expected https://, or a loopback host"
        yield SettingsProblem((), f"SLACK_API_URL (environment): {text}")


def wanted(document: Mapping[str, Any]) -> Iterator[WantedVariable]:
    """Yields every variable that the document names, in a key or by Slack's mode. Skips malformed names: the model
    reports them.
    """
    slack = document.get("slack")
    mode = slack.get("mode", "socket") if isinstance(slack, dict) else "socket"
    for variable, prefix in _SLACK_VARIABLES.get(str(mode), {}).items():
        begins = partial(_begins_with, prefix)
        yield WantedVariable(variable, ("slack", "mode"), begins, f"begin with {prefix}")
    for place, value in _texts(document, ()):
        key = next(part for part in reversed(place) if isinstance(part, str))
        kind, name = parse_target(value)
        if key == "notify" and integrations.is_pager(kind):
            want = WantedVariable(
                name, place[:-1], partial(_is_address, kind), f"be a URL that {kind} can notify"
            )
        elif key.endswith("_env") and "people" not in place:  # names of people are keys, too
            want = WantedVariable(value, place, *_fits_of(key, place))
        else:
            continue
        if want.variable.isascii() and want.variable.isidentifier() and want.variable.isupper():
            yield want


def _texts(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields every text of a document with its place."""
    if isinstance(value, str):
        yield place, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _texts(each, (*place, key))


def _begins_with(prefix: str | tuple[str, ...], value: str) -> bool:
    return value.startswith(prefix)


def _is_address(kind: str, value: str) -> bool:
    """Whether it is an address that a pager can notify; also if that cannot be told: then other checks tell why."""
    try:
        paging = integrations.load(kind).paging
        return paging is None or paging.service(value) is not None
    except Exception:  # noqa: BLE001 - others wrote it
        return True


def _fits_of(key: str, place: Place) -> Fits:
    """Returns whether a value fits the key of a variable, and what is expected."""
    if place[0] == "on_call" and len(place) == 3 and (name := integrations.on_call(key)) is not None:
        with suppress(Exception):  # others wrote it; what it raises is told where the file is read
            fits: Fits = integrations.load(name).on_call.fits
            return fits
    return _FITS.get(f"{place[0]}.{key}") or _FITS.get(key) or (bool, "not be empty")


def signing_key(secret: str) -> bytes:
    """Returns the key of a secret: base64 after `whsec_`, otherwise the text itself. Empty: not a key."""
    if not secret.startswith(_SIGNING_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SIGNING_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_signing_key(value: str) -> bool:
    """Returns whether it is an Ed25519 key, as `bot.signing` reads it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - only where there is a key
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        content = (
            value.encode()
            if "-----BEGIN" in value
            else base64.b64decode("".join(value.split()), validate=True)
        )
        return isinstance(load_pem_private_key(content, None), Ed25519PrivateKey)
    except (ValueError, TypeError):
        return False


_SECRET = (lambda secret: bool(signing_key(secret)), "be a secret, with base64 after whsec_")
_POSTGRES = (partial(_begins_with, ("postgresql://", "postgres://")), "begin with postgresql://")
_FITS: Mapping[
    str, tuple[Callable[[str], bool], str]
] = {  # by the key, or table and key: whether a value fits, and what is expected
    "storage.url_env": _POSTGRES,
    "storage.listen_url_env": _POSTGRES,
    "heartbeat_env": (is_web_address, "be a URL with http:// or https:// and a host"),
    "key_env": (
        _is_signing_key,
        "hold an Ed25519 private key: PKCS#8 PEM, or its base64",
    ),
    "secret_env": _SECRET,
    "callback_secret_env": _SECRET,
}
