"""The options that every command has, and how to read a value that several share. Light: nothing is imported for `--help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file [default: clarify.toml]", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
