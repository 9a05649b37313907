"""`clarify check`: checks the configuration against Slack, producers and this machine, without starting anything.

In this order: this machine (folders, storage), the address to listen at, Slack, the calendars that say who is on call, the
producers, and what agents ask each other by. Each check gives a `CheckResult`, printed as soon as it is known.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import (
    AddressInUseError,
    ConfigurationError,
    SlackError,
    SlackRefusedError,
    StorageInUseError,
    StorageUnavailable,
)
from bot.http import NETWORK, HttpClient, clean, json_body, words
from bot.oncall import feeds
from bot.oncall.calendars import NoFeed, Shift, at, next_change, users_at
from bot.people.access import MEMBERS
from bot.people.answerers import check_answerers, count_answerers
from bot.people.directory import Installation, People, Profile
from bot.producers.dialects import (
    NoHandshake,
    NoSubscription,
    Subscription,
    address,
    handshake_answer,
    minimal,
    stream_answer,
    subscription_request,
)
from bot.producers.redaction import BUDGET, what_slows
from bot.settings.environment import SERVICES, SLACK_API_URL
from bot.settings.model import GithubSettings, OnCallSettings, ProducerSettings, Settings, parse_target
from bot.settings.problems import Place, dotted, line_of
from bot.slackapi import SlackBusyError, ask
from bot.storage import beside
from bot.storage.tx import Row
from bot.views import phrases
from bot.web.server import bind
from core.archive import ARCHIVE, HIGHEST, Folder, Ignored, Numbers
from core.clarification import CHANGED, Clarification
from core.files import read_regular
from core.ledgerfiles import LedgerFiles
from core.locks import PRIVATE, held_markers
from core.records import Seals, decode, is_unsettled, oddity, parse
from core.workflow import Scopes

if TYPE_CHECKING:
    from bot.storage.postgres import Looked

_T = TypeVar("_T")
_FAR = 0.02  # seconds
NEEDED_SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "groups:history",
        "groups:read",
        "im:history",
        "im:write",
        "usergroups:read",
        "users:read",
    }
)
EMAIL_SCOPE = "users:read.email"
PICTURE_SCOPE = "files:write"  # the bot works without it
# A Date header is exact to a second; half a minute is a clock that drifts.
_ALLOWED_SKEW = timedelta(seconds=30)
_LISTED = 20
_LONGEST_LOCK = 3.0  # seconds
_TRIES = 3
_LONGEST_WAIT = 30.0
_SIGNING_SECRET = re.compile(r"[0-9a-f]{32}")
_REQUEST_URL = (
    "Slack must reach {listen} as https://YOUR-HOST/slack/events, with Socket Mode off. While the bot runs, set that URL for "
    "event subscriptions, interactivity and /clarify"
)
_FIXES = {
    "invalid_auth": "copy the token from the app's page: Install App, or App-Level Tokens",
    "not_authed": "copy the token from the app's page: Install App, or App-Level Tokens",
    "account_inactive": "reinstall the app: its token was revoked",
    "token_revoked": "reinstall the app: its token was revoked",
    "missing_scope": "add the scope named above and reinstall the app",
    "channel_not_found": "check the id; for a private channel, run /invite @clarify in it first",
    "user_not_found": "check the id; Slack does not show this person to the app",
    "user_not_visible": "check the id; Slack does not show this person to the app",
    "no_such_subteam": "check the id; a disabled group must be enabled again",
    "subteam_not_found": "check the id; a disabled group must be enabled again",
    "not_allowed_token_type": "SLACK_BOT_TOKEN begins with xoxb-, SLACK_APP_TOKEN with xapp-",
    "ratelimited": "try again in a minute",
    "unreachable": "check the network, SLACK_API_URL, and https://slack-status.com",
}
_LEDGERS = "ledger.directory"
_SCOPES = "SLACK_BOT_TOKEN scopes"
_STANDARD = "/aaep/v1/subscriptions"
_GITHUB_HEADERS = {"Accept": "application/vnd.github+json"}


class CheckResult(NamedTuple):
    """The result of one check. `fix` says how to put it right, `line` where it is in the file."""

    ok: bool
    subject: str
    text: str
    fix: str | None = None
    line: str = ""


def right(subject: str, text: str, fix: str | None = None) -> CheckResult:
    return CheckResult(True, subject, text, fix)  # noqa: FBT003 - the field's name is in its class


def wrong(subject: str, text: str, fix: str) -> CheckResult:
    return CheckResult(False, subject, text, fix)  # noqa: FBT003 - as above


def lines(result: CheckResult) -> Iterator[str]:
    """The lines that show a result, and how to fix what is wrong."""
    where = f"{result.line}: " if result.line else ""
    yield f"{'✓ ok   ' if result.ok else '✗ wrong'}  {where}{result.subject}: {result.text}"
    if result.fix is not None:
        yield f"           → {result.fix}"


def summary(results: Collection[CheckResult]) -> str:
    bad = sum(not result.ok for result in results)
    return f"{bad} of {len(results)} checks failed." if bad else f"All {len(results)} checks passed."


async def check_all(settings: Settings) -> AsyncIterator[CheckResult]:
    """Yield one result per check, as soon as it is known."""
    for result in check_machine(settings):
        yield result
    for check in (check_address, check_slack, check_feeds, check_producers, check_agents):
        async for result in check(settings):
            yield result


def check_machine(settings: Settings) -> Iterator[CheckResult]:
    """Look at this machine: folders that must be writable, a storage that must be free, variables that are set."""
    yield right("configuration", f"{settings.file} is complete")
    has_socket = settings.slack.mode == "socket"
    if settings.database_url is not None:
        yield from _database(
            settings.database_url, settings.listen_url or settings.database_url, has_socket=has_socket
        )
    else:
        yield from _ledgers(settings)
        yield from _ignored(settings)
        yield from _odd(settings)
        yield from _open_to_others(settings)
        yield _storage(settings.storage.path)
        yield from _slack_app(beside.connections(settings.storage.path) if has_socket else None)
    yield from _pagers(settings)
    yield from _redactions(settings)
    for index, webhook in enumerate(settings.webhooks):
        yield right(f"webhooks[{index}]", f"signed with {webhook.secret_env}; nothing is sent by this check")
    if settings.monitor.heartbeat_env is not None:
        yield right("monitor.heartbeat_env", f"{settings.monitor.heartbeat_env} holds a web address")


def _pagers(settings: Settings) -> Iterator[CheckResult]:
    """Show what each notification URL is for, and a step's hours; nothing is sent, and the URL is not shown."""
    for index, on_call in enumerate(settings.on_call):
        for number, step in enumerate(on_call.steps):
            if step.hours is not None:
                told = f"{', '.join(step.notify)} only {step.hours}, on the clocks of {on_call.zone}"
                yield right(f"on_call[{index}].steps[{number}]", told)
        for variable, kind in on_call.pagers.items():
            subject = f"on_call[{index}].steps"
            service = SERVICES[kind](settings.secrets.by_variable[variable].get_secret_value())
            if service is None:
                fix = "give it a URL as https://github.com/caronc/apprise/wiki describes"
                yield wrong(subject, f"the value of {variable} is not a URL that {kind} can notify", fix)
            else:
                yield right(subject, f"{variable} notifies through {service}")


