"""What a command works with: the ledgers, the router, the hub, who sits here. Opened for one command, then closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import ConfigurationError
from bot.settings import os_identity, read_environment
from bot.settings.shell import ShellSettings, load_shell_settings
from bot.shell.output import Output
from bot.shell.standing import Standing
from core.clarification import Clarification, Decider
from core.clock import Clock, SystemClock
from core.errors import LedgersAway
from core.ledger import FileLedger
from core.router import Router

if TYPE_CHECKING:
    from core.hub import Hub
    from core.workflow import Scopes

PATIENCE = (
    10.0  # seconds for a ledger that somebody else holds: a person waits at the prompt, no click runs out
)


@dataclass(frozen=True)
class Shell:
    """`me`: who decides here, unless a command says for which role. `heard`: told every record that was written."""

    settings: ShellSettings
    router: Router
    ledger: FileLedger
    clock: Clock
    me: str
    out: Output
    standing: Standing
    heard: list[Callable[[Clarification], None]]

    @cached_property
    def scopes(self) -> Scopes:
        """Who may ask whom."""
        from core.workflow import Scopes  # noqa: PLC0415 - few commands ask

        return Scopes(self.settings.ledger.workflows)

    @cached_property
    def hub(self) -> Hub:
        """Where agents ask and wait."""
        from core.hub import Hub  # noqa: PLC0415 - few commands ask

        return Hub(router=self.router, ledger=self.ledger, scopes=self.scopes, clock=self.clock, via="shell")

    def decider(self, role: str | None = None) -> Decider:
        """Who decides: the person at the prompt, or the agent whose role is given."""
        if role is not None:
            return Decider(f"agent:{role}", "shell")
        return Decider(self.me, "shell", consent=self.settings.consent)


@asynccontextmanager
async def open_shell(
    config: Path | None, *, json: bool = False, out: Output | None = None, clock: Clock | None = None
) -> AsyncIterator[Shell]:
    """All that a command needs, by `config` (default: clarify.toml in this folder, if there is one).

    Raises:
        ConfigurationError: the file cannot be used, or the ledgers' folder cannot be made.
    """
    settings = load_shell_settings(config, read_environment())
    out = out or Output(json=json)
    clock = clock or SystemClock()
    ledger = await asyncio.to_thread(_ledger, settings, out.note)
    standing = Standing(settings, ledger, clock)
    heard: list[Callable[[Clarification], None]] = [standing.note]

    def changed(record: Clarification) -> None:
        for hear in tuple(heard):
            hear(record)

    router = Router(ledger, clock, settings.monitor.sla, changed, patience=PATIENCE)
    try:
        yield Shell(settings, router, ledger, clock, os_identity(), out, standing, heard)
    finally:
        try:
            await standing.settle()
        finally:
            standing.close()
            await asyncio.to_thread(ledger.close)


def _ledger(settings: ShellSettings, note: Callable[[str], None]) -> FileLedger:
    """The ledgers; their folder is made if it is not there, which is told: it may be the wrong place.

    Raises:
        ConfigurationError: it cannot be made; or a bot has used it, so that its disk may not be mounted.
    """
    folder = settings.ledger.directory
    new, used = not folder.exists(), settings.storage.path.exists()
    try:
        ledger = FileLedger(folder, mode=settings.ledger.mode, expected=used, shell_consents=settings.consent)
    except OSError as error:
        where = settings.file or "clarify.toml"
        raise ConfigurationError(
            [f"{where}: ledger.directory: the folder {folder} cannot be used: {error.strerror}"]
        ) from error
    if not ledger.is_there():
        where, storage = settings.file or "clarify.toml", settings.storage.path
        raise ConfigurationError(
            [f"{where}: ledger.directory: {LedgersAway(folder)} The bot's storage, {storage}, is there."]
        )
    if new:
        note(f"There was no ledger folder at {folder}; made an empty one.")
    return ledger
