"""An MCP server for the tools with which agents ask people, what the tools return, and the tasks that stand for calls that take
hours. `clarify` has the list of tools.

Tasks are an extension of MCP (`io.modelcontextprotocol/tasks`, SEP-2663), here for a low-level server of the SDK: a tool call
returns a task, which the client polls or listens to. That part knows nothing of what tasks are about.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from importlib.metadata import version
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
    CallToolRequestParams,
    CallToolResult,
    DiscoverResult,
    ListToolsResult,
    Notification,
    NotificationParams,
    PaginatedRequestParams,
    RequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field

from clarify import DEFAULT_WAIT, INSTRUCTIONS, LONGEST_WAIT, RepeatedName, mcp_tools, named_once
from core.questions import BadField

RECEIPT_LIMIT = 8192  # bytes of a receipt in a tool's result
_VERSION = version("clarify-bot")  # reading it takes longer than serving a request
_NOT_FOR_MODELS = {"asked", "receipt"}
_NO_CONSENT = "That is no consent. Do not do it."
# Seconds until the first progress notification, and between later ones. Clients wait 30 and more for one.
_PROGRESS = (1.0, 5.0)
Carry = Callable[
    [str, dict[str, Any], ServerRequestContext[Any, Any]], Awaitable[CallToolResult | dict[str, Any]]
]
"""Runs a tool, given its name, its arguments, and the request that called it."""

TOOLS = [Tool.model_validate(each) for each in mcp_tools()]
_TYPES: dict[str, dict[str, str | None]] = {
    tool.name: {name: each.get("type") for name, each in tool.input_schema["properties"].items()}
    for tool in TOOLS
}
_PYTHONS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
IDENTIFIER = "io.modelcontextprotocol/tasks"
MOST_LISTENED = 1000
Context = ServerRequestContext[Any, Any]
Task = dict[str, Any]
"""A task as the wire has it: `taskId`, `status`, `createdAt`, `lastUpdatedAt`, `ttlMs` …; `result`, if it is completed."""


def make_server(carry: Carry) -> Server[Any]:
    """Returns an MCP server for these tools. While a tool runs, clients that ask for progress notifications get them.

    Args:
        carry: runs a tool. It may be cancelled; a question asked by then stays open.
    """

    async def listed(_: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=TOOLS)

    async def called(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> Any:  # a tool's result, or a task
        if params.name not in _TYPES:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        progress = asyncio.ensure_future(_progress(context))
        try:
            return await carry(params.name, params.arguments or {}, context)
        finally:
            progress.cancel()
            with suppress(asyncio.CancelledError):
                await progress

    server = Server[Any](
        "clarify",
        title="clarify-bot",
        version=_VERSION,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
        get_tool_input_schema=lambda _: None,  # no argument is passed in a header
    )
    server.middleware.clear()  # nothing is traced
    return server


async def _progress(context: ServerRequestContext[Any, Any]) -> None:
    """Reports progress every few seconds until it is cancelled."""
    began = time.monotonic()
    pause = _PROGRESS[0]
    while True:
        await asyncio.sleep(pause)
        seconds, pause = time.monotonic() - began, _PROGRESS[1]
        await context.session.report_progress(
            seconds, None, f"Waiting for a person in Slack ({seconds:.0f} s)."
        )


def state_result(state: Mapping[str, Any], receipt: str | None = None) -> CallToolResult:
    """Returns a question's state as a tool's result. Structured content begins with what it means for the model (`say`), as
    clients hand the model that and drop the text. The receipt of a decision is for the client: in `_meta`, or its address
    there if it is large.
    """
    meta = None
    if receipt is not None:
        fits = len(receipt) <= RECEIPT_LIMIT
        meta = {"receipt": receipt} if fits else {"receipt_url": f"/receipts/{state['id']}"}
    words = say(state)
    text = f"{state['id']}: {words[0].lower()}{words[1:]}"
    structured = {"say": words} | {name: each for name, each in state.items() if name not in _NOT_FOR_MODELS}
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=structured, _meta=meta
    )


def error_result(problem: Mapping[str, Any]) -> CallToolResult:
    """Returns a tool's error: HTTP's `message`, which names the invalid field, so that the model can correct it."""
    return CallToolResult(content=[TextContent(type="text", text=str(problem["message"]))], is_error=True)


def read_arguments(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call's arguments as the tool's schema has them. Clients send null or an empty string for what they leave out,
    and JSON in a string for what is no string.

    Raises:
        BadField: a string is not the JSON that an argument needs.
    """
    types = _TYPES[tool]
    sent = {name: each for name, each in given.items() if each not in (None, "")}
    read = {name: _read(name, each, types.get(name)) for name, each in sent.items()}
    if isinstance(default := read.get("default"), str):
        read["default"] = _read_default(default, read)
    return read


