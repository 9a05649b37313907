"""Google ADK: people in Slack decide about tool calls that need confirmation; long-running tools ask people.

Copy this file and clarify.py into your project, and call `run` instead of `Runner.run_async`:

    FunctionTool(send_newsletter, require_confirmation=True)

    def ask_person(question: str, choices: list[str]) -> None:
        "Asks a person."  # it returns nothing; its parameters are those of clarify.ask
    LongRunningFunctionTool(ask_person)

    app = App(name="mailer", root_agent=agent)
    text = await run(app, "Send the newsletter.", SqliteSessionService("mailer.db"), "session-1")

A tool can also call `tool_context.request_confirmation(hint=..., payload={"days": 3})`: people see the hint, and can edit the
payload. ADK's own tool `request_input` asks a question, too: its `response_schema` makes a form, a Yes or No, a menu, a number …
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from google.adk.apps import App
from google.adk.events import Event
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import clarify

# What a model may say about a question: not where the bot is, nor for whom it asks.
ASKS = {"question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"}
CONFIRMATION, INPUT, CREDENTIAL = "adk_request_confirmation", "adk_request_input", "adk_request_credential"


async def run(app: App, given: str, sessions: BaseSessionService, session: str, user: str = "user") -> str:
    """Runs an agent until it ends; returns its last words.

    If people were being asked when the process ended, the run continues there, and `given` is not said again: the question
    stays in Slack, and an answer given in the meantime counts.
    """
    decided = app.model_copy(update={"plugins": [*app.plugins, AsDecided()]})
    runner = Runner(app=decided, session_service=sessions, auto_create_session=True)
    text = ""

    async def answers() -> types.Content | None:
        stored = await sessions.get_session(app_name=app.name, user_id=user, session_id=session)
        return await answer_all(stored.events if stored else [], session)

    async with runner:
        message = await answers()
        if message is None:
            message = types.UserContent(given)
        while message is not None:
            async for event in runner.run_async(user_id=user, session_id=session, new_message=message):
                if event.is_final_response() and event.content:
                    text = "".join(part.text or "" for part in event.content.parts or [])
            message = await answers()
    return text


async def answer_all(events: Iterable[Event], session: str) -> types.Content | None:
    """Asks about all calls that wait, at once; returns the answers as the message that resumes the run."""
    waiting: dict[
        str | None, tuple[types.FunctionCall, str]
    ] = {}  # by the id of the call that has no result yet
    answered = Counter[str | None]()
    for event in events:
        for result in event.get_function_responses():
            answered[result.id] += 1
            call, _ = waiting.get(result.id, (None, ""))
            if call and (
                call.name != CONFIRMATION or answered[call.id]
            ):  # until then it only says that it waits
                del waiting[result.id]
        for call in event.get_function_calls():
            if call.id in (event.long_running_tool_ids or ()) and call.name != CREDENTIAL:
                original = (
                    (call.args or {})["originalFunctionCall"]
                    if call.name == CONFIRMATION
                    else {"id": call.id}
                )
                waiting[original["id"]] = call, event.id
    if not waiting:
        return None
    async with asyncio.TaskGroup() as group:  # if one question fails, the others are withdrawn
        tasks = [
            # A call that was accepted but has no result may have run. One Accept is for one run: people are asked again.
            group.create_task(answer(call, session, f"{event}.{call.id}.{answered[call.id]}"))
            for call, event in waiting.values()
        ]
    return types.UserContent([task.result() for task in tasks])


async def answer(call: types.FunctionCall, session: str, key: str) -> types.Part:
    """Asks about a call. Asked again with the same key, after a restart, it is the same question."""
    args = call.args or {}
    if call.name == CONFIRMATION:
        response = await approve(args["originalFunctionCall"], args["toolConfirmation"], session, key)
    elif call.name == INPUT:
        asked = {"question": args.get("message"), "schema": args.get("response_schema") or None}
        found = await ask(asked, session, key)
        if isinstance(found, str) and is_json(found):  # ADK would read it
            found = json.dumps(found)
        is_whole = isinstance(found, dict) and found.keys() != {"result"}
        response = found if is_whole else {"result": found}
    else:
        response = {"result": await ask(args, session, key)}
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))


def is_json(text: str) -> bool:
    """Returns whether a text is JSON."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def ask(args: dict[str, Any], session: str, key: str) -> Any:
    """Asks a question; returns the answer, or why there is none."""
    asked = {name: value for name, value in args.items() if name in ASKS}
    question = asked.pop("question", None) or ""
    try:
        return (await clarify.aio.ask(question, **asked, session=session, key=key)).in_full
    except (clarify.BadQuestion, clarify.NotAnswered) as error:
        return f"No answer: {error}"


async def approve(call: Any, asked: Any, session: str, key: str) -> dict[str, Any]:
    """Asks for approval of a call; returns the confirmation that AsDecided reads."""
    args, payload, hint = call.get("args") or {}, asked.get("payload"), asked.get("hint") or ""
    parts = payload if isinstance(payload, dict) else {} if payload is None else {"": payload}
    extra = {f"payload.{name}": value for name, value in parts.items()}
    try:
        approval = await clarify.aio.approve(
            f"Call {call['name']}",
            arguments=extra | args,
            editable=True,
            question=None if "FunctionResponse" in hint else hint or None,  # ADK's own hint is for programs
            session=session,
            key=key,
        )
        why_not = approval.why_not
    except clarify.BadQuestion as error:
        why_not = f"No one was asked: {error}"
    if why_not is not None:  # the model reads it
        return {"confirmed": False, "payload": {"why": why_not}}
    accepted = approval.arguments
    parts = {name: accepted[f"payload.{name}"] for name in parts}
    payload = parts if isinstance(payload, dict) else parts.get("")
    arguments = {name: value for name, value in accepted.items() if name not in extra}
    return {"confirmed": True, "payload": {"arguments": arguments, "payload": payload}}


class AsDecided(BasePlugin):
    """Runs a call with the arguments that a person accepted; tells the model why one was rejected."""

    def __init__(self) -> None:
        super().__init__("clarify")

    async def before_tool_callback(
        self,
        *,
        tool: BaseTool,  # noqa: ARG002 - the base class's
        tool_args: dict[str, Any],
        tool_context: ToolContext,
    ) -> dict[str, Any] | None:
        match tool_context.tool_confirmation:
            case ToolConfirmation(confirmed=True, payload={"arguments": arguments, "payload": payload}):
                tool_args.clear()
                tool_args.update(arguments)
                tool_context.tool_confirmation = ToolConfirmation(confirmed=True, payload=payload)
            case ToolConfirmation(confirmed=False, payload={"why": why}):
                return {"error": why}
        return None
