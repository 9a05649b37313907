"""Ledgers and storage that others hold, write, break or fill up; and clocks that jump."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clocks import LeapClock
from tests.kit.lives import Life, beside
from tests.kit.until import until
from tests.kit.world import World, config, controls, question, said, scene
from tests.scenario.other_parties import (
    another_writes,
    answers,
    database_locked,
    in_a_persons_name,
    record_held,
)
from tests.scenario.prompts import Project
from tests.scenario.test_confirmations import ACTION, confirm, decided
from tests.scenario.typist import command
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE
from workspace.state import Message

Json = dict[str, Any]


@pytest.mark.needs("ledgerfiles")
async def test_p5_answer_of_another_implementation_goes_out_under_its_role(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await another_writes(stage, answers("yes"))
        reply = await stage.reply()
        assert reply["response"] is True
        assert reply["decided_by"] == "agent:architect"
        shown = await stage.now_says(card, "agent:architect")
        assert controls(shown) == ["Verify"]
    assert len(stage.producer.replies) == 1


@pytest.mark.needs("ledgerfiles")
async def test_p5_program_that_names_a_person_answers_as_that_program(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await another_writes(stage, answers("do it", role=f"user:slack/T0LOCAL/{ADE}"))
        assert (await stage.reply())["decided_by"] == f"ledger:user:slack/T0LOCAL/{ADE}"
        shown = await stage.now_says(card, f"ledger:user:slack/T0LOCAL/{ADE}")
        assert f"<@{ADE}>" not in said(shown)


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("reply_state", ["sending", "confirmed"])
async def test_p5_program_that_writes_all_of_a_persons_answer_has_it_undone(
    stage: World, reply_state: str
) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await another_writes(stage, in_a_persons_name("do it", ADE, reply=reply_state))
        await stage.message("CLR-100001-001 was changed by another program", FALLBACK)
        await stage.in_step()
        await stage.workspace.post(FOLAKE, AGENTS, "do nothing", thread_ts=card.ts)
        reply = await stage.reply()
        assert (reply["response"], reply["decided_by"].endswith(FOLAKE)) == ("do nothing", True)


@pytest.mark.needs("ledgerfiles")
async def test_answer_of_another_implementation_that_does_not_fit_leaves_the_question_open(
    stage: World,
) -> None:
    async with stage.bot():
        card = await stage.ask()
        await another_writes(stage, answers("whenever you like"))
        await stage.message("does not count")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["decided_by"].endswith(FOLAKE)


@pytest.mark.parametrize("has_replies", [False, True])
async def test_p1_card_that_somebody_deletes_is_posted_again_while_its_question_is_open(
    stage: World, has_replies: bool
) -> None:
    async with stage.bot():
        card = await stage.ask()
        if has_replies:
            await stage.workspace.post(FOLAKE, AGENTS, "note: let me look", card.ts)
        stage.workspace.board.delete(card)
        again = await stage.until(
            lambda: next(
                (c for c in stage.cards() if c.ts != card.ts and controls(c) == ["Yes", "No", "Take"]), None
            )
        )
        await stage.workspace.click(FOLAKE, AGENTS, again.ts, label="Yes")
        assert (await stage.reply())["response"] is True
        await stage.now_says(again, "Answered: “Yes”")


@pytest.mark.needs("ledgerfiles")
async def test_p1_card_deleted_while_open_is_posted_again_when_it_has_to_change(stage: World) -> None:
    def escalated(record: Json) -> None:
        record["status"] = "escalated"

    async with stage.bot():
        card = await stage.ask()
        stage.workspace.board.delete(card)
        await another_writes(stage, escalated)
        again = await stage.card("escalated")
        assert again.ts != card.ts
        await stage.workspace.click(FOLAKE, AGENTS, again.ts, label="Yes")
        await stage.reply()
    assert stage.record()["status"] == "resolved"


async def test_p4_record_held_by_another_process_is_busy_and_nothing_is_applied_later(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        async with record_held(stage, "CLR-100001-001"):
            outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert outcome.ok, outcome  # acknowledged in time, because the person was told
            assert "try again" in (await stage.whisper(FOLAKE, "Busy")).text
        await stage.workspace.click(ADE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False
    async with stage.bot():
        assert stage.record()["aaep"]["response"] is False
    assert len(stage.producer.replies) == 1


async def test_p4_busy_that_cannot_be_told_is_not_acknowledged(stage: World) -> None:
    """No error shown means nothing lost: without the words, Slack's own error has to say it."""
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.faults.add("response_url", "5xx:503")
        stage.workspace.faults.add("chat.postEphemeral", "5xx:503")
        stage.slack_waits()
        async with record_held(stage, "CLR-100001-001"):
            outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert not outcome.ok
        assert stage.record()["status"] == "pending"


