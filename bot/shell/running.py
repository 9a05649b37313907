"""From a command's work to an exit code: every expected trouble is one line on stderr, and JSON if asked for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bot.errors import ClarifyBotError, ConfigurationError
from bot.shell.output import Output
from core.errors import ClarifyError

if TYPE_CHECKING:
    from bot.shell.desk import Shell

EXIT_CODES = {
    "CONFIGURATION": 2,
    "BAD_INPUT": 2,
    "ANSWER_REJECTED": 2,
    "NOT_FOUND": 3,
    "SCOPE_VIOLATION": 4,
    "CONSENT_REFUSED": 4,
    "MAX_ROUNDS_EXCEEDED": 4,
    "ALREADY_ANSWERED": 5,
    "CLOSED": 5,
    "NOT_OPEN": 5,
    "SUPERSEDED": 5,
    "ILLEGAL_TRANSITION": 5,
    "LOCK_TIMEOUT": 6,
    "LEDGER_UNWRITABLE": 6,
    "AGENT_ERROR": 7,
    "TIMEOUT": 8,
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WaitedTooLong(ClarifyBotError):
    """There was no answer in the time given with --timeout."""

    code = "TIMEOUT"


def run(work: Callable[[Shell], Awaitable[object]], config: Path | None, json: bool) -> None:  # noqa: FBT001 - as the option
    """Open the shell, do `work`, close it. Leaves with the exit code of what went wrong, 130 on Ctrl-C.

    Raises:
        typer.Exit: with any code but 0.
    """
    with told(json=json) as out:
        stopped_by = asyncio.run(_supervised(work, config, out))
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)


@contextmanager
def told(*, json: bool) -> Iterator[Output]:
    """Expected trouble within is said, and becomes an exit code.

    Raises:
        typer.Exit: with any code but 0.
    """
    out = Output(json=json)
    try:
        yield out
    except (ClarifyError, ClarifyBotError) as error:
        from bot.shell.refusals import explained  # noqa: PLC0415 - heavy: not for --help

        code = code_of(error)
        out.failed(code, explained(error, datetime.now(UTC)))
        raise typer.Exit(EXIT_CODES.get(code, 1)) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


def code_of(error: ClarifyError | ClarifyBotError) -> str:
    """The error's stable name; those of the bot that have none are configuration, or just errors."""
    if isinstance(error, ConfigurationError):
        return "CONFIGURATION"
    return str(getattr(error, "code", "ERROR"))


async def _supervised(
    work: Callable[[Shell], Awaitable[object]], config: Path | None, out: Output
) -> int | None:
    """Do the work; a signal cancels it, so that what it started is stopped too. Returns the signal's number."""
    from bot.logs import configure_logging  # noqa: PLC0415 - heavy: not for --help
    from bot.shell.desk import open_shell  # noqa: PLC0415

    configure_logging("warning", json=False)  # or structlog prints to stdout, where answers go

    async def session() -> None:
        async with open_shell(config, out=out) as shell:
            await work(shell)

    task: asyncio.Task[Any] = asyncio.ensure_future(session())
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not caught:
            raise
    return caught[0] if caught and task.cancelled() else None
