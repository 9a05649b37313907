"""`clarify forget`: nothing that was said in a session is left, in files, in the storage, in Slack."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.app import Bot
from bot.retention import forget as forgetting
from bot.storage.sqlite import InSqlite
from core.clarification import Decider
from core.errors import BadInput, NotFound
from tests.acceptance.upkeep import erasing, kept, leaks, shown
from tests.kit.builders import foreign
from tests.kit.databases import records_in
from tests.kit.ledgers import kept_ledger, write_records
from tests.kit.lives import beside
from tests.kit.until import until
from tests.kit.world import World, said, scene
from workspace.seed import ADE, AGENTS, FOLAKE

SECRET = "tell-nobody-7f3a"
OTHER = "something-else-9b1c"
ON_ITS_WAY = "select key from messages where ts is null and intent_at is not null"


@pytest.fixture
async def stage(tmp_path: Path, _database: None) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


async def a_course_of_things(stage: World, bot: Bot) -> str:
    """A session that leaves traces everywhere: card, thread, page, notice; and another one. Returns the id."""
    card = await stage.ask(
        question=f"Shall {SECRET} go on?", context=f"Context of {SECRET}", session="sess_gone"
    )
    await stage.ask("rpl_other", question=f"And {OTHER}?", session="sess_stays")
    clarification = str((card.metadata or {})["event_payload"]["clarification"])
    await bot.base.router.escalate(
        clarification, "by hand", f"Because of {SECRET}", Decider("user:x", "shell")
    )
    await stage.page(SECRET)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.reply()
    await stage.says(
        "session.errored", session="sess_gone", error_message=f"{SECRET} broke", category="internal"
    )
    await stage.message(f"{SECRET} broke")
    await bot.agents.intake.drained()
    await until(lambda: bot.show.lanes.length == 0 and bot.board.pages.next_look() is None)
    await bot.board.messages.in_flight.settled()
    async with asyncio.timeout(60):
        while await bot.base.store.read(ON_ITS_WAY):  # noqa: ASYNC110 - the storage tells nobody
            await asyncio.sleep(0.01)
    return clarification


@pytest.mark.either_database(always=True)
async def test_session_is_forgotten_everywhere_beside_a_running_bot(stage: World) -> None:
    async with stage.bot() as bot, erasing(bot):
        clarification = await a_course_of_things(stage, bot)
        assert list(kept(stage, SECRET))
        assert list(shown(stage.workspace, SECRET))

        done = await beside(stage, "forget", "sess_gone", "--yes", "--abandon", "--json")

        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert told["forgotten"] == [clarification]
        assert told["notDeleted"] == []
        assert told["slack"].get("wanted") is None, told
        assert told["slack"]["erased"] >= 3
        await stage.until(lambda: not list(shown(stage.workspace, SECRET)))
        again = await beside(stage, "forget", "sess_gone", "--yes", "--json")
        assert again.code == 0, again.err
        assert not any(clarification in said(card) for card in stage.cards())
        assert any(OTHER in said(card) for card in stage.cards())
    assert list(leaks(stage, SECRET)) == []
    assert list(leaks(stage, OTHER))
    record = stage.record()
    assert (record["id"], record["status"]) == (clarification, "resolved")
    assert SECRET not in json.dumps(record)


@pytest.mark.either_database
async def test_forgotten_session_starts_again_quietly(stage: World) -> None:
    """Forgotten while no bot runs: the next one deletes the messages, and shows nothing again."""
    async with stage.bot() as bot:
        await a_course_of_things(stage, bot)
    done = await beside(stage, "forget", "sess_gone", "--yes", "--abandon")
    assert done.code == 0, done.err
    assert "once the bot runs" in done.err
    assert not list(kept(stage, SECRET))

    async with stage.bot() as bot, erasing(bot):
        await stage.until(lambda: not list(shown(stage.workspace, SECRET)))
        await stage.until(lambda: bot.show.lanes.length == 0)
    assert list(leaks(stage, SECRET)) == []


@pytest.mark.either_database
async def test_open_question_is_not_forgotten_unless_it_is_abandoned(stage: World) -> None:
    async with stage.bot() as bot, erasing(bot):
        card = await stage.ask(question=f"{SECRET}?")
        refused = await beside(stage, "forget", "CLR-100001-001", "--yes")
        assert refused.code == 2
        assert "--abandon" in refused.err
        assert SECRET in said(card)
        done = await beside(stage, "forget", "CLR-100001-001", "--yes", "--abandon")
        assert done.code == 0, done.err
        await stage.until(lambda: not list(shown(stage.workspace, SECRET)))
    assert list(leaks(stage, SECRET)) == []
    assert stage.record()["status"] == "abandoned"


async def test_what_a_person_typed_goes_though_nobody_said_yet_which_question_it_answers(
    stage: World,
) -> None:
    async with stage.bot() as bot, erasing(bot):
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await stage.ask("rpl_2", question="Which region?", accepted_response_kinds=["freetext"])
        await stage.workspace.post(ADE, AGENTS, SECRET, thread_ts=card.ts)
        await stage.message("Which question is this an answer to?")
        assert list(kept(stage, SECRET))
        done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
        assert done.code == 0, done.err
    assert not list(kept(stage, SECRET))


@pytest.mark.either_database(always=True)
async def test_words_go_from_the_memory_of_every_bot(stage: World) -> None:
    """What nobody took yet pages on, without its words; a list of agents names no agent of it."""

    def remembered() -> list[str]:
        incidents = [repr(list(bot.board.incidents)) for bot in stage.bots]
        sessions = [repr(bot.agents.sessions._known) for bot in stage.bots]
        return [each for each in (*incidents, *sessions) if SECRET in each]

    async with stage.bot() as bot:
        said_by = {"agent_id": "planner-agent", "agent_name": f"Agent of {SECRET}"}
        await stage.says("session.errored", error_message="Broke", category="internal", producer=said_by)
        await stage.page(SECRET)
        await bot.agents.intake.drained()
        for each in stage.bots:
            await each.agents.sessions.facts()
        await until(lambda: len(remembered()) == 2 * len(stage.bots), 20)
        await bot.board.messages.in_flight.settled()
        done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
        assert done.code == 0, done.err
        await until(lambda: not remembered(), 20)


@pytest.mark.either_database
async def test_person_is_forgotten_where_no_signed_decision_names_them(stage: World) -> None:
    """Ade claims a question that Folake answers, answers another and types into a third. What Ade decided can still be
    verified.
    """
    async with stage.bot() as bot, erasing(bot):
        claimed = await stage.ask("rpl_claimed", question="Who claims?", session="sess_claimed")
        assert (await stage.workspace.click(ADE, AGENTS, claimed.ts, label="Take")).ok
        await stage.workspace.click(FOLAKE, AGENTS, claimed.ts, label="Yes")
        decided = await stage.ask("rpl_decided", question="Who decides?", session="sess_decided")
        await stage.workspace.click(ADE, AGENTS, decided.ts, label="Yes")
        await stage.reply("rpl_claimed")
        await stage.reply("rpl_decided")
        waiting = await stage.ask("rpl_open", question="Who waits?", accepted_response_kinds=["freetext"])
        await stage.ask("rpl_2", question="Which region?", accepted_response_kinds=["freetext"])
        await stage.workspace.post(ADE, AGENTS, SECRET, thread_ts=waiting.ts)
        await stage.message("Which question is this an answer to?")
        await stage.workspace.open_home(ADE)
        async with asyncio.timeout(60):
            while await bot.home.viewers.get(ADE) is None:  # noqa: ASYNC110 - the storage tells nobody
                await asyncio.sleep(0.01)
        await stage.until(
            lambda: all(stage.record(each)["status"] == "resolved" for each in (100001, 100002))
        )
        assert ADE in json.dumps(stage.record(100001))

        done = await beside(stage, "forget", "--person", ADE, "--yes", "--json")

        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert told["removed"] == {"home": 1, "texts": 1, "overrides": 0, "pages": 0, "questions": 1}
        assert told["remains"] == {"decided": ["CLR-100002-001"], "unsettled": [], "overrides": 0}
        assert "clarify forget ID" in done.err
        await stage.until(lambda: ADE not in bot.home._seats)
        assert not list(kept(stage, SECRET))
        assert ADE not in json.dumps(stage.record(100001))
        file = stage.ledger_file(100001)
        await stage.until(lambda: not file.exists() or ADE not in file.read_text())
        log = stage.folder / "log.jsonl"
        async with asyncio.timeout(60):  # the log follows a moment later
            while not (entries := (await beside(stage, "log")).out):
                pass
        log.write_text(entries)
        checked = await beside(stage, "verify", "--log", str(log))
        assert checked.code == 0, checked.err
        exported = await beside(stage, "export")
        assert "CLR-100001-001" in exported.out
        assert "tampered" not in exported.out


async def test_forget_asks_before_and_knows_no_other_names(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question=f"{SECRET}?")
        for words, code, hint in [
            (("sess_none", "--yes"), 3, "sess_none"),
            (("sess_one", "--abandon"), 2, "Not a terminal, so I can't ask. Add --yes to confirm."),
        ]:
            said_ = await beside(stage, "forget", *words)
            assert said_.code == code, said_
            assert hint in said_.err
    assert SECRET in json.dumps(stage.record())


async def test_message_that_slack_will_not_delete_is_emptied(stage: World) -> None:
    async with stage.bot() as bot:
        card = await stage.ask(question=f"{SECRET}?")
        stage.workspace.faults.add("chat.delete", "refuse:cant_delete_message", times=50)
        async with erasing(bot):
            done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
        assert done.code == 0, done.err
        assert "the text was removed" in done.err
        assert next(m for m in stage.workspace.messages(AGENTS) if m.ts == card.ts).text == "(forgotten)"


@pytest.mark.either_database(always=True)
async def test_message_on_its_way_to_slack_is_waited_for(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question=f"{SECRET}?")
    stage.changed("update messages set ts = null, intent_at = 1 where kind = 'card'")
    refused = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
    assert refused.code == 2
    assert "on its way" in refused.err
    assert stage.changed("update sessions set agent_name = '' where agent_name = 'Planner'") == 1
    assert SECRET in json.dumps(stage.record()), "all or nothing"


async def test_sessions_of_several_producers_are_not_mixed_up(tmp_path: Path) -> None:
    async with kept_ledger(tmp_path):
        write_records(tmp_path, 7, _record(1, "planner"), _record(2, "reviewer"))
        kept = InSqlite(tmp_path / "clarify.db")
        with pytest.raises(BadInput, match="planner, reviewer"):
            forgetting.find(kept, "s1")
        with pytest.raises(NotFound):
            forgetting.find(kept, "s1", "nobody")
        found = forgetting.find(kept, "s1", "reviewer")
        assert found.ids == ["CLR-7-002"]
        assert forgetting.forget(kept, found, now=datetime.now(UTC))[0] == forgetting.Traces()
        assert [SECRET in json.dumps(each) for each in records_in(kept.database, 7)] == [True, False]


def _record(seq: int, producer: str) -> dict[str, Any]:
    event = {"producer": producer, "sessionId": "s1", "eventId": f"e{seq}", "replyToken": f"t{seq}"}
    return foreign(7, seq, topic=SECRET, status="abandoned", aaep=event)
