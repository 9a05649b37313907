"""pydantic-ai: people in Slack decide about calls to tools that need approval, and answer deferred calls.

Copy this file and clarify.py into your project, and give the agent `capabilities=[HandleDeferredToolCalls(in_slack)]`:

    @agent.tool_plain(requires_approval=True)       # or raise ApprovalRequired(metadata={"risk": "high"})
    def send_newsletter(subject: str, recipients: int) -> str: ...

    @agent.tool_plain
    def ask_person(question: str, choices: list[str] | None = None) -> str:
        raise CallDeferred                          # its parameters are those of clarify.ask

A call's `metadata` can have any argument of clarify.approve or clarify.ask.
"""

import asyncio
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.messages import ToolCallPart

import clarify


async def in_slack(context: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    """Have people decide on all calls that wait, at once; if one question fails, the others are withdrawn."""

    def more(call: ToolCallPart) -> dict[str, Any]:
        return {"session": context.run_id} | requests.metadata.get(call.tool_call_id, {})

    async with asyncio.TaskGroup() as group:
        approvals = {
            call.tool_call_id: group.create_task(approve(call, more(call))) for call in requests.approvals
        }
        calls = {call.tool_call_id: group.create_task(ask(call, more(call))) for call in requests.calls}
    return requests.build_results(
        approvals={each: task.result() for each, task in approvals.items()},
        calls={each: task.result() for each, task in calls.items()},
    )


async def approve(call: ToolCallPart, more: dict[str, Any]) -> ToolApproved | ToolDenied:
    """The call with the arguments that were accepted, or why there is none."""
    try:
        fields = {"arguments": arguments(call), "editable": True, **more}
        approval = await clarify.aio.approve(f"Call {call.tool_name}", **fields)
    except clarify.BadQuestion as error:
        return ToolDenied(f"No one was asked: {error}")
    why_not = approval.why_not
    return ToolDenied(why_not) if why_not else ToolApproved(override_args=approval.arguments)


async def ask(call: ToolCallPart, more: dict[str, Any]) -> Any:
    """A person's answer, as the tool's result, or why there is none."""
    try:
        fields = arguments(call) | more
        return (await clarify.aio.ask(fields.pop("question", ""), **fields)).in_full
    except (clarify.BadQuestion, clarify.NotAnswered) as error:
        return f"No answer: {error}"


def arguments(call: ToolCallPart) -> dict[str, Any]:
    """Returns a call's arguments. Raises clarify.BadQuestion: they cannot be read."""
    return dict(call.args) if isinstance(call.args, dict) else clarify.arguments_in(call.args)
