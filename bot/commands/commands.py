"""Runs commands from all sources: `/clarify`, a mention, a direct message, a list's buttons.

When a call returns, a change is in the ledger or the storage, or the reply says that nothing was changed.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from bot.base import Base
from bot.commands import grammar
from bot.commands.grammar import (
    Added,
    Board,
    Change,
    Command,
    Help,
    Hint,
    List,
    OnCallCommand,
    One,
    Other,
    Past,
)
from bot.commands.lists import Access, Lists, PastDecisions, SlackHost
from bot.decisions.search import DecisionSearch
from bot.errors import SlackError, StorageUnavailable
from bot.intake.intake import Sessions
from bot.oncall.build import OnCallBoard
from bot.oncall.roster import Roster
from bot.people.access import AccessRefusal, Person, in_time
from bot.settings.model import Settings
from bot.show.delivery import Delivery, ShowParts
from bot.slackapi import Place
from bot.views import inert, phrases
from bot.views.blockkit import Draft
from bot.views.lists import choice_of, said, search_modal
from bot.views.phrases import Tell, Told, explained
from bot.views.render import Renderer
from core import answers
from core.clarification import Clarification, Decider, Holder
from core.clock import Clock
from core.errors import AnswerRejected, ClarifyError, IllegalTransition, NotFound
from core.escalation import Override
from core.hub import Hub
from core.transitions import NotOpen

_log = logging.getLogger("clarify.commands")
_REASON = 2000
_AHEAD = timedelta(days=366)
_MOST_OVERRIDES = 30  # that fit into a message
_ONLY_MEMBERS = "only active, full members of this workspace can be. Nothing was changed."
_ANNOUNCED = ", and is being notified."
_TURN = timedelta(hours=8)  # for someone who takes over without a time


@dataclass(kw_only=True, eq=False)
class Commands:
    """Runs a command and returns the reply. `added`: the commands of integrations, which get the `host`.

    Calls `refresh` when someone tried to change a clarification that is closed, to update its cards.
    """

    lists: Lists
    changes: ChangeCommands
    turns: OnCallTurns
    past: PastDecisions
    added: Added
    host: SlackHost
    renderer: Renderer
    refresh: Callable[[str], None]

    def understands(self, text: str) -> bool:
        """Returns whether a text is a command, or clearly meant as one, and so no answer."""
        return not isinstance(self._read(text), Hint) or grammar.is_addressed(text)

    def is_change(self, text: str) -> bool:
        """Returns whether a text is a command that changes something, which must happen before the acknowledgement."""
        return grammar.is_change(self._read(text))

    def _read(self, text: str) -> Command | Hint:
        return grammar.parse(text, self.added)

    async def run(self, text: str, person: Person, place: Place, page: int = 1) -> Told:
        """Run the command in a text, if the person may. Returns expected errors as a reply."""
        command = self._read(text)
        named = command.id if isinstance(command, One | Change) and command.id else "of that id"
        return await self._answered(self._done(command, person, place, page), named)

    async def window(self, text: str, person: Person, page: int = 1) -> dict[str, Any]:
        """Returns a window with a page of what a search (`search …`) found, or why there is nothing."""
        command = self._read(text)
        if not isinstance(command, Past):
            draft = said(command.text if isinstance(command, Hint) else phrases.UNREADABLE_PRESS, live=False)
        else:
            draft, _ = await self._drafted(self.past.show(command, person, page), "of that id")
        return self.renderer.view(search_modal(draft))

    async def claim(self, clarification_id: str, person: Person) -> Told:
        """Claim a clarification for a person who clicked Take in a list."""
        return await self._answered(self.changes.claim(clarification_id, person), clarification_id)

    async def _done(self, command: Command | Hint, person: Person, place: Place, page: int) -> Draft:
        match command:
            case List():
                answer = await self.lists.show(command, person, place, page)
            case One():
                answer = await self.lists.one(command.id, person)
            case Board():
                answer = await self.lists.board(command, person, page)
            case Change():
                answer = await self.changes.apply(command, person)
            case OnCallCommand():
                answer = await self.turns.run(command, person, place)
            case Other():
                answer = await command.command.reply(self.host, command.wanted, person)
            case Past():
                answer = await self.past.show(command, person, page)
            case Help():
                answer = said(grammar.help_text(command.topic, self.added), heading="Help", live=False)
            case Hint():
                answer = said(command.text, live=False)
        return answer

    async def _answered(self, work: Awaitable[Draft], clarification_id: str) -> Told:
        """Returns the command's reply, or why it failed."""
        answer, told = await self._drafted(work, clarification_id)
        message = self.renderer.message(answer)
        return replace(told, text=message.text, blocks=message.blocks)

    async def _drafted(self, work: Awaitable[Draft], clarification_id: str) -> tuple[Draft, Told]:
        """Returns the command's reply or why it failed, and what kind of answer that is."""
        told: Told = Tell()
        try:
            answer = await work
        except IllegalTransition as error:
            _log.warning("unknown escalation step: %s", error)
            name = _clean(clarification_id, 40)
            answer = said(f"{name} cannot be changed that way in its current state. Nothing was changed.")
        except NotFound:
            answer = said(phrases.unseen_clarification(clarification_id))
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            if isinstance(error, NotOpen):
                self.refresh(error.record.id)
            told = explained(error, clarification_id)
            answer = said(told.text)
        return answer, told


