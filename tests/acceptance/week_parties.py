"""The parties of a simulated week outside the bot: Slack, pagers, the directory of people. They fail as planned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.errors import SlackUnreachableError
from bot.oncall.outside import OutsidePager, PagerText
from bot.people.access import AccessRefusal, Person
from bot.people.directory import Installation, Profile
from bot.routing import Audience
from bot.show import outbox
from bot.slackapi import Later, Never, Outcome, Post, Sent, Unknown
from core.clarification import Clarification, Decider, Standing
from tests.acceptance.week_plan import GROUPS, TEAM, FaultKind, Plan
from tests.kit.times import walk

Spot = tuple[str, str]
"""Channel and ts."""
_A_MOMENT = 2.0  # seconds


CONTROLS = "[controls]"


def _said(draft: Post) -> str:
    """What a message says, and whether it has a page's controls."""
    has_controls = any(each.get("action_id", "").startswith("oncall.") for each in walk(draft.blocks))
    return f"{draft.text}\n{CONTROLS}" if has_controls else draft.text


@dataclass(frozen=True)
class SlackMessage:
    """A message that is in Slack. `key`: its name in our storage, empty for a card."""

    at: float
    key: str
    channel: str
    ts: str
    draft: Post

    @property
    def spot(self) -> Spot:
        return self.channel, self.ts

    @property
    def owner(self) -> str | None:
        """Whose direct messages it is in."""
        return f"U{self.channel[1:]}" if self.channel.startswith("D") else None


@dataclass(frozen=True)
class Outside:
    """What a pager took."""

    at: float
    page: int
    variable: str


