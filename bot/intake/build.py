"""Builds what handles agents' events (connections, inbox, intake) and the replies to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.ask.inbox import Inbox, Incoming
from bot.ask.producers import Producers
from bot.ask.questions import Questions
from bot.base import Base
from bot.intake.channels import Channels
from bot.intake.intake import Intake, Sessions
from bot.intake.notices import Notices, Teller
from bot.oncall.build import OnCallBoard
from bot.show.build import DeliveryParts
from bot.show.replies import Replies
from bot.signing import Owing


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IntakeParts:
    """The parts that take in what agents and other programs send, and that reply to agents."""

    sessions: Sessions
    teller: Teller
    notices: Notices
    channels: Channels
    owing: Owing
    inbox: Inbox
    producers: Producers
    replies: Replies
    intake: Intake
    questions: Questions


def build(
    base: Base,
    board: OnCallBoard,
    shown: DeliveryParts,
    *,
    on_put: Callable[[], None],
    on_event: Callable[[Incoming], None],
    wake_feed: Callable[[], None],
) -> IntakeParts:
    """`on_put` is called when events arrive here; `on_event` before an event is processed, wherever it arrived. `wake_feed`:
    see `Questions`.
    """
    settings, store, ledger, clock, router = base.settings, base.store, base.ledger, base.clock, base.router
    teller = Teller(
        settings=settings, incidents=board.incidents, delivery=shown.delivery, renderer=base.renderer
    )
    notices = Notices(
        settings=settings,
        incidents=board.incidents,
        delivery=shown.delivery,
        messages=board.messages,
        renderer=base.renderer,
        teller=teller,
    )
    inbox = Inbox(store, on_put=on_put)
    producers = Producers(
        settings.producers,
        token_of=settings.producer_token,
        inbox=inbox,
        store=store,
        clock=clock,
        rng=base.rng,
        report_trouble=notices.event_lost,
        telemetry=base.telemetry,
    )
    replies = Replies(
        producers=producers,
        router=router,
        ledger=ledger,
        store=store,
        acts=base.acts,
        clock=clock,
        rng=base.rng,
        raise_incident=board.incidents.raise_,
    )
    sessions = Sessions(store, base.index, clock)

    def seen(item: Incoming) -> None:
        sessions.note(item)
        on_event(item)

    intake = Intake(
        inbox=inbox,
        router=router,
        scopes=base.scopes,
        audiences=base.audiences,
        index=base.index,
        notices=notices,
        replies_settled=replies.outbox.settled,
        seen=seen,
        clock=clock,
    )

    async def on_call() -> tuple[str, ...]:
        policy = settings.route_for("").on_call
        return await board.roster.on_call(policy) if policy is not None else ()

    return IntakeParts(
        sessions=sessions,
        teller=teller,
        notices=notices,
        channels=Channels(
            settings=settings,
            web=base.web,
            messenger=shown.messenger,
            delivery=shown.delivery,
            on_call=on_call,
            store=store,
            clock=clock,
        ),
        owing=Owing(ledger=ledger, router=router, clock=clock),
        inbox=inbox,
        producers=producers,
        replies=replies,
        intake=intake,
        questions=Questions(
            {each.name: each for each in settings.producers},
            store=store,
            index=base.index,
            ledger=ledger,
            router=router,
            trouble_with=board.access.trouble_with,
            bounded=base.audiences.bounded,
            wake_feed=wake_feed,
            clock=clock,
        ),
    )
