# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`clarify backup` and `clarify restore`: a copy of everything, and everything from a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.options import ConfigOption, JsonOption
from bot.shell.running import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.retention.manifest import Manifest
    from bot.shell.desk import Shell
    from core.ledger import FileLedger


def add_backup(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (backup, restore):
        app.command()(command)


def backup(
    folder: Annotated[Path, typer.Argument(help="A folder that is not there yet, or empty.")],
    *,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Copy the ledgers, the archive and the storage, also while the bot runs. It holds no secrets, but all questions."""

    def copy(shell: Shell, upkeep: FileLedger) -> Manifest:
        from importlib.metadata import version

        from bot.retention.backup import backup as back_up

        return back_up(
            upkeep,
            shell.settings.storage.path,
            folder,
            now=shell.clock.now(),
            release=version("clarify-bot"),
        )

    _with_ledgers(copy, f"Backed up to {folder}", config, json=json)


def restore(
    folder: Annotated[Path, typer.Argument(help="A backup.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move aside what is there (before-restore-…).")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Make it another installation, beside the one that was backed up.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Put a backup in place. Not while a bot runs; what it then misses, producers and Slack tell it again."""

    def put(shell: Shell, upkeep: FileLedger) -> Manifest:
        from bot.retention.restoring import restore as put_back

        now = shell.clock.now()
        return put_back(folder, upkeep, shell.settings.storage.path, now=now, replace=replace, copy=copy)

    _with_ledgers(put, f"Restored {folder}", config, json=json)


def _with_ledgers(
    work: Callable[[Shell, FileLedger], Manifest], sentence: str, config: Path | None, *, json: bool
) -> None:
    async def session(shell: Shell) -> None:
        import asyncio

        manifest = await asyncio.to_thread(work, shell, shell.ledger)
        _tell(shell, manifest, sentence)

    run(session, config, json)


def _tell(shell: Shell, manifest: Manifest, sentence: str) -> None:
    from core.clock import iso

    size = sum(file.size for file in manifest.files)
    storage = "and the storage" if manifest.storage_version is not None else "; there was no storage"
    count = len(manifest.ledgers)
    data = {
        "made": iso(manifest.made),
        "release": manifest.release,
        "storageVersion": manifest.storage_version,
        "ledgers": count,
        "bytes": size,
    }
    shell.out.show(data, f"{sentence}: {count} ledgers {storage}, {size:,} bytes, made {iso(manifest.made)}.")
