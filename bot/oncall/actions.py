"""What people can do with a page (Take, Hand to…, Snooze, Not mine, Show), and whether there are people who still can. Knows
nothing of Slack's formats.

Changes are durable when a call returns. The holder of an escalated question is written into its record first; the
incident log follows.

`Leavers` releases what people claimed, or were handed, and can no longer act on: they were deactivated, or may no longer
answer. It looks on start, and whenever what is known of people may be outdated. Paging goes on with the next step.

`Quorum` checks that enough people may approve an action that needs several approvals, or one of someone other than the
person its agent works for; otherwise on-call is paged at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog

from bot.errors import SlackError, SlackRefusedError, StorageUnavailable
from bot.oncall.incidents import Incident, Incidents, OpenIncident
from bot.oncall.pages import Pages
from bot.oncall.roster import Policies, Roster
from bot.people.access import AccessControl, AccessRefusal, Person, count_answerers, in_time
from bot.people.directory import UNKNOWN_USER, People
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import Settings
from bot.show.delivery import Delivery
from bot.show.messages import Messages
from bot.slackapi import Place
from bot.views import inert, phrases
from bot.views.codec import HAND_BLOCK, PagePress
from bot.views.forms import full_view, hand_modal, message_modal
from bot.views.phrases import FieldErrors, OpenModal, Reaction, Tell, explained
from bot.views.render import Renderer
from core.clarification import Clarification, Holder
from core.clock import Clock, event_or_time
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.escalation import Handed, Happening, Left, NotMine, Snoozed, Taken, quiet_until
from core.index import Index
from core.ledger import Ledger
from core.router import Router
from core.summary import Seen, Summary, summary_of
from core.transitions import NotOpen

_log = structlog.get_logger("clarify.paging")
GONE = "This page is closed. There is nothing left to do."
NOBODY_CHOSEN = "Choose a person."
NOT_A_MEMBER = "Choose an active, full member of this workspace. No one else can take it."
YOURSELF = "Choose someone else. To keep this yourself, close this window and click Take on the page."
PASSED_ON = "Passed on. The next person is being paged."
IN_HAND = "Someone else has claimed this, so there is nothing to snooze."
NO_TIME = "This expires too soon to be snoozed."
_WHY = "you are neither on call here nor an answerer"
Change = Callable[[str, Holder], Awaitable[Clarification]]
_RETRY = 10.0  # seconds, after Slack, the ledger or the storage failed


@dataclass(eq=False)
class Admission:
    """Decides who may act on a page: the people of its policy, everyone who was paged, the answerers of the route."""

    settings: Settings
    audiences: Audiences
    incidents: Incidents
    roster: Roster
    index: Index
    access: AccessControl

    async def filter(
        self, incidents: Sequence[Incident], person: Person
    ) -> tuple[list[Incident], AccessRefusal | None]:
        """The incidents that `person` may change; if there are none, the reason.

        Raises:
            SlackError: Slack does not say who `person` is.
        """
        may: list[Incident] = []
        refusal: AccessRefusal | None = None
        known: dict[tuple[str | None, Audience], AccessRefusal | None] = {}
        for each in incidents:
            held = self.incidents.open(each.id)
            if held is not None and person.user in held.paged:
                may.append(each)
                continue
            key = (each.policy, self._audience(each))
            if key not in known:
                known[key] = await self._refusal(each, person)
            if known[key] is None:
                may.append(each)
            else:
                refusal = known[key]
        return may, refusal

    async def _refusal(self, incident: Incident, person: Person) -> AccessRefusal | None:
        policy = self.settings.policy(incident.policy)
        named: tuple[str, ...] = ()
        if policy is not None:
            named = policy.named_users
            if person.user in named:
                return None
            if person.user in await in_time(person.deadline, self.roster.on_call(policy.name)):
                return None
            if policy.group is not None and person.user in await in_time(
                person.deadline, self.roster.members(policy.group, policy.listed)
            ):
                return None
        audience = self._audience(incident)
        channel = self.audiences.route_of(audience).channel
        refused = await self.access.refusal(person, channel, audience)
        return None if refused is None else AccessRefusal(_WHY, [*named, *refused.answerers])

    def _audience(self, incident: Incident) -> Audience:
        """The audience of the open question, else of the agent."""
        about = incident.clarification
        known = None if about is None else self.index.get(about)
        return Audience(incident.agent_id or "") if known is None else audience_of(known)


@dataclass(eq=False)
class Announcer:
    """Posts in a session's thread who claimed its question or handoff."""

    audiences: Audiences
    index: Index
    messages: Messages
    delivery: Delivery

    async def tell(
        self, incidents: Sequence[Incident], verb: str, words: Callable[[str], str], at: datetime
    ) -> None:
        """Post once per thread. Only logs if the post cannot be stored: the cards show it too."""
        threads: dict[Place, list[Incident]] = {}
        try:
            for each in incidents:
                if (place := await self.thread_of(each)) is not None:
                    threads.setdefault(place, []).append(each)
            for place, mine in threads.items():
                key = f"{verb}:{mine[0].id}:{int(at.timestamp() * 1000)}"
                await self.delivery.say(place, key, words(many(mine)))
        except StorageUnavailable as error:
            _log.warning("cannot post about a page in its thread", what=verb, reason=str(error))

    async def tell_of_leaver(self, record: Seen, holder: Holder, *, calls: bool) -> None:
        """Post that the person who had claimed a question is gone. `calls`: mention those who may answer it."""
        others = [each for each in self.audiences.route(record).mentioned if each != holder.user]
        called = " ".join(inert.mentions(others)) if calls else ""
        who = inert.person(holder.user)
        words = f"{inert.escape(record.id)} is unclaimed again: {who}, who had it, can no longer answer."
        try:
            if (place := await self._thread(record)) is not None:
                key = f"left:{record.id}:{int(holder.at.timestamp() * 1000)}"
                await self.delivery.say(place, key, f"{called} {words}".lstrip())
        except StorageUnavailable as error:
            _log.warning("cannot post about a question in its thread", what="left", reason=str(error))

    async def thread_of(self, incident: Incident) -> Place | None:
        """The session's thread: a question names its session, a handoff's card is in the thread."""
        if incident.clarification is None:
            card = await self.messages.get(incident.notice_key)
            if card is None or card.channel is None or card.ts is None:
                return None
            return Place(card.channel, card.thread_ts or card.ts)
        known = self.index.get(incident.clarification)
        return None if known is None else await self._thread(known)

    async def _thread(self, record: Seen) -> Place | None:
        thread = await self.messages.thread_of(*self.audiences.thread(record))
        return Place(thread.channel, thread.ts) if thread is not None else None


