"""The MCP tools with which agents ask people, and an MCP server for them: over HTTP in the bot, and over stdio.

Imports only the standard library and `mcp`: it also runs beside agents.
"""

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
    ToolAnnotations,
)

LONGEST_WAIT = 55
DEFAULT_WAIT = 45
RECEIPT_LIMIT = 8192  # bytes of a receipt in a tool's result
ASKING = ("ask_human", "ask_approval")
_VERSION = version("clarify-bot")  # reading it takes longer than serving a request
_NOT_FOR_MODELS = {"asked", "receipt"}
_NO_CONSENT = "That is no consent. Do not do it."
# Seconds until the first progress notification, and between later ones. Clients wait 30 and more for one.
_PROGRESS = (1.0, 5.0)
_INSTRUCTIONS = """Ask people in Slack when you need a decision, a fact that only a person knows, or an approval. Answers \
can take minutes or hours. If a call returns status "waiting", the question was asked: call wait_for_answer with its id. \
Do not ask again. Only status "answered" is an answer. Silence is not approval."""
Carry = Callable[
    [str, dict[str, Any], ServerRequestContext[Any, Any]], Awaitable[CallToolResult | dict[str, Any]]
]
"""Runs a tool, given its name, its arguments, and the request that called it."""


def _text(about: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": about} | more


_WAIT = {
    "type": "integer",
    "minimum": 0,
    "maximum": LONGEST_WAIT,
    "default": DEFAULT_WAIT,
    "description": "How many seconds this call waits for the answer. The question stays open after that.",
}
_COMMON: dict[str, Any] = {
    "context": _text(
        "Background for a person who has not seen your work: what you are doing, what you found, and what depends on "
        "the answer. Up to 64 K characters. Shown separately from the question."
    ),
    "to": _text(
        "The only person who may answer: an email address or a Slack user ID. Omit it unless you were told whom to ask."
    ),
    "timeout": {
        "type": "number",
        "minimum": 1,
        "maximum": 2_592_000,
        "default": 3600,
        "description": "Seconds until the question expires.",
    },
    "agent": _text("Your name. Omit it unless you were given one."),
    "session": _text(
        "A session ID. Questions in one session share a Slack thread. Omit it unless you were given one."
    ),
    "escalate": {
        "type": "boolean",
        "default": True,
        "description": "Page the person on call if no one answers.",
    },
    "key": _text("An idempotency key: the same key never asks twice.", maxLength=200),
    "issue": {
        "type": "integer",
        "minimum": 1,
        "description": "The number of the issue this question belongs to.",
    },
    "topic": _text("The topic, in a few words.", maxLength=200),
    "wait": _WAIT,
}
_CHOICE = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "value": _text("The value you get back."),
                "label": _text("The button text, a few words."),
                "description": _text("What this choice means."),
            },
            "required": ["value"],
        },
    ]
}
_ASK: dict[str, Any] = {
    "question": _text(
        "The question. People do not see your conversation, so include every fact they need. Ask for one decision per "
        "question.",
        minLength=1,
        maxLength=16_384,
    ),
    "choices": {
        "type": "array",
        "items": _CHOICE,
        "minItems": 1,
        "maxItems": 100,
        "description": "The possible answers, if you know them. People answer with one click. 2 to 5 work best.",
    },
    "multiple": {"type": "boolean", "default": False, "description": "People can pick several choices."},
    "other": {
        "type": "boolean",
        "default": False,
        "description": "People can also write their own answer.",
    },
    "kind": _text(
        "The kind of answer. Default: choice if `choices` is set, form if `schema` is set, otherwise text.",
        enum=["yes_no", "choice", "number", "text", "form"],
    ),
    "schema": {
        "type": "object",
        "description": "A form, for several facts at once: a flat JSON Schema object of up to 40 fields. Allowed: strings "
        "(format email, uri, date or date-time), numbers, booleans, enums and arrays of enums, with title, description and "
        "default. The answer is an object that matches the schema. People answer one question with choices faster.",
    },
    "default": {
        "description": "The answer you will assume if no one answers. Must be a valid answer. People see it. Omit it if you "
        "cannot continue without an answer."
    },
}
_APPROVAL: dict[str, Any] = {
    "action": _text(
        "What you are about to do. Be exact: what, where, to whom, how many.",
        minLength=1,
        maxLength=16_384,
    ),
    "consequence": _text("What happens as a result, and who is affected."),
    "risk": _text("How much damage a mistake would do.", enum=["low", "medium", "high"], default="medium"),
    "irreversible": {
        "type": "boolean",
        "default": False,
        "description": "Set to true if it cannot be undone. Then `risk` must be medium or high.",
    },
    "arguments": {
        "type": "object",
        "description": "The exact arguments of the action, such as the command, the statement or the recipients. People "
        "see all of them and approve exactly these.",
    },
    "editable": {
        "type": "boolean",
        "default": False,
        "description": "People can edit the arguments before they approve. You get the approved arguments back.",
    },
    "approvals": {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "How many different people must approve. Omit it unless you were told a number.",
    },
    "requested_by": _text(
        "The person you work for, if you know: an email address or a Slack user ID. Someone else may have to approve."
    ),
    "question": _text("Anything else the approver should know."),
}
_ID = _text("The id returned by ask_human or ask_approval.", examples=["CLR-100001-001"])


