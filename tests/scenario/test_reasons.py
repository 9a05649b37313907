"""Approvals that want a reason (`[[routes]] reason`): in the window, typed, on the page, from Home and from the shell."""

from __future__ import annotations

import json

import pytest

from tests.kit.world import World, controls, said
from tests.scenario.prompts import Project
from tests.scenario.test_approvals import LONG, ask, asking, look, named, press, routed
from tests.scenario.test_confirmations import confirm
from tests.scenario.test_home import home
from tests.scenario.typist import command
from workspace.controls import controls as controls_of
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL, USE_AS_ANSWER
from workspace.state import Message

BECAUSE = "Marketing signed it off"
WANTED = 'reason = "high"'


async def accept_in_window(stage: World, user: str, card: Message, reason: str) -> bool:
    """Click Accept, give a reason in the window that opens, and send it."""
    await press(stage, user, card, "Accept")
    await stage.modal(user)
    return (await stage.workspace.submit_view(user, {"Reason": reason})).ok


async def test_accept_opens_a_window_that_wants_a_reason(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, card = await ask(stage, http)
        assert not await accept_in_window(stage, FOLAKE, card, "  fine      ")
        for no_words in (":white_check_mark: ok", "ok..........", "@folake_adeyemi", "\u200b" * 12):
            assert not (await stage.workspace.submit_view(FOLAKE, {"Reason": no_words})).ok
            assert "at least 10 characters, in words" in json.dumps(stage.workspace.views(FOLAKE)[-1].errors)
        assert (await look(http, asked))["status"] == "waiting"
        assert (await stage.workspace.submit_view(FOLAKE, {"Reason": BECAUSE})).ok
        state = await look(http, asked, wait=30)
        assert (state["answer"]["decision"], state["comment"]) == ("accept", BECAUSE)
        after = await stage.now_says(card, "Approved by")
        assert BECAUSE in json.dumps(after.blocks)
        shell = Project.beside(stage, routed(stage, WANTED))
        assert BECAUSE in await shell.fine("show", asked["id"])


@pytest.mark.parametrize(
    ("wanted", "risk", "opens"),
    [
        ('reason = "high"', "medium", False),
        ('reason = "high"\nrisk_at_least = "high"', "low", True),
        ('reason = "always"', "low", True),
        ("", "high", False),
    ],
)
async def test_which_risk_wants_a_reason(stage: World, wanted: str, risk: str, *, opens: bool) -> None:
    async with asking(stage, routed(stage, wanted)) as http:
        asked, card = await ask(stage, http, risk=risk)
        await press(stage, FOLAKE, card, "Accept")
        if opens:
            window = await stage.modal(FOLAKE)
            assert [each.block_id for each in controls_of(window.payload["blocks"]) if each.is_input] == [
                "answer.rationale"
            ]
        else:
            assert (await look(http, asked, wait=30))["status"] == "answered"


async def test_reject_stays_one_click(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, card = await ask(stage, http)
        await press(stage, FOLAKE, card, "Reject")
        state = await look(http, asked, wait=30)
        assert (state["answer"]["decision"], state["comment"]) == ("reject", None)


async def test_typed_accept_says_why(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, card = await ask(stage, http)
        assert "accept: and your reason" in said(card)
        for bare in ("accept", "accept: ok", "accept: ok :white_check_mark:", "accept: ok.........."):
            await stage.workspace.post(FOLAKE, AGENTS, bare, card.ts)
            await stage.whisper(FOLAKE, "give a reason of at least 10 characters")
            stage.workspace.state.ephemerals.clear()
        for bare in ("accept", "accept: ok :white_check_mark:"):
            told = await command(stage, f"answer {asked['id']} {bare}", FOLAKE)
            assert "give a reason of at least 10 characters" in told.text
        told = await command(stage, f"answer {asked['id']} accept: ok @folake_adeyemi", FOLAKE)
        assert "An accept that mentions someone doesn't count" in told.text
        message = await stage.workspace.post(ADE, AGENTS, "note: accept: ok :tada: :tada:", card.ts)
        assert (await stage.workspace.shortcut(FOLAKE, USE_AS_ANSWER, message.ts, AGENTS)).ok
        await stage.whisper(FOLAKE, "give a reason of at least 10 characters, in words")
        stage.workspace.state.ephemerals.clear()
        await stage.workspace.post(FOLAKE, AGENTS, "accept :white_check_mark:", card.ts)
        await stage.whisper(FOLAKE, "accept: and your reason")
        assert (await look(http, asked))["status"] == "waiting"
        await stage.workspace.post(FOLAKE, AGENTS, f"accept: {BECAUSE}", card.ts)
        assert (await look(http, asked, wait=30))["comment"] == BECAUSE


async def test_command_accepts_with_a_reason(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, _ = await ask(stage, http)
        await command(stage, f"answer {asked['id']} accept: {BECAUSE}", FOLAKE)
        assert (await look(http, asked, wait=30))["comment"] == BECAUSE


async def test_page_and_home_want_the_reason_too(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, _ = await ask(stage, http)
        await command(stage, f"escalate {asked['id']}")
        page = await stage.message("is waiting")
        await press(stage, ONCALL, page, "Accept")
        assert (await stage.modal(ONCALL)).payload["submit"]["text"] == "Accept"
        assert (await look(http, asked))["status"] == "waiting"
        await stage.workspace.open_home(ONCALL)
        await home(stage, ONCALL, "Answer…")
        await stage.workspace.close_view(ONCALL)
        assert (await stage.workspace.press_home(ONCALL, "Answer…")).ok
        await stage.modal(ONCALL)
        outcome = await stage.workspace.submit_view(ONCALL, {"Your decision": "Accept"})
        assert "at least 10 characters" in json.dumps(outcome.errors)
        entered = {"Your decision": "Accept", "Reason": BECAUSE}
        assert (await stage.workspace.submit_view(ONCALL, entered)).ok
        state = await look(http, asked, wait=30)
        assert (state["decided_by"], state["comment"]) == (named(ONCALL), BECAUSE)


async def test_each_of_two_people_says_why(stage: World) -> None:
    async with asking(stage, routed(stage, WANTED)) as http:
        asked, card = await ask(stage, http, approvals=2, arguments=LONG)
        assert await accept_in_window(stage, FOLAKE, card, BECAUSE)
        await stage.now_says(card, "One more person must approve")
        await stage.workspace.post(ADE, AGENTS, "accept", card.ts)
        assert (await look(http, asked))["status"] == "waiting"
        assert await accept_in_window(stage, ADE, card, "The list was cleaned")
        after = await stage.now_says(card, f"Approved by <@{FOLAKE}> and <@{ADE}>")
        assert all(each in json.dumps(after.blocks) for each in (BECAUSE, "The list was cleaned"))


async def test_confirmation_of_an_event_wants_a_reason(stage: World) -> None:
    async with stage.bot(routed(stage, WANTED)):
        card = await confirm(stage)
        assert await accept_in_window(stage, FOLAKE, card, BECAUSE)
        assert (await stage.reply())["decision_rationale"] == BECAUSE


async def test_shell_wants_the_reason_too(stage: World) -> None:
    text = routed(stage, WANTED) + "[shell]\nconsent = true\n"
    async with asking(stage, text) as http:
        asked, card = await ask(stage, http)
        assert controls(card)[0] == "Accept"
        shell = Project.beside(stage, text)
        refused = await shell.run("answer", asked["id"], "accept", "--yes")
        assert refused.code != 0
        assert "give a reason of at least 10 characters" in refused.err
        for no_words in (
            "accept: ok :tada: :tada:",
            "accept :white_check_mark:",
            "accept: 👍👍👍👍👍👍👍👍👍👍",
        ):
            refused = await shell.run("answer", asked["id"], no_words, "--yes")
            assert (refused.code, "reason" in refused.err) == (2, True), no_words
        await shell.fine("answer", asked["id"], f"accept: {BECAUSE}", "--yes")
        assert (await look(http, asked, wait=30))["comment"] == BECAUSE
