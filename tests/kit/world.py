"""The bot as built by main, the local workspace, and producers, joined as in production, in one process."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from fastapi import FastAPI
from starlette.datastructures import State

from bot.app import Bot
from bot.settings.load import parse_settings, prepare_folders
from bot.settings.model import Settings
from bot.storage.tx import News
from core.clock import Clock, SystemClock
from core.ledgerfiles import read_item
from core.records import agrees
from core.router import Router
from tests.kit.databases import Place, issues_in, make_tables, records_in
from tests.kit.files import replace_text
from tests.kit.times import judge_all
from tests.kit.until import until
from workspace import Options, Workspace
from workspace.controls import controls as found_controls
from workspace.controls import find
from workspace.demo.producer import DemoProducer
from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, FALLBACK, ONCALL
from workspace.state import Ephemeral, Message, View

CONFIG = """
[slack]
mode = "socket"
identity = "{identity}"
fallback_channel = "{fallback}"

[[producers]]
name = "planner"
url = "{url}"
dialect = "{dialect}"

[[routes]]
channel = "{channel}"
answerers = {answerers}
verbosity = "{verbosity}"
on_call = "platform"

[ledger]
directory = "ledgers"

[storage]
path = "clarify.db"

[pacing]
posts_per_second = {pace}

[[on_call]]
name = "platform"
users = ["U0ONCALL"]
"""


ANY_PORT = '[http]\nlisten = "127.0.0.1:0"\n'
TOKEN = "rpl_1"


def environment(workspace: Workspace) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "SLACK_API_URL": workspace.api_url}


def config(
    url: str,
    *,
    dialect: str = "auto",
    channel: str = AGENTS,
    fallback: str = FALLBACK,
    pace: float = 1000.0,
    answerers: tuple[str, ...] = ("members",),
    identity: str = "slack_id",
    verbosity: str = "normal",
    more: str = "",
) -> str:
    """The text of a `clarify.toml`: one producer, one route, any port."""
    return ("" if "[http]" in more else ANY_PORT) + (
        CONFIG.format(
            url=url,
            dialect=dialect,
            channel=channel,
            fallback=fallback,
            pace=pace,
            answerers=json.dumps(answerers),
            identity=identity,
            verbosity=verbosity,
        )
        + more
    )


def question(token: str, *, session: str = "sess_one", **fields: Any) -> dict[str, Any]:
    """A question event for `DemoProducer.emit`."""
    return {
        "type": "aaep:agent.awaiting.clarification",
        "session_id": session,
        "urgency": "critical",
        "question": "Shall I go on?",
        "reply_token": token,
        "timeout_seconds": 600,
    } | fields


new_database: Callable[[], str] | None = None
"""Makes an empty PostgreSQL database for each world of a test, and returns its address; None: SQLite."""
_beside = WeakKeyDictionary[Bot, Bot]()
with_replica = False
"""Whether a second bot runs beside each, on the same database: Slack hands it every other click, reply and command."""

_LOOK = 0.1  # seconds
_SQLITE, _POSTGRES = 'path = "clarify.db"', 'url_env = "CLARIFY_DATABASE_URL"'


def as_kept(text: str, database: str | None) -> str:
    """A clarify.toml as a test has it: on SQLite, or in PostgreSQL."""
    return text if database is None else text.replace(_SQLITE, _POSTGRES)


def rows_in(folder: Path, database: str | None) -> Place:
    """The database with the ledgers."""
    return database or folder / "clarify.db"


class World:
    """One workspace, one producer, one folder; the bot can be started and stopped in it."""

    def __init__(self, folder: Path, workspace: Workspace, producer: DemoProducer, clock: Clock) -> None:
        self.clock = clock
        self.folder = folder
        self.workspace = workspace
        self.producer = producer
        self.file = folder / "clarify.toml"
        self.bots: list[Bot] = []  # that run now
        self._hearings: dict[Bot, _Hearing] = {}
        self.keep_in(new_database() if new_database is not None else None)

    def keep_in(self, database: str | None) -> None:
        """Have bots and commands from now on keep all in a database of PostgreSQL, by its address; None: in files."""
        self.database = database
        self.environ = {} if database is None else {"CLARIFY_DATABASE_URL": database}  # beside Slack's tokens
        self.configure()

    @asynccontextmanager
    async def bot(
        self, text: str | None = None, clock: Clock | None = None, *, ready: bool = True
    ) -> AsyncIterator[Bot]:
        """The bot, running and, with `ready`, taking clicks; stopped in order at the end. `text` for clarify.toml."""
        text = as_kept(text or self.file.read_text(), self.database)
        settings = self._settings(text)
        prepare_folders(settings)
        if self.database is None:
            make_tables(settings.storage.path)
        async with AsyncExitStack() as running:
            bot = await running.enter_async_context(self._running(settings, clock, ready=ready))
            if with_replica:
                elsewhere = self._settings(re.sub(r'(?m)^listen = ".*"$', 'listen = "127.0.0.1:0"', text))
                beside = self._running(elsewhere, clock, ready=ready)
                _beside[bot] = await running.enter_async_context(beside)
            yield bot

    def _settings(self, text: str) -> Settings:
        return parse_settings(text, file=self.file, environ=environment(self.workspace) | self.environ)

    @asynccontextmanager
    async def _running(self, settings: Settings, clock: Clock | None, *, ready: bool) -> AsyncIterator[Bot]:
        bot = await Bot.build(settings, clock or self.clock, random.Random(7))  # noqa: S311 - jitter
        if with_replica:
            self._hearings[bot] = _Hearing(bot)
        bot.http_app = partial(_BuiltOnceAsked, bot, bot.http_app)  # type: ignore[assignment, method-assign]
        try:
            await bot.start()
        except BaseException:
            await bot.stop()
            raise
        stop = asyncio.Event()
        watch: asyncio.Task[Any] = asyncio.create_task(bot.until(stop))
        try:
            if ready:
                await self._takes_clicks(bot, watch)
            self.bots.append(bot)
            yield bot
        finally:
            if bot in self.bots:
                self.bots.remove(bot)
            stop.set()
            await bot.stop()
            await asyncio.wait_for(watch, 60)

    def configure(self, text: str | None = None) -> None:
        """Write clarify.toml: for bots from now on, and for processes beside them."""
        self.file.write_text(as_kept(text or config(self.producer.url), self.database))

    @property
    def rows(self) -> Place:
        """The database with the ledgers."""
        return rows_in(self.folder, self.database)

    async def _takes_clicks(self, bot: Bot, watch: asyncio.Task[Any]) -> None:
        ready: asyncio.Task[Any] = asyncio.create_task(bot.slack.app.ready.wait())
        done, _ = await asyncio.wait({watch, ready}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert done, "the bot was not ready within 20 s"
        for task in done:
            task.result()

    def slack_waits(self, seconds: float = 1.0) -> None:
        """How long for an acknowledgement; where there will be none, a test needs not wait as long as otherwise."""
        context = self.workspace.context
        context.options = replace(context.options, ack_timeout=seconds)

    def cards(self, channel: str = AGENTS) -> list[Message]:
        """The bot's cards in a channel, threads included."""
        return [
            m
            for m in self.workspace.messages(channel)
            if (m.metadata or {}).get("event_type") == "clarify_card"
        ]

    async def card(self, text: str, channel: str = AGENTS, timeout: float = 60.0) -> Message:
        """The card that says `text`, once it is there."""
        found: Message = await self.until(
            lambda: next((m for m in self.cards(channel) if text in said(m)), None), timeout
        )
        return found

    async def until(self, predicate: Callable[[], Any], timeout: float = 60.0) -> Any:
        """The predicate's first truthy value; asked at every change of the workspace, and in between, since not everything is one."""
        waiting = asyncio.ensure_future(self.workspace.wait_for(predicate, timeout))
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_LOOK)
                if not waiting.done() and (found := predicate()):
                    return found
            return waiting.result()
        finally:
            waiting.cancel()

    async def emit(self, token: str = TOKEN, **fields: Any) -> dict[str, Any]:
        """Have the producer ask, yes or no, unless `fields` say otherwise; the event."""
        return await self.producer.emit(question(token, **({"accepted_response_kinds": ["yes_no"]} | fields)))

    async def ask(self, token: str = TOKEN, **fields: Any) -> Message:
        """The same; the question's card, once it is there."""
        return await self.card((await self.emit(token, **fields))["question"])

    async def says(self, kind: str, *, session: str = "sess_one", **fields: Any) -> None:
        """Have the producer send an event of type `agent.{kind}`."""
        await self.producer.emit(
            {"type": f"aaep:agent.{kind}", "session_id": session, "summary_normal": kind} | fields
        )

    async def reply(self, token: str = TOKEN, timeout: float = 60.0) -> dict[str, Any]:
        """The reply that the producer accepted for `token`."""
        return await self.producer.wait_for_reply(token, timeout=timeout)

    async def whisper(self, user: str, text: str, timeout: float = 60.0) -> Ephemeral:
        """What only `user` sees and that says `text`, once it is there."""
        found: Ephemeral = await self.until(
            lambda: next((e for e in self.workspace.ephemerals(user) if text in e.text), None), timeout
        )
        return found

    async def message(self, text: str, channel: str = AGENTS, timeout: float = 60.0) -> Message:
        """Any message of a channel that says `text`."""
        found: Message = await self.until(
            lambda: next((m for m in self.workspace.messages(channel) if text in said(m)), None), timeout
        )
        return found

    async def page(self, text: str, user: str = ONCALL, timeout: float = 60.0) -> Message:
        """The direct message to the one on call that says `text`."""
        found: Message = await self.until(
            lambda: next((m for m in self.workspace.direct(user) if text in said(m)), None), timeout
        )
        return found

    async def now_says(self, card: Message, text: str, timeout: float = 60.0) -> Message:
        """A card as it is once it says `text`; the card is the same message."""
        found: Message = await self.until(
            lambda: next(
                (m for m in self.workspace.messages(card.channel) if m.ts == card.ts and text in said(m)),
                None,
            ),
            timeout,
        )
        return found

    async def heard(self, kind: str, timeout: float = 60.0) -> None:
        """Returns once the bot acknowledged an envelope of type `kind`, and its replicas know of it."""
        await self.until(
            lambda: any(ack.payload_type == kind and ack.ok for ack in self.workspace.acks), timeout
        )
        for bot, other in permutations(self.bots, 2):
            await self._hearings[other].all_of(bot)

    async def level(self) -> None:
        """Returns once every bot knows what stands in the ledgers: those that did not write it hear of it a moment later."""
        if len(self.bots) > 1:
            await until(lambda: all(map(self._knows_ledgers, self.bots)))

    def _knows_ledgers(self, bot: Bot) -> bool:
        for issue in self.issues():
            for record in filter(None, map(read_item, self.ledger(issue)["clarifications"])):
                if bot.signing is not None and not agrees(record, bot.signing):
                    continue  # nothing follows from it
                kept, known = record, bot.base.index.get(record.id)
                if kept.revision != known.revision if known is not None else kept.needs_something:
                    return False
        return True

    @property
    def routers(self) -> list[Router]:
        """Those of the bots that run."""
        return [bot.base.router for bot in self.bots]

    async def connected(self) -> None:
        """Returns once the workspace has a connection that it can send clicks over."""
        link = self.workspace.link
        await self.until(lambda: any(not c.leaving and not c.socket.closed for c in link.connections))

    async def modal(self, user: str, timeout: float = 60.0) -> View:
        """The modal that is on top of what `user` sees, once there is one."""
        found: View = await self.until(lambda: next(iter(self.workspace.views(user)[-1:]), None), timeout)
        return found

    def record(self, issue: int = 100001, number: int = 0) -> dict[str, Any]:
        """A clarification as the ledger file has it."""
        record: dict[str, Any] = self.ledger(issue)["clarifications"][number]
        return record

    def calls(self, method: str, *, ok: bool = True) -> int:
        """How many calls of a Web API method the workspace carried out."""
        return sum(
            call.method == method and (not ok or call.outcome == "ok") for call in self.workspace.calls
        )

    def changed(self, statement: str) -> int:
        """How many rows of the storage a statement changed, behind the back of bots."""
        with closing(
            sqlite3.connect(self.folder / "clarify.db")
            if self.database is None
            else psycopg.connect(self.database)
        ) as db:
            count = db.execute(statement.encode() if self.database else statement).rowcount  # type: ignore[arg-type]
            db.commit()
        return count

    def ledger(self, issue: int) -> dict[str, Any]:
        """What is kept of an issue, as a ledger file would have it."""
        records = records_in(self.rows, issue)
        assert records, issue
        return {"issueNumber": issue, "clarifications": records}

    def issues(self) -> list[int]:
        """Those that have records."""
        return issues_in(self.rows)

    def write_ledger(self, issue: int, ledger: dict[str, Any]) -> None:
        """Another program puts a whole ledger file in its place."""
        path = self.ledger_file(issue)
        path.parent.mkdir(exist_ok=True)
        replace_text(path, json.dumps(ledger))

    def ledger_file(self, issue: int = 100001) -> Path:
        return self.folder / f"ledgers/issue-{issue}.json"

    async def in_step(self, issue: int = 100001) -> None:
        """Returns once the ledger file has the records as they are."""
        await until(lambda: self._in_file(issue) == self.ledger(issue)["clarifications"])

    def _in_file(self, issue: int) -> list[dict[str, Any]] | None:
        path = self.ledger_file(issue)
        return json.loads(path.read_text())["clarifications"] if path.exists() else None