@dataclass(kw_only=True, eq=False)
class PageActions:
    """Handles clicks on a page's controls, if `admission` allows them; `announcer` posts in the session's thread. `locale_of`
    returns a user's locale, empty if it is not known.
    """

    incidents: Incidents
    pages: Pages
    policies: Policies
    router: Router
    ledger: Ledger
    renderer: Renderer
    admission: Admission
    announcer: Announcer
    clock: Clock
    locale_of: Callable[[str], str] = lambda _: ""

    async def press(self, press: PagePress, person: Person) -> Reaction:
        """Handle a click, if this person may do what it asks; everyone may open Show."""
        try:
            return await self._pressed(press, person)
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, "this page")

    async def submit_hand(self, press: PagePress, user: str, person: Person) -> Reaction:
        """Handle the modal of Hand to…, sent with `user` chosen (empty: nobody)."""
        if not inert.is_user(user):
            return FieldErrors({HAND_BLOCK: NOBODY_CHOSEN})
        if user == person.user:
            return FieldErrors({HAND_BLOCK: YOURSELF})
        try:
            if not await self.admission.access.full_member(user, person.deadline):
                return FieldErrors({HAND_BLOCK: NOT_A_MEMBER})
            incidents, refused = await self._admitted(press, person)
            return refused or await self._hand(incidents, user, person)
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, "this page")

    async def _pressed(self, press: PagePress, person: Person) -> Reaction:
        if press.verb == "show":
            return await self._show(press, person)
        incidents, refused = await self._admitted(press, person)
        if refused is not None:
            return refused
        match press.verb:
            case "take":
                return await self._take(incidents, person)
            case "hand":
                return OpenModal(self.renderer.view(hand_modal(press, many(incidents))))
            case "snooze":
                return await self._snooze(incidents, person)
            case _:
                now = self.clock.now()
                await self.incidents.happened([(each.id, NotMine(now, person.user)) for each in incidents])
                return Tell(PASSED_ON)

    async def _admitted(self, press: PagePress, person: Person) -> tuple[list[Incident], Reaction | None]:
        chosen = await self._chosen(press)
        if not chosen:
            return [], Tell(GONE)
        if not (still_open := [each for each in chosen if each.is_open]):
            self.incidents.touch(each.id for each in chosen)
            return [], Tell(await self._closed_words(chosen, person.user))
        mine, refusal = await self.admission.filter(still_open, person)
        if not mine and refusal is not None:
            _log.warning(
                "refused a click: page %d, team %s, user %s: %s",
                press.page,
                person.team,
                person.user,
                refusal.why,
            )
            return [], Tell(phrases.not_allowed(refusal.why, refusal.answerers))
        return mine, None

    async def _chosen(self, press: PagePress) -> list[Incident]:
        if not press.page:  # a click on a handoff's card
            one = await self.incidents.get(press.incident)
            return [one] if one is not None else []
        incidents = await self.pages.incidents_of(press.page)
        return [each for each in incidents if press.incident in {0, each.id}]

    async def _closed_words(self, chosen: Sequence[Incident], user: str) -> str:
        """Why it is closed: who answered the question, or who claimed the handoff."""
        if len(chosen) != 1:
            return GONE
        if (clarification := chosen[0].clarification) is not None:
            record = await self.ledger.find(clarification)
            return GONE if record.is_open else phrases.closed(record)
        if chosen[0].kind != "handoff":
            return GONE
        now = await self.incidents.get(chosen[0].id)  # it may have been claimed since it was read
        return (now and taken_words(now.history, user)) or GONE

    async def _take(self, incidents: Sequence[Incident], person: Person) -> Reaction:
        now = self.clock.now()
        holder = Holder(user=person.user, team=person.team or None, at=now)
        held, rest = split(incidents)
        # Tell the previous holder, but not once for each of many: their page shows it too.
        take = self.router.take_over if len(held) == 1 else self.router.take
        taken, failed = await self._in_records(held, take, holder)
        await self.incidents.follow([(each.id, Taken(now, person.user)) for each in taken])
        mine = await self.incidents.claim([each.id for each in rest], person.user) if rest else set()
        taken_here = [each for each in rest if each.id in mine]
        if rest and not (taken_here or taken or failed):
            return Tell(await self._closed_words(rest, person.user))
        handoffs = [each for each in taken_here if each.kind == "handoff"]
        await self.announcer.tell([*taken, *handoffs], "took", said_taken(person.user), now)
        return reaction([*taken, *taken_here], failed, "You claimed")

    async def _hand(self, incidents: Sequence[Incident], user: str, person: Person) -> Reaction:
        now = self.clock.now()
        holder = Holder(user=user, team=person.team or None, at=now)
        held, rest = split(incidents)
        handed, failed = await self._in_records(held, self.router.hand, holder)
        await self.incidents.follow([(each.id, Handed(now, user, person.user)) for each in [*handed, *rest]])
        told = [*handed, *(each for each in rest if each.kind == "handoff")]
        await self.announcer.tell(told, "handed", said_handed(person.user, user), now)
        words = f"{inert.mention(user)} is being paged. You handed over"
        return reaction([*handed, *rest], failed, words)

    async def _snooze(self, incidents: Sequence[Incident], person: Person) -> Reaction:
        now = self.clock.now()
        incidents = [each for each in incidents if not self._is_others(each, person.user)]
        if not incidents:
            return Tell(IN_HAND)
        ends = min((each.expires_at for each in incidents if each.expires_at is not None), default=None)
        until = quiet_until(now, ends)
        if until <= now:
            return Tell(NO_TIME)
        await self.incidents.happened([(each.id, Snoozed(now, until, person.user)) for each in incidents])
        return Tell(f"Snoozed until {inert.date(until)}. You'll be paged again then.")

    async def _show(self, press: PagePress, person: Person) -> Reaction:
        """Show one incident of a page about several, with the controls to answer it."""
        chosen = await self._chosen(press)
        if not chosen:
            return Tell(GONE)
        incident = chosen[0]
        if incident.clarification is None:
            text = "\n\n".join(filter(None, (incident.title, incident.reason, incident.body)))
            return OpenModal(self.renderer.view(message_modal("Full text", text)))
        record = await self.ledger.find(incident.clarification)
        # In a thread: a large record must not delay other clicks.
        if record.is_open:
            reader = self.locale_of(person.user), person.user
            return OpenModal(await asyncio.to_thread(self.renderer.answer_modal, record, *reader))
        return OpenModal(await asyncio.to_thread(lambda: self.renderer.view(full_view(record))))

    def _is_others(self, incident: Incident, user: str) -> bool:
        """Whether someone else claimed it: an older page may still offer to snooze it."""
        each = self.incidents.open(incident.id)
        want = self.policies.wants(each.incident) if each is not None else None
        return want is not None and want.state == "taken" and want.holder != user

    async def _in_records(
        self, incidents: Sequence[Incident], change: Change, holder: Holder
    ) -> tuple[list[Incident], list[tuple[Incident, BaseException]]]:
        """Write the holder into the records. Returns what is done, and what failed."""
        changes = (change(each.clarification or "", holder) for each in incidents)
        outcomes = await asyncio.gather(*changes, return_exceptions=True)
        found = list(zip(incidents, outcomes, strict=True))
        failed = [(each, error) for each, error in found if isinstance(error, BaseException)]
        return [each for each, done in found if not isinstance(done, BaseException)], failed


