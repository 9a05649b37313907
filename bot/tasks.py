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
    """The caller's tasks. `get`, `cancel` and `update` raise UnknownTask for an id that is not one of them."""

    async def get(self, task_id: str) -> Task:
        """Returns the task as it is now, for the client."""

    async def cancel(self, task_id: str) -> None:
        """Cancels the task, unless it has ended."""

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> None:
        """Takes what the client says to what the task asked it."""

    async def known(self, task_ids: Sequence[str]) -> Sequence[str]:
        """Returns those of the ids that are tasks of the caller."""

    def watch(self, task_ids: Collection[str]) -> AsyncGenerator[Task]:
        """Yields each of these tasks whenever it changes, and at once if it has ended. Ends when the server stops."""


class _TaskParams(RequestParams):
    task_id: str = Field(alias="taskId", max_length=512)


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


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
    server.add_request_handler("tasks/update", _UpdateParams, served.update)
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

    async def update(self, context: Context, params: _UpdateParams) -> dict[str, Any]:
        _require(context, params.task_id)
        with _unknown_refused():
            await self._tasks.update(params.task_id, params.input_responses)
        return {"resultType": "complete"}

    async def listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        ids = _ids_in(params.notifications)
        if not ids or context.request_id is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", "subscriptions/listen")
        _require(context)
        meta: Any = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        known = await self._tasks.known(ids)
        taken = SubscriptionFilter.model_validate({"taskIds": list(known)})
        acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=taken, _meta=meta)
        await context.session.send_notification(
            SubscriptionsAcknowledgedNotification(params=acknowledged), related_request_id=context.request_id
        )
        if known:
            async with aclosing(self._tasks.watch(known)) as changes:
                async for task in changes:
                    changed = _TaskNotification(params=_Changed.model_validate({**task, "_meta": meta}))
                    await context.session.send_notification(
                        changed,  # type: ignore[arg-type] # the SDK names the core's notifications only
                        related_request_id=context.request_id,
                    )
        return SubscriptionsListenResult(_meta=meta)


def _require(context: Context, task_id: str | None = None) -> None:
    """Refuses a request whose client does not declare the extension, or whose `Mcp-Name` header is not its task's id: the
    SDK compares that header for the core's methods only.
    """
    if declares(context):
        headers = getattr(context.request, "headers", {})
        named = decode_header_value(headers.get(MCP_NAME_HEADER))
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


def _ids_in(wanted: SubscriptionFilter) -> Sequence[str]:
    ids = (wanted.model_extra or {}).get("taskIds")
    if ids is None:
        return ()
    if (
        not isinstance(ids, list)
        or not all(isinstance(each, str) for each in ids)
        or len(ids) > MOST_LISTENED
    ):
        raise MCPError(INVALID_PARAMS, f"`taskIds` must be a list of at most {MOST_LISTENED} task ids.")
    return list(dict.fromkeys(ids))
