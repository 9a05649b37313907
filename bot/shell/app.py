"""Which commands there are. What each one needs is imported when it runs, so that `--help` is quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.commands.grammar import is_name
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


class Commands(TyperGroup):
    """Understands what `/clarify` does in Slack, too: an id or an issue alone shows it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # its types move with typer's releases
        if args and is_name(args[0]):
            args = ["show", *args]
        elif args and args[0] == "oncall":
            ctx.fail("Slack knows who is there, so this works in Slack only: /clarify oncall")
        return super().resolve_command(ctx, args)


def help_(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="COMMAND", help="More on this one.")] = None,
) -> None:
    """Show the commands, or more on one of them."""
    parent: Any = ctx.parent
    if topic is None:
        typer.echo(parent.get_help())
        return
    command = parent.command.get_command(parent, topic)
    if command is None:
        parent.fail(f"No such command '{topic}'.")
    with type(parent)(command, info_name=topic, parent=parent) as named:
        typer.echo(command.get_help(named))


def add_to(app: typer.Typer) -> None:
    """Register the commands that show and change clarifications; in the help they stand apart from the bot's own."""
    app.command("help")(help_)
    for panel, adders in _PANELS.items():
        first = len(app.registered_commands)
        for add in adders:
            add(app)
        for command in app.registered_commands[first:] if adders else app.registered_commands:
            command.rich_help_panel = panel
