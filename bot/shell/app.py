"""Which commands there are. What each one needs is imported when it runs, so that `--help` is quick."""

from __future__ import annotations

import typer

from bot.shell.changes import add_changes
from bot.shell.lists import add_lists
from bot.shell.requests import add_requests
from bot.shell.views import add_views


def add_to(app: typer.Typer) -> None:
    """Register the commands that show and change clarifications."""
    add_lists(app)
    add_requests(app)
    add_changes(app)
    add_views(app)
