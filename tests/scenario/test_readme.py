"""README's Python, as it stands there."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE

from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.processes import ROOT
from tests.kit.world import World, url_of


async def test_readmes_python_is_answered(stage: World) -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(import clarify\n.*?)```", readme, re.DOTALL)
    async with stage.bot() as bot:
        environ = {**os.environ, "CLARIFY_URL": url_of(bot), "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=PIPE, env=environ
        )
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Which retirement age")).ts, label="67")
        out, _ = await process.communicate()
        assert out.decode() == f"67 user:slack/T0LOCAL/{FOLAKE}\n"
