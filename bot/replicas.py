"""One of the bots on a database leads: it posts, pages, delivers and runs the timers.

`Replicas` exchanges messages with the other bots, and acts on them. Every bot takes what people and agents say and decides it on
the spot; here it tells the leader what follows from that, and the leader tells the others what they have to know. Changes of
ledgers arrive another way (`core.ledger.Ledger.changes`).

`Startup` takes up the work of a bot that leads, in the order that promise P10 asks for. Producers and delivery run at once. Then
the bot catches up on what it missed (events of producers, replies in threads, overdue timers) before it accepts new clicks.
Clicks wait ten seconds at most; the rest of the catch-up runs while clicks come in. Only clicks on posts of unknown outcome wait
until those are looked up. No question expires before the bot has read its thread, or minutes have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import structlog

from bot.ask.inbox import Inbox
from bot.ask.producers import Producers
from bot.errors import StorageUnavailable
from bot.home import HomeTabs
from bot.intake.intake import AgentParts
from bot.intake.notices import Channels
from bot.monitoring import Monitoring
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Pages
from bot.people.directory import Fact, People
from bot.show.delivery import Delivery
from bot.show.messenger import Messenger
from bot.show.removal import DuplicateCleanup
from bot.slack.app import SlackApp
from bot.slack.conversation import CatchUp
from bot.slack.threads import Unread
from bot.storage.store import Store, until_stored
from bot.storage.tx import News, Tx
from core.clock import Clock, within

_log = structlog.get_logger("clarify")
_LOOK = 5.0  # seconds
_CONNECTED = 600.0  # seconds that a bot that is gone may keep its connection to Slack
# How long new clicks wait for a silent producer, for the whole catch-up, and for overdue timers; together with
# connecting that is ten. Seconds.
_CONTACT, _CATCH_UP, _TIMERS = 3.0, 7.0, 2.0

# How long pages wait for Slack, and other posts until clicks can be taken. Seconds.
_PAGES_WAIT, _POSTS_WAIT = 5.0, 60.0

# How long timers wait for missed replies, which cannot be read while Slack is away. Seconds.
_SLACK_HEAD_START = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class Replicas:
    """Acts on messages of other bots. Calls `catch_up` when the leader has to read Slack's history, `forgotten` when
    another process may have forgotten something that we keep in memory, `turned` when another bot changed who is on call,
    `app_removed` when Slack told another bot that the app was removed.
    """

    store: Store
    inbox: Inbox
    delivery: Delivery
    duplicates: DuplicateCleanup
    incidents: Incidents
    pages: Pages
    home: HomeTabs
    people: People
    producers: Producers
    catch_up: Callable[[], None]
    forgotten: Callable[[], Awaitable[None]]
    turned: Callable[[], None]
    channels: Channels
    app_removed: Callable[[], None]
    clock: Clock

    def __post_init__(self) -> None:
        self._seen: dict[str, float] = {}  # when each other bot was last seen, on the steady clock

    def others(self) -> int:
        """How many others may be connected to Slack, including those that cannot reach the database."""
        since = self.clock.steady() - _CONNECTED
        return sum(at > since for at in self._seen.values())

    async def run(self) -> None:
        """Acts on messages of other bots, and on their end, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(), name="news")
            group.create_task(self._watch_others(), name="others")

    async def _watch_others(self) -> None:
        """As the leader, catches up when a bot ends, since it may have left work undone. Looks for duplicates when one
        appears: it may be a former leader whose last calls take effect late.
        """
        known: frozenset[str] = frozenset()
        while True:
            try:
                others = await self.store.others()
                if others - known and self.store.leads:
                    await self.duplicates.watch_again()
            except StorageUnavailable as error:
                _log.warning("cannot tell which other replicas are alive", reason=str(error))
            else:
                if gone := known - others:
                    _log.info("another replica ended", others=len(others), gone=len(gone))
                    if self.store.leads:
                        self.catch_up()
                known = others
                now = self.clock.steady()
                kept = {name: at for name, at in self._seen.items() if at > now - _CONNECTED}
                self._seen = kept | dict.fromkeys(others, now)
            await asyncio.sleep(_LOOK)

    async def _hear(self) -> None:
        async with aclosing(self.store.news()) as told:
            async for news in told:
                act = partial(self._act, news)
                await until_stored(act, self.clock, _log, "reading other replicas' messages later")

    async def tell(self) -> None:
        """As a follower, has the leader update messages about incidents whose outdated controls someone saw here; until
        cancelled.
        """
        while True:
            await self.incidents.awake.wait()
            self.incidents.awake.clear()
            touched, self.incidents.touched = self.incidents.touched, set()
            if touched:
                tell = partial(self.store.write, partial(_tell, touched))
                await until_stored(tell, self.clock, _log, "telling the leader later")

    async def _act(self, news: Sequence[News] | None) -> None:
        if news is None:
            await self._look_at_all()
            return
        names: dict[str, list[str]] = {}
        for topic, name in dict.fromkeys(news):
            names.setdefault(topic, []).append(name)
        if incidents := {int(each) for each in names.get("incident", ())}:
            await self.pages.reload(incidents)
        for producer in names.get("replies", ()):
            if (push := self.producers.pushing(producer)) is not None:
                push.refresh()
        self._hear_of_slack(names)
        if "forgotten" in names:
            await self.forgotten()
        if self.store.leads:
            await self._lead(names)

    def _hear_of_slack(self, names: dict[str, list[str]]) -> None:
        """What Slack told another bot of people, channels and the app."""
        for words in names.get("people", ()):
            fact, _, name = words.rpartition(" ")
            self.people.drop(cast("Fact", fact), name)
        for channel in names.get("channel", ()):
            self.people.drop("channel", channel)
            self.channels.look_at(channel)
        if "app" in names:
            self.app_removed()

    async def _lead(self, names: dict[str, list[str]]) -> None:
        self.incidents.changed({int(each) for each in names.get("incident", ())})
        for key in names.get("message", ()):
            await self.delivery.send_stored(key)
        for clarification in names.get("card", ()):
            await self.delivery.show(clarification)
        for user in names.get("home", ()):
            await self.home.looked_elsewhere(user)
            if not user:
                self.turned()
        for producer in names.get("reader", ()):
            self.producers.note_connected(producer)
        if "inbox" in names:
            self.inbox.heard()
        if "gap" in names:
            self.catch_up()

    async def _look_at_all(self) -> None:
        """Reads everything again, since we may have missed messages."""
        await self.forgotten()
        self.producers.refresh()
        self.people.doubt()
        self.channels.look_at_all()
        if self.store.leads:
            self.incidents.changed([each.incident.id for each in self.incidents])
            await self.delivery.send_all()
            await self.home.load()
            self.home.touch()
            self.inbox.heard()
            self.catch_up()


