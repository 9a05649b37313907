"""What is said in Slack, and what it answers: replies in the threads of sessions, pages and roll-up cards
(`ThreadReplies`), mentions of the bot and direct messages to it (`Mentions`), “Use as answer” on a message (`UseAsAnswer`).

In a thread with one open question a reply is the answer, unless it is talk (`is_talk`). With several open questions its
author is asked which one is meant; the text waits meanwhile. `@clarify stale` in a channel is answered there, to its
author alone; a direct message is answered where it was said. A reply in the thread of a page is the answer to its
question, and so is a direct message that is no command while exactly one page is open for its author.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.commands.commands import Commands
from bot.delivery.memory import SqliteSlackMemory
from bot.delivery.rollupplaces import RollupPlaces
from bot.errors import SlackError, StorageUnavailable
from bot.oncall.pages import Pages
from bot.people import Person, Reaction, explained
from bot.routing import Audiences, Thread
from bot.slack import mrkdwn
from bot.slack.answering import Answering
from bot.slack.payloads import MessageEvent
from bot.slackapi import Place
from bot.views import phrases
from bot.views.listing import said
from bot.views.render import Renderer
from bot.views.rounds import Round, round_of
from core import answers
from core.clarification import Answer, Clarification, parse_id
from core.clock import Clock
from core.errors import AnswerRejected, ClarifyError, NotFound
from core.index import Index
from core.ledger import FileLedger
from core.records import parse

_log = logging.getLogger("clarify.replies")
_TALK = re.compile(r"note\s*:|//", re.IGNORECASE)
JUST_NOW = timedelta(minutes=5)
AGAIN = timedelta(minutes=1)  # between two hints to one person
_MOST_ASKED_ABOUT = 100
NO_THREAD = (
    "This message is not in the thread of an agent's session, so there is no question that it could answer."
)
NOT_A_PERSON = (
    "This message is not a person's. Use the words of a person, or press Answer… on the question's card."
)
BLANK = "This message has no text that could be an answer."


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's reply. `ts` names it in its channel; `at` is when they sent it; `text` is plain.

    `missed`: it was not heard live but found later, so it may be older than the question that is open now.
    `to_app`: the thread begins with a message of our Slack app, which another bot may run on, too.
    `files`: it comes with some. `edited`: it was written before `at`, and changed then.
    """

    person: Person
    channel: str
    thread_ts: str
    ts: str
    at: datetime
    text: str
    missed: bool = False
    to_app: bool = False
    files: bool = False
    edited: bool = False

    @property
    def place(self) -> Place:
        return Place(self.channel, self.thread_ts)


@dataclass(frozen=True, slots=True)
class Words:
    """What follows a reply: `text` to its author alone, or `aloud` to the thread, once per `key`.

    With `recorded` false the author is told that nothing was taken, and so it must stay.
    """

    text: str | None = None
    aloud: str | None = None
    key: str = ""
    blocks: list[dict[str, Any]] | None = None
    recorded: bool = True


