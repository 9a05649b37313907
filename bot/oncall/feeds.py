"""Reads who is on call from calendars and PagerDuty, and finds these people in Slack.

The leader asks each source every few minutes and stores the shifts with their Slack users. Paging reads only that copy, so
it never waits for a source. The copy serves for a day while its source cannot be read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin
from zoneinfo import ZoneInfo

import structlog

from bot.checks import LISTED, CheckResult, right, warning, wrong
from bot.delivery.delivery import word
from bot.delivery.messages import Fresh, put
from bot.errors import SlackRefusedError, SlackUnreachableError, StorageError, StorageUnavailable
from bot.http import NETWORK, HttpClient, HttpStream, clean, words
from bot.oncall import calendars
from bot.oncall.calendars import (
    TOO_MUCH,
    LeftOut,
    Move,
    NoFeed,
    Shift,
    at,
    in_pagerduty,
    moves,
    next_change,
    users_at,
)
from bot.people.directory import UNKNOWN_USER, OutsiderReason, People, Profile, outsider
from bot.settings.environment import read_environment
from bot.settings.model import OnCallSettings, Settings, feed_url, is_loopback, name_key, url_host
from bot.settings.problems import Place, dotted, located
from bot.slackapi import Place as Destination
from bot.storage.store import Store
from bot.storage.tx import Tx
from bot.views import inert
from core.clock import Clock, spoken

_log = structlog.get_logger("clarify.oncall")
EVERY = 180.0  # seconds
_AGAIN = 60.0
_STORAGE_RETRY = 5.0
TRIES = 3
"""After this many failures in a row people are told; at once if there is no usable copy."""
TOO_OLD = timedelta(days=1)
_NEVER = datetime.fromtimestamp(0, UTC)
_BEHIND, AHEAD = timedelta(days=1), timedelta(days=31)
_ANEW = timedelta(days=1)
_PATIENCE = 30.0  # seconds
COMPUTING = 10
"""Seconds of computing that reading a calendar may take, or `_SLOWEST` times as long by the clock."""
_SLOWEST = 6
# The environment that Python needs to start: no secrets.
_PYTHONS = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONTZPATH", "SYSTEMROOT"}
)
_MOST_BYTES = 20 * 1024 * 1024
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PAGE, _MOST_PAGES = 100, 20
_NAMED = 5  # in one message
_BARRED: Mapping[OutsiderReason, str] = {
    "deactivated": "their account in Slack is deactivated",
    "bot": "a bot {who}",
    "external": "someone from another company {who}; add them to `people` to page them",
    "guest": "a guest {who}; add them to `people` to page them",
}
Tell = Callable[[str, str], Awaitable[None]]
"""Posts words, once per key, in the fallback channel; durable when it returns."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The last good response of a source, read at `read_at`."""

    origin: str
    etag: str | None
    digest: str
    shifts: tuple[Shift, ...]
    worked_out_at: datetime
    read_at: datetime
    trouble: str | None = None
    left_out: tuple[LeftOut, ...] = ()

    def hides_anyone(self, now: datetime) -> list[LeftOut]:
        """What cannot be read and may put someone on call now; empty if someone is on call anyway."""
        return [] if users_at(self.shifts, now) else [each for each in self.left_out if each.may_be(now)]


@dataclass(frozen=True, slots=True)
class Reading:
    """The current response of a source; `shifts` None: unchanged. `left_out`: what of it cannot be read."""

    shifts: tuple[Shift, ...] | None
    etag: str | None
    digest: str
    left_out: tuple[LeftOut, ...] = ()


def origin(policy: OnCallSettings, settings: Settings) -> str:
    """Identifies a policy's source. Hashed, as an address may be secret."""
    if policy.pagerduty is not None:
        parts = [policy.pagerduty.api_url, policy.pagerduty.schedule]
    else:
        parts = [_secret(policy, settings), policy.timezone]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _secret(policy: OnCallSettings, settings: Settings) -> str:
    """The calendar's address, or the PagerDuty token."""
    return settings.secrets.by_variable[policy.feed_env or ""].get_secret_value()


