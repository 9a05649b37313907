"""Ledgers that somebody puts back to an earlier state, with everything in them: what people decided or approved since is
missed, the question is closed, and those who must know are told.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

import httpx
import pytest

from bot.storage import beside as storage
from bot.storage.connection import connect
from bot.workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE
from tests.kit.databases import change_ledger_row, ledger_row
from tests.kit.lives import beside
from tests.kit.processes import command as shell
from tests.kit.world import World, controls, said
from tests.scenario.test_approvals import ask
from tests.scenario.test_forged_records import logged
from tests.scenario.test_tampering import NAME, caller, told

Json = dict[str, Any]

pytestmark = pytest.mark.either_database

ROLLED_BACK = f"{NAME} was put back to an earlier state"


def ledger_of(stage: World) -> Json:
    if stage.rows is None:
        found: Json = json.loads((stage.folder / "ledgers/issue-100001.json").read_text())
        return found
    body = ledger_row(stage.rows, 100001)
    assert body is not None
    read: Json = json.loads(body)
    return read


def put_back(stage: World, before: Json) -> None:
    if stage.rows is None:
        (stage.folder / "ledgers/issue-100001.json").write_text(json.dumps(before))
    else:
        change_ledger_row(stage.rows, 100001, lambda _: before)


async def is_closed(stage: World, http: httpx.AsyncClient) -> None:
    await stage.message(ROLLED_BACK, FALLBACK)
    await stage.until(lambda: stage.record()["status"] == "abandoned")
    found = await http.get(f"/questions/{NAME}")
    assert found.status_code == 410 or found.json()["answer"] is None, found.text
    assert (await http.get(f"/receipts/{NAME}")).status_code in {404, 410}


async def until_rejected(stage: World, http: httpx.AsyncClient) -> Json:
    """Returns the ledger as it was before."""
    asked, card = await ask(stage, http)
    await stage.now_says(card, "Send the newsletter")
    before = ledger_of(stage)
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")).ok
    assert (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()["receipt"]
    await stage.now_says(card, "the agent has resumed")
    await logged(stage)
    return before


async def until_one_approved(stage: World, http: httpx.AsyncClient) -> Json:
    _, card = await ask(stage, http, approvals=2)
    before = ledger_of(stage)
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
    await stage.now_says(card, "One more person must approve")
    await stage.until(lambda: shown_revision(stage) == stage.record()["revision"])
    return before


def shown_revision(stage: World) -> int:
    query = "select max(revision) as revision from messages where kind = 'card'"
    if stage.database is not None:
        with closing(connect(stage.database)) as db:
            (found,) = db.execute(query).fetchall()
            return int(found["revision"] or 0)
    with storage.read_only(stage.folder / "clarify.db") as tx:
        (row,) = tx.rows(query)
        return int(row["revision"] or 0)


STEPS = {"a rejection": until_rejected, "the first of two approvals": until_one_approved}


@pytest.mark.parametrize("what", STEPS)
async def test_p11_ledger_put_back_behind_a_decision_opens_nothing(stage: World, what: str) -> None:
    async with caller(stage) as http:
        before = await STEPS[what](stage, http)
        cards = [said(each) for each in stage.cards()]
        put_back(stage, before)
        await is_closed(stage, http)
        await stage.page("put back to an earlier state")
        (card,) = stage.cards()
        assert "Accept" not in controls(card)
        if what == "a rejection":
            assert [said(each) for each in stage.cards()] == cards
    async with caller(stage) as http:
        await is_closed(stage, http)
    assert (told(stage, ROLLED_BACK), told(stage, "changed by another program")) == (1, 0)


@pytest.mark.parametrize("what", STEPS)
async def test_p11_nor_while_no_bot_runs(stage: World, what: str) -> None:
    async with caller(stage) as http:
        before = await STEPS[what](stage, http)
    put_back(stage, before)
    if stage.rows is None:
        found = (await beside(stage, "check")).out
        assert f"{NAME} was put back to a state from before" in found
    for _ in range(2):
        async with caller(stage) as http:
            await is_closed(stage, http)
    assert told(stage, ROLLED_BACK) == 1


async def test_p11_what_the_shell_answers_after_that_is_handed_out_to_nobody(stage: World) -> None:
    async with caller(stage) as http:
        asked = (await http.post("/questions", json={"question": "Which one?", "key": "k1"})).json()
        card = await stage.card("Which one?")
        before = ledger_of(stage)
        await stage.workspace.post(FOLAKE, AGENTS, "the first", thread_ts=card.ts)
        assert (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()["receipt"]
        await logged(stage)
    put_back(stage, before)
    assert (await shell(stage.file, "answer", NAME, "the second", env=os.environ | stage.environ)).code == 0
    async with caller(stage) as http:
        await stage.message(NAME, FALLBACK)
        assert (await http.get(f"/questions/{NAME}")).status_code == 410
        assert (await http.get(f"/receipts/{NAME}")).status_code == 410
    assert "receipt" not in stage.record()["aaep"]


async def test_p11_restored_backup_is_no_rollback(stage: World) -> None:
    async with caller(stage) as http:
        _, card = await ask(stage, http, approvals=2)
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
        await stage.now_says(card, "One more person must approve")
        backup = await shell(
            stage.file, "backup", str(stage.folder / "backup"), env=os.environ | stage.environ
        )
        assert backup.code == 0, backup
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
        await stage.until(
            lambda: stage.record()["status"] == "resolved" or stage.record()["status"] == "answered"
        )
        await logged(stage)
    words = ("restore", str(stage.folder / "backup"), "--replace")
    restored = await shell(stage.file, *words, env=os.environ | stage.environ)
    assert restored.code == 0, restored
    async with caller(stage) as http:
        assert (await http.get(f"/questions/{NAME}")).json()["status"] == "waiting"
        state = (await http.delete(f"/questions/{NAME}")).json()
        assert (state["status"], bool(state["receipt"])) == ("withdrawn", True)
    assert told(stage, NAME) == 0