class ThreadReplies:
    """Which replies in a session's thread, a page's or a roll-up card's are answers, and what the thread is told."""

    def __init__(
        self,
        *,
        answering: Answering,
        ledger: FileLedger,
        memory: SqliteSlackMemory,
        pages: Pages,
        rollup_threads: RollupPlaces,
        renderer: Renderer,
        audiences: Audiences,
        clock: Clock,
    ) -> None:
        self._answering = answering
        self._ledger = ledger
        self._memory = memory
        self._pages = pages
        self._rollup_threads = rollup_threads
        self._renderer = renderer
        self._audiences = audiences
        self._clock = clock
        self._hinted: dict[str, datetime] = {}  # within the last minute

    async def take(self, reply: Reply) -> Words:
        """A reply was made. Handling it twice changes nothing more.

        Raises:
            StorageUnavailable: nothing was recorded.
        """
        if is_talk(reply.text) or not (reply.text.strip() or reply.files):
            return Words()
        try:
            mine = await self._asked_in(reply.channel, reply.thread_ts)
            if not reply.text.strip():
                return self._wordless(mine, reply)
            if not mine and await self._rollup_threads.held_at(reply.channel, reply.thread_ts) is not None:
                return self._none_held(reply)
            if not mine and reply.to_app and not await self._memory.posted(reply.channel, reply.thread_ts):
                return Words(phrases.ANOTHERS_THREAD, recorded=False)
            return await self._in_thread(mine, reply)
        except (ClarifyError, SlackError) as error:
            return _told(explained(error, "of this thread"))

    async def may_answer(self, channel: str, thread_ts: str, text: str) -> bool:
        """Whether a reply in this thread would be read as an answer to something that is open.

        Raises:
            StorageUnavailable, ClarifyError: it is not known now.
        """
        if not text.strip() or is_talk(text):
            return False
        return any(record.is_open for record in await self._asked_in(channel, thread_ts))

    async def was_answer(self, channel: str, ts: str) -> bool:
        """Whether a reply was taken as an answer.

        Raises:
            StorageUnavailable: it is not known now.
        """
        return await self._memory.kept_text(_answer_key(channel, ts)) is not None

    async def changed(self, channel: str, ts: str) -> Words:
        """A reply was edited or deleted: if it was an answer, the thread is told that nothing changes.

        Raises:
            StorageUnavailable: it is not known now.
        """
        kept = await self._memory.kept_text(_answer_key(channel, ts))
        if kept is None:
            return Words()
        try:
            record = await self._answering.find(str(kept["clarification"]))
        except NotFound:
            return Words()
        return Words(aloud=phrases.edit_ignored(record), key=f"edited:{channel}:{ts}")

    async def _asked_in(self, channel: str, thread_ts: str) -> list[Clarification]:
        """What was asked in the thread, or is what the page or the roll-up card that begins it is about."""
        thread = await self._memory.thread_at(channel, thread_ts)
        if thread is not None:
            return await asked_in(thread, self._ledger, self._audiences)
        paged = await self._pages.clarifications_at(channel, thread_ts)
        held = () if paged else await self._rollup_threads.held_at(channel, thread_ts)
        return [await self._answering.find(each) for each in paged or (held or ())[:_MOST_ASKED_ABOUT]]

    async def _in_thread(self, mine: list[Clarification], reply: Reply) -> Words:
        is_done = (record for record in mine if is_by(record, reply.person.user, reply.at))
        if (done := next(is_done, None)) is not None:
            await self._remember(done, reply)
            return Words()
        is_from_before = reply.missed or reply.edited
        waiting = [
            record
            for record in mine
            if record.is_open and not (is_from_before and await self._is_older(reply, record))
        ]
        decided = [record for record in mine if await self._decided_since(record, reply) is not None]
        if len(waiting) + len(decided) > 1 and waiting:
            return await self._ask_which([*waiting, *decided], reply)
        if waiting:
            return await self._answer(waiting[0], reply)
        if decided:
            return await self._found_late(max(decided, key=_decided_last), reply)
        return await self._too_late(mine, reply)

    async def _decided_since(self, record: Clarification, reply: Reply) -> Round | None:
        """The round that a missed reply could have answered in time, had it been known before that was decided."""
        if not reply.missed:
            return None
        shown = await self._shown_to(record, reply)
        if shown is None or shown.stage == "open":
            return None
        ended = shown.answered_at or (record.resolved_at if shown.is_current else None)
        expires = shown.asked.expires_at
        in_time = expires is None or reply.at < expires
        return shown if in_time and ended is not None and reply.at < ended else None

    async def _shown_to(self, record: Clarification, reply: Reply) -> Round | None:
        """The round that was shown when a reply was written."""
        if not await self._is_older(reply, record):
            return round_of(record)
        for number in range(record.round - 1, 0, -1):
            shown = await self._memory.shown_at(record.id, number, reply.channel)
            if shown and float(shown) < float(reply.ts):
                return round_of(record, number)
        return None

    async def _found_late(self, record: Clarification, reply: Reply) -> Words:
        """It was written in time and found after the decision: its author is told, and the thread shows it as that."""
        shown = await self._decided_since(record, reply)
        if shown is None:
            return Words()
        try:
            label = answers.from_text(shown.asked, reply.text).label
        except AnswerRejected:
            return Words()  # talk
        if (refused := await self._answering.refusal(record, reply.person, reply.place)) is not None:
            return _told(refused)
        decided = (
            phrases.closed(record) if shown.is_current else phrases.already_answered(record, shown.number)
        )
        return Words(
            phrases.found_late(label, decided),
            aloud=phrases.found_late_aloud(reply.person.user, label, reply.at, decided),
            key=f"found-late:{reply.channel}:{reply.ts}",
        )

    async def _is_older(self, reply: Reply, record: Clarification) -> bool:
        """Whether the reply was made before the question was shown, by Slack's clock where that is known."""
        shown = await self._memory.shown_at(record.id, record.round, reply.channel)
        return float(reply.ts) < float(shown) if shown else moment(reply.ts) < record.asked_last

    async def _answer(self, record: Clarification, reply: Reply) -> Words:
        def read(asked: Clarification) -> Answer:
            return answers.from_text(asked.asked, reply.text)

        at = min(reply.at, self._clock.now())
        try:
            reaction = await self._answering.answer(record.id, read, reply.person, reply.place, at=at)
        except AnswerRejected as error:
            return self._hint(record, reply, str(error))
        except (ClarifyError, SlackError) as error:
            return _told(explained(error, record.id))
        if reaction.record is not None:
            await self._remember(reaction.record, reply)
        return _told(reaction)

    def _hint(self, record: Clarification, reply: Reply, hint: str) -> Words:
        """How to answer, to one person at most once a minute; another kind of trouble gets its own words."""
        kind = hashlib.blake2b(hint.encode(), digest_size=6).hexdigest()
        if not self._is_due(f"{record.id}:{record.round}:{reply.person.user}:{kind}"):
            return Words()
        return Words(phrases.unreadable_reply(record.asked, hint))

    def _wordless(self, mine: list[Clarification], reply: Reply) -> Words:
        """A file alone."""
        waiting = [record for record in mine if record.is_open]
        if not waiting:
            return Words()
        hint = phrases.FILE_ONLY
        return self._hint(
            waiting[0], reply, f"{hint} {answers.hint(waiting[0].asked)}" if len(waiting) == 1 else hint
        )

    def _none_held(self, reply: Reply) -> Words:
        """A reply to a roll-up card that holds nothing any more."""
        place = f"{reply.channel}:{reply.thread_ts}"
        due = self._is_due(f"{place}:{reply.person.user}")
        return Words(phrases.no_open_question()) if due else Words()

    def _is_due(self, hint: str) -> bool:
        """Whether a hint was not given within the last minute; if so, it is now."""
        now = self._clock.now()
        self._hinted = {each: at for each, at in self._hinted.items() if timedelta(0) <= now - at < AGAIN}
        if hint in self._hinted:
            return False
        self._hinted[hint] = now
        return True

    async def _ask_which(self, waiting: list[Clarification], reply: Reply) -> Words:
        text_id = hashlib.blake2b(f"{reply.channel}:{reply.ts}".encode(), digest_size=8).hexdigest()
        await self._memory.keep_text(
            text_id,
            {
                "text": reply.text,
                "user": reply.person.user,
                "at": min(reply.at, self._clock.now()).isoformat(),
            },
        )
        asked = self._renderer.which_question(waiting[:_MOST_ASKED_ABOUT], text_id)
        return Words(aloud=asked.text, blocks=asked.blocks, key=f"which:{text_id}")

    async def _too_late(self, mine: list[Clarification], reply: Reply) -> Words:
        """Nothing is open. Somebody who answers just after another is told, once; the rest is talk."""
        closed = [(when, record) for record in mine if (when := _closed_at(record)) is not None]
        if not closed:
            return Words()
        when, record = max(closed, key=lambda each: each[0])
        by = record.asked.answered_by
        fresh = -JUST_NOW <= reply.at - when <= JUST_NOW
        if not fresh or (by is not None and by.user == reply.person.user):
            return Words()
        try:
            answers.from_text(record.asked, reply.text)
        except AnswerRejected:
            return Words()
        if not await self._memory.first_time(f"late:{record.id}:{record.round}:{reply.person.user}"):
            return Words()
        return Words(phrases.closed(record))

    async def _remember(self, record: Clarification, reply: Reply) -> None:
        """So that a later edit or deletion is seen to concern an answer."""
        await self._memory.keep_text(_answer_key(reply.channel, reply.ts), {"clarification": record.id})


