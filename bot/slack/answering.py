"""Turns clicks and submitted modals into answers (`Answering`), and shows people the results (`Interactions`).

When `Answering` returns, the answer is in the ledger, or the reaction says that nothing was recorded. Reactions go out
after the ack (`Background`), except "nothing was recorded", which must arrive before it. Replies in threads go through
`Answering`, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bot.commands.commands import Commands
from bot.errors import BadPress, SlackError, StorageUnavailable
from bot.people.access import AccessControl, Person
from bot.people.directory import People
from bot.routing import Audiences, audience_of
from bot.show.memory import SlackMemory
from bot.show.messages import Messages
from bot.slack import mrkdwn
from bot.slack.payloads import Click, Invocation, Submission, opened_from
from bot.slack.socket import Background, Unacknowledged
from bot.slack.threads import MOST_ASKED_ABOUT, Unread
from bot.slackapi import Gateway, Place
from bot.views import phrases
from bot.views.codec import ListPress, Press
from bot.views.forms import SubmissionErrors, full_view, message_modal, read_accept, read_submission
from bot.views.lists import ROLLUP_PAGE, rollup_modal, which_question
from bot.views.phrases import FieldErrors, OpenModal, Reaction, Recorded, Tell, Told, Unrecorded, explained
from bot.views.render import Renderer
from bot.views.verify import Proof, verify_view
from core import answers
from core.answers import Written
from core.approvals import check_first, check_four_eyes, check_seen, why_refused
from core.clarification import Answer, Clarification, Decider, Holder
from core.clock import Clock
from core.errors import BadInput, ClarifyError
from core.index import Index
from core.ledger import Ledger
from core.router import Router
from core.summary import page_of, urgency
from core.transitions import NotOpen

_log = logging.getLogger("clarify.slack")
_answers_log = logging.getLogger("clarify.answering")
View = dict[str, Any]
Read = Callable[[Clarification], Answer]
NOT_YOUR_REPLY = "Only the person who wrote the reply can say which question it answers."
REPLY_FORGOTTEN = "That reply is no longer waiting. Please answer on the question's card."
MODAL_FAILED = "Slack did not show the window in time. Please click the button again."
COMMAND_FAILED = "Something went wrong. Nothing was changed. Please try again, or see “/clarify help”."
_EXPECTED = (ClarifyError, SlackError, StorageUnavailable)
_TELLING = 0.7  # seconds that remain of Slack's three after waiting for a ledger's lock
_SOON = 0.2  # seconds: a response that is ready by then goes with the acknowledgement, a later one follows it


class NotShownWhole(Exception):
    """The card did not show the whole action: the person must read all of it before accepting."""

    def __init__(self, record: Clarification) -> None:
        super().__init__(record.id)
        self.record = record


@dataclass(kw_only=True, eq=False, repr=False)
class Answering:
    """Checks who may answer, has the router record the answer, and opens the modals.

    `memory` keeps replies until their authors say which question they answer; `refresh` updates a clarification's cards
    and pages; `prove` checks the receipt of a round.
    """

    router: Router
    ledger: Ledger
    memory: SlackMemory
    messages: Messages
    access: AccessControl
    people: People
    renderer: Renderer
    index: Index
    audiences: Audiences
    unread: Unread
    clock: Clock
    refresh: Callable[[str], None]
    prove: Callable[[Clarification, int], Awaitable[Proof]]

    async def press(self, press: Press, person: Person, place: Place) -> Reaction:
        """Do what the clicked control does, if this person may; anyone may look."""
        reaction: Reaction
        try:
            match press.verb:
                case "yes" | "no" | "choice" | "select" | "accept" | "reject":
                    reaction = await self._answer_by_press(press, person, place)
                case "which":
                    reaction = await self._answer_with_kept_text(press, person, place)
                case "take" | "letgo":
                    reaction = await self._own(press, person, place)
                case "answer" | "review":
                    reaction = await self._open(press, person, place)
                case "view":
                    record = await self.ledger.find(press.clarification)
                    reaction = OpenModal(await asyncio.to_thread(self._whole, record, press))
                case "verify":
                    record = await self.ledger.find(press.clarification)
                    proof = await self.prove(record, press.round)
                    shown = verify_view(record, press.round, proof, self._locale_of(person))
                    reaction = OpenModal(self.renderer.view(shown))
                case "list" | "page":
                    reaction = OpenModal(await self._list(press))
        except BadPress as error:
            _answers_log.warning("cannot read a control: %s", error)
            reaction = Tell(phrases.UNREADABLE_PRESS)
        except _EXPECTED as error:
            reaction = self._explained(error, press.clarification)
        return reaction

    async def show_again(self, channel: str, ts: str) -> None:
        """Post the card of an open question again, if that was the deleted message.

        Raises:
            StorageUnavailable: the storage cannot tell.
        """
        row = await self.messages.landed_at(channel, ts)
        if row is not None and row.kind == "card" and row.clarification is not None:
            self.refresh(row.clarification)

    async def submit(self, press: Press, sent: Submission) -> Reaction:
        """Record a submitted modal: an answer, or an accept. Errors come back as `errors`, or as a view that replaces the
        modal.
        """

        def read(record: Clarification) -> Answer:
            if press.verb == "accept":
                return read_accept(sent.values, record)
            return read_submission(sent.values, record, press.arg)

        person, place, now = sent.person, sent.place, self.clock.now()
        reaction: Told | Recorded
        try:
            await self.unread.hear(press.clarification, person.deadline)
            reaction = await self.answer(
                press.clarification, read, person, place, at=now, round=press.round, version=press.arg
            )
        except SubmissionErrors as error:
            return FieldErrors(error.errors)
        except _EXPECTED as error:
            if isinstance(error, BadInput) and sent.values:
                return FieldErrors(dict.fromkeys(sent.values, str(error)))
            reaction = self._explained(error, press.clarification)
        if isinstance(reaction, Recorded) or (sent.values and isinstance(reaction, Unrecorded)):
            return reaction
        return OpenModal(self.notice(reaction.text))

    def _explained(self, error: Exception, clarification: str) -> Told:
        """Returns what to tell the person. If the question is closed, also updates its cards."""
        if isinstance(error, NotOpen):
            self.refresh(clarification)
        return explained(error, clarification)

    async def answer(
        self,
        clarification_id: str,
        read: Read,
        person: Person,
        place: Place,
        *,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
        version: str | None = None,
    ) -> Tell | Recorded:
        """Check access, then have the router record the answer. `version`: of the arguments that the person saw.

        Raises:
            ClarifyError, SlackError, StorageUnavailable: nothing was recorded; `explained` words it.
            SubmissionErrors: from `read`.
        """
        # What was asked or answered lately is in memory.
        seen = await self.index.find(clarification_id, self.ledger)
        if (refused := await self.refusal(seen, person, place, partial(_tried, read, seen))) is not None:
            return refused

        async def decide(decider: Decider) -> Clarification:
            return await self.router.answer(clarification_id, read, decider, at, round, version=version)

        return Recorded(await self.access.deciding(person, seen, decide, place.channel))

    async def answer_text(
        self,
        clarification_id: str,
        written: Written,
        person: Person,
        place: Place,
        *,
        at: datetime,
        round: int | None = None,  # noqa: A002 - as above
    ) -> Tell | Recorded:
        """Like `answer`, with what the person wrote at `at`."""

        def read(record: Clarification) -> Answer:
            return answers.from_written(record.asked, written)

        at = min(at, self.clock.now())
        reaction = await self.answer(clarification_id, read, person, place, at=at, round=round)
        return replace(reaction, left_out=written.files) if isinstance(reaction, Recorded) else reaction

    async def ask_which(
        self, waiting: Sequence[Clarification], written: Written, person: Person, name: str, at: datetime
    ) -> Tell:
        """Store what a person wrote under the id of `name`, and ask which question it answers.

        Raises:
            StorageUnavailable: the text is not stored.
        """
        text_id = text_id_of(name)
        kept: dict[str, object] = {**written._asdict(), "user": person.user, "at": at.isoformat()}
        await self.memory.keep_text(text_id, kept)
        asked = self.renderer.message(which_question(list(waiting[:MOST_ASKED_ABOUT]), text_id))
        return Tell(asked.text, blocks=asked.blocks)

    async def refusal(
        self,
        seen: Clarification,
        person: Person,
        place: Place,
        tried: Callable[[], str | None] | None = None,
    ) -> Tell | None:
        """Returns why this person may not answer, or None if they may. `tried`: returns the decision that they tried to
        give, if known; None: they did not try.

        Raises:
            SlackError: Slack could not tell who they are.
        """
        refusal = await self.access.refusal(person, place.channel, audience_of(seen), seen.id)
        if refusal is None:
            return None
        _answers_log.warning(
            "refused a click: %s, team %s, user %s: %s", seen.id, person.team, person.user, refusal.why
        )
        if tried is not None:
            self.router.note_refusal(seen, self.access.refused(person), refusal.reason, tried())
        return Tell(phrases.not_allowed(refusal.why, refusal.answerers))

    def notice(self, phrase: str) -> View:
        """Returns a modal with this text."""
        return self.renderer.view(message_modal("Not answered", self.plain(phrase)))

    def plain(self, phrase: str) -> str:
        """Returns a phrase without markup, for places where Slack formats nothing."""
        return mrkdwn.plain(phrase, self.people.known_name)

    async def _own(self, press: Press, person: Person, place: Place) -> Reaction:
        """Take an open question, take it over, or release it."""
        record = await self.ledger.find(press.clarification)
        if (refused := await self.refusal(record, person, place)) is not None:
            return refused
        if press.round < record.round:
            return Tell(phrases.STALE_CARD)
        holder = Holder(user=person.user, team=person.team or None, at=self.clock.now())
        if press.verb == "letgo":
            after = await self.router.release(record.id, person.user)
        elif press.arg:
            after = await self.router.take_over(record.id, holder)
        else:
            after = await self.router.claim(record.id, holder)
        return Tell(phrases.owned(after, person.user))

    async def _answer_by_press(self, press: Press, person: Person, place: Place) -> Reaction:
        def read(record: Clarification) -> Answer:
            if press.verb in {"yes", "no"}:
                return answers.from_yes_no(record.asked, press.verb == "yes")
            # A card of an earlier release, or a reason is wanted.
            if press.verb == "accept" and (
                record.asked.reason_wanted or not self.renderer.shows_whole(record)
            ):
                raise NotShownWhole(record)
            if press.verb == "accept" or press.verb == "reject":  # noqa: PLR1714 - it tells the types
                return answers.from_decision(record.asked, press.verb)
            return answers.from_choices(record.asked, [press.number()])

        now = self.clock.now()
        await self.unread.hear(press.clarification, person.deadline)
        try:
            return await self.answer(
                press.clarification, read, person, place, at=now, round=press.round, version=press.arg
            )
        except NotShownWhole as error:
            return OpenModal(self.renderer.accept_modal(error.record, 1, self._locale_of(person)))

    async def _answer_with_kept_text(self, press: Press, person: Person, place: Place) -> Reaction:
        """Record a stored reply, now that its author says which question it answers."""
        await self.unread.hear(press.clarification, person.deadline)
        kept = await self.memory.kept_text(press.arg)
        if kept is None:
            return Tell(REPLY_FORGOTTEN)
        if kept.get("user") != person.user:
            return Tell(NOT_YOUR_REPLY)
        at = datetime.fromisoformat(str(kept["at"]))
        written = Written(str(kept["text"]), str(kept.get("attached", "")), bool(kept.get("files")))
        return await self.answer_text(press.clarification, written, person, place, at=at, round=press.round)

    async def _open(self, press: Press, person: Person, place: Place) -> Reaction:
        """Returns the modal to answer a question, or to read a whole action and accept it."""
        record = await self.ledger.find(press.clarification)
        tried = "accept" if press.verb == "review" else None
        if (refused := await self.refusal(record, person, place, lambda: tried)) is not None:
            return refused
        if not record.is_open:
            return Tell(phrases.closed(record))
        if press.round < record.round:
            return Tell(phrases.STALE_CARD)
        if press.verb == "answer":
            reader = self._locale_of(person), person.user
            return OpenModal(await asyncio.to_thread(self.renderer.answer_modal, record, *reader))
        check_seen(record, press.version)  # every page must show the same arguments
        decider = await self.access.decider_of(person, record, place.channel)
        try:
            check_four_eyes(record, decider)
        except ClarifyError as error:
            if (why := why_refused(error, decider)) is not None:
                self.router.note_refusal(record, decider, why, tried)
            raise
        check_first(record, decider)  # before they read it all again
        return OpenModal(
            await asyncio.to_thread(
                self.renderer.accept_modal, record, press.number(), self._locale_of(person)
            )
        )

    def _locale_of(self, person: Person) -> str:
        """Returns a person's locale as far as Slack said it before: no click waits for it."""
        return self.people.known_locale(person.user)

    def _whole(self, record: Clarification, press: Press) -> View:
        """Runs in a thread: a large view must not hold up other clicks."""
        return self.renderer.view(full_view(record, round=press.round, page=press.number()))

    async def _list(self, press: Press) -> View:
        """Returns a page of the agent's open questions in the same channel, most urgent first."""
        group = self.audiences.group(await self.ledger.find(press.clarification))
        shown = (each for each in self.index if each.is_open and self.audiences.shows(each))
        mine = sorted((each for each in shown if self.audiences.group(each) == group), key=urgency)
        page = page_of(mine, press.number(), ROLLUP_PAGE)
        read = await self.index.readable(page.items, self.ledger)
        return self.renderer.view(rollup_modal(page.of(read)))


