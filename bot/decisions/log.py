"""The log: one signed entry for each receipt, in a chain, and the texts by which a decision is found again.

The bot that leads appends entries after the fact; nothing waits for them. The start, and a new leader, compare the records
written since the last comparison with the log, and append what is missing; all records, if there was none yet (a new or restored
storage).
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog

from bot.decisions.chain import TYP, Head, Kind, Line, claims_in, digest_of, following
from bot.decisions.search import deciders_of, words_of
from bot.errors import StorageUnavailable
from bot.routing import Audiences
from bot.signing import Signing
from bot.storage.store import Store, until_stored
from bot.storage.tx import Row, Tx, batches
from core.clarification import Clarification
from core.clock import Clock
from core.errors import ClarifyError, LedgersAway, LedgerUnreadable, NotFound
from core.ledger import Ledger
from core.lists import DecidedBy
from core.receipts import number_of
from core.records import Subject, signed_rounds

_log = structlog.get_logger("clarify.trust")
Columns = dict[str, Any]
_BATCH = 64
_GATHER = 1.0  # seconds: what is decided meanwhile is appended in one write
_RETRY = 5.0  # seconds between attempts to read the signing key or the records
_MOST_QUEUED = 1000
_MOST_NAMED = 500  # receipts in one entry that says that they are gone
_LONGEST = 16_384  # characters of a text that search looks through


@dataclass(frozen=True, slots=True)
class Ended:
    """A round that ended: its receipt, and the record that carries it."""

    record: Clarification
    round: int
    receipt: str

    @property
    def jti(self) -> str:
        return f"{self.record.id}/{self.round}"


def ended_in(record: Clarification) -> Iterator[Ended]:
    """Yields the rounds of a record that have a receipt, oldest first."""
    for then in signed_rounds(record):
        if (receipt := then.asked.receipt) is not None:
            yield Ended(record, number_of(then), receipt)


@dataclass(kw_only=True, eq=False)
class DecisionLog:
    """Appends what was decided. `record_changed` and `forgotten` may be called before `run`.

    `keep`: how long receipts and texts are kept; None: forever. Older decisions are not appended. `checkpoint_every`: how often
    an entry notes the head of the log; None: never. `announce` stores, in the transaction that appends a checkpoint, that it is
    to be sent, and returns what to call after that.
    """

    ledger: Ledger
    store: Store
    signing: Signing
    audiences: Audiences
    clock: Clock
    keep: timedelta | None = None
    checkpoint_every: timedelta | None = None
    announce: Callable[[Tx, str], Callable[[], None]] = lambda _tx, _entry: lambda: None

    def __post_init__(self) -> None:
        self._ended: deque[Ended] = deque()
        self._recent: OrderedDict[str, None] = OrderedDict()  # the receipts appended last
        self._may_be_untold = True  # receipts may be gone that no entry names
        self._wake, self._idle, self._grew = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_compared = asyncio.Event()

    async def caught_up(self) -> None:
        """Returns once all that was decided until now is in the log."""
        await self._is_compared.wait()
        await self._idle.wait()

    def record_changed(self, record: Clarification) -> None:
        """Notes what was decided; `run` appends it."""
        if some := [each for each in ended_in(record) if each.jti not in self._recent]:
            self._queue(some)

    def forgotten(self) -> None:
        """Notes that another process may have forgotten decisions; `run` appends an entry that says so."""
        self._may_be_untold = True
        self._queue(())

    def _queue(self, some: Iterable[Ended]) -> None:
        self._ended.extend(some)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Appends, and compares the records once with the log, until cancelled."""
        while not await asyncio.to_thread(self.signing.load):
            await self.clock.sleep(_RETRY)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._append(), name="log: append")
            group.create_task(self._compare(), name="log: what is missing")
            if self.checkpoint_every is not None:
                group.create_task(self._note_checkpoints(self.checkpoint_every), name="log: checkpoints")

    async def forget(self) -> None:
        """Deletes what was decided longer than `keep` ago, except digests. A failure is logged; call it again tomorrow."""
        if self.keep is None or self.signing.kid is None:
            return
        try:
            if await expire(self.store, self.signing, self.clock.now(), self.keep):
                self.forgotten()
        except StorageUnavailable as error:
            _log.warning("cannot delete old decisions", reason=str(error))

    async def _append(self) -> None:
        while True:
            self._wake.clear()
            if not self._ended and not self._may_be_untold:
                self._idle.set()
                await self._wake.wait()
                await self.clock.sleep(_GATHER)
            some = [self._ended.popleft() for _ in range(min(_BATCH, len(self._ended)))]
            is_untold, self._may_be_untold = self._may_be_untold, False
            gone: list[str] = []
            if is_untold:
                named = (*self._recent, *(each.jti for each in some))
                gone = [jti for jti in named if not await self._is_kept(jti)]
            good = await asyncio.to_thread(self._good, [each for each in some if each.jti not in gone])
            store = partial(self._store, good, gone, is_untold=is_untold)
            if await until_stored(store, self.clock, _log, "entries in the log of decisions delayed"):
                self._grew.set()
            for each in some:
                self._recent[each.jti] = None
            while len(self._recent) > _BATCH:
                self._recent.popitem(last=False)

    def _good(self, some: Sequence[Ended]) -> list[tuple[Ended, Columns]]:
        """Returns those that we signed and that are still kept, with their texts: another program may have put something else
        into a record. Blocking.
        """
        found: list[tuple[Ended, Columns]] = []
        since = (self.clock.now() - self.keep).timestamp() if self.keep is not None else 0.0
        for each in some:
            try:
                if self.signing.is_ours(each.receipt, each.jti) and (texts := texts_of(each))["at"] >= since:
                    found.append((each, texts))
            except Exception:  # noqa: BLE001 - one odd record must not keep the others out of the log
                _log.exception("cannot log a decision", id=each.record.id)
        return found

    async def _is_kept(self, jti: str) -> bool:
        """Whether a record still carries a receipt; False: it was forgotten."""
        name = jti.rpartition("/")[0]
        while True:
            try:
                record = await self.ledger.find(name)
                return any(each.jti == jti for each in ended_in(record))
            except NotFound:
                return False
            except LedgerUnreadable:
                return True
            except ClarifyError as error:
                _log.warning("looking later whether a decision was forgotten", reason=str(error))
                await self.clock.sleep(_RETRY)

    async def _store(
        self, some: Sequence[tuple[Ended, Columns]], gone: Sequence[str], *, is_untold: bool
    ) -> bool:
        """Appends entries for rounds that ended, and, if some may be untold, for receipts that are gone. Idempotent.
        Returns whether the log grew.
        """
        now = self.clock.now()

        def work(tx: Tx) -> bool:
            grew = False
            for each, texts in some:
                grew |= self._put(tx, now, each, texts)
            if gone:
                rows = tx.rows("select seq from decisions where jti in :gone", gone=gone)
                _forget(tx, [row["seq"] for row in rows])
            while is_untold and (jtis := _tell_gone(tx)):
                put(tx, self.signing, now, "forgotten", {"jtis": jtis, "at": int(now.timestamp())})
                grew = True
            return grew

        return await self.store.write_soon(work)

    def _put(self, tx: Tx, now: datetime, ended: Ended, texts: Columns) -> bool:
        """Appends the entry of a round that ended, unless it is there. Returns whether it was appended."""
        if tx.one("select 1 as there from decisions where jti = :jti", jti=ended.jti) is not None:
            return False
        claims = {"jti": ended.jti, "sha256": digest_of(ended.receipt)}
        put(tx, self.signing, now, "decision", claims, receipt=ended.receipt)
        card = tx.one(
            "select channel, ts, target from messages where clarification = :id and kind = 'card' and round = :round"
            " and ts is not null",
            id=ended.record.id,
            round=ended.round,
        )
        columns = {"seq": head_of(tx).seq, **texts, **_place(ended.record, self.audiences, card)}
        tx.run(
            "insert into decision_texts (seq, clarification, at, agent, outcome, decision, decided_by, deciders, channel, ts,"
            " recipient, question, answer, words) values (:seq, :clarification, :at, :agent, :outcome, :decision,"
            " :decided_by, :deciders, :channel, :ts, :recipient, :question, :answer, :words)",
            **columns,
        )
        return True

    async def _compare(self) -> None:
        """Appends what the records show and the log lacks: of all, or of those written since the last comparison."""
        read = partial(self.store.read_one, "select written from decisions_compared")
        row = await until_stored(read, self.clock, _log, "reading the log later")
        while (mark := await self._compared(0 if row is None else row["written"])) is None:
            await self.clock.sleep(_RETRY)
        await self._idle.wait()
        done = partial(
            self.store.run,
            """insert into decisions_compared (one, written) values (1, :written)
               on conflict (one) do update set written = excluded.written""",
            written=mark,
        )
        await until_stored(done, self.clock, _log, "cannot note yet that the log is complete, will retry")
        self._is_compared.set()

    async def _compared(self, written: int) -> int | None:
        """Compares the records `written` since with the log. Returns since which mark the next comparison is to look; None: they
        cannot be read now.
        """
        try:
            mark = await self.ledger.mark()
            async with aclosing(self.ledger.every(written=written)) as every:
                async for some in every:
                    found = await asyncio.to_thread(_all_ended_in, some.records)
                    if found and not await self._are_known([each.jti for each in found]):
                        self._queue(found)
                    if len(self._ended) > _MOST_QUEUED:
                        await self._idle.wait()
        except LedgersAway as error:
            _log.warning("cannot compare the records with the log yet, will retry", reason=str(error))
            return None
        return mark

    async def _are_known(self, jtis: Sequence[str]) -> bool:
        known = set[str]()
        for some in batches(jtis):
            find = partial(self.store.read, "select jti from decisions where jti in :some", some=some)
            rows = await until_stored(find, self.clock, _log, "reading the log later")
            known.update(row["jti"] for row in rows)
        return known.issuperset(jtis)

    async def _note_checkpoints(self, every: timedelta) -> None:
        while True:
            self._grew.clear()
            last = partial(
                self.store.read_one,
                "select seq, at from decisions where kind = 'checkpoint' order by seq desc limit 1",
            )
            row = await until_stored(last, self.clock, _log, "reading the log later")
            if row is not None:
                due = datetime.fromtimestamp(row["at"], UTC) + every
                await self.clock.sleep(max(0.0, (due - self.clock.now()).total_seconds()))
            if not await until_stored(self._checkpoint, self.clock, _log, "checkpoint delayed"):
                await self._grew.wait()  # nothing was decided since

    async def _checkpoint(self) -> bool:
        """Appends a checkpoint, and has it sent. Returns False if the log holds nothing new."""
        now = self.clock.now()

        def work(tx: Tx) -> Callable[[], None] | None:
            last = tx.one("select seq, kind, entry from decisions order by seq desc limit 1")
            if last is None or last["kind"] == "checkpoint":
                return None
            head = Head(last["seq"], digest_of(last["entry"]))
            entry = put(tx, self.signing, now, "checkpoint", {"head": head.seq, "sha256": head.sha256})
            return self.announce(tx, entry)

        announced = await self.store.write(work)
        if announced is None:
            return False
        announced()
        return True


