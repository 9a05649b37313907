"""What parties do to clarifications, as data: each move says what must have come of it where nobody else moved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from core import aaep, clarification
from core.answers import from_text
from core.clarification import Ask, Choice, Clarification, Decider, Kind, Question, ReplyState
from core.errors import ClarifyError
from core.matching import SessionNews
from core.transitions import MaxRoundsExceeded, NotOpen
from tests.kit.builders import asking
from tests.unit.core.parties import Party
from tests.unit.core.witness import DONE, OPEN, Raw, Witness

MINUTE = timedelta(minutes=1)
Time = Literal["now", "early", "expired"]


class Move(ABC):
    """`alone`: nobody else moves meanwhile, so that it can be said what must come of it."""

    @abstractmethod
    async def make(self, party: Party, witness: Witness, alone: bool) -> None: ...


def expect(true: object, *what: object) -> None:
    if not true:
        raise AssertionError(*what)


def pick(witness: Witness, which: int, likely: Callable[[Raw], bool] = lambda _: False) -> Raw | None:
    """One of the records: those that are `likely` first, of these the latest."""
    records = witness.records()[::-1]
    records.sort(key=lambda one: not likely(one))
    return records[which % len(records)] if records else None


def is_open(record: Raw) -> bool:
    return record["status"] in OPEN


def is_answered(record: Raw) -> bool:
    return bool(record["status"] == "answered")


def waits_for_reply(record: Raw) -> bool:
    """Its producer was answered, or is about to be."""
    return record["aaep"].get("reply") is not None


def kept(record: Clarification, witness: Witness) -> None:
    """What a call returned is in the ledger, whatever others did since."""
    there = witness.record(record.id)
    bodies = [(entry.type, entry.from_, entry.body) for entry in record.thread]
    found = [(entry["type"], entry["from"], entry["body"]) for entry in there["thread"]]
    expect(found[: len(bodies)] == bodies and there["revision"] >= record.revision, record.id, "not kept")


def refused(error: ClarifyError, before: Raw, witness: Witness, alone: bool, codes: set[str]) -> None:
    """It was refused for a reason that there is; at most its time was found to have run out."""
    if error.code not in codes:
        raise error
    if not alone:
        return
    changed = [(change.after["id"], change.after["status"]) for change in witness.changes]
    expect(changed in ([], [(before["id"], "abandoned")]), changed, error)
    if isinstance(error, NotOpen) and error.code != "SUPERSEDED":
        expect(changed or before["status"] in {*DONE, "answered"}, before["status"], error)


def ran_out(record: Raw, at: datetime) -> bool:
    expires = record["aaep"].get("expiresAt")
    return expires is not None and datetime.fromisoformat(expires) <= at


def words_for(record: Raw, *, fits: bool) -> str:
    kinds = record["aaep"].get("kinds", ["freetext"])
    if "freetext" in kinds:
        return "As you like it" if fits else "  "
    return ("yes" if "yes_no" in kinds else "2") if fits else "perhaps"


def reader(text: str) -> Callable[[Clarification], clarification.Answer]:
    return lambda record: from_text(record.asked, text)


def person(number: int) -> Decider:
    return Decider(f"user:slack/T1/U{number}", "slack", "T1", f"U{number}")


def time_of(at: Time, record: Raw, party: Party) -> datetime:
    expires = record["aaep"].get("expiresAt")
    late = datetime.fromisoformat(expires) + MINUTE if expires else party.clock.now()
    return {"now": party.clock.now(), "early": party.clock.now() - 5 * MINUTE, "expired": late}[at]


ISSUES = (1, 2)
_ROLES = ("engineer", "architect", "human")
_TOPICS = (None, "storage", "rollout")
_KINDS: tuple[tuple[Kind, ...], ...] = (("freetext",), ("yes_no",), ("multiple_choice",))
_CHOICES = (Choice("a", "Alpha"), Choice("b", "Beta"))


@dataclass(frozen=True)
class Event(Move):
    """A producer's question. The same token with the same words is the same question."""

    session: int
    token: int
    words: int
    topic: int = 0
    kinds: int = 0
    minutes: int | None = None

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        issue, now = ISSUES[self.session % len(ISSUES)], party.clock.now()
        ask = self._ask(now)
        known = (issue, f"sess_{self.session}", f"rpl_{self.token}", ask.question)
        again = known in witness.asked
        session = [each for each in witness.tried if each[:2] == known[:2]]
        # A token of one round with the words of another is taken for known: nobody can tell it from a replay.
        mixed = known[2] in {each[2] for each in session} and known[3] in {each[3] for each in session}
        is_sure = again or not mixed
        witness.tried.add(known)
        opened = await party.router.open(issue, ask)
        witness.asked.add(known)
        kept(opened.record, witness)
        if alone and is_sure:
            expect((opened.how == "duplicate") == again == (not witness.changes), opened.how, again)
            expect(again or opened.record.question == ask.question)

    def _ask(self, now: datetime) -> Ask:
        kinds = _KINDS[self.kinds]
        return asking(
            producer="planner",
            agent_id="engineer",
            session_id=f"sess_{self.session}",
            event_id=f"evt_{self.token}",
            reply_token=f"rpl_{self.token}",
            question=f"Question {self.words} of ours?",
            to="human",
            topic=_TOPICS[self.topic],
            blocking=True,
            asked_at=now,
            received_at=now,
            expires_at=None if self.minutes is None else now + self.minutes * MINUTE,
            kinds=kinds,
            choices=_CHOICES if "multiple_choice" in kinds else (),
            max_rounds=2,
        )


