"""Typing `/clarify` and reading what comes of it, the way a person in the local workspace does."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.kit.times import walk
from tests.kit.until import until
from tests.kit.world import World, question
from workspace.controls import controls
from workspace.interactions import Outcome
from workspace.seed import ADE, AGENTS, RANDOM, TEAM
from workspace.state import Ephemeral, Message, User, View

Shown = Message | Ephemeral | View
FREE: dict[str, Any] = {"accepted_response_kinds": ["freetext"]}
YES_NO: dict[str, Any] = {"accepted_response_kinds": ["yes_no"]}
LIN = "U0LIN"
HOSTILE = "Ping <!channel> <@U0GONE> *bold* `code` <https://evil.example|press me> &lt;!here&gt; now?"
_LIVE = ("<!channel>", "<!here>", "<@U0GONE>", "<https://evil.example", "|press me>")
_FORMAT = ("*bold*", "`code`")
_ID = re.compile(r"CLR-\d+-\d+")


def of_issue(issue: int, **more: Any) -> dict[str, Any]:
    """Fields of a question of an issue; `more` are other extensions."""
    return {"extensions": {"agentx": {"issue": issue, **more}}}


async def command(stage: World, text: str, user: str = ADE, channel: str = AGENTS) -> Ephemeral:
    """Type `/clarify text`; what the person is told, with the acknowledgement or after it."""
    await stage.level()
    before = len(stage.workspace.ephemerals(user))
    outcome = await stage.workspace.command(user, channel, "/clarify", text)
    assert outcome.ok, (text, outcome)
    told: Ephemeral = await stage.until(
        lambda: next(iter(stage.workspace.ephemerals(user)[before:]), None), 20
    )
    return told


def arrives_late(stage: World, channel: str, text: str, *, after: Message, user: str = ADE) -> None:
    """Slack delivers only now what `user` wrote right after a message, in its thread or beside it."""
    stage.workspace.emit(
        {
            "type": "message",
            "channel": channel,
            "channel_type": "im" if channel.startswith("D") else "channel",
            "user": user,
            "text": text,
            "ts": f"{float(after.ts) + 0.000001:.6f}",
            "team": TEAM,
        }
        | ({} if channel.startswith("D") else {"thread_ts": after.thread_ts or after.ts})
    )


async def becomes(stage: World, told: Ephemeral, text: str) -> None:
    """Returns once a message that only one person sees says `text`, in its place."""
    await stage.until(lambda: text in words(told), 20)


def payload(shown: Shown) -> Any:
    return shown.payload["blocks"] if isinstance(shown, View) else shown.blocks


def words(shown: Shown) -> str:
    """All that is shown, as a reader sees it; without blocks the text itself."""
    texts = [item["text"] for item in walk(payload(shown)) if isinstance(item.get("text"), str)]
    if not texts and not isinstance(shown, View):
        texts = [shown.text]
    return html.unescape("\n".join(texts))


def ids(shown: Shown) -> list[str]:
    """The clarifications that are named, each once, in their order."""
    return list(dict.fromkeys(_ID.findall(words(shown))))


def buttons(shown: Shown) -> list[str]:
    """The words on its buttons, in their order."""
    return [str(each.element["text"]["text"]) for each in controls(payload(shown)) if each.kind == "button"]


def assert_inert(shown: Shown) -> None:
    """Nothing of `HOSTILE` mentions, links or formats where Slack would read it so."""
    live = [item["text"] for item in walk(payload(shown)) if item.get("type") == "mrkdwn"]
    for text in [*live, "" if isinstance(shown, View) else shown.text]:
        assert not [each for each in _LIVE if each in text], text
    for text in live:
        assert not [each for each in _FORMAT if each in text], text


def outsider(stage: World) -> str:
    """A full member of the workspace who is in #random, and not where the agents are."""
    stage.workspace.add_user(User(LIN, "lin", "Lin", TEAM, "lin@local.example"))
    stage.workspace.channel(RANDOM).members.append(LIN)
    return LIN


def direct(stage: World, user: str) -> str:
    """The channel of a person's direct messages with the bot."""
    return stage.workspace.board.open_direct(user).id


async def ask_many(stage: World, known: Any, count: int, issue: int = 42) -> list[str]:
    """Have as many questions open, in sessions of their own; their ids, those with the least time left first.

    `known`: the bot's index.
    """
    for n in range(count):
        left = 3600 + 60 * ((n * 7) % count)  # not in the order of asking
        asked = question(
            f"rpl_{n}", session=f"sess_{n}", question=f"Question number {n}?", timeout_seconds=left
        )
        await stage.producer.emit(asked | YES_NO | of_issue(issue))
    await until(lambda: sum(each.is_open for each in known) == count, 60)
    left_first = sorted(known, key=lambda each: each.expires_at)
    return [each.id for each in left_first]


async def early(acting: Coroutine[Any, Any, Outcome], stage: World, patch: pytest.MonkeyPatch) -> bool:
    """Whether what is done is acknowledged though nothing was written yet. It must succeed when it was."""
    let = asyncio.Event()

    async def held(transact: Callable[..., Awaitable[Any]], *words: Any, **named: Any) -> Any:
        await let.wait()
        return await transact(*words, **named)

    with patch.context() as only:
        for bot in stage.bots:
            only.setattr(bot.base.ledger, "transact", partial(held, bot.ledger.transact))
        task = asyncio.create_task(acting)
        done, _ = await asyncio.wait({task}, timeout=0.3)  # what reads is acknowledged by then
        let.set()
        outcome = await task
    assert outcome.ok, outcome
    return bool(done)
