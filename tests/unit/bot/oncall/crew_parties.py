"""Configurations, a directory that can fail, and an HTTP receiver that can be told how to behave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.errors import SlackRefusedError, SlackUnreachableError
from bot.oncall.feeds import SourceError, Timetable
from bot.people.directory import Installation, Profile
from bot.settings.load import parse_settings
from bot.settings.model import Settings
from tests.kit.served import served
from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, FALLBACK

BASE = f"""
[slack]
fallback_channel = "{FALLBACK}"
[[producers]]
name = "planner"
url = "http://127.0.0.1:1"
[[routes]]
channel = "{AGENTS}"
"""
ENVIRON = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}


def settings(folder: Path, on_call: str = "", *, base: str = BASE, **environ: str) -> Settings:
    return parse_settings(base + on_call, file=folder / "clarify.toml", environ=ENVIRON | environ)


class Said:
    """An on-call source that says what it is told to."""

    title, origin, variable, advice = "the calendar", "an address", "FEED", "look at it"

    def __init__(self) -> None:
        self.says: Timetable | SourceError = Timetable()

    async def read(self, at: datetime) -> Timetable:
        if isinstance(self.says, SourceError):
            raise self.says
        return self.says


class Directory:
    """What Slack would say: everybody is there and active but `gone`; `down` fails, `slow` never answers."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.unknown: set[str] = set()
        self.guests: set[str] = set()
        self.outsiders: set[str] = set()
        self.away: set[str] = set()
        self.groups: dict[str, frozenset[str]] = {}
        self.down = False
        self.slow = False
        self.refusal: str | None = None

    async def profile(self, user: str) -> Profile:
        await self._call()
        if user in self.unknown:
            raise SlackRefusedError(code="user_not_found")
        team = "T2" if user in self.outsiders else "T1"
        return Profile(user, team, is_deleted=user in self.gone, is_guest=user in self.guests)

    def known_locale(self, user: str) -> str:
        return ""

    async def installation(self) -> Installation:
        return Installation("T1")

    async def group(self, group: str) -> frozenset[str]:
        await self._call()
        if group not in self.groups:
            raise SlackRefusedError(code="no_such_subteam")
        return self.groups[group]

    async def present(self, user: str) -> bool:
        await self._call()
        return user not in self.away

    async def _call(self) -> None:
        if self.slow:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise SlackRefusedError(code=self.refusal)
        if self.down:
            raise SlackUnreachableError


class Receiver:
    """An HTTP server: `status` is what it answers, `hold` keeps its answers back until it is set."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.hold: asyncio.Event | None = None
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.path_qs)
        if request.can_read_body:
            self.bodies.append(await request.json())
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(status=self.status)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with served(receiver.handle) as address:
        receiver.port = int(address.rpartition(":")[2])
        try:
            yield receiver
        finally:
            if receiver.hold is not None:
                receiver.hold.set()
