from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import clarify
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
    check_refusals,
    of_the_page,
    press,
)
from tests.kit.world import World
from workspace.seed import AGENTS

pytestmark = pytest.mark.examples


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


def scripted(turns: Sequence[Turn]) -> Scripted:
    def messages() -> Iterator[AIMessage]:
        for at, turn in enumerate(turns):
            if isinstance(turn, str):
                yield AIMessage(turn)
            else:
                calls = [
                    {"name": name, "args": args, "id": f"{at}-{n}"} for n, (name, args) in enumerate(turn)
                ]
                yield AIMessage("", tool_calls=calls)

    return Scripted(messages=messages())


class State(TypedDict, total=False):
    region: str
    name: str
    dropped: bool
    again: list[Any]
    paid: Any
    refused: Any
    audience: Any


def graph(*nodes: Any) -> Any:
    """A graph that runs its nodes at once."""
    made = StateGraph(State)
    for node in nodes:
        made.add_node(f"{node.__name__}_node", node)
        made.add_edge(START, f"{node.__name__}_node")
    return made.compile(checkpointer=InMemorySaver())


async def test_what_nodes_interrupt_for_is_asked_at_once(stage: World) -> None:
    from langgraph_in_slack import run

    def region(_: State) -> State:
        return {"region": interrupt({"question": "Which region?", "choices": ["eu", "us"]})}

    def name(_: State) -> State:
        return {"name": interrupt("Which name?")}

    def drop(_: State) -> State:
        return {"dropped": interrupt({"action": "Drop the table", "consequence": "It is gone."})}

    def again(_: State) -> State:
        return {"again": [interrupt({"question": "How many?", "kind": "number"}) for _ in range(2)]}

    running = asyncio.create_task(run(graph(region, name, drop, again), {}, "thread-1"))
    await press(stage, await stage.card("Which region?"), "eu")
    await answer(stage, await stage.card("Which name?"), Your_answer="Ada")
    await answer(stage, await stage.card("Drop the table"), Your_decision="Reject", Reason="not today")
    await answer(stage, await stage.card("How many?"), Number="1")
    await stage.until(lambda: sum("How many?" in each.text for each in stage.cards()) == 2)
    second = next(each for each in reversed(stage.cards()) if "How many?" in each.text)
    await answer(stage, second, Number="2")
    assert await running == {"region": "eu", "name": "Ada", "dropped": False, "again": [1, 2]}
    threads = {each.thread_ts or each.ts for each in stage.cards()}
    assert len(threads) == 1  # one session


async def test_calls_of_tools_are_accepted_edited_rejected_and_answered(stage: World) -> None:
    from langgraph_in_slack import run

    def ask_person(question: str, choices: list[str]) -> str:
        """Asks a person."""
        raise NotImplementedError

    mailing = Mailing()
    subjects = ["May", "June", "July"]
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in subjects]
    asks = ("ask_person", {"question": "Which list?", "choices": ["all", "staff"], **ELSEWHERE})
    gate = HumanInTheLoopMiddleware(
        {"send_newsletter": True, "ask_person": {"allowed_decisions": ["respond"]}}
    )
    agent = create_agent(
        scripted([[*turn, asks], "Done."]),
        [mailing.send_newsletter, ask_person],
        middleware=[gate],
        checkpointer=InMemorySaver(),
    )
    running = asyncio.create_task(run(agent, {"messages": [("user", "Send all.")]}, "thread-1"))
    await press(stage, await stage.card("May"), "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Accept", recipients="12")
    await answer(stage, await stage.card("July"), Your_decision="Reject", Reason="not in summer")
    await press(stage, await stage.card("Which list?"), "staff")
    *_, last = messages = (await running)["messages"]
    assert (last.content, sorted(mailing.sent)) == ("Done.", [("June", 12), ("May", 1204)])
    results = {each.tool_call_id: each for each in messages if isinstance(each, ToolMessage)}
    may, june, july, answered = (results[f"0-{n}"] for n in range(4))
    assert may.content == "sent to 1204"
    assert str(june.content).endswith("sent to 12")
    assert (july.status, answered.status, answered.content) == ("error", "success", "staff")
    assert "not in summer" in july.content


def asks(question: str, choices: list[str], other: bool = False, multiple: bool = False) -> str:
    """Asks a person."""
    raise NotImplementedError


def mailer(mailing: Mailing, *turns: Turn) -> Any:
    """An agent that asks before it sends, and that may ask people."""
    gate = HumanInTheLoopMiddleware(
        {
            "send_newsletter": {"allowed_decisions": ["approve", "edit", "reject"]},
            "ask_person": {"allowed_decisions": ["respond"]},
        }
    )
    tools: list[Any] = [mailing.send_newsletter, tool("ask_person")(asks)]
    return create_agent(scripted(turns), tools, middleware=[gate], checkpointer=InMemorySaver())


async def results(running: asyncio.Task[Any]) -> list[Any]:
    messages = (await running)["messages"]
    assert messages[-1].content == "Done."
    return [each.content for each in messages if isinstance(each, ToolMessage)]


async def test_own_words_reach_the_model(stage: World) -> None:
    from langgraph_in_slack import run

    agent = mailer(Mailing(), IN_OWN_WORDS, "Done.")
    running = asyncio.create_task(run(agent, {"messages": [("user", "Ask.")]}, "thread-1"))
    words = await answer_in_own_words(stage)
    assert await results(running) == words