def split(incidents: Sequence[Incident]) -> tuple[list[Incident], list[Incident]]:
    """The incidents whose holder their records name, and the others (pure)."""
    held = [each for each in incidents if each.kind == "escalated" and each.clarification is not None]
    return held, [each for each in incidents if each not in held]


def reaction(
    done: Sequence[Incident], failed: Sequence[tuple[Incident, BaseException]], verb: str
) -> Reaction:
    """What to tell the person (pure)."""
    if not done and failed:
        incident, error = failed[0]
        if isinstance(error, (ClarifyError, SlackError, StorageUnavailable)):
            return explained(error, incident.clarification or "")
        raise error
    text = f"{verb} {inert.escape(many(done))}."
    busy = sum(isinstance(error, LockTimeout) for _, error in failed)
    gone = sum(isinstance(error, NotOpen) for _, error in failed)
    other = len(failed) - busy - gone
    if gone:
        text += f" {gone} are already closed."
    if busy or other:
        text += f" {busy + other} could not be changed: please click the button again."
    return Tell(text)


def many(incidents: Sequence[Incident]) -> str:
    """Names up to three incidents in plain text; of more, the count and the first three."""
    names = [each.clarification or inert.quoted(each.title, 80) for each in incidents]
    if len(names) > 3:
        return f"{len(names)} items, including {', '.join(names[:3])}"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "nothing"


