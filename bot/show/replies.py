"""Sends replies to producers: at least once, always the same text, until accepted, refused or expired."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from bot.ask.client import Accepted, Refused, Reply, ReplyOutcome, TryAgain
from bot.ask.producers import Producers
from bot.show.outbox import Backoff, Delivered, Outbox, Outcome, RetryLater
from bot.storage.store import Store
from bot.storage.tx import Tx, batches
from bot.views import inert
from core.clarification import Clarification, ReplyState, Round
from core.clock import Clock, ConcurrencyLimit
from core.errors import LedgerUnreadable, NotFound
from core.escalation import NewIncident, Raise
from core.ledger import Ledger
from core.router import Router
from core.summary import Seen

_log = structlog.get_logger("clarify.replies")
_BACKOFF = Backoff(first=0.25, longest=30.0, spread=0.5)
_RETRY = 0.5
_PATIENCE = 60.0  # seconds that an answer cannot reach its agent before on-call is paged


@dataclass(frozen=True, slots=True)
class Settlement:
    """The final state of a reply. `resolve`: the outcome proves that the requester accepted the answer."""

    state: ReplyState
    note: str | None = None
    resolve: bool = False


def settlement(
    outcome: ReplyOutcome, *, uncertain: bool, now: datetime, expires_at: datetime | None
) -> Settlement | None:
    """Returns the final state of a reply after an attempt, or None to try again.

    Args:
        outcome: of this attempt.
        uncertain: an earlier attempt may have arrived, so a refusal may only mean "token already used".
        now: on the clock of `expires_at`.
        expires_at: when the producer stops waiting; None if never.
    """
    match outcome:
        case Accepted(proof=proof):
            return Settlement("delivered", resolve=proof)
        case Refused(reason=reason):
            return Settlement("unconfirmed" if uncertain else "refused", reason)
    if expires_at is None or now < expires_at:
        return None
    return Settlement("unconfirmed" if uncertain or outcome.may_have_arrived else "too_late", outcome.reason)


@dataclass(slots=True)
class _Blocked:
    """Since when (on the steady clock) a reply cannot be delivered, and whether on-call was paged."""

    since: float
    paged: bool = False


@dataclass(kw_only=True, eq=False)
class Replies:
    """Sends the replies of records whose `reply` is "sending". Nothing is stored before the first attempt.

    `raise_incident` pages on-call if the agent refused the answer, or if it does not arrive and waiting will not help.
    `acts` limits people's actions, which replies wait for under load.
    """

    producers: Producers
    router: Router
    ledger: Ledger
    store: Store
    acts: ConcurrencyLimit
    clock: Clock
    rng: random.Random
    raise_incident: Raise

    def __post_init__(self) -> None:
        self._blocked: dict[tuple[str, str], _Blocked] = {}
        self._fresh: dict[str, Clarification] = {}
        self._unstored: dict[str, tuple[Clarification, Settlement]] = {}
        self._since = self.clock.now()
        self._tried: set[tuple[str, str | None]] = set()
        self.outbox = Outbox(
            "reply", self._attempt, _BACKOFF, clock=self.clock, rng=self.rng, at_once=math.inf
        )

    def record_changed(self, record: Clarification, *, ours: bool = True) -> None:
        """Queues the record's reply unless it is settled. `ours`: we wrote the record just now, not another process."""
        if record.delivery.reply != "sending":
            return
        if record.id not in self.outbox:
            # Another bot may have sent the answers given before our start.
            is_news = ours or (record.given.answered_at or self._since) > self._since
            if is_news and (record.id, record.asked.reply_token) not in self._tried:
                self._fresh[record.id] = record
        self.outbox.put(record.id)

    def load(self, records: Iterable[Seen]) -> None:
        """Queues the replies that are being sent, and starts sending."""
        self._since = self.clock.now()
        self.outbox.start()
        for record in records:
            if record.reply == "sending":
                self.outbox.put(record.id)

    async def _attempt(self, clarification: str) -> Outcome | None:
        """Makes one attempt and stores its outcome; if only storing failed before, stores it without sending again."""
        await self.acts.uncrowded()
        if clarification not in self._unstored:
            try:
                outcome = await self._try(clarification)
            except (NotFound, LedgerUnreadable) as error:
                _log.error("cannot send a reply", clarification=clarification, reason=str(error))
                return None
            if not isinstance(outcome, tuple):
                return outcome
            self._unstored[clarification] = outcome
        await self._finish(*self._unstored[clarification])
        del self._unstored[clarification]
        return Delivered()

    async def _try(self, clarification: str) -> tuple[Clarification, Settlement] | RetryLater | None:
        """Sends the reply once. Returns its final state, when to try again, or None if there is nothing to send."""
        fresh = self._fresh.pop(clarification, None)
        record = fresh or await self.ledger.find(clarification)
        asked, token = record.asked, record.asked.reply_token
        if record.delivery.reply != "sending" or token is None or asked.producer is None:
            return None
        if await self.ledger.is_tampered(record):
            _log.warning("reply not sent: its record was changed", clarification=clarification)
            return None
        self._tried.add((clarification, token))
        # The first attempt is not noted: after a crash, a reply without a note counts as sent once.
        uncertain = False if fresh else await self._begin(clarification, token)
        outcome = await self.producers.send(asked.producer, _reply(record.current))
        now = self.clock.now()
        settled = settlement(outcome, uncertain=uncertain, now=now, expires_at=asked.expires_at)
        if not isinstance(outcome, TryAgain):
            return None if settled is None else (record, settled)
        if settled is not None:
            if outcome.blocked:
                await self._page_blocked(record, outcome)
            return record, settled
        within = await self._note_blocked(record, outcome, uncertain=uncertain)
        if asked.expires_at is not None:
            # Make a last attempt at the deadline; the one after it settles as "too late".
            within = min(within, (asked.expires_at - now).total_seconds())
        certain = not outcome.may_have_arrived
        if fresh or (certain and not uncertain):
            await self.store.write(
                partial(_note, clarification=record.id, token=token, uncertain=not certain)
            )
        return RetryLater(
            outcome.reason,
            after=outcome.retry_after,
            within=within,
            sooner=partial(self.producers.connected, asked.producer),
        )

    async def _note_blocked(self, record: Clarification, outcome: ReplyOutcome, *, uncertain: bool) -> float:
        """Notes on the card why the answer does not arrive: at once if it may have arrived, otherwise after a minute. After
        the minute, pages on-call.

        Returns the seconds left of the minute; infinity if it is over.
        """
        token = record.asked.reply_token or ""
        if not isinstance(outcome, TryAgain) or not outcome.blocked:
            return math.inf
        now = self.clock.steady()
        blocked = self._blocked.setdefault((record.id, token), _Blocked(now))
        left = blocked.since + _PATIENCE - now
        maybe = uncertain or outcome.may_have_arrived
        if maybe or left <= 0:
            standing = "Sent, but not confirmed" if maybe else "Not delivered"
            note = f"{standing}: the agent {outcome.reason}"
            await self.router.note_reply(record.id, token, note)
        if left <= 0:
            await self._page_blocked(record, outcome)
        return max(_RETRY, left) if left > 0 else math.inf

    async def _page_blocked(self, record: Clarification, outcome: TryAgain) -> None:
        """Pages on-call, once, because an answer cannot reach its agent until something is fixed."""
        blocked = self._blocked.setdefault((record.id, record.asked.reply_token or ""), _Blocked(0.0))
        if blocked.paged:
            return
        reason = f"The answer cannot reach the agent: it {outcome.reason}. The bot keeps trying until the agent stops waiting."
        key = f"undelivered:{record.id}:{record.round}"
        title = f"{record.id}: the answer has not reached the agent"
        await self.raise_incident(NewIncident.about(record, key, reason, title))
        blocked.paged = True

    async def _page_refused(self, record: Clarification, note: str | None) -> None:
        reason = f"The agent refused the answer: {inert.quoted(note) if note else 'no reason given'}"
        key, title = f"refused:{record.id}:{record.round}", f"{record.id}: the answer was refused"
        await self.raise_incident(NewIncident.about(record, key, reason, title))

    async def _begin(self, clarification: str, token: str) -> bool:
        """Notes an attempt before it is made. Returns whether an earlier one may have arrived, as after a first attempt,
        which is not noted.
        """

        def work(tx: Tx) -> bool:
            row = tx.one(
                "select uncertain from replies where clarification = :clarification and token = :token",
                clarification=clarification,
                token=token,
            )
            _note(tx, clarification, token, uncertain=True)
            return row is None or bool(row["uncertain"])

        return await self.store.write(work)

    async def _finish(self, record: Clarification, settled: Settlement) -> None:
        token = record.asked.reply_token or ""
        if (
            settled.state == "refused"
        ):  # raised first: after a kill the reply counts as being sent, and is settled again
            await self._page_refused(record, settled.note)
        await self.router.settle_reply(record.id, token, settled.state, settled.note, resolve=settled.resolve)
        self._tried.discard((record.id, token))
        self._blocked.pop((record.id, token), None)
        _log.info("reply settled", clarification=record.id, state=settled.state)


def _note(tx: Tx, clarification: str, token: str, *, uncertain: bool) -> None:
    tx.run(
        """insert into replies (clarification, token, uncertain) values (:clarification, :token, :uncertain)
           on conflict (clarification, token) do update set uncertain = excluded.uncertain""",
        clarification=clarification,
        token=token,
        uncertain=int(uncertain),
    )


def _reply(current: Round) -> Reply:
    if (
        current.question.reply_token is None
        or current.given.response is None
        or current.given.answered_at is None
    ):
        raise NotFound("the answer to send")
    return Reply(
        reply_token=current.question.reply_token,
        response=current.given.response,
        answered_at=current.given.answered_at,
        decided_by=current.given.decided_by or "unknown",
        correlation_id=current.question.correlation_id,
        confirms="confirmation" in current.question.kinds,
        rationale=current.given.rationale,
    )


def forget(tx: Tx, clarifications: Iterable[str]) -> None:
    for some in batches(clarifications):
        tx.run("delete from replies where clarification in :ids", ids=some)
