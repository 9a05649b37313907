"""Keeps what the on-call sources say, such as calendars or PagerDuty, and finds their people in Slack.

A source reads its timetable, and no more (`OnCallSource`). The leader asks each one every few minutes (`Feeds`) and stores its
timetable with the Slack users. Paging reads only that copy, so it never waits for a source. The copy serves for a day while its
source cannot be read. People are told of a source's troubles.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import structlog

from bot.checks import LISTED, CheckResult, right, warning, wrong
from bot.errors import SlackRefusedError, SlackUnreachableError, StorageUnavailable
from bot.http import NETWORK, clean, words
from bot.people.directory import UNKNOWN_USER, OutsiderReason, People, Profile, outsider
from bot.settings.load import dotted, located
from bot.settings.model import OnCallSettings, Settings, name_key
from bot.show.delivery import word
from bot.show.messages import Fresh, put
from bot.slackapi import Place as Destination
from bot.storage.store import Store
from bot.storage.tx import Tx
from bot.views import inert
from core.clock import Clock, spoken

if TYPE_CHECKING:
    from bot.http import HttpStream
    from bot.settings.model import Source


_DAY = timedelta(days=1)
BEFORE, AHEAD = _DAY, 31 * _DAY
"""How far a timetable reaches into the past and the future."""
_SOON, _SAME_SHIFT, _MOVED = 2 * _DAY, 3 * _DAY, timedelta(minutes=5)
_LOOKED_AT = 200
_MOST_BYTES = 20 * 1024 * 1024


class SourceError(Exception):
    """The source cannot be read, or does not say who is on call now. The message contains no secrets."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One person is on call from `begins` to before `ends`. Of overlapping shifts, those of the highest `level` count.

    email: empty if the source gives none. names: the person's possible names, the likeliest first.
    user: the Slack user; None if none was found, for the reason `why`. Sources leave both out.
    """

    begins: datetime
    ends: datetime
    level: int = 0
    email: str = ""
    names: tuple[str, ...] = ()
    user: str | None = None
    why: str = ""

    @property
    def person(self) -> tuple[str, tuple[str, ...]]:
        """The key of a person: the same in all of their shifts."""
        return self.email, self.names

    @property
    def label(self) -> str:
        """The person, in the source's words."""
        return self.email or next(iter(self.names), "someone without a name")

    def is_at(self, moment: datetime) -> bool:
        return self.begins <= moment < self.ends

    def as_json(self) -> list[Any]:
        return [
            *(self.begins.timestamp(), self.ends.timestamp(), self.level),
            *(self.email, self.names, self.user, self.why),
        ]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> Shift:
        begins, ends, level, email, names, user, why = kept
        first, last = (datetime.fromtimestamp(each, UTC) for each in (begins, ends))
        return cls(first, last, level, email, tuple(names), user, why)


@dataclass(frozen=True, slots=True)
class Timetable:
    """The shifts of a source, in its own order, from a day before it was read to a month after. `faults`: what of the source
    cannot be read and is left out, in words.
    """

    shifts: tuple[Shift, ...] = ()
    faults: tuple[str, ...] = ()

    def now(self, at: datetime) -> tuple[str, ...]:
        """The Slack users on call at a moment: those of the highest level."""
        there = [(each.level, each.user) for each in self.shifts if each.is_at(at) and each.user is not None]
        highest = max((level for level, _ in there), default=0)
        return tuple(dict.fromkeys(user for level, user in there if level == highest))

    def next(self, at: datetime) -> datetime | None:
        """When someone else, or no one, is on call; None if no change is known."""
        users, left = self.now(at), Timetable(tuple(each for each in self.shifts if each.ends > at))
        moments = sorted({then for each in left.shifts for then in (each.begins, each.ends) if then > at})
        return next((then for then in moments[:_LOOKED_AT] if left.now(then) != users), None)


class OnCallSource(Protocol):
    """Where one policy's people on call are kept.

    title: what to call it within a sentence, such as "the calendar".
    origin: identifies what it reads; a timetable of another origin does not count. A digest, as an address may be secret.
    variable: the environment variable with its address or token.
    advice: what to check if it lists nobody, or no names.
    """

    title: str
    origin: str
    variable: str
    advice: str

    async def read(self, at: datetime, /) -> Timetable:
        """Reads the shifts from `at - BEFORE` to `at + AHEAD`. Called every few minutes, never by two at a time.

        Raises:
            SourceError: it cannot be read, or does not say who is on call at `at`.
            aiohttp.ClientError, OSError: as `bot.http.HttpClient`.
        """
        ...


