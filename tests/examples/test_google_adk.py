from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.tools import request_input  # type: ignore[attr-defined] # loaded lazily
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from tests.examples.mailing import (
    ELSEWHERE,
    IN_OWN_WORDS,
    SENDS,
    UNASKABLE,
    Mailing,
    Turn,
    accepted,
    answer,
    answer_in_own_words,
    asks_again_about_what_may_have_run,
    check_refusals,
    killed_while_asking,
    of_the_page,
    output,
    press,
    python,
)
from tests.kit.world import World, said
from workspace.seed import AGENTS, FOLAKE

pytestmark = pytest.mark.examples


class Scripted(BaseLlm):
    """A model that says what it is told to, by how often it spoke before."""

    turns: list[Turn]

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncGenerator[LlmResponse, None]:
        turn = self.turns[sum(each.role == "model" for each in llm_request.contents)]
        parts = (
            [types.Part(text=turn)]
            if isinstance(turn, str)
            else [types.Part.from_function_call(name=name, args=args) for name, args in turn]
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def mailer(turns: Sequence[Turn], *tools: BaseTool) -> App:
    agent = LlmAgent(name="mailer", model=Scripted(model="scripted", turns=list(turns)), tools=list(tools))
    return App(name="mailer", root_agent=agent)


async def results(sessions: BaseSessionService) -> list[Any]:
    """What the tools returned, in the order of their calls."""
    found = await stored(sessions)
    calls = [call.id for event in found.events for call in event.get_function_calls()]
    returned = {
        each.id: each.response
        for event in found.events
        for each in event.get_function_responses()
        if not (each.name or "").startswith("adk_request_confirmation")
    }
    return [returned[each] for each in calls if each in returned]


async def stored(sessions: BaseSessionService) -> Session:
    found = await sessions.get_session(app_name="mailer", user_id="user", session_id="session-1")
    assert found is not None
    return found


async def test_calls_are_accepted_edited_rejected_and_answered(stage: World) -> None:
    from google_adk_in_slack import run

    def ask_person(question: str, choices: list[str]) -> None:
        """Asks a person."""

    mailing = Mailing()
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in ("May", "June", "July")]
    asks: list[tuple[str, dict[str, Any]]] = [
        ("ask_person", {"question": "Which list?", "choices": ["all", "staff"], **ELSEWHERE}),
        ("adk_request_input", {"message": "Which footer?"}),
    ]
    app = mailer(
        [[*turn, *asks], "Done."],
        FunctionTool(mailing.send_newsletter, require_confirmation=True),
        LongRunningFunctionTool(ask_person),
        request_input,
    )
    sessions = InMemorySessionService()
    running = asyncio.create_task(run(app, "Send all.", sessions, "session-1"))
    await press(stage, await stage.card("May"), "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Accept", recipients="12")
    await answer(stage, await stage.card("July"), Your_decision="Reject", Reason="not in summer")
    await press(stage, await stage.card("Which list?"), "staff")
    await answer(stage, await stage.card("Which footer?"), Your_answer="the short one")
    assert await running == "Done."
    assert sorted(mailing.sent) == [("June", 12), ("May", 1204)]
    assert await results(sessions) == [
        {"result": "sent to 1204"},
        {"result": "sent to 12"},
        {"error": "not in summer"},
        {"result": "staff"},
        {"result": "the short one"},
    ]
    assert len({each.thread_ts or each.ts for each in stage.cards()}) == 1  # one session


INPUTS: list[tuple[dict[str, Any] | None, str, Any]] = [
    ({"type": "integer"}, "3", 3),
    ({"type": "number"}, "1.5", 1.5),
    ({"type": "boolean"}, "no", False),
    ({"type": "string", "enum": ["eu", "us"]}, "US", "us"),
    ({"type": "string"}, "2026", "2026"),
    ({"type": "array", "items": {"type": "string"}}, "Rome\nParis", ["Rome", "Paris"]),
    ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "3", {"n": 3}),
    ({"properties": {"result": {"type": "integer"}}, "type": "object"}, "3", {"result": 3}),
    (None, "true", "true"),
]


async def test_input_is_of_the_type_that_its_schema_wants(stage: World) -> None:
    from google.adk.workflow.utils._rehydration_utils import _unwrap_response, _validate_resume_response
    from google_adk_in_slack import run

    turns: list[Turn] = [
        [("adk_request_input", {"message": f"Input {place}?", "response_schema": schema})]
        for place, (schema, _, _) in enumerate(INPUTS)
    ]
    sessions = InMemorySessionService()
    running = asyncio.create_task(run(mailer([*turns, "Done."], request_input), "Go.", sessions, "session-1"))
    for place, (_, text, _) in enumerate(INPUTS):
        card = await stage.card(f"Input {place}?")
        await stage.workspace.post(FOLAKE, AGENTS, text, card.thread_ts or card.ts)
    assert await running == "Done."
    for (schema, _, expected), response in zip(INPUTS, await results(sessions), strict=True):
        assert json.dumps(_validate_resume_response(_unwrap_response(response), schema)) == json.dumps(
            expected
        )


