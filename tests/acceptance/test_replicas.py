"""Several `clarify run` on one PostgreSQL: one leads, and what happens to it is made good by another."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import clarify
from bot.show import messages
from core.clarification import parse_id
from core.clock import SystemClock
from tests.kit import world as worlds
from tests.kit.databases import Server, Wire, set_read_only
from tests.kit.lives import Life
from tests.kit.processes import Said, command
from tests.kit.receivers import receiving
from tests.kit.until import until
from tests.kit.world import World, config, controls, environment, own_url_of, said, scene
from tests.scenario.test_callbacks import SECRET, table
from tests.scenario.test_receipts import PEM
from workspace import Workspace
from workspace.seed import ADE, AGENTS, BOT_TOKEN, ONCALL
from workspace.state import Message

SOON = 20.0  # seconds
TAKEOVER = 10.0  # seconds after the leader's last sign of life


@pytest.fixture
async def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> AsyncIterator[World]:
    monkeypatch.setattr(worlds, "new_database", postgres_server.new)
    async with scene(tmp_path) as made:
        yield made


@dataclass
class Machine:
    """Where one replica runs, with a configuration like all others."""

    folder: Path
    workspace: Workspace


class Replicas:
    """The replicas of one bot; at the end all are killed."""

    def __init__(self, stage: World) -> None:
        self._stage = stage
        self._lives: list[Life] = []

    async def add(
        self, *, fresh: bool = False, first: Callable[[], object] | None = None, database: str | None = None
    ) -> Life:
        """`database`: its own way to it."""
        machine = Machine(self._stage.folder / f"replica{len(self._lives)}", self._stage.workspace)
        machine.folder.mkdir()
        own = {} if database is None else {"CLARIFY_DATABASE_URL": database}
        shutil.copy(self._stage.file, machine.folder)
        life = await Life.begin(machine, env=self._stage.environ | own, fresh=fresh, first=first)
        self._lives.append(life)
        return life

    async def two(self, *, fresh: bool = False) -> tuple[Life, Life]:
        """One that leads and one that follows; `fresh`: the latter, as in `add`."""
        first = await self.add()
        await leads(first)
        second = await self.add(fresh=fresh)
        await follows(second)
        return first, second

    async def end(self) -> None:
        for life in self._lives:
            life.kill()
        for life in self._lives:
            await life.end()


@pytest.fixture
async def replicas(stage: World) -> AsyncIterator[Replicas]:
    made = Replicas(stage)
    yield made
    await made.end()


async def takes_clicks(life: Life, times: int = 1, within: float = 60.0) -> None:
    await life.until(lambda: life.words().count("ready for clicks") == times, within)


async def leads(life: Life, times: int = 1, within: float = 60.0) -> None:
    await life.until(lambda: len(when(life, "started")) == times, within)


async def follows(life: Life, times: int = 1) -> None:
    await life.until(lambda: len(when(life, "following")) == times)
    await takes_clicks(life, len(when(life, "ready for clicks")) or 1)


async def test_another_takes_over_and_nothing_is_asked_or_answered_twice(
    stage: World, replicas: Replicas
) -> None:
    first, second = await replicas.two()
    card = await stage.ask()
    first.kill()
    await leads(second, within=TAKEOVER + 60)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert (await stage.reply())["response"] is True
    shown = await stage.now_says(card, f"<@{ADE}>")
    assert controls(shown) == ["Verify"]
    assert len(stage.cards()) == 1
    assert [reply["reply_token"] for reply in stage.producer.replies] == ["rpl_1"]


async def test_decision_of_a_killed_leader_has_one_receipt_and_one_entry_in_the_log(
    stage: World, replicas: Replicas
) -> None:
    stage.environ["CLARIFY_SIGNING_KEY"] = PEM.decode()
    stage.configure(config(stage.producer.url, more='\n[trust]\nkey_env = "CLARIFY_SIGNING_KEY"\n'))
    first, second = await replicas.two()
    card = await stage.ask()
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    first.kill()
    receipt = stage.record()["aaep"]["receipt"]
    await leads(second, within=TAKEOVER + 60)
    await stage.reply()
    assert stage.database is not None
    with closing(psycopg.connect(stage.database, autocommit=True)) as db:
        query = "select receipt from decisions where jti is not null"
        await until(lambda: db.execute(query).fetchall() == [(receipt,)])
        keys = {"keys": [json.loads(jwk) for (jwk,) in db.execute("select jwk from signing_keys").fetchall()]}
    found = clarify.verify(receipt, keys=keys)
    assert (found.problem, found.claims["jti"], found.claims["answer"]) == (None, "CLR-100001-001/1", True)
    assert stage.record()["aaep"]["receipt"] == receipt


async def test_orderly_stop_hands_over(replicas: Replicas) -> None:
    first, second = await replicas.two()
    assert await first.stop() == 0
    await leads(second)
    (stopped,), (began,) = when(first, "stopped"), when(second, "leading")
    assert began - stopped < timedelta(seconds=TAKEOVER / 2), "it did not wait for the lease to end"


def when(life: Life, event: str) -> list[datetime]:
    """The times at which a process logged that."""
    lines = [json.loads(line) for line in life.words().splitlines() if line.startswith("{")]
    return [datetime.fromisoformat(line["timestamp"]) for line in lines if line["event"] == event]


def set_clock(minutes: int) -> None:
    """In a replica's process: its machine's clock is wrong."""

    def now(_: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(minutes=minutes)

    SystemClock.now = now  # type: ignore[method-assign, assignment]


def listening(life: Life) -> str:
    """The address of its HTTP server."""
    (url,) = [json.loads(line)["url"] for line in life.words().splitlines() if '"listening"' in line]
    return str(url)


@pytest.mark.ci
async def test_clock_that_is_ahead_ends_no_question_early(stage: World, replicas: Replicas) -> None:
    first = await replicas.add()
    await takes_clicks(first)
    card = await stage.ask(timeout_seconds=300)
    first.kill()
    second = await replicas.add(first=partial(set_clock, 10))
    await takes_clicks(second, within=TAKEOVER + 60)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert (await stage.reply())["response"] is True
    shown = await stage.now_says(card, f"<@{ADE}>")
    assert controls(shown) == ["Verify"]


@pytest.mark.ci
async def test_clock_that_is_behind_takes_no_answer_late(stage: World, replicas: Replicas) -> None:
    first = await replicas.add()
    await takes_clicks(first)
    await stage.ask(timeout_seconds=15)
    first.kill()
    second = await replicas.add(first=partial(set_clock, -10))
    await takes_clicks(second, within=TAKEOVER + 60)
    await stage.until(lambda: not any(controls(each) for each in stage.cards()))
    assert not stage.producer.replies


async def test_leader_that_stood_still_begins_anew_behind_the_other(stage: World, replicas: Replicas) -> None:
    first = await replicas.add(fresh=True)
    await takes_clicks(first)
    card = await stage.ask()
    first.process.send_signal(signal.SIGSTOP)
    second = await replicas.add()
    await leads(second, within=TAKEOVER + 60)
    first.process.send_signal(signal.SIGCONT)
    await until(lambda: "restarting; this replica lost its lease" in first.words())
    await follows(first)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="No")).ok
    assert (await stage.reply())["response"] is False
    await stage.now_says(card, f"<@{ADE}>")
    assert len(stage.cards()) == 1
    assert await second.stop() == 0
    await leads(first, times=2)


def hurry() -> None:
    """In a replica's process: what comes late is watched for no longer than a test wants to wait."""
    messages.WATCHED = 8.0


