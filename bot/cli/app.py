# ruff: noqa: PLC0415 - commands import what they need when they run, so that `--help` is quick
"""The `clarify` command line: the commands, their arguments and options.

A command calls a module such as `lists` or `changes`; `running` opens the ledgers for it, and turns expected errors into
exit codes.
"""

from __future__ import annotations

import errno
import gc
import inspect
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

import clarify
from bot import integrations
from bot.errors import ClarifyBotError, driver_required
from core.errors import BadInput, ClarifyError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from bot.cli.output import Output
    from bot.cli.running import Shell
_Work = Callable[["Shell"], Awaitable[object]]
_Act = Callable[
    ["Output", Path | None], object
]  # on what the command prints to, and on the configuration file
_BOT, _QUESTIONS, _TOGETHER, _KEPT = "The bot", "Questions and answers", "Overviews", "Stored data"
_FILE = {"dir_okay": False, "show_default": False}

_OWN_ARGUMENTS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,  # a `--` is theirs, too
    },
}

LogLevel = Literal["debug", "info", "warning", "error"]


def _ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    from bot.cli import lists

    return lists.ids(ctx, incomplete)


def _agents(ctx: typer.Context, incomplete: str) -> list[str]:
    from bot.cli import lists

    return lists.names(ctx, incomplete)


def _role(about: str, *names: str, metavar: str = "ROLE") -> Any:
    """An option that names a role, or an agent."""
    return typer.Option(*names, help=about, metavar=metavar, autocompletion=_agents)


def _id(about: str, metavar: str = "ID") -> Any:
    """An argument that is the ID of a question."""
    return typer.Argument(metavar=metavar, help=about, autocompletion=_ids)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Configuration file. Default: clarify.toml in this folder."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="DURATION", help="How long to wait: 90s, 30m, 1h30m.", show_default=False
    ),
]
PortOption = Annotated[int, typer.Option(metavar="PORT", help="Port for the page. 0 picks a free one.")]
NameArgument = Annotated[
    str | None, _id("CLR-42-001; or 42 (or '#42') if only one question of issue 42 is open.")
]
TextArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="With or without quotes. `-` reads it from standard input. Put `--` before text that starts with a dash.",
    ),
]
ReasonArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[REASON]", help="The reason. `-` reads it from standard input.")
]
RoleOption = Annotated[str | None, _role("Decide as this role instead of as yourself.", "--as")]


ByOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only what this person decided, by name or Slack ID.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only what happened since: 2026-11-01, or 30d ago.")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only what happened before: 2026-12-01, or 7d ago.")
]
IssueOption = Annotated[int | None, typer.Option(metavar="NUMBER", help="Only this issue.", min=1)]


class StatusName(StrEnum):
    """`core.clarification.Status` as an enum, since typer does not support literals in lists."""

    PENDING = "pending"
    ANSWERED = "answered"
    RESOLVED = "resolved"
    STALE = "stale"
    ESCALATED = "escalated"
    ABANDONED = "abandoned"


class ShellCommand(TyperCommand):
    """Shows an argument by its name alone, where typer adds a word for its type."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        for each in self.params:
            if isinstance(each, TyperArgument):
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # noqa: ARG005


class AgentsCommand(ShellCommand):
    """A command of `clarify.py`, whose options argparse knows."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem  # typer exports it nowhere

        from bot.cli import install

        found = install.completions(str(self.name), ctx.args, incomplete)
        return [CompletionItem(value, help=about) for value, about in found]