def _redactions(settings: Settings) -> Iterator[CheckResult]:
    """Try each `redact` pattern against texts that are made to slow it down: agents may send such texts."""
    for index, producer in enumerate(settings.producers):
        slow = {number: what_slows(pattern) for number, pattern in enumerate(producer.redact)}
        for number, text in slow.items():
            if text is not None:
                told = f"takes more than {BUDGET:.0f} s on a long text like {text + '…'!r}: such questions are refused"
                fix = "bound its repetitions ({1,64} in place of +), and let no two in a row match the same characters"
                yield wrong(f"producers[{index}].redact[{number}]", told, fix)
        if slow and not any(slow.values()):
            yield right(f"producers[{index}].redact", "no text was found that slows its patterns down")


def _ledgers(settings: Settings) -> Iterator[CheckResult]:
    """Look at the folder as the bot would, and at locks that somebody keeps."""
    folder = settings.ledger.directory
    # With a storage that has shown questions, their ledgers have to be there.
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
    """What a query of the storage finds first; None: nothing, or it cannot be read (`_storage` says so)."""
    with suppress(StorageUnavailable), beside.read_only(storage) as tx:
        return tx.one(query)
    return None


def _ignored(settings: Settings) -> Iterator[CheckResult]:
    """Files that are named like a ledger but are ignored: they may hold a question."""
    directory = settings.ledger.directory
    row = _first_row(settings.storage.path, "select value from counters where name = 'issue'")
    last = (
        row["value"] if row and row["value"] <= HIGHEST else 0
    )  # the reserved number that was given out last
    numbers = Numbers(directory / PRIVATE)
    found: list[Ignored] = []
    for folder in (Folder(directory, numbers), Folder(directory / ARCHIVE, numbers, archived=True)):
        with suppress(OSError):  # the line about the folder says so
            found += [each for each in folder.ignored() if not 0 < each.reserved <= last]
    fix = "move it away, or rename it to issue-NUMBER.json; until then its questions are ignored"
    yield from _some(
        [wrong(_LEDGERS, f"{each.path} is ignored: {each.why}", fix) for each in found],
        "files are ignored too",
    )


def _some(found: Sequence[CheckResult], like: str) -> Iterator[CheckResult]:
    """The first of what is wrong with ledgers, and how many `like` them there are."""
    yield from found[:_LISTED]
    if len(found) > _LISTED:
        yield wrong(_LEDGERS, f"{len(found) - _LISTED} more {like}", "fix them, or move them away")


