"""Agents that ask agents over HTTP: `/clarifications`. Who may ask whom is decided by the workflows, as everywhere.

Nobody answers this way: answers come from responders, programs, the shell and people, who say who they are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Header, Path, Query, Response, Security
from starlette.requests import Request

from bot.web.callers import BEARER, Callers
from bot.web.clarification_shapes import ID_PATTERN, FollowUp, Page, Question, Shown, Wanted, Wish, shown
from bot.web.errors import problem
from bot.web.listing import Ledgers, page
from bot.web.server import stopping_of
from core import request as asking
from core.book import digest, dump
from core.clarification import DONE, HUMAN, Clarification, agent_key
from core.errors import NotFound, ScopeViolation
from core.waiting import answer_of
from core.workflow import Speaker

_PERSON = re.compile(r"user:.*|<?@.*|[UW][A-Z0-9]{7,}", re.DOTALL)
_Id = Annotated[str, Path(pattern=ID_PATTERN, examples=["CLR-42-001"])]
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Asking again with the same key, about the same issue, is the same question",
    ),
]
_Done = Callable[[Clarification], bool]


class Asks(Protocol):
    """`core.hub.Hub`."""

    async def request(self, request: asking.Request, key: str | None = None) -> Clarification: ...
    async def follow_up(
        self, clarification_id: str, question: str, context: str | None = None, key: str | None = None
    ) -> Clarification: ...
    async def find(self, clarification_id: str) -> Clarification: ...
    async def until(
        self, clarification_id: str, done: _Done, timeout: float | None = None
    ) -> Clarification: ...


def clarification_routes(
    *, hub: Asks, ledger: Ledgers, callers: Callers, most_waiting: int = 1000
) -> APIRouter:
    """Ask, ask further, look, wait: `most_waiting` callers at once. `hub` writes with `via="http"`."""
    router = APIRouter(prefix="/clarifications", tags=["clarifications"], dependencies=[Security(BEARER)])
    desk = _Desk(hub, ledger, most_waiting)
    caller = Depends(callers.speaker)

    @router.post("", status_code=201)
    async def ask(body: Question, response: Response, key: _Key = None, who: Speaker = caller) -> Shown:
        """Ask. The answer comes later: `GET` the location that is returned, with `wait`."""
        return _located(await desk.ask(body, who, key), response)

    @router.post("/{clarification_id}/follow-up", status_code=201)
    async def follow_up(
        clarification_id: _Id, body: FollowUp, response: Response, key: _Key = None, who: Speaker = caller
    ) -> Shown:
        """Ask further about what was answered: the next round. After the last one, people have it (409)."""
        return _located(await desk.follow_up(clarification_id, body, who, key), response)

    @router.get("/{clarification_id}")
    async def look(
        clarification_id: _Id, wish: Annotated[Wish, Query()], request: Request, who: Speaker = caller
    ) -> Shown:
        """How it stands. With `wait`, once there is news, or as it is when the time is over: news is the answer to the
        latest question, or its end; or what `after_round` or `revision` say.
        """
        return shown(await desk.look(clarification_id, who, wish, request))

    @router.get("")
    async def listed(wanted: Annotated[Wanted, Query()], who: Speaker = caller) -> Page:
        """What the caller's agents asked others and were asked by them, and what its sessions asked."""
        return await page(ledger, _seen_by(who), wanted)

    return router


