"""“Use as answer” on a message in a session's thread: its text is the answer of whoever chose that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bot import phrases
from bot.audience import Audiences
from bot.commands.ports import Ledgers, Said
from bot.desk import Desk
from bot.errors import SlackError, StorageUnavailable
from bot.listing import Listing, said
from bot.people import Person, explained
from bot.ports import Place, SlackMemory, Thread
from bot.render import Message
from bot.replies import asked_in
from core import answers
from core.clarification import Answer, Clarification
from core.clock import Clock
from core.errors import AnswerRejected, ClarifyError

_MOST_ASKED_ABOUT = 100
NO_THREAD = (
    "This message is not in the thread of an agent's session, so there is no question that it could answer."
)
NOT_A_PERSON = (
    "This message is not a person's. Use the words of a person, or press Answer… on the question's card."
)
BLANK = "This message has no text that could be an answer."


class UseAsAnswer:
    """`which` asks which of several questions is meant; `layout` makes words ready for Slack."""

    def __init__(
        self,
        *,
        desk: Desk,
        records: Ledgers,
        memory: SlackMemory,
        which: Callable[[list[Clarification], str], tuple[str, list[dict[str, Any]]]],
        layout: Callable[[Listing], Message],
        audiences: Audiences,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._records = records
        self._memory = memory
        self._which = which
        self._layout = layout
        self._audiences = audiences
        self._clock = clock

    async def use(self, text: str, ts: str, person: Person, place: Place, *, by_person: bool = True) -> Said:
        """The message at `ts`, in the thread that `place` names, is the person's answer. Never raises for what can
        be expected.
        """
        try:
            if not by_person:
                return self._words(NOT_A_PERSON)
            if not text.strip():
                return self._words(BLANK)
            thread = await self._memory.thread_at(place.channel, place.thread_ts or ts)
            return (
                self._words(NO_THREAD) if thread is None else await self._in(thread, text, ts, person, place)
            )
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            reaction = explained(error, "of that id")
            return self._words(reaction.text or "", recorded=reaction.recorded)

    async def _in(self, thread: Thread, text: str, ts: str, person: Person, place: Place) -> Said:
        asked = await asked_in(thread, self._records, self._audiences)
        waiting = [record for record in asked if record.is_open]
        if not waiting:
            return self.nothing_open()
        if len(waiting) > 1:
            return await self.ask_which(waiting, text, ts, person, place)
        return await self.answer(waiting[0], text, person, place)

    def nothing_open(self) -> Said:
        """There is no question that it could answer."""
        return self._words(phrases.no_open_question())

    def accepted(self, record: Clarification) -> Said:
        """Its answer was taken."""
        return self._words(phrases.accepted(record))

    def closed(self, records: list[Clarification]) -> Said:
        """None of them takes an answer any more: of one is said who answered."""
        return self._words(phrases.closed(records[0])) if len(records) == 1 else self.nothing_open()

    async def answer(
        self, record: Clarification, text: str, person: Person, place: Place, at: datetime | None = None
    ) -> Said:
        """`text` is the person's answer to this question, given at `at` (None: now).

        Raises:
            ClarifyError, SlackError, StorageUnavailable: nothing was recorded; `explained` has the words.
        """

        def read(asked: Clarification) -> Answer:
            return answers.from_text(asked.asked, text)

        now = self._clock.now()
        try:
            reaction = await self._desk.answer(record.id, read, person, place, at=min(at or now, now))
        except AnswerRejected as error:
            return self._words(phrases.unreadable_reply(record.asked, str(error)))
        if reaction.record is not None:
            return self.accepted(reaction.record)
        return self._words(reaction.text or "", recorded=reaction.recorded)

    async def ask_which(
        self, waiting: list[Clarification], text: str, ts: str, person: Person, place: Place
    ) -> Said:
        """Which of several questions is meant? The text waits, as a reply does (`bot.replies`).

        Raises:
            StorageUnavailable: it could not be kept.
        """
        name = f"{place.channel}:{ts}:{person.user}"
        text_id = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
        kept: dict[str, object] = {"text": text, "user": person.user, "at": self._clock.now().isoformat()}
        await self._memory.keep_text(text_id, kept)
        asked, blocks = self._which(waiting[:_MOST_ASKED_ABOUT], text_id)
        return Said(asked, blocks)

    def _words(self, text: str, *, recorded: bool = True) -> Said:
        message = self._layout(said(text))
        return Said(message.text, message.blocks, recorded)
