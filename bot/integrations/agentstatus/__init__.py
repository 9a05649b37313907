"""Keeps `agent-status.json` beside the ledgers: which agents wait, and which answer. On by default."""

from __future__ import annotations

from bot.api import Integration, Process
from bot.integrations.agentstatus.status import StatusFile


def _watcher(process: Process) -> StatusFile:
    return StatusFile(
        process.folder / "agent-status.json",
        process.known,
        process.roles_of_people,
        process.clock,
        mode=process.mode,
    )


integration = Integration(name="agentstatus", watches=_watcher)