@dataclass(eq=False)
class Copies:
    """Reads the stored copy of each policy's source; while the storage is away, returns the last one read."""

    settings: Settings
    store: Store
    _origins: Mapping[str, str] = field(init=False)
    _known: dict[str, Copy | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._origins = {
            each.name: origin(each, self.settings) for each in self.settings.on_call if each.feed is not None
        }

    async def of(self, policy: str) -> Copy | None:
        try:
            return await self.read(policy)
        except StorageError as error:
            _log.error("cannot read who is on call from the storage", policy=policy, reason=str(error))
            return self._known.get(policy)

    async def read(self, policy: str) -> Copy | None:
        """As `of`.

        Raises:
            StorageError: the storage is away.
        """
        row = await self.store.read_one("select * from feeds where policy = :policy", policy=policy)
        copy = None
        if row is not None and row["origin"] == self._origins[policy]:
            copy = Copy(
                row["origin"],
                row["etag"],
                row["digest"],
                tuple(map(Shift.from_json, json.loads(row["shifts"]))),
                datetime.fromtimestamp(row["worked_out_at"], UTC),
                datetime.fromtimestamp(row["read_at"], UTC),
                row["trouble"],
                tuple(map(LeftOut.from_json, json.loads(row["left_out"]))),
            )
        self._known[policy] = copy
        return copy


class Matching:
    """Finds the Slack users of a policy's shifts: by `people` of the policy, by e-mail address, by name.

    A name must be unique, accents included, since people choose their own. People who are paged may answer, so only active,
    full members match, and others whom the policy lists by hand.
    """

    def __init__(self, policy: OnCallSettings, people: People) -> None:
        self._listed = policy.listed
        self._named = {name_key(name): user for name, user in policy.people.items()}
        self._people = people
        self._everybody: tuple[Profile, ...] = ()
        self._found = _Directory({}, {})

    async def all(self, shifts: Iterable[Shift], known: Mapping[Any, Shift]) -> tuple[list[Shift], bool]:
        """The shifts with their users, and whether Slack answered for all of them. Where it did not, `known` (by person)
        stands in.
        """
        found: dict[Any, tuple[str | None, str]] = {}
        told = True
        listed = list(shifts)
        for shift in listed:
            if shift.person in found:
                continue
            try:
                found[shift.person] = await self._find(shift)
            except SlackUnreachableError as error:
                told = False
                before = known.get(shift.person)
                why = "Slack cannot look them up right now"
                found[shift.person] = (None, why) if before is None else (before.user, before.why)
                _log.warning("cannot tell who is on call", reason=str(error))
        matched = []
        for shift in listed:
            user, why = found[shift.person]
            matched.append(replace(shift, user=user, why=why))
        return matched, told

    async def _find(self, shift: Shift) -> tuple[str | None, str]:
        """The user id; or None and the reason."""
        if not (shift.email or shift.names):
            return None, "it has neither an email address nor a name"
        for name in (shift.email, *shift.names):
            if (user := self._named.get(name_key(name))) is not None:
                return user, ""
        if shift.email and (person := await self._by_email(shift.email)) is not None:
            return await self._usable(person, "has that email address")
        return await self._find_by_name(shift)

    async def _find_by_name(self, shift: Shift) -> tuple[str | None, str]:
        known = await self._directory()
        if shift.email in known.addresses:
            return None, "their account in Slack is deactivated"
        for name in shift.names:
            called = known.names.get(name_key(name), [])
            if len(called) > 1:
                return None, f"{len(called)} people in Slack are called “{name}”"
            if called:
                return await self._usable(called[0], f"is called “{name}”")
        return None, "no one in Slack has that email address or name"

    async def _usable(self, person: Profile, who: str) -> tuple[str | None, str]:
        try:
            home = await self._people.installation()
        except SlackRefusedError as error:
            raise SlackUnreachableError(f"auth.test: {error.code}") from error
        reason = outsider(person, home)
        if reason is None or (person.id in self._listed and reason != "deactivated"):
            return person.id, ""
        return None, _BARRED[reason].format(who=who)

    async def _by_email(self, email: str) -> Profile | None:
        try:
            return await self._people.by_email(email)
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                _log.warning("cannot look up an e-mail address in Slack", reason=error.code)
            return None

    async def _directory(self) -> _Directory:
        try:
            everybody = await self._people.everybody()
        except SlackRefusedError as error:
            raise SlackUnreachableError(f"users.list: {error.code}") from error
        if everybody is not self._everybody:  # `People` returns the same tuple for an hour
            self._found = await asyncio.to_thread(_by_names, everybody)
            self._everybody = everybody
        return self._found


class _Directory(NamedTuple):
    """People by the keys of their names, and by their addresses."""

    names: Mapping[str, Sequence[Profile]]
    addresses: Mapping[str, Profile]


def _by_names(everybody: Iterable[Profile]) -> _Directory:
    names: dict[str, list[Profile]] = {}
    addresses: dict[str, Profile] = {}
    for person in everybody:
        if person.is_bot:
            continue
        for key in dict.fromkeys(map(name_key, person.names)):
            names.setdefault(key, []).append(person)
        if person.email:
            addresses[person.email.lower()] = person
    return _Directory(names, addresses)


async def read(
    policy: OnCallSettings, settings: Settings, kept: Copy | None, now: datetime, client: HttpClient
) -> Reading:
    """Ask a policy's source.

    Raises:
        NoFeed: it cannot be reached or read. The message does not contain its address.
    """
    since, until = now - _BEHIND, now + AHEAD
    if kept is not None and now - kept.worked_out_at >= _ANEW:
        kept = None  # expand it anew: its shifts end a month after that was done
    try:
        async with asyncio.timeout(_PATIENCE) as patience:
            if policy.pagerduty is not None:
                return await _read_pagerduty(policy, settings, kept, (since, until), client)
            url = feed_url(_secret(policy, settings))
            if url is None:
                raise NoFeed(f"{policy.ical_env} is not set to a feed's address")
            status, etag, body = await _get(client, url, kept.etag if kept is not None else None)
    except NETWORK as error:
        why = f"no answer within {_PATIENCE:g} s" if patience.expired() else words(error)
        raise NoFeed(why) from error
    if status == HTTPStatus.NOT_MODIFIED and kept is not None:
        return Reading(None, kept.etag, kept.digest)
    digest = hashlib.sha256(body).hexdigest()
    if kept is not None and kept.digest == digest:
        return Reading(None, etag, digest)
    shifts, left_out = await _shifts_of(body, policy.timezone, since, until)
    return Reading(shifts, etag, digest, left_out)


async def _shifts_of(
    feed: bytes, zone: str, since: datetime, until: datetime
) -> tuple[tuple[Shift, ...], tuple[LeftOut, ...]]:
    """Runs `calendars.main` on a feed, in a process that can be killed.

    Raises:
        NoFeed: it cannot be read, or takes too long.
    """
    given = read_environment()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", calendars.__name__),
        *(zone, since.isoformat(), until.isoformat(), str(COMPUTING)),
        env={name: given[name] for name in _PYTHONS & given.keys()}
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SLOWEST * COMPUTING):
            said, _ = await process.communicate(feed)
    except TimeoutError:
        raise NoFeed(TOO_MUCH) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status := process.returncode:
        failed = f"its reader exited with status {status}; see the log"
        raise NoFeed(TOO_MUCH if status < 0 else failed)
    told = json.loads(said)
    if "refused" in told:
        raise NoFeed(clean(told["refused"]))
    return tuple(map(Shift.from_json, told["shifts"])), tuple(map(LeftOut.from_json, told["left_out"]))


