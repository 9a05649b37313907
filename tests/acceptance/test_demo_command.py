"""`clarify demo` as a newcomer runs it: the page, one answer, the agent goes on, agents of one's own, Ctrl-C."""

from __future__ import annotations

import asyncio
import html
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from mcp import Client, StdioServerParameters

from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.processes import Process, clarify


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
                async with browser.get("/") as shown:
                    await _connect_as_the_page_says(browser, await shown.text())
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
        return "the agent went on" in str(mine) and f"<@{FOLAKE}>" in str(mine)

    await _watch(browser, went_on)


async def _connect_as_the_page_says(browser: aiohttp.ClientSession, page: str) -> None:
    """Ask by everything that the page offers to copy, and answer it there."""
    found = re.findall(r'<pre id="way-[^>]*>(.*?)</pre>', page, re.DOTALL)
    add, serve, program, in_a_shell = (html.unescape(text) for text in found)
    async with asyncio.TaskGroup() as group:
        group.create_task(_answer(browser, "Over HTTP?", "A"))
        group.create_task(_answer(browser, "Over stdio?", "B"))
        group.create_task(_answer(browser, "Which colour?", "Green"))
        group.create_task(_answer(browser, "Which database?", "SQLite"))
        over_http = group.create_task(_tool(add.split()[-1], "Over HTTP?"))
        command, *words = shlex.split(serve)
        # the script of this name is there where the package is installed
        server = StdioServerParameters(command=sys.executable, args=["-m", "bot.cli", *words])
        over_stdio = group.create_task(_tool(server, "Over stdio?"))
        with_python = group.create_task(_output(sys.executable, "-c", program))
        with_curl = group.create_task(_posted(browser, shlex.split(in_a_shell)))
    assert add.startswith("claude mcp add --transport http clarify http://127.0.0.1:")
    assert Path(command).name == "clarify"
    assert (over_http.result(), over_stdio.result()) == ("A", "B")
    assert with_python.result() == f"Green user:slack/T0LOCAL/{FOLAKE}\n"
    assert with_curl.result()["answer"] == "SQLite"


async def _tool(server: str | StdioServerParameters, question: str) -> Any:
    async with Client(server) as client:
        result = await client.call_tool("ask_human", {"question": question, "choices": ["A", "B"]})
    assert result.structured_content is not None
    return result.structured_content["answer"]


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    out, _ = await process.communicate()
    return out.decode()


async def _posted(browser: aiohttp.ClientSession, command: list[str]) -> Any:
    """What curl would do."""
    curl, _, header, url, _, body = command
    assert curl == "curl"
    name, _, value = header.partition(": ")
    async with browser.post(url, data=body, headers={name: value}) as response:
        return await response.json()


async def _answer(browser: aiohttp.ClientSession, words: str, label: str) -> None:
    def asked(messages: list[dict[str, Any]]) -> Any:
        return next((m["ts"] for m in messages if words in str(m) and f"'{label}'" in str(m)), None)

    body = {"user": FOLAKE, "channel": AGENTS, "ts": await _watch(browser, asked), "label": label}
    async with browser.post("/control/click", json=body) as response:
        assert (await response.json())["ok"] is True


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
