"""`POST /slack/events`: Slack's request URL, for events, interactions and commands alike."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from bot.slack.request_url import NotTaken, RequestUrl
from bot.web.guard import ErrorBody, problem

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Acknowledged. The body tells Slack what to show or do, if anything",
        "content": {"application/json": {}},
    },
    400: {"model": ErrorBody, "description": "Signed correctly, but unreadable"},
    401: {"model": ErrorBody, "description": "Not signed by Slack, or the signature is too old"},
    500: {
        "model": ErrorBody,
        "description": "Not accepted: Slack resends an event; a person who clicked sees an error",
    },
    503: {"model": ErrorBody, "description": "Not ready yet, or stopping"},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        },
    }
}


def slack_routes(url: RequestUrl) -> APIRouter:
    """Returns the route that hands Slack's signed requests to `url`."""
    router = APIRouter(tags=["Slack"])

    @router.post("/slack/events", responses=_RESPONSES, openapi_extra=_BODY, response_class=Response)
    async def from_slack(request: Request) -> Response:
        """Events, clicks, modals and commands, signed as Slack signs (`X-Slack-Signature`)."""
        # The last of repeated headers counts. The signature covers the unchanged body.
        try:
            answer = await url.take(dict(request.headers.items()), await request.body())
        except NotTaken as error:
            raise problem(error.status, error.code, str(error)) from None
        return Response() if answer is None else JSONResponse(answer)

    return router
