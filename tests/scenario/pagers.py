"""The parties of tests about pages: a clock that leaps, a pager outside Slack, policies, and what people see of pages.

Time stands as good as still but for its leaps, so that nothing depends on how fast the machine is. How alike pages are
grouped is up to their timing: what a test waits for is that words reach somebody in some page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.app import Bot
from tests.kit.clocks import LeapClock
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import World, config, controls, parties, said
from workspace import Options
from workspace.seed import AGENTS, FOLAKE, ONCALL
from workspace.state import Message

LONG = 60.0  # seconds of patience: the machine is not ours alone
Json = dict[str, Any]
FIRST, SECOND = "CLR-100001-001", "CLR-100002-001"  # of the first two sessions without an issue
ALL = ["Take", "Hand to…", "Snooze", "Not mine"]
WORDS: dict[str, Any] = {"accepted_response_kinds": ["freetext"]}


class Pager:
    """A service outside Slack that takes apprise's `json://` notifications; `refuses` ones are answered with 500."""

    def __init__(self) -> None:
        self.told: list[Json] = []
        self.asked = 0
        self.refuses = False
        self.url = ""

    def words(self) -> str:
        return "\n".join(f"{each['title']}\n{each['message']}" for each in self.told)

    async def says(self, text: str) -> Json:
        """The notification that says `text`, once it is there."""
        found: Json = await until(
            lambda: next((e for e in self.told if text in f"{e['title']}\n{e['message']}"), None), LONG
        )
        return found

    async def take(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.refuses:
            return web.Response(status=500)
        self.told.append(await request.json())
        return web.Response()


@asynccontextmanager
async def pager() -> AsyncIterator[Pager]:
    """A pager on loopback; gone afterwards, its address is a dead one."""
    made = Pager()
    async with served(made.take) as address:
        made.url = f"{address.replace('http', 'json')}/key-that-is-secret"
        yield made


def step(after: str, *notify: str, **more: str) -> str:
    """One step of a policy; `more`: its `every` and its `hours`."""
    told = ", ".join(f'"{each}"' for each in notify)
    return f'{{after = "{after}", notify = [{told}]{"".join(f", {key} = {value!r}" for key, value in more.items())}}}'


class Night(World):
    """A scene with somebody on call. `environ` is what the bot finds in its environment beside Slack's tokens."""

    clock: LeapClock

    def config(
        self,
        *steps: str,
        people: str = f'users = ["{ONCALL}"]',
        take_timeout: str = "15m",
        more: str = "",
        **fields: Any,
    ) -> str:
        """A `clarify.toml` with these steps; without any, those that the program has."""
        policy = f'take_timeout = "{take_timeout}"\n'
        if steps:
            policy += f"steps = [{', '.join(steps)}]\n"
        text = config(self.producer.url, more=policy + more, **fields)
        return text.replace('users = ["U0ONCALL"]', people)

    async def later(self, bot: Bot, **delta: float) -> None:
        """Time passes, once all that is under way has landed: it would be late otherwise."""
        await bot.board.messages.in_flight.settled()
        await until(lambda: bot.board.pages.next_look() is None)
        self.clock.leap(timedelta(**delta))

    async def escalate(self, clarification: str = FIRST) -> None:
        """Have a question escalated by hand: no time has to pass."""
        outcome = await self.workspace.command(
            FOLAKE, AGENTS, "/clarify", f"escalate {clarification} it is urgent"
        )
        assert outcome.ok, outcome

    def pages(self, user: str = ONCALL) -> list[Message]:
        """The direct messages to somebody, oldest first."""
        return self.workspace.direct(user)

    def about(self, clarification: str, user: str = ONCALL) -> list[Message]:
        """The direct messages to somebody that name a question."""
        return [page for page in self.pages(user) if clarification in said(page)]

    async def live(
        self,
        text: str,
        place: str = ONCALL,
        *,
        wants: Iterable[str] = ("Take", "Hand to…"),
        but: Iterable[str] = (),
    ) -> Message:
        """The message that says `text` and carries the controls `wants`, to a person or in a channel.

        `but`: the ts of messages that are not meant.
        """
        known = set(but)

        def find() -> Message | None:
            there = self.pages(place) if place.startswith("U") else self.workspace.messages(place)
            return next(
                (m for m in there if m.ts not in known and text in said(m) and {*wants} <= {*controls(m)}),
                None,
            )

        found: Message = await self.until(find)
        return found

    async def becomes(self, page: Message, *texts: str, without: Iterable[str] = ()) -> Message:
        """A message once it says all `texts` and has none of the controls `without`."""
        dead = {*without}

        def find() -> Message | None:
            there = self.workspace.message(page.channel, page.ts)
            fits = all(text in said(there) for text in texts) and not dead & {*controls(there)}
            return there if fits else None

        found: Message = await self.until(find)
        return found

    async def gone(self, page: Message) -> None:
        """Returns once a direct message is deleted."""
        await self.until(lambda: all(each.ts != page.ts for each in self.workspace.messages(page.channel)))

    async def press(self, page: Message, label: str, user: str = ONCALL) -> None:
        outcome = await self.workspace.click(user, page.channel, page.ts, label=label)
        assert outcome.ok, outcome


@asynccontextmanager
async def night(folder: Path, *, seconds_to_ack: float = 30.0, speed: float = 1.0) -> AsyncIterator[Night]:
    """A workspace and a producer on one leaping clock. The workspace waits long for a machine that is busy."""
    clock = LeapClock(speed)
    options = Options(ack_timeout=seconds_to_ack, trigger_lifetime=600.0)
    async with parties(options, clock) as (workspace, producer):
        yield Night(folder, workspace, producer, clock)


async def asked_and_paged(stage: Night, place: str = ONCALL, **fields: Any) -> tuple[Message, Message]:
    """A question that was escalated: its card, and the page about it."""
    card = await stage.ask(**({"timeout_seconds": 36_000} | fields))
    await stage.escalate()
    return card, await stage.live(fields.get("question", "Shall I go on?"), place)
