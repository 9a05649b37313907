"""LangGraph and LangChain: an interrupt asks people in Slack, and the run continues with the answer.

Copy this file and clarify.py into your project, and call `run` instead of `graph.ainvoke`. The graph needs a checkpointer.

    region = interrupt("Which region?")                                             # a text
    region = interrupt({"question": "Which region?", "choices": ["eu", "us"]})      # what clarify.ask takes
    if interrupt({"action": "Drop the table", "risk": "high"}): ...                 # what clarify.approve takes: a bool
    paid = interrupt({"action": "Pay", "arguments": {"amount": 5}, "editable": True})  # the arguments as approved, or False

People accept, edit or reject calls that LangChain's HumanInTheLoopMiddleware holds back (in its default mode, "batched"). A tool
that can only be answered ("respond") is a question; its parameters are those of clarify.ask.
"""

import asyncio
import logging
from typing import Any

from langgraph.types import Command

import clarify

# What a model may say about a question: not where the bot is, nor for whom it asks.
ASKS = {"question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"}


async def run(graph: Any, given: Any, thread: str) -> Any:
    """Run a graph until it ends; returns its last state. If `given` is None, an interrupted thread continues.

    An interrupt whose question gets no answer, or cannot be asked, raises once the others have gone on.
    """
    config = {"configurable": {"thread_id": thread}}
    state = await graph.ainvoke(given, config)
    failed: dict[str, clarify.ClarifyError] = {}
    while interrupts := state.get("__interrupt__"):
        asked = [each for each in interrupts if each.id not in failed]
        answers = await together(attempt(each.value, thread) for each in asked)
        found = {each.id: answer for each, answer in zip(asked, answers, strict=True)}
        failed |= {at: answer for at, answer in found.items() if isinstance(answer, clarify.ClarifyError)}
        resume = {at: answer for at, answer in found.items() if at not in failed}
        if not resume:
            raise failed[interrupts[0].id]
        state = await graph.ainvoke(Command(resume=resume), config)
    return state


async def attempt(value: Any, session: str) -> Any:
    """What an interrupt is resumed with, or the exception that says why there is nothing."""
    try:
        return await answer(value, session)
    except (clarify.BadQuestion, clarify.NotAnswered) as error:
        return error


async def answer(value: Any, session: str) -> Any:
    """What an interrupt is resumed with."""
    match value:
        case {"action_requests": calls, "review_configs": rules}:
            pairs = zip(calls, rules, strict=True)
            return {"decisions": await together(decide(*pair, session) for pair in pairs)}
        case {"action": action}:
            try:
                approval = await clarify.aio.approve(**value, session=session)
            except clarify.BadQuestion as error:  # so no one approved it
                logging.getLogger(__name__).warning("No one was asked about %r: %s", action, error)
                return False
            is_editable = value.get("editable") and value.get("arguments")
            return approval.arguments if approval and is_editable else bool(approval)
        case str():
            return (await clarify.aio.ask(value, session=session)).in_full
    return (await clarify.aio.ask(**value, session=session)).in_full


async def decide(call: Any, rule: Any, session: str) -> dict[str, Any]:
    """A person's decision on a tool call, as HumanInTheLoopMiddleware takes it. Where there is none, the model reads why."""
    name, args, allowed = call["name"], call["args"], rule["allowed_decisions"]
    if allowed == ["respond"]:
        asked = {name: value for name, value in args.items() if name in ASKS}
        try:
            found = await clarify.aio.ask(asked.pop("question", ""), **asked, session=session)
        except (clarify.BadQuestion, clarify.NotAnswered) as error:
            return {"type": "respond", "message": f"No answer: {error}"}
        return {"type": "respond", "message": str(found.in_full)}
    can_edit = "edit" in allowed
    try:
        approval = await clarify.aio.approve(
            f"Call {name}", arguments=args, editable=can_edit, session=session
        )
        why_not = approval.why_not
    except clarify.BadQuestion as error:
        why_not = f"No one was asked: {error}"
    if why_not is not None:
        return {"type": "reject" if "reject" in allowed else "respond", "message": why_not}
    if can_edit and ("approve" not in allowed or not clarify.is_same(approval.arguments, args)):
        return {"type": "edit", "edited_action": {"name": name, "args": approval.arguments}}
    return {"type": "approve"}


async def together(works: Any) -> list[Any]:
    """Ask everything at once; if one question fails, the others are withdrawn."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]
