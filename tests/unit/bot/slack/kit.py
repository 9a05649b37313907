"""The Slack surface joined to a real workspace, a real ledger and a real storage; only the cards are posted by hand."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from slack_bolt.authorization import AuthorizeResult

from bot import app
from bot.decisions.proof import prove
from bot.delivery.messages import Fresh
from bot.settings.load import parse_settings
from bot.settings.model import Settings
from bot.slack.backfill import CatchUp
from bot.slack.build import build
from bot.slack.socket import SlackSocket, Timing
from bot.slack.unread import Unread
from bot.slackapi import Place
from bot.storage.ledger import DatabaseLedger
from bot.views.render import Message
from core.clarification import Ask, Choice, Clarification
from core.clock import SystemClock
from tests.kit import builders
from tests.kit.ledgers import held
from tests.kit.until import impatient
from workspace import Options, Workspace
from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, BOT_USER, FALLBACK, TEAM

FAST = Options(ack_timeout=30.0, retry_delays=(0.0, 0.05, 0.1), trigger_lifetime=600.0)
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


def settings(
    folder: Path, answerers: str = '["members"]', more: str = "", mode: str = "socket", api: str = ""
) -> Settings:
    source = CONFIGURATION.replace("ANSWERERS", answerers).replace("MODE", mode) + more
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "SLACK_SIGNING_SECRET": SECRET}
    environ |= {"SLACK_API_URL": api} if api else {}
    return parse_settings(source, file=folder / "clarify.toml", environ=environ)


def ask(**more: Any) -> Ask:
    """A yes/no question of the session, asked now; `more` replaces fields."""
    now, name = datetime.now(UTC), uuid.uuid4().hex
    times = {"asked_at": now, "received_at": now, "expires_at": now + timedelta(hours=1)}
    fresh = {"event_id": f"evt_{name}", "reply_token": f"rt_{name}", "kinds": ("yes_no",)}
    return builders.ask(**(times | fresh | more))


def choices(*labels: str) -> dict[str, Any]:
    return {
        "kinds": ("multiple_choice",),
        "choices": tuple(Choice(value=f"v{n}", label=label) for n, label in enumerate(labels)),
    }


class _Whole(app.Bot):
    """A bot whose records nobody follows."""

    def record_changed(self, record: Clarification, *, ours: bool = True) -> None:
        self.base.index.put(record)


class Bot:
    """The Slack app of a whole bot, of which nothing else runs: cards are posted by hand, and words without queues.

    `pages`, `paged` and `roster` replace those parts.
    """

    def __init__(
        self,
        ws: Workspace,
        configured: Settings,
        ledger: DatabaseLedger,
        *,
        pages: Any = None,
        paged: Any = None,
        roster: Any = None,
    ) -> None:
        rng = random.Random(1)  # noqa: S311 - jitter, not secrets
        store = ledger.store
        whole = _Whole(configured, store, ledger, SystemClock(), rng)
        base, board = whole.base, whole.board
        self.ws = ws
        self.settings, self.store, self.ledger, self.clock = configured, store, base.ledger, base.clock
        self.router, self.index, self.renderer = base.router, base.index, base.renderer
        self.people, self.web, self.messages = base.people, base.web, board.messages
        self.refreshed: list[str] = []
        self.released = 0
        self._said: set[str] = set()
        self.unread = Unread(base.clock, self._released)
        self.catch_up = CatchUp()
        self.delivery: Any = whole.shown.delivery
        self.delivery.say = self.say  # type: ignore[method-assign]
        if paged is not None:
            board.incidents.paged = paged  # type: ignore[method-assign]
        slack = build(
            base,
            replace(board, pages=pages or board.pages, roster=roster or board.roster),
            whole.shown,
            sessions=whole.told.sessions,
            page_actions=whole.oncall.page_actions,
            home=whole.home,
            unread=self.unread,
            catch_up=self.catch_up,
            events_missed=self.catch_up.schedule,
            refresh=self.refreshed.append,
            prove=partial(prove, None, base.ledger, store),
            passed=lambda: None,
            counted=whole._note_connections,
            replicas=lambda: 0,
            look_at=whole.told.channels.look_at,
            app_removed=whole._app_removed,
        )
        self.app, self.later = slack.app, slack.app.later
        self.backfill = slack.app.backfill
        self.memory, self.threads = self.backfill.memory, self.backfill.threads
        handlers = slack.app.handlers
        self.answering, self.interactions = handlers.answering, handlers.interactions
        self.conversation = handlers.conversation
        if isinstance(self.app.transport, SlackSocket):
            self.app.transport.timing = QUICK
        self.app.build(ME)
        self._running: asyncio.Task[None] | None = None

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None:
        """As delivery does."""
        if key in self._said:
            return
        self._said.add(key)
        posted = await self.web.chat_postMessage(
            channel=place.channel, thread_ts=place.thread_ts, text=text, blocks=blocks
        )
        body: dict[str, Any] = {"text": text, "blocks": blocks}
        fresh = Fresh(key=f"word:{key}", kind="word", target=place.channel, body=body, wanted="word")
        await self.messages.want([fresh])
        row = await self.messages.get(fresh.key)
        assert row is not None
        channel, ts = str(posted["channel"]), str(posted["ts"])
        await self.messages.landed(row, channel, ts, "word", final=True, opens_thread=False)

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
        await self.web.close()

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

    async def rollup(self, message: Message, agent: str = AGENT) -> str:
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
        return await self.ledger.find(record.id)

    async def until_answered(self, record: Clarification) -> Clarification:
        async with asyncio.timeout(60):
            while (found := await self.find(record)).is_open:  # noqa: ASYNC110 - a file changes
                await asyncio.sleep(0.01)
        return found

    def told(self, user: str) -> list[str]:
        return [each.text for each in self.ws.ephemerals(user)]

    def _released(self) -> None:
        self.released += 1

    async def look_back(self) -> int:
        """Have missed messages looked for; how many were new."""
        self.catch_up.schedule()
        return await self.backfill.look()

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


@contextmanager
def locked(bot: Bot) -> Iterator[None]:
    """Somebody else is about to change the first question, for long."""
    with held(f"CLR-{ISSUE}-001"), impatient(bot.router):
        yield