def _read_default(default: str, asked: Mapping[str, Any]) -> Any:
    """Returns a default in the type of the question's answer. One that can be text stays as it is."""
    kind = asked.get("kind") or ("form" if "schema" in asked else None)
    wanted = {"yes_no": "boolean", "number": "number", "form": _type_of(asked.get("schema"))}.get(kind or "")
    if wanted is None and asked.get("multiple") is True and default not in (asked.get("choices") or ()):
        wanted = "array"
    return _read("default", default, wanted)


def _type_of(schema: Any) -> str | None:
    """Returns the type of a form's answer, if its schema names one."""
    named = (
        schema.get("type", "object" if "properties" in schema else None) if isinstance(schema, dict) else None
    )
    return named if isinstance(named, str) else None


def _read(name: str, value: Any, wanted: str | None) -> Any:
    if not isinstance(value, str) or (pythons := _PYTHONS.get(wanted or "")) is None:
        return value
    text = value.strip()
    try:
        found = json.loads(text.lower() if wanted == "boolean" else text, object_pairs_hook=named_once)
    except RepeatedName:
        raise BadField(
            name, f"`{name}` has an object with the same name twice. Send each name once."
        ) from None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, pythons) and isinstance(found, bool) == (wanted == "boolean"):
        return found
    if wanted in {"object", "array"}:
        raise BadField(
            name, f"`{name}` must be an {wanted}. You sent a string; send the {wanted} itself, not its text."
        )
    return value  # it is refused with what it must be


def wait_in(arguments: dict[str, Any], default: int = DEFAULT_WAIT) -> int:
    """Removes `wait` from a call's arguments and returns it.

    Raises:
        ValueError: it is not a number of seconds, or too large.
    """
    wait = arguments.pop("wait", None)
    if wait is None:
        return default
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= LONGEST_WAIT:
        raise ValueError(f"`wait` must be a number of seconds from 0 to {LONGEST_WAIT}.")
    return int(wait)


def say(state: Mapping[str, Any]) -> str:
    """Returns what a state means for the model, in one line."""
    who, is_approval = _name(state.get("decided_by")), state.get("kind") == "approval"
    why = f": {_sentence(state['comment'])}" if state.get("comment") else "."
    match state["status"]:
        case "waiting":
            words = (
                f"Asked in Slack, no answer yet. Call wait_for_answer with the id {state['id']} to keep waiting. Do not ask"
                " again."
            )
        case "answered" if is_approval:
            words = _decision(state, who, why)
        case "answered":
            answer = "" if state["answer"] is None else f": {_quoted(state['answer'])}"
            other = f", in their own words: {_quoted(state['other'])}" if state.get("other") else ""
            words = f"Answered by {who}{answer}{other}." + (f" Comment{why}" if state.get("comment") else "")
        case "expired" if is_approval:
            words = f"No decision in time. {_NO_CONSENT}"
        case "expired" if state.get("default") is not None:
            words = f"No answer in time. Use the default: {_quoted(state['default'])}."
        case "expired":
            words = "No answer in time, and no default was given. Do not guess the answer."
        case "withdrawn":
            words = "Withdrawn. No one will answer it."
        case _:
            words = f"Closed by {who} without an answer{why}" + (f" {_NO_CONSENT}" if is_approval else "")
    return words


def _decision(state: Mapping[str, Any], who: str, why: str) -> str:
    answer = state["answer"] or {}
    if answer.get("decision") != "accept":
        return f"Rejected by {who}{why} {_NO_CONSENT}"
    by = " and ".join(map(_name, state.get("approved_by") or [state.get("decided_by")]))
    if not answer.get("arguments"):
        return f"Approved by {by}{why} Go ahead."
    return f"Approved by {by}{why} Go ahead with exactly these arguments: {_quoted(answer['arguments'])}."


def _name(decider: str | None) -> str:
    """Returns who decided, as the configuration names them (`user:ann`: @ann), else their id. Never a name that people can
    give themselves.
    """
    name = (decider or "").removeprefix("user:")
    return (
        f"@{name}"
        if (decider or "").startswith("user:") and not {"/", "@"} & set(name)
        else decider or "a person"
    )


def _sentence(text: str) -> str:
    """Returns text as the end of a sentence, in one line."""
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


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
