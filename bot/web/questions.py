"""`/questions`: agents ask people over HTTP, wait for their answers, and withdraw questions; `/receipts`: the receipts of decisions,
with `/.well-known/jwks.json`, the keys to verify them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Response, Security
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from bot.ask.questions import LARGE, MOST_LISTED, Questions
from bot.web.guard import BEARER, Callers, ErrorBody, hung_up, problem, stopping_of
from clarify import RepeatedName, named_once
from core.clarification import ID, Clarification, DirectKind, one_line
from core.clock import SharedPlaces, beside
from core.questions import BadField, NewQuestion, Status, asked_and_receipt, asked_in, state_of
from core.transitions import AlreadyAnswered
from core.workflow import Speaker

LONGEST_WAIT = 55  # seconds: below what proxies and clients allow a request
_RETRY = {"Retry-After": "5"}
_ID_PATTERN = r"^CLR-[0-9]{1,15}-[0-9]{3,15}$"
_Id = Annotated[str, Path(examples=["CLR-100001-001"])]
_Wait = Annotated[int, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the decision")]
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="The same as the field `key`",
    ),
]
_Once = Annotated[
    bool,
    Query(
        description="Get the answer only if no one has picked it up yet, else 409 (`ALREADY_PICKED_UP`). It counts as picked up "
        "before it is sent: if the response is lost, ask a new question"
    ),
]
_SHORT_ARGUMENTS = 16 * 1024  # bytes of JSON; larger ones are left out of lists

LinksOf = Callable[[Sequence[str]], Awaitable[dict[str, str]]]
_MEDIA_TYPE = "application/jwt"
_JWKS = "application/jwk-set+json"
_KEPT = {"Cache-Control": "public, max-age=300"}
_RECEIPT_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The receipt, a JWT in compact form", "content": {_MEDIA_TYPE: {}}},
    404: {
        "model": ErrorBody,
        "description": "You have no such question, or it has no receipt (`NO_RECEIPT`)",
    },
    410: {"model": ErrorBody, "description": "It was deleted, or changed after it was decided"},
}


class ListedQuestion(BaseModel):
    """A question's state. Times are RFC 3339."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="The question's id, for `GET` and `DELETE`")
    kind: DirectKind = Field(description="What kind of answer was asked for")
    agent: str = Field(description="Who asked")
    session: str | None = Field(description="Its session; one session is one Slack thread")
    key: str | None = Field(description="The idempotency key it was asked with")
    status: Status = Field(
        description="`waiting`; `answered`: see `answer`; `expired`: assume `default`; `withdrawn`: you withdrew it; "
        "`closed`: a person closed it, see `comment`"
    )
    escalated: bool = Field(description="Whether the person on call was paged")
    claimed_by: str | None = Field(description="The Slack user who claimed it, while it waits")
    answer: Any = Field(description="The answer, by kind; null if a person wrote only `other`")
    label: str | None = Field(description="The answer as people read it")
    other: str | None = Field(description="The person's own words, instead of or beside a choice")
    comment: str | None = Field(description="Why it was rejected or closed")
    decided_by: str | None = Field(description="Who decided, such as `user:slack/T0LOCAL/U0ANN`")
    decided_at: str | None = Field(description="When")
    default: Any = Field(description="What to assume if no one answers")
    approved_by: list[str] = Field(description="Who has approved so far")
    approvals_needed: int = Field(description="How many different people must approve")
    created_at: str = Field(description="When it was asked")
    expires_at: str | None = Field(description="When it expires")
    link: str | None = Field(description="Its card in Slack, once it is posted")
    asked: dict[str, Any] = Field(
        description="The question as people were shown it, after redaction: `kind`, `question` or `action`, and the other "
        "fields that were set; `risk` is what you `claimed` and what your route `counted`, `approvals` the number that your route demands"
    )


class QuestionState(ListedQuestion):
    """A question's state, with the receipt of its decision. Times are RFC 3339."""

    receipt: str | None = Field(
        description="The signed receipt of the decision, a JWT; null: not decided, or decided before receipts were made"
    )


class QuestionList(BaseModel):
    """A page of your own questions, newest first."""

    questions: list[ListedQuestion] = Field(
        description=f"At most {MOST_LISTED}, and about 1 MiB; the answer of an approval comes without its arguments, and `asked` without"
        f" those of more than {_SHORT_ARGUMENTS // 1024} KB"
    )
    next: str | None = Field(
        description="Pass it as `after` to get the next page; null: this is the last page. A page that is not full can have a next one"
    )


