# ruff: noqa: PLC0415 - the HTTP server is imported when it is built, so that the rest is there sooner
"""Builds, joins, starts and stops the bot.

Order of the start (promise P10): producers and delivery at once; then, before new clicks are accepted, what was missed:
events of producers, replies in threads, timers that ran out. Clicks wait for this ten seconds at most; the rest is done
while clicks come in. Posts of unknown outcome are looked up meanwhile: only clicks on those wait for it. No question expires
before its thread was read, or minutes have passed.
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
from collections.abc import Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from bot import home
from bot.commands.commands import Changes, Commands, OnCallTurns
from bot.commands.digests import Digests, WeeklyDigest
from bot.commands.lists import Access, Lists
from bot.delivery.delivery import Delivery
from bot.delivery.desired import DesiredState
from bot.delivery.duplicates import DuplicateCleanup
from bot.delivery.erasing import Erasing
from bot.delivery.memory import SlackMemory
from bot.delivery.messages import Messages, Permalinks
from bot.delivery.messenger import Messenger, Pictures
from bot.delivery.nudges import Nudges
from bot.delivery.replies import Replies
from bot.delivery.rollups import Rollups, RollupThreads
from bot.errors import LeaseLost, StorageUnavailable
from bot.github import GithubSync
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.intake.intake import Intake, Sessions
from bot.intake.notices import LedgerOutage, Notices
from bot.intake.recovery import recover, trust_earlier_release
from bot.logs import log_trouble
from bot.monitoring import LedgerWatch, Monitoring
from bot.oncall.actions import Admission, Announcer, PageActions
from bot.oncall.escalations import Escalations
from bot.oncall.feeds import Feeds
from bot.oncall.incidents import Incidents
from bot.oncall.outside import Heartbeat, Outside, SlackOutageAlert, outside_pagers
from bot.oncall.pager import Pager
from bot.oncall.pages import Pages
from bot.oncall.pageview import PageView
from bot.oncall.quorum import Quorum
from bot.oncall.roster import Policies, Roster
from bot.people import answerers
from bot.people.access import AccessControl
from bot.people.directory import People
from bot.producers.inbox import Inbox, Item
from bot.producers.producers import Producers
from bot.producers.questions import Questions
from bot.replicas import Replicas
from bot.responders import responders_of
from bot.retention.upkeep import Upkeep
from bot.routing import Audiences, Group
from bot.settings.model import Settings
from bot.slack import mrkdwn
from bot.slack.answering import Answering, Interactions
from bot.slack.app import SlackApp
from bot.slack.backfill import Backfill
from bot.slack.control_origin import OriginCheck
from bot.slack.conversation import Conversation
from bot.slack.listeners import Handlers
from bot.slack.socket import Background
from bot.slack.threads import Threads
from bot.slack.typed import TypedMessages
from bot.slack.unread import PATIENCE, Unread
from bot.slackapi import Availability, Gateway, Place, SlackClient, ask, permalink
from bot.storage.store import Store, until_stored
from bot.telemetry import Telemetry
from bot.views.card import shows_whole
from bot.views.render import Renderer
from bot.webhooks import Webhooks, endpoints_of
from core.agents import StatusFile
from core.bus import lifecycle
from core.clarification import Clarification, parse_id
from core.clock import Clock, ConcurrencyLimit, SystemClock, within
from core.dispatch import Dispatcher
from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.hub import Hub
from core.index import Index, Scan, scan, summarize
from core.ledger import FileLedger, Ledger
from core.monitor import Monitor
from core.router import Router
from core.workflow import Scopes

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bot.web.callers import Callers
    from bot.web.server import HttpServer, Limits

_log = structlog.get_logger("clarify")
_lifecycle_log = structlog.get_logger("clarify.lifecycle")

# A producer that does not answer holds up new clicks no longer than `_CONTACT`, all that was missed no longer than
# `_CATCH_UP`, timers that ran out no longer than `_TIMERS`: with what connecting takes that is ten. Seconds.
_CONTACT, _CATCH_UP, _TIMERS = 3.0, 7.0, 2.0

# Pages wait for Slack no longer than the first of these, other posts for clicks no longer than the second. Seconds.
_PAGES_WAIT, _POSTS_WAIT = 5.0, 60.0

# While Slack is away, missed replies cannot be looked for; timers do not wait for them longer than this.
_SLACK_HEAD_START = 60.0


# So many clicks, windows and commands are worked on at once. With more, people who wait for Slack's acknowledgement come
# before cards and replies, for so many seconds.
_ACTS_AT_ONCE, _CROWD = 64, 3.0

_DATABASE_RETRY = 1.0  # seconds
_POLLS = "they do not get through, so that it is asked twice a second: put a direct address in storage.listen_url_env"
_AWAY = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_ANEW = "CLARIFY_BEGAN_ANEW"  # set for itself by a bot that begins anew: as it was at work, it waits for the database
_SPARE = "no connection of its own: other replicas have the ten that Slack gives an app"


async def run(settings: Settings) -> None:
    """Run until SIGTERM, SIGINT, or SIGHUP where it is not ignored, as under nohup.

    Raises:
        ClarifyBotError: it cannot start, or a part of it died.
    """
    waits, stop = os.environ.pop(_ANEW, None) is not None, asyncio.Event()
    # What a start makes, modules and ledgers' summaries by the ten thousand, stays for long: full collections would go
    # through all of it again and again, and later hold up the event loop for that time.
    gc.disable()
    try:
        bot = await Bot.build(settings, None, random.Random())  # noqa: S311 - jitter, not secrets
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            await bot.start()
            gc.collect()
            gc.freeze()
            gc.enable()
            await bot.until(stop)
        except LeaseLost as error:
            # Whatever this one is about to do, the other one does. Nothing stops as fast as this; it begins anew, waiting.
            _log.error("restarting; this replica lost its lease", reason=str(error))
            _begin_anew()
        finally:
            await bot.stop()
    except _AWAY as error:
        if not waits or stop.is_set():
            raise
        _log.error("restarting; the database is unavailable", reason=str(error))
        await asyncio.sleep(_DATABASE_RETRY)
        _begin_anew()
    finally:
        gc.enable()


def _begin_anew() -> NoReturn:
    logging.shutdown()  # its last lines are told
    os.environ[_ANEW] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def files(settings: Settings, *, expected: bool) -> FileLedger:
    """The ledgers as files. `expected`: they were written there before."""
    return FileLedger(
        settings.ledger.directory,
        mode=settings.ledger.mode,
        expected=expected,
        shell_consents=settings.shell.consent,
    )


class Bot:
    """All parts of one bot, on one storage and one clock: `build`, `start`, `until` something happens, `stop`."""

    @classmethod
    async def build(cls, settings: Settings, clock: Clock | None, rng: random.Random) -> Bot:
        """Open the storage, read the ledgers, wire the parts. Nothing is sent yet. `clock`: None: the storage's.

        Raises:
            StorageError: the storage is in use or cannot be used.
        """
        url, listen_url = settings.database_url, settings.listen_url
        store = await Store.open(url or settings.storage.path, listen_url)
        if url is not None:
            from bot.storage.ledger import DatabaseLedger

            ledger: Ledger = await DatabaseLedger.open(
                store, url, listen_url, shell_consents=settings.shell.consent
            )
        else:
            # What was shown once is in a ledger: an empty folder in its place is a disk that is not mounted.
            ledger = files(settings, expected=await Messages(store).know_clarifications())
        return cls(settings, store, ledger, clock or store.clock, rng)

    def __init__(
        self,
        settings: Settings,
        store: Store,
        ledger: Ledger,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self.store = store
        self.ledger = ledger
        self.clock = clock
        self.rng = rng
        self._build_core()
        self._build_incidents()
        self._build_producers()
        self._build_delivery()
        self._build_pager()
        self._build_feeds()
        self._build_home()
        self._build_intake()
        self._build_agents()
        self._build_slack()
        self._build_retention()
        agents = (self.dispatcher, self.agent_status)
        people = (self.monitoring, self.delivery, self.nudges, self.escalations, self.quorum)
        self._outside = tuple(each for each in (self.github, self.webhooks) if each is not None)
        self._followers = (*agents, *people, *self._outside)
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._introduced = asyncio.Event()
        self._posting = asyncio.Event()  # what has controls is shown
        self._caught_up = asyncio.Event()
        self._takes_clicks = asyncio.Event()  # what was missed comes before them
        self._leads = self.store.leads
        # Records that are written while it takes the lead, and whether by us: they are followed once it has it.
        self._meanwhile: list[tuple[Clarification, bool]] | None = None
        self._http: HttpServer | None = None

    async def start(self) -> None:
        """Read what was decided, then start every part, or, where another bot leads on the database, those that take what
        people and agents say. Returns when they are at work.

        Raises:
            ConfigurationError: the HTTP server's address cannot be had.
        """
        self._http = await self._listen()
        found = await scan(self.ledger, await self.inbox.last_issue())
        for summary in found.summaries:
            self.delivery.know(summary)
        if leads := await self.store.lead(wait=False):
            await self._restore(found)
        else:
            await self._follow()
        for name, work in self._work():
            self._begin(name, work)
        if leads:
            await self._lead(found)
            self.later.run(self.watch.look_for_deleted(found.names), "look for deleted records")
            self._begin("lease", self._until_deposed())
        else:
            self._begin("lease", self._take_lead(found))
            _log.info("following", open=len(found.summaries))

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Have it done beside all else; its end is the bot's."""
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
            self._died.exception()  # seen, also where nobody waits for it any more
        else:
            self._died.set_result(None)

    def _work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs beside each other until the bot stops, whether it leads or not."""
        yield "delivery", self.delivery.run()
        yield "ledger watch", self.watch.run()
        yield "slack", self._run_slack()
        yield "replicas", self.replicas.run()
        if self._http is not None:
            yield "http", self._http.run()

    async def _follow(self) -> None:
        """Take what people and agents say; what follows from it is for the bot that leads, until this one does."""
        self.messenger.lanes.active = False
        await self.pages.reload()
        await self.home.restore()
        self._takes_clicks.set()

    async def _take_lead(self, found: Scan) -> None:
        telling = asyncio.create_task(self.replicas.tell(), name="tell")
        try:
            await self.store.lead()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        self.messenger.lanes.active = True
        found.summaries = list(self.index)
        try:
            await self._restore(found)
            await self._lead(found)
        except _AWAY as error:
            # What was taken up so far is begun anew, here or by another bot, once there is something to begin with.
            _log.warning("cannot take over from the last leader", reason=str(error))
            while await self.store.trouble() is not None:
                await self.clock.sleep(_DATABASE_RETRY)
            raise LeaseLost("the database was away") from error
        await self._until_deposed()

    async def _restore(self, found: Scan) -> None:
        """Take up what the bot that led before left, or this one before it was started. `found`: what the ledgers hold."""
        meanwhile: list[tuple[Clarification, bool]] = []
        self._meanwhile = meanwhile
        if self.webhooks is not None:
            await self.webhooks.restore()
        for summary in found.summaries:
            self.monitoring.record_changed(summary)
        await recover(
            store=self.store,
            ledger=self.ledger,
            index=self.index,
            delivery=self.delivery,
            renderer=self.renderer,
            settings=self.settings,
        )
        await self.backfill.expect()
        await self.inbox.reserve_above(found.highest_issue)
        await trust_earlier_release(self.inbox, self.router, found.summaries)
        self.messenger.pause_posting(pages=True)
        await self.delivery.restore()
        await self.replies.restore(self.index)
        await self.pager.restore()
        await self.sessions.restore()
        await self.home.restore()
        if self.github is not None:
            await self.github.restore(found.summaries)
        for summary in found.summaries:
            self.dispatcher.record_changed(summary)
            self.nudges.record_changed(summary)
            self.quorum.record_changed(summary)
        self._leads, self._meanwhile = True, None
        for record, ours in meanwhile:
            self.record_changed(record, ours=ours)

    async def _lead(self, found: Scan) -> None:
        """Begin what one bot alone does."""
        for name, work in self._work_of_leader():
            self._begin(name, work)
        await self.producers.start()
        self._begin("producers", self.producers.failed())
        for trouble in found.troubles:
            _log.error("cannot read a ledger", reason=str(trouble))
            if isinstance(trouble, LedgerUnreadable):
                await self.notices.ledger_unreadable(trouble)
        for summary in found.summaries:
            if summary.adoptable:
                await self.watch.adopt(summary.id)
        _log.info("started", open=len(found.summaries), producers=len(self.settings.producers))

    def _work_of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What one bot alone does beside that."""
        yield "duplicates", self.duplicates.run()
        yield "nudges", self.nudges.run()
        yield "quorum", self.quorum.run()
        yield "paging", self.pager.run()
        if any(each.feed is not None for each in self.settings.on_call):
            yield "who is on call", self.feeds.run()
        yield "Slack outage alert", self.slack_outage.run()
        yield "home", self._run_home()
        if self.heartbeat is not None:
            yield "heartbeat", self.heartbeat.run()
        yield "intake", self.intake.run()
        yield "ledger outage", self.ledger_outage.run(self.intake.drained)
        yield "retention", self.upkeep.run()
        yield "erasing", self.erasing.run()
        yield "responders", self.dispatcher.run()
        yield "agent status", self.agent_status.run()
        if self.github is not None:
            yield "GitHub", self.github.run()
        if self.webhooks is not None:
            yield "webhooks", self.webhooks.run()
        if self.weekly_digest is not None:
            yield "weekly digest", self.weekly_digest.run()
        yield "monitor", self._run_monitor()

    async def until(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set.

        Raises:
            Exception: of the part that died.
        """
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(stop.wait()),
            self._died,
            self.delivery.lanes.failed,
            self.intake.failed,
        }
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()

    async def _until_deposed(self) -> None:
        await self.store.deposed()
        raise LeaseLost("another bot leads")

    async def stop(self) -> None:
        """Accept nothing more, finish what is running, close. What is left is found again on the next start."""
        _log.info("stopping")
        await self.slack.stop()
        await self.replies.outbox.close()  # of the last clicks, while producers can be reached
        if self._http is not None:
            self._http.begin_stop()
        # They take a closed subscription as a timeout: of what is open, and of replies that they have not got yet.
        waiting = {s.producer for s in self.index if s.producer and (s.is_open or s.reply == "sending")}
        if not (self.store.leads and await self.ledger.are_there()) or await self._is_one_of_several():
            # Nobody knows what is open, or another bot goes on with the subscriptions.
            waiting |= {each.name for each in self.settings.producers}
        await self.producers.stop(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.page_actions.close()
        await self.agent_status.settle()
        self.agent_status.close()
        await self.intake.close()
        await self.replies.outbox.close()
        await self.delivery.lanes.close()
        await self.web.close()
        if self.webhooks is not None:
            await self.webhooks.close()
        await self.store.close()
        self.ledger.close()
        _log.info("stopped")

    async def _is_one_of_several(self) -> bool:
        try:
            return bool(await self.store.others())
        except StorageUnavailable:
            return True

    def _build_core(self) -> None:
        """The parts that all others need: ledgers and their router, Slack's Web API, metrics."""
        settings, store, clock = self.settings, self.store, self.clock
        self.telemetry = Telemetry(clock)
        self.acts = ConcurrencyLimit(clock, _ACTS_AT_ONCE, _CROWD)
        self.index = Index()
        self.router = Router(
            self.ledger,
            clock,
            settings.monitor.sla,
            self.record_changed,
            # Whether a reply waits in Slack is known to the bot that leads; another one closes nothing.
            may_be_answered=lambda clarification: not store.leads or self._held(clarification) is not None,
            shown_whole=lambda record: (
                not self.rollups.may_hold(record)
                and shows_whole(record, self.audiences.route(record).verbosity)
            ),
        )
        self.monitoring = Monitoring(
            monitor=Monitor(settings.monitor.sla, settings.monitor.deadlock_order),
            router=self.router,
            ledger=self.ledger,
            clock=clock,
            held=self._held,
            alarm=settings.monitor.alarm,
        )
        self.unread = Unread(clock, released=self.monitoring.release)
        self.availability = Availability(clock, back=lambda: self.delivery.lanes.slack_is_back())  # noqa: PLW0108 - built later
        self.web = SlackClient(settings, self.availability, self.telemetry, store.acting)
        self.gateway = Gateway(self.web, store.installation, self.telemetry)
        self.people = People(self.web)
        self.renderer = Renderer(store.installation)
        self.messages = Messages(store)
        self.permalinks = Permalinks(self.messages, partial(permalink, self.web))
        self.sessions = Sessions(store, self.index, clock)
        self.audiences = Audiences(settings)
        self.scopes = Scopes(settings.ledger.workflows)
        self.rollups = Rollups(self.index, self.audiences)
        self.webhooks = (
            Webhooks(
                endpoints=endpoints_of(settings),
                ledger=self.ledger,
                store=store,
                clock=clock,
                rng=self.rng,
                on_outcome=self.telemetry.webhook,
            )
            if settings.webhooks
            else None
        )

    def _build_incidents(self) -> None:
        """What delivery and everybody raises incidents with, and how their pages look; what sends them comes later."""
        settings, clock = self.settings, self.clock
        self.incidents = Incidents(
            self.store, clock, lambda agent: settings.route_for(agent).on_call, self._on_call_changed
        )
        self.pages = Pages(self.store, self.incidents, self.messages.in_flight, clock)
        self.roster = Roster(settings, self.people, self.store, clock, self._on_call_changed)
        self.policies = Policies(settings, self.roster, self.index.get, clock)
        self.access = AccessControl(people=self.people, settings=settings, paged=self._paged)
        self.page_view = PageView(
            incidents=self.incidents,
            pages=self.pages,
            policies=self.policies,
            messages=self.messages,
            ledger=self.ledger,
            renderer=self.renderer,
            permalinks=self.permalinks,
        )

    def _build_pager(self) -> None:
        settings, clock = self.settings, self.clock
        outside = Outside(
            outside_pagers(settings), settings.secrets.by_variable, self.telemetry, acting=self.store.acting
        )
        self.escalations = Escalations(self.incidents, self.ledger, self.index, clock)
        self.quorum = Quorum(
            settings=settings, people=self.people, router=self.router, ledger=self.ledger, clock=clock
        )
        self.pager = Pager(
            incidents=self.incidents,
            pages=self.pages,
            policies=self.policies,
            escalations=self.escalations,
            delivery=self.delivery,
            send_outside=outside.send,
            words=self.page_view.words,
            clock=clock,
            on_sent=self._on_call_changed,
        )
        self.page_actions = PageActions(
            incidents=self.incidents,
            policies=self.policies,
            router=self.router,
            ledger=self.ledger,
            renderer=self.renderer,
            admission=Admission(
                settings,
                self.incidents,
                self.roster,
                self.index,
                self.access,
            ),
            announcer=Announcer(settings, self.index, self.messages, self.delivery),
            clock=clock,
        )
        self.slack_outage = SlackOutageAlert(
            targets=outside_pagers(settings),
            send_outside=outside.send,
            connected=lambda: self.slack.connected,
            probe=partial(ask, "auth.test", self.web.auth_test),
            clock=clock,
            seconds=time.monotonic,
        )
        beat, every = settings.heartbeat_url, settings.monitor.heartbeat_every
        self.heartbeat = Heartbeat(beat, every, clock, self._is_well) if beat is not None else None

    def _build_delivery(self) -> None:
        settings, clock = self.settings, self.clock
        self.replies = Replies(
            producers=self.producers,
            router=self.router,
            ledger=self.ledger,
            store=self.store,
            acts=self.acts,
            clock=clock,
            rng=self.rng,
            raise_incident=self.incidents.raise_,
            on_foreign=lambda clarification: self.watch.adopt(clarification),  # noqa: PLW0108 - built later
        )
        self.messenger = Messenger(
            settings=settings,
            gateway=self.gateway,
            messages=self.messages,
            desired=DesiredState(
                ledger=self.ledger,
                index=self.index,
                messages=self.messages,
                rollups=self.rollups,
                renderer=self.renderer,
                audiences=self.audiences,
                clock=clock,
                draw=self.page_view.draw,
            ),
            ledger=self.ledger,
            raise_incident=self.incidents.raise_,
            on_outcome=self.pages.on_outcome,
            acts=self.acts,
            clock=clock,
            rng=self.rng,
        )
        self.delivery = Delivery(
            index=self.index,
            audiences=self.audiences,
            messages=self.messages,
            rollups=self.rollups,
            lanes=self.messenger.lanes,
            clock=clock,
        )
        self.duplicates = DuplicateCleanup(
            messages=self.messages, gateway=self.gateway, lanes=self.messenger.lanes, clock=clock
        )
        self.nudges = Nudges(
            ledger=self.ledger,
            messages=self.messages,
            rollups=self.rollups,
            renderer=self.renderer,
            audiences=self.audiences,
            notify=self.delivery.notify,
            permalinks=self.permalinks,
            active=self.roster.active,
            clock=clock,
        )

    def _build_feeds(self) -> None:
        fallback = self.settings.slack.fallback_channel or self.settings.route_for("").channel
        self.feeds = Feeds(
            self.settings,
            self.people,
            self.store,
            self.clock,
            tell=lambda key, said: self.delivery.say(Place(fallback), key, said),
            on_change=self._on_call_changed,
        )

    def _build_home(self) -> None:
        self.home = HomeTabs(
            gathering=Gathering(
                index=self.index,
                ledger=self.ledger,
                sessions=self.sessions.facts,
                roster=self.roster,
                policies=[policy.name for policy in self.settings.on_call],
                paged=self.incidents.paged,
                shows=self.audiences.shows,
            ),
            access=KeptAccess(self.access, self.audiences, self.clock),
            renderer=self.renderer,
            send=partial(publish, self.web, self.telemetry),
            viewers=Viewers(self.store),
            clock=self.clock,
        )

    def _build_intake(self) -> None:
        self.notices = Notices(
            settings=self.settings,
            incidents=self.incidents,
            delivery=self.delivery,
            messages=self.messages,
            renderer=self.renderer,
        )
        self.ledger_outage = LedgerOutage(
            settings=self.settings,
            ledger=self.ledger,
            store=self.store,
            delivery=self.delivery,
            messages=self.messages,
            incidents=self.incidents,
            renderer=self.renderer,
            clock=self.clock,
        )
        self.watch = LedgerWatch(
            ledger=self.ledger,
            index=self.index,
            router=self.router,
            changed=partial(self.record_changed, ours=False),
            notices=self.notices,
            shown=self.messages.asked_of,
            direct=lambda some: self.questions.asked_directly(some),  # noqa: PLW0108 - they are made below
            clock=SystemClock(),  # files change in real time
            acts=lambda: self.store.leads,
        )
        self.intake = Intake(
            inbox=self.inbox,
            router=self.router,
            scopes=self.scopes,
            audiences=self.audiences,
            index=self.index,
            notices=self.notices,
            replies_settled=self.replies.outbox.settled,
            seen=self._event_seen,
            clock=self.clock,
            outage=self.ledger_outage,
        )

    def _build_producers(self) -> None:
        self.inbox = Inbox(self.store, on_put=self.monitoring.trigger)
        self.questions = Questions(
            {each.name: each for each in self.settings.producers},
            inbox=self.inbox,
            store=self.store,
            index=self.index,
            ledger=self.ledger,
            router=self.router,
            adopt=lambda clarification: self.watch.adopt(clarification),  # noqa: PLW0108 - built later
            trouble_with=self.access.trouble_with,
            write_down=lambda producer, token: self.intake.write_down(producer, token),  # noqa: PLW0108 - built later
            clock=self.clock,
        )
        self.producers = Producers(
            self.settings.producers,
            token_of=self.settings.producer_token,
            inbox=self.inbox,
            store=self.store,
            clock=self.clock,
            rng=self.rng,
            report_trouble=lambda trouble: self.notices.event_lost(trouble),  # noqa: PLW0108 - built later
            telemetry=self.telemetry,
        )

    def _build_agents(self) -> None:
        """The parts for questions between agents: responders, the agent-status file, issues on GitHub."""
        settings, clock = self.settings, self.clock
        responders = responders_of(settings.responders, settings.secrets.by_variable, settings.file.parent)
        self.agent_status = StatusFile(
            settings.status_file,
            lambda: self.index,
            settings.roles_of_people,
            clock,
            mode=settings.ledger.mode,
        )
        self.dispatcher = Dispatcher(
            responders=responders,
            router=self.router,
            ledger=self.ledger,
            clock=clock,
            scopes=self.scopes,
            working=self.agent_status.working,
        )
        github = settings.github
        self.github = (
            GithubSync(
                settings=github,
                token=settings.secrets.by_variable[github.token_env],
                ledger=self.ledger,
                store=self.store,
                clock=clock,
                rng=self.rng,
            )
            if github is not None
            else None
        )

    def _build_retention(self) -> None:
        self.upkeep = Upkeep(
            ledger=self.ledger,
            store=self.store,
            index=self.index,
            clock=self.clock,
            archive_after=self.settings.ledger.archive_after,
            keep=self.settings.storage.keep,
            sweeps=[home.SWEEP],
        )
        self.erasing = Erasing(
            store=self.store,
            client=self.web,
            clock=self.clock,
            rng=self.rng,
            redraw=partial(self.delivery.send, post=False),
        )

    def _build_slack(self) -> None:
        self.memory = SlackMemory(self.store)
        self.later = Background()
        self.threads = Threads(
            messages=self.messages,
            pages=self.pages,
            rollups=RollupThreads(self.messages, self.rollups),
            index=self.index,
            ledger=self.ledger,
            audiences=self.audiences,
            paged=self.incidents.paged,
        )
        self.answering = Answering(
            router=self.router,
            ledger=self.ledger,
            memory=self.memory,
            messages=self.messages,
            access=self.access,
            people=self.people,
            renderer=self.renderer,
            index=self.index,
            audiences=self.audiences,
            unread=self.unread,
            clock=self.clock,
            refresh=self._refresh,
        )
        digests = self._digests()
        handlers = self._handlers(self._commands(digests))
        weekly = self.settings.digest
        self.weekly_digest = (
            WeeklyDigest(
                weekly,
                digests=digests,
                messages=self.messages,
                delivery=self.delivery,
                renderer=self.renderer,
                clock=self.clock,
            )
            if weekly is not None
            else None
        )
        self.backfill = Backfill(
            web=self.web,
            memory=self.memory,
            messages=self.messages,
            threads=self.threads,
            unread=self.unread,
            availability=self.availability,
            conversation=handlers.conversation,
            clock=self.clock,
        )
        self.slack: SlackApp = SlackApp(
            settings=self.settings,
            web=self.web,
            handlers=handlers,
            backfill=self.backfill,
            later=self.later,
            availability=self.availability,
            acts=self.acts,
            counted=self._note_connections,
            passed=self.monitoring.trigger,
            replicas=lambda: self.replicas.others,  # built later
            clock=self.clock,
            rng=self.rng,
        )

        self.replicas = Replicas(
            store=self.store,
            inbox=self.inbox,
            delivery=self.delivery,
            duplicates=self.duplicates,
            incidents=self.incidents,
            pages=self.pages,
            home=self.home,
            people=self.people,
            producers=self.producers,
            catch_up=self.slack.schedule_catch_up,
            forgotten=self._forget,
            settled=self._tell_outside,
            clock=self.clock,
        )

    async def _note_connections(self, others: int) -> None:
        try:
            await self.store.note_connections(others, self.clock.now())
        except StorageUnavailable as error:
            _log.warning("cannot store the number of Slack connections", reason=str(error))

    def _handlers(self, commands: Commands) -> Handlers:
        """What answers people in Slack."""
        typed = TypedMessages(
            answering=self.answering,
            commands=commands,
            threads=self.threads,
            memory=self.memory,
            messages=self.messages,
            people=self.people,
            unread=self.unread,
            clock=self.clock,
        )
        return Handlers(
            answering=self.answering,
            interactions=Interactions(
                answering=self.answering,
                commands=commands,
                binding=OriginCheck(
                    installation=self.store.installation,
                    messages=self.messages,
                    incidents=self.incidents,
                    pages=self.pages,
                    adopt=self.messenger.adopt,
                    group_of=self._group_of,
                    foreign=lambda: self.slack.suspect(),  # noqa: PLW0108 - built later
                ),
                gateway=self.gateway,
                web=self.web,
                later=self.later,
            ),
            typed=typed,
            conversation=Conversation(
                typed=typed,
                memory=self.memory,
                messages=self.messages,
                unread=self.unread,
                delivery=self.delivery,
                gateway=self.gateway,
                clock=self.clock,
                later=self.later,
                catch_up=lambda: self.slack.schedule_catch_up(),  # noqa: PLW0108 - built later
            ),
            page_actions=self.page_actions,
            people=self.people,
            home=self.home,
            tell_others=self.store.tell,
        )

    def _digests(self) -> Digests:
        self.rights = Access(self.access, self.roster, self.incidents.paged, self.settings)
        return Digests(
            ledger=self.ledger,
            access=self.rights,
            clock=self.clock,
            pictures=Pictures(self.web),
            gateway=self.gateway,
            later=self.later.run,
            people=self.people,
        )

    def _commands(self, digests: Digests) -> Commands:
        clock, people = self.clock, self.people
        access = self.rights
        lists = Lists(
            index=self.index,
            ledger=self.ledger,
            access=access,
            permalinks=self.permalinks,
            sessions=self.sessions.facts,
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
                hear=self.unread.hear,
                to_plain=lambda text: mrkdwn.plain(text, people.known_name, drop=people.bot_user),
            ),
            turns=OnCallTurns(
                roster=self.roster,
                access=access,
                delivery=self.delivery,
                settings=self.settings,
                clock=clock,
            ),
            digests=digests,
            renderer=self.renderer,
            refresh=self._refresh,
        )

    async def _run_slack(self) -> None:
        """Runs until the connection's supervision ends."""
        await self.slack.introduce()
        self._introduced.set()
        await self._takes_clicks.wait()
        self.slack.watch_for_gaps()
        await self.slack.run()

    async def _begin_posting(self) -> None:
        """Nothing is posted that cannot be pressed yet, unless clicks are away for long: then a card is better than none.

        A page that Slack cannot take has to find another way soon, so it is tried while Slack is away.
        """
        if not await within(self.clock, _PAGES_WAIT, self._introduced.wait()):
            self.messenger.pause_posting(pages=False)
        await self._introduced.wait()
        if not await within(self.clock, _POSTS_WAIT, self.slack.ready.wait()):
            _log.warning("posting without a connection for clicks")
        self.messenger.resume_posting()
        self._posting.set()

    async def _miss_nothing(self) -> None:
        """Catch up, then have new clicks taken, where they are not taken yet."""
        await self._introduced.wait()
        if not await within(self.clock, _CATCH_UP, self._catch_up()):
            _log.warning("accepting clicks before missed messages are read")
            self.slack.look_back()
        self._caught_up.set()
        overdue = asyncio.create_task(self.monitoring.catch_up(), name="timers that ran out")
        try:
            # It goes on if a ledger is busy: what is due is reported only once.
            await within(self.clock, _TIMERS, asyncio.wait({overdue}))
            self._takes_clicks.set()
            await overdue
        finally:
            overdue.cancel()
            await asyncio.gather(overdue, return_exceptions=True)

    async def _catch_up(self) -> None:
        """What producers and people said while we were away."""
        await self.producers.first_contact(_CONTACT)
        await self.intake.drained()
        self.slack.look_back()
        await self.backfill.caught_up()

    async def _read_located(self) -> None:
        """Read what people replied to posts of unknown outcome while we were away. Clicks on those wait for this, as long
        as all clicks wait for what was missed at most.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.backfill.run_located(), name="threads of posts in doubt")
            await self._introduced.wait()
            await self.clock.sleep(_CATCH_UP)
            self.unread.hold_clicks_no_longer()

    async def _run_monitor(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._begin_posting(), name="posting")
            group.create_task(self._miss_nothing(), name="what was missed")
            group.create_task(self._read_located(), name="posts in doubt")
            group.create_task(self._run_timers(), name="timers")

    async def _run_timers(self) -> None:
        """Timers run from the moment that missed replies are in: an answer given in time comes first."""
        try:
            async with asyncio.timeout(_SLACK_HEAD_START):
                await self._caught_up.wait()
        except TimeoutError:
            _log.warning("starting timers before Slack is ready")
        await self.monitoring.run()

    async def _run_home(self) -> None:
        await self.home.restore_answers()
        await self._posting.wait()
        await self.home.run()

    async def _listen(self) -> HttpServer | None:
        """The HTTP server at its address; None where that is taken and nobody counts on it."""
        from bot.web.server import Limits, listen, raise_descriptor_limit

        limits = Limits.within(raise_descriptor_limit())
        return await listen(self.http_app(limits), self.settings, limits)

    def http_app(self, limits: Limits) -> FastAPI:
        """The app of the HTTP server, with all routes of this bot."""
        from bot.web import clarifications, health, mcp, push, questions, slack
        from bot.web.callers import Callers
        from bot.web.server import build_app

        pushing = [each for each in self.settings.producers if each.pushes]
        callers = Callers(
            {each.name: self.settings.producer_token(each) for each in pushing},
            {each.name: each.speaker for each in pushing},
        )
        hub = Hub(router=self.router, ledger=self.ledger, scopes=self.scopes, clock=self.clock, via="http")
        sources = health.Sources(
            telemetry=self.telemetry,
            index=self.index,
            audiences=self.audiences,
            clock=self.clock,
            leads=lambda: self.store.leads,
            backlog=lambda: self.inbox.backlog(self.clock.now()),
            producers=self.producers.status,
            slack_connected=lambda: self.slack.connected,
            queues={
                "delivery": lambda: self.delivery.lanes.length,
                "replies": lambda: len(self.replies.outbox),
            },
            webhooks=self.webhooks.waiting if self.webhooks is not None else None,
        )
        needed = [
            health.Check("slack", lambda: None if self.slack.connected else "not connected to Slack"),
            health.Check("storage", self._storage_trouble),
        ]
        others = [
            health.Check("database notices", lambda: _POLLS if self.store.polls else None),
            health.Check("slack app", lambda: self.slack.other_bots),
            health.Check("slack connection", lambda: _SPARE if self.slack.is_spare else None),
            health.Check("slack history", lambda: self.backfill.trouble),
            health.Check("answerers", lambda: answerers.troubles(self.settings, self.people)),
            health.Check("log", log_trouble),
            health.Check("events to be recorded", self.ledger_outage.overdue),
            *health.producer_checks([each.name for each in self.settings.producers], self.producers.status),
        ]
        waiting = questions.Waiting(self.questions, self.permalinks.links, limits.waiting)
        routers = [  # in the order of /docs
            questions.question_routes(questions=self.questions, callers=self._askers(), waiting=waiting),
            mcp.mcp_routes(
                questions=self.questions,
                callers=self._askers(self.settings.http.origins),
                waiting=waiting,
                origins=self.settings.http.origins,
                telemetry=self.telemetry,
            ),
            clarifications.clarification_routes(
                hub=hub, ledger=self.ledger, callers=callers, most_waiting=limits.waiting
            ),
            push.push_routes(callers=callers, producers=self.producers, clock=self.clock),
            health.health_routes(needed, others),
            health.metrics_routes(sources, callers),
        ]
        if self.slack.request_url is not None:
            routers.append(slack.slack_routes(self.slack.request_url))
        return build_app(routers, callers, self.telemetry.requested)

    def _askers(self, origins: Sequence[str] = ()) -> Callers:
        """Who may ask directly: every producer with a token, and processes of this machine, as the one without any.
        `origins`: of web pages that count as such processes.
        """
        from bot.web.callers import Callers

        asking = [each for each in self.settings.producers if each.token_env is not None or each.pushes]
        return Callers(
            {each.name: self.settings.producer_token(each) for each in asking},
            {each.name: each.speaker for each in asking},
            origins=origins,
        )

    async def _storage_trouble(self) -> str | None:
        """What is wrong with where events are kept, or with where decisions are."""
        return await self.store.trouble() or await self.ledger_outage.trouble()

    async def _is_well(self) -> bool:
        return not self.slack_outage.is_raised and await self.store.trouble() is None

    def _held(self, clarification: str) -> datetime | None:
        """How long the end of a question waits at the latest, since it may have been answered unheard; None: it does
        not wait.
        """
        if (until := self.unread.until(clarification)) is not None:
            return until
        deaf = self.slack.deaf_since
        known = self.index.get(clarification)
        if deaf is None or known is None or not self.audiences.shows(known):
            return None
        until = deaf + PATIENCE
        return until if until > self.clock.now() else None

    def _paged(self, clarification: str) -> frozenset[str]:
        """Whom the open pages of a clarification were sent to, while it is open: they may answer it.

        It is escalated, or its card could not be posted: then nobody else sees the question.
        """
        known = self.index.get(clarification)
        return self.incidents.paged(clarification) if known is not None and known.is_open else frozenset()

    def record_changed(self, record: Clarification, *, ours: bool = True) -> None:
        """A record was written: by us, or by another process. Every part that follows records hears of it here."""
        summary = summarize(record)
        if not self._leads:
            if self._meanwhile is not None:
                self._meanwhile.append((record, ours))
            if ours and not summary.needs_something:
                # It may have been settled before: the bot that leads follows it no longer then, and takes it for no news.
                tell = partial(self.store.tell, "card", summary.id, leader_only=True)
                told = until_stored(tell, self.clock, _log, "telling the leader later")
                self.later.run(told, "tell of what is settled")
            self.delivery.know(summary)
            self.questions.record_changed(record)
            self.sessions.record_changed(record)
            return
        before = self.index.get(summary.id, summary.issue)
        self.telemetry.record_changed(before, summary, self.audiences.route(summary).name)
        if before is not None or summary.needs_something:  # else it was over before, and is no news
            for event in lifecycle(before, summary, self.clock.now()):
                _lifecycle_log.info(event.name, id=event.clarification_id)  # never what it is about
        for part in self._followers:
            part.record_changed(summary)
        self.index.keep(record)
        self.replies.record_changed(summary, record, ours=ours)
        self.questions.record_changed(record)
        self.sessions.record_changed(record)
        self.home.record_changed(record)

    async def _tell_outside(self, clarification: str) -> None:
        """Another bot may have changed what was settled before, which nobody follows here: GitHub and webhooks are told.

        Raises:
            StorageUnavailable: it is not known how it stands.
        """
        if not self._outside:
            return
        try:
            record = await self.ledger.find(clarification, parse_id(clarification)[0])
        except LockTimeout as error:
            raise StorageUnavailable(str(error)) from error
        except (NotFound, LedgerUnreadable) as error:
            _log.warning("webhook event skipped", id=clarification, reason=str(error))
            return
        summary = summarize(record)
        if self.index.get(summary.id, summary.issue) is None and not summary.needs_something:
            for part in self._outside:
                part.record_changed(summary)

    async def _forget(self) -> None:
        """Another process may have forgotten something: it goes from memory, and, where we lead, from Slack."""
        await self.pages.reload()
        await self.sessions.restore()
        if self.store.leads:
            await self.home.restore_answers()
            self.erasing.look()

    def _refresh(self, clarification: str) -> None:
        """Somebody saw controls of a clarification that should be gone."""
        self.delivery.refresh(clarification)
        self.incidents.show_again(clarification)

    def _on_call_changed(self) -> None:
        """A page was sent or taken, or somebody's turn began: the Home tabs, which come later, show it."""
        self.home.touch()

    def _event_seen(self, item: Item) -> None:
        """An event is about to be worked off, wherever it came in."""
        self.sessions.note(item)
        self.home.touch()

    def _group_of(self, clarification: str) -> Group | None:
        summary = self.index.get(clarification)
        return None if summary is None else self.rollups.group(summary)
