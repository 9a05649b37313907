"""Ledger files beside a running bot, which keeps its records in the database."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.integrations.ledgerfiles import bridge
from core.ledgeracts import Act, Base, acts
from tests.integrations.ledgerfiles.kit import (
    DIRECTORY,
    ROLES,
    Json,
    accused,
    bridge_of,
    file_of,
    in_file,
    in_step,
    in_store,
    notice,
    put,
    rewrite,
    stage_issues,
    text,
    theirs,
)
from tests.kit.lives import Life, beside
from tests.kit.until import until
from tests.kit.world import World, said, scene
from tests.scenario.other_parties import another_writes, answers, held
from tests.scenario.test_confirmations import confirm
from tests.scenario.typist import of_issue
from workspace.seed import AGENTS, FOLAKE


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        made.configure(text(made))
        yield made


async def test_what_is_asked_and_answered_is_in_the_file(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        (begun,) = await in_step(stage)
        assert (begun["status"], begun["thread"][0]["body"]) == ("pending", "Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Take")
        await until(lambda: "takenBy" in in_file(stage)[0]["aaep"])
        await in_step(stage)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await until(lambda: in_file(stage)[0]["status"] == "resolved")
        await in_step(stage)
    assert accused(stage) == []
    assert oct(file_of(stage).stat().st_mode)[-3:] == "600"


async def test_file_has_what_was_decided_last_when_the_bot_stops(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
    assert in_file(stage) == in_store(stage)


async def test_answer_that_came_second_is_told_and_the_file_is_set_right(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await in_step(stage)
        with held(stage, 100001):  # so that the file does not follow yet
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            rewrite(stage, lambda records: answers("no")(records[0]))
        await notice(stage, "does not count")
        (record,) = await in_step(stage)
        assert [each["body"] for each in record["thread"]][:2] == ["Shall I go on?", "Yes"]
    assert len(stage.producer.replies) == 1


async def test_p5_file_decides_no_approval(stage: World) -> None:
    async with stage.bot():
        await confirm(stage)
        await in_step(stage)
        await another_writes(stage, answers("accept"))
        await notice(stage, "That does not count")
        (record,) = await in_step(stage)
        assert (record["status"], len(record["thread"])) == ("pending", 1)
        await another_writes(stage, answers("reject"))
        await in_step(stage)
        assert in_store(stage)[0]["status"] == "pending"
    assert stage.producer.replies == []


async def test_status_without_a_word_is_taken_but_closes_no_approval(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await confirm(stage, "rpl_2", session="sess_two")
        for issue in (100001, 100002):
            await in_step(stage, issue)
            rewrite(stage, lambda records: records[0].update(status="abandoned"), issue)
        await stage.now_says(card, "Closed")
        await notice(stage, "does not count")
        assert [in_store(stage, n)[0]["status"] for n in (100001, 100002)] == ["abandoned", "pending"]
        for issue in (100001, 100002):
            await in_step(stage, issue)
        rewrite(stage, lambda records: records[0].update(status="escalated"), 100002)
        await until(lambda: in_store(stage, 100002)[0]["status"] == "escalated")


async def test_new_question_of_another_implementation_is_one_of_ours(stage: World) -> None:
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, theirs(kept=1, aaep={"producer": "planner", "replyToken": "rpl_forged"}))
        card = await stage.card("Which database?")
        (ours,) = in_store(stage, 7)
        assert "replyToken" not in ours.get("aaep", {})
        assert ours["kept"] == 1
        await stage.workspace.post(FOLAKE, AGENTS, "SQLite", thread_ts=card.ts)
        await until(lambda: in_file(stage, 7)[0]["status"] == "answered")
        assert json.loads(file_of(stage, 7).read_text())["by"] == "them"
    assert accused(stage) == []


async def test_status_that_a_new_one_has_already_counts(stage: World) -> None:
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, theirs(status="escalated"))
        await stage.card("Which database?")
        await until(lambda: in_store(stage, 7)[0]["status"] == "escalated")


async def test_id_that_is_ours_stays_ours_and_theirs_gets_the_next_number(stage: World) -> None:
    """Both number by the list's length, and neither has seen the other's yet."""
    async with stage.bot(text(stage, more=ROLES)):
        file_of(stage, 7).parent.mkdir(exist_ok=True)
        with held(stage, 7):
            await stage.ask(question="Which cache?", **of_issue(7))
            put(stage, theirs())
        await stage.card("Which database?")
        names = {each["id"]: each["thread"][0]["body"] for each in await in_step(stage, 7)}
        assert names == {"CLR-7-001": "Which cache?", "CLR-7-002": "Which database?"}
        told = said(await notice(stage, "CLR-7-001 is now CLR-7-002"))
        assert "issue-7.json" in told
    assert accused(stage) == []


async def test_p5_new_record_cannot_say_who_decided(stage: World) -> None:
    """Neither its answer nor its asker is a person's, and nothing is signed for them."""
    person = f"user:slack/T0LOCAL/{FOLAKE}"
    forged = theirs(
        aaep={"kinds": ["accept"], "action": "Deploy", "response": "accept", "decidedBy": person},
        status="answered",
    )
    forged["thread"].append(forged["thread"][0] | {"type": "answer", "from": person, "body": "accept"})
    other = theirs(2, "Which queue?", **{"from": person, "status": "abandoned"})
    other["thread"][0]["from"] = person
    other["thread"].append(other["thread"][0] | {"type": "resolution", "body": "done"})
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, forged, other)
        await until(lambda: [each["status"] for each in in_store(stage, 7)] == ["answered", "abandoned"])
        kept = in_store(stage, 7)
        said_by = {each["from"] for record in kept for each in record["thread"]} | {
            each["from"] for each in kept
        }
        assert said_by == {"engineer", f"ledger:{person}"}
        for record in kept:
            ours = record["aaep"]
            assert ours.get("decidedBy", "ledger:").startswith("ledger:")
            assert (ours.get("action"), ours["kinds"]) == (None, ["freetext"])
            assert person not in json.dumps(ours.get("answeredBy"))
        await in_step(stage, 7)


