from __future__ import annotations

import typer


def add_changes(app: typer.Typer) -> None:
    """Register the commands."""