def _tried(read: Read, seen: Clarification) -> str | None:
    """Returns the decision about an action that a person tried to give, if it can be read."""
    if not seen.asked.is_confirmation:
        return None
    try:
        return str(read(seen).response)
    except NotShownWhole:
        return "accept"
    except (ClarifyError, SubmissionErrors):
        return None


@dataclass(kw_only=True, eq=False, repr=False)
class Interactions:
    """Shows people the reaction to what they did, as a message or a modal, and runs commands while Slack waits.

    `gateway` has a client without retry handlers: a trigger opens one modal only.
    """

    answering: Answering
    commands: Commands
    gateway: Gateway
    later: Background

    def seen(self, channel: str) -> None:
        """Notes that a person clicked or wrote in a conversation: what is in their direct messages is read."""
        if channel.startswith("D"):
            self.answering.messages.seen(channel)

    async def settle(self, click: Click, reaction: Reaction, *, is_answer: bool = False) -> None:
        """Show the reaction to the person. If nothing was recorded, a message is enough once Slack has taken it; for an
        answer only if the ledger was busy, and never behind a modal, where it could go unseen.

        Raises:
            Unacknowledged: Slack has to show an error.
        """
        if not isinstance(reaction, Unrecorded):
            self.react(click, reaction)
            return
        if click.surface in {"message", "ephemeral"} and (reaction.busy or not is_answer):
            if await self.tell_in_time(click, reaction):
                return
        else:
            self.react(click, reaction)
        raise Unacknowledged("nothing was recorded of a press, or nobody could be told")

    def react(self, click: Click, reaction: Reaction) -> None:
        """Show the reaction to a click, after the acknowledgement."""
        match reaction:
            case OpenModal(view):
                self._open(click, view)
            case Recorded(record) if not reaction.text:
                if click.surface == "ephemeral":
                    self.respond(click, Tell(phrases.accepted(record)), replace=True)
            case Recorded(_):
                self._tell_back(click, Tell(reaction.text))
            case Tell() | Unrecorded() if reaction.text:
                self._tell_back(click, reaction)

    def _tell_back(self, click: Click, told: Told) -> None:
        """Opens a modal for clicks in a modal or on the Home tab, where an ephemeral message would go unseen."""
        if click.surface in {"modal", "home"}:
            self._open(click, self.answering.notice(told.text))
        else:
            self.respond(click, told)

    def _open(self, click: Click, view: View) -> None:
        self.later.run(self._show(click, opened_from(view, click.place, click.person)), "open a modal")

    async def tell_in_time(self, act: Click | Invocation, reaction: Told) -> bool:
        """Tell the person before the acknowledgement; returns whether Slack took it in time."""
        try:
            async with asyncio.timeout(_TELLING):
                return await self._reply(act, reaction)
        except TimeoutError:
            return False

    def tell(self, person: Person, place: Place, text: str) -> None:
        """Tell the person alone, after the acknowledgement; does nothing for an empty text."""
        if text:
            self.later.run(self.gateway.tell(person.user, place, text), "tell a person")

    def respond(self, act: Click | Invocation, reaction: Told, *, replace: bool = False) -> None:
        """Answer through a response_url, after the acknowledgement."""
        self.later.run(self._reply(act, reaction, replace=replace), "answer through a response_url")

    async def run_command(self, request: Invocation) -> Told | None:
        """Run a command. Returns the response to send with the acknowledgement; None: it follows later.

        Commands that change something are done when this returns.
        """
        text, person, place = request.text, request.person, request.place
        if self.commands.is_change(text):
            return await self.commands.run(text, person, place)
        work = self.commands.run(text, replace(person, deadline=None), place)
        task = asyncio.create_task(work, name="read for a command")
        done, _ = await asyncio.wait({task}, timeout=_SOON)
        if done:
            return task.result()
        self.later.run(self._follow(request, task), "answer a command")
        return None

    async def search(self, text: str, click: Click) -> OpenModal:
        """Search what a person typed on their Home tab."""
        return OpenModal(await self.commands.window(f"search {text}", click.person))

    async def press_list(self, press: ListPress, click: Click) -> Told | OpenModal:
        """Take a question from a list, or turn a page: the new page replaces the list later."""
        if press.verb == "page" and click.surface == "modal":
            return OpenModal(await self.commands.window(press.arg, click.person, press.number))
        if press.verb == "take":
            return await self.commands.claim(press.arg, click.person)
        if self.commands.is_change(press.arg):  # not a list, and it would be acknowledged before it is done
            return Tell(phrases.UNREADABLE_PRESS)
        person = replace(click.person, deadline=None)
        work = self.commands.run(press.arg, person, click.place, press.number)
        self.later.run(self._follow(click, work, replace=True), "show a page")
        return Tell()

    async def _reply(self, act: Click | Invocation, reaction: Told, *, replace: bool = False) -> bool:
        """Respond through the response_url, or else with an ephemeral message in the same conversation; returns whether Slack
        took it. `replace`: replace the message that they acted on.

        Source: docs.slack.dev, "Handling user interaction", message responses.
        """
        if urlsplit(act.response_url).scheme in {"http", "https"}:
            body: dict[str, Any] = {
                "text": reaction.text,
                "response_type": "ephemeral",
                "replace_original": replace,
            }
            if isinstance(act, Click) and act.place.thread_ts and not replace:
                body["thread_ts"] = act.place.thread_ts  # else Slack shows it in the channel
            if reaction.blocks:
                body["blocks"] = reaction.blocks
            if await self.gateway.respond(act.response_url, body):
                return True
        if not act.place.channel:
            return False
        return await self.gateway.tell(act.person.user, act.place, reaction.text, reaction.blocks)

    async def _follow(self, act: Click | Invocation, work: Awaitable[Told], *, replace: bool = False) -> None:
        try:
            reaction = await work
        except Exception:
            await self._reply(act, Tell(COMMAND_FAILED))
            raise
        await self._reply(act, reaction, replace=replace)

    async def _show(self, click: Click, view: dict[str, Any]) -> None:
        """Open a modal. In a modal, another page of it replaces it, and any other modal goes on top."""
        web, show = self.gateway.client, self.gateway.show
        if click.surface != "modal":
            failed = await show(web.views_open, view, trigger_id=click.trigger)
        elif click.callback and view.get("callback_id") == click.callback:
            failed = await show(web.views_update, view, view_id=click.view_id)
        else:
            failed = await show(web.views_push, view, trigger_id=click.trigger)
        if failed is not None:
            _log.warning("cannot open a modal: %r", failed)
            await self._reply(click, Tell(MODAL_FAILED))


def text_id_of(name: str) -> str:
    """Returns the id of a stored text, from the name of where it was written: it fits on a button."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
