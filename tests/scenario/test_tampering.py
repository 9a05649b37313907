"""Decided questions that somebody changes in the database: they do not agree with their receipts, and nobody gets them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.receipts import TYP
from tests.kit.clocks import LeapClock
from tests.kit.fake_github import PREFIX, TOKEN, serving
from tests.kit.receivers import receiving
from tests.kit.world import World, config, said, scene, url_of
from tests.scenario.other_parties import change_row
from tests.scenario.prompts import Project
from tests.scenario.test_callbacks import at_rest, running, table
from tests.scenario.test_mcp import called
from tests.scenario.typist import command, words
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE

Json = dict[str, Any]
PAYMENT: Json = {
    "action": "Send the payment",
    "arguments": {"to": "ann", "amount": 100},
    "editable": True,
    "key": "payment-1",
    "risk": "high",
}
NAME = "CLR-100001-001"
TOLD = f"{NAME} was changed after the decision"


@asynccontextmanager
async def caller(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield http


async def decide(stage: World, http: httpx.AsyncClient, label: str = "Accept") -> None:
    answer = await http.post("/questions", json=PAYMENT)
    assert answer.status_code == 201, answer.text
    card = await stage.card("Send the payment")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok


async def is_refused(http: httpx.AsyncClient) -> None:
    """No way to the answer leads there."""
    for answer in (
        await http.get(f"/questions/{NAME}"),
        await http.get(f"/questions/{NAME}", params={"wait": 5}),
        await http.post("/questions", json=PAYMENT),
        await http.delete(f"/questions/{NAME}"),
        await http.get(f"/receipts/{NAME}"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (410, "TAMPERED"), answer.text
        assert NAME in answer.json()["message"]
    listed = (await http.get("/questions")).json()["questions"]
    assert not any(each["answer"] for each in listed)
    assert (await http.get(f"/clarifications/{NAME}")).status_code in {404, 410}
    mirrored = (await http.get("/clarifications", params={"issue": 100001})).json()
    assert mirrored["clarifications"] == []


def told(stage: World, text: str = NAME) -> int:
    return sum(text in said(each) for each in stage.workspace.messages(FALLBACK))


def argument(record: Json) -> None:
    record["aaep"]["arguments"]["amount"] = 100_000


def signed_by_another(record: Json) -> None:
    """With the name of our key."""
    receipt = record["aaep"]["receipt"]
    claims = jwt.decode(receipt, options={"verify_signature": False})
    header = {"typ": TYP, "kid": jwt.get_unverified_header(receipt)["kid"]}
    record["aaep"]["receipt"] = jwt.encode(claims, Ed25519PrivateKey.generate(), "EdDSA", headers=header)


CHANGES: dict[str, Callable[[Json], None]] = {
    "an argument": argument,
    "the decision": lambda record: record["aaep"].update(response="accept", label="Accept"),
    "an edit": lambda record: record["aaep"].update(
        edits=[
            {"changed": {"amount": 1}, "user": ADE, "decidedBy": "user:x", "at": "2026-11-21T10:00:00.000Z"}
        ]
    ),
    "an approval": lambda record: record["aaep"].update(
        approvals=[{"user": ADE, "decidedBy": "user:x", "at": "2026-11-21T10:00:00.000Z", "digest": "0"}]
    ),
    "the words": lambda record: record["aaep"].update(action="Water the plants"),
    "who decided": lambda record: record["aaep"].update(decidedBy="agent:architect"),
    "its end": lambda record: record.update(status="pending"),
    "its signature": signed_by_another,
}


@pytest.mark.either_database(always=True)
@pytest.mark.parametrize("kind", CHANGES)
async def test_p5_decision_that_was_changed_is_handed_out_to_nobody(stage: World, kind: str) -> None:
    async with caller(stage) as http:
        await decide(stage, http, "Reject")
        state = (await http.get(f"/questions/{NAME}")).json()
        assert state["answer"] == {"decision": "reject", "arguments": PAYMENT["arguments"]}
        await stage.until(lambda: stage.record()["status"] == "resolved")
        await stage.now_says(await stage.card("Send the payment"), "the agent has resumed")
        shown = [said(each) for each in stage.cards()]
        change_row(stage, CHANGES[kind])
        await stage.message(TOLD, FALLBACK)
        await is_refused(http)
    kept = stage.record()
    async with caller(stage) as http:
        await is_refused(http)
        change_row(stage, lambda record: record.update(note="looked at"))
        await is_refused(http)
    assert stage.record() == {**kept, "note": "looked at", "revision": kept["revision"] + 1}
    assert [said(each) for each in stage.cards()] == shown
    assert told(stage) == 1


async def test_p5_nor_an_accepted_one_before_it_was_fetched(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        card = await stage.card("Send the payment")
        await stage.now_says(card, "Not picked up by the agent yet")
        shown = [said(each) for each in stage.cards()]
        change_row(stage, lambda record: record["aaep"].update(response="reject", label="Reject"))
        await is_refused(http)
        await stage.message(TOLD, FALLBACK)
    assert stage.record()["status"] == "answered"
    async with stage.bot() as bot:
        bot.show.delivery.refresh(NAME)
        await stage.ask(question="And now?")  # after the cards of before
    assert [said(each) for each in stage.cards()][:1] == shown


async def test_p5_nor_one_that_was_changed_while_no_bot_ran(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await stage.until(lambda: stage.record()["status"] == "resolved")
    change_row(stage, argument)
    for _ in range(2):
        async with caller(stage) as http:
            await is_refused(http)
            await stage.message(TOLD, FALLBACK)
    assert told(stage) == 1


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_p5_tools_tell_of_a_changed_decision_as_an_error(stage: World, door: str) -> None:
    async with stage.bot() as bot, called(door, "2025-06-18", url_of(bot)) as tools:
        await tools.call("ask_approval", action="Send the payment", arguments={"amount": 100}, wait=0)
        card = await stage.card("Send the payment")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        await stage.until(lambda: stage.record()["status"] == "answered")
        change_row(stage, argument)
        answer = await tools.call("wait_for_answer", id=NAME, is_error=True)
        assert "changed after it was decided" in answer["said"]


async def test_p5_what_a_receipt_does_not_say_may_change(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        await stage.until(lambda: stage.record()["status"] == "answered")
        change_row(stage, lambda record: record.update(priority=1))
        await stage.until(lambda: stage.record()["priority"] == 1)
        state = (await http.get(f"/questions/{NAME}")).json()
        assert (state["status"], state["answer"]["arguments"]) == ("answered", PAYMENT["arguments"])
    async with caller(stage) as http:
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
    assert (stage.record()["priority"], told(stage)) == (1, 0)


async def test_shell_shows_what_was_changed_and_hands_it_out_to_nobody(stage: World) -> None:
    shell = Project.beside(stage, config(stage.producer.url))
    async with caller(stage) as http:
        await decide(stage, http)
        await stage.until(lambda: stage.record()["status"] == "answered")
        assert "Tampered" not in await shell.fine("list", "--all")
        change_row(stage, argument)
        await stage.message(TOLD, FALLBACK)
        shown = await shell.run("show", NAME)
        assert "tampered" in shown.out.lower()
        assert json.loads((await shell.run("show", NAME, "--json")).out)["tampered"] is True
        assert "Tampered" in (await shell.run("list", "--all")).out
        exported = (await shell.run("export")).out.splitlines()
        assert exported
        assert all(json.loads(line)["tampered"] is True for line in exported)
        waited = await shell.run("show", NAME, "--wait")
        assert (waited.code, "changed after it was decided" in waited.err) == (5, True), waited
        assert "tampered" in words(await command(stage, f"show {NAME}")).lower()


async def test_p5_reply_that_was_changed_on_its_way_is_not_sent(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await stage.producer.down()
        await stage.workspace.post(FOLAKE, AGENTS, "as planned", thread_ts=card.ts)
        await stage.until(lambda: stage.record()["aaep"].get("response") == "as planned")
    change_row(stage, lambda record: record["aaep"].update(response="now", label="Now"))
    await stage.producer.up()
    async with stage.bot():
        await stage.message(TOLD, FALLBACK)
    assert stage.producer.replies == []


@pytest.mark.needs("github", "webhooks")
async def test_nobody_outside_hears_of_what_was_changed(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with serving(clock.seconds) as github, receiving() as hook, scene(tmp_path, clock=clock) as stage:
        stage.environ |= {"GITHUB_TOKEN": TOKEN, "HOOK_SECRET": "s3cret-of-the-hook"}
        outside = (
            f'[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n[github]\nrepo = "acme/app"\n'
            f'token_env = "GITHUB_TOKEN"\napi_url = "{github.address}{PREFIX}"\n'
        )
        text = config(stage.producer.url) + outside
        async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            assert (await http.post("/questions", json=PAYMENT | {"issue": 42})).status_code == 201
            card = await stage.card("Send the payment")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")
            await stage.until(lambda: "answered CLR-42-001" in hook.events)
            await clock.until(lambda: "Reject" in "".join(github.bodies(42)))
            heard, mirrored = [*hook.events], github.bodies(42)

            def changed(record: Json) -> None:
                record["status"] = "resolved"
                record["aaep"]["decidedBy"] = "agent:gladly"
                record["thread"][1]["body"] = "Accept: gladly"

            change_row(stage, changed, 42)
            await stage.message("CLR-42-001 was changed after the decision", FALLBACK)
            assert (await http.post("/questions", json={"question": "And?", "issue": 42})).status_code == 201
            await clock.until(lambda: any("And?" in each for each in github.bodies(42)))
        async with stage.bot(text) as bot:
            (hooks,) = bot.integrated.mailers
            await stage.until(lambda: hooks.idle)
        assert not any("gladly" in each for each in github.bodies(42))
        assert [each for each in github.bodies(42) if each in mirrored] == mirrored
        assert [each for each in hook.events if each.endswith("CLR-42-001")] == heard


async def test_p5_callback_of_a_changed_decision_is_not_posted(stage: World) -> None:
    async with receiving() as hook:
        hook.answers = [(-1, {})] * 9  # takes it, and the bot does not hear so
        async with running(stage, table(hook)) as (_, asker):
            await asker.ask(action="Send the payment", arguments={"amount": 100}, callback_url=hook.url)
            card = await stage.card("Send the payment")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
            await stage.until(lambda: hook.got)
        before = len(hook.got)
        change_row(stage, argument)
        async with running(stage, table(hook)) as (bot, _):
            await stage.message(TOLD, FALLBACK)
            await at_rest(bot)
        assert len(hook.got) == before
