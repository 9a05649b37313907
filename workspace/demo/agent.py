"""The demo's agent that speaks AAEP: it deploys a release, and asks people about it in the ways of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from workspace.demo.producer import DemoProducer
from workspace.demo.reviewer import ROLE

AGENT_ID = "deployer"
AGENT_NAME = "Deployer"
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
        """Asks and returns the answer; if no one answers in time, the default or None."""
        reply = await self._wait("clarification", question.payload(), question.timeout_seconds)
        answer = reply["response"] if reply else question.default_value
        heard = "Got the answer" if reply else "No answer. Continuing with"
        await self._go_on(f"{heard}: {shown(answer)}")
        return answer

    async def confirm(self, action: Action) -> bool:
        """Asks for approval; False if no one decides in time."""
        reply = await self._wait("confirmation", action.payload(), action.timeout_seconds)
        await self._go_on(f"Decision: {reply['decision']}" if reply else "No decision. Continuing without it")
        return bool(reply and reply["decision"] == "accept")

    async def _wait(self, kind: str, payload: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Ask, and wait for the reply; None where none comes in time."""
        await self.tell("state.changed", from_state="executing", to_state="awaiting_input")
        token = f"rpl_{self.new_id()}"
        await self.tell(f"awaiting.{kind}", urgency="critical", reply_token=token, **payload)
        try:
            return await self.producer.wait_for_reply(token, timeout=seconds)
        except TimeoutError:
            self.producer.void(token)
            return None

    async def _go_on(self, said: str) -> None:
        await self.tell(
            "state.changed", from_state="awaiting_input", to_state="executing", summary_normal=said
        )

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


def shown(answer: object, most: int = 120) -> str:
    """Show an answer as the agent repeats it: short, on one line."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    text = " ".join(str(answer).split())
    return text if len(text) <= most else text[: most - 1] + "…"


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
        tools_available=["test-runner", "deployer"],
    )
    await session.use("test-runner", "Running the tests", "412 tests passed")
    if not await session.ask(start(version)):
        await session.tell("session.completed", summary_normal=f"Stopped: {version} is not released today")
        return
    await session.ask(review(version))
    await deploy(session, version)
    if await session.confirm(clean_up(version)):
        await session.use("deployer", "Deleting old build files", "318 files deleted")
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
    await session.use("deployer", f"Opening {version} to {percent}%", f"{percent}% of customers have it")


async def fail(session: Session) -> None:
    await session.use(
        "deployer",
        "Watching the new release",
        "The error rate is above the limit",
        error="5.2% of requests fail; the limit is 1%",
    )
    await session.tell(
        "session.errored",
        urgency="critical",
        error_category="requires_user",
        error_code="error_rate_exceeded",
        summary_normal="Rolled back: too many requests failed after the release",
        remediation_hint="Check the payment service first; its certificate changed an hour ago.",
        error_uri="https://runbooks.example.com/error-rate",
        recoverable=False,
    )


# What it asks: one question of each kind


TIMEOUT_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the agent thinks of it; `payload` gives its part of the event."""

    topic: str
    text: str
    kinds: tuple[str, ...]
    choices: tuple[tuple[str, str], ...] = ()  # (value, label)
    context: str | None = None
    default: str | None = None
    default_value: str | bool | float | None = None
    several: bool = False
    timeout_seconds: int = TIMEOUT_SECONDS
    to: str | None = None  # another agent's role; None: people

    def payload(self) -> dict[str, Any]:
        """Build the event's fields. Asked again on the same topic, it is a follow-up."""
        agentx = {"topic": self.topic} if self.to is None else {"topic": self.topic, "to": self.to}
        fields: dict[str, Any] = {
            "question": self.text,
            "timeout_seconds": self.timeout_seconds,
            "accepted_response_kinds": list(self.kinds),
            "summary_normal": shown(self.text, 200),
            "extensions": {"agentx": agentx},
        }
        if self.choices:
            fields["choices"] = [{"value": value, "label": label} for value, label in self.choices]
        if self.several:
            fields["multi_select"] = True
        if self.context:
            fields["context"] = self.context
        if self.default is not None:
            fields["default_response"] = self.default
        return fields


