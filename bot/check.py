"""`clarify check`: checks the configuration against this machine, Slack and the producers, without starting anything.

In this order: this machine (storage, variables), the address to listen on, Slack, the on-call calendars, the producers,
workflows and responders, and integrations. Each part exports its own checks; that of the address is here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

from bot.ask.client import check_producers, check_redactions
from bot.checks import CheckResult, right, warning, wrong
from bot.errors import AddressInUseError, ConfigurationError, StorageUnavailable
from bot.integrated import check_integrations
from bot.oncall.build import on_call_sources
from bot.oncall.feeds import check_feeds
from bot.oncall.outside import check_pagers
from bot.people.check import check_slack, slack_client
from bot.people.directory import People
from bot.responders import check_commands
from bot.settings.model import Settings
from bot.signing import KeyPlace, jwk_of
from bot.storage import sqlite
from bot.storage.opening import SlackConnections, connections, kept_at
from bot.views import phrases
from bot.web.server import bind
from core.workflow import Scopes


async def check_all(settings: Settings) -> AsyncIterator[CheckResult]:
    """Yield each result as soon as it is known."""
    for result in check_machine(settings):
        yield result
    people = People(slack_client(settings.slack_api_url, settings.bot_token))
    for check in (
        check_address(settings),
        check_slack(settings),
        check_feeds(settings, people, on_call_sources(settings)),
        check_producers(settings),
        check_agents(settings),
        check_integrations(settings),
    ):
        async for result in check:
            yield result


def check_machine(settings: Settings) -> Iterator[CheckResult]:
    """Check this machine: the storage must be free, variables set."""
    yield right("configuration", f"{settings.file} is complete")
    has_socket = settings.slack.mode == "socket"
    if settings.database_url is not None:
        from bot.storage import postgres  # noqa: PLC0415 - an extra: psycopg need not be there

        url = settings.database_url
        yield from postgres.check(url, settings.listen_url or url)
    else:
        yield sqlite.check_storage(settings.storage.path)
    if has_socket:
        yield from check_connections(connections(settings.storage.path, settings.database_url))
    yield from _signing_key(settings)
    yield from check_pagers(settings)
    yield from check_redactions(settings)
    for index, producer in enumerate(settings.producers):
        if producer.callbacks:
            variable = producer.callback_secret_env
            how = f"signed with {variable}" if variable else "not signed"
            yield right(f"producers[{index}].callbacks", f"{how}; nothing is sent by this check")
    if settings.monitor.heartbeat_env is not None:
        yield right("monitor.heartbeat_env", f"{settings.monitor.heartbeat_env} holds a web address")


def check_connections(seen: SlackConnections | None) -> Iterator[CheckResult]:
    """Report what Slack said when the bot last connected. A connection of our own would take clicks away from the bot."""
    if seen is None:
        return
    subject, since = "slack app", f"when this bot last connected, at {seen.at:%Y-%m-%d %H:%M} UTC"
    if seen.others:
        fix = "stop the other bot, or create a Slack app for each installation (`clarify manifest`)"
        yield wrong(subject, f"{phrases.OTHER_BOT} {since}", fix)
    else:
        yield right(subject, f"no other bot was connected to it {since}")


def _signing_key(settings: Settings) -> Iterator[CheckResult]:
    """Say which key signs receipts, and whether others can read it."""
    subject, place = "trust.key_env" if settings.trust.key_env else "trust", KeyPlace.of(settings)
    if place.variable is None and not os.path.lexists(place.file):
        text = f"the first start makes the key that signs receipts, {place}"
        if settings.database_url is not None:
            text += "; each replica makes one of its own"
            yield warning(subject, text, "put one key for all into the variable of [trust] key_env")
            return
        yield right(subject, text)
        return
    try:
        kid = jwk_of(place.read().public_key())["kid"]
    except ValueError as error:
        yield wrong(
            subject,
            f"the signing key {place} {error}",
            "put the key back; until then decisions get no receipt",
        )
        return
    text = f"receipts are signed with the key {kid} in {place}"
    if place.variable is not None:
        yield right(subject, text)
    elif place.file.stat().st_mode & 0o077:
        yield wrong(subject, f"others than the bot's user can read {place}", f"chmod 600 {place.file}")
    elif settings.database_url is not None:
        yield warning(subject, text, "replicas need one key: put it into the variable of [trust] key_env")
    else:
        text += "; every program of this user can read it, and sign decisions with it"
        yield warning(subject, text, "keep it elsewhere: put it into the variable of [trust] key_env")


def _bot_runs(settings: Settings) -> bool:
    with suppress(StorageUnavailable):  # the line about the database says so
        return kept_at(settings.storage.path, settings.database_url).is_in_use()
    return False


async def check_address(settings: Settings) -> AsyncIterator[CheckResult]:
    """Try to listen on the HTTP server's address. No result if a bot runs on this storage, since it uses the address."""
    if await asyncio.to_thread(_bot_runs, settings):
        return
    subject, http = "http.listen", settings.http
    try:
        bind(http.host, http.port).close()
    except (AddressInUseError, ConfigurationError) as error:
        text = str(error).removeprefix(f"{subject}: ")
        if settings.must_listen:
            yield wrong(subject, text, "stop the program that listens there, or change the address")
        else:
            text = f"{text}: /readyz and /metrics will be unavailable; nothing else needs it"
            yield right(subject, text, "change http.listen")
        return
    yield right(subject, f"{http.listen} is free")


async def check_agents(settings: Settings) -> AsyncIterator[CheckResult]:
    """Check workflows, and responders that are commands. Writes nothing."""
    for result in (*_workflows(settings.ledger.workflows), *check_commands(settings)):
        yield result


def _workflows(folder: Path) -> Iterator[CheckResult]:
    files = sorted(folder.glob("*.toml"))
    problems = Scopes(folder).problems
    for problem in problems:
        yield wrong("ledger.workflows", problem, "fix the file; until then no one may ask in its step")
    if files and not problems:
        yield right("ledger.workflows", f"{len(files)} file{'s' if len(files) > 1 else ''} in {folder}")