class BrokenSource:
    """In place of a source whose integration cannot be used."""

    advice = "update the integration"

    def __init__(self, source: Source, why: str) -> None:
        self.title, self.variable, self.origin, self._why = f"[{source.name}]", source.key, "", why

    async def read(self, _: datetime) -> Timetable:
        raise SourceError(f"its integration cannot be used ({self._why}); see the log")


async def whole(response: HttpStream, fix: str) -> bytes:
    """Reads the body of a source's successful response. `fix`: what may be wrong if access is refused.

    Raises:
        SourceError: it is another response, or too large.
    """
    status = response.status
    if status != HTTPStatus.OK:
        hint = f": {fix}" if status in {401, 403, 404, 410} else ""
        raise SourceError(f"it returned HTTP {status}{hint}")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise SourceError("it sends a compressed response although none was requested")
    body = await response.body(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise SourceError(f"it is larger than {_MOST_BYTES // 1024**2} MB")
    return body


class Move(NamedTuple):
    """A person's shift that moved: its begin and end before and after."""

    user: str
    before: tuple[datetime, datetime]
    after: tuple[datetime, datetime]


def moves(before: Iterable[Shift], after: Iterable[Shift], now: datetime) -> list[Move]:
    """The shifts that begin or end at another time than before, by minutes, if the old or the new time is within the next
    two days.

    Shifts of one person that follow each other at once count as one. A shift that another person has now, that is new, or
    that was over did not move.
    """
    old, new = _spans(before), _spans(after)
    found = []
    for user in sorted(old.keys() & new.keys()):
        left = [each for each in old[user] if each not in new[user] and each[1] > now]
        for span in (each for each in new[user] if each not in old[user]):
            near = min(left, key=lambda each: abs(each[0] - span[0]), default=None)
            if near is None or abs(near[0] - span[0]) > _SAME_SHIFT:
                continue
            left.remove(near)
            changed = [
                each for a, b in zip(near, span, strict=True) if abs(a - b) >= _MOVED for each in (a, b)
            ]
            if any(now < each <= now + _SOON for each in changed):
                found.append(Move(user, near, span))
    return found


def _spans(shifts: Iterable[Shift]) -> Mapping[str, list[tuple[datetime, datetime]]]:
    """Returns each user's times on call, in order."""
    found: dict[str, list[tuple[datetime, datetime]]] = {}
    for each in sorted(shifts, key=lambda shift: shift.begins):
        if each.user is None:
            continue
        spans = found.setdefault(each.user, [])
        if spans and each.begins <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], each.ends)
        else:
            spans.append((each.begins, each.ends))
    return found


_log = structlog.get_logger("clarify.oncall")
EVERY = 180.0  # seconds
_AGAIN = 60.0
_STORAGE_RETRY = 5.0
TRIES = 3
"""After this many failures in a row people are told; at once if there is no usable copy."""
TOO_OLD = timedelta(days=1)
_NEVER = datetime.fromtimestamp(0, UTC)
_NAMED = 5  # in one message
_BARRED: Mapping[OutsiderReason, str] = {
    "deactivated": "their account in Slack is deactivated",
    "bot": "a bot {who}",
    "external": "someone from another company {who}; add them to `people` to page them",
    "guest": "a guest {who}; add them to `people` to page them",
}
Sources = Mapping[str, OnCallSource]
"""By policy."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The last good timetable of a source, read at `read_at`. `trouble`: what people were told is wrong with it."""

    origin: str
    timetable: Timetable
    read_at: datetime
    trouble: str | None = None

    def is_fresh(self, now: datetime) -> bool:
        return now - self.read_at <= TOO_OLD