async def test_model_reads_why_people_were_not_asked(stage: World) -> None:
    from langgraph_in_slack import run

    mailing = Mailing()
    agent = mailer(mailing, UNASKABLE, "Done.")
    running = asyncio.create_task(run(agent, {"messages": [("user", "Send all.")]}, "thread-1"))
    await press(stage, await stage.card("May"), "Reject")
    check_refusals(await results(running))
    assert (mailing.sent, len(stage.cards())) == ([], 1)


async def test_edit_of_a_type_counts(stage: World) -> None:
    from langgraph_in_slack import run

    found: list[Any] = []

    def deploy(options: dict[str, Any]) -> str:
        """Deploys."""
        found.append(options)
        return "deployed"

    gate = HumanInTheLoopMiddleware({"deploy": True})
    agent = create_agent(
        scripted([[("deploy", {"options": {"dry_run": 1}})], "Done."]),
        [deploy],
        middleware=[gate],
        checkpointer=InMemorySaver(),
    )
    running = asyncio.create_task(run(agent, {"messages": [("user", "Deploy.")]}, "thread-1"))
    await answer(stage, await stage.card("deploy"), Your_decision="Accept", options='{"dry_run": true}')
    await running
    assert repr(found) == "[{'dry_run': True}]"


async def test_node_gets_the_arguments_as_approved(stage: World) -> None:
    from langgraph_in_slack import run

    def paid(_: State) -> State:
        payment = {"amount": 1000, "to": 1187654321098765433}
        return {"paid": interrupt({"action": "Transfer money", "arguments": payment, "editable": True})}

    def refused(_: State) -> State:
        return {"refused": interrupt({"action": "Pay", "arguments": {"id": "x" * 300_000}})}

    def named(_: State) -> State:
        return {
            "audience": interrupt({"question": "Which list?", "choices": ["all", "staff"], "other": True})
        }

    running = asyncio.create_task(run(graph(paid, refused, named), {}, "thread-1"))
    await answer(stage, await stage.card("Transfer money"), Your_decision="Accept", amount="10")
    await answer(stage, await stage.card("Which list?"), Your_answer="only Japan, please")
    assert await running == {
        "paid": {"amount": 10, "to": 1187654321098765433},
        "refused": False,
        "audience": "only Japan, please",
    }


async def test_interrupt_that_cannot_be_asked_raises_once_the_others_went_on(stage: World) -> None:
    from langgraph_in_slack import run

    def name(_: State) -> State:
        return {"name": interrupt("Which name?")}

    def region(_: State) -> State:
        return {"region": interrupt({"question": "Which region?", "choices": ["eu", "eu"]})}

    compiled = graph(name, region)
    running = asyncio.create_task(run(compiled, {}, "thread-1"))
    await answer(stage, await stage.card("Which name?"), Your_answer="Ada")
    with pytest.raises(clarify.BadQuestion, match="uplicate"):
        await running
    saved = await compiled.aget_state({"configurable": {"thread_id": "thread-1"}})
    assert [each.value["question"] for each in saved.interrupts] == ["Which region?"]


async def test_tool_that_nobody_accepts_does_not_run(stage: World) -> None:
    from langgraph_in_slack import run

    mailing = Mailing()
    gate = HumanInTheLoopMiddleware({"send_newsletter": {"allowed_decisions": ["approve", "reject"]}})
    tools = [mailing.send_newsletter]
    agent = create_agent(scripted(SENDS), tools, middleware=[gate], checkpointer=InMemorySaver())
    running = asyncio.create_task(run(agent, {"messages": [("user", "Send it.")]}, "thread-1"))
    card = await stage.card("send_newsletter")
    await stage.workspace.command("U0FOLAKE", AGENTS, "/clarify", "abandon CLR-100001-001 nobody needs it")
    *_, tool, _ = (await running)["messages"]
    assert (tool.status, mailing.sent) == ("error", [])
    assert "nobody needs it" in tool.content
    assert card.thread_ts is None


async def test_interrupted_thread_goes_on(stage: World) -> None:
    from langgraph_in_slack import run

    mailing = Mailing()
    gate = HumanInTheLoopMiddleware({"send_newsletter": True})
    agent = create_agent(
        scripted(SENDS), [mailing.send_newsletter], middleware=[gate], checkpointer=InMemorySaver()
    )
    first = asyncio.create_task(run(agent, {"messages": [("user", "Send it.")]}, "thread-1"))
    card = await stage.card("send_newsletter")
    first.cancel()
    await stage.now_says(card, "Withdrawn")
    second = asyncio.create_task(run(agent, None, "thread-1"))
    await stage.until(lambda: len(stage.cards()) == 2)
    await press(stage, stage.cards()[-1], "Accept")
    assert (await second)["messages"][-1].content == "Done."
    assert mailing.sent == [("June", 1204)]


async def test_program_of_the_page(stage: World) -> None:
    mailing = Mailing()
    names = {"model": scripted(SENDS), "send_newsletter": mailing.send_newsletter}
    found = await accepted(stage, of_the_page("langgraph_in_slack", **names), "send_newsletter")
    assert found["state"]["messages"][-1].content == "Done."
    assert mailing.sent == [("June", 1204)]
