from __future__ import annotations

import typer


def add_views(app: typer.Typer) -> None:
    """Register the commands that look at all clarifications together."""