def start(version: str) -> Question:
    return Question(
        topic=f"start {version}",
        text=f"All 412 tests of {version} passed. Start the release?",
        kinds=("yes_no",),
        context="The last release was nine days ago. No other deployment is running.",
        default="no",
        default_value=False,
    )


def review(version: str) -> Question:
    """Ask the other agent, which answers within seconds; people may be faster."""
    return Question(
        topic=f"security of {version}",
        text=f"Does {version} need a security review before it goes out?",
        kinds=("freetext",),
        context="Changed: checkout, search, invoices, basket.",
        to=ROLE,
    )


def where_first(version: str) -> Question:
    return Question(
        topic=f"first environment of {version}",
        text="Where should it go first?",
        kinds=("multiple_choice",),
        choices=(("staging", "Staging"), ("canary", "Canary"), ("production", "Production")),
        default="staging",
        default_value="staging",
    )


def regions() -> Question:
    """Several may be chosen: the labels, joined by commas, are the answer."""
    return Question(
        topic="regions",
        text="Which regions should get it today?",
        kinds=("multiple_choice",),
        choices=(
            ("eu", "Europe"),
            ("us", "North America"),
            ("apac", "Asia and Pacific"),
            ("sa", "South America"),
        ),
        default="Europe",
        default_value="Europe",
        several=True,
    )


def warm_caches() -> Question:
    """Asks with a short deadline: a late answer is told that it came too late."""
    return Question(
        topic="caches",
        text="The deployment starts in a minute. Warm the caches first?",
        kinds=("yes_no",),
        default="yes",
        default_value=True,
        timeout_seconds=60,
    )


def part_of_customers(was: object = None) -> Question:
    again = "" if was is None else f"{was}% is not possible. "
    return Question(
        topic="percentage of customers",
        text=f"{again}What percentage of customers should get it? A number from 1 to 100.",
        kinds=("numeric",),
        context="5 to 20 is usual for the first hour.",
        default="10",
        default_value=10,
    )


@dataclass(frozen=True, slots=True)
class Action:
    """What the agent does only after approval; `payload` gives its part of the event."""

    action: str
    consequence: str
    risk_level: str
    irreversible: bool
    about: dict[str, Any]
    timeout_seconds: int = TIMEOUT_SECONDS

    def payload(self) -> dict[str, Any]:
        """Build the event's fields. Without an answer it is not done."""
        return {
            "action": self.action,
            "consequence": self.consequence,
            "risk_level": self.risk_level,
            "irreversible": self.irreversible,
            "default_decision": "reject",
            "timeout_seconds": self.timeout_seconds,
            "extra_context": self.about,
            "summary_terse": "Approve: " + self.action[:200],
            "summary_normal": f"Approval required. {self.action} {self.consequence}",
        }


def clean_up(version: str) -> Action:
    return Action(
        action=f"Delete the build files of the release before {version}.",
        consequence="Rebuilding them takes about ten minutes.",
        risk_level="low",
        irreversible=False,
        about={"files": 318, "size": "4.2 GB"},
    )


def handoff(version: str) -> dict[str, Any]:
    """Hands a problem that the agent cannot solve over to a person."""
    return {
        "reason": "The payment provider wants a person to confirm the new certificate by phone.",
        "target_kind": "human",
        "target_uri": "queue://shop/platform",
        "urgency_for_handoff": "high",
        "packaged_context": {
            "release": version,
            "provider": "Example Payments",
            "certificate": "SHA-256 4F:2A:…:9C, since an hour ago",
            "tried": ["automatic confirmation", "email to their support"],
        },
        "summary_normal": "Someone must call the payment provider about its new certificate.",
    }