_GONE = "The conversation was deleted (`FORGOTTEN`), or it was changed after it was decided (`TAMPERED`)"
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": QuestionState, "description": "The question's state"},
    404: {"model": ErrorBody, "description": "You have no question with this id"},
    410: {"model": ErrorBody, "description": _GONE},
}
_ONCE: dict[int | str, dict[str, Any]] = {409: {"model": ErrorBody, "description": "See `once`"}}
_ASKED: dict[int | str, dict[str, Any]] = {
    200: {"model": QuestionState, "description": "You asked it before, with this key: its state"},
    201: {"model": QuestionState, "description": "The question is stored and will be posted: its state"},
    403: {"model": ErrorBody, "description": "You may not ask as that agent"},
    409: {
        "model": ErrorBody,
        "description": "The key was used for a different question; or see `once`",
    },
    410: {"model": ErrorBody, "description": _GONE},
    422: {
        "model": ErrorBody,
        "description": "A field is wrong: `field` names it, `message` says what to send",
    },
    429: {"model": ErrorBody, "description": "Too many of your questions are open: see `Retry-After`"},
}
_LISTED: dict[int | str, dict[str, Any]] = {
    200: {"model": QuestionList, "description": "A page of your questions"},
    404: {"model": ErrorBody, "description": "You have no question with this id"},
    429: {"model": ErrorBody, "description": "Too many of your lists wait: see `Retry-After`"},
}