def _tell(incidents: Collection[int], tx: Tx) -> None:
    for each in incidents:
        tx.tell("incident", each)


@dataclass(kw_only=True, eq=False)
class Startup:
    """`run` begins to post, reads what was missed, takes clicks, and starts the timers.

    The events are set once Slack has said who the bot is (`introduced`), cards are being posted (`posting`), and clicks are taken
    (`takes_clicks`), which a bot that follows does at once.
    """

    app: SlackApp
    messenger: Messenger
    agents: AgentParts
    monitoring: Monitoring
    unread: Unread
    catch_up: CatchUp
    clock: Clock
    introduced: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    posting: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    takes_clicks: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _caught_up: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Runs while the bot leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._begin_posting(), name="posting")
            group.create_task(self._miss_nothing(), name="what was missed")
            group.create_task(self._read_located(), name="posts in doubt")
            group.create_task(self._run_timers(), name="timers")

    async def run_slack(self) -> None:
        """Keeps the connection to Slack while the bot runs: it introduces itself at once, and takes clicks later."""
        await self.app.introduce()
        self.introduced.set()
        await self.takes_clicks.wait()
        self.app.watch_for_gaps()
        await self.app.run()

    async def _begin_posting(self) -> None:
        """Starts posting when clicks can be taken, or after a while without them: then a card is better than none.

        Pages start sooner, even while Slack is away: one that Slack does not take must move on to the next step soon.
        """
        if not await within(self.clock, _PAGES_WAIT, self.introduced.wait()):
            self.messenger.pause_posting(pages=False)
        await self.introduced.wait()
        if not await within(self.clock, _POSTS_WAIT, self.app.ready.wait()):
            _log.warning("posting without a connection for clicks")
        self.messenger.resume_posting()
        self.posting.set()

    async def _miss_nothing(self) -> None:
        """Catches up, then lets new clicks in."""
        await self.introduced.wait()
        if not await within(self.clock, _CATCH_UP, self._catch_up()):
            _log.warning("accepting clicks before missed messages are read")
            self.app.look_back()
        self._caught_up.set()
        overdue = asyncio.create_task(self.monitoring.catch_up(), name="timers that ran out")
        try:
            # Not cancelled while a ledger is busy: a finding is reported only once.
            await within(self.clock, _TIMERS, asyncio.wait({overdue}))
            self.takes_clicks.set()
            await overdue
        finally:
            overdue.cancel()
            await asyncio.gather(overdue, return_exceptions=True)

    async def _catch_up(self) -> None:
        """Handles what producers and people said while the bot was away."""
        await self.agents.producers.first_contact(_CONTACT)
        await self.agents.intake.drained()
        self.app.look_back()
        await self.catch_up.done.wait()

    async def _read_located(self) -> None:
        """Reads replies to posts of unknown outcome. Clicks on those wait for this, but no longer than `_CATCH_UP`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.app.backfill.run_located(), name="threads of posts in doubt")
            await self.introduced.wait()
            await self.clock.sleep(_CATCH_UP)
            self.unread.hold_clicks_no_longer()

    async def _run_timers(self) -> None:
        """Starts the timers once missed replies are handled, so that an answer given in time comes first."""
        try:
            async with asyncio.timeout(_SLACK_HEAD_START):
                await self._caught_up.wait()
        except TimeoutError:
            _log.warning("starting timers before Slack is ready")
        await self.monitoring.run()
