"""`clarify export`: the audit trail; and the reports of integrations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.cli.copies import kept_in
from bot.cli.lists import unreadable
from bot.cli.output import replacing, to_json
from bot.cli.running import Shell
from bot.cli.trail import Beside, Line, csv_row, trail
from bot.errors import StorageError
from bot.oncall.pages import logged
from bot.routing import Audiences
from bot.show.messages import reminders
from bot.storage.opening import Kept
from core.clock import moment_of
from core.ledger import Ledger

if TYPE_CHECKING:
    from bot.api import Report, ShellHost


async def of_integration(shell: Shell, asked: Callable[[ShellHost], Awaitable[Report]]) -> None:
    """Show what a command of an integration returns."""
    from bot.api import ShellHost  # noqa: PLC0415 - other commands need nothing of it

    audiences, is_routed = Audiences(shell.settings), bool(shell.settings.routes)
    route = lambda record: audiences.route(record).name if is_routed else ""  # noqa: E731
    report = await asked(ShellHost(ledger=shell.ledger, clock=shell.clock, route=route))
    shell.out.show(report.data, *report.parts)
    shell.tell_problems([unreadable(each) for each in report.unreadable])


async def export(
    shell: Shell, since: str | None, issue: int | None, output: Path | None, *, as_csv: bool
) -> None:
    """Write a line for each thing that happened to each clarification, to stdout or to `output`, completely or not at all:
    as JSON, or as CSV.
    """
    start = moment_of(since, shell.clock.now(), "--since") if since is not None else None
    beside, problems = await asyncio.to_thread(_beside, kept_in(shell.settings))
    if output is None or output == Path("-"):
        write = shell.out.raw if as_csv else shell.out.json_line
        problems += await _export(write, shell.ledger, start, issue, beside, as_csv=as_csv)
    else:
        with replacing(output) as file:

            def to_file(data: Any) -> None:
                file.write((data if as_csv else f"{to_json(data)}\n").encode())

            problems += await _export(to_file, shell.ledger, start, issue, beside, as_csv=as_csv)
    shell.tell_problems(problems)


async def _export(
    write: Callable[[Any], object],
    ledger: Ledger,
    since: datetime | None,
    issue: int | None,
    beside: Beside,
    *,
    as_csv: bool,
) -> list[str]:
    if not as_csv:
        return await export_to(write, ledger, since, issue, beside)
    write(csv_row())
    return await export_to(lambda line: write(csv_row(line)), ledger, since, issue, beside)


def _beside(kept: Kept) -> tuple[Beside, list[str]]:
    """Returns what only the storage knows, and messages about what cannot be read."""
    try:
        with kept.read_only() as tx:
            return Beside(reminders(tx), logged(tx)), []
    except StorageError as error:
        return Beside(), [f"Reminders and pages are left out, except for the last reminder: {error}"]


async def export_to(
    write: Callable[[Line], object],
    ledger: Ledger,
    since: datetime | None,
    issue: int | None,
    beside: Beside | None = None,
) -> list[str]:
    """Write every line; returns messages about what cannot be read."""
    problems: list[str] = []
    async with aclosing(ledger.every(issue=issue)) as every:
        async for some in every:
            problems += [unreadable(each) for each in some.unreadable]
            tampered = await ledger.tampered_among(some.records)
            for record in some.records:
                mark = {"tampered": True} if record.id in tampered else {}
                for line in trail(record, since, beside):
                    write(line | mark)
    return problems