class Waiting:
    """Waits until questions are decided, for at most `most` requests at once, which callers share; the others get the state at
    once.
    """

    def __init__(self, questions: Questions, links_of: LinksOf, most: int) -> None:
        """`links_of` returns the links to cards that are known in time, by clarification."""
        self._questions = questions
        self._links_of = links_of
        self.places = SharedPlaces(most)

    async def settled(
        self, record: Clarification, producer: str, wait: float, *ends: Callable[[], Awaitable[Any]]
    ) -> tuple[Clarification, dict[str, Any], bool]:
        """Waits until the question is decided, at most `wait` seconds or until one of `ends` is done.

        Returns the question, its state, and whether the caller could wait to the end.
        """
        had_place = True
        if wait and record.is_open:
            with self.places.place(producer) as lost:
                if lost is not None:
                    record = await self._questions.until_settled(
                        record.id, producer, wait, lost.wait(), *(end() for end in ends)
                    )
                had_place = lost is not None and not lost.is_set()
        (state,) = await self.states([record])  # with the link to a card that was posted meanwhile
        return record, state, had_place

    async def states(self, records: Sequence[Clarification]) -> list[dict[str, Any]]:
        """Returns the states of questions, in their order."""
        links = await self.links([each.id for each in records])
        return [state_of(each, links.get(each.id)) for each in records]

    async def links(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns the links to cards that are known in time, by clarification."""
        return await self._links_of(ids)


def question_routes(*, questions: Questions, callers: Callers, waiting: Waiting) -> APIRouter:
    checks = [Security(BEARER), Depends(_check_query)]
    router = APIRouter(
        prefix="/questions",
        tags=["questions"],
        dependencies=checks,
        route_class=_exact_routes(questions, callers),
    )
    caller = Depends(callers.asking)

    async def settled(
        record: Clarification, who: Speaker, wait: int, request: Request, status: int = 200, *, once: bool
    ) -> Response:
        """Returns the state once the question is decided, at the latest after `wait` seconds."""
        headers: dict[str, str] = {"Location": f"/questions/{record.id}"} if request.method == "POST" else {}
        ends = stopping_of(request).wait, partial(hung_up, request.receive)
        record, state, had_place = await waiting.settled(record, who.producer, wait, *ends)
        if not had_place:
            headers |= _RETRY
        return await _handed_out(questions, record, who, state, status, headers=headers, once=once)

    @router.post("", response_class=Response, status_code=201, responses=_ASKED)
    async def ask(
        body: NewQuestion,
        request: Request,
        *,
        wait: _Wait = 0,
        once: _Once = False,
        key: _Key = None,
        who: Speaker = caller,
    ) -> Response:
        """Ask a person in Slack. Returns the question's state once it is stored. With `wait`, returns as soon as someone
        decides, or after that many seconds. Asking again with the same `key` returns the same question.
        """
        if key is not None and body.key not in {None, key}:
            raise BadField(
                "key",
                "`key` differs from the header Idempotency-Key. Send only one, or the same value in both.",
            )
        new = body if key is None else body.model_copy(update={"key": key})
        record, is_new = await questions.ask(new, who)
        return await settled(record, who, wait, request, 201 if is_new else 200, once=once)

    @router.get("/{question_id}", response_class=Response, responses=_ANSWERS | _ONCE)
    async def look(
        question_id: _Id, request: Request, *, wait: _Wait = 0, once: _Once = False, who: Speaker = caller
    ) -> Response:
        """Return the question's state. With `wait`, return as soon as someone decides, or after that many seconds. An
        answer counts as picked up once it is sent.
        """
        record = await questions.find(question_id, who.producer)
        return await settled(record, who, wait, request, once=once)

    @router.get("", response_class=Response, responses=_LISTED)
    async def listed(
        status: Annotated[Status | None, Query(description="Only questions with this status")] = None,
        session: Annotated[
            str | None, Query(min_length=1, max_length=256, description="Only questions of this session")
        ] = None,
        after: Annotated[
            str | None, Query(pattern=_ID_PATTERN, description="`next` of the previous page")
        ] = None,
        who: Speaker = caller,
    ) -> Response:
        """List your own questions, for example after a restart: page by page, until `next` is null. A list hands out no
        approved arguments and does not count as picking up an answer; `GET` the question for that.
        """
        found, following = await questions.listed(
            who.producer, _brief, session=session, status=status, after=after
        )
        links = await waiting.links([each["id"] for each in found])
        page = {
            "questions": [each | {"link": links.get(each["id"])} for each in found],
            "next": following,
        }
        return await asyncio.to_thread(JSONResponse, page)

    @router.delete(
        "/{question_id}",
        response_class=Response,
        responses=_ANSWERS | {409: {"model": QuestionState | ErrorBody}},
    )
    async def withdraw(
        question_id: _Id,
        *,
        comment: Annotated[str | None, Query(max_length=500, description="Why; people see it")] = None,
        once: _Once = False,
        who: Speaker = caller,
    ) -> Response:
        """Withdraw a question: its card says so and loses its controls. A closed or expired question stays as it is. If
        someone answered first, you get the answer (409).
        """
        is_withdrawn = True
        try:
            record = await questions.withdraw(question_id, who.producer, one_line(comment or ""))
        except AlreadyAnswered as error:
            record, is_withdrawn = error.record, False
        (state,) = await waiting.states([record])
        if is_withdrawn:
            return await _written(
                questions, record, who, partial(JSONResponse, state | asked_and_receipt(record))
            )
        return await _handed_out(questions, record, who, state, 409, once=once)

    return router


async def _handed_out(
    questions: Questions,
    record: Clarification,
    who: Speaker,
    state: dict[str, Any],
    status: int,
    *,
    headers: Mapping[str, str] | None = None,
    once: bool,
) -> Response:
    """Returns the response with a question's state. An answer counts as picked up once it is sent; with `once`, before that."""
    state |= asked_and_receipt(record)
    if once and state["status"] == "answered":
        await questions.pick_up_once(record)
        return await _written(questions, record, who, partial(JSONResponse, state, status, headers))
    picked_up = partial(questions.picked_up, record)
    return await _written(
        questions, record, who, partial(_FollowedResponse, state, status, headers, picked_up)
    )


class _ReadRequest(Request):
    """A request whose body was read already, as `read`."""

    read: NewQuestion

    async def json(self) -> NewQuestion:
        return self.read


def _exact_routes(questions: Questions, callers: Callers) -> type[APIRoute]:
    """Returns the class of routes that read a question only for a caller who may ask, and a large one beside the event loop."""

    class ExactRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                who = callers.speaker(request)
                found = _ReadRequest(request.scope, request.receive)
                if self.body_field is not None and (body := await found.body()):
                    found.read = await questions.reading.run(
                        who.producer, partial(_question_in, body), len(body)
                    )
                return await handle(found)

            return handled

    return ExactRoute


def _question_in(body: bytes) -> NewQuestion:
    """Reads a question. Its JSON may have no name twice in an object: readers differ in which one counts.

    Raises:
        HTTPException, BadField: it is invalid.
    """
    try:
        given = exact_json(body)
    except (ValueError, RecursionError):
        raise problem(400, "NOT_JSON", "The body must be JSON.") from None
    return NewQuestion.model_validate(given)


def exact_json(body: bytes) -> Any:
    """Reads JSON. An HTTPException rejects an object with the same name twice, and an integer with more digits than Python
    reads; it passes FastAPI's reader as it is.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    try:
        return json.loads(body, object_pairs_hook=named_once)
    except RepeatedName:
        raise problem(
            422, "BAD_INPUT", "An object of the question has the same name twice. Send each name once."
        ) from None
    except ValueError as error:
        if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            raise
        raise problem(
            422, "BAD_INPUT", "An integer of the question has more than 4,300 digits. Send it as a string."
        ) from None


async def _written(
    questions: Questions, record: Clarification, who: Speaker, respond: Callable[[], Response]
) -> Response:
    """Returns the response with a question's state: with arguments, its JSON takes time."""
    return await questions.reading.run(who.producer, respond, LARGE if record.current.arguments else 0)


def _brief(record: Clarification) -> dict[str, Any]:
    """Returns a question's state as lists show it: without the approved arguments, which a list does not hand out, and without
    asked ones that are large.
    """
    state, asked = state_of(record), asked_in(record)
    if len(to_json(asked.get("arguments"))) > _SHORT_ARGUMENTS:
        del asked["arguments"]
    if state["kind"] == "approval" and state["answer"] is not None:
        state["answer"] = {"decision": state["answer"]["decision"]}
    return state | {"asked": asked}


async def _check_query(request: Request) -> None:
    """Rejects unknown query parameters: a caller that writes `wiat` would not wait."""
    known = {each.alias for each in request.scope["route"].dependant.query_params} | {"producer"}
    for name in request.query_params:
        if name not in known:
            field = name if name.isascii() and name.isidentifier() else "query"
            raise BadField(field, f"`{field}` is not a query parameter here. Use {', '.join(sorted(known))}.")


class _FollowedResponse(JSONResponse):
    """A response that calls `written` once it was sent to a caller who is still there."""

    def __init__(
        self,
        content: dict[str, Any],
        status: int,
        headers: Mapping[str, str] | None,
        written: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(content, status, headers)
        self._written = written

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        async with beside(hung_up(receive)) as (left,):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            # Without the last byte: a caller that has everything may hang up.
            await send({"type": "http.response.body", "body": self.body[:-1], "more_body": True})
            await asyncio.sleep(0)  # a closed connection accepts any data, but `left` is done by now
            gone = left.done()
            await send({"type": "http.response.body", "body": self.body[-1:]})
        if not gone:
            await self._written()


def receipt_routes(
    *, questions: Questions, callers: Callers, jwks: Callable[[], Awaitable[dict[str, Any]]]
) -> APIRouter:
    """`jwks` returns the public keys, as a JWK Set."""
    router = APIRouter(tags=["questions"])
    caller = Depends(callers.asking)

    @router.get(
        "/receipts/{question_id}",
        response_class=Response,
        responses=_RECEIPT_ANSWERS,
        dependencies=[Security(BEARER)],
    )
    async def receipt(
        question_id: Annotated[
            str,
            Path(min_length=1, max_length=512, pattern=r"^[ -~]+$", examples=["CLR-100001-001"]),
        ],
        who: Speaker = caller,
    ) -> Response:
        """Return the signed receipt of your question's last decision: a JWT that anyone can verify with the keys at
        `/.well-known/jwks.json`. Takes the question's id, or the reply token of an AAEP event.
        """
        is_id = ID.fullmatch(question_id) is not None
        look = questions.find if is_id else questions.by_token
        record = await look(question_id, who.producer)
        if record.current.receipt is None:
            why = (
                "It is not decided yet."
                if record.is_open
                else "It was decided before receipts were made, or its receipt is not signed yet."
            )
            raise problem(404, "NO_RECEIPT", f"{record.id} has no receipt. {why}")
        return Response(record.current.receipt, media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    @router.get("/.well-known/jwks.json", response_class=Response)
    async def keys() -> Response:
        """Return all public keys that receipts were signed with, old ones too (RFC 7517). No token is needed."""
        return JSONResponse(await jwks(), media_type=_JWKS, headers=_KEPT)

    return router
