"""The MCP tools with which agents ask people, and a server that offers them: over HTTP in the bot, and over stdio.

Imports the standard library and `mcp` only, as everything here that runs beside an agent.
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
ASKING = ("ask_human", "ask_approval")
_PROGRESS = (
    1.0,
    5.0,
)  # seconds until the first sign of life, and between two: clients wait 30 and more for one
_INSTRUCTIONS = """Ask people in Slack when you need a decision, a fact that only a person knows, or an approval. Answers \
can take minutes or hours. A call that returns the status "waiting" has asked: call wait_for_answer with its id, and do \
not ask again. Only status "answered" is an answer; silence is never consent."""
Carry = Callable[[str, dict[str, Any], ServerRequestContext[Any, Any]], Awaitable[CallToolResult]]
"""Carries out a tool: its name, its arguments, the request that it came with."""


def _text(about: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": about} | more


_WAIT = {
    "type": "integer",
    "minimum": 0,
    "maximum": LONGEST_WAIT,
    "default": DEFAULT_WAIT,
    "description": "Seconds that this call may wait for the answer. The question goes on waiting after it.",
}
_COMMON: dict[str, Any] = {
    "context": _text(
        "What somebody who has not followed your work must know to answer: what you are doing, what you found, what "
        "depends on the answer. Up to 64 K characters; kept apart from the question."
    ),
    "to": _text(
        "Only this person may answer: an e-mail address or a Slack user id. Leave it out unless told whom to ask."
    ),
    "timeout": {
        "type": "number",
        "minimum": 1,
        "maximum": 2_592_000,
        "default": 3600,
        "description": "Seconds until the question expires, if nobody answers.",
    },
    "agent": _text("Who asks. Leave it out unless you were given a name."),
    "session": _text(
        "Questions of one session share a Slack thread. Leave it out unless you were given one."
    ),
    "escalate": {
        "type": "boolean",
        "default": True,
        "description": "Whether the person on call is paged if nobody answers.",
    },
    "key": _text("Your own name for this question: with the same key it is asked once only.", maxLength=200),
    "issue": {"type": "integer", "minimum": 1, "description": "The number of the issue that it belongs to."},
    "topic": _text("What it is about, in a few words.", maxLength=200),
    "wait": _WAIT,
}
_CHOICE = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "value": _text("What you get back."),
                "label": _text("What people read on the button; a few words."),
                "description": _text("What choosing it means."),
            },
            "required": ["value"],
        },
    ]
}
_ASK: dict[str, Any] = {
    "question": _text(
        "The question, complete in itself: people read it without your conversation. One decision for each question, "
        "with the facts that it turns on.",
        minLength=1,
        maxLength=16_384,
    ),
    "choices": {
        "type": "array",
        "items": _CHOICE,
        "minItems": 1,
        "maxItems": 100,
        "description": "The possible answers, where you know them: one click answers. 2 to 5 are best.",
    },
    "multiple": {"type": "boolean", "default": False, "description": "Several choices may be made."},
    "other": {
        "type": "boolean",
        "default": False,
        "description": "People may answer in their own words, beside the choices.",
    },
    "kind": _text(
        "What kind of answer you need; left out: choice with `choices`, form with `schema`, else text.",
        enum=["yes_no", "choice", "number", "text", "form"],
    ),
    "schema": {
        "type": "object",
        "description": "Where several facts are needed at once: a form, as a flat JSON Schema object of up to 40 fields: "
        "strings (also of format email, uri, date, date-time), numbers, booleans, enums, arrays of enums; with title, "
        "description, default. The answer is an object that fits it. One question with choices is answered sooner.",
    },
    "default": {
        "description": "What you will assume if nobody answers; a valid answer. People see it. Leave it out if you "
        "cannot go on without an answer."
    },
}
_APPROVAL: dict[str, Any] = {
    "action": _text(
        "What you are about to do, complete in itself and exact: what, where, to whom, how many.",
        minLength=1,
        maxLength=16_384,
    ),
    "consequence": _text("What comes of it, and for whom."),
    "risk": _text("How bad it is if this turns out wrong.", enum=["low", "medium", "high"], default="medium"),
    "irreversible": {
        "type": "boolean",
        "default": False,
        "description": "It cannot be undone; then the risk is medium or high.",
    },
    "arguments": {
        "type": "object",
        "description": "Exactly what the action is done with, such as the command, the statement, the recipients. "
        "People see all of it, and accept just that.",
    },
    "editable": {
        "type": "boolean",
        "default": False,
        "description": "People may change the arguments before they accept; you get them as accepted.",
    },
    "approvals": {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "How many different people have to accept. Leave it out unless you were told.",
    },
    "question": _text("Further words to whoever decides."),
}
_ID = _text("The id that ask_human or ask_approval returned.", examples=["CLR-100001-001"])


def _nullable(kind: str, about: str) -> dict[str, Any]:
    return {"type": [kind, "null"], "description": about}


OUTPUT: dict[str, Any] = {
    "type": "object",
    "description": "How the question stands.",
    "properties": {
        "id": _text("For wait_for_answer and withdraw_question."),
        "kind": _text("What kind of answer is wanted."),
        "status": _text(
            "waiting: nobody answered yet. answered: see `answer`. expired: nobody answered in time, see `default`. "
            "withdrawn: you took it back. closed: a person closed it, see `comment`.",
            enum=["waiting", "answered", "expired", "withdrawn", "closed"],
        ),
        "answer": {
            "description": "Once answered. yes_no: true or false. choice: its value, or a list of them. number. text. "
            'form: an object. approval: {"decision": "accept" or "reject", "arguments": …}; use these arguments.'
        },
        "label": _nullable("string", "The answer as people read it."),
        "other": _nullable("string", "Own words in place of, or beside, the choices."),
        "comment": _nullable("string", "Why it was rejected or closed."),
        "decided_by": _nullable("string", "Who decided."),
        "default": {"description": "What to assume if it expired."},
        "expires_at": _nullable("string", "RFC 3339."),
        "link": _nullable("string", "The question in Slack."),
    },
    "required": ["id", "status", "answer"],
}


def tools() -> list[Tool]:
    """The tools as clients list them."""
    return [
        Tool(
            name="ask_human",
            title="Ask a person",
            description=(
                "Ask a person in Slack and wait for the answer. Use it when you cannot go on well without somebody's "
                "decision or knowledge: requirements that can be read in two ways, a choice with lasting consequences, "
                "something that you could only guess. Do not use it for what you can look up or try yourself, and not "
                "for leave to act: that is ask_approval. First gather what is needed to decide; then ask one question, "
                "with choices where you know them. Returns the answer, or the status `waiting` with an id if nobody "
                "answered within `wait` seconds: then call wait_for_answer, and never ask the same again in other words."
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
                "Ask a person in Slack to approve an action before you take it. Use it for what is destructive, costly, "
                "visible to others or hard to undo, and wherever you were told to. Go ahead only if the answer's "
                "decision is `accept`, and then with the arguments that it carries. Rejected, expired or closed: do not "
                "take the action, nor the same by other means; the comment says why. Returns the status `waiting` with "
                "an id if nobody decided within `wait` seconds: then call wait_for_answer; ask_approval again would ask again."
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
                "Go on waiting for the answer to a question that was asked before. Returns as soon as it is decided, or "
                "with the status `waiting` after `wait` seconds: then call it again, as often as it takes, or do other "
                "work meanwhile that does not depend on the answer."
            ),
            input_schema={"type": "object", "properties": {"id": _ID, "wait": _WAIT}, "required": ["id"]},
            output_schema=OUTPUT,
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True),
        ),
        Tool(
            name="withdraw_question",
            title="Withdraw a question",
            description=(
                "Take back a question that needs no answer any more, so that nobody spends time on it. If somebody "
                "answered first, it returns that answer."
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
    """A server of these tools. While one is carried out, the client gets progress notifications, if it wants any.

    Args:
        carry: carries out a tool. It may be cancelled; what it asked by then stays asked.
    """

    async def listed(_: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools())

    async def called(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
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
        version=version("clarify-bot"),
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
        get_tool_input_schema=lambda _: None,  # no argument stands in a header
    )
    server.middleware.clear()  # nothing is traced
    return server


async def _progress(context: ServerRequestContext[Any, Any]) -> None:
    """Tell again and again that the call goes on; ends when it is cancelled."""
    began = time.monotonic()
    pause = _PROGRESS[0]
    while True:
        await asyncio.sleep(pause)
        seconds, pause = time.monotonic() - began, _PROGRESS[1]
        await context.session.report_progress(
            seconds, None, f"Waiting for a person in Slack ({seconds:.0f} s)."
        )


def told(state: Mapping[str, Any]) -> CallToolResult:
    """How a question stands: one line for the model, and the state."""
    return CallToolResult(
        content=[TextContent(type="text", text=line(state))], structured_content=dict(state)
    )


def mistaken(problem: Mapping[str, Any]) -> CallToolResult:
    """What is wrong with a call, in the words of HTTP's `message`, which name the field: the model can mend it."""
    return CallToolResult(content=[TextContent(type="text", text=str(problem["message"]))], is_error=True)


