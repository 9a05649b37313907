"""Checks of single values: each returns the value as we use it, or says what was expected."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import ValidationInfo

from core.clarification import HUMAN, agent_key

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_LONGEST = timedelta(days=3650)


def duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    text = value.strip() if isinstance(value, str) else ""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError('expected a duration of zero or more, such as "30m", "1h30m", "0s" or "30d"')
    try:
        total = sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError:
        total = _LONGEST * 2
    if total > _LONGEST:
        raise ValueError("expected a duration of at most ten years")
    return total


def file_mode(value: object) -> int:
    if type(value) is int and value == 0o600:
        return value  # the default
    if not isinstance(value, str) or not re.fullmatch(r"0?6[046][04]", value):
        raise ValueError(
            'expected a mode in quotes: "0600", or "0660" where others of a group write ledgers too'
        )
    return int(value, 8)


def channel_id(value: str) -> str:
    if not re.fullmatch(r"[CG][A-Z0-9]+", value):
        raise ValueError(
            f'"{value}" is no channel id; expected C… or G… (Slack shows it in the channel\'s details)'
        )
    return value


def user_id(value: str) -> str:
    if not re.fullmatch(r"[UW][A-Z0-9]+", value):
        raise ValueError(
            f'"{value}" is no user id; expected U… or W… (Slack shows it in the profile, "Copy member ID")'
        )
    return value


def user_group_id(value: str) -> str:
    if not re.fullmatch(r"S[A-Z0-9]+", value):
        raise ValueError(f'"{value}" is no user group id; expected S…')
    return value


def environment_name(value: str) -> str:
    """Never repeats the value: it may be the secret itself, put in the wrong place."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError(
            "expected the name of an environment variable (capital letters, digits, _), not the secret itself"
        )
    return value


def short_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("expected 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit")
    return value


def role(value: str) -> str:
    if not value.strip() or len(value) > 80 or not value.isprintable() or agent_key(value) == HUMAN:
        raise ValueError(
            'expected the role that agents ask, 1 to 80 characters; not "human": that is everybody'
        )
    return value


def glob(value: str) -> str:
    if not value or value != value.strip():
        raise ValueError('expected a pattern such as "retirement-*"; leave the key out for all agents')
    if value.count("[") > value.count("]"):
        raise ValueError('unclosed "[" in the pattern; write "[[]" for the character itself')
    return value


def time_zone(value: str) -> str:
    if value == "UTC":
        return value
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f'unknown time zone "{value}"; expected a name such as "Europe/Berlin"') from error
    return value


def notify_target(value: str) -> str:
    if value in {"thread", "dm"}:
        return value
    kind, _, rest = value.partition(":")
    if kind == "group":
        user_group_id(rest)
    elif kind == "channel":
        channel_id(rest)
    elif kind == "apprise":
        environment_name(rest)
    else:
        raise ValueError('expected "thread", "dm", "group:S…", "channel:C…" or "apprise:VARIABLE"')
    return value


def http_url(value: str) -> str:
    """Return the URL without a trailing slash. Its text is not repeated: it may hold a password."""
    try:
        parts = urlsplit(value)
        port_fits = parts.port is None or parts.port > 0
    except ValueError as error:
        raise ValueError("expected a base URL such as https://agents.example.com:8080") from error
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or not port_fits
        or re.search(r"\s", value)
    ):
        raise ValueError("expected a base URL that starts with http:// or https:// and has a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user name or password in it; expected none (use token_env for a secret)")
    if parts.query or parts.fragment:
        raise ValueError("expected a base URL without ? and #")
    return value.rstrip("/")


def url_host(url: str) -> str:
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    fits = port.isascii() and port.isdigit() and int(port) <= 65535
    if not fits or not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+", host):
        raise ValueError('expected "host:port" with a port from 0 (any) to 65535, such as "127.0.0.1:8787"')
    return value


def resolved_path(value: Path, info: ValidationInfo) -> Path:
    """Absolute, counted from the folder in the validation context (`folder`), or as it is without one."""
    folder = (info.context or {}).get("folder")
    path = value.expanduser()
    return path if folder is None else Path(folder) / path
