"""The Slack surface joined to a real workspace, a real ledger and a real storage; only the cards are posted by hand."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from bot.commands.commands import Changes, Commands, OnCallTurns
from bot.commands.digests import Digests
from bot.commands.lists import Access, Lists
from bot.delivery.memory import SlackMemory
from bot.delivery.messages import Fresh, InFlight, Messages, Permalinks, Row
from bot.delivery.messenger import Pictures
from bot.oncall.actions import Admission, Announcer, PageActions
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Pages
from bot.oncall.roster import Policies, Roster
from bot.people import AccessControl, People
from bot.routing import Audiences
from bot.settings.load import parse_settings
from bot.settings.model import Settings
from bot.slack import mrkdwn
from bot.slack.answering import Answering
from bot.slack.app import Parts, SlackApp
from bot.slack.backfill import Unread
from bot.slack.binding import Binding
from bot.slack.socket import Background, Timing
from bot.slack.threads import Threads
from bot.slackapi import Place, Pulse, permalink
from bot.storage.store import Store
from bot.views.render import Message, Renderer
from bot.workspace import Options, Workspace
from bot.workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, BOT_USER, FALLBACK, TEAM
from core.aaep import Choice
from core.clarification import Ask, Clarification
from core.clock import SystemClock
from core.index import Index, summarize
from core.ledger import FileLedger
from core.router import Router

FAST = Options(ack_timeout=30.0, retry_delays=(0.0, 0.05, 0.1))
QUICK = Timing(
    open=1.0, hello=1.0, ping=0.4, ack=30.0, drain=5.0, overlap=0.5, first_retry=0.01, longest_retry=0.05
)
CONFIGURATION = f"""
[slack]
mode = "MODE"
fallback_channel = "{FALLBACK}"
[[producers]]
name = "planner"
url = "http://127.0.0.1:1"
[[routes]]
channel = "{AGENTS}"
answerers = ANSWERERS
"""
ME = AuthorizeResult(enterprise_id=None, team_id=TEAM, bot_user_id=BOT_USER, bot_token=BOT_TOKEN)
SECRET = "made-up-signing-secret"
AGENT, PRODUCER, SESSION, ISSUE = "retirement-planner", "planner", "sess_1", 42


def settings(folder: Path, answerers: str = '["members"]', more: str = "", mode: str = "socket") -> Settings:
    source = CONFIGURATION.replace("ANSWERERS", answerers).replace("MODE", mode) + more
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "SLACK_SIGNING_SECRET": SECRET}
    return parse_settings(source, file=folder / "clarify.toml", environ=environ)


def ask(**more: Any) -> Ask:
    """A yes/no question of the session; `more` replaces fields."""
    now = datetime.now(UTC)
    fields: dict[str, Any] = {
        "producer": PRODUCER,
        "agent_id": AGENT,
        "agent_name": None,
        "session_id": SESSION,
        "event_id": f"evt_{uuid.uuid4().hex}",
        "reply_token": f"rt_{uuid.uuid4().hex}",
        "correlation_id": None,
        "asked_at": now,
        "received_at": now,
        "expires_at": now + timedelta(hours=1),
        "question": "Deploy to production?",
        "kinds": ("yes_no",),
        "choices": (),
        "multi_select": False,
        "context": None,
        "default_response": None,
        "summary_terse": None,
        "summary_detailed": None,
        "to": "human",
        "topic": None,
        "blocking": True,
    }
    return Ask(**(fields | more))


def choices(*labels: str) -> dict[str, Any]:
    return {
        "kinds": ("multiple_choice",),
        "choices": tuple(Choice(value=f"v{n}", label=label) for n, label in enumerate(labels)),
    }


class TestTeller:
    """Tells as delivery does, without its queues."""

    __test__ = False

    def __init__(self, web: AsyncWebClient, messages: Messages) -> None:
        self._web = web
        self._messages = messages
        self._said: set[str] = set()

    async def tell(
        self, user: str, place: Place, text: str, blocks: list[dict[str, object]] | None = None
    ) -> bool:
        await self._web.chat_postEphemeral(
            channel=place.channel, user=user, text=text, thread_ts=place.thread_ts, blocks=blocks
        )
        return True

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None:
        if key not in self._said:
            self._said.add(key)
            posted = await self._web.chat_postMessage(
                channel=place.channel, thread_ts=place.thread_ts, text=text, blocks=blocks
            )
            body: dict[str, Any] = {"text": text, "blocks": blocks}
            fresh = Fresh(key=f"word:{key}", kind="word", target=place.channel, body=body, wanted="word")
            await self._messages.want([fresh])
            row = await self._messages.get(fresh.key)
            assert row is not None
            channel, ts = str(posted["channel"]), str(posted["ts"])
            await self._messages.landed(row, channel, ts, "word", final=True, opens_thread=False)


class Nobody:
    """Stands in for what a test does not ask: no message is a roll-up, nobody looks at a Home tab."""

    async def held_at(self, channel: str, ts: str) -> None:
        return None

    async def open_rollups(self) -> tuple[()]:
        return ()

    async def sessions(self) -> tuple[()]:
        return ()

    async def opened(self, user: str, *_: object, **__: object) -> None:
        """Somebody looks at their Home tab."""

    async def counted(self, others: int) -> None:
        """Other bots' connections."""


