"""The log: one signed entry for each receipt, in a chain, and the texts by which a decision is found again; and whether a decision
is genuine: its receipt, what its record says, and its entry in the log.

`DecisionLog` is a consumer of the feed (`bot.feed`): it appends the entries in the transaction that moves its cursor, after the
fact; nothing waits for them. So a kill loses none and repeats none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog

from bot.decisions.chain import TYP, Head, Kind, Line, claims_in, digest_of, following, kid_of, opened
from bot.decisions.search import deciders_of, words_of
from bot.errors import StorageUnavailable
from bot.routing import Audiences
from bot.signing import Jwk, Signing
from bot.storage import changes
from bot.storage.changes import RecordChange
from bot.storage.store import Store, until_stored
from bot.storage.tx import Row, Tx, batches
from bot.views.verify import Proof
from core.clarification import Clarification
from core.clock import Clock
from core.ledger import ABANDONED, EXECUTED, FORGOTTEN, RECEIPT, Ledger
from core.receipts import Checked, Problem, at_round, jti_of, number_of
from core.records import Subject, signed_rounds
from core.summary import DecidedBy
from core.transitions import amended

_log = structlog.get_logger("clarify.trust")
Columns = dict[str, Any]
_NAME = "decisions"
_WANTED = frozenset({"answered", ABANDONED, EXECUTED, RECEIPT, FORGOTTEN})
_RETRY = 5.0  # seconds between attempts to read the signing key
_PAGE = 1000  # entries read at once
_MOST_NAMED = 500  # receipts in one entry that says that they are gone
_LONGEST = 16_384  # characters of a text that search looks through
ENTRY = "select seq, entry, receipt, (select max(seq) from decisions) as last from decisions where jti = :jti"


@dataclass(kw_only=True, eq=False)
class DecisionLog:
    """The consumer of the feed that appends what was decided.

    `keep`: how long receipts and texts are kept; None: forever. Older decisions are not appended. `checkpoint_every`: how often
    an entry notes the head of the log, if it grew; None: never. `announce` stores, in the transaction that appends a checkpoint,
    that it is to be sent, and returns what to call after that.
    """

    store: Store
    signing: Signing
    audiences: Audiences
    clock: Clock
    keep: timedelta | None = None
    checkpoint_every: timedelta | None = None
    announce: Callable[[Tx, str], Callable[[], None]] = lambda _tx, _entry: lambda: None
    name: str = _NAME
    gather: float = 1.0

    def __post_init__(self) -> None:
        self._grew = asyncio.Event()

    def wants(self, change: RecordChange) -> bool:
        return not _WANTED.isdisjoint(word.partition("/")[0] for word in change.what.split())

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        if change.what == FORGOTTEN:
            _forget_gone(tx, record)
            grew = _tell_gone(tx, self.signing, self.clock.now())
        elif change.what.startswith(EXECUTED):
            _, number, sha256, is_error = change.what.split("/")
            claims = {"jti": f"{record.id}/{number}", "result_sha256": sha256, "is_error": is_error == "1"}
            grew = bool(put(tx, self.signing, self.clock.now(), "executed", claims))
        else:
            grew = self._append(tx, record)
        return self._grew.set if grew else None

    async def load(self) -> None:
        """Waits until the signing key can be read."""
        while not await asyncio.to_thread(self.signing.load):
            await self.clock.sleep(_RETRY)
        self._grew.set()  # it may have

    async def delete_old(self) -> None:
        """Deletes what was decided longer than `keep` ago, except digests. A failure is logged; call it again tomorrow."""
        if self.keep is None or self.signing.kid is None:
            return
        try:
            await expire(self.store, self.signing, self.clock.now(), self.keep)
        except StorageUnavailable as error:
            _log.warning("cannot delete old decisions", reason=str(error))
        self._grew.set()

    def _append(self, tx: Tx, record: Clarification) -> bool:
        """Appends the entries of rounds that have none yet. Returns whether there were any."""
        ended = {jti_of(each): each for each in signed_rounds(record)}
        known = {row["jti"] for row in tx.rows("select jti from decisions where jti in :jtis", jtis=ended)}
        missing = [each for jti, each in ended.items() if jti not in known and self._is_ours(tx, jti, each)]
        now = self.clock.now()
        since = (now - self.keep).timestamp() if self.keep is not None else 0.0
        grew = False
        for each in missing:
            texts = texts_of(each)
            if texts["at"] >= since:
                self._put(tx, now, each, texts)
                grew = True
        return grew

    def _is_ours(self, tx: Tx, jti: str, ended: Clarification) -> bool:
        """Whether we signed a receipt: another program may have put something else into the record."""
        signing, receipt = self.signing, _receipt(ended)
        if signing.is_ours(receipt, jti):
            return True
        if kid_of(receipt) in signing.known:
            return False
        signing.learn(tx)
        return signing.is_ours(receipt, jti)

    def _put(self, tx: Tx, now: datetime, ended: Clarification, texts: Columns) -> None:
        """Appends the entry of a round that ended. `ended`: the record as of then."""
        receipt = _receipt(ended)
        claims = {"jti": jti_of(ended), "sha256": digest_of(receipt)}
        put(tx, self.signing, now, "decision", claims, receipt=receipt)
        card = tx.one(
            "select channel, ts, target from messages where clarification = :id and kind = 'card' and round = :round"
            " and ts is not null",
            id=ended.id,
            round=number_of(ended),
        )
        columns = {"seq": head_of(tx).seq, **texts, **_place(ended, self.audiences, card)}
        tx.run(
            "insert into decision_texts (seq, clarification, at, agent, outcome, decision, decided_by, deciders, channel, ts,"
            " recipient, question, answer, words) values (:seq, :clarification, :at, :agent, :outcome, :decision,"
            " :decided_by, :deciders, :channel, :ts, :recipient, :question, :answer, :words)",
            **columns,
        )

    async def run(self) -> None:
        """Appends checkpoints, if they are wanted, until cancelled."""
        if self.checkpoint_every is None:
            return
        await self.load()
        while True:
            self._grew.clear()
            last = partial(
                self.store.read_one,
                "select seq, at from decisions where kind = 'checkpoint' order by seq desc limit 1",
            )
            row = await until_stored(last, self.clock, _log, "reading the log later")
            if row is not None:
                due = datetime.fromtimestamp(row["at"], UTC) + self.checkpoint_every
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
    while True:
        head = head_of(tx)
        entry = signing.signed(following(head, kind, now, claims), TYP)
        if tx.run(
            "insert into decisions (seq, kind, at, entry, jti, receipt) values (:seq, :kind, :at, :entry, :jti, :receipt)"
            " on conflict (seq) do nothing",
            seq=head.seq + 1,
            kind=kind,
            at=now.timestamp(),
            entry=entry,
            jti=claims.get("jti") if kind == "decision" else None,
            receipt=receipt,
        ):
            return entry
        # Another process appended one meanwhile: this one follows that.


def head_of(tx: Tx) -> Head:
    """Returns the last entry's number and digest."""
    last = tx.one("select seq, entry from decisions order by seq desc limit 1")
    return Head() if last is None else Head(last["seq"], digest_of(last["entry"]))