@dataclass(eq=False)
class Copies:
    """Reads the stored copies. Raises StorageUnavailable."""

    sources: Sources
    store: Store

    async def of(self, policy: str) -> Copy | None:
        """The copy of a policy's source; None if there is none, or another source's."""
        row = await self.store.read_one("select * from feeds where policy = :policy", policy=policy)
        if row is None or row["origin"] != self.sources[policy].origin:
            return None
        shifts, faults = json.loads(row["shifts"]), json.loads(row["faults"])
        timetable = Timetable(tuple(map(Shift.from_json, shifts)), tuple(faults))
        return Copy(row["origin"], timetable, datetime.fromtimestamp(row["read_at"], UTC), row["trouble"])


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

    async def all(self, read: Timetable, kept: Timetable) -> tuple[Timetable, bool]:
        """A timetable with the users of its shifts, and whether Slack answered for all of them. Where it did not, they are as
        in `kept`.
        """
        found: dict[Any, tuple[str | None, str]] = {}
        told, known = True, {each.person: each for each in kept.shifts}
        for shift in read.shifts:
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
        matched = [
            replace(each, user=user, why=why) for each in read.shifts for user, why in [found[each.person]]
        ]
        return replace(read, shifts=tuple(matched)), told

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


async def read(source: OnCallSource, at: datetime) -> Timetable:
    """Asks a source.

    Raises:
        SourceError: it cannot be reached or read, or does not say who is on call now.
    """
    try:
        return await source.read(at)
    except NETWORK as error:
        raise SourceError(words(error)) from error


