"""`clarify check`: checks the configuration against this machine, Slack and the producers, without starting anything.

In this order: this machine (folders, storage), the address to listen on, Slack, the on-call calendars, the producers, and
workflows and responders. Each part exports its own checks; those of the ledger folder and the address are here.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path

from bot.checks import CheckResult, first_of, right, warning, wrong
from bot.errors import AddressInUseError, ConfigurationError, StorageUnavailable
from bot.github import check_repository
from bot.history import Known, known_beside
from bot.integrations.ledgerfiles.owner import check_owner
from bot.oncall.feeds import check_feeds
from bot.oncall.outside import check_pagers
from bot.people.check import check_slack, slack_client
from bot.people.directory import People
from bot.producers.check import check_producers, check_redactions
from bot.responders import check_commands
from bot.settings.model import Settings
from bot.signing import KeyPlace, StoredKeys, jwk_of
from bot.storage import beside
from bot.storage.tx import Row
from bot.views import phrases
from bot.web.server import bind
from core.archive import ARCHIVE, HIGHEST, Folder, Ignored, Numbers
from core.clarification import CHANGED, Clarification
from core.files import read_regular
from core.ledgerfiles import LedgerFiles
from core.locks import PRIVATE, held_markers
from core.records import Seals, decode, is_unsettled, parse, why_invalid
from core.workflow import Scopes

_LONGEST_LOCK = 3.0  # seconds
_LEDGERS = "ledger.directory"


async def check_all(settings: Settings) -> AsyncIterator[CheckResult]:
    """Yield each result as soon as it is known."""
    for result in check_machine(settings):
        yield result
    people = People(slack_client(settings.slack_api_url, settings.secrets.bot_token))
    for check in (
        check_address(settings),
        check_slack(settings),
        check_feeds(settings, people),
        check_producers(settings),
        check_agents(settings),
    ):
        async for result in check:
            yield result


def check_machine(settings: Settings) -> Iterator[CheckResult]:
    """Check this machine: folders must be writable, the storage free, variables set."""
    yield right("configuration", f"{settings.file} is complete")
    has_socket = settings.slack.mode == "socket"
    if settings.database_url is not None:
        from bot.storage import postgres  # noqa: PLC0415 - an extra: psycopg need not be there

        url = settings.database_url
        results, connections = postgres.check(url, settings.listen_url or url)
        yield from results
    else:
        if (folder := settings.ledger_folder) is not None:
            yield from _ledgers(settings, folder)
            yield from _ignored(settings, folder)
            yield from _odd(settings, folder)
            yield from _open_to_others(folder)
        elif (folder := settings.bridge_folder) is not None:
            yield from _ledgers(settings, folder)
            yield from _open_to_others(folder)
        yield beside.check_storage(settings.storage.path)
        connections = beside.connections(settings.storage.path)
    if has_socket:
        yield from check_connections(connections)
    yield from check_owner(settings)
    yield from _signing_key(settings)
    yield from check_pagers(settings)
    yield from check_redactions(settings)
    for index, producer in enumerate(settings.producers):
        if producer.callbacks:
            variable = producer.callback_secret_env
            how = f"signed with {variable}" if variable else "not signed"
            yield right(f"producers[{index}].callbacks", f"{how}; nothing is sent by this check")
    for index, webhook in enumerate(settings.webhooks):
        yield right(f"webhooks[{index}]", f"signed with {webhook.secret_env}; nothing is sent by this check")
    if settings.monitor.heartbeat_env is not None:
        yield right("monitor.heartbeat_env", f"{settings.monitor.heartbeat_env} holds a web address")


def _ledgers(settings: Settings, folder: Path) -> Iterator[CheckResult]:
    """Check that the folder can be written and that no lock is held for long."""
    # If the storage has shown questions, their ledgers must exist.
    shown = "select 1 from messages where clarification is not null limit 1"
    if _first_row(settings.storage.path, shown) is None:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".check-"):
                pass
        except OSError as error:
            fix = "make it writable for this user"
            yield wrong(_LEDGERS, f"{folder} cannot be written: {error.strerror}", fix)
        else:
            yield right(_LEDGERS, f"{folder} can be written")
        return
    ledger = LedgerFiles(folder, mode=settings.ledger.mode, expected=True)
    with closing(ledger):
        trouble = ledger.trouble(thorough=True)
        if trouble is not None:
            fix = (
                f"mount its disk, or make it writable for this user; if the ledgers are lost for good, create the "
                f"folder {ledger.private} to start over"
            )
            yield wrong(_LEDGERS, trouble.removesuffix("."), fix)
            return
        yield right(_LEDGERS, f"{folder} can be written")
        for marker, holder in held_markers(folder, _LONGEST_LOCK):
            fix = "stop that program; nothing can be recorded until then"
            yield wrong(_LEDGERS, f"{marker} is held by {holder}", fix)


def _first_row(storage: Path, query: str) -> Row | None:
    """The first row of a query; None if there is none, or if the storage cannot be read, which is reported elsewhere."""
    if not storage.exists():
        return None
    with suppress(StorageUnavailable), beside.read_only(storage) as tx:
        return tx.one(query)
    return None


def _ignored(settings: Settings, directory: Path) -> Iterator[CheckResult]:
    """Report files that are named like a ledger but ignored: they may hold a question."""
    row = _first_row(settings.storage.path, "select value from counters where name = 'issue'")
    last = row["value"] if row and row["value"] <= HIGHEST else 0  # the last reserved number that was used
    numbers = Numbers(directory / PRIVATE)
    found: list[Ignored] = []
    for folder in (Folder(directory, numbers), Folder(directory / ARCHIVE, numbers, archived=True)):
        with suppress(OSError):  # the line about the folder says so
            found += [each for each in folder.ignored() if not 0 < each.reserved <= last]
    fix = "move it away, or rename it to issue-NUMBER.json; until then its questions are ignored"
    yield from first_of(
        [wrong(_LEDGERS, f"{each.path} is ignored: {each.why}", fix) for each in found],
        _LEDGERS,
        "files are ignored too",
    )


def _odd(settings: Settings, directory: Path) -> Iterator[CheckResult]:
    """Report ledgers and records that cannot be read, and records that another program changed."""
    seals = Seals(directory / PRIVATE)
    seals.receipts = StoredKeys(settings.storage.path, None)
    found: list[CheckResult] = []
    with suppress(OSError):  # the line about the folder says so
        for issue, path in sorted(Folder(directory, Numbers(directory / PRIVATE)).ledgers()):
            try:
                items = decode(read_regular(path), issue)["clarifications"]
            except (OSError, ValueError) as error:
                fix = "fix it, or move it away; otherwise it is quarantined at its next use and its questions are ignored"
                found.append(wrong(_LEDGERS, f"{path.name} cannot be read: {error}", fix))
                continue
            records = [record for item in items if (record := parse(item)) is not None]
            known = known_beside(settings.storage.path, records)
            for position, item in enumerate(items, 1):
                if (odd := why_invalid(issue, position, item)) is not None:
                    text = f"{odd.name} in {path.name} cannot be read: see {', '.join(odd.fields)}"
                    found.append(wrong(_LEDGERS, text, "fix it; until then no one sees or answers it"))
                elif (record := parse(item)) is not None:
                    found += _changed(record, seals, known)
    yield from first_of(found, _LEDGERS, "problems like these")


def _changed(record: Clarification, seals: Seals, known: Known) -> Iterator[CheckResult]:
    text = f"{record.id} was changed by another program"
    is_contradicted = known.contradicts(record)
    if is_contradicted and record.is_open:
        fix = "restore storage and ledgers from one backup (clarify restore); otherwise it is closed without a reply"
        yield wrong(
            _LEDGERS, f"{record.id} was put back to a state from before people decided or approved it", fix
        )
        return
    if record.asked.closed == CHANGED and not is_contradicted:
        yield right(_LEDGERS, f"{text} and was closed without an answer")
        return
    if is_contradicted or seals.is_tampered(record):
        fix = "put back what was decided, from a backup; until then no one gets it as an answer"
        yield wrong(_LEDGERS, f"{text} after it was decided", fix)
        return
    if is_unsettled(record) and seals.verify_question(record) is False:
        fix = "restore what the agent asked; otherwise it is closed without a reply to the agent"
        yield wrong(_LEDGERS, text, fix)


def _open_to_others(folder: Path) -> Iterator[CheckResult]:
    """Report who else can write or read the ledgers: a writer cannot speak for a person, but a reader sees everything."""
    try:
        mode = folder.stat().st_mode
        found = [path for _, path in Folder(folder, Numbers(folder / PRIVATE)).ledgers()]
        read = sum(bool(path.stat().st_mode & 0o004) for path in found)
    except OSError:
        return  # the line about the folder says so
    if mode & 0o002:
        fix = f"chmod o-w {folder}; for agents of a group: chmod 2770, and [ledger] mode"
        yield wrong(_LEDGERS, f"everyone on this machine can write to {folder}", fix)
    elif mode & 0o020:
        text = f"its group can write to {folder}. A ledger entry never counts as a person's decision"
        yield right(_LEDGERS, text)
    if read:
        text = f"everyone on this machine can read {read} of the ledgers"
        yield right(_LEDGERS, text, f"unless you want that: chmod o-r {folder}/issue-*.json")


def check_connections(seen: beside.SlackConnections | None) -> Iterator[CheckResult]:
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
        text += "; every program of this user can read it, and write the ledgers"
        yield warning(subject, text, "keep it elsewhere: put it into the variable of [trust] key_env")


def _bot_runs(settings: Settings) -> bool:
    if settings.database_url is None:
        return beside.is_in_use(settings.storage.path)
    from bot.storage.postgres import is_led  # noqa: PLC0415 - an extra: psycopg need not be there

    with suppress(StorageUnavailable):  # the line about the database says so
        return is_led(settings.database_url)
    return False


async def check_address(settings: Settings) -> AsyncIterator[CheckResult]:
    """Try to listen on the HTTP server's address. No result if a bot runs on this storage, since it uses the address."""
    if await asyncio.to_thread(_bot_runs, settings):
        return
    subject, http = "http.listen", settings.http
    try:
        sockets = await bind(http.host, http.port)
    except (AddressInUseError, ConfigurationError) as error:
        text = str(error).removeprefix(f"{subject}: ")
        if settings.must_listen:
            yield wrong(subject, text, "stop the program that listens there, or change the address")
        else:
            text = f"{text}: /readyz and /metrics will be unavailable; nothing else needs it"
            yield right(subject, text, "change http.listen")
        return
    for each in sockets:
        each.close()
    yield right(subject, f"{http.listen} is free")


async def check_agents(settings: Settings) -> AsyncIterator[CheckResult]:
    """Check workflows, responders that are commands, and the GitHub repository. Writes nothing."""
    for result in (*_workflows(settings.ledger.workflows), *check_commands(settings)):
        yield result
    if (github := settings.github) is not None:
        yield await check_repository(
            github, settings.secrets.by_variable[github.token_env].get_secret_value()
        )


def _workflows(folder: Path) -> Iterator[CheckResult]:
    files = sorted(folder.glob("*.toml"))
    problems = Scopes(folder).problems
    for problem in problems:
        yield wrong("ledger.workflows", problem, "fix the file; until then no one may ask in its step")
    if files and not problems:
        yield right("ledger.workflows", f"{len(files)} file{'s' if len(files) > 1 else ''} in {folder}")
