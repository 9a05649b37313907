# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`clarify request`: one agent asks another, and waits for the answer if it likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.completion import complete_id, complete_role
from bot.shell.options import ConfigOption, DurationOption, JsonOption
from bot.shell.running import run, told

if TYPE_CHECKING:
    from bot.shell.asking import Wish
    from bot.shell.desk import Shell


def add_requests(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(request)


def request(
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="`-` reads it from standard input.")
    ] = None,
    *,
    from_: Annotated[
        str | None, typer.Option("--from", help="The role that asks.", autocompletion=complete_role)
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="The role that is asked; `human` asks people.", autocompletion=complete_role),
    ] = None,
    issue: Annotated[int | None, typer.Option(help="The number of the issue that it is about.")] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="What it is about; once answered, the same topic again is the next round."),
    ] = None,
    question_option: Annotated[
        str | None, typer.Option("--question", help="The question, instead of QUESTION.")
    ] = None,
    blocking: Annotated[
        bool,
        typer.Option("--blocking/--no-blocking", help="Whether the role that asks does nothing meanwhile."),
    ] = True,
    non_blocking: Annotated[bool, typer.Option("--non-blocking", hidden=True)] = False,
    context: Annotated[str | None, typer.Option(help="What whoever answers should know.")] = None,
    follow_up: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Ask further about what was answered there: its next round.",
            autocompletion=complete_id,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the answer and print it, and nothing else.")
    ] = False,
    timeout: DurationOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Have one agent ask another. Prints the id of the clarification; with --wait, the answer."""
    from bot.shell.asking import wish_of

    with told(json=json):
        wish = wish_of(
            question,
            question_option,
            from_,
            to,
            issue,
            topic=topic,
            blocking=blocking and not non_blocking,
            context=context,
            follow_up=follow_up,
        )

    async def work(shell: Shell) -> None:
        await _ask(shell, wish, timeout, wait=wait)

    run(work, config, json)


async def _ask(shell: Shell, wish: Wish, timeout: str | None, *, wait: bool) -> None:
    from bot.shell.asking import asked, prospect
    from bot.shell.times import seconds_of
    from bot.shell.waiting import answer_words, answered
    from bot.views.records import record_json

    seconds = seconds_of(timeout)
    record = await asked(shell, wish)
    await shell.standing.settle()
    if note := prospect(shell, record, waits=wait):
        shell.out.note(note)
    if not wait:
        shell.out.show(record_json(record), record.id)
        return
    after = await answered(shell, record, seconds)
    shell.out.show(record_json(after), answer_words(after, record.round))