def said_taken(user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(user)} claimed {inert.escape(what)}."


def said_handed(by: str, user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(by)} handed {inert.escape(what)} to {inert.mention(user)}."


def taken_words(history: Sequence[Happening], user: str) -> str:
    """Tells `user`, who clicked too late, who claimed it; empty if no one did."""
    last = next((each for each in reversed(history) if isinstance(each, Taken)), None)
    if last is None or not inert.is_user(last.user):
        return ""
    who = "You" if last.user == user else inert.mention(last.user)
    return f"{who} claimed this already ({inert.date(last.at)})."


@dataclass(kw_only=True, eq=False)
class Leavers:
    """Finds the holders of open questions and incidents who are gone."""

    index: Index
    incidents: Incidents
    policies: Policies
    admission: Admission
    announcer: Announcer
    router: Router
    people: People
    clock: Clock

    async def run(self) -> None:
        """Release claims until cancelled."""
        while True:
            self.people.outdated.clear()
            if await self.look():
                await self.people.outdated.wait()
            else:
                await event_or_time(self.clock, self.people.outdated, _RETRY)

    async def look(self) -> bool:
        """Release what someone holds who is gone; returns False if some could not be looked at or released now."""
        is_done = True
        for record in [each for each in self.index if each.is_open and holder_of(each) is not None]:
            is_done &= await self._settled(record.id, partial(self._look_at, record))
        for each in self.incidents:
            is_done &= await self._settled(each.incident.key, partial(self._look_at_incident, each))
        return is_done

    async def _settled(self, what: str, look: Callable[[], Awaitable[None]]) -> bool:
        try:
            await look()
        except (SlackError, LockTimeout, LedgerUnwritable, StorageUnavailable) as error:
            _log.warning("cannot tell yet whether a holder is gone", about=what, reason=str(error))
            return False
        except ClarifyError as error:  # it was closed meanwhile
            _log.info("not released", about=what, reason=str(error))
        return True

    async def _look_at(self, record: Seen) -> None:
        holder, incident = holder_of(record), self._incident(record)
        if holder is None:
            return
        if not await self._is_gone(Person(holder.team or "", holder.user), record, incident):
            return
        if await self.router.left(record.id, holder.user):
            _log.warning("released, since its holder is gone", id=record.id, user=holder.user)
            await self.announcer.tell_of_leaver(record, holder, calls=incident is None)

    async def _look_at_incident(self, each: OpenIncident) -> None:
        holder, incident = self.policies.wants(each.incident).holder, each.incident
        known = None if incident.clarification is None else self.index.get(incident.clarification)
        if holder is not None and await self._is_gone(Person("", holder), known, incident):
            await self.incidents.happened([(incident.id, Left(self.clock.now(), holder))])

    async def _is_gone(self, person: Person, record: Seen | None, incident: Incident | None) -> bool:
        """Returns whether someone can no longer act on a question or an incident.

        Raises:
            SlackError: Slack does not tell now.
        """
        try:
            if (await self.people.profile(person.user)).is_deleted:
                return True
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            # Slack need not describe people of other workspaces to us.
            if person.team in {"", (await self.people.installation()).team}:
                return True
        if incident is not None:
            may, _ = await self.admission.filter([incident], person)
            return not may
        if record is None:
            return False
        card = await self.announcer.messages.get(f"card:{record.id}:{record.round}")
        where = "" if card is None else card.channel or ""
        return not await self.admission.access.may_still(person, record, where)

    def _incident(self, record: Seen) -> Incident | None:
        about = (each.incident for each in self.incidents.about(record.id))
        return next((each for each in about if each.kind == "escalated"), None)