class ShellCommands(TyperGroup):
    """Shows an id or an issue number that stands alone, as `/clarify` does in Slack."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # its types move with typer's releases
        from bot.commands.grammar import is_name

        if args and is_name(args[0]):
            args = ["show", *args]
        elif args and args[0] == "oncall":
            ctx.fail("oncall works in Slack only. Type /clarify oncall there.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each panel in plain text; typer's own pages load all of rich's Markdown."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            about = " ".join(command.help.partition("\n\n")[0].split())
            sections.setdefault(command.rich_help_panel, []).append((name, about))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="clarify",
    cls=ShellCommands,
    help="Brings AI agents' questions to people in Slack, and their answers back to the agents.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # rich tracebacks show local variables: questions, tokens
)


def _command(
    panel: str, name: str | None = None, *, in_shell: bool = False, creates: bool = False
) -> Callable[[Any], None]:
    """Registers a command, with `--config` and `--json`. The command reads its other arguments and returns its work: a `_Work`
    on the ledgers if it is `in_shell`, else an `_Act`. `creates`: it creates a missing database.
    """

    def register(read: Callable[..., Any]) -> None:
        def command(config: Path | None, json: bool, **typed: Any) -> None:  # noqa: FBT001 - typer's
            from bot.cli import running

            with running.trouble_told(json=json) as out:
                work = read(**typed)
                if in_shell:
                    running.run(work, out, config, creates=creates)
                else:
                    work(out, config)

        own = inspect.signature(read, eval_str=True)
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = (
            inspect.Parameter("config", keyword, default=None, annotation=ConfigOption),
            inspect.Parameter("json", keyword, default=False, annotation=JsonOption),
        )
        command.__signature__ = own.replace(parameters=[*own.parameters.values(), *shared])  # type: ignore[attr-defined]
        command.__name__, command.__doc__ = read.__name__, read.__doc__
        app.command(name, cls=ShellCommand, rich_help_panel=panel)(command)

    return register


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.cli.running`."""
    try:
        try:
            with driver_required():
                app()
        finally:
            if sys.stdout is not None:  # it may be closed
                with suppress(BrokenPipeError):  # the reader has had enough
                    sys.stdout.flush()
    except (ClarifyBotError, ClarifyError) as error:
        _say(str(error))
        sys.exit(getattr(error, "exit_code", 1))
    except Exception as error:  # noqa: BLE001 - the last resort: goes to the log, which leaves secrets out
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _say("cannot write the output: the disk is full.")
        else:
            _log_unexpected()
        sys.exit(1)


def _say(words: str) -> None:
    from bot.logs import stderr_has_reader

    if stderr_has_reader():
        typer.echo(f"clarify: {words}", err=True)


def _log_unexpected() -> None:
    import structlog

    from bot.logs import configure_logging

    if not structlog.is_configured():
        configure_logging()
    structlog.get_logger("bot.cli").exception("unexpected error: please report it")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        from importlib.metadata import version

        typer.echo(f"clarify {version('clarify-bot')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Reads the options before the command."""


@app.command(cls=ShellCommand, rich_help_panel=_BOT)
def run(
    config: ConfigOption = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            metavar="LEVEL", help="The least severe messages to log: debug, info, warning or error."
        ),
    ] = "info",
) -> None:
    """Start the bot. SIGTERM or Ctrl-C shuts it down gracefully."""
    # Modules and ten thousands of records live as long as the bot: full collections would go through all of them again
    # and again while they are read.
    gc.disable()
    import asyncio

    from bot.logs import configure_logging, keep_standard_files
    from bot.settings.load import load_settings, prepare_folders, read_environment

    keep_standard_files()
    settings = load_settings(config, read_environment())
    configure_logging(log_level, background=True)
    prepare_folders(settings)

    from bot import app as bot_app

    asyncio.run(bot_app.run(settings))


@_command(_BOT)
def check() -> _Act:
    """Validate the configuration against Slack and your agents. Creates nothing."""
    from bot.cli import setup

    return setup.check


@_command(_KEPT)
def keys(
    action: Annotated[
        Literal["rotate"] | None,
        typer.Argument(
            metavar="[rotate]",
            help="Create the next key, which the old one announces in the log. It replaces the key file or, with `key_env`, "
            "is printed for you to store. Restart the bot to sign with it.",
        ),
    ] = None,
) -> _Act:
    """List the public keys of receipts: since when each is used, and where the private key is."""
    from bot.cli import trust

    return trust.list_keys if action is None else trust.rotate_key