def strange_files(folder: Path) -> set[str]:
    """What others may put among the ledgers, all of it named like one; the names."""
    folder.mkdir(exist_ok=True)
    waiting = {"id": "CLR-7-001", "issueNumber": 7, "from": "x", "to": "y", "status": "pending"}
    ledger = json.dumps({"clarifications": [waiting | {"created": "2026-05-24T14:22:00.000Z"}]})
    numbers = ("99999999999999999999", "999999999999999", "1000000000", "500000", "100001", "007", "0")
    files = {f"issue-{number}.json" for number in numbers}
    for name in files:
        (folder / name).write_text(ledger)
    os.mkfifo(folder / "issue-88.json")
    (folder / "issue-89.json").mkdir()
    (folder / "issue-90.json").symlink_to(folder / "gone")
    return files | {"issue-88.json", "issue-89.json", "issue-90.json"}


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("strange files among the ledgers, and such as cannot be read, are set aside or ignored")
async def test_strangers_files_stop_neither_a_start_nor_a_stop_and_move_no_number(stage: World) -> None:
    names = strange_files(stage.folder / "ledgers")
    for token, number in (("rpl_1", 100001), ("rpl_2", 100002)):
        async with Life.of(stage) as life:
            for name in names:
                if not (number > 100001 and name == "issue-100001.json"):  # by then it is ours
                    await until(lambda name=name, life=life: f"{name} is ignored" in life.words())  # type: ignore[misc]
            card = await stage.ask(token, session=f"sess_{token}", question=f"May I, {token}?")
            assert f"CLR-{number}-" in json.dumps(card.metadata)
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert (await stage.reply(token))["response"] is True
            assert await life.stop() == 0
            life.log.unlink()


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("strange files among the ledgers, and such as cannot be read, are set aside or ignored")
async def test_strangers_file_where_a_ledger_is_to_be_is_set_aside_and_the_question_shown(
    stage: World,
) -> None:
    async with stage.bot():
        folder = stage.folder / "ledgers"
        os.mkfifo(folder / "issue-88.json")
        os.mkfifo(folder / "issue-88.json.lock")
        os.utime(folder / "issue-88.json.lock", (0, 0))
        card = await stage.ask(extensions={"agentx": {"issue": 88}})
        assert "CLR-88-001" in json.dumps(card.metadata)
        await stage.page("cannot be read")
        assert list(folder.glob("issue-88.json.unreadable-*"))
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("strange files among the ledgers, and such as cannot be read, are set aside or ignored")
@pytest.mark.speed(10)
async def test_records_that_can_be_none_of_their_file_are_listed_and_paged_once_and_never_answered(
    stage: World,
) -> None:
    asked: Json = {
        "id": "CLR-7-001",
        "issueNumber": 7,
        "from": "engineer",
        "to": "human",
        "status": "pending",
        "created": "2026-11-22T10:00:00.000Z",
        "thread": [
            {
                "round": 1,
                "from": "engineer",
                "type": "question",
                "body": "Well?",
                "timestamp": "2026-11-22T10:00:00.000Z",
            }
        ],
    }
    odd: list[Json] = [
        {"id": "CLR-8-001", "topic": "of another issue"},
        {"id": "CLR-8-002", "issueNumber": 8, "topic": "wholly of another issue"},
        {"id": "CLR-7-002", "issueNumber": 8, "topic": "of two issues"},
        {"topic": "of a number that is taken"},
        {"id": "CLR-7-005", "round": -1, "topic": "before the first round"},
    ]
    path = stage.folder / "ledgers" / "issue-7.json"
    names = ["CLR-8-001 (record 2)", "CLR-8-002 (record 3)", "CLR-7-002 (record 4)", "CLR-7-001 (record 5)", "CLR-7-005"]  # fmt: skip
    for _ in range(2):
        async with stage.bot() as bot:
            if not path.exists():
                records = [asked | {"topic": "A good one?"}, *({**asked, **each} for each in odd)]
                path.write_text(json.dumps({"issueNumber": 7, "clarifications": records}))
            card = await stage.card("A good one?")
            page = said(await stage.page("5 records of issue-7.json cannot be read"))
            assert all(name in page for name in names)
            shell = Project(stage.folder, stage.database)
            assert (await shell.run("answer", "CLR-7-005", "yes")).code == 3
            assert (await shell.run("answer", "CLR-8-001", "yes")).code == 3
            assert len(await bot.store.read("select 1 from incidents")) == 1
    assert not any(each["topic"] in said(shown) for each in odd for shown in stage.cards())
    await stage.workspace.post(FOLAKE, AGENTS, "go on", thread_ts=card.ts)
    kept = json.loads(path.read_text())["clarifications"]
    assert kept[1:] == [asked | each for each in odd]


