"""What the agents of these tests do: send a newsletter, if people let them."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bot.workspace.seed import AGENTS, FOLAKE
from bot.workspace.state import Message
from tests.kit.world import World

PAGE = Path(__file__).parents[2] / "docs/agents/frameworks.md"
Turn = str | list[tuple[str, dict[str, Any]]]  # what a model says at last, or the tools that it calls
SENDS: list[Turn] = [[("send_newsletter", {"subject": "June", "recipients": 1204})], "Done."]


class Mailing:
    """The tools, and what they did."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def send_newsletter(self, subject: str, recipients: int) -> str:
        """Sends the newsletter."""
        self.sent.append((subject, recipients))
        return f"sent to {recipients}"


async def press(stage: World, card: Message, label: str) -> None:
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok


async def answer(stage: World, card: Message, **entered: str) -> None:
    """Through the form: several questions stand in one thread, where a reply would not say which it means."""
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    fields = {name.replace("_", " "): value for name, value in entered.items()}
    assert (await stage.workspace.submit_view(FOLAKE, fields)).ok


async def accepted(stage: World, work: Coroutine[Any, Any, Any], *texts: str) -> Any:
    """What comes of the work, once the cards that say `texts` were accepted."""
    task = asyncio.ensure_future(work)
    for text in texts:
        await press(stage, await stage.card(text), "Accept")
    return await task


def of_the_page(module: str, **names: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    """Runs the page's program that imports `module`; returns its variables."""
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (program,) = (text for text in programs if f"from {module} import" in text)

    async def run() -> dict[str, Any]:
        code = compile(program, PAGE.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await eval(code, names)  # noqa: S307 - our own
        return names

    return run()
