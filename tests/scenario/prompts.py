"""`clarify` as a process of its own, in a project's folder."""

from __future__ import annotations

import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.databases import records_in
from tests.kit.processes import Process, Said, clarify, ended
from tests.kit.world import World, as_kept, rows_in

WORKFLOW = '[[steps]]\nagent = "engineer"\ncan_clarify = ["architect", "product-manager"]\n'
CONFIG = """
[slack]
fallback_channel = "C0F"
[ledger]
directory = "ledgers"
workflows = "workflows"
[storage]
path = "clarify.db"
"""
ASK = ("request", "--from", "engineer", "--to", "architect", "--issue", "42")


@dataclass(frozen=True, slots=True)
class Project:
    folder: Path
    database: str | None = None

    @classmethod
    def at(cls, folder: Path, config: str = CONFIG, database: str | None = None) -> Project:
        """A folder where the engineer may ask the architect. `database`: of PostgreSQL, by its address."""
        for name in ("workflows", "ledgers"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "workflows/feature.toml").write_text(WORKFLOW)
        (folder / "clarify.toml").write_text(as_kept(config, database))
        return cls(folder, database)

    @classmethod
    def beside(cls, stage: World, config: str) -> Project:
        """In the folder of a bot."""
        return cls.at(stage.folder, config, stage.database)

    def answering(self, code: str) -> Project:
        """The architect answers by this Python code."""
        script = self.folder / "architect.py"
        script.write_text(code)
        with (self.folder / "clarify.toml").open("a") as file:
            file.write(f"\n[responders.architect]\ncommand = {json.dumps([sys.executable, str(script)])}\n")
        return self

    @asynccontextmanager
    async def started(self, *arguments: str, stdout: int = PIPE) -> AsyncIterator[Process]:
        """A command that runs; killed on leaving if it still does."""
        process = await clarify(
            *arguments,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color"} | self._environ,
            stdout=stdout,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @property
    def _environ(self) -> dict[str, str]:
        return {} if self.database is None else {"CLARIFY_DATABASE_URL": self.database}

    async def run(self, *arguments: str) -> Said:
        async with self.started(*arguments) as process:
            return await ended(process)

    async def fine(self, *arguments: str) -> str:
        """What a command prints that has to go well."""
        said = await self.run(*arguments)
        assert said.code == 0, said
        return said.out

    def records(self, issue: int = 42) -> list[dict[str, Any]]:
        """What is kept of an issue."""
        return records_in(rows_in(self.folder, self.database), issue)
