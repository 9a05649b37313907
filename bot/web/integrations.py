"""Serves the routes of integrations, each below its integration's name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from bot.api import Request, Route, RouteRefused
from bot.web.guard import Callers, hung_up, problem, stopping_of
from core.clock import SharedPlaces, first_of


def integration_routes(
    routes: Mapping[str, Sequence[Route]], callers: Callers, places: SharedPlaces
) -> APIRouter:
    """Returns the routes of all integrations, for `callers`, who wait in `places`. What one raises is answered as on other
    routes.
    """
    router = APIRouter()
    for name, added in routes.items():
        for each in added:
            path, answer = f"/{name}{each.path}", _answering(each, callers, places)
            router.add_api_route(path, answer, methods=[each.method], include_in_schema=False)
    return router


def _answering(
    route: Route, callers: Callers, places: SharedPlaces
) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    async def answer(request: HttpRequest) -> HttpResponse:
        speaker = callers.speaker(request)
        asked = Request(
            speaker=speaker,
            path=request.path_params,
            query=request.query_params,
            headers=request.headers,
            body=await request.body(),
            ends=partial(_ended, request, places, speaker.producer),
        )
        try:
            found = await route.answer(asked)
        except RouteRefused as error:
            raise problem(error.status, error.code, str(error)) from None
        return JSONResponse(found.json, found.status)

    # FastAPI reads the type from here, since annotations are text.
    answer.__annotations__ = {"request": HttpRequest, "return": HttpResponse}
    return answer


async def _ended(request: HttpRequest, places: SharedPlaces, producer: str) -> None:
    """Returns at once if there is no place to wait."""
    with places.place(producer) as lost:
        if lost is not None:
            await first_of(stopping_of(request).wait(), hung_up(request.receive), lost.wait())
