# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`agents`, `ready`, `digest`, `export`: commands that look at all clarifications together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.options import ConfigOption, JsonOption
from bot.shell.running import run

if TYPE_CHECKING:
    from bot.shell.desk import Shell

_SPAN = "A span back from now, such as 24h, 7d, 2w."
_FILE = {"dir_okay": False, "show_default": False}


def add_views(app: typer.Typer) -> None:
    """Register the commands that look at all clarifications together."""
    for command in (agents, ready, digest, export):
        app.command()(command)


def agents(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show the agents: who is blocked, on whom, since when, and who is asked."""

    async def work(shell: Shell) -> None:
        from bot.shell.boards import agent_rows, agents_json, agents_table
        from bot.shell.fleet import fleet_of

        fleet = await fleet_of(shell)
        rows = agent_rows(fleet.summaries, fleet.sessions, fleet.told)
        shell.out.show(agents_json(rows), agents_table(rows, shell.clock.now()))
        _leave(shell, fleet.problems)

    run(work, config, json)


def ready(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show who can go on, and who is blocked by what."""

    async def work(shell: Shell) -> None:
        from bot.shell.boards import ready_items, ready_json, ready_table
        from bot.shell.fleet import fleet_of

        fleet = await fleet_of(shell)
        items = ready_items(fleet.summaries, fleet.sessions, fleet.told)
        on = {each.id: each.to for each in fleet.summaries}
        shell.out.show(ready_json(items, on), ready_table(items, on, shell.clock.now()))
        _leave(shell, fleet.problems)

    run(work, config, json)


def digest(
    span: Annotated[
        str | None, typer.Argument(metavar="SPAN", help=f"{_SPAN} Without it, 7d.", show_default=False)
    ] = None,
    *,
    config: ConfigOption = None,
    json: JsonOption = False,
    since: Annotated[str | None, typer.Option(metavar="SPAN", help="The same.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw it into this file.", **_FILE)] = None,
) -> None:
    """Show figures: how much was asked, what became of it, how fast it was answered, by whom."""

    async def work(shell: Shell) -> None:
        from bot.shell.digests import digest_json, digest_parts, figures, period_of
        from core.errors import BadInput

        if span is not None and since is not None:
            raise BadInput("Give the span once: either SPAN or --since SPAN.")
        period = period_of(next(each for each in (span, since, "7d") if each is not None), shell.clock.now())
        counted, problems = await figures(shell.ledger, period.since)
        if png is not None:
            from bot.charts import draw
            from bot.shell.placing import placed

            picture = draw(counted, period.span, period.until)
            with placed(png) as file:
                file.write(picture)
            shell.out.note(f"Drawn into {png}.")
        shell.out.show(digest_json(counted, period), *digest_parts(counted, period))
        _leave(shell, problems)

    run(work, config, json)


def export(
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
    since: Annotated[str | None, typer.Option(help=f"Only what was said since. {_SPAN}")] = None,
    issue: Annotated[int | None, typer.Option(help="Only this issue.", min=1)] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write into this file, whole or not at all.", **_FILE),
    ] = None,
) -> None:
    """Write the audit trail: JSON Lines, one for each question, answer, escalation, resolution."""

    async def work(shell: Shell) -> None:
        from bot.shell.digests import period_of
        from bot.shell.export import export_to

        start = period_of(since, shell.clock.now()).since if since is not None else None
        if output is None or output == Path("-"):
            problems = await export_to(shell.out.json_line, shell.ledger, start, issue)
        else:
            from bot.shell.output import to_json
            from bot.shell.placing import placed

            with placed(output) as file:
                problems = await export_to(
                    lambda line: file.write(f"{to_json(line)}\n".encode()), shell.ledger, start, issue
                )
        _leave(shell, problems)

    run(work, config, json)


def _leave(shell: Shell, problems: list[str]) -> None:
    """Say what could not be read; then all is not well."""
    for problem in problems:
        shell.out.note(f"clarify: {problem}")
    if problems:
        raise typer.Exit(1)
