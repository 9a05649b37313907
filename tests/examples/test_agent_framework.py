from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
    tool,
)

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
    fields,
    killed_while_asking,
    of_the_page,
    output,
    press,
    python,
)
from tests.kit.world import World

pytestmark = pytest.mark.examples

ASK_PERSON = FunctionTool(
    name="ask_person",
    description="Asks a person.",
    input_model={
        "type": "object",
        "properties": {
            "question": {"type": "string"},
            "choices": {"type": "array", "items": {"type": "string"}},
        },
    },
)


class Scripted(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A model that says what it is told to, by how often it spoke before."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__()
        self._turns = turns
        self.heard: list[Message] = []

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **more: Any,
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        async def response() -> ChatResponse:
            self.heard = list(messages)
            at = sum(each.role == "assistant" for each in messages)
            turn = self._turns[at]
            contents: list[Content | str] = (
                [turn]
                if isinstance(turn, str)
                else [_call(f"{at}-{n}", name, args) for n, (name, args) in enumerate(turn)]
            )
            return ChatResponse(messages=[Message("assistant", contents)])

        return response()

    def results(self) -> dict[str | None, Any]:
        """What the model heard that its calls returned, by their ids."""
        contents = [each for message in self.heard for each in message.contents]
        return {each.call_id: each.result for each in contents if each.type == "function_result"}


def _call(call_id: str, name: str, args: dict[str, Any]) -> Content:
    if name == "malformed":
        return Content.from_function_call(
            call_id, "send_newsletter", arguments='{"subject": "June", "recipients": 5'
        )
    if name != "hosted":
        return Content.from_function_call(call_id, name, arguments=json.dumps(args))
    call = Content.from_function_call(call_id, name, arguments=json.dumps(args), hosted=True)
    return Content.from_function_approval_request(
        call_id, call
    )  # the provider would run it, if it is approved


def mailer(turns: Sequence[Turn], *functions: Any) -> tuple[Agent[Any], Scripted]:
    model = Scripted(turns)
    tools = [tool(each, approval_mode="always_require") for each in functions]
    return Agent(model, tools=[*tools, ASK_PERSON]), model


async def test_calls_are_accepted_edited_rejected_and_answered(stage: World, tmp_path: Path) -> None:
    from agent_framework_in_slack import run

    mailing = Mailing()
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in ("May", "June", "July")]
    asks = ("ask_person", {"question": "Which list?", "choices": ["all", "staff"], **ELSEWHERE})
    agent, model = mailer([[*turn, asks], "Done."], mailing.send_newsletter)
    running = asyncio.create_task(run(agent, "Send all.", tmp_path / "mailer.json"))
    await press(stage, await stage.card("May"), "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Accept", recipients="12")
    await answer(stage, await stage.card("July"), Your_decision="Reject", Reason="not in summer")
    await press(stage, await stage.card("Which list?"), "staff")
    assert await running == "Done."
    assert sorted(mailing.sent) == [("June", 12), ("May", 1204)]
    assert model.results() == {
        "0-0": "sent to 1204",
        "0-1": "sent to 12",
        "0-2": "not in summer",
        "0-3": "staff",
    }
    assert len(stage.cards()) == 4  # people were not asked again about what they had edited
    assert len({each.thread_ts or each.ts for each in stage.cards()}) == 1  # one session


async def test_own_words_reach_the_model(stage: World, tmp_path: Path) -> None:
    from agent_framework_in_slack import run

    agent, model = mailer([IN_OWN_WORDS, "Done."])
    running = asyncio.create_task(run(agent, "Ask.", tmp_path / "mailer.json"))
    words = await answer_in_own_words(stage)
    assert await running == "Done."
    assert list(model.results().values()) == words


async def test_model_reads_why_people_were_not_asked(stage: World, tmp_path: Path) -> None:
    from agent_framework_in_slack import run

    mailing = Mailing()
    agent, model = mailer([[*UNASKABLE, ("malformed", {})], "Done."], mailing.send_newsletter)
    running = asyncio.create_task(run(agent, "Send all.", tmp_path / "mailer.json"))
    await press(stage, await stage.card("May"), "Reject")
    assert await running == "Done."
    results = model.results()
    check_refusals([results[f"0-{n}"] for n in range(3)])
    assert "cannot be read as JSON" in results["0-3"]
    assert (mailing.sent, len(stage.cards())) == ([], 1)


async def test_calls_that_the_provider_runs_cannot_be_edited(stage: World, tmp_path: Path) -> None:
    from agent_framework_in_slack import run

    agent, model = mailer([[("hosted", {"query": "June"})], "Done."])
    running = asyncio.create_task(run(agent, "Search.", tmp_path / "mailer.json"))
    card = await stage.card("Call hosted")
    assert await fields(stage, card) == ["Your decision", "Reason"]
    await press(stage, card, "Accept")
    assert await running == "Done."
    *_, last = (each for message in model.heard for each in message.contents)
    assert (last.type, last.approved) == ("function_approval_response", True)


async def test_run_that_is_given_up_runs_no_tool(stage: World, tmp_path: Path) -> None:
    from agent_framework_in_slack import run

    mailing = Mailing()
    agent, model = mailer(SENDS, mailing.send_newsletter)
    running = asyncio.create_task(run(agent, "Send it.", tmp_path / "mailer.json"))
    card = await stage.card("June")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.now_says(card, "Withdrawn")
    assert (
        await run(agent, "Send it.", tmp_path / "mailer.json") == "Done."
    )  # the model is told when it continues
    assert model.results() == {"0-0": "The question was withdrawn."}
    assert mailing.sent == []


PROGRAM = python("""
import asyncio, os, sys
from pathlib import Path
from agent_framework_in_slack import run
from tests.examples.mailing import ELSEWHERE, SENDS, Mailing
from tests.examples.test_agent_framework import mailer

mailing = Mailing()
def send_newsletter(subject: str, recipients: int) -> str:
    print("sends", flush=True)
    if "die" in sys.argv:
        os._exit(1)
    return mailing.send_newsletter(subject, recipients)

agent, _ = mailer(SENDS, send_newsletter)
print(asyncio.run(run(agent, "Send it.", Path(sys.argv[1]))), mailing.sent)
""")


async def test_killed_process_resumes_from_its_saved_session(stage: World, tmp_path: Path) -> None:
    saved = str(tmp_path / "mailer.json")
    card = await killed_while_asking(stage, PROGRAM, saved)
    await answer(stage, card, Your_decision="Accept", recipients="12")
    assert await output(await PROGRAM.start(saved)) == ["sends", "Done. [('June', 12)]"]
    assert len(stage.cards()) == 1


async def test_call_that_may_have_run_is_asked_about_again(stage: World, tmp_path: Path) -> None:
    saved = str(tmp_path / "mailer.json")
    assert await asks_again_about_what_may_have_run(stage, PROGRAM, saved) == "Done. []"


async def test_program_of_the_page(stage: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mailing = Mailing()
    names = {"model": Scripted(SENDS), "send_newsletter": mailing.send_newsletter}
    found = await accepted(stage, of_the_page("agent_framework_in_slack", **names), "send_newsletter")
    assert found["text"] == "Done."
    assert mailing.sent == [("June", 1204)]