def _nullable(kind: str, about: str) -> dict[str, Any]:
    return {"type": [kind, "null"], "description": about}


OUTPUT: dict[str, Any] = {
    "type": "object",
    "description": "The state of the question.",
    "properties": {
        "say": _text("What this means for you, in one line. Heed it."),
        "id": _text("Pass it to wait_for_answer or withdraw_question."),
        "kind": _text("The kind of answer asked for."),
        "status": _text(
            "waiting: no answer yet. answered: see `answer`. expired: no answer in time, see `default`. withdrawn: you "
            "withdrew it. closed: a person closed it without an answer, see `comment`.",
            enum=["waiting", "answered", "expired", "withdrawn", "closed"],
        ),
        "answer": {
            "description": "The answer, or null. yes_no: true or false. choice: a value, or a list of values. number. text. "
            'form: an object. approval: {"decision": "accept" or "reject", "arguments": …}; use exactly these arguments.'
        },
        "label": _nullable("string", "The answer as people read it."),
        "other": _nullable("string", "What the person wrote instead of, or besides, a choice."),
        "comment": _nullable("string", "Why it was rejected or closed."),
        "decided_by": _nullable("string", "Who decided."),
        "default": {"description": "What to assume if the question expired."},
        "expires_at": _nullable("string", "When the question expires, RFC 3339."),
        "link": _nullable("string", "Link to the question in Slack."),
    },
    "required": ["say", "id", "status", "answer"],
}


def tools() -> list[Tool]:
    """Returns the tools as clients list them."""
    return [
        Tool(
            name="ask_human",
            title="Ask a person",
            description=(
                "Ask a person in Slack and wait for the answer. Use it when you need a decision or a fact that you could "
                "only guess: ambiguous requirements, or a choice with lasting consequences. Do not use it for what you can "
                "look up or try yourself. For permission to act, use ask_approval. Gather what the person needs to decide, "
                "then ask one question, with choices if you know them. Returns the answer. If no one answers within `wait` "
                "seconds, returns status `waiting` and an id: call wait_for_answer with it. Do not ask again in other words."
            ),
            input_schema={
                "type": "object",
                "properties": _ASK | _COMMON,
                "required": ["question"],
            },
            output_schema=OUTPUT,
            annotations=ToolAnnotations(
                read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
            ),
        ),
        Tool(
            name="ask_approval",
            title="Ask for approval",
            description=(
                "Ask a person in Slack to approve an action before you take it. Use it for actions that are destructive, "
                "costly, visible to others or hard to undo, and whenever you were told to. Go ahead only if the decision is "
                "`accept`, and only with the arguments in the answer. If it was rejected, expired or closed, do not take the "
                "action, and do not do the same by other means; the comment says why. If no one decides within `wait` "
                "seconds, returns status `waiting` and an id: call wait_for_answer. Calling ask_approval again asks again."
            ),
            input_schema={
                "type": "object",
                "properties": _APPROVAL | _COMMON,
                "required": ["action"],
            },
            output_schema=OUTPUT,
            annotations=ToolAnnotations(
                read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
            ),
        ),
        Tool(
            name="wait_for_answer",
            title="Wait for an answer",
            description=(
                "Keep waiting for the answer to a question you already asked. Returns as soon as a person decides, or with "
                "status `waiting` after `wait` seconds. Then call it again, as often as needed, or first do other work that "
                "does not depend on the answer."
            ),
            input_schema={"type": "object", "properties": {"id": _ID, "wait": _WAIT}, "required": ["id"]},
            output_schema=OUTPUT,
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True),
        ),
        Tool(
            name="withdraw_question",
            title="Withdraw a question",
            description=(
                "Withdraw a question you no longer need answered, so that people do not spend time on it. If someone has "
                "already answered, returns that answer."
            ),
            input_schema={"type": "object", "properties": {"id": _ID}, "required": ["id"]},
            output_schema=OUTPUT,
            annotations=ToolAnnotations(
                read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
            ),
        ),
    ]


_NAMES = frozenset(tool.name for tool in tools())


def make_server(carry: Carry) -> Server[Any]:
    """Returns an MCP server for these tools. While a tool runs, clients that ask for progress notifications get them.

    Args:
        carry: runs a tool. It may be cancelled; a question asked by then stays open.
    """

    async def listed(_: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools())

    async def called(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> Any:  # a tool's result, or a task
        if params.name not in _NAMES:
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
        instructions=_INSTRUCTIONS,
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