def _odd(settings: Settings) -> Iterator[CheckResult]:
    """Ledgers and records that cannot be read, and those that another program changed."""
    directory = settings.ledger.directory
    seals = Seals(directory / PRIVATE)
    marked = "select 1 from counters where name = 'marks questions'"
    seals_questions = _first_row(settings.storage.path, marked) is not None
    found: list[CheckResult] = []
    with suppress(OSError):  # the line about the folder says so
        for issue, path in sorted(Folder(directory, Numbers(directory / PRIVATE)).ledgers()):
            try:
                items = decode(read_regular(path), issue)["clarifications"]
            except (OSError, ValueError) as error:
                fix = "fix it, or move it away; otherwise it is quarantined at its next use and its questions are ignored"
                found.append(wrong(_LEDGERS, f"{path.name} cannot be read: {error}", fix))
                continue
            for position, item in enumerate(items, 1):
                if (odd := oddity(issue, position, item)) is not None:
                    text = f"{odd.name} in {path.name} cannot be read: see {', '.join(odd.fields)}"
                    found.append(wrong(_LEDGERS, text, "fix it; until then no one sees or answers it"))
                elif (record := parse(item)) is not None:
                    found += _changed(record, seals, sealed_by_now=seals_questions)
    yield from _some(found, "problems like these")


def _changed(record: Clarification, seals: Seals, *, sealed_by_now: bool) -> Iterator[CheckResult]:
    """Results for a record that another program changed."""
    text = f"{record.id} was changed by another program"
    if record.asked.closed == CHANGED:
        yield right(_LEDGERS, f"{text} and was closed without an answer")
        return
    if seals.is_tampered(record):
        fix = "put back what was decided, from a backup; until then no one gets it as an answer"
        yield wrong(_LEDGERS, f"{text} after it was decided", fix)
        return
    is_sealed = sealed_by_now or record.asked.question_seal is not None
    if is_sealed and is_unsettled(record) and seals.verify_question(record) is False:
        fix = "restore what the agent asked; otherwise it is closed without a reply to the agent"
        yield wrong(_LEDGERS, text, fix)


def _open_to_others(settings: Settings) -> Iterator[CheckResult]:
    """Who else writes and reads ledgers: they speak for no person, but they see all that is asked."""
    folder = settings.ledger.directory
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


def _slack_app(seen: beside.Connections | None) -> Iterator[CheckResult]:
    """What Slack reported when the bot last connected: a connection of our own would take clicks away from it."""
    if seen is None:
        return
    subject, since = "slack app", f"when this bot last connected, at {seen.at:%Y-%m-%d %H:%M} UTC"
    if seen.others:
        fix = "stop the other bot, or create a Slack app for each installation (`clarify manifest`)"
        yield wrong(subject, f"{phrases.OTHER_BOT} {since}", fix)
    else:
        yield right(subject, f"no other bot was connected to it {since}")


def _storage(path: Path) -> CheckResult:
    """Try the lock that a running bot holds, then the file itself."""
    subject = "storage.path"
    try:
        with beside.exclusive(path):
            why = beside.trouble(path) if path.exists() else None
    except StorageInUseError:
        return wrong(subject, f"{path} is in use by another instance", "stop that instance first")
    except OSError as error:
        fix = "make it writable for this user"
        return wrong(subject, f"{path} cannot be locked: {error.strerror}", fix)
    if why is not None:
        return wrong(subject, f"{path} cannot be opened: {why}", "restore it from a backup, or move it away")
    is_there = path.exists()
    return right(subject, f"{path} {'is ready' if is_there else 'will be created'}")


def _database(url: str, listen_url: str, *, has_socket: bool) -> Iterator[CheckResult]:
    """PostgreSQL as a bot needs it."""
    from bot.storage.postgres import look  # noqa: PLC0415 - an extra: psycopg need not be there

    subject = "storage.url_env"
    try:
        found = look(url, listen_url)
    except StorageUnavailable as error:
        yield wrong(subject, str(error).removesuffix("."), "start the server, or correct the address")
        return
    if found.is_old:
        yield wrong(subject, f"PostgreSQL {found.version} is too old", "use version 14 or newer")
        return
    if found.is_read_only:
        fix = "use the primary's address; with several hosts, add target_session_attrs=read-write"
        yield wrong(subject, f"PostgreSQL {found.version} is read-only: a standby, or configured so", fix)
        return
    took = f"PostgreSQL {found.version} answers within {found.seconds * 1e3:.1f} ms"
    far = (
        "every click makes several queries; run the bot closer to the database"
        if found.seconds > _FAR
        else None
    )
    yield right(subject, took, far)
    if found.encoding != "UTF8":
        yield wrong(subject, f"its encoding is {found.encoding}", "create a database with encoding UTF8")
    yield _tables(found)
    if found.synchronous == "off":
        fix = "leave synchronous_commit on for this user and database"
        yield wrong(subject, "synchronous_commit is off: a crash loses answers that were acknowledged", fix)
    if found.fsync == "off":
        yield wrong(
            subject, "fsync is off: a crash may lose everything", "turn it on in the server's settings"
        )
    if found.is_pooled:
        yield right(subject, "connected through a pooler in transaction mode")
    if found.deaf is not None:
        text = f"cannot listen for notifications there, so the bot polls twice a second: {found.deaf}"
        yield wrong("storage.listen_url_env", text, "correct the address, or remove it")
    elif found.hears:
        yield right(subject, "notifications arrive")
    else:
        fix = "put a direct address in storage.listen_url_env"
        yield right(subject, "notifications do not arrive, so the bot polls twice a second", fix)
    yield from _slack_app(found.connections if has_socket else None)