def _receipt(ended: Clarification) -> str:
    """Returns the receipt of one of `signed_rounds`."""
    return ended.current.receipt or ""


def _place(record: Clarification, audiences: Audiences, card: Row | None) -> Columns:
    """Returns where the card is, or would be. What only agents saw has none."""
    if card is not None:
        channel, ts, target = card["channel"], card["ts"], card["target"]
    else:
        channel, ts, target = None, None, audiences.route(record).channel.removeprefix("@")
        if target[:1] in "CG" and record.producer is not None:
            channel = target
    return {"channel": channel, "ts": ts, "recipient": target if target[:1] in "UW" else None}


def texts_of(record: Clarification) -> Columns:
    """Returns what search needs of a decision, as columns. `record`: as of the end of that round."""
    claims = claims_in(_receipt(record))
    asked = claims.get("asked") or {}
    said = {entry.type: entry.body for entry in record.thread if entry.round == record.round}
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


def _forget_gone(tx: Tx, record: Clarification) -> None:
    """Deletes what came into the log while the record was being forgotten in another transaction."""
    carried = set(map(jti_of, signed_rounds(record)))
    rows = tx.rows(
        "select decisions.seq as seq, jti from decision_texts join decisions on decisions.seq = decision_texts.seq"
        " where clarification = :id",
        id=record.id,
    )
    _forget(tx, [row["seq"] for row in rows if row["jti"] not in carried])


def _tell_gone(tx: Tx, signing: Signing, now: datetime) -> bool:
    """Appends what says of all receipts that are gone that they are. Returns whether there were any untold ones."""
    grew = False
    while rows := tx.rows(
        "select seq, jti from decisions where gone = 1 order by seq limit :most", most=_MOST_NAMED
    ):
        tx.run("update decisions set gone = 2 where seq in :seqs", seqs=[row["seq"] for row in rows])
        claims = {"jtis": [row["jti"] for row in rows], "at": int(now.timestamp())}
        put(tx, signing, now, "forgotten", claims)
        grew = True
    return grew


def take_in(tx: Tx, records: Sequence[Clarification], horizon: str, now: datetime) -> None:
    """Has the log append what was decided by records that are new in the storage, but have receipts."""
    decided = [record for record in records if any(True for _ in signed_rounds(record))]
    if decided:
        changes.begin(tx, _NAME, horizon)
    for record in decided:
        receipts = " ".join(f"{RECEIPT}/{number_of(each)}" for each in signed_rounds(record))
        changes.note(tx, record.id, receipts, now)


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
        most=_PAGE,
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


