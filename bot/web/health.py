"""For those who run it, and for what restarts it: `/livez` (the process) and `/readyz` (can it do its work?).

Ready means: Slack and the storage. Whatever else is wrong costs one agent, one channel or one comfort, and taking the
bot out of service for it would cost all of them: it is listed as degraded, and the answer stays 200.
"""

from __future__ import annotations

import asyncio
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
    """One thing to look at. `look` says what is wrong with it, None if nothing is."""

    name: str
    look: Callable[[], str | Awaitable[str | None] | None]


class Checked(BaseModel):
    name: str = Field(examples=["slack", "storage"])
    ok: bool
    why: str = Field(default="", description="Why not; empty if it is")


class Degraded(BaseModel):
    name: str = Field(examples=["producer:planner"])
    why: str = Field(examples=["not connected: it refuses connections"])


class Readiness(BaseModel):
    ready: bool = Field(description="Whether all of `checks` are ok")
    checks: list[Checked] = Field(description="What it cannot work without")
    degraded: list[Degraded] = Field(description="What does not work besides; empty if all is well")


def producer_checks(names: Sequence[str], status: Status) -> list[Check]:
    """One check per producer of the configuration. Those that push to us come when they have something to say."""

    def look(name: str) -> str | None:
        now = status().get(name, {})
        if now.get("connected") or now.get("dialect") == "push":
            return None
        return f"not connected: {now.get('last_error') or 'no answer yet'}"

    return [Check(f"producer:{name}", lambda name=name: look(name)) for name in names]  # type: ignore[misc]  # the default binds the name


def health_routes(needed: Sequence[Check], parts: Sequence[Check] = ()) -> APIRouter:
    """`needed`: without one of these it is not ready. `parts`: what is wrong with these is listed."""
    router = APIRouter(tags=["For those who run it"])

    for path, summary in (("/livez", "Is the process alive?"), ("/healthz", "The same as `/livez`")):
        router.head(path, include_in_schema=False)(_alive)
        router.get(
            path,
            summary=summary,
            response_class=Response,  # with that of plain text, errors would be documented as plain text, too
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        )(_alive)

    @router.head("/readyz", include_in_schema=False)
    @router.get(
        "/readyz",
        summary="Can it do its work?",
        response_model=Readiness,
        responses={503: {"model": Readiness, "description": "Slack or the storage cannot be used"}},
    )
    async def readyz() -> JSONResponse:
        """200 while Slack and the storage can be used, else 503; `degraded` names whatever else is wrong."""
        whys = await asyncio.gather(*(_why(check) for check in [*needed, *parts]))
        checks = [
            Checked(name=check.name, ok=why is None, why=why or "")
            for check, why in zip(needed, whys, strict=False)
        ]
        degraded = [
            Degraded(name=check.name, why=why)
            for check, why in zip(parts, whys[len(needed) :], strict=True)
            if why is not None
        ]
        ready = Readiness(ready=all(each.ok for each in checks), checks=checks, degraded=degraded)
        return JSONResponse(ready.model_dump(), 200 if ready.ready else 503)

    return router


async def _alive() -> Response:
    """200 as long as the event loop runs. It says nothing about Slack, producers or the storage."""
    return PlainTextResponse("ok\n")


async def _why(check: Check) -> str | None:
    """What is wrong, None if nothing is. Others' words may be in it: errors of the network quote addresses."""
    try:
        why = check.look()
        if inspect.isawaitable(why):
            why = await why
    except Exception as error:  # noqa: BLE001 - a check that fails is an answer to what it checks
        _log.exception("a check failed", check=check.name)
        why = f"it could not be looked at ({type(error).__name__})"
    return inert.clip(without_secrets(why), _LONGEST) if why else None