@dataclass(kw_only=True, eq=False)
class ChangeCommands:
    """Commands that change a clarification: answer, resolve, escalate, abandon (through the hub, as the shell does), take.

    `to_plain` turns Slack's markup into plain text. `hear` returns when earlier replies to a question are read. All methods
    raise what `Router.answer` raises, SlackError if Slack cannot tell who someone is, and RepliesUnread if earlier replies
    are still being read; then nothing was changed.
    """

    hub: Hub
    lists: Lists
    access: Access
    hear: Callable[[str, float | None], Awaitable[None]]
    to_plain: Callable[[str], str]

    async def apply(self, command: Change, person: Person) -> Draft:
        """Make the change, if the person may; returns the reply."""
        if command.id is not None:
            record = await self.hub.ledger.find(command.id)
            return await self._apply(command, record, person)
        # #42 instead of an id means the only open question; several are listed.
        issue = command.issue
        waiting = [each for each in (await self.lists.of_issue(issue, person)).records if each.is_open]
        if len(waiting) == 1:
            return await self._apply(command, waiting[0], person)
        if waiting:
            open_now = f"{len(waiting)} questions are open for issue {issue}."
            return choice_of(f"{open_now} Nothing was changed. Pick one by its ID", waiting, f"#{issue}")
        return said(f"No question is open for issue {issue}. “/clarify #{issue}” lists its earlier ones.")

    async def claim(self, clarification_id: str, person: Person) -> Draft:
        """Claim it for the person."""
        record = await self.hub.ledger.find(clarification_id)
        if (refusal := await self.access.refusal(person, record)) is not None:
            return await self._refused(record, person, refusal)
        holder = Holder(user=person.user, team=person.team or None, at=self.hub.clock.now())
        name = _clean((await self.hub.router.take_over(record.id, holder)).id, 40)
        return said(f"You claimed {name}. Its pages stop. Please answer it, or hand it over.")

    async def _refused(self, record: Clarification, person: Person, refusal: AccessRefusal) -> Draft:
        """Returns why the person may not change it.

        Raises:
            NotFound: they may not see it, so they are not told that it exists.
        """
        if not await self.access.sees(person, record):
            raise NotFound(record.id)
        return said(phrases.not_allowed(refusal.why, refusal.answerers))

    async def _apply(self, command: Change, record: Clarification, person: Person) -> Draft:
        if (refusal := await self.access.refusal(person, record)) is not None:
            if command.verb in {"answer", "resolve"}:
                by = self.access.control.refused(person)
                tried = _decision_in(record, self.to_plain(command.words))
                self.hub.router.note_refusal(record, by, refusal.reason, tried)
            return await self._refused(record, person, refusal)
        await self.hear(record.id, person.deadline)
        return await self.access.control.deciding(person, record, partial(self._decide, command, record))

    async def _decide(self, command: Change, record: Clarification, by: Decider) -> Draft:
        text, name = self.to_plain(command.words), _clean(record.id, 40)
        reason = inert.clip(inert.cleaned_line(text), _REASON)
        try:
            match command.verb:
                case "answer":
                    words = phrases.accepted(await self.hub.answer(record.id, text, by, record.round))
                case "resolve":
                    after = await self.hub.resolve(record.id, text, by, record.round)
                    if after.status == "answered":  # until the agent picks up the answer
                        words = (
                            f"{phrases.accepted(after)} It is resolved once the agent picks up the answer."
                        )
                    else:
                        words = f"{name} is resolved: “{_clean(text, 200)}”."
                case "escalate":
                    await self.hub.escalate(record.id, by, reason)
                    words = f"{name} is escalated. On-call is being paged."
                    if record.status == "escalated":
                        words = f"{name} was already escalated. On-call knows."
                case "abandon":
                    await self.hub.abandon(record.id, by, reason)
                    words = f"{name} is closed without an answer."
        except AnswerRejected as error:
            hint = f"Not answered. {_clean(str(error), 600)}"
            words = f"{hint} For example: “/clarify answer {name} …”."
        return said(words)


