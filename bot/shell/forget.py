# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`clarify forget`: everything that was said in a session, or about one question, is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.options import ConfigOption, JsonOption
from bot.shell.running import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bot.delivery.forgetting import Traces
    from bot.retention.forgetting import Found
    from bot.shell.desk import Shell
    from core.ledger import FileLedger

_PATIENCE = 30.0  # seconds for a running bot to delete messages, for a message to arrive
_LOOK_EVERY = 0.2


def add_forget(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(forget)


def forget(
    name: Annotated[
        str,
        typer.Argument(metavar="SESSION|ID", help="A session's id, or that of a clarification: CLR-42-001."),
    ],
    *,
    producer: Annotated[
        str | None,
        typer.Option("--producer", help="Whose session, where several producers have one of that id."),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Also what is open: whoever asked gets no answer.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Delete what was said: from the ledgers, the archive, the storage, and Slack. It cannot be undone."""

    async def work(shell: Shell) -> None:
        await _forget(shell, shell.ledger, name, producer, abandon=abandon, yes=yes)

    run(work, config, json)


async def _forget(
    shell: Shell, upkeep: FileLedger, name: str, producer: str | None, *, abandon: bool, yes: bool
) -> None:
    import asyncio

    from bot.retention import forgetting
    from core.errors import BadInput

    database = shell.settings.storage.path
    found = await asyncio.to_thread(forgetting.look, upkeep, database, name, producer)
    if found.unsettled and not abandon:
        waiting = ", ".join(record.id for record in found.unsettled)
        raise BadInput(
            f"Somebody still waits for {waiting}. Answer it first, or give --abandon: then nobody gets one."
        )
    if not yes:
        _asked(shell, found)
    for record in found.unsettled:
        if record.is_open:
            await shell.router.abandon(record.id, shell.decider(), "")
    before = await asyncio.to_thread(forgetting.erasures, database)
    traces = await _until_it_lands(upkeep, database, found, abandon=abandon)
    await _tell(shell, upkeep, found, traces, before)


def _asked(shell: Shell, found: Found) -> None:
    """Have the person at the prompt say yes.

    Raises:
        BadInput: nobody is there to ask; typer.Abort: they said no.
    """
    from core.errors import BadInput

    if not shell.out.terminal:
        raise BadInput("Not a terminal, so I can't ask. Add --yes to confirm.")
    what = ", ".join(found.ids) or "nothing that was asked"
    of = f" of session {found.session[1]} ({found.session[0]})" if found.session else ""
    typer.confirm(f"Delete all that was said{of}: {what}? It cannot be undone.", abort=True, err=True)


async def _until_it_lands(upkeep: FileLedger, database: Path, found: Found, *, abandon: bool) -> Traces:
    """Again for a while, where a message is being posted, or an event worked off, just now.

    Raises:
        BadInput: it still is.
    """
    import asyncio

    from bot.retention import forgetting
    from core.errors import BadInput

    async def settled() -> Traces:
        while True:
            traces = await asyncio.to_thread(forgetting.forget, upkeep, database, found, abandoned=abandon)
            if not traces.in_flight and (abandon or not traces.waiting):
                return traces
            await asyncio.sleep(_LOOK_EVERY)

    try:
        async with asyncio.timeout(_patience(database)):
            return await settled()
    except TimeoutError:
        raise BadInput(
            "The ledgers are done; the storage has a message of it on its way to Slack, or an event that is not "
            "worked off: let the bot run, and give the same command again."
        ) from None


def _patience(database: Path) -> float:
    """Only a bot that runs brings anything on its way to its end."""
    from bot.shell.presence import bot_runs

    return _PATIENCE if bot_runs(database) else _LOOK_EVERY / 2


async def _tell(
    shell: Shell,
    upkeep: FileLedger,
    found: Found,
    traces: Traces,
    before: Mapping[str, list[tuple[str, str]]],
) -> None:
    import asyncio

    from bot.retention import forgetting

    after = await _erased(shell.settings.storage.path)
    old = {place for places in before.values() for place in places if place not in before.get("wanted", [])}
    new = {state: [place for place in places if place not in old] for state, places in after.items()}
    left = await asyncio.to_thread(forgetting.asides, upkeep, found)
    data = {
        "forgotten": found.ids,
        "session": found.session[1] if found.session else None,
        "slack": {state: len(places) for state, places in new.items()},
        "notDeleted": [{"channel": channel, "ts": ts} for channel, ts in new.get("failed", [])],
        "outside": {"pagers": traces.pagers, "github": list(traces.comments)},
        "unreadable": [path.name for path in (*left, *found.unknown)],
    }
    shell.out.show(data, f"Forgotten: {', '.join(found.ids) or 'what was heard of the session'}.")
    for line in _remains(new, traces, [path.name for path in (*left, *found.unknown)]):
        shell.out.note(line)


async def _erased(
    database: Path,
) -> Mapping[str, list[tuple[str, str]]]:
    """How the messages in Slack stand, once the bot that runs is through, or after a while."""
    import asyncio
    from contextlib import suppress

    from bot.retention import forgetting

    after = await asyncio.to_thread(forgetting.erasures, database)
    with suppress(TimeoutError):
        async with asyncio.timeout(_patience(database)):
            while after.get("wanted"):
                await asyncio.sleep(_LOOK_EVERY)
                after = await asyncio.to_thread(forgetting.erasures, database)
    return after


def _remains(new: dict[str, list[tuple[str, str]]], traces: Traces, unreadable: list[str]) -> list[str]:
    """What is not gone, and who can do something about it."""
    lines = []
    if done := len(new.get("erased", [])):
        lines.append(f"Slack: {done} messages of the bot are deleted.")
    if blanked := len(new.get("blanked", [])):
        lines.append(f"Slack: {blanked} messages could not be deleted and were emptied.")
    if wanted := len(new.get("wanted", [])):
        lines.append(f"Slack: {wanted} messages are deleted once a bot runs and reaches Slack.")
    for channel, ts in new.get("failed", []):
        lines.append(f"Slack: the message {ts} in {channel} could neither be deleted nor emptied.")
    if traces.pagers:
        lines.append(f"{traces.pagers} pages went to pagers outside Slack, and stay there.")
    if traces.untaken:
        lines.append(
            f"{traces.untaken} things that nobody took yet still page, without their words: take them."
        )
    if traces.comments:
        lines.append(f"GitHub: comments stay on {', '.join(traces.comments)}.")
    if unreadable:
        lines.append(f"These files cannot be read and may hold some of it: {', '.join(unreadable)}.")
    lines.append(
        "What people wrote in the threads themselves is theirs to delete; backups keep what they hold."
    )
    return lines
