"""What the feed's consumers do when every change comes to them a second time, as after a cursor that was set back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from aiohttp import web

from bot.callbacks import Callbacks
from bot.decisions.log import DecisionLog
from bot.feed import Feed
from bot.integrations.github.github import GithubSync
from bot.integrations.github.settings import GithubSettings
from bot.integrations.webhooks.webhooks import Endpoint, Webhooks
from bot.mailing import Mailer
from bot.producers.questions import Questions
from bot.routing import Audiences
from bot.signing import KeyPlace, Signing
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Answer, Clarification, Decider, Direct
from core.clock import SystemClock
from core.index import Index
from core.ledger import OfIssue, OfRecord
from core.ledgerfiles import FIRST_RESERVED
from core.router import Router
from core.transitions import answered, opened
from tests.bench.stage import UNPACED
from tests.bench.table import Row
from tests.kit.builders import ask
from tests.kit.databases import open_store
from tests.kit.fake_github import PREFIX, TOKEN, Github, serving
from tests.kit.hosts import a_host
from tests.kit.served import served
from tests.unit.bot.oncall.crew_parties import settings

_ASKER = "asker"
_SLA = timedelta(hours=4)
_ADE = Decider("user:slack/T0LOCAL/U0ADE", "slack", "T0LOCAL", "U0ADE")
_AT_ONCE = 256  # clarifications that are asked, then answered, together
_HOUR = 3600
_LOOK = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Size:
    """How many questions were asked and answered, two changes each. Of these, `outside` belong to an issue on GitHub and have a
    callback URL; that many webhook messages are sent, too, and the others stay in the outbox: each costs a request.
    """

    questions: int
    outside: int


@dataclass
class _Receiver:
    """Takes callbacks, and webhook messages while it has `room`: then it asks for an hour of peace."""

    room: int = 0
    callbacks: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        if request.path != "/hook":
            self.callbacks.append(request.headers["Idempotency-Key"])
        elif len(self.messages) < self.room:
            self.messages.append(request.headers["webhook-id"])
        else:
            return web.Response(status=503, headers={"Retry-After": str(_HOUR)})
        return web.Response(status=204)


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a pass. `speeds`: changes taken a second, by consumer. `messages`: ids of webhook messages that were sent or
    wait; `callbacks`: ids of those posted; `requests`: to GitHub; `decided`: the rounds that the log has.
    """

    speeds: dict[str, float]
    messages: list[str]
    callbacks: list[str]
    requests: int
    decided: list[str]


async def replayed(folder: Path, size: Size) -> list[Row]:
    """All changes go through the feed and its consumers; then again, from the first one, with a new feed and new consumers."""
    place = folder / "replay"
    await asyncio.to_thread(place.mkdir)
    receiver, store = _Receiver(), await open_store(place / "clarify.db")
    try:
        async with served(receiver.take) as address, serving(time.time) as github:
            on = _Replay(place, store, receiver, github, address, size)
            first = await on.passed()
            await store.run("delete from outbox")  # as if it were sent
            await store.run("update consumers set written = 0, seq = 0")
            again = await on.passed()
    finally:
        await store.close()
    return _rows(first, again, size)


def _rows(first: _Done, again: _Done, size: Size) -> list[Row]:
    if len(first.decided) != size.questions or len(set(first.callbacks)) != size.outside:
        raise RuntimeError("the first pass did not do everything")
    if len(set(again.messages)) < len(set(first.messages)):
        raise RuntimeError("the second pass did not make all messages again")
    new = set(again.messages) - set(first.messages)
    twice = {
        "webhooks": (
            len(new),
            f"messages with another id; {len(again.messages):,} were made again, {size.outside:,} of them sent",
        ),
        "callbacks": (len(again.callbacks), f"posts; {len(first.callbacks):,} at first"),
        "decisions": (
            len(again.decided) - len(first.decided),
            f"entries; {len(first.decided):,} at first",
        ),
        "github": (again.requests, f"requests about {size.outside:,} issues; {first.requests:,} at first"),
    }
    return [
        Row(
            f"{2 * size.questions:,} changes replayed to {name}: done twice",
            count,
            "{:,.0f}",
            f"{words}; {first.speeds[name]:,.0f} changes a second, then {again.speeds[name]:,.0f}",
            goal=0,
        )
        for name, (count, words) in twice.items()
    ]


