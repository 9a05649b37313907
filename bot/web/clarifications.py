"""`/clarifications`: agents ask agents over HTTP. As everywhere, the workflows decide who may ask whom.

Answers never come this way: they come from responders, programs, the shell and people, who say who they are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Response, Security
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from bot.ask.questions import LARGEST_PAGE, Reading, Step
from bot.web.guard import BEARER, Callers, hung_up, problem, stopping_of
from core.clarification import (
    DONE,
    HUMAN,
    TOPIC_LIMIT,
    Ask,
    Clarification,
    Question,
    Status,
    agent_key,
    answer_of,
    parse_id,
)
from core.clock import SharedPlaces, first_of
from core.errors import NotFound, ScopeViolation
from core.hub import CONTEXT_LIMIT, HIGHEST_ISSUE, Hub
from core.ledger import Ledger
from core.questions import WholeNumber
from core.records import record_json
from core.router import BODY_LIMIT
from core.workflow import ROLE_LIMIT, Speaker

_LONGEST_WAIT = 60  # seconds
_ID_PATTERN = r"^CLR-[0-9]{1,15}-[0-9]{3,15}$"
_ANY = r"\w !-/:-@\[-`{-~"  # letters and digits of any script, and the other ASCII characters
_SEEN = _ANY.replace(" ", "")
_PERSON = re.compile(r"user:.*|<?@.*|[UW][A-Z0-9]{7,}", re.DOTALL)
_Id = Annotated[str, Path(pattern=_ID_PATTERN, examples=["CLR-42-001"])]
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Idempotency key: repeating a request with the same key and issue returns the same question",
    ),
]
_Test = Callable[[Clarification], bool]
_Role = Annotated[
    str,
    Field(
        min_length=1, max_length=ROLE_LIMIT, pattern=rf"^[{_ANY}]*[{_SEEN}][{_ANY}]*$", examples=["engineer"]
    ),
]
_Words = Annotated[
    str,
    Field(
        min_length=1,
        max_length=BODY_LIMIT,
        pattern=r"\S",
        description="Plain text",
        examples=["Which database?"],
    ),
]
_Context = Annotated[
    str | None,
    Field(max_length=CONTEXT_LIMIT, description="What the answerer should know"),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class RoleQuestion(_Body):
    """A question of one role to another."""

    from_: _Role = Field(
        alias="from", description="The agent role that asks; not a person", examples=["engineer"]
    )
    to: _Role = Field(description="The role to ask; `human` for people", examples=["human"])
    issue: WholeNumber = Field(ge=1, le=HIGHEST_ISSUE, description="The issue's number", examples=[42])
    topic: str = Field(
        max_length=TOPIC_LIMIT,
        description="The topic, or empty; asking again on an answered topic starts the next round",
        examples=["storage"],
    )
    question: _Words
    blocking: bool = Field(default=True, description="Whether `from` is blocked until it has the answer")
    context: _Context = None


class FollowUp(_Body):
    """The next question of an answered clarification."""

    question: _Words
    context: _Context = None


class _LookQuery(BaseModel):
    """What to wait for."""

    wait: int = Field(default=0, ge=0, le=_LONGEST_WAIT, description="Seconds to wait for a change")
    after_round: int | None = Field(default=None, ge=0, description="Wait for a later round, or the end")
    revision: int | None = Field(default=None, ge=0, description="Wait for any change after this revision")


class _ListQuery(BaseModel):
    """Which clarifications to list."""

    issue: int | None = Field(default=None, ge=1, le=10**15)
    status: Status | Literal["open"] | None = Field(
        default=None, description="`open`: every status that still takes an answer"
    )
    after: str | None = Field(default=None, pattern=_ID_PATTERN, description="`next` of the previous page")
    limit: int = Field(default=50, ge=1, le=100)


class Said(BaseModel):
    """One entry of a thread; `timestamp` is RFC 3339."""

    round: int
    from_: str = Field(alias="from")
    type: Literal["question", "answer", "resolution", "escalation"]
    body: str
    timestamp: str


class Shown(BaseModel):
    """A clarification: the ledger's own fields, and the answer to its latest question. Times are RFC 3339."""

    model_config = ConfigDict(extra="allow")

    id: str
    issueNumber: int  # noqa: N815 - the protocol's names
    from_: str = Field(alias="from")
    to: str
    topic: str
    blocking: bool
    status: Status
    round: int
    maxRounds: int  # noqa: N815
    created: str
    staleAfter: str | None = Field(description="When the next reminder or escalation is due")  # noqa: N815
    resolvedAt: str | None  # noqa: N815
    revision: int
    thread: list[Said]
    question: str
    answer: str | None = Field(
        description="The answer to the latest question, in words; null until there is one"
    )
    decidedBy: str | None = Field(  # noqa: N815
        description="Who answered: `user:…`, `agent:…`, or `ledger:…` if another program wrote the answer"
    )
    answeredAt: str | None  # noqa: N815
    escalatedFor: str | None  # noqa: N815
    heldBack: str | None = Field(description="Why people are asked instead of the agent in `to`")  # noqa: N815


