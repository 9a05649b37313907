"""The database is lost and the ledger files are kept: nothing is asked twice, nothing is answered twice (promises P2, P3,
P4).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.clocks import LeapClock
from tests.kit.lives import Life
from tests.kit.until import until
from tests.kit.world import World, controls, said, scene
from tests.scenario.test_binding import elsewhere
from tests.scenario.test_decision_log import logged
from tests.scenario.test_tampering import NAME, caller, decide, told
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE

pytestmark = [
    pytest.mark.files("a database is lost with the ledgers in it"),
    pytest.mark.needs("ledgerfiles"),
]

WAITING = "Started with a new database beside older ledger files"


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    speed = request.node.get_closest_marker("speed")
    async with scene(tmp_path, clock=LeapClock(*speed.args) if speed else None) as made:
        yield made


async def in_files(stage: World) -> None:
    """The files have all that is recorded."""

    def has(issue: int) -> bool:
        file = stage.folder / "ledgers" / f"issue-{issue}.json"
        return file.exists() and json.loads(file.read_text()) == stage.ledger(issue)

    await until(lambda: all(map(has, stage.issues())))


def lose(stage: World, *, truncated: bool = False) -> None:
    """What an operator does about a broken database."""
    files = sorted(stage.folder.glob("clarify.db*"))
    assert files
    for file in files:
        if truncated and file.name == "clarify.db":
            file.write_bytes(b"")
        elif not file.name.endswith(".lock"):
            file.unlink()


def tokens(stage: World) -> list[str]:
    """Of every record in every ledger."""
    found = []
    for issue in stage.issues():
        found += [record["aaep"]["replyToken"] for record in stage.ledger(issue)["clarifications"]]
    return sorted(found)


@pytest.mark.parametrize("truncated", [False, True])
async def test_p2_open_question_keeps_its_card_and_is_answered_once(stage: World, truncated: bool) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", question="Open?")
        done = await stage.ask("rpl_2", session="sess_two", question="Done?")
        await stage.workspace.click(FOLAKE, AGENTS, done.ts, label="Yes")
        await stage.reply("rpl_2")
        await stage.now_says(done, "Delivered")
        await in_files(stage)
    lose(stage, truncated=truncated)
    async with stage.bot() as bot:
        told = await stage.message(WAITING, FALLBACK)
        assert "1 is open" in said(told)
        await bot.agents.intake.drained()
        # It comes again, whatever else the producer sends again.
        await stage.emit("rpl_1", question="Open?")
        later = await stage.ask("rpl_3", session="sess_three", question="Something new?")
        assert tokens(stage) == ["rpl_1", "rpl_2", "rpl_3"]
        assert sorted(each.ts for each in stage.cards()) == sorted([card.ts, done.ts, later.ts])
        await stage.workspace.click(ADE, AGENTS, card.ts, label="No")
        assert (await stage.reply("rpl_1"))["response"] is False
        await stage.now_says(card, f"<@{ADE}>")
    async with stage.bot():
        pass
    assert [reply["reply_token"] for reply in stage.producer.replies] == ["rpl_2", "rpl_1"]
    assert len([m for m in stage.workspace.messages(FALLBACK) if WAITING in said(m)]) == 1


async def test_p4_answer_that_was_not_delivered_keeps_its_one_response(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1")
        stage.producer.refuse_next(503, headers={"Retry-After": "3600"})
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sending to the agent")
        await in_files(stage)
    answered = stage.record()["aaep"]
    lose(stage)
    async with stage.bot():
        reply = await stage.reply("rpl_1")
        await stage.now_says(card, "Delivered")
        await stage.workspace.click(ADE, AGENTS, card.ts, label="No") if "No" in controls(card) else None
    assert reply["response"] is True
    assert reply["decided_by"] == answered["decidedBy"]
    assert stage.record()["aaep"]["answeredAt"] == answered["answeredAt"]
    assert len(stage.producer.replies) == 1
    assert [each.ts for each in stage.cards()] == [card.ts]


async def test_p10_reply_written_meanwhile_in_a_threads_second_question_is_taken(stage: World) -> None:
    """The card of a session's later question stands in a thread, which is found with it."""
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.reply("rpl_1")
        await stage.now_says(first, "Delivered")
        await stage.says("state.changed", from_state="awaiting_input", to_state="thinking")
        second = await stage.ask("rpl_2", question="Second?")
        assert second.thread_ts == first.ts
        await in_files(stage)
    lose(stage)
    await stage.workspace.post(ADE, AGENTS, "no", thread_ts=first.ts)
    async with stage.bot():
        reply = await stage.reply("rpl_2")
        await stage.now_says(second, f"<@{ADE}>")
    assert (reply["response"], len(stage.producer.replies)) == (False, 2)
    assert len(stage.cards()) == 2
    assert tokens(stage) == ["rpl_1", "rpl_2"]


@pytest.mark.speed(10)
async def test_p2_card_that_cannot_be_found_is_posted_anew(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1")
        stage.workspace.board.delete(card)
        await in_files(stage)
    lose(stage)
    async with stage.bot():
        again = await stage.card("Shall I go on?")
        assert again.ts != card.ts
        await stage.workspace.click(FOLAKE, AGENTS, again.ts, label="Yes")
        assert (await stage.reply("rpl_1"))["response"] is True
    assert len(stage.cards()) == 1


async def test_card_of_another_bot_on_the_app_is_not_taken_over(stage: World) -> None:
    """Its question may have the same number, and be as old."""
    async with elsewhere(stage) as other:
        async with stage.bot():
            mine = await stage.ask("rpl_1", question="Ours?")
            await in_files(stage)
        async with other.bot():
            theirs = await other.ask("rpl_2", question="Theirs?")
        lose(stage)
        async with stage.bot():
            await stage.message(WAITING, FALLBACK)
            await stage.workspace.click(FOLAKE, AGENTS, mine.ts, label="Yes")
            assert (await stage.reply("rpl_1"))["response"] is True
            await stage.now_says(mine, "Delivered")
    assert controls(theirs) == ["Yes", "No", "Take"]
    assert len(stage.cards()) == 2


async def test_storage_and_ledgers_that_are_both_new_are_nothing_to_tell(stage: World) -> None:
    async with stage.bot():
        await stage.ask("rpl_1")
    assert not [m for m in stage.workspace.messages(FALLBACK) if WAITING in said(m)]


async def test_message_on_a_broken_storage_says_what_to_do(stage: World) -> None:
    async with stage.bot():
        await stage.ask("rpl_1")
    database = stage.folder / "clarify.db"
    content = bytearray(database.read_bytes())
    content[1024:] = b"\xff" * (len(content) - 1024)
    database.write_bytes(content)
    life = await Life.begin(stage)
    assert await life.process.wait() == 1
    told = life.words()
    assert "malformed" in told
    assert "clarify restore" in told
    assert "takes in the ledger files" in told


async def test_p11_storage_that_was_lost_signs_nothing_anew(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http, "Reject")
        assert (await http.get(f"/questions/{NAME}", params={"wait": 30})).json()["receipt"]
        await stage.now_says(await stage.card("Send the payment"), "the agent has resumed")
        await logged(stage, 1)
        before = stage.record()
        await in_files(stage)
    for path in stage.folder.glob("clarify.db*"):
        path.unlink()
    async with caller(stage) as http:
        await logged(stage, 1)
        assert (await http.get(f"/receipts/{NAME}")).text == before["aaep"]["receipt"]
    assert (stage.record(), told(stage, NAME)) == (before, 0)
