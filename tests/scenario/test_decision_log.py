"""The log of decisions: what the bot appends, what the shell prints and verifies, what is forgotten and cut off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.decisions.chain import claims_in
from tests.kit.databases import count_in
from tests.kit.lives import beside
from tests.kit.processes import Said
from tests.kit.receivers import receiving
from tests.kit.until import until
from tests.kit.world import World, config
from tests.scenario.test_approvals import ask, asking, look, press
from tests.scenario.test_receipts import approved
from workspace.seed import ADE, FALLBACK, FOLAKE

Json = dict[str, Any]
NAME = "CLR-100001-001"

pytestmark = pytest.mark.either_database


@pytest.fixture
async def http(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(stage) as client:
        yield client


async def lines_of(stage: World, *words: str) -> list[Json]:
    said = await beside(stage, "log", *words)
    assert said.code == 0, said
    return [json.loads(line) for line in said.out.splitlines()]


async def logged(stage: World, count: int) -> list[Json]:
    """The log, once it has `count` entries."""
    await until(lambda: count_in(stage.rows, "decisions") >= count)  # the bot appends after the fact
    found = await lines_of(stage)
    assert len(found) == count
    return found


async def verified(stage: World, lines: list[Json], folder: Path, *words: str) -> Said:
    file = folder / "log.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return await beside(stage, "verify", "--log", str(file), *words)


@pytest.mark.either_database
async def test_each_decision_is_in_the_chain_and_the_whole_is_verified(
    stage: World, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    first = await approved(stage, http, action="Send the newsletter")
    asked, card = await ask(stage, http, action="Delete the archive")
    await press(stage, FOLAKE, card, "Reject")
    second = await look(http, asked, wait=30)
    lines = await logged(stage, 2)

    assert [line["seq"] for line in lines] == [1, 2]
    assert [line["receipt"] for line in lines] == [first["receipt"], second["receipt"]]
    assert lines[0]["claims"]["answer"]["decision"] == "accept"
    entry = claims_in(lines[1]["entry"])
    assert (entry["seq"], entry["kind"], entry["jti"]) == (2, "decision", "CLR-100002-001/1")
    assert entry["prev"] is not None
    said = await verified(stage, lines, tmp_path)
    assert said.code == 0, said
    assert "entries 1 to 2, 2 decisions" in said.out

    assert (await beside(stage, "log", "--jwt", NAME)).out.strip() == first["receipt"]
    assert (await beside(stage, "log", "--jwt", f"{NAME}/1")).out.strip() == first["receipt"]
    assert (await beside(stage, "log", "--jwt", "CLR-100001-009")).code == 3
    assert [line["seq"] for line in await lines_of(stage, "--by", FOLAKE)] == [2]
    assert [line["seq"] for line in await lines_of(stage, "--by", f"user:slack/T0LOCAL/{ADE}")] == [1]
    assert [line["seq"] for line in await lines_of(stage, NAME)] == [1]
    assert [line["seq"] for line in await lines_of(stage, "--since", "1h")] == [1, 2]
    assert "nothing shows whether entries after 2 were left out" in said.err
    part = await beside(stage, "log", "--by", FOLAKE)
    assert "This is a part of the log" in part.err
    said = await verified(stage, [json.loads(part.out)], tmp_path)
    assert (said.code, "begins with entry 2" in said.err) == (1, True), said
    assert await lines_of(stage, "--until", "2020-01-01") == []
    assert await lines_of(stage, "--agent", "nobody") == []
    assert "expected a date" in (await beside(stage, "log", "--since", "yesterday")).err


async def asked(stage: World, *tokens: str) -> None:
    for token in tokens:
        await stage.ask(token, session=f"ses_{token}")


async def answers(stage: World, *ids: str) -> None:
    """From the shell, which has no key: the bot signs that."""
    for each in ids:
        said = await beside(stage, "answer", each, "yes")
        assert said.code == 0, said


async def whole(stage: World, folder: Path, *ids: str) -> list[Json]:
    """The log, once it has an entry for each decision, and no other; it is verified."""
    lines = await logged(stage, len(ids))
    assert [line["claims"]["jti"] for line in lines] == [f"{each}/1" for each in ids]
    said = await verified(stage, lines, folder)
    assert said.code == 0, said
    return lines


async def test_what_was_decided_while_no_bot_ran_is_logged_once_at_the_next_start(
    stage: World, tmp_path: Path
) -> None:
    first, second = NAME, "CLR-100002-001"
    async with stage.bot():
        await asked(stage, "rpl_1", "rpl_2")
    await answers(stage, second, first)
    assert await lines_of(stage) == []
    for _ in range(2):
        async with stage.bot():
            await whole(stage, tmp_path, second, first)


async def test_restored_log_is_that_of_the_backup_and_goes_on(stage: World, tmp_path: Path) -> None:
    """What was decided before the backup and not logged yet is logged after the restore, once."""
    first, second, third, fourth = (f"CLR-10000{n}-001" for n in range(1, 5))
    async with stage.bot():
        await asked(stage, "rpl_1", "rpl_2", "rpl_3", "rpl_4")
        await answers(stage, first)
        await whole(stage, tmp_path, first)
    await answers(stage, second)
    said = await beside(stage, "backup", str(tmp_path / "copy"))
    assert said.code == 0, said
    async with stage.bot():
        await answers(stage, third)
        await whole(stage, tmp_path, first, second, third)

    said = await beside(stage, "restore", "--replace", str(tmp_path / "copy"))
    assert said.code == 0, said
    await whole(stage, tmp_path, first)
    async with stage.bot():
        before = await whole(stage, tmp_path, first, second)
        await answers(stage, fourth)
        after = await whole(stage, tmp_path, first, second, fourth)
        assert after[:2] == before


async def test_forgetting_removes_receipt_and_text_and_the_chain_still_holds(
    stage: World, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await approved(stage, http, action="Send the newsletter")
    await approved(stage, http, action="Send the invoice")
    await logged(stage, 2)
    said = await beside(stage, "forget", NAME, "--yes")
    assert "1 receipt deleted" in said.err, said

    lines = await lines_of(stage)
    assert [line["receipt"] is None for line in lines] == [True, False, True]
    gone = claims_in(lines[2]["entry"])
    assert (gone["kind"], gone["jtis"]) == ("forgotten", [f"{NAME}/1"])
    said = await verified(stage, lines, tmp_path)
    assert said.code == 0, said
    assert "2 decisions, 1 of them forgotten" in said.out
    assert stage.changed("update decision_texts set ts = ts where question = 'Send the newsletter'") == 0
    assert stage.changed("update decision_texts set ts = ts where question = 'Send the invoice'") == 1
    assert "deleted" in (await beside(stage, "log", "--jwt", NAME)).err
    said = await verified(stage, lines[:2], tmp_path)
    assert said.code == 1, said
    assert "is missing, and no entry says that it was forgotten" in said.err


@pytest.mark.needs("webhooks")
async def test_checkpoint_is_posted_and_shows_a_cut_end_and_another_history(
    stage: World, tmp_path: Path
) -> None:
    async with receiving() as hook:
        more = (
            f'\n[trust]\ncheckpoint = {{channel = "{FALLBACK}", every = "24h"}}\n'
            f'[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\nevents = ["decisions-checkpoint"]\n'
        )
        stage.environ |= {"HOOK_SECRET": "shared secret"}
        async with asking(stage, config(stage.producer.url, more=more)) as http:
            await approved(stage, http, action="Send the newsletter")
            posted = await stage.until(
                lambda: next(
                    (m for m in stage.workspace.messages(FALLBACK) if "Checkpoint of the log" in m.text), None
                )
            )
            lines = await logged(stage, 2)
            await until(lambda: hook.got)
            event = hook.got[0].said
    checkpoint = lines[1]["entry"]
    assert checkpoint in posted.text
    assert event["type"] == "decisions-checkpoint"
    noted = claims_in(checkpoint)
    assert (noted["kind"], noted["head"]) == ("checkpoint", 1)
    assert event["data"] == {"entry": checkpoint, "head": 1, "sha256": noted["sha256"]}
    said = await verified(stage, lines, tmp_path, "--checkpoint", checkpoint)
    assert (said.code, said.err) == (0, "")
    said = await verified(stage, lines[:1], tmp_path, "--checkpoint", checkpoint)
    assert (said.code, "the checkpoint is entry 2: its end was cut off" in said.err) == (1, True), said
