"""What a caller over HTTP is told when something is wrong: always JSON, never what was sent, never where in our code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request
from starlette.responses import Response

from bot.errors import StorageUnavailable
from core.clarification import MaxRoundsExceeded, NotOpen
from core.errors import (
    AgentError,
    AnswerRejected,
    BadInput,
    ClarifyError,
    IllegalTransition,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    ScopeViolation,
    StatusUnavailable,
)

BODY_LIMIT = 1024 * 1024
_RETRY_AFTER = {"Retry-After": "1"}
_CODES = {400: "BAD_REQUEST", 413: "TOO_LARGE", 422: "BAD_INPUT"}
_STATUSES: tuple[tuple[type[ClarifyError], int], ...] = (
    (NotFound, 404),
    (BadInput, 400),
    (AnswerRejected, 400),
    (ScopeViolation, 403),
    (MaxRoundsExceeded, 409),
    (NotOpen, 409),
    (IllegalTransition, 409),
    (AgentError, 502),
    (LockTimeout, 503),
    (LedgerUnreadable, 503),
    (LedgerUnwritable, 503),
    (StatusUnavailable, 503),
)
# pydantic's words for these repeat what was sent, or may.
_TELLTALE = {"union_tag_invalid", "value_error", "assertion_error"}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class ErrorBody(BaseModel):
    """Every answer with a status from 400 on."""

    error: str = Field(description="Stable, for programs", examples=["NOT_FOUND"])
    message: str = Field(description="Why, for people", examples=["There is no clarification CLR-42-001."])
    field: str | None = Field(default=None, description="Which field of the request is at fault, if one is")


ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "It was not done"},
}
"""For the OpenAPI document: `build_app` says it for all routes."""


class TooLarge(HTTPException):
    """The body is over the limit. Raised by whoever reads it, so that a route that does so itself may react."""

    def __init__(self) -> None:
        super().__init__(413, f"The body may have {BODY_LIMIT} bytes at most.")


def problem(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> HTTPException:
    """An exception for a route to raise: answered as `ErrorBody`."""
    detail = {"error": code, "message": message}
    return HTTPException(status, detail | ({"field": field} if field else {}), dict(headers or {}))


def answer_to(error: Exception) -> Response:
    """The answer to a request that ended in `error`. What nobody expected is a 500 that says nothing more."""
    match error:
        case StarletteHTTPException():
            return _refusal(error)
        case RequestValidationError():
            return _invalid(error.errors())
        case StorageUnavailable():
            return _body(503, "STORAGE_UNAVAILABLE", str(error), headers=_RETRY_AFTER)
        case ClarifyError():
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return _body(status, error.code, str(error), headers=_RETRY_AFTER if status == 503 else None)
    return _body(500, "INTERNAL_ERROR", "Something went wrong here; the log says what.")


def install(app: FastAPI) -> None:
    """Have `app` answer errors this way."""

    async def answered(_request: Request, error: Exception) -> Response:
        return answer_to(error)

    for kind in (StarletteHTTPException, RequestValidationError, StorageUnavailable, ClarifyError):
        app.add_exception_handler(kind, answered)


def _refusal(error: StarletteHTTPException) -> Response:
    detail: object = error.detail
    if isinstance(detail, Mapping):
        return _body(
            error.status_code, detail["error"], detail["message"], detail.get("field"), error.headers
        )
    code = _CODES.get(error.status_code) or HTTPStatus(error.status_code).name
    return _body(error.status_code, code, str(detail), headers=error.headers)


def _invalid(errors: Sequence[Any]) -> Response:
    """The first that is wrong. JSON that does not parse is 400, JSON that says the wrong thing 422."""
    first: Mapping[str, Any] = errors[0] if errors else {"type": "value_error", "loc": ()}
    if first["type"] == "json_invalid":
        return _body(400, "NOT_JSON", "The body is not JSON.")
    place = [str(part) for part in first["loc"][1:]]
    field = ".".join(place) if all(_is_name(part) for part in place) else None
    why = "Not what is expected here" if first["type"] in _TELLTALE else str(first["msg"])
    return _body(422, "BAD_INPUT", f"{why}.", field or None)


def _is_name(part: str) -> bool:
    """Whether it is a field's name or a number in a list: what stands for a name may be anything."""
    return _NAME.fullmatch(part) is not None


def _body(
    status: int,
    code: str,
    message: str,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = ErrorBody(error=code, message=message, field=field)
    return JSONResponse(body.model_dump(exclude_none=True), status, dict(headers or {}))
