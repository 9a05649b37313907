"""Brings one Slack message in line with what it should say: post once, update, find again, move, give up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import structlog

from bot.delivery.fallback import NOT_BUILT
from bot.delivery.lanes import Again, Done, NotYet
from bot.delivery.messages import TAKEN_UP, Messages, Row
from bot.delivery.pages import OnOutcome
from bot.delivery.wishes import Hold, Wish, Wishes
from bot.errors import StorageUnavailable
from bot.slackapi import Draft, Gateway, Later, Never, Sent, Unknown
from bot.views import inert
from core.clock import Clock
from core.errors import LedgersAway, LedgerUnreadable, LockTimeout

_log = structlog.get_logger("clarify.delivery")
# A post that timed out may still land: it is looked for this long before it is repeated. Seconds.
LANDING = 5.0
_LOOK_AGAIN = 1.0
_STORAGE_RETRY = 1.0
_AWAY_RETRY = 3.0  # with as many cards as there are
_APP_RETRY = 30.0
_SECTION = 2900
_CLOCKS = 300.0  # seconds that Slack's clock may be behind ours
_ADOPTED = "adopted"  # what a message shows whose place a press told: its sequels are still owed

Unplaceable = Callable[[Row, str], Awaitable[bool]]
Landed = Callable[[Row, Wish], Awaitable[None]]


class Messenger:
    """`unplaceable(row, code)` is asked when Slack will never take a message there: True if it was given a
    new place (the row was moved), False if it cannot be shown at all. `on_outcome` is told of one that was not
    posted because nobody needs it any more, and of one that will be tried again. `may_post(kind)`: whether a new message of this kind may be posted by now.
    """

    def __init__(
        self,
        *,
        gateway: Gateway,
        messages: Messages,
        wishes: Wishes,
        clock: Clock,
        unplaceable: Unplaceable,
        landed: Landed,
        on_outcome: OnOutcome | None = None,
        may_post: Callable[[str], bool] = lambda _: True,
        elsewhere: str | None = None,
    ) -> None:
        """`elsewhere`: the channel in which messages are that theirs did not take."""
        self._gateway = gateway
        self._messages = messages
        self._wishes = wishes
        self._clock = clock
        self._unplaceable = unplaceable
        self._on_landed = landed
        self._on_outcome = on_outcome
        self._may_post = may_post
        self._elsewhere = elsewhere
        self._plain: set[str] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def deliver(self, key: str) -> Done | Again | NotYet:
        """Bring the message `key` in line, as far as one call goes. Never raises for what others do.

        A lane posts and updates side by side: of one message only one call is at work.
        """
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            return await self._deliver(key)

    async def _deliver(self, key: str) -> Done | Again | NotYet:
        row: Row | None = None
        try:
            row = await self._messages.get(key)
            return await self._bring(row) if row is not None and row.failed is None else Done()
        except (StorageUnavailable, LockTimeout) as error:
            _log.warning("delivery has to wait", key=key, reason=str(error))
            return Again(_AWAY_RETRY if isinstance(error, LedgersAway) else _STORAGE_RETRY)
        except LedgerUnreadable as error:
            _log.error("a card cannot be built", key=key, reason=str(error))
            return Done()
        except Exception:  # noqa: BLE001 - told with where, and paged
            # A fault of ours with this one message: it must not stop the others, and somebody has to know.
            _log.exception("a message could not be built", key=key)
            return await self._give_up(row) if row is not None else Done()

    async def adopt(self, row: Row, ts: str) -> None:
        """Somebody pressed a message whose post is in doubt: it is at `ts`.

        Raises:
            StorageUnavailable: that could not be noted.
        """
        await self._messages.adopt(row, ts, _ADOPTED)

    async def _give_up(self, row: Row) -> Done | Again:
        try:
            await self._messages.give_up(row.key, "could not be built")
            await self._unplaceable(row, NOT_BUILT)
        except StorageUnavailable as error:
            _log.warning("delivery has to wait", key=row.key, reason=str(error))
            return Again(_STORAGE_RETRY)
        return Done()

    async def _bring(self, row: Row) -> Done | Again | NotYet:
        wish = await self._wishes.of(row)
        if isinstance(wish, Hold):
            return Done()
        if row.ts is None:
            return await self._post(row, wish)
        if row.shown != wish.digest:
            return await self._update(row, wish)
        if wish.final and not row.final:
            await self._messages.now_shows(row.key, wish.digest, final=True)
        return Done()

    async def _post(self, row: Row, wish: Wish) -> Done | Again | NotYet:
        if row.intent_at is not None:
            found = await self._look_up(row, wish)
            if found is not None:
                return found
        elif wish.waits or (wish.opens_thread and await self._messages.someone_else_opens(row)):
            return Again(_LOOK_AGAIN)
        if wish.unwanted:
            return await self._drop(row)
        return await (self._send(row, wish) if self._may_post(row.kind) else self._hold(row))

    async def _send(self, row: Row, wish: Wish) -> Done | Again:
        channel = wish.channel
        if channel.startswith(("U", "W")):
            dm = await self._gateway.open_dm(channel)
            if not isinstance(dm, str):
                return await self._not_posted(row, wish, dm, tried=False)
            channel = dm
        now = self._clock.now().timestamp()
        if not await self._messages.intend(row.key, channel, wish.thread_ts, now):
            return Again(0.0)  # a press told meanwhile where it is
        outcome = await self._gateway.post(channel, self._draft(row, wish))
        if isinstance(outcome, Sent):
            await self._landed(row, wish, outcome)
            return Done(posted=True)
        return await self._not_posted(row, wish, outcome, tried=True)

    async def _hold(self, row: Row) -> NotYet:
        """It is not there, and is not to be there yet."""
        if row.intent_at is not None:
            await self._messages.not_sent(row.key)
        return NotYet()

    async def _drop(self, row: Row) -> Done:
        await self._messages.give_up(row.key, "not needed any more")
        if self._on_outcome is not None:
            await self._on_outcome(row, "dropped", None)
        return Done()

    async def _look_up(self, row: Row, wish: Wish) -> Done | Again | NotYet | None:
        """A post was begun and its outcome is not known: is it there? None: it is not, post it."""
        begun = row.intent_at or 0.0
        if row.shown is not None and row.shown.startswith(TAKEN_UP):
            found = await self._look_up_old(row, wish, begun)
        else:
            taken = await self._messages.taken_places(row.channel or "", row.clarification, row.key)
            found = await self._gateway.find(row.channel or "", row.thread_ts, wish.matches, taken)
        if isinstance(found, Sent):
            _log.info("found a post whose outcome was unknown", key=row.key)
            await self._landed(row, wish, found, certain=False)
            current = await self._messages.get(row.key)
            return await self._bring(current) if current is not None else Done()
        if isinstance(found, Never):
            return None if found.what in {"place", "message"} else Again(_APP_RETRY)
        if found is not None:
            return Again(_retry_after(found), pause=isinstance(found, Later))
        left = begun + LANDING - self._clock.now().timestamp()
        return Again(min(left, _LOOK_AGAIN)) if 0 < left <= LANDING else None

    async def _look_up_old(self, row: Row, wish: Wish, asked: float) -> Sent | Later | Unknown | Never | None:
        """The card that an earlier storage knew, where it should be or where it went instead."""
        places = dict.fromkeys(each for each in (row.target, self._elsewhere) if each is not None)
        former = (row.shown or "").removeprefix(TAKEN_UP)
        found: Sent | Later | Unknown | Never | None = None
        for place in places:
            found = await self._gateway.find_card(place, wish.matches, asked - _CLOCKS, former)
            if isinstance(found, Sent | Later | Unknown):
                break
        return found

    async def _landed(self, row: Row, wish: Wish, sent: Sent, *, certain: bool = True) -> None:
        """It is there. A post that was found may say what was true when it was tried: it is brought up to date."""
        shown, final = (wish.digest, wish.final) if certain else ("", False)
        await self._messages.landed(
            row,
            sent.channel,
            sent.ts,
            shown,
            final=final,
            opens_thread=wish.opens_thread,
            thread_ts=sent.thread_ts,
        )
        _log.info("posted", key=row.key, channel=sent.channel)
        await self._on_landed(row, wish)

    async def _not_posted(
        self, row: Row, wish: Wish, outcome: Later | Unknown | Never, *, tried: bool
    ) -> Done | Again:
        _log.warning("not posted", key=row.key, outcome=type(outcome).__name__, reason=_reason(outcome))
        if self._on_outcome is not None and not _is_rate_limit(outcome):
            await self._on_outcome(row, "tried", _reason(outcome))
        if isinstance(outcome, Unknown):
            return Again(_LOOK_AGAIN, posted=tried) if tried else Again(pause=True)
        if tried:
            await self._messages.not_sent(row.key)
        if isinstance(outcome, Later):
            return Again(outcome.after, pause=True, posted=tried)
        return await self._refused(row, wish, outcome)

    async def _update(self, row: Row, wish: Wish) -> Done | Again:
        outcome = await self._gateway.update(row.channel or "", row.ts or "", self._draft(row, wish))
        if isinstance(outcome, Sent):
            if row.shown == _ADOPTED:
                await self._on_landed(row, wish)
            await self._messages.now_shows(row.key, wish.digest, final=wish.final)
            return Done()
        _log.warning("not updated", key=row.key, outcome=type(outcome).__name__, reason=_reason(outcome))
        if isinstance(outcome, Later):
            return Again(outcome.after, pause=True)
        if isinstance(outcome, Unknown):
            return Again(pause=True)
        if outcome.what in {"place", "message"} and not wish.needed:
            await self._messages.give_up(row.key, outcome.code)
            return Done()
        return await self._refused(row, wish, outcome)

    async def _refused(self, row: Row, wish: Wish, outcome: Never) -> Done | Again:
        """Slack will never take this as it is: change what is at fault, or give up loudly."""
        if outcome.what == "app":
            return Again(_APP_RETRY)
        if outcome.what == "content" and row.key not in self._plain:
            self._plain.add(row.key)
            return Again(0.0)
        in_thread = wish.thread_ts is not None and row.session_id is not None
        if outcome.what == "message" and (row.ts is not None or in_thread):
            if row.ts is None:
                await self._messages.leave_thread(row.producer or "", row.session_id or "")
            await self._messages.move(row.key, row.target)
            return Again(0.0)
        if await self._unplaceable(row, outcome.code):
            return Done()
        await self._messages.give_up(row.key, outcome.code)
        return Done()

    def _draft(self, row: Row, wish: Wish) -> Draft:
        blocks: list[dict[str, Any]] = wish.message.blocks
        if row.key in self._plain:
            said = inert.split(wish.message.text, _SECTION)
            blocks = [
                *({"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in said),
                *[b for b in blocks if b["type"] == "actions"][:2],
            ]
        return Draft(wish.message.text, blocks, wish.metadata, wish.thread_ts, wish.broadcast)


def _is_rate_limit(outcome: Later | Unknown | Never) -> bool:
    return isinstance(outcome, Later) and outcome.after is not None


def _retry_after(outcome: Later | Unknown) -> float | None:
    return outcome.after if isinstance(outcome, Later) else _LOOK_AGAIN


def _reason(outcome: Later | Unknown | Never) -> str:
    return outcome.code if isinstance(outcome, Never) else outcome.reason
