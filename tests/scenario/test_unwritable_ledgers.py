"""Ledgers that cannot be written (promise P1): people are told what was asked and why nobody can answer it yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.app import Bot
from bot.workspace.seed import AGENTS, FALLBACK, FOLAKE, ONCALL
from bot.workspace.state import Message
from core.router import Router
from tests.kit.clocks import LeapClock
from tests.kit.lives import beside
from tests.kit.until import impatient, until
from tests.kit.world import World, said, scene
from tests.scenario.typist import of_issue

pytestmark = pytest.mark.files("disks that are full, read-only or not mounted")

SPEED = 10
HOLDER = """
import sys
from pathlib import Path
from core.ledgerfiles import LedgerFiles

with LedgerFiles(Path(sys.argv[1])).hold(int(sys.argv[2]), 5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path, clock=LeapClock(SPEED)) as made:
        yield made


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The file system refuses: mounted read-only, where this user may mount; else the folder takes no files."""
    if mounts("--bind", str(folder), str(folder)):
        assert mounts("-o", "remount,ro,bind", str(folder))
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        mode = folder.stat().st_mode
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(mode)


def mounts(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def unmounted(folder: Path) -> Iterator[None]:
    """The disk is not there: nor is the folder."""
    away = folder.with_name("elsewhere")
    folder.rename(away)
    try:
        yield
        assert not folder.exists(), "made anew"
    finally:
        away.rename(folder)


@contextmanager
def empty_mount_point(folder: Path) -> Iterator[None]:
    """The disk is not there: in its place is the empty folder that it was mounted on."""
    away = folder.with_name("elsewhere")
    folder.rename(away)
    folder.mkdir()
    try:
        yield
        assert not list(folder.iterdir()), "made anew"
    finally:
        folder.rmdir()
        away.rename(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Another process that lives has the ledger of issue 42, and keeps it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), "42"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.stdin.close()
        assert holder.wait(20) == 0
        holder.stdout.close()


TROUBLES = [read_only, unmounted, empty_mount_point, held]


IN_42: dict[str, Any] = {"timeout_seconds": 3600} | of_issue(42)


async def readiness(bot: Bot) -> tuple[int, dict[str, str]]:
    """The status of /readyz, and what it says is wrong."""
    assert bot._http is not None
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{bot._http.url}/readyz")
    told = answer.json()
    wrong = {each["name"]: each["why"] for each in (*told["checks"], *told["degraded"]) if each["why"]}
    return answer.status_code, wrong


async def thread_in_fallback(stage: World, text: str) -> tuple[Message, Message]:
    """The head of the thread of trouble, and what says `text` in it."""
    head = await stage.message("Questions cannot be recorded", FALLBACK)
    told = await stage.message(text, FALLBACK)
    assert told.thread_ts == head.ts
    return head, told


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_p1_what_is_asked_while_ledgers_refuse_is_told_and_heals(stage: World, trouble: Any) -> None:
    async with stage.bot() as bot:
        first = await stage.ask(question="Before?", **IN_42)
        with trouble(stage.folder / "ledgers"), impatient(*stage.routers):
            await stage.emit("rpl_2", session="sess_two", question="Sell the boat?", **IN_42)
            _, told = await thread_in_fallback(stage, "Sell the boat?")
            assert "cannot be recorded" in said(told)
            page = await stage.page("Sell the boat?", ONCALL)
            status, wrong = await readiness(bot)
            if trouble is held:  # of one issue: the others can be written
                assert (status, list(wrong)) == (200, ["events to be recorded"])
            else:
                assert (status, next(iter(wrong))) == (503, "storage")
            assert len(stage.cards()) == 1
        second = await stage.card("Sell the boat?")
        again = await stage.message("Questions can be recorded again", FALLBACK)
        assert again.thread_ts == told.thread_ts
        await until(lambda: page.ts not in {each.ts for each in stage.workspace.direct(ONCALL)})
        for card, token in ((first, "rpl_1"), (second, "rpl_2")):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert (await stage.reply(token))["response"] is True
        assert await readiness(bot) == (200, {})
    assert len(stage.cards()) == 2
    assert len([m for m in stage.workspace.messages(FALLBACK) if "Sell the boat?" in said(m)]) == 1


@pytest.mark.parametrize("trouble", [read_only, unmounted, empty_mount_point])
async def test_p1_start_with_ledgers_that_refuse_says_so_and_heals(stage: World, trouble: Any) -> None:
    async with stage.bot():
        card = await stage.ask(question="Before?", **IN_42)
    with trouble(stage.folder / "ledgers"):
        async with stage.bot() as bot:
            await stage.message("Questions cannot be recorded", FALLBACK)
            await stage.page("Questions cannot be recorded", ONCALL)
            status, wrong = await readiness(bot)
            assert (status, list(wrong)) == (503, ["storage"])
    async with stage.bot():
        await stage.message("Questions can be recorded again", FALLBACK)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply("rpl_1"))["response"] is True
    assert len(stage.cards()) == 1


async def test_disk_that_is_mounted_after_the_start_brings_its_questions_back(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(question="Before?", **IN_42)
    with empty_mount_point(stage.folder / "ledgers"):
        run = stage.bot()
        bot = await run.__aenter__()
        try:
            assert [summary.id for summary in bot.base.index] == []
        except BaseException:
            await run.__aexit__(None, None, None)
            raise
    try:
        await until(lambda: [summary.id for summary in bot.base.index] == ["CLR-42-001"])
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply("rpl_1"))["response"] is True
    finally:
        await run.__aexit__(None, None, None)


@pytest.mark.parametrize("trouble", [unmounted, empty_mount_point])
async def test_nobody_is_told_that_there_is_no_clarification(stage: World, trouble: Any) -> None:
    async with stage.bot():
        card = await stage.ask(question="Before?", **IN_42)
        with trouble(stage.folder / "ledgers"):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.whisper(FOLAKE, "cannot be read or saved right now")
            await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "show CLR-42-001")
            await stage.until(lambda: len(stage.workspace.ephemerals(FOLAKE)) == 2)
            shown = "".join(each.text for each in stage.workspace.ephemerals(FOLAKE))
            assert "no clarification" not in shown
            shell = (await beside(stage, "show", "CLR-42-001")).err
            assert "no clarification" not in shell
            assert "disk is mounted" in shell
            check = (await beside(stage, "check")).out
            assert "disk is mounted" in check
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply("rpl_1"))["response"] is True


async def test_check_names_who_keeps_a_ledger(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question="Before?", **IN_42)
        with held(stage.folder / "ledgers"):
            assert "issue-42.json.lock is held by clarify-bot (process " in (await beside(stage, "check")).out
        assert "is held by" not in (await beside(stage, "check")).out


async def test_p1_what_waited_when_the_bot_was_stopped_is_told_once(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same outage after a restart: the same thread, and nothing in it twice."""
    monkeypatch.setattr(Router.__init__, "__defaults__", (0.5,))  # patience with who holds a ledger
    async with stage.bot():
        await stage.ask(question="Before?", **IN_42)
    with held(stage.folder / "ledgers"):
        async with stage.bot():
            await stage.emit("rpl_2", session="sess_two", question="Sell the boat?", **IN_42)
            head, _ = await thread_in_fallback(stage, "Sell the boat?")
        async with stage.bot() as bot:
            await until(lambda: bot.told.ledger_outage.overdue() is not None)
            await stage.emit("rpl_3", session="sess_two", question="Buy a car?", **IN_42)
            later = await stage.message("Buy a car?", FALLBACK)
            assert later.thread_ts == head.ts
    async with stage.bot():
        await stage.card("Sell the boat?")
        await stage.card("Buy a car?")
        await stage.message("Questions can be recorded again", FALLBACK)
    told = [said(message) for message in stage.workspace.messages(FALLBACK)]
    for words in ("Questions cannot be recorded", "Sell the boat?", "Buy a car?", "can be recorded again"):
        assert sum(words in each for each in told) == 1, words