@dataclass(kw_only=True, eq=False)
class OnCallTurns:
    """`oncall`: shows who is on call, makes, lists and cancels overrides.

    `run` raises SlackError if Slack cannot tell who someone is, StorageUnavailable if nothing was stored.
    """

    roster: Roster
    access: Access
    delivery: Delivery
    settings: Settings
    clock: Clock

    def __post_init__(self) -> None:
        self._routes = self.settings.routes
        self._zones = {policy.name: ZoneInfo(policy.zone) for policy in self.settings.on_call}
        self._names = list(self._zones)

    async def run(self, command: OnCallCommand, person: Person, place: Place) -> Draft:
        """Run it; returns the reply."""
        if not self._names:
            return said("No on-call policy is configured.", live=False)
        policy = self._known(command.policy) if command.policy else None
        if command.policy and policy is None:
            return said(self._unknown(command.policy), live=False)
        match command.verb:
            case "who":
                lines = [await self._line(name) for name in ([policy] if policy else self._names)]
                return said("\n".join(lines), heading="On call")
            case "overrides":
                return await self._overrides(policy)
            case "cancel":
                return said(await self._cancel(command.number, person))
            case "take" | "hand":
                return await self._handed(command, policy, person, place)

    async def _handed(
        self, command: OnCallCommand, policy: str | None, person: Person, place: Place
    ) -> Draft:
        policy = policy or await self._meant(person, place)
        if policy is None:
            example = f"/clarify oncall {command.verb} {'@ade ' if command.user else ''}2h {self._names[0]}"
            which = f"Which policy? Name one at the end: {', '.join(self._names)}."
            return said(f"{which} For example: “{example}”.", live=False)
        return said(await self._refused(person, policy) or await self._change(command, policy, person))

    async def _refused(self, person: Person, policy: str) -> str:
        """Returns why a person may not change who is on call, or an empty string."""
        refusal = await self.access.duty_refusal(person, policy)
        if refusal is None:
            return ""
        return phrases.not_allowed(refusal.why, refusal.answerers).replace("answer", "change", 1)

    async def _overrides(self, policy: str | None) -> Draft:
        found = [
            each
            for each in await self.roster.overrides()
            if each.policy in ([policy] if policy else self._names)
        ]
        lines = [
            f"{each.number}. {_clean(each.policy, 60)}: {inert.mention(each.user)} {_span(each)}"
            + ("" if each.by == each.user else f", by {inert.mention(each.by)}")
            for each in found
        ]
        if not lines:
            return said("No overrides, now or scheduled.", heading="On call: overrides", live=False)
        more = [f"… and {len(lines) - _MOST_OVERRIDES} more."] if len(lines) > _MOST_OVERRIDES else []
        take_back = f"Cancel one with “/clarify oncall cancel {found[0].number}”."
        return said("\n".join([*lines[:_MOST_OVERRIDES], *more, take_back]), heading="On call: overrides")

    async def _cancel(self, number: int, person: Person) -> str:
        override = next((each for each in await self.roster.overrides() if each.number == number), None)
        if override is None or override.policy not in self._names:
            return f"Override {number} doesn't exist or is over. “/clarify oncall overrides” lists the overrides."
        if refused := await self._refused(person, override.policy):
            return refused
        what = f"{_clean(override.policy, 60)} {_span(override)}"
        held = await self._is_in_force(override)
        if not await self.roster.cancel(number):
            return f"Override {number} was already cancelled."
        if override.user == person.user:
            return f"Override cancelled: you are not on call for {what}."
        if (
            held
            and self._announces(override.policy)
            and not await self._is_on_call(override.user, override.policy, person)
        ):
            return f"Override cancelled: {inert.mention(override.user)} is not on call for {what}{_ANNOUNCED}"
        words = f"{inert.mention(person.user)} cancelled your override: you are not on call for {what}."
        told = await self._tell(override.user, f"{override.policy}:cancelled:{number}", words)
        return f"Override cancelled: {inert.mention(override.user)} is not on call for {what}{told}"

    async def _is_in_force(self, override: Override) -> bool:
        """Returns whether it is what puts its user on call now."""
        turn = await self.roster.who(override.policy)
        return turn.users == (override.user,) and turn.by is not None and override.since <= self.clock.now()

    async def _is_on_call(self, user: str, policy: str, person: Person) -> bool:
        return user in await in_time(person.deadline, self.roster.on_call(policy))

    def _announces(self, policy: str) -> bool:
        return self.settings.on_call_named(policy).announce

    async def _tell(self, user: str, about: str, words: str) -> str:
        """Tell a user about their turns; returns the end of the reply's sentence."""
        try:
            key = f"oncall:{about}:{user}:{self.clock.now().isoformat()}"
            await self.delivery.say(Place(user), key, words)
        except StorageUnavailable as error:
            _log.warning("cannot tell %s that they are on call: %s", user, error)
            return ", but could not be notified. Please tell them."
        return ", and has been notified."

    async def _wrong(self, command: OnCallCommand, since: datetime | None, person: Person) -> str:
        """Returns why this person cannot be on call, or not then; empty if they can."""
        if not await self.access.control.full_member(command.user or person.user, person.deadline):
            who = (
                f"{inert.mention(command.user)} cannot be on call"
                if command.user
                else "You cannot be on call"
            )
            return f"{who}: {_ONLY_MEMBERS}"
        now = self.clock.now()
        if since is not None and not now < since <= now + _AHEAD:
            wrong = "is over" if since <= now else "is more than a year ahead"
            return f"{inert.date(since)} {wrong}. Nothing was changed."
        return ""

    async def _change(self, command: OnCallCommand, policy: str, person: Person) -> str:
        user = command.user or person.user
        since, now = self._since(command, policy), self.clock.now()
        if wrong := await self._wrong(command, since, person):
            return wrong
        until = await self._until(command, policy, since or now, person.deadline)
        is_announced = since is None and self._announces(policy)
        is_announced = is_announced and not await self._is_on_call(user, policy, person)
        await self.roster.hand(policy, user, until, person.user, since=since)
        begins = "" if since is None else f" from {inert.date(since)}"
        told = f"on call for {_clean(policy, 60)}{begins} until {inert.date(until)}"
        read_in = "" if since is None else f" {self._read_in(policy)}"
        if user == person.user:
            return f"You are {told}.{read_in}"
        if is_announced:
            return f"{inert.mention(user)} is {told}{_ANNOUNCED}"
        words = f"{inert.mention(person.user)} handed you on-call: you are {told}."
        return f"{inert.mention(user)} is {told}{await self._tell(user, policy, words)}{read_in}"

    def _read_in(self, policy: str) -> str:
        """Says how a typed start was read. Slack shows it in the reader's time zone."""
        return f"The time you typed was read in the policy's time zone, {self._zones[policy].key}."

    def _since(self, command: OnCallCommand, policy: str) -> datetime | None:
        """Returns the start in UTC, or None for now. Takes the first of an hour that comes twice."""
        return command.since and command.since.replace(tzinfo=self._zones[policy]).astimezone(UTC)

    async def _until(
        self, command: OnCallCommand, policy: str, since: datetime, deadline: float | None
    ) -> datetime:
        """Returns the end: as typed, or the end of the current turn, or eight hours from now."""
        now = self.clock.now()
        if command.span is not None:
            return since + command.span
        ends = (await in_time(deadline, self.roster.who(policy))).until
        return ends if ends is not None and ends > now else now + _TURN

    async def _line(self, policy: str) -> str:
        turn = await self.roster.who(policy)
        who = ", ".join(inert.mention(user) for user in turn.users)
        source = f" ({inert.escape(inert.line(turn.source))})" if turn.source else ""
        until = f", until {inert.date(turn.until)}" if turn.until else ""
        return f"{_clean(policy, 60)}: {who or 'no one; pages go to the fallback channel'}{source}{until}"

    async def _meant(self, person: Person, place: Place) -> str | None:
        """Returns the only policy, or else this channel's, or else the one by which the person is on call."""
        if len(self._names) == 1:
            return self._names[0]
        here = {route.on_call for route in self._routes if route.channel == place.channel} - {None}
        if len(here) == 1:
            return here.pop()
        on_call = {name: await in_time(person.deadline, self.roster.on_call(name)) for name in self._names}
        theirs = [name for name, users in on_call.items() if person.user in users]
        return theirs[0] if len(theirs) == 1 else None

    def _known(self, policy: str) -> str | None:
        return next((name for name in self._names if name.casefold() == policy.casefold()), None)

    def _unknown(self, policy: str) -> str:
        near: Sequence[str] = difflib.get_close_matches(
            policy.casefold(), [name.casefold() for name in self._names], 1
        )
        meant = f"Did you mean “{self._known(near[0])}”?" if near else f"Policies: {', '.join(self._names)}."
        return f"Unknown on-call policy “{inert.clip(policy, 40)}”. {meant}"


