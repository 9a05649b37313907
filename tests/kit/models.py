"""A scripted model behind Anthropic's Messages API and OpenAI's Responses API, for coding agents that run on this machine.

Sources: "Messages" and "Streaming Messages" (docs.claude.com/en/api); "Responses" (platform.openai.com/docs/api-reference).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.kit.served import served

Block = dict[str, Any]
Turn = Block | list[Block] | Callable[[], Block]
_RESULTS = {
    "tool_result": "content",
    "function_call_output": "output",
}  # by type: where the result of a call is
_NUMBERS = itertools.count(1)  # Claude Code takes messages of one id for parts of one


def says(text: str) -> Block:
    return {"type": "text", "text": text}


def calls(tool: str, number: int = 1, /, **given: Any) -> Block:
    """A call of a tool with this input."""
    return {"type": "tool_use", "id": f"toolu_0{number}", "name": tool, "input": given}


class Model:
    """Answers each request with the next turn of its script, and after the last one with "Done."."""

    def __init__(self) -> None:
        self.url = ""
        self.results: list[str] = []  # what the agent's tools gave back, in their order
        self.heard: list[str] = []  # what its users and the agent said besides
        self._turns: list[Turn] = []

    def will(self, *turns: Turn) -> None:
        """A turn: one block, or several, or a function that returns one once it is the model's turn."""
        self._turns += turns

    async def answer(self, request: web.Request) -> web.StreamResponse:
        last = request.path.rpartition("/")[2]
        if request.method != "POST" or last not in ("messages", "responses"):
            return web.json_response({"data": [], "input_tokens": 1})
        asked = await request.json()
        is_claude = last == "messages"
        is_aside = not asked.get("tools")  # such as for a title
        if not is_aside:
            new = _new_in(asked["messages"] if is_claude else asked["input"])
            self.results += [_text(each) for each in new if each["type"] in _RESULTS]
            self.heard += [each["text"] for each in new if each["type"] in ("text", "input_text")]
        turn = says("Done.") if is_aside or not self._turns else self._turns.pop(0)
        made = turn() if callable(turn) else turn
        blocks = made if isinstance(made, list) else [made]
        events = _of_a_message(asked["model"], blocks) if is_claude else _of_a_response(blocks)
        return await _streamed(request, events)


def _new_in(messages: list[Block]) -> list[Block]:
    """Returns the blocks of the messages after the model's last turn."""
    own = ("assistant", "function_call")
    since = itertools.takewhile(
        lambda each: each.get("role", each.get("type")) not in own, reversed(messages)
    )
    said = [each.get("content", [each]) for each in reversed(list(since))]
    return [block for each in said for block in ([says(each)] if isinstance(each, str) else each)]


def _text(result: Block) -> str:
    content = result[_RESULTS[result["type"]]]
    return content if isinstance(content, str) else "\n".join(each.get("text", "") for each in content)


def _of_a_message(model: str, blocks: list[Block]) -> list[Block]:
    """Returns the events of a turn in Anthropic's API."""
    usage: Block = {"input_tokens": 1, "output_tokens": 1}
    stop = "tool_use" if any(each["type"] == "tool_use" for each in blocks) else "end_turn"
    message: Block = {
        "id": f"msg_{next(_NUMBERS):04}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
    }
    events: list[Block] = [{"type": "message_start", "message": message | {"usage": usage}}]
    for index, each in enumerate(blocks):
        is_call = each["type"] == "tool_use"
        nothing: Block = {"input": {}} if is_call else {"text": ""}
        delta: Block = (
            {"type": "input_json_delta", "partial_json": json.dumps(each["input"])}
            if is_call
            else {"type": "text_delta", "text": each["text"]}
        )
        events += [
            {"type": "content_block_start", "index": index, "content_block": each | nothing},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": stop, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]


def _of_a_response(blocks: list[Block]) -> list[Block]:
    """Returns the events of a turn in OpenAI's API. A tool of an MCP server is called by `namespace.name`."""
    response: Block = {"id": f"resp_{next(_NUMBERS):04}"}
    events: list[Block] = [{"type": "response.created", "response": response}]
    for each in blocks:
        if each["type"] == "tool_use":
            namespace, _, name = each["name"].rpartition(".")
            item: Block = {"type": "function_call", "call_id": each["id"], "name": name}
            item["arguments"] = json.dumps(each["input"])
            item |= {"namespace": namespace} if namespace else {}
        else:
            said = {"type": "output_text", "text": each["text"]}
            item = {"type": "message", "role": "assistant", "content": [said]}
        events.append(
            {"type": "response.output_item.done", "item": item | {"id": f"item_{next(_NUMBERS):04}"}}
        )
    usage: Block = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [*events, {"type": "response.completed", "response": response | {"usage": usage}}]


async def _streamed(request: web.Request, events: list[Block]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


@asynccontextmanager
async def scripted() -> AsyncIterator[Model]:
    model = Model()
    async with served(model.answer) as model.url:
        yield model