@_command(_KEPT)
def log(
    name: Annotated[
        str | None,
        _id("Only this question (CLR-42-001), or this round (CLR-42-001/1)."),
    ] = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    agent: Annotated[str | None, _role("Only what this agent asked.", metavar="NAME")] = None,
    by: ByOption = None,
    jwt: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Print only the receipt of this question's last decision."),
    ] = None,
) -> _Act:
    """Print the log of decisions as JSON Lines: signed entries, each with the receipt that it is about."""
    from bot.cli import trust
    from core.clock import moment_of

    if jwt is not None:
        return lambda out, config: trust.print_receipt(out, jwt, config)
    now = datetime.now(UTC)
    start = moment_of(since, now, "--since") if since is not None else None
    end = moment_of(until, now, "--until") if until is not None else None
    wanted = trust.Filter(name, start, end, agent, by)
    return lambda out, config: trust.print_log(out, wanted, config)


@_command(_TOGETHER)
def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="All of them must occur. Quote words to find them as a phrase."),
    ] = None,
    *,
    by: ByOption = None,
    agent: Annotated[
        str | None,
        _role("Only what this agent asked; a part of its name will do.", metavar="NAME"),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="How many to print at most. 0: all.")
    ] = 50,
) -> _Act:
    """Find decisions again, newest first: by words in the question, answer, comment, ID or agent's name."""
    from bot.cli.lists import decisions

    return lambda out, config: decisions(
        out, config, words or (), by=by, agent=agent, since=since, until=until, limit=limit
    )


@_command(_KEPT)
def verify(
    receipt: Annotated[
        str | None,
        typer.Argument(
            metavar="RECEIPT", help="A file with the receipt, `-` for standard input, or the receipt itself."
        ),
    ] = None,
    *,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Verify a whole log, as `clarify log` prints it, instead."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="ENTRY", help="With --log: a checkpoint, or a file with it, that the log must contain."
        ),
    ] = None,
    accept_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KID", help="With --log: accept this key, even if the key before it did not announce it."
        ),
    ] = None,
    jwks: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="The bot's public keys, as at /.well-known/jwks.json. Default: the keys of the configuration.",
        ),
    ] = None,
    arguments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A JSON file with the arguments: exactly these must have been approved.",
        ),
    ] = None,
    approved: Annotated[
        bool, typer.Option("--approved", help="The action must have been approved. Implied by --arguments.")
    ] = False,
    audience: Annotated[
        str | None, typer.Option(metavar="PRODUCER", help="The producer that the receipt must be for.")
    ] = None,
    issuer: Annotated[str | None, typer.Option(metavar="NAME", help="Who must have signed it.")] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How old the decision may be: 90s, 15m, 24h.")
    ] = None,
) -> _Act:
    """Verify the receipt of a decision, or the log. Exit code 0: it is genuine; 1: it is not, or not what you asked for."""
    from bot.cli import trust

    if (receipt is None) == (log is None):
        raise BadInput("Give either a receipt or --log FILE.")
    if log is not None:
        return lambda out, config: trust.verify_log(
            out, config, log, jwks, checkpoint=checkpoint, accepted=accept_key or ()
        )
    if receipt is None or checkpoint is not None or accept_key:
        raise BadInput("--checkpoint and --accept-key are for --log.")
    return lambda out, config: trust.verify(
        out,
        config,
        receipt,
        jwks,
        arguments=arguments,
        approved=approved,
        audience=audience,
        issuer=issuer,
        max_age=max_age,
    )


def _agents_command(context: typer.Context) -> None:
    from bot.cli import agents

    raise typer.Exit(agents.run([str(context.info_name), *context.args]))


for _name, _about in clarify.COMMANDS.items():
    app.command(_name, cls=AgentsCommand, help=_about, rich_help_panel=_QUESTIONS, **_OWN_ARGUMENTS)(
        _agents_command
    )


