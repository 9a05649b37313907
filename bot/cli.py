# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""The `clarify` command: each one wires what it needs, and turns expected trouble into an exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bot.errors import ClarifyBotError, ConfigurationError
from bot.shell.app import Commands, add_to
from bot.shell.options import ConfigOption
from core.errors import ClarifyError

app = typer.Typer(
    name="clarify",
    cls=Commands,
    help="Brings the questions of AI agents to people in Slack, and their answers back.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,  # rich tracebacks show local variables: questions, tokens
)

LogLevel = Literal["debug", "info", "warning", "error"]


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.shell.running`."""
    try:
        app()
    except (ClarifyBotError, ClarifyError) as error:
        from bot.logs import somebody_reads

        if somebody_reads():
            typer.echo(f"clarify: {error}", err=True)
        sys.exit(getattr(error, "exit_code", 1))
    except Exception:  # noqa: BLE001 - the last resort: told through the log, which knows what to leave out
        _log_unexpected()
        sys.exit(1)


def _log_unexpected() -> None:
    import structlog

    from bot.logs import configure_logging

    if not structlog.is_configured():
        configure_logging()
    structlog.get_logger("bot.cli").exception("unexpected error: please report it")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"clarify {version('clarify-bot')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take what stands before the command."""


@app.command()
def run(
    config: ConfigOption = None,
    log_level: Annotated[LogLevel, typer.Option(help="What to log at least.")] = "info",
) -> None:
    """Start the bot. SIGTERM, Ctrl-C and the end of its terminal stop it in order."""
    from bot.logs import configure_logging, keep_standard_files
    from bot.settings import load_settings, prepare_folders, read_environment

    keep_standard_files()
    settings = load_settings(config, read_environment())
    configure_logging(log_level, background=True)
    prepare_folders(settings)

    from bot import main as bot_main

    asyncio.run(bot_main.run(settings))


@app.command()
def check(config: ConfigOption = None) -> None:
    """Compare the configuration with Slack and the producers, without starting."""
    from bot.check import check_all, findings
    from bot.settings import load_settings, prepare_folders, read_environment

    settings = load_settings(config, read_environment())
    prepare_folders(settings)

    async def tell() -> int:
        """Tell each finding when it is known, since the network may be slow; return how many are wrong."""
        seen = []
        async for finding in check_all(settings):
            seen.append(finding)
            for line in findings.lines(finding):
                typer.echo(line)
        typer.echo(findings.summary(seen))
        return sum(not finding.ok for finding in seen)

    raise typer.Exit(1 if asyncio.run(tell()) else 0)


@app.command()
def init(path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("clarify.toml")) -> None:
    """Write a commented clarify.toml to start from."""
    text = files("bot.settings").joinpath("example.toml").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError([f"{path} already exists; left unchanged."]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be written: {error.strerror}"]) from error
    typer.echo(f"Wrote {path}. Fill in your channels and producers, then run `clarify check`.")


@app.command()
def demo(
    port: Annotated[int, typer.Option(help="Port of the page; 0 takes a free one.")] = 0,
    keep_folder: Annotated[Path | None, typer.Option(help="Keep the demo's files in this folder.")] = None,
) -> None:
    """Try it without a Slack account: a local workspace, an agent that asks, and the bot between them."""
    from bot.demo.stage import play

    _until_stopped(play(port=port, folder=keep_folder, say=typer.echo))


@app.command()
def workspace(
    port: Annotated[int, typer.Option(help="Port of the page; 0 takes a free one.")] = 0,
    request_url: Annotated[
        str | None, typer.Option(help="Send to this URL what happens, in place of Socket Mode.")
    ] = None,
) -> None:
    """Start the local Slack workspace alone, to point SLACK_API_URL at."""
    from bot.workspace import Options, seed
    from bot.workspace.server import serve

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
        raise ClarifyBotError(f"port {port}: cannot be used: {error.strerror}") from error


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends, or until SIGTERM or Ctrl-C cancels it: then it cleans up and all is well."""

    async def supervise() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            await task
        except asyncio.CancelledError:
            if not stopped:
                raise

    asyncio.run(supervise())


add_to(app)


if __name__ == "__main__":
    main()
