"""The command `clarify digest`. The list of commands shows it, so it imports what it needs when it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bot.api import Report, ShellHost
_Asked = Callable[["ShellHost"], Awaitable["Report"]]


def digest(
    span: Annotated[
        str | None,
        typer.Argument(
            metavar="WHEN",
            help="Since when: 2026-11-01, or 24h, 7d, 2w ago. Default: 7d.",
            show_default=False,
        ),
    ] = None,
    *,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Same as WHEN.")] = None,
) -> _Asked:
    """Show statistics: how many questions, their outcomes, how fast they were answered and by whom."""
    from bot.integrations.digest.report import report  # noqa: PLC0415 - see above

    return lambda host: report(host, span, since)
