"""LangGraph and LangChain: what a graph interrupts for is asked in Slack, and the run continues with the answer.

Copy this file and clarify.py into your project, and call `run` in place of `graph.ainvoke`. The graph needs a checkpointer.

    region = interrupt("Which region?")                                             # a text
    region = interrupt({"question": "Which region?", "choices": ["eu", "us"]})      # what clarify.ask takes
    if interrupt({"action": "Drop the table", "risk": "high"}): ...                 # what clarify.approve takes: a bool

Calls that LangChain's HumanInTheLoopMiddleware holds back (in its mode "batched", the default) are accepted, edited or
rejected. A tool that may only be answered ("respond") is a question; its parameters are those of clarify.ask.
"""

import asyncio
from typing import Any

from langgraph.types import Command

import clarify

# What a model may say about a question: not where the bot is, nor for whom it asks.
ASKS = {"question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"}


async def run(graph: Any, given: Any, thread: str) -> Any:
    """Run a graph until it ends; returns its last state. With None as `given`, a thread that was interrupted goes on."""
    config = {"configurable": {"thread_id": thread}}
    state = await graph.ainvoke(given, config)
    while interrupts := state.get("__interrupt__"):
        answers = await together(answer(each.value, thread) for each in interrupts)
        resume = {each.id: found for each, found in zip(interrupts, answers, strict=True)}
        state = await graph.ainvoke(Command(resume=resume), config)
    return state


async def answer(value: Any, session: str) -> Any:
    """What an interrupt is resumed with."""
    match value:
        case {"action_requests": calls, "review_configs": rules}:
            pairs = zip(calls, rules, strict=True)
            return {"decisions": await together(decide(*pair, session) for pair in pairs)}
        case {"action": _}:
            return bool(await clarify.aio.approve(**value, session=session))
        case str():
            return (await clarify.aio.ask(value, session=session)).value
    return (await clarify.aio.ask(**value, session=session)).value


async def decide(call: Any, rule: Any, session: str) -> dict[str, Any]:
    """A person's decision on a tool call, as HumanInTheLoopMiddleware takes it."""
    name, args, allowed = call["name"], call["args"], rule["allowed_decisions"]
    if allowed == ["respond"]:
        asked = {name: value for name, value in args.items() if name in ASKS}
        return {"type": "respond", "message": str((await clarify.aio.ask(**asked, session=session)).value)}
    can_edit = "edit" in allowed
    approval = await clarify.aio.approve(f"Call {name}", arguments=args, editable=can_edit, session=session)
    if not approval:  # rejected, or no one decided; the model reads why
        kind = "reject" if "reject" in allowed else "respond"
        return {"type": kind, "message": approval.comment or f"No person accepted it: {approval.status}."}
    if can_edit and approval.arguments != args:
        return {"type": "edit", "edited_action": {"name": name, "args": approval.arguments}}
    return {"type": "approve"}


async def together(works: Any) -> list[Any]:
    """Ask everything at once; if one question fails, the others are withdrawn."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]
