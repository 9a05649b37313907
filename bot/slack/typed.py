"""Handles messages that people type: replies in threads, mentions of the bot, direct messages, “Use as answer”.

In a thread with one open question a reply is the answer, with the tables and forwarded messages in it, unless it is talk: it
has the mark of talk (`is_talk`), or mentions someone. A reply that mentions someone still rejects an action; if it begins
like an accept, its author gets a hint. With several open questions the bot asks the author which one they mean, and keeps the
text meanwhile. The bot answers `@clarify stale` in its channel, to the author alone, and a direct message in its
conversation. A reply in a page's thread answers its question, and so does a direct message that is no command, while its
author has exactly one open page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.commands.commands import Commands
from bot.errors import SlackError, StorageUnavailable
from bot.people.access import Person
from bot.people.directory import People
from bot.show.memory import SlackMemory
from bot.show.messages import Messages
from bot.slack import mrkdwn
from bot.slack.answering import Answering, text_id_of
from bot.slack.payloads import Invocation, MessageEvent, moment
from bot.slack.threads import Threads, Unread
from bot.slackapi import Place
from bot.views import phrases
from bot.views.phrases import Recorded, Tell, Told, Unrecorded, explained
from bot.views.wording import ShownRound, round_of
from core import answers
from core.answers import Written, is_talk, without_mark
from core.clarification import Clarification, Question
from core.clock import Clock
from core.errors import AnswerRejected, ClarifyError

JUST_NOW = timedelta(minutes=5)
AGAIN = timedelta(minutes=1)  # between two equal hints to one person
NO_THREAD = (
    "This message is not in the thread of an agent's session, so there is no question it could answer."
)
NOT_A_PERSON = (
    "A person did not write this message. Use a person's reply, or click Answer… on the question's card."
)
BLANK = "This message has no text to use as an answer."


@dataclass(frozen=True, slots=True)
class TypedResponse:
    """The bot's response to a message: `text` to its author alone, or `aloud` to the conversation, once per `key`.

    `recorded` false: the response says that nothing was recorded, so nothing may be recorded later either.
    """

    text: str | None = None
    aloud: str | None = None
    key: str = ""
    blocks: list[dict[str, Any]] | None = None
    recorded: bool = True


@dataclass(frozen=True, slots=True)
class TypedReply:
    """A message with its author and what they wrote, as plain text."""

    message: MessageEvent
    person: Person
    written: Written

    @property
    def text(self) -> str:
        """What they wrote, without what they sent along."""
        return self.written.text

    @property
    def is_from_before(self) -> bool:
        """Whether it may be older than a question that is open now."""
        return self.message.missed or bool(self.message.edited)


@dataclass(kw_only=True, eq=False, repr=False)
class TypedMessages:
    """Decides what a message is (an answer, a command or talk), handles it, and returns the response."""

    answering: Answering
    commands: Commands
    threads: Threads
    memory: SlackMemory
    messages: Messages
    people: People
    unread: Unread
    clock: Clock

    async def handle(self, message: MessageEvent) -> TypedResponse:
        """Handles a message; idempotent.

        Raises:
            StorageUnavailable: nothing was recorded.
        """
        person = Person(message.team or self.people.team, message.user)
        reply = TypedReply(message, person, self._written(message))
        if message.kind in {"edited", "deleted"}:
            return await self._changed(reply)
        if self.is_own(message):
            return TypedResponse()
        if message.kind == "dm":
            return await self._direct(reply)
        return await self._mention(reply) or await self._reply(reply)

    def is_own(self, message: MessageEvent) -> bool:
        """Returns whether the bot wrote it."""
        return message.user == self.people.bot_user

    async def may_answer(self, message: MessageEvent) -> bool:
        """Returns whether a reply in a thread may answer an open question.

        Raises:
            StorageUnavailable, ClarifyError: that cannot be told now.
        """
        written = self._written(message)
        if self._is_to_others(message, written.text) or written.is_blank or is_talk(written.text):
            return False
        asked = await self.threads.asked_in(*message.thread)
        return any(record.is_open for record in self._can_mean(message, asked))

    async def take_as_answer(self, request: Invocation) -> Told:
        """Record a message, without its mark as talk, as the answer of the person who chose “Use as answer”, not of its
        author. Expected errors come back as a reaction.
        """
        written, place = self._written(request), request.place
        written = written._replace(text=without_mark(written.text))
        if not request.by_person:
            return Tell(NOT_A_PERSON)
        if written.is_blank:
            return Tell(phrases.FILE_ONLY if written.files else BLANK)
        try:
            asked = await self.threads.asked_in_session(place.channel, place.thread_ts or request.ts)
            waiting = [record for record in asked or () if record.is_open]
            if len(waiting) > 1:
                name = f"{place.channel}:{request.ts}:{request.person.user}"
                return await self.answering.ask_which(
                    waiting, written, request.person, name, self.clock.now()
                )
            if not waiting:
                return Tell(NO_THREAD if asked is None else phrases.NO_OPEN_QUESTION)
            await self.unread.hear(waiting[0].id, request.person.deadline)
            return await self._answered(waiting[0], written, request.person, place, self.clock.now())
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return explained(error, "of that id")

    def plain(self, text: str) -> str:
        """Returns a person's text without Slack's markup."""
        return mrkdwn.plain(text, self.people.known_name, drop=self.people.bot_user)

    def _written(self, sent: MessageEvent | Invocation) -> Written:
        """Returns what a person wrote and sent along."""
        attached = mrkdwn.plain(sent.attached, self.people.known_name)
        return Written(self.plain(sent.text), attached, sent.files)

    async def _run(self, text: str, reply: TypedReply) -> Told:
        """Run a command that stands in a message. One that changes something takes no attachments."""
        if self.commands.is_change(text) and not reply.written.is_bare:
            return Tell(phrases.NO_ATTACHMENT_TO_COMMANDS)
        return await self.commands.run(text, reply.person, reply.message.place)

    # Mentions

    async def _mention(self, reply: TypedReply) -> TypedResponse | None:
        """Run a command that follows a mention of the bot; returns None if the message is not for the bot. In a thread,
        all but commands are replies. A mention within a message never changes anything.
        """
        message, bot_user = reply.message, self.people.bot_user
        if bot_user not in mrkdwn.people_in(message.text):
            return None
        text = mrkdwn.without(message.text, bot_user)
        first, is_command = mrkdwn.begins_with(message.text, bot_user), self.commands.understands(text)
        is_attached_only = not text and not reply.written.is_bare
        if message.kind != "aside" and (not (first and is_command) or is_attached_only):
            return None
        if not first and not is_command:
            text = mrkdwn.after(message.text, bot_user)
            if not text or not self.commands.understands(text):
                return TypedResponse()  # talk about the bot, not to it
            if self.commands.is_change(text):
                return TypedResponse(phrases.begin_with(bot_user, mrkdwn.plain(text, self.people.known_name)))
        return _privately(await self._run(text, reply))

    def _mentions_someone(self, message: MessageEvent) -> bool:
        return mrkdwn.mentions_someone(message.text, self.people.bot_user)

    def _is_to_others(self, message: MessageEvent, text: str) -> bool:
        """Returns whether a message mentions someone, and its plain `text` does not begin like a decision."""
        return self._mentions_someone(message) and answers.decision_in(text) is None

    def _can_mean(self, message: MessageEvent, asked: list[Clarification]) -> list[Clarification]:
        """Returns the questions of its thread that a reply can be about: if it mentions someone, only approvals."""
        mentions = self._mentions_someone(message)
        return [record for record in asked if record.asked.is_confirmation or not mentions]

    # Direct messages

    async def _direct(self, reply: TypedReply) -> TypedResponse:
        message = reply.message
        about = await self.threads.about_page(*message.thread) if message.thread_ts else ()
        if reply.written.is_blank:
            asked = about or await self.threads.paged_to(message)
            waits = message.files and any(each.is_open for each in await self.threads.found(asked))
            return _aloud(Tell(phrases.FILE_ONLY), message) if waits else TypedResponse()
        if is_talk(reply.text) or (about and self._is_to_others(message, reply.text)):
            return TypedResponse()
        text = mrkdwn.without(message.text, self.people.bot_user)
        try:
            if about and self._mentions_someone(message):
                about = tuple(each.id for each in self._can_mean(message, await self.threads.found(about)))
                if not about:
                    return TypedResponse()
            reaction = await self._answer_page(about, reply)
            is_command = text and self.commands.understands(text)
            if reaction is None and not is_command:
                reaction = await self._answer_page(await self.threads.paged_to(message), reply)
        except (ClarifyError, SlackError) as error:
            return _privately(explained(error, "of that id"))
        if reaction is None and message.edited:
            return TypedResponse()  # an edit is never a command
        if reaction is None and not text:
            reaction = Tell(phrases.ANSWERS_NOTHING)
        return _aloud(reaction or await self._run(text, reply), message)

    async def _answer_page(self, named: Sequence[str], reply: TypedReply) -> Told | None:
        """Record a reply as the answer to one of `named`; returns None if it can mean none of them."""
        meant = await self._meant(reply.message, named) if named else []
        records = await self.threads.found(meant)
        if not records:
            return None
        message, person = reply.message, reply.person
        if (
            done := next((each for each in records if is_by(each, person.user, message.at)), None)
        ) is not None:
            return Tell(phrases.accepted(done))
        waiting = [record for record in records if record.is_open]
        # The page may be older than the reply although the question's newest round is not.
        later = [each for each in waiting if each.round > 1 and await self._is_older(reply, each)]
        if later and len(later) == len(waiting):
            return Tell(phrases.asked_since(later[0]))
        waiting = [record for record in waiting if record not in later]
        if not waiting:
            return Tell(phrases.closed(records[0]) if len(records) == 1 else phrases.NO_OPEN_QUESTION)
        if len(meant) > 1:
            return await self._ask_which(waiting, reply)
        return await self._answered(waiting[0], reply.written, person, message.place, message.at)

    async def _meant(self, message: MessageEvent, named: Sequence[str]) -> list[str]:
        """Returns the clarifications of `named` that a message can mean. Stores the first result, so that a message that is
        handled again after a kill does not answer another question.
        """
        key = f"page-reply:{message.key}"
        if (kept := await self.memory.kept_text(key)) is not None:
            return str(kept["about"]).split()
        meant = [record.id for record in await self.threads.found(named) if record.is_open] or list(named)
        await self.memory.keep_text(key, {"about": " ".join(meant)})
        return meant

    async def _answered(
        self, record: Clarification, written: Written, person: Person, place: Place, at: datetime
    ) -> Told:
        """Record the person's answer to this question; returns what to tell them.

        Raises:
            ClarifyError, SlackError, StorageUnavailable: nothing was recorded; `explained` words it.
        """
        try:
            reaction = await self.answering.answer_text(
                record.id, written, person, place, at=at, round=record.round
            )
        except AnswerRejected as error:
            return Tell(phrases.unreadable_reply(record.asked, str(error)))
        if isinstance(reaction, Recorded):
            return Tell(reaction.text or phrases.accepted(reaction.record))
        return reaction

    # Threads

    async def _changed(self, reply: TypedReply) -> TypedResponse:
        """Handle an edit or deletion. An edited reply that was no answer counts as a new reply, written at the edit. A
        recorded answer stays, and the bot says so in the thread.
        """
        message = reply.message
        kept = await self.memory.kept_text(_answer_key(message))
        if kept is not None:
            found = await self.threads.found([str(kept["clarification"])])
            ignored = [phrases.edit_ignored(record) for record in found]
            return (
                TypedResponse(aloud=ignored[0], key=f"edited:{message.channel}:{message.ts}")
                if ignored
                else TypedResponse()
            )
        if not message.edited:
            return TypedResponse()
        if message.channel.startswith("D"):
            return await self._direct(reply)
        return await self._in_thread(reply)

    async def _reply(self, reply: TypedReply) -> TypedResponse:
        """Handle a reply in a thread that is no command."""
        message, bot_user = reply.message, self.people.bot_user
        if self._is_to_others(message, reply.text):
            return TypedResponse()
        if mrkdwn.begins_with(message.text, bot_user) and not (
            await self.messages.thread_at(*message.thread) or await self.threads.about_page(*message.thread)
        ):
            text = mrkdwn.without(message.text, bot_user)
            return _privately(await self._run(text, reply))  # a hint
        return await self._in_thread(reply)

    async def _in_thread(self, reply: TypedReply) -> TypedResponse:
        """Handle a reply in any thread: of a session, a page, a roll-up card, or not of ours."""
        message, written = reply.message, reply.written
        text, is_empty = written.text, written.is_blank and not written.files
        if is_talk(text) or self._is_to_others(message, text) or is_empty:
            return TypedResponse()
        try:
            asked = await self.threads.asked_in(*message.thread)
            if written.is_blank:
                return await self._file_only(asked, reply)
            if not asked and await self.threads.rollups.held_at(*message.thread) is not None:
                due = await self._is_due(f"{message.channel}:{message.thread_ts}:{message.user}")
                return TypedResponse(phrases.NO_OPEN_QUESTION) if due else TypedResponse()
            is_anothers = message.parent == self.people.bot_user and not asked
            if is_anothers and await self.messages.landed_at(*message.thread) is None:
                return TypedResponse(phrases.ANOTHERS_THREAD, recorded=False)
            return await self._to_one_of(self._can_mean(message, asked), reply)
        except (ClarifyError, SlackError) as error:
            return _privately(explained(error, "of this thread"))

    async def _to_one_of(self, asked: list[Clarification], reply: TypedReply) -> TypedResponse:
        message = reply.message
        if (
            done := next((each for each in asked if is_by(each, message.user, message.at)), None)
        ) is not None:
            await self._remember(done, message)
            return TypedResponse()
        still_open = [record for record in asked if record.is_open]
        # Slack may also deliver a live reply after the next question was shown.
        later = [record for record in still_open if await self._is_older(reply, record)]
        waiting = [record for record in still_open if record not in later]
        decided = [record for record in asked if await self._decided_since(record, reply) is not None]
        if len(waiting) + len(decided) > 1 and waiting:
            return await self._ask_aloud(waiting, decided, reply)
        if waiting:
            return await self._answer(waiting[0], reply)
        if decided:
            return await self._found_late(max(decided, key=_decided_last), reply)
        told = await self._too_late(asked, reply)
        if told.text is None and later and not reply.is_from_before:
            meant = [each for each in later if await self._reads_as(each, reply) is not None]
            return TypedResponse(phrases.asked_since(meant[0])) if meant else told
        return told

    async def _ask_aloud(
        self, waiting: list[Clarification], decided: list[Clarification], reply: TypedReply
    ) -> TypedResponse:
        """Ask in the thread which question a reply answers, unless its author may answer none of them."""
        message = reply.message
        refused = [await self._refusal(record, reply) for record in waiting]
        if refused[0] is not None and all(refused):
            return _privately(refused[0])
        which = await self._ask_which([*waiting, *decided], reply)
        # By this key, whoever forgets the message finds the stored text (`bot.show.memory.forget_asked`).
        key = f"which:{text_id_of(_name(message))}"
        return TypedResponse(aloud=which.text, blocks=which.blocks, key=key)

    async def _ask_which(self, asked: list[Clarification], reply: TypedReply) -> Tell:
        message, at = reply.message, min(reply.message.at, self.clock.now())
        return await self.answering.ask_which(asked, reply.written, reply.person, _name(message), at)

    async def _answer(self, record: Clarification, reply: TypedReply) -> TypedResponse:
        message = reply.message
        try:
            reaction = await self.answering.answer_text(
                record.id, reply.written, reply.person, message.place, at=message.at, round=record.round
            )
        except AnswerRejected as error:
            return await self._hint(record, reply, str(error))
        except (ClarifyError, SlackError) as error:
            return _privately(explained(error, record.id))
        if isinstance(reaction, Recorded):
            await self._remember(reaction.record, message)
            return TypedResponse(reaction.text or None)
        return _privately(reaction)

    async def _decided_since(self, record: Clarification, reply: TypedReply) -> ShownRound | None:
        """Returns the round that a missed reply would have answered in time, had we read it before the decision."""
        if not reply.message.missed:
            return None
        shown = await self._shown_to(record, reply)
        if shown is None or shown.stage == "open":
            return None
        ended = shown.answered_at or (record.resolved_at if shown.is_current else None)
        expires, at = shown.asked.expires_at, reply.message.at
        in_time = expires is None or at < expires
        return shown if in_time and ended is not None and at < ended else None

    async def _shown_to(self, record: Clarification, reply: TypedReply) -> ShownRound | None:
        """Returns the round that was shown when the reply was written."""
        if not await self._is_older(reply, record):
            return round_of(record)
        for number in range(record.round - 1, 0, -1):
            shown = await self.messages.shown_at(record.id, number, reply.message.channel)
            if shown and float(shown) < float(reply.message.ts):
                return round_of(record, number)
        return None

    async def _is_older(self, reply: TypedReply, record: Clarification) -> bool:
        """Returns whether the reply was written before the question was shown, by Slack's clock if possible."""
        ts = reply.message.ts
        shown = await self.messages.shown_at(record.id, record.round, reply.message.channel)
        return float(ts) < float(shown) if shown else moment(ts) < record.asked_last

    async def _found_late(self, record: Clarification, reply: TypedReply) -> TypedResponse:
        """Tell the author and the thread that a reply was in time, but read only after the decision."""
        shown, message = await self._decided_since(record, reply), reply.message
        if shown is None:
            return TypedResponse()
        if (refused := await self._refusal(record, reply)) is not None:
            return _privately(refused)
        if (label := _read_as(shown.asked, reply.written)) is None:
            return TypedResponse()  # talk
        decided = (
            phrases.closed(record) if shown.is_current else phrases.already_answered(record, shown.number)
        )
        return TypedResponse(
            phrases.found_late(label, decided),
            aloud=phrases.found_late_aloud(message.user, label, message.at, decided),
            key=f"found-late:{message.channel}:{message.ts}",
        )

    async def _too_late(self, asked: list[Clarification], reply: TypedReply) -> TypedResponse:
        """Tell people once if they answer just after someone else did; any other reply is talk."""
        closed = [(when, record) for record in asked if (when := _closed_at(record)) is not None]
        if not closed:
            return TypedResponse()
        when, record = max(closed, key=lambda each: each[0])
        by, user = record.given.answered_by, reply.person.user
        if abs(reply.message.at - when) > JUST_NOW or (by is not None and by.user == user):
            return TypedResponse()
        if await self._reads_as(record, reply) is None:
            return TypedResponse()
        first = await self.memory.first_time(f"late:{record.id}:{record.round}:{user}")
        return TypedResponse(phrases.closed(record)) if first else TypedResponse()

    async def _refusal(self, record: Clarification, reply: TypedReply) -> Tell | None:
        """Returns why the author may not answer. Checked before their text is read."""
        return await self.answering.refusal(record, reply.person, reply.message.place)

    async def _reads_as(self, record: Clarification, reply: TypedReply) -> str | None:
        """Returns the label of the answer that a reply gives; None: it gives none, or its author may not answer."""
        if await self._refusal(record, reply) is not None:
            return None
        return _read_as(record.asked, reply.written)

    async def _hint(self, record: Clarification, reply: TypedReply, hint: str) -> TypedResponse:
        """Tell a person how to answer; each hint at most once a minute, unless they may believe that they decided."""
        told = TypedResponse(phrases.unreadable_reply(record.asked, hint))
        if record.asked.is_confirmation and answers.decision_in(reply.text) is not None:
            return told
        kind = hashlib.blake2b(hint.encode(), digest_size=6).hexdigest()
        if not await self._is_due(f"{record.id}:{record.round}:{reply.person.user}:{kind}"):
            return TypedResponse()
        return told

    async def _file_only(self, asked: list[Clarification], reply: TypedReply) -> TypedResponse:
        waiting = [record for record in asked if record.is_open]
        if not waiting:
            return TypedResponse()
        how = f" {answers.hint(waiting[0].asked)}" if len(waiting) == 1 else ""
        return await self._hint(waiting[0], reply, f"{phrases.FILE_ONLY}{how}")

    async def _is_due(self, hint: str) -> bool:
        return await self.memory.is_due(f"hint:{hint}", self.clock.now(), AGAIN)

    async def _remember(self, record: Clarification, message: MessageEvent) -> None:
        """Remember that a message was an answer, for its later edits."""
        await self.memory.keep_text(_answer_key(message), {"clarification": record.id})


