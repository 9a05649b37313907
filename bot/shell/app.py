"""Which commands there are. What each one needs is imported when it runs, so that `--help` is quick."""

from __future__ import annotations

import typer

from bot.shell.backup import add_backup
from bot.shell.changes import add_changes
from bot.shell.forget import add_forget
from bot.shell.lists import add_lists
from bot.shell.requests import add_requests
from bot.shell.views import add_views

_PANELS = {
    "The bot": (),
    "Questions and answers": (add_lists, add_requests, add_changes),
    "All together": (add_views,),
    "What is kept": (add_forget, add_backup),
}


def add_to(app: typer.Typer) -> None:
    """Register the commands that show and change clarifications; in the help they stand apart from the bot's own."""
    for panel, adders in _PANELS.items():
        first = len(app.registered_commands)
        for add in adders:
            add(app)
        for command in app.registered_commands[first:] if adders else app.registered_commands:
            command.rich_help_panel = panel