def wait_in(arguments: dict[str, Any]) -> int:
    """Take `wait` out of a call's arguments.

    Raises:
        ValueError: it is no number of seconds, or too many.
    """
    wait = arguments.pop("wait", None)
    if wait is None:
        return DEFAULT_WAIT
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= LONGEST_WAIT:
        raise ValueError(f"`wait` must be a number of seconds (0 to {LONGEST_WAIT}).")
    return int(wait)


def line(state: Mapping[str, Any]) -> str:
    """What a state means for the agent, in one line."""
    who, is_approval = state.get("decided_by") or "a person", state.get("kind") == "approval"
    match state["status"]:
        case "waiting":
            words = (
                "asked in Slack, and nobody has answered yet. Call wait_for_answer with this id to go on waiting; do not "
                "ask again."
            )
        case "answered" if is_approval:
            words = _decision(state["answer"] or {}, who)
        case "answered":
            answer = "" if state["answer"] is None else f": {_quoted(state['answer'])}"
            other = f", in their own words: {_quoted(state['other'])}" if state.get("other") else ""
            words = f"answered by {who}{answer}{other}."
        case "expired" if is_approval:
            words = "nobody decided in time. That is no consent: do not do it."
        case "expired" if state.get("default") is not None:
            words = f"nobody answered in time. Assume the default: {_quoted(state['default'])}."
        case "expired":
            words = "nobody answered in time, and no default was given. Do not guess an answer."
        case "withdrawn":
            words = "withdrawn. Nobody will answer."
        case _:
            words = f"closed by {who} without an answer."
    comment = f" Comment: {_quoted(state['comment'])}." if state.get("comment") else ""
    return f"{state['id']}: {words}{comment}"


def _decision(answer: Mapping[str, Any], who: str) -> str:
    if answer.get("decision") != "accept":
        return f"rejected by {who}. Do not do it."
    if not answer.get("arguments"):
        return f"accepted by {who}. Go ahead."
    return f"accepted by {who}. Go ahead with exactly these arguments: {_quoted(answer['arguments'])}."


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
