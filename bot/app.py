# ruff: noqa: PLC0415 - what is not configured is not imported, and the HTTP server only by what serves
"""Builds, joins, starts and stops the bot.

`Bot` says which part gets which others, what runs in the background, and what a change of a record is passed to. In which
order a bot that leads takes up its work: see `bot.replicas`.
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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from bot import home
from bot.ask.inbox import Incoming
from bot.ask.questions import has_callbacks
from bot.base import Base
from bot.base import build as build_base
from bot.decisions.chain import claims_in
from bot.decisions.log import DecisionLog, prove
from bot.errors import ClarifyBotError, LeaseLost, SlackError, StorageUnavailable
from bot.feed import Feed
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.intake.entries import TakingIn
from bot.intake.intake import AgentParts
from bot.intake.intake import build as build_agents
from bot.integrated import Integrated, Watchers, commands_of, jobs_of, keep
from bot.monitoring import Integrity, LedgerWatch, Monitoring
from bot.oncall.build import OnCallBoard, build_board
from bot.oncall.build import build as build_oncall
from bot.oncall.outside import Heartbeat, SlackOutageAlert
from bot.replicas import Replicas, Startup
from bot.responders import responders_of
from bot.retention.forget import Upkeep
from bot.settings.model import Settings
from bot.show.delivery import ShowParts, resume_when_back
from bot.show.delivery import build as build_show
from bot.show.messages import put
from bot.signing import Signing
from bot.slack.app import build as build_slack
from bot.slack.conversation import CatchUp
from bot.slack.threads import PATIENCE, Unread
from bot.slackapi import ask
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.clock import Clock
from core.errors import (
    LedgerUnwritable,
    LockTimeout,
)
from core.hub import Dispatcher
from core.ledger import lifecycle
from core.monitor import Monitor

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bot.show.callbacks import Callbacks
    from bot.web.server import HttpServer

_log = structlog.get_logger("clarify")
_lifecycle_log = structlog.get_logger("clarify.lifecycle")

_DATABASE_RETRY = 1.0  # seconds
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
        # What everything is built on.
        self.store = store
        self.ledger = ledger
        self.signing = ledger.receipts = ledger.signer = signing
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
        # What decides when time passes, and what holds it back.
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
        # Who is on call, what Slack shows, and what agents say.
        self.board = board = build_board(base, self._touch_home)
        self.messages = board.messages
        self.show = show = build_show(
            base,
            board.messages,
            board.permalinks,
            draw=board.page_view.draw,
            raise_incident=board.incidents.raise_,
            on_outcome=board.pages.on_outcome,
            active=board.roster.active,
            is_awaited=self._is_awaited,
        )
        self.agents = agents = build_agents(
            base,
            board,
            show,
            on_put=self.monitoring.trigger,
            on_event=self._touch_home,
            wake_feed=self._wake_feed,
        )
        self.callbacks = _callbacks(base, board, show, agents) if calls_back else None
        self.oncall = build_oncall(base, board, show.delivery, self._touch_home)
        self.home = _home(base, board, agents)
        # What follows the feed, and what watches for changes by others.
        self.integrated = Integrated.build(base, agents.teller, agents.questions)
        self.log = _log_of_decisions(base, signing, self._announce) if signing is not None else None
        self.feed = Feed(
            consumers=[
                *self.integrated.consumers,
                *(each for each in (self.callbacks, self.log) if each is not None),
            ],
            absent=self.integrated.broken,
            observers=[self.oncall.escalations, *self.integrated.mirrors],
            ledger=ledger,
            store=store,
            clock=clock,
            sign=agents.owing.sign,
            keep=settings.storage.keep,
        )
        self.watch = LedgerWatch(
            ledger=ledger,
            index=base.index,
            changed=partial(self.record_changed, ours=False),
            heard=self.feed.wake,
            owing=agents.owing,
            clock=clock,
        )
        self.replicas = Replicas(
            store=store,
            inbox=agents.inbox,
            delivery=show.delivery,
            duplicates=show.duplicates,
            incidents=board.incidents,
            pages=board.pages,
            home=self.home,
            people=base.people,
            producers=agents.producers,
            catch_up=self._events_missed,
            forgotten=self._forget,
            turned=self.board.roster.wake,
            channels=agents.channels,
            app_removed=self._app_removed,
            clock=clock,
        )
        # What people say, and who else has to know how the bot does.
        self.slack = build_slack(
            base,
            board,
            show,
            sessions=agents.sessions,
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
            look_at=agents.channels.look_at,
            app_removed=self._app_removed,
            added=commands_of(settings.integrations),
        )
        self.integrity = Integrity(base, agents, ledger, signing, self.slack.app.later)
        self.startup = Startup(
            app=self.slack.app,
            messenger=show.messenger,
            agents=agents,
            monitoring=self.monitoring,
            unread=self.unread,
            catch_up=self.catch_up,
            clock=clock,
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
        self.watchers = Watchers(settings, lambda: base.index, clock, self.feed.failed)
        self.dispatcher = Dispatcher(
            responders=responders_of(settings.responders, settings.by_variable, settings.folder),
            router=base.router,
            ledger=ledger,
            clock=clock,
            scopes=base.scopes,
            working=self.watchers.working,
        )
        self.upkeep = Upkeep(
            store=store,
            index=base.index,
            clock=clock,
            keep=settings.storage.keep,
            sweeps=[home.SWEEP],
            forget_decisions=self.log.delete_old if self.log is not None else None,
        )
        # The life of this process.
        self._followers = (
            self.dispatcher,
            self.watchers,
            self.monitoring,
            show.delivery,
            show.nudges,
            self.oncall.quorum,
            self.feed,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leads = self.store.leads
        # Records that change while the bot takes the lead, and whether we wrote them: handled once it leads.
        self._meanwhile: list[tuple[Clarification, bool]] | None = None
        self._http: HttpServer | None = None

    async def start(self) -> None:
        """Reads the ledgers, then starts every part; where another bot leads on the database, only the parts that take
        what people and agents say. Returns when they run.

        Raises:
            ConfigurationError: the HTTP server cannot listen at its address.
        """
        self._http = self._listen()
        if leads := await self.store.lead(wait=False):
            await self._take_in_earlier()
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
                self.show.delivery.know(known)

    async def _take_in_earlier(self) -> bool:
        """Takes in records from before if the database is new and empty. Returns whether it did."""
        taking = TakingIn(
            store=self.store,
            clock=self.base.clock,
            keys=self.signing,
            audiences=self.base.audiences,
            sla=self.base.settings.monitor.sla,
            teller=self.agents.teller,
            name=str(self.base.settings.storage.path),
        )
        return await self.integrated.take_in(taking)

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
        yield "delivery", self.show.delivery.run()
        yield "Slack is back", resume_when_back(self.base.availability, self.show.lanes)
        yield "ledger watch", self.watch.run()
        yield "refusals", self.base.router.run()
        yield "slack", self.startup.run_slack()
        yield "replicas", self.replicas.run()
        yield "channels", self._run_channels()
        if self._http is not None:
            yield "http", self._http.run()

    async def _follow(self) -> None:
        """Takes what people and agents say, and leaves the rest to the bot that leads."""
        self.show.lanes.active = False
        await self.board.pages.reload()
        await self.home.load()
        self.startup.takes_clicks.set()

    async def _take_lead(self) -> None:
        telling = asyncio.create_task(self.replicas.tell(), name="tell")
        try:
            await self.store.lead()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        self.show.lanes.active = True
        try:
            if await self._take_in_earlier():
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
        self.show.messenger.pause_posting(pages=True)
        await self.show.delivery.load()
        self.agents.replies.load(self.base.index)
        await self.oncall.pager.load()
        await self.agents.sessions.load()
        await self.home.load()
        for record in self.base.index:
            self.dispatcher.record_changed(record)
            self.show.nudges.record_changed(record)
            self.oncall.quorum.record_changed(record)
        self._leads, self._meanwhile = True, None
        for changed, ours in meanwhile:
            self.record_changed(changed, ours=ours)

    async def _lead(self) -> None:
        """Starts the work that only the leader does."""
        await self.store.note_shell(consents=self.base.settings.shell.consent)
        await self.integrity.check_key()
        for name, work in self._work_of_leader():
            self._begin(name, work)
        self.agents.channels.begin_to_tell()
        await self.agents.producers.start()
        self._begin("producers", self.agents.producers.failed())
        self.integrity.sign_what_is_owed(self.base.index)
        _log.info("started", open=len(self.base.index), producers=len(self.base.settings.producers))

    def _work_of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The background work of the leader."""
        yield "duplicates", self.show.duplicates.run()
        yield "nudges", self.show.nudges.run()
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
        yield "intake", self.agents.intake.run()
        yield "retention", self.upkeep.run()
        yield "erasing", self.show.erasing.run()
        yield "responders", self.dispatcher.run()
        yield "watchers", self.watchers.run()
        yield "changes", self.feed.run()
        failed = self.feed.failed
        jobs = jobs_of(self.base.settings.integrations, self.slack.commands.host, failed)
        for name, job in jobs.items():
            yield name, keep(name, job, self.base.clock, failed)
        yield "monitor", self.startup.run()

    async def until(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set. Raises the exception of a part that died."""
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(stop.wait()),
            self._died,
            self.show.lanes.failed,
            self.agents.intake.failed,
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
        await self.agents.replies.outbox.close()  # sends the last replies while producers are still connected
        if self._http is not None:
            self._http.begin_stop()
        # A closed subscription times out open questions and undelivered replies: these producers keep theirs.
        waiting = {s.producer for s in self.base.index if s.producer and (s.is_open or s.reply == "sending")}
        is_there = await self.store.trouble() is None
        if not (self.store.leads and is_there) or await self._is_one_of_several():
            # We cannot know what is open, or another bot continues the subscriptions.
            waiting |= {each.name for each in self.base.settings.producers}
        await self.agents.producers.stop(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.base.router.write_refusals()
        await self.watchers.close()
        await self.agents.intake.close()
        await self.agents.replies.outbox.close()
        await self.show.lanes.close()
        await self.base.web.close()
        if self.store.leads:
            await self.feed.settle()
        await self.store.close()
        _log.info("stopped")

    async def _is_one_of_several(self) -> bool:
        try:
            return bool(await self.store.others())
        except StorageUnavailable:
            return True

    async def _run_home(self) -> None:
        await self.home.load_answers()
        await self.startup.posting.wait()
        await self.home.run()

    async def _run_channels(self) -> None:
        await self.startup.introduced.wait()
        await self.agents.channels.run()

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
        from bot.web.server import build

        return build(
            self.base,
            self.board,
            self.show,
            self.agents,
            self.slack,
            signing=self.signing,
            integrated=self.integrated,
            feed=self.feed,
            escalations=self.oncall.escalations,
            callbacks=self.callbacks,
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
        return self.agents.questions.is_awaited(clarification)

    def _shown_whole(self, record: Clarification) -> bool:
        return not self.show.rollups.may_hold(record) and self.base.renderer.shows_whole(
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
            self.show.delivery.know(record)
            self.agents.questions.record_changed(record)
            self.agents.sessions.record_changed(record)
            return
        before = self.base.index.get(record.id)
        self.base.telemetry.record_changed(before, record, self.base.audiences.route(record).name)
        if before is not None or record.needs_something:  # else it was settled before
            for name in lifecycle(before, record):
                _lifecycle_log.info(name, id=record.id)  # never its text
        if ours and record.is_open and record.earlier and record.earlier[-1].receipt is None:
            self.slack.app.later.run(self.agents.owing.sign_in_time(record.id), "receipt of an earlier round")
        for part in self._followers:
            part.record_changed(record)
        self.agents.replies.record_changed(record, ours=ours)
        self.agents.questions.record_changed(record)
        self.agents.sessions.record_changed(record)
        self.home.record_changed(record)

    async def _forget(self) -> None:
        """Drops what another process forgot from memory, and, as the leader, from Slack."""
        await self.board.pages.reload()
        await self.agents.sessions.read()
        if self.store.leads:
            await self.home.forgotten()
            self.show.erasing.refresh()

    def _announce(self, tx: Tx, entry: str) -> Callable[[], None]:
        """Stores that a checkpoint is to be posted and told outside. Call the result once that is stored."""
        checkpoint, now = self.base.settings.trust.checkpoint, self.base.clock.now()
        message = self.agents.notices.checkpoint(entry, checkpoint.channel if checkpoint else None)
        put(tx, [message])
        claims = claims_in(entry)
        data = {"entry": entry, "head": claims["head"], "sha256": claims["sha256"]}
        told = [each.announce(tx, "decisions-checkpoint", data, now) for each in self.integrated.mailers]

        def announced() -> None:
            self.slack.app.later.run(self.show.delivery.send_stored(message.key), "post a checkpoint")
            for send in told:
                send()

        return announced

    def _wake_feed(self) -> None:
        self.feed.wake()

    def _refresh(self, clarification: str) -> None:
        """Updates the messages of a clarification after someone saw outdated controls."""
        self.show.delivery.refresh(clarification)
        self.board.incidents.show_again(clarification)

    def _touch_home(self, _item: Incoming | None = None) -> None:
        """Updates the Home tabs: an event came in, a page was sent or taken, or someone's turn on call began."""
        self.home.touch()


def _callbacks(base: Base, board: OnCallBoard, show: ShowParts, agents: AgentParts) -> Callbacks:
    from bot.show.callbacks import Callbacks

    return Callbacks(
        settings=base.settings,
        questions=agents.questions,
        store=base.store,
        links_of=board.permalinks.links,
        tell=show.nudges.callback_given_up,
        clock=base.clock,
        rng=base.rng,
        on_outcome=partial(base.telemetry.delivered, "callback"),
    )


def _home(base: Base, board: OnCallBoard, agents: AgentParts) -> HomeTabs:
    return HomeTabs(
        gathering=Gathering(
            index=base.index,
            ledger=base.ledger,
            sessions=agents.sessions.facts,
            roster=board.roster,
            policies=[policy.name for policy in base.settings.on_call],
            paged=board.incidents.paged,
            shows=base.audiences.shows,
        ),
        access=KeptAccess(board.access, base.audiences, base.clock),
        renderer=base.renderer,
        send=partial(publish, base.gateway),
        viewers=Viewers(base.store),
        clock=base.clock,
        locale_of=base.people.known_locale,
    )


def _log_of_decisions(
    base: Base, signing: Signing, announce: Callable[[Tx, str], Callable[[], None]]
) -> DecisionLog:
    trust = base.settings.trust
    return DecisionLog(
        store=base.store,
        signing=signing,
        audiences=base.audiences,
        clock=base.clock,
        keep=trust.keep or base.settings.storage.keep,
        checkpoint_every=trust.checkpoint.every if trust.checkpoint else None,
        announce=announce,
    )
