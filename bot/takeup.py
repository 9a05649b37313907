"""On a start with a storage that knows nothing, beside ledgers that do: whatever is open in them is taken up again.

That is what an operator has who removed a broken storage. Without it a producer that sends its events again would be
shown its questions a second time, and could be answered twice.
"""

from __future__ import annotations

import asyncio

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.messages import Fresh
from bot.delivery.takeup import KnownSession, is_empty, take_up
from bot.settings.model import Settings
from bot.storage.store import Store
from bot.views.render import Renderer
from core.clarification import Clarification
from core.errors import ClarifyError, LedgersAway
from core.files import reason, replacing
from core.index import Index
from core.ledger import FileLedger
from core.records import parse

_log = structlog.get_logger("clarify")
_KEY = "notice:storage-began"
_ID = "installation"


async def take_up_ledgers(
    *,
    store: Store,
    ledger: FileLedger,
    index: Index,
    delivery: Delivery,
    renderer: Renderer,
    settings: Settings,
) -> None:
    """After the index was filled, before delivery is restored. Nothing where the storage knows anything.

    Raises:
        StorageUnavailable: it was not kept.
    """
    try:
        if await is_empty(store):
            await _take_up(
                store=store,
                ledger=ledger,
                index=index,
                delivery=delivery,
                renderer=renderer,
                settings=settings,
            )
        await asyncio.to_thread(_keep_id, ledger, store.installation)
    except LedgersAway as error:
        _log.warning("nothing is taken up from the ledgers", reason=str(error))


async def _take_up(
    *,
    store: Store,
    ledger: FileLedger,
    index: Index,
    delivery: Delivery,
    renderer: Renderer,
    settings: Settings,
) -> None:
    sessions = await asyncio.to_thread(_sessions, ledger)
    needed = [summary for summary in index if summary.needs_something]
    if not sessions and not needed:
        return
    notices = []
    if sessions:
        count = sum(summary.is_open for summary in needed)
        _log.warning(
            "the storage is new, beside ledgers of earlier questions; what is open is taken up again",
            storage=str(settings.storage.path),
            sessions=len(sessions),
            open=count,
        )
        message = renderer.storage_began(str(settings.storage.path), count)
        body = {"text": message.text, "blocks": message.blocks, "more": message.more, "needed": True}
        target = settings.slack.fallback_channel or settings.route_for("").channel
        notices = [Fresh(key=_KEY, kind="notice", target=target, body=body, wanted="notice")]
    former = await asyncio.to_thread(_kept_id, ledger)
    await take_up(store, sessions, delivery.in_doubt(needed), notices, former)


def _kept_id(ledger: FileLedger) -> str:
    """The id under which cards about these ledgers were posted; empty if that is not known. Blocking."""
    try:
        return (ledger.private / _ID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _keep_id(ledger: FileLedger, installation: str) -> None:
    """Beside the ledgers, for the case that the storage is lost: the cards that it knew are found by it. Blocking."""
    if _kept_id(ledger) == installation or not ledger.is_there():
        return
    try:
        with replacing(ledger.private / _ID, installation.encode(), ledger.private):
            pass
    except OSError as error:
        _log.warning("our id cannot be kept beside the ledgers", reason=reason(error))


def _sessions(ledger: FileLedger) -> list[KnownSession]:
    """Every session that asked something, live or archived. Blocking."""
    found: dict[tuple[str, str], KnownSession] = {}
    issues = {*ledger.issues(), *(issue for issue, _ in ledger.archive.files())}
    for issue in sorted(issues):
        try:
            items = ledger.read_now(issue)
        except ClarifyError as error:
            _log.warning("a ledger is left out", issue=issue, reason=str(error))
            continue
        for item in items:
            if (record := parse(item)) is not None and (session := _session(record)) is not None:
                # The highest issue counts: one of the reserved range is found by its session only.
                found[session.producer, session.session_id] = session
    return list(found.values())


def _session(record: Clarification) -> KnownSession | None:
    asked = record.asked
    if asked.producer is None or asked.session_id is None:
        return None
    agent = asked.agent_id or record.from_
    return KnownSession(asked.producer, asked.session_id, agent, asked.agent_name, record.issue_number)
