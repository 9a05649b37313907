"""Posts nudges in Slack, once per nudge in the ledger, even if the bot is killed in between. Also tells the former
holder of a question that another person took it over.

The router decides on nudges (`nudges` of the record). A nudge is a reply in the thread of its card, which says that it was
sent; the channel shows neither twice. Questions that share a roll-up card share a nudge too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import structlog

from bot.errors import StorageUnavailable
from bot.routing import Audience, Audiences
from bot.show.desired import Rollups
from bot.show.messages import Fresh, Messages, Permalinks
from bot.views import inert
from bot.views.notices import callback_notice, nudge, owner_of, rollup_nudge, taken_over, unclaimed_notice
from bot.views.render import RenderedMessage, Renderer
from core.clarification import Clarification
from core.clock import Clock, iso
from core.errors import ClarifyError, LockTimeout
from core.index import OWN_THREAD, Index
from core.ledger import Ledger
from core.summary import Seen

_log = structlog.get_logger("clarify.nudges")
_RETRY = 0.5  # seconds


class _Nudge(NamedTuple):
    """A nudge to post, by its number; 0: the agent never fetched the answer."""

    clarification: str
    round: int
    nudges: int


class _Takeover(NamedTuple):
    """A takeover to report: `by` took it over from `user` at `at`."""

    clarification: str
    user: str
    by: str
    at: datetime


@dataclass(kw_only=True, eq=False)
class Nudges:
    """Turns nudged records into messages. `notify` stores a message for delivery before it returns, like
    `Delivery.notify`; `active` returns those of some users who were not deactivated.
    """

    index: Index
    ledger: Ledger
    messages: Messages
    rollups: Rollups
    renderer: Renderer
    audiences: Audiences
    notify: Callable[[Fresh], Awaitable[None]]
    permalinks: Permalinks
    active: Callable[[Iterable[str]], Awaitable[Sequence[str]]]
    clock: Clock

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[_Nudge | _Takeover] = asyncio.Queue()
        self._known: dict[tuple[type, str], _Nudge | _Takeover] = {}

    def record_changed(self, seen: Seen) -> None:
        """Takes in a clarification after each change, and at startup. Cheap; `run` does the rest."""
        for what, due in ((_Nudge, self._reminder_of(seen)), (_Takeover, _takeover_of(seen))):
            if due is None:
                self._known.pop((what, seen.id), None)
            elif self._known.get((what, seen.id)) != due:
                self._known[what, seen.id] = due
                self._queue.put_nowait(due)

    async def run(self) -> None:
        """Posts the nudges one after the other; runs until cancelled. One that fails is retried after the others."""
        while True:
            due = await self._queue.get()
            if not await self._settle(due):
                self._queue.put_nowait(due)
                await self.clock.sleep(_RETRY)

    async def _settle(self, due: _Nudge | _Takeover) -> bool:
        """Returns whether it is settled; otherwise, try again."""
        try:
            if isinstance(due, _Takeover):
                await self._report_takeover(due)
            else:
                await self._remind(due)
        except (StorageUnavailable, LockTimeout) as error:
            _log.warning("reminder delayed", id=due.clarification, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("reminder failed", id=due.clarification, reason=str(error))
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A bug with one must not stop the others; an unanswered question is escalated anyway.
            _log.exception("reminder failed", id=due.clarification)
        return True

    async def _remind(self, due: _Nudge) -> None:
        record = await self.index.find(due.clarification, self.ledger)
        if self._reminder_of(record) != due:
            return
        if not due.nudges:
            key, draft = f"unclaimed:{record.id}:{record.round}", unclaimed_notice(record)
            fresh = self._own(record, key, self.renderer.message(draft), "notice")
        elif await self._is_held(record):
            fresh = await self._shared(record)
        else:
            key, owner = f"nudge:{record.id}:{record.round}:{record.nudges}", await self._owner(record)
            draft = nudge(record, self.audiences.route(record).mentioned, owner)
            fresh = self._own(record, key, self.renderer.message(draft), "nudge")
        await self._once(fresh)

    async def callback_given_up(self, record: Clarification, host: str, why: str) -> None:
        """Says in the thread, once a round, that the agent was not called back. Durable when it returns."""
        if self.audiences.shows(record):
            message = self.renderer.message(callback_notice(record, host, why))
            await self._once(self._own(record, f"callback:{record.id}:{record.round}", message, "notice"))

    async def _report_takeover(self, takeover: _Takeover) -> None:
        """Tells the former holder privately, even if a third person has it by now: everyone hears who took it from
        them.
        """
        record = await self.index.find(takeover.clarification, self.ledger)
        if record.is_open:
            link = await self.permalinks.link(record.id)
            message = self.renderer.message(taken_over(record, takeover.by, link))
            await self._once(
                Fresh(
                    key=f"lost:{record.id}:{takeover.user}:{iso(takeover.at)}",
                    kind="notice",
                    target=takeover.user,
                    clarification=record.id,
                    round=record.round,
                    body={"text": message.text, "blocks": message.blocks, "more": list(message.more)},
                    wanted="notice",
                )
            )

    async def _once(self, fresh: Fresh) -> None:
        if await self.messages.get(fresh.key) is None:
            await self.notify(fresh)

    async def _owner(self, record: Clarification) -> str:
        """Returns the only person to remind: the owner, if still active. Else empty."""
        owner = owner_of(record)
        return owner if owner and await self.active([owner]) else ""

    async def _is_held(self, record: Clarification) -> bool:
        """Returns whether it has no card of its own but a place in its agent's roll-up card."""
        if self.rollups.key_of(self.rollups.group(record)) is None:
            return False
        cards = await self.messages.cards_of([record.id])
        return not any(card.ts or card.intent_at for card in cards)

    def _own(self, record: Clarification, key: str, message: RenderedMessage, kind: str) -> Fresh:
        route, (producer, session_id) = self.audiences.route(record), self.audiences.thread(record)
        # Without a card, the nudge opens the thread.
        body = _body(message) | {"opens_thread": True}
        return Fresh(
            key=key,
            kind=kind,
            target=route.channel,
            clarification=record.id,
            round=record.round,
            producer=producer,
            session_id=session_id,
            body=body,
            wanted=kind,
            asker=self.rollups.group(record).agent if producer == OWN_THREAD else None,
        )

    async def _shared(self, record: Clarification) -> Fresh:
        """Returns one nudge, in the roll-up card's thread, for all of its questions that the same people answer."""
        group = self.rollups.group(record)
        rollup = self.rollups.key_of(group) or ""
        row = await self.messages.get(rollup)
        route = self.audiences.route(record)
        of_role = route.answerers != self.audiences.route_of(Audience(group.agent)).answerers
        who = f":{'+'.join(route.answerers)}" if of_role else ""
        held = [
            each
            for each in self.rollups.held(group)
            if self.audiences.route(each).answerers == route.answerers
        ]
        oldest = min((each.expires_at for each in held if each.expires_at), default=None)
        name = record.asked.agent_name or group.agent
        message = self.renderer.message(rollup_nudge(name, max(1, len(held)), oldest, route.answerers))
        return Fresh(
            key=f"nudge:{rollup}:{record.nudges}{who}",
            kind="nudge",
            target=(row.channel if row else None) or route.channel,
            body=_body(message)
            | {"thread_ts": row.ts if row else None}
            | {"agent": group.agent, "channel": group.channel, "answerers": list(route.answerers)},
            wanted="nudge",
        )

    def _reminder_of(self, seen: Seen) -> _Nudge | None:
        """Returns the nudge to post, if any: the question is unanswered after a reminder, or its answer was never
        fetched. People are only reminded of what they are shown; commands and endpoints are asked again instead.
        """
        waits = seen.is_open and seen.status != "escalated" and seen.nudges > 0
        due = _Nudge(seen.id, seen.round, seen.nudges if waits else 0)
        return due if (waits or seen.reply == "unclaimed") and self.audiences.shows(seen) else None


def _takeover_of(seen: Seen) -> _Takeover | None:
    """Returns the takeover to report, if the open question had another holder before."""
    before, holder = seen.attention.taken_from, seen.attention.taken_by
    if not (seen.is_open and holder and inert.is_user(before) and inert.is_user(holder.user)):
        return None
    return _Takeover(seen.id, before, holder.user, holder.at)


def _body(message: RenderedMessage) -> dict[str, object]:
    return {"text": message.text, "blocks": message.blocks, "needed": True}
