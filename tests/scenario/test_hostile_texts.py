"""What anybody writes, of whatever length and shape, holds up nobody else's click."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from time import process_time
from typing import Any

import pytest

from tests.kit.world import World
from workspace.seed import ADE, AGENTS, BOT_USER, FOLAKE, GIO

LONGEST, ACCEPTED = (
    40_000,
    16_000,
)  # characters that Slack takes in a message, an agent in a question or an answer
SHAPES = {
    "blanks": " ",
    "tabs": "\t",
    "line ends": "\n",
    "digits": "7",
    "numbers": "1,000 ",
    "letters": "a",
    "brackets": "(",
    "marks": "*_~`",
    "quotes": "> ",
    "half mentions": "<@U0",
    "mentions": f"<@{BOT_USER}> ",
    "half quoted": "« ",
    "dashes": "--",
    "ids": "CLR-1-1 ",
    "addresses": "https://a.b/",
    "joined emoji": "👩\u200d",
    "flags": "🇩",
    "marks on a letter": "e\u0301",
    "right to left": "א ",
    "isolates": "\u2067",
    "ligatures": "\ufdfa",
    "JSON": '{"a":',
}
KINDS: dict[str, dict[str, Any]] = {
    "yes_no": {"accepted_response_kinds": ["yes_no"]},
    "numeric": {"accepted_response_kinds": ["numeric", "freetext"]},
    "choices": {
        "accepted_response_kinds": ["multiple_choice"],
        "choices": [{"value": each, "label": each} for each in ("one", "two")],
        "multi_select": True,
    },
}


@pytest.fixture(scope="module")
def quadratic() -> float:
    """Seconds of computing that this machine needs, now, for a pattern that takes quadratic time over what an agent may write."""
    began = process_time()
    assert re.search(r"-+$", "-" * ACCEPTED + "x") is None
    return process_time() - began


EACH_SHAPE = pytest.mark.parametrize(
    "shape",
    [pytest.param(each, marks=[pytest.mark.ci] if number % 3 else []) for number, each in enumerate(SHAPES)],
)


@asynccontextmanager
async def longest_halt() -> AsyncIterator[list[float]]:
    """The longest time for which the process computed without a turn for others: as long, nobody's click is taken. Computing
    time, since other processes make waiting longer; of all threads, since a regular expression in any of them halts all;
    without the collector of garbage, which looks through whatever the tests before have left.
    """
    longest = [0.0]

    async def tick() -> None:
        while True:
            began = process_time()
            await asyncio.sleep(0.005)
            longest[0] = max(longest[0], process_time() - began)

    ticking = asyncio.create_task(tick())
    gc.disable()
    try:
        yield longest
    finally:
        gc.enable()
        ticking.cancel()


@EACH_SHAPE
async def test_hostile_text_holds_up_no_click(stage: World, quadratic: float, shape: str) -> None:
    text = SHAPES[shape] * (LONGEST // len(SHAPES[shape]))
    async with stage.bot() as bot:
        card = await stage.ask()
        asked = [
            await stage.ask(f"rpl_{kind}", session=f"sess_{kind}", question=f"Which {kind}?", **fields)
            for kind, fields in KINDS.items()
        ]
        own = await stage.ask(
            "rpl_own", session="sess_own", question="In your words?", accepted_response_kinds=["freetext"]
        )
        async with longest_halt() as taken:
            for user, each in product((GIO, ADE), asked):
                reply = await stage.workspace.post(user, AGENTS, f"7{text}x", each.thread_ts or each.ts)
                await stage.workspace.edit(user, AGENTS, reply.ts, f"{text}y")
            await stage.workspace.post(GIO, AGENTS, f"<@{BOT_USER}> {text}")
            await stage.workspace.post(GIO, stage.workspace.board.open_direct(GIO).id, text)
            await stage.workspace.command(GIO, AGENTS, "/clarify", text)
            await stage.workspace.post(ADE, AGENTS, f"x{text[:ACCEPTED]}x", own.thread_ts or own.ts)
            await stage.reply("rpl_own")
            outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            await bot.slack.app.handlers.conversation.idle()
        assert outcome.ok
        assert taken[0] < 0.8 * quadratic


@EACH_SHAPE
async def test_hostile_question_holds_up_no_click(stage: World, quadratic: float, shape: str) -> None:
    text = SHAPES[shape] * (ACCEPTED // len(SHAPES[shape]))
    async with stage.bot():
        card = await stage.ask()
        async with longest_halt() as taken:
            said = {"context": f"a {text} b", "summary_normal": text, "default_response": text}
            for kind, fields in KINDS.items():
                asked = {"question": f"{kind}? {text}", **said, **fields}
                await stage.emit(f"rpl_{kind}", session=f"sess_{kind}", **asked)
            acts = {
                "action": f"Do {text} it",
                "consequence": text,
                "risk_level": "high",
                "reversibility": text,
            }
            more = {"accepted_response_kinds": None, "extensions": {"agentx.topic": text}}
            await stage.emit(
                "rpl_acts", session="sess_acts", type="aaep:agent.awaiting.confirmation", **acts, **more
            )
            await stage.until(lambda: len(stage.cards()) >= 5)
            outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            await stage.reply()
        assert outcome.ok
        assert taken[0] < 0.8 * quadratic


async def test_reply_of_a_guest_in_a_thread_of_several_questions_is_refused_and_not_kept(
    stage: World,
) -> None:
    async with stage.bot() as bot:
        card = await stage.ask()
        await stage.ask("rpl_2", question="And on?")
        before = len(stage.workspace.messages(AGENTS))
        await stage.workspace.post(GIO, AGENTS, "yes", card.ts)
        await stage.whisper(GIO, "you are a guest")
        await bot.slack.app.handlers.conversation.idle()
        assert len(stage.workspace.messages(AGENTS)) == before + 1


async def test_reply_of_a_guest_after_the_answer_is_not_read(stage: World) -> None:
    async with stage.bot() as bot:
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        for user in (GIO, ADE):
            await stage.workspace.post(user, AGENTS, "no", card.ts)
        await stage.whisper(ADE, "already answered")
        await bot.slack.app.handlers.conversation.idle()
        assert stage.workspace.ephemerals(GIO) == []
