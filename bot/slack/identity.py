"""The name under which an answer goes to an agent: stable, and not one that its owner can change at will."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

LIMIT = 256
Mode = Literal["slack_id", "email"]


def decided_by(
    *,
    team: str,
    user: str,
    mode: Mode = "slack_id",
    email: str | None = None,
    table: Mapping[str, str] | None = None,
) -> str:
    """`decided_by` of a person's answer, at most 256 characters (AAEP, clarification.reply).

    The configured table first; then, by mode, `user:{e-mail}`, or `user:slack/{team}/{user}`. An e-mail address
    that is missing or too long is replaced by the latter, which always fits.
    """
    if table and (named := table.get(user)):
        return named
    by_email = f"user:{email}"
    if mode == "email" and email and len(by_email) <= LIMIT:
        return by_email
    return f"user:slack/{team}/{user}"


def needs_email(user: str, mode: Mode, table: Mapping[str, str]) -> bool:
    """Whether `decided_by` has to know the person's e-mail address."""
    return mode == "email" and user not in table
