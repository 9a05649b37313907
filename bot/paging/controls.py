"""What people do with a page: Take, Hand to…, Snooze, Not mine, Show. Knows nothing of Slack's formats.

What was done is durable when a call returns; where nothing was, the reaction says so. Who has an escalated question in
hand is written into its ledger first: the log of pages follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

from bot import inert, phrases
from bot.desk import Modals
from bot.errors import SlackError, StorageUnavailable
from bot.paging.admission import Admission
from bot.paging.codec import HAND_BLOCK, PagePress
from bot.paging.loop import Loop
from bot.paging.model import Incident
from bot.paging.ports import Change, HandModal, Holding, Records
from bot.paging.words import Announcer, many, said_handed, said_taken, taken_words
from bot.people import Person, Reaction, explained
from bot.ports import Place
from core.clarification import Clarification, Holder, NotOpen, parse_id
from core.clock import Clock
from core.errors import ClarifyError, LockTimeout, NotFound
from core.escalation import Handed, NotMine, Snoozed, Taken, quiet_until

_log = logging.getLogger("clarify.paging")
GONE = "This page is closed: nobody is needed for it any more."
NOBODY_CHOSEN = "Choose a person."
NOT_A_MEMBER = "Choose an active, full member of this workspace: nobody else can take it."
PASSED_ON = "Passed on: whoever comes next is told now."
IN_HAND = "Somebody else has this in hand: there is nothing to snooze."
NO_TIME = "There is no time left to snooze."
_PATIENCE = 1.5  # seconds: what Slack's three leave for the ledgers of a page about many
_AT_ONCE = 16


class Controls:
    """`modals` builds what Show and Hand to… open; `announcer` tells a session's thread who has it in hand."""

    def __init__(
        self,
        *,
        loop: Loop,
        router: Holding,
        records: Records,
        admission: Admission,
        modals: Modals,
        hand_modal: HandModal,
        announcer: Announcer,
        clock: Clock,
    ) -> None:
        self._loop = loop
        self._router = router
        self._records = records
        self._admission = admission
        self._modals = modals
        self._hand_modal = hand_modal
        self._announcer = announcer
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._later: set[asyncio.Task[Clarification]] = set()

    async def press(self, press: PagePress, person: Person, place: Place) -> Reaction:  # noqa: ARG002 - as the desk's
        """A control was pressed. What it does must be allowed to this person now; looking is allowed to everybody."""
        try:
            return await self._pressed(press, person)
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, "this page")

    async def submit_hand(self, press: PagePress, user: str, person: Person, place: Place) -> Reaction:  # noqa: ARG002 - as above
        """Hand to… was sent with `user` chosen (empty: nobody)."""
        if not inert.is_user(user):
            return Reaction(errors={HAND_BLOCK: NOBODY_CHOSEN}, recorded=False)
        try:
            if not await self._admission.is_member(user):
                return Reaction(errors={HAND_BLOCK: NOT_A_MEMBER}, recorded=False)
            incidents, refused = await self._admitted(press, person)
            return refused or await self._hand(incidents, user, person)
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, "this page")

    async def _pressed(self, press: PagePress, person: Person) -> Reaction:
        if press.verb == "show":
            return await self._show(press)
        incidents, refused = await self._admitted(press, person)
        if refused is not None:
            return refused
        match press.verb:
            case "take":
                return await self._take(incidents, person)
            case "hand":
                return Reaction(view=self._hand_modal.hand_modal(press, many(incidents)))
            case "snooze":
                return await self._snooze(incidents, person)
            case _:
                now = self._clock.now()
                await self._loop.happened([(each.id, NotMine(now, person.user)) for each in incidents])
                return Reaction(PASSED_ON)

    async def _admitted(self, press: PagePress, person: Person) -> tuple[list[Incident], Reaction | None]:
        """What is open of a page and may be changed by this person, or what they are told instead."""
        chosen = await self._chosen(press)
        if not chosen:
            return [], Reaction(GONE)
        if not (still_open := [each for each in chosen if each.is_open]):
            self._loop.touch(each.id for each in chosen)
            return [], Reaction(await self._closed_words(chosen, person.user))
        mine, refusal = await self._admission.filter(still_open, person)
        if not mine and refusal is not None:
            _log.warning(
                "refused: page %d, team %s, user %s: %s", press.page, person.team, person.user, refusal.why
            )
            return [], Reaction(phrases.not_allowed(refusal.why, refusal.answerers))
        return mine, None

    async def _chosen(self, press: PagePress) -> list[Incident]:
        if not press.page:  # on no page: the card of what is handed over
            one = await self._loop.incidents.get(press.incident)
            return [one] if one is not None else []
        told = await self._loop.incidents.page(press.page)
        incidents = told.incidents if told is not None else ()
        return [each for each in incidents if press.incident in {0, each.id}]

    async def _closed_words(self, chosen: Sequence[Incident], user: str) -> str:
        """Why it is closed: of a question who answered, of a handoff who has it."""
        if len(chosen) != 1:
            return GONE
        if (clarification := chosen[0].clarification) is not None:
            record = await self._records.find(clarification, parse_id(clarification)[0])
            return GONE if record.is_open else phrases.closed(record)
        if chosen[0].kind != "handoff":
            return GONE
        history = (await self._loop.incidents.histories([chosen[0].id])).get(chosen[0].id, [])
        return taken_words(history, user) or GONE

    async def _take(self, incidents: Sequence[Incident], person: Person) -> Reaction:
        now = self._clock.now()
        holder = Holder(user=person.user, team=person.team or None, at=now)
        held, rest = split(incidents)
        taken, failed, later = await self._in_ledgers(held, self._router.take, holder)
        # One that is in no ledger any more can only be let go: without that nobody could end its pages.
        rest += [each for each, error in failed if isinstance(error, NotFound)]
        failed = [(each, error) for each, error in failed if not isinstance(error, NotFound)]
        entries = [
            (each.id, Taken(now, person.user)) for each in taken if not self._is_known(each, person.user)
        ]
        if entries:
            await self._loop.happened(entries)
        mine = await self._loop.taken([each.id for each in rest], person.user) if rest else set()
        let_go = [each for each in rest if each.id in mine]
        if rest and not (let_go or taken or failed or later):
            return Reaction(await self._closed_words(rest, person.user))
        handoffs = [each for each in let_go if each.kind == "handoff"]
        await self._announcer.tell([*taken, *handoffs], "took", said_taken(person.user), now)
        return reaction([*taken, *let_go], failed, "You took", len(later))

    async def _hand(self, incidents: Sequence[Incident], user: str, person: Person) -> Reaction:
        now = self._clock.now()
        holder = Holder(user=user, team=person.team or None, at=now)
        held, rest = split(incidents)
        handed, failed, later = await self._in_ledgers(held, self._router.hand, holder)
        entries = [
            (each.id, Handed(now, user, person.user))
            for each in [*handed, *rest]
            if not self._is_handed(each, user, now)
        ]
        if entries:
            await self._loop.happened(entries)
        told = [*handed, *(each for each in rest if each.kind == "handoff")]
        await self._announcer.tell(told, "handed", said_handed(person.user, user), now)
        words = f"{inert.mention(user)} gets a page now. You handed over"
        return reaction([*handed, *rest], failed, words, len(later))

    async def _snooze(self, incidents: Sequence[Incident], person: Person) -> Reaction:
        now = self._clock.now()
        incidents = [each for each in incidents if not self._is_others(each, person.user)]
        if not incidents:
            return Reaction(IN_HAND)
        ends = min((each.expires_at for each in incidents if each.expires_at is not None), default=None)
        until = quiet_until(now, ends)
        if until <= now:
            return Reaction(NO_TIME)
        await self._loop.happened([(each.id, Snoozed(now, until, person.user)) for each in incidents])
        return Reaction(f"Snoozed until {inert.date(until)}. Then it comes back by itself.")

    async def _show(self, press: PagePress) -> Reaction:
        """What one line of a page about several stands for, with what it takes to answer it."""
        chosen = await self._chosen(press)
        if not chosen:
            return Reaction(GONE)
        incident = chosen[0]
        if incident.clarification is None:
            text = "\n\n".join(
                filter(None, (incident.title, incident.reason, incident.body, incident.link or ""))
            )
            return Reaction(view=self._modals.message_modal("In full", text))
        record = await self._records.find(incident.clarification, parse_id(incident.clarification)[0])
        if record.is_open:
            return Reaction(view=self._modals.answer_modal(record))
        return Reaction(view=self._modals.full_view(record))

    def _is_known(self, incident: Incident, user: str) -> bool:
        """The ledger's news may have been taken in already."""
        each = self._loop.board.get(incident.id)
        want = self._loop.wants(each) if each is not None else None
        return want is not None and want.state == "taken" and want.holder == user

    def _is_others(self, incident: Incident, user: str) -> bool:
        """Whether somebody else has it in hand: an older page may still offer to snooze it."""
        each = self._loop.board.get(incident.id)
        want = self._loop.wants(each) if each is not None else None
        return want is not None and want.state == "taken" and want.holder != user

    def _is_handed(self, incident: Incident, user: str, since: datetime) -> bool:
        """Whether the ledger's news was taken in already: said twice, it would page twice."""
        each = self._loop.board.get(incident.id)
        latest = each.history[-8:] if each is not None else []
        return any(isinstance(h, Handed) and h.user == user and h.at >= since for h in latest)

    async def _in_ledgers(
        self, incidents: Sequence[Incident], change: Change, holder: Holder
    ) -> tuple[list[Incident], list[tuple[Incident, Exception]], list[Incident]]:
        """Write who has it: done, failed, and still being written when Slack has to be answered.

        What comes later is taken in by the mirror.
        """
        tasks = {asyncio.create_task(self._change(change, each, holder)): each for each in incidents}
        if not tasks:
            return [], [], []
        for task in tasks:
            self._later.add(task)
            task.add_done_callback(self._ended)
        await asyncio.wait(tasks, timeout=_PATIENCE if len(tasks) > 1 else None)
        done, failed, later = list[Incident](), list[tuple[Incident, Exception]](), list[Incident]()
        for task, each in tasks.items():
            error = task.exception() if task.done() else None
            if not task.done():
                later.append(each)
            elif isinstance(error, Exception):
                failed.append((each, error))
            else:
                done.append(each)
        return done, failed, later

    async def _change(self, change: Change, incident: Incident, holder: Holder) -> Clarification:
        async with self._slots:
            return await change(incident.clarification or "", holder)

    def _ended(self, task: asyncio.Task[Clarification]) -> None:
        self._later.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a page was not taken: %s", error)

    async def close(self) -> None:
        """Let what is being written finish."""
        await asyncio.gather(*self._later, return_exceptions=True)


def split(incidents: Sequence[Incident]) -> tuple[list[Incident], list[Incident]]:
    """Those whose ledger says who has them in hand, and the others (pure)."""
    held = [each for each in incidents if each.kind == "escalated" and each.clarification is not None]
    return held, [each for each in incidents if each not in held]


def reaction(
    done: Sequence[Incident], failed: Sequence[tuple[Incident, Exception]], verb: str, later: int = 0
) -> Reaction:
    """What the person is told; `later` are still being written down (pure)."""
    if not done and not later and failed:
        incident, error = failed[0]
        if isinstance(error, (ClarifyError, SlackError, StorageUnavailable)):
            return explained(error, incident.clarification or "")
        raise error
    text = f"{verb} {inert.escape(many(done))}."
    if later:
        text += f" {later} are still being written down: the page shows when that is done."
    busy = sum(isinstance(error, LockTimeout) for _, error in failed)
    gone = sum(isinstance(error, NotOpen) for _, error in failed)
    other = len(failed) - busy - gone
    if gone:
        text += f" {gone} are closed already."
    if busy or other:
        text += f" {busy + other} could not be changed: please press the button again."
    return Reaction(text)
