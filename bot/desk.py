"""Where people's answers come in: one call per click and per modal. Knows nothing of Slack's formats.

Each call checks who it is, lets the router decide, and returns what the person is to be told or shown. An answer
is in the ledger when the call returns; where nothing was recorded, the reaction says so. Replies in threads:
`bot.replies`, which answers through this desk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from bot import phrases
from bot.audience import Audience, Audiences, audience_of
from bot.codec import Press
from bot.errors import BadPress, SlackError, StorageUnavailable
from bot.people import PEOPLE_UNKNOWN, Person, Reaction, Refusal, explained
from bot.ports import Place, SlackMemory
from bot.rollup import PAGE_SIZE
from bot.submission import SubmissionErrors, read_submission
from core import answers
from core.clarification import Answer, Clarification, Decider, NotOpen, parse_id
from core.clock import Clock
from core.errors import BadInput, ClarifyError
from core.index import Summary
from core.records import Raw

__all__ = ["PEOPLE_UNKNOWN", "Desk", "Person", "Reaction", "Refusal", "explained"]
_log = logging.getLogger("clarify.desk")
View = dict[str, Any]
Read = Callable[[Clarification], Answer]
NOT_YOUR_REPLY = "Only the person who wrote the reply can say which question it answers."
REPLY_FORGOTTEN = "That reply is not waiting any more. Please answer on the question's card."
_NEVER = datetime.max.replace(tzinfo=UTC)


class Answering(Protocol):
    async def answer(
        self,
        clarification_id: str,
        read: Read,
        decider: Decider,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification: ...


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...
    async def read(self, issue: int) -> list[Raw]: ...


class Open(Protocol):
    """What is open, in memory: `core.index.Index`."""

    def __iter__(self) -> Iterator[Summary]: ...
    def get(self, clarification_id: str, issue: int) -> Summary | None: ...


class Gatekeeper(Protocol):
    """Both raise SlackError where Slack does not tell who somebody is."""

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None: ...
    async def decided_by(self, person: Person) -> str: ...


class Modals(Protocol):
    def answer_modal(self, record: Clarification) -> View: ...
    def full_view(self, record: Clarification, *, round: int | None = None, page: int = 1) -> View: ...  # noqa: A002 - as above
    def message_modal(self, title: str, text: str) -> View: ...
    def rollup_modal(self, records: Sequence[Clarification], page: int, total: int) -> View: ...


class Desk:
    """`memory` keeps replies that wait for their question; `to_plain` takes a phrase's live parts out, for modals."""

    def __init__(
        self,
        *,
        router: Answering,
        records: Records,
        memory: SlackMemory,
        gate: Gatekeeper,
        modals: Modals,
        index: Open,
        audiences: Audiences,
        clock: Clock,
        to_plain: Callable[[str], str],
        refresh: Callable[[str], None],
    ) -> None:
        self._router = router
        self._records = records
        self._memory = memory
        self._gate = gate
        self._modals = modals
        self._index = index
        self._audiences = audiences
        self._clock = clock
        self._to_plain = to_plain
        self._refresh = refresh

    async def press(self, press: Press, person: Person, place: Place) -> Reaction:
        """A control was pressed. What it does must be allowed to this person now; looking is allowed to everybody."""
        try:
            return await self._pressed(press, person, place)
        except BadPress as error:
            _log.warning("a control that cannot be read: %s", error)
            return Reaction(phrases.UNREADABLE_PRESS)
        except NotOpen as error:
            self._refresh(press.clarification)
            return explained(error, press.clarification)
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, press.clarification)

    async def show_again(self, channel: str, ts: str) -> None:
        """A message was deleted: if it was the card of an open question, it is posted anew.

        Raises:
            StorageUnavailable: it is not known whether it was.
        """
        if (card := await self._memory.card_at(channel, ts)) is not None:
            self._refresh(card[0])

    async def submit(self, press: Press, values: Mapping[str, Any], person: Person, place: Place) -> Reaction:
        """The answer modal was sent. What is wrong comes as `errors`, or as a view in place of the modal."""

        def read(record: Clarification) -> Answer:
            return read_submission(values, record.asked)

        now = self._clock.now()
        try:
            reaction = await self.answer(press.clarification, read, person, place, at=now, round=press.round)
        except SubmissionErrors as error:
            return Reaction(errors=error.errors)
        except BadInput as error:
            if not values:
                return Reaction(view=self.notice(explained(error, press.clarification).text or ""))
            return Reaction(errors=dict.fromkeys(values, str(error)))
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            reaction = explained(error, press.clarification)
        if reaction.text is None:
            return reaction
        if not reaction.recorded and values:
            # The modal stays open with what was typed, so that it can be sent again.
            return Reaction(errors=dict.fromkeys(values, self._to_plain(reaction.text)), recorded=False)
        return Reaction(view=self.notice(reaction.text), recorded=reaction.recorded)

    async def answer(
        self,
        clarification_id: str,
        read: Read,
        person: Person,
        place: Place,
        *,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Reaction:
        """Check access, then let the router record the answer.

        Raises:
            ClarifyError, SlackError, StorageUnavailable: nothing was recorded; `explained` has the words.
            SubmissionErrors: as `read` raised it.
        """
        audience = await self._audience(clarification_id)
        if (refused := await self._refused(clarification_id, audience, person, place)) is not None:
            return refused
        decider = Decider(await self._gate.decided_by(person), "slack", person.team, person.user)
        return Reaction(record=await self._router.answer(clarification_id, read, decider, at, round))

    async def refusal(self, record: Clarification, person: Person, place: Place) -> Reaction | None:
        """What somebody is told who may not answer; None if they may.

        Raises:
            SlackError: Slack does not tell who they are.
        """
        return await self._refused(record.id, audience_of(record), person, place)

    def notice(self, phrase: str) -> View:
        """A modal that says something."""
        return self._modals.message_modal("Not answered", self.plain(phrase))

    def plain(self, phrase: str) -> str:
        """A phrase without its live parts, for where Slack formats nothing."""
        return self._to_plain(phrase)

    async def _pressed(self, press: Press, person: Person, place: Place) -> Reaction:
        match press.verb:
            case "yes" | "no" | "choice" | "select" | "accept" | "reject":
                reaction = await self._answer_by_press(press, person, place)
            case "which":
                reaction = await self._answer_with_kept_text(press, person, place)
            case "answer":
                reaction = await self._open_answer(press, person, place)
            case "view":
                record = await self.find(press.clarification)
                reaction = Reaction(
                    view=self._modals.full_view(record, round=press.round, page=press.number())
                )
            case "list" | "page":
                reaction = Reaction(view=await self._list(press))
        return reaction

    async def _answer_by_press(self, press: Press, person: Person, place: Place) -> Reaction:
        def read(record: Clarification) -> Answer:
            if press.verb in {"yes", "no"}:
                return answers.from_yes_no(record.asked, press.verb == "yes")
            if press.verb == "accept" or press.verb == "reject":  # noqa: PLR1714 - it tells the types
                return answers.from_decision(record.asked, press.verb)
            return answers.from_choices(record.asked, [press.number()])

        now = self._clock.now()
        return await self.answer(press.clarification, read, person, place, at=now, round=press.round)

    async def _answer_with_kept_text(self, press: Press, person: Person, place: Place) -> Reaction:
        """A reply that could belong to several questions; its author now says to which."""
        kept = await self._memory.kept_text(press.arg)
        if kept is None:
            return Reaction(REPLY_FORGOTTEN)
        if kept.get("user") != person.user:
            return Reaction(NOT_YOUR_REPLY)
        text, at = str(kept["text"]), datetime.fromisoformat(str(kept["at"]))

        def read(record: Clarification) -> Answer:
            return answers.from_text(record.asked, text)

        return await self.answer(press.clarification, read, person, place, at=at, round=press.round)

    async def _open_answer(self, press: Press, person: Person, place: Place) -> Reaction:
        record = await self.find(press.clarification)
        if (refused := await self._refused(record.id, audience_of(record), person, place)) is not None:
            return refused
        if not record.is_open:
            return Reaction(phrases.closed(record))
        if press.round < record.round:
            return Reaction(phrases.STALE_CARD)
        return Reaction(view=self._modals.answer_modal(record))

    async def _list(self, press: Press) -> View:
        """A page of all that is open of the agent which the pressed question is of, and shown in the same channel; most
        urgent first.
        """
        group = self._audiences.group(await self.find(press.clarification))
        shown = (each for each in self._index if each.is_open and self._audiences.shows(each))
        mine = sorted(
            (each for each in shown if self._audiences.group(each) == group),
            key=lambda each: (each.expires_at or _NEVER, each.created),
        )
        page = min(max(1, press.number()), max(1, -(-len(mine) // PAGE_SIZE)))
        turned_to = mine[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        records = [await self._records.find(each.id, each.issue) for each in turned_to]
        return self._modals.rollup_modal(records, page, len(mine))

    async def find(self, clarification_id: str) -> Clarification:
        """The clarification as last written.

        Raises:
            NotFound, BadInput: there is none of that id.
        """
        return await self._records.find(clarification_id, parse_id(clarification_id)[0])

    async def _audience(self, clarification_id: str) -> Audience:
        """Whom it is put to: of what is open that is known without reading its ledger."""
        known = self._index.get(clarification_id, parse_id(clarification_id)[0])
        return audience_of(known if known is not None else await self.find(clarification_id))

    async def _refused(
        self, clarification_id: str, audience: Audience, person: Person, place: Place
    ) -> Reaction | None:
        refusal = await self._gate.refusal(person, place.channel, audience, clarification_id)
        if refusal is None:
            return None
        _log.warning(
            "refused: %s, team %s, user %s: %s", clarification_id, person.team, person.user, refusal.why
        )
        return Reaction(phrases.not_allowed(refusal.why, refusal.answerers))
