"""What cannot be shown where it belongs: the fallback channel, and a page, so that a human sees it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from bot.delivery.messages import Messages, Row
from bot.delivery.pages import NewIncident, OnOutcome, Raise
from core.clarification import Clarification, parse_id
from core.errors import ClarifyError
from core.ledger import FileLedger

_log = structlog.get_logger("clarify.delivery")
NOT_BUILT = "could_not_be_built"


class Fallback:
    """`raise_incident` has somebody paged, `on_outcome` is told that a page's own message failed; `send(channel, key)`
    has a message posted.
    """

    def __init__(
        self,
        *,
        messages: Messages,
        ledger: FileLedger,
        fallback_channel: str | None,
        raise_incident: Raise,
        on_outcome: OnOutcome,
        send: Callable[[str, str], None],
    ) -> None:
        self._messages = messages
        self._ledger = ledger
        self._channel = fallback_channel
        self._raise = raise_incident
        self._on_outcome = on_outcome
        self._send = send

    async def unplaceable(self, row: Row, code: str) -> bool:
        """A message cannot be shown where it belongs, for the reason `code`; whether it got another place.

        Raises:
            StorageUnavailable: nothing was decided.
        """
        if row.kind == "page":
            await self._on_outcome(row, "failed", code)
            return False
        if row.kind in {"word", "more"}:
            _log.error("cannot be shown", key=row.key, reason=code)
            return False
        place = row.channel or row.target
        movable = code != NOT_BUILT and self._channel is not None and self._channel not in {place, row.target}
        if movable and self._channel is not None:
            if row.session_id is not None:
                await self._messages.leave_thread(row.producer or "", row.session_id)
            await self._messages.move(row.key, self._channel)
            self._send(self._channel, row.key)
        await self._tell(row, place, code, shown=movable)
        return movable

    async def _tell(self, row: Row, place: str, code: str, *, shown: bool) -> None:
        record, agent = await self._of(row)
        what = (
            "It could not be laid out for Slack; see the log for why"
            if code == NOT_BUILT
            else f"Slack refused to post in {place}: {code}"
        )
        outcome = "It is shown in the fallback channel." if shown else "It could not be shown anywhere."
        title = "A card could not be posted" if row.kind == "card" else "A message could not be posted"
        if record is None and row.clarification is not None:
            title = f"{title} ({row.clarification})"
        key, reason = f"unplaceable:{row.key}:{place}:{code}", f"{what}. {outcome}"
        await self._raise(
            NewIncident.about(record, key, reason, title)
            if record is not None
            else NewIncident(key, reason, title, agent_id=agent)
        )

    async def _of(self, row: Row) -> tuple[Clarification | None, str | None]:
        """The record behind a message; without one, the agent, if that is known."""
        if row.clarification is None:
            return None, (row.body or {}).get("agent")
        try:
            return await self._ledger.find(row.clarification, parse_id(row.clarification)[0]), None
        except ClarifyError as error:
            _log.warning("a page goes without its clarification", key=row.key, reason=str(error))
            return None, None