def asking(mailing: Mailing, *turns: Turn) -> App:
    """An agent that asks before it sends, and that may ask people."""

    def ask_person(question: str, choices: list[str]) -> None:
        """Asks a person."""

    send = FunctionTool(mailing.send_newsletter, require_confirmation=True)
    return mailer(turns, send, LongRunningFunctionTool(ask_person))


async def test_own_words_reach_the_model(stage: World) -> None:
    from google_adk_in_slack import run

    sessions = InMemorySessionService()
    app = asking(Mailing(), IN_OWN_WORDS, "Done.")
    running = asyncio.create_task(run(app, "Ask.", sessions, "session-1"))
    words = await answer_in_own_words(stage)
    assert await running == "Done."
    assert await results(sessions) == [{"result": each} for each in words]


async def test_model_reads_why_people_were_not_asked(stage: World) -> None:
    from google_adk_in_slack import run

    mailing, sessions = Mailing(), InMemorySessionService()
    app = asking(mailing, UNASKABLE, "Done.")
    running = asyncio.create_task(run(app, "Send all.", sessions, "session-1"))
    await press(stage, await stage.card("May"), "Reject")
    assert await running == "Done."
    check_refusals(await results(sessions))
    assert (mailing.sent, len(stage.cards())) == ([], 1)


async def test_tool_asks_with_a_hint_and_a_payload_to_edit(stage: World) -> None:
    from google_adk_in_slack import run

    def book(days: int, tool_context: ToolContext) -> dict[str, Any]:
        """Books days off."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Ada's last days this year.", payload={"approved": days})
            return {"status": "waiting"}
        payload = tool_context.tool_confirmation.payload
        assert payload
        return {"asked": days, "approved": payload["approved"]}

    def extend(tool_context: ToolContext) -> dict[str, Any]:
        """Extends the contract."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(payload=12)
            return {"status": "waiting"}
        return {"months": tool_context.tool_confirmation.payload}

    sessions = InMemorySessionService()
    app = mailer([[("book", {"days": 5}), ("extend", {})], "Done."], FunctionTool(book), FunctionTool(extend))
    running = asyncio.create_task(run(app, "Book it.", sessions, "session-1"))
    card = await stage.card("Call book")
    assert "Ada's last days this year." in said(card)
    await answer(stage, card, Your_decision="Accept", **{"payload.approved": "3"})
    await answer(stage, await stage.card("Call extend"), Your_decision="Accept", **{"payload.": "24"})
    assert await running == "Done."
    assert await results(sessions) == [{"asked": 5, "approved": 3}, {"months": 24}]


async def test_tool_that_no_one_accepts_does_not_run(stage: World) -> None:
    from google_adk_in_slack import run

    mailing, sessions = Mailing(), InMemorySessionService()
    app = mailer(SENDS, FunctionTool(mailing.send_newsletter, require_confirmation=True))
    running = asyncio.create_task(run(app, "Send it.", sessions, "session-1"))
    card = await stage.card("send_newsletter")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.now_says(card, "Withdrawn")
    assert (
        await run(app, "Send it.", sessions, "session-1") == "Done."
    )  # it is told so when it is taken up again
    assert await results(sessions) == [{"error": "The question was withdrawn."}]
    assert mailing.sent == []


PROGRAM = python("""
import asyncio, os, sys
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google_adk_in_slack import run
from tests.examples.mailing import ELSEWHERE, SENDS, Mailing
from tests.examples.test_google_adk import mailer

mailing = Mailing()
def send_newsletter(subject: str, recipients: int) -> str:
    "Sends the newsletter."
    print("sends", flush=True)
    if "die" in sys.argv:
        os._exit(1)
    return mailing.send_newsletter(subject, recipients)

app = mailer(SENDS, FunctionTool(send_newsletter, require_confirmation=True))
print(asyncio.run(run(app, "Send it.", SqliteSessionService(sys.argv[1]), "session-1")), mailing.sent)
""")


async def test_killed_process_resumes_from_its_stored_session(stage: World, tmp_path: Path) -> None:
    database = str(tmp_path / "mailer.db")
    card = await killed_while_asking(stage, PROGRAM, database)
    await press(stage, card, "Accept")
    assert await output(await PROGRAM.start(database)) == ["sends", "Done. [('June', 1204)]"]
    assert len(stage.cards()) == 1


async def test_call_that_may_have_run_is_asked_about_again(stage: World, tmp_path: Path) -> None:
    saved = str(tmp_path / "mailer.db")
    assert await asks_again_about_what_may_have_run(stage, PROGRAM, saved) == "Done. []"


async def test_program_of_the_page(stage: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mailing = Mailing()
    names = {
        "model": Scripted(model="scripted", turns=SENDS),
        "send_newsletter": mailing.send_newsletter,
    }
    found = await accepted(stage, of_the_page("google_adk_in_slack", **names), "send_newsletter")
    assert found["text"] == "Done."
    assert mailing.sent == [("June", 1204)]