class Outer:
    """The world outside, for the whole week; `now` is true time, whatever clocks say."""

    def __init__(self, plan: Plan, now: Callable[[], float]) -> None:
        self.plan = plan
        self.now = now
        self.posts: list[SlackMessage] = []
        self.refusals: list[tuple[float, str]] = []  # when, of which message
        self.taken: list[Outside] = []
        self.refused_outside: list[Outside] = []
        self.landed: Callable[[SlackMessage], None] = lambda _: None
        # By channel and ts: what a message said since when; when it was deleted; when people replied in its thread.
        self.said: dict[Spot, list[tuple[float, str]]] = {}
        self.deleted: dict[Spot, float] = {}
        self.replies: dict[Spot, list[float]] = {}
        self.frozen: set[Spot] = set()  # what Slack refused to change or delete
        self._places: dict[str, list[SlackMessage]] = {}
        self._calls = 0

    def fault(self, kind: FaultKind, *what: object) -> bool:
        """Whether there is such a fault now; of what it befalls, most."""
        for fault in self.plan.faults:
            if fault.kind == kind and fault.begins <= self.now() < fault.ends:
                return self.plan.draw(fault, *what) < 0.75
        return False

    def is_active(self, user: str) -> bool:
        now = self.now()
        return not any(a.user == user and a.begins <= now < a.ends for a in self.plan.absences)

    def is_present(self, user: str) -> bool:
        return self.plan.draw("present", user, self.now() // 7200) < 0.6

    async def wire(self) -> None:
        """Each call takes its time."""
        self._calls += 1
        await asyncio.sleep(0.05 + 0.6 * self.plan.draw("wire", self._calls) ** 3)

    def weather(self, channel: str) -> Later | Never | None:
        if self.fault("unreachable"):
            return Later("Slack is unreachable")
        if self.fault("busy"):
            return Later("ratelimited", 1 + 20 * self.plan.draw("busy", channel))
        if channel[0] in "DU" and self.fault("dm", channel[-3:]):
            return Never("user_disabled", "place")
        if channel.startswith("C") and self.fault("channel", channel):
            return Never("is_archived", "place")
        return None

    def land(self, channel: str, draft: Post) -> SlackMessage:
        ts = f"{1_700_000_000 + len(self.posts)}.000100"
        post = SlackMessage(
            self.now(), str(draft.metadata["event_payload"].get("key", "")), channel, ts, draft
        )
        self.posts.append(post)
        self.said[post.spot] = [(post.at, _said(draft))]
        self._places.setdefault(channel, []).append(post)
        self.landed(post)
        return post

    def messages(self, channel: str) -> Iterator[SlackMessage]:
        """Those that stand there, the latest first."""
        return (post for post in reversed(self._places.get(channel, [])) if post.spot not in self.deleted)

    def thread_of(self, channel: str, draft: Post) -> str | None:
        """Where a post is: its thread, unless that is gone."""
        return None if (channel, draft.thread_ts) in self.deleted else draft.thread_ts

    def seen_lately(self, post: SlackMessage) -> bool:
        """Whether it stands there, or went while somebody was moving the hand towards it."""
        return self.now() - self.deleted.get(post.spot, self.now()) <= _A_MOMENT


class SlackGateway:
    """`bot.slackapi.Gateway` for one life of the bot; `effect` is where that may end."""

    def __init__(self, outer: Outer, effect: Callable[[], None]) -> None:
        self._outer = outer
        self._effect = effect

    async def post(self, channel: str, draft: Post) -> Outcome:
        await self._outer.wire()
        self._effect()
        key = str(draft.metadata["event_payload"].get("key", ""))
        if (bad := self._outer.weather(channel)) is not None:
            if isinstance(bad, Never):
                self._outer.refusals.append((self._outer.now(), key))
            return bad
        lossy = self._outer.fault("lossy", channel)
        if lossy and self._outer.plan.draw("lost", key, self._outer.now()) < 0.5:
            return Unknown("timeout")
        post = self._outer.land(channel, draft)
        self._effect()
        return Unknown("timeout") if lossy else Sent(channel, post.ts, self._outer.thread_of(channel, draft))

    async def update(self, channel: str, ts: str, draft: Post) -> Outcome:
        await self._outer.wire()
        self._effect()
        if (bad := self._outer.weather(channel)) is not None:
            if isinstance(bad, Never):
                self._outer.frozen.add((channel, ts))
            return bad
        if (channel, ts) in self._outer.deleted:
            return Never("message_not_found", "message")
        self._outer.said[channel, ts].append((self._outer.now(), _said(draft)))
        self._effect()
        return Sent(channel, ts)

    async def delete(self, channel: str, ts: str) -> Outcome:
        await self._outer.wire()
        self._effect()
        if (bad := self._outer.weather(channel)) is not None:
            if isinstance(bad, Never):
                self._outer.frozen.add((channel, ts))
            return bad
        lossy = self._outer.fault("lossy", channel)
        if lossy and self._outer.plan.draw("lost", "delete", ts, self._outer.now()) < 0.5:
            return Unknown("timeout")
        self._outer.deleted.setdefault((channel, ts), self._outer.now())
        self._effect()
        return Unknown("timeout") if lossy else Sent(channel, ts)

    async def replies(self, channel: str, ts: str) -> set[str] | Later | Unknown | Never:
        await self._outer.wire()
        if (bad := self._outer.weather(channel)) is not None:
            return bad
        return {f"{ts}-{number}" for number, _ in enumerate(self._outer.replies.get((channel, ts), ()))}

    async def open_dm(self, user: str) -> str | Later | Unknown | Never:
        await self._outer.wire()
        bad = self._outer.weather(user)
        if isinstance(bad, Never):
            self._outer.refusals.append((self._outer.now(), f":{user}"))
        return bad or f"D{user[1:]}"

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Sent | Later | Unknown | Never | None:
        await self._outer.wire()
        if (bad := self._outer.weather(channel)) is not None:
            return bad
        wanted = matches["event_payload"].items()
        for post in self._outer.messages(channel):
            if post.ts not in known and wanted <= post.draft.metadata["event_payload"].items():
                return Sent(channel, post.ts, self._outer.thread_of(channel, post.draft))
        return None

    async def ours(
        self, channel: str, thread_ts: str | None, since: float
    ) -> dict[str, Mapping[str, Any]] | Later | Unknown | Never:
        await self._outer.wire()
        there = self._outer.messages(channel)
        return self._outer.weather(channel) or {post.ts: post.draft.metadata for post in there}

    async def remove(self, channel: str, ts: str, instead: str) -> Outcome:
        raise AssertionError(f"{ts} in {channel} stands there once")

    async def permalink(self, channel: str, ts: str) -> str | None:
        return None


class Pagers:
    """`bot.oncall.outside.Outside` for one life."""

    def __init__(self, outer: Outer, effect: Callable[[], None]) -> None:
        self._outer = outer
        self._effect = effect
        self.pagers: dict[str, OutsidePager] = {}

    async def send(self, variable: str, _: PagerText) -> outbox.Outcome:
        task = asyncio.current_task()
        page = int(task.get_name().split()[1]) if task is not None else 0
        await self._outer.wire()
        self._effect()
        told = Outside(self._outer.now(), page, variable)
        if self._outer.fault("outside", variable):
            self._outer.refused_outside.append(told)
            return outbox.RetryLater("the service did not take it")
        self._outer.taken.append(told)
        self._effect()
        return outbox.Delivered()


class Directory:
    """`bot.people.directory.People`, without what it remembers."""

    bot_user = ""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer

    def known_name(self, user: str) -> str | None:
        return None

    def known_locale(self, user: str) -> str:
        return ""

    async def installation(self) -> Installation:
        return Installation(TEAM)

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        await self._call()
        return Profile(user, TEAM, name=user, names=(user,), is_deleted=not self._outer.is_active(user))

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        await self._call()
        return frozenset()

    async def group(self, group: str, *, fresh: bool = False) -> frozenset[str]:
        await self._call()
        return frozenset(GROUPS[group])

    async def present(self, user: str) -> bool:
        await self._call()
        return self._outer.is_present(user)

    async def _call(self) -> None:
        if self._outer.fault("slow directory"):
            await asyncio.sleep(30)
        if self._outer.fault("directory") or self._outer.fault("unreachable"):
            raise SlackUnreachableError


class Web:
    """What of Slack is asked without the gateway: where a message is."""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer

    async def chat_getPermalink(self, *, channel: str, message_ts: str) -> dict[str, str]:  # noqa: N802 - Slack's
        await self._outer.wire()
        if self._outer.fault("unreachable"):
            raise TimeoutError
        return {"permalink": f"https://week.slack.com/archives/{channel}/p{message_ts}"}

    async def auth_test(self) -> dict[str, str]:
        return {}


class Gate:
    """Everybody may answer; who is active may be handed something."""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> AccessRefusal | None:
        return None

    async def refusal_on(self, person: Person, route: object) -> AccessRefusal | None:
        return None

    async def deciding(
        self,
        person: Person,
        record: Clarification,
        decide: Callable[[Decider], Awaitable[Clarification]],
        channel: str = "",
    ) -> Clarification:
        return await decide(await self.decider_of(person, record, channel))

    async def decider_of(self, person: Person, record: Clarification, channel: str = "") -> Decider:
        name, before = f"user:slack/{person.team}/{person.user}", record.consent.approvals or ()
        approvers: dict[str | None, Standing] = dict.fromkeys((each.user for each in before), "other")
        return Decider(name, "slack", person.team, person.user, approvers=approvers)

    async def full_member(self, user: str, deadline: float | None) -> bool:
        return self._outer.is_active(user)

    async def trouble_with(self, named: str) -> str | None:
        return None