def rewritten(record: Json) -> None:
    """Another action than the agent's, and nothing to worry about."""
    record["aaep"] |= {"action": "Water the plants", "riskLevel": "low", "irreversible": False}
    record["aaep"]["consequence"] = "They are wet."
    record["topic"] = record["thread"][0]["body"] = "Water the plants"


def downgraded(kind: str, body: str, *, answered: bool) -> Callable[[Json], None]:
    """A consent made a question that any program may answer, and answered by one."""

    def change(record: Json) -> None:
        record["aaep"]["kinds"] = [kind]
        if answered:
            answers(body)(record)

    return change


def without_its_action(record: Json) -> None:
    for name in ("kinds", "action", "riskLevel", "irreversible"):
        record["aaep"].pop(name, None)
    answers("accept")(record)


CHANGED_QUESTIONS: dict[str, Callable[[Json], None]] = {
    "words": rewritten,
    "risk": lambda record: record["aaep"].update(riskLevel="low"),
    "default": lambda record: record["aaep"].update(defaultDecision="accept"),
    "expiry": lambda record: record["aaep"].update(expiresAt="2036-11-21T10:00:00.000Z"),
    "who asks": lambda record: record.update({"from": "gardener"}),
    "claim": lambda record: record["aaep"].update(
        takenBy={"user": ADE, "team": "T0LOCAL", "at": record["created"]}
    ),
    "token": lambda record: record["aaep"].update(replyToken="rpl_another"),
    "free text": downgraded("freetext", "accept", answered=True),
    "yes or no": downgraded("yes_no", "yes", answered=True),
    "the kind alone": downgraded("freetext", "accept", answered=False),
    "no confirmation": without_its_action,
}


async def undone_and_told(stage: World, card: Message, before: Json) -> None:
    """People are told once; the file is as before, and so is the card; what was shown is decided by who saw it."""
    await stage.message(CHANGED, FALLBACK)
    await stage.in_step()
    assert stage.record() == before
    assert stage.producer.replies == []
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
    reply = await decided(stage)
    assert (reply["decision"], reply["decided_by"].endswith(FOLAKE)) == ("accept", True)
    await stage.in_step()
    assert sum(CHANGED in said(each) for each in stage.workspace.messages(FALLBACK)) == 1


