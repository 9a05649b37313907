"""Builds the parts that keep Slack's messages up to date."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.base import Base
from bot.show.delivery import Delivery
from bot.show.desired import DesiredState, Draw, Rollups
from bot.show.lanes import Lanes
from bot.show.messages import Messages, Permalinks, owe_card
from bot.show.messenger import Messenger, OnOutcome
from bot.show.nudges import Nudges
from bot.show.removal import DuplicateCleanup, Erasing
from bot.slackapi import Availability
from core.escalation import Raise


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeliveryParts:
    """The parts that post, change and delete messages in Slack."""

    rollups: Rollups
    messenger: Messenger
    lanes: Lanes
    delivery: Delivery
    duplicates: DuplicateCleanup
    nudges: Nudges
    erasing: Erasing


def build(
    base: Base,
    messages: Messages,
    permalinks: Permalinks,
    *,
    draw: Draw,
    raise_incident: Raise,
    on_outcome: OnOutcome,
    active: Callable[[Iterable[str]], Awaitable[Sequence[str]]],
    is_awaited: Callable[[str], bool],
) -> DeliveryParts:
    """Builds them. `draw` draws a page, `on_outcome` is told each message's outcome; `active`: see `Nudges`; `is_awaited`: see
    `Delivery`.
    """
    index, ledger, clock, audiences = base.index, base.ledger, base.clock, base.audiences
    ledger.owes = partial(owe_card, audiences)
    rollups = Rollups(index, audiences)
    messenger = Messenger(
        settings=base.settings,
        gateway=base.gateway,
        messages=messages,
        desired=DesiredState(
            ledger=ledger,
            index=index,
            messages=messages,
            rollups=rollups,
            renderer=base.renderer,
            audiences=audiences,
            clock=clock,
            draw=draw,
        ),
        ledger=ledger,
        raise_incident=raise_incident,
        on_outcome=on_outcome,
        acts=base.acts,
        clock=clock,
        rng=base.rng,
    )
    lanes = messenger.lanes
    delivery = Delivery(
        index=index,
        audiences=audiences,
        messages=messages,
        rollups=rollups,
        lanes=lanes,
        is_awaited=is_awaited,
        clock=clock,
    )
    return DeliveryParts(
        rollups=rollups,
        messenger=messenger,
        lanes=lanes,
        delivery=delivery,
        duplicates=DuplicateCleanup(messages=messages, gateway=base.gateway, lanes=lanes, clock=clock),
        nudges=Nudges(
            index=index,
            ledger=ledger,
            messages=messages,
            rollups=rollups,
            renderer=base.renderer,
            audiences=audiences,
            notify=delivery.notify,
            permalinks=permalinks,
            active=active,
            clock=clock,
        ),
        erasing=Erasing(
            store=base.store,
            client=base.web,
            clock=clock,
            rng=base.rng,
            redraw=partial(delivery.send, post=False),
        ),
    )


async def resume_when_back(availability: Availability, lanes: Lanes) -> None:
    """Ends the lanes' backoff whenever Slack answers again; runs until cancelled."""
    while True:
        await availability.is_back()
        lanes.slack_is_back()
