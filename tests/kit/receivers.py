"""A small receiver of webhooks and callbacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.kit.served import served


@dataclass(frozen=True)
class Got:
    headers: dict[str, str]
    body: bytes
    path: str = ""

    @property
    def said(self) -> Any:
        return json.loads(self.body)

    @property
    def event(self) -> str:
        """`requested CLR-42-001`"""
        return f"{self.said['type'].removeprefix('clarification-')} {self.said['data']['clarificationId']}"


@dataclass
class Receiver:
    """Answers as `answers` says, by event or in turn (status, headers; 0 hangs up, -1 never answers); else 204."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    refuses: Callable[[Got], int | None] = lambda _: None
    stall: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.StreamResponse:
        got = Got(dict(request.headers), await request.read(), request.path_qs)
        self.got.append(got)
        status, headers = self.answers.pop(0) if self.answers else (self.refuses(got) or 204, {})
        if status == -1:
            await self.stall.wait()
        if status <= 0:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return web.Response(status=status, headers=headers)

    @property
    def events(self) -> list[str]:
        return [got.event for got in self.got]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with served(receiver.take) as address:
        receiver.url = f"{address}/hook?key=s3cret"
        try:
            yield receiver
        finally:
            receiver.stall.set()