@app.command(cls=ShellCommand, rich_help_panel=_BOT)
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("clarify.toml"),
    *,
    channel: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Channel ID (C…) for questions.")
    ] = None,
    fallback: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Channel ID for what can't be posted there.")
    ] = None,
    on_call: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="User ID (U…) to page, repeatable; or one user group (S…)."),
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Don't ask; fill in the options only.")
    ] = False,
) -> None:
    """Set up clarify.toml: asks for your tokens and channels and who is on call, then validates it."""
    from bot.cli import setup

    choices = setup.Choices(channel, fallback, on_call or ())
    setup.init(path, choices, ask=not no_input and sys.stdin.isatty())


@app.command(cls=ShellCommand, rich_help_panel=_BOT)
def manifest(
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="URL", help="For a bot that Slack reaches at this https:// address."),
    ] = None,
) -> None:
    """Print the Slack app's manifest, and a link that creates the app from it."""
    from bot.cli import setup

    text = setup.manifest(http)
    typer.echo(text)
    typer.echo(f"# Create the app: {setup.link(text)}")


@app.command(cls=ShellCommand, rich_help_panel=_BOT)
def demo(
    port: PortOption = 0,
    keep_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the demo's files in this folder; without it they are deleted."
        ),
    ] = None,
) -> None:
    """Try it without a Slack account: a local workspace, agents that ask, and the bot between them."""
    from workspace.demo import DemoError
    from workspace.demo.stage import play

    try:
        _until_stopped(play(port=port, folder=keep_folder, say=typer.echo))
    except DemoError as error:
        raise ClarifyBotError(str(error)) from error


@app.command(cls=ShellCommand, rich_help_panel=_BOT)
def workspace(
    port: PortOption = 0,
    request_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Send events to this URL instead of over Socket Mode.")
    ] = None,
) -> None:
    """Start only the local Slack workspace, to point SLACK_API_URL at."""
    from workspace import Options, seed
    from workspace.server import serve

    def ready(served: Any) -> None:
        typer.echo(f"Page:                  {served.url}")
        typer.echo(f"SLACK_API_URL:         {served.api_url}")
        typer.echo(f"SLACK_BOT_TOKEN:       {seed.BOT_TOKEN}")
        typer.echo(f"SLACK_APP_TOKEN:       {seed.APP_TOKEN}")
        typer.echo(f"SLACK_SIGNING_SECRET:  {seed.SIGNING_SECRET}")
        typer.echo("Ctrl-C stops it.")

    try:
        _until_stopped(serve(port, ready, Options(request_url=request_url)))
    except OSError as error:
        raise ClarifyBotError(
            f"cannot use port {port}: {error.strerror}. Choose another with --port"
        ) from error


@app.command("help", cls=ShellCommand, rich_help_panel=_BOT)
def help_(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="COMMAND", help="The command to explain.")] = None,
) -> None:
    """List the commands, or explain one."""
    parent: Any = ctx.parent
    if topic in clarify.COMMANDS:
        from bot.cli import agents

        agents.run([topic, "--help"])
        return
    if topic is None:
        typer.echo(parent.get_help())
        return
    command = parent.command.get_command(parent, topic)
    if command is None:
        parent.fail(f"No such command '{topic}'.")
    with type(parent)(command, info_name=topic, parent=parent) as named:
        typer.echo(command.get_help(named))


@_command(_QUESTIONS, "list", in_shell=True)
def list_(
    name: Annotated[str | None, typer.Argument(metavar="ISSUE", help="Only this issue: 42 or '#42'.")] = None,
    *,
    issue: IssueOption = None,
    status: Annotated[
        list[StatusName] | None,
        typer.Option(
            metavar="STATUS",
            help="Only this status: pending, stale, escalated, answered, resolved or abandoned. Repeatable.",
        ),
    ] = None,
    from_: Annotated[str | None, _role("Only questions from this role or agent.", "--from")] = None,
    to: Annotated[str | None, _role("Only questions to this role.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include answered and closed questions.")] = False,
) -> _Work:
    """List open questions, most urgent first."""
    from bot.cli import lists

    return lambda shell: lists.some(shell, name, issue, status or (), from_=from_, to=to, every_status=all_)


