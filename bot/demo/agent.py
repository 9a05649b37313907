"""The demo's agent: it ships a release, and asks people about it in every way the protocol has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from bot.demo.producer import DemoProducer
from bot.demo.questions import (
    Action,
    Question,
    announcement,
    change_to_name,
    clean_up,
    handoff,
    mailing,
    name_of_release,
    part_of_customers,
    regions,
    review,
    start,
    warm_caches,
    where_first,
    wording,
)

AGENT_ID = "release-captain"
AGENT_NAME = "Release captain"
Pause = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Session:
    """One session of the agent: numbers its events, asks, and uses its tools.

    `pause` waits for some seconds, as work would; `new_id` gives what follows `sess_` and `rpl_`.
    """

    producer: DemoProducer
    id: str
    pause: Pause
    new_id: Callable[[], str]
    sequence: int = 0

    async def tell(self, event_type: str, **payload: Any) -> dict[str, Any]:
        event = {
            "type": f"aaep:agent.{event_type}",
            "session_id": self.id,
            "sequence_number": self.sequence,
            **payload,
        }
        self.sequence += 1
        return await self.producer.emit(event)

    async def ask(self, question: Question) -> str | bool | int | float | None:
        """Ask, and return the answer: the default where nobody answers in time, None without one."""
        await self.tell("state.changed", from_state="executing", to_state="awaiting_input")
        token = f"rpl_{self.new_id()}"
        await self.tell("awaiting.clarification", urgency="critical", reply_token=token, **question.payload())
        try:
            reply = await self.producer.wait_for_reply(token, timeout=question.timeout_seconds)
            answer, said = reply["response"], f"Got the answer: {shown(reply['response'])}"
        except TimeoutError:
            self.producer.void(token)
            answer = question.default_value
            said = f"Nobody answered. Going on with: {shown(answer)}"
        await self.tell(
            "state.changed", from_state="awaiting_input", to_state="executing", summary_normal=said[:4000]
        )
        return answer  # type: ignore[no-any-return]

    async def confirm(self, action: Action) -> bool:
        """Ask for consent; without an answer in time there is none."""
        await self.tell("state.changed", from_state="executing", to_state="awaiting_input")
        token = f"rpl_{self.new_id()}"
        await self.tell("awaiting.confirmation", urgency="critical", reply_token=token, **action.payload())
        try:
            reply = await self.producer.wait_for_reply(token, timeout=action.timeout_seconds)
            accepted, said = bool(reply["decision"] == "accept"), f"The decision: {reply['decision']}"
        except TimeoutError:
            self.producer.void(token)
            accepted, said = False, "Nobody decided. Going on without it"
        await self.tell(
            "state.changed", from_state="awaiting_input", to_state="executing", summary_normal=said
        )
        return accepted

    async def use(
        self, tool: str, doing: str, done: str, *, seconds: float = 1.5, error: str | None = None
    ) -> None:
        """Use a tool, visibly: invoked, some work, completed."""
        call = f"call_{self.new_id()}"
        await self.tell("tool.invoked", tool=tool, tool_call_id=call, summary_normal=doing)
        await self.pause(seconds)
        outcome = {"status": "error", "error_message": error} if error else {"status": "success"}
        await self.tell(
            "tool.completed",
            tool=tool,
            tool_call_id=call,
            duration_ms=int(seconds * 1000),
            summary_normal=done,
            **outcome,
        )


def shown(answer: object) -> str:
    """Show an answer as the agent repeats it: short, on one line."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    text = " ".join(str(answer).split())
    return text if len(text) <= 120 else text[:119] + "…"


async def live(producer: DemoProducer, *, new_id: Callable[[], str], pause: Pause = asyncio.sleep) -> None:
    """Play one session after the other, for ever; every second one ends with an error."""
    await producer.wait_for_subscriber()
    for number in count(1):
        session = Session(producer, f"sess_{new_id()}", pause, new_id)
        await release(session, number, fails=number % 2 == 0)
        await pause(5)


async def release(session: Session, number: int, *, fails: bool) -> None:
    """Ship release 4.`number`, from the first question to the end of the session."""
    version = f"4.{number}"
    await session.tell(
        "session.started",
        summary_normal=f"Preparing release {version} of the shop",
        tools_available=["test-runner", "deployer", "changelog", "mailer"],
    )
    await session.use("test-runner", "Running the tests", "412 tests passed")
    if not await session.ask(start(version)):
        await session.tell("session.completed", summary_normal=f"Stood down: {version} is not released today")
        return
    await session.ask(review(version))
    await deploy(session, version)
    if await session.confirm(clean_up(version)):
        await session.use("deployer", "Deleting old build files", "318 files deleted")
    await write_up(session, version)
    if await session.confirm(mailing(version)):
        await session.use("mailer", "Mailing the announcement", "1,204 mails handed over")
    if fails:
        await fail(session)
    else:
        await session.tell("handoff.requested", urgency="critical", **handoff(version))
        await session.tell("session.completed", summary_normal=f"Release {version} is out", duration_ms=60000)


async def deploy(session: Session, version: str) -> None:
    """Choose where to go and to how many, then go."""
    place = await session.ask(where_first(version))
    if await session.ask(warm_caches()):
        await session.use("deployer", "Warming the caches", "Caches are warm")
    await session.use("deployer", f"Preparing {shown(await session.ask(regions()))}", "Regions are ready")
    await session.use("deployer", f"Deploying {version} to {place}", f"{version} runs on {place}")
    percent = await session.ask(part_of_customers())
    while not isinstance(percent, int | float) or not 1 <= percent <= 100:
        percent = await session.ask(part_of_customers(was=percent))
    await session.use(
        "deployer", f"Opening {version} to {percent} %", f"{percent} % of the customers have it"
    )


async def write_up(session: Session, version: str) -> None:
    """Find words for it, with people's help."""
    change = await session.ask(change_to_name(version))
    name = await session.ask(name_of_release(version))
    await session.use(
        "changelog", f"Writing about “{shown(change)}”", f"Notes of {version} “{shown(name)}” written"
    )
    words = await session.ask(announcement(version))
    while words is None:
        words = await session.ask(announcement(version))
    await session.use("changelog", "Checking the wording", f"The announcement begins: {wording(str(words))}")


async def fail(session: Session) -> None:
    await session.use(
        "deployer",
        "Watching the new release",
        "The error rate is above its limit",
        error="5.2 % of requests fail; the limit is 1 %",
    )
    await session.tell(
        "session.errored",
        urgency="critical",
        error_category="requires_user",
        error_code="error_rate_exceeded",
        summary_normal="Rolled back: too many requests failed after the release",
        remediation_hint="Look at the payment service first, its certificate changed an hour ago.",
        error_uri="https://runbooks.example.com/error-rate",
        recoverable=False,
    )
