from __future__ import annotations

import typer


def add_lists(app: typer.Typer) -> None:
    """Register the commands."""
