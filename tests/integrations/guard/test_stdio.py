"""`clarify.py guard` in front of a server that the official SDK runs: what people accept is called, once, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

import clarify
from tests.integrations.guard.kit import RULES, Guarded, calling, words
from tests.kit.until import until
from tests.kit.world import World, said
from workspace.seed import FOLAKE


@pytest.fixture
async def guarded(stage: World) -> AsyncIterator[Guarded]:
    async with Guarded.running(stage, server="upstream.py") as made:
        yield made


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_what_is_accepted_is_called_as_the_person_edited_it(
    stage: World, guarded: Guarded, mode: str
) -> None:
    async with guarded.client(mode) as client:
        listed = {each.name: each.description or "" for each in (await client.list_tools()).tools}
        assert "approval of a person" in listed["delete_user"]
        assert "approval" not in listed["get_user"]
        assert words(await client.call_tool("get_user", {"name": "ann"})) == "get_user done"
        with calling(client, "delete_user", name="ann") as call:
            card = await guarded.card("Call delete_user on prod")
            assert "Deletes a user for good." in said(card)
            assert "Risk: high" in said(card)
            await guarded.press(FOLAKE, card, "Answer…")
            await stage.modal(FOLAKE)
            entered = {"Your decision": "Accept", "name": "bob"}
            assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
            result = await call
    assert (words(result), result.is_error) == ("delete_user done", False)
    assert guarded.heard() == [
        ["get_user", {"name": "ann"}],
        ["delete_user", {"name": "bob", "purge": False}],
    ]
    await until(lambda: guarded.states() == ["done"])
    receipt = stage.record()["aaep"]["receipt"]
    async with httpx.AsyncClient(base_url=guarded.url) as http:
        keys = (await http.get("/.well-known/jwks.json")).json()
    verified = clarify.verify(receipt, arguments={"name": "bob"}, keys=keys)
    assert verified, verified
    about = verified.claims["asked"]["guard"]
    assert (about["server"], about["tool"], len(about["schema_sha256"])) == ("prod", "delete_user", 43)


async def test_what_is_rejected_is_not_called_and_the_agent_reads_why(guarded: Guarded) -> None:
    async with guarded.client() as client:
        with calling(client, "delete_user", name="ann") as call:
            card = await guarded.card("Call delete_user on prod")
            await guarded.press(FOLAKE, card, "Reject")
            result = await call
        assert result.is_error
        assert words(result).endswith("The call was not made.")
        assert "Rejected by user:slack/T0LOCAL/U0FOLAKE" in words(result)
        denied = await client.call_tool("drop_table", {"name": "users"})
        assert denied.is_error
        assert words(denied) == 'Not allowed by the rule deny "drop_*". The call was not made.'
        unknown = await client.call_tool("Delete_user", {"name": "ann"})
        assert words(unknown) == "The server lists no tool 'Delete_user'. The call was not made."
    assert guarded.heard() == []
    assert guarded.states() == ["ended"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_agent_that_was_told_to_wait_gets_the_result_with_another_tool(stage: World, mode: str) -> None:
    rules = RULES + 'wait = "1s"\n'
    async with (
        Guarded.running(stage, rules=rules, server="upstream.py") as guarded,
        guarded.client(mode) as client,
    ):
        assert "wait_for_call" in [each.name for each in (await client.list_tools()).tools]
        waiting = await client.call_tool("delete_user", {"name": "ann"})
        assert not waiting.is_error
        named = words(waiting).partition(":")[0]
        assert words(waiting).endswith("Do not repeat the call.")
        again = await client.call_tool("wait_for_call", {"id": named})
        assert words(again) == words(waiting)
        await guarded.press(FOLAKE, await guarded.card("Call delete_user on prod"), "Accept")
        async with asyncio.timeout(60):  # a busy machine may take longer than one wait
            while (said := words(await client.call_tool("wait_for_call", {"id": named}))) == words(waiting):
                pass
        assert said == words(await client.call_tool("wait_for_call", {"id": named})) == "delete_user done"
        unknown = await client.call_tool("wait_for_call", {"id": "CLR-1-001"})
        assert (unknown.is_error, words(unknown)) == (True, "No call with the id 'CLR-1-001' waits here.")
        assert guarded.heard() == [["delete_user", {"name": "ann", "purge": False}]]


async def test_agent_that_leaves_while_a_call_waits_withdraws_it(stage: World) -> None:
    async with Guarded.running(stage, rules=RULES + 'wait = "1s"\n') as guarded:
        async with guarded.client() as client:
            await client.call_tool("delete_user", {"name": "ann"})
            card = await guarded.card("Call delete_user on prod")
        await stage.now_says(card, "Withdrawn")
        assert (guarded.states(), guarded.made()) == (["ended"], [])
