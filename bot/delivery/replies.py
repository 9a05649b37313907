"""Sends replies to producers: at least once, always the same text, until accepted, refused or too late."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from bot.errors import StorageUnavailable
from bot.producers.client import Accepted, Refused, Reply, ReplyOutcome, TryAgain
from bot.producers.producers import Producers
from bot.storage.store import Store, Sweep
from bot.storage.tx import Tx, batches
from core.clarification import Aaep, Clarification, ReplyState, parse_id
from core.clock import Clock, ConcurrencyLimit, backoff
from core.errors import ClarifyError, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.escalation import NewIncident, Raise
from core.ledger import Ledger
from core.router import Router

_log = structlog.get_logger("clarify.replies")
_NOT_NOW = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_RETRY = 0.5
_PATIENCE = 60.0  # until somebody is paged because an agent cannot be reached with the answer

_FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0


@dataclass(frozen=True, slots=True)
class Settle:
    """The final state of a reply. `resolve`: it proves that the requester took the answer."""

    state: ReplyState
    note: str | None = None
    resolve: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


def after_try(
    outcome: ReplyOutcome,
    *,
    uncertain: bool,
    attempts: int,
    now: datetime,
    expires_at: datetime | None,
    jitter: float,
) -> Settle | Wait:
    """Decide what follows the try number `attempts` (from 1).

    Args:
        outcome: of this try.
        uncertain: an earlier try may have arrived, so that a refusal may only mean "token already used".
        attempts: how many tries there were.
        now: on the clock of `expires_at`.
        expires_at: when the producer stops waiting, None if never.
        jitter: from 0 to 1.
    """
    match outcome:
        case Accepted(proof=proof):
            return Settle("delivered", resolve=proof)
        case Refused(reason=reason):
            return Settle("unconfirmed", reason) if uncertain else Settle("refused", reason)
    maybe = uncertain or outcome.may_have_arrived
    if expires_at is not None and now >= expires_at:
        return Settle("unconfirmed" if maybe else "too_late", outcome.reason)
    wait = backoff(attempts - 1, first=_FIRST_WAIT, longest=LONGEST_WAIT, spread=0.5, chance=jitter)
    seconds = max(wait, outcome.retry_after or 0.0)
    # The last try is made just before the time runs out, and one more right after it says "too late".
    left = (expires_at - now).total_seconds() if expires_at is not None else seconds
    return Wait(max(0.05, min(seconds, left)))


@dataclass(slots=True)
class _Blocked:
    """Since when (on the steady clock) a reply cannot be delivered, and whether somebody was paged."""

    since: float
    paged: bool = False


class Replies:
    """Runs one task per reply to be sent. `raise_incident` pages a person when the agent refused the answer, or when it
    does not arrive and waiting will not help. `on_foreign(clarification)` is called when another program wrote the
    answer under a person's name. `acts`: those of people, who come first where they are many.
    """

    def __init__(
        self,
        *,
        producers: Producers,
        router: Router,
        ledger: Ledger,
        store: Store,
        acts: ConcurrencyLimit,
        clock: Clock,
        rng: random.Random,
        raise_incident: Raise,
        on_foreign: Callable[[str], Awaitable[object]],
    ) -> None:
        self._producers = producers
        self._router = router
        self._ledger = ledger
        self._store = store
        self._acts = acts
        self._clock = clock
        self._rng = rng
        self._raise = raise_incident
        self._on_foreign = on_foreign
        self._blocked: dict[tuple[str, str], _Blocked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._fresh: dict[str, tuple[Clarification, bool]] = {}  # and whether we wrote it
        self._since = clock.now()
        self._tried: set[tuple[str, str | None]] = set()
        self._closing = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def record_changed(self, record: Clarification, *, ours: bool = True) -> None:
        """Have the reply of a clarification sent, if it is not settled. The record was written just now by us, or (unless
        `ours`) by another process.
        """
        if record.asked.reply == "sending":
            self._put(record.id, record, ours=ours)

    async def restore(self, records: Iterable[Clarification]) -> None:
        """On start: send what was on its way. Killed between a refusal and its page, the page is still owed; sent
        before, it is not sent again.
        """
        self._since = self._clock.now()
        for record in records:
            if record.asked.reply == "sending":
                self._put(record.id)
            elif record.asked.reply == "refused":
                try:
                    await self._page_refused(record.id)
                except ClarifyError as error:
                    _log.warning("paging without the question's details", id=record.id, reason=str(error))

    def _put(self, clarification: str, answered: Clarification | None = None, *, ours: bool = True) -> None:
        if clarification in self._tasks:
            self._again.add(clarification)
            return
        # What was answered before we sent replies may have been sent by whoever did then.
        is_news = answered is not None and (ours or (answered.asked.answered_at or self._since) > self._since)
        if (
            answered is not None
            and is_news
            and (clarification, answered.asked.reply_token) not in self._tried
        ):
            self._fresh[clarification] = answered, ours
        task = asyncio.create_task(self._settle(clarification), name=f"reply {clarification}")
        self._tasks[clarification] = task
        task.add_done_callback(lambda done: self._ended(clarification, done))

    async def settled(self, clarifications: list[str], patience: float) -> None:
        """Returns when the replies of these are settled, after `patience` seconds at the latest."""
        tasks = [task for each in clarifications if (task := self._tasks.get(each)) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)

    @property
    def length(self) -> int:
        return len(self._tasks)

    async def close(self, grace: float = 5.0) -> None:
        """Let running tries finish; what still waits then is found again on the next start."""
        self._closing.set()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _settle(self, clarification: str) -> None:
        await self._acts.uncrowded()
        while True:
            wait: tuple[float, str | None] | None
            try:
                wait = await self._try(clarification)
            except _NOT_NOW as error:
                _log.warning("reply delayed", clarification=clarification, reason=str(error))
                wait = (_RETRY, None)
            except (NotFound, LedgerUnreadable) as error:
                _log.error("cannot send a reply", clarification=clarification, reason=str(error))
                return
            if wait is None or self._closing.is_set():
                return
            await self._pause(*wait)
            if self._closing.is_set():
                return

    async def _try(self, clarification: str) -> tuple[float, str | None] | None:
        """One try; None when it is settled, else how long to wait, and for which producer."""
        fresh, ours = self._fresh.pop(clarification, (None, False))
        record = fresh or await self._ledger.find(clarification, parse_id(clarification)[0])
        asked, token = record.asked, record.asked.reply_token
        if asked.reply != "sending" or token is None or asked.producer is None:
            return None
        if not ours and not (
            await self._ledger.verify_question(record) and await self._ledger.verify_answer(record)
        ):
            _log.warning("another program changed a question or its answer", clarification=clarification)
            await self._on_foreign(clarification)
            return None
        self._tried.add((clarification, token))
        # The very first try need not be recorded: after a crash, "sending" without a note means that it may have been made.
        attempts, uncertain = (1, False) if fresh else await self._begin(clarification, token)
        reply = _reply(asked)
        outcome = await self._producers.send(asked.producer, reply)
        certain = isinstance(outcome, TryAgain) and not outcome.may_have_arrived
        step = after_try(
            outcome,
            uncertain=uncertain,
            attempts=attempts,
            now=self._clock.now(),
            expires_at=asked.expires_at,
            jitter=self._rng.random(),
        )
        if isinstance(step, Settle):
            if isinstance(outcome, TryAgain) and outcome.blocked:
                await self._page_blocked(record, outcome)
            await self._finish(record, step)
            return None
        left = await self._note_blocked(record, outcome, uncertain=uncertain)
        _log.info(
            "reply not delivered yet",
            clarification=clarification,
            attempts=attempts,
            outcome=type(outcome).__name__,
        )
        if fresh or (certain and not uncertain):
            await self._store.write(lambda tx: _note(tx, record.id, token, attempts, uncertain=not certain))
        return min(step.seconds, left), asked.producer

    async def _note_blocked(self, record: Clarification, outcome: ReplyOutcome, *, uncertain: bool) -> float:
        """Say on the card why the answer does not arrive, at once if it may have, else after a minute; then page, too.

        Returns in how many seconds that minute is over, if it is not yet.
        """
        token = record.asked.reply_token or ""
        if not isinstance(outcome, TryAgain) or not outcome.blocked:
            return math.inf
        now = self._clock.steady()
        blocked = self._blocked.setdefault((record.id, token), _Blocked(now))
        left = blocked.since + _PATIENCE - now
        maybe = uncertain or outcome.may_have_arrived
        if maybe or left <= 0:
            standing = "Sent, but not confirmed" if maybe else "Not delivered"
            note = f"{standing}: the agent {outcome.reason}"
            await self._router.note_reply(record.id, token, note)
        if left <= 0:
            await self._page_blocked(record, outcome)
        return max(_RETRY, left) if left > 0 else math.inf

    async def _page_blocked(self, record: Clarification, outcome: TryAgain) -> None:
        """Page somebody once because an answer cannot reach its agent until something is fixed."""
        blocked = self._blocked.setdefault((record.id, record.asked.reply_token or ""), _Blocked(0.0))
        if blocked.paged:
            return
        reason = f"The answer cannot reach the agent: it {outcome.reason}. The bot keeps trying until the agent stops waiting."
        key = f"undelivered:{record.id}:{record.round}"
        title = f"{record.id}: the answer has not reached the agent"
        await self._raise(NewIncident.about(record, key, reason, title))
        blocked.paged = True

    async def _page_refused(self, clarification: str) -> None:
        """An agent refused its reply: somebody has to know."""
        record = await self._ledger.find(clarification, parse_id(clarification)[0])
        reason = f"The agent refused the answer: {record.asked.reply_note or 'no reason given'}"
        key, title = f"refused:{record.id}:{record.round}", f"{record.id}: the answer was refused"
        await self._raise(NewIncident.about(record, key, reason, title))

    async def _begin(self, clarification: str, token: str) -> tuple[int, bool]:
        """Record a try before it is made: after a crash in the middle, its outcome is unknown.

        Without any note, a process that was killed may have made the first try.
        """

        def work(tx: Tx) -> tuple[int, bool]:
            row = tx.one(
                "select attempts, uncertain from replies where clarification = :clarification and token = :token",
                clarification=clarification,
                token=token,
            )
            attempts, uncertain = (row["attempts"], bool(row["uncertain"])) if row else (0, True)
            _note(tx, clarification, token, attempts + 1, uncertain=True)
            return attempts + 1, uncertain

        return await self._store.write(work)

    async def _finish(self, record: Clarification, step: Settle) -> None:
        token = record.asked.reply_token or ""
        settle = partial(
            self._router.settle_reply, record.id, token, step.state, step.note, resolve=step.resolve
        )
        await self._until_kept(settle, record.id, "reply outcome not stored yet, will retry")
        self._tried.discard((record.id, token))
        self._blocked.pop((record.id, token), None)
        _log.info("reply settled", clarification=record.id, state=step.state)
        if step.state == "refused":
            await self._until_kept(partial(self._page_refused, record.id), record.id, "page delayed")

    async def _until_kept(
        self, work: Callable[[], Awaitable[object]], clarification: str, waits: str
    ) -> None:
        while True:
            try:
                await work()
            except _NOT_NOW as error:
                _log.warning(waits, clarification=clarification, reason=str(error))
                await self._clock.sleep(_RETRY)
            else:
                return

    async def _pause(self, seconds: float, producer: str | None) -> None:
        """Wait, but not when the producer comes back before."""
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        back = asyncio.ensure_future(self._producers.connected(producer or ""))
        closing = asyncio.ensure_future(self._closing.wait())
        waits = {sleep, back, closing}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _ended(self, clarification: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(clarification, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            _log.error("reply task failed", clarification=clarification, error=repr(error))
            if not self.failed.done():
                self.failed.set_exception(error)
        elif clarification in self._again and not self._closing.is_set():
            self._again.discard(clarification)
            self._put(clarification)


def _note(tx: Tx, clarification: str, token: str, attempts: int, *, uncertain: bool) -> None:
    tx.run(
        """insert into replies (clarification, token, attempts, uncertain)
           values (:clarification, :token, :attempts, :uncertain)
           on conflict (clarification, token)
           do update set attempts = excluded.attempts, uncertain = excluded.uncertain""",
        clarification=clarification,
        token=token,
        attempts=attempts,
        uncertain=int(uncertain),
    )


def _reply(asked: Aaep) -> Reply:
    if asked.reply_token is None or asked.response is None or asked.answered_at is None:
        raise NotFound("the answer to send")
    return Reply(
        reply_token=asked.reply_token,
        response=asked.response,
        answered_at=asked.answered_at,
        decided_by=asked.decided_by or "unknown",
        correlation_id=asked.correlation_id,
        confirms="confirmation" in asked.kinds,
        rationale=asked.rationale,
    )


SWEEP = Sweep(
    "replies",
    """select clarification || ' ' || token as name, clarification from replies
       where clarification || ' ' || token > :after order by name limit :most""",
    ("delete from replies where clarification || ' ' || token in :names",),
    timeless=True,
)


def forget(tx: Tx, clarifications: Iterable[str]) -> None:
    """Forget what was tried."""
    for some in batches(clarifications):
        tx.run("delete from replies where clarification in :ids", ids=some)
