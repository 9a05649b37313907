"""`clarify mcp` as a process, and what its client and it say to each other, line by line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.kit.processes import ROOT

Json = dict[str, Any]
FILE = (sys.executable, "-I", "-S", str(ROOT / "clarify.py"), "mcp")
"""The one file in an interpreter that has nothing but the standard library."""
_PROGRAM = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; import clarify; clarify._BOT_AWAY = 0.5"
IMPATIENT = (sys.executable, "-I", "-S", "-c", f"{_PROGRAM}; clarify.main(['mcp'])")
"""As `FILE`, but it waits shorter for a bot that is away."""
_META = "io.modelcontextprotocol/"


def envelope(**capabilities: Any) -> Json:
    """The `_meta` of a request of protocol 2026-07-28, whose client is called `test`."""
    return {
        f"{_META}protocolVersion": "2026-07-28",
        f"{_META}clientInfo": {"name": "test", "version": "1"},
        f"{_META}clientCapabilities": capabilities,
    }


class Stdio:
    """A running `clarify mcp`. Fails if it writes a line that is no message."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.progress: list[Json] = []
        self._queues: dict[Any, asyncio.Queue[Json]] = defaultdict(asyncio.Queue)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def started(cls, url: str, command: Sequence[str] = FILE) -> AsyncIterator[Stdio]:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "CLARIFY_URL": url},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**22,
        )
        door = cls(process)
        try:
            yield door
        finally:
            await door.end()

    async def end(self) -> int:
        """Ends its input, and returns its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = await asyncio.wait_for(self.process.wait(), 30)
        await self._reading
        return code

    async def answer(self, message: Json) -> Json:
        """Sends a request and returns the response."""
        self.send(message)
        return await self.said(message["id"])

    async def said(self, key: Any) -> Json:
        """Returns the next message about the request `key`; None: about no request."""
        return await asyncio.wait_for(self._queues[key].get(), 60)

    def is_silent(self, key: Any) -> bool:
        """Whether nothing more was said about a request."""
        return self._queues[key].empty()

    def rest(self, key: Any) -> list[Json]:
        """Returns what more was said about a request."""
        queue = self._queues[key]
        return [queue.get_nowait() for _ in range(queue.qsize())]

    @asynccontextmanager
    async def events(self, message: Json) -> AsyncIterator[AsyncIterator[Json]]:
        """Sends a request and yields what is said about it. Cancels the request afterwards."""
        self.send(message)

        async def events() -> AsyncIterator[Json]:
            while True:
                yield await self._queues[message["id"]].get()

        yield events()
        self.send({"method": "notifications/cancelled", "params": {"requestId": message["id"]}})

    def send(self, message: Json) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("method") == "notifications/progress":
                self.progress.append(message["params"])
                continue
            about = message.get("params", {}).get("_meta", {}).get(f"{_META}subscriptionId")
            self._queues[message.get("id", about)].put_nowait(message)