def put(
    tx: Tx,
    signing: Signing,
    now: datetime,
    kind: Kind,
    claims: Mapping[str, object],
    *,
    receipt: str | None = None,
) -> str:
    """Appends an entry within a transaction, signed with the current key, and returns it. `receipt`: of a decision."""
    head = head_of(tx)
    entry = signing.signed(following(head, kind, now, claims), TYP)
    tx.run(
        "insert into decisions (seq, kind, at, entry, jti, receipt) values (:seq, :kind, :at, :entry, :jti, :receipt)",
        seq=head.seq + 1,
        kind=kind,
        at=now.timestamp(),
        entry=entry,
        jti=claims.get("jti"),
        receipt=receipt,
    )
    return entry


def head_of(tx: Tx) -> Head:
    """Returns the last entry's number and digest."""
    last = tx.one("select seq, entry from decisions order by seq desc limit 1")
    return Head() if last is None else Head(last["seq"], digest_of(last["entry"]))


def _place(record: Clarification, audiences: Audiences, card: Row | None) -> Columns:
    """Returns where the card is, or would be. What only agents saw has none."""
    if card is not None:
        channel, ts, target = card["channel"], card["ts"], card["target"]
    else:
        channel, ts, target = None, None, audiences.route(record).channel.removeprefix("@")
        if target[:1] in "CG" and record.producer is not None:
            channel = target
    return {"channel": channel, "ts": ts, "recipient": target if target[:1] in "UW" else None}