async def test_p5_what_nobody_may_change_is_undone_and_told(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        (before,) = await in_step(stage)
        rewrite(stage, lambda records: records[0]["thread"][0].update(body="Shall I drop the tables?"))
        await notice(stage, "CLR-100001-001 was changed by another program")
        assert await in_step(stage) == [before]
        assert "drop the tables" not in said(await stage.now_says(card, "Shall I go on?"))
        rewrite(stage, lambda records: records.clear())
        await notice(stage, "CLR-100001-001 was deleted by another program")
        assert await in_step(stage) == [before]


async def test_p12_flood_of_what_is_undone_is_told_once_for_each_look(stage: World) -> None:
    count = 60
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, *(theirs(n, f"Number {n}?", status="abandoned") for n in range(1, count + 1)))
        await until(lambda: len(in_store(stage, 7)) == count)
        before = await in_step(stage, 7)

        def flood(records: list[Json]) -> None:
            for each in records[:30]:
                each["thread"][0]["body"] = "Shall I drop the tables?"
            del records[40:]
            records += [theirs(n, "Odd?", round=-1) for n in range(100, 150)]

        rewrite(stage, flood, 7)
        told = said(await notice(stage, "were changed or deleted by another program"))
        assert "CLR-7-001" in told
        assert "30 more" in told
        assert "rewrote 30" in told
        assert "removed 20" in told
        page = said(await stage.page("records of issue-7.json cannot be read"))
        assert "CLR-7-100" in page
        assert "50" in page
        await until(lambda: in_file(stage, 7)[:40] == before[:40])
    async with stage.bot() as bot:
        await stage.ask()
        await in_step(stage)
        assert len(await bot.store.read("select 1 from incidents where kind = 'ledger'")) == 1
    assert len(accused(stage)) == 1


async def test_entry_that_abandons_is_no_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await in_step(stage)

        def gives_up(record: Json) -> None:
            record["status"] = "abandoned"
            entry = {"round": 1, "from": "architect", "type": "resolution", "body": "yes"}
            record["thread"].append(entry | {"timestamp": "2026-11-28T10:05:00Z"})

        await another_writes(stage, gives_up)
        await stage.now_says(card, "Closed")
        (record,) = await in_step(stage)
        assert (record["status"], record["aaep"]["closed"]) == ("abandoned", "by hand")
        assert record["thread"][1]["from"] == "agent:architect"
        assert "yes" in record["thread"][1]["body"]
    assert stage.producer.replies == []
    assert accused(stage) == []