class _Desk:
    def __init__(self, hub: Asks, ledger: Ledgers, most_waiting: int) -> None:
        self._hub = hub
        self._ledger = ledger
        self._most_waiting = most_waiting
        self._waiting = 0

    async def ask(self, body: Question, who: Speaker, key: str | None) -> Clarification:
        _check_role(body.from_)
        if not who.may_be_role(body.from_):
            why = "You may not ask as that role; `agents` of your [[producers]] table says as which."
            raise problem(403, "OTHER_AGENT", why, field="from")
        question = asking.Request(
            body.issue, body.from_, body.to, body.topic, body.question, body.blocking, body.context
        )
        record = await self._hub.request(question, _key(who.producer, key))
        _check_key(record, body.question, key)
        _check_key_is_of(record, body, key)
        return record

    async def follow_up(self, wanted: str, body: FollowUp, who: Speaker, key: str | None) -> Clarification:
        await self._find(wanted, who)
        record = await self._hub.follow_up(wanted, body.question, body.context, _key(who.producer, key))
        _check_key(record, body.question, key)
        return record

    async def look(self, wanted: str, who: Speaker, wish: Wish, request: Request) -> Clarification:
        record = await self._find(wanted, who)
        done = _news(record, wish.after_round, wish.revision)
        if not wish.wait or done(record):
            return record
        with self._place():
            ends = stopping_of(request).wait(), _gone(request)
            await _until_any(wish.wait, self._hub.until(wanted, done), *ends)
        return await self._find(wanted, who)

    async def _find(self, wanted: str, who: Speaker) -> Clarification:
        record = await self._hub.find(wanted)
        if not _seen_by(who)(record):
            raise NotFound(wanted)
        return record

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._waiting >= self._most_waiting:
            raise problem(503, "BUSY", "Too many wait already; ask again.", headers={"Retry-After": "5"})
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


def _seen_by(who: Speaker) -> _Done:
    """What a producer's session asked is for that producer; what one agent asked another, for whoever may be one of them."""

    def seen(record: Clarification) -> bool:
        if record.asked.producer is not None:
            return record.asked.producer == who.producer
        return who.may_be_role(record.from_) or who.may_be_role(record.to)

    return seen


def _news(record: Clarification, after_round: int | None, revision: int | None) -> _Done:
    """What a waiting caller has not seen. Other implementations change records without counting revisions."""
    before = digest(dump(record))

    def changed(now: Clarification) -> bool:
        return now.revision != revision or digest(dump(now)) != before

    def went_on(now: Clarification) -> bool:
        return now.status in DONE or now.round > (after_round or 0)

    def answered(now: Clarification) -> bool:
        return now.status in DONE or answer_of(now) is not None

    wanted = [changed] if revision is not None else []
    wanted += [went_on] if after_round is not None else []
    return lambda now: any(is_news(now) for is_news in wanted or [answered])


async def _until_any(seconds: float, news: Awaitable[Any], *ends: Awaitable[Any]) -> None:
    """Returns at the first of these.

    Raises:
        Exception: of `news`.
    """
    waits = [asyncio.ensure_future(each) for each in (news, *ends)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if not waits[0].cancelled():
        waits[0].result()


async def _gone(request: Request) -> None:
    """Returns when the caller hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_role(role: str) -> None:
    if agent_key(role) == HUMAN or _PERSON.fullmatch(role.strip()):
        raise ScopeViolation("People do not ask over HTTP: expected the role of an agent as `from`.")


def _key(who: str, key: str | None) -> str | None:
    return None if key is None else f"http:{who}:{key}"


def _check_key(record: Clarification, question: str, key: str | None) -> None:
    asked = [entry.body for entry in record.thread if entry.type == "question"]
    if key is not None and question not in asked:
        why = "This key came with another question before."
        raise problem(409, "KEY_REUSED", why, field="Idempotency-Key")


def _check_key_is_of(record: Clarification, body: Question, key: str | None) -> None:
    """The same words about another matter are another question; without a topic it has its first words as one."""
    wanted = [(body.from_, record.from_), (body.to, record.to)]
    wanted += [(body.topic, record.topic)] if body.topic.strip() else []
    if key is not None and any(agent_key(new) != agent_key(old) for new, old in wanted):
        why = "This key came with the same words before, but for another topic, or from or to another agent."
        raise problem(409, "KEY_REUSED", why, field="Idempotency-Key")


def _located(record: Clarification, response: Response) -> Shown:
    response.headers["Location"] = f"/clarifications/{record.id}"
    return shown(record)