def texts_of(ended: Ended) -> Columns:
    """Returns what search needs of a decision, as columns."""
    claims, record = claims_in(ended.receipt), ended.record
    asked = claims.get("asked") or {}
    said = {entry.type: entry.body for entry in record.thread if entry.round == ended.round}
    question = _whole(asked.get("action", asked.get("question")), said.get("question", ""))
    answer, decision = claims.get("answer"), None
    if asked.get("kind") == "approval" and isinstance(answer, dict):
        decision, answer = answer.get("decision"), answer.get("arguments")
    answer = _whole(
        claims["other"] if answer in (None, []) and "other" in claims else answer, said.get("answer", "")
    )
    comment = _whole(claims.get("comment"), "")
    deciders = [DecidedBy(str(each.get("by")), each.get("user")) for each in claims.get("deciders") or ()]
    words = words_of((record.agent, record.asked.agent_name), (question, answer, comment, record.id))
    return {
        "clarification": record.id,
        "at": float(claims.get("iat", 0)),
        "agent": record.agent,
        "outcome": claims.get("outcome"),
        "decision": decision,
        "decided_by": claims.get("decided_by"),
        "deciders": deciders_of(deciders),
        "question": question,
        "answer": answer or None,
        "words": words[:_LONGEST],
    }


def _whole(value: Any, otherwise: str) -> str:
    """Returns a value of a receipt as text; `otherwise` where the receipt holds its digest."""
    if isinstance(value, dict) and value.keys() == {"sha256", "bytes"}:
        return otherwise
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value != {} else ""


