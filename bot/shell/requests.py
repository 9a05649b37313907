from __future__ import annotations

import typer


def add_requests(app: typer.Typer) -> None:
    """Register the commands."""
