"""Builds the HTTP server's app, with all routes of a bot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from bot.base import Base
from bot.checks import Check
from bot.feed import Feed
from bot.intake.build import IntakeParts
from bot.integrated import Integrated
from bot.logs import log_trouble
from bot.oncall.build import OnCallBoard
from bot.oncall.pager import Escalations
from bot.people import access
from bot.settings.model import ProducerSettings, Settings, is_loopback
from bot.show.build import DeliveryParts
from bot.signing import Signing
from bot.slack.build import SlackParts
from bot.web import clarifications, health, integrations, mcp, push, questions
from bot.web.guard import Callers
from bot.web.server import build_app
from core.hub import Hub

if TYPE_CHECKING:  # imported by a bot that has them
    from bot.show.callbacks import Callbacks

_MOST_WAITING = 1000  # callers that wait for news at once, so that others are still served
_POLLS = "they do not get through, so that it is asked twice a second: put a direct address in storage.listen_url_env"
_SPARE = "no connection of its own: other replicas have the ten that Slack gives an app"


def build(
    base: Base,
    board: OnCallBoard,
    shown: DeliveryParts,
    intake: IntakeParts,
    in_slack: SlackParts,
    *,
    signing: Signing | None,
    integrated: Integrated,
    feed: Feed,
    escalations: Escalations,
    callbacks: Callbacks | None,
    connections: int,
) -> FastAPI:
    """`signing` makes receipts; None: decisions get none."""
    settings, store, clock, producers = base.settings, base.store, base.clock, intake.producers
    most_waiting = min(_MOST_WAITING, connections // 2)
    app = in_slack.app
    callers = _callers(settings, [each for each in settings.producers if each.pushes])
    # Who may ask directly: producers with a token, and processes on this machine, as the producer without one.
    asking = [each for each in settings.producers if each.token_env is not None or each.pushes]
    askers, origins = _callers(settings, asking), settings.http.origins
    with_pages = _callers(settings, asking, origins, local_pages=is_loopback(settings.http.host))
    sources = health.Sources(
        telemetry=base.telemetry,
        index=base.index,
        audiences=base.audiences,
        clock=clock,
        leads=lambda: store.leads,
        backlog=lambda: intake.inbox.backlog(clock.now()),
        producers=producers.status,
        slack_connected=lambda: app.connected,
        queues={
            "delivery": lambda: shown.lanes.length,
            "replies": lambda: len(intake.replies.outbox),
            "callbacks": lambda: len(callbacks) if callbacks is not None else 0,
        },
        outside=integrated.waiting,
        integrations=integrated.counted,
    )
    needed = [
        Check("slack", app.trouble),
        Check("storage", store.trouble),
    ]
    others = [
        Check("database notices", lambda: _POLLS if store.polls else None),
        Check("slack app", lambda: app.other_bots),
        Check("slack connection", lambda: _SPARE if app.is_spare else None),
        Check("channels", intake.channels.trouble),
        Check("answerers", lambda: access.troubles(settings, base.people)),
        Check("log", log_trouble),
        Check("callbacks", lambda: callbacks.trouble() if callbacks is not None else None),
        Check("changes", feed.trouble),
        Check("pages", escalations.trouble),
        *integrated.checks(),
        Check("signing key", lambda: signing.trouble if signing else None),
        *health.producer_checks([each.name for each in settings.producers], producers.status),
    ]
    waiting = questions.Waiting(intake.questions, board.permalinks.links, most_waiting)
    routers = [  # in the order of /openapi.json
        questions.question_routes(questions=intake.questions, callers=askers, waiting=waiting),
        questions.receipt_routes(
            questions=intake.questions,
            callers=askers,
            jwks=partial(signing.published, store) if signing else _no_keys,
        ),
        mcp.mcp_routes(
            questions=intake.questions,
            callers=with_pages,
            waiting=waiting,
            most_listening=max(1, most_waiting // 2),
            origins=origins,
            telemetry=base.telemetry,
        ),
        clarifications.clarification_routes(
            hub=Hub(router=base.router, ledger=base.ledger, scopes=base.scopes, clock=clock, via="http"),
            ledger=base.ledger,
            callers=callers,
            most_waiting=most_waiting,
            reading=intake.questions.reading,
        ),
        push.push_routes(callers=callers, producers=producers, clock=clock),
        health.health_routes(needed, others),
        health.metrics_routes(sources, callers),
        integrations.integration_routes(integrated.routes, askers, waiting.places),
    ]
    if app.request_url is not None:
        routers.append(push.slack_routes(app.request_url))
    return build_app(routers, callers, base.telemetry.requested)


async def _no_keys() -> dict[str, Any]:
    return {"keys": []}


def _callers(
    settings: Settings,
    producers: Sequence[ProducerSettings],
    origins: Sequence[str] = (),
    *,
    local_pages: bool = False,
) -> Callers:
    return Callers(
        {each.name: settings.producer_token(each) for each in producers},
        {each.name: each.speaker for each in producers},
        origins=origins,
        local_pages=local_pages,
    )
