"""On start, recovers open questions from the ledgers if the storage was lost, and trusts those of earlier releases.

An operator who removed a broken storage starts with an empty one, while the ledgers still have open questions. Without
recovery, a producer that repeats its events would have its questions shown and answered twice. The storage alone knew
where messages are and which replies may have arrived. So each card counts as a post of unknown outcome, which is looked
up before it is posted again, and each unfinished reply counts as one that may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from bot.delivery.delivery import Delivery, InDoubt
from bot.delivery.memory import mark
from bot.delivery.messages import TAKEN_UP, Fresh, doubt, put
from bot.intake.notices import content
from bot.producers.inbox import Inbox, Session, know_sessions
from bot.settings.model import Settings
from bot.storage.store import Store
from bot.storage.tx import Tx
from bot.views.notices import storage_began
from bot.views.render import Renderer
from core.clarification import Clarification
from core.errors import ClarifyError, LedgersAway
from core.files import reason, replacing
from core.index import Index
from core.ledger import FileLedger, Ledger
from core.ledgerfiles import LedgerFiles
from core.records import parse
from core.router import Router

_log = structlog.get_logger("clarify")
_KEY = "notice:storage-began"
_ID = "installation"


async def recover(
    *,
    store: Store,
    ledger: Ledger,
    index: Index,
    delivery: Delivery,
    renderer: Renderer,
    settings: Settings,
) -> None:
    """Fills an empty storage from the ledgers. Call it after the index is filled and before delivery is restored.

    Raises:
        StorageUnavailable: nothing was stored.
    """
    if not isinstance(ledger, FileLedger):
        return  # the ledgers are in the storage
    try:
        if await _is_empty(store):
            sessions = await asyncio.to_thread(_sessions, ledger)
            needed = [record for record in index if record.needs_something]
            notices = []
            if sessions:
                count = sum(record.is_open for record in needed)
                _log.warning(
                    "new storage beside existing ledgers; recovering open questions",
                    storage=str(settings.storage.path),
                    sessions=len(sessions),
                    open=count,
                )
                began = storage_began(str(settings.storage.path), count)
                body = content(renderer, began, needed=True)
                target = settings.slack.fallback_channel or settings.route_for("").channel
                notices = [Fresh(key=_KEY, kind="notice", target=target, body=body, wanted="notice")]
            former = await asyncio.to_thread(_read_id, ledger.files)
            await _fill(store, sessions, delivery.in_doubt(needed), notices, former)
        await asyncio.to_thread(_write_id, ledger.files, store.installation)
    except LedgersAway as error:
        _log.warning("cannot recover from the ledgers", reason=str(error))


async def _is_empty(store: Store) -> bool:
    """Returns whether a storage has no events, messages or sessions yet."""
    return not await store.read(
        "select 1 from inbox union all select 1 from messages union all select 1 from sessions limit 1"
    )


async def _fill(
    store: Store,
    sessions: Sequence[Session],
    cards: Sequence[InDoubt],
    notices: Sequence[Fresh],
    former: str,
) -> None:
    """Stores all of it in one transaction. `former`: the installation that posted the cards, empty if unknown.

    In each channel, thread replies are read again from the time of its oldest question on.
    """
    marks: dict[str, float] = {}
    for each in cards:
        marks[each.card.target] = min(each.asked_at, marks.get(each.card.target, each.asked_at))

    def work(tx: Tx) -> None:
        know_sessions(tx, sessions)
        put(tx, [each.card for each in cards])
        for each in cards:
            doubt(tx, each.card.key, each.card.target, each.asked_at, f"{TAKEN_UP}{former}")
        for channel, at in marks.items():
            mark(tx, channel, f"{at:.6f}")
        put(tx, notices)

    await store.write(work)


def _read_id(ledger: LedgerFiles) -> str:
    """Returns the id of the installation that posted these ledgers' cards; empty if unknown. Blocking."""
    try:
        return (ledger.private / _ID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _write_id(ledger: LedgerFiles, installation: str) -> None:
    """Stores the installation's id beside the ledgers, so that its cards are found if the storage is lost. Blocking."""
    if _read_id(ledger) == installation or not ledger.is_there():
        return
    try:
        with replacing(ledger.private / _ID, installation.encode(), ledger.private):
            pass
    except OSError as error:
        _log.warning("cannot store the installation's id beside the ledgers", reason=reason(error))


def _sessions(ledger: FileLedger) -> list[Session]:
    """Returns every session that asked something, live or archived. Blocking."""
    found: dict[tuple[str, str], Session] = {}
    issues = {*ledger.files.issues(), *ledger.files.archive.issues()}
    for issue in sorted(issues):
        try:
            items = ledger.read_now(issue)
        except ClarifyError as error:
            _log.warning("ledger skipped", issue=issue, reason=str(error))
            continue
        for item in items:
            if (record := parse(item)) is not None and (session := _session(record)) is not None:
                # The highest issue counts: an issue of the reserved range is found only by its session.
                found[session.producer, session.session_id] = session
    return list(found.values())


def _session(record: Clarification) -> Session | None:
    asked = record.asked
    if asked.producer is None or asked.session_id is None:
        return None
    agent = asked.agent_id or record.from_
    return Session(asked.producer, asked.session_id, agent, asked.agent_name, record.issue_number)


async def trust_earlier_release(inbox: Inbox, router: Router, records: Iterable[Clarification]) -> None:
    """Accepts, once, open questions and unsent answers of earlier releases, which wrote no seals.

    Raises:
        StorageUnavailable: the storage cannot tell whether it was done, or cannot record it.
    """
    known = list(records)
    trusts_answers = not await inbox.marks("answers")
    if not await inbox.marks("questions"):
        for issue in sorted({record.issue_number for record in known}):
            try:
                await router.trust_questions(issue)
            except ClarifyError as error:
                _log.warning("cannot seal an earlier release's questions", issue=issue, reason=str(error))
        await inbox.note_marks("questions")
    for record in known if trusts_answers else ():
        if not record.is_open:
            try:
                await router.trust(record.id)
            except ClarifyError as error:
                _log.warning("cannot seal an earlier release's answer", id=record.id, reason=str(error))
    await inbox.note_marks("answers")
