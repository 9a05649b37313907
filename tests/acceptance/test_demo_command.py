"""`clarify demo` as a newcomer runs it: the page, one answer, the agent goes on, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.kit.processes import Process, clarify
from workspace.seed import AGENTS, FOLAKE


async def test_demo_from_the_page_to_an_answer_and_ctrl_c(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    demo = await clarify("demo", "--keep-folder", str(tmp_path / "demo"), env=kept, stderr=DEVNULL)
    children: list[psutil.Process] = []
    try:
        async with asyncio.timeout(60):
            page = await _page(demo)
            async with aiohttp.ClientSession(page) as browser:
                async with browser.get("/") as shown:
                    assert shown.status == 200
                    assert "agents" in await shown.text()
                await _answer_one(browser)
            children = psutil.Process(demo.pid).children(recursive=True)
            assert children, "the bot is a process of its own"
            demo.send_signal(signal.SIGINT)
            assert await demo.wait() == 0
    finally:
        if demo.returncode is None:
            demo.kill()
            await demo.wait()
    assert [child for child in children if child.is_running()] == []


async def _page(demo: Process) -> str:
    assert demo.stdout is not None
    async for line in demo.stdout:
        if b"Open this page:" in line:
            return line.split()[-1].decode()
    raise AssertionError(demo.returncode)


async def _answer_one(browser: aiohttp.ClientSession) -> None:
    """Press Yes, or the first choice, of the first card that has buttons; the agent goes on."""
    card, label = await _watch(browser, _first_button)
    body = {"user": FOLAKE, "channel": AGENTS, "ts": card["ts"], "label": label}
    async with browser.post("/control/click", json=body) as response:
        assert (await response.json())["ok"] is True

    def went_on(messages: list[dict[str, Any]]) -> bool:
        mine = next(m for m in messages if m["ts"] == card["ts"])
        return "the agent has resumed" in str(mine) and f"<@{FOLAKE}>" in str(mine)

    await _watch(browser, went_on)


def _first_button(messages: list[dict[str, Any]]) -> tuple[dict[str, Any], str] | None:
    for message in messages:
        for block in message.get("blocks", ()):
            labels = [e["text"]["text"] for e in block.get("elements", ()) if e["type"] == "button"]
            answers = [label for label in labels if label not in {"Answer…", "View full"}]
            if answers:
                return message, answers[0]
    return None


async def _watch(browser: aiohttp.ClientSession, found: Any) -> Any:
    """What `found` finds among the channel's messages, asked again at every change."""
    version = 0
    while True:
        async with browser.get("/control/messages", params={"channel": AGENTS}) as response:
            if result := found((await response.json())["messages"]):
                return result
        async with browser.get("/control/wait", params={"version": str(version), "timeout": "1"}) as response:
            version = (await response.json())["version"]
