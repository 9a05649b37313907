"""OpenAI Agents SDK: people in Slack decide about calls to tools that need approval; the run survives a restart.

Copy this file and clarify.py into your project, and call `run` instead of `Runner.run`:

    @function_tool(needs_approval=True)
    def send_newsletter(subject: str, recipients: int) -> str: ...

    @function_tool
    async def ask_person(question: str) -> str:
        return str((await clarify.aio.ask(question)).in_full)

    output = await run(agent, "Send the newsletter.", Path("newsletter.json"))
"""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Runner, RunState
from agents.items import ToolApprovalItem

import clarify


async def run(agent: Agent[Any], given: str, saved: Path) -> Any:
    """Run an agent until it ends; returns its output. `saved` keeps the run's state while people are asked.

    A process that was killed meanwhile goes on where it was: the question still stands in Slack, and who answered it in
    between is heard. Ctrl-C gives the run up, and withdraws what it asked.
    """
    session, rounds, start = str(uuid4()), 0, None
    if saved.exists():
        stored = json.loads(saved.read_text())
        session, rounds = stored["session"], stored["rounds"]
        start = await RunState.from_json(agent, stored["state"])

    def save(state: RunState[Any]) -> None:
        new = saved.with_suffix(".new")
        new.write_text(json.dumps({"session": session, "rounds": rounds, "state": state.to_json()}))
        new.replace(saved)

    result = await Runner.run(agent, start or given)
    while result.interruptions:
        state = result.to_state()
        save(state)
        try:
            async with asyncio.TaskGroup() as group:  # all at once
                asked = [
                    (each, group.create_task(approve(each, f"{session}.{rounds}")))
                    for each in result.interruptions
                ]
        except asyncio.CancelledError:
            saved.unlink()
            raise
        rounds += (
            1  # a call may run now. One Accept is for one run: if this process dies, people are asked again
        )
        save(state)
        for call, task in asked:
            if (why_not := task.result()) is None:
                state.approve(call)
            else:
                state.reject(call, rejection_message=why_not)
        result = await Runner.run(agent, state)
    saved.unlink(missing_ok=True)
    return result.final_output


async def approve(call: ToolApprovalItem, key: str) -> str | None:
    """Ask about a call; returns why it was not approved, for the model, or None if it was.

    Asked again with the same key, after a restart, it is the same question.
    """
    try:
        shown = arguments(call)
        approval = await clarify.aio.approve(
            f"Call {call.name}", arguments=shown, key=f"{key}.{call.call_id}"
        )
    except clarify.BadQuestion as error:
        return f"No one was asked: {error}"
    return approval.why_not


def arguments(call: ToolApprovalItem) -> dict[str, Any]:
    """What a call would run with, all of it.

    Raises:
        clarify.BadQuestion: it is not known here where that is, so people would approve what they do not see.
    """
    raw: Any = call.raw_item
    match raw if isinstance(raw, dict) else raw.model_dump(mode="json", exclude_none=True):
        case {"type": "function_call" | "mcp_approval_request", "arguments": str(text)}:
            return clarify.arguments_in(text)
        case {"type": "shell_call", "action": {"commands": [_, *_]} as action}:
            return dict(action)
        case {"type": "apply_patch_call", "operations": [_, *_] as operations}:
            return {"operations": operations}
        case {"type": "apply_patch_call", "operation": {"path": str()} as operation}:
            return dict(operation)
        case {"type": "custom_tool_call", "input": str(text)}:
            return {"input": text}
        case {"type": kind}:
            raise clarify.BadQuestion(f"People cannot be shown what this call of the type {kind!r} does.")
    raise clarify.BadQuestion("People cannot be shown what a call without a type does.")
