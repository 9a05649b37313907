"""A new, empty database beside ledger files: what of them counts (promises P2, P4, P5)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from bot.integrations.ledgerfiles import bridge, folder
from tests.integrations.ledgerfiles.kit import (
    ROLES,
    Json,
    accused,
    bridge_of,
    file_of,
    in_step,
    in_store,
    notice,
    put,
    rewrite,
    text,
    theirs,
)
from tests.kit.until import until
from tests.kit.world import World, controls, said, scene, url_of
from tests.scenario.other_parties import answers, held, in_a_persons_name
from tests.scenario.test_confirmations import confirm
from tests.scenario.typist import of_issue
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE, ONCALL
from workspace.state import Message

FROM_A_FILE = "From a ledger file"
PAYMENT: Json = {"action": "Send the payment", "arguments": {"amount": 100}, "key": "payment-1"}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        made.configure(text(made))
        yield made


def owner(stage: World) -> str:
    return (file_of(stage).parent / ".clarify/installation").read_text()


def lose(stage: World) -> None:
    for path in stage.folder.glob("clarify.db*"):
        path.unlink()


def logged(stage: World) -> list[str]:
    with closing(sqlite3.connect(stage.folder / "clarify.db")) as db:
        return [receipt for (receipt,) in db.execute("select receipt from decisions order by seq")]


@asynccontextmanager
async def caller(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield http


async def left_open(stage: World, change: Callable[[list[Json]], None]) -> Message:
    """An open question, whose file another program changes after its database was lost."""
    async with stage.bot():
        card = await stage.ask()
        await in_step(stage)
    lose(stage)
    rewrite(stage, change)
    return card


async def test_open_question_says_on_its_card_that_it_comes_from_a_file(stage: World) -> None:
    card = await left_open(stage, lambda _: None)
    assert FROM_A_FILE not in said(card)
    async with stage.bot():
        await stage.now_says(card, FROM_A_FILE)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True
        assert FROM_A_FILE not in said(await stage.now_says(card, f"<@{FOLAKE}>"))
        await in_step(stage)
    assert [each.ts for each in stage.cards()] == [card.ts]
    assert accused(stage) == []


async def test_p1_open_question_of_another_implementation_has_a_card(stage: World) -> None:
    put(stage, theirs())
    async with stage.bot(text(stage, more=ROLES)):
        await stage.card("Which database?")
    assert accused(stage) == []


async def test_p5_answer_without_a_receipt_is_nobodys_but_the_files(stage: World) -> None:
    """Whoever can write the folder could write all that the bot writes."""
    forged = in_a_persons_name("yes", FOLAKE, response=True)
    await left_open(stage, lambda records: forged(records[0]))
    async with stage.bot():
        assert (await stage.reply())["decided_by"] == f"ledger:user:slack/T0LOCAL/{FOLAKE}"
        (record,) = await in_step(stage)
        assert record["thread"][1]["from"] == f"ledger:user:slack/T0LOCAL/{FOLAKE}"
        assert record["aaep"]["answeredBy"]["user"] is None
        assert "receipt" not in record["aaep"]
    assert len(stage.producer.replies) == 1


async def test_p4_answer_with_its_receipt_is_the_persons(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.producer.refuse_next(503, headers={"Retry-After": "3600"})
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await until(lambda: in_store(stage)[0]["status"] == "answered")
        (before,) = await in_step(stage)
    lose(stage)
    async with stage.bot():
        reply = await stage.reply()
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{FOLAKE}" == before["aaep"]["decidedBy"]
        assert in_store(stage)[0]["aaep"]["receipt"] == before["aaep"]["receipt"]
        assert FROM_A_FILE not in said(card)
        # Its log is a new one, and has it, too.
        await until(lambda: logged(stage) == [before["aaep"]["receipt"]])


FORGED: dict[str, Callable[[Json], object]] = {
    "as it is": lambda _: None,
    "still open": lambda record: record.update(status="pending"),
    "forgotten": lambda record: record["aaep"].update(forgotten=True),
    "no approval": lambda record: (record["aaep"].update(kinds=["freetext"]), record["aaep"].pop("action")),
}


@pytest.mark.parametrize("kind", FORGED)
async def test_p5_no_approval_that_only_a_file_holds_reaches_its_agent(stage: World, kind: str) -> None:
    def forge(records: list[Json]) -> None:
        in_a_persons_name("accept", FOLAKE)(records[0])
        FORGED[kind](records[0])

    async with stage.bot():
        await confirm(stage)
        await in_step(stage)
    lose(stage)
    rewrite(stage, forge)
    async with stage.bot():
        other = await stage.ask("rpl_2", session="sess_two", question="And now?")
        await stage.workspace.click(FOLAKE, AGENTS, other.ts, label="Yes")
        await stage.reply("rpl_2")
        (record,) = in_store(stage)
        assert record["aaep"].get("decidedBy") is None
        assert record["aaep"].get("reply") is None
    assert len(stage.producer.replies) == 1


@pytest.mark.parametrize("decision", ["accept", "reject"])
async def test_p5_approval_without_a_receipt_is_asked_again(stage: World, decision: str) -> None:
    async with stage.bot():
        await confirm(stage)
        await in_step(stage)
    lose(stage)
    rewrite(stage, lambda records: in_a_persons_name(decision, FOLAKE)(records[0]))
    async with stage.bot():
        await until(lambda: any(FROM_A_FILE in said(card) for card in stage.cards()))
        card = next(card for card in stage.cards() if FROM_A_FILE in said(card))
        assert in_store(stage)[0]["status"] == "pending"
        assert stage.producer.replies == []
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")
        assert (await stage.reply())["decision"] == "reject"
        await in_step(stage)
    assert accused(stage) == []


def consented(records: list[Json]) -> None:
    """As if a person had approved it long ago, and the agent had it."""
    in_a_persons_name("accept", FOLAKE, reply="confirmed")(records[0])
    records[0]["status"] = "resolved"


async def test_p5_old_approval_without_a_receipt_is_handed_out_to_nobody(stage: World) -> None:
    async with caller(stage) as http:
        assert (await http.post("/questions", json=PAYMENT)).status_code == 201
        await stage.card("Send the payment")
        await in_step(stage)
    lose(stage)
    rewrite(stage, consented)
    async with caller(stage) as http:
        answer = (await http.get("/questions/CLR-100001-001")).json()
        assert (answer["status"], answer["answer"], answer["receipt"]) == ("closed", None, None)
        assert not {"response", "label", "decidedBy"} & in_store(stage)[0]["aaep"].keys()
        await in_step(stage)
    assert accused(stage) == []


async def test_p5_who_claimed_or_accepted_it_first_has_to_do_so_again(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Take")
        await stage.now_says(card, "Claimed by")
        await in_step(stage)
    lose(stage)
    accept = {
        "user": ADE,
        "team": "T0LOCAL",
        "decidedBy": "user:x",
        "at": "2026-11-21T10:00:00Z",
        "digest": "0",
    }
    rewrite(stage, lambda records: records[0]["aaep"].update(approvals=[accept]))
    async with stage.bot():
        await stage.now_says(card, FROM_A_FILE)
        assert not {"takenBy", "approvals"} & in_store(stage)[0]["aaep"].keys()
        assert "Take" in controls(card)


async def test_answer_that_no_bot_had_read_competes_like_any_other(stage: World) -> None:
    await left_open(stage, lambda records: answers("no")(records[0]))
    async with stage.bot():
        reply = await stage.reply()
        assert (reply["response"], reply["decided_by"]) == (False, "agent:architect")
        await in_step(stage)
    assert accused(stage) == []


async def test_p2_archived_number_stays_used(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**of_issue(7))
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await until(lambda: in_store(stage, 7)[0]["status"] == "resolved")
        await in_step(stage, 7)
    lose(stage)
    archive = file_of(stage).parent / "archive"
    archive.mkdir(exist_ok=True)
    file_of(stage, 7).rename(archive / "issue-7.json")
    put_in(stage, 8, [theirs() | {"id": "CLR-8-002", "issueNumber": 8, "status": "abandoned"}])
    async with stage.bot():
        await stage.emit(**of_issue(7))  # again: the same question
        await stage.ask("rpl_2", question="Another?", **of_issue(7))
        await stage.ask("rpl_3", question="In eight?", session="sess_two", **of_issue(8))
        assert [each["id"] for each in await in_step(stage, 7)] == ["CLR-7-001", "CLR-7-002"]
        assert [each["id"] for each in await in_step(stage, 8)] == ["CLR-8-002", "CLR-8-003"]
    assert accused(stage) == []


def put_in(stage: World, issue: int, records: list[Json]) -> None:
    file_of(stage, issue).write_text(json.dumps({"issueNumber": issue, "clarifications": records}))


async def test_p12_what_other_implementations_settled_is_no_news(stage: World) -> None:
    """A new bot beside a folder that others have used for long."""
    person = f"user:slack/T0LOCAL/{FOLAKE}"
    settled = [theirs(n, f"Settled {n}?", status="resolved") for n in range(1, 5)]
    for each in settled:
        each["thread"].append(each["thread"][0] | {"type": "answer", "from": person, "body": "yes"})
    put(stage, *settled, theirs(5, "Which database?"))
    async with stage.bot(text(stage, more=ROLES)):
        await stage.card("Which database?")
        assert [each["status"] for each in in_store(stage, 7)] == ["resolved"] * 4 + ["pending"]
        assert in_store(stage, 7)[0]["thread"][1]["from"] == f"ledger:{person}"
    assert len(stage.cards()) == 1
    assert accused(stage) == []
    assert not stage.workspace.direct(ONCALL)


async def test_file_that_does_not_parse_keeps_no_other_from_being_taken_in(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await stage.ask("rpl_2", session="sess_two", question="And now?")
        await in_step(stage)
        await in_step(stage, 100002)
    lose(stage)
    file_of(stage, 100002).write_text("{")
    async with stage.bot():
        await stage.now_says(card, FROM_A_FILE)
        await until(lambda: list(file_of(stage).parent.glob("issue-100002.json.unreadable-*")))
        await stage.message("Started with a new database", FALLBACK)


async def test_what_is_changed_after_it_was_taken_in_is_told(stage: World) -> None:
    card = await left_open(stage, lambda _: None)
    with held(stage, 100001):
        run = stage.bot()
        await run.__aenter__()
        try:
            await stage.now_says(card, FROM_A_FILE)
            rewrite(stage, lambda records: records[0]["thread"][0].update(body="Shall I drop the tables?"))
        except BaseException:
            await run.__aexit__(None, None, None)
            raise
    try:
        await notice(stage, "CLR-100001-001 was changed by another program")
        assert (await in_step(stage))[0]["thread"][0]["body"] == "Shall I go on?"
    finally:
        await run.__aexit__(None, None, None)


async def test_ids_that_are_spelled_otherwise_are_taken_in_once(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**of_issue(7))
        await in_step(stage, 7)
    lose(stage)
    rewrite(stage, lambda records: records[0].update(id="CLR-007-0000000001"), 7)
    async with stage.bot():
        await stage.now_says(card, FROM_A_FILE)
        await stage.emit(**of_issue(7))  # again: the same question
        await stage.ask("rpl_2", question="Another?", **of_issue(7))
        assert [each["id"] for each in await in_step(stage, 7)] == ["CLR-7-001", "CLR-7-002"]
    assert len(stage.cards()) == 2
    assert accused(stage) == []


async def test_folder_is_taken_over_though_the_bot_was_killed_before(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = await left_open(stage, lambda _: None)
    former = owner(stage)
    kept = folder.own

    def refuses(*_: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(bridge, "own", refuses)  # as if killed: what was read is in the database alone
    async with stage.bot():
        await stage.now_says(card, FROM_A_FILE)
        assert owner(stage) == former
    monkeypatch.setattr(bridge, "own", kept)
    async with stage.bot() as bot:
        await until(lambda: owner(stage) == bot.store.installation != former)
        await until(lambda: bridge_of(bot).trouble() is None)
        await in_step(stage)
        assert not await bot.store.read("select 1 from ledgerfiles where issue = 0")
    assert accused(stage) == []


async def test_folder_that_is_mounted_later_is_asked_nothing_of_again(stage: World) -> None:
    """Its disk was missing when a new database began: what stands in it was asked by another installation."""
    async with stage.bot():
        card = await stage.ask(**of_issue(7))
        await in_step(stage, 7)
    lose(stage)
    folder, away = file_of(stage).parent, stage.folder / "away"
    former = owner(stage)
    folder.rename(away)
    async with stage.bot():
        await until((folder / ".clarify/installation").exists)
        folder.rename(stage.folder / "below")
        away.rename(folder)
        await stage.ask("rpl_2", session="sess_two", question="And now?")
        await in_step(stage)
        file_of(stage, 7).touch()
        await stage.ask("rpl_3", session="sess_three", question="And in eight?", **of_issue(8))
        await in_step(stage, 8)
        assert in_store(stage, 7) == []
        assert owner(stage) == former
    assert stage.cards()[0].ts == card.ts
    assert len(stage.cards()) == 3
    assert accused(stage) == []


async def test_item_that_is_no_record_of_its_file_is_not_taken_in(stage: World) -> None:
    put(
        stage,
        theirs(),
        theirs(2, "Which queue?", issueNumber=8),
        theirs(3, "Which cache?", id="CLR-8-003"),
    )
    async with stage.bot(text(stage, more=ROLES)):
        await stage.card("Which database?")
        assert [each["id"] for issue in (7, 8) for each in in_store(stage, issue)] == ["CLR-7-001"]