async def _get(client: HttpClient, url: str, etag: str | None) -> tuple[int, str | None, bytes]:
    """Fetches a calendar's feed. Follows redirects to https only; from loopback also to loopback."""
    headers = {"Accept": "text/calendar, */*;q=0.1"} | ({"If-None-Match": etag} if etag else {})
    for _ in range(_MOST_REDIRECTS + 1):
        async with client.stream("GET", url, headers=headers) as response:
            if response.status in _REDIRECTS and "location" in response.headers:
                target = urljoin(url, response.headers["location"])
                here, there = is_loopback(url_host(url)), is_loopback(url_host(target))
                if feed_url(target) is None or (there and not here):
                    raise NoFeed("it redirects to an address without https or to this machine")
                url = target
                continue
            if response.status == HTTPStatus.NOT_MODIFIED and etag is not None:
                return response.status, etag, b""
            tag = response.headers.get("etag")
            return (
                response.status,
                tag if tag is None or tag.isprintable() else None,  # it goes back as a header
                await _whole(response, "the address may be out of date"),
            )
    raise NoFeed("it redirects too many times")


async def _whole(response: HttpStream, fix: str) -> bytes:
    """The body of a successful response; NoFeed otherwise."""
    status = response.status
    if status != HTTPStatus.OK:
        hint = f": {fix}" if status in {401, 403, 404, 410} else ""
        raise NoFeed(f"it returned HTTP {status}{hint}")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise NoFeed("it sends a compressed response although none was requested")
    body = await response.body(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise NoFeed(f"it is larger than {_MOST_BYTES // 1024**2} MB")
    return body


async def _read_pagerduty(
    policy: OnCallSettings,
    settings: Settings,
    kept: Copy | None,
    span: tuple[datetime, datetime],
    client: HttpClient,
) -> Reading:
    """Calls `GET /oncalls` of its REST API. Follows no redirects: they would get the token."""
    plan = policy.pagerduty
    assert plan is not None  # noqa: S101 - as `read` checked
    headers = {
        "Authorization": f"Token token={_secret(policy, settings)}",
        "Accept": "application/vnd.pagerduty+json;version=2",
    }
    pages: list[Any] = []
    offset = 0
    for _ in range(_MOST_PAGES):
        query: dict[str, str | int] = {
            "schedule_ids[]": plan.schedule,
            "include[]": "users",
            "since": span[0].isoformat(timespec="seconds"),
            "until": span[1].isoformat(timespec="seconds"),
            "limit": _PAGE,
            "offset": offset,
        }
        url = f"{plan.api_url}/oncalls?{urlencode(query)}"
        async with client.stream("GET", url, headers=headers) as response:
            body = await _whole(
                response, f"the token in {plan.token_env} is not allowed to read the schedule"
            )
        try:
            pages.append(json.loads(body))
        except ValueError:
            raise NoFeed("its response is not JSON") from None
        if not isinstance(pages[-1], dict) or not pages[-1].get("more"):
            break
        limit = pages[-1].get("limit")  # may be less than we asked for
        offset += limit if isinstance(limit, int) and limit > 0 else _PAGE
    shifts, left_out = in_pagerduty(pages, *span)
    said = json.dumps([[each.as_json() for each in shifts], [each.as_json() for each in left_out]])
    digest = hashlib.sha256(said.encode()).hexdigest()
    if kept is not None and kept.digest == digest:
        return Reading(None, None, digest)
    return Reading(tuple(shifts), None, digest, tuple(left_out))


@dataclass(eq=False)
class Feeds:
    """Keeps asking the sources of all policies that have one: `run` on the leader.

    `tell` reports in the fallback channel that a source broke, and that it works again, once each; `on_change` is called
    when the shifts changed. `send` posts a stored message: people hear of their own shifts that moved.
    """

    settings: Settings
    people: People
    store: Store
    clock: Clock
    tell: Tell = field(kw_only=True)
    send: Callable[[str], Awaitable[None]] = field(kw_only=True)
    on_change: Callable[[], None] = field(kw_only=True, default=lambda: None)
    _copies: Copies = field(init=False)
    _failed: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._copies = Copies(self.settings, self.store)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for policy in filter(lambda each: each.feed is not None, self.settings.on_call):
                group.create_task(self._keep(policy), name=f"who is on call for {policy.name}")

    async def _keep(self, policy: OnCallSettings) -> None:
        matching = Matching(policy, self.people)
        async with HttpClient(None) as client:
            while True:
                try:
                    is_well = await self.look(policy, matching, client)
                    seconds = EVERY if is_well else _AGAIN
                except StorageUnavailable as error:
                    _log.warning("cannot store who is on call", policy=policy.name, reason=str(error))
                    seconds = _STORAGE_RETRY
                await self.clock.sleep(seconds)

    async def look(self, policy: OnCallSettings, matching: Matching, client: HttpClient) -> bool:
        """Ask a source once and store its shifts; returns whether it was read, and Slack answered for everyone in it.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        kept = await self._copies.of(policy.name)
        now = self.clock.now()
        try:
            reading = await read(policy, self.settings, kept, now, client)
        except NoFeed as error:
            await self._away(policy, kept, str(error))
            return False
        new = kept is None or reading.shifts is not None
        shifts = reading.shifts if reading.shifts is not None else kept.shifts if kept is not None else ()
        known = {each.person: each for each in kept.shifts} if kept is not None else {}
        matched, told = await matching.all(shifts, known)
        copy = Copy(
            origin(policy, self.settings),
            reading.etag,
            reading.digest,
            tuple(matched),
            now if new or kept is None else kept.worked_out_at,
            now,
            kept.trouble if kept is not None else None,
            reading.left_out if new or kept is None else kept.left_out,
        )
        hidden = copy.hides_anyone(now) if told else []
        if hidden and kept is not None and now - kept.read_at <= TOO_OLD and users_at(kept.shifts, now):
            await self._away(policy, kept, f"it does not say who is on call now ({hidden[0]})")
            return False
        if self._failed.pop(policy.name, 0):
            _log.info("on-call source works again", policy=policy.name)
        trouble, said = _trouble_of(policy, copy, now) if told else (copy.trouble, "")
        if trouble is not None and trouble != copy.trouble:
            _log.warning("the on-call source lists no one", policy=policy.name, reason=trouble)
        if said := _news(policy, kept, copy, (trouble, said), now):
            await self.tell(f"feed:{policy.name}:{now.isoformat()}", said)
        moved = moves(kept.shifts, copy.shifts, now) if policy.announce and kept is not None else []
        words = [_moved_words(policy, move, now) for move in moved]

        def work(tx: Tx) -> None:
            _put(tx, policy.name, replace(copy, trouble=trouble))
            put(tx, words)  # in one transaction, so that each move is announced once

        await self.store.write(work)
        for each in words:
            await self.send(each.key)
        if kept is None or kept.shifts != copy.shifts:
            self.on_change()
        return told

    async def _away(self, policy: OnCallSettings, kept: Copy | None, reason: str) -> None:
        self._failed[policy.name] += 1
        tries = self._failed[policy.name]
        if tries == 1:
            _log.warning("cannot read the on-call source", policy=policy.name, reason=reason)
        trouble, now = "away", self.clock.now()
        holds = kept is not None and now - kept.read_at <= TOO_OLD
        if (holds and tries < TRIES) or (kept is not None and kept.trouble == trouble):
            return
        said = f"{_subject(policy)} cannot be read: {_inert(reason)}."
        if kept is not None and holds:
            said += f" The copy read at {inert.date(kept.read_at)} is used for one day. After that, {_stand_in(policy)}."
        else:
            said += f" Until it can be read, {_stand_in(policy)}."
        await self.tell(f"feed:{policy.name}:{now.isoformat()}", said)
        empty = Copy(origin(policy, self.settings), None, "", (), _NEVER, _NEVER)
        await self.store.write(lambda tx: _put(tx, policy.name, replace(kept or empty, trouble=trouble)))


def _put(tx: Tx, policy: str, copy: Copy) -> None:
    tx.run(
        """insert into feeds (policy, origin, etag, digest, shifts, left_out, worked_out_at, read_at, trouble)
           values (:policy, :origin, :etag, :digest, :shifts, :left_out, :worked_out_at, :read_at, :trouble)
           on conflict (policy) do update set origin = excluded.origin, etag = excluded.etag,
             digest = excluded.digest, shifts = excluded.shifts, left_out = excluded.left_out,
             worked_out_at = excluded.worked_out_at,
             read_at = excluded.read_at, trouble = excluded.trouble""",
        policy=policy,
        origin=copy.origin,
        etag=copy.etag,
        digest=copy.digest,
        shifts=json.dumps([each.as_json() for each in copy.shifts]),
        left_out=json.dumps([each.as_json() for each in copy.left_out]),
        worked_out_at=copy.worked_out_at.timestamp(),
        read_at=copy.read_at.timestamp(),
        trouble=copy.trouble,
    )


def _moved_words(policy: OnCallSettings, move: Move, now: datetime) -> Fresh:
    before, after = (f"from {inert.date(a)} until {inert.date(b)}" for a, b in (move.before, move.after))
    words = (
        f"Your on-call shift for {inert.escaped_line(policy.name, 60)} moved in {the_feed(policy)}. "
        f"It was {before}; it is now {after}."
    )
    key = f"oncall:moved:{policy.name}:{move.user}:{move.after[0].timestamp():.0f}:{now.isoformat()}"
    return word(key, Destination(move.user), words)


def the_feed(policy: OnCallSettings) -> str:
    """What to call a policy's source within a sentence."""
    return "PagerDuty" if policy.pagerduty is not None else "the calendar"


def _subject(policy: OnCallSettings) -> str:
    if policy.pagerduty is not None:
        return f"The PagerDuty schedule for {policy.name}"
    return f"The on-call calendar for {policy.name}"


def _stand_in(policy: OnCallSettings) -> str:
    users = [f"<@{user}>" for user in policy.users or ()]
    if not users:
        return "no one is on call; add `users` to the policy as a backup"
    return f"{', '.join(users)} {'is' if len(users) == 1 else 'are'} on call as backup"


def _works_again(policy: OnCallSettings, copy: Copy, now: datetime) -> str:
    users = [f"<@{user}>" for user in users_at(copy.shifts, now)]
    if not users:
        return f"{_subject(policy)} works again, but lists no one right now; {_stand_in(policy)}."
    are = "is" if len(users) == 1 else "are"
    return f"{_subject(policy)} works again: {', '.join(users)} {are} on call now."


def _trouble_of(policy: OnCallSettings, copy: Copy, now: datetime) -> tuple[str | None, str]:
    """What is wrong with a source's shifts: a stable code, and words for people; None if nothing is."""
    unknown = [each for each in copy.shifts if each.begins <= now < each.ends and each.user is None]
    named = [*map(str, copy.hides_anyone(now)), *(f"{each.label}: {each.why}" for each in unknown)]
    if named and not at(copy.shifts, now):
        who = "; ".join(map(_inert, named[:_NAMED]))
        said = (
            f"{_subject(policy)} lists someone who cannot be paged ({who}). Meanwhile, {_stand_in(policy)}."
        )
        return f"unknown: {who}", said
    if not any(each.ends > now for each in copy.shifts):
        return "empty", f"{_subject(policy)} lists no one for the next month; {_stand_in(policy)}."
    return None, ""


def _news(
    policy: OnCallSettings, kept: Copy | None, copy: Copy, trouble: tuple[str | None, str], now: datetime
) -> str:
    """What people have not been told yet: that the source is in trouble, or is not any more, and what of it cannot be read."""
    code, said = trouble
    said = "" if code == copy.trouble else said or _works_again(policy, copy, now)
    told = kept.left_out if kept is not None else ()
    news = [each for each in copy.left_out if each not in told and _inert(str(each)) not in said]
    if not news:
        return said
    _log.warning("on-call events cannot be read", policy=policy.name, count=len(news))
    return " ".join(filter(None, (said, _left_out_words(policy, news))))


def _left_out_words(policy: OnCallSettings, news: Sequence[LeftOut]) -> str:
    named = "; ".join(_inert(str(each)) for each in news[:_NAMED])
    more = f"; and {len(news) - _NAMED} more" if len(news) > _NAMED else ""
    return f"{_subject(policy)} has {_events(len(news))} that can't be read in full: {named}{more}. `clarify check` lists them."


def _events(count: int) -> str:
    return f"{count} event{'s' if count != 1 else ''}"


def _inert(theirs: str) -> str:
    """Makes foreign text safe for a message."""
    return inert.escape(clean(theirs))


def why_nobody(policy: OnCallSettings, copy: Copy | None, now: datetime) -> str:
    """Why a source names no one who is on call now, in words for people."""
    feed = the_feed(policy)
    if copy is None or copy.read_at == _NEVER:
        return f"{feed} has not been read yet" if copy is None else f"{feed} cannot be read"
    if now - copy.read_at > TOO_OLD:
        # A span, since this is also sent to pagers, where no one's time zone is known.
        return f"{feed} has not been readable for {spoken(now - copy.read_at)}"
    if copy.hides_anyone(now):
        return f"{feed} has an event for now that can't be read"
    current = [each for each in copy.shifts if each.begins <= now < each.ends]
    if not current:
        return f"{feed} lists no one right now"
    unknown = [each.label for each in current if each.user is None]
    named = ", ".join(clean(each, 80) for each in unknown[:3])
    if unknown:
        return f"{feed} lists {named}, but no full member in Slack matches"
    return f"the person {feed} lists has left or is no longer a full member"


async def check_feeds(settings: Settings, people: People) -> AsyncIterator[CheckResult]:
    """Check who is on call now and next by each calendar or PagerDuty schedule, and that Slack knows them."""
    for index, policy in enumerate(settings.on_call):
        if policy.feed is None:
            continue
        key, name = ("ical_env", policy.ical_env) if policy.ical_env else ("pagerduty", policy.feed_env)
        place: Place = ("on_call", index, key)
        try:
            async with HttpClient(None) as client:
                reading = await read(policy, settings, None, datetime.now(UTC), client)
        except NoFeed as error:
            fix = f"check the value of {name}"
            result = wrong(dotted(place), f"{the_feed(policy)} cannot be read: {error}", fix)
            yield located(settings, result, str(name), [place])
            continue
        shifts, told = await _patiently_matched(policy, people, reading.shifts or ())
        if not told:
            text = f"{the_feed(policy)} can be read, but Slack cannot be asked who these people are"
            yield wrong(dotted(place), text, "try again once Slack can be reached")
            continue
        now = datetime.now(UTC)
        for result in (
            *_not_read(policy, reading.left_out, shifts, dotted(place), now),
            *_on_call(policy, shifts, dotted(place), now),
        ):
            yield result if result.ok else located(settings, result, str(name), [place])


async def _patiently_matched(
    policy: OnCallSettings, people: People, shifts: Sequence[Shift]
) -> tuple[list[Shift], bool]:
    """As `Matching.all`, retried while Slack is too busy."""
    matching = Matching(policy, people)
    for _ in range(TRIES):
        matched, told = await matching.all(shifts, {})
        if told:
            break
        await asyncio.sleep(1)
    return matched, told


def _not_read(
    policy: OnCallSettings, left_out: Sequence[LeftOut], shifts: Sequence[Shift], subject: str, now: datetime
) -> Iterator[CheckResult]:
    """What of a calendar or of PagerDuty's response cannot be read: wrong if no one else is on call then."""
    if not left_out:
        return
    named = "; ".join(clean(str(each), 300) for each in left_out[:LISTED])
    more = f"; and {len(left_out) - LISTED} more" if len(left_out) > LISTED else ""
    text = f"{the_feed(policy)} has {_events(len(left_out))} that can't be read in full: {named}{more}"
    moments = ((each, max(now, each.begins or now)) for each in left_out)
    alone = any(each.may_be(moment) and not users_at(shifts, moment) for each, moment in moments)
    tell = wrong if alone else warning
    yield tell(subject, text, f"correct this in {the_feed(policy)}; until then it puts no one on call")


def _on_call(
    policy: OnCallSettings, shifts: Sequence[Shift], subject: str, now: datetime
) -> Iterator[CheckResult]:
    """Who is on call according to a calendar or PagerDuty, and the people whom Slack does not know."""
    feed, stand_in = the_feed(policy), ", ".join(policy.users or ()) or "no one"
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
    named = ", ".join(f"“{clean(each.label, 80)}” ({each.why})" for each in list(unknown.values())[:LISTED])
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
    # It may only be a meeting: wrong if no one else is on call then, or if an address names a person.
    alone = any(each.email or not at(shifts, max(now, each.begins)) for each in unknown.values())
    fix = f"map them in `people`; when no one else is on call, {stand_in} is"
    tell = wrong if alone else right
    yield tell(subject, f"{feed} names people who can't be paged: {named}", fix)
