"""Requests to be on call in someone's place (`/clarify oncall ask`): who was asked for what, and what they said.

A request ends when the person asked accepts or declines, when its time begins, or when the same person asks for that time
again. Its end, the override that follows from it, and the messages about it are stored in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.messages import Fresh, put
from bot.errors import StorageUnavailable
from bot.oncall.incidents import moment
from bot.oncall.roster import Roster, insert_override
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx
from bot.views.blockkit import Draft
from bot.views.render import Renderer
from bot.views.shifts import SwapRequest, SwapState, asker_words, swap_card
from core.clock import Clock, event_or_time
from core.escalation import Override

_log = structlog.get_logger("clarify.oncall")
_LOOK_AGAIN = 60.0  # seconds: the clock may be set meanwhile
_STORAGE_RETRY = 1.0


def card_key(number: int) -> str:
    return f"word:oncall:ask:{number}"


@dataclass(kw_only=True, eq=False)
class SwapRequests:
    """Stores swap requests. Methods raise StorageUnavailable if nothing was stored; what they store is durable when they
    return. `run` on the leader: requests without an answer lapse.
    """

    roster: Roster
    delivery: Delivery
    renderer: Renderer
    store: Store
    clock: Clock
    _asked: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._asked.clear()
            try:
                seconds = await self._lapse()
            except StorageUnavailable as error:
                _log.warning("a swap request lapses later", reason=str(error))
                seconds = _STORAGE_RETRY
            await event_or_time(self.clock, self._asked, seconds)

    def wake(self) -> None:
        """Say that there may be a new request."""
        self._asked.set()

    async def get(self, number: int) -> SwapRequest | None:
        row = await self.store.read_one("select * from swap_requests where id = :number", number=number)
        return None if row is None else _request(row)

    async def ask(self, request: SwapRequest) -> list[SwapRequest] | None:
        """Stores and sends a new request. Earlier ones of the same person for some of that time are withdrawn.

        Returns:
            The requests that were withdrawn; None if the same request is open already.
        """

        def work(tx: Tx) -> tuple[list[SwapRequest] | None, list[Fresh]]:
            rows = tx.rows(
                """select * from swap_requests where state = 'open' and policy = :policy and asked_by = :by
                   and since < :until and until > :since order by id""",
                policy=request.policy,
                by=request.by,
                since=request.since.timestamp(),
                until=request.until.timestamp(),
            )
            earlier = [_request(row) for row in rows]
            if any(replace(each, number=0, team=request.team) == request for each in earlier):
                return None, []
            withdrawn = [ended for each in earlier if (ended := _end(tx, each, "withdrawn")) is not None]
            row = tx.one(
                """insert into swap_requests (policy, user_id, since, until, asked_by, team)
                   values (:policy, :user, :since, :until, :by, :team) returning *""",
                policy=request.policy,
                user=request.user,
                since=request.since.timestamp(),
                until=request.until.timestamp(),
                by=request.by,
                team=request.team,
            )
            assert row is not None  # noqa: S101 - `returning` returns it
            messages = [self._card(each) for each in (*withdrawn, _request(row))]
            put(tx, messages)
            tx.tell("home")
            return withdrawn, messages

        withdrawn, messages = await self.store.write(work)
        self.wake()
        await self._send(messages)
        return withdrawn

    async def answer(self, request: SwapRequest, state: Literal["accepted", "declined"]) -> SwapRequest:
        """Ends an open request before its time begins: accepted, it becomes an override. Returns it as it is now."""
        now = self.clock.now()

        def work(tx: Tx) -> tuple[SwapRequest, list[Fresh]]:
            ended = _end(tx, request, state if now < request.since else "lapsed")
            if ended is None:
                row = tx.one("select * from swap_requests where id = :number", number=request.number)
                return (replace(request, state="lapsed") if row is None else _request(row)), []
            number = None
            if ended.state == "accepted":
                swap = Override(request.user, request.since, request.until, request.by, request.policy)
                number = insert_override(tx, swap, now)
            messages = [self._card(ended), self._to_asker(ended, number)]
            put(tx, messages)
            return ended, messages

        ended, messages = await self.store.write(work)
        if messages and ended.state == "accepted":
            self.roster.wake()
        await self._send(messages)
        return ended

    async def _lapse(self) -> float:
        """Ends the requests whose time has begun; returns the seconds until the next look."""
        rows = await self.store.read("select * from swap_requests where state = 'open' order by since, id")
        now, requests = self.clock.now(), [_request(row) for row in rows]
        over = [each for each in requests if each.since <= now]
        if over:
            await self._send(await self.store.write(lambda tx: self._end_all(tx, over)))
        ahead = ((each.since - now).total_seconds() for each in requests[len(over) :])
        return min((*ahead, _LOOK_AGAIN)) if len(requests) > len(over) else inf

    def _end_all(self, tx: Tx, requests: Sequence[SwapRequest]) -> list[Fresh]:
        ended = [each for one in requests if (each := _end(tx, one, "lapsed")) is not None]
        messages = [message for each in ended for message in (self._card(each), self._to_asker(each, None))]
        put(tx, messages)
        return messages

    def _card(self, request: SwapRequest) -> Fresh:
        wanted = f"swap {request.state}"
        return self._message(card_key(request.number), request.user, swap_card(request), wanted)

    def _to_asker(self, request: SwapRequest, override: int | None) -> Fresh:
        key = f"word:oncall:asked:{request.number}"
        return self._message(key, request.by, asker_words(request, override), "word")

    def _message(self, key: str, user: str, draft: Draft, wanted: str) -> Fresh:
        message = self.renderer.message(draft)
        body = {"text": message.text, "blocks": message.blocks, "thread_ts": None}
        return Fresh(key=key, kind="word", target=user, body=body, wanted=wanted)

    async def _send(self, messages: Sequence[Fresh]) -> None:
        for each in messages:
            await self.delivery.send_stored(each.key)


def _end(tx: Tx, request: SwapRequest, state: SwapState) -> SwapRequest | None:
    """Returns the request with its new state, or None if it was over already."""
    sql = "update swap_requests set state = :state where id = :number and state = 'open'"
    return replace(request, state=state) if tx.run(sql, state=state, number=request.number) else None


def _request(row: Row) -> SwapRequest:
    return SwapRequest(
        policy=row["policy"],
        user=row["user_id"],
        since=moment(row["since"]),
        until=moment(row["until"]),
        by=row["asked_by"],
        team=row["team"],
        number=row["id"],
        state=row["state"],
    )


SWEEP = Sweep(
    "swap_requests",
    """select id as name from swap_requests where id > :after and id < (select max(id) from swap_requests)
       and until < :horizon order by id limit :most""",
    ("delete from swap_requests where id in :names",),
    first=0,
)


def leave_out(tx: Tx, count: int) -> None:
    """Skip `count` ids: an unused row takes the last of them."""
    tx.run(
        """insert into swap_requests (id, policy, user_id, since, until, asked_by, team, state)
           select coalesce(max(id), 0) + :count, '', '', 0, 0, '', '', 'lapsed' from swap_requests""",
        count=count,
    )