async def test_another_spelling_of_a_time_is_nobodys_act(stage: World) -> None:
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, theirs(kept=1, created="2026-11-28T11:00:01+01:00"))
        card = await stage.card("Which database?")
        await in_step(stage, 7)

        def respell(records: list[Json]) -> None:
            records[0] |= {"created": "2026-11-28T10:00:01Z", "more": 2}

        rewrite(stage, respell, 7)
        await stage.workspace.post(FOLAKE, AGENTS, "SQLite", thread_ts=card.ts)
        await until(lambda: in_file(stage, 7) and in_file(stage, 7)[0]["status"] == "answered")
        assert (in_file(stage, 7)[0]["kept"], in_file(stage, 7)[0]["more"]) == (1, 2)
        assert len(in_store(stage, 7)) == 1
    assert accused(stage) == []


async def test_another_spelling_of_an_id_is_the_same_clarification(stage: World) -> None:
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, theirs(id="CLR-007-0001"), theirs(2, "Which queue?"))
        card = await stage.card("Which database?")
        await stage.card("Which queue?")
        await until(lambda: [each["id"] for each in in_file(stage, 7)] == ["CLR-7-001", "CLR-7-002"])
        rewrite(stage, lambda records: records[0].update(id="CLR-07-001"), 7)
        await stage.workspace.post(FOLAKE, AGENTS, "SQLite", thread_ts=card.ts)
        await until(lambda: in_file(stage, 7)[0]["status"] == "answered")
        rewrite(stage, lambda records: records.append(records[1] | {"id": "CLR-07-002"}), 7)
        await stage.ask(question="Which cache?", **of_issue(7))
        await until(
            lambda: [each["id"] for each in in_store(stage, 7)] == [f"CLR-7-00{n}" for n in (1, 2, 3)]
        )
    assert accused(stage) == []


@pytest.mark.parametrize("what", [".clarify", ".clarify/installation"])
async def test_what_says_whose_folder_it_is_is_written_anew(stage: World, what: str) -> None:
    async with stage.bot():
        await stage.ask("rpl_0", session="sess_zero", question="Before?", **of_issue(7))
    async with stage.bot() as bot:
        card = await stage.ask()
        await in_step(stage)
        path = file_of(stage).parent / what
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        await another_writes(stage, answers("yes"))
        assert (await stage.reply())["decided_by"] == "agent:architect"
        await stage.now_says(card, "agent:architect")
        await in_step(stage)
        owner = file_of(stage).parent / ".clarify/installation"
        assert owner.read_text() == bot.store.installation
        await stage.ask("rpl_2", session="sess_two", question="And now?")
        await in_step(stage, 100002)
    async with stage.bot():
        await stage.ask("rpl_3", session="sess_three", question="And then?")
        await in_step(stage, 100003)
        await another_writes(stage, answers("yes"), 100002)
        await stage.reply("rpl_2")
    assert accused(stage) == []


async def test_drafts_of_a_killed_bot_are_removed(stage: World) -> None:
    async with stage.bot():
        await stage.ask()
        await in_step(stage)
    private = file_of(stage).parent / ".clarify"
    drafts = [private / f"issue-{name}.json.4242.{'0f' * 16}" for name in ("100001", "100001.2", "7")]
    for each in drafts:
        each.write_text("Shall I go on?")
    async with stage.bot():
        await until(lambda: not any(each.exists() for each in drafts))
    for each in drafts:
        each.write_text("Shall I go on?")
    assert (await beside(stage, "forget", "sess_one", "--abandon", "--yes")).code == 0
    assert [each.exists() for each in drafts] == [False, False, True]


@pytest.mark.parametrize("where", ["body", "topic", "theirs"])
async def test_question_of_great_length_is_told_once_and_stays_in_the_file(stage: World, where: str) -> None:
    long = theirs(1)
    (long["thread"][0] if where == "body" else long)[where] = "x" * 10_000_000
    async with stage.bot(text(stage, more=ROLES)) as bot:
        put(stage, long, theirs(2, "Which queue?"))
        await stage.card("Which queue?")
        page = await stage.page("CLR-7-001")
        assert "too long" in said(page)
        assert len(said(page)) < 2000
        await until(lambda: in_file(stage, 7)[1:] == in_store(stage, 7))
        assert in_file(stage, 7)[0] == long
    async with stage.bot(text(stage, more=ROLES)) as bot:
        await stage.ask()
        await in_step(stage)
        assert len(await bot.store.read("select 1 from incidents where kind = 'ledger'")) == 1
    assert len(stage.cards()) == 2