def _tell_gone(tx: Tx) -> list[str]:
    """Returns receipts that are gone, of which no entry says so yet, and marks them as told."""
    rows = tx.rows("select seq, jti from decisions where gone = 1 order by seq limit :most", most=_MOST_NAMED)
    if rows:
        tx.run("update decisions set gone = 2 where seq in :seqs", seqs=[row["seq"] for row in rows])
    return [row["jti"] for row in rows]


def compare_again(tx: Tx) -> None:
    """Has the next start compare all records with the log: they come from another database."""
    tx.run("update decisions_compared set written = coalesce((select min(written) from clarifications), 0)")


def is_told(tx: Tx) -> bool:
    """Whether the log says of all receipts that are gone that they are."""
    return tx.one("select 1 as there from decisions where gone = 1 limit 1") is None


def forget(tx: Tx, subject: Subject) -> int:
    """Deletes receipts and texts; the entries stay. The bot appends one that says so. Returns how many receipts."""
    found = "select seq from decision_texts where clarification in :ids"
    rows = [row for ids in batches(sorted(subject.clarifications)) for row in tx.rows(found, ids=ids)]
    return _forget(tx, [row["seq"] for row in rows])


def _forget(tx: Tx, seqs: Sequence[int]) -> int:
    gone = 0
    for some in batches(seqs):
        tx.run("delete from decision_texts where seq in :seqs", seqs=some)
        sql = "update decisions set receipt = null, gone = 1 where seq in :seqs and receipt is not null"
        gone += tx.run(sql, seqs=some)
    return gone


def rows_of(tx: Tx) -> Iterator[Row]:
    """Yields all entries in order: `seq`, `kind`, `entry`, `jti`, `receipt`."""
    after = 0
    while rows := tx.rows(
        "select seq, kind, entry, jti, receipt from decisions where seq > :after order by seq limit :most",
        after=after,
        most=_MOST_QUEUED,
    ):
        yield from rows
        after = rows[-1]["seq"]


def line_of(row: Row) -> Line:
    """Returns an entry as `clarify log` prints it: with its receipt, and what that says, of other entries what they say; None
    for what is no JWT, which another program wrote: `clarify verify --log` refuses that.
    """
    receipt = row["receipt"]
    is_gone = row["kind"] == "decision" and receipt is None
    try:
        claims = None if is_gone else claims_in(row["entry"] if receipt is None else receipt)
    except ValueError:
        claims = None
    return {"seq": row["seq"], "entry": row["entry"], "receipt": receipt, "claims": claims}


def find(tx: Tx, name: str) -> Row | None:
    """Returns the entry of a round (`CLR-42-001/1`), or of a question's last one."""
    return tx.one("select seq, jti, receipt from decisions where jti = :name", name=name) or tx.one(
        "select seq, jti, receipt from decisions where jti >= :first and jti < :after order by seq desc limit 1",
        first=f"{name}/",
        after=f"{name}0",  # "0" follows "/"
    )


async def channel_renamed(store: Store, old: str, new: str) -> None:
    """Moves a channel's decisions to its new id.

    Raises:
        StorageUnavailable: nothing was changed.
    """
    await store.run("update decision_texts set channel = :new where channel = :old", old=old, new=new)


async def expire(store: Store, signing: Signing, now: datetime, keep: timedelta) -> bool:
    """Deletes receipts and texts of what was decided longer than `keep` ago, and cuts off the oldest entries once they are
    twice as old. Returns whether any went.

    Raises:
        StorageUnavailable: some may be deleted already.
    """

    def work(tx: Tx) -> int:
        old = "select seq from decision_texts where at < :horizon order by seq limit :most"
        rows = tx.rows(old, horizon=(now - keep).timestamp(), most=_MOST_NAMED)
        return _forget(tx, [row["seq"] for row in rows])

    def cut(tx: Tx) -> None:
        last = tx.one(
            "select seq, entry from decisions where at < :horizon and gone <> 1 and seq <"
            " (select coalesce(min(seq), :highest) from decisions where receipt is not null or gone = 1)"
            " order by seq desc limit 1",
            horizon=(now - 2 * keep).timestamp(),
            highest=head_of(tx).seq,
        )
        if last is not None:
            put(tx, signing, now, "cut", {"upto": last["seq"], "sha256": digest_of(last["entry"])})
            tx.run("delete from decisions where seq <= :upto", upto=last["seq"])

    went = 0
    while some := await store.write(work):
        went += some
    await store.write(cut)
    return went > 0


def _all_ended_in(records: Sequence[Clarification]) -> list[Ended]:
    return [each for record in records for each in ended_in(record)]