async def asked_in(thread: Thread, ledger: FileLedger, audiences: Audiences) -> list[Clarification]:
    """What was asked in a thread.

    Raises:
        LedgerUnreadable, LockTimeout: it cannot be known now.
    """
    found = [record for item in await ledger.read(thread.issue) if (record := parse(item)) is not None]
    return [record for record in found if audiences.is_asked_in(thread, record)]


def is_talk(text: str) -> bool:
    """Whether somebody comments without answering: `note: …` in any case, `(…)` as a whole, or `// …`.

    Slack takes what begins with a slash for a command; where it lets `//` through, that is talk as well.
    """
    said = text.strip()
    return _TALK.match(said) is not None or _is_in_parentheses(said)


def _is_in_parentheses(text: str) -> bool:
    """Whether the parenthesis that begins the text ends with it: `(a) or (b)` is none."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for at, character in enumerate(text, 1):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at == len(text)
    return False


def moment(ts: str) -> datetime:
    """Slack's `ts` (seconds since 1970, a point, six digits) as a time.

    Raises:
        ValueError: it is not of that form.
    """
    seconds, _, micros = ts.partition(".")
    return datetime.fromtimestamp(int(seconds), UTC) + timedelta(
        microseconds=int(micros.ljust(6, "0")[:6] or 0)
    )


def _told(reaction: Reaction) -> Words:
    return Words(reaction.text or None, recorded=reaction.recorded)


def _answer_key(channel: str, ts: str) -> str:
    return f"answer:{channel}:{ts}"


def is_by(record: Clarification, user: str, said_at: datetime) -> bool:
    """Whether what `user` said at that moment was recorded as the answer (the ledger keeps milliseconds)."""
    by, at = record.asked.answered_by, record.asked.answered_at
    if by is None or at is None or by.user != user:
        return False
    return abs(at - said_at) < timedelta(milliseconds=1)


def _decided_last(record: Clarification) -> datetime:
    return _closed_at(record) or record.asked_last


def _closed_at(record: Clarification) -> datetime | None:
    return record.asked.answered_at or record.resolved_at


class Mentions:
    """What is said to the bot rather than to an agent: mentions in channels, direct messages, replies to pages there."""

    def __init__(
        self,
        *,
        commands: Commands,
        shortcut: UseAsAnswer,
        ledger: FileLedger,
        memory: SqliteSlackMemory,
        index: Index,
        paged: Callable[[str], frozenset[str]],
        pages: Pages,
        bot_user: str,
        name_of: Callable[[str], str | None],
    ) -> None:
        self._commands = commands
        self._shortcut = shortcut
        self._ledger = ledger
        self._memory = memory
        self._index = index
        self._paged = paged
        self._pages = pages
        self._bot_user = bot_user
        self._name_of = name_of

    async def take(self, heard: MessageEvent, person: Person) -> Words | None:
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

    async def _overheard(self, heard: MessageEvent, person: Person) -> Words:
        """Mentioned in the midst of a message: its rest may be a command; nothing is changed in passing."""
        text = mrkdwn.after(heard.text, self._bot_user)
        if not text or not self._commands.understands(text):
            return Words()  # it was mentioned, not spoken to
        if self._commands.is_change(text):
            return Words(phrases.begin_with(self._bot_user, mrkdwn.plain(text, self._name_of)))
        return _aside(await self._commands.run(text, person, Place(heard.channel, heard.thread_ts or None)))

    async def hint(self, heard: MessageEvent, person: Person) -> Words | None:
        """For a mention that nobody understood, in a thread of no session and no page: how to speak to the bot."""
        if not mrkdwn.begins_with(heard.text, self._bot_user):
            return None
        if await self._pages.clarifications_at(heard.channel, heard.thread_ts):
            return None
        text = mrkdwn.without(heard.text, self._bot_user)
        return _aside(await self._commands.run(text, person, Place(heard.channel, heard.thread_ts or None)))

    async def _direct(self, heard: MessageEvent, person: Person) -> Words:
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

    async def edited(self, heard: MessageEvent, person: Person) -> Words:
        """A direct message was edited: it may be an answer to a page now. Commands are not given so.

        Raises:
            StorageUnavailable: nothing was recorded.
        """
        return await self._direct(replace(heard, kind="dm"), person)

    async def _wordless(self, heard: MessageEvent) -> Words:
        """A file alone, where an answer is waited for."""
        if not heard.files or not heard.thread_ts:
            return Words()
        paged = await self._pages.clarifications_at(heard.channel, heard.thread_ts)
        waits = any(record.is_open for record in await self._found(paged))
        return _aloud(Reaction(phrases.FILE_ONLY), heard) if waits else Words()

    async def _speaks_to_somebody(self, heard: MessageEvent) -> bool:
        """Whether a reply in the thread of a page mentions somebody: talk there, as it is in a session's thread."""
        if not heard.thread_ts or not mrkdwn.speaks_to_somebody(heard.text, self._bot_user):
            return False
        return bool(await self._pages.clarifications_at(heard.channel, heard.thread_ts))

    async def _answer_page(
        self, heard: MessageEvent, text: str, person: Person, place: Place
    ) -> Reaction | None:
        """In the thread of a page."""
        if not heard.thread_ts:
            return None
        named = await self._pages.clarifications_at(heard.channel, heard.thread_ts)
        return await self._answer(named, heard, text, person, place)

    async def _answer_only_page(
        self, heard: MessageEvent, text: str, person: Person, place: Place
    ) -> Reaction | None:
        """Not in a thread: to whichever page is open for this person."""
        escalated = [each.id for each in self._index if each.status == "escalated"]
        named = [each for each in escalated if person.user in self._paged(each)]
        if heard.missed or heard.edited:  # it cannot mean a page that came after it
            pages = await self._pages.open_pages()
            before = {page.clarification for page in pages if page.is_before(heard.channel, heard.ts)}
            named = [each for each in named if each in before]
        return await self._answer(named, heard, text, person, place)

    async def _answer(
        self, named: Sequence[str], heard: MessageEvent, text: str, person: Person, place: Place
    ) -> Reaction | None:
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

    async def _meant(self, heard: MessageEvent, named: Sequence[str]) -> list[str]:
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
                found.append(await self._ledger.find(each, parse_id(each)[0]))
            except NotFound:
                continue  # archived in the meantime: nothing about it can be answered
        return found


