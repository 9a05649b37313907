"""People who answer on cards, in every way there is: what each did, and what they were told."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

from tests.kit.until import until
from workspace import Workspace
from workspace.context import Ack
from workspace.controls import ControlError
from workspace.interactions import Outcome
from workspace.seed import AGENTS, TEAM
from workspace.state import Message, ResponseUrl, User

NOT_TAKEN = ("try again", "nothing was", "was not taken", "could not be saved, so it does not")


@dataclass
class Act:
    """Somebody's answer. `ok`: they saw no error; `shown`: what came with the acknowledgement; `told`: what only they were
    told after it: by the act's own `response_url`, or in its thread until they did the next thing.
    `twin`: the question had another card with controls.
    """

    people: People = field(repr=False)
    user: str
    thread: str
    way: str
    response: object
    began: float
    ended: float = 0.0
    ok: bool = False
    twin: bool = False
    message: str = ""  # the ts of a reply in the thread
    shown: list[str] = field(default_factory=list)
    over: float = math.inf  # when they did the next thing

    @property
    def told(self) -> list[str]:
        return self.shown + [
            each.text
            for each in self.people.workspace.ephemerals(self.user)
            if (by := self.people.answered.get(each.ts)) is self
            or (
                by is None
                and each.thread_ts in {None, self.thread}
                and self.began <= float(each.ts) < self.over
            )
        ]

    @property
    def was_refused(self) -> bool:
        """They were told that nothing was stored: it must never count."""
        return any(words in each.lower() for each in self.told for words in NOT_TAKEN)


class People:
    """Who answers; each does one thing at a time. `moment`: seconds in which what follows an acknowledgement comes."""

    def __init__(self, workspace: Workspace, moment: float, count: int = 12) -> None:
        self.workspace = workspace
        self.moment = moment
        self.turns: dict[str, asyncio.Lock] = {}
        self.last: dict[str, Act] = {}
        self.answered: dict[
            str, Act
        ] = {}  # what was said by a response_url: its ts → the act that it answers
        self.acknowledged: dict[str, float] = {}  # the ts of people's messages → when
        self._urls: dict[int, Act] = {}
        self._follow_response_urls()
        self._follow_acks()
        for number in range(count):
            name = f"U1P{number:02d}"
            workspace.add_user(User(name, f"p{number}", f"Person {number}", TEAM, f"p{number}@local.example"))
            workspace.join(name, AGENTS)
            self.turns[name] = asyncio.Lock()

    def _follow_response_urls(self) -> None:
        interactions, state = self.workspace.interactions, self.workspace.state
        make, apply = interactions._response_url, interactions._apply

        def made(user: str, channel: Any, shown: Any) -> str:
            url = make(user, channel, shown)
            if user in self.last:
                self._urls[id(state.responses[url.rpartition("/")[2]])] = self.last[user]
            return url

        def applied(url: ResponseUrl, body: Any) -> None:
            before = len(state.ephemerals)
            apply(url, body)
            for whisper in state.ephemerals[before:]:
                if (act := self._urls.get(id(url))) is not None:
                    self.answered[whisper.ts] = act

        interactions._response_url, interactions._apply = made, applied  # type: ignore[method-assign]

    def _follow_acks(self) -> None:
        context = self.workspace.context
        record = context.record_ack

        def noted(ack: Ack, payload: dict[str, Any]) -> None:
            if ack.failure is None and (ts := payload.get("event", {}).get("ts")) is not None:
                self.acknowledged.setdefault(ts, time.time())
            record(ack, payload)

        context.record_ack = noted  # type: ignore[method-assign]

    async def answer(self, user: str, way: str, card: Message, response: object, typed: str) -> Act | None:
        """Somebody answers on a card; None: its controls went in this moment. `typed`: the response in words."""
        act = Act(self, user, card.thread_ts or card.ts, way, response, time.time())
        before = self.last.get(user)
        if before is not None:
            before.over = act.began
        self.last[user] = act
        outcome = Outcome(ok=True)
        try:
            if way == "click":
                outcome = await self.workspace.click(user, card.channel, card.ts, label=typed.capitalize())
            elif way == "thread":
                reply = await self.workspace.post(user, card.channel, typed, thread_ts=act.thread)
                act.message = reply.ts
            elif way == "command":
                assert card.metadata is not None
                words = f"answer {card.metadata['event_payload']['clarification']} {typed}"
                outcome = await self.workspace.command(user, card.channel, "/clarify", words)
            else:
                outcome = await self._by_modal(user, card, typed)
        except ControlError:
            return None
        act.ok, act.ended = outcome.ok, time.time()
        act.shown += outcome.errors.values()
        if not outcome.ok:
            act.shown.append(outcome.error)
        await asyncio.sleep(self.moment)
        act.shown += [json.dumps(view.payload["blocks"]) for view in self.workspace.views(user)]
        if self.workspace.views(user):
            await self.workspace.close_view(user, everything=True)
        return act

    async def _by_modal(self, user: str, card: Message, text: str) -> Outcome:
        opened = await self.workspace.click(user, card.channel, card.ts, label="Answer…")
        if not opened.ok:
            raise ControlError(opened.error)
        try:
            await until(lambda: self.workspace.views(user), 5)
        except TimeoutError:
            raise ControlError("no modal came") from None
        return await self.workspace.submit_view(user, {"Your answer": text})