@_command(_QUESTIONS, in_shell=True)
def show(
    name: Annotated[
        str | None,
        _id("CLR-42-001; or 42 (or '#42') for all of issue 42."),
    ] = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer, then show it.")] = False,
    timeout: TimeoutOption = None,
) -> _Work:
    """Show a question and its whole thread: who said what, when and where."""
    from bot.cli import lists

    return lambda shell: lists.show(shell, name, timeout, wait=wait)


@_command(_QUESTIONS, in_shell=True)
def stale() -> _Work:
    """List overdue questions: reminded, late or escalated."""
    from bot.cli import lists

    return lists.stale


@_command(_QUESTIONS, in_shell=True)
def mine(
    *,
    role: Annotated[str | None, _role("Questions to this role instead.", "--as")] = None,
) -> _Work:
    """List what is waiting for you: questions that people answer, and escalated ones."""
    from bot.cli import lists

    return lambda shell: lists.mine(shell, role)


@_command(_QUESTIONS, in_shell=True, creates=True)
def request(
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="`-` reads it from standard input.")
    ] = None,
    *,
    from_: Annotated[str | None, _role("The role that asks.", "--from")] = None,
    to: Annotated[str | None, _role("The role to ask; `human` asks people.")] = None,
    issue: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The issue number that the question belongs to.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", help="The topic. Asking again with an answered topic starts its next round."
        ),
    ] = None,
    question_option: Annotated[
        str | None,
        typer.Option("--question", metavar="TEXT", help="The question, instead of as an argument."),
    ] = None,
    blocking: Annotated[
        bool,
        typer.Option(
            "--blocking/--no-blocking",
            " /--non-blocking",
            help="Whether the asking role is blocked until it has the answer.",
        ),
    ] = True,
    context: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Background for the person who answers.")
    ] = None,
    follow_up: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Follow up on an answered question: its next round.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer and print only that.")] = False,
    timeout: TimeoutOption = None,
) -> _Work:
    """Ask as one agent to another. Prints the question's id, or its answer with --wait."""
    from bot.cli import changes

    asked = changes.question_of(
        question,
        question_option,
        from_,
        to,
        issue,
        topic=topic,
        blocking=blocking,
        context=context,
        follow_up=follow_up,
    )
    return lambda shell: changes.request(shell, asked, timeout, wait=wait)


@_command(_QUESTIONS, in_shell=True)
def answer(
    name: NameArgument = None,
    text: TextArgument = None,
    *,
    role: RoleOption = None,
    round_: Annotated[
        int | None,
        typer.Option(
            "--round",
            min=1,
            metavar="NUMBER",
            help="The round you saw. Refused if a newer round has started.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Accept without confirmation, if the shell may accept."),
    ] = False,
) -> _Work:
    """Answer a question: a choice by number or label, yes or no, a number, or text. The first answer wins.

    You can reject approvals here. Accepting happens in Slack, unless [shell] consent = true allows it here.
    """
    from bot.cli import changes

    said = changes.text_of(text, "answer CLR-42-001 yes")
    return lambda shell: changes.answer(shell, name, said, role, round_, yes=yes)


@_command(_QUESTIONS, in_shell=True)
def resolve(
    name: NameArgument = None,
    text: TextArgument = None,
    *,
    role: RoleOption = None,
) -> _Work:
    """Close a question with a decision. If it is still open, the text becomes its answer."""
    from bot.cli import changes

    said = changes.text_of(text, 'resolve CLR-42-001 "done by hand"')
    return lambda shell: changes.resolve(shell, name, said, role)


@_command(_QUESTIONS, in_shell=True)
def escalate(
    name: NameArgument = None,
    reason: ReasonArgument = None,
) -> _Work:
    """Escalate a question to whoever is on call."""
    from bot.cli import changes

    said = changes.text_of(reason)
    return lambda shell: changes.escalate(shell, name, said)


