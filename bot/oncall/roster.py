"""Who is on call now, what the configured policies want, and where their steps lead.

The first of these sources that names anyone counts: the override in force; the policy's users, rotation, user group,
calendar or PagerDuty schedule; the other users of the policy. Deactivated people are always left out; guests, bots and
people of other teams unless the policy lists them by hand (people who are paged may answer). Slack is asked with a time
limit; if it does not answer, the last known facts count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from bot import integrations
from bot.errors import SlackError, SlackRefusedError
from bot.oncall.feeds import Copies, Timetable, why_nobody
from bot.oncall.incidents import Incident, moment
from bot.oncall.pages import Destination
from bot.people.directory import UNKNOWN_USER, OutsiderReason, People, outsider
from bot.routing import Audiences
from bot.settings.model import (
    OnCallSettings,
    RotationSettings,
    RouteSettings,
    Settings,
    parse_target,
)
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx
from core.clock import Clock
from core.escalation import (
    EscalationStep,
    Hours,
    Override,
    Policy,
    Wanted,
    changes_at,
    in_force,
    turn,
    turn_until,
    wanted,
)
from core.summary import Seen

_log = structlog.get_logger("clarify.oncall")
_PATIENCE = 3.0  # seconds that a page waits for Slack's directory
_SILENCE = timedelta(seconds=15)
_LAST_RESORT = "last resort"
_OF_WHO_IS_ON_CALL = {"thread", "dm", "channel"}
_NOBODY = Policy((), timedelta(minutes=15))


@dataclass(frozen=True, slots=True)
class OnDuty:
    """Who is on call, why (`source`, in words), until when if known, and who arranged it if a person did.

    `note`: why the policy's calendar or PagerDuty did not decide it; empty if it did.
    """

    users: tuple[str, ...]
    source: str
    until: datetime | None = None
    by: str | None = None
    note: str = ""


class Shortfall(NamedTuple):
    """Why a step does not go to the person who should be on call, in words for people (empty: it does), and whether it
    therefore reaches nobody: then the post mentions no one, and the next step is due.
    """

    note: str = ""
    reaches_nobody: bool = False


@dataclass(eq=False)
class Roster:
    """Finds who is on call, and stores overrides. Raises StorageUnavailable: then nothing was changed.

    `on_change` is called, and `changed` is set, when an override changes. `patience`: seconds that Slack has to answer.
    """

    settings: Settings
    people: People
    copies: Copies
    store: Store
    clock: Clock
    on_change: Callable[[], None] = lambda: None
    patience: float = field(kw_only=True, default=_PATIENCE)
    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _silent_since: datetime | None = field(default=None, init=False)

    def wake(self) -> None:
        """Signals that someone else may be on call now."""
        self.changed.set()
        self.on_change()

    async def hand(
        self, policy: str, user: str, until: datetime, by: str, *, since: datetime | None = None
    ) -> None:
        """Store an override made by `by`: `user` is on call from `since` (None: now). Durable when this returns."""
        now = self.clock.now()
        begins = now if since is None else since

        def work(tx: Tx) -> None:
            tx.run("delete from overrides where until <= :now", now=now.timestamp())
            tx.run(
                """insert into overrides (policy, user_id, since, until, made_by)
                   values (:policy, :user, :since, :until, :by)""",
                policy=policy,
                user=user,
                since=begins.timestamp(),
                until=until.timestamp(),
                by=by,
            )
            tx.tell("home")

        await self.store.write(work)
        self.wake()

    async def overrides(self) -> list[Override]:
        """The current and planned overrides of all policies, in the order in which they begin."""
        rows = await self.store.read(
            "select * from overrides where until > :now order by since, id",
            now=self.clock.now().timestamp(),
        )
        return [_override(row) for row in rows]

    async def cancel(self, number: int) -> bool:
        """Delete a current or planned override; returns whether it existed."""

        def work(tx: Tx) -> bool:
            found = tx.run("delete from overrides where id = :number", number=number) > 0
            tx.tell("home")
            return found

        found = await self.store.write(work)
        self.wake()
        return found

    async def crew(self, policy_name: str) -> frozenset[str]:
        """Everyone in a policy's rota: named in the file, in its user group, in its calendar."""
        policy = self.settings.on_call_named(policy_name)
        named = set(policy.listed)
        if policy.group is not None:
            named |= {*await self.members(policy.group, policy.listed)}
        if policy.source is not None and (copy := await self.copies.of(policy_name)) is not None:
            theirs = (each.user for each in copy.timetable.shifts if each.user is not None)
            named |= {*await self.pageable(theirs, policy.listed)}
        return frozenset(named)

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        """The user ids of the people on call."""
        return (await self.who(policy_name)).users

    async def who(self, policy_name: str) -> OnDuty:
        policy = self.settings.policy(policy_name)
        if policy is None:
            return OnDuty((), "no such policy")
        sql = "select * from overrides where policy = :policy order by id"
        overrides = [_override(row) for row in await self.store.read(sql, policy=policy.name)]
        now = self.clock.now()
        override, changes = in_force(overrides, now), changes_at(overrides, now)
        if override is not None and await self.pageable((override.user,), policy.listed):
            words = "took over" if override.by == override.user else "handed over"
            return OnDuty((override.user,), words, changes, override.by)
        planned = await self._planned(policy)
        if planned.users and changes is not None and override is None:
            return replace(planned, until=min(planned.until or changes, changes))
        if planned.users:
            return planned
        others = await self._others(policy)
        if not planned.note:
            return OnDuty(others, "backup")
        source = f"backup: {planned.note}" if others else planned.note
        return OnDuty(others, source, planned.until, note=planned.note)

    async def is_read(self, policy: OnCallSettings) -> bool:
        """Whether a policy's calendar or PagerDuty was ever asked; True without one."""
        return policy.source is None or await self.copies.of(policy.name) is not None

    async def members(self, group: str, listed: Collection[str]) -> tuple[str, ...]:
        """The members of a user group who may be paged, sorted; none if Slack does not answer and never told."""
        try:
            async with self._limit():
                found = await self.people.group(group)
        except (SlackError, TimeoutError) as error:
            _log.warning("cannot read a user group's members", group=group, reason=self._why(error))
            return ()
        return await self.pageable(sorted(found), listed)

    async def pageable(self, users: Iterable[str], listed: Collection[str]) -> tuple[str, ...]:
        """The `users` who may be paged, in their order: full members and those `listed` by hand, except people known to be
        deactivated. If Slack does not answer and never told who they are, they may be.
        """
        asked = tuple(dict.fromkeys(users))
        why = await asyncio.gather(*map(self._why_barred, asked))
        return tuple(
            user
            for user, reason in zip(asked, why, strict=True)
            if reason is None or (user in listed and reason != "deactivated")
        )

    async def active(self, users: Iterable[str]) -> tuple[str, ...]:
        """The `users` who are not known to be deactivated, in their order."""
        asked = tuple(users)
        return await self.pageable(asked, asked)

    async def _why_barred(self, user: str) -> OutsiderReason | None:
        try:
            async with self._limit():
                return outsider(await self.people.profile(user), await self.people.installation())
        except (SlackError, TimeoutError) as error:
            if isinstance(error, SlackRefusedError) and error.code in UNKNOWN_USER:
                return "deactivated"
            _log.warning("cannot read a person's profile", user=user, reason=self._why(error))
            return None

    def _limit(self) -> asyncio.Timeout:
        """The time limit for Slack: none at all right after it was silent, since a page about hundreds asks for each."""
        return asyncio.timeout(0 if self._is_silent() else self.patience)

    def _is_silent(self) -> bool:
        since = self._silent_since
        return since is not None and timedelta(0) <= self.clock.now() - since < _SILENCE

    def _why(self, error: Exception) -> str:
        """The error in words for the log. Remembers a timeout."""
        if isinstance(error, TimeoutError) and not self._is_silent():
            self._silent_since = self.clock.now()
        return str(error) or type(error).__name__

    async def _planned(self, policy: OnCallSettings) -> OnDuty:
        if policy.group is not None:
            members = await self.members(policy.group, policy.listed)
            if policy.pick == "first_present":
                members = await self._first_present(members)
            return OnDuty(members, "user group")
        if policy.rotation is not None:
            return await self._on_shift(policy.rotation)
        if policy.source is not None:
            return await self._named_by(policy, policy.source.label)
        return OnDuty(await self.active(policy.users or ()), "fixed list")

    async def _named_by(self, policy: OnCallSettings, label: str) -> OnDuty:
        """Who is on call according to an integration, such as a calendar: of overlapping shifts, the highest level with someone who may
        be paged.
        """
        now, copy = self.clock.now(), await self.copies.of(policy.name)
        known = copy.timetable.shifts if copy is not None and copy.is_fresh(now) else ()
        current = (each.user for each in known if each.user is not None and each.is_at(now))
        there = await self.pageable(current, policy.listed)
        timetable = Timetable(tuple(each for each in known if each.user in there or each.begins > now))
        users = timetable.now(now)
        note = "" if users else why_nobody(self.copies.sources[policy.name], copy, now)
        return OnDuty(users, label, timetable.next(now), note=note)

    async def _on_shift(self, plan: RotationSettings) -> OnDuty:
        now = self.clock.now()
        users = await self.active((turn(plan.users, plan.start, plan.shift, plan.timezone, now),))
        return OnDuty(users, "rotation", turn_until(plan.start, plan.shift, plan.timezone, now))

    async def _others(self, policy: OnCallSettings) -> tuple[str, ...]:
        """The backup: all users of the policy, or the next one in a rotation."""
        plan = policy.rotation
        if plan is None:
            return await self.active(policy.named_users)
        at = plan.users.index(turn(plan.users, plan.start, plan.shift, plan.timezone, self.clock.now()))
        return (await self.active((*plan.users[at + 1 :], *plan.users[:at])))[:1]

    async def _first_present(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """The first active member; all of them if none is active, or Slack does not answer in time."""
        try:
            async with self._limit():
                for user in members:
                    if await self.people.present(user):
                        return (user,)
        except (SlackError, TimeoutError) as error:
            _log.warning("cannot tell who is active", reason=self._why(error))
        return members


@dataclass(eq=False)
class Policies:
    """The configured on-call policies: what they want for an incident, and where their steps lead.

    A route without a policy, or with one that was removed, has only the last resort. `known` returns the current record of a
    clarification, None if it is closed.
    """

    settings: Settings
    audiences: Audiences
    roster: Roster
    known: Callable[[str], Seen | None]
    clock: Clock
    _policies: Mapping[str, Policy] = field(init=False)

    def __post_init__(self) -> None:
        self._policies = {each.name: _policy(each) for each in self.settings.on_call}

    def wants(self, incident: Incident) -> Wanted:
        """What an incident's policy wants now."""
        return wanted(self._policy_of(incident), incident.history, self.clock.now())

    async def turn(self, incident: Incident) -> OnDuty:
        """Who is on call by an incident's policy."""
        return await self.roster.who(incident.policy or "")

    async def destinations(
        self, incident: Incident, step: int, holder: str | None, turn: OnDuty
    ) -> list[Destination]:
        """Where a step leads for an incident; empty if no one is there.

        `holder`: who claimed it or was handed it. They are paged instead of the people on call, if they may be paged.
        """
        policy, people = self._policy_of(incident), turn.users
        if 0 <= step < len(policy.steps):
            notified = policy.steps[step].notify
        else:  # without steps, a DM to whom it was handed
            notified = ("dm",) if holder is not None and not policy.steps else (_LAST_RESORT,)
        if holder is not None:
            people = await self.roster.pageable((holder,), self._listed(incident)) or people
        found = list[Destination]()
        for notify in notified:
            found += await self._destinations_of(notify, incident, people, is_held=holder is not None)
        return found

    def repeats_to(self, incident: Incident, step: int, people: Iterable[str]) -> frozenset[str]:
        """The users and channels to which a step is repeated; empty if it is not, or not only there and in the thread.
        `people`: those on call, or who holds it.
        """
        steps = self._policy_of(incident).steps
        if not 0 <= step < len(steps) or steps[step].every is None:
            return frozenset()
        named = [parse_target(each) for each in steps[step].notify]
        if any(kind not in {"thread", "dm", "channel"} for kind, _ in named):
            return frozenset()
        users = people if ("dm", "") in named else ()
        return frozenset([*users, *(name for kind, name in named if kind == "channel")])

    def shortfall(self, incident: Incident, step: int, holder: str | None, turn: OnDuty) -> Shortfall:
        """Why a step does not reach the person who should be on call by the policy's calendar or PagerDuty."""
        if holder is not None or not turn.note:
            return Shortfall()
        if turn.users:
            return Shortfall(f"{turn.note[0].upper()}{turn.note[1:]}, so the backup is paged")
        steps = self._policy_of(incident).steps
        asks = {parse_target(each)[0] for each in steps[step].notify} if 0 <= step < len(steps) else set()
        return Shortfall(f"No one is on call: {turn.note}", bool(asks) and asks <= _OF_WHO_IS_ON_CALL)

    async def _destinations_of(
        self, notify: str, incident: Incident, people: tuple[str, ...], *, is_held: bool
    ) -> Sequence[Destination]:
        """The destinations behind one entry of a step's `notify`, or behind the last resort."""
        kind, name = parse_target(notify)
        if integrations.is_pager(kind):
            return [Destination(kind, name)]
        if kind == "group":
            return _direct(await self.roster.members(name, self._listed(incident)))
        if kind == "dm":
            return _direct(people)
        if kind == "channel":
            return [Destination("slack", name, None, people)]
        about = self._about(incident)
        route = self._route(incident, about)
        place = None if route is None else route.channel
        if kind == "thread" and about is None and incident.kind == "escalated":
            place = None  # it was answered meanwhile
        if kind == "thread":
            session = None if about is None else self.audiences.thread(about)
            return [] if place is None else [Destination("slack", place, session, people, is_thread=True)]
        place = self.settings.slack.fallback_channel or place
        held = _direct(people) if is_held else []
        return [*held, *([] if place is None else [Destination("slack", place, None, people)])]

    def _policy_of(self, incident: Incident) -> Policy:
        return self._policies.get(incident.policy or "", _NOBODY)

    def _listed(self, incident: Incident) -> frozenset[str]:
        """The users that the file lists by hand: in the policy, or as answerers of the question."""
        route = self._route(incident, self._about(incident))
        answerers = frozenset(() if route is None else route.answerer_users)
        policy = self.settings.policy(incident.policy)
        return answerers | (policy.listed if policy is not None else frozenset())

    def _route(self, incident: Incident, about: Seen | None) -> RouteSettings | None:
        """The route of the question or the agent; the default one without an agent (a broken ledger, trouble of the bot)."""
        try:
            if about is not None:
                return self.audiences.route(about)
            return self.settings.route_for(incident.agent_id or "")
        except LookupError:
            return None

    def _about(self, incident: Incident) -> Seen | None:
        return None if incident.clarification is None else self.known(incident.clarification)


def _policy(settings: OnCallSettings) -> Policy:
    steps = (
        EscalationStep(
            each.after,
            tuple(each.notify),
            each.every,
            None if each.hours is None else Hours.read(each.hours, settings.zone),
        )
        for each in settings.steps
    )
    return Policy(tuple(steps), settings.take_timeout)


def _override(row: Row) -> Override:
    since, until = moment(row["since"]), moment(row["until"])
    return Override(row["user_id"], since, until, row["made_by"], row["policy"], row["id"])


def _direct(users: Iterable[str]) -> list[Destination]:
    return [Destination("slack", user) for user in users]


def forget_person(tx: Tx, user: str, now: datetime) -> tuple[int, int]:
    """Deletes the overrides that have ended in which a person stood in, or which they made. Returns how many, and how many
    remain because they still apply.
    """
    deleted = tx.run(
        "delete from overrides where until <= :now and (user_id = :user or made_by = :user)",
        user=user,
        now=now.timestamp(),
    )
    return deleted, len(
        tx.rows("select id from overrides where user_id = :user or made_by = :user", user=user)
    )


SWEEP = Sweep(
    "overrides",
    """select id as name from overrides where id > :after and id < (select max(id) from overrides)
       and until < :horizon order by id limit :most""",
    ("delete from overrides where id in :names",),
    first=0,
)
