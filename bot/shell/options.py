"""The options that every command has, and how to read a value that several share. Light: nothing is imported for `--help`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file; without it, clarify.toml in this folder."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DurationOption = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="DURATION", help="How long to wait: 90s, 30m, 1h30m.", show_default=False
    ),
]


class StatusName(StrEnum):
    """`core.clarification.Status` as typer lists and completes it."""

    PENDING = "pending"
    ANSWERED = "answered"
    RESOLVED = "resolved"
    STALE = "stale"
    ESCALATED = "escalated"
    ABANDONED = "abandoned"
