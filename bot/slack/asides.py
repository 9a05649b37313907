"""What is said to the bot rather than to an agent: mentions in channels, direct messages, replies to pages there.

`@clarify stale` in a channel is answered there, to its author alone; a direct message is answered where it was said.
A reply in the thread of a page is the answer to its question, and so is a direct message that is no command while
exactly one page is open for its author, unless it is talk (`is_talk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bot import phrases
from bot.commands.desk import CommandDesk
from bot.commands.ports import Said
from bot.commands.shortcut import UseAsAnswer
from bot.desk import Open, Records
from bot.errors import SlackError
from bot.oncall.pages import Pages
from bot.people import Person, explained
from bot.ports import Place, SlackMemory
from bot.replies import Words, is_by, is_talk, moment
from bot.slack import mrkdwn
from bot.slack.hearing import Heard
from core.clarification import Clarification, parse_id
from core.errors import ClarifyError, NotFound


class Asides:
    def __init__(
        self,
        *,
        commands: CommandDesk,
        shortcut: UseAsAnswer,
        records: Records,
        memory: SlackMemory,
        index: Open,
        paged: Callable[[str], frozenset[str]],
        pages: Pages,
        bot_user: str,
        name_of: Callable[[str], str | None],
    ) -> None:
        self._commands = commands
        self._shortcut = shortcut
        self._records = records
        self._memory = memory
        self._index = index
        self._paged = paged
        self._pages = pages
        self._bot_user = bot_user
        self._name_of = name_of

    async def take(self, heard: Heard, person: Person) -> Words | None:
        """What follows; None: it was not said to the bot. Handling it twice changes nothing more.

        Raises:
            StorageUnavailable: nothing was recorded.
        """
        if heard.kind == "dm":
            return await self._direct(heard, person)
        if self._bot_user not in mrkdwn.people_in(heard.text):
            return None
        text, first = (
            mrkdwn.without(heard.text, self._bot_user),
            mrkdwn.begins_with(heard.text, self._bot_user),
        )
        if heard.kind == "aside":
            if not first and not self._commands.understands(text):
                return await self._overheard(heard, person)
        elif not first or not self._commands.understands(text):
            return None  # in a session's thread whatever is no command is an answer
        return _aside(await self._commands.run(text, person, Place(heard.channel, heard.thread_ts or None)))

    async def _overheard(self, heard: Heard, person: Person) -> Words:
        """Mentioned in the midst of a message: its rest may be a command; nothing is changed in passing."""
        text = mrkdwn.after(heard.text, self._bot_user)
        if not text or not self._commands.understands(text):
            return Words()  # it was mentioned, not spoken to
        if self._commands.is_change(text):
            return Words(phrases.begin_with(self._bot_user, mrkdwn.plain(text, self._name_of)))
        return _aside(await self._commands.run(text, person, Place(heard.channel, heard.thread_ts or None)))

    async def hint(self, heard: Heard, person: Person) -> Words | None:
        """For a mention that nobody understood, in a thread of no session and no page: how to speak to the bot."""
        if not mrkdwn.begins_with(heard.text, self._bot_user):
            return None
        if await self._pages.clarifications_at(heard.channel, heard.thread_ts):
            return None
        text = mrkdwn.without(heard.text, self._bot_user)
        return _aside(await self._commands.run(text, person, Place(heard.channel, heard.thread_ts or None)))

    async def _direct(self, heard: Heard, person: Person) -> Words:
        text = mrkdwn.without(heard.text, self._bot_user)
        plain = mrkdwn.plain(text, self._name_of)
        if not plain.strip():
            return await self._wordless(heard)
        if is_talk(plain) or await self._speaks_to_somebody(heard):
            return Words()
        place = Place(heard.channel, heard.thread_ts or None)
        try:
            said = await self._answer_page(heard, plain, person, place)
            if said is None and not self._commands.understands(text):
                said = await self._answer_only_page(heard, plain, person, place)
        except (ClarifyError, SlackError) as error:
            reaction = explained(error, "of that id")
            return Words(reaction.text, recorded=reaction.recorded)
        if said is None and heard.edited:
            return Words()
        return _aloud(said or await self._commands.run(text, person, place), heard)

    async def edited(self, heard: Heard, person: Person) -> Words:
        """A direct message was edited: it may be an answer to a page now. Commands are not given so.

        Raises:
            StorageUnavailable: nothing was recorded.
        """
        return await self._direct(replace(heard, kind="dm"), person)

    async def _wordless(self, heard: Heard) -> Words:
        """A file alone, where an answer is waited for."""
        if not heard.files or not heard.thread_ts:
            return Words()
        paged = await self._pages.clarifications_at(heard.channel, heard.thread_ts)
        waits = any(record.is_open for record in await self._found(paged))
        return _aloud(Said(phrases.FILE_ONLY), heard) if waits else Words()

    async def _speaks_to_somebody(self, heard: Heard) -> bool:
        """Whether a reply in the thread of a page mentions somebody: talk there, as it is in a session's thread."""
        if not heard.thread_ts or not mrkdwn.speaks_to_somebody(heard.text, self._bot_user):
            return False
        return bool(await self._pages.clarifications_at(heard.channel, heard.thread_ts))

    async def _answer_page(self, heard: Heard, text: str, person: Person, place: Place) -> Said | None:
        """In the thread of a page."""
        if not heard.thread_ts:
            return None
        named = await self._pages.clarifications_at(heard.channel, heard.thread_ts)
        return await self._answer(named, heard, text, person, place)

    async def _answer_only_page(self, heard: Heard, text: str, person: Person, place: Place) -> Said | None:
        """Not in a thread: to whichever page is open for this person."""
        escalated = [each.id for each in self._index if each.status == "escalated"]
        named = [each for each in escalated if person.user in self._paged(each)]
        if heard.missed or heard.edited:  # it cannot mean a page that came after it
            pages = await self._pages.open_pages()
            before = {page.clarification for page in pages if page.is_before(heard.channel, heard.ts)}
            named = [each for each in named if each in before]
        return await self._answer(named, heard, text, person, place)

    async def _answer(
        self, named: Sequence[str], heard: Heard, text: str, person: Person, place: Place
    ) -> Said | None:
        meant = await self._meant(heard, named)
        records, at = await self._found(meant), moment(heard.edited or heard.ts)
        if not records:
            return None
        if (done := next((each for each in records if is_by(each, person.user, at)), None)) is not None:
            return self._shortcut.accepted(done)
        waiting = [record for record in records if record.is_open]
        if not waiting:
            return self._shortcut.closed(records)
        if len(meant) > 1:
            return await self._shortcut.ask_which(waiting, text, heard.ts, person, place)
        return await self._shortcut.answer(waiting[0], text, person, place, at=at)

    async def _meant(self, heard: Heard, named: Sequence[str]) -> list[str]:
        """Of `named` what a message can be about, as it was when it was heard first: handled again after a kill, it
        does not turn to a question that it was not meant for.
        """
        key = f"page-reply:{heard.key}"
        if (kept := await self._memory.kept_text(key)) is not None:
            return str(kept["about"]).split()
        waiting = [record.id for record in await self._found(named) if record.is_open]
        meant = waiting or list(named)
        if meant:
            await self._memory.keep_text(key, {"about": " ".join(meant)})
        return meant

    async def _found(self, clarifications: Iterable[str]) -> list[Clarification]:
        found = []
        for each in clarifications:
            try:
                found.append(await self._records.find(each, parse_id(each)[0]))
            except NotFound:
                continue  # archived in the meantime: nothing about it can be answered
        return found


def _aside(said: Said) -> Words:
    """To its author alone."""
    return Words(said.text, blocks=said.blocks, recorded=said.recorded)


def _aloud(said: Said, heard: Heard) -> Words:
    """In direct messages, as a message."""
    if not said.recorded:
        return Words(said.text, recorded=False)
    return Words(aloud=said.text, blocks=said.blocks, key=f"aside:{heard.key}")