def _tables(found: Looked) -> CheckResult:
    subject = "storage.url_env"
    if found.lacks:
        text = f"this user needs read and write access to all tables: {', '.join(found.lacks)}"
        return wrong(subject, text, "create and use them with one user, or grant the rights")
    if found.schema is None or found.schema < found.newest:
        if not found.may_create:
            return wrong(subject, "this user cannot create tables", "grant it `create` on the schema")
        return right(subject, "its tables will be created or upgraded")
    if found.schema > found.newest:
        text = f"its tables have version {found.schema}; this release supports up to {found.newest}"
        return wrong(subject, text, "upgrade this bot")
    return right(subject, "up to date; a bot is leading" if found.is_led else "up to date; no bot is running")


def _bot_runs(settings: Settings) -> bool:
    if settings.database_url is None:
        return beside.is_in_use(settings.storage.path)
    from bot.storage.postgres import is_led  # noqa: PLC0415 - an extra: psycopg need not be there

    with suppress(StorageUnavailable):  # the line about the database says so
        return is_led(settings.database_url)
    return False


async def check_address(settings: Settings) -> AsyncIterator[CheckResult]:
    """Try the address that the HTTP server is to listen at.

    No result if a bot runs on this storage: it uses the address itself, and that it runs is reported already.
    """
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


async def check_slack(settings: Settings) -> AsyncIterator[CheckResult]:
    """Check the tokens, channels and people; stops when nothing more can be asked."""
    bot = slack_client(settings.slack_api_url, settings.secrets.bot_token)
    email = settings.slack.identity == "email" or any(each.feed is not None for each in settings.on_call)
    results, body = await check_bot_token(bot, email=email)
    for result in results:
        yield result
    if not body.get("ok"):
        return
    home = Installation.of(body)
    is_complete = all(result.ok for result in results if result.subject == _SCOPES)
    if (token := settings.secrets.app_token) is not None:
        yield await check_app_token(slack_client(settings.slack_api_url, token))
    if settings.slack.mode == "http" and settings.secrets.signing_secret is not None:
        yield _signing_secret(settings, settings.secrets.signing_secret)
        yield right("slack.mode", _REQUEST_URL.format(listen=settings.http.listen))
    async for result in _places_and_people(settings, bot, home, scopes_reported=not is_complete):
        yield result
    if (limited := await _history(settings, bot)) is not None:
        yield limited


async def check_bot_token(
    bot: AsyncWebClient, *, email: bool
) -> tuple[Sequence[CheckResult], Mapping[str, Any]]:
    """Returns the results for the bot token, its scopes and Slack's clock, and the answer of `auth.test`.

    `email`: whether people are found by their e-mail addresses, which takes a scope of its own.
    """
    answer = await _call(bot, "auth.test")
    body = answer.body
    if not body.get("ok"):
        return [_refused("SLACK_BOT_TOKEN", body)], body
    where = f"{body.get('team')}{', all of its workspaces' if Installation.of(body).is_organization else ''}"
    results = [right("SLACK_BOT_TOKEN", f"works: @{body.get('user')} in {where}")]
    results.append(_scopes(answer.headers.get("x-oauth-scopes"), email=email))
    if skew := clock("Slack's clock", answer.headers.get("date"), datetime.now(UTC)):
        results.append(skew)
    return results, body


async def check_app_token(app: AsyncWebClient) -> CheckResult:
    opened = (await _call(app, "apps.connections.open")).body
    works = right("SLACK_APP_TOKEN", "works: Socket Mode can connect")
    return works if opened.get("ok") else _refused("SLACK_APP_TOKEN", opened)


def _signing_secret(settings: Settings, secret: SecretStr) -> CheckResult:
    """Nothing to ask Slack: only its requests prove it. But other apps' secrets and tokens are often pasted here."""
    subject, value = "SLACK_SIGNING_SECRET", secret.get_secret_value()
    if settings.slack_api_url == SLACK_API_URL and not _SIGNING_SECRET.fullmatch(value):
        fix = "copy the Signing Secret from Basic Information → App Credentials"
        return wrong(subject, "is not 32 hexadecimal digits, as Slack's are", fix)
    return right(subject, "is set; Slack's first request will prove it")


