"""Announces changes of shift, for policies with `announce`: who comes on call and who leaves hear of it in one direct message
each.

The turns table holds who was on call at the last announcement. One transaction replaces it and stores the messages, so that
the bot announces each change once, also after a restart or a change of the leader. It announces overrides and expected changes
immediately. An unexpected change in a calendar or PagerDuty must last for minutes first, and turns of a few minutes are not
announced: feeds get edited, and fail.
"""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

import structlog

from bot.errors import SlackError, StorageUnavailable
from bot.oncall.actions import Announcer
from bot.oncall.incidents import Incidents, OpenIncident
from bot.oncall.pageview import PageView
from bot.oncall.roster import OnDuty, Roster
from bot.settings.model import OnCallSettings, Settings
from bot.show.delivery import Delivery
from bot.show.messages import Fresh, put
from bot.slackapi import Place
from bot.storage.store import Store, until_stored
from bot.storage.tx import Tx
from bot.views.page import SHIFT_LISTED, Note, ShiftBegins, ShiftEnds, shift_card
from bot.views.render import Renderer
from core.answers import is_talk, without_mark
from core.clock import Clock, event_or_time

_log = structlog.get_logger("clarify.oncall")
_LOOK_AGAIN = 60.0  # seconds
_STORAGE_RETRY = 1.0
_SETTLES = timedelta(minutes=5)
_SHORTEST = timedelta(minutes=15)
_NOTES_SINCE = timedelta(days=7)
_NOTES_READ, _NOTES_WAIT = 10, 3.0  # threads, seconds
Replies = Callable[[Place, datetime], Awaitable[Sequence[Mapping[str, Any]]]]
"""Reads the replies in a thread since a moment. Raises SlackError."""


@dataclass(frozen=True, slots=True)
class _ShiftChange:
    policy: OnCallSettings
    before: tuple[str, ...]
    duty: OnDuty

    @property
    def came(self) -> list[str]:
        return [user for user in self.duty.users if user not in self.before]

    @property
    def left(self) -> list[str]:
        return [user for user in self.before if user not in self.duty.users]


class _ToldElsewhere(Exception):
    """Another bot, or an earlier attempt, told it."""