def is_by(record: Clarification, user: str, said_at: datetime) -> bool:
    """Returns whether the message of `user` at `said_at` was recorded as the answer or as one of several approvals, even if
    that no longer counts. The ledger keeps milliseconds.
    """
    by, at = record.given.answered_by, record.given.answered_at
    given = [
        (each.user, each.at) for each in (*(record.consent.approvals or ()), *(record.consent.lapsed or ()))
    ]
    given += [(by.user, at)] if by is not None and at is not None else []
    return any(each == user and abs(moment - said_at) < timedelta(milliseconds=1) for each, moment in given)


def _read_as(asked: Question, written: Written) -> str | None:
    """Returns the label of the answer that a message gives; None: it gives none."""
    try:
        return answers.from_written(asked, written).label
    except AnswerRejected:
        return None


def _answer_key(message: MessageEvent) -> str:
    return f"answer:{message.channel}:{message.ts}"


def _decided_last(record: Clarification) -> datetime:
    return _closed_at(record) or record.asked_last


def _closed_at(record: Clarification) -> datetime | None:
    return record.given.answered_at or record.resolved_at


def _name(message: MessageEvent) -> str:
    return f"{message.channel}:{message.ts}"


def _privately(reaction: Told) -> TypedResponse:
    """Returns a response to the author alone."""
    return TypedResponse(
        reaction.text or None, blocks=reaction.blocks, recorded=not isinstance(reaction, Unrecorded)
    )


def _aloud(reaction: Told, message: MessageEvent) -> TypedResponse:
    """Returns a response in a direct message: a message, unless nothing was recorded."""
    if isinstance(reaction, Unrecorded):
        return TypedResponse(reaction.text, recorded=False)
    return TypedResponse(aloud=reaction.text, blocks=reaction.blocks, key=f"aside:{message.key}")