async def _places_and_people(
    settings: Settings, bot: AsyncWebClient, home: Installation, *, scopes_reported: bool
) -> AsyncIterator[CheckResult]:
    """Look at each channel, person and group; Slack is asked once per id, and what is wrong is reported once, with
    all the keys that name it. What follows from a missing scope, which is reported already, is left out.
    """
    named, people = _names(settings), People(bot)
    known: dict[str, CheckResult] = {}
    for place, name in named:
        if name not in known:
            answer = await _ask_about(bot, people, name)
            found = known[name] = _judge(dotted(place), name, answer)
            follows = scopes_reported and answer.get("error") == "missing_scope"
            if not found.ok and not follows:
                yield _located(settings, found, name, [each for each, other in named if other == name])
            if answer.get("error") == "unreachable":
                return
        if known[name].ok:
            yield known[name]._replace(subject=dotted(place))
    usable = {name for name, found in known.items() if found.ok}
    async for each in check_answerers(settings, people, home):
        if not each.somebody and MEMBERS in each.answerers and each.channel in usable:
            text = each.refused.get(MEMBERS, each.nobody)
            fix = "invite people to the channel, or name users (U…) or user groups (S…)"
            yield _located(settings, wrong(dotted(each.place), text, fix), MEMBERS, [each.place])
    async for result in _quorums(settings, people, home):
        yield result


async def _quorums(settings: Settings, people: People, home: Installation) -> AsyncIterator[CheckResult]:
    """Whether as many people may answer in each route as have to accept."""
    for index, route in enumerate(settings.routes):
        most = route.approvals.most
        if most == 1:
            continue
        place: Place = ("routes", index, "approvals")
        try:
            may = await _patiently(partial(count_answerers, route, settings, people, home, most))
        except SlackError:
            continue  # that Slack cannot be reached is told already
        if may < most:
            text = f"only {may} may answer in {route.channel}, but {most} people must approve"
            fix = "add people to `answerers`, or lower `approvals`; until then these actions can only be rejected"
            yield _located(settings, wrong(dotted(place), text, fix), "approvals", [place])
        else:
            yield right(dotted(place), f"at least {most} people may answer in {route.channel}")


async def _ask_about(bot: AsyncWebClient, people: People, name: str) -> Mapping[str, Any]:
    if name[0] in "CG":
        return (await _call(bot, "conversations.info", {"channel": name})).body
    try:
        if name[0] == "S":
            return {"ok": True, "users": await _patiently(partial(people.group, name))}
        return {"ok": True, "profile": await _patiently(partial(people.profile, name))}
    except SlackError as error:
        return _why(error)


def _judge(subject: str, name: str, answer: Mapping[str, Any]) -> CheckResult:
    """What the answer says of a channel, person or user group."""
    if not answer.get("ok"):
        return _refused(subject, answer, name)
    judge = {"C": _channel, "G": _channel, "S": _group}.get(name[0], _person)
    return judge(subject, name, answer)


def _located(settings: Settings, result: CheckResult, name: str, places: Sequence[Place]) -> CheckResult:
    """Add the line in the file, and the other keys that name the same."""
    lines = {place: line_of(settings.source, place, name) for place in places}
    first, *others = lines
    text = result.text
    if others:
        text += f" (also {', '.join(f'{dotted(each)} in line {lines[each]}' for each in others)})"
    line = f"{settings.file.name}:{lines[first]}" if lines[first] is not None else ""
    return result._replace(text=text, line=line)


async def _history(settings: Settings, bot: AsyncWebClient) -> CheckResult | None:
    """Read a channel twice in a row: if Slack refuses, the app's calls seem to be limited. None: all is well.

    The bot works all the same, but reads slowly what it missed.
    """
    place = next((route.channel for route in settings.routes), settings.slack.fallback_channel)
    if place is None or place[0] not in "CG":
        return None
    for _ in range(2):
        answer = await _call(bot, "conversations.history", {"channel": place, "limit": "1"}, tries=1)
        if answer.body.get("error") == "ratelimited":
            seconds = answer.headers.get("retry-after", "")
            again = f" (again in {seconds} s)" if seconds.isdigit() else ""
            text = (
                f"Slack refused a second history call{again}: it seems to allow this app one a minute. "
                "Replies written while the bot is away will be found late"
            )
            fix = "create your own app (`clarify manifest`) instead of one distributed outside Slack's Marketplace"
            return right("history", text, fix)
        if not answer.body.get("ok"):
            return None
    return None


def _names(settings: Settings) -> list[tuple[Place, str]]:
    """List what the file names in Slack: (key, id)."""
    named: list[tuple[Place, str]] = []
    if settings.slack.fallback_channel is not None:
        named.append((("slack", "fallback_channel"), settings.slack.fallback_channel))
    if settings.digest is not None:
        named.append((("digest", "channel"), settings.digest.channel))
    for index, route in enumerate(settings.routes):
        named.append((("routes", index, "channel"), route.channel))
        people = (*route.answerer_users, *route.answerer_groups)
        named += [(("routes", index, "answerers"), name) for name in people]
    for role, responder in settings.responders.items():
        named += [(("responders", role, "people"), name) for name in responder.people or ()]
    for index, on_call in enumerate(settings.on_call):
        key = ("rotation", "users") if on_call.rotation else ("users",)
        named += [(("on_call", index, *key), name) for name in on_call.named_users]
        named += [(("on_call", index, "people"), name) for name in on_call.people.values()]
        if on_call.group is not None:
            named.append((("on_call", index, "group"), on_call.group))
        targets = [parse_target(target) for step in on_call.steps for target in step.notify]
        named += [
            (("on_call", index, "steps"), name) for kind, name in targets if kind in {"channel", "group"}
        ]
    return named


