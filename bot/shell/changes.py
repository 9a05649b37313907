# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`clarify answer`, `resolve`, `escalate`, `abandon`: through the same router and locks as everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.completion import complete_open_id, complete_role
from bot.shell.options import ConfigOption, JsonOption
from bot.shell.running import run, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.shell.desk import Shell
    from core.clarification import Answer, Clarification, Decider

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="CLR-42-001, or 42 (or '#42') where only one of issue 42 is open.",
        autocompletion=complete_open_id,
    ),
]
TextArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="With or without quotes. `-` reads it from standard input; `--` goes before one that begins with a dash.",
    ),
]
ReasonArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[REASON]", help="Why; `-` reads it from standard input.")
]
RoleOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="ROLE",
        help="Decide as this role, not as the person at the prompt.",
        autocompletion=complete_role,
    ),
]


def add_changes(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (answer, resolve, escalate, abandon):
        app.command()(command)


def answer(
    name: NameArgument = None,
    text: TextArgument = None,
    *,
    role: RoleOption = None,
    round_: Annotated[
        int | None,
        typer.Option("--round", min=1, help="The round that you saw: refused if it was asked again since."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Accept without being asked again, where the shell may accept."),
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question: a choice by its number or label, yes or no, a number, or words. The first answer wins.

    A confirmation can be rejected here; it is accepted in Slack, unless [shell] consent = true lets the shell.
    """
    said = _words(text, "answer", "yes", json=json)

    async def work(shell: Shell) -> None:
        from bot.shell import words

        decider = shell.decider(words.role(role))
        record = await _meant(shell, name)
        # What was read is what is decided: asked again meanwhile, it may be another action.
        seen = round_
        if _is_consent(record, said):
            _ask_back(shell, record, decider, yes=yes)
            seen = record.round if round_ is None else round_
        after = await shell.router.answer(record.id, _reads(said), decider, shell.clock.now(), seen)
        await _tell(shell, after, f"{after.id} is {after.status}: “{_label(after)}”.")

    run(work, config, json)


def resolve(
    name: NameArgument = None,
    text: TextArgument = None,
    *,
    role: RoleOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Close it with what was decided. If it is open, the text is its answer too."""
    said = _words(text, "resolve", '"done by hand"', json=json)

    async def work(shell: Shell) -> None:
        from bot.shell import words

        decider = shell.decider(words.role(role))
        record = await _meant(shell, name, is_open=False)
        after = await shell.hub.resolve(record.id, said, decider)
        await _tell(shell, after, f"{after.id} is {after.status}.")

    run(work, config, json)


def escalate(
    name: NameArgument = None,
    reason: ReasonArgument = None,
    *,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Pass it on to the person on call."""
    said = _words(reason, "escalate", json=json) if reason else ""

    async def work(shell: Shell) -> None:
        record = await _meant(shell, name)
        after = await shell.hub.escalate(record.id, shell.decider(), said)
        was = " already" if record.status == "escalated" else ""
        await _tell(shell, after, f"{after.id} is escalated{was}.")

    run(work, config, json)


def abandon(
    name: NameArgument = None,
    reason: ReasonArgument = None,
    *,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Close it without an answer."""
    said = _words(reason, "abandon", json=json) if reason else ""

    async def work(shell: Shell) -> None:
        record = await _meant(shell, name)
        after = await shell.hub.abandon(record.id, shell.decider(), said)
        await _tell(shell, after, f"{after.id} is abandoned: whoever asked gets no answer.")

    run(work, config, json)


def _is_consent(record: Clarification, said: str) -> bool:
    from core.errors import AnswerRejected

    try:
        return record.asked.is_confirmation and _reads(said)(record).response == "accept"
    except AnswerRejected:
        return False


def _ask_back(shell: Shell, record: Clarification, decider: Decider, *, yes: bool) -> None:
    """Have the person at the prompt read what they accept, and say that they mean it.

    Raises:
        ConsentRefused: it is not accepted in the shell, or not by an agent.
        BadInput: nobody is there to ask; typer.Abort: they said no.
    """
    from bot import consent
    from core.errors import BadInput, ConsentRefused

    wanted = record.asked.confirmation
    if wanted is None or not decider.may_accept:
        raise ConsentRefused(record.id)
    if yes:
        return
    if not shell.out.terminal:
        raise BadInput("Not a terminal, so I can't ask. Add --yes to confirm.")
    for line in consent.whole_words(wanted):
        shell.out.note(line)
    typer.confirm(consent.ASK_AGAIN, abort=True, err=True)


async def _meant(shell: Shell, name: str | None, *, is_open: bool = True) -> Clarification:
    from bot.shell.finding import one

    return await one(shell, name, is_open=is_open)


async def _tell(shell: Shell, after: Clarification, sentence: str) -> None:
    """Say what became of it, and when whoever asked hears of it."""
    from bot.shell.presence import bot_runs
    from bot.views.records import record_json

    shell.out.show(record_json(after), sentence)
    if after.asked.reply == "sending" and not bot_runs(shell.settings.storage.path):
        shell.out.note("No bot runs: the agent gets its reply when `clarify run` is started.")


def _words(text: list[str] | None, command: str, example: str = "", *, json: bool) -> str:
    """What was said; read before anything else is opened, so that Ctrl-C ends it at once."""
    from bot.shell.words import given
    from core.errors import BadInput

    with told(json=json):
        if not text:
            raise BadInput(f"What is the text? For example: clarify {command} CLR-42-001 {example}")
        return given(" ".join(text))


def _reads(text: str) -> Callable[[Clarification], Answer]:
    from core import answers

    return lambda record: answers.from_text(record.asked, text)


def _label(record: Clarification) -> str:
    from bot import inert

    return inert.clip(inert.line(record.asked.label or ""), 200)