@dataclass(eq=False)
class _Replay:
    """One storage, over two lives of a bot; the parties outside."""

    folder: Path
    store: Store
    receiver: _Receiver
    github: Github
    address: str
    size: Size
    clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        table = f'[[producers]]\nname = "{_ASKER}"\ncallbacks = ["{self.address}/*"]\n'
        self.settings = settings(self.folder, table)
        self.signing = Signing(
            KeyPlace(self.folder / "clarify-signing.pem"), "urn:clarify:bench", self.clock.now() - _SLA
        )
        self.signing.load(create=True)

    async def passed(self) -> _Done:
        """Has all changes taken by new consumers, and what is due sent. Before that, the first time, they come to be."""
        self.receiver.room = self.size.outside
        self.receiver.messages.clear()
        self.receiver.callbacks.clear()
        self.github.calls.clear()
        ledger = DatabaseLedger(self.store, self.clock)
        ledger.receipts = ledger.signer = self.signing
        hooks, callbacks, github = self._webhooks(ledger), self._callbacks(ledger), self._github(ledger)
        log = DecisionLog(
            store=self.store, signing=self.signing, audiences=Audiences(self.settings), clock=self.clock
        )
        self.feed = Feed(
            consumers=[hooks, callbacks, github, log],
            ledger=ledger,
            store=self.store,
            clock=self.clock,
            sign=_signs_nothing,
            keep=None,
        )
        await self.feed.begin()
        # While somebody has not passed them, changes are kept.
        await self.store.run("insert into consumers (name, written, seq) values ('bystander', 0, 0)")
        if await self.store.read_one("select 1 from changes limit 1") is None:
            await _decide(ledger, self.size, self.address)

        def is_quiet() -> bool:
            return self.feed.idle and not callbacks and hooks.idle and not github.outbox

        async with _running(self.feed):
            speeds = await self._speeds()
            while not is_quiet():  # noqa: ASYNC110 - consumers tell nobody
                await asyncio.sleep(_LOOK)
        if (trouble := await self.feed.trouble()) is not None:
            raise RuntimeError(trouble)
        waiting = await self.store.read("select id from outbox")
        decided = await self.store.read("select jti from decisions where kind = 'decision'")
        return _Done(
            speeds,
            [*self.receiver.messages, *(row["id"] for row in waiting)],
            list(self.receiver.callbacks),
            len(self.github.calls),
            [row["jti"] for row in decided],
        )

    async def _speeds(self) -> dict[str, float]:
        """Returns once all have taken the changes that were there at first: how many a second, by consumer."""
        last = 2 * self.size.questions
        began, speeds = time.perf_counter(), dict[str, float]()
        while len(speeds) < len(self.feed.consumers):
            await asyncio.sleep(_LOOK)
            rows = await self.store.read("select name from consumers where seq >= :last", last=last)
            for row in rows:
                speeds.setdefault(row["name"], last / (time.perf_counter() - began))
        return speeds

    def _webhooks(self, ledger: DatabaseLedger) -> Mailer:
        host = a_host("webhooks", ledger, self.clock)
        return Mailer(host, Webhooks([Endpoint(f"{self.address}/hook", b"bench")], host))

    def _callbacks(self, ledger: DatabaseLedger) -> Callbacks:
        async def links(_: list[str]) -> dict[str, str]:
            return {}

        async def given_up(record: Clarification, _host: str, why: str) -> NoReturn:
            raise RuntimeError(f"the callback of {record.id} was given up: {why}")

        async def no_trouble(_: str) -> None:
            return None

        def changed(record: Clarification) -> None:
            self.feed.record_changed(record)

        def wake() -> None:
            self.feed.wake()

        questions = Questions(
            {each.name: each for each in self.settings.producers},
            store=self.store,
            index=Index(),
            ledger=ledger,
            router=Router(ledger, self.clock, _SLA, changed),
            trouble_with=no_trouble,
            bounded=lambda asked: asked,
            wake_feed=wake,
            clock=self.clock,
        )
        return Callbacks(
            settings=self.settings,
            questions=questions,
            store=self.store,
            links_of=links,
            tell=given_up,
            clock=self.clock,
            rng=_rng(),
            on_outcome=lambda _: None,
        )

    def _github(self, ledger: DatabaseLedger) -> GithubSync:
        settings = GithubSettings(
            repo="acme/app",
            token_env="GITHUB_TOKEN",
            api_url=self.github.address + PREFIX,
            comments_per_second=UNPACED,
        )
        return GithubSync(settings, a_host("github", ledger, self.clock, secrets={"GITHUB_TOKEN": TOKEN}))


def _rng() -> random.Random:
    return random.Random(1)  # noqa: S311 - no secret


async def _signs_nothing(_: Clarification) -> bool:
    """Each round got its receipt as it ended."""
    return False


@asynccontextmanager
async def _running(feed: Feed) -> AsyncIterator[None]:
    running = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _decide(ledger: DatabaseLedger, size: Size, address: str) -> None:
    """Asks and answers all questions, as the bot does: one transaction each, with its change."""
    for begin in range(0, size.questions, _AT_ONCE):
        some = range(begin, min(begin + _AT_ONCE, size.questions))
        asked = [_asked(number, size) for number in some]
        await asyncio.gather(*(_ask(ledger, record, address) for record in asked))
        await asyncio.gather(*(_answer(ledger, record) for record in asked))


def _asked(number: int, size: Size) -> Clarification:
    now = datetime.now(UTC)
    question = ask(
        producer=_ASKER,
        agent_id=_ASKER,
        session_id=f"session-{number}",
        event_id=f"q_{number}",
        reply_token=f"q_{number}",
        asked_at=now,
        received_at=now,
        expires_at=now + timedelta(days=1),
        question=f"May I go on with step {number}?",
        kinds=("yes_no",),
        direct=Direct(kind="yes_no"),
    )
    issue = number + 1 if number < size.outside else FIRST_RESERVED + number
    return opened(issue, 1, question, now, _SLA)


async def _ask(ledger: DatabaseLedger, record: Clarification, address: str) -> None:
    def store(tx: Tx, _: Any) -> None:
        tx.run(
            """insert into questions (token, producer, agent, session_id, digest, clarification, created_at, expires_at,
                 callback_url)
               values (:token, :asker, :asker, :session, :token, :id, :now, :now + 86400, :url)""",
            token=record.asked.event_id,
            asker=_ASKER,
            session=record.asked.session_id,
            id=record.id,
            now=record.created.timestamp(),
            url=f"{address}/{record.id}" if record.issue_number < FIRST_RESERVED else None,
        )

    await ledger.transact(OfIssue(record.issue_number), lambda book: book.put(record), along=store)


async def _answer(ledger: DatabaseLedger, record: Clarification) -> None:
    yes = Answer(response=True, label="Yes")
    now = datetime.now(UTC)
    await ledger.transact(
        OfRecord(record.id), lambda book: book.put(answered(book.get(record.id), yes, _ADE, now))
    )
