# ruff: noqa: PLC0415 - what is not configured is not imported, and the HTTP server only by what serves
"""Builds, joins, starts and stops the bot.

Order of the start (promise P10): producers and delivery at once; then the bot catches up on what it missed (events of
producers, replies in threads, overdue timers) before it accepts new clicks. Clicks wait ten seconds at most; the rest of
the catch-up runs while clicks come in. Only clicks on posts of unknown outcome wait until those are looked up. No question
expires before the bot has read its thread, or minutes have passed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from bot import home
from bot.base import Base
from bot.base import build as build_base
from bot.decisions.chain import claims_in
from bot.decisions.keys import is_vouched_for
from bot.decisions.log import DecisionLog
from bot.decisions.proof import prove
from bot.delivery.build import DeliveryParts, resume_when_back
from bot.delivery.build import build as build_shown
from bot.delivery.messages import put
from bot.errors import ClarifyBotError, LeaseLost, SlackError, StorageUnavailable
from bot.feed import Feed
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.intake.build import IntakeParts
from bot.intake.build import build as build_told
from bot.integrated import followers_of
from bot.integrations.ledgerfiles.bridge import Bridge
from bot.integrations.ledgerfiles.intake import take_in
from bot.mailing import Mailer
from bot.monitoring import LedgerWatch, Monitoring
from bot.oncall.build import OnCallBoard, build_board
from bot.oncall.build import build as build_oncall
from bot.oncall.outside import Heartbeat, SlackOutageAlert
from bot.producers.inbox import Incoming
from bot.producers.questions import has_callbacks
from bot.replicas import Replicas
from bot.responders import responders_of
from bot.retention.upkeep import Upkeep
from bot.settings.model import Settings
from bot.signing import Signing, settled
from bot.slack.backfill import CatchUp
from bot.slack.build import build as build_slack
from bot.slack.unread import PATIENCE, Unread
from bot.slackapi import ask
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from bot.storage.store import Store, until_stored
from bot.storage.tx import Tx
from core.agents import StatusFile
from core.bus import lifecycle
from core.clarification import Clarification, parse_id
from core.clock import Clock, within
from core.dispatch import Dispatcher
from core.errors import (
    LedgersAway,
    LedgerUnwritable,
    LockTimeout,
    RecordUnreadable,
)
from core.ledgerfiles import LedgerFiles
from core.monitor import Monitor

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bot.callbacks import Callbacks
    from bot.web.server import HttpServer

_log = structlog.get_logger("clarify")
_lifecycle_log = structlog.get_logger("clarify.lifecycle")

# How long new clicks wait for a silent producer, for the whole catch-up, and for overdue timers; together with
# connecting that is ten. Seconds.
_CONTACT, _CATCH_UP, _TIMERS = 3.0, 7.0, 2.0

# How long pages wait for Slack, and other posts until clicks can be taken. Seconds.
_PAGES_WAIT, _POSTS_WAIT = 5.0, 60.0

# How long timers wait for missed replies, which cannot be read while Slack is away. Seconds.
_SLACK_HEAD_START = 60.0


_DATABASE_RETRY = 1.0  # seconds
_KEY_RETRY = 5.0  # seconds between attempts to read a signing key
_AWAY = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_ANEW = "CLARIFY_BEGAN_ANEW"  # the bot sets it before it restarts itself: then it waits for the database


async def run(settings: Settings) -> None:
    """Runs the bot until SIGTERM, SIGINT, or SIGHUP where it is not ignored, as under nohup. The garbage collector, which the
    command turns off, is on again once the bot has started.

    Raises:
        ClarifyBotError: it cannot start, or a part of it died.
    """
    waits, stop = os.environ.pop(_ANEW, None) is not None, asyncio.Event()
    try:
        bot = await Bot.build(settings, None, random.Random())  # noqa: S311 - jitter, not secrets
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            await bot.start()
            gc.freeze()
            gc.enable()
            await bot.until(stop)
        except LeaseLost as error:
            # The new leader takes over all work, so this process must stop at once: it replaces itself, and waits.
            _log.error("restarting; this replica lost its lease", reason=str(error))
            _restart()
        finally:
            await bot.stop()
    except _AWAY as error:
        if not waits or stop.is_set():
            raise
        _log.error("restarting; the database is unavailable", reason=str(error))
        await asyncio.sleep(_DATABASE_RETRY)
        _restart()
    finally:
        gc.enable()


def _restart() -> NoReturn:
    logging.shutdown()  # writes the last lines
    os.environ[_ANEW] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


class Bot:
    """All parts of one bot, on one storage and one clock: `build`, `start`, `until` something happens, `stop`."""

    @classmethod
    async def build(cls, settings: Settings, clock: Clock | None, rng: random.Random) -> Bot:
        """Opens the storage and the ledgers, and wires the parts. Sends nothing yet. `clock`: None: the storage's.

        Raises:
            StorageError: the storage is in use or cannot be used.
            ConfigurationError: the signing key is not Ed25519.
        """
        store = await open_storage(settings.database_url or settings.storage.path, settings.listen_url)
        try:
            signing = await Signing.open(settings, store, clock or store.clock)
            calls_back = any(each.callbacks for each in settings.producers) or await has_callbacks(store)
        except ClarifyBotError:
            await store.close()
            raise
        time = clock or store.clock
        ledger = DatabaseLedger(store, time)
        return cls(settings, store, ledger, time, rng, signing=signing, calls_back=calls_back)

    def __init__(
        self,
        settings: Settings,
        store: Store,
        ledger: DatabaseLedger,
        clock: Clock,
        rng: random.Random,
        *,
        signing: Signing | None = None,
        calls_back: bool = False,
    ) -> None:
        """`signing` makes receipts; None: decisions get none. `calls_back`: whether questions have, or may get, a callback URL."""
        self.store = store
        self.ledger = ledger
        self.signing = ledger.receipts = ledger.signer = signing
        ledger.found_tampered = self._tell_of_tampered
        loop = asyncio.get_running_loop()
        ledger.found_unreadable = lambda name: loop.call_soon_threadsafe(self._tell_of_unreadable, name)
        self.base = base = build_base(
            settings,
            store,
            ledger,
            clock,
            rng,
            changed=self.record_changed,
            may_be_answered=self._may_be_answered,
            shown_whole=self._shown_whole,
        )
        self.monitoring = Monitoring(
            monitor=Monitor(settings.monitor.sla, settings.monitor.deadlock_order),
            router=base.router,
            ledger=ledger,
            clock=clock,
            held=self._held,
            alarm=settings.monitor.alarm,
        )
        self.unread = Unread(clock, released=self.monitoring.release)
        self.catch_up = CatchUp()
        self.board = board = build_board(base, self._touch_home)
        self.messages = board.messages
        self.shown = shown = build_shown(
            base,
            board.messages,
            board.permalinks,
            draw=board.page_view.draw,
            raise_incident=board.incidents.raise_,
            on_outcome=board.pages.on_outcome,
            active=board.roster.active,
            is_awaited=self._is_awaited,
        )
        self.told = told = build_told(
            base,
            board,
            shown,
            on_put=self.monitoring.trigger,
            on_event=self._touch_home,
            wake_feed=self._wake_feed,
        )
        self.callbacks = _callbacks(base, board, shown, told) if calls_back else None
        self.oncall = build_oncall(base, board, shown.delivery, self._touch_home)
        self.home = HomeTabs(
            gathering=Gathering(
                index=base.index,
                ledger=ledger,
                sessions=told.sessions.facts,
                roster=board.roster,
                policies=[policy.name for policy in settings.on_call],
                paged=board.incidents.paged,
                shows=base.audiences.shows,
            ),
            access=KeptAccess(board.access, base.audiences, clock),
            renderer=base.renderer,
            send=partial(publish, base.gateway),
            viewers=Viewers(store),
            clock=clock,
            locale_of=base.people.known_locale,
        )
        followers, self.broken = followers_of(base)
        self.mailers = [each for each in followers if isinstance(each, Mailer)]
        self.log = (
            DecisionLog(
                store=store,
                signing=signing,
                audiences=base.audiences,
                clock=clock,
                keep=settings.trust.keep or settings.storage.keep,
                checkpoint_every=settings.trust.checkpoint.every if settings.trust.checkpoint else None,
                announce=self._announce,
            )
            if signing is not None
            else None
        )
        self.bridge = None
        if settings.ledger_folder is not None:
            self.bridge = Bridge(
                files=LedgerFiles(settings.ledger_folder, mode=settings.ledger.mode, expected=True),
                ledger=ledger,
                store=store,
                router=base.router,
                notices=told.notices,
                clock=clock,
                archive_after=settings.ledger.archive_after,
            )
        self.feed = Feed(
            consumers=[
                *followers,
                *(each for each in (self.callbacks, self.log) if each is not None),
            ],
            absent=self.broken,
            observers=[self.oncall.escalations, *([self.bridge] if self.bridge is not None else [])],
            ledger=ledger,
            store=store,
            clock=clock,
            sign=told.owing.sign,
            keep=settings.storage.keep,
        )
        self.watch = LedgerWatch(
            ledger=ledger,
            index=base.index,
            changed=partial(self.record_changed, ours=False),
            heard=self.feed.wake,
            owing=told.owing,
            clock=clock,
        )
        self.replicas = Replicas(
            store=store,
            inbox=told.inbox,
            delivery=shown.delivery,
            duplicates=shown.duplicates,
            incidents=board.incidents,
            pages=board.pages,
            home=self.home,
            people=base.people,
            producers=told.producers,
            catch_up=self._events_missed,
            forgotten=self._forget,
            turned=self.board.roster.wake,
            channels=told.channels,
            app_removed=self._app_removed,
            clock=clock,
        )
        self.slack = build_slack(
            base,
            board,
            shown,
            sessions=told.sessions,
            page_actions=self.oncall.page_actions,
            home=self.home,
            unread=self.unread,
            catch_up=self.catch_up,
            events_missed=self._events_missed,
            refresh=self._refresh,
            prove=partial(prove, signing, ledger, store),
            passed=self.monitoring.trigger,
            counted=self._note_connections,
            replicas=self.replicas.others,
            look_at=told.channels.look_at,
            app_removed=self._app_removed,
        )
        self.slack_outage = SlackOutageAlert(
            targets=self.oncall.outside.pagers,
            send_outside=self.oncall.outside.send,
            connected=lambda: self.slack.app.connected,
            probe=partial(ask, "auth.test", base.web.auth_test),
            clock=clock,
            seconds=time.monotonic,
        )
        beat, every = settings.heartbeat_url, settings.monitor.heartbeat_every
        self.heartbeat = Heartbeat(beat, every, clock, self._is_well) if beat is not None else None
        self.agent_status = StatusFile(
            settings.status_file,
            lambda: base.index,
            settings.roles_of_people,
            clock,
            mode=settings.ledger.mode,
        )
        self.dispatcher = Dispatcher(
            responders=responders_of(settings.responders, settings.secrets.by_variable, settings.file.parent),
            router=base.router,
            ledger=ledger,
            clock=clock,
            scopes=base.scopes,
            working=self.agent_status.working,
        )
        self.upkeep = Upkeep(
            store=store,
            index=base.index,
            clock=clock,
            keep=settings.storage.keep,
            sweeps=[home.SWEEP],
            forget_decisions=self.log.forget if self.log is not None else None,
        )
        self._followers = (
            self.dispatcher,
            self.agent_status,
            self.monitoring,
            shown.delivery,
            shown.nudges,
            self.oncall.quorum,
            self.feed,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[None] = loop.create_future()
        self._introduced = asyncio.Event()
        self._posting = asyncio.Event()  # cards are being posted
        self._caught_up = asyncio.Event()
        self._takes_clicks = asyncio.Event()  # after the catch-up
        self._leads = self.store.leads
        # Records that change while the bot takes the lead, and whether we wrote them: handled once it leads.
        self._meanwhile: list[tuple[Clarification, bool]] | None = None
        self._http: HttpServer | None = None
        self._told_of = set[str]()  # changed and unreadable records that this process has told of

    async def start(self) -> None:
        """Reads the ledgers, then starts every part; where another bot leads on the database, only the parts that take
        what people and agents say. Returns when they run.

        Raises:
            ConfigurationError: the HTTP server cannot listen at its address.
        """
        self._http = self._listen()
        if leads := await self.store.lead(wait=False):
            await self._take_in_files()
        await self._read_records()
        if leads:
            await self._load()
        else:
            await self._follow()
        for name, work in self._work():
            self._begin(name, work)
        if leads:
            await self._lead()
            self._begin("lease", self._until_deposed())
        else:
            self._begin("lease", self._take_lead())
            _log.info("following", open=len(self.base.index))

    async def _read_records(self) -> None:
        """Fills the index."""
        async for some in self.ledger.load():
            for known in some:
                self.shown.delivery.know(known)

    async def _take_in_files(self) -> bool:
        """Takes in the ledger files if the database is new and empty. Returns whether it did."""
        settings = self.base.settings
        return self.bridge is not None and await take_in(
            bridge=self.bridge,
            keys=self.signing,
            audiences=self.base.audiences,
            renderer=self.base.renderer,
            storage=settings.storage.path,
            sla=settings.monitor.sla,
            channel=settings.slack.fallback_channel or settings.route_for("").channel,
        )

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in the background. When it ends, the bot ends."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._died.done() or task.cancelled():
            return
        if (error := task.exception()) is not None:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self._died.set_exception(error)
            self._died.exception()  # marks it as retrieved, in case `until` has returned
        else:
            self._died.set_result(None)

    def _work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The background work of every bot, leader or follower."""
        yield "delivery", self.shown.delivery.run()
        yield "Slack is back", resume_when_back(self.base.availability, self.shown.lanes)
        yield "ledger watch", self.watch.run()
        yield "refusals", self.base.router.run()
        yield "slack", self._run_slack()
        yield "replicas", self.replicas.run()
        yield "channels", self._run_channels()
        if self._http is not None:
            yield "http", self._http.run()

    async def _follow(self) -> None:
        """Takes what people and agents say, and leaves the rest to the bot that leads."""
        self.shown.lanes.active = False
        await self.board.pages.reload()
        await self.home.load()
        self._takes_clicks.set()

    async def _take_lead(self) -> None:
        telling = asyncio.create_task(self.replicas.tell(), name="tell")
        try:
            await self.store.lead()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        self.shown.lanes.active = True
        try:
            if await self._take_in_files():
                await self._read_records()
            await self._load()
            await self._lead()
        except _AWAY as error:
            # Takes over again from the beginning, here or in another bot, once the database is back.
            _log.warning("cannot take over from the last leader", reason=str(error))
            while await self.store.trouble() is not None:
                await self.base.clock.sleep(_DATABASE_RETRY)
            raise LeaseLost("the database was away") from error
        await self._until_deposed()

    async def _load(self) -> None:
        """Loads what is owed, and what the last leader or the last run knew."""
        meanwhile: list[tuple[Clarification, bool]] = []
        self._meanwhile = meanwhile
        await self.feed.begin()
        for record in self.base.index:
            self.monitoring.record_changed(record)
        await self.slack.app.backfill.expect()
        self.shown.messenger.pause_posting(pages=True)
        await self.shown.delivery.load()
        self.told.replies.load(self.base.index)
        await self.oncall.pager.load()
        await self.told.sessions.load()
        await self.home.load()
        for record in self.base.index:
            self.dispatcher.record_changed(record)
            self.shown.nudges.record_changed(record)
            self.oncall.quorum.record_changed(record)
        self._leads, self._meanwhile = True, None
        for changed, ours in meanwhile:
            self.record_changed(changed, ours=ours)

    async def _lead(self) -> None:
        """Starts the work that only the leader does."""
        await self.store.note_shell(consents=self.base.settings.shell.consent)
        if self.signing is not None:
            await self._warn_of_another_key(self.signing)
        for name, work in self._work_of_leader():
            self._begin(name, work)
        self.told.channels.look_at_all()
        await self.told.producers.start()
        self._begin("producers", self.told.producers.failed())
        owing = self.told.owing
        for record in self.base.index:
            if record.round > 1 or not (record.is_open or record.is_signed):
                self.slack.app.later.run(owing.sign_in_time(record.id), "receipt that is owed")
        if self.signing is not None and (self.signing.owes_some or self.signing.trouble):
            self.slack.app.later.run(self._receipts_owed(self.signing), "receipts that are owed")
        _log.info("started", open=len(self.base.index), producers=len(self.base.settings.producers))

    async def _receipts_owed(self, signing: Signing) -> None:
        """Waits until the signing key can be read, then makes the receipts of what was decided meanwhile."""
        if (trouble := signing.trouble) is not None:
            await self._notify(partial(self.told.notices.key_unreadable, trouble))
        while not await asyncio.to_thread(signing.load):
            await self.base.clock.sleep(_KEY_RETRY)
        note = partial(signing.note, self.store, self.base.clock.now())
        await until_stored(note, self.base.clock, _log, "cannot store the public key yet")
        await self._warn_of_another_key(signing)
        try:
            async with aclosing(self.ledger.every()) as every:
                async for some in every:
                    for record in some.records:
                        await self.told.owing.sign_in_time(record.id)
        except LedgersAway as error:
            _log.warning("receipts that are owed follow at the next start", reason=str(error))
            return
        await until_stored(partial(settled, self.store), self.base.clock, _log, "receipts delayed")

    async def _warn_of_another_key(self, signing: Signing) -> None:
        """Tells the fallback channel if the signing key is one that the key before did not announce."""
        if signing.kid is None:
            return
        look = partial(is_vouched_for, self.store, signing)
        if not await until_stored(look, self.base.clock, _log, "reading the log later"):
            _log.warning("another key signs now, which the one before did not announce", kid=signing.kid)
            await self._notify(partial(self.told.notices.another_key, signing.kid))

    def _tell_of_tampered(self, records: Sequence[Clarification]) -> None:
        """Tells the fallback channel of records that do not agree with their receipts."""
        news = [each for each in records if each.id not in self._told_of]
        self._told_of.update(each.id for each in news)
        for issue in {each.issue_number for each in news}:
            ids = sorted(each.id for each in news if each.issue_number == issue)
            notice = partial(self.told.notices.records_tampered, issue, ids)
            self.slack.app.later.run(self._notify(notice), "tell of changed records")

    def _tell_of_unreadable(self, clarification: str) -> None:
        """Pages on-call, if this bot leads, about a record that cannot be read."""
        if clarification in self._told_of or not self.store.leads:
            return
        self._told_of.add(clarification)
        _log.error("cannot read a record", id=clarification)
        trouble = RecordUnreadable(clarification, parse_id(clarification)[0])
        notice = partial(self.told.notices.ledger_unreadable, trouble)
        self.slack.app.later.run(self._notify(notice), "tell of an unreadable record")

    async def _notify(self, notice: Callable[[], Awaitable[None]]) -> None:
        """Stores a notice; retries while the storage is unavailable."""
        await until_stored(notice, self.base.clock, _log, "notice delayed")

    def _work_of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The background work of the leader."""
        yield "duplicates", self.shown.duplicates.run()
        yield "nudges", self.shown.nudges.run()
        yield "quorum", self.oncall.quorum.run()
        yield "holders who are gone", self.oncall.leavers.run()
        yield "paging", self.oncall.pager.run()
        if any(each.source is not None for each in self.base.settings.on_call):
            yield "who is on call", self.oncall.feeds.run()
        yield "changes of shift", self.oncall.turns.run()
        yield "Slack outage alert", self.slack_outage.run()
        yield "home", self._run_home()
        if self.heartbeat is not None:
            yield "heartbeat", self.heartbeat.run()
        yield "intake", self.told.intake.run()
        yield "retention", self.upkeep.run()
        yield "erasing", self.shown.erasing.run()
        yield "responders", self.dispatcher.run()
        yield "agent status", self.agent_status.run()
        yield "changes", self.feed.run()
        if self.slack.commands.weekly_digest is not None:
            yield "weekly digest", self.slack.commands.weekly_digest.run()
        yield "monitor", self._run_monitor()

    async def until(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set. Raises the exception of a part that died."""
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(stop.wait()),
            self._died,
            self.shown.lanes.failed,
            self.told.intake.failed,
        }
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()

    async def _until_deposed(self) -> None:
        await self.store.deposed()
        raise LeaseLost("another bot leads")

    async def stop(self) -> None:
        """Accepts nothing more, finishes running work, closes everything. The next start resumes what is left."""
        _log.info("stopping")
        await self.slack.app.stop()
        await self.told.replies.outbox.close()  # sends the last replies while producers are still connected
        if self._http is not None:
            self._http.begin_stop()
        # A closed subscription times out open questions and undelivered replies: these producers keep theirs.
        waiting = {s.producer for s in self.base.index if s.producer and (s.is_open or s.reply == "sending")}
        is_there = await self.store.trouble() is None
        if not (self.store.leads and is_there) or await self._is_one_of_several():
            # We cannot know what is open, or another bot continues the subscriptions.
            waiting |= {each.name for each in self.base.settings.producers}
        await self.told.producers.stop(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.base.router.write_refusals()
        await self.agent_status.settle()
        self.agent_status.close()
        await self.told.intake.close()
        await self.told.replies.outbox.close()
        await self.shown.lanes.close()
        await self.base.web.close()
        if self.store.leads:
            if self.bridge is not None:
                await self.bridge.settle()
            await self.feed.save()
        await self.store.close()
        _log.info("stopped")

    async def _is_one_of_several(self) -> bool:
        try:
            return bool(await self.store.others())
        except StorageUnavailable:
            return True

    async def _run_slack(self) -> None:
        await self.slack.app.introduce()
        self._introduced.set()
        await self._takes_clicks.wait()
        self.slack.app.watch_for_gaps()
        await self.slack.app.run()

    async def _begin_posting(self) -> None:
        """Starts posting when clicks can be taken, or after a while without them: then a card is better than none.

        Pages start sooner, even while Slack is away: one that Slack does not take must move on to the next step soon.
        """
        if not await within(self.base.clock, _PAGES_WAIT, self._introduced.wait()):
            self.shown.messenger.pause_posting(pages=False)
        await self._introduced.wait()
        if not await within(self.base.clock, _POSTS_WAIT, self.slack.app.ready.wait()):
            _log.warning("posting without a connection for clicks")
        self.shown.messenger.resume_posting()
        self._posting.set()

    async def _miss_nothing(self) -> None:
        """Catches up, then lets new clicks in."""
        await self._introduced.wait()
        if not await within(self.base.clock, _CATCH_UP, self._catch_up()):
            _log.warning("accepting clicks before missed messages are read")
            self.slack.app.look_back()
        self._caught_up.set()
        overdue = asyncio.create_task(self.monitoring.catch_up(), name="timers that ran out")
        try:
            # Not cancelled while a ledger is busy: a finding is reported only once.
            await within(self.base.clock, _TIMERS, asyncio.wait({overdue}))
            self._takes_clicks.set()
            await overdue
        finally:
            overdue.cancel()
            await asyncio.gather(overdue, return_exceptions=True)

    async def _catch_up(self) -> None:
        """Handles what producers and people said while the bot was away."""
        await self.told.producers.first_contact(_CONTACT)
        await self.told.intake.drained()
        self.slack.app.look_back()
        await self.catch_up.done.wait()

    async def _read_located(self) -> None:
        """Reads replies to posts of unknown outcome. Clicks on those wait for this, but no longer than `_CATCH_UP`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.slack.app.backfill.run_located(), name="threads of posts in doubt")
            await self._introduced.wait()
            await self.base.clock.sleep(_CATCH_UP)
            self.unread.hold_clicks_no_longer()

    async def _run_monitor(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._begin_posting(), name="posting")
            group.create_task(self._miss_nothing(), name="what was missed")
            group.create_task(self._read_located(), name="posts in doubt")
            group.create_task(self._run_timers(), name="timers")

    async def _run_timers(self) -> None:
        """Starts the timers once missed replies are handled, so that an answer given in time comes first."""
        try:
            async with asyncio.timeout(_SLACK_HEAD_START):
                await self._caught_up.wait()
        except TimeoutError:
            _log.warning("starting timers before Slack is ready")
        await self.monitoring.run()

    async def _run_home(self) -> None:
        await self.home.load_answers()
        await self._posting.wait()
        await self.home.run()

    async def _run_channels(self) -> None:
        await self._introduced.wait()
        await self.told.channels.run()

    def _app_removed(self) -> None:
        """Asks Slack at once whether it still takes anything from the bot: for /readyz and, as the leader, to tell people."""
        self.slack_outage.look_now()
        if not self._leads:
            self.slack.app.later.run(self._ask_who_we_are(), "ask whether the app was removed")

    async def _ask_who_we_are(self) -> None:
        with suppress(SlackError):  # what it says is kept (`Availability.refused`)
            await self.slack_outage.probe()

    def _listen(self) -> HttpServer | None:
        """Returns the HTTP server, bound; None if its address is taken and nothing needs the server."""
        from bot.web.server import listen, most_connections

        connections = most_connections()
        return listen(self.http_app(connections), self.base.settings, connections)

    def http_app(self, connections: int) -> FastAPI:
        """Returns the app of an HTTP server with at most so many connections, with all routes."""
        from bot.web.build import build

        return build(
            self.base,
            self.board,
            self.shown,
            self.told,
            self.slack,
            signing=self.signing,
            mailers=self.mailers,
            broken=self.broken,
            feed=self.feed,
            callbacks=self.callbacks,
            bridge=self.bridge,
            storage_trouble=self.store.trouble,
            connections=connections,
        )

    async def _is_well(self) -> bool:
        return not self.slack_outage.is_raised and await self.store.trouble() is None

    def _held(self, clarification: str) -> datetime | None:
        """Returns until when a question must not expire, because we may have missed its answer; None: it may."""
        if (until := self.unread.until(clarification)) is not None:
            return until
        deaf = self.slack.app.deaf_since
        known = self.base.index.get(clarification)
        if deaf is None or known is None or not self.base.audiences.shows(known):
            return None
        until = deaf + PATIENCE
        return until if until > self.base.clock.now() else None

    def _may_be_answered(self, clarification: str) -> bool:
        """Whether Slack may hold an answer that we have not read. Only the leader knows; a follower never closes."""
        return not self.store.leads or self._held(clarification) is not None

    def _is_awaited(self, clarification: str) -> bool:
        return self.told.questions.is_awaited(clarification)

    def _shown_whole(self, record: Clarification) -> bool:
        return not self.shown.rollups.may_hold(record) and self.base.renderer.shows_whole(
            record, self.base.audiences.route(record).verbosity
        )

    async def _note_connections(self, others: int) -> None:
        try:
            await self.store.note_connections(others, self.base.clock.now())
        except StorageUnavailable as error:
            _log.warning("cannot store the number of Slack connections", reason=str(error))

    def _events_missed(self) -> None:
        """Has everything looked at again that Slack's events would have told."""
        self.base.people.doubt()
        self.catch_up.schedule()

    def record_changed(self, record: Clarification, *, ours: bool = True) -> None:
        """Passes a record that was written to every part that follows records. `ours`: this process wrote it."""
        if not self._leads:
            if self._meanwhile is not None:
                self._meanwhile.append((record, ours))
            self.shown.delivery.know(record)
            self.told.questions.record_changed(record)
            self.told.sessions.record_changed(record)
            return
        before = self.base.index.get(record.id)
        self.base.telemetry.record_changed(before, record, self.base.audiences.route(record).name)
        if before is not None or record.needs_something:  # else it was settled before
            for name in lifecycle(before, record):
                _lifecycle_log.info(name, id=record.id)  # never its text
        if ours and record.is_open and record.earlier and record.earlier[-1].receipt is None:
            self.slack.app.later.run(self.told.owing.sign_in_time(record.id), "receipt of an earlier round")
        for part in self._followers:
            part.record_changed(record)
        self.told.replies.record_changed(record, ours=ours)
        self.told.questions.record_changed(record)
        self.told.sessions.record_changed(record)
        self.home.record_changed(record)

    async def _forget(self) -> None:
        """Drops what another process forgot from memory, and, as the leader, from Slack."""
        await self.board.pages.reload()
        await self.told.sessions.load()
        if self.store.leads:
            await self.home.load_answers()
            self.shown.erasing.refresh()

    def _announce(self, tx: Tx, entry: str) -> Callable[[], None]:
        """Stores that a checkpoint is to be posted and told outside. Call the result once that is stored."""
        checkpoint, now = self.base.settings.trust.checkpoint, self.base.clock.now()
        message = self.told.notices.checkpoint(entry, checkpoint.channel if checkpoint else None)
        put(tx, [message])
        claims = claims_in(entry)
        data = {"entry": entry, "head": claims["head"], "sha256": claims["sha256"]}
        told = [each.announce(tx, "decisions-checkpoint", data, now) for each in self.mailers]

        def announced() -> None:
            self.slack.app.later.run(self.shown.delivery.send_stored(message.key), "post a checkpoint")
            for send in told:
                send()

        return announced

    def _wake_feed(self) -> None:
        self.feed.wake()

    def _refresh(self, clarification: str) -> None:
        """Updates the messages of a clarification after someone saw outdated controls."""
        self.shown.delivery.refresh(clarification)
        self.board.incidents.show_again(clarification)

    def _touch_home(self, _item: Incoming | None = None) -> None:
        """Updates the Home tabs: an event came in, a page was sent or taken, or someone's turn on call began."""
        self.home.touch()


def _callbacks(base: Base, board: OnCallBoard, shown: DeliveryParts, told: IntakeParts) -> Callbacks:
    from bot.callbacks import Callbacks

    return Callbacks(
        settings=base.settings,
        questions=told.questions,
        store=base.store,
        links_of=board.permalinks.links,
        tell=shown.nudges.callback_given_up,
        clock=base.clock,
        rng=base.rng,
        on_outcome=partial(base.telemetry.delivered, "callback"),
    )
