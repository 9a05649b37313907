"""Ledger files that cannot be written: questions are asked and answered as always, people are told once, and the files
follow as soon as they can (promises P1, P12).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.app import Bot
from bot.integrations.ledgerfiles import bridge
from tests.integrations.ledgerfiles.kit import accused, bridge_of, in_file, in_step, stage_issues, text
from tests.kit.lives import beside
from tests.kit.until import until
from tests.kit.world import World, said, scene
from tests.scenario.typist import of_issue
from workspace.seed import AGENTS, FALLBACK, FOLAKE, ONCALL

pytestmark = pytest.mark.files("disks that are full, read-only or not mounted")

HOLDER = """
import sys
from pathlib import Path
from core.ledgerfiles import LedgerFiles

with LedgerFiles(Path(sys.argv[1])).hold(int(sys.argv[2]), 5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(bridge, "_TOLD_AFTER", 0.5)
    async with scene(tmp_path) as made:
        made.configure(text(made))
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


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """The disk, which `small_disk` made, is full."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """The folder is a disk of its own; skips where this user may not mount one."""
    folder.mkdir()
    if not mounts("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)):
        pytest.skip("needs the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


TROUBLES = [read_only, unmounted, empty_mount_point, held, full]


IN_42: dict[str, Any] = {"timeout_seconds": 3600} | of_issue(42)
BEHIND = "Ledger files are behind"


async def degraded(bot: Bot) -> dict[str, str]:
    """What /readyz says works less well; the bot is ready all the same."""
    assert bot._http is not None
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{bot._http.url}/readyz")
    assert answer.status_code == 200, answer.text
    return {each["name"]: each["why"] for each in answer.json()["degraded"] if each["why"]}


async def healed(stage: World, bot: Bot) -> None:
    for issue in stage_issues(stage):
        await in_step(stage, issue)
    await until(lambda: bridge_of(bot).trouble() is None)
    assert await degraded(bot) == {}


def told(stage: World) -> int:
    return sum(BEHIND in said(each) for each in stage.workspace.messages(FALLBACK))


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_waits_for_files_that_refuse_and_they_follow_later(stage: World, trouble: Any) -> None:
    folder = stage.folder / "ledgers"
    with small_disk(folder) if trouble is full else nullcontext():
        async with stage.bot() as bot:
            first = await stage.ask(question="Before?", **IN_42)
            await in_step(stage, 42)
            with trouble(folder):
                second = await stage.ask("rpl_2", session="sess_two", question="Sell the boat?", **IN_42)
                other = await stage.ask("rpl_3", session="sess_three", question="Buy a car?")
                for card, token in ((first, "rpl_1"), (second, "rpl_2"), (other, "rpl_3")):
                    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
                    assert (await stage.reply(token))["response"] is True
                    await stage.now_says(card, f"<@{FOLAKE}>")
                await stage.message(BEHIND, FALLBACK)
                assert list(await degraded(bot)) == ["ledgers"]
                if trouble is held:  # for long
                    await until(lambda: bridge_of(bot)._failing[42][1] > 3)
            await healed(stage, bot)
            assert [each["status"] for each in in_file(stage, 42)] == ["resolved"] * 2
    assert (told(stage), accused(stage), stage.workspace.direct(ONCALL)) == (1, [], [])


@pytest.mark.parametrize("trouble", [read_only, unmounted, empty_mount_point])
async def test_start_beside_files_that_refuse_is_a_start(stage: World, trouble: Any) -> None:
    """The disk is mounted later, while the bot runs."""
    async with stage.bot():
        card = await stage.ask(question="Before?", **IN_42)
        await in_step(stage, 42)
    run = stage.bot()
    with trouble(stage.folder / "ledgers"):
        bot = await run.__aenter__()
        try:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert (await stage.reply("rpl_1"))["response"] is True
            await stage.message(BEHIND, FALLBACK)
            assert list(await degraded(bot)) == ["ledgers"]
        except BaseException:
            await run.__aexit__(None, None, None)
            raise
    try:
        await healed(stage, bot)
    finally:
        await run.__aexit__(None, None, None)
    assert (told(stage), accused(stage), len(stage.cards())) == (1, [], 1)


async def test_new_database_takes_in_files_that_cannot_be_written(stage: World) -> None:
    """They follow, and are its own, as soon as they can be written."""
    folder = stage.folder / "ledgers"
    async with stage.bot():
        card = await stage.ask(question="Before?", **IN_42)
        await in_step(stage, 42)
    for path in stage.folder.glob("clarify.db*"):
        path.unlink()
    run = stage.bot()
    with read_only(folder):
        bot = await run.__aenter__()
        try:
            await stage.now_says(card, "From a ledger file")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert (await stage.reply("rpl_1"))["response"] is True
            await stage.message(BEHIND, FALLBACK)
        except BaseException:
            await run.__aexit__(None, None, None)
            raise
    try:
        await healed(stage, bot)
        assert (folder / ".clarify" / "installation").read_text() == bot.store.installation
    finally:
        await run.__aexit__(None, None, None)
    assert (told(stage), accused(stage), len(stage.cards())) == (1, [], 1)


async def test_folder_that_is_not_there_is_told_though_nothing_is_to_be_written(stage: World) -> None:
    """What others write is not seen, either."""
    async with stage.bot():
        await stage.ask(question="Before?", **IN_42)
        await in_step(stage, 42)
    with empty_mount_point(stage.folder / "ledgers"):
        async with stage.bot() as bot:
            assert "disk is mounted" in said(await stage.message(BEHIND, FALLBACK))
            assert "no ledger file is read" in (await degraded(bot))["ledgers"]
            assert "disk is mounted" in (await beside(stage, "check")).out
            shown = await beside(stage, "show", "CLR-42-001")
            assert "Before?" in shown.out, shown.err


async def test_check_names_who_keeps_a_ledger(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question="Before?", **IN_42)
        await in_step(stage, 42)
        with held(stage.folder / "ledgers"):
            assert "issue-42.json.lock is held by clarify-bot (process " in (await beside(stage, "check")).out
        assert "is held by" not in (await beside(stage, "check")).out
