"""README's first ways to ask, as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE

import httpx

from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.processes import ROOT
from tests.kit.world import World, url_of


async def test_readmes_python_and_curl_are_answered(stage: World) -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(import clarify\n.*?)```", readme, re.DOTALL)
    blocks = [
        shlex.split(each) for each in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "release-1" in each
    ]
    ((_, _, header, url, _, body),) = blocks
    async with stage.bot() as bot:
        environ = {**os.environ, "CLARIFY_URL": url_of(bot), "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=PIPE, env=environ
        )
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Which retirement age")).ts, label="67")
        out, _ = await process.communicate()
        assert out.decode() == f"67 user:slack/T0LOCAL/{FOLAKE}\n"
        name, _, value = header.partition(": ")
        async with httpx.AsyncClient(base_url=url_of(bot), trust_env=False, headers={name: value}) as http:
            asking = asyncio.create_task(
                http.post(url.removeprefix("http://127.0.0.1:8787"), content=body, timeout=60)
            )
            await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Which release?")).ts, label="4.2")
            assert (await asking).json()["answer"] == "4.2"