async def arrives(stage: World, method: str) -> None:
    """What a killed leader sent last, and nobody answered: Slack handles it now."""
    lost = next(call for call in reversed(stage.workspace.calls) if call.fault == "drop")
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {BOT_TOKEN}"}) as slack:
        answer = await slack.post(f"{stage.workspace.api_url}{method}", json=lost.args)
    assert answer.json()["ok"], answer.text


@pytest.mark.ci
async def test_post_of_a_killed_leader_that_slack_takes_after_the_takeover_is_removed(
    stage: World, replicas: Replicas
) -> None:
    first, second = await replicas.two()
    stage.workspace.faults.add("chat.postMessage", "drop")
    await stage.emit()
    await stage.until(lambda: not stage.workspace.faults.pending())
    first.kill()
    card = await stage.card("Shall I go on?")
    await arrives(stage, "chat.postMessage")
    assert len(stage.cards()) == 2
    await stage.until(lambda: len(stage.cards()) == 1)
    assert stage.cards() == [card]
    await until(lambda: when(second, "removed a duplicate message"))
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert (await stage.reply())["response"] is True
    assert controls(await stage.now_says(card, f"<@{ADE}>")) == ["Verify"]


@pytest.mark.ci
async def test_change_of_a_killed_leader_that_slack_takes_after_the_takeover_puts_no_controls_back_for_good(
    stage: World, replicas: Replicas
) -> None:
    first = await replicas.add()
    await leads(first)
    second = await replicas.add(first=hurry)
    await follows(second)
    card = await stage.ask()
    stage.workspace.faults.add("chat.update", "drop")
    await stage.workspace.command(ONCALL, AGENTS, "/clarify", "escalate CLR-100001-001 nobody knows")
    await stage.until(lambda: not stage.workspace.faults.pending())
    first.kill()
    await stage.until(lambda: len(stage.workspace.link.connections) == 1)  # else it may get the click
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    await leads(second)
    assert controls(await stage.now_says(card, f"<@{ADE}>")) == ["View full", "Verify"]
    await stage.reply()
    await stage.says("tool.completed")  # what it does with the answer: the question is over
    with closing(psycopg.connect(stage.database or "", autocommit=True)) as db:
        final = "select 1 from messages where kind = 'card' and final = 1"
        await stage.until(lambda: db.execute(final).fetchone())  # nothing else changes it
    await arrives(stage, "chat.update")
    assert controls(stage.cards()[0])
    assert controls(await stage.now_says(card, f"<@{ADE}>")) == ["View full", "Verify"]


