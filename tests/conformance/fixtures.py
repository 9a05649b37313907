"""A server with the tools that the suite's `tasks-*` scenarios call, behind our own code for the extension.

Its tasks are like ours: they ask for nothing, never fail, and no tool requires one. What the suite wants of other tasks is in
expected-failures.yml.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from starlette.types import Receive, Scope, Send

from bot.ask.tools import Task, UnknownTask, add_tasks, created, declares
from tests.kit.served import reserved_port
from tests.kit.until import until

Context = ServerRequestContext[Any, Any]


@dataclass
class Job:
    """One task: it ends some seconds after it began, unless it was cancelled before."""

    name: str
    result: CallToolResult
    seconds: float
    began: float = field(default_factory=time.monotonic)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    is_cancelled: bool = False

    @property
    def status(self) -> str:
        ended = time.monotonic() >= self.began + self.seconds
        return "cancelled" if self.is_cancelled else "completed" if ended else "working"

    def has_ended(self) -> bool:
        return self.status != "working"

    @property
    def task(self) -> Task:
        status = self.status
        changed = self.at + timedelta(seconds=self.seconds if status == "completed" else 0)
        task = {
            "taskId": self.name,
            "status": status,
            "createdAt": self.at.isoformat(),
            "lastUpdatedAt": changed.isoformat(),
            "ttlMs": 60_000,
            "pollIntervalMs": 100,
        }
        if status == "completed":
            task["result"] = self.result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return task


class Jobs:
    """Tasks in memory."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)

    def start(self, result: CallToolResult, seconds: float) -> Job:
        name = f"job-{next(self._numbers)}"
        self._jobs[name] = Job(name, result, seconds)
        return self._jobs[name]

    async def get(self, task_id: str) -> Task:
        return self._job(task_id).task

    async def look(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        return {each: self._jobs[each].task for each in task_ids if each in self._jobs}

    async def cancel(self, task_id: str) -> None:
        job = self._job(task_id)
        job.is_cancelled = job.status != "completed"

    async def changes(self, task_ids: Collection[str]) -> AsyncGenerator[str]:
        for name in task_ids:
            yield name
            job = self._job(name)
            await until(job.has_ended, job.seconds + 60)
            yield name

    def _job(self, task_id: str) -> Job:
        try:
            return self._jobs[task_id]
        except KeyError:
            raise UnknownTask from None


def _server() -> Server[Any]:
    """Each tool but `greet` makes a task of its call, where the client knows tasks."""
    jobs = Jobs()

    async def listed(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        names = ("greet", "slow_compute", "failing_job", "confirm_delete")
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def called(context: Context, params: CallToolRequestParams) -> Any:
        arguments = params.arguments or {}
        match params.name:
            case "greet":
                return _result(f"Hello, {arguments['name']}!")
            case "slow_compute":
                seconds, result = float(arguments["seconds"]), _result("computed")
            case "failing_job":
                seconds, result = 1.0, _result("it went wrong", is_error=True)
            case "confirm_delete":  # the suite's own asks whether to; ours never ask
                seconds, result = 0.0, _result("deleted")
            case other:
                raise MCPError(INVALID_PARAMS, f"Unknown tool: {other}")
        if declares(context):
            return created(jobs.start(result, seconds).task)
        return result

    server = Server[Any]("fixtures", version="1", on_list_tools=listed, on_call_tool=called)
    add_tasks(server, jobs)
    return server


def _result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


@asynccontextmanager
async def fixture_server() -> AsyncIterator[str]:
    """The address of the server, while it runs."""
    manager = StreamableHTTPSessionManager(_server(), stateless=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await manager.handle_request(scope, receive, send)

    with reserved_port() as port:
        config = uvicorn.Config(app, port=port, lifespan="off", log_config=None)
        http = uvicorn.Server(config)
        async with manager.run():
            serving = asyncio.create_task(http.serve())
            try:
                await until(lambda: http.started)
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                http.should_exit = True
                await serving
