"""The tasks extension of MCP (`io.modelcontextprotocol/tasks`, SEP-2663), for a low-level server of the SDK: a tool call that
takes hours returns a task, which the client polls or listens to.

Knows tasks, and nothing of what they are about.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Literal, Protocol

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    DiscoverResult,
    Notification,
    NotificationParams,
    RequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field

IDENTIFIER = "io.modelcontextprotocol/tasks"
MOST_LISTENED = 1000
Context = ServerRequestContext[Any, Any]
Task = dict[str, Any]
"""A task as the wire has it: `taskId`, `status`, `createdAt`, `lastUpdatedAt`, `ttlMs` …; `result`, if it is completed."""


class UnknownTask(Exception):
    """There is no such task, or it is another caller's."""


class Tasks(Protocol):
    """The caller's tasks. `get` and `cancel` raise UnknownTask for an id that is not one of them."""

    async def get(self, task_id: str) -> Task:
        """Returns the task as it is now. If it is completed, the client takes its result."""

    async def look(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Returns those of the ids that are tasks of the caller, and the tasks as they are now, for a listener, which takes no
        result.
        """

    async def cancel(self, task_id: str) -> None:
        """Cancels the task, unless it has ended."""

    def changes(self, task_ids: Collection[str]) -> AsyncGenerator[str]:
        """Yields the id of each of these tasks once, then again whenever it may have changed. Ends when the server stops."""


class _TaskParams(RequestParams):
    task_id: str = Field(alias="taskId", max_length=512)


class _Changed(NotificationParams):
    model_config = ConfigDict(extra="allow")


class _TaskNotification(Notification[_Changed, Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: _Changed


def declares(context: Context) -> bool:
    """Whether the client of a request said that it knows tasks."""
    capabilities = context.session.client_capabilities
    known = capabilities.extensions if capabilities is not None else None
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and IDENTIFIER in (known or {})


def created(task: Task) -> dict[str, Any]:
    """Returns the result of a tool call whose client gets a task in place of its result."""
    return {"resultType": "task", **{name: each for name, each in task.items() if name != "result"}}


def add_tasks(server: Server[Any], tasks: Tasks) -> None:
    """Has the server serve `tasks/get`, `tasks/cancel`, `tasks/update` and `subscriptions/listen` for these tasks."""
    served = _Served(tasks)
    server.extensions[IDENTIFIER] = {}

    async def discovered(context: Context, _: RequestParams) -> DiscoverResult:
        capabilities = server.get_capabilities(protocol_version=context.protocol_version)
        if capabilities.tools is not None:
            capabilities.tools.list_changed = (
                False  # the SDK takes any listener for one to changes of the list
            )
        return DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=capabilities,
            instructions=server.instructions,
        )

    server.add_request_handler("server/discover", RequestParams, discovered)
    server.add_request_handler("tasks/get", _TaskParams, served.get)
    server.add_request_handler("tasks/cancel", _TaskParams, served.cancel)
    server.add_request_handler("tasks/update", _TaskParams, served.update)
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, served.listen)


class _Served:
    """The requests of the extension."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def get(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        _require(context, params.task_id)
        with _unknown_refused():
            return {"resultType": "complete", **await self._tasks.get(params.task_id)}

    async def cancel(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        _require(context, params.task_id)
        with _unknown_refused():
            await self._tasks.cancel(params.task_id)
        return {"resultType": "complete"}

    async def update(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        """Our tasks ask the client for nothing, so its responses are ignored."""
        _require(context, params.task_id)
        with _unknown_refused():
            if params.task_id not in await self._tasks.look([params.task_id]):
                raise UnknownTask
        return {"resultType": "complete"}

    async def listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Tells of each change of the tasks until all have ended, or the server stops."""
        ids = _ids_in(params.notifications)
        if ids is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", "subscriptions/listen")
        _require(context)
        meta: Any = {SUBSCRIPTION_ID_META_KEY: context.request_id}

        async def tell(notification: Any) -> None:  # the SDK names the core's notifications only
            await context.session.send_notification(notification, related_request_id=context.request_id)

        tasks = await self._tasks.look(ids)
        taken = SubscriptionFilter.model_validate({"taskIds": list(tasks)})
        acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=taken, _meta=meta)
        await tell(SubscriptionsAcknowledgedNotification(params=acknowledged))
        async with aclosing(self._changes(tasks)) as changes:
            async for task in changes:
                await tell(_TaskNotification(params=_Changed.model_validate({**task, "_meta": meta})))
        return SubscriptionsListenResult(_meta=meta)

    async def _changes(self, tasks: Mapping[str, Task]) -> AsyncGenerator[Task]:
        """Yields the tasks that have ended, then each other one whenever it changes. Ends when all have ended, or the server
        stops.
        """
        working = {name: task for name, task in tasks.items() if task["status"] == "working"}
        for name, task in tasks.items():
            if name not in working:
                yield task
        async with aclosing(self._tasks.changes(tuple(working))) as changes:
            while working and (changed := await anext(changes, None)) is not None:
                before = working.pop(changed, None)
                for name, task in (await self._tasks.look([changed] if before else ())).items():
                    if task["status"] == "working":
                        working[name] = task
                    if task != before:
                        yield task


def _require(context: Context, task_id: str | None = None) -> None:
    """Refuses a request whose client does not declare the extension, or whose `Mcp-Name` header is not its task's id: the
    SDK compares that header for the core's methods only.
    """
    if declares(context):
        request: Any = context.request  # the extension is served over HTTP only
        named = decode_header_value(request.headers.get(MCP_NAME_HEADER))
        if task_id is not None and named != task_id:
            raise MCPError(HEADER_MISMATCH, "`Mcp-Name` must be the request's `taskId`.")
        return
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    raise MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        "Missing required client capability",
        {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}},
    )


@contextmanager
def _unknown_refused() -> Iterator[None]:
    """Refuses the request if there is no such task."""
    try:
        yield
    except UnknownTask:
        raise MCPError(INVALID_PARAMS, "There is no such task.") from None


def _ids_in(wanted: SubscriptionFilter) -> Sequence[str] | None:
    """Returns the ids of the tasks to listen to, each once; None: the client wants to hear of other things only."""
    ids = (wanted.model_extra or {}).get("taskIds")
    if ids is None:
        return None
    if (
        not isinstance(ids, list)
        or not all(isinstance(each, str) for each in ids)
        or len(ids) > MOST_LISTENED
    ):
        raise MCPError(INVALID_PARAMS, f"`taskIds` must be a list of at most {MOST_LISTENED} task ids.")
    return list(dict.fromkeys(ids))