@dataclass(eq=False)
class Feeds:
    """Keeps asking the sources: `run` on the leader.

    `tell(key, words)` reports in the fallback channel, once per key, that a source broke, and that it works again; durable when
    it returns. `send` posts a stored message: people hear of their own shifts that moved. `on_change` is called when the
    timetable changed.
    """

    settings: Settings
    people: People
    copies: Copies
    store: Store
    clock: Clock
    tell: Callable[[str, str], Awaitable[None]] = field(kw_only=True)
    send: Callable[[str], Awaitable[None]] = field(kw_only=True)
    on_change: Callable[[], None] = field(kw_only=True, default=lambda: None)
    _failed: Counter[str] = field(default_factory=Counter, init=False)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for policy in self.copies.sources:
                group.create_task(self._keep(policy), name=f"who is on call for {policy}")

    async def _keep(self, name: str) -> None:
        policy = self.settings.on_call_named(name)
        matching = Matching(policy, self.people)
        while True:
            try:
                seconds = EVERY if await self.look(policy, matching) else _AGAIN
            except StorageUnavailable as error:
                _log.warning("cannot store who is on call", policy=name, reason=str(error))
                seconds = _STORAGE_RETRY
            await self.clock.sleep(seconds)

    async def look(self, policy: OnCallSettings, matching: Matching) -> bool:
        """Asks a source once and stores its timetable; returns whether it was read, and Slack answered for everyone in it.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        source, kept = self.copies.sources[policy.name], await self.copies.of(policy.name)
        now = self.clock.now()
        try:
            found = await read(source, now)
        except SourceError as error:
            await self._away(policy, source, kept, str(error))
            return False
        if self._failed.pop(policy.name, 0):
            _log.info("on-call source works again", policy=policy.name)
        before = kept.timetable if kept is not None else Timetable()
        matched, told = await matching.all(found, before)
        known = kept.trouble if kept is not None else None
        trouble, said = _trouble_of(policy, source, matched, now) if told else (known, "")
        news = [each for each in matched.faults if each not in before.faults]
        said = "" if trouble == known else said or _works_again(policy, source, matched, now)
        if said := " ".join(filter(None, (said, _faults_words(policy, source, news)))):
            _log.warning("told of the on-call source", policy=policy.name, trouble=trouble, faults=len(news))
            await self.tell(f"feed:{policy.name}:{now.isoformat()}", said)
        moved = moves(before.shifts, matched.shifts, now) if policy.announce else []
        messages = [_moved_words(policy, source, move, now) for move in moved]

        def work(tx: Tx) -> None:
            _put(tx, policy.name, Copy(source.origin, matched, now, trouble))
            put(tx, messages)  # in one transaction, so that each move is announced once

        await self.store.write(work)
        for each in messages:
            await self.send(each.key)
        if kept is None or before.shifts != matched.shifts:
            self.on_change()
        return told

    async def _away(
        self, policy: OnCallSettings, source: OnCallSource, kept: Copy | None, reason: str
    ) -> None:
        self._failed[policy.name] += 1
        tries = self._failed[policy.name]
        if tries == 1:
            _log.warning("cannot read the on-call source", policy=policy.name, reason=reason)
        trouble, now = "away", self.clock.now()
        holds = kept is not None and kept.is_fresh(now)
        if (holds and tries < TRIES) or (kept is not None and kept.trouble == trouble):
            return
        said = f"{_subject(policy, source)} cannot be read: {_inert(reason)}."
        if kept is not None and holds:
            said += f" The copy read at {inert.date(kept.read_at)} is used for one day. After that, {_stand_in(policy)}."
        else:
            said += f" Until it can be read, {_stand_in(policy)}."
        await self.tell(f"feed:{policy.name}:{now.isoformat()}", said)
        copy = replace(kept or Copy(source.origin, Timetable(), _NEVER), trouble=trouble)
        await self.store.write(lambda tx: _put(tx, policy.name, copy))


def _put(tx: Tx, policy: str, copy: Copy) -> None:
    tx.run(
        """insert into feeds (policy, origin, shifts, faults, read_at, trouble)
           values (:policy, :origin, :shifts, :faults, :read_at, :trouble)
           on conflict (policy) do update set origin = excluded.origin, shifts = excluded.shifts,
             faults = excluded.faults, read_at = excluded.read_at, trouble = excluded.trouble""",
        policy=policy,
        origin=copy.origin,
        shifts=json.dumps([each.as_json() for each in copy.timetable.shifts]),
        faults=json.dumps(copy.timetable.faults),
        read_at=copy.read_at.timestamp(),
        trouble=copy.trouble,
    )


def _moved_words(policy: OnCallSettings, source: OnCallSource, move: Move, now: datetime) -> Fresh:
    before, after = (f"from {inert.date(a)} until {inert.date(b)}" for a, b in (move.before, move.after))
    said = (
        f"Your on-call shift for {inert.escaped_line(policy.name, 60)} moved in {source.title}. "
        f"It was {before}; it is now {after}."
    )
    key = f"oncall:moved:{policy.name}:{move.user}:{move.after[0].timestamp():.0f}:{now.isoformat()}"
    return word(key, Destination(move.user), said)


def _subject(policy: OnCallSettings, source: OnCallSource) -> str:
    return f"{source.title[0].upper()}{source.title[1:]} for {policy.name}"


def _stand_in(policy: OnCallSettings) -> str:
    users = [f"<@{user}>" for user in policy.users or ()]
    if not users:
        return "no one is on call; add `users` to the policy as a backup"
    return f"{', '.join(users)} {'is' if len(users) == 1 else 'are'} on call as backup"


def _works_again(policy: OnCallSettings, source: OnCallSource, timetable: Timetable, now: datetime) -> str:
    users = [f"<@{user}>" for user in timetable.now(now)]
    if not users:
        return f"{_subject(policy, source)} works again, but lists no one right now; {_stand_in(policy)}."
    are = "is" if len(users) == 1 else "are"
    return f"{_subject(policy, source)} works again: {', '.join(users)} {are} on call now."


def _trouble_of(
    policy: OnCallSettings, source: OnCallSource, timetable: Timetable, now: datetime
) -> tuple[str | None, str]:
    """What is wrong with a source's shifts: a stable code, and words for people; None if nothing is."""
    unknown = [each for each in timetable.shifts if each.is_at(now) and each.user is None]
    if unknown and not timetable.now(now):
        who = "; ".join(_inert(f"{each.label}: {each.why}") for each in unknown[:_NAMED])
        said = f"{_subject(policy, source)} lists someone who cannot be paged ({who}). Meanwhile, {_stand_in(policy)}."
        return f"unknown: {who}", said
    if all(each.ends <= now for each in timetable.shifts):
        return (
            "empty",
            f"{_subject(policy, source)} lists no one for the next month; {_stand_in(policy)}.",
        )
    return None, ""


def _faults_words(policy: OnCallSettings, source: OnCallSource, news: Sequence[str]) -> str:
    if not news:
        return ""
    named = "; ".join(map(_inert, news[:_NAMED]))
    more = f"; and {len(news) - _NAMED} more" if len(news) > _NAMED else ""
    subject = _subject(policy, source)
    return f"{subject} has {_events(news)} that can't be read in full: {named}{more}. `clarify check` lists them."


def _events(faults: Sequence[str]) -> str:
    return f"{len(faults)} event{'s' if len(faults) != 1 else ''}"


def _inert(theirs: str) -> str:
    """Makes foreign text safe for a message."""
    return inert.escape(clean(theirs))