@dataclass(kw_only=True, eq=False)
class Turns:
    """Tells people of changes of shift: `run` on the leader. `read` reads a thread."""

    settings: Settings
    roster: Roster
    incidents: Incidents
    page_view: PageView
    announcer: Announcer
    delivery: Delivery
    renderer: Renderer
    read: Replies
    store: Store
    clock: Clock
    _last: dict[str, OnDuty] = field(
        default_factory=dict, init=False
    )  # when those who were told were on call
    _seen: dict[str, tuple[frozenset[str], datetime]] = field(
        default_factory=dict, init=False
    )  # not told yet

    def __post_init__(self) -> None:
        self._policies = [policy for policy in self.settings.on_call if policy.announce]

    async def run(self) -> None:
        """Runs until cancelled."""
        await until_stored(self._forget_others, self.clock, _log, "changes of shift are announced later")
        while True:
            self.roster.changed.clear()
            try:
                seconds = await self.look()
            except StorageUnavailable as error:
                _log.warning("a change of shift is announced later", reason=str(error))
                seconds = _STORAGE_RETRY
            await event_or_time(self.clock, self.roster.changed, seconds)

    async def _forget_others(self) -> None:
        """Forgets who was on call by policies that announce nothing any more."""
        names = {policy.name for policy in self._policies}

        def work(tx: Tx) -> None:
            for row in tx.rows("select policy from turns"):
                if row["policy"] not in names:
                    tx.run("delete from turns where policy = :policy", policy=row["policy"])

        await self.store.write(work)

    async def look(self) -> float:
        """Tells people what has changed; returns the seconds until the next change may be due.

        Raises:
            StorageUnavailable: nothing was told.
        """
        if not self._policies:
            return inf
        now = self.clock.now()
        rows = await self.store.read("select * from turns")
        told = {row["policy"]: tuple(json.loads(row["users"])) for row in rows}
        changes, due = list[_ShiftChange](), [now + timedelta(seconds=_LOOK_AGAIN)]
        for policy in self._policies:
            if not await self.roster.is_read(policy):
                continue
            duty = await self.roster.who(policy.name)
            now = self.clock.now()  # the lookup took time, which would make the turn seem longer
            if duty.until is not None:
                due.append(duty.until)
                if duty.until <= now:  # it ended meanwhile: look again at once
                    continue
            before = told.get(policy.name)
            if before is None:
                await self._begin(policy.name, duty)
            if before is None or set(before) == set(duty.users):
                self._last[policy.name] = duty
                self._seen.pop(policy.name, None)
            elif (at := self._due(policy, duty, now)) <= now:
                changes.append(_ShiftChange(policy, before, duty))
            else:
                due.append(at)
        if changes:
            await self._tell(changes, now)
        return max(0.0, (min(due) - self.clock.now()).total_seconds())

    def _due(self, policy: OnCallSettings, duty: OnDuty, now: datetime) -> datetime:
        """When to tell that `duty` began, if nothing changes meanwhile."""
        last, users = self._last.get(policy.name), frozenset(duty.users)
        seen = self._seen.get(policy.name)
        if seen is None or seen[0] != users:
            seen = self._seen[policy.name] = users, now
        if duty.by is not None or (last is not None and last.by is not None):
            return now  # a person arranged it, or the end of it
        if not users and policy.group is not None:
            return now + _SETTLES  # Slack does not say who is in the group
        if duty.until is not None and duty.until - seen[1] < _SHORTEST:
            return duty.until
        if policy.source is None or (last is not None and last.until is not None and last.until <= now):
            return now
        return seen[1] + _SETTLES

    async def _begin(self, policy: str, duty: OnDuty) -> None:
        """Notes who is on call by a policy that was not announced before. They are not told: nothing changed."""
        await self.store.run(
            "insert into turns (policy, users) values (:policy, :users) on conflict (policy) do nothing",
            policy=policy,
            users=_packed(duty.users),
        )

    async def _tell(self, changes: Sequence[_ShiftChange], now: datetime) -> None:
        messages = await self._messages(changes, now)

        def work(tx: Tx) -> None:
            for change in changes:
                if not tx.run(
                    "update turns set users = :users where policy = :policy and users = :before",
                    users=_packed(change.duty.users),
                    before=_packed(change.before),
                    policy=change.policy.name,
                ):
                    raise _ToldElsewhere
            put(tx, messages)

        try:
            await self.store.write(work)
        except _ToldElsewhere:
            _log.info("a change of shift was announced already")
            return
        for change in changes:
            self._last[change.policy.name] = change.duty
            self._seen.pop(change.policy.name, None)
            _log.info("change of shift", policy=change.policy.name, came=change.came, left=change.left)
        for message in messages:
            await self.delivery.send_stored(message.key)

    async def _messages(self, changes: Sequence[_ShiftChange], now: datetime) -> list[Fresh]:
        """One message for each person who comes or leaves."""
        begins: dict[str, list[ShiftBegins]] = {}
        ends: dict[str, list[ShiftEnds]] = {}
        for change in changes:
            about = [each for each in self.incidents if each.incident.policy == change.policy.name]
            items = [await self.page_view.item(each.incident) for each in about[:SHIFT_LISTED]]
            notes = await self._notes(about, change.left) if change.came else []
            duty, name = change.duty, change.policy.name
            for user in change.came:
                beside = [each for each in duty.users if each != user]
                by = duty.by if duty.by not in {None, user} else None
                begins.setdefault(user, []).append(
                    ShiftBegins(
                        name, duty.until, change.left, beside, by, items, len(about), notes, duty.note
                    )
                )
            for user in await self.roster.active(change.left):
                held = [each.name for each in items if each.state == "taken" and each.who == user]
                ends.setdefault(user, []).append(ShiftEnds(name, duty.users, held))
        return [
            self._message(user, begins.get(user, []), ends.get(user, []), now)
            for user in dict.fromkeys((*begins, *ends))
        ]

    def _message(
        self, user: str, begins: Sequence[ShiftBegins], ends: Sequence[ShiftEnds], now: datetime
    ) -> Fresh:
        try:
            message = self.renderer.message(shift_card(begins, ends, now))
        except Exception:  # noqa: BLE001 - a bare message is better than none
            _log.exception("cannot lay out a change of shift", user=user)
            bare = [replace(each, items=(), notes=()) for each in begins]
            message = self.renderer.message(shift_card(bare, ends, now))
        body = {"text": message.text, "blocks": message.blocks, "thread_ts": None}
        key = f"word:oncall:shift:{user}:{now.isoformat()}"
        return Fresh(key=key, kind="word", target=user, body=body, wanted="word")

    async def _notes(self, about: Sequence[OpenIncident], users: Iterable[str]) -> list[Note]:
        """The last comment (`note: …`) of each of `users` in each thread, as far as Slack answers in time."""
        authors = frozenset(users)
        reading = (self._notes_on(each, authors) for each in about[:_NOTES_READ])
        try:
            async with asyncio.timeout(_NOTES_WAIT):
                return [note for some in await asyncio.gather(*reading) for note in some]
        except (SlackError, TimeoutError) as error:
            _log.warning("announcing a shift without notes", reason=str(error) or type(error).__name__)
            return []

    async def _notes_on(self, about: OpenIncident, authors: frozenset[str]) -> list[Note]:
        incident = about.incident
        place = await self.announcer.thread_of(incident) if authors else None
        if place is None:
            return []
        found: dict[str, Note] = {}
        for reply in await self.read(place, self.clock.now() - _NOTES_SINCE):
            user, text = str(reply.get("user")), html.unescape(str(reply.get("text") or ""))
            if user in authors and is_talk(text):
                found[user] = Note(user, incident.clarification or incident.title, without_mark(text))
        return list(found.values())


def _packed(users: Iterable[str]) -> str:
    return json.dumps(sorted(users))


def begin_anew(tx: Tx) -> None:
    """Forgets who was told last, after a restore: it may have been long ago."""
    tx.run("delete from turns")
