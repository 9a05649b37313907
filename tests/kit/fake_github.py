"""A small GitHub: comments, labels, pages, and what can go wrong."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.kit.served import served

BOT, SOMEBODY = 7, 8
TOKEN = "ghp_s3cret"
PREFIX = "/api/v3"


@dataclass(frozen=True)
class Fault:
    """`done`: the request has its effect all the same. `status` 0: the connection ends; -1: no answer comes. `late`: the answer
    comes once `stall` is set.
    """

    status: int = 0
    done: bool = False
    late: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "{}"


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    at: float
    body: Any

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


class Github:
    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.address = ""
        self.calls: list[Call] = []
        self.headers: list[dict[str, str]] = []
        self.comments: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.labels: dict[int, set[str]] = defaultdict(set)
        self.known_labels: dict[str, dict[str, str]] = {}
        self.missing: set[int] = set()
        self.page = 50
        self.user: dict[str, Any] = {"id": BOT, "login": "clarify", "type": "User"}
        self.faults: dict[str, list[Fault]] = defaultdict(list)  # "POST comments" → the next ones
        self.always: dict[str, str] = {}  # headers of every answer
        self.stall = asyncio.Event()
        self._ids = 1000

    def bodies(self, issue: int) -> list[str]:
        return [each["body"] for each in self.comments[issue]]

    def count(self, method: str, ending: str) -> int:
        return len(self.of(method, ending))

    def of(self, method: str, ending: str) -> list[Call]:
        return [call for call in self.calls if call.method == method and call.path.endswith(ending)]

    def write(self, issue: int, body: str, user: int = SOMEBODY) -> None:
        """Somebody comments by hand."""
        kind = {"id": user, "login": "u", "type": "User"}
        self._ids += 1
        self.comments[issue].append({"id": self._ids, "body": body, "user": kind})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or "null")
        path = request.rel_url.raw_path
        self.calls.append(Call(request.method, path, self.seconds(), body))
        self.headers.append(dict(request.headers))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._said(401, {"message": "Bad credentials"})
        kind = (
            "comments"
            if path.endswith("/comments")
            else "labels"
            if "/labels" in path
            else path.rpartition("/")[2]
        )
        waiting = self.faults[f"{request.method} {kind}"]
        fault = waiting.pop(0) if waiting else None
        answer = None if fault and not fault.done else self._done(request, body)
        if fault is None:
            assert answer is not None
            return answer
        return await self._broken(request, fault)

    async def _broken(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.status == -1 or fault.late:
            await self.stall.wait()
        if fault.status <= 0:
            if request.transport is not None:  # else they hung up first
                request.transport.abort()
            return web.Response()
        return web.Response(status=fault.status, headers={**self.always, **fault.headers}, text=fault.body)

    def _done(self, request: web.Request, body: Any) -> web.Response:
        parts = request.rel_url.raw_path.removeprefix(f"{PREFIX}/").split("/")
        if parts[:3] != ["repos", "acme", "app"]:
            return self._said(404, {"message": "Not Found"})
        if parts[3:] == ["labels"]:
            return self._created(body)
        return self._of_issue(request, int(parts[4]), parts[5], body)

    def _of_issue(self, request: web.Request, issue: int, what: str, body: Any) -> web.Response:
        if issue in self.missing:
            return self._said(404, {"message": "Not Found"})
        if what == "comments":
            return self._posted(issue, body) if request.method == "POST" else self._listed(request, issue)
        return self._labelled(request, issue, body)

    def _created(self, body: Any) -> web.Response:
        if body["name"] in self.known_labels:
            return self._said(422, {"errors": [{"code": "already_exists"}]})
        self.known_labels[body["name"]] = body
        return self._said(201, body)

    def _posted(self, issue: int, body: Any) -> web.Response:
        if len(body["body"]) > 65_536:
            return self._said(422, {"message": "Body is too long (maximum is 65536 characters)"})
        self._ids += 1
        made = {"id": self._ids, "body": body["body"], "user": self.user}
        self.comments[issue].append(made)
        return self._said(201, made)

    def _listed(self, request: web.Request, issue: int) -> web.Response:
        number = int(request.query.get("page", "1"))
        size = min(self.page, int(request.query.get("per_page", "30")))
        start = (number - 1) * size
        more = start + size < len(self.comments[issue])
        link = f'<{self.address}{request.rel_url.raw_path}?per_page={size}&page={number + 1}>; rel="next"'
        headers = {"Link": link} if more else {}
        return self._said(200, self.comments[issue][start : start + size], headers)

    def _labelled(self, request: web.Request, issue: int, body: Any) -> web.Response:
        if request.method == "POST":
            for name in body["labels"]:
                self.known_labels.setdefault(name, {"color": "ededed"})
            self.labels[issue] |= set(body["labels"])
        if request.method == "DELETE":
            name = request.rel_url.path.rpartition("/")[2]
            if name not in self.labels[issue]:
                return self._said(404, {"message": "Label does not exist"})
            self.labels[issue].discard(name)
        return self._said(200, [{"name": name} for name in sorted(self.labels[issue])])

    def _said(self, status: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response(body, status=status, headers={**self.always, **(headers or {})})


@asynccontextmanager
async def serving(seconds: Callable[[], float]) -> AsyncIterator[Github]:
    """On a free port of this machine."""
    github = Github(seconds)
    async with served(github.answer) as github.address:
        try:
            yield github
        finally:
            github.stall.set()