def paged_every(stage: World, every: str) -> None:
    """From now on whoever is on call is paged again and again."""
    text = config(
        stage.producer.url, more=f'steps = [{{after = "0s", notify = ["dm"], every = "{every}"}}]\n'
    )
    stage.configure(text)


def pages(stage: World) -> list[Message]:
    """What stands in the direct messages of whoever is on call."""
    return stage.workspace.direct(ONCALL)


async def escalated(stage: World) -> tuple[Message, Message]:
    """A question's card, and the first page about it."""
    card = await stage.ask()
    await stage.workspace.command(ONCALL, AGENTS, "/clarify", "escalate CLR-100001-001 nobody knows")
    (page,) = await stage.until(lambda: pages(stage))
    return card, page


async def answered(stage: World, card: Message) -> None:
    """Answered on its card, its page is over, and nobody saw it."""
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert (await stage.reply())["response"] is True
    await stage.until(lambda: not pages(stage))


@pytest.mark.parametrize(
    ("how", "every"),
    [
        pytest.param("stopped", "6s", marks=pytest.mark.ci),
        pytest.param("killed", "20s", marks=pytest.mark.long),
    ],
)
async def test_page_whose_repeat_a_leader_posted_last_is_deleted_by_the_next_one(
    stage: World, replicas: Replicas, how: str, every: str
) -> None:
    paged_every(stage, every)
    first, second = await replicas.two()
    card, page = await escalated(stage)
    stage.workspace.faults.add("chat.delete", "delay:8")
    await until(lambda: not stage.workspace.faults.pending())
    old, new = pages(stage)
    assert old.ts == page.ts
    if how == "killed":
        first.kill()
    else:
        assert await first.stop() == 0
    await stage.until(lambda: old not in pages(stage))
    assert pages(stage) == [new], "at its start, not with the next repeat"
    await leads(second)
    await answered(stage, card)


