"""Builds the stores of incidents and pages (`OnCallBoard`), and what sends and handles them (`OnCallParts`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from bot import integrations
from bot.base import Base
from bot.oncall.actions import Admission, Announcer, Leavers, PageActions, Quorum
from bot.oncall.feeds import BrokenSource, Copies, Feeds, OnCallSource, Sources
from bot.oncall.incidents import Incidents
from bot.oncall.outside import BrokenPager, Outside, OutsidePager
from bot.oncall.pager import Escalations, Pager
from bot.oncall.pages import Pages
from bot.oncall.pageview import PageView
from bot.oncall.roster import Policies, Roster
from bot.oncall.turns import Turns
from bot.people.access import AccessControl
from bot.settings.model import Settings, Source
from bot.show.delivery import Delivery
from bot.show.messages import Messages, Permalinks
from bot.slackapi import Place, permalink, replies_since

_log = structlog.get_logger("clarify.integrations")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OnCallBoard:
    """Raising incidents, drawing their pages, deciding who may answer; and the messages in Slack."""

    messages: Messages
    permalinks: Permalinks
    incidents: Incidents
    pages: Pages
    roster: Roster
    policies: Policies
    access: AccessControl
    page_view: PageView


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OnCallParts:
    """Pages people, and handles what they do about it."""

    outside: Outside
    escalations: Escalations
    quorum: Quorum
    leavers: Leavers
    pager: Pager
    page_actions: PageActions
    feeds: Feeds
    turns: Turns


def on_call_sources(settings: Settings) -> Sources:
    """Returns the on-call source of each policy that has one."""
    return {
        policy.name: _source_of(policy.source, policy.timezone, settings)
        for policy in settings.on_call
        if policy.source is not None
    }


def _source_of(source: Source, zone: str, settings: Settings) -> OnCallSource:
    why = "it names no one on call"
    try:
        on_call = integrations.load(source.name).on_call
        if on_call is not None and source.value is not None:
            found: OnCallSource = on_call.source(source.value, zone, settings.secret)
            return found
    except Exception as error:  # noqa: BLE001 - others wrote it
        _log.exception("who is on call cannot be read", integration=source.name)
        why = type(error).__name__
    return BrokenSource(source, why)


def outside_pagers(settings: Settings) -> dict[str, OutsidePager]:
    """Returns the pagers of all policies, by the environment variable with the address of each."""
    pagers = {pager for policy in settings.on_call for pager in policy.pagers.items()}
    return {variable: _pager_of(kind, settings.secret(variable)) for variable, kind in sorted(pagers)}


def _pager_of(kind: str, address: str) -> OutsidePager:
    why = "it pages no one"
    try:
        if (paging := integrations.load(kind).paging) is not None:
            pager: OutsidePager = paging.pager(address)
            return pager
    except Exception as error:  # noqa: BLE001 - others wrote it
        _log.exception("a pager cannot be used", integration=kind)
        why = type(error).__name__
    return BrokenPager(kind, why)


def build_board(base: Base, on_change: Callable[[], None]) -> OnCallBoard:
    """`on_change` is called after a page was sent or claimed, and after someone's turn on call began."""
    settings, store, clock = base.settings, base.store, base.clock
    messages = Messages(store)
    permalinks = Permalinks(messages, partial(permalink, base.web))
    incidents = Incidents(store, clock, lambda agent: settings.route_for(agent).on_call, on_change)
    pages = Pages(store, incidents, messages, clock)
    roster = Roster(settings, base.people, Copies(on_call_sources(settings), store), store, clock, on_change)
    policies = Policies(settings, base.audiences, roster, base.index.get, clock)

    def paged(clarification: str) -> frozenset[str]:
        """The users to whom the open pages of an open clarification were sent: they may answer it, since they may be the only
        ones who see it.
        """
        known = base.index.get(clarification)
        return incidents.paged(clarification) if known is not None and known.is_open else frozenset()

    return OnCallBoard(
        messages=messages,
        permalinks=permalinks,
        incidents=incidents,
        pages=pages,
        roster=roster,
        policies=policies,
        access=AccessControl(people=base.people, settings=settings, paged=paged, on_call=roster.on_call),
        page_view=PageView(
            incidents=incidents,
            pages=pages,
            policies=policies,
            messages=messages,
            ledger=base.ledger,
            renderer=base.renderer,
            permalinks=permalinks,
        ),
    )


def build(base: Base, board: OnCallBoard, delivery: Delivery, on_change: Callable[[], None]) -> OnCallParts:
    """`on_change`: as in `build_board`."""
    settings, ledger, clock, router = base.settings, base.ledger, base.clock, base.router
    incidents, policies = board.incidents, board.policies
    outside = Outside(outside_pagers(settings), base.telemetry, acting=base.store.acting)
    escalations = Escalations(incidents, ledger, clock)
    announcer = Announcer(base.audiences, base.index, board.messages, delivery)
    admission = Admission(settings, base.audiences, incidents, board.roster, base.index, board.access)
    fallback = settings.slack.fallback_channel or settings.route_for("").channel
    return OnCallParts(
        outside=outside,
        escalations=escalations,
        quorum=Quorum(
            settings=settings, people=base.people, router=router, index=base.index, ledger=ledger, clock=clock
        ),
        leavers=Leavers(
            index=base.index,
            incidents=incidents,
            policies=policies,
            admission=admission,
            announcer=announcer,
            router=router,
            people=base.people,
            clock=clock,
        ),
        pager=Pager(
            incidents=incidents,
            pages=board.pages,
            policies=policies,
            escalations=escalations,
            delivery=delivery,
            send_outside=outside.send,
            words=board.page_view.outside_text,
            clock=clock,
            on_sent=on_change,
        ),
        page_actions=PageActions(
            incidents=incidents,
            pages=board.pages,
            policies=policies,
            router=router,
            ledger=ledger,
            renderer=base.renderer,
            admission=admission,
            announcer=announcer,
            clock=clock,
            locale_of=base.people.known_locale,
        ),
        feeds=Feeds(
            settings,
            base.people,
            board.roster.copies,
            base.store,
            clock,
            tell=lambda key, said: delivery.say(Place(fallback), key, said),
            send=delivery.send_stored,
            on_change=board.roster.wake,
        ),
        turns=Turns(
            settings=settings,
            roster=board.roster,
            incidents=incidents,
            page_view=board.page_view,
            announcer=announcer,
            delivery=delivery,
            renderer=base.renderer,
            read=partial(replies_since, base.web),
            store=base.store,
            clock=clock,
        ),
    )
