"""The ledger files of the Clarification Protocol, in `[ledger] directory`. See `bridge.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from bot.api import CheckResult, Earlier, Host, Integration, LocalFiles, Mirror, Secrets, Tables
from bot.integrations.ledgerfiles import folder
from bot.integrations.ledgerfiles.folder import FolderSettings


def _mirror(host: Host, settings: FolderSettings) -> Mirror:
    from bot.integrations.ledgerfiles.bridge import Bridge  # noqa: PLC0415 - the shell needs none of it

    return Bridge(host, settings)


async def _check(settings: FolderSettings, secret: Secrets) -> AsyncIterator[CheckResult]:
    from bot.integrations.ledgerfiles.check import check_folder  # noqa: PLC0415 - as above

    for result in await asyncio.to_thread(lambda: list(check_folder(settings, secret))):
        yield result


def _earlier(settings: FolderSettings) -> Earlier | None:
    from bot.integrations.ledgerfiles.earlier import earlier  # noqa: PLC0415 - as above

    return earlier(settings)


def _files(settings: FolderSettings) -> LocalFiles:
    return LocalFiles(
        first=partial(folder.first_file, settings),
        move_aside=partial(folder.move_aside, settings),
        forgotten=partial(folder.forgotten_in, settings),
        erase=partial(folder.erase, settings),
    )


integration = Integration(
    name="ledgerfiles",
    default_on=folder.folder_settings,
    follows=_mirror,
    check=_check,
    earlier=_earlier,
    files=_files,
    tables=Tables(leave_out=lambda tx: tx.run("delete from ledgerfiles")),
)