async def expire(store: Store, signing: Signing, now: datetime, keep: timedelta) -> None:
    """Deletes receipts and texts of what was decided longer than `keep` ago, and says so in the log; cuts off the oldest entries
    once they are twice as old.

    Raises:
        StorageUnavailable: some may be deleted already.
    """

    def work(tx: Tx) -> bool:
        old = "select seq from decision_texts where at < :horizon order by seq limit :most"
        rows = tx.rows(old, horizon=(now - keep).timestamp(), most=_MOST_NAMED)
        _forget(tx, [row["seq"] for row in rows])
        _tell_gone(tx, signing, now)
        return bool(rows)

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

    while await store.write(work):
        pass
    await store.write(cut)


# Another signing key: announced by the one before (`clarify keys rotate`), or not


class NotStartedYet(ValueError):
    """No bot has started with the current key: the bot may still sign with the one before."""

    def __init__(self, kid: str | None) -> None:
        super().__init__(f"No bot has started with the key {kid} yet. Restart it first.")


def announce_key(tx: Tx, signing: Signing, jwk: Jwk, now: datetime) -> None:
    """Appends an entry that names the next key, signed by the current one.

    Raises:
        NotStartedYet: otherwise, entries of the key before would follow this one.
    """
    if tx.one("select 1 as there from signing_keys where kid = :kid", kid=signing.kid) is None:
        raise NotStartedYet(signing.kid)
    put(tx, signing, now, "key", {"kid": jwk["kid"], "jwk": jwk})


async def is_vouched_for(store: Store, signing: Signing) -> bool:
    """Whether the log may go on with the current key: it signed the last entry, or an earlier key announced it.

    Raises:
        StorageUnavailable: the log cannot be read now.
    """
    last = await store.read_one("select entry from decisions order by seq desc limit 1")
    if not signing.is_another and (last is None or kid_of(last["entry"]) == signing.kid):
        return True
    rows, keys = (
        await store.read("select entry from decisions where kind = 'key'"),
        await signing.published(store),
    )
    return any(_announced_by(row["entry"], keys) == signing.kid for row in rows)


def _announced_by(entry: str, keys: Mapping[str, Any]) -> str | None:
    """Returns the id of the key that an entry of the log announces; None: it is not genuine."""
    try:
        claims, _ = opened(entry, keys)
    except ValueError:
        return None
    return str(claims["kid"]) if claims["kind"] == "key" else None


async def prove(
    signing: Signing | None, ledger: Ledger, store: Store, record: Clarification, number: int
) -> Proof:
    """Returns what checking the receipt of round `number` found: its signature, the record beside it, its entry in the log.

    `signing`: None: there are no keys.
    """
    # A follow-up after the last round keeps its number: the current round is meant by that of the record, too.
    ended = record if number >= record.round else at_round(record, number)
    if ended is None:
        return Proof(Checked("missing"), None, is_place_known=True)
    receipt = ended.current.receipt
    if signing is None:
        checked = Checked("missing" if receipt is None else "key")
    else:
        checked = await asyncio.to_thread(signing.check, ended)
    try:
        row, is_place_known = await store.read_one(ENTRY, jti=jti_of(ended)), True
    except StorageUnavailable:
        row, is_place_known = None, False
    if row is not None and signing is not None and checked.problem in {None, "missing"}:
        sha256 = _named_by(row, jti_of(ended), await signing.published(store))
        if sha256 is None:
            checked = replace(checked, problem="entry")
        elif sha256 != digest_of(receipt or ""):
            checked = _of_the_log(signing, ended, row["receipt"])
    if checked.problem is None and ended is record and await ledger.is_tampered(record):
        checked = replace(checked, problem="record")
    return Proof(checked, (row["seq"], row["last"]) if row is not None else None, is_place_known)


def _of_the_log(signing: Signing, ended: Clarification, logged: str | None) -> Checked:
    """Returns what is wrong with a record that lacks the receipt in the log, and what that receipt says."""
    if ended.current.receipt is None and logged is None:
        return Checked("missing")  # it was forgotten
    problem: Problem = "removed" if ended.current.receipt is None else "log"
    if logged is None:
        return Checked(problem)
    there = amended(ended, receipt=logged)
    return replace(signing.check(there), problem=problem)


def _named_by(row: Row, jti: str, keys: Mapping[str, Any]) -> str | None:
    """Returns the digest of the receipt that an entry of the log is about; None: it is not the entry of round `jti`."""
    try:
        claims, _ = opened(row["entry"], keys)
    except ValueError:
        return None
    is_its = (claims["seq"], claims.get("jti")) == (row["seq"], jti)
    return claims["sha256"] if is_its else None