def slack_client(api_url: str, token: SecretStr) -> AsyncWebClient:
    return AsyncWebClient(token=token.get_secret_value(), base_url=api_url, timeout=10, retry_handlers=[])


class _SlackAnswer(NamedTuple):
    """Slack's answer: its JSON (`ok` false and an `error` also where none came), its headers in lower case."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]


async def _call(
    client: AsyncWebClient, method: str, arguments: Mapping[str, str] | None = None, tries: int = _TRIES
) -> _SlackAnswer:
    """Call a method; waits as long as Slack asks when it is too busy, up to half a minute."""
    call = partial(client.api_call, method, params=dict(arguments or {}))
    try:
        return _answer(await _patiently(partial(ask, method, call), tries))
    except SlackError as error:
        response = getattr(error.__cause__, "response", None)
        return _SlackAnswer(_why(error), _answer(response).headers if response is not None else {})


async def _patiently(call: Callable[[], Awaitable[_T]], tries: int = _TRIES) -> _T:
    while True:
        try:
            return await call()
        except SlackBusyError as error:
            tries -= 1
            if not tries:
                raise
            await asyncio.sleep(min(error.after, _LONGEST_WAIT))


def _why(error: SlackError) -> Mapping[str, Any]:
    """The answer behind an error: Slack's own where it refused."""
    if isinstance(error, SlackRefusedError):
        data = getattr(getattr(error.__cause__, "response", None), "data", None)
        return data if isinstance(data, Mapping) else {"error": error.code}
    if isinstance(error, SlackBusyError):
        return {"error": "ratelimited"}
    return {"error": "unreachable", "reason": str(error).partition(": ")[2]}


def _answer(response: AsyncSlackResponse) -> _SlackAnswer:
    body = response.data if isinstance(response.data, Mapping) else {}
    return _SlackAnswer(body, {name.lower(): value for name, value in dict(response.headers).items()})


def _scopes(header: str | None, *, email: bool) -> CheckResult:
    """Compare the `x-oauth-scopes` header of a response with what the bot needs."""
    subject = _SCOPES
    needed = NEEDED_SCOPES | ({EMAIL_SCOPE} if email else frozenset())
    given = {scope.strip() for scope in (header or "").split(",")}
    missing = sorted(needed - given)
    if missing:
        fix = "add them (OAuth & Permissions, or paste what `clarify manifest` prints) and reinstall the app"
        return wrong(subject, f"missing: {', '.join(missing)}", fix)
    if PICTURE_SCOPE not in given:
        text = f"all {len(needed)} required, but not {PICTURE_SCOPE}: “digest png” cannot send a picture"
        return right(subject, text, f"for pictures add {PICTURE_SCOPE} and reinstall the app")
    return right(subject, f"all {len(needed)} required")


def _channel(subject: str, channel_id: str, answer: Mapping[str, Any]) -> CheckResult:
    found = answer["channel"]
    called = f"#{found.get('name', '?')}"
    name = f"{channel_id} ({called})"
    if found.get("is_archived"):
        return wrong(subject, f"{name} is archived", "unarchive it, or choose another channel")
    if not found.get("is_member"):
        return wrong(subject, f"the bot is not in {name}", f"invite it: /invite @clarify in {called}")
    return right(subject, f"{name}, and the bot is in it")


def _person(subject: str, user_id: str, answer: Mapping[str, Any]) -> CheckResult:
    profile: Profile = answer["profile"]
    name = f"{user_id} ({profile.names[-1] if profile.names else profile.name})"
    if profile.is_deleted:
        return wrong(subject, f"{name} is deactivated", "choose someone else in clarify.toml")
    if profile.is_bot:
        return wrong(subject, f"{name} is a bot", "choose a person in clarify.toml")
    return right(subject, f"{name} is there")


def _group(subject: str, group_id: str, answer: Mapping[str, Any]) -> CheckResult:
    name, count = f"user group {group_id}", len(answer["users"])
    if not count:
        return wrong(subject, f"{name} has no members", "add people to it, or choose others in clarify.toml")
    return right(subject, f"{name} has {count} member{'s' if count > 1 else ''}")


def _refused(subject: str, answer: Mapping[str, Any], name: str = "") -> CheckResult:
    """Word an error of Slack about `name`; our own code for no answer at all is `unreachable`, with `reason`."""
    code = str(answer.get("error", "unknown_error"))
    needed = f" (needs {answer['needed']})" if answer.get("needed") else ""
    text = (
        f"Slack cannot be reached: {answer.get('reason')}"
        if code == "unreachable"
        else f"{name and f'{name}: '}Slack says {code}{needed}"
    )
    return wrong(subject, text, _FIXES.get(code, f"see https://docs.slack.dev/reference/methods for {code}"))