@pytest.mark.long
async def test_repeat_of_a_killed_leader_that_slack_takes_after_the_takeover_leaves_one_page(
    stage: World, replicas: Replicas
) -> None:
    paged_every(stage, "20s")
    first, second = await replicas.two()
    card, page = await escalated(stage)
    stage.workspace.faults.add("chat.postMessage", "drop", channel=page.channel)
    await until(lambda: not stage.workspace.faults.pending())
    first.kill()
    await stage.until(lambda: [each.ts for each in pages(stage)] not in ([page.ts], []))
    await arrives(stage, "chat.postMessage")
    assert len(pages(stage)) > 1
    await until(lambda: when(second, "removed a duplicate message"))
    await stage.until(lambda: len(pages(stage)) == 1)
    await answered(stage, card)


@pytest.mark.ci
async def test_takeover_without_the_database_is_begun_anew_once_it_is_back(
    stage: World, replicas: Replicas, postgres_server: Server
) -> None:
    first = await replicas.add()
    await takes_clicks(first)
    card = await stage.ask()
    wire = Wire(postgres_server, stage.database or "")
    try:
        second = await replicas.add(fresh=True, database=wire.url)
        await follows(second)
        wire.blocked, wire.cut_at = True, b"from messages left join clarifications"
        first.kill()
        await until(lambda: "cannot take over from the last leader" in second.words())
        wire.blocked = False
        await until(lambda: "restarting; this replica lost its lease" in second.words())
        wire.blocked = True  # before the program that begins anew has asked for it
        wire.cut()
        await until(lambda: second.ended or "restarting; the database is unavailable" in second.words())
        assert not second.ended, second.last_words()
        wire.blocked = False
        await leads(second)
        await takes_clicks(second, 2)
        assert "the database was away" in second.words()
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{ADE}>")
        assert len(stage.cards()) == 1
    finally:
        wire.close()


async def test_shell_works_on_the_same_database(
    stage: World, replicas: Replicas, postgres_server: Server
) -> None:
    env = dict(os.environ) | environment(stage.workspace) | stage.environ
    empty = {"CLARIFY_DATABASE_URL": postgres_server.new(empty=True)}

    async def shell(*words: str) -> Said:
        return await command(stage.file, *words, env=env)

    before = await command(stage.file, "check", env=env | empty)
    assert "its tables will be created or upgraded" in before.out
    bot = await replicas.add()
    await takes_clicks(bot)
    await stage.ask("rpl_1", question="Which port?", accepted_response_kinds=["freetext"])
    await stage.ask("rpl_2", question="Shall I go on?", session="sess_two")
    listed = json.loads((await shell("list", "--json")).out)
    assert [each["id"] for each in listed] == ["CLR-100001-001", "CLR-100002-001"]
    assert "Which port?" in (await shell("show", "CLR-100001-001")).out
    assert (await shell("answer", "CLR-100001-001", "8080")).code == 0
    assert (await stage.reply("rpl_1"))["response"] == "8080"
    await stage.until(lambda: any("8080" in said(card) for card in stage.cards()))
    assert (await shell("answer", "CLR-100001-001", "9090")).code == 5
    exported = [json.loads(line) for line in (await shell("export")).out.splitlines()]
    assert {line["clarification"] for line in exported} == {"CLR-100001-001", "CLR-100002-001"}
    assert "planner" in (await shell("agents")).out.lower()
    checked = (await shell("check")).out
    assert "a bot is leading" in checked
    assert "notifications arrive" in checked


