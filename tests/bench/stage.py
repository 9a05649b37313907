"""The parties of a measurement: workspace and producer here, the bot in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.bench.seeding import Seed, seed
from tests.kit.world import as_kept, config, environment, question
from workspace import Options, Workspace
from workspace.demo.producer import DemoProducer
from workspace.seed import AGENTS
from workspace.state import Message

UNPACED = 10_000.0
ROOT = Path(__file__).parents[2]
YES_NO = {"accepted_response_kinds": ["yes_no"]}


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    workspace: Workspace
    producer: DemoProducer
    database: str | None = None  # PostgreSQL's address, in place of SQLite and files

    @property
    def environ(self) -> dict[str, str]:
        """What the bot's environment holds besides Slack's tokens."""
        return {} if self.database is None else {"CLARIFY_DATABASE_URL": self.database}

    async def ask(self, token: str, *, session: str, agent: str = "agent-0", **fields: Any) -> None:
        """Emit a question whose card says its token."""
        event = question(token, session=session, question=f"May I go on with step {token}?", **fields)
        await self.producer.emit(
            event | YES_NO | {"producer": {"agent_id": agent, "agent_name": agent.title()}}
        )

    async def card(self, token: str) -> Message:
        """The card that asks `token`, once it is there."""
        mark, posts = f"step {token}?", self.workspace.channel(AGENTS).messages
        found = await self.workspace.wait_for(
            lambda: [m for m in reversed(posts.values()) if mark in m.text], 30
        )
        return found[0]


@asynccontextmanager
async def stage(
    folder: Path, *, past: Seed | None = None, options: Options | None = None
) -> AsyncIterator[Stage]:
    """A workspace and a producer; nobody is connected to them yet."""
    await asyncio.to_thread(folder.mkdir)
    async with Workspace(options=options) as workspace, DemoProducer("agent", keep=100_000) as producer:
        on = Stage(folder, workspace, producer)
        if past is not None:
            configured(on)
            await seed(folder, workspace, past)
        yield on


def configured(on: Stage, *, pace: float = UNPACED, more: str = "", files: bool = True) -> Path:
    """Write clarify.toml; returns the file. `files`: whether there are ledger files."""
    file = on.folder / "clarify.toml"
    text = config(on.producer.url, dialect="standard", pace=pace, more=more)
    text = text if files else text.replace('directory = "ledgers"', "directory = false")
    file.write_text(as_kept(text, on.database), encoding="utf-8")
    return file


@dataclass(frozen=True, slots=True)
class Running:
    """A bot that takes clicks. `seconds`: from its first instruction until it did."""

    pid: int
    seconds: float

    @property
    def url(self) -> str:
        """Where it listens."""
        found = psutil.Process(self.pid).net_connections("tcp")
        return next(
            f"http://127.0.0.1:{each.laddr.port}" for each in found if each.status == psutil.CONN_LISTEN
        )


@asynccontextmanager
async def bot(
    on: Stage,
    *,
    pace: float = UNPACED,
    wait: float = 120.0,
    more: str = "",
    program: Sequence[str] = ("-m", "bot.cli"),
    log: str = "warning",
    files: bool = True,
) -> AsyncIterator[Running]:
    """`clarify run` in a process of its own, taking clicks. Below warnings, nobody reads its log."""
    file = configured(on, pace=pace, more=more, files=files)
    command = [sys.executable, *program, "run", "--config", str(file), "--log-level", log]
    began = time.perf_counter()
    before = len(on.workspace.link.connections)
    stderr = None if log == "warning" else asyncio.subprocess.DEVNULL
    async with process(command, environment(on.workspace) | on.environ, stderr) as pid:
        await on.workspace.wait_for(lambda: len(on.workspace.link.connections) > before, wait)
        await on.producer.wait_for_subscriber(wait)
        yield Running(pid, time.perf_counter() - began)


async def connected(workspace: Workspace, wait: float = 30.0) -> None:
    """Returns when a Socket Mode connection stands."""
    await workspace.wait_for(lambda: workspace.link.connections, wait)


@asynccontextmanager
async def process(
    command: list[str], more: Mapping[str, str], stderr: int | None = None
) -> AsyncIterator[int]:
    """A child process; it is ended in order, and must end well."""
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, **more},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=stderr,
    )
    try:
        yield child.pid
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(child.wait(), 60)