def clock(subject: str, date_header: str | None, now: datetime) -> CheckResult | None:
    """Compare the Date header of a response with our clock; None where it gave none."""
    try:
        theirs = parsedate_to_datetime(date_header or "")
        skew = theirs - now
    except (TypeError, ValueError):
        return None
    seconds = round(abs(skew).total_seconds())
    if abs(skew) <= _ALLOWED_SKEW:
        return right(subject, f"within {max(1, seconds)} s of ours")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    return wrong(
        subject, f"{seconds} s {direction} ours", "synchronise the clocks with NTP; deadlines depend on them"
    )


async def check_feeds(settings: Settings) -> AsyncIterator[CheckResult]:
    """Ask each calendar, and PagerDuty, who is on call now and next, and look for these people in Slack."""
    people = People(slack_client(settings.slack_api_url, settings.secrets.bot_token))
    for index, policy in enumerate(settings.on_call):
        if policy.feed is None:
            continue
        key, name = ("ical_env", policy.ical_env) if policy.ical_env else ("pagerduty", policy.feed_env)
        place: Place = ("on_call", index, key)
        try:
            async with HttpClient(None) as client:
                reading = await feeds.read(policy, settings, None, datetime.now(UTC), client)
        except NoFeed as error:
            fix = f"check the value of {name}"
            result = wrong(dotted(place), f"{feeds.the_feed(policy)} cannot be read: {error}", fix)
            yield _located(settings, result, str(name), [place])
            continue
        shifts, told = await _patiently_matched(policy, people, reading.shifts or ())
        if not told:
            text = f"{feeds.the_feed(policy)} can be read, but Slack cannot be asked who these people are"
            yield wrong(dotted(place), text, "try again once Slack can be reached")
            continue
        for result in _on_call(policy, shifts, dotted(place), datetime.now(UTC)):
            yield result if result.ok else _located(settings, result, str(name), [place])


async def _patiently_matched(
    policy: OnCallSettings, people: People, shifts: Sequence[Shift]
) -> tuple[list[Shift], bool]:
    """The shifts with their users, and whether Slack told of all; where it is too busy, it is waited for."""
    matching = feeds.Matching(policy, people)
    for _ in range(_TRIES):
        matched, told = await matching.all(shifts, {})
        if told:
            break
        await asyncio.sleep(1)
    return matched, told


def _on_call(
    policy: OnCallSettings, shifts: Sequence[Shift], subject: str, now: datetime
) -> Iterator[CheckResult]:
    """Who is on call by what a calendar or PagerDuty says, and whom it names in vain."""
    feed, stand_in = feeds.the_feed(policy), ", ".join(policy.users or ()) or "no one"
    hint = "check that it is the right one"
    if policy.pagerduty is not None:
        hint = "add the schedule to an escalation policy; without one it puts no one on call"
    if not any(each.ends > now for each in shifts):
        yield wrong(
            subject,
            f"{feed} lists no one for the next month",
            f"{hint}; until then {stand_in} is on call",
        )
        return
    if not any(each.email or each.names for each in shifts):
        text = f"{feed} has shifts, but no names or e-mail addresses"
        yield wrong(subject, text, "share it with all details; for GoAlert, use the feed of a whole schedule")
        return
    unknown = {each.person: each for each in shifts if each.user is None and each.ends > now}
    named = ", ".join(f"“{clean(each.label, 80)}” ({each.why})" for each in list(unknown.values())[:_LISTED])
    if not any(each.user is not None and each.ends > now for each in shifts):
        fix = f"map them in `people`; until then {stand_in} is on call"
        yield wrong(subject, f"{feed} lists no one who can be paged: {named}", fix)
        return
    first, change = users_at(shifts, now), next_change(shifts, now)
    zone = ZoneInfo(policy.timezone)
    text = f"on call now: {', '.join(first) or f'{stand_in}, because {feed} lists no one right now'}"
    if change is not None:
        then = ", ".join(users_at(shifts, change)) or f"{stand_in}, because {feed} lists no one then"
        text += f"; from {change.astimezone(zone):%Y-%m-%d %H:%M} ({policy.timezone}): {then}"
    yield right(subject, text)
    if not unknown:
        return
    # A meeting in the calendar is nobody's shift: it matters where nobody else is on call, or an address names a person.
    alone = any(each.email or not at(shifts, max(now, each.begins)) for each in unknown.values())
    fix = f"map them in `people`; when no one else is on call, {stand_in} is"
    tell = wrong if alone else right
    yield tell(subject, f"{feed} names people who can't be paged: {named}", fix)