CHANGED = "CLR-100001-001 was changed by another program"


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("kind", CHANGED_QUESTIONS)
async def test_p5_question_that_a_file_rewrites_stays_as_it_was_asked(stage: World, kind: str) -> None:
    async with stage.bot():
        card = await confirm(stage)
        before = stage.record()
        await another_writes(stage, CHANGED_QUESTIONS[kind])
        await undone_and_told(stage, card, before)


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("kind", ["words", "free text"])
async def test_p5_nor_while_no_bot_runs(stage: World, kind: str) -> None:
    async with stage.bot():
        card = await confirm(stage)
        await stage.in_step()
    before = stage.record()
    await another_writes(stage, CHANGED_QUESTIONS[kind])
    async with stage.bot():
        await undone_and_told(stage, card, before)


@pytest.mark.needs("ledgerfiles")
async def test_p5_token_of_a_consent_is_worth_nothing_in_another_record(stage: World) -> None:
    async with stage.bot():
        victim = await confirm(stage)
        copied = {**stage.record(), "id": "CLR-7-001", "issueNumber": 7}
        copied["thread"] = [copied["thread"][0] | {"body": "A word?"}]
        stage.write_ledger(7, {"issueNumber": 7, "clarifications": [copied]})
        asked = await stage.card("A word?")
        await stage.workspace.post(ADE, AGENTS, "accept", thread_ts=asked.ts)
        await stage.until(lambda: stage.record(7)["status"] == "answered")
        assert stage.producer.replies == []
        await stage.workspace.click(FOLAKE, AGENTS, victim.ts, label="Reject")
        assert (await decided(stage))["decision"] == "reject"
    assert len(stage.producer.replies) == 1


@pytest.mark.needs("ledgerfiles")
async def test_question_goes_on_beside_programs_that_write_the_file_anew(stage: World) -> None:
    """Escalated, taken, asked further: it is as it was asked, and what others noted stays in the file."""

    def written_anew(record: Json) -> None:
        record["note"] = "seen"

    async with stage.bot():
        card = await confirm(stage, extra_context={"share": 2.0, "of": {"b": 1, "a": [1e3, None, "ü"]}})
        await another_writes(stage, written_anew)
        await command(stage, "escalate CLR-100001-001")
        await stage.page(ACTION)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        assert (await decided(stage))["decision"] == "accept"
        await stage.until(lambda: in_file(stage)["status"] == "resolved")
        assert in_file(stage)["note"] == "seen"


def in_file(stage: World) -> Json:
    found: Json = json.loads(stage.ledger_file().read_text())["clarifications"][0]
    return found


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("strange files among the ledgers, and such as cannot be read, are set aside or ignored")
async def test_check_lists_records_that_cannot_be_read_and_is_not_held_up_by_a_fifo(stage: World) -> None:
    folder = stage.folder / "ledgers"
    folder.mkdir(exist_ok=True)
    asked = {"id": "CLR-7-001", "issueNumber": 7, "from": "x", "to": "y", "status": "pending"}
    asked["created"] = "2026-11-22T10:00:00.000Z"
    records = [asked, asked, {**asked, "id": "CLR-8-001"}, {**asked, "id": "CLR-7-004", "round": -1}]
    (folder / "issue-7.json").write_text(json.dumps({"issueNumber": 7, "clarifications": records}))
    (folder / "issue-9.json").write_text('{"clarif')
    os.mkfifo(folder / "issue-93.json.lock")
    async with asyncio.timeout(60):
        found = (await beside(stage, "check")).out
    for told in ("CLR-7-001 (record 2)", "CLR-8-001 (record 3)", "CLR-7-004", "issue-9.json cannot be read"):
        assert told in found, told


