"""GitHub's REST API, as far as it is needed here. Every method raises NotNow or Refused.

Source: docs.github.com, "REST API endpoints for issue comments" and "… for labels".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from bot.github.outcomes import Answer, NotNow, Refused, judged, spent, unsent
from bot.github.plan import Label
from bot.github.turns import Turns
from bot.github.words import key_in
from bot.http import ANSWER_TIMEOUT, NETWORK
from core.clock import Clock

_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PER_PAGE = 50  # comments may be long
_MOST_PAGES = 1000
_MAX_BODY = 32 * 1024 * 1024
_LARGE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Marked:
    """A comment that shows an entry, or says so: `author` is the id of who wrote it."""

    key: str
    comment: int
    author: int | None
    by_app: bool


class GithubApi:
    """`http` sends the token and follows no redirects; `repo` is owner/name below `base`."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        base: str,
        repo: str,
        turns: Turns,
        clock: Clock,
        timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._http = http
        self._base = base.rstrip("/")
        self._repo = f"{self._base}/repos/{repo}"
        self._turns = turns
        self._clock = clock
        self._timeout = timeout

    async def account(self) -> int | None:
        """The id of the token's user; None: it belongs to an app, which may not ask for that."""
        try:
            found = _json(await self._ask("GET", f"{self._base}/user"))
        except Refused as refused:
            if refused.status in (403, 404):
                return None
            raise
        return _id_of(found)

    async def marked(self, issue: int) -> list[Marked]:
        """All comments of an issue that begin with a marker, whoever wrote them."""
        found: list[Marked] = []
        async for answer in self._pages(f"{self._issue(issue)}/comments?per_page={_PER_PAGE}"):
            large = len(answer.body) > _LARGE
            found += await asyncio.to_thread(_marked, answer) if large else _marked(answer)
        return found

    async def labelled(self, name: str) -> set[int]:
        """The numbers of all issues with this label, open or closed."""
        url = f"{self._repo}/issues?labels={quote(name, safe='')}&state=all&per_page={_PER_PAGE}"
        return {number async for answer in self._pages(url) for number in _numbers(answer)}

    async def comment(
        self, issue: int, body: str, begin: Callable[[], Awaitable[None]]
    ) -> tuple[int, int | None]:
        """Post a comment; returns its id, and who it is by. `begin` is called right before it is sent."""
        await self._turns.turn(write=True)
        await begin()
        answer = await self._asked("POST", f"{self._issue(issue)}/comments", {"body": body})
        made = _json(answer)
        if (comment := _id_of(made)) is None:
            raise NotNow("GitHub's answer names no comment", unsure=True)
        return comment, _id_of(made.get("user"))

    async def labels(self, issue: int) -> frozenset[str]:
        """The names of an issue's labels, of which GitHub allows 100."""
        found = _json(await self._ask("GET", f"{self._issue(issue)}/labels?per_page=100"))
        listed = found if isinstance(found, list) else []
        return frozenset(str(each["name"]).casefold() for each in listed if isinstance(each, dict))

    async def add_labels(self, issue: int, names: list[str]) -> None:
        await self._ask("POST", f"{self._issue(issue)}/labels", {"labels": names})

    async def remove_label(self, issue: int, name: str) -> None:
        """One that is not there is as well as removed."""
        try:
            await self._ask("DELETE", f"{self._issue(issue)}/labels/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status != 404:
                raise

    async def create_label(self, label: Label) -> None:
        """One that is there stays as it is."""
        try:
            await self._ask("POST", f"{self._repo}/labels", asdict(label))
        except Refused as refused:
            if refused.status != 422:
                raise

    def _issue(self, issue: int) -> str:
        return f"{self._repo}/issues/{issue}"

    async def _pages(self, first: str) -> AsyncIterator[Answer]:
        url: str | None = first
        for _ in range(_MOST_PAGES):
            if url is None:
                return
            answer = await self._ask("GET", url)
            yield answer
            url = self._next_page(answer)
        raise NotNow("GitHub has more pages than can be looked through")

    def _next_page(self, answer: Answer) -> str | None:
        """Only of the same host: the token must not travel."""
        if answer.next is None or urlsplit(answer.next)[:2] == urlsplit(self._base)[:2]:
            return answer.next
        raise NotNow("the next page is said to be on another host")

    async def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> Answer:
        await self._turns.turn(write=method != "GET")
        return await self._asked(method, url, body)

    async def _asked(self, method: str, url: str, body: dict[str, Any] | None) -> Answer:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._sent(method, url, body)
        except NETWORK as error:
            trouble = unsent(error)
            self._turns.failed(trouble)
            raise trouble from error
        now = self._clock.now()
        problem = judged(answer, now)
        if isinstance(problem, NotNow):
            self._turns.failed(problem)
        else:
            self._turns.went_well()
            if (wait := spent(answer.headers, now)) is not None:
                self._turns.spent(wait)
        if problem is not None:
            raise problem
        return answer

    async def _sent(self, method: str, url: str, body: dict[str, Any] | None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        headers = _HEADERS if content is None else {**_HEADERS, "Content-Type": "application/json"}
        request = self._http.build_request(method, url, content=content, headers=headers)
        response = await self._http.send(request, stream=True)
        try:
            found = bytearray()
            async for chunk in response.aiter_raw():
                found += chunk
                if len(found) > _MAX_BODY:
                    raise httpx.RemoteProtocolError("more than we read")
            following = response.links.get("next", {}).get("url")
            return Answer(response.status_code, response.headers, bytes(found), following)
        finally:
            await response.aclose()


def _marked(answer: Answer) -> list[Marked]:
    listed = _json(answer)
    found = []
    for each in listed if isinstance(listed, list) else ():
        comment = _id_of(each)
        key = key_in(str(each.get("body") or "")) if comment is not None else None
        if comment is not None and key is not None:
            user = each.get("user")
            by_app = isinstance(user, dict) and user.get("type") == "Bot"
            found.append(Marked(key, comment, _id_of(user), by_app))
    return found


def _numbers(answer: Answer) -> list[int]:
    listed = _json(answer)
    numbers = (
        [each.get("number") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    )
    return [number for number in numbers if isinstance(number, int)]


def _id_of(thing: object) -> int | None:
    found = thing.get("id") if isinstance(thing, dict) else None
    return found if isinstance(found, int) else None


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise NotNow("what came is not JSON", unsure=True) from error
