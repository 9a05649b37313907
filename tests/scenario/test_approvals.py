"""Consent of one or several people to what an agent is about to do: who counts, for which arguments, as the page shows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.show.desired import CARD_LIMIT
from tests.kit.clocks import LeapClock
from tests.kit.world import World, config, controls, said, scene, url_of
from tests.scenario.other_parties import another_writes, answers
from tests.scenario.prompts import Project
from tests.scenario.test_confirmations import confirm, decided
from tests.scenario.typist import command
from tests.unit.bot.judges import shown as shown_in
from workspace.controls import find
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE, GIO, ONCALL, USE_AS_ANSWER
from workspace.state import Message

MAIL: dict[str, Any] = {
    "action": "Send the newsletter",
    "arguments": {"to": "all@example.com", "count": 1204, "price": 1.0, "test": False, "tags": ["a", "b"]},
    "risk": "high",
}
ROUTED = 'on_call = "platform"\n\n[ledger]'


def routed(stage: World, more: str, **fields: Any) -> str:
    """The configuration with more keys in its route."""
    return config(stage.producer.url, **fields).replace(ROUTED, f'on_call = "platform"\n{more}\n\n[ledger]')


@asynccontextmanager
async def asking(stage: World, text: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield http


async def ask(stage: World, http: httpx.AsyncClient, **fields: Any) -> tuple[dict[str, Any], Message]:
    """Ask for approval; its state, and its card."""
    answer = await http.post("/questions", json=MAIL | fields)
    assert answer.status_code == 201, answer.text
    return answer.json(), await stage.card((MAIL | fields)["action"])


async def look(http: httpx.AsyncClient, asked: dict[str, Any], wait: int = 0) -> dict[str, Any]:
    state: dict[str, Any] = (await http.get(f"/questions/{asked['id']}", params={"wait": wait})).json()
    return state


async def press(stage: World, user: str, card: Message, label: str) -> None:
    assert (await stage.workspace.click(user, AGENTS, card.ts, label=label)).ok


def named(user: str) -> str:
    return f"user:slack/T0LOCAL/{user}"


async def test_two_different_people_accept(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        assert (asked["approvals_needed"], asked["approved_by"]) == (2, [])
        assert "Needs 2 approvals" in card.text
        assert "Needs 2 approvals" in json.dumps(card.blocks)
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "One more person must approve")
        one = await stage.now_says(card, "One more person must approve")
        assert f"<@{FOLAKE}>" in one.text
        assert f"<@{FOLAKE}>" in json.dumps(one.blocks)
        state = await look(http, asked)
        assert (state["status"], state["approved_by"], state["answer"]) == ("waiting", [named(FOLAKE)], None)
        (first,) = stage.record()["aaep"]["approvals"]
        assert {key: first[key] for key in ("team", "user", "decidedBy")} == {
            "team": "T0LOCAL",
            "user": FOLAKE,
            "decidedBy": named(FOLAKE),
        }
        assert first.keys() == {"team", "user", "decidedBy", "at", "digest"}
        assert [each["type"] for each in stage.record()["thread"]] == ["question"]
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "counts once")
        assert (await look(http, asked))["status"] == "waiting"
        await press(stage, ADE, card, "Accept")
        state = await look(http, asked, wait=30)
        assert state["answer"] == {"decision": "accept", "arguments": MAIL["arguments"]}
        assert (state["approved_by"], state["decided_by"]) == ([named(FOLAKE), named(ADE)], named(ADE))
        after = await stage.now_says(card, f"Approved by <@{FOLAKE}> and <@{ADE}>")
        assert controls(after) == ["View full", "Verify"]
        assert [each["type"] for each in stage.record()["thread"]] == ["question", "answer"]


async def test_one_reject_decides_also_of_somebody_who_accepted(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await stage.workspace.post(FOLAKE, AGENTS, "reject: on second thought", card.ts)
        state = await look(http, asked, wait=30)
        assert (state["answer"]["decision"], state["comment"]) == ("reject", "on second thought")
        assert state["approved_by"] == []


@pytest.mark.either_database(always=True)
async def test_accepts_survive_a_restart(stage: World) -> None:
    async with asking(stage) as http:
        _, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
    async with asking(stage) as http:
        await stage.now_says(card, "One more person must approve")
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "counts once")
        await stage.workspace.post(ADE, AGENTS, "accept", card.ts)
        await stage.now_says(card, "Approved by")


@pytest.mark.parametrize("identities", [f'{ADE} = "user:ann"\n{FOLAKE} = "user:ann"\n'])
async def test_two_accounts_of_one_person_count_once(stage: World, identities: str) -> None:
    text = config(stage.producer.url) + f"\n[identities]\n{identities}"
    async with asking(stage, text) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, "counts once")
        assert (await look(http, asked))["approved_by"] == ["user:ann"]


async def test_who_cannot_be_told_apart_now_is_asked_to_try_again(stage: World) -> None:
    async with asking(stage, routed(stage, "", answerers=(ADE, FOLAKE))) as http:
        asked, card = await ask(stage, http, approvals=2)
        stage.workspace.change_user(ADE, real_name="Ade B.")
        await stage.heard("user_change")
        stage.workspace.faults.add("users.info", "refuse:internal_error", times=10)
        stage.slack_waits()
        assert not (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
        await stage.whisper(ADE, "did not say who you are")
        assert (await look(http, asked))["approved_by"] == []
        stage.workspace.faults.clear()
        await press(stage, ADE, card, "Accept")
        await stage.now_says(card, "One more person must approve")


async def test_one_member_of_an_organization_counts_once(stage: World) -> None:
    stage.workspace.join_enterprise("E0ORG", org_wide=False)
    for user in (ADE, FOLAKE):
        stage.workspace.change_user(user, enterprise_id="E0ORG", global_id="W0SAME")
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, "counts once")
        assert (await look(http, asked))["approved_by"] == [named(FOLAKE)]


@pytest.mark.parametrize("how", ["click", "thread", "command"])
async def test_second_account_with_the_same_address_counts_for_nobody_else(stage: World, how: str) -> None:
    stage.workspace.change_user(GIO, email="Ade@Local.example")
    async with asking(stage, routed(stage, "", answerers=(ADE, GIO, FOLAKE))) as http:
        asked, card = await ask(stage, http, approvals=2, arguments={"to": "all"})
        await press(stage, ADE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        match how:
            case "click":
                await press(stage, GIO, card, "Accept")
                await stage.whisper(GIO, "counts once")
            case "thread":
                await stage.workspace.post(GIO, AGENTS, "accept", card.ts)
                await stage.whisper(GIO, "counts once")
            case "command":
                assert "counts once" in (await command(stage, f"answer {asked['id']} accept", GIO)).text
        assert (await look(http, asked))["approved_by"] == [named(ADE)]
        await press(stage, FOLAKE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(ADE), named(FOLAKE)]


async def test_two_accounts_of_one_person_are_too_few_for_two_approvals(stage: World) -> None:
    stage.workspace.change_user(GIO, email="Ade@Local.example")
    async with asking(stage, routed(stage, "approvals = 2", answerers=(ADE, GIO))) as http:
        _, card = await ask(stage, http)
        await stage.now_says(card, "only 1 person could answer")


@pytest.mark.parametrize("how", ["deactivated", "left", "hidden"])
async def test_who_may_no_longer_answer_is_no_approver_any_more(stage: World, how: str) -> None:
    listed = () if how == "left" else (ADE, FOLAKE, ONCALL)
    async with asking(stage, routed(stage, "", **({"answerers": listed} if listed else {}))) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        match how:
            case "deactivated":
                stage.workspace.change_user(FOLAKE, deleted=True)
            case "left":
                stage.workspace.leave(FOLAKE, AGENTS)
                await stage.heard("member_left_channel")
            case "hidden":
                stage.workspace.change_user(FOLAKE, hidden="user_not_found")
        await press(stage, ADE, card, "Accept")
        gone = f"The approval of <@{FOLAKE}> no longer counts, because they can no longer answer this."
        assert gone in (await stage.whisper(ADE, "One more person must approve")).text
        after = await stage.now_says(card, f"Approved by <@{ADE}> (1 of 2)")
        assert gone in after.text
        assert gone in said(after)
        assert (await look(http, asked))["approved_by"] == [named(ADE)]
        await press(stage, ONCALL, card, "Accept")
        state = await look(http, asked, wait=30)
        assert state["approved_by"] == [named(ADE), named(ONCALL)]
        (lapsed,) = stage.record()["aaep"]["lapsed"]
        assert (lapsed["user"], "lapsedAt" in lapsed) == (FOLAKE, True)


async def test_accept_waits_until_slack_says_who_accepted_before(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        stage.workspace.faults.add("users.info", "refuse:internal_error", times=10)
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, "Slack did not say who approved before you")
        assert (await look(http, asked))["approved_by"] == [named(FOLAKE)]
        stage.workspace.faults.clear()
        await press(stage, ADE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE), named(ADE)]


async def test_people_who_accept_at_once_both_count(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await asyncio.gather(*(press(stage, each, card, "Accept") for each in (FOLAKE, ADE)))
        assert {*(await look(http, asked, wait=30))["approved_by"]} == {named(FOLAKE), named(ADE)}


async def test_route_raises_risk_and_people_also_for_confirmations(stage: World) -> None:
    async with asking(stage, routed(stage, 'approvals = {high = 2}\nrisk_at_least = "high"')) as http:
        asked, card = await ask(stage, http, risk="low")
        assert asked["approvals_needed"] == 2
        assert "Risk: high (set by this route; the agent said low)" in said(card)
        card = await confirm(stage, risk_level="medium", irreversible=False)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        assert stage.producer.replies == []
        await press(stage, ADE, card, "Accept")
        assert (await decided(stage))["decided_by"] == named(ADE)


async def test_arguments_are_changed_before_they_are_accepted(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, editable=True)
        await press(stage, FOLAKE, card, "Answer…")
        modal = await stage.modal(FOLAKE)
        assert "are sent as they are" in json.dumps(modal.payload)
        entered = {"Your decision": "Accept", "count": "12", "test": "Yes"}
        assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
        state = await look(http, asked, wait=30)
        arguments = MAIL["arguments"] | {"count": 12, "test": True}
        assert json.dumps(state["answer"]) == json.dumps({"decision": "accept", "arguments": arguments})
        kept = stage.record()["aaep"]
        assert kept["arguments"] == MAIL["arguments"]
        assert kept["edits"][0]["changed"] == {"count": 12, "test": True}
        after = await stage.now_says(card, f"Arguments edited by <@{FOLAKE}>")
        assert controls(after) == ["View full", "Verify"]
        for shown in (after.text, json.dumps(after.blocks, ensure_ascii=False)):
            assert "count: 1204 → 12" in shown
            assert "test: no → yes" in shown


MAIL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "format": "email"},
        "list": {"type": "string", "enum": ["all", "staff", "testers"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 5000},
        "footer": {"type": "object", "properties": {"lines": {"type": "array", "maxItems": 2}}},
    },
    "required": ["to"],
    "additionalProperties": False,
}


async def test_edited_arguments_fit_their_schema(stage: World) -> None:
    sent = {"to": "all@example.com", "list": "all", "count": 1204, "footer": {"lines": []}}
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=sent, arguments_schema=MAIL_SCHEMA, editable=True)
        await press(stage, FOLAKE, card, "Answer…")
        blocks = (await stage.modal(FOLAKE)).payload["blocks"]
        inputs = {each["label"]["text"]: each for each in blocks if each["type"] == "input"}
        options = [each["text"]["text"] for each in inputs["list"]["element"]["options"]]
        assert options == ["all", "staff", "testers"]
        accept = {"Your decision": "Accept", "list": "testers"}
        wrong = accept | {"to": "everybody", "count": "9000", "footer": '{"lines": [1, 2, 3]}'}
        outcome = await stage.workspace.submit_view(FOLAKE, wrong)
        assert {name: outcome.errors.get(each["block_id"]) for name, each in inputs.items()} == {
            "Your decision": None,
            "Reason": None,
            "to": "to: Expected an e-mail address.",
            "list": None,
            "count": "count: Expected a whole number from 1 to 5000.",
            "footer": "footer.lines: The value has more than 2 items.",
        }
        assert (await look(http, asked))["status"] == "waiting"
        right = accept | {"to": "testers@example.com", "count": "9", "footer": '{"lines": [1, 2]}'}
        assert (await stage.workspace.submit_view(FOLAKE, right)).ok
        state = await look(http, asked, wait=30)
        arguments = {"to": "testers@example.com", "list": "testers", "count": 9, "footer": {"lines": [1, 2]}}
        assert json.dumps(state["answer"]) == json.dumps({"decision": "accept", "arguments": arguments})


async def test_redacted_argument_need_not_fit_its_schema(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    schema = {"properties": {"password": {"pattern": "^hunter"}, "n": {"type": "integer", "maximum": 5}}}
    async with asking(stage, config(stage.producer.url) + bare) as http:
        sent = {"password": "hunter2", "n": 1}
        asked, card = await ask(stage, http, arguments=sent, arguments_schema=schema, editable=True)
        await press(stage, FOLAKE, card, "Answer…")
        await stage.modal(FOLAKE)
        assert not (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "n": "6"})).ok
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "n": "2"})).ok
        state = await look(http, asked, wait=30)
        assert state["answer"]["arguments"] == {"password": "[redacted]", "n": 2}


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"n": "1"}, {"properties": {"n": {"type": "integer"}}}, "arguments.n"),
    ({}, {"required": ["n"]}, "arguments.n"),
    (
        {"a": [{"b": 1}]},
        {"properties": {"a": {"items": {"properties": {"b": False}}}}},
        "arguments.a[0].b",
    ),
    ({"a": "a" * 100_000}, {"properties": {"a": {"pattern": "(?!x)(a|aa)+$"}}}, "arguments_schema"),
    ({}, {"properties": {"n": {"type": "whole"}}}, "arguments_schema.properties.n.type"),
    ({}, {"$ref": "https://example.org/schema"}, "arguments_schema"),
    ({}, {"$ref": "#"}, "arguments_schema"),
]


async def test_schema_that_does_not_fit_the_arguments_is_refused(stage: World) -> None:
    async with asking(stage) as http:
        for arguments, schema, field in MISFITS:
            body = MAIL | {"arguments": arguments, "arguments_schema": schema}
            answer = await http.post("/questions", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field)


@pytest.mark.either_database(always=True)
async def test_change_lapses_accepts_and_refuses_those_of_the_older_version(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, editable=True, approvals=2)
        await press(stage, ADE, card, "Answer…")  # of the version that is changed meanwhile
        await stage.modal(ADE)
        await press(stage, FOLAKE, card, "Accept")
        first = deepcopy(await stage.now_says(card, f"Approved by <@{FOLAKE}>"))
        await press(stage, ONCALL, card, "Answer…")
        await stage.modal(ONCALL)
        assert (
            await stage.workspace.submit_view(ONCALL, {"Your decision": "Accept", "to": "me@example.com"})
        ).ok
        changed = await stage.now_says(card, f"Arguments edited by <@{ONCALL}>")
        for shown in (changed.text, json.dumps(changed.blocks, ensure_ascii=False)):
            assert "to: all@example.com → me@example.com" in shown
            assert f"Approved by <@{ONCALL}> (1 of 2)" in shown
        assert (await look(http, asked))["approved_by"] == [named(ONCALL)]
        await stage.workspace.submit_view(ADE, {"Your decision": "Accept", "count": "7"})
        assert "arguments have changed" in json.dumps((await stage.modal(ADE)).payload)
        control = find(first.blocks, "Accept", kinds={"button"})
        await stage.workspace.interactions.press(FOLAKE, first, control)
        await stage.whisper(FOLAKE, "arguments have changed")
        assert (await look(http, asked))["approved_by"] == [named(ONCALL)]
        await press(stage, FOLAKE, changed, "Answer…")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept"})).ok
        state = await look(http, asked, wait=30)
        assert state["answer"]["arguments"] == MAIL["arguments"] | {"to": "me@example.com"}
        assert state["approved_by"] == [named(ONCALL), named(FOLAKE)]


async def test_accept_typed_anywhere_counts_for_nothing_that_was_changed(stage: World) -> None:
    """Words name no version: whoever types `accept` may have seen the arguments before they were changed."""
    refused = "were changed"
    async with asking(stage) as http:
        asked, card = await ask(stage, http, editable=True, approvals=2)
        name = asked["id"]
        await press(stage, ONCALL, card, "Answer…")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, {"Your decision": "Accept", "count": "100000"})).ok
        await stage.now_says(card, "count: 1204 → 100000")
        await stage.workspace.post(FOLAKE, AGENTS, "accept", card.ts)
        told = await stage.whisper(FOLAKE, refused)
        assert "click Accept on its newest card" in told.text
        assert refused in (await command(stage, f"answer {name} accept", FOLAKE)).text
        await stage.workspace.post(ADE, AGENTS, f"<@{stage.workspace.state.app.bot_user}> accept", card.ts)
        await stage.whisper(ADE, refused)
        note = await stage.workspace.post(ADE, AGENTS, "note: accept", card.ts)
        before = len(stage.workspace.ephemerals(FOLAKE))
        assert (await stage.workspace.shortcut(FOLAKE, USE_AS_ANSWER, note.ts, AGENTS)).ok
        await stage.until(
            lambda: refused in "".join(each.text for each in stage.workspace.ephemerals(FOLAKE)[before:])
        )
        state = await look(http, asked)
        assert (state["status"], state["approved_by"]) == ("waiting", [named(ONCALL)])
        await stage.workspace.post(FOLAKE, AGENTS, "reject: too many", card.ts)
        assert (await look(http, asked, wait=30))["answer"]["decision"] == "reject"


async def test_more_than_the_word_is_no_accept_and_is_said_to_its_author(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http)
        for text in ("looks fine to me", "accept, please"):
            await stage.workspace.post(FOLAKE, AGENTS, text, card.ts)
        await stage.whisper(FOLAKE, "If you mean accept, reply with just accept")
        assert (await look(http, asked))["status"] == "waiting"


async def test_accept_typed_below_a_roll_up_is_refused_as_nobody_saw_the_arguments(stage: World) -> None:
    async with asking(stage) as http:
        for n in range(CARD_LIMIT + 1):
            assert (
                await http.post("/questions", json=MAIL | {"action": f"Send number {n}"})
            ).status_code == 201
        shown = await stage.message("1 open question.")
        cards = await stage.until(
            lambda: (
                len(found := [m for m in stage.cards() if "Accept" in controls(m)]) == CARD_LIMIT and found
            )
        )
        await stage.level()
        await stage.workspace.post(FOLAKE, AGENTS, "accept", shown.ts)
        await stage.whisper(FOLAKE, "you may not have seen all of it")
        await stage.workspace.post(FOLAKE, AGENTS, "accept", cards[0].ts)
        await stage.now_says(cards[0], "Approved by")
        states = [stage.record(100001 + n)["status"] for n in range(CARD_LIMIT + 1)]
        assert sum(each in {"answered", "resolved"} for each in states) == 1


@pytest.mark.parametrize("where", ["thread", "command", "page"])
async def test_accept_typed_without_seeing_all_is_refused_and_a_reject_counts(
    stage: World, where: str
) -> None:
    script = "\n".join(f"step {n}" for n in range(30))
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments={"command": script})
        assert "View full" in controls(card)

        async def type_(text: str) -> None:
            if where == "thread":
                await stage.workspace.post(FOLAKE, AGENTS, text, card.ts)
            elif where == "command":
                await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"answer {asked['id']} {text}")
            else:
                await stage.workspace.post(ONCALL, page.channel, text, page.ts)

        if where == "page":
            await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"escalate {asked['id']}")
            page = await stage.page(asked["id"])
        await type_("accept")
        await stage.whisper(ONCALL if where == "page" else FOLAKE, "you may not have seen all of it")
        assert (await look(http, asked))["status"] == "waiting"
        await type_("reject")
        assert (await look(http, asked, wait=30))["answer"]["decision"] == "reject"


async def test_what_does_not_fit_gets_an_error_at_its_field(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, editable=True)
        for field, entered, told in (
            ("tags", '["a", ', "not JSON"),
            ("tags", "7", "a list in brackets"),
            ("count", "many", "a number"),
            ("to", "", "required"),
            ("to", "  \n", "can't be empty"),
            ("tags", "", "required"),
            ("count", "", "required"),
        ):
            await press(stage, FOLAKE, card, "Answer…")
            await stage.modal(FOLAKE)
            refused = await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", field: entered})
            assert not refused.ok
            assert [told in each for each in refused.errors.values()] == [True], (field, entered)
            await stage.workspace.close_view(FOLAKE, everything=True)
        assert (await look(http, asked))["status"] == "waiting"


async def test_shell_counts_for_one_and_never_towards_a_second(stage: World) -> None:
    text = config(stage.producer.url) + "[shell]\nconsent = true\n"
    async with asking(stage, text) as http:
        asked, card = await ask(stage, http, approvals=2)
        shell = Project.beside(stage, text)
        assert (await shell.run("answer", asked["id"], "accept", "--yes")).code == 4
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        assert (await shell.run("answer", asked["id"], "accept", "--yes")).code == 4
        assert (await shell.run("resolve", asked["id"], "reject")).code != 0
        shown = await shell.fine("show", asked["id"])
        assert all(words in shown for words in ("One more person must approve", "count: 1204"))
        assert (await look(http, asked))["approved_by"] == [named(FOLAKE)]
        single, _ = await ask(stage, http, action="Send it to one")
        await shell.fine("answer", single["id"], "accept", "--yes")
        assert (await look(http, single, wait=30))["decided_by"].startswith("user:os/")


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("kind", ["entry", "fields", "taken"])
async def test_other_writers_never_accept(stage: World, kind: str) -> None:
    def fields(record: dict[str, Any]) -> None:
        forged = {
            "response": "accept",
            "label": "Accept",
            "decidedBy": named(ADE),
            "answeredAt": record["created"],
        }
        forged["answeredBy"] = {"surface": "slack", "team": "T0LOCAL", "user": ADE}
        answers("accept", role=named(ADE))(record)
        record["status"] = "resolved" if kind == "taken" else "answered"
        record["aaep"] |= forged | {"reply": "confirmed" if kind == "taken" else "waiting"}

    async with asking(stage) as http:
        asked, card = await ask(stage, http)
        waiting = asyncio.create_task(look(http, asked, wait=30))
        await another_writes(stage, answers("accept") if kind == "entry" else fields)
        assert (await look(http, asked))["status"] == "waiting"
        told = "Not accepted" if kind == "entry" else f"{asked['id']} was changed by another program"
        await stage.message(told, AGENTS if kind == "entry" else FALLBACK)
        await press(stage, FOLAKE, card, "Accept")
        state = await waiting
        assert (state["status"], state["decided_by"]) == ("answered", named(FOLAKE))


@pytest.mark.needs("ledgerfiles")
async def test_accept_that_another_writer_puts_beside_the_others_counts_for_nobody(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")

        def forge(record: dict[str, Any]) -> None:
            (first,) = record["aaep"]["approvals"]
            record["aaep"]["approvals"] = [first | {"user": ONCALL, "decidedBy": named(ONCALL)}]

        await another_writes(stage, forge)
        await stage.message(f"{asked['id']} was changed by another program", FALLBACK)
        await press(stage, ADE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE), named(ADE)]


async def test_too_few_who_may_answer_are_told_to_on_call_at_once(stage: World) -> None:
    async with asking(stage, routed(stage, "approvals = 2", answerers=(FOLAKE,))) as http:
        asked, card = await ask(stage, http)
        page = await stage.message("is waiting")
        told = "This needs 2 approvals, but only 1 person could answer when it was asked"
        shown = await stage.now_says(card, told)
        for text in (shown.text, json.dumps(shown.blocks), page.text, json.dumps(page.blocks)):
            assert told in text
        assert (await look(http, asked))["escalated"]
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await press(stage, ONCALL, page, "Accept")  # who is paged may answer
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE), named(ONCALL)]


async def test_too_few_who_may_answer_page_nobody_where_nobody_is_to_be_paged(stage: World) -> None:
    async with asking(stage, routed(stage, "", answerers=(FOLAKE,))) as http:
        asked, card = await ask(stage, http, approvals=3, escalate=False)
        await stage.now_says(card, "only 1 person could answer")
        assert not (await look(http, asked))["escalated"]


async def test_page_says_how_many_are_missing(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await command(stage, f"escalate {asked['id']}")
        page = await stage.message("is waiting")
        for shown in (page.text, json.dumps(page.blocks)):
            assert "(1 of 2). One more person must approve" in shown


async def test_reminder_says_how_many_are_missing_and_expiry_is_never_consent(tmp_path: Path) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage, asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2, timeout=7200, default="reject")
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        clock.leap(timedelta(minutes=31))
        reminder = await stage.message("still waiting")
        assert "One more person must approve (1 of 2 so far)" in said(reminder)
        clock.leap(timedelta(hours=2))
        await stage.now_says(card, "Expired")
        state = await look(http, asked)
        assert (state["status"], state["answer"], state["default"]) == ("expired", None, "reject")


async def test_workspace_without_tables_and_containers_gets_text_and_decides_on_it(stage: World) -> None:
    context = stage.workspace.context
    context.options = replace(context.options, without_blocks=frozenset({"table", "container", "alert"}))
    arguments = {"list": "customers", "count": 12, "command": "\n".join(f"send {n}" for n in range(60))}
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=arguments, risk="high")
        assert {block["type"] for block in card.blocks} <= {
            "header",
            "rich_text",
            "section",
            "context",
            "actions",
        }
        assert "list: customers\ncount: 12" in shown_in(card.blocks)
        assert "View full" in controls(card)
        await press(stage, FOLAKE, card, "Accept")
        assert "send 30" in json.dumps((await stage.modal(FOLAKE)).payload)
        assert (await stage.workspace.submit_view(FOLAKE, {})).ok
        await stage.now_says(card, f"Approved by <@{FOLAKE}>")
        assert (await look(http, asked))["answer"]["decision"] == "accept"


async def test_arguments_look_like_what_they_are(stage: World) -> None:
    arguments = {
        "command": "rm -rf build && echo <@U1> *done*",
        "file_path": "app/main.py",
        "old_string": "a = 1\nb = 2",
        "new_string": "a = 1\nb = 3",
        "query": "SELECT *\nFROM orders",
        "options": {"deep": [{"x": 1}, "two\nrisk: low"]},
        "long": "\n".join(f"line {n}" for n in range(400)),
    }
    async with asking(stage) as http:
        _, card = await ask(stage, http, arguments=arguments)
        codes = [
            element["elements"][0]["text"]
            for block in card.blocks
            if block["type"] == "rich_text"
            for element in block["elements"]
            if element["type"] == "rich_text_preformatted"
        ]
        assert codes[0] == "rm -rf build && echo <@U1> *done*"
        assert "-b = 2\n+b = 3" in codes[1]
        assert codes[2:] == ["a = 1\nb = 2", "a = 1\nb = 3", "SELECT *\nFROM orders"]
        assert "rm -rf build &amp;&amp; echo &lt;@U1&gt;" in card.text
        assert "    - two\n" not in card.text
        assert "│ risk: low" in card.text
        assert "View full" in controls(card)
        await press(stage, FOLAKE, card, "View full")
        assert "line 399" in json.dumps((await stage.modal(FOLAKE)).payload)


LONG = {"command": "\n".join(f"line {n}" for n in range(160)), "count": 1204}
HIDDEN_COMMAND = "ls" + " " * 3000 + "\n" * 400 + "rm -rf ~"


async def test_who_has_approved_hears_so_before_reading_all_of_it_again(stage: World) -> None:
    async with asking(stage) as http:
        _, card = await ask(stage, http, arguments=LONG, approvals=2)
        await press(stage, FOLAKE, card, "Accept")
        assert "You have approved this" not in json.dumps((await stage.modal(FOLAKE)).payload)
        await stage.workspace.submit_view(FOLAKE, {})
        await stage.now_says(card, "1 of 2")
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "counts once: one more person must approve")
        assert stage.workspace.views(FOLAKE) == []
        await press(stage, FOLAKE, card, "Answer…")
        first = (await stage.modal(FOLAKE)).payload["blocks"][0]
        assert first["text"]["text"].startswith("You have approved this.")
        await stage.workspace.close_view(FOLAKE)
        await press(stage, ADE, card, "Answer…")
        assert "You have approved this" not in json.dumps((await stage.modal(ADE)).payload)


async def test_card_that_leaves_out_arguments_is_accepted_where_all_of_them_are_shown(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=LONG)
        told = said(card)
        for seen in ("line 0", "line 159", "150 more lines", "Click Accept to see all of it"):
            assert seen in told
        await press(stage, FOLAKE, card, "Accept")
        modal = await stage.modal(FOLAKE)
        whole = json.dumps(modal.payload)
        assert all(f"line {n}" in whole for n in range(160))
        assert modal.payload["submit"]["text"] == "Accept"
        assert (await look(http, asked))["status"] == "waiting"
        await stage.workspace.close_view(FOLAKE)
        assert (await look(http, asked))["status"] == "waiting"
        await press(stage, FOLAKE, card, "Accept")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {})).ok
        state = await look(http, asked, wait=30)
        assert state["answer"] == {"decision": "accept", "arguments": LONG}
        assert state["decided_by"] == named(FOLAKE)


async def test_arguments_of_many_pages_are_read_to_their_end_before_they_are_accepted(stage: World) -> None:
    arguments = {"body": "\u200b\u200c" * 20_000 + "END"}

    def on_top(words: str) -> bool:
        return words in json.dumps(stage.workspace.views(FOLAKE)[-1].payload)

    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=arguments)
        await press(stage, FOLAKE, card, "Accept")
        first = await stage.modal(FOLAKE)
        assert on_top("Page 1 of 2")
        assert "submit" not in first.payload
        assert (await stage.workspace.click_in_view(FOLAKE, label="Next")).ok
        await stage.until(lambda: on_top("Page 2 of 2"))
        assert on_top("END")
        assert (await stage.workspace.submit_view(FOLAKE, {})).ok
        assert (await look(http, asked, wait=30))["answer"] == {"decision": "accept", "arguments": arguments}


async def test_what_was_shown_whole_is_not_accepted_once_it_has_changed(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=LONG, editable=True, approvals=2)
        first = deepcopy(card)
        await press(stage, ADE, card, "Accept")
        await stage.modal(ADE)
        await press(stage, FOLAKE, card, "Answer…")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "count": "7"})).ok
        await stage.now_says(card, "count: 1204 → 7")
        await stage.workspace.submit_view(ADE, {})
        assert "arguments have changed" in json.dumps((await stage.modal(ADE)).payload)
        await stage.workspace.close_view(ADE)
        control = find(first.blocks, "Accept", kinds={"button"})
        await stage.workspace.interactions.press(ADE, first, control)
        await stage.whisper(ADE, "arguments have changed")
        assert not stage.workspace.views(ADE)
        assert (await look(http, asked))["approved_by"] == [named(FOLAKE)]


async def test_accept_on_a_card_of_a_release_before_shows_all_of_it_first(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=LONG)
        older = deepcopy(card)
        control = find(older.blocks, "Accept", kinds={"button"})
        value = control.element["value"]
        control.element["value"] = value.replace("|review|", "|accept|").replace("|1.", "|")
        assert control.element["value"] != value
        await stage.workspace.interactions.press(FOLAKE, older, control)
        modal = await stage.modal(FOLAKE)
        assert "line 80" in json.dumps(modal.payload)
        assert (await look(http, asked))["status"] == "waiting"


async def test_page_that_leaves_out_arguments_is_accepted_where_all_of_them_are_shown(stage: World) -> None:
    async with asking(stage) as http:
        asked, _ = await ask(stage, http, arguments=LONG)
        await command(stage, f"escalate {asked['id']}")
        page = await stage.message("is waiting")
        assert "Click Accept to see all of it" in said(page)
        await press(stage, ONCALL, page, "Accept")
        assert "line 80" in json.dumps((await stage.modal(ONCALL)).payload)
        assert (await look(http, asked))["status"] == "waiting"
        assert (await stage.workspace.submit_view(ONCALL, {})).ok
        assert (await look(http, asked, wait=30))["decided_by"] == named(ONCALL)


async def test_what_hides_in_a_command_shows_wherever_it_is_decided(stage: World) -> None:
    arguments = {
        "command": HIDDEN_COMMAND,
        "dry_run": "no",
        "force": False,
        "note": "a\u200bb\u3164\U000e0041",
    }
    async with asking(stage) as http:
        asked, card = await ask(stage, http, arguments=arguments, editable=True)
        shown = str(card.blocks)
        shell = Project.beside(stage, config(stage.producer.url))
        page = await shell.fine("show", asked["id"])
        for told in (shown, card.text.replace("&lt;", "<").replace("&gt;", ">"), page):
            assert "⟨3000 spaces⟩" in told
            assert "⟨400 line breaks⟩" in told
            assert "rm -rf ~" in told
            assert "a<U+200B>b<U+3164><U+E0041>" in told
            if told is not shown:
                assert 'dry_run: "no"' in told
                assert "force: no" in told
        assert 'dry_run: "no"\nforce: no' in shown_in(card.blocks)
        await press(stage, FOLAKE, card, "Answer…")
        modal = await stage.modal(FOLAKE)
        assert "400 line breaks" in json.dumps(modal.payload)
        entered = {"Your decision": "Accept", "dry_run": "no\x01"}
        assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
        after = await stage.now_says(card, f"Arguments edited by <@{FOLAKE}>")
        for told in (after.text, str(after.blocks)):
            assert r'dry_run: "no" → "no\x01"' in told.replace("\\\\", "\\")


async def test_arguments_that_do_not_fit_do_not_fill_the_thread(stage: World) -> None:
    mail = "\n".join(f"mail {n}" for n in range(2000))
    async with asking(stage) as http:
        await ask(stage, http, arguments={"body": mail}, session="s")
        question = {"question": "Which one? " + "word " * 1500 + "END", "session": "s"}
        assert (await http.post("/questions", json=question)).status_code == 201
        await stage.until(lambda: any("END" in m.text for m in stage.workspace.messages(AGENTS)))
        told = [each for each in stage.workspace.messages(AGENTS) if "mail 1" in said(each)]
        assert [each.ts for each in told] == [stage.cards()[0].ts]