class Bot:
    """The Slack app as the whole bot builds it, but for delivery and producers."""

    def __init__(self, ws: Workspace, folder: Path, configured: Settings, store: Store, **more: Any) -> None:
        self.ws = ws
        self.settings = configured
        self.web = AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[])
        self.clock = SystemClock()
        self.ledger = FileLedger(folder)
        self.index = Index()
        self.router = Router(self.ledger, self.clock, timedelta(minutes=30), self._changed)
        self.store = store
        self.memory = SlackMemory(store, InFlight())
        self.people = People(self.web)
        self.renderer = Renderer(store.installation)
        self.refreshed: list[str] = []
        self.messages = Messages(store)
        self.released = 0
        self.pulse = Pulse(self.clock)
        self.unread = Unread(self.clock, self._released)
        self.teller = TestTeller(self.web, self.messages)
        self.access = AccessControl(self.people, configured, self._paged)
        self.incidents = Incidents(store, self.clock, lambda _: None)
        self.pages = Pages(store, self.incidents, self.messages.in_flight, self.clock)
        self.later = Background()
        roster: Any = more.pop("roster", None) or Roster(configured, self.people, store, self.clock)
        self.paged: Callable[[str], frozenset[str]] = more.pop("paged", self.incidents.paged)
        nobody: Any = Nobody()
        teller: Any = self.teller
        parts: dict[str, Any] = {
            "settings": configured,
            "web": self.web,
            "pulse": self.pulse,
            "people": self.people,
            "access": self.access,
            "answering": self._answering(),
            "commands": self._commands(roster, teller),
            "page_actions": self._page_actions(configured, roster),
            "home": nobody,
            "binding": Binding(
                installation=store.installation,
                messages=self.messages,
                incidents=self.incidents,
                pages=self.pages,
                adopt=self._adopt,
                group_of=lambda _: None,
                foreign=lambda: None,
            ),
            "threads": Threads(
                memory=self.memory,
                pages=more.pop("pages", self.pages),
                rollups=nobody,
                index=self.index,
                ledger=self.ledger,
                audiences=Audiences(configured),
                paged=self.paged,
            ),
            "unread": self.unread,
            "memory": self.memory,
            "delivery": teller,
            "later": self.later,
            "counted": nobody.counted,
            "passed": lambda: None,
            "clock": self.clock,
            "rng": random.Random(1),  # noqa: S311 - jitter, not secrets
        }
        self.parts = Parts(**parts | more)
        self.app = SlackApp(self.parts, QUICK)
        self.app.build(ME)
        self.answering, self.conversation = self.parts.answering, self.app.conversation
        self.interactions, self.backfill = self.app.interactions, self.app.backfill
        self._running: asyncio.Task[None] | None = None

    def _adopt(self, row: Row, ts: str) -> None:
        self.later.run(self.messages.adopt(row, ts, ""), "adopt")

    def _answering(self) -> Answering:
        return Answering(
            router=self.router,
            ledger=self.ledger,
            memory=self.memory,
            access=self.access,
            people=self.people,
            renderer=self.renderer,
            index=self.index,
            audiences=Audiences(self.settings),
            clock=self.clock,
            refresh=self.refreshed.append,
        )

    def _commands(self, roster: Roster, teller: Any) -> Commands:
        people, clock = self.people, self.clock
        access = Access(self.access, roster, self.paged, self.settings)
        lists = Lists(
            index=self.index,
            ledger=self.ledger,
            access=access,
            permalinks=Permalinks(self.messages, partial(permalink, self.web)),
            sessions=Nobody().sessions,
            clock=clock,
        )
        return Commands(
            lists=lists,
            changes=Changes(
                router=self.router,
                ledger=self.ledger,
                lists=lists,
                access=access,
                clock=clock,
                to_plain=lambda text: mrkdwn.plain(text, people.known_name, drop=people.bot_user),
            ),
            turns=OnCallTurns(
                roster=roster, access=access, delivery=teller, settings=self.settings, clock=clock
            ),
            digests=Digests(
                ledger=self.ledger,
                access=access,
                clock=clock,
                pictures=Pictures(self.web),
                delivery=teller,
                later=self.later.run,
                name_of=people.known_name,
            ),
            renderer=self.renderer,
            refresh=self.refreshed.append,
        )

    def _page_actions(self, configured: Settings, roster: Roster) -> PageActions:
        delivery: Any = self.teller
        return PageActions(
            incidents=self.incidents,
            policies=Policies(configured, roster, lambda _: None, self.clock),
            router=self.router,
            ledger=self.ledger,
            renderer=self.renderer,
            admission=Admission(
                configured,
                self.incidents,
                roster,
                self.index,
                self.access,
            ),
            announcer=Announcer(configured, self.index, self.messages, delivery),
            clock=self.clock,
        )

    async def start(self) -> None:
        """Take what Slack sends."""
        self._running = asyncio.create_task(self.app.run())
        ready = asyncio.create_task(self.app.ready.wait())
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        await self.app.stop()
        if self._running is not None:
            await self._running
        self.ledger.close()

    async def open(self, **more: Any) -> Clarification:
        """A question in the ledger."""
        return (await self.router.open(ISSUE, ask(**more))).record

    async def card(self, record: Clarification, thread_ts: str | None = None) -> str:
        """Post a question's card; without `thread_ts` it becomes the first message of its session's thread."""
        message = self.renderer.card(record)
        posted = await self.web.chat_postMessage(
            channel=AGENTS, text=message.text, blocks=message.blocks, thread_ts=thread_ts
        )
        ts = str(posted["ts"])
        if thread_ts is None:
            await self.thread(record.asked.session_id or SESSION, ts)
        await self._shown(record, ts)
        return ts

    async def rollup(self, message: Message, agent: str = "planner") -> str:
        """Post a roll-up card."""
        posted = await self.web.chat_postMessage(channel=AGENTS, text=message.text, blocks=message.blocks)
        key, ts = f"rollup:{posted['ts']}", str(posted["ts"])
        await self.messages.want([Fresh(key, "rollup", AGENTS, body={"agent": agent}, wanted="rollup")])
        row = await self.messages.get(key)
        assert row is not None
        await self.messages.landed(row, AGENTS, ts, "", final=False, opens_thread=False)
        return ts

    async def thread(self, session: str, ts: str) -> None:
        await self.store.run(
            """insert into sessions (producer, session_id, agent_id, issue, channel, thread_ts)
               values (:producer, :session, :agent, :issue, :channel, :ts)
               on conflict (producer, session_id) do update set channel = excluded.channel,
                 thread_ts = excluded.thread_ts""",
            producer=PRODUCER,
            session=session,
            agent=AGENT,
            issue=ISSUE,
            channel=AGENTS,
            ts=ts,
        )

    async def asked(self, **more: Any) -> tuple[Clarification, str]:
        """A question and its card's ts."""
        record = await self.open(**more)
        return record, await self.card(record)

    async def find(self, record: Clarification) -> Clarification:
        return await self.ledger.find(record.id, record.issue_number)

    async def until_answered(self, record: Clarification) -> Clarification:
        async with asyncio.timeout(60):
            while (found := await self.find(record)).is_open:  # noqa: ASYNC110 - a file changes
                await asyncio.sleep(0.01)
        return found

    def told(self, user: str) -> list[str]:
        return [each.text for each in self.ws.ephemerals(user)]

    def _paged(self, clarification: str) -> frozenset[str]:
        return self.paged(clarification)

    def _released(self) -> None:
        self.released += 1

    def _changed(self, record: Clarification) -> None:
        self.index.put(summarize(record))

    async def _shown(self, record: Clarification, ts: str) -> None:
        await self.store.run(
            """insert into messages (key, kind, clarification, round, producer, session_id, target, channel, ts)
               values (:key, 'card', :id, :round, :producer, :session, :channel, :channel, :ts)""",
            key=f"card:{ts}",
            id=record.id,
            round=record.round,
            producer=PRODUCER,
            session=record.asked.session_id,
            channel=AGENTS,
            ts=ts,
        )
