"""Keeps `agent-status.json` beside the ledgers: which agents wait, and which answer. On by default."""

from __future__ import annotations

from bot.api import Configuration, Integration, Known
from bot.integrations.agentstatus.status import StatusFile
from core.clock import Clock


def _watcher(file: Configuration, known: Known, clock: Clock) -> StatusFile:
    path = file.state_folder / "agent-status.json"
    return StatusFile(path, known, file.roles_of_people, clock, mode=file.ledger.mode)


integration = Integration(name="agentstatus", watches=_watcher)