def _aside(said: Reaction) -> Words:
    """To its author alone."""
    return Words(said.text, blocks=said.blocks, recorded=said.recorded)


def _aloud(said: Reaction, heard: MessageEvent) -> Words:
    """In direct messages, as a message."""
    if not said.recorded:
        return Words(said.text, recorded=False)
    return Words(aloud=said.text, blocks=said.blocks, key=f"aside:{heard.key}")


class UseAsAnswer:
    """“Use as answer” on a message in a session's thread: its text is the answer of whoever chose that."""

    def __init__(
        self,
        *,
        answering: Answering,
        ledger: FileLedger,
        memory: SqliteSlackMemory,
        renderer: Renderer,
        audiences: Audiences,
        clock: Clock,
    ) -> None:
        self._answering = answering
        self._ledger = ledger
        self._memory = memory
        self._renderer = renderer
        self._audiences = audiences
        self._clock = clock

    async def use(
        self, text: str, ts: str, person: Person, place: Place, *, by_person: bool = True
    ) -> Reaction:
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
            return self._words(reaction.text, recorded=reaction.recorded)

    async def _in(self, thread: Thread, text: str, ts: str, person: Person, place: Place) -> Reaction:
        asked = await asked_in(thread, self._ledger, self._audiences)
        waiting = [record for record in asked if record.is_open]
        if not waiting:
            return self.nothing_open()
        if len(waiting) > 1:
            return await self.ask_which(waiting, text, ts, person, place)
        return await self.answer(waiting[0], text, person, place)

    def nothing_open(self) -> Reaction:
        """There is no question that it could answer."""
        return self._words(phrases.no_open_question())

    def accepted(self, record: Clarification) -> Reaction:
        """Its answer was taken."""
        return self._words(phrases.accepted(record))

    def closed(self, records: list[Clarification]) -> Reaction:
        """None of them takes an answer any more: of one is said who answered."""
        return self._words(phrases.closed(records[0])) if len(records) == 1 else self.nothing_open()

    async def answer(
        self, record: Clarification, text: str, person: Person, place: Place, at: datetime | None = None
    ) -> Reaction:
        """`text` is the person's answer to this question, given at `at` (None: now).

        Raises:
            ClarifyError, SlackError, StorageUnavailable: nothing was recorded; `explained` has the words.
        """

        def read(asked: Clarification) -> Answer:
            return answers.from_text(asked.asked, text)

        now = self._clock.now()
        try:
            reaction = await self._answering.answer(record.id, read, person, place, at=min(at or now, now))
        except AnswerRejected as error:
            return self._words(phrases.unreadable_reply(record.asked, str(error)))
        if reaction.record is not None:
            return self.accepted(reaction.record)
        return self._words(reaction.text, recorded=reaction.recorded)

    async def ask_which(
        self, waiting: list[Clarification], text: str, ts: str, person: Person, place: Place
    ) -> Reaction:
        """Which of several questions is meant? The text waits, as a reply does (`bot.slack.replies`).

        Raises:
            StorageUnavailable: it could not be kept.
        """
        name = f"{place.channel}:{ts}:{person.user}"
        text_id = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
        kept: dict[str, object] = {"text": text, "user": person.user, "at": self._clock.now().isoformat()}
        await self._memory.keep_text(text_id, kept)
        asked = self._renderer.which_question(waiting[:_MOST_ASKED_ABOUT], text_id)
        return Reaction(asked.text, blocks=asked.blocks)

    def _words(self, text: str, *, recorded: bool = True) -> Reaction:
        message = self._renderer.command_answer(said(text))
        return Reaction(message.text, blocks=message.blocks, recorded=recorded)
