"""Joins the HTTP server to the bot: one app of all its routes. Wiring only."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version

import structlog
from fastapi import FastAPI

from bot.assembly import Assembly
from bot.errors import AddressInUseError, ClarifyBotError, ConfigurationError
from bot.logs import lines_dropped, log_trouble
from bot.web.callers import Callers
from bot.web.clarifications import clarification_routes
from bot.web.connections import USUAL, Limits, raise_descriptor_limit
from bot.web.health import Check, health_routes, producer_checks
from bot.web.metrics import Sources, metrics_routes
from bot.web.push import push_routes
from bot.web.server import HttpServer, build_app
from bot.web.slack import slack_routes
from core.hub import Hub

_log = structlog.get_logger("clarify.http")


async def listening(bot: Assembly) -> HttpServer | None:
    """The server, bound and not yet serving; None where nobody asked for it and its address is taken.

    Raises:
        AddressInUseError, ConfigurationError: the address cannot be had, and somebody counts on it.
    """
    server, file = _server(bot), bot.settings.file
    trouble: ClarifyBotError
    try:
        await server.bind()
    except AddressInUseError as error:
        trouble = AddressInUseError(f"{file}: {error}")
    except ConfigurationError as error:
        trouble = ConfigurationError([f"{file}: {each}" for each in error.problems])
    else:
        return server
    if bot.settings.must_listen:
        raise trouble
    _log.warning("no HTTP server: set http.listen for another address", reason=str(trouble))
    return None


def _server(bot: Assembly) -> HttpServer:
    http = bot.settings.http
    limits = Limits.within(raise_descriptor_limit())
    return HttpServer(application(bot, limits), http.host, http.port, lambda _: None, limits)


def application(bot: Assembly, limits: Limits = USUAL) -> FastAPI:
    """All routes of a bot."""
    release = version("clarify-bot")
    pushing = [each for each in bot.settings.producers if each.pushes]
    callers = Callers(
        {each.name: bot.settings.producer_token(each) for each in pushing},
        {each.name: each.speaker for each in pushing},
    )
    hub = Hub(router=bot.router, ledger=bot.ledger, scopes=bot.scopes, clock=bot.clock, via="http")
    routers = [
        health_routes(_needed(bot), _parts(bot)),
        metrics_routes(_sources(bot, release), callers),
        push_routes(callers=callers, producers=bot.producers, clock=bot.clock),
        clarification_routes(hub=hub, ledger=bot.ledger, callers=callers, most_waiting=limits.waiting),
    ]
    if bot.door.request_url is not None:
        routers.insert(0, slack_routes(bot.door.request_url))
    return build_app(routers, version=release, callers=callers)


def _needed(bot: Assembly) -> list[Check]:
    """What `/readyz` answers 503 for: without these nobody is asked anything."""
    return [
        Check("slack", lambda: None if bot.door.connected else "not connected to Slack"),
        Check("storage", partial(_storage, bot)),
    ]


async def _storage(bot: Assembly) -> str | None:
    """Where what was heard is kept, and where what was decided is."""
    return await bot.vitals.trouble() or await bot.ledger_trouble.of_all()


def _parts(bot: Assembly) -> list[Check]:
    """What `/readyz` lists as degraded, with 200. Each look says in one line what is wrong, None if nothing is."""
    return [
        Check("slack app", lambda: bot.door.other_bots),
        Check("slack history", lambda: bot.door.history_trouble),
        Check("answerers", lambda: bot.door.unusable_answerers),
        Check("log", log_trouble),
        Check("events to be recorded", bot.ledger_trouble.of_some),
        *producer_checks([each.name for each in bot.settings.producers], bot.producers.status),
    ]


def _sources(bot: Assembly, release: str) -> Sources:
    return Sources(
        version=release,
        telemetry=bot.telemetry,
        index=bot.index,
        producers=bot.producers.status,
        waiting=bot.vitals.waiting,
        slack_connected=lambda: bot.door.connected,
        seconds=time.monotonic,
        log_lines_dropped=lines_dropped,
        queues={"delivery": lambda: bot.delivery.lanes.length, "replies": lambda: bot.replies.length},
        webhooks=bot.webhooks.waiting if bot.webhooks is not None else None,
    )
