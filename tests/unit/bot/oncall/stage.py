"""Messages at work: a real ledger, router, storage, delivery and templates; Slack and the clock are the test's."""

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
from bot.feed import Feed
from bot.oncall.build import build as build_oncall
from bot.oncall.build import build_board
from bot.oncall.incidents import Incident
from bot.oncall.pages import Destination
from bot.oncall.roster import Policies
from bot.settings.load import parse_settings
from bot.settings.model import PacingSettings, Settings
from bot.show.build import build as build_shown
from bot.show.messages import Permalinks
from bot.slackapi import Outcome as SlackOutcome
from bot.slackapi import Post, Sent
from bot.storage.ledger import DatabaseLedger
from core.clarification import Clarification
from tests.kit.builders import ask
from tests.kit.clocks import ManualClock
from tests.kit.databases import open_store
from tests.kit.until import until
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.oncall.crew_parties import Directory
from workspace.seed import APP_TOKEN, BOT_TOKEN

AGENTS, FALLBACK, BOSSES = "C0AGENTS", "C0FALLBACK", "C0BOSSES"
ONCALL, DM = "U0ONCALL", "D0ONCALL"
CONFIGURATION = f"""
[slack]
fallback_channel = "{FALLBACK}"
[[producers]]
name = "planner"
url = "http://127.0.0.1:1"
[[routes]]
channel = "{AGENTS}"
on_call = "platform"
[[on_call]]
name = "platform"
users = ["{ONCALL}"]
take_timeout = "15m"
steps = [
  {{after = "0s", notify = ["dm"], every = "5m"}},
  {{after = "15m", notify = ["channel:{BOSSES}"]}},
]
"""


class StagedPolicies(Policies):
    """The real ones, but that entries of `notify` lead where `to` says."""

    to: dict[str, tuple[Destination, ...]]

    async def _destinations_of(
        self, notify: str, incident: Incident, people: tuple[str, ...], *, is_held: bool
    ) -> Sequence[Destination]:
        return self.to.get(notify) or await super()._destinations_of(
            notify, incident, people, is_held=is_held
        )


@dataclass
class Slack:
    """Keeps what is posted."""

    clock: ManualClock
    there: dict[tuple[str, str], Post] = field(default_factory=dict)
    posts: list[str] = field(default_factory=list)
    deleted: set[tuple[str, str]] = field(default_factory=set)

    async def post(self, channel: str, draft: Post) -> SlackOutcome:
        self.posts.append(channel)
        ts = f"{self.clock.now().timestamp():.0f}.{len(self.posts):06d}"
        self.there[channel, ts] = draft
        return Sent(channel, ts, draft.thread_ts)

    async def update(self, channel: str, ts: str, draft: Post) -> SlackOutcome:
        self.there[channel, ts] = draft
        return Sent(channel, ts)

    async def replies(self, channel: str, ts: str) -> set[str] | SlackOutcome:
        return {
            each for (where, each), draft in self.there.items() if (where, draft.thread_ts) == (channel, ts)
        }

    async def delete(self, channel: str, ts: str) -> SlackOutcome:
        self.deleted.add((channel, ts))
        return Sent(channel, ts)

    async def open_dm(self, user: str) -> str | SlackOutcome:
        return f"D{user[1:]}"

    async def find(
        self, channel: str, thread_ts: str | None, matches: Any, known: set[str]
    ) -> SlackOutcome | None:
        wanted = matches["event_payload"].items()
        for (where, ts), draft in self.there.items():
            if where == channel and ts not in known and wanted <= draft.metadata["event_payload"].items():
                return Sent(where, ts, draft.thread_ts)
        return None

    async def permalink(self, channel: str, ts: str) -> str:
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
        self.slack, self.to = Slack(self.clock), dict[str, tuple[Destination, ...]]()
        environ = {
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
        }
        self.settings = self.unpaced(
            parse_settings(CONFIGURATION, file=folder / "clarify.toml", environ=environ)
        )
        self.directory = Directory()
        self.tasks: list[asyncio.Task[None]] = []

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
        await self.delivery.load()
        await self.feed.begin()
        await self.pager.load()
        self.tasks = [asyncio.create_task(part.run()) for part in (self.pager, self.delivery, self.feed)]
        return self

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == []
        await self.delivery.lanes.close()
        await self.store.close()

    def _build(self) -> None:
        """As the bot builds them, but Slack, whom pages reach and who may answer are the test's."""
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
        policies.to = self.to
        permalinks = Permalinks(self.messages, self.slack.permalink)
        self.view = replace(board.page_view, policies=policies, permalinks=permalinks)
        board = replace(board, policies=policies, page_view=self.view)
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
        self.pager, oncall.escalations.gather = oncall.pager, 0.0  # the clock moves only when tests move it
        self.feed = Feed(
            consumers=[],
            observers=[oncall.escalations],
            ledger=self.ledger,
            store=self.store,
            clock=self.clock,
            sign=_signs_nothing,
            keep=None,
        )

    def _changed(self, record: Clarification) -> None:
        self.index.put(record)
        self.feed.record_changed(record)

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


async def _signs_nothing(_: Clarification) -> bool:
    return False


def said(draft: Post) -> str:
    return "\n".join([draft.text, repr(draft.blocks)])