async def test_while_the_database_is_away_nothing_is_acknowledged_and_all_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> None:
    wire = Wire(postgres_server, postgres_server.new())
    monkeypatch.setattr(worlds, "new_database", lambda: wire.url)
    try:
        async with scene(tmp_path) as stage, stage.bot():
            stage.slack_waits(3.0)
            card = await stage.ask()
            wire.blocked = True
            wire.cut()
            outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            assert outcome.error == "timeout", "Slack shows that it was not taken"
            wire.blocked = False
            await until_taken(stage, card)
            assert (await stage.reply())["response"] is True
            await stage.now_says(card, f"<@{ADE}>")
            await stage.ask("rpl_2", question="And now?")
    finally:
        wire.close()


async def test_database_that_was_read_only_for_a_while_takes_clicks_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> None:
    wire = Wire(postgres_server, postgres_server.new())
    monkeypatch.setattr(worlds, "new_database", lambda: wire.url)
    try:
        async with (
            scene(tmp_path) as stage,
            stage.bot() as bot,
            httpx.AsyncClient(base_url=own_url_of(bot), trust_env=False) as client,
        ):
            stage.slack_waits(3.0)
            card = await stage.ask()
            set_read_only(wire.direct, "on")
            wire.cut()
            outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            assert not outcome.ok, "Slack shows that it was not taken"
            unready = await client.get("/readyz")
            assert unready.status_code == 503
            assert "it is read-only" in unready.text
            set_read_only(wire.direct, "off")
            await until_taken(stage, card)
            assert (await stage.reply())["response"] is True
            await stage.now_says(card, f"<@{ADE}>")
            assert (await client.get("/readyz")).status_code == 200
    finally:
        wire.close()


async def test_click_whose_commit_gets_no_answer_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> None:
    wire = Wire(postgres_server, postgres_server.new())
    monkeypatch.setattr(worlds, "new_database", lambda: wire.url)
    try:
        async with scene(tmp_path) as stage, stage.bot():
            stage.slack_waits(3.0)
            card = await stage.ask()
            wire.blocked, wire.passes, wire.cut_at = True, True, b"commit"
            assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
            await stage.whisper(ADE, "The database went away just then")
            wire.blocked = False
            assert (await stage.reply())["decided_by"].endswith(ADE)
            await stage.now_says(card, f"<@{ADE}>")
    finally:
        wire.close()


async def until_taken(stage: World, card: Message) -> None:
    """Press until it is acknowledged."""
    while not (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok:
        assert not stage.producer.replies


@pytest.mark.ci
async def test_whoever_is_left_takes_clicks_before_it_leads(stage: World, replicas: Replicas) -> None:
    first, second = await replicas.two()
    card = await stage.ask()
    await stage.until(lambda: len(stage.workspace.link.connections) == 2)
    first.kill()
    await stage.until(lambda: len(stage.workspace.link.connections) == 1)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert not when(second, "leading"), "it was answered where it came in"
    assert (await stage.reply())["decided_by"].endswith(ADE)
    await stage.now_says(card, f"<@{ADE}>")
    assert len(stage.cards()) == 1


async def test_what_a_follower_takes_is_told_to_a_leader_whose_connection_for_notices_hangs(
    stage: World, replicas: Replicas, postgres_server: Server
) -> None:
    wire = Wire(postgres_server, stage.database or "")
    try:
        first = await replicas.add(database=wire.url)
        await leads(first)
        second = await replicas.add()
        await follows(second)
        cards = [
            await stage.ask(f"rpl_{n}", session=f"sess_{n}", question=f"Shall I do step {n}?") for n in (1, 2)
        ]
        await stage.until(lambda: len(stage.workspace.link.connections) == 2)
        wire.hang(b"listen ")
        for card in cards:  # one goes to the leader, one to the follower
            assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        async with httpx.AsyncClient(base_url=listening(second), timeout=30) as agent:
            asked = await agent.post("/questions", json={"question": "Which port?", "choices": ["80", "81"]})
            assert asked.status_code == 201
        for n in (1, 2):
            assert (await stage.reply(f"rpl_{n}", timeout=SOON))["response"] is True
        await stage.card("Which port?", timeout=SOON)
        for card in cards:
            await stage.now_says(card, f"<@{ADE}>", timeout=SOON)
        assert not when(first, "restarting; this replica lost its lease")
    finally:
        wire.close()


async def test_question_is_taken_before_another_leads_and_shown_once_after(
    stage: World, replicas: Replicas
) -> None:
    first, second = await replicas.two()
    first.kill()
    async with httpx.AsyncClient(base_url=listening(second), timeout=30) as agent:
        asked = await agent.post("/questions", json={"question": "Which port?", "choices": ["80", "81"]})
        assert asked.status_code == 201
        assert not when(second, "leading"), "it was written down where it came in"
        card = await stage.card("Which port?")
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="81")).ok
        state = await agent.get(asked.headers["Location"], params={"wait": 20})
    assert state.json()["answer"] == "81"
    await stage.now_says(card, f"<@{ADE}>")
    assert len(stage.cards()) == 1