@_command(_QUESTIONS, in_shell=True)
def abandon(
    name: NameArgument = None,
    reason: ReasonArgument = None,
) -> _Work:
    """Close a question without an answer."""
    from bot.cli import changes

    said = changes.text_of(reason)
    return lambda shell: changes.abandon(shell, name, said)


@_command(_TOGETHER, in_shell=True)
def agents() -> _Work:
    """Show your agents: who is blocked, by whom and for how long."""
    from bot.cli import lists

    return lists.agents


@_command(_TOGETHER, in_shell=True)
def ready() -> _Work:
    """Show which sessions are ready to continue, and what blocks the rest."""
    from bot.cli import lists

    return lists.ready


def _of_integration(read: Callable[..., Any]) -> Callable[..., _Work]:
    """Makes a command of an integration one of the shell."""

    @wraps(read)
    def command(**typed: Any) -> _Work:
        from bot.cli import reports

        asked = read(**typed)
        return lambda shell: reports.of_integration(shell, asked)

    return command


for _word, _module in integrations.SHELL.items():
    _command(_TOGETHER, _word, in_shell=True)(_of_integration(getattr(import_module(_module), _word)))


@_command(_TOGETHER, in_shell=True)
def export(
    *,
    since: SinceOption = None,
    issue: IssueOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, completely or not at all.", **_FILE
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write CSV, without cells that run as formulas.")
    ] = False,
) -> _Work:
    """Write the audit trail as JSON Lines: who asked, approved, changed or rejected what, and who was reminded and paged."""
    from bot.cli import reports

    return lambda shell: reports.export(shell, since, issue, output, as_csv=csv)


@_command(_KEPT, in_shell=True)
def forget(
    name: Annotated[
        str | None,
        _id("The ID of a session or a question (CLR-42-001).", "SESSION|ID"),
    ] = None,
    *,
    person: Annotated[
        str | None,
        typer.Option(
            "--person",
            metavar="USER",
            help="A person instead, by Slack user ID: everything about them except signed decisions. Lists what stays.",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="With --person: what agents were told instead of the ID, such as an e-mail address. Repeatable.",
        ),
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="PRODUCER", help="The session's producer, if several use that session id."
        ),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Include open questions; their agents get no answer.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> _Work:
    """Delete a conversation from the database, the ledger files and Slack. This cannot be undone."""
    from bot.cli import copies

    if (name is None) == (person is None):
        raise BadInput("Name a session, a question, or a person with --person.")
    if person is not None:
        return lambda shell: copies.forget_person(shell, person, names or (), yes=yes)
    return lambda shell: copies.forget(shell, name or "", producer, abandon=abandon, yes=yes)


@_command(_KEPT)
def backup(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")]) -> _Act:
    """Back up the database. The bot may be running. No secrets are included."""
    from bot.cli import copies

    return lambda out, config: copies.backup(out, folder, config)


@_command(_KEPT)
def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The backup's folder.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move existing data aside (before-restore-…).")
    ] = False,
) -> _Act:
    """Restore a backup. Stop the bot first; it catches up with Slack and your agents when it starts."""
    from bot.cli import copies

    return lambda out, config: copies.restore(out, folder, config, replace=replace)


@_command(_KEPT)
def move(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="The environment variable that holds PostgreSQL's address, which keeps its password out of the process list; "
            "the address itself (postgresql://…); or a SQLite file.",
        ),
    ],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move what is there already aside (before-move-…).")
    ] = False,
) -> _Act:
    """Move everything into another database, such as from SQLite to PostgreSQL. Stop the bot first."""
    from bot.cli import copies

    return lambda out, config: copies.move(out, to, config, replace=replace)


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends, or until SIGTERM or Ctrl-C cancels it."""
    import asyncio
    import signal

    from bot.cli.running import supervised

    asyncio.run(supervised(work, (signal.SIGINT, signal.SIGTERM)))
