"""Builds every part of the bot and joins them. Wiring only: nothing is started here."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from bot.audience import Group
from bot.binding import Binding
from bot.counting import CountedGateway
from bot.delivery.delivery import Delivery
from bot.delivery.memory import SqliteSlackMemory
from bot.delivery.nudges import Nudges
from bot.delivery.replies import ReplyDelivery
from bot.delivery.rollupplaces import RollupPlaces
from bot.delivery.store import Store
from bot.delivery.wishes import Wishes
from bot.foundation import Foundation
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.intake import Intake
from bot.ledgertrouble import LedgerTrouble
from bot.notifier import Notifier
from bot.oncall.actions import Admission, Announcer, PageActions
from bot.oncall.escalations import Escalations
from bot.oncall.incidents import Incidents
from bot.oncall.outside import Outside, SlackOutageAlert, outside_targets
from bot.oncall.pager import Pager
from bot.oncall.pages import Pages
from bot.oncall.pageview import PageView
from bot.oncall.roster import Policies, Roster
from bot.people import AccessControl
from bot.producers.inbox import Inbox, Incoming, Trouble
from bot.producers.producers import Producers
from bot.protocol import AgentDesk
from bot.retention.upkeep import Keeping
from bot.settings.model import Settings
from bot.slack.app import Parts, SlackApp
from bot.slack.backfill import PATIENCE
from bot.slackapi import Gateway, ask
from bot.watching import LedgerWatch
from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.index import Summary, summarize


class Assembly(Foundation):
    """All parts of one bot, on one storage and one clock."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        rng: random.Random,
        *,
        ledgers_expected: bool = False,
    ) -> None:
        super().__init__(settings, store, clock, rng, ledgers_expected=ledgers_expected)
        self._build_incidents()
        self._build_producers(rng)
        self._build_delivery(rng)
        self._build_pager()
        self._build_home()
        self._build_intake()
        self._build_slack(rng)
        self.keeping = Keeping(
            ledger=self.ledger,
            store=store,
            storage=settings.storage.path,
            index=self.index,
            client=self.web,
            delivery=self.delivery,
            forgotten=self.home.restore_answers,
            clock=clock,
            archive_after=settings.ledger.archive_after,
            keep=settings.storage.keep,
        )
        self.agents = AgentDesk(
            settings=settings,
            store=store,
            router=self.router,
            ledger=self.ledger,
            scopes=self.scopes,
            clock=clock,
            rng=rng,
        )

    def _build_incidents(self) -> None:
        """What delivery and everybody raises incidents with, and how their pages look; what sends them comes later."""
        settings, clock = self.settings, self.clock
        self.incidents = Incidents(self.store, clock, self._policy_of, self._on_call_changed)
        self.pages = Pages(self.store, self.incidents, self.messages.in_flight, clock)
        self.roster = Roster(settings, self.people, self.store, clock, self._on_call_changed)
        self.policies = Policies(settings, self.roster, self._summary_of, clock)
        self.access = AccessControl(self.people, settings, self._paged)
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
        outside = Outside(settings.secrets.by_variable, self.telemetry)
        self.escalations = Escalations(self.incidents, self.policies, self.ledger, self.index, clock)
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
            targets=outside_targets(settings),
            send=outside.send,
            connected=self._slack_connected,
            probe=partial(ask, "auth.test", self.web.auth_test),
            clock=clock,
            seconds=time.monotonic,
        )

    def _build_delivery(self, rng: random.Random) -> None:
        settings, clock = self.settings, self.clock
        self.replies = ReplyDelivery(
            producers=self.producers,
            router=self.router,
            ledger=self.ledger,
            store=self.store,
            clock=clock,
            rng=rng,
            on_refused=self._refused,
            on_foreign=self._not_ours,
            on_blocked=self._blocked,
        )
        self.delivery = Delivery(
            settings=settings,
            index=self.index,
            ledger=self.ledger,
            messages=self.messages,
            gateway=CountedGateway(Gateway(self.web, self.store.installation), self.telemetry),
            rollups=self.rollups,
            wishes=Wishes(
                self.ledger,
                self.messages,
                self.rollups,
                self.renderer,
                self.audiences,
                clock=clock,
                draw=self.page_view.draw,
            ),
            raise_incident=self.incidents.raise_,
            on_outcome=self.pages.on_outcome,
            replies=self.replies,
            clock=clock,
            rng=rng,
        )
        self.nudges = Nudges(
            records=self.ledger,
            messages=self.messages,
            rollups=self.rollups,
            renderer=self.renderer,
            audiences=self.audiences,
            notify=self.delivery.notify,
            clock=clock,
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
            access=KeptAccess(self.access, self.audiences.route_of, self.clock),
            renderer=self.renderer,
            send=partial(publish, self.web, self.telemetry),
            viewers=Viewers(self.store),
            clock=self.clock,
        )

    def _build_intake(self) -> None:
        self.notifier = Notifier(
            settings=self.settings,
            incidents=self.incidents,
            delivery=self.delivery,
            messages=self.messages,
            renderer=self.renderer,
        )
        self.ledger_trouble = LedgerTrouble(
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
            noted=self._noted,
            notifier=self.notifier,
        )
        self.intake = Intake(
            inbox=self.inbox,
            router=self.router,
            scopes=self.scopes,
            index=self.index,
            notifier=self.notifier,
            replies_settled=self.replies.settled,
            clock=self.clock,
            trouble=self.ledger_trouble,
        )

    def _build_producers(self, rng: random.Random) -> None:
        self.inbox = Inbox(self.store, on_put=self._heard)
        self.producers = Producers(
            self.settings.producers,
            token_of=self.settings.producer_token,
            inbox=self.inbox,
            store=self.store,
            clock=self.clock,
            rng=rng,
            tell_trouble=self._critical_not_taken_in,
            telemetry=self.telemetry,
        )

    def _build_slack(self, rng: random.Random) -> None:
        self.slack = SlackApp(
            Parts(
                settings=self.settings,
                web=self.web,
                people=self.people,
                access=self.access,
                router=self.router,
                ledger=self.ledger,
                memory=SqliteSlackMemory(self.store, self.messages.in_flight),
                binding=Binding(
                    installation=self.store.installation,
                    messages=self.messages,
                    incidents=self.incidents,
                    pages=self.pages,
                    adopt=self.delivery.adopt,
                    group_of=self._group_of,
                    foreign=self._foreign,
                ),
                renderer=self.renderer,
                index=self.index,
                unread=self.unread,
                pulse=self.pulse,
                delivery=self.delivery,
                refresh=self._refresh,
                clock=self.clock,
                rng=rng,
                roster=self.roster,
                pages=self.pages,
                page_actions=self.page_actions,
                paged=self.incidents.paged,
                rollup_threads=RollupPlaces(self.store, self.messages.in_flight, self.rollups),
                permalinks=self.permalinks,
                sessions=self.sessions.facts,
                home=self.home,
                counted=self._counted,
                passed=self.watchman.trigger,
            )
        )

    def _held(self, clarification: str) -> datetime | None:
        if (until := self.unread.until(clarification)) is not None:
            return until
        deaf = self.slack.deaf_since
        known = self._summary_of(clarification)
        if deaf is None or known is None or not self.audiences.shows(known):
            return None
        until = deaf + PATIENCE
        return until if until > self.clock.now() else None

    def _slack_connected(self) -> bool:
        return self.slack.connected

    def _slack_is_back(self) -> None:
        self.delivery.lanes.slack_is_back()

    def _paged(self, clarification: str) -> frozenset[str]:
        """Whom the open pages of a clarification were sent to, while it is open: they may answer it.

        It is escalated, or its card could not be posted: then nobody else sees the question.
        """
        known = self._summary_of(clarification)
        return self.incidents.paged(clarification) if known is not None and known.is_open else frozenset()

    def _changed(self, record: Clarification) -> None:
        """We wrote a record."""
        self._tell(summarize(record), record, ours=True)

    def _noted(self, summary: Summary, record: Clarification) -> None:
        """Another process wrote a record."""
        self._tell(summary, record, ours=False)

    def _tell(self, summary: Summary, record: Clarification, *, ours: bool) -> None:
        before = self.index.get(summary.id, summary.issue)
        self.telemetry.note(before, summary)
        self.agents.note(before, summary)
        if self.webhooks is not None:
            self.webhooks.record_changed(summary)
        self.watchman.note(summary)
        self.delivery.note(summary, record if ours else None)
        self.nudges.note(summary)
        self.escalations.note(summary)
        self.home.record_changed(record)

    def _refresh(self, clarification: str) -> None:
        """Somebody saw controls of a clarification that should be gone."""
        self.delivery.refresh(clarification)
        self.incidents.show_again(clarification)

    def _policy_of(self, agent: str) -> str | None:
        return self.settings.route_for(agent).on_call

    def _on_call_changed(self) -> None:
        """A page was sent or taken, or somebody's turn began: the Home tabs, which come later, show it."""
        self.home.touch()

    def _heard(self, incoming: Sequence[Incoming]) -> None:
        """Events came from a producer."""
        for each in incoming:
            self.sessions.note(each)
        self.watchman.trigger()
        self.home.touch()

    async def _critical_not_taken_in(self, trouble: Trouble) -> None:
        await self.notifier.trouble(trouble)

    async def _not_ours(self, clarification: str) -> None:
        await self.watch.adopt(clarification)

    async def _refused(self, clarification: str) -> None:
        await self.delivery.page_refused(clarification)

    async def _blocked(self, clarification: str, why: str) -> None:
        await self.delivery.page_blocked(clarification, why)

    def _summary_of(self, clarification: str) -> Summary | None:
        return self.index.get(clarification, parse_id(clarification)[0])

    def _foreign(self) -> None:
        """A click came to us that was meant for another installation."""
        self.slack.suspect()

    async def _counted(self, others: int) -> None:
        """For `clarify check`, which cannot look itself: Slack would hand its connection clicks."""
        await self.store.execute(
            "update installation set others = ?, told_at = ?", others, self.clock.now().timestamp()
        )

    def _group_of(self, clarification: str) -> Group | None:
        summary = self._summary_of(clarification)
        return None if summary is None else self.rollups.group(summary)