def holder_of(record: Seen) -> Holder | None:
    """Returns who claimed a question, or was handed it."""
    return record.attention.taken_by or record.attention.handed_to


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer: for each new action, after each approval, and on start."""

    settings: Settings
    people: People
    router: Router
    index: Index
    ledger: Ledger
    clock: Clock
    _queue: asyncio.Queue[Summary] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, Summary] = field(default_factory=dict, init=False)

    def record_changed(self, seen: Seen) -> None:
        """Queue a clarification for `run`, if its approvals changed. Call after each change, and on start."""
        if not seen.is_open or not seen.is_guarded:
            self._known.pop(seen.id, None)
            return
        known, now = self._known.get(seen.id), summary_of(seen)
        if known is None or _progress(known) != _progress(now):
            self._known[now.id] = now
            self._queue.put_nowait(now)

    async def run(self) -> None:
        """Check the queued clarifications, one at a time, until cancelled."""
        while True:
            queued = await self._queue.get()
            if self._known.get(queued.id) is queued and not await self._check(queued.id):
                self._queue.put_nowait(queued)
                await self.clock.sleep(_RETRY)

    async def _check(self, clarification: str) -> bool:
        """Count and record the possible approvers; False: try again later."""
        try:
            record = await self.index.find(clarification, self.ledger)
            may = 0 if record.asked.lacks_requester else await self._count(record)
            await self.router.too_few(record.id, may)
        except (SlackError, LockTimeout, LedgerUnwritable) as error:
            _log.warning("cannot count possible approvers yet", id=clarification, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("cannot count possible approvers", id=clarification, reason=str(error))
        return True

    async def _count(self, record: Clarification) -> int:
        home, asked = await self.people.installation(), record.asked
        route = self.settings.route_for(*audience_of(record))
        besides = asked.barred.by if asked.barred is not None else None
        return await count_answerers(route, self.settings, self.people, home, asked.needed, besides=besides)


def _progress(summary: Summary) -> tuple[int, int, int]:
    """The round, and its numbers of approvals that count and that no longer do."""
    return summary.round, summary.approvals, summary.lapsed
