"""One life of the bot in a simulated week: the real parts on the real storage, until it is stopped or killed."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import sys
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import structlog

import bot.app
import bot.base
import bot.oncall.build
import bot.storage.sqlite
from bot.app import Bot
from bot.settings.model import Settings
from bot.show.delivery import resume_when_back
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.views.blockkit import Draft
from bot.views.render import RenderedMessage, Renderer
from core.clock import Clock
from tests.acceptance.week_parties import Directory, Gate, Outer, Pagers, SlackGateway, Web
from tests.kit.databases import sqlite_of
from tests.kit.simulated import InlineConnection

_T = TypeVar("_T")
# When something was written, in true time: the clock that the bot reads jumps.
_SEEN = """
create table if not exists week_seen (what text, id integer, at real, primary key (what, id)) without rowid;
create trigger if not exists week_page after insert on messages when new.page is not null
  begin insert or ignore into week_seen values ('page', new.page, true_time()); end;
create trigger if not exists week_page_outside after insert on sendings
  begin insert or ignore into week_seen values ('page', new.page, true_time()); end;
create trigger if not exists week_log after insert on incident_log
  begin insert into week_seen values ('log', new.seq, true_time()); end;
create table if not exists week_written (number integer primary key, body text);
create trigger if not exists week_record after insert on clarifications
  begin insert into week_written (body) values (new.body); end;
create trigger if not exists week_record_again after update of body on clarifications
  begin insert into week_written (body) values (new.body); end;
"""


class WordsOnly(Renderer):
    """Without the templates, which take most of a week's time."""

    def message(self, draft: Draft) -> RenderedMessage:
        return RenderedMessage(draft.text, [], draft.more)


@dataclass
class Current:
    """The life whose parts are being built; the faults of all."""

    life: Life | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """What all lives share. `written(content)` is told of every write of a ledger, once it is committed."""

    settings: Settings
    clock: Clock
    outer: Outer
    written: Callable[[str], None]
    own: set[asyncio.Task[Any]]
    current: Current


def replace_parties(patch: pytest.MonkeyPatch, outer: Outer, current: Current, folder: Path) -> None:
    """Let the bot's parts be built on the week's parties and on its time."""
    renderer = WordsOnly("")
    loop = asyncio.get_running_loop()

    def life() -> Life:
        assert current.life is not None
        return current.life

    patch.setattr(bot.base, "Renderer", lambda *_: renderer)
    patch.setattr(bot.base, "SlackClient", lambda *_: Web(outer))
    patch.setattr(bot.base, "Gateway", lambda *_: SlackGateway(outer, life().effect))
    patch.setattr(bot.oncall.build, "Outside", lambda *_, **__: Pagers(outer, life().effect))
    patch.setattr(bot.base, "People", lambda *_: Directory(outer))
    patch.setattr(bot.oncall.build, "AccessControl", lambda **_: Gate(outer))
    patch.setattr(bot.app, "time", SimpleNamespace(monotonic=loop.time))
    patch.setattr(bot.storage.sqlite, "_SqliteConnection", InlineConnection)
    commit = bot.storage.sqlite._commit

    def committed(db: sqlite3.Connection) -> None:
        life().effect()
        commit(db)
        life().look(db)
        life().effect()

    patch.setattr(bot.storage.sqlite, "_commit", committed)
    patch.setattr("os.fsync", lambda _: None)  # a life that ends leaves the machine running
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        processors=[partial(_keep_faults, current.faults)],
    )


def _keep_faults(faults: list[str], _logger: object, name: str, event: structlog.typing.EventDict) -> str:
    """What is logged with a traceback is a fault of ours, though the bot goes on."""
    if event.get("exc_info") and sys.exc_info()[0] is not None:
        faults.append(f"{event.get('event')}: {traceback.format_exc()}")
    raise structlog.DropEvent