def _decision_in(record: Clarification, text: str) -> str | None:
    """Returns the decision about an action that a text gives, if it gives one."""
    try:
        return str(answers.from_text(record.asked, text).response)
    except AnswerRejected:
        return None


def _span(override: Override) -> str:
    return f"from {inert.date(override.since)} until {inert.date(override.until)}"


def _clean(text: str, limit: int) -> str:
    return inert.escaped_line(text, limit)


def build_commands(
    base: Base,
    board: OnCallBoard,
    show: ShowParts,
    sessions: Sessions,
    *,
    hear: Callable[[str, float | None], Awaitable[None]],
    to_plain: Callable[[str], str],
    refresh: Callable[[str], None],
    added: Added,
) -> Commands:
    """Builds `/clarify`. `hear`, `to_plain`, `refresh`, `added`: see `ChangeCommands` and `Commands`."""
    settings, ledger, clock = base.settings, base.ledger, base.clock
    access = Access(board.access, board.roster, board.incidents.paged, settings)
    lists = Lists(
        index=base.index,
        ledger=ledger,
        access=access,
        permalinks=board.permalinks,
        sessions=sessions.facts,
        clock=clock,
        locale_of=base.people.known_locale,
    )
    return Commands(
        lists=lists,
        changes=ChangeCommands(
            hub=Hub(router=base.router, ledger=ledger, scopes=base.scopes, clock=clock),
            lists=lists,
            access=access,
            hear=hear,
            to_plain=to_plain,
        ),
        turns=OnCallTurns(
            roster=board.roster,
            access=access,
            delivery=show.delivery,
            settings=settings,
            clock=clock,
        ),
        past=PastDecisions(
            search=DecisionSearch(
                storage=settings.storage.path, url=settings.database_url, people=base.people, clock=clock
            ),
            permalinks=board.permalinks,
            to_plain=to_plain,
        ),
        added=added,
        host=SlackHost(
            ledger=ledger,
            clock=clock,
            access=access,
            people=base.people,
            messages=board.messages,
            delivery=show.delivery,
            renderer=base.renderer,
        ),
        renderer=base.renderer,
        refresh=refresh,
    )