def why_nobody(source: OnCallSource, copy: Copy | None, now: datetime) -> str:
    """Why a source names no one who is on call now, in words for people."""
    title = source.title
    if copy is None:
        return f"{title} has not been read yet"
    if copy.read_at == _NEVER:
        return f"{title} cannot be read"
    if not copy.is_fresh(now):
        # A span, since this is also sent to pagers, where no one's time zone is known.
        return f"{title} has not been readable for {spoken(now - copy.read_at)}"
    current = [each for each in copy.timetable.shifts if each.is_at(now)]
    if not current:
        return f"{title} lists no one right now"
    unknown = [each.label for each in current if each.user is None]
    named = ", ".join(clean(each, 80) for each in unknown[:3])
    if unknown:
        return f"{title} lists {named}, but no full member in Slack matches"
    return f"the person {title} lists has left or is no longer a full member"


async def check_feeds(settings: Settings, people: People, sources: Sources) -> AsyncIterator[CheckResult]:
    """Check who is on call now and next by each source, and that Slack knows them."""
    for index, policy in enumerate(settings.on_call):
        if policy.source is None:
            continue
        source, place = sources[policy.name], ("on_call", index, policy.source.key)
        now = datetime.now(UTC)
        try:
            found = await read(source, now)
        except SourceError as error:
            fix = f"check the value of {source.variable}"
            results = [wrong(dotted(place), f"{source.title} cannot be read: {error}", fix)]
        else:
            results = [*_faults(source, found.faults, dotted(place))]
            matched, told = await _patiently_matched(policy, people, found)
            if told:
                results += _on_call(policy, source, matched, dotted(place), now)
            else:
                text = f"{source.title} can be read, but Slack cannot be asked who these people are"
                results.append(wrong(dotted(place), text, "try again once Slack can be reached"))
        for result in results:
            yield result if result.ok else located(settings, result, source.variable, [place])


async def _patiently_matched(
    policy: OnCallSettings, people: People, found: Timetable
) -> tuple[Timetable, bool]:
    """As `Matching.all`, retried while Slack is too busy."""
    matching = Matching(policy, people)
    for _ in range(TRIES):
        matched, told = await matching.all(found, Timetable())
        if told:
            break
        await asyncio.sleep(1)
    return matched, told


def _faults(source: OnCallSource, faults: Sequence[str], subject: str) -> Iterator[CheckResult]:
    if not faults:
        return
    named = "; ".join(clean(each, 300) for each in faults[:LISTED])
    more = f"; and {len(faults) - LISTED} more" if len(faults) > LISTED else ""
    text = f"{source.title} has {_events(faults)} that can't be read in full: {named}{more}"
    yield warning(subject, text, f"correct this in {source.title}; until then it puts no one on call")


def _on_call(
    policy: OnCallSettings, source: OnCallSource, timetable: Timetable, subject: str, now: datetime
) -> Iterator[CheckResult]:
    """Who is on call according to a source, and the people whom Slack does not know."""
    title, stand_in = source.title, ", ".join(policy.users or ()) or "no one"
    left = [each for each in timetable.shifts if each.ends > now]
    if not left:
        fix = f"{source.advice}; until then {stand_in} is on call"
        yield wrong(subject, f"{title} lists no one for the next month", fix)
        return
    unknown = {each.person: each for each in left if each.user is None}
    named = ", ".join(f"“{clean(each.label, 80)}” ({each.why})" for each in list(unknown.values())[:LISTED])
    if all(each.user is None for each in left):
        fix = f"map them in `people`, or {source.advice}; until then {stand_in} is on call"
        yield wrong(subject, f"{title} lists no one who can be paged: {named}", fix)
        return
    first, change = timetable.now(now), timetable.next(now)
    text = f"on call now: {', '.join(first) or f'{stand_in}, because {title} lists no one right now'}"
    if change is not None:
        then = ", ".join(timetable.now(change)) or f"{stand_in}, because {title} lists no one then"
        zone = ZoneInfo(policy.timezone)
        text += f"; from {change.astimezone(zone):%Y-%m-%d %H:%M} ({policy.timezone}): {then}"
    yield right(subject, text)
    if not unknown:
        return
    # It may only be a meeting: wrong if no one else is on call then, or if an address names a person.
    alone = any(each.email or not timetable.now(max(now, each.begins)) for each in unknown.values())
    fix = f"map them in `people`; when no one else is on call, {stand_in} is"
    tell = wrong if alone else right
    yield tell(subject, f"{title} names people who can't be paged: {named}", fix)
