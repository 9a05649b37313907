"""What the agents of these tests do: send a newsletter, if people let them."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.world import World
from workspace.seed import AGENTS, FOLAKE
from workspace.state import Message

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs/agents/frameworks.md"
Turn = str | list[tuple[str, dict[str, Any]]]  # what a model says at last, or the tools that it calls
ELSEWHERE = {"url": "http://127.0.0.1:1"}  # a model must not say where the bot is
# What people cannot be asked about, beside a call that they can be asked about.
UNASKABLE: list[tuple[str, dict[str, Any]]] = [
    ("send_newsletter", {"subject": "May", "recipients": 1204}),
    ("send_newsletter", {"subject": "x" * 300_000, "recipients": 1}),
    ("ask_person", {"question": "Which list?", "choices": ["all", "all"]}),
]
CHOICES = {"choices": ["all", "staff"], "other": True}
IN_OWN_WORDS: list[tuple[str, dict[str, Any]]] = [
    ("ask_person", {"question": "Which list?", **CHOICES}),
    ("ask_person", {"question": "Who else?", **CHOICES, "multiple": True}),
]
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


async def answer(stage: World, card: Message, **entered: str | list[str]) -> None:
    """Through the form: several questions stand in one thread, where a reply would not say which it means."""
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    values = {name.replace("_", " "): value for name, value in entered.items()}
    assert (await stage.workspace.submit_view(FOLAKE, values)).ok


async def answer_in_own_words(stage: World) -> list[str]:
    """Answers what IN_OWN_WORDS asks; returns the answers."""
    await answer(stage, await stage.card("Which list?"), Your_answer="only Japan, please")
    await answer(stage, await stage.card("Who else?"), Your_answer="Ada")
    return ["only Japan, please", "Ada"]


def check_refusals(results: Sequence[Any]) -> None:
    """Checks what a model heard of the calls in UNASKABLE, the first of which was rejected without a reason."""
    rejected, long, *repeated = map(str, results)
    assert "Rejected by user:" in rejected
    assert "No one was asked" in long
    assert "at most 262144 are allowed" in long
    for each in repeated:  # of those that can ask questions
        assert "No answer" in each
        assert "uplicate" in each


async def fields(stage: World, card: Message) -> list[str]:
    """Returns what the form asks for."""
    await press(stage, card, "Answer…")
    form = await stage.modal(FOLAKE)
    return [each["label"]["text"] for each in form.payload["blocks"] if each["type"] == "input"]


async def accepted(stage: World, work: Coroutine[Any, Any, Any], *texts: str) -> Any:
    """What comes of the work, once the cards that say `texts` were accepted."""
    task = asyncio.ensure_future(work)
    for text in texts:
        await press(stage, await stage.card(text), "Accept")
    return await task


@dataclass(frozen=True)
class Program:
    """An agent that runs in a process of its own."""

    command: list[str]
    folder: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)

    async def start(self, *words: str, **env: str) -> Process:
        """Starts it with further arguments."""
        environment = os.environ | self.env | env
        return await asyncio.create_subprocess_exec(
            *self.command, *words, cwd=self.folder, env=environment, stdout=PIPE
        )


def python(text: str) -> Program:
    """Returns a program that can import the examples and these tests."""
    return Program([sys.executable, "-c", text], env={"PYTHONPATH": f"{EXAMPLES}:{ROOT}"})


async def killed_while_asking(stage: World, program: Program, saved: str) -> Message:
    """Starts an agent that keeps its state in `saved`, and kills it; returns the card that it left."""
    process = await program.start(saved)
    card = await stage.card("June")
    process.kill()
    await process.wait()
    return card


async def asks_again_about_what_may_have_run(stage: World, program: Program, saved: str) -> str:
    """Accepts a call in which the process dies. The next one must not make it for the same Accept; returns what it printed."""
    first = await program.start(saved, "die")
    await press(stage, await stage.card("June"), "Accept")
    assert await output(first) == ["sends"]
    second = await program.start(saved)
    await stage.until(lambda: len(stage.cards()) == 2)
    await answer(stage, stage.cards()[-1], Your_decision="Reject", Reason="it was sent")
    (printed,) = await output(second)
    return printed


async def output(process: Process) -> list[str]:
    """Returns the lines that a process printed, once it has ended."""
    out, _ = await process.communicate()
    return out.decode().splitlines()


def on_the_page(language: str, module: str) -> str:
    """Returns the page's program that imports `module`."""
    programs = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (program,) = (text for text in programs if module in text)
    return str(program)


def of_the_page(module: str, **names: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    """Runs the page's program that imports `module`; returns its variables."""
    program = on_the_page("python", f"from {module} import")

    async def run() -> dict[str, Any]:
        code = compile(program, PAGE.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await eval(code, names)  # noqa: S307 - our own
        return names

    return run()