class _Hearing:
    """What a bot has heard from others."""

    def __init__(self, bot: Bot) -> None:
        self._heard = set[str]()
        self._news = bot.base.store.news
        bot.base.store.news = self._listen  # type: ignore[method-assign]

    async def _listen(self) -> AsyncGenerator[list[News] | None]:
        async with aclosing(self._news()) as told:
            async for news in told:
                yield news
                self._heard.update(name for _, name in news or ())

    async def all_of(self, other: Bot) -> None:
        """Returns once it has acted on all that `other` has told by now."""
        word = f"user {secrets.token_hex(4)}"
        while word not in self._heard:
            await other.base.store.tell(
                "people", word
            )  # again: what was told before it listened is not told in words
            with suppress(TimeoutError):
                await until(lambda: word in self._heard, 1.0)


class _BuiltOnceAsked:
    """The app of a bot's HTTP server. To build it takes a third of a bot's start, and most tests ask nothing there."""

    def __init__(self, bot: Bot, build: Callable[[Any], FastAPI], limits: Any) -> None:
        self.state = State({"stopping": asyncio.Event()})
        self._bot = bot
        self._build = partial(build, limits)
        self._app: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            self._app = self._build()
            assert self._bot._http is not None
            self._bot._http.stopping = self._app.state.stopping
        await self._app(scope, receive, send)


