"""For those who run it, and for what restarts it: `/healthz` (the process) and `/readyz` (can it do its work, and why not)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field

from bot import inert
from bot.logs import without_secrets

_log = structlog.get_logger("clarify.http")
_LONGEST = 200
Status = Callable[[], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Check:
    """`look` says why something is not ready, None if it is."""

    name: str
    look: Callable[[], str | Awaitable[str | None] | None]


class Checked(BaseModel):
    name: str = Field(examples=["slack", "storage", "producer:planner"])
    ok: bool
    why: str = Field(default="", description="Why not; empty if it is")


class Readiness(BaseModel):
    ready: bool = Field(description="Whether all of it is well")
    checks: list[Checked]


def producer_checks(names: Sequence[str], status: Status) -> list[Check]:
    """One check per producer of the configuration. Those that push to us come when they have something to say."""

    def look(name: str) -> str | None:
        now = status().get(name, {})
        if now.get("connected") or now.get("dialect") == "push":
            return None
        return f"not connected: {now.get('last_error') or 'no answer yet'}"

    return [Check(f"producer:{name}", lambda name=name: look(name)) for name in names]  # type: ignore[misc]  # the default binds the name


def health_routes(checks: Sequence[Check]) -> APIRouter:
    router = APIRouter(tags=["For those who run it"])

    @router.head("/healthz", include_in_schema=False)
    @router.get(
        "/healthz",
        summary="Is the process alive?",
        response_class=Response,  # with that of plain text, errors would be documented as plain text, too
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def healthz() -> Response:
        """200 as long as the event loop runs. It says nothing about Slack, producers or the storage."""
        return PlainTextResponse("ok\n")

    @router.head("/readyz", include_in_schema=False)
    @router.get(
        "/readyz",
        summary="Can it do its work?",
        response_model=Readiness,
        responses={503: {"model": Readiness, "description": "Not all of it is well"}},
    )
    async def readyz() -> JSONResponse:
        """200 if Slack, every producer and the storage can be used; else 503, and why not."""
        found = [await _checked(check) for check in checks]
        ready = Readiness(ready=all(each.ok for each in found), checks=found)
        return JSONResponse(ready.model_dump(), 200 if ready.ready else 503)

    return router


async def _checked(check: Check) -> Checked:
    try:
        why = check.look()
        if inspect.isawaitable(why):
            why = await why
    except Exception as error:  # noqa: BLE001 - a check that fails is an answer to what it checks
        _log.exception("a check failed", check=check.name)
        why = f"it could not be looked at ({type(error).__name__})"
    # Others' words: errors of the network quote addresses.
    return Checked(
        name=check.name, ok=why is None, why=inert.clip(without_secrets(why), _LONGEST) if why else ""
    )