@pytest.mark.parametrize("kind", ["answer", "resolution", "escalation"])
async def test_entry_of_great_length_does_not_count(stage: World, kind: str) -> None:
    async with stage.bot():
        await stage.ask(accepted_response_kinds=["freetext"])
        (before,) = await in_step(stage)

        def change(record: Json) -> None:
            answers("x" * 10_000_000)(record)
            record["thread"][-1]["type"] = kind

        await another_writes(stage, change)
        await notice(stage, "does not count")
        assert await in_step(stage) == [before]
    assert stage.producer.replies == []


async def test_file_that_does_not_parse_is_set_aside_and_made_again(stage: World) -> None:
    async with stage.bot():
        await stage.ask()
        (before,) = await in_step(stage)
        file_of(stage).write_text('{"clarifications": [')
        await stage.page("issue 100001 cannot be read")
        assert await in_step(stage) == [before]
    assert [path.name for path in file_of(stage).parent.glob("*.unreadable-*")]


async def test_file_that_was_behind_when_the_bot_was_killed_follows_at_the_next_start(stage: World) -> None:
    async with Life.of(stage) as life:
        card = await stage.ask()
        await in_step(stage)
        with held(stage, 100001):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            await stage.ask("rpl_2", session="sess_two", question="And now?")
            await in_step(stage, 100002)
            await life.killed()
    assert in_file(stage)[0]["status"] == "pending"
    async with stage.bot():
        await in_step(stage)
    assert accused(stage) == []


