"""The whole bot while its storage is swept: nothing is lost, shown or sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from bot.app import Bot
from bot.ask.questions import KEYS_KEPT
from bot.retention.forget import Upkeep
from tests.kit.until import until
from tests.kit.world import World, config, said, scene, url_of
from workspace.seed import AGENTS, FOLAKE
from workspace.state import Message

ISSUE = {"extensions": {"agentx": {"issue": 42}}}


@pytest.fixture
async def stage(tmp_path: Path, _database: None) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


def retention(bot: Bot) -> Upkeep:
    """Keeps nothing that is over."""
    return Upkeep(
        store=bot.base.store,
        index=bot.base.index,
        clock=bot.base.clock,
        keep=timedelta(0),
    )


def clarification_of(card: Message) -> object:
    return (card.metadata or {})["event_payload"]["clarification"]


@pytest.mark.either_database(always=True)
async def test_swept_while_the_bot_runs_and_starts_again(stage: World) -> None:
    async with stage.bot() as bot:
        keeper = retention(bot)
        card = await stage.ask("rpl_1", question="Rotate?", session="s1", **ISSUE)
        open_ = await stage.ask("rpl_2", question="Deploy?", session="s2")
        await keeper.tidy()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_1")
        await stage.says("state.changed", session="s1", from_state="awaiting_input", to_state="thinking")
        await until(lambda: stage.record(42)["aaep"]["reply"] == "confirmed")
        await stage.until(lambda: bot.show.lanes.length == 0)
        stage.changed("update inbox set expires_at = 1 where token = 'rpl_1'")  # long ago
        await keeper.tidy()
        await keeper.tidy()  # what is timeless goes once it was seen

        again = await stage.ask("rpl_3", question="Rotate once more?", session="s3", **ISSUE)
        assert clarification_of(again) == "CLR-42-002"
        # The agent tells its old question again: it is not known any more, and is asked under a number of its own.
        for table in ("inbox", "clarifications", "replies"):
            assert not await bot.store.read(f"select 1 from {table} where token = 'rpl_1'")  # noqa: S608 - ours
        await stage.emit("rpl_1", session="s1", question="Rotate?", **ISSUE)
        await stage.until(lambda: "CLR-42-003" in map(clarification_of, stage.cards()))
        await stage.ask("rpl_4", question="The one after that?", session="s4")

    async with stage.bot(config(stage.producer.url)) as bot:
        await retention(bot).tidy()
        await stage.workspace.click(FOLAKE, AGENTS, open_.ts, label="No")
        assert (await stage.reply("rpl_2"))["response"] is False
        await stage.workspace.click(FOLAKE, AGENTS, again.ts, label="Yes")
        assert (await stage.reply("rpl_3"))["response"] is True
        await stage.until(lambda: bot.show.lanes.length == 0)
    assert any(shown.ts == card.ts and "Answered" in said(shown) for shown in stage.cards()), (
        "it stays in Slack"
    )
    for words, times in (
        ("Rotate?", 2),
        ("Deploy?", 1),
        ("Rotate once more?", 1),
        ("The one after that?", 1),
    ):
        assert len([shown for shown in stage.cards() if words in said(shown)]) == times, words
    tokens = [reply["reply_token"] for reply in stage.producer.replies]
    assert sorted(tokens) == ["rpl_1", "rpl_2", "rpl_3"]


@pytest.mark.either_database
async def test_question_stays_as_long_as_its_key_counts(stage: World) -> None:
    """Then its asker finds it no more, and asks anew; its card stays in Slack."""
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        keeper, question = (
            retention(bot),
            {"question": "Rotate?", "kind": "yes_no", "key": "k", "session": "s"},
        )
        asked = (await http.post("/questions", json=question)).json()
        card = await stage.card("Rotate?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        answered = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
        assert answered["status"] == "answered"
        await stage.until(lambda: bot.show.lanes.length == 0)
        await keeper.tidy()
        again = await http.post("/questions", json=question)
        assert (again.status_code, again.json()["id"], again.json()["answer"]) == (200, asked["id"], True)

        long_ago = datetime.now(UTC) - KEYS_KEPT - timedelta(minutes=1)
        stage.changed(f"update questions set expires_at = {long_ago.timestamp()}")  # noqa: S608 - a number
        await keeper.tidy()
        assert (await http.get(f"/questions/{asked['id']}")).status_code == 404
        assert (await http.get(f"/receipts/{asked['id']}")).status_code == 404
        assert (await http.get("/questions", params={"session": "s"})).json()["questions"] == []
        anew = await http.post("/questions", json=question)
        assert (anew.status_code, anew.json()["status"]) == (201, "waiting")
        assert anew.json()["id"] != asked["id"]
        await stage.until(lambda: len([each for each in stage.cards() if "Rotate?" in said(each)]) == 2)
