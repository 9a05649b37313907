"""Four eyes (`[[routes]] four_eyes`): whoever the agent works for does not count as an approver."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.world import World, controls, said
from tests.scenario.prompts import Project
from tests.scenario.test_approvals import LONG, MAIL, ask, asking, look, named, press, routed
from tests.scenario.test_confirmations import confirm
from tests.scenario.test_home import home
from tests.scenario.test_mcp import called
from tests.scenario.test_questions import Asker
from tests.scenario.typist import command
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL

OWN = "the agent works for you"
MAY_NOT = f"<@{ADE}> can't approve this, because the agent works for them."
EMAIL = "Ade@Example.com"


def eyed(stage: World, rule: str = "four_eyes = true", requester: str = ADE, **fields: Any) -> str:
    """A route with this rule, and a producer whose agents work for `requester`."""
    producer = f'\n[[producers]]\nname = "deployer"\nrequested_by = "{requester}"\n'
    return routed(stage, rule, **fields) + producer


async def test_whoever_the_agent_works_for_does_not_approve(stage: World) -> None:
    async with asking(stage, eyed(stage)) as http:
        asked, card = await ask(stage, http)
        assert MAY_NOT in said(card)
        assert MAY_NOT in card.text
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, OWN)
        assert (await look(http, asked))["status"] == "waiting"
        await press(stage, FOLAKE, card, "Accept")
        state = await look(http, asked, wait=30)
        assert (state["answer"]["decision"], state["approved_by"]) == ("accept", [named(FOLAKE)])
        record = stage.record()["aaep"]
        assert (record["requestedBy"], record["fourEyes"]) == ({"by": ADE, "pinned": True}, "pinned")


async def test_they_may_reject(stage: World) -> None:
    async with asking(stage, eyed(stage)) as http:
        asked, card = await ask(stage, http)
        await press(stage, ADE, card, "Reject")
        state = await look(http, asked, wait=30)
        assert (state["answer"]["decision"], state["decided_by"]) == ("reject", named(ADE))


async def test_they_are_refused_wherever_they_accept(stage: World) -> None:
    text = eyed(stage)
    async with asking(stage, text) as http:
        asked, card = await ask(stage, http, arguments=LONG)
        await press(stage, ADE, card, "Accept")  # would open all of it
        await stage.whisper(ADE, OWN)
        assert not stage.workspace.views(ADE)
        stage.workspace.state.ephemerals.clear()
        short, small = await ask(stage, http, action="Send it", arguments={})
        await stage.workspace.post(ADE, AGENTS, "accept", small.ts)
        await stage.whisper(ADE, OWN)
        assert OWN in (await command(stage, f"answer {short['id']} accept", ADE)).text
        await stage.workspace.open_home(ADE)
        await home(stage, ADE, "Answer…")
        assert (await stage.workspace.press_home(ADE, f"Answer {short['id']}")).ok
        await stage.modal(ADE)
        await stage.workspace.submit_view(ADE, {"Your decision": "Accept"})
        assert OWN in json.dumps((await stage.modal(ADE)).payload)
        await stage.workspace.close_view(ADE)
        for each in (asked, short):
            assert (await look(http, each))["status"] == "waiting"


async def test_page_does_not_let_them_either(stage: World) -> None:
    async with asking(stage, eyed(stage, requester=ONCALL)) as http:
        asked, _ = await ask(stage, http)
        await command(stage, f"escalate {asked['id']}")
        page = await stage.message("is waiting")
        assert f"<@{ONCALL}> can't approve this" in said(page)
        await press(stage, ONCALL, page, "Accept")
        await stage.whisper(ONCALL, OWN)
        assert (await look(http, asked))["status"] == "waiting"


async def test_two_approvals_are_two_people_besides_them(stage: World) -> None:
    async with asking(stage, eyed(stage, "four_eyes = true\napprovals = {high = 2}")) as http:
        asked, card = await ask(stage, http)
        for user in (ADE, FOLAKE, ADE):
            await press(stage, user, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        assert (await look(http, asked))["status"] == "waiting"
        await press(stage, ONCALL, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE), named(ONCALL)]


async def test_they_are_known_by_their_address(stage: World) -> None:
    stage.workspace.change_user(ADE, email="ade@example.com")
    stage.workspace.change_user(FOLAKE, email="folake@example.com")
    async with asking(stage, eyed(stage, requester=EMAIL)) as http:
        asked, card = await ask(stage, http)
        assert f"{EMAIL} can't approve this" in said(card)
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, OWN)
        await press(stage, FOLAKE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE)]


async def test_other_account_of_an_organization_is_theirs_too(stage: World) -> None:
    stage.workspace.join_enterprise("E0ORG", org_wide=False)
    for user in (ADE, FOLAKE):
        stage.workspace.change_user(user, enterprise_id="E0ORG", global_id="W0SAME")
    async with asking(stage, eyed(stage)) as http:
        asked, card = await ask(stage, http)
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, OWN)
        assert (await look(http, asked))["status"] == "waiting"


async def test_who_cannot_be_told_apart_now_tries_again_and_may_reject(stage: World) -> None:
    async with asking(stage, eyed(stage, answerers=(ADE, FOLAKE))) as http:
        asked, card = await ask(stage, http)
        for user in (ADE, FOLAKE):
            stage.workspace.change_user(user, real_name="Someone")
        await stage.heard("user_change")
        stage.workspace.faults.add("users.info", "refuse:internal_error", times=10)
        stage.slack_waits()
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "did not say who you are")
        assert (await look(http, asked))["status"] == "waiting"
        await press(stage, FOLAKE, card, "Reject")
        assert (await look(http, asked, wait=30))["answer"]["decision"] == "reject"


async def test_claim_is_shown_and_counts_only_where_the_route_says_so(stage: World) -> None:
    asked_for = f"Asked for <@{ADE}>, says the agent."
    async with asking(stage, routed(stage, "")) as http:
        asked, card = await ask(stage, http, requested_by=ADE)
        assert asked_for in said(card)
        assert "can't approve" not in said(card)
        await press(stage, ADE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(ADE)]
    async with asking(stage, routed(stage, "four_eyes = {claimed = true}")) as http:
        asked, card = await ask(stage, http, action="Send more", requested_by=ADE)
        assert asked_for in said(card)
        assert MAY_NOT in said(card)
        await press(stage, ADE, card, "Accept")
        await stage.whisper(ADE, OWN)
        problem = await Asker(http).ask(**MAIL, status=422)
        assert (problem["field"], "is required" in problem["message"]) == ("requested_by", True)


async def test_call_for_another_person_does_not_get_what_this_one_asked(stage: World) -> None:
    async with asking(stage, routed(stage, "four_eyes = {claimed = true}")) as http:
        asked, card = await ask(stage, http, key="k", requested_by=ADE)
        assert (await Asker(http).ask(**MAIL, key="k", requested_by=ADE, status=200))["id"] == asked["id"]
        await press(stage, FOLAKE, card, "Accept")
        assert (await look(http, asked, wait=30))["approved_by"] == [named(FOLAKE)]
        for other in ({"requested_by": FOLAKE}, {}):
            refused = await Asker(http).ask(**MAIL, key="k", **other, status=409)
            assert refused["error"] == "KEY_REUSED"
        async with called("http", "2026-07-28", str(http.base_url).rstrip("/")) as caller:
            calls = [
                await caller.call("ask_approval", **MAIL, session="s", requested_by=each, wait=0)
                for each in (ADE, FOLAKE, FOLAKE)
            ]
        assert [each["id"] == calls[1]["id"] for each in calls] == [False, True, True]


async def test_what_is_pinned_beats_a_claim(stage: World) -> None:
    async with asking(stage, eyed(stage, "four_eyes = {claimed = true}")) as http:
        _, card = await ask(stage, http, requested_by=FOLAKE)
        assert MAY_NOT in said(card)
        assert FOLAKE not in said(card)


@pytest.mark.parametrize(
    ("rule", "fields", "field"),
    [
        ("four_eyes = true", {}, "requested_by"),
        ("four_eyes = true", {"requested_by": ADE}, "requested_by"),
        ('four_eyes = {risk = "high"}', {}, "requested_by"),
        ('four_eyes = {risk = "high"}', {"risk": "medium"}, None),
        ('four_eyes = {risk = "high"}\nrisk_at_least = "high"', {"risk": "low"}, "requested_by"),
        ("four_eyes = {claimed = true}", {"requested_by": "ade@example.com", "to": EMAIL}, "to"),
        ("four_eyes = {claimed = true}", {"requested_by": "ade"}, "requested_by"),
        ("four_eyes = false", {}, None),
    ],
)
async def test_what_no_one_could_approve_is_refused(
    stage: World, rule: str, fields: dict[str, Any], field: str | None
) -> None:
    async with asking(stage, routed(stage, rule)) as http:
        answer = await http.post("/questions", json=MAIL | fields)
        assert (answer.status_code, answer.json().get("field")) == (422 if field else 201, field)
        assert (await http.post("/questions", json={"question": "Which one?"})).status_code == 201


async def test_key_finds_the_question_whoever_it_is_asked_for(stage: World) -> None:
    async with asking(stage, routed(stage, "")) as http:
        first = await Asker(http).ask(question="Which one?", key="k", requested_by=ADE)
        again = await http.post("/questions", json={"question": "Which one?", "key": "k"})
        assert (again.status_code, again.json()["id"]) == (200, first["id"])


async def test_event_of_an_unpinned_producer_is_shown_but_not_approved(stage: World) -> None:
    async with asking(stage, routed(stage, "four_eyes = true")):
        card = await confirm(stage)
        assert "No one can approve this" in said(card)
        await press(stage, FOLAKE, card, "Accept")
        await stage.whisper(FOLAKE, "No one can approve")
        await stage.now_says(card, "but no one could answer when it was asked")
        assert stage.record()["status"] == "escalated"
        await press(stage, FOLAKE, card, "Reject")
        assert (await stage.reply())["decision"] == "reject"


async def test_too_few_people_besides_them_pages_at_once(stage: World) -> None:
    async with asking(stage, eyed(stage, answerers=(ADE,))) as http:
        await ask(stage, http)
        page = await stage.message("is waiting")
        words = "1 approval by people other than the one the agent works for, but no one could answer"
        assert words in said(page)


async def test_shell_never_accepts_under_four_eyes(stage: World) -> None:
    text = eyed(stage) + "\n[shell]\nconsent = true\n"
    async with asking(stage, text) as http:
        asked, card = await ask(stage, http)
        assert "Accept" in controls(card)
        shell = Project.beside(stage, text)
        assert f"{ADE} can't approve this" in await shell.fine("show", asked["id"])
        assert (await shell.run("answer", asked["id"], "accept", "--yes")).code == 4
        assert (await look(http, asked))["status"] == "waiting"
        await shell.fine("answer", asked["id"], "reject")
