"""An MCP server for the tools with which agents ask people, and what the tools return. `clarify` has their list."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
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