class ClarificationPage(BaseModel):
    """Sorted by issue and number. `next`: pass it as `after` to get the next page; null: this is the last page."""

    clarifications: list[Shown]
    next: str | None
    unreadable: list[str] = Field(description="Ids of clarifications that cannot be read")


def clarification_routes(
    *, hub: Hub, ledger: Ledger, callers: Callers, most_waiting: int, reading: Reading
) -> APIRouter:
    """Returns the routes. At most `most_waiting` callers wait at once. `hub` writes with `via="http"`."""
    router = APIRouter(prefix="/clarifications", tags=["clarifications"], dependencies=[Security(BEARER)])
    places = SharedPlaces(most_waiting)
    caller = Depends(callers.asking)

    async def find(wanted: str, who: Speaker) -> Clarification:
        record = await hub.find(wanted)
        if not _seen_by(who)(record):
            raise NotFound(wanted)
        return record

    @router.post("", status_code=201)
    async def ask(body: RoleQuestion, response: Response, key: _Key = None, who: Speaker = caller) -> Shown:
        """Ask a person or another agent. To get the answer, `GET` the returned location with `wait`."""
        _check_asker(body.from_, who)
        asked = Question(context=body.context)
        question = Ask(body.from_, body.question, body.to, body.topic, body.blocking, asked)
        record = await hub.request(body.issue, question, _key(who.producer, key))
        # The same words about another topic are another question. Without a topic, the record's is its first words.
        same = [(body.from_, record.from_), (body.to, record.to)]
        same += [(body.topic, record.topic)] if body.topic.strip() else []
        _check_key(key, record, body.question, same)
        return _located(record, response)

    @router.post("/{clarification_id}/follow-up", status_code=201)
    async def follow_up(
        clarification_id: _Id, body: FollowUp, response: Response, key: _Key = None, who: Speaker = caller
    ) -> Shown:
        """Ask a follow-up on an answered clarification: the next round. After the last round, people take over (409)."""
        await find(clarification_id, who)
        record = await hub.follow_up(clarification_id, body.question, body.context, _key(who.producer, key))
        _check_key(key, record, body.question)
        return _located(record, response)

    @router.get("/{clarification_id}")
    async def look(
        clarification_id: _Id, query: Annotated[_LookQuery, Query()], request: Request, who: Speaker = caller
    ) -> Shown:
        """Return the clarification. With `wait`, return as soon as the latest question is answered or closed, or after
        that many seconds. `after_round` and `revision` change what to wait for.
        """
        record = await find(clarification_id, who)
        is_news = _news(query.after_round, query.revision)
        if not query.wait or is_news(record):
            return _shown(record)
        with places.place(who.producer) as lost:
            if lost is None:
                raise problem(
                    503,
                    "BUSY",
                    "Too many requests are waiting already. Try again in 5 seconds.",
                    headers={"Retry-After": "5"},
                )
            news = asyncio.ensure_future(hub.until(clarification_id, is_news))
            ends = lost.wait(), stopping_of(request).wait(), hung_up(request.receive)
            await first_of(news, *ends, asyncio.sleep(query.wait))
            if not news.cancelled():
                news.result()
        return _shown(await find(clarification_id, who))

    @router.get("")
    async def listed(query: Annotated[_ListQuery, Query()], who: Speaker = caller) -> ClarificationPage:
        """List what your agents asked and were asked, and what your sessions asked."""
        async with reading.list(who.producer) as step:
            return await _page(ledger, _seen_by(who), query, step)

    return router