class Life:
    """`start`, then `do` what people and agents do, until `stop` or `die`; then `bury`."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._loop = asyncio.get_running_loop()
        self._fuse: int | None = None
        self._connections: list[InlineConnection] = []
        self.began = self._loop.time()
        self.ended: float | None = None
        self.dead = asyncio.Event()

    async def start(self) -> None:
        """As `bot.app.Bot.start`, of the parts that decide and deliver."""
        setting = self._setting
        setting.current.life = self
        store = await open_storage(setting.settings.storage.path)
        self._watch(store)
        self.store = store
        ledger = DatabaseLedger(store)
        self.bot = bot = Bot(setting.settings, store, ledger, setting.clock, random.Random(1))  # noqa: S311
        async for some in ledger.load():
            for known in some:
                bot.base.index.put(known)
                bot.monitoring.record_changed(known)
        self.commands = bot.slack.commands
        self.parts: list[asyncio.Task[None]] = []
        await self.do(self._begin())

    async def _begin(self) -> None:
        bot = self.bot
        await bot.show.delivery.load()
        bot.agents.replies.load(bot.base.index)
        await bot.feed.begin()
        await bot.oncall.pager.load()
        for record in bot.base.index:
            bot.show.nudges.record_changed(record)
        self.parts.append(asyncio.create_task(resume_when_back(bot.base.availability, bot.show.lanes)))
        for part in (
            bot.show.delivery,
            bot.show.nudges,
            bot.oncall.pager,
            bot.monitoring,
            bot.oncall.feeds,
            bot.feed,
        ):
            self.parts.append(asyncio.create_task(part.run()))

    @property
    def is_up(self) -> bool:
        return not self.dead.is_set()

    def check(self) -> None:
        """Fails if a part died of itself."""
        for part in self.parts:
            if part.done() and not part.cancelled():
                part.result()
        if (lanes := self.bot.show.lanes.failed).done():
            lanes.result()

    def effect(self) -> None:
        """Something is about to be, or just was, changed outside the process: it may end here."""
        if not self.is_up:
            raise asyncio.CancelledError
        if self._fuse is None:
            return
        self._fuse -= 1
        if self._fuse < 0:
            self.die()
            raise asyncio.CancelledError

    def light(self, fuse: int) -> None:
        """It dies at an effect to come."""
        self._fuse = fuse

    def die(self) -> None:
        """As by a kill: from now on nothing that it does leaves a trace."""
        if not self.is_up:
            return
        self.ended = self._loop.time()
        self.dead.set()
        for connection in self._connections:
            connection.kill()
        for task in self._tasks():
            task.cancel()

    async def bury(self) -> None:
        """Leave nothing behind of a life that is over."""
        while tasks := self._tasks():
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        database = sqlite_of(self.store)
        assert database.lock is not None
        database.lock.release()
        database.glances.close()

    async def stop(self) -> None:
        """As `bot.app.Bot.stop`."""
        for part in self.parts:
            part.cancel()
        await asyncio.gather(*self.parts, return_exceptions=True)
        await self.bot.agents.replies.outbox.close()
        await self.bot.show.lanes.close()
        await self.store.close()
        self.die()

    async def do(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Have `work` done in this life; None: the life ended first, nobody knows how far it came."""
        task = asyncio.create_task(work)
        end = asyncio.create_task(self.dead.wait())
        self._setting.own.add(end)
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        self._setting.own.discard(end)
        end.cancel()
        if not self.is_up or task.cancelled():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return task.result()

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() - self._setting.own if not task.done()]

    def _watch(self, store: Store) -> None:
        database = sqlite_of(store)
        writer, reader = database.writer, database.reader
        assert isinstance(writer, InlineConnection)
        assert isinstance(reader, InlineConnection)
        self._connections = [writer, reader]
        writer.raw.execute("pragma synchronous = off")
        writer.raw.create_function("true_time", 0, self._loop.time)
        writer.raw.executescript(_SEEN)

    def look(self, db: sqlite3.Connection) -> None:
        """Tells which records were written by what is committed now."""
        if self._connections:
            for (body,) in db.execute("select body from week_written order by number").fetchall():
                self._setting.written(body)
            db.execute("delete from week_written")
