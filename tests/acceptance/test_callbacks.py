"""Callbacks that are owed outlive a kill, a lost disk and a restore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.test_backup import lost
from tests.kit.lives import Life, beside
from tests.kit.receivers import Receiver, receiving
from tests.kit.served import reserved_port
from tests.kit.until import until
from tests.kit.world import World, config, scene, url_of
from tests.scenario.test_callbacks import SECRET, at_rest, table
from workspace.seed import AGENTS, FOLAKE


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        made.environ |= {"CALLBACK_SECRET": SECRET}
        yield made


async def ask(url: str, hook: Receiver) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        fields = {"question": "Which age?", "kind": "yes_no", "callback_url": hook.url}
        assert (await http.post("/questions", json=fields)).status_code == 201


async def test_callback_outlives_kills_before_and_during_it(stage: World, hook: Receiver) -> None:
    with reserved_port() as port:
        text = config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n') + table(hook)
        stage.configure(text)
        async with Life.of(stage) as life:
            await ask(f"http://127.0.0.1:{port}", hook)
            card = await stage.card("Which age?")
            hook.answers = [(-1, {}), (-1, {})]
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            life.kill()  # the answer is durable; whether the callback had begun is chance
        begun = len(hook.got)
        async with Life.of(stage) as life:
            await until(lambda: len(hook.got) == begun + 1)
            life.kill()  # in the middle of one
        hook.answers = []
        async with Life.of(stage) as life:
            await until(lambda: len(hook.got) == begun + 2)
            await stage.now_says(card, "the agent has resumed")
            assert await life.stop() == 0
    assert {each.said["answer"] for each in hook.got} == {True}
    assert len({each.headers["Idempotency-Key"] for each in hook.got}) == 1
    assert "s3cret" not in life.words()


async def test_callback_is_kept_in_a_backup(stage: World, hook: Receiver) -> None:
    stage.configure(config(stage.producer.url) + table(hook))
    kept = stage.folder / "copy"
    async with stage.bot() as bot:
        await ask(url_of(bot), hook)
        await stage.card("Which age?")
        done = await beside(stage, "backup", str(kept))
        assert done.code == 0, done.err
    lost(stage)
    done = await beside(stage, "restore", str(kept))
    assert done.code == 0, done.err
    async with stage.bot() as bot:
        rows = await bot.store.read("select callback_url from questions")
        assert [row["callback_url"] for row in rows] == [hook.url]
        async with httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            (asked,) = (await http.get("/questions")).json()["questions"]
            assert (await http.delete(f"/questions/{asked['id']}")).status_code == 200
        await until(lambda: hook.got)
        await at_rest(bot)
    assert [each.said["status"] for each in hook.got] == ["withdrawn"]