def _seen_by(who: Speaker) -> _Test:
    """Tests whether a caller may see a record: its own sessions' questions, and those from or to its agents."""

    def seen(record: Clarification) -> bool:
        if record.asked.producer is not None:
            return record.asked.producer == who.producer
        return who.may_be_role(record.from_) or who.may_be_role(record.to)

    return seen


def _news(after_round: int | None, revision: int | None) -> _Test:
    """Tests for the change that a caller waits for."""

    def changed(now: Clarification) -> bool:
        return now.revision != revision

    def went_on(now: Clarification) -> bool:
        return now.status in DONE or now.round > (after_round or 0)

    def answered(now: Clarification) -> bool:
        return now.status in DONE or answer_of(now) is not None

    wanted = [changed] if revision is not None else []
    wanted += [went_on] if after_round is not None else []
    return lambda now: any(is_news(now) for is_news in wanted or [answered])


def _check_asker(role: str, who: Speaker) -> None:
    if agent_key(role) == HUMAN or _PERSON.fullmatch(role.strip()):
        raise ScopeViolation("`from` must be an agent's role; people cannot ask over HTTP.")
    if not who.may_be_role(role):
        why = "You may not ask as this role. Use one of `agents` in your [[producers]] table."
        raise problem(403, "OTHER_AGENT", why, field="from")


def _key(who: str, key: str | None) -> str | None:
    return None if key is None else f"http:{who}:{key}"


def _check_key(
    key: str | None, record: Clarification, question: str, same: Sequence[tuple[str, str]] = ()
) -> None:
    """Raises if a key was used for a different question. `same`: pairs of values, now and in the record, that must match."""
    if key is None:
        return
    if question not in [entry.body for entry in record.thread if entry.type == "question"]:
        why = "This key was used for a different question. Use a new key."
    elif any(agent_key(new) != agent_key(old) for new, old in same):
        why = (
            "This key was used for the same question with a different `topic`, `from` or `to`. Use a new key."
        )
    else:
        return
    raise problem(409, "KEY_REUSED", why, field="Idempotency-Key")


def _located(record: Clarification, response: Response) -> Shown:
    response.headers["Location"] = f"/clarifications/{record.id}"
    return _shown(record)


def _shown(record: Clarification) -> Shown:
    """Returns a record without its reply token, for callers."""
    return Shown.model_validate(record_json(record))


async def _page(ledger: Ledger, may_see: _Test, wanted: _ListQuery, step: Step) -> ClarificationPage:
    """Returns the next matching clarifications. Reads some at a time, each time in a `step`, until the page is full."""
    page = ClarificationPage(clarifications=[], next=None, unreadable=[])
    left = LARGEST_PAGE
    place = parse_id(wanted.after) if wanted.after else (0, 0)
    async with aclosing(
        ledger.every(issue=wanted.issue, waiting=wanted.status == "open", after=place)
    ) as every:
        while True:
            async with step():
                some = await anext(every, None)
                if some is None:
                    return page
                page.unreadable += some.unreadable
                for each in some.records:
                    if not (_has(each, wanted.status) and may_see(each)) or await ledger.is_tampered(each):
                        continue
                    shown, size = await asyncio.to_thread(_shown_and_size, each)
                    if (found := page.clarifications) and (len(found) == wanted.limit or size > left):
                        page.next = found[-1].id
                        last = parse_id(page.next)
                        page.unreadable = [name for name in page.unreadable if parse_id(name) < last]
                        return page
                    found.append(shown)
                    left -= size


def _shown_and_size(record: Clarification) -> tuple[Shown, int]:
    shown = _shown(record)
    return shown, len(shown.model_dump_json())


def _has(record: Clarification, status: str | None) -> bool:
    return status is None or (record.is_open if status == "open" else record.status == status)