async def test_start_looks_only_at_files_that_are_behind(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot():
        for n in range(4):
            await stage.ask(f"rpl_{n}", session=f"sess_{n}", question=f"Number {n}?")
        for issue in stage.issues():
            await in_step(stage, issue)
    looked, follow = list[int](), bridge.Bridge._follow

    async def counted(self: bridge.Bridge, issue: int, *, takes_in: bool) -> None:
        looked.append(issue)
        await follow(self, issue, takes_in=takes_in)

    monkeypatch.setattr(bridge.Bridge, "_follow", counted)
    await another_writes(stage, answers("yes"), 100002)
    async with stage.bot():
        await stage.reply("rpl_1")
        await stage.ask("rpl_4", session="sess_4", question="And now?")
        await in_step(stage, 100005)
    assert set(looked) == {100002, 100005}


async def test_what_was_asked_while_files_were_off_is_in_its_file_once_they_are_on(stage: World) -> None:
    on = stage.file.read_text()
    async with stage.bot():
        await stage.ask()
        await in_step(stage)
    stage.configure(on.replace(DIRECTORY, "directory = false"))
    async with stage.bot():
        card = await stage.ask("rpl_2", session="sess_two", question="And now?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_2")
        for n in range(6):  # more than are written at once
            await stage.ask(f"rpl_more_{n}", session=f"sess_more_{n}", question=f"Number {n}?")
    assert in_file(stage, 100002) == []
    stage.configure(on)
    async with stage.bot():
        for issue in range(100001, 100009):
            await in_step(stage, issue)
    assert accused(stage) == []


async def test_folder_that_was_lost_is_written_to_the_end_whenever_the_bot_stops(stage: World) -> None:
    async with stage.bot():
        for n in range(3):
            await stage.ask(f"rpl_{n}", session=f"sess_{n}", question=f"Number {n}?")
        for issue in stage.issues():
            await in_step(stage, issue)
    folder = file_of(stage).parent
    shutil.rmtree(folder)
    (folder / ".clarify").mkdir(parents=True)
    with held(stage, 100003):
        async with stage.bot():
            await in_step(stage)
            await in_step(stage, 100002)
        assert in_file(stage, 100003) == []
    async with stage.bot():
        await in_step(stage, 100003)
    assert accused(stage) == []


async def test_kill_between_any_two_lines_of_an_exchange_accuses_nobody(stage: World) -> None:
    """Before the file is replaced, after, and before the bot knows; the next bot finds nobody's act in it."""
    cards = []
    for number in range(6):
        life = await Life.begin(stage)
        await life.ready()
        cards.append(await stage.ask(f"rpl_{number}", session=f"sess_{number}", question=f"Go {number}?"))
        if number:
            await stage.workspace.click(FOLAKE, AGENTS, cards[number - 1].ts, label="Yes")
        await asyncio.sleep(0.03 * number)  # around the moment at which the file is written
        await life.killed()
    async with stage.bot():
        for number, card in enumerate(cards[:-1]):
            await stage.reply(f"rpl_{number}")
            await stage.now_says(card, f"<@{FOLAKE}>")
        issues = stage_issues(stage)
        assert len(issues) == 6
        for issue in issues:
            await in_step(stage, issue)
    assert accused(stage) == []


async def test_finished_file_goes_to_the_archive_and_comes_back(stage: World) -> None:
    archived = file_of(stage).parent / "archive" / file_of(stage).name
    stage.configure(stage.file.read_text().replace(DIRECTORY, f'{DIRECTORY}\narchive_after = "0s"'))
    async with stage.bot():
        card = await stage.ask()
        await in_step(stage)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await until(lambda: archived.exists() and not file_of(stage).exists())
        assert json.loads(archived.read_text())["clarifications"] == in_store(stage)
        await stage.ask("rpl_2", question="Shall I stop?")
        await in_step(stage)
        assert not archived.exists()
    assert accused(stage) == []


@pytest.mark.parametrize("days", [0, 30])
async def test_file_of_deleted_records_goes_to_the_archive_when_it_would_have(
    stage: World, days: int
) -> None:
    archived = file_of(stage).parent / "archive" / file_of(stage).name
    stage.configure(stage.file.read_text().replace(DIRECTORY, f'{DIRECTORY}\narchive_after = "30d"'))
    async with stage.bot():
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await until(lambda: in_file(stage) and in_file(stage)[0]["status"] == "resolved")
        await in_step(stage)
    stage.changed("delete from clarifications")  # as `[storage] keep` does
    if days == 0:
        stage.configure(stage.file.read_text().replace('"30d"', '"0s"'))
    file_of(stage).write_text(file_of(stage).read_text() + "\n")
    state = "select state from ledgerfiles where issue = 100001"
    left = rows_of(stage, state)
    async with stage.bot():
        await until(lambda: rows_of(stage, state) != left)
        await until(lambda: archived.exists() or days > 0)
    assert (archived.exists(), file_of(stage).exists()) == (days == 0, days > 0)
    assert accused(stage) == []


def rows_of(stage: World, query: str) -> list[Any]:
    with closing(sqlite3.connect(stage.rows)) as db:
        return db.execute(query).fetchall()


async def test_odd_file_stops_no_other(stage: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(base: Base, file: list[Any], record: list[Any]) -> list[Act]:
        if record[0]["id"] == "CLR-100001-001":
            raise RecursionError("nested deeply")
        return list(acts(base, file, record))

    monkeypatch.setattr(bridge, "acts", odd)
    monkeypatch.setattr(bridge, "_TOLD_AFTER", 0.0)
    async with stage.bot() as bot:
        await stage.ask()
        await stage.ask("rpl_2", session="sess_two", question="And now?")
        await in_step(stage, 100002)
        await notice(stage, "RecursionError")
        for _ in range(2000):  # as after hours
            await bridge_of(bot)._later(100001, "held")
        monkeypatch.setattr(bridge, "acts", acts)
        await in_step(stage)


async def test_question_in_anothers_name_is_no_follow_up(stage: World) -> None:
    async with stage.bot(text(stage, more=ROLES)):
        put(stage, theirs())
        card = await stage.card("Which database?")
        await stage.workspace.post(FOLAKE, AGENTS, "SQLite", thread_ts=card.ts)
        await until(lambda: in_file(stage, 7) and in_file(stage, 7)[0]["status"] == "answered")
        await in_step(stage, 7)
        more = theirs()["thread"][0] | {"from": "gardener", "body": "Which version?"}
        rewrite(stage, lambda records: records[0]["thread"].append(more), 7)
        await notice(stage, "does not count")
        assert [each["body"] for each in (await in_step(stage, 7))[0]["thread"]] == [
            "Which database?",
            "SQLite",
        ]
