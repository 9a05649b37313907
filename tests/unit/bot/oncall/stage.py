"""The pages at work: a real ledger, router, storage, delivery and templates; Slack and the clock are the test's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

from bot.base import build as build_base
from bot.delivery.build import build as build_shown
from bot.delivery.messages import Permalinks
from bot.oncall.build import build as build_oncall
from bot.oncall.build import build_board
from bot.oncall.incidents import Incident
from bot.oncall.pages import Destination
from bot.oncall.roster import Policies
from bot.people.access import Person, Refusal
from bot.routing import Audience
from bot.settings.load import parse_settings
from bot.settings.model import PacingSettings, Settings
from bot.slackapi import Later, Never, Outcome, Post, Sent, Unknown
from bot.storage.ledger import DatabaseLedger
from bot.workspace.seed import APP_TOKEN, BOT_TOKEN
from core.clarification import Clarification
from core.escalation import NewIncident
from tests.kit.builders import ask
from tests.kit.clocks import ManualClock
from tests.kit.databases import open_store
from tests.kit.until import until
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.oncall.crew_parties import Directory

AGENTS, FALLBACK, BOSSES = "C0AGENTS", "C0FALLBACK", "C0BOSSES"
ONCALL, SECOND = "U0ONCALL", "U0SECOND"
ANSWERER, GUEST, STRANGER = "U0ANSWERER", "U0GUEST", "U0STRANGER"
DM, DM_SECOND = "D0ONCALL", "D0SECOND"
CONFIGURATION = f"""
[slack]
fallback_channel = "{FALLBACK}"
[[producers]]
name = "planner"
url = "http://127.0.0.1:1"
[[routes]]
channel = "{AGENTS}"
on_call = "platform"
[[routes]]
agent = "unpaged"
channel = "{AGENTS}"
[[on_call]]
name = "platform"
users = ["{ONCALL}"]
take_timeout = "15m"
steps = [
  {{after = "0s", notify = ["dm"], every = "5m"}},
  {{after = "15m", notify = ["channel:{BOSSES}"]}},
  {{after = "30m", notify = ["apprise:PAGER_URL"]}},
]
"""
ADE, BEA, STRANGE = (Person("T1", user) for user in (ONCALL, SECOND, STRANGER))


@dataclass
class Places:
    """What is wrong with where pages go: `broken` incidents raise, words in `nobody` lead nowhere, those in `to` there."""

    broken: set[str] = field(default_factory=set)
    nobody: set[str] = field(default_factory=set)
    to: dict[str, tuple[Destination, ...]] = field(default_factory=dict)


class StagedPolicies(Policies):
    """The real ones, but for what `places` says."""

    places: Places

    async def _destinations_of(
        self, notify: str, incident: Incident, people: tuple[str, ...], *, is_held: bool
    ) -> Sequence[Destination]:
        if incident.key in self.places.broken:
            raise RuntimeError("poisoned")
        if notify.partition(":")[0] in self.places.nobody:
            return ()
        return self.places.to.get(notify) or await super()._destinations_of(
            notify, incident, people, is_held=is_held
        )


@dataclass
class Gate:
    """Lets `answerers` in; `guests` are no full members; `error` is raised instead."""

    answerers: set[str] = field(default_factory=lambda: {ANSWERER})
    guests: set[str] = field(default_factory=lambda: {GUEST})
    error: Exception | None = None

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None:
        if self.error is not None:
            raise self.error
        return None if person.user in self.answerers else Refusal("you are not listed", ("members",))

    async def full_member(self, user: str, deadline: float | None) -> bool:
        if self.error is not None:
            raise self.error
        return user not in self.guests


@dataclass
class Outside:
    """A sender outside Slack; `error` is raised, `held` keeps it waiting."""

    sent: list[tuple[str, str, str]] = field(default_factory=list)
    error: Exception | None = None
    held: asyncio.Event | None = None

    async def send(self, variable: str, title: str, body: str) -> None:
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error
        self.sent.append((variable, title, body))


@dataclass
class Slack:
    """Keeps what is posted. `refuses`: places that it will never post to; `unknown`: whose next answer is lost."""

    clock: ManualClock
    there: dict[tuple[str, str], Post] = field(default_factory=dict)
    posts: list[str] = field(default_factory=list)
    deleted: set[tuple[str, str]] = field(default_factory=set)
    refuses: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    down: bool = False
    asked: int = 0

    async def post(self, channel: str, draft: Post) -> Outcome:
        if self.down or channel in self.stuck:
            return Later("down", 1.0)
        if channel in self.broken:
            return Unknown("internal_error")
        if channel in self.refuses:
            return Never("channel_not_found", "place")
        self.posts.append(channel)
        ts = f"{self.clock.now().timestamp():.0f}.{len(self.posts):06d}"
        self.there[channel, ts] = draft
        if channel in self.unknown:
            self.unknown.discard(channel)
            return Unknown("timeout")
        return Sent(channel, ts, draft.thread_ts)

    async def update(self, channel: str, ts: str, draft: Post) -> Outcome:
        if self.down:
            return Later("down", 1.0)
        self.there[channel, ts] = draft
        return Sent(channel, ts)

    async def replies(self, channel: str, ts: str) -> set[str] | Outcome:
        if self.down:
            return Later("down", 1.0)
        return {
            each for (where, each), draft in self.there.items() if (where, draft.thread_ts) == (channel, ts)
        }

    async def delete(self, channel: str, ts: str) -> Outcome:
        if self.down:
            return Later("down", 1.0)
        self.deleted.add((channel, ts))
        return Sent(channel, ts)

    async def open_dm(self, user: str) -> str | Outcome:
        return Later("down", 1.0) if self.down else f"D{user[1:]}"

    async def find(
        self, channel: str, thread_ts: str | None, matches: Any, known: set[str]
    ) -> Outcome | None:
        if self.down:
            return Later("down", 1.0)
        wanted = matches["event_payload"].items()
        for (where, ts), draft in self.there.items():
            if where == channel and ts not in known and wanted <= draft.metadata["event_payload"].items():
                return Sent(where, ts, draft.thread_ts)
        return None

    async def permalink(self, channel: str, ts: str) -> str:
        self.asked += 1
        return f"https://x.slack.com/archives/{channel}/p{ts.replace('.', '')}"

    def pages(self, place: str = DM) -> list[Post]:
        """The pages that were posted in a place, the earliest first."""
        return [draft for _, draft in self._pages(place)]

    def standing(self, place: str = DM) -> list[Post]:
        """Those of them that are not deleted."""
        return [draft for at, draft in self._pages(place) if at not in self.deleted]

    def _pages(self, place: str) -> list[tuple[tuple[str, str], Post]]:
        return [
            (at, draft)
            for at, draft in self.there.items()
            if at[0] == place and draft.metadata["event_type"] == "clarify_page"
        ]


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.slack, self.outside, self.places = Slack(self.clock), Outside(), Places()
        environ = {
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "PAGER_URL": "json://127.0.0.1:1",
        }
        self.settings = self.unpaced(
            parse_settings(CONFIGURATION, file=folder / "clarify.toml", environ=environ)
        )
        self.gate, self.directory = Gate(), Directory()
        self.tasks: list[asyncio.Task[None]] = []
        self.count = 0
        self.deaf = False

    @staticmethod
    def unpaced(settings: Settings) -> Settings:
        """Posts wait for no clock."""
        return settings.model_copy(update={"pacing": PacingSettings.model_construct(posts_per_second=inf)})

    async def start(self) -> World:
        self.store = await open_store(self.folder / "clarify.db")
        self.ledger = DatabaseLedger(self.store)
        self._build()
        async for some in self.ledger.load():
            for known in some:
                self.index.put(known)
        await self.delivery.restore()
        await self.pager.restore()
        self.tasks = [asyncio.create_task(self.pager.run()), asyncio.create_task(self.delivery.run())]
        return self

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == []
        await self.delivery.lanes.close()
        await self.store.close()

    async def restart(self) -> None:
        """Killed, and started from the same files."""
        await self.stop()
        await self.start()

    def _build(self) -> None:
        """As the bot builds them, but Slack, whom pages reach and who may answer are the test's."""
        self.deaf = False
        base = build_base(
            self.settings,
            self.store,
            self.ledger,
            self.clock,
            random.Random(1),  # noqa: S311 - jitter
            changed=self._changed,
            may_be_answered=lambda _: False,
            shown_whole=lambda _: True,
        )
        given: dict[str, Any] = {"gateway": self.slack, "people": self.directory, "renderer": RENDERER}
        base = replace(base, **given)
        self.index, self.router = base.index, base.router
        board = build_board(base, lambda: None)
        self.messages, self.incidents, self.pages = board.messages, board.incidents, board.pages
        self.roster = board.roster
        policies = StagedPolicies(self.settings, base.audiences, self.roster, self.index.get, self.clock)
        policies.places = self.places
        permalinks = Permalinks(self.messages, self.slack.permalink)
        self.view = replace(board.page_view, policies=policies, permalinks=permalinks)
        access: Any = self.gate
        board = replace(board, policies=policies, access=access, page_view=self.view)
        shown = build_shown(
            base,
            self.messages,
            permalinks,
            draw=self.view.draw,
            raise_incident=self.incidents.raise_,
            on_outcome=self.pages.on_outcome,
            active=self.roster.active,
            is_awaited=lambda _: False,
        )
        self.delivery = shown.delivery
        oncall = build_oncall(base, board, self.delivery, lambda: None)
        self.escalations, self.actions = oncall.escalations, oncall.page_actions
        self.pager = replace(oncall.pager, send_outside=self.outside.send)

    def _changed(self, record: Clarification) -> None:
        self.index.put(record)
        if not self.deaf:
            self.escalations.record_changed(record)

    async def raised(self, **more: Any) -> NewIncident:
        self.count += 1
        fields: dict[str, Any] = {
            "key": f"errored:planner:{self.count}",
            "title": f"planner stopped {self.count}",
            "reason": "Error category permanent",
        }
        new = NewIncident(**(fields | more))
        await self.incidents.raise_(new)
        return new

    def about(self, clarification: str) -> Incident | None:
        """The newest open incident about a clarification."""
        found = self.incidents.about(clarification)
        return found[-1].incident if found else None

    async def escalated(self, issue: int = 42, reply: str = "rpl_1", **more: Any) -> Clarification:
        """A question that was escalated."""
        return await self.router.escalate((await self.asked(issue, reply, **more)).id, "by hand")

    async def asked(self, issue: int = 42, reply: str = "rpl_1", **more: Any) -> Clarification:
        """A question."""
        now = self.clock.now()
        fields: dict[str, Any] = {
            "kinds": ("yes_no",),
            "reply_token": reply,
            "event_id": reply,
            "expires_at": now + timedelta(hours=6),
            "asked_at": now,
            "received_at": now,
        }
        return (await self.router.open(issue, ask(**(fields | more)))).record

    async def pass_by(self, seconds: float) -> None:
        """Time goes on by `seconds` at one go, and everybody does what is to be done."""
        await self.quiet()
        await self.clock.advance(seconds)
        await self.quiet()

    async def paged(self, count: int, place: str = DM) -> list[Post]:
        """The pages in a place, once there are `count` of them and no more to come."""
        await until(lambda: len(self.slack.pages(place)) >= count)
        await self.quiet()
        pages = self.slack.pages(place)
        assert len(pages) == count, [page.text[:80] for page in pages]
        return pages

    async def quiet(self) -> None:
        """Returns when nothing moves any more but the clock."""
        calm, before = 0, None
        async with asyncio.timeout(60):
            while calm < 12:
                await asyncio.sleep(0.002)
                now = (len(self.slack.posts), self.delivery.lanes.length, await self._written())
                calm = calm + 1 if now == before else 0
                before = now

    async def _written(self) -> int:
        await self.store.write(lambda _: None)  # what was asked for before is done
        row = await self.store.read_one("pragma data_version")
        return int(row["data_version"]) if row else 0

    async def log(self, incident: int = 1) -> list[str]:
        """What happened to an incident."""
        (found,) = await self.incidents.all([incident])
        return [each["what"] for each in found.entries]


def said(draft: Post) -> str:
    return "\n".join([draft.text, repr(draft.blocks)])