@pytest.mark.ci
@pytest.mark.needs("ledgerfiles")
async def test_ledger_files_in_a_shared_folder_follow_what_any_bot_takes(
    stage: World, replicas: Replicas
) -> None:
    folder = stage.folder / "ledgers"
    stage.configure(stage.file.read_text().replace('directory = "ledgers"', f'directory = "{folder}"'))

    async def is_in_its_file(asked: httpx.Response) -> None:
        name = asked.json()["id"]
        path = folder / f"issue-{parse_id(name)[0]}.json"
        await stage.until(lambda: path.exists() and name in path.read_text(), TAKEOVER + 60)

    first, second = await replicas.two()
    async with httpx.AsyncClient(base_url=listening(second), timeout=30) as agent:
        await is_in_its_file(await agent.post("/questions", json={"question": "Which port?"}))
        first.kill()
        asked = await agent.post("/questions", json={"question": "Which host?"})
        assert not when(second, "leading"), "nobody follows the feed yet"
        await is_in_its_file(asked)


async def test_one_key_at_two_bots_at_once_is_one_question(stage: World, replicas: Replicas) -> None:
    async def asked_by(life: Life) -> list[str]:
        async with httpx.AsyncClient(base_url=listening(life), timeout=30) as agent:
            questions = [{"question": f"Step {n}?", "key": f"{n}", "session": f"s{n % 3}"} for n in range(12)]
            answers = await asyncio.gather(*(agent.post("/questions", json=each) for each in questions))
        assert {each.status_code for each in answers} <= {200, 201}
        return [each.json()["id"] for each in answers]

    first, second = await asyncio.gather(*map(asked_by, await replicas.two()))
    assert first == second
    assert len(set(first)) == 12
    await stage.until(lambda: len(stage.cards()) >= 12)
    assert len(stage.cards()) == 12


@pytest.mark.ci
async def test_what_a_bot_took_and_did_not_do_is_done_by_the_one_that_leads(
    stage: World, replicas: Replicas
) -> None:
    """A reply in a thread is stored before it is acknowledged; then whoever stored it ends."""
    _, second = await replicas.two(fresh=True)
    card = await stage.ask(accepted_response_kinds=["freetext"], question="Which port?")
    with closing(psycopg.connect(stage.database or "", autocommit=True)) as db:
        with db.transaction():
            # Whatever decides waits: the reply is stored, and not done.
            db.execute("select 1 from clarifications for update")
            for text in ("8080", "8081"):  # one at each of the two
                await stage.workspace.post(ADE, AGENTS, text, thread_ts=card.ts)
            await stage.until(lambda: taken(db) == 2)
            second.kill()
        await stage.until(lambda: taken(db) == 0)
    assert (await stage.reply())["response"] in {"8080", "8081"}
    assert len(stage.producer.replies) == 1