@dataclass(frozen=True)
class Between(Move):
    """One agent asks another; the same topic, once answered, is the next round."""

    issue: int
    asker: int
    target: int
    topic: int
    words: int
    blocking: bool = True

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        words = f"Question {self.words} between us?"
        asker, target, topic = _ROLES[self.asker], _ROLES[self.target], _TOPICS[self.topic]
        ask = Ask(asker, words, target, topic, blocking=self.blocking, asked=Question())
        exhausted = False
        try:
            record = await party.hub.request(ISSUES[self.issue], ask)
        except MaxRoundsExceeded as error:
            record, exhausted = error.record, True
            expect(record.status == "escalated" and record.round <= record.max_rounds)
        kept(record, witness)
        if alone:  # what people have already is not written again
            expect((exhausted and not witness.changes) or record.question == words, record)
            expect(len(witness.changes) <= 1)


@dataclass(frozen=True)
class Further(Move):
    """The next question of a matter, by its id."""

    which: int

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        if (before := pick(witness, self.which, is_answered)) is None:
            return
        exhausted = False
        try:
            kept(await party.hub.follow_up(before["id"], "And then?"), witness)
        except MaxRoundsExceeded as error:
            kept(error.record, witness)
            exhausted = True
        except ClarifyError as error:
            refused(error, before, witness, alone, {"BAD_INPUT", "ILLEGAL_TRANSITION", "CLOSED"})
            waits = before["aaep"].get("replyToken")
            expect(not alone or waits or before["status"] != "answered", before["status"])
            return
        if alone:
            expect(before["status"] == ("answered" if witness.changes else "escalated"), before["status"])
            used_up = before["round"] >= before["maxRounds"] or not witness.changes
            expect(exhausted == used_up, before["round"], exhausted)


@dataclass(frozen=True)
class Answer(Move):
    """`by` makes it tell who was it: an answer can be given twice."""

    which: int
    fits: bool = True
    round: Literal["any", "this", "before"] = "any"
    at: Time = "now"
    by: int = 1

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        if (before := pick(witness, self.which, is_open)) is None:
            return
        at, decider = time_of(self.at, before, party), person(self.by)
        seen = {"any": None, "this": before["round"], "before": before["round"] - 1}[self.round]
        read = reader(words_for(before, fits=self.fits))
        try:
            record = await party.router.answer(before["id"], read, decider, at, seen)
        except ClarifyError as error:
            codes = {"ALREADY_ANSWERED", "CLOSED", "SUPERSEDED", "ANSWER_REJECTED"}
            refused(error, before, witness, alone, codes)
            takes = self.fits and self.round != "before" and not ran_out(before, at)
            expect(not (alone and takes and before["status"] in OPEN), error)
            return
        kept(record, witness)
        expect(record.given.decided_by == decider.decided_by)
        expect(record.thread[-1].type == "answer" and record.thread[-1].from_ == decider.decided_by)
        if alone:
            expect(self.fits and self.round != "before" and before["status"] in OPEN, before["status"])
            expect(not ran_out(before, at))


