from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, AgentRunResult, ApprovalRequired, CallDeferred, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.examples.mailing import (
    IN_OWN_WORDS,
    SENDS,
    UNASKABLE,
    Mailing,
    Turn,
    accepted,
    answer,
    answer_in_own_words,
    check_refusals,
    of_the_page,
    press,
)
from tests.kit.world import World, said

pytestmark = pytest.mark.examples


def scripted(turns: Sequence[Turn]) -> FunctionModel:
    """A model that says what it is told to."""

    def function(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = turns[sum(isinstance(each, ModelResponse) for each in messages)]
        if isinstance(turn, str):
            return ModelResponse([TextPart(turn)])
        return ModelResponse([ToolCallPart(name, args, f"call-{n}") for n, (name, args) in enumerate(turn)])

    return FunctionModel(function)


async def test_calls_are_accepted_edited_rejected_and_answered(stage: World) -> None:
    from pydantic_ai_in_slack import in_slack

    mailing = Mailing()
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in ("May", "June", "July")]
    asks = ("ask_person", {"question": "Which list?", "choices": ["all", "staff"]})
    agent = Agent(scripted([[*turn, asks], "Done."]), capabilities=[HandleDeferredToolCalls(in_slack)])

    @agent.tool
    def send_newsletter(context: RunContext[None], subject: str, recipients: int) -> str:
        if not context.tool_call_approved:
            raise ApprovalRequired(metadata={"consequence": "Mail cannot be called back."})
        return mailing.send_newsletter(subject, recipients)

    @agent.tool_plain
    def ask_person(question: str, choices: list[str]) -> str:
        raise CallDeferred

    running = asyncio.create_task(agent.run("Send all."))
    may = await stage.card("May")
    assert "Mail cannot be called back." in said(may)
    await press(stage, may, "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Accept", recipients="12")
    await answer(stage, await stage.card("July"), Your_decision="Reject", Reason="not in summer")
    await press(stage, await stage.card("Which list?"), "staff")
    result = await running
    assert result.output == "Done."
    parts = [part for message in result.all_messages() for part in message.parts]
    returned = {part.tool_call_id: part.content for part in parts if isinstance(part, ToolReturnPart)}
    assert returned == {
        "call-0": "sent to 1204",
        "call-1": "sent to 12",
        "call-2": "not in summer",
        "call-3": "staff",
    }
    assert sorted(mailing.sent) == [("June", 12), ("May", 1204)]
    assert len({each.thread_ts or each.ts for each in stage.cards()}) == 1  # one session


def mailer(mailing: Mailing, *turns: Turn) -> Agent[None, str]:
    """An agent that asks before it sends, and that may ask people."""
    from pydantic_ai_in_slack import in_slack

    agent = Agent(scripted(turns), capabilities=[HandleDeferredToolCalls(in_slack)])
    agent.tool_plain(requires_approval=True)(mailing.send_newsletter)

    @agent.tool_plain
    def ask_person(question: str, choices: list[str], other: bool = False, multiple: bool = False) -> str:
        raise CallDeferred

    return agent


def results(run: AgentRunResult[str]) -> list[Any]:
    """What the model heard that its calls returned, in their order."""
    parts = [part for message in run.all_messages() for part in message.parts]
    found = {part.tool_call_id: part.content for part in parts if isinstance(part, ToolReturnPart)}
    return [found[each] for each in sorted(found)]


async def test_own_words_reach_the_model(stage: World) -> None:
    running = asyncio.create_task(mailer(Mailing(), IN_OWN_WORDS, "Done.").run("Ask."))
    words = await answer_in_own_words(stage)
    assert results(await running) == words


async def test_model_reads_why_people_were_not_asked(stage: World) -> None:
    mailing = Mailing()
    running = asyncio.create_task(mailer(mailing, UNASKABLE, "Done.").run("Send all."))
    await press(stage, await stage.card("May"), "Reject")
    check_refusals(results(await running))
    assert (mailing.sent, len(stage.cards())) == ([], 1)


async def test_program_of_the_page(stage: World) -> None:
    mailing = Mailing()
    names = {"model": scripted(SENDS), "send_newsletter": mailing.send_newsletter}
    found = await accepted(stage, of_the_page("pydantic_ai_in_slack", **names), "send_newsletter")
    assert found["result"].output == "Done."
    assert mailing.sent == [("June", 1204)]