@pytest.mark.files("a program that locks SQLite's file locks out the bot")
async def test_p1_event_that_comes_while_the_database_is_locked_is_shown_later(stage: World) -> None:
    async with stage.bot() as bot:
        first = await stage.ask("rpl_1")
        with database_locked(stage):
            await stage.producer.emit(question("rpl_2", session="sess_two", question="And now?"))
            await until(lambda: bot.agents.producers.status()["planner"]["backlog"] == 1)
            assert len(stage.cards()) == 1
        await stage.card("And now?")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.reply("rpl_1")


async def test_clock_that_jumps_ahead_expires_what_ran_out_and_nothing_else(tmp_path: Path) -> None:
    clock = LeapClock(30)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        short = await stage.ask("rpl_1", question="Short?", timeout_seconds=3000)
        long = await stage.ask("rpl_2", question="Long?", timeout_seconds=80000)
        clock.ahead += timedelta(hours=1)
        await stage.now_says(short, "Expired")
        await stage.workspace.click(FOLAKE, AGENTS, long.ts, label="Yes")
        await stage.reply("rpl_2")


async def test_clock_that_jumps_back_loses_nothing(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        clock.ahead -= timedelta(minutes=30)
        second = await stage.ask("rpl_2", session="sess_two", question="Second?")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=second.ts)
        assert (await stage.reply("rpl_1"))["response"] is True
        assert (await stage.reply("rpl_2"))["response"] is False
        assert f"<@{FOLAKE}>" in said(await stage.now_says(first, "Delivered"))


def modes(folder: Path) -> dict[str, int]:
    """What the bot made below a folder, with who may do what."""
    given = {"clarify.toml", "workflows", "feature.toml", "bot.log"}
    found = {}
    for path in folder.rglob("*"):
        if not given & set(path.relative_to(folder).parts):
            with suppress(FileNotFoundError):  # the bot has just removed it, as it does with locks
                found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
    return found


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("who may read and write the files")
@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_what_is_asked_and_answered_can_be_read_by_nobody_else(stage: World, umask: int) -> None:
    text = config(stage.producer.url).replace("[ledger]", '[ledger]\nworkflows = "workflows"')
    before = os.umask(umask)
    try:
        stage.configure(text)
        async with Life.of(stage) as life:
            card = await stage.ask()
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            assert {"clarify.db", "clarify.db-wal", "clarify.db-shm", "clarify.db.lock"} <= set(
                modes(stage.folder)
            )
            shell = Project.beside(stage, text)
            await shell.fine("request", "--from", "engineer", "--to", "architect", "--issue", "42", "Why?")
            await shell.fine("export", "--output", "trail.jsonl")
            await shell.fine("backup", "copy/of/today")
            assert await life.stop() == 0
        await shell.fine("restore", "copy/of/today", "--replace")
        async with Life.of(stage):
            await stage.ask("rpl_2", session="sess_two", question="And now?")
    finally:
        os.umask(before)
    found = modes(stage.folder)
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    assert any(name.endswith("agent-status.json") for name in found)
    assert "ledgers/issue-42.json" in found


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("who may read and write the files")
@pytest.mark.parametrize("umask", [0o002, 0o077])
async def test_ledgers_that_a_group_shares_are_shared_and_those_there_keep_their_mode(
    stage: World, umask: int
) -> None:
    folder, before = stage.folder / "ledgers", os.umask(umask)
    text = config(stage.producer.url).replace("[ledger]", '[ledger]\nmode = "0660"')
    try:
        async with stage.bot(text):
            await stage.ask(extensions={"agentx": {"issue": 42}})
            await stage.in_step(42)
            assert modes(folder)["issue-42.json"] == 0o660
            (folder / "issue-42.json").chmod(0o644)
            card = await stage.ask(
                "rpl_2", session="s", question="Now?", extensions={"agentx": {"issue": 42}}
            )
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply("rpl_2")
    finally:
        os.umask(before)
    found = modes(stage.folder)
    assert (found["ledgers"], found["ledgers/.clarify"], found["ledgers/issue-42.json"]) == (
        0o770,
        0o700,
        0o644,
    )
    assert {found["clarify.db"], found["clarify.db.lock"]} == {0o600}