def url_of(bot: Bot) -> str:
    """Where the bot's HTTP server listens; where two run, the one that follows."""
    return own_url_of(_beside.get(bot, bot))


def own_url_of(bot: Bot) -> str:
    """Where this one's HTTP server listens."""
    assert bot._http is not None
    return bot._http.url


def said(message: Message) -> str:
    """All that a message shows: its fallback text and its blocks."""
    return f"{message.text}\n{json.dumps(message.blocks, ensure_ascii=False)}"


def of_a_click(stage: World, user: str, card: Message) -> dict[str, Any]:
    """What Slack sends of a press on **Yes**."""
    control = find(card.blocks, "Yes", kinds={"button"})
    make = stage.workspace.interactions
    return make.block_action_in_message(user, card, control, {"type": "button"}, {})


def controls(message: Message | View) -> list[str]:
    """The words on a message's or modal's buttons and menus, in their order; of a menu behind three dots, what it offers."""
    blocks = message.payload["blocks"] if isinstance(message, View) else message.blocks
    return [
        str((each.get("text") or each.get("placeholder") or {"text": ""})["text"])
        for control in found_controls(blocks)
        for each in (control.element["options"] if control.kind == "overflow" else [control.element])
    ]


# Slack waits three seconds, and triggers last as long; a busy machine may need longer for what takes milliseconds.
PATIENT = Options(ack_timeout=30.0, trigger_lifetime=600.0)


@asynccontextmanager
async def scene(
    folder: Path,
    options: Options | None = None,
    clock: Clock | None = None,
    producer_clock: Clock | None = None,
) -> AsyncIterator[World]:
    """A workspace and a producer, on one clock. At its end, all that was told in Slack is looked through for times."""
    async with parties(options, clock := clock or SystemClock(), producer_clock) as (workspace, producer):
        yield World(folder, workspace, producer, clock)


@asynccontextmanager
async def parties(
    options: Options | None, clock: Clock, producer_clock: Clock | None = None
) -> AsyncIterator[tuple[Workspace, DemoProducer]]:
    """Those of a scene."""
    made = replace(options or PATIENT, clock=lambda: clock.now().timestamp())
    async with (
        Workspace(options=made) as workspace,
        DemoProducer("planner-agent", agent_name="Planner", now=(producer_clock or clock).now) as producer,
    ):
        yield workspace, producer
        judge_all(workspace)
