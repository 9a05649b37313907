"""`/receipts` returns the receipts of decisions, and `/.well-known/jwks.json` the keys to verify them with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response, Security
from fastapi.responses import JSONResponse

from bot.ask.questions import Questions
from bot.web.callers import BEARER, Callers
from bot.web.guard import ErrorBody, problem
from core.clarification import ID
from core.workflow import Speaker

_MEDIA_TYPE = "application/jwt"
_JWKS = "application/jwk-set+json"
_KEPT = {"Cache-Control": "public, max-age=300"}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The receipt, a JWT in compact form", "content": {_MEDIA_TYPE: {}}},
    404: {
        "model": ErrorBody,
        "description": "You have no such question, or it has no receipt (`NO_RECEIPT`)",
    },
    410: {"model": ErrorBody, "description": "It was deleted, or changed after it was decided"},
}


def receipt_routes(
    *, questions: Questions, callers: Callers, jwks: Callable[[], Awaitable[dict[str, Any]]]
) -> APIRouter:
    """`jwks` returns the public keys, as a JWK Set."""
    router = APIRouter(tags=["questions"])
    caller = Depends(callers.asking)

    @router.get(
        "/receipts/{question_id}",
        response_class=Response,
        responses=_RESPONSES,
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