async def check_producers(settings: Settings) -> AsyncIterator[CheckResult]:
    """Check each producer."""
    for producer in settings.producers:
        if producer.url is None:
            yield _pushing(producer, settings)
            continue
        token = settings.producer_token(producer)
        async with HttpClient(None if token is None else token.get_secret_value()) as client:
            try:
                result, date = await _subscribe(client, producer, producer.url)
            except NETWORK as error:
                yield wrong(_subject(producer), f"{producer.url}: {words(error)}", _network_mend(error))
                continue
        yield result
        if skew := clock(f"{_subject(producer)} clock", date, datetime.now(UTC)):
            yield skew


def _pushing(producer: ProducerSettings, settings: Settings) -> CheckResult:
    """One that connects to us is known by its token alone."""
    token = settings.producer_token(producer)
    if token is not None:
        for other in settings.producers:
            if other is not producer and other.pushes and settings.producer_token(other) == token:
                return wrong(
                    _subject(producer),
                    f"shares its token with {other.name}: each could read the other's replies",
                    "give each pushing producer its own token",
                )
    others = [each.name for each in settings.producers if each.pushes and each is not producer]
    if others and producer.agents is None:
        text = f"pushes to us, as does {', '.join(others)}, and may use any agent name"
        fix = f'set agents = ["{producer.name}", …] for it: the agents it may speak for'
        return right(_subject(producer), text, fix)
    return right(_subject(producer), "pushes to us: nothing to connect to")


async def _subscribe(
    client: HttpClient, producer: ProducerSettings, url: str
) -> tuple[CheckResult, str | None]:
    """Return the result and the Date header of the answer that it comes from.

    The subscription is not closed again: a producer may take a closed one for the end of what it waits for.
    """
    if producer.dialect != "minimal":
        request = json_body(subscription_request(version("clarify-bot")))
        answer = await client.request("POST", address(url, _STANDARD), request)
        outcome = handshake_answer(answer, url, producer.dialect, datetime.now(UTC))
        if not isinstance(outcome, NoHandshake):
            return _subscribed(producer, url, outcome), answer.headers.get("date")
    stream = minimal(url, "sub_check")
    async with client.stream("GET", stream.events) as response:
        outcome = stream_answer(response, datetime.now(UTC)) or stream
        return _subscribed(producer, url, outcome), response.headers.get("date")


def _subscribed(producer: ProducerSettings, url: str, outcome: Subscription | NoSubscription) -> CheckResult:
    if isinstance(outcome, Subscription):
        does = "accepts the subscription" if outcome.dialect == "standard" else "streams events"
        return right(_subject(producer), f"{url}: {does} ({outcome.dialect} dialect)")
    fix = "check url and dialect in clarify.toml; url is the base address, without /events or /aaep"
    if outcome.unauthorized:
        variable = producer.token_env
        fix = f"check the value of {variable}" if variable else "set token_env in clarify.toml"
    return wrong(_subject(producer), f"{url}: {outcome.reason}", fix)


def _network_mend(error: BaseException) -> str:
    if isinstance(error, ssl.CertificateError):
        return "its certificate is not valid for this name, or its authority is unknown to this machine"
    return "start it, or check url in clarify.toml"


def _subject(producer: ProducerSettings) -> str:
    return f"producer {producer.name}"


async def check_agents(settings: Settings) -> AsyncIterator[CheckResult]:
    """Tell of workflows, of responders that are commands, and of the repository. Nothing is asked or written."""
    for result in (*_workflows(settings.ledger.workflows), *_commands(settings)):
        yield result
    if (github := settings.github) is not None:
        yield await _repository(github, settings.secrets.by_variable[github.token_env].get_secret_value())


def _workflows(folder: Path) -> Iterator[CheckResult]:
    files = sorted(folder.glob("*.toml"))
    problems = Scopes(folder).problems
    for problem in problems:
        yield wrong("ledger.workflows", problem, "fix the file; until then no one may ask in its step")
    if files and not problems:
        yield right("ledger.workflows", f"{len(files)} file{'s' if len(files) > 1 else ''} in {folder}")


def _commands(settings: Settings) -> Iterator[CheckResult]:
    for role, responder in settings.responders.items():
        if responder.command is None:
            continue
        subject, name = f"responders.{role}.command", responder.command[0]
        # As it will be run: a path counts from the configuration's folder, a bare name is looked up.
        found = shutil.which(str(settings.file.parent / name) if "/" in name else name)
        if found is None:
            yield wrong(subject, f"{name} is not an executable program", "install it, or give its full path")
        else:
            yield right(subject, f"runs {found}")


async def _repository(github: GithubSettings, token: str) -> CheckResult:
    subject = "github.repo"
    try:
        async with HttpClient(token) as http:  # as the mirror will ask
            answer = await http.request(
                "GET", f"{github.api_url}/repos/{github.repo}", headers=_GITHUB_HEADERS
            )
    except NETWORK as error:
        return wrong(subject, f"GitHub cannot be reached: {words(error)}", "check the network and api_url")
    if answer.status != HTTPStatus.OK:
        fix = "check the name, and that the token may read and write its issues"
        return wrong(subject, f"GitHub answers {answer.status} for {github.repo}", fix)
    return right(subject, f"{github.repo} can be read with {github.token_env}")
