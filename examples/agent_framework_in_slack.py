"""Microsoft Agent Framework: people in Slack decide about tool calls that require approval; the run survives a restart.

Copy this file and clarify.py into your project, and call `run` instead of `agent.run`:

    @tool(approval_mode="always_require")
    def send_newsletter(subject: str, recipients: int) -> str: ...

    ask_person = FunctionTool(name="ask_person", description="Asks a person.", input_model={...})  # without a function:
    # the call is a question; its arguments are those of clarify.ask

    text = await run(agent, "Send the newsletter.", Path("newsletter.json"))
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    ChatContext,
    Content,
    FunctionInvocationContext,
    Message,
    chat_middleware,
    function_middleware,
)

import clarify

# What a model may say about a question: not where the bot is, nor for whom it asks.
ASKS = {"question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"}


async def run(agent: Agent[Any], given: str, saved: Path) -> str:
    """Runs an agent until it ends; returns its last words. `saved` keeps its session, and what people are being asked.

    If the process is killed meanwhile, the next one continues there, and `given` is not said again: the question stays in
    Slack, and an answer given in the meantime counts.
    """
    session, waiting, rounds = AgentSession(), list[Content](), 0
    if saved.exists():
        stored = json.loads(saved.read_text())
        session, rounds = AgentSession.from_dict(stored["session"]), stored["rounds"]
        waiting = [Content.from_dict(each) for each in stored["waiting"]]

    def save() -> None:
        stored = {
            "session": session.to_dict(),
            "waiting": [each.to_dict() for each in waiting],
            "rounds": rounds,
        }
        new = saved.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.replace(saved)

    decided = Decided()
    messages = [Message("user", [given])]
    while True:
        if waiting:
            messages = await answer_all(
                waiting, decided, f"{session.session_id}.{rounds}", session.session_id
            )
            rounds += 1  # a call may run now. One Accept is for one run: if this process dies, people are asked again
            save()
        response = await agent.run(messages, session=session, middleware=decided.middleware())
        waiting = response.user_input_requests
        save()
        if not waiting:
            return response.text


class Decided:
    """What people decided on calls, by the calls' ids."""

    def __init__(self) -> None:
        self.edited: dict[
            str | None, dict[str, Any]
        ] = {}  # what was accepted in place of the model's arguments
        self.reasons: dict[str | None, str] = {}  # why a call was rejected

    def told(self, content: Content) -> Content:
        if content.type != "function_result" or content.call_id is None or content.id not in self.reasons:
            return content
        return Content.from_function_result(content.call_id, id=content.id, result=self.reasons[content.id])

    def middleware(self) -> list[Any]:
        @function_middleware
        async def as_accepted(
            context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
        ) -> None:
            call = context.metadata.get("function_call_occurrence_id")
            if "approval_response" in context.metadata and call in self.edited:
                context.arguments = self.edited[call]  # the framework wants this approved, too: see `answer`
            await call_next()

        @chat_middleware
        async def with_reasons(context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
            for message in context.messages:
                message.contents = [self.told(each) for each in message.contents]
            await call_next()

        return [as_accepted, with_reasons]


async def answer_all(waiting: list[Content], decided: Decided, key: str, session: str) -> list[Message]:
    """Asks about all calls that wait, at once; returns the message that resumes the run."""
    async with asyncio.TaskGroup() as group:  # if one question fails, the others are withdrawn
        tasks = [group.create_task(answer(each, decided, f"{key}.{each.id}", session)) for each in waiting]
    return [Message("tool", [task.result() for task in tasks])]


async def answer(request: Content, decided: Decided, key: str, session: str) -> Content:
    """Asks about a call. Asked again with the same key, after a restart, it is the same question."""
    call = request.function_call if request.type == "function_approval_request" else request
    if call is None or call.type != "function_call" or call.call_id is None:
        raise NotImplementedError(request.type)
    if call is request:
        result = await ask(call, key, session)
        return Content.from_function_result(call.call_id, id=call.id, result=result)
    try:
        why_not = await approve(call, decided, key, session)
    except clarify.BadQuestion as error:
        why_not = f"No one was asked: {error}"
    if why_not is not None:  # the model reads it
        decided.reasons[call.id] = why_not
    return request.to_function_approval_response(approved=why_not is None)


async def approve(call: Content, decided: Decided, key: str, session: str) -> str | None:
    """Asks for approval of a call; returns why it was not approved, or None if it was."""
    args = arguments(call)
    if call.id in decided.edited and clarify.is_same(decided.edited.pop(call.id), args):
        return None  # a person edited it so, and accepted it
    editable = not call.hosted  # what the model's provider runs itself cannot be edited
    approval = await clarify.aio.approve(
        f"Call {call.name}", arguments=args, editable=editable, session=session, key=key
    )
    if approval and not clarify.is_same(approval.arguments, args):
        decided.edited[call.id] = approval.arguments
    return approval.why_not


async def ask(call: Content, key: str, session: str) -> Any:
    """Asks a question; returns the answer, or why there is none."""
    try:
        asked = {name: value for name, value in arguments(call).items() if name in ASKS}
        return (await clarify.aio.ask(asked.pop("question", ""), **asked, session=session, key=key)).in_full
    except (clarify.BadQuestion, clarify.NotAnswered) as error:
        return f"No answer: {error}"


def arguments(call: Content) -> dict[str, Any]:
    """Returns a call's arguments. Raises clarify.BadQuestion: they cannot be read."""
    given = call.arguments
    return clarify.arguments_in(given) if given is None or isinstance(given, str) else dict(given)
