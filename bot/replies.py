"""Replies in a session's thread, or in a page's: which of them are answers, and what the thread is told. Knows no
Slack formats.

In a thread with one open question a reply is the answer, unless it is talk (`is_talk`). With several open questions its
author is asked which one is meant; the text waits meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from bot import phrases
from bot.audience import Audiences
from bot.desk import Desk, Records
from bot.errors import SlackError
from bot.oncall.pages import Pages
from bot.people import Person, Reaction, explained
from bot.ports import Place, RollupThreads, SlackMemory, Thread
from bot.rounds import Round, round_of
from core import answers
from core.clarification import Answer, Clarification
from core.clock import Clock
from core.errors import AnswerRejected, ClarifyError, NotFound
from core.records import parse

_log = logging.getLogger("clarify.replies")
_TALK = re.compile(r"note\s*:|//", re.IGNORECASE)
JUST_NOW = timedelta(minutes=5)
AGAIN = timedelta(minutes=1)  # between two hints to one person
_MOST_ASKED_ABOUT = 100


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


class Asks(Protocol):
    """Renders the question which question was meant."""

    def __call__(self, records: list[Clarification], text_id: str) -> tuple[str, list[dict[str, Any]]]: ...


class ThreadReplies:
    def __init__(
        self,
        *,
        desk: Desk,
        records: Records,
        memory: SlackMemory,
        pages: Pages,
        rollup_threads: RollupThreads,
        which: Asks,
        audiences: Audiences,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._records = records
        self._memory = memory
        self._pages = pages
        self._rollup_threads = rollup_threads
        self._which = which
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
            record = await self._desk.find(str(kept["clarification"]))
        except NotFound:
            return Words()
        return Words(aloud=phrases.edit_ignored(record), key=f"edited:{channel}:{ts}")

    async def _asked_in(self, channel: str, thread_ts: str) -> list[Clarification]:
        """What was asked in the thread, or is what the page or the roll-up card that begins it is about."""
        thread = await self._memory.thread_at(channel, thread_ts)
        if thread is not None:
            return await asked_in(thread, self._records, self._audiences)
        paged = await self._pages.clarifications_at(channel, thread_ts)
        held = () if paged else await self._rollup_threads.held_at(channel, thread_ts)
        return [await self._desk.find(each) for each in paged or (held or ())[:_MOST_ASKED_ABOUT]]

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
        if (refused := await self._desk.refusal(record, reply.person, reply.place)) is not None:
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
            reaction = await self._desk.answer(record.id, read, reply.person, reply.place, at=at)
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
        text, blocks = self._which(waiting[:_MOST_ASKED_ABOUT], text_id)
        return Words(aloud=text, blocks=blocks, key=f"which:{text_id}")

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


async def asked_in(thread: Thread, records: Records, audiences: Audiences) -> list[Clarification]:
    """What was asked in a thread.

    Raises:
        LedgerUnreadable, LockTimeout: it cannot be known now.
    """
    found = [record for item in await records.read(thread.issue) if (record := parse(item)) is not None]
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
    return Words(reaction.text, recorded=reaction.recorded)


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