@dataclass(frozen=True)
class Resolve(Move):
    which: int
    fits: bool = True
    at: Time = "now"

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        if (before := pick(witness, self.which, is_open)) is None:
            return
        at, text = time_of(self.at, before, party), words_for(before, fits=self.fits)
        try:
            record = await party.router.resolve(before["id"], reader(text), text, person(8), at)
        except ClarifyError as error:
            refused(error, before, witness, alone, {"ALREADY_ANSWERED", "CLOSED", "ANSWER_REJECTED"})
            expect(not alone or before["status"] != "answered", error)
            takes = self.fits and not ran_out(before, at)
            expect(not (alone and takes and before["status"] in OPEN), error)
            return
        kept(record, witness)
        if alone:
            waits = before["status"] != "escalated" and before["status"] in OPEN and record.delivery.reply
            expect(record.status == ("answered" if waits else "resolved"), before["status"], record.status)


@dataclass(frozen=True)
class Steer(Move):
    """By hand: pass it on, or give it up."""

    which: int
    how: Literal["escalate", "abandon"]

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        if (before := pick(witness, self.which, is_open)) is None:
            return
        call = party.hub.escalate if self.how == "escalate" else party.hub.abandon
        try:
            record = await call(before["id"], person(9), "for a reason")
        except ClarifyError as error:
            refused(error, before, witness, alone, {"ALREADY_ANSWERED", "CLOSED"})
            over = ran_out(before, party.clock.now())
            expect(not alone or over or before["status"] not in OPEN, error)
            return
        kept(record, witness)
        expect(not alone or record.status == {"escalate": "escalated", "abandon": "abandoned"}[self.how])


@dataclass(frozen=True)
class News(Move):
    """Something of a session: it did something, moved on, ended."""

    session: int
    what: Literal["did something", "moved on", "ended", "was cancelled"]
    minutes: int = 0

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        kind = {"ended": aaep.COMPLETED, "was cancelled": aaep.CANCELLED, "moved on": aaep.STATE_CHANGED}
        at, session = party.clock.now() + self.minutes * MINUTE, f"sess_{self.session}"
        left = self.what == "moved on"
        news = SessionNews("planner", session, kind.get(self.what, aaep.TOOL_COMPLETED), at, at, left)
        await party.router.session_went_on(news)
        if alone:
            mine = [change.after for change in witness.changes]
            expect(all(one["aaep"]["sessionId"] == session for one in mine))
            expect(self.what != "moved on" or [one["status"] for one in mine].count("abandoned") <= 1)


@dataclass(frozen=True)
class Reply(Move):
    """What became of the reply to a producer."""

    which: int
    state: ReplyState
    old_token: bool = False
    resolve: bool = False

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        before = pick(witness, self.which, waits_for_reply)
        if before is None or (token := before["aaep"].get("replyToken")) is None:
            return
        earlier = [one.get("replyToken") for one in before["aaep"].get("earlier", [])]
        used = (earlier or ["rpl_none"])[0] if self.old_token else token
        await party.router.settle_reply(before["id"], used, self.state, "note", resolve=self.resolve)
        expect(not alone or used == token or not witness.changes)


@dataclass(frozen=True)
class Due(Move):
    which: int

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        if (before := pick(witness, self.which, is_open)) is None:
            return
        await party.router.apply_due(before["id"])
        if alone:
            over = before["status"] in OPEN and ran_out(before, party.clock.now())
            became = [c.after["status"] for c in witness.changes]
            expect(became == ["abandoned"] if over else "abandoned" not in became)


@dataclass(frozen=True)
class Look(Move):
    """What other processes wrote is taken in, as the bot does when it is told that ledgers changed."""

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        await party.look()


@dataclass(frozen=True)
class Watch(Move):
    """The monitor's turn: afterwards nothing is due any more."""

    async def make(self, party: Party, witness: Witness, alone: bool) -> None:
        await party.look()
        await party.watch()
        now = party.clock.now()
        for one in witness.records() if alone else ():
            expect(one["status"] not in OPEN or not ran_out(one, now), one["id"], "ages past its time")
            due = one.get("staleAfter")
            chased = (
                one["status"] in {"pending", "stale"}
                and due is not None
                and datetime.fromisoformat(due) <= now
            )
            expect(not chased, one["id"], "ages unseen")
