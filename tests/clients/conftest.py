from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.kit import node

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients/clarify.ts"


class Program:
    """A TypeScript program that runs. `show(value)` in it prints a value, which `shown` returns."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def shown(self) -> Any:
        """Returns the next value that the program shows, once it does.

        Raises:
            AssertionError: the program ended before; with what it wrote to standard error.
        """
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        assert line, (await self.process.stderr.read()).decode()
        return json.loads(line)

    async def ended(self) -> str:
        """Waits until the program has ended well, and returns what it wrote to standard error."""
        _, errors = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode == 0, errors.decode()
        return errors.decode()


Start = Callable[..., Coroutine[Any, Any, Program]]
_SHOW = "const show = (value: unknown): void => console.log(JSON.stringify(value));\n"


@pytest.fixture
async def start(tmp_path: Path, node_program: Path) -> AsyncIterator[Start]:
    """Starts a TypeScript program, with `clarify` imported and the bot's address in the environment."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(node.FOLDER / "node_modules")
    begun: list[Process] = []

    async def started(text: str, url: str, **environ: str) -> Program:
        file = folder / f"{len(begun)}.ts"
        file.write_text(f"import * as clarify from {str(CLIENT)!r};\n{_SHOW}{text}")
        environment = {**os.environ, "CLARIFY_URL": url, "NODE_OPTIONS": "--no-warnings", **environ}
        begun.append(
            await asyncio.create_subprocess_exec(
                node_program, file, stdout=PIPE, stderr=PIPE, env=environment, cwd=folder
            )
        )
        return Program(begun[-1])

    yield started
    for process in begun:
        if process.returncode is None:
            process.kill()
        await process.communicate()
