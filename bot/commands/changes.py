"""Commands that change a clarification: answer, resolve, escalate, abandon, take. The router decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.commands import words
from bot.commands.access import Access
from bot.commands.grammar import Change
from bot.commands.lists import Lists
from bot.commands.ports import Doorkeeper, Ledgers, Steers
from bot.people import Person
from bot.views import inert, listing, phrases
from bot.views.listing import Listing, said
from core import answers
from core.clarification import Answer, Clarification, Decider, Holder, parse_id
from core.clock import Clock
from core.errors import AnswerRejected
from core.escalation import escalation_words

_REASON = 2000


class Changes:
    """`to_plain`: what a person typed in Slack, as plain text. All methods raise what `Router.answer` raises, and
    SlackError where Slack does not tell who somebody is; nothing was changed then.
    """

    def __init__(
        self,
        *,
        router: Steers,
        records: Ledgers,
        lists: Lists,
        access: Access,
        gate: Doorkeeper,
        clock: Clock,
        to_plain: Callable[[str], str],
    ) -> None:
        self._router = router
        self._records = records
        self._lists = lists
        self._access = access
        self._gate = gate
        self._clock = clock
        self._to_plain = to_plain

    async def apply(self, command: Change, person: Person) -> Listing:
        """Do it, if the person may; what they are told."""
        if command.id is None:
            return await self._in_issue(command, person)
        record = await self._records.find(command.id, parse_id(command.id)[0])
        return await self._apply(command, record, person)

    async def take(self, clarification_id: str, person: Person) -> Listing:
        """The person has it in hand from now on."""
        record = await self._records.find(clarification_id, parse_id(clarification_id)[0])
        if (refused := await self._refused(record, person)) is not None:
            return refused
        holder = Holder(user=person.user, team=person.team or None, at=self._clock.now())
        return said(words.taken(await self._router.take(record.id, holder)))

    async def _in_issue(self, command: Change, person: Person) -> Listing:
        """#42 in place of an id: the only open one; where there are several they are listed."""
        waiting = [each for each in await self._lists.visible(command.issue, person) if each.is_open]
        if len(waiting) == 1:
            return await self._apply(command, waiting[0], person)
        if not waiting:
            return said(words.nothing_open(command.issue))
        rows = [listing.row(each, listing.Offer(), n) for n, each in enumerate(waiting[: listing.PAGE_SIZE])]
        heading = words.which_one(command.issue, len(waiting))
        return listing.listing(heading, rows, page=1, total=len(rows), query=f"#{command.issue}")

    async def _apply(self, command: Change, record: Clarification, person: Person) -> Listing:
        if (refused := await self._refused(record, person)) is not None:
            return refused
        change: dict[str, Callable[[Clarification, Decider, str], Awaitable[str]]] = {
            "answer": self._answer,
            "resolve": self._resolve,
            "escalate": self._escalate,
            "abandon": self._abandon,
        }
        decider = Decider(await self._gate.decided_by(person), "slack", person.team, person.user)
        try:
            return said(await change[command.verb](record, decider, self._to_plain(command.words)))
        except AnswerRejected as error:
            return said(words.rejected(record.id, str(error)))

    async def _answer(self, record: Clarification, decider: Decider, text: str) -> str:
        return phrases.accepted(
            await self._router.answer(record.id, _reads(text), decider, self._clock.now())
        )

    async def _resolve(self, record: Clarification, decider: Decider, text: str) -> str:
        now = self._clock.now()
        return words.resolved(await self._router.resolve(record.id, _reads(text), text, decider, now), text)

    async def _escalate(self, record: Clarification, decider: Decider, text: str) -> str:
        reason = f"{text}\n{escalation_words(record, 'by hand')}" if text else None
        after = await self._router.escalate(record.id, "by hand", reason, decider)
        return words.escalated(after, before=record.status == "escalated")

    async def _abandon(self, record: Clarification, decider: Decider, text: str) -> str:
        reason = inert.clip(inert.cleaned_line(text), _REASON)
        return words.abandoned(await self._router.abandon(record.id, decider, reason))

    async def _refused(self, record: Clarification, person: Person) -> Listing | None:
        refusal = await self._access.refusal(person, record)
        return None if refusal is None else said(phrases.not_allowed(refusal.why, refusal.answerers))


def _reads(text: str) -> Callable[[Clarification], Answer]:
    return lambda record: answers.from_text(record.asked, text)