def taken(db: psycopg.Connection[Any]) -> int:
    """How many replies are stored and not done."""
    row = db.execute("select count(*) from slack_events where state = 'new'").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.ci
async def test_answers_that_a_follower_takes_are_called_back_once_by_the_leader_or_the_next(
    stage: World, replicas: Replicas
) -> None:
    async with receiving() as hook:
        stage.environ["CALLBACK_SECRET"] = SECRET
        stage.configure(config(stage.producer.url) + table(hook))
        first, second = await replicas.two()
        ids, cards = list[str](), list[Message]()
        async with httpx.AsyncClient(base_url=listening(second), timeout=30) as agent:
            for n in range(3):
                question = {"question": f"Which port {n}?", "choices": ["80", "81"], "callback_url": hook.url}
                asked = await agent.post("/questions", json=question)
                assert asked.status_code == 201, asked.text
                ids.append(asked.json()["id"])
                cards.append(await stage.card(f"Which port {n}?"))
        await stage.until(lambda: len(stage.workspace.link.connections) == 2)
        with closing(psycopg.connect(stage.database or "", autocommit=True)) as db:
            owed = "select clarification from questions where callback_url is not null"
            for card in cards[:2]:  # one goes to the leader, one to the follower
                assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="81")).ok
            await stage.until(lambda: db.execute(owed).fetchall() == [(ids[2],)])
            first.kill()
            await stage.until(lambda: len(stage.workspace.link.connections) == 1)
            assert (await stage.workspace.click(ADE, AGENTS, cards[2].ts, label="81")).ok
            assert not when(second, "leading"), "it was answered by a follower"
            await stage.until(lambda: db.execute(owed).fetchall() == [])
        for card in cards:
            await stage.now_says(card, "the agent has resumed")
        assert sorted(each.said["id"] for each in hook.got) == ids


@pytest.mark.ci
async def test_callback_of_a_killed_leader_is_posted_by_the_next_and_given_up_once(
    stage: World, replicas: Replicas
) -> None:
    """Both bots know the newest URL, wherever it came in."""
    async with receiving() as hook:
        stage.environ["CALLBACK_SECRET"] = SECRET
        stage.configure(config(stage.producer.url) + table(hook))
        first, second = await replicas.two()
        hook.answers = [(-1, {}), (410, {})]
        question = {"question": "Which port?", "choices": ["80", "81"], "key": "k1"}
        async with httpx.AsyncClient(base_url=listening(second), timeout=30) as agent:
            asked = await agent.post("/questions", json=question | {"callback_url": f"{hook.url}&run=1"})
            assert asked.status_code == 201, asked.text
            card = await stage.card("Which port?")
            await stage.workspace.click(ADE, AGENTS, card.ts, label="81")
            await until(
                lambda: hook.got
            )  # the first leader posts, and is killed before it hears what came of it
            first.kill()
            await stage.message("Not called back")
            hook.answers = [(410, {})]

            async def renewed(run: int) -> None:
                again = await agent.post(
                    "/questions", json=question | {"callback_url": f"{hook.url}&run={run}"}
                )
                assert again.json()["id"] == asked.json()["id"]
                await until(lambda: hook.got[-1].path.endswith(f"run={run}"))

            await renewed(2)  # is given up, too, without another message
            await renewed(3)
        await stage.now_says(card, "the agent has resumed")
        assert [each.path[-1] for each in hook.got] == ["1", "1", "2", "3"]
        assert len({each.headers["Idempotency-Key"] for each in hook.got}) == 1
        told = [each for each in stage.workspace.messages(AGENTS) if "Not called back" in said(each)]
        assert len(told) == 1
        for life in (first, second):
            assert "s3cret" not in life.words()
