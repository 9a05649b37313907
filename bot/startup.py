"""Takes up the work of a bot that leads, in the order that promise P10 asks for.

Producers and delivery run at once. Then the bot catches up on what it missed (events of producers, replies in threads,
overdue timers) before it accepts new clicks. Clicks wait ten seconds at most; the rest of the catch-up runs while clicks come
in. Only clicks on posts of unknown outcome wait until those are looked up. No question expires before the bot has read its
thread, or minutes have passed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from bot.intake.build import IntakeParts
from bot.monitoring import Monitoring
from bot.show.messenger import Messenger
from bot.slack.app import SlackApp
from bot.slack.conversation import CatchUp
from bot.slack.threads import Unread
from core.clock import Clock, within

_log = structlog.get_logger("clarify")

# How long new clicks wait for a silent producer, for the whole catch-up, and for overdue timers; together with
# connecting that is ten. Seconds.
_CONTACT, _CATCH_UP, _TIMERS = 3.0, 7.0, 2.0

# How long pages wait for Slack, and other posts until clicks can be taken. Seconds.
_PAGES_WAIT, _POSTS_WAIT = 5.0, 60.0

# How long timers wait for missed replies, which cannot be read while Slack is away. Seconds.
_SLACK_HEAD_START = 60.0


@dataclass(kw_only=True, eq=False)
class Startup:
    """`run` begins to post, reads what was missed, takes clicks, and starts the timers.

    The events are set once Slack has said who the bot is (`introduced`), cards are being posted (`posting`), and clicks are taken
    (`takes_clicks`), which a bot that follows does at once.
    """

    app: SlackApp
    messenger: Messenger
    told: IntakeParts
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
        await self.told.producers.first_contact(_CONTACT)
        await self.told.intake.drained()
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
